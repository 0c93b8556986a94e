//! Properties of datasets and pools: names, values, and their texts.
//!
//! `table` holds one row per native property, in the order in which `zfs get all` prints them. The
//! rows are facts of the format and of the commands: names, stored numbers, defaults.

pub mod inherit;
pub mod native;
pub mod parse;
pub mod pool_table;
pub(crate) mod set;
pub mod size;
pub mod table;
pub mod value;
pub mod vdev_table;
