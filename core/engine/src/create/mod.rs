//! Checks before a pool or a file system is created.
//!
//! - [`devices`]: whether devices are free, and how a layout becomes vdevs
//! - [`replication`]: whether all vdevs of a pool are equally redundant
//! - [`settings`]: properties of a pool, from text to stored values
//! - [`compatibility`]: sets of features that other systems know
//! - [`new_filesystem`]: properties and contents of new file systems

pub(crate) mod compatibility;
pub(crate) mod devices;
pub(crate) mod new_filesystem;
pub(crate) mod replication;
pub(crate) mod settings;
