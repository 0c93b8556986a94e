//! Checks before a pool or a file system is created.
//!
//! - [`devices`]: whether devices are free, and how a layout becomes vdevs
//! - [`replication`]: whether all vdevs of a pool are equally redundant
//! - [`new_filesystem`]: properties and contents of new file systems

pub(crate) mod devices;
pub(crate) mod new_filesystem;
pub(crate) mod replication;
