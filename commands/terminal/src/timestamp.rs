//! Times as the commands print them, all in local time, and `-T d|u`.

use crate::failure::Failure;
use jiff::civil::{Date, DateTime, Time};
use jiff::{Timestamp, Zoned, tz::TimeZone};

/// The form that `-T` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeForm {
    /// `-T d`: as `date` prints it.
    Date,
    /// `-T u`: unix seconds.
    Unix,
}

impl TimeForm {
    /// The form that a value of `-T` names, by its first letter.
    ///
    /// # Errors
    /// Any other letter.
    pub fn parse(value: &str) -> Result<TimeForm, Failure> {
        match value.chars().next() {
            Some('d') => Ok(TimeForm::Date),
            Some('u') => Ok(TimeForm::Unix),
            _ => Err(Failure::usage("")),
        }
    }

    /// The present time.
    pub fn now(self) -> String {
        let now = Zoned::now();
        match self {
            TimeForm::Date => now.strftime("%a %b %e %H:%M:%S %Z %Y").to_string(),
            TimeForm::Unix => now.timestamp().as_second().to_string(),
        }
    }
}

/// A time in local time by a `strftime` pattern; the number itself when it is no time.
pub fn local(unix_seconds: i64, pattern: &str) -> String {
    match Timestamp::from_second(unix_seconds) {
        Ok(time) => time
            .to_zoned(TimeZone::system())
            .strftime(pattern)
            .to_string(),
        Err(_) => unix_seconds.to_string(),
    }
}

/// The seconds since 1970 of a date in local time, `YYYY-MM-DD HH:MM` or `YYYY-MM-DD`, and how
/// many seconds the minute or the day has of which it is the beginning. None of anything else. A
/// time before 1970 is 1.
pub fn of_date(text: &str) -> Option<(u64, u64)> {
    const MINUTE_S: u64 = 60;
    const DAY_S: u64 = 24 * 60 * 60;
    let minute = DateTime::strptime("%Y-%m-%d %H:%M", text).ok();
    let minute = minute.map(|minute| (minute, MINUTE_S));
    let day = || Some((Date::strptime("%Y-%m-%d", text).ok()?, DAY_S));
    let (begin, length_s) = match minute {
        Some(minute) => minute,
        None => day().map(|(day, length_s)| (day.to_datetime(Time::midnight()), length_s))?,
    };
    let begin = begin.to_zoned(TimeZone::system()).ok()?;
    assert!(length_s > 0, "a minute or day has a length");
    let seconds = u64::try_from(begin.timestamp().as_second()).unwrap_or(0);
    Some((seconds.max(1), length_s))
}

/// As `ctime` prints it: `Fri Nov 20 16:02:48 2026`.
pub fn ctime(unix_seconds: i64) -> String {
    local(unix_seconds, "%a %b %e %H:%M:%S %Y")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_the_beginning_of_its_minute_or_day_in_local_time() {
        let (noon_s, minute_s) = of_date("2026-11-20 12:00").unwrap();
        let noon = local(i64::try_from(noon_s).unwrap(), "%Y-%m-%d %H:%M:%S");
        assert_eq!((noon.as_str(), minute_s), ("2026-11-20 12:00:00", 60));
        let (day_s, length_s) = of_date("2026-11-20").unwrap();
        let day = local(i64::try_from(day_s).unwrap(), "%Y-%m-%d %H:%M:%S");
        assert_eq!((day.as_str(), length_s), ("2026-11-20 00:00:00", 86_400));
        assert_eq!(of_date("1960-01-01"), Some((1, 86_400)));
        for wrong in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-11-20 25:00",
            "20.11.2026",
        ] {
            assert_eq!(of_date(wrong), None, "{wrong}");
        }
    }
}
