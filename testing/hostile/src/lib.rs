//! Bad input: disks that lie, disks that fail, disks that are full.
//!
//! # Problem
//! An import trusts no byte of an image: it may be cut short, overwritten, duplicated, or made
//! by an attacker that can compute checksums. And a pool that is open loses
//! devices, or room, in the midst of a write. What must come of it is a clear error or a degraded
//! pool; never a panic, never a wait without end, and nothing lost that was stored.
//!
//! # Mechanism
//! Everything runs on the simulated host ([`house`]): devices fail as they are told, a wait without
//! end is found as a deadlock, and the same seed gives the same run.
//!
//! # Knows nothing about
//! what is on the disk of a good pool: that is what `testing/golden` compares.

mod clones;
pub mod cut;
pub mod devices;
pub mod house;
pub mod images;
pub mod leaks;
pub mod lie;
mod lies;
pub mod look;
mod raw;
pub mod receiving;
pub mod rounds;
mod stream_lies;
pub mod streams;
pub mod sums;
