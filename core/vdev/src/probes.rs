//! The measuring points of this layer.
//!
//! Every leaf keeps what `zpool iostat` shows (operations, bytes, times and sizes by class), and hangs
//! it into the tree of statistics as `vdev:0:<guid>`, where `tarn kstat vdev` finds it: why is it slow? Which
//! device is slow, whether its queue or the device itself, with which sizes.

use std::sync::Arc;
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::Guid;
use tarn_probe::{Instance, IoKind, Value, VdevStatistics, registry};

/// The module under which all of it is found.
const MODULE: &str = "vdev";

/// What is counted for one leaf.
#[derive(Debug)]
pub struct LeafProbes {
    /// Operations, bytes, times, sizes.
    pub statistics: Arc<VdevStatistics>,
    /// Keeps it in the tree of statistics.
    _instance: Arc<Instance>,
}

impl LeafProbes {
    /// Hangs the statistics of a leaf into the tree.
    pub fn new(guid: Guid, path: &Text) -> LeafProbes {
        let statistics = Arc::new(VdevStatistics::new());
        let instance = registry().instance(MODULE, 0, &guid.to_string());
        instance.set_text("path", &path.to_string());
        let watched = Arc::downgrade(&statistics);
        instance.provide(move || watched.upgrade().map_or(Vec::new(), |all| values(&all)));
        LeafProbes {
            statistics,
            _instance: instance,
        }
    }
}

fn values(statistics: &VdevStatistics) -> Vec<(String, Value)> {
    let now = statistics.snapshot();
    let kinds = [
        (IoKind::Read, "reads"),
        (IoKind::Write, "writes"),
        (IoKind::Flush, "flushes"),
    ];
    let mut values = Vec::new();
    for (kind, name) in kinds {
        values.push((name.to_owned(), Value::Counter(now.operations(kind))));
        values.push((format!("{name}_failed"), Value::Counter(now.errors(kind))));
    }
    for (kind, name) in [
        (IoKind::Read, "read_bytes"),
        (IoKind::Write, "written_bytes"),
    ] {
        values.push((name.to_owned(), Value::Counter(now.bytes(kind))));
    }
    for (name, [reads, writes]) in [("total_ns", now.total_ns), ("device_ns", now.device_ns)] {
        values.push((format!("read_{name}"), Value::Histogram(reads)));
        values.push((format!("write_{name}"), Value::Histogram(writes)));
    }
    values
}
