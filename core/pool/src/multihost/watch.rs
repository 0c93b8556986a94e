//! Watching a pool: detects whether another host uses it at this moment.
//!
//! # Mechanism
//! The newest uberblock of a pool that another host uses changes at each of its heartbeats. A watch
//! ends when it changes, or after the time in which the host must have written one, by the interval
//! in the uberblock.
//!
//! A pool whose newest uberblock says that heartbeats are off is not watched. Neither is one that
//! this host has exported.

use super::settings::shows_itself;
use std::time::Duration;
use tarn_host::{Host, lease_clock_ns};
use tarn_ondisk::uberblock::Uberblock;

/// OpenZFS's defaults, for uberblocks without their host's interval.
#[doc(alias = "zfs_multihost_interval")]
const INTERVAL_MS: u64 = 1000;

/// Number of silent intervals that show that no host uses the pool, if hosts do not suspend by
/// themselves.
#[doc(alias = "zfs_multihost_import_intervals")]
const SILENT_INTERVALS: u64 = 20;

/// A host that suspends after some time without a write is watched for this many times as long.
#[doc(alias = "MMP_IMPORT_SAFETY_FACTOR")]
const SAFETY_FACTOR: u64 = 2;

/// The shortest watch.
const WATCH_NS_MIN: u64 = 1_000_000_000;

/// A pool that would have to be watched for longer counts as in use: no host writes so rarely, and
/// no administrator waits so long. A guess.
const WATCH_NS_MAX: u64 = 3600 * 1_000_000_000;

/// The longest interval between checks.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The result of watching a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one, and for a moment")]
pub(crate) enum Watched {
    /// Another host writes it.
    Written,
    /// No other host does. This is the newest uberblock: a newer one is another host's.
    Silent(Option<Uberblock>),
    /// The watch was stopped before that was known.
    GivenUp,
}

/// Whether the newest uberblock changes, while `goes_on` is true.
#[doc(alias = "spa_activity_check")]
pub(crate) fn watch(
    host: &Host,
    newest: impl Fn() -> Option<Uberblock>,
    goes_on: &dyn Fn() -> bool,
) -> Watched {
    let Some(first) = newest() else {
        return Watched::Silent(None);
    };
    if !shows_itself(&first) {
        return Watched::Silent(Some(first));
    }
    let watch_ns = watch_ns(&first);
    assert!(
        watch_ns >= WATCH_NS_MIN,
        "an uberblock that asks to be watched is watched"
    );
    if watch_ns > WATCH_NS_MAX {
        return Watched::Written;
    }
    // Up to a quarter more, so that two watching hosts do not end at the same moment.
    let mut chance = [0];
    host.fill_random(&mut chance);
    let watch_ns = watch_ns + watch_ns / 1024 * u64::from(chance[0]);
    let look_interval = LOOK_INTERVAL_MAX.min(Duration::from_nanos(watch_ns / 4));
    let began_ns = lease_clock_ns();
    loop {
        let looked_ns = lease_clock_ns();
        if newest().is_none_or(|now| now != first) {
            return Watched::Written;
        }
        if looked_ns - began_ns >= watch_ns {
            return Watched::Silent(Some(first));
        }
        if !goes_on() {
            return Watched::GivenUp;
        }
        host.sleep(look_interval);
    }
}

/// How long the host of this uberblock can be silent and still use the pool.
#[doc(alias = "spa_activity_check_duration")]
fn watch_ns(uberblock: &Uberblock) -> u64 {
    let ns = |ms: u64| ms.saturating_mul(1_000_000);
    let said = uberblock.multihost().unwrap_or_default();
    let own = (SILENT_INTERVALS * ns(INTERVAL_MS)).max(WATCH_NS_MIN);
    match (said.interval_ms, said.fail_intervals) {
        (Some(interval), Some(fails)) if fails > 0 => {
            let silent = ns(interval).saturating_mul(fails);
            silent.saturating_mul(SAFETY_FACTOR).max(WATCH_NS_MIN)
        }
        (interval, _) => {
            let each = ns(interval.unwrap_or(INTERVAL_MS));
            let each = each.saturating_add(uberblock.multihost_delay_ns);
            own.max(each.saturating_mul(SILENT_INTERVALS))
        }
    }
}
