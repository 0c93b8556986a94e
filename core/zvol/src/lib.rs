//! Volumes: datasets with one object of data, which clients use as a block device.
//!
//! # Mechanism
//! A [`Volume`] has the operations of a disk: [read](Volume::read), [write](Volume::write),
//! [flush](Volume::flush), [discard](Volume::discard), [write zeros](Volume::write_zeros), [copy
//! from another volume](Volume::copy_from), and which parts are [allocated](Volume::allocated). A
//! change is one transaction, or several where it is large, each with a record for the intent log.
//! A flush commits the log, as does each change that is to be durable at once.
//!
//! When the volume is opened after a crash, its intent log is replayed: [`Volume`] answers the door
//! [`Replay`](tarn_zil::Replay).
//!
//! # Invariants
//! - The changes of a block are made one at a time, and their records are in the same order: of
//!   overlapping writes of up to 4 MiB, one is there whole. Writes to different blocks are made
//!   side by side; nothing else is changed beside a discard or a change of the size. A read beside
//!   a write has each block as it was before or after it.
//!
//! # Knows nothing about
//! Pools, protocols.

mod allocated;
mod changed_ranges;
mod discard;
mod error;
mod flush;
mod ranks;
mod replay;
mod volume;
mod volume_copy;
mod volume_intent;
mod volume_properties;
mod volume_read;
mod volume_write;

pub use error::VolumeError;
pub use replay::RecordError;
pub use volume::{Durable, Volume, VolumeParts};
pub use volume_copy::Copied;
pub use volume_properties::VolumeProperties;
