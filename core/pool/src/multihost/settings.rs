//! How often heartbeats are written, and how many may be missed.

use tarn_object::zap::ZapValue;
use tarn_ondisk::uberblock::{Multihost, Uberblock};

/// The name of the property.
pub const PROPERTY: &str = "multihost";

/// The property with the milliseconds between heartbeats.
#[doc(alias = "zfs_multihost_interval")]
pub const INTERVAL: &str = "tarn:multihost_interval";

/// The property with how many intervals without a heartbeat end the lease.
#[doc(alias = "zfs_multihost_fail_intervals")]
pub const FAIL_INTERVALS: &str = "tarn:multihost_fail_intervals";

const INTERVAL_MS: std::ops::RangeInclusive<u64> = 100..=100_000;
const FAILS: std::ops::RangeInclusive<u64> = 2..=100;

/// Nanoseconds of a millisecond.
const MS_NS: u64 = 1_000_000;

/// How a host shows itself alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Milliseconds between heartbeats.
    pub interval_ms: u64,
    /// How many intervals without a heartbeat end the lease.
    pub fail_intervals: u64,
}

impl Default for Settings {
    /// OpenZFS's defaults.
    fn default() -> Settings {
        Settings {
            interval_ms: 1000,
            fail_intervals: 10,
        }
    }
}

impl Settings {
    /// How long the lease is, in nanoseconds.
    pub fn lease_ns(self) -> u64 {
        assert!(
            INTERVAL_MS.contains(&self.interval_ms) && FAILS.contains(&self.fail_intervals),
            "settings were checked"
        );
        self.interval_ms * MS_NS * self.fail_intervals
    }

    /// The time between heartbeats, in nanoseconds.
    pub fn interval_ns(self) -> u64 {
        self.interval_ms * MS_NS
    }

    /// What uberblocks say of them.
    pub fn to_multihost(self, sequence: u64) -> Multihost {
        Multihost {
            interval_ms: Some(self.interval_ms),
            sequence: Some(sequence),
            fail_intervals: Some(self.fail_intervals),
        }
    }

    /// Of the stored properties; none while `multihost` is off. A number that makes no sense does
    /// not count.
    pub(crate) fn of_properties(stored: &[(String, ZapValue)]) -> Option<Settings> {
        let value = |name: &str| {
            stored
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, v)| v)
        };
        let is_on = value(PROPERTY).and_then(ZapValue::as_word).unwrap_or(0) != 0;
        let number = |name: &str| {
            let text = value(name)?.as_text()?;
            std::str::from_utf8(text).ok()?.parse::<u64>().ok()
        };
        let standard = Settings::default();
        let within = |name, range: std::ops::RangeInclusive<u64>, otherwise| {
            number(name)
                .filter(|n| range.contains(n))
                .unwrap_or(otherwise)
        };
        is_on.then(|| Settings {
            interval_ms: within(INTERVAL, INTERVAL_MS, standard.interval_ms),
            fail_intervals: within(FAIL_INTERVALS, FAILS, standard.fail_intervals),
        })
    }
}

/// Why this value of a property is refused, if it is one of these two and its value makes no sense.
pub fn refuse_value(name: &str, value: &str) -> Option<String> {
    let range = match name {
        INTERVAL => INTERVAL_MS,
        FAIL_INTERVALS => FAILS,
        _ => return None,
    };
    match value.parse::<u64>() {
        Ok(number) if range.contains(&number) => None,
        _ => Some(format!(
            "property '{name}' must be a number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

/// Whether a host with `multihost` wrote this.
pub(crate) fn shows_itself(uberblock: &Uberblock) -> bool {
    uberblock.multihost().is_some() && uberblock.multihost_delay_ns != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_make_no_sense_do_not_count() {
        let stored = |interval: &str, on: u64| {
            vec![
                (PROPERTY.to_string(), ZapValue::word(on)),
                (INTERVAL.to_string(), ZapValue::text(interval)),
            ]
        };
        assert_eq!(Settings::of_properties(&stored("100", 0)), None);
        let of = |interval| Settings::of_properties(&stored(interval, 1)).unwrap();
        assert_eq!((of("100").interval_ms, of("100").fail_intervals), (100, 10));
        assert_eq!(of("100").lease_ns(), 1_000_000_000);
        for wrong in ["99", "", "-1", "100001", "x"] {
            assert_eq!(of(wrong), Settings::default());
            assert!(refuse_value(INTERVAL, wrong).is_some());
        }
        assert!(refuse_value(INTERVAL, "100").is_none());
        assert!(refuse_value("other:name", "x").is_none());
    }
}
