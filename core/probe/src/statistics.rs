//! Counters and histograms of finished operations: by kind for the whole process, by kind for each
//! dataset.
//!
//! A kind of operation that a dataset never had costs a pointer: ten thousand idle datasets must
//! not cost memory. Kinds are made at their first operation and stay.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::dataset_table::{self, DatasetId, DatasetPlace};
use crate::histogram::{Histogram, HistogramSnapshot, Writers};
use crate::kind::{OperationKind, Outcome};
use crate::record::OperationRecord;
use crate::registry::{Instance, Registry, Value};

/// What is counted for one kind of operation. How many there were and how many bytes follows from
/// the histograms.
#[derive(Debug, Default)]
struct KindCounts {
    errors: AtomicU64,
    cache_hits: AtomicU64,
    latency: Histogram,
    size: Histogram,
}

/// The counts of one kind at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindStatistics {
    /// Finished operations.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many failed.
    pub errors: u64,
    /// How many found a block in the cache and needed no device.
    pub cache_hits: u64,
    /// Nanoseconds from begin to end.
    pub latency: HistogramSnapshot,
    /// Bytes of those that have a size.
    pub size: HistogramSnapshot,
}

impl KindStatistics {
    /// Adds another one.
    pub fn merge(&mut self, other: &KindStatistics) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.cache_hits += other.cache_hits;
        self.latency.merge(&other.latency);
        self.size.merge(&other.size);
    }
}

/// Counters and histograms by kind of operation.
#[derive(Debug)]
pub struct OperationStatistics {
    kinds: [OnceLock<Box<KindCounts>>; OperationKind::COUNT],
}

impl Default for OperationStatistics {
    fn default() -> Self {
        OperationStatistics {
            kinds: [const { OnceLock::new() }; OperationKind::COUNT],
        }
    }
}

impl OperationStatistics {
    /// Nothing counted yet.
    pub fn new() -> OperationStatistics {
        OperationStatistics::default()
    }

    /// Counts a finished operation.
    pub fn count(&self, record: &OperationRecord) {
        self.count_by(Writers::Many, record);
    }

    /// Counts a finished operation, at less cost where only one thread does.
    pub(crate) fn count_by(&self, writers: Writers, record: &OperationRecord) {
        let kind = record.kind().unwrap_or(OperationKind::Other);
        let counts = self.kinds[kind.index()].get_or_init(Box::default);
        counts.latency.record_by(writers, record.latency_ns());
        if record.size > 0 {
            counts.size.record_by(writers, u64::from(record.size));
        }
        if record.is_marked(Outcome::Error) {
            writers.add(&counts.errors, 1);
        }
        if record.is_marked(Outcome::CacheHit) && !record.is_marked(Outcome::Disk) {
            writers.add(&counts.cache_hits, 1);
        }
    }

    /// What was counted for a kind; `None` if it never happened.
    pub fn snapshot(&self, kind: OperationKind) -> Option<KindStatistics> {
        let counts = self.kinds[kind.index()].get()?;
        let (latency, size) = (counts.latency.snapshot(), counts.size.snapshot());
        Some(KindStatistics {
            operations: latency.count(),
            bytes: size.sum(),
            errors: counts.errors.load(Ordering::Relaxed),
            cache_hits: counts.cache_hits.load(Ordering::Relaxed),
            latency,
            size,
        })
    }

    /// The statistics by name: `read_operations`, `read_bytes`, `read_latency_ns` and so on.
    pub fn values(&self) -> Vec<(String, Value)> {
        let mut values = Vec::new();
        for kind in OperationKind::ALL {
            if let Some(counts) = self.snapshot(*kind) {
                push_values(&mut values, *kind, counts);
            }
        }
        values
    }
}

/// Appends what was counted for a kind under its names.
pub(crate) fn push_values(
    values: &mut Vec<(String, Value)>,
    kind: OperationKind,
    counts: KindStatistics,
) {
    let mut push = |what: &str, value| values.push((format!("{}_{what}", kind.name()), value));
    push("operations", Value::Counter(counts.operations));
    push("errors", Value::Counter(counts.errors));
    push("cache_hits", Value::Counter(counts.cache_hits));
    push("latency_ns", Value::Histogram(counts.latency));
    // Most kinds have no size: nothing is said of it then.
    if counts.size.count() > 0 {
        push("bytes", Value::Counter(counts.bytes));
        push("size_bytes", Value::Histogram(counts.size));
    }
}

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
    statistics: OperationStatistics,
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
        let dataset = Arc::new(DatasetStatistics {
            id: dataset_table::serve(place, name),
            pool: place.pool.clone(),
            name: Mutex::new(name.to_owned()),
            statistics: OperationStatistics::new(),
            unlinked,
            instance: OnceLock::new(),
        });
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Protocol;
    use crate::operation::{HolderId, Operation, What, Who};
    use crate::record::ClientId;

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
