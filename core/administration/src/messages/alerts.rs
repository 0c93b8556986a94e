//! Alerts: conditions on statistics that are looked at all the time, and what is done about them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What of a statement is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AlertMeasure {
    /// Its sum a second: operations, bytes, nanoseconds of waiting.
    Rate,
    /// The mean of its numeric field, latency or size.
    Mean,
    /// The median of its numeric field.
    P50,
    /// Of ten in a hundred.
    P90,
    /// Of one in a hundred.
    P99,
    /// Of one in a thousand.
    P999,
    /// The largest.
    Max,
    /// The share of its operations that took longer than `slower_ns`: 0 to 1.
    Share,
    /// Its sum, divided by that of the statement `of`.
    Ratio,
    /// The mean of a sampled statistic, such as `cpu.utilization[mode=user]`.
    Value,
}

impl AlertMeasure {
    /// Whether it is one of the values of a numeric field: a mean, a percentile or the largest.
    pub fn is_of_values(self) -> bool {
        matches!(
            self,
            AlertMeasure::Mean
                | AlertMeasure::P50
                | AlertMeasure::P90
                | AlertMeasure::P99
                | AlertMeasure::P999
                | AlertMeasure::Max
        )
    }
}

/// Which side of the threshold is bad.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AlertSide {
    /// Above it.
    #[default]
    Above,
    /// Below it.
    Below,
}

/// A condition, and what is done about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Alert {
    /// Letters, digits, `-`, `_` and `.`, at most 64.
    pub name: String,
    /// What is looked at: a statement without breakdown.
    pub statement: String,
    /// What of it is compared.
    pub measure: AlertMeasure,
    /// Of `share`: operations that took longer are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slower_ns: Option<u64>,
    /// Of `ratio`: the statement that is divided by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Which side of the threshold is bad.
    #[serde(default)]
    pub side: AlertSide,
    /// In nanoseconds, bytes, or as a number.
    pub threshold: f64,
    /// Where it ends, if not at the threshold: hysteresis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clear: Option<f64>,
    /// Of so many seconds the value is, 1 to 86,400.
    #[serde(default = "usual_window")]
    pub window_s: u32,
    /// It begins when the value was bad for so long.
    #[serde(default)]
    pub for_s: u32,
    /// It ends when the value was good for so long.
    #[serde(default)]
    pub clear_for_s: u32,
    /// While it lasts it is told again after so long; 0 for never.
    #[serde(default)]
    pub repeat_s: u32,
    /// A URL to which each notice is posted as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// A program that is run for each notice, by its absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

const fn usual_window() -> u32 {
    60
}

/// Adds an alert, or replaces the one of its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AddAlert {
    /// The alert.
    pub alert: Alert,
}

/// Removes an alert.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemoveAlert {
    /// Its name.
    pub name: String,
}

/// Lists the alerts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListAlerts {}

/// How an alert is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AlertState {
    /// The value is good.
    #[default]
    Quiet,
    /// It is bad, but not for long enough.
    Pending,
    /// It was bad for long enough.
    Firing,
}

/// An alert, and how it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlertStatus {
    /// The alert.
    pub alert: Alert,
    /// How it is.
    pub state: AlertState,
    /// Since when it is bad, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// The newest value; none where there was no operation, or nothing was collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Why there is no value, where something is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Reply to [`ListAlerts`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Alerts {
    /// By name.
    pub alerts: Vec<AlertStatus>,
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AlertChange {
    /// It begins.
    Begun,
    /// It lasts.
    Lasts,
    /// It ends.
    Ended,
}

/// What is told of an alert: the body of a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AlertNotice {
    /// The alert.
    pub alert: Alert,
    /// What it is about.
    pub change: AlertChange,
    /// When, unix milliseconds.
    pub at_ms: u64,
    /// Since when it is bad, unix milliseconds.
    pub since_ms: u64,
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// For people.
    pub text: String,
}
