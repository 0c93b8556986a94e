//! Clocks: a monotonic one, and the time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::quick_clock;
use crate::sim::baton;

/// The time of day, since 1970 in UTC. For people: nothing is ordered by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UnixTime {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds above that, less than 10^9.
    pub nanoseconds: u32,
}

impl UnixTime {
    /// A machine whose clock stands before 1970 has no clock; it gets 1970.
    pub(crate) fn now() -> UnixTime {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        UnixTime::default().after(since)
    }

    /// This much later.
    pub fn after(self, duration: Duration) -> UnixTime {
        let nanoseconds = self.nanoseconds + duration.subsec_nanos();
        let whole = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        UnixTime {
            seconds: self.seconds.saturating_add(whole) + i64::from(nanoseconds / 1_000_000_000),
            nanoseconds: nanoseconds % 1_000_000_000,
        }
    }
}

/// Nanoseconds of a clock that never goes back: of the simulation the calling thread belongs to, or
/// of the machine. It is a plain function, so it serves as `tarn_probe::Clock`.
pub fn monotonic_ns() -> u64 {
    match baton::current() {
        None => real_monotonic_ns(),
        Some(me) => me.scheduler().now_ns(),
    }
}

/// The clock of operations: as [`monotonic_ns`], at a fifth of the price where the processor has a
/// counter that the kernel trusts. It is some 50 microseconds behind that, never ahead of it, and
/// goes back in no thread.
#[inline]
pub fn operation_clock_ns() -> u64 {
    match baton::current() {
        None => quick_clock::now_ns(),
        Some(me) => me.scheduler().now_ns(),
    }
}

/// As [`monotonic_ns`], by a clock that goes on while the machine sleeps: for what other hosts rely
/// on.
pub fn lease_clock_ns() -> u64 {
    match baton::current() {
        None => nanoseconds_of(ClockId::Boottime),
        Some(me) => me.scheduler().now_ns(),
    }
}

pub(crate) fn real_monotonic_ns() -> u64 {
    nanoseconds_of(ClockId::Monotonic)
}

fn nanoseconds_of(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let part = |value: i64| u64::try_from(value).expect("such a clock is not negative");
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
