//! The clock of operations: the processor's counter of ticks, where the kernel trusts it.
//!
//! # Problem
//! An operation looks at the clock when it begins and when it ends. Asking the system takes some 20
//! ns each time, half of what its record may cost.
//!
//! # Mechanism
//! Each thread has an anchor: a count of ticks, and the time of the system's monotonic clock then.
//! The time is that, and what has been counted since, by the rate of the counter. After
//! [`ANCHOR_NS`] a thread asks the system and takes a new anchor. The rate is measured between
//! anchors that are far apart.
//!
//! The counter is used where it is the kernel's own clock source: then the kernel has found it to
//! be of one rate, and the same on all processors. Elsewhere the system is asked.
//!
//! # Invariants
//! - The time is never ahead of the system's monotonic clock: an anchor lies [`BEHIND_NS`] behind
//!   it, more than a counter can gain until the next one. So what began after a moment of this
//!   clock began after it by the system's as well. It is at most a little more than that behind.
//! - In a thread it never goes back.

#![allow(unsafe_code)]

use crate::clock::real_monotonic_ns;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long an anchor is used.
const ANCHOR_NS: u64 = 10_000_000;
/// How far an anchor lies behind the system's clock: half a percent of its time. The kernel slews
/// its clock by a tenth of that at most.
const BEHIND_NS: u64 = 50_000;
/// Between the two anchors from which the rate is measured, at least: their errors of some 100 ns
/// are a hundred thousandth of it.
const MEASURE_NS: u64 = 10_000_000;
/// After so long the rate is measured anew: the kernel changes that of its clock.
const MEASURE_AGAIN_NS: u64 = 1_000_000_000;
/// Ticks between two looks at the counter, with one at the clock between them, if the thread was
/// not stopped meanwhile: some microseconds.
const TICKS_OF_A_LOOK: u64 = 20_000;
/// How often the system's clock is looked at until the thread was not stopped meanwhile.
const LOOKS: u32 = 4;

/// A count of ticks and its time.
#[derive(Clone, Copy)]
struct Anchor {
    ticks: u64,
    time_ns: u64,
    /// Nanoseconds of 2^32 ticks.
    rate: u64,
    /// How many ticks it is used; none where it tells only what was told last.
    ticks_max: u64,
}

const NONE: Anchor = Anchor {
    ticks: 0,
    time_ns: 0,
    rate: 0,
    ticks_max: 0,
};

thread_local! {
    static ANCHOR: Cell<Anchor> = const { Cell::new(NONE) };
}

/// Nanoseconds of the clock of operations.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let now = ANCHOR.try_with(|anchor| {
        let known = anchor.get();
        let ticks = ticks().wrapping_sub(known.ticks);
        match ticks < known.ticks_max {
            true => known.after(ticks),
            false => take_anchor(anchor),
        }
    });
    // While a thread ends it has no anchor.
    now.unwrap_or_else(|_| real_monotonic_ns())
}

impl Anchor {
    #[inline]
    fn after(&self, ticks: u64) -> u64 {
        self.time_ns + ((ticks * self.rate) >> 32)
    }
}

/// Takes a new anchor, where the counter can be used. Gives the time.
#[cold]
fn take_anchor(anchor: &Cell<Anchor>) -> u64 {
    if !is_trusted() {
        return real_monotonic_ns();
    }
    let (ticks, real_ns, is_exact) = look();
    let rate = match is_exact {
        true => rate_at(ticks, real_ns),
        false => 0,
    };
    let before = anchor.get();
    let since = ticks.wrapping_sub(before.ticks);
    // It does not go back behind what the old anchor would have told at its end.
    let told_ns = before.after(since.min(before.ticks_max));
    let time_ns = real_ns.saturating_sub(BEHIND_NS).max(told_ns);
    // Without a rate the counter cannot be used yet; where it is ahead of the clock, it ran away
    // from that, as where a virtual machine has moved.
    if rate == 0 || time_ns > real_ns {
        anchor.set(Anchor { time_ns, ..NONE });
        return time_ns;
    }
    assert!(
        time_ns <= real_ns,
        "it is never ahead of the system's clock"
    );
    anchor.set(Anchor {
        ticks,
        time_ns,
        rate,
        ticks_max: (ANCHOR_NS << 32) / rate,
    });
    time_ns
}

/// A count of ticks and the system's clock, which is not behind it; and whether it is not much
/// before it either, as the thread was not stopped between.
fn look() -> (u64, u64, bool) {
    let mut seen = (0, 0, false);
    for _ in 0..LOOKS {
        let before = ticks();
        let real_ns = real_monotonic_ns();
        let after = ticks();
        seen = (after, real_ns, after.wrapping_sub(before) < TICKS_OF_A_LOOK);
        if seen.2 {
            break;
        }
    }
    seen
}

/// Nanoseconds of 2^32 ticks; 0 as long as that is not known.
fn rate_at(ticks: u64, real_ns: u64) -> u64 {
    /// From where the rate is measured, and what it is. Threads that store it at the same time
    /// measure it from one anchor or another, and each of these is right.
    static RATE: AtomicU64 = AtomicU64::new(0);
    static SINCE_NS: AtomicU64 = AtomicU64::new(0);
    static FIRST: std::sync::Mutex<Option<(u64, u64)>> = std::sync::Mutex::new(None);
    let known = RATE.load(Ordering::Relaxed);
    let age_ns = real_ns.saturating_sub(SINCE_NS.load(Ordering::Relaxed));
    if known != 0 && age_ns < MEASURE_AGAIN_NS {
        return known;
    }
    let Ok(mut first) = FIRST.try_lock() else {
        return known;
    };
    let (first_ticks, first_ns) = *first.get_or_insert((ticks, real_ns));
    let (ticked, passed_ns) = (
        ticks.saturating_sub(first_ticks),
        real_ns.saturating_sub(first_ns),
    );
    if passed_ns < MEASURE_NS || ticked < passed_ns / 100 {
        return known;
    }
    let rate = (u128::from(passed_ns) << 32) / u128::from(ticked);
    let Ok(rate) = u64::try_from(rate) else {
        return known;
    };
    assert!(
        rate > 0,
        "time has passed, and a counter ticked less than 2^32 times in it"
    );
    RATE.store(rate, Ordering::Relaxed);
    SINCE_NS.store(real_ns, Ordering::Relaxed);
    *first = Some((ticks, real_ns));
    rate
}

/// Whether the counter is the kernel's clock source.
fn is_trusted() -> bool {
    static IS_TRUSTED: OnceLock<bool> = OnceLock::new();
    *IS_TRUSTED.get_or_init(|| {
        const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let source = std::fs::read_to_string(SOURCE);
        cfg!(target_arch = "x86_64") && source.is_ok_and(|source| source.trim() == "tsc")
    })
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: each processor of the architecture has the counter, and reading it changes nothing.
    // Gained: a fifth of what asking the system takes.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenth of a second: several anchors, and a rate.
    #[test]
    fn it_never_goes_back_and_is_never_ahead_of_the_systems_clock() {
        let until_ns = real_monotonic_ns() + 100_000_000;
        let (mut last_ns, mut looks) = (0, 0_u64);
        loop {
            let before_ns = real_monotonic_ns();
            let now_ns = now_ns();
            let after_ns = real_monotonic_ns();
            assert!(now_ns >= last_ns, "{now_ns} after {last_ns}");
            assert!(now_ns <= after_ns, "{now_ns} ahead of {after_ns}");
            assert!(
                now_ns + 2 * BEHIND_NS >= before_ns,
                "{now_ns} at {before_ns}"
            );
            (last_ns, looks) = (now_ns, looks + 1);
            if before_ns > until_ns {
                break;
            }
        }
        assert!(looks > 100);
        let anchored = ANCHOR.with(Cell::get).ticks_max > 0;
        assert_eq!(anchored, is_trusted());
    }

    #[test]
    fn threads_agree_within_what_an_anchor_may_be_behind() {
        let wait_ns = real_monotonic_ns() + 30_000_000;
        while real_monotonic_ns() < wait_ns {
            now_ns();
        }
        let mine_ns = now_ns();
        let theirs_ns = std::thread::spawn(now_ns).join().unwrap();
        assert!(
            theirs_ns + 2 * BEHIND_NS >= mine_ns,
            "{theirs_ns} after {mine_ns}"
        );
    }
}
