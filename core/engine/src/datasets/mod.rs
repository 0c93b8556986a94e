//! Commands on datasets, one file each.

mod activities;
mod allow;
mod bookmarks;
mod by_hand;
mod clone;
pub(crate) mod create;
mod describe;
mod destroy;
mod destroy_snapshots;
mod diff;
mod hold_files;
mod holds;
mod inherit;
mod list_mounts;
mod mount;
mod mount_order;
mod mount_place;
mod mountpoint;
pub(crate) mod owners;
mod promote;
mod properties;
mod receive;
mod remount;
mod remount_words;
mod rename;
mod rename_snapshots;
mod rollback;
mod send;
mod set;
mod snapshot;
pub(crate) mod unmount;
mod upgrade;
mod user_mounts;

pub(crate) use receive::WatchedReceive;
pub(crate) use send::Watched;

use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::error::DatasetError;

/// The refusal of a dataset that could not be opened.
pub(crate) fn cannot_open(name: &str, error: &DatasetError) -> Refusal {
    let action = format!("cannot open '{name}'");
    match error {
        DatasetError::NotFound { .. } => {
            Refusal::new(RefusalKind::NotFound, action, "dataset does not exist")
        }
        DatasetError::Recursive { .. } => Refusal::new(
            RefusalKind::Busy,
            "cannot determine dependent datasets".to_string(),
            error.to_string(),
        ),
        other => Refusal::new(RefusalKind::Corrupt, action, other.to_string()),
    }
}
