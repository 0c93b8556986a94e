//! Counters and histograms of finished operations by kind: of a thread, of a dataset.
//!
//! A kind of operation that a dataset never had costs a pointer: ten thousand idle datasets must
//! not cost memory. Kinds are made at their first operation and stay.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::histogram::{Histogram, HistogramSnapshot, Writers};
use crate::kind::{OperationKind, Outcome};
use crate::record::OperationRecord;
use crate::registry::Value;

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
        let is_from_device = record.is_marked(Outcome::Disk) || record.is_marked(Outcome::Special);
        if record.is_marked(Outcome::CacheHit) && !is_from_device {
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
