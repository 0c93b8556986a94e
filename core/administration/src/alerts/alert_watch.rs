//! Looks at all alerts, again and again.
//!
//! # Mechanism
//! A thread of the daemon calls [`AlertWatch::look`] each second. For each alert whose next slice
//! of time has ended it asks the flight recorder, or the archive for samples, of that slice alone:
//! each operation is looked at once for each alert. The collector waits for nothing.
//!
//! # Invariants
//! - A watch that was late looks at the newest slices of a window, and at no more than
//!   [`LATE_SLICES_MAX`] at once.

use super::alert_phase::Phase;
use super::alert_rules::Seen;
use super::alert_window::{Slice, Window, step_s};
use crate::administrator::Administrator;
use crate::messages::alerts::{Alert, AlertChange, AlertMeasure, AlertNotice};
use crate::messages::analytics::Event;
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_analytics::{
    Analytics, Breakdown, Collected, CompiledPredicate, Field, Measure, Query, Tally,
};
use tarn_archive::{ArchiveQuery, ArchivedMeasure, Asked, Sampled};
use tarn_probe::Operation;

/// Operations of a second are all there so long after its end.
const SETTLED_S: u64 = 1;
/// Slices of one alert that are looked at together.
const LATE_SLICES_MAX: u64 = 10;
const SECOND_NS: i64 = 1_000_000_000;

/// What looks at alerts.
pub struct AlertWatch {
    administrator: Arc<Administrator>,
    watched: BTreeMap<String, Watched>,
    /// What was wrong with the file of alerts, as it was told.
    told: Option<String>,
}

struct Watched {
    alert: Alert,
    window: Window,
    phase: Phase,
    /// When the next slice begins, in unix seconds.
    next_s: u64,
}

impl AlertWatch {
    /// Looks at the alerts of this administrator.
    pub fn new(administrator: Arc<Administrator>) -> AlertWatch {
        AlertWatch {
            administrator,
            watched: BTreeMap::new(),
            told: None,
        }
    }

    /// Looks at all alerts of which a slice has ended. Gives what is to be told.
    ///
    /// # Errors
    /// What is wrong with the file of alerts, once.
    pub fn look(&mut self) -> Result<Vec<AlertNotice>, String> {
        let now = self.administrator.engine.host.unix_time();
        self.look_at(u64::try_from(now.seconds).unwrap_or(0))
    }

    /// The same at a unix second, at which an alert that is new begins.
    ///
    /// # Errors
    /// As [`AlertWatch::look`].
    pub fn look_at(&mut self, now_s: u64) -> Result<Vec<AlertNotice>, String> {
        let rules = match self.administrator.alert_rules() {
            Ok(rules) => rules,
            Err(refusal) => {
                let why = refusal.to_string();
                let is_new = self
                    .told
                    .replace(why.clone())
                    .is_none_or(|told| told != why);
                return if is_new { Err(why) } else { Ok(Vec::new()) };
            }
        };
        let is_same =
            |name: &String, watched: &mut Watched| rules.get(name) == Some(&watched.alert);
        self.watched.retain(is_same);
        let mut notices = Vec::new();
        for (name, alert) in rules {
            let watched = self.watched.entry(name).or_insert_with(|| Watched {
                alert,
                window: Window::default(),
                phase: Phase::default(),
                next_s: now_s,
            });
            watched.look(&self.administrator, now_s, &mut notices);
        }
        Ok(notices)
    }
}

impl Watched {
    fn look(&mut self, administrator: &Administrator, now_s: u64, notices: &mut Vec<AlertNotice>) {
        let step_s = step_s(&self.alert);
        let end_s = now_s.saturating_sub(SETTLED_S);
        // After a pause, or when the time of day was set: the newest slices.
        let oldest_s = end_s.saturating_sub(LATE_SLICES_MAX * step_s);
        if self.next_s < oldest_s || self.next_s > now_s.saturating_add(step_s) {
            self.next_s = oldest_s;
        }
        while self.next_s + step_s <= end_s {
            let until_s = self.next_s + step_s;
            let slice = administrator.slice_of(&self.alert, self.next_s, until_s);
            self.next_s = until_s;
            let problem = slice.as_ref().err().cloned();
            self.window.add(&self.alert, slice.unwrap_or_default());
            let value = self.window.value(&self.alert);
            let change = self.phase.step(&self.alert, value, until_s);
            if let Some((change, since_s)) = change {
                notices.push(self.notice(change, value, until_s, since_s));
            }
            let seen = Seen {
                phase: self.phase,
                value,
                problem,
            };
            administrator.note_alert(&self.alert.name, seen, notices.last(), change.is_some());
        }
    }

    fn notice(
        &self,
        change: AlertChange,
        value: Option<f64>,
        at_s: u64,
        since_s: u64,
    ) -> AlertNotice {
        AlertNotice {
            text: self.alert.told(change, value),
            alert: self.alert.clone(),
            change,
            at_ms: at_s.saturating_mul(1000),
            since_ms: since_s.saturating_mul(1000),
            value,
        }
    }
}

impl Administrator {
    /// Keeps how an alert is, and its notice for the time axis.
    fn note_alert(&self, name: &str, seen: Seen, notice: Option<&AlertNotice>, is_new: bool) {
        let mut kept = self.alerts.lock();
        kept.seen.insert(name.to_owned(), seen);
        let Some(notice) = notice.filter(|_| is_new) else {
            return;
        };
        match notice.change {
            AlertChange::Begun => {
                let event = Event {
                    at_ms: notice.since_ms,
                    until_ms: None,
                    kind: "alert".to_owned(),
                    pool: String::new(),
                    text: notice.text.clone(),
                };
                kept.begun(name, event);
            }
            AlertChange::Ended => kept.ended(name, notice.at_ms),
            AlertChange::Lasts => {}
        }
    }

    /// What was counted from one unix second to another.
    fn slice_of(&self, alert: &Alert, from_s: u64, until_s: u64) -> Result<Slice, String> {
        if alert.measure == AlertMeasure::Value {
            return self.sampled_slice(alert, from_s, until_s);
        }
        let analytics = self.engine.analytics();
        let analytics = analytics.ok_or("tarnd was started with --analytics off")?;
        let clock = self.wall_clock.lock().look(&self.engine.host);
        let clock_ns = |second: u64| {
            clock.clock_ns(
                i64::try_from(second)
                    .unwrap_or(i64::MAX)
                    .saturating_mul(SECOND_NS),
            )
        };
        let asker = Asker {
            analytics,
            range_ns: clock_ns(from_s)..clock_ns(until_s),
        };
        let operation = Operation::unmeasured();
        let understood = |text: &str| {
            let asked = self.understand(text, None, &operation);
            asked.map_err(|refusal| refusal.to_string())
        };
        let asked = understood(&alert.statement)?;
        let numeric = asked.statement.numeric();
        // The sum of a mean is of what its field says.
        let measure = match (alert.measure, numeric) {
            (AlertMeasure::Mean, Some(Field::Latency)) => Measure::WaitTime,
            (AlertMeasure::Mean, Some(Field::Size)) => Measure::Bytes,
            _ => asked.statement.measure,
        };
        let (is_collected, tally) = asker.ask(asked.predicate.clone(), numeric, measure)?;
        let other = match (alert.slower_ns, &alert.of) {
            (Some(slower_ns), _) => {
                let slower = CompiledPredicate::within(
                    Field::Latency,
                    slower_ns.saturating_add(1),
                    u64::MAX,
                );
                let slower = asked.predicate.and(slower);
                asker.ask(slower, None, Measure::Operations)?.1.count
            }
            (None, Some(of)) => {
                let of = understood(of)?;
                asker.ask(of.predicate, None, of.statement.measure)?.1.sum
            }
            (None, None) => 0,
        };
        Ok(Slice {
            is_collected,
            tally,
            other,
        })
    }

    /// The mean of a sampled statistic, from the archive.
    fn sampled_slice(&self, alert: &Alert, from_s: u64, until_s: u64) -> Result<Slice, String> {
        let archive = self.engine.archive();
        let archive = archive.ok_or("tarnd was started with --archive off")?;
        let sampled = Sampled::parse(&alert.statement).map_err(|error| error.to_string())?;
        let sampled = sampled.ok_or("it is no sampled statistic any more")?;
        let query = ArchiveQuery {
            asked: Asked::Sampled(sampled),
            range_s: from_s..until_s,
            column_s: until_s - from_s,
            keys_max: 0,
        };
        let answer = archive.answer(&query).map_err(|error| error.to_string())?;
        let collected = |at: usize| {
            let column = answer.columns.get(at);
            column.is_some_and(|column| column.collected != Collected::NotCollected)
        };
        let seconds = match answer.measure {
            ArchivedMeasure::Mean => 1,
            ArchivedMeasure::Counted | ArchivedMeasure::Of(_) => answer.column_s.max(1),
        };
        let mut tally = Tally::default();
        if let Some(cell) = answer.total.first() {
            tally.add(cell.sum / seconds, None);
        }
        Ok(Slice {
            is_collected: collected(0) && tally.count > 0,
            tally,
            other: 0,
        })
    }
}

/// Asks the flight recorder about one time.
struct Asker<'a> {
    analytics: &'a Analytics,
    range_ns: std::ops::Range<u64>,
}

impl Asker<'_> {
    fn ask(
        &self,
        predicate: CompiledPredicate,
        numeric: Option<Field>,
        measure: Measure,
    ) -> Result<(bool, Tally), String> {
        let breakdown = Breakdown::new(&[], numeric, measure);
        let query = Query {
            range_ns: self.range_ns.clone(),
            column_ns: self.range_ns.end.saturating_sub(self.range_ns.start).max(1),
            predicate,
            breakdown: breakdown.map_err(|error| error.to_string())?,
            keys_max: 0,
        };
        let answer = self.analytics.flight_recorder().answer(&query);
        let mut answer = answer.map_err(|error| error.to_string())?;
        let column = answer.columns.first();
        let is_collected = column.is_some_and(|column| column.collected != Collected::NotCollected);
        Ok((is_collected, answer.total.pop().unwrap_or_default()))
    }
}
