//! Block devices of this machine for volumes: the door to the front end that makes them, and the
//! table of those of one pool.

use super::served::HeldVolume;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::ObjectId;

/// The table.
const DEVICES: Rank = Rank::new(tarn_host::ranks::ENGINE + 46, "block devices of volumes");

/// A door: makes block devices of this machine for volumes. A front end does.
///
/// All methods of both traits are called by the thread of a command that holds the pool's turn:
/// they must not hold or release volumes.
pub trait VolumeDevices: Send + Sync {
    /// Whether devices can be made here, as far as that is known without trying.
    ///
    /// # Errors
    /// What is missing, as text.
    fn check(&self) -> Result<(), String>;

    /// Makes the device of a held volume or snapshot. Linux looks for partitions on it if
    /// `has_partitions`. The front end watches the volume for its size, its name and its end.
    ///
    /// # Errors
    /// What is missing, as text.
    fn make(
        &self,
        held: &Arc<HeldVolume>,
        has_partitions: bool,
    ) -> Result<Arc<dyn VolumeDevice>, String>;
}

/// A block device of a volume.
pub trait VolumeDevice: Send + Sync {
    /// Removes it, unless it is open.
    ///
    /// # Errors
    /// It is open, and stays.
    fn remove(&self) -> Result<(), DeviceIsOpen>;

    /// Writes back what Linux caches of it and drops its cache: the volume's contents are about to
    /// be replaced, or were. Programs that have it open go on.
    fn drop_cache(&self);
}

/// A block device is open, so its volume is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceIsOpen;

/// The block devices of one pool's volumes.
pub struct DeviceTable {
    state: Mutex<State>,
}

/// A device, and the hold that serves it.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) held: Arc<HeldVolume>,
    pub(super) device: Arc<dyn VolumeDevice>,
    pub(super) has_partitions: bool,
}

#[derive(Default)]
struct State {
    /// By the object of the dataset.
    entries: BTreeMap<ObjectId, Entry>,
    /// Datasets: devices of their volumes and of those below may have to be made or removed.
    touched: BTreeSet<String>,
}

impl DeviceTable {
    pub(crate) fn new() -> DeviceTable {
        DeviceTable {
            state: Mutex::new(DEVICES, State::default()),
        }
    }

    /// Devices of volumes at and below this dataset may have to be made or removed.
    pub(super) fn touch(&self, name: &str) {
        self.state.lock().touched.insert(name.to_string());
    }

    /// Whether any dataset is touched.
    pub(super) fn is_touched(&self) -> bool {
        !self.state.lock().touched.is_empty()
    }

    /// The touched datasets, each once: those below another one that is touched are left out.
    pub(super) fn take_touched(&self) -> Vec<String> {
        let touched = std::mem::take(&mut self.state.lock().touched);
        let mut tops: Vec<String> = Vec::new();
        for name in touched {
            if !tops.iter().any(|top| is_at_or_below(top, &name)) {
                tops.push(name);
            }
        }
        tops
    }

    pub(super) fn insert(&self, entry: Entry) {
        let before = self.state.lock().entries.insert(entry.held.id(), entry);
        assert!(before.is_none(), "a volume has one device");
    }

    pub(super) fn remove(&self, entry: &Entry) {
        self.state.lock().entries.remove(&entry.held.id());
    }

    /// All entries are taken out.
    pub(super) fn take_all(&self) -> Vec<Entry> {
        let entries = std::mem::take(&mut self.state.lock().entries);
        entries.into_values().collect()
    }

    /// The device of this dataset.
    pub(super) fn find(&self, dataset: ObjectId) -> Option<Entry> {
        self.state.lock().entries.get(&dataset).cloned()
    }

    /// Those of the volumes that are chosen by name.
    pub(super) fn chosen(&self, is_chosen: impl Fn(&str) -> bool) -> Vec<Entry> {
        let state = self.state.lock();
        let entries = state.entries.values();
        let chosen = entries.filter(|entry| is_chosen(&entry.held.name()));
        chosen.cloned().collect()
    }
}

/// Whether a name is this dataset's, that of a snapshot of it, or below.
pub(super) fn is_at_or_below(top: &str, name: &str) -> bool {
    name.strip_prefix(top)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_below_a_touched_one_are_looked_at_with_it() {
        let table = DeviceTable::new();
        for name in ["tank/a/b", "tank/ab", "tank/a", "tank/a@s", "tank/c/d"] {
            table.touch(name);
        }
        assert_eq!(table.take_touched(), ["tank/a", "tank/ab", "tank/c/d"]);
        assert!(table.take_touched().is_empty());
    }
}
