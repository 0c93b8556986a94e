//! The index of a pool's mounts: by dataset, by folder and by the mounter's key.
//!
//! # Problem
//! There may be ten thousand mounts. Import and export ask for each of them which mount a path is
//! below, and whose mount a key is; a search through all the others each time would take quadratic
//! time.
//!
//! # Invariants
//! - Each mount is in the index under its mount point, the folder that this resolves to, and its
//!   key; nothing else is.

use crate::mounts::{MountKey, Mounted};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Mounts by dataset, with the index.
#[derive(Default)]
pub struct MountIndex {
    by_name: BTreeMap<String, Mounted>,
    /// The datasets whose mount point is this folder, or resolves to it.
    by_folder: BTreeMap<PathBuf, Vec<String>>,
    by_key: BTreeMap<MountKey, String>,
}

impl MountIndex {
    /// The mount of a dataset.
    pub(crate) fn get(&self, dataset: &str) -> Option<&Mounted> {
        self.by_name.get(dataset)
    }

    /// All, by the names of their datasets.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Mounted)> {
        self.by_name.iter()
    }

    /// The mounts of a dataset and of all datasets below it.
    pub fn at_and_below(&self, dataset: &str) -> Vec<(String, Mounted)> {
        let below = format!("{dataset}/");
        let own = self.by_name.get_key_value(dataset);
        let rest = self.by_name.range(below.clone()..);
        let rest = rest.take_while(|(name, _)| name.starts_with(&below));
        let owned = |(name, mounted): (&String, &Mounted)| (name.clone(), mounted.clone());
        own.into_iter().chain(rest).map(owned).collect()
    }

    /// The dataset whose mount has this key.
    pub(crate) fn dataset_of(&self, key: MountKey) -> Option<&String> {
        self.by_key.get(&key)
    }

    /// Adds the mount of a dataset, in place of one that it had.
    pub fn insert(&mut self, dataset: String, mounted: Mounted) {
        drop(self.remove(&dataset));
        self.enter(&dataset, &mounted);
        self.by_name.insert(dataset, mounted);
    }

    /// Removes the mount of a dataset.
    pub fn remove(&mut self, dataset: &str) -> Option<Mounted> {
        let mounted = self.by_name.remove(dataset)?;
        self.leave(dataset, &mounted);
        Some(mounted)
    }

    /// The mounter has given the mount of a dataset its key; does nothing where that has ended.
    pub(crate) fn set_key(&mut self, dataset: &str, key: MountKey) {
        let Some(mounted) = self.by_name.get_mut(dataset) else {
            return;
        };
        debug_assert_eq!(mounted.key, MountKey::NONE, "a mount gets its key once");
        mounted.key = key;
        let other = self.by_key.insert(key, dataset.to_string());
        debug_assert!(other.is_none(), "the mounter gives a key once");
    }

    /// Changes the mount of a dataset; does nothing where it has none.
    pub(crate) fn change<T>(
        &mut self,
        dataset: &str,
        change: impl FnOnce(&mut Mounted) -> T,
    ) -> Option<T> {
        let mut mounted = self.remove(dataset)?;
        let changed = change(&mut mounted);
        self.insert(dataset.to_string(), mounted);
        Some(changed)
    }

    /// Where a path in or below the folder of a mount resolves to, if all its components are
    /// folders, and how many components that mount's folder has. The nearest folder counts.
    pub(crate) fn lead_from_above(&self, path: &Path) -> Option<(usize, PathBuf)> {
        let found = path
            .ancestors()
            .find_map(|above| Some((above, self.by_folder.get(above)?)));
        let (above, datasets) = found?;
        let mounted = datasets.first().and_then(|dataset| self.get(dataset))?;
        let rest = path.strip_prefix(above).ok()?;
        let place = mounted.place.components().chain(rest.components());
        Some((above.components().count(), place.collect()))
    }

    fn enter(&mut self, dataset: &str, mounted: &Mounted) {
        for folder in folders(mounted) {
            let datasets = self.by_folder.entry(folder.to_path_buf()).or_default();
            let place = datasets.partition_point(|other| other.as_str() < dataset);
            datasets.insert(place, dataset.to_string());
        }
        if mounted.key != MountKey::NONE {
            let other = self.by_key.insert(mounted.key, dataset.to_string());
            debug_assert!(other.is_none(), "the mounter gives a key once");
        }
    }

    fn leave(&mut self, dataset: &str, mounted: &Mounted) {
        for folder in folders(mounted) {
            if let Some(datasets) = self.by_folder.get_mut(folder) {
                datasets.retain(|other| other != dataset);
                if datasets.is_empty() {
                    self.by_folder.remove(folder);
                }
            }
        }
        if mounted.key != MountKey::NONE {
            let own = self.by_key.remove(&mounted.key);
            debug_assert!(own.is_some_and(|own| own == dataset), "it was entered");
        }
    }
}

/// The folders under which a mount is found.
fn folders(mounted: &Mounted) -> impl Iterator<Item = &Path> {
    let place = (mounted.place != mounted.path).then_some(mounted.place.as_path());
    std::iter::once(mounted.path.as_path()).chain(place)
}
