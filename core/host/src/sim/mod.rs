//! The simulated host: one seed, one run.
//!
//! # Mechanism
//! [`SimHost::run`] runs a program as the first thread of a small world: threads take turns
//! (`baton.rs`), time is virtual, entropy follows from the seed, disks are in memory (`disk.rs`)
//! and remember what was flushed. A run is the life of a process. When it ends its threads are
//! gone; the disks stay, with all that was written. When power is cut instead, [`SimHost::reboot`]
//! gives another machine with the disks as they may look then.
//!
//! # Invariants
//! - The same seed, options and program give the same [`SimHost::trace`].
//! - The program cannot tell the simulation from a machine, except by asking.
//!
//! # Limits
//! A thread outside the simulation may open devices and read the clock (requests are done at once);
//! it may not start or join simulated threads, nor wait for locks they hold.

pub(crate) mod baton;
mod disk;
mod disk_model;
mod image;
mod machine;
mod random;
mod seat;

pub(crate) use disk::SimulatedBatch;
pub use disk::{DiskCopy, Fault, SimDisk};
pub use disk_model::{ArmUse, DiskModel};
pub use machine::{PowerCut, SimHost, SimOptions, SimWrite, Trace};
pub use random::Random;
pub(crate) use seat::Seat;
