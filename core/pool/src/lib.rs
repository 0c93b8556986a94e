//! Pools: all layers put together.
//!
//! # Mechanism
//! [`Pool`] owns what the layers below share: the vdev tree, free space, the block pipelines, the
//! cache, the transaction groups, the MOS, and the tree of datasets. [`import`](mod@import) finds
//! all of it from labels; `create` makes it; `sync` stores one txg after the other.
//!
//! # Knows nothing about
//! Files, mounts, commands.

pub mod add;
pub mod attach;
mod auxiliary_devices;
mod cache_vdevs;
pub mod checkpoint;
mod claim_logs;
mod clean_up;
mod cloned_blocks;
pub mod close;
mod config;
pub mod create;
mod deferred;
mod detach;
pub mod directory;
mod dirty_time_logs;
pub mod error;
mod error_log;
pub mod events;
mod expand_vdevs;
mod failure;
pub mod features;
mod fill;
pub mod find_block;
mod found_errors;
pub mod history;
mod history_write;
pub mod import;
pub mod initialize_trim;
mod job_queue;
mod jobs;
mod leaver;
mod left_behind;
mod log_devices;
mod log_holds;
mod log_space_maps;
mod mos_writer;
pub mod multihost;
mod note_times;
mod offline;
pub mod pool;
mod probed_devices;
mod probes;
pub mod properties;
pub mod rebuild;
pub mod reguid;
mod remove_log;
mod replacing;
pub mod rewind;
pub mod scan;
pub mod size;
mod space_maps;
pub mod split;
mod suspend;
mod sync;
mod sync_scope;
mod thresholds;
mod times_noted;
mod txg_history;
mod vdev_objects;
pub mod vdev_properties;
mod written_configuration;

pub use cache_vdevs::CacheContents;
pub use cloned_blocks::CloneSums;
pub use close::Leaving;
pub use create::{CreateRequest, NewVdev};
pub use error::{ImportError, PoolError, TaskError, VdevChangeError};
pub use error_log::error_log_count;
pub use history_write::{CallRecord, CommandRecord};
pub use import::ImportRequest;
pub use pool::{Mode, Pool, PoolOwner};
pub use properties::PoolPropertyChange;
pub use rebuild::RebuildStatus;
pub use scan::{LeafScan, ScanChange, ScanPass, ScanRefusal, ScanStatus};
pub use suspend::ResumeRefusal;
