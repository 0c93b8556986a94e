//! What is told of alerts to people.

use crate::messages::alerts::{Alert, AlertChange, AlertMeasure, AlertSide};

impl AlertMeasure {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            AlertMeasure::Rate => "rate",
            AlertMeasure::Mean => "mean",
            AlertMeasure::P50 => "p50",
            AlertMeasure::P90 => "p90",
            AlertMeasure::P99 => "p99",
            AlertMeasure::P999 => "p999",
            AlertMeasure::Max => "max",
            AlertMeasure::Share => "share",
            AlertMeasure::Ratio => "ratio",
            AlertMeasure::Value => "value",
        }
    }
}

impl Alert {
    /// A number of this alert as people read it: `14.2ms`, `0.35`.
    pub fn shown(&self, number: f64) -> String {
        let is_time = self.measure.is_of_values() && !self.statement.trim_end().ends_with("size");
        match is_time {
            true => duration(number),
            false if number.fract() == 0.0 => format!("{number:.0}"),
            false => format!("{number:.3}"),
        }
    }

    /// What is looked at, and when it is bad: `p99 of nfs.ops:latency above 10ms`.
    pub fn condition(&self) -> String {
        let side = match self.side {
            AlertSide::Above => "above",
            AlertSide::Below => "below",
        };
        let what = match (&self.of, self.slower_ns) {
            (Some(of), _) => format!("{} to {of}", self.statement),
            (None, Some(slower_ns)) => {
                format!(
                    "{} slower than {}",
                    self.statement,
                    duration(slower_ns as f64)
                )
            }
            (None, None) => self.statement.clone(),
        };
        let threshold = self.shown(self.threshold);
        format!("{} of {what} {side} {threshold}", self.measure.name())
    }

    /// What happened to it, as a sentence.
    pub(super) fn told(&self, change: AlertChange, value: Option<f64>) -> String {
        let value = value.map_or("no value".to_owned(), |value| self.shown(value));
        let name = &self.name;
        match change {
            AlertChange::Begun => format!("{name}: {} ({value})", self.condition()),
            AlertChange::Lasts => format!("{name}: still {} ({value})", self.condition()),
            AlertChange::Ended => format!("{name}: ended: {} ({value})", self.condition()),
        }
    }
}

/// Nanoseconds as people read them.
fn duration(nanoseconds: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    let unit = units
        .into_iter()
        .find(|(size, _)| nanoseconds.abs() >= *size);
    let (size, name) = unit.unwrap_or((1.0, "ns"));
    let number = format!("{:.2}", nanoseconds / size);
    format!(
        "{}{name}",
        number.trim_end_matches('0').trim_end_matches('.')
    )
}

#[cfg(test)]
mod tests {
    use super::super::alert_phase::tests::alert;
    use super::*;

    #[test]
    fn an_alert_is_told_in_its_units() {
        let slow = Alert {
            measure: AlertMeasure::P99,
            statement: "nfs.ops[op=read]:latency".to_owned(),
            threshold: 10_000_000.0,
            ..alert()
        };
        assert_eq!(
            slow.told(AlertChange::Begun, Some(14_250_000.0)),
            "a: p99 of nfs.ops[op=read]:latency above 10ms (14.25ms)"
        );
        let share = Alert {
            measure: AlertMeasure::Share,
            slower_ns: Some(1_500),
            threshold: 0.01,
            ..alert()
        };
        assert_eq!(
            share.told(AlertChange::Ended, None),
            "a: ended: share of nfs.ops slower than 1.5us above 0.010 (no value)"
        );
    }
}
