//! The time of day of operations, which have the time of a clock that never goes back.

use crate::messages::analytics::When;
use std::ops::Range;
use std::time::Duration;
use tarn_host::Host;

/// The difference of the clocks is kept while it is this near: columns of answers that follow one
/// another begin at the same operations. The bar for the error of a time.
const NEAR_NS: i64 = 1_000_000;

/// Without other words the last minute is meant.
const USUAL_RANGE: Duration = Duration::from_secs(60);

const SECOND_NS: i64 = 1_000_000_000;
const MILLISECOND_NS: i64 = 1_000_000;

/// By how much the time of day is ahead of the clock of operations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WallClock {
    ahead_ns: i64,
}

impl WallClock {
    /// Reads both clocks.
    pub(crate) fn look(&mut self, host: &Host) -> WallClock {
        let ahead_ns = unix_ns(host) - signed(host.monotonic_ns());
        if (ahead_ns - self.ahead_ns).abs() > NEAR_NS {
            self.ahead_ns = ahead_ns;
        }
        *self
    }

    /// The unix time, in nanoseconds, of a time of the clock of operations.
    pub(crate) fn unix_ns(self, clock_ns: u64) -> i64 {
        signed(clock_ns).saturating_add(self.ahead_ns)
    }

    /// The same in milliseconds.
    pub(crate) fn unix_ms(self, clock_ns: u64) -> u64 {
        u64::try_from(self.unix_ns(clock_ns) / MILLISECOND_NS).unwrap_or(0)
    }

    /// The same in milliseconds, with their parts.
    pub(crate) fn exact_ms(self, clock_ns: u64) -> f64 {
        let whole = Duration::from_nanos(u64::try_from(self.unix_ns(clock_ns)).unwrap_or(0));
        whole.as_secs_f64() * 1000.0
    }

    /// A unix time by the clock of operations; times before it began are its begin.
    pub(crate) fn clock_ns(self, unix_ns: i64) -> u64 {
        u64::try_from(unix_ns.saturating_sub(self.ahead_ns)).unwrap_or(0)
    }

    /// A range of time by the clock of operations, in whole columns of the time of day.
    ///
    /// # Errors
    /// What is wrong with the times.
    pub(crate) fn columns(
        self,
        when: &When,
        column_ms: u64,
        host: &Host,
    ) -> Result<Range<u64>, &'static str> {
        let column_ns = i64::try_from(column_ms)
            .ok()
            .and_then(|column| column.checked_mul(MILLISECOND_NS))
            .filter(|column| *column > 0)
            .ok_or("column_ms is the length of a column in milliseconds, 1 or more")?;
        let (from, until) = self.range(when, host)?;
        let mut begin = from.div_euclid(column_ns) * column_ns;
        let end = until.saturating_add(column_ns - 1).div_euclid(column_ns) * column_ns;
        if begin < self.ahead_ns {
            // Nothing was counted before the clock began.
            begin += (self.ahead_ns - begin + column_ns - 1) / column_ns * column_ns;
        }
        match begin < end {
            true => Ok(self.clock_ns(begin)..self.clock_ns(end)),
            false => Err("the time ends before it begins, or before this machine was started"),
        }
    }

    /// Begin and end, as unix nanoseconds.
    pub(crate) fn range(self, when: &When, host: &Host) -> Result<(i64, i64), &'static str> {
        let until = match when.until {
            Some(until) => nanoseconds(until)?,
            None => self.unix_ns(host.monotonic_ns()),
        };
        let from = match (when.from, when.last) {
            (Some(_), Some(_)) => return Err("'from' and 'last' exclude each other"),
            (Some(from), None) => nanoseconds(from)?,
            (None, Some(last)) => until.saturating_sub(nanoseconds(last)?),
            (None, None) => {
                let usual = i64::try_from(USUAL_RANGE.as_secs()).unwrap_or(0) * SECOND_NS;
                until.saturating_sub(usual)
            }
        };
        match from < until {
            true => Ok((from, until)),
            false => Err("the time ends before it begins"),
        }
    }
}

/// Nanoseconds of seconds that a program sent.
fn nanoseconds(seconds: f64) -> Result<i64, &'static str> {
    let duration = Duration::try_from_secs_f64(seconds).ok();
    let nanoseconds = duration.and_then(|duration| i64::try_from(duration.as_nanos()).ok());
    nanoseconds.ok_or("a time is in seconds since 1970, and not negative")
}

fn unix_ns(host: &Host) -> i64 {
    let now = host.unix_time();
    now.seconds
        .saturating_mul(SECOND_NS)
        .saturating_add(i64::from(now.nanoseconds))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::RealOptions;

    /// A machine that was started 1,000 s before its operations begin at second 2,000.
    const CLOCK: WallClock = WallClock {
        ahead_ns: 1_000 * SECOND_NS,
    };

    fn range(from: f64, until: f64, column_ms: u64) -> Result<Range<u64>, &'static str> {
        let host = Host::real(RealOptions::default());
        let when = When {
            from: Some(from),
            until: Some(until),
            last: None,
        };
        CLOCK.columns(&when, column_ms, &host)
    }

    #[test]
    fn a_range_is_widened_to_whole_columns_of_the_time_of_day() {
        let second = 1_000_000_000;
        assert_eq!(
            range(2000.4, 2001.2, 1000),
            Ok(1000 * second..1002 * second)
        );
        assert_eq!(
            range(2000.0, 2001.0, 1000),
            Ok(1000 * second..1001 * second)
        );
        // Columns before the clock began are left out.
        assert_eq!(range(0.0, 1002.0, 1000), Ok(0..2 * second));
        assert!(range(0.0, 999.0, 1000).is_err());
        assert!(range(2001.0, 2000.0, 1000).is_err());
        assert!(range(f64::NAN, 2000.0, 1000).is_err());
        assert!(range(0.0, f64::INFINITY, 1000).is_err());
        assert!(range(2000.0, 2001.0, 0).is_err());
        assert!(range(2000.0, 2001.0, u64::MAX).is_err());
    }

    #[test]
    fn times_go_both_ways() {
        assert_eq!(CLOCK.unix_ms(5 * 1_000_000_000), 1_005_000);
        assert_eq!(CLOCK.clock_ns(CLOCK.unix_ns(77)), 77);
        let host = Host::real(RealOptions::default());
        let mut clock = WallClock::default();
        let first = clock.look(&host);
        assert_eq!(clock.look(&host).ahead_ns, first.ahead_ns);
        let now_ms = clock.exact_ms(host.monotonic_ns());
        let unix = host.unix_time();
        assert!(
            (now_ms / 1000.0 - Duration::from_secs(unix.seconds.unsigned_abs()).as_secs_f64())
                .abs()
                < 5.0
        );
    }
}
