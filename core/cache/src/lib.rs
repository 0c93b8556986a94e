//! Blocks kept in memory, read once however many wait, and brought in before they are asked for.
//!
//! # Problem
//! A device answers in a hundred microseconds or in ten milliseconds, memory in less than one. What
//! is kept decides how fast a server is; and what keeping costs is paid by every single read that
//! would have been fast anyway. Memory is not ours alone: what we may take is a fixed budget, and
//! the machine may want some of it back.
//!
//! # Mechanism: the cached read path
//! A block is known by its pool, its first place and the txg that wrote it there: the key. One
//! thread, the caller's, does this:
//!
//! 1. A hole or an embedded block is made from its pointer, and never kept.
//! 2. The key picks a *shard*. Under the shard's lock the key is looked up. A *hit* moves the entry
//!    on its list and copies a pointer: that is the whole of the hot path, one short lock, no
//!    allocation, no byte copied.
//! 3. On a miss the caller leaves a *flight* in the shard and reads the block through `block`,
//!    without any lock ([`single_flight`]). Other threads that want the block find the flight and
//!    wait for it; all get the same block, or the same error.
//! 4. The block is kept ([`adaptive`]), a block of few pointers packed ([`contents`]): what is
//!    dropped for it is decided there. A write puts its blocks here too, and a free takes them out.
//!
//! *Prefetch* is the same read, done by a few workers ahead of the reader, in batches that are one
//! batch for the devices as well ([`workers`]); what to read is decided by watching ([`prefetch`]).
//! A reader that catches up with a block still in the queue reads it himself.
//!
//! What leaves memory may go to devices, and is read from there: the *second level*
//! ([`second_level`]).
//!
//! While the machine is short of memory the cache does with less than its budget ([`pressure`]).
//!
//! A block that is rewritten in place within its txg stays readable for readers that got its
//! earlier pointer (`rewritten`).
//!
//! # Invariants
//! - What is given out was verified by `block`, or written by us in this run; it is never changed.
//! - What is kept, with the cost of keeping it, is at most the budget, per shard and so in all.
//! - A key is read at most once at a time. A flight ends in an answer or in a new attempt, even if
//!   its leader panics.
//! - Two pointers with one key but different sizes or checksums are not the same block, though
//!   only a damaged pool has such: the kept block is not given to both.
//! - No lock is held across a read; a shard's lock is held for a few dozen instructions.
//!
//! # Knows nothing about
//! Objects and files; what is dirty; whether a user may read a dataset.

mod adaptive;
mod cache;
mod contents;
mod fixed_state;
mod key;
mod pool_cache;
pub mod prefetch;
pub mod pressure;
mod probes;
mod ranks;
mod rewritten;
mod second_level;
mod second_probes;
mod shard;
mod single_flight;
mod workers;

pub use cache::{Cache, CacheOptions, Hint, Lent};
pub use contents::{Contents, WeakContents};
pub use pool_cache::PoolCache;
pub use prefetch::{ObjectKey, Prefetcher};
pub use second_level::{SecondLevelUse, follow_stored_log};
pub use workers::PREFETCH_BLOCKS_MAX;
