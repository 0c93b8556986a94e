//! Requests and replies of `zpool iostat`, `tarn kstat` and `tarn export`.
//!
//! Counters are cumulative since import and never reset: a rate is the difference of two samples.

pub use super::metrics::{
    MetricFamilies, MetricFamily, MetricHistogram, MetricKind, MetricSample, MetricUnit,
    MetricValue, Metrics,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// `zpool iostat`: one sample of every vdev.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IoSample {
    /// The pools; all when empty.
    #[serde(default)]
    pub names: Vec<String>,
}

/// Reply to [`IoSample`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IoSamples {
    /// One per pool.
    pub pools: Vec<VdevIo>,
}

/// Cumulative counters of one vdev, or of a whole pool, with its members.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VdevIo {
    /// As in `zpool status`.
    pub name: String,
    /// `mirror`, `raidz`, `file`, `disk` …
    #[serde(default)]
    pub kind: String,
    /// Guid.
    #[serde(default)]
    pub guid: u64,
    /// Whole path of a leaf.
    #[serde(default)]
    pub path: Option<String>,
    /// Role in the pool.
    #[serde(default)]
    pub role: super::pool::VdevRole,
    /// Nanoseconds since import at which the sample was taken.
    pub time_ns: u64,
    /// Allocated bytes (pool and top-level).
    pub allocated_bytes: u64,
    /// Free bytes (pool and top-level).
    pub free_bytes: u64,
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Histograms and queues by name; bucket `i` counts from 2^i, of nanoseconds for waits and of
    /// bytes for sizes; queues have one number. Names that are absent count as zero:
    ///
    /// - waits: `total_wait_`, `disk_wait_`, `syncq_wait_` and `asyncq_wait_` with `read` and
    ///   `write`; `scrub_wait`, `trim_wait`, `rebuild_wait`
    /// - queues: `pending_` and `active_` with `sync_read`, `sync_write`, `async_read`,
    ///   `async_write`, `scrub`, `trim`, `rebuild`
    /// - sizes: `individual_` and `aggregated_` with the same
    #[serde(default)]
    pub series: BTreeMap<String, Vec<u64>>,
    /// Members.
    #[serde(default)]
    #[schema(no_recursion)]
    pub children: Vec<VdevIo>,
}

/// `tarn kstat [module[:instance[:name[:statistic]]]]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Kstat {
    /// Four globs with colons between; what is empty or missing means any.
    #[serde(default)]
    pub pattern: String,
}

/// Reply to [`Kstat`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Kstats {
    /// One per `module:instance:name`.
    pub groups: Vec<KstatGroup>,
}

/// A group of statistics: what one thing has counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KstatGroup {
    /// Where it is counted: `zfs` for the whole process, `zfs/POOL` for a pool, or a layer.
    pub module: String,
    /// Tells groups of one module and name apart.
    pub instance: u32,
    /// Name of the group.
    pub name: String,
    /// `table` when each statistic is a row of columns, else `misc`.
    pub class: String,
    /// When it was read, unix nanoseconds.
    pub snaptime: u64,
    /// Statistics by name: a number, a text, a row (an object), or a histogram (an object with
    /// `count`, `sum`, `p50`, `p90`, `p99`, `p999`, `max`, and `buckets`, each lowest value,
    /// highest value and count).
    #[schema(value_type = Object)]
    pub data: serde_json::Map<String, serde_json::Value>,
}
