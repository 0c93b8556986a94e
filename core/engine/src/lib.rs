//! The engine: imported pools, their served file systems, and mounts.
//!
//! Front ends that serve data use this crate and nothing below it: [`files`] and [`volumes`] have
//! handles that they call in the thread that took the request. No message, no copy, no text.
//!
//! The crate `tarn-administration` stands on top and carries out the commands of `zpool` and `zfs`:
//! it calls [`Engine`], [`importing`] and [`mounting`], and front ends build without it.

pub mod autoreplace;
pub mod count_owners;
pub mod engine;
pub mod fault_manager;
mod file_paths;
pub mod files;
pub mod hot_spares;
pub mod importing;
pub mod inspect;
pub mod instance;
mod known_paths;
mod lock_waits;
mod log_counts;
pub mod mount_index;
pub mod mount_options;
pub mod mounting;
pub mod mounts;
mod operation_analytics;
mod operation_names;
pub mod policy;
mod presence;
pub mod refusals;
mod scheduled_scrubs;
pub mod served;
pub mod sharing;
mod snapshot_directory;
mod start;
mod start_analytics;
mod start_archive;
pub mod streams;
pub mod tree;
pub mod turns;
pub mod volumes;

pub use engine::{Engine, EngineOptions};
pub use presence::Presence;
pub use tarn_host::DeviceNumber;
pub use tarn_host::loop_device;
pub use tarn_host::{Account, AccountKind, account_of_user};
pub use tarn_host::{FileProject, Host, Pipe, PipeStopper, RealOptions};
pub use tarn_host::{account_name, find_account, groups_of_peer, gss};
pub use tarn_host::{call_apart, caller, open_apart, words_of};
pub use tarn_host::{is_in_netgroup, machine_name};

pub use known_paths::FileKey;
pub use tarn_analytics as analytics;
pub use tarn_archive as archive;

/// What front ends count, for `tarn kstat`.
pub mod statistics {
    pub use tarn_probe::{Counter, Instance, Value, registry};
}

pub use tarn_dataset::{names, properties};
pub use tarn_ondisk::features;
