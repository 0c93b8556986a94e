//! The fault manager: devices that err too often are degraded or taken out of use.
//!
//! # Problem
//! A disk that gives wrong bytes, or fails reads, makes each read of a mirror or RAID-Z slow until
//! an administrator looks. OpenZFS leaves that to another daemon, `zed`.
//!
//! # Mechanism
//! A thread follows the [events](tarn_pool::events) of all pools. Ten `checksum` errors of a device
//! within ten minutes degrade it: it stays in use, and `zpool status` names it. Ten `io` errors
//! take it out of use (*faulted*), if the other devices of its vdev have all its blocks; otherwise
//! it is degraded as well. Slow requests count only where the properties `slow_io_n` and
//! `slow_io_t` are set. The properties `checksum_n`, `checksum_t`, `io_n` and `io_t` of a vdev, or
//! of its top-level vdev, change the numbers.
//!
//! Then [hot spares](crate::hot_spares) take their places.
//!
//! A device that does not answer at all is no matter of counting: the pool
//! [probes](tarn_vdev::Probe) it and takes it out of use at once.
//!
//! Repetitions of one error do not become events, so ten errors are at ten places. `zpool clear`,
//! and a device that is online again, begin the count anew.
//!
//! # Invariants
//! - A device that others need is not taken out of use: the decision is made under the lock of the
//!   tree.
//! - The thread holds no lock while it waits.

use crate::engine::{Engine, OpenPool};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_ondisk::units::Guid;
use tarn_pool::events::Event;

/// Errors within a time that make a fault, by default.
#[doc(alias = "DEFAULT_CHECKSUM_N")]
const ERRORS: u64 = 10;
/// That time, in seconds.
#[doc(alias = "DEFAULT_CHECKSUM_T")]
const SECONDS: u64 = 600;

/// Most events that are taken at once.
const EVENTS_MAX: usize = 64;

/// How long the thread waits for the next event before it looks whether the engine is there.
const PATIENCE: Duration = Duration::from_secs(60);

/// What errors are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Wrong bytes.
    Checksum,
    /// Failed reads and writes.
    Io,
    /// Requests that took long.
    Slow,
}

impl Fault {
    /// By the class of an event.
    fn of_class(class: &str) -> Option<Fault> {
        match class.strip_prefix("ereport.fs.zfs.")? {
            "checksum" => Some(Fault::Checksum),
            "io" => Some(Fault::Io),
            "delay" => Some(Fault::Slow),
            _ => None,
        }
    }

    /// The names of the thresholds in the event, where they are not the defaults.
    const fn payload(self) -> (&'static str, &'static str) {
        match self {
            Fault::Checksum => ("vdev_cksum_n", "vdev_cksum_t"),
            Fault::Io => ("vdev_io_n", "vdev_io_t"),
            Fault::Slow => ("vdev_slow_io_n", "vdev_slow_io_t"),
        }
    }
}

/// A threshold: so many errors in so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Threshold {
    errors: u64,
    seconds: u64,
}

impl Threshold {
    /// The threshold for an error; none where it does not count.
    fn of(fault: Fault, list: &NvList) -> Option<Threshold> {
        let (errors, seconds) = fault.payload();
        let number = |name: &str| list.optional_u64(name).ok().flatten();
        let (errors, seconds) = (number(errors), number(seconds));
        if fault == Fault::Slow && (errors.is_none() || seconds.is_none()) {
            return None;
        }
        let threshold = Threshold {
            errors: errors.unwrap_or(ERRORS),
            seconds: seconds.unwrap_or(SECONDS),
        };
        (threshold.errors > 0).then_some(threshold)
    }
}

/// The last errors of each device, in nanoseconds of the time of day.
#[derive(Debug, Default)]
struct Counts(BTreeMap<(Guid, Guid, Fault), VecDeque<i128>>);

impl Counts {
    /// Counts an error. True when there are too many; then the count begins anew.
    #[doc(alias = "fmd_serd_record")]
    fn count(&mut self, key: (Guid, Guid, Fault), time_ns: i128, threshold: Threshold) -> bool {
        let times = self.0.entry(key).or_default();
        times.push_back(time_ns);
        let window_ns = i128::from(threshold.seconds) * 1_000_000_000;
        while times
            .front()
            .is_some_and(|first| time_ns - first > window_ns)
        {
            times.pop_front();
        }
        let count = u64::try_from(times.len()).unwrap_or(u64::MAX);
        let is_too_many = count >= threshold.errors;
        if is_too_many {
            self.0.remove(&key);
        }
        is_too_many
    }

    /// Begins anew for a device, or for all of a pool.
    fn forget(&mut self, pool: Guid, vdev: Option<Guid>) {
        let is_meant =
            |key: &(Guid, Guid, Fault)| key.0 == pool && vdev.is_none_or(|vdev| key.1 == vdev);
        self.0.retain(|key, _| !is_meant(key));
    }
}

impl Engine {
    /// Starts the thread, which ends when the engine stops.
    pub fn start_fault_manager(self: &Arc<Self>) {
        let (engine, events) = (Arc::downgrade(self), self.events.clone());
        let run = move || {
            let mut counts = Counts::default();
            let mut seen = events.newest();
            while !events.is_closed() {
                let after = events.wait_after(seen, EVENTS_MAX, PATIENCE);
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                for event in &after.events {
                    seen = event.id;
                    engine.judge(&mut counts, event);
                }
            }
        };
        drop(self.host.spawn("tarn-faults", run));
    }

    /// Acts on one event.
    #[doc(alias("zfs_fm_recv", "zfs_retire_recv"))]
    fn judge(&self, counts: &mut Counts, event: &Event) {
        let list = &event.list;
        let number = |name: &str| list.optional_u64(name).ok().flatten();
        let (Ok(class), Some(pool)) = (list.string("class"), number("pool_guid")) else {
            return;
        };
        let pool = Guid::from(pool);
        let vdev = number("vdev_guid").map(Guid::from);
        let Some(fault) = Fault::of_class(class) else {
            let is_online = list.u64("vdev_state") == Ok(ONLINE);
            match class {
                "sysevent.fs.zfs.vdev_clear" => counts.forget(pool, vdev),
                "sysevent.fs.zfs.pool_export" | "sysevent.fs.zfs.pool_destroy" => {
                    counts.forget(pool, None);
                }
                "resource.fs.zfs.statechange" if is_online => counts.forget(pool, vdev),
                _ => {}
            }
            return;
        };
        let Some((vdev, threshold)) = vdev.zip(Threshold::of(fault, list)) else {
            return;
        };
        if !counts.count((pool, vdev, fault), time_of(list), threshold) {
            return;
        }
        let pools = self.pools();
        if let Some(open) = pools.iter().find(|open| open.pool.facts().guid == pool) {
            retire(open, vdev, fault);
        }
    }
}

/// The number of the state of a device that works.
const ONLINE: u64 = 7;

/// When an event happened, in nanoseconds since 1970.
fn time_of(list: &NvList) -> i128 {
    match list.get("time") {
        Some(NvValue::Int64Array(time)) if time.len() == 2 => {
            i128::from(time[0]) * 1_000_000_000 + i128::from(time[1])
        }
        _ => 0,
    }
}

/// Takes a device out of use, or degrades it.
#[doc(alias("zpool_vdev_fault", "zpool_vdev_degrade"))]
fn retire(open: &OpenPool, vdev: Guid, fault: Fault) {
    let vdevs = open.pool.vdevs();
    let is_changed = match fault {
        Fault::Io => vdevs.fault(vdev) || vdevs.degrade(vdev),
        Fault::Checksum | Fault::Slow => vdevs.degrade(vdev),
    };
    if is_changed {
        // The labels and the MOS get the new state with the next txg.
        open.pool.txgs().kick();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (Guid, Guid, Fault) = (Guid::new(1), Guid::new(2), Fault::Checksum);
    const SECOND_NS: i128 = 1_000_000_000;

    fn threshold(errors: u64, seconds: u64) -> Threshold {
        Threshold { errors, seconds }
    }

    #[test]
    fn so_many_errors_within_the_time_are_too_many() {
        let mut counts = Counts::default();
        let ten = threshold(10, 600);
        let mut count = |second: i128| counts.count(KEY, second * SECOND_NS, ten);
        assert!((0..9).all(|second| !count(second)));
        assert!(count(599));
        assert!(!count(600));
        // One error a minute and a half is not enough for ever.
        let mut counts = Counts::default();
        assert!((0..100).all(|at| !counts.count(KEY, at * 90 * SECOND_NS, ten)));
    }

    #[test]
    fn the_count_begins_anew_when_errors_are_cleared() {
        let mut counts = Counts::default();
        let two = threshold(2, 600);
        assert!(!counts.count(KEY, 0, two));
        counts.forget(KEY.0, Some(Guid::new(3)));
        assert!(counts.count(KEY, 1, two));
        assert!(!counts.count(KEY, 2, two));
        counts.forget(KEY.0, Some(KEY.1));
        assert!(!counts.count(KEY, 3, two));
    }

    #[test]
    fn thresholds_come_with_the_error_where_they_are_set() {
        let plain = NvList::new();
        assert_eq!(
            Threshold::of(Fault::Io, &plain),
            Some(threshold(ERRORS, SECONDS))
        );
        assert_eq!(Threshold::of(Fault::Slow, &plain), None);
        let set = NvList::new()
            .with("vdev_slow_io_n", 3u64)
            .with("vdev_slow_io_t", 5u64)
            .with("vdev_io_n", 0u64)
            .with("time", NvValue::Int64Array(vec![2, 7]));
        assert_eq!(Threshold::of(Fault::Slow, &set), Some(threshold(3, 5)));
        assert_eq!(Threshold::of(Fault::Io, &set), None);
        assert_eq!(time_of(&set), 2_000_000_007);
    }
}
