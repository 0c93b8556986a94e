//! The statistics of a dataset, under OpenZFS's names.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::dataset_table::{self, DatasetId, DatasetPlace};
use crate::kind::OperationKind;
use crate::recorder::recorder;
use crate::registry::{Instance, Registry, Value};
use crate::served_counts;
use crate::statistics::OperationStatistics;

/// Files of a mounted file system that have lost their last name, and those of them that were
/// freed: the difference is what is open without a name, or waits to be freed.
#[derive(Debug, Default)]
pub struct UnlinkedCounts {
    unlinks: AtomicU64,
    unlinked: AtomicU64,
}

impl UnlinkedCounts {
    /// So many more have no name any more.
    pub fn lost_names(&self, files: u64) {
        self.unlinks.fetch_add(files, Ordering::Relaxed);
    }

    /// One of them was freed.
    pub fn freed(&self) {
        self.unlinked.fetch_add(1, Ordering::Relaxed);
    }
}

/// The statistics of one dataset, and its number in records.
#[derive(Debug)]
pub struct DatasetStatistics {
    id: DatasetId,
    pool: String,
    name: Mutex<String>,
    statistics: Arc<OperationStatistics>,
    unlinked: Arc<UnlinkedCounts>,
    instance: OnceLock<Arc<Instance>>,
}

impl DatasetStatistics {
    /// Gives a dataset its number and its place in the registry: `zfs/POOL:0:objset-0xID`, as
    /// OpenZFS names it. It disappears from there when the last handle is dropped.
    pub fn register(
        registry: &Registry,
        place: &DatasetPlace,
        name: &str,
        unlinked: Arc<UnlinkedCounts>,
    ) -> Arc<Self> {
        let dataset = DatasetStatistics::new(place, name, unlinked);
        let place = (
            format!("zfs/{}", place.pool),
            format!("objset-{:#x}", place.object),
        );
        let weak = Arc::downgrade(&dataset);
        let instance = registry.instance(&place.0, 0, &place.1);
        instance.provide(move || weak.upgrade().map(|d| d.values()).unwrap_or_default());
        dataset.instance.set(instance).expect("set once, here");
        dataset
    }

    /// Gives a snapshot its number. It has no place in the registry, as OpenZFS shows none: there
    /// may be many, and each is entered for a while.
    pub fn of_snapshot(place: &DatasetPlace, name: &str) -> Arc<Self> {
        DatasetStatistics::new(place, name, Arc::default())
    }

    fn new(place: &DatasetPlace, name: &str, unlinked: Arc<UnlinkedCounts>) -> Arc<Self> {
        let dataset = Arc::new(DatasetStatistics {
            id: dataset_table::serve(place, name),
            pool: place.pool.clone(),
            name: Mutex::new(name.to_owned()),
            statistics: Arc::default(),
            unlinked,
            instance: OnceLock::new(),
        });
        served_counts::serve(dataset.id, &dataset.statistics);
        dataset
    }

    /// Has further statistics shown with those of the dataset, under their names.
    pub fn show_also(&self, more: impl Fn() -> Vec<(String, Value)> + Send + Sync + 'static) {
        if let Some(instance) = self.instance.get() {
            instance.provide(more);
        }
    }

    /// Its number in records.
    pub fn id(&self) -> DatasetId {
        self.id
    }

    /// The pool's name.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The dataset's full name.
    pub fn name(&self) -> String {
        self.name
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Its name has changed.
    pub fn rename(&self, name: &str) {
        dataset_table::rename(self.id, name);
        name.clone_into(&mut self.name.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What to hand to [`crate::Operation::finish_with`].
    pub fn operations(&self) -> &OperationStatistics {
        &self.statistics
    }

    /// All statistics, those that OpenZFS shows for a dataset first and under its names.
    fn values(&self) -> Vec<(String, Value)> {
        recorder().settle();
        let of = |kind| self.statistics.snapshot(kind).unwrap_or_default();
        let (reads, writes) = (of(OperationKind::Read), of(OperationKind::Write));
        let count = |counter: &AtomicU64| Value::Counter(counter.load(Ordering::Relaxed));
        let mut values = vec![
            ("dataset_name".to_owned(), Value::Text(self.name())),
            ("writes".to_owned(), Value::Counter(writes.operations)),
            ("nwritten".to_owned(), Value::Counter(writes.bytes)),
            ("reads".to_owned(), Value::Counter(reads.operations)),
            ("nread".to_owned(), Value::Counter(reads.bytes)),
            ("nunlinks".to_owned(), count(&self.unlinked.unlinks)),
            ("nunlinked".to_owned(), count(&self.unlinked.unlinked)),
        ];
        values.extend(self.statistics.values());
        values
    }
}

impl Drop for DatasetStatistics {
    fn drop(&mut self) {
        dataset_table::leave(self.id);
        served_counts::leave(self.id, &self.statistics);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_id::ClientId;
    use crate::kind::{Outcome, Protocol};
    use crate::operation::Operation;
    use crate::request::{HolderId, What, Who};

    fn place(object: u64) -> DatasetPlace {
        DatasetPlace {
            pool: "tank".to_owned(),
            pool_guid: 1,
            object,
            guid: object,
        }
    }

    fn finish(dataset: &DatasetStatistics, kind: OperationKind, size: u64, failed: bool) {
        let who = Who {
            client: ClientId(9),
            protocol: Protocol::Library,
            user: 0,
            holder: HolderId::NONE,
        };
        let what = What {
            kind,
            dataset: dataset.id(),
            object: 1,
            offset: 0,
            size,
        };
        let operation = Operation::begin(|| 0, who, what);
        if failed {
            operation.mark(Outcome::Error);
        }
        operation.finish_with(dataset.operations());
    }

    #[test]
    fn a_dataset_counts_what_was_done_to_it_under_the_names_of_openzfs() {
        let registry = Registry::new();
        let unlinked = Arc::new(UnlinkedCounts::default());
        let home = place(0x36);
        let dataset = DatasetStatistics::register(&registry, &home, "tank/home", unlinked.clone());
        finish(&dataset, OperationKind::Read, 4096, false);
        finish(&dataset, OperationKind::Read, 4096, true);
        finish(&dataset, OperationKind::Remove, 0, false);
        unlinked.lost_names(2);
        unlinked.freed();
        let snapshot = registry.snapshot("zfs/tank:0:objset-0x36");
        let value = |name: &str| snapshot.value("zfs/tank", 0, "objset-0x36", name).cloned();
        assert_eq!(
            value("dataset_name"),
            Some(Value::Text("tank/home".to_owned()))
        );
        assert_eq!(value("nread"), Some(Value::Counter(8192)));
        assert_eq!(value("nunlinks"), Some(Value::Counter(2)));
        assert_eq!(value("nunlinked"), Some(Value::Counter(1)));
        assert_eq!(value("read_errors"), Some(Value::Counter(1)));
    }

    #[test]
    fn a_dropped_dataset_disappears() {
        let registry = Registry::new();
        let unlinked = Arc::default();
        drop(DatasetStatistics::register(
            &registry,
            &place(1),
            "tank",
            unlinked,
        ));
        assert!(registry.snapshot("").is_empty());
    }
}
