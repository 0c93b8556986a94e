//! The datasets that a check assumes destroyed, because the same task destroys them before.

use crate::dataset::Dataset;
use crate::error::DatasetError;
use std::collections::{BTreeMap, BTreeSet};
use tarn_ondisk::units::ObjectId;

/// What a check takes for gone.
#[derive(Debug, Default)]
pub(super) struct Gone {
    datasets: BTreeSet<ObjectId>,
    /// Directories whose heads are.
    directories: BTreeSet<ObjectId>,
    /// How many snapshots of the head of a directory are.
    snapshots: BTreeMap<ObjectId, u64>,
    /// How many clones of a snapshot are.
    clones: BTreeMap<ObjectId, u64>,
}

impl Gone {
    /// This dataset goes before those that are checked from now on.
    pub(super) fn add(&mut self, dataset: &Dataset<'_>) -> Result<(), DatasetError> {
        if !self.datasets.insert(dataset.id()) {
            return Ok(());
        }
        let directory = dataset.directory();
        if dataset.is_snapshot() {
            *self.snapshots.entry(directory.id()).or_default() += 1;
            return Ok(());
        }
        self.directories.insert(directory.id());
        let origin = directory.stored()?.origin;
        *self.clones.entry(origin).or_default() += 1;
        Ok(())
    }

    pub(super) fn has_directory(&self, directory: ObjectId) -> bool {
        self.directories.contains(&directory)
    }

    pub(super) fn snapshots_of(&self, directory: ObjectId) -> u64 {
        self.snapshots.get(&directory).copied().unwrap_or(0)
    }

    pub(super) fn clones_of(&self, snapshot: ObjectId) -> u64 {
        self.clones.get(&snapshot).copied().unwrap_or(0)
    }
}
