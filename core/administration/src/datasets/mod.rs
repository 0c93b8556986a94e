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
mod share_requests;
mod snapshot;
mod upgrade;
mod user_mounts;

pub(crate) use receive::WatchedReceive;
pub(crate) use send::Watched;
pub(crate) use tarn_engine::mounting::{bad_name, cannot_open, missing_path};

use crate::messages::dataset::DatasetKind;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;

/// The kind of a dataset.
pub(crate) fn kind_of(dataset: &Dataset<'_>) -> Result<DatasetKind, DatasetError> {
    if dataset.is_snapshot() {
        return Ok(DatasetKind::Snapshot);
    }
    Ok(match contents::outline(dataset)? {
        Contents::Volume(_) => DatasetKind::Volume,
        Contents::Filesystem(_) | Contents::Other => DatasetKind::Filesystem,
    })
}
