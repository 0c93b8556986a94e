//! Commands on pools, one file each.

mod add;
mod attach;
mod cache_file;
mod clear;
mod condition;
mod create;
mod dates;
mod dedup;
mod describe;
mod destroy;
mod detach;
mod errors;
mod export;
mod find_importable;
mod history;
mod import;
mod import_refusal;
mod iostat;
mod label_clear;
mod offline;
mod properties;
mod remove;
mod scan;
mod search;
mod set;
mod sync;
mod upgrade;
mod vdev_change;
mod vdev_status;

pub(crate) use cache_file::cached_pools;
