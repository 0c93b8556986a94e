//! The alerts of an instance: kept in a file, with how they are.

use super::alert_phase::Phase;
use crate::messages::alerts::{Alert, AlertMeasure, AlertSide, AlertState};
use crate::messages::analytics::Event;
use std::collections::{BTreeMap, VecDeque};

/// So many alerts there are at most: a value is looked up for each, each second.
pub(super) const ALERTS_MAX: usize = 64;
/// Bytes of the file.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;
/// What happened that is kept for the time axis.
const EVENTS_MAX: usize = 1000;
/// Characters of a name.
const NAME_MAX: usize = 64;
/// Bytes of a statement, a URL or a path.
const TEXT_MAX: usize = 2048;
/// Seconds of a window.
const WINDOW_MAX_S: u32 = 86_400;

/// All alerts, with how they are.
#[derive(Debug, Default)]
pub(crate) struct AlertRules {
    /// None before the file was read.
    pub(super) rules: Option<BTreeMap<String, Alert>>,
    /// How those are that were looked at.
    pub(super) seen: BTreeMap<String, Seen>,
    /// Alerts that began, with their names; the oldest first.
    pub(super) events: VecDeque<(String, Event)>,
}

/// How an alert is.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) phase: Phase,
    pub(super) value: Option<f64>,
    pub(super) problem: Option<String>,
}

impl AlertRules {
    /// An alert began.
    pub(super) fn begun(&mut self, name: &str, event: Event) {
        self.events.push_back((name.to_owned(), event));
        while self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// An alert ended.
    pub(super) fn ended(&mut self, name: &str, at_ms: u64) {
        let mut newest_first = self.events.iter_mut().rev();
        if let Some((_, event)) = newest_first.find(|(known, _)| known == name) {
            event.until_ms.get_or_insert(at_ms);
        }
    }

    /// What happened. What lasts ends now.
    pub(crate) fn happened(&self, now_ms: u64) -> Vec<Event> {
        let is_firing = |name: &str| {
            let seen = self.seen.get(name);
            seen.is_some_and(|seen| seen.phase.state() == AlertState::Firing)
        };
        let events = self.events.iter().map(|(name, event)| {
            let mut event = event.clone();
            if event.until_ms.is_none() && is_firing(name) {
                event.until_ms = Some(now_ms);
            }
            event
        });
        events.collect()
    }
}

/// What an alert lacks, or has that it may not; statements are not looked at.
pub(super) fn check(alert: &Alert) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if alert.name.is_empty() || alert.name.len() > NAME_MAX || !alert.name.bytes().all(is_plain) {
        return Err(format!(
            "the name of an alert has 1 to {NAME_MAX} letters, digits, '-', '_' and '.'"
        ));
    }
    let texts = [&alert.of, &alert.webhook, &alert.program];
    let texts = texts.into_iter().flatten().chain([&alert.statement]);
    if texts
        .into_iter()
        .any(|text| text.len() > TEXT_MAX || text.contains('\0'))
    {
        return Err(format!("a text has more than {TEXT_MAX} bytes"));
    }
    if !(1..=WINDOW_MAX_S).contains(&alert.window_s) {
        return Err(format!("its window has 1 to {WINDOW_MAX_S} seconds"));
    }
    let clear = alert.clear.unwrap_or(alert.threshold);
    if !alert.threshold.is_finite() || !clear.is_finite() {
        return Err("a threshold is a number".to_owned());
    }
    let is_right_side = match alert.side {
        AlertSide::Above => clear <= alert.threshold,
        AlertSide::Below => clear >= alert.threshold,
    };
    if !is_right_side {
        return Err("it would end while its value is bad: 'clear' is on the wrong side".to_owned());
    }
    match (alert.measure, alert.slower_ns, &alert.of) {
        (AlertMeasure::Share, Some(_), None) | (AlertMeasure::Ratio, None, Some(_)) => {}
        (AlertMeasure::Share, ..) => {
            return Err("a share is of operations slower than a time".into());
        }
        (AlertMeasure::Ratio, ..) => return Err("a ratio is to another statement".into()),
        (_, None, None) => {}
        _ => return Err("'slower' is of shares, and 'of' of ratios".into()),
    }
    match &alert.program {
        Some(program) if !program.starts_with('/') => {
            Err("a program is given by its absolute path".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::alert_phase::tests::alert;
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_with_the_cure() {
        assert_eq!(check(&alert()), Ok(()));
        let refused = |change: &dyn Fn(&mut Alert)| {
            let mut changed = alert();
            change(&mut changed);
            check(&changed).unwrap_err()
        };
        assert!(refused(&|alert| alert.name = "a b".into()).contains("letters"));
        assert!(refused(&|alert| alert.window_s = 0).contains("window"));
        assert!(refused(&|alert| alert.threshold = f64::NAN).contains("number"));
        assert!(refused(&|alert| alert.clear = Some(11.0)).contains("wrong side"));
        assert!(refused(&|alert| alert.measure = AlertMeasure::Share).contains("slower"));
        assert!(refused(&|alert| alert.measure = AlertMeasure::Ratio).contains("another"));
        assert!(refused(&|alert| alert.slower_ns = Some(1)).contains("shares"));
        assert!(refused(&|alert| alert.program = Some("mail".into())).contains("absolute"));
        assert!(refused(&|alert| alert.statement = "x".repeat(3000)).contains("bytes"));
    }

    #[test]
    fn events_are_bounded_and_end() {
        let mut rules = AlertRules::default();
        for number in 0..EVENTS_MAX + 5 {
            let at_ms = u64::try_from(number).unwrap();
            let event = Event {
                at_ms,
                ..Event::default()
            };
            rules.begun("a", event);
        }
        rules.ended("a", 9000);
        let happened = rules.happened(10_000);
        assert_eq!(happened.len(), EVENTS_MAX);
        assert_eq!(happened.last().unwrap().until_ms, Some(9000));
        assert_eq!(happened[0].until_ms, None);
    }
}
