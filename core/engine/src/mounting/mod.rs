//! Mounting and unmounting the file systems of open pools.

pub mod by_hand;
pub mod hold_files;
pub mod mount;
mod mount_order;
mod mount_place;
pub mod mount_values;
pub mod mountpoint;
pub mod remount;
mod remount_words;
pub mod requests;
pub mod share;
pub mod unmount;

use crate::engine::{Engine, OpenPool};
use crate::mounts::MountKey;
use crate::refusals::{Refusal, RefusalKind};
use std::sync::Arc;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::BadName;

impl Engine {
    /// The dataset of this mount key, and its pool.
    pub fn served_by(&self, key: MountKey) -> Option<(Arc<OpenPool>, String)> {
        self.pools().into_iter().find_map(|open| {
            let name = open.mounts.lock().dataset_of(key)?.clone();
            Some((open, name))
        })
    }
}

/// The refusal of a dataset that could not be opened.
pub fn cannot_open(name: &str, error: &DatasetError) -> Refusal {
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

/// The refusal of a path that does not exist.
pub fn missing_path(path: &str, why: String) -> Refusal {
    Refusal::new(RefusalKind::NotFound, format!("cannot open '{path}'"), why)
}

/// The refusal of a malformed name.
pub fn bad_name(name: &str, bad: BadName) -> Refusal {
    let action = format!("cannot open '{name}'");
    Refusal::new(RefusalKind::Invalid, action, bad.to_string())
}

/// Whether a dataset is a file system, and no snapshot of one.
///
/// # Errors
/// Its contents cannot be read.
pub fn is_filesystem(dataset: &Dataset<'_>) -> Result<bool, DatasetError> {
    Ok(!dataset.is_snapshot() && !matches!(contents::outline(dataset)?, Contents::Volume(_)))
}
