//! Commands on pools, one file each.

mod auxiliary;
mod cache_file;
mod clear;
mod condition;
mod dates;
mod describe;
mod errors;
mod export;
mod find_importable;
mod history;
mod import;
mod iostat;
mod properties;
mod scan;
mod search;
mod vdev_status;

pub(crate) use cache_file::cached_pools;
pub(crate) use find_importable::close;
