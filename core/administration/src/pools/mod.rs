//! Commands on pools, one file each.

mod add;
mod attach;
mod clear;
mod condition;
mod create;
mod dedup;
mod describe;
mod destroy;
mod detach;
mod errors;
mod find_importable;
mod history;
mod import_requests;
mod iostat;
mod label_clear;
mod offline;
mod properties;
mod remove;
mod scan;
mod scrub;
mod set;
mod spares;
mod sync;
mod upgrade;
mod vdev_change;
mod vdev_status;
