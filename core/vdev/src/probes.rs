//! The measuring points of this layer.
//!
//! Every leaf keeps what `zpool iostat` shows (operations, bytes, times and sizes by class), and
//! registers it as the kstat `vdev:0:<guid>`, which `tarn kstat vdev` prints: it tells which device
//! is slow, whether in its queue or in the device itself, and with which sizes of requests.

use std::sync::Arc;
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::Guid;
use tarn_probe::{
    DeviceIo, DeviceNumber, FinishedIo, Instance, IoKind, IoPriority, Operation, Value,
    VdevStatistics, VdevStatisticsSnapshot, device_number, registry,
};

/// The module of these kstats.
const MODULE: &str = "vdev";

/// What is counted for one leaf.
#[derive(Debug)]
pub struct LeafProbes {
    /// Operations, bytes, times, sizes.
    pub statistics: Arc<VdevStatistics>,
    /// The number in records of its requests.
    device: DeviceNumber,
    /// Keeps the kstat registered.
    _instance: Arc<Instance>,
}

impl LeafProbes {
    /// Registers the statistics of a leaf as a kstat.
    pub fn new(guid: Guid, path: &Text) -> LeafProbes {
        let statistics = Arc::new(VdevStatistics::new());
        let instance = registry().instance(MODULE, 0, &guid.to_string());
        instance.set_text("path", &path.to_string());
        let watched = Arc::downgrade(&statistics);
        instance.provide(move || watched.upgrade().map_or(Vec::new(), |all| values(&all)));
        LeafProbes {
            statistics,
            device: device_number(guid.get(), &path.to_string()),
            _instance: instance,
        }
    }
}

impl LeafProbes {
    /// Counts a request that has just ended, and records it with the operation that it was for.
    pub(crate) fn finish(&self, finished: &FinishedIo, operation: &Operation) {
        self.statistics.finish(finished);
        DeviceIo::record(self.device, finished, operation);
    }
}

fn values(statistics: &VdevStatistics) -> Vec<(String, Value)> {
    let now = statistics.snapshot();
    let mut values = Vec::new();
    for (kind, name) in [
        (IoKind::Read, "reads"),
        (IoKind::Write, "writes"),
        (IoKind::Flush, "flushes"),
        (IoKind::Trim, "trims"),
    ] {
        values.push((name.to_owned(), Value::Counter(now.operations(kind))));
        values.push((format!("{name}_failed"), Value::Counter(now.errors(kind))));
    }
    for (kind, name) in [(IoKind::Read, "nread"), (IoKind::Write, "nwritten")] {
        values.push((name.to_owned(), Value::Counter(now.bytes(kind))));
    }
    for (name, [reads, writes]) in [("total_ns", &now.total_ns), ("device_ns", &now.device_ns)] {
        values.push((format!("read_{name}"), Value::Histogram(reads.clone())));
        values.push((format!("write_{name}"), Value::Histogram(writes.clone())));
    }
    for class in IoPriority::ALL {
        push_class(&mut values, class, &now);
    }
    values
}

/// Adds the statistics of an I/O class, if it was ever used.
fn push_class(values: &mut Vec<(String, Value)>, class: IoPriority, now: &VdevStatisticsSnapshot) {
    let index = class.index();
    let (pending, active) = (now.pending[index], now.active[index]);
    if now.queue_ns[index].count() + pending + active == 0 {
        return;
    }
    let mut push = |what: &str, value| values.push((format!("{}_{what}", class.name()), value));
    let gauge = |count: u64| Value::Gauge(i64::try_from(count).unwrap_or(i64::MAX));
    push("pending", gauge(pending));
    push("active", gauge(active));
    push("queue_ns", Value::Histogram(now.queue_ns[index].clone()));
    push(
        "single_bytes",
        Value::Histogram(now.single_bytes[index].clone()),
    );
    push(
        "merged_bytes",
        Value::Histogram(now.merged_bytes[index].clone()),
    );
}
