//! Times as the commands print them, all in local time, and `-T d|u`.

use crate::failure::Failure;
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

/// As `ctime` prints it: `Fri Nov 20 16:02:48 2026`.
pub fn ctime(unix_seconds: i64) -> String {
    local(unix_seconds, "%a %b %e %H:%M:%S %Y")
}
