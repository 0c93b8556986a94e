//! Gaps between the requests of applications: scrubs read in them.
//!
//! # Problem
//! A disk with one arm reads 4 KiB in 8 ms, and a megabyte of a scrub in 15 ms. One request of a
//! scrub in front of each read of an application makes reads take three times as long. A limit on
//! the number of requests does not help: one is enough, and the least there is.
//!
//! # Mechanism
//! Each direct device notes the requests for which an application or txg waits (*asked* ones): how
//! many are at it, when the last one ended, and how long the device takes for a read. A request of
//! a scrub is let in ([`Gaps::admits`])
//!
//! - while the device *rests*: nothing was asked for [`REST_NS`]. There are as many as the depth
//!   admits;
//! - in a *gap*: nothing is asked, nor was for as long as a read takes. There is one at a time.
//!   Where the arm is elsewhere, a read of [`MOVING_BYTES`] directly before the place takes it
//!   there, and its bytes are thrown away: a read that comes meanwhile waits as long as it takes
//!   itself, however large the blocks of the scrub are. Those that lie where the arm is have up to
//!   [`NEXT_BYTES_MAX`];
//! - after [`ASKED_PER_TURN`] asked requests, one: a scrub comes to its end on a device that never
//!   rests, and fewer than one read in a hundred waits for it.
//!
//! Some wait for a scrub that has blocks: the txg that would release their space, and the end of
//! the scan. They *hurry* it ([`Gaps::hurry`]): meanwhile the limits of its class alone hold.
//!
//! Resilvers and rebuilds do not look for gaps: until they have ended, redundancy is lacking.

use crate::ranks;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tarn_host::lock::{Condvar, Mutex};

/// A device rests when nothing was asked for so long, in nanoseconds. A guess: readers that pause
/// for shorter are still at work.
#[doc(alias = "zfs_vdev_nia_delay")]
const REST_NS: u64 = 500_000_000;

/// So many asked requests let one of a scrub in. More than a hundred: the 99th percentile of their
/// latencies does not see it.
#[doc(alias = "zfs_vdev_nia_credit")]
const ASKED_PER_TURN: u64 = 128;

/// What is read in a gap to move the arm, in bytes, or one sector: no more than an application's
/// smallest read.
pub(crate) const MOVING_BYTES: u64 = 4 << 10;

/// Others have no more. A disk that turns reads that in less time than its arm moves.
const NEXT_BYTES_MAX: u64 = 1 << 20;

/// How long a read takes: before anything is known, and at most, in nanoseconds. A device that is
/// slower has errors or other users.
const READ_NS_FIRST: u64 = 8_000_000;
const READ_NS_MAX: u64 = 20_000_000;

/// A thread that waits for a gap looks no more often, in nanoseconds.
pub(crate) const LOOK_NS_MIN: u64 = 500_000;

/// What a device admits of a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// As many requests as the limits of its class.
    All,
    /// One of about so many bytes, if none is at the device.
    One(u64),
    /// A small read that takes the arm to the next request, if none is at the device.
    Move,
    /// None before so many nanoseconds have passed.
    NoneFor(u64),
}

/// What was asked of one device lately.
#[derive(Debug)]
pub(crate) struct Gaps {
    /// Calls of applications and txgs that have requests at the device, or wait for room.
    asking: AtomicU32,
    last_asked_ns: AtomicU64,
    /// How many asked requests ended since one of a scrub was let in.
    asked_since: AtomicU64,
    /// Where the last request of a scrub ended, if nothing was asked since; else `u64::MAX`.
    arm_at: AtomicU64,
    /// How long the device takes for a read, as a moving average.
    read_ns: AtomicU64,
    /// How many wait for the scrub.
    hurrying: AtomicU32,
    turn: Mutex<()>,
    hurried: Condvar,
}

impl Gaps {
    pub(crate) fn new() -> Gaps {
        Gaps {
            asking: AtomicU32::new(0),
            last_asked_ns: AtomicU64::new(0),
            asked_since: AtomicU64::new(0),
            arm_at: AtomicU64::new(u64::MAX),
            read_ns: AtomicU64::new(READ_NS_FIRST),
            hurrying: AtomicU32::new(0),
            turn: Mutex::new(ranks::ROOM, ()),
            hurried: Condvar::new(),
        }
    }

    /// A call asks something of the device for an application or a txg.
    pub(crate) fn begin_asking(&self) {
        self.asking.fetch_add(1, Ordering::Relaxed);
        self.arm_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// The device took so long for a read that was asked.
    pub(crate) fn note_read(&self, device_ns: u64) {
        let before = self.read_ns.load(Ordering::Relaxed);
        let after = (before * 7 + device_ns.min(READ_NS_MAX)) / 8;
        self.read_ns.store(after, Ordering::Relaxed);
    }

    /// A call that had asked so many requests has all outcomes.
    pub(crate) fn end_asking(&self, requests: u64) {
        self.asked_since.fetch_add(requests, Ordering::Relaxed);
        let now_ns = tarn_host::monotonic_ns();
        self.last_asked_ns.store(now_ns, Ordering::Relaxed);
        let before = self.asking.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a call that ends had begun");
    }

    /// What the device admits of a scrub now, whose next request begins at this offset.
    pub(crate) fn admits(&self, offset: u64, now_ns: u64) -> Admitted {
        if self.hurrying.load(Ordering::Relaxed) > 0 {
            return Admitted::All;
        }
        let read_ns = self.read_ns.load(Ordering::Relaxed);
        if self.asked_since.load(Ordering::Relaxed) >= ASKED_PER_TURN {
            return Admitted::One(NEXT_BYTES_MAX);
        }
        if self.asking.load(Ordering::Relaxed) > 0 {
            return Admitted::NoneFor(read_ns.max(LOOK_NS_MIN));
        }
        let last_ns = self.last_asked_ns.load(Ordering::Relaxed);
        let since_ns = now_ns.saturating_sub(last_ns);
        if last_ns == 0 || since_ns >= REST_NS {
            return Admitted::All;
        }
        match since_ns.checked_sub(read_ns) {
            Some(_) if self.arm_at.load(Ordering::Relaxed) == offset => {
                Admitted::One(NEXT_BYTES_MAX)
            }
            Some(_) => Admitted::Move,
            None => Admitted::NoneFor((read_ns - since_ns).max(LOOK_NS_MIN)),
        }
    }

    /// Requests of a scrub were let in, the last of which ends at this offset.
    pub(crate) fn note_admitted(&self, end: u64) {
        self.asked_since.store(0, Ordering::Relaxed);
        self.arm_at.store(end, Ordering::Relaxed);
    }

    /// Waits so many nanoseconds, or until the scrub is hurried.
    pub(crate) fn wait(&self, wait_ns: u64) {
        let mut turn = self.turn.lock();
        if self.hurrying.load(Ordering::Relaxed) == 0 {
            let timeout = Duration::from_nanos(wait_ns);
            let _ = self.hurried.wait_timeout(&mut turn, timeout);
        }
    }

    /// Something waits for the scrub from now on, until it [does no more](Gaps::end_hurry).
    pub(crate) fn hurry(&self) {
        let turn = self.turn.lock();
        self.hurrying.fetch_add(1, Ordering::Relaxed);
        drop(turn);
        self.hurried.notify_all();
    }

    /// It waits no more.
    pub(crate) fn end_hurry(&self) {
        let before = self.hurrying.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a hurry that ends had begun");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_NS: u64 = 8_000_000;

    #[test]
    fn a_scrub_waits_for_a_gap_and_moves_the_arm_by_a_small_read() {
        let gaps = Gaps::new();
        assert_eq!(gaps.admits(4096, 0), Admitted::All);
        gaps.begin_asking();
        assert!(matches!(gaps.admits(4096, REST_NS), Admitted::NoneFor(_)));
        gaps.end_asking(1);
        let ended_ns = gaps.last_asked_ns.load(Ordering::Relaxed);
        let at = |after_ns: u64| gaps.admits(4096, ended_ns + after_ns);
        assert_eq!(at(READ_NS / 2), Admitted::NoneFor(READ_NS / 2));
        assert_eq!(at(READ_NS), Admitted::Move);
        gaps.note_admitted(4096);
        assert_eq!(at(READ_NS + 1), Admitted::One(NEXT_BYTES_MAX));
        gaps.note_admitted(8192);
        assert_eq!(at(READ_NS + 2), Admitted::Move);
        assert_eq!(at(REST_NS), Admitted::All);
        // A device that is faster has shorter gaps.
        (0..100).for_each(|_| gaps.note_read(1_000));
        assert_eq!(at(LOOK_NS_MIN), Admitted::Move);
    }

    #[test]
    fn a_scrub_gets_its_turn_on_a_device_that_never_rests() {
        let gaps = Gaps::new();
        let is_shut = || matches!(gaps.admits(0, 1), Admitted::NoneFor(_));
        gaps.begin_asking();
        for _ in 0..ASKED_PER_TURN {
            assert!(is_shut());
            gaps.begin_asking();
            gaps.end_asking(1);
        }
        assert_eq!(gaps.admits(0, 1), Admitted::One(NEXT_BYTES_MAX));
        gaps.note_admitted(4096);
        assert!(is_shut());
        gaps.hurry();
        assert_eq!(gaps.admits(0, 1), Admitted::All);
        gaps.end_hurry();
        assert!(is_shut());
    }
}
