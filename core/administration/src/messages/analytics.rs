//! Requests and replies about operations: `tarn analytics`, `tarn slow`, `tarn top`, and the page.
//!
//! Times are of the time of day: milliseconds since 1970 for columns, seconds for ranges. A
//! statement is `nfs.ops[op=read][client]:latency`; a filter is a predicate as JSON, which is added
//! to those of the statement.

pub use super::alerts::{
    AddAlert, Alert, AlertChange, AlertMeasure, AlertNotice, AlertSide, AlertState, AlertStatus,
    Alerts, ListAlerts, RemoveAlert,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A time range. Without all of them: the last minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct When {
    /// Its beginning, unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
    /// Its end, unix seconds; now, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
    /// So many seconds before its end, instead of `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<f64>,
}

/// Operations broken down in columns of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Query {
    /// What is asked.
    pub statement: String,
    /// A predicate as JSON, and'ed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub filter: Option<serde_json::Value>,
    /// Of which time.
    #[serde(flatten)]
    pub when: When,
    /// How long a column is. The range is widened to whole columns.
    #[serde(default = "second_ms")]
    pub column_ms: u64,
    /// How many keys are told apart.
    #[serde(default = "usual_keys")]
    pub keys: u32,
}

const fn second_ms() -> u64 {
    1000
}

const fn usual_keys() -> u32 {
    20
}

impl Query {
    /// A question with the usual columns and keys.
    pub fn of(statement: &str, when: When) -> Query {
        Query {
            statement: statement.to_owned(),
            filter: None,
            when,
            column_ms: second_ms(),
            keys: usual_keys(),
        }
    }
}

/// What was counted, in columns of time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// For each column the sum of the measure.
    pub sums: Vec<u64>,
    /// Column, place in `buckets` and count of operations, again and again; only those that have
    /// some. Empty without a numeric field.
    #[serde(default)]
    pub cells: Vec<u64>,
}

/// The operations of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// The names of its values, one for each field of `by`.
    pub key: Vec<String>,
    /// Its values as numbers; of a file `DATASET:OBJECT`.
    pub ids: Vec<String>,
    /// The sum over all columns.
    pub sum: u64,
    /// Its columns.
    pub series: Series,
}

/// Reply to [`Query`] and [`Live`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Answer {
    /// The statement in its normal form, with the filter.
    pub statement: String,
    /// For people.
    pub title: String,
    /// What it was answered from: `recorder`, `archive-1s`, `archive-1m` or `archive-1h`.
    pub source: String,
    /// `operations`, `bytes`, `wait-time` (nanoseconds) or `value`.
    pub measure: String,
    /// When the first column begins, unix milliseconds.
    pub from_ms: u64,
    /// How long a column is.
    pub column_ms: u64,
    /// How many columns there are.
    pub columns: u64,
    /// For each column: 0 not collected, 1 in part, 2 whole.
    pub states: Vec<u8>,
    /// Operations of any kind that were dropped in this time.
    pub dropped: u64,
    /// The discrete fields.
    pub by: Vec<String>,
    /// The numeric field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numeric: Option<String>,
    /// The buckets that operations fell into, ascending: lowest value and the first that is beyond.
    /// In nanoseconds or bytes.
    #[serde(default)]
    pub buckets: Vec<[u64; 2]>,
    /// All operations.
    pub total: Series,
    /// The keys with the largest sums, largest first.
    pub groups: Vec<Group>,
    /// All other operations: groups and these add up to `total` exactly.
    pub other: Series,
    /// How many keys were found.
    pub keys_found: u64,
    /// Operations whose keys were too many to be ranked; no key in `other` that was not ranked has
    /// more.
    pub unranked: u64,
}

/// In which order operations are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The largest latency first.
    #[default]
    Slowest,
    /// Those that ended first.
    Oldest,
}

/// Operations one by one. Without a time: all that are held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operations {
    /// Which; breakdowns of it mean nothing here.
    pub statement: String,
    /// A predicate as JSON, and'ed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub filter: Option<serde_json::Value>,
    /// Of which time.
    #[serde(flatten)]
    pub when: When,
    /// In which order.
    #[serde(default)]
    pub order: Order,
    /// How many, at most.
    #[serde(default = "usual_keys")]
    pub limit: u32,
    /// Whether the times of stages are summed up, which takes longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_stages: bool,
}

/// Latencies in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Percentiles {
    /// The median.
    pub p50: u64,
    /// Of ten in a hundred.
    pub p90: u64,
    /// Of one in a hundred.
    pub p99: u64,
    /// Of one in a thousand.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

/// An operation with its story.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Told {
    /// When it ended, unix milliseconds.
    pub ended_ms: f64,
    /// How long it took.
    pub latency_ns: u64,
    /// Its kind: `read`.
    pub operation: String,
    /// By which way it came: `nfs3`.
    pub protocol: String,
    /// The client's name.
    pub client: String,
    /// The user's name.
    pub user: String,
    /// The dataset's name; empty for none.
    pub dataset: String,
    /// The object number; 0 for none.
    pub object: u64,
    /// The file's path, where it is about a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub size: u64,
    /// What it failed with, if it did: `ENOENT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What explains the latency first.
    pub cause: String,
    /// All that happened.
    pub outcomes: Vec<String>,
    /// Nanoseconds of each stage that took any.
    pub stages: BTreeMap<String, u64>,
    /// Nanoseconds in no stage. Stages that several threads took at once may add up to more than
    /// the latency; this is 0 then.
    pub unaccounted_ns: u64,
}

/// Reply to [`Operations`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    /// How many there were.
    pub count: u64,
    /// The sum of their latencies, in nanoseconds.
    pub wait_ns: u64,
    /// How they spread.
    pub percentiles: Percentiles,
    /// Nanoseconds that all of them spent in each stage that took any, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages_ns: Option<BTreeMap<String, u64>>,
    /// Nanoseconds that they spent in no stage, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaccounted_ns: Option<u64>,
    /// The first of them.
    pub operations: Vec<Told>,
}

/// Begins to count operations as they come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Instrument {
    /// What is counted.
    pub statement: String,
    /// A predicate as JSON, and'ed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub filter: Option<serde_json::Value>,
    /// How many keys are told apart.
    #[serde(default = "usual_keys")]
    pub keys: u32,
}

/// Reply to [`Instrument`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Instrumented {
    /// Its number.
    pub id: u64,
}

/// Asks for what an instrumentation counted: whole seconds and the one that is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Live {
    /// Which.
    pub id: u64,
    /// Since when, unix seconds; the last minute, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
}

/// Ends an instrumentation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Remove {
    /// Which.
    pub id: u64,
}

/// Lists the instrumentations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct List {}

/// An instrumentation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Instrumentation {
    /// Its number.
    pub id: u64,
    /// What it counts.
    pub statement: String,
    /// For people.
    pub title: String,
    /// How many keys it tells apart.
    pub keys: u32,
}

/// Reply to [`List`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Instrumentations {
    /// All of them.
    pub live: Vec<Instrumentation>,
}

/// Asks what is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct State {}

/// Reply to [`State`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecorderState {
    /// Whether operations are kept.
    pub is_on: bool,
    /// The oldest time of which all operations are held, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_from_ms: Option<u64>,
    /// Up to which time the collector has come, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until_ms: Option<u64>,
    /// Operations held.
    pub records: u64,
    /// Memory that they take.
    pub bytes: u64,
    /// Memory that they may take.
    pub budget_bytes: u64,
    /// Operations that were taken from the rings.
    pub drained: u64,
    /// Operations that found their ring full.
    pub dropped: u64,
    /// How long the passes of the collector took together, in nanoseconds.
    pub pass_ns: u64,
    /// How many there were.
    pub passes: u64,
    /// Instrumentations that count.
    pub live: u64,
    /// What is archived, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchivedState>,
}

/// What is archived.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArchivedState {
    /// What its files take.
    pub bytes: u64,
    /// What they may take.
    pub cap_bytes: u64,
    /// Series of the newest second.
    pub series: u64,
    /// The oldest seconds, minutes and hours that it has, unix milliseconds.
    pub oldest_ms: Vec<Option<u64>>,
    /// Seconds and blocks that could not be written since `tarnd` was started.
    pub refused: u64,
    /// Files in its directory that are not used, and why.
    #[serde(default)]
    pub skipped: Vec<String>,
}

/// Asks what can be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Catalogue {}

/// A statistic that statements begin with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Statistic {
    /// `nfs.ops`
    pub name: String,
    /// For people.
    pub title: String,
    /// What its sums are: `operations`, `bytes` or `ns`.
    pub unit: String,
    /// The fields that it has.
    pub fields: Vec<String>,
    /// Whether it is a number that is looked at once a second, not counted by operation.
    pub is_sampled: bool,
    /// Whether a column has the mean of its samples, and not their sum.
    #[serde(default)]
    pub is_mean: bool,
}

/// A field of operations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Field {
    /// Its name in statements.
    pub name: String,
    /// `names`, `ids`, `durations` or `bytes`.
    pub kind: String,
    /// All its values, where they are always the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

/// Reply to [`Catalogue`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Known {
    /// The statistics.
    pub statistics: Vec<Statistic>,
    /// The fields.
    pub fields: Vec<Field>,
}

/// Asks what happened to pools in a time: txgs, scrubs, snapshots, imports, faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// Of which time.
    #[serde(flatten)]
    pub when: When,
}

/// What happened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// When, or when it began, unix milliseconds.
    pub at_ms: u64,
    /// When it ended, if it took time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// `txg`, `scrub`, `resilver`, `snapshot`, `import`, `fault`, `history` or `alert`.
    pub kind: String,
    /// The pool.
    pub pool: String,
    /// For people.
    pub text: String,
}

/// Reply to [`Events`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Happened {
    /// In the order of their times.
    pub events: Vec<Event>,
}
