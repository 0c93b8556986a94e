//! The engine: the one public interface of the file system.
//!
//! Front ends and commands use this crate and nothing below it. It has two faces:
//!
//! - [`files`] (and later volumes): handles for front ends that serve data, called in the thread
//!   that took the request. No message, no copy, no text.
//! - [`administration`]: one request and one reply per administrative command, as plain
//!   serialisable values ([`messages`]). The control interface carries them as JSON, and the
//!   commands print the replies.
//!
//! Every operation that changes state takes an [`administration::Call`], so that history and audit
//! have the caller.

pub mod administration;
mod bounded_text;
mod call_record;
mod count_owners;
mod create;
mod datasets;
pub mod engine;
pub mod files;
mod inert;
pub mod inspect;
pub mod instance;
mod kstat;
pub mod messages;
mod mount_index;
pub mod mount_options;
pub mod mounts;
mod policy;
mod pools;
mod refusals;
mod served;
mod service;
mod snapshot_directory;
mod start;
mod streams;
mod tree;
mod turns;
mod volumes;

pub use engine::{Engine, EngineOptions};
pub use tarn_host::DeviceNumber;
pub use tarn_host::{AccountKind, account_name, find_account, groups_of_peer};
pub use tarn_host::{FileProject, Host, Pipe, PipeStopper, RealOptions};
pub use tarn_host::{caller, words_of};

pub use tarn_dataset::{names, properties};
pub use tarn_ondisk::features;
