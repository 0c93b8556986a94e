//! Multihost: detects whether another host uses a pool at this moment.
//!
//! # Mechanism
//! A host that has a pool with the property `multihost` shows itself alive by rewriting the
//! uberblock, of the same txg with another time or sequence number. An import watches the pool for
//! as long as that host can be silent, by the interval in the uberblock. No option of
//! `zpool import` skips that.
//!
//! Tarn writes no such uberblocks. So a pool with the property is not opened for writing, since
//! other hosts could not see that it is in use, unless the property is switched off with that: then
//! the pool is watched before.
//!
//! # Invariants
//! - Tarn's uberblocks say that the pool need not be watched.

use crate::directory::Directory;
use crate::error::PoolError;
use crate::properties;
use std::time::Duration;
use tarn_host::{Host, OpenMode};
use tarn_ondisk::uberblock::Uberblock;
use tarn_vdev::import_search::CandidatePool;
use tarn_vdev::{ExpectedLabels, Need, OpenError, OpenOptions, PoolState, VdevTree};

/// The name of the property.
pub const PROPERTY: &str = "multihost";

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

/// Interval between checks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Whether other hosts expect the pool to show that it is in use: by its property, or by its last
/// uberblock.
pub(crate) fn is_on(directory: Directory<'_>, uberblock: &Uberblock) -> Result<bool, PoolError> {
    let properties = properties::read(directory)?;
    let mut set = properties.iter().filter(|(name, _)| name == PROPERTY);
    let is_set = set.any(|(_, value)| value.as_word().is_some_and(|on| on != 0));
    Ok(is_set || shows_itself(uberblock))
}

/// The result of watching a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one, and for a moment")]
pub enum Watched {
    /// Another host writes it.
    Written,
    /// No other host does. This is the newest uberblock: a newer one is another host's.
    Silent(Option<Uberblock>),
    /// The watch was stopped before that was known.
    GivenUp,
}

/// Watches a pool that is to be opened for writing, as long as `goes_on` returns true.
///
/// # Errors
/// Its devices cannot be opened.
#[doc(alias("spa_activity_check_required", "spa_activity_check_tryimport"))]
pub fn watch_for_others(
    host: &Host,
    candidate: &CandidatePool,
    own_host_id: u64,
    goes_on: &dyn Fn() -> bool,
) -> Result<Watched, OpenError> {
    let facts = &candidate.facts;
    let is_ours = own_host_id != 0 && facts.host_id == own_host_id;
    let is_left = facts.state == PoolState::Exported && is_ours;
    let is_unused = is_left || facts.state == PoolState::Destroyed;
    let options = OpenOptions {
        mode: OpenMode::ReadOnly,
        need: Need::Nothing,
        labels: ExpectedLabels::OfPool(facts.guid),
    };
    let tree = VdevTree::open(host, &candidate.root, &options)?;
    let watched = match is_unused {
        true => Watched::Silent(tree.newest_uberblock()),
        false => watch(host, || tree.newest_uberblock(), goes_on),
    };
    tree.close();
    Ok(watched)
}

/// Whether the newest uberblock changes.
fn watch(
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
    let began_ns = host.monotonic_ns();
    loop {
        if newest().is_none_or(|now| now.compare(&first).is_ne()) {
            return Watched::Written;
        }
        if host.monotonic_ns() - began_ns >= watch_ns {
            return Watched::Silent(Some(first));
        }
        if !goes_on() {
            return Watched::GivenUp;
        }
        host.sleep(LOOK_INTERVAL);
    }
}

/// Whether a host with `multihost` wrote this.
fn shows_itself(uberblock: &Uberblock) -> bool {
    uberblock.multihost().is_some() && uberblock.multihost_delay_ns != 0
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
