//! Send and receive: snapshots to streams, and streams to snapshots.
//!
//! # Problem
//! An incremental send writes only what changed, to another machine, another pool, another version
//! of ZFS; the received snapshot must be the same, so that the next increment fits. The stream may
//! be cut, damaged or forged.
//!
//! # Mechanism
//! Records and their layouts are in `ondisk`. [`writing`] appends records to a stream, with the
//! checksum that runs through all of it; [`reading`] decodes records and verifies it. [`send`]
//! makes the records of a snapshot, [`mod@receive`] applies records to an object set, and a
//! [`token`] names where a cut stream is to be resumed.
//!
//! # Knows nothing about
//! The descriptors of streams, names of file systems and users, and the contents of files.

pub mod reading;
pub mod receive;
pub mod send;
pub mod token;
pub mod writing;
