//! Commands on datasets, one file each.

mod activities;
mod allow;
mod bookmarks;
mod clone;
pub(crate) mod create;
mod describe;
mod destroy;
mod destroy_snapshots;
mod diff;
mod holds;
mod inherit;
mod list_mounts;
mod mount_requests;
pub(crate) mod owners;
mod promote;
mod properties;
mod receive;
mod rename;
mod rename_snapshots;
mod rollback;
mod send;
mod set;
mod snapshot;
mod upgrade;
mod user_mounts;

pub(crate) use receive::WatchedReceive;
pub(crate) use send::Watched;
pub(crate) use tarn_engine::mounting::{bad_name, cannot_open, kind_of, missing_path};
