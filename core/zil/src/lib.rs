//! The intent log (ZIL): changes that are durable before their txg is stored.
//!
//! # Problem
//! A change is durable when its transaction group is stored, seconds later. A synchronous change
//! (`fsync`, `O_SYNC`, `sync=always`) must not wait so long, and must not close txgs early.
//!
//! # Mechanism
//! Each change of a file system leaves a small record in memory ([`IntentLog::record`]); when its
//! txg is stored the record is dropped, and nothing was written. Only a synchronous change writes
//! records, those that its file needs ([`IntentLog::commit`]).
//!
//! # Invariants
//! - When [`IntentLog::commit`] has succeeded, its changes are in a stored txg, or in the log on
//!   the disk.
//!
//! # Knows nothing about
//! Files: the layers above know what a record means.

mod batches;
pub mod chain;
mod claim;
mod commit;
mod error;
mod free;
mod log;
mod packing;
mod pending;
mod probes;
mod ready;
mod record;
mod replay;
mod storing;
mod sync_policy;

pub use claim::{Claim, ClaimError, Survey, survey};
pub use error::CommitError;
pub use free::{free, free_unclaimed};
pub use log::{Durability, IntentLog};
pub use record::{Contents, Fetched, IntentRecord, LogSource, PlacedWrites, WholeBlocks};
pub use replay::{
    Refusal, Replay, ReplayCounts, ReplayError, Replayer, WrittenData, is_needed, replay,
};
pub use storing::LogClosing;
pub use sync_policy::{LogBias, SyncPolicy};
