//! What was counted in the seconds that the value of an alert is of.
//!
//! # Invariants
//! - A window has at most [`SLICES_MAX`] slices, so its memory has a bound.
//! - Slices that were not collected are no zeros: they are left out, and without any other there is
//!   no value.

use crate::messages::alerts::{Alert, AlertMeasure};
use std::collections::{BTreeMap, VecDeque};
use tarn_analytics::Tally;
use tarn_probe::HistogramSnapshot;

/// Slices of a window.
const SLICES_MAX: u32 = 120;

/// What was counted in one step.
#[derive(Debug, Clone, Default)]
pub(super) struct Slice {
    /// Whether it was collected, at least in part.
    pub(super) is_collected: bool,
    /// What the statement counted.
    pub(super) tally: Tally,
    /// Operations that were slower, or the sum that is divided by.
    pub(super) other: u64,
}

/// The newest slices.
#[derive(Debug, Default)]
pub(super) struct Window(VecDeque<Slice>);

/// Seconds of a slice.
pub(super) fn step_s(alert: &Alert) -> u64 {
    u64::from(alert.window_s.div_ceil(SLICES_MAX).max(1))
}

impl Window {
    /// Adds the newest slice; the oldest one gives way.
    pub(super) fn add(&mut self, alert: &Alert, slice: Slice) {
        let most = u64::from(alert.window_s).div_ceil(step_s(alert)).max(1);
        self.0.push_back(slice);
        while u64::try_from(self.0.len()).unwrap_or(u64::MAX) > most {
            self.0.pop_front();
        }
    }

    /// The value, if there is one.
    pub(super) fn value(&self, alert: &Alert) -> Option<f64> {
        let known: Vec<&Slice> = self.0.iter().filter(|slice| slice.is_collected).collect();
        let mut whole = Tally::default();
        known.iter().for_each(|slice| whole.merge(&slice.tally));
        let other: u64 = known.iter().map(|slice| slice.other).sum();
        let slices = u64::try_from(known.len()).unwrap_or(0);
        let seconds = slices * step_s(alert);
        // What is lost beyond 53 bits does not matter for a comparison.
        let quotient = |of: u64, by: u64| (by > 0).then(|| of as f64 / by as f64);
        match alert.measure {
            AlertMeasure::Rate => quotient(whole.sum, seconds),
            AlertMeasure::Mean => quotient(whole.sum, whole.count),
            AlertMeasure::P50 => permille(&whole, 500),
            AlertMeasure::P90 => permille(&whole, 900),
            AlertMeasure::P99 => permille(&whole, 990),
            AlertMeasure::P999 => permille(&whole, 999),
            AlertMeasure::Max => whole.range().map(|(_, most)| most as f64),
            AlertMeasure::Share => quotient(other, whole.count),
            AlertMeasure::Ratio => quotient(whole.sum, other),
            AlertMeasure::Value => quotient(whole.sum, slices),
        }
    }
}

/// The upper end of the bucket below which so many thousandths are; what was the most, if that is
/// less.
fn permille(whole: &Tally, permille: u64) -> Option<f64> {
    let cells: BTreeMap<usize, u64> = whole.cells().collect();
    let wanted = whole.count.saturating_mul(permille).div_ceil(1000).max(1);
    let mut seen = 0;
    let mut cells = cells.into_iter();
    let (bucket, _) = cells.find(|(_, count)| {
        seen += count;
        seen >= wanted
    })?;
    let (_, most) = whole.range()?;
    Some(HistogramSnapshot::range_of(bucket).1.min(most) as f64)
}

#[cfg(test)]
mod tests {
    use super::super::alert_phase::tests::alert;
    use super::*;

    fn slice(values: &[u64], other: u64) -> Slice {
        let mut tally = Tally::default();
        values
            .iter()
            .for_each(|value| tally.add(*value, Some(*value)));
        Slice {
            is_collected: true,
            tally,
            other,
        }
    }

    fn value(measure: AlertMeasure, slices: &[Slice]) -> Option<f64> {
        let alert = Alert {
            measure,
            window_s: 3,
            ..alert()
        };
        let mut window = Window::default();
        slices
            .iter()
            .for_each(|slice| window.add(&alert, slice.clone()));
        window.value(&alert)
    }

    #[test]
    fn values_are_of_the_newest_slices_that_were_collected() {
        let slices = [
            slice(&[1_000_000], 50),
            slice(&[100, 200], 1),
            Slice::default(),
            slice(&[300, 1000], 2),
        ];
        assert_eq!(value(AlertMeasure::Rate, &slices), Some(800.0));
        assert_eq!(value(AlertMeasure::Mean, &slices), Some(400.0));
        assert_eq!(value(AlertMeasure::Max, &slices), Some(1000.0));
        assert_eq!(value(AlertMeasure::P999, &slices), Some(1000.0));
        assert_eq!(value(AlertMeasure::P50, &slices), Some(207.0));
        assert_eq!(value(AlertMeasure::Share, &slices), Some(0.75));
        assert_eq!(value(AlertMeasure::Value, &slices), Some(800.0));
        assert_eq!(value(AlertMeasure::Ratio, &slices), Some(1600.0 / 3.0));
    }

    #[test]
    fn without_operations_only_a_rate_has_a_value() {
        let nothing = [slice(&[], 0)];
        assert_eq!(value(AlertMeasure::Rate, &nothing), Some(0.0));
        for measure in [AlertMeasure::Mean, AlertMeasure::P99, AlertMeasure::Share] {
            assert_eq!(value(measure, &nothing), None);
            assert_eq!(value(measure, &[Slice::default()]), None);
        }
        assert_eq!(value(AlertMeasure::Rate, &[Slice::default()]), None);
        let long = Alert {
            window_s: 86_400,
            ..alert()
        };
        assert_eq!(step_s(&long), 720);
    }
}
