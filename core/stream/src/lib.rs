//! Send and receive: a snapshot as a row of bytes, and bytes as a snapshot.
//!
//! # Problem
//! A backup sends only what changed, to another machine, another pool, another version of ZFS; what arrives must be the
//! same snapshot, so that the next increment fits. The bytes in between may be cut, damaged or made up.
//!
//! # Mechanism
//! Records and their layouts are `ondisk`'s. [`writing`] puts records into a stream, with the checksum that runs through all of it;
//! [`reading`] takes them out again and checks it. [`send`] makes the records of a snapshot, [`mod@receive`] puts records into an
//! object set, and a [`token`] says where a stream that was cut goes on.
//!
//! # Knows nothing about
//! Where the bytes come from and where they go, names of file systems and users, and what is in files.

pub mod reading;
pub mod receive;
pub mod send;
pub mod token;
pub mod writing;
