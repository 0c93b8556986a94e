//! Metrics: counters and histograms for programs that keep histories of their own (Prometheus).
//!
//! They name pools, datasets and devices; no clients, users or files.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Asks for all metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {}

/// Reply to [`Metrics`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MetricFamilies {
    /// By name, ascending.
    pub families: Vec<MetricFamily>,
}

/// Numbers of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MetricFamily {
    /// Letters, digits and underscores. Of counters it ends in `_total`, with time in `_seconds`
    /// (before that).
    pub name: String,
    /// What it is, for people.
    pub help: String,
    /// What its numbers do.
    pub kind: MetricKind,
    /// What its numbers are.
    pub unit: MetricUnit,
    /// The numbers; no two have the same labels.
    pub samples: Vec<MetricSample>,
}

/// What the numbers of a family do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MetricKind {
    /// They only grow, until the daemon or the pool begins anew.
    Counter,
    /// They go up and down.
    Gauge,
    /// They are counts by magnitude, which only grow.
    Histogram,
}

/// What the numbers of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MetricUnit {
    /// As they are: counts, bytes.
    Whole,
    /// Nanoseconds, which are shown as seconds.
    Nanoseconds,
}

/// A number with its labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MetricSample {
    /// Names and values, by name.
    pub labels: Vec<(String, String)>,
    /// The number.
    pub value: MetricValue,
}

/// A number, or counts by magnitude.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum MetricValue {
    /// A number.
    Whole(u64),
    /// One that may be below zero.
    Signed(i64),
    /// Counts by magnitude.
    Spread(MetricHistogram),
}

/// Counts by magnitude.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MetricHistogram {
    /// How many values there were.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// For each bucket that has some: its lowest value, the first that is beyond it, and how many
    /// values fell into it; ascending. The last bucket ends at the largest number there is.
    pub buckets: Vec<[u64; 3]>,
}
