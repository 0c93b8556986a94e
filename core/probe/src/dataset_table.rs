//! The datasets that operation records name: their numbers, places and names.
//!
//! # Mechanism
//! A dataset gets its number when its statistics are registered for the first time, and has the
//! same each time it is served again: the guids of pool and dataset tell which it is. Its name and
//! place stay known after it is no longer served, as records of it are held.
//!
//! # Invariants
//! - Two datasets never have the same number.
//! - At most [`DATASETS_MAX`] are known. Of those that are not served, the oldest is forgotten.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Datasets that are known: some 16 MiB.
const DATASETS_MAX: usize = 65_536;

/// A dataset, numbered when its statistics are registered; not an id of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DatasetId(pub u32);

impl DatasetId {
    /// No dataset in particular.
    pub const NONE: DatasetId = DatasetId(0);
}

/// Where a dataset is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatasetPlace {
    /// The pool's name.
    pub pool: String,
    /// The pool's guid.
    pub pool_guid: u64,
    /// Its object in the MOS.
    pub object: u64,
    /// Its own guid.
    pub guid: u64,
}

/// A dataset that records name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDataset {
    /// Its number in records.
    pub id: DatasetId,
    /// Where it is, or was.
    pub place: DatasetPlace,
    /// Its full name, or the last that it had.
    pub name: String,
    /// How many handles of its statistics there are.
    served: u32,
}

#[derive(Debug, Default)]
struct Table {
    last: u32,
    by_guids: BTreeMap<(u64, u64), DatasetId>,
    by_id: BTreeMap<DatasetId, NamedDataset>,
}

/// The dataset of a number, if it is known.
pub fn named_dataset(id: DatasetId) -> Option<NamedDataset> {
    table().by_id.get(&id).cloned()
}

/// The number of a dataset by the guids of pool and dataset, if it is known.
pub fn dataset_number(pool_guid: u64, guid: u64) -> Option<DatasetId> {
    table().by_guids.get(&(pool_guid, guid)).copied()
}

/// All datasets that are known, by their numbers.
pub fn named_datasets() -> Vec<NamedDataset> {
    table().by_id.values().cloned().collect()
}

/// A dataset is served: gives its number.
pub(crate) fn serve(place: &DatasetPlace, name: &str) -> DatasetId {
    table().serve(place, name)
}

/// A dataset has another name.
pub(crate) fn rename(id: DatasetId, name: &str) {
    if let Some(dataset) = table().by_id.get_mut(&id) {
        name.clone_into(&mut dataset.name);
    }
}

/// A dataset is no longer served, as often as it was.
pub(crate) fn leave(id: DatasetId) {
    if let Some(dataset) = table().by_id.get_mut(&id) {
        dataset.served = dataset.served.saturating_sub(1);
    }
}

impl Table {
    fn serve(&mut self, place: &DatasetPlace, name: &str) -> DatasetId {
        let guids = (place.pool_guid, place.guid);
        let id = self.by_guids.get(&guids).copied().unwrap_or_else(|| {
            self.last += 1;
            DatasetId(self.last)
        });
        self.by_guids.insert(guids, id);
        let served = self.by_id.get(&id).map_or(0, |known| known.served);
        let dataset = NamedDataset {
            id,
            place: place.clone(),
            name: name.to_owned(),
            served: served + 1,
        };
        self.by_id.insert(id, dataset);
        if self.by_id.len() > DATASETS_MAX {
            self.forget_one();
        }
        assert!(
            self.by_id.contains_key(&id),
            "it is served, so it is not forgotten"
        );
        id
    }

    fn forget_one(&mut self) {
        let oldest = self.by_id.values().find(|dataset| dataset.served == 0);
        if let Some((id, place)) = oldest.map(|dataset| (dataset.id, dataset.place.clone())) {
            self.by_id.remove(&id);
            self.by_guids.remove(&(place.pool_guid, place.guid));
        }
    }
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    let table = TABLE.get_or_init(Mutex::default);
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pool_guid: u64, guid: u64) -> DatasetPlace {
        DatasetPlace {
            pool: "tank".to_owned(),
            pool_guid,
            object: 54,
            guid,
        }
    }

    #[test]
    fn a_dataset_has_one_number_however_often_it_is_served() {
        let mut table = Table::default();
        let first = table.serve(&place(1, 7), "tank/a");
        assert_ne!(table.serve(&place(1, 8), "tank/b"), first);
        assert_ne!(table.serve(&place(2, 7), "tank/a"), first);
        assert_eq!(table.serve(&place(1, 7), "tank/c"), first);
        assert_eq!(table.by_id[&first].name, "tank/c");
        assert_eq!(table.by_id[&first].served, 2);
    }

    #[test]
    fn the_oldest_that_is_not_served_is_forgotten() {
        let mut table = Table::default();
        let (served, left) = (
            table.serve(&place(1, 1), "tank/a"),
            table.serve(&place(1, 2), "tank/b"),
        );
        table.by_id.get_mut(&left).unwrap().served = 0;
        table.forget_one();
        assert!(table.by_id.contains_key(&served) && !table.by_id.contains_key(&left));
        // Its number is not given to another one.
        assert_ne!(table.serve(&place(1, 2), "tank/b"), left);
        table.forget_one();
        assert_eq!(table.by_id.len(), 2);
    }
}
