//! The second level: blocks that leave memory are kept on devices of their own, the cache devices.
//!
//! # Problem
//! Memory holds a part of what is wanted, and the disks of the pool may be slow. An SSD is larger
//! than memory and faster than disks, but wears out by being written, loses what a power cut
//! takes, and may lie.
//!
//! # Mechanism: feeding
//! A thread of the pool ([`feeder`]) goes along the ends of the first level's lists about once a
//! second, and writes the blocks that will be dropped next to one of the devices ([`feed`]), so
//! that dropping never waits. It writes so many bytes in a second and no more; while the first
//! level is not full it writes twice as many, and begins with the newest. What readers that keep
//! blocks themselves have read ([`Hint::PASSING`](crate::Hint)) is offered besides. A device is
//! written round and round ([`ring`]). What is kept has the stored form of the pool: compressed,
//! and verified by the pointer's checksum.
//!
//! # Mechanism: reading
//! A miss of the first level looks the block up by its key ([`index`]) and reads it from the device
//! ([`level`]). Only bytes that the pointer's checksum confirms are given out; all else falls back
//! to the pool.
//!
//! # Mechanism: after an import
//! A device lists its contents ([`log`]), and is read anew ([`rebuild`]).
//!
//! # Invariants
//! - Nothing of a cache device is believed: a device that lies, is old, or is another costs reads.
//! - Blocks enter when their txg is stored: a key that a crash takes back is not on a device.
//! - What the index takes of memory counts in the budget of the cache, and is at most a third.
//! - A hit of the first level takes no lock of the second.
//!
//! # After a crash
//! The header leads to log blocks that were written before it; what was not written does not
//! verify.

mod eligibility;
mod feed;
mod feeder;
mod index;
mod level;
mod log;
mod rebuild;
mod ring;
mod stored_log;

pub use eligibility::SecondLevelUse;
pub(crate) use feeder::Feeder;
pub(crate) use level::{Fresh, SecondLevel};
pub use stored_log::follow_stored_log;
