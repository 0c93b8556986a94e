//! Datasets: file systems, volumes, snapshots, and the tree of directories that names them.

pub mod names;
pub mod properties;
