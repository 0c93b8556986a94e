//! Scrubs that begin by themselves: the property `tarn:scrub_schedule`.
//!
//! # Mechanism
//! A scrub is due when the interval has passed since the last one ended, also if no process had the
//! pool open when it was: then it begins soon after the pool is imported. When the last scrub ended
//! is in the property `tarn:last_scrub`, since a resilver replaces the stored scan. A pool that was
//! never scrubbed counts from its creation. A scrub that was stopped counts as one that ended.

use crate::error::PoolError;
use crate::pool::{Mode, Pool};
use crate::properties;
use crate::sync_scope::SyncScope;
use tarn_object::zap::ZapValue;
use tarn_probe::Operation;

/// The property with the schedule.
pub const SCHEDULE: &str = "tarn:scrub_schedule";

/// The property with the time at which the last scrub ended, in seconds since 1970. It is kept
/// while a schedule is set.
pub const LAST_SCRUB: &str = "tarn:last_scrub";

const DAY_S: u64 = 24 * 60 * 60;

/// A longer interval is taken for a mistake, in days.
const DAYS_MAX: u64 = 3650;

/// A day has so many minutes.
const DAY_MINUTES: u32 = 24 * 60;

/// How often a pool is scrubbed, and at which time of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Days from the end of a scrub to the next one.
    pub interval_days: u64,
    /// The minutes of the day, in local time, from which and before which a scrub may begin. It may
    /// span midnight.
    pub window: Option<(u32, u32)>,
}

impl Schedule {
    /// From the value of the property: `daily`, `weekly`, `monthly` (30 days) or `every N days`,
    /// and then, if a window is wanted, `HH:MM-HH:MM`. None for `off` and for no value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(value: &str) -> Result<Option<Schedule>, String> {
        let words: Vec<&str> = value.split_whitespace().collect();
        let (interval_days, rest) = match words.as_slice() {
            [] | ["off"] => return Ok(None),
            ["daily", rest @ ..] => (1, rest),
            ["weekly", rest @ ..] => (7, rest),
            ["monthly", rest @ ..] => (30, rest),
            ["every", number, "day" | "days", rest @ ..] => {
                let days = number.parse::<u64>().ok();
                let days = days.filter(|days| (1..=DAYS_MAX).contains(days));
                let wrong = || format!("'{number}' must be a number of days from 1 to {DAYS_MAX}");
                (days.ok_or_else(wrong)?, rest)
            }
            _ => return Err(FORMS.to_string()),
        };
        let window = match rest {
            [] => None,
            [window] => Some(window_of(window).ok_or(FORMS)?),
            _ => return Err(FORMS.to_string()),
        };
        Ok(Some(Schedule {
            interval_days,
            window,
        }))
    }

    /// Whether a scrub is to begin, when the last one ended at `last_s` and it is the given minute
    /// of the day.
    pub fn is_due(&self, last_s: u64, now_s: u64, minute: u32) -> bool {
        assert!(minute < DAY_MINUTES, "a day has so many minutes");
        let is_in = match self.window {
            None => true,
            Some((from, until)) if from < until => (from..until).contains(&minute),
            Some((from, until)) => minute >= from || minute < until,
        };
        let interval_s = self.interval_days.saturating_mul(DAY_S);
        is_in && now_s.saturating_sub(last_s) >= interval_s
    }
}

/// The forms of a value.
const FORMS: &str =
    "use off, daily, weekly, monthly or 'every N days', with or without a window HH:MM-HH:MM";

fn window_of(text: &str) -> Option<(u32, u32)> {
    let (from, until) = text.split_once('-')?;
    let (from, until) = (minute_of(from)?, minute_of(until)?);
    (from != until).then_some((from, until))
}

/// The minute of the day of a time like `03:30`.
pub fn minute_of(time: &str) -> Option<u32> {
    let (hours, minutes) = time.split_once(':')?;
    let number = |text: &str, most| text.parse::<u32>().ok().filter(|number| *number < most);
    Some(number(hours, 24)? * 60 + number(minutes, 60)?)
}

/// Why this value of a property is refused, if it is the schedule and makes no sense.
pub fn refuse_value(name: &str, value: &str) -> Option<String> {
    match name {
        SCHEDULE => {
            let wrong = Schedule::parse(value).err()?;
            Some(format!("invalid value '{value}' of '{name}': {wrong}"))
        }
        _ => None,
    }
}

/// Notes the end of a scrub, if the pool has a schedule.
pub(super) fn note_scrub(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    let stored = properties::read(scope.writer.directory())?;
    if schedule_of(&stored).is_none() {
        return Ok(());
    }
    let now = ZapValue::text(&scope.context.now_s.to_string());
    properties::store(scope.writer, &[(LAST_SCRUB.to_string(), now)])
}

fn text_of(stored: &[(String, ZapValue)], name: &str) -> Option<String> {
    let (_, value) = stored.iter().find(|(known, _)| known == name)?;
    let text = std::str::from_utf8(value.as_text()?).ok()?;
    Some(text.to_string())
}

/// The schedule of stored properties. A value that makes no sense does not count.
fn schedule_of(stored: &[(String, ZapValue)]) -> Option<Schedule> {
    Schedule::parse(&text_of(stored, SCHEDULE)?).ok().flatten()
}

impl Pool {
    /// Whether a scrub is to begin by the schedule of the pool, at this minute of the day in local
    /// time. False while any scan or rebuild runs or is paused, and for a pool that cannot be
    /// written.
    ///
    /// # Errors
    /// The properties cannot be read.
    pub fn is_scrub_due(&self, minute: u32, operation: &Operation) -> Result<bool, PoolError> {
        let is_writable = self.mode() == Mode::ReadWrite && self.failure().is_none();
        if !is_writable || self.is_closing() {
            return Ok(false);
        }
        let stored = properties::read(self.directory(operation))?;
        let Some(schedule) = schedule_of(&stored) else {
            return Ok(false);
        };
        let scan = self.scan_status();
        let runs = scan.is_some_and(|scan| scan.is_running());
        if runs || self.is_rebuilding() || self.error_scrub().0.is_running() {
            return Ok(false);
        }
        let noted = text_of(&stored, LAST_SCRUB).and_then(|text| text.parse().ok());
        let ended = scan.filter(|scan| scan.is_scrub());
        let ended = ended.map(|scan| scan.scan.end_time_s);
        let last_s = noted.max(ended);
        let last_s = match last_s {
            Some(last_s) => last_s,
            None => self.created_s(operation),
        };
        let now_s = u64::try_from(self.host().unix_time().seconds).unwrap_or(0);
        Ok(schedule.is_due(last_s, now_s, minute))
    }

    /// When the pool was created, in seconds since 1970; zero if that cannot be read.
    fn created_s(&self, operation: &Operation) -> u64 {
        let head = self.namespace().view(operation).root();
        let head = head.ok().and_then(|root| root.head().ok().flatten());
        let stored = head.and_then(|head| head.stored().ok());
        stored.map_or(0, |stored| stored.creation_time_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: &str) -> Schedule {
        Schedule::parse(value).unwrap().unwrap()
    }

    #[test]
    fn values_are_intervals_with_or_without_a_window() {
        for (value, days, window) in [
            ("daily", 1, None),
            ("weekly 01:00-05:30", 7, Some((60, 330))),
            ("monthly", 30, None),
            ("every 1 day", 1, None),
            ("every 14 days 22:00-04:00", 14, Some((1320, 240))),
        ] {
            let schedule = parsed(value);
            assert_eq!((schedule.interval_days, schedule.window), (days, window));
        }
        assert_eq!(Schedule::parse("off"), Ok(None));
        assert_eq!(Schedule::parse(""), Ok(None));
        for wrong in [
            "sometimes",
            "every 0 days",
            "every 4000 days",
            "every x days",
            "every 2",
            "weekly 25:00-26:00",
            "weekly 01:00",
            "weekly 01:00-01:00",
            "weekly 01:00-02:00 more",
        ] {
            assert!(Schedule::parse(wrong).is_err(), "{wrong}");
            assert!(refuse_value(SCHEDULE, wrong).is_some(), "{wrong}");
            assert!(refuse_value("other:name", wrong).is_none());
        }
    }

    #[test]
    fn a_scrub_is_due_after_the_interval_and_within_the_window() {
        let weekly = parsed("weekly");
        assert!(!weekly.is_due(1_000, 1_000 + 7 * DAY_S - 1, 0));
        assert!(weekly.is_due(1_000, 1_000 + 7 * DAY_S, 0));
        assert!(weekly.is_due(0, u64::MAX, 0));
        let nightly = parsed("daily 22:00-04:00");
        let due = |minute| nightly.is_due(0, 2 * DAY_S, minute);
        assert!(due(22 * 60) && due(0) && due(239));
        assert!(!due(240) && !due(12 * 60));
    }
}
