//! The pool checkpoint: one earlier state of the whole pool that is kept, to rewind to it.
//!
//! # Mechanism
//! A checkpoint is the uberblock of the newest stored txg, copied into the pool directory. From the
//! next txg on, blocks that were born up to then are not freed any more: they stay allocated in the
//! space maps of their metaslabs, and their ranges are appended to one more space map of their
//! top-level vdev ([`maps`]). `space` tells these frees from others by the block's birth.
//!
//! To discard a checkpoint, one txg removes the uberblock from the directory; from then on blocks
//! are freed as ever. Later txgs free the ranges in the vdevs' maps, from their ends, a bounded
//! number in each ([`discard`]). The feature `zpool_checkpoint` is active until nothing is left.
//!
//! To rewind to a checkpoint, the import writes its uberblock with a txg behind the newest
//! ([`rewind`]).
//!
//! # Invariants
//! - No block of the checkpoint is freed or overwritten while its uberblock is in the directory.
//! - Devices do not leave, join vdevs or move to other pools while the feature is active: the
//!   configuration of the checkpoint has them.
//!
//! # After a crash
//! Creating is one txg, and so is each step of discarding, which goes on after the next import. The
//! rewind is done once the uberblock is on one device: the next import takes it for the newest.

pub(crate) mod control;
pub(crate) mod discard;
mod load;
pub(crate) mod maps;
pub(crate) mod rewind;
pub(crate) mod state;

pub use control::CheckpointError;
pub use state::{CheckpointRefusal, CheckpointState, CheckpointStatus};
