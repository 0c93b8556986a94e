//! The intent log: what was promised before its txg is stored.
//!
//! # Problem
//! A change is durable when its transaction group is stored, seconds later. Who asks for durability at once (`fsync`, `O_SYNC`,
//! `sync=always`) must not wait so long, and must not have groups stored before their time.
//!
//! # Mechanism
//! Each change of a file system leaves a small record in memory ([`IntentLog::record`]); when its group is stored the record
//! is dropped, and nothing was written. Only who asks for durability has records written, those that his file
//! needs ([`IntentLog::commit`]).
//!
//! # Invariants
//! - What [`IntentLog::commit`] has promised is in a stored group, or in the log on the disk.
//!
//! # Knows nothing about
//! Files: what a record means is decided above.

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

pub use claim::{Claim, ClaimError, Survey, survey};
pub use error::CommitError;
pub use free::{free, free_unclaimed};
pub use log::{Durability, IntentLog, LogBias};
pub use record::{Contents, Fetched, IntentRecord, LogSource, PlacedWrites, WholeBlocks};
pub use replay::{
    Refusal, Replay, ReplayCounts, ReplayError, Replayer, WrittenData, is_needed, replay,
};
pub use storing::LogClosing;
