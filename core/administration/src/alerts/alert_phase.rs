//! Whether an alert is quiet, pending or firing: hysteresis.
//!
//! # Mechanism
//! A value beyond the threshold makes it pending, and firing when it lasts. A firing alert ends
//! when the value was within `clear` for long enough: between the two it stays as it is. No value
//! is a good one: nothing that did not happen was slow.
//!
//! # Invariants
//! - Notices of one alert alternate: it begins, lasts any number of times, ends.

use crate::messages::alerts::{Alert, AlertChange, AlertSide, AlertState};

/// How an alert is. Times are unix seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Quiet,
    Pending {
        since_s: u64,
    },
    Firing {
        since_s: u64,
        told_s: u64,
        /// Since when the value is good.
        good_since_s: Option<u64>,
    },
}

impl Phase {
    /// As it is told.
    pub(super) fn state(self) -> AlertState {
        match self {
            Phase::Quiet => AlertState::Quiet,
            Phase::Pending { .. } => AlertState::Pending,
            Phase::Firing { .. } => AlertState::Firing,
        }
    }

    /// Since when the value is bad.
    pub(super) fn since_s(self) -> Option<u64> {
        match self {
            Phase::Quiet => None,
            Phase::Pending { since_s } | Phase::Firing { since_s, .. } => Some(since_s),
        }
    }

    /// The value is known of a window that ends now. Gives what is to be told, and since when it
    /// was bad.
    pub(super) fn step(
        &mut self,
        alert: &Alert,
        value: Option<f64>,
        now_s: u64,
    ) -> Option<(AlertChange, u64)> {
        match *self {
            Phase::Firing {
                since_s,
                told_s,
                good_since_s,
            } => self.step_firing(alert, value, now_s, (since_s, told_s, good_since_s)),
            Phase::Quiet | Phase::Pending { .. } if !is_bad(alert, value) => {
                *self = Phase::Quiet;
                None
            }
            Phase::Quiet | Phase::Pending { .. } => {
                let since_s = self.since_s().unwrap_or(now_s);
                if now_s.saturating_sub(since_s) < u64::from(alert.for_s) {
                    *self = Phase::Pending { since_s };
                    return None;
                }
                *self = Phase::Firing {
                    since_s,
                    told_s: now_s,
                    good_since_s: None,
                };
                Some((AlertChange::Begun, since_s))
            }
        }
    }

    fn step_firing(
        &mut self,
        alert: &Alert,
        value: Option<f64>,
        now_s: u64,
        (since_s, mut told_s, good_since_s): (u64, u64, Option<u64>),
    ) -> Option<(AlertChange, u64)> {
        let good_since_s = is_good(alert, value).then(|| good_since_s.unwrap_or(now_s));
        let is_over = good_since_s
            .is_some_and(|good| now_s.saturating_sub(good) >= u64::from(alert.clear_for_s));
        if is_over {
            *self = Phase::Quiet;
            return Some((AlertChange::Ended, since_s));
        }
        let repeat_s = u64::from(alert.repeat_s);
        let is_due = repeat_s > 0 && now_s.saturating_sub(told_s) >= repeat_s;
        if is_due {
            told_s = now_s;
        }
        *self = Phase::Firing {
            since_s,
            told_s,
            good_since_s,
        };
        is_due.then_some((AlertChange::Lasts, since_s))
    }
}

fn is_bad(alert: &Alert, value: Option<f64>) -> bool {
    value.is_some_and(|value| match alert.side {
        AlertSide::Above => value > alert.threshold,
        AlertSide::Below => value < alert.threshold,
    })
}

fn is_good(alert: &Alert, value: Option<f64>) -> bool {
    let clear = alert.clear.unwrap_or(alert.threshold);
    value.is_none_or(|value| match alert.side {
        AlertSide::Above => value <= clear,
        AlertSide::Below => value >= clear,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::messages::alerts::AlertMeasure;

    /// Above 10, until it was within 5 for 3 s; after 2 s; again each 4 s.
    pub(crate) fn alert() -> Alert {
        Alert {
            name: "a".to_owned(),
            statement: "nfs.ops".to_owned(),
            measure: AlertMeasure::Rate,
            slower_ns: None,
            of: None,
            side: AlertSide::Above,
            threshold: 10.0,
            clear: Some(5.0),
            window_s: 60,
            for_s: 2,
            clear_for_s: 3,
            repeat_s: 4,
            webhook: None,
            program: None,
        }
    }

    /// What is told at which second.
    fn told(alert: &Alert, values: &[Option<f64>]) -> Vec<(u64, AlertChange)> {
        let mut phase = Phase::default();
        let steps = (100..).zip(values).filter_map(|(now_s, value)| {
            let (change, _) = phase.step(alert, *value, now_s)?;
            Some((now_s, change))
        });
        steps.collect()
    }

    #[test]
    fn it_begins_after_a_while_lasts_between_the_thresholds_and_ends_after_a_while() {
        let values =
            [11, 9, 11, 11, 11, 7, 7, 4, 4, 7, 4, 4, 4, 4, 11].map(|value| Some(value.into()));
        let expected = [
            (104, AlertChange::Begun),
            (108, AlertChange::Lasts),
            (112, AlertChange::Lasts),
            (113, AlertChange::Ended),
        ];
        assert_eq!(told(&alert(), &values), expected);
    }

    #[test]
    fn no_value_is_a_good_one() {
        let at_once = Alert {
            for_s: 0,
            clear_for_s: 0,
            repeat_s: 0,
            ..alert()
        };
        let values = [None, Some(11.0), Some(12.0), None, None];
        let expected = [(101, AlertChange::Begun), (103, AlertChange::Ended)];
        assert_eq!(told(&at_once, &values), expected);
        let below = Alert {
            side: AlertSide::Below,
            clear: None,
            ..at_once
        };
        let values = [Some(10.0), Some(9.0), Some(10.0)];
        let expected = [(101, AlertChange::Begun), (102, AlertChange::Ended)];
        assert_eq!(told(&below, &values), expected);
    }
}
