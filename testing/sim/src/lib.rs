//! Whole pools on a simulated machine whose power is cut.
//!
//! # Problem
//! What an application was told is stable must survive a power cut at any instant. No test can pull
//! plugs often enough to know.
//!
//! # Mechanism
//! The core runs unchanged on the simulated host ([`tarn_host::sim`]): one seed decides in which
//! order threads go on, how long disks take, when power is cut, and which of the writes that were
//! not flushed survive it, whole or torn. Actors change files and are promised things ([`work`]),
//! all of which is written down ([`history`]). After each cut the pool is walked as it lies there
//! ([`tarn_hostile::leaks`]), imported, and what is in it is held against the history ([`judge`]).
//! A world ([`world`]) is a pool that goes through many cuts. In some it has a [`checkpoint`], to
//! which it is rewound.
//!
//! # Knows nothing about
//! Front ends: actors call file systems as those do.

pub mod admin;
pub mod administered;
pub mod changes;
pub mod checkpoint;
pub mod devices;
pub mod faults;
pub mod history;
pub mod images;
pub mod judge;
pub mod layout;
pub mod pool_guid;
pub mod script;
pub mod tree;
pub mod work;
pub mod world;
