//! Reports: what devices did wrong, changes of their states, and blocks that could not be read, for
//! the layer above.
//!
//! # Mechanism
//! A tree has one bounded queue of reports. A leaf posts to it where an error is counted or its
//! state changes; a thread of the pool takes the reports and makes events of them. Requests that
//! succeed do not touch the queue.
//!
//! # Invariants
//! - A thread that posts never waits: beyond [`WAITING_MAX`] reports are dropped, and counted.
//! - Opening and closing a pool are no changes of state: leaves join the queue when they are open,
//!   and it is closed before they are.

use crate::health::{Standing, VdevState};
use crate::ranks;
use std::collections::VecDeque;
use std::sync::Arc;
use tarn_host::lock::{Condvar, Mutex};
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::units::Guid;
use tarn_probe::{IoKind, IoPriority};

/// So many reports wait at most. As many as OpenZFS keeps events.
#[doc(alias = "zfs_zevent_len_max")]
pub const WAITING_MAX: usize = 512;

/// The system's number of an input/output error (`EIO`), for failures that have none.
pub const IO_ERROR: i32 = 5;

/// `ECKSUM`: the error number of wrong bytes (`EBADE` on Linux).
pub const CHECKSUM_ERROR: i32 = 52;

/// One report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The device. Zero for a block that could not be read from any.
    pub vdev: Guid,
    /// What happened.
    pub what: ReportKind,
}

/// What a report is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportKind {
    /// A read or write failed.
    Io {
        /// The request.
        request: ReportedIo,
        /// The system's error number.
        errno: i32,
    },
    /// A read gave other bytes than were written.
    Checksum {
        /// The request.
        request: ReportedIo,
    },
    /// A read or write took long.
    Slow {
        /// The request.
        request: ReportedIo,
        /// How long the device took, in nanoseconds.
        device_ns: u64,
    },
    /// A read or write has waited long for the device, which has not answered yet.
    Hung {
        /// The request.
        request: ReportedIo,
        /// How long it has waited, in nanoseconds.
        waited_ns: u64,
    },
    /// After an error, the device could not be read where its labels are, or not be written there.
    ProbeFailure {
        /// The state of the device then.
        before: VdevState,
    },
    /// A block could not be read from any device.
    Unreadable(UnreadableBlock),
    /// The state of the device has changed.
    State {
        /// Before.
        before: VdevState,
        /// Now, and why.
        now: Standing,
    },
    /// Its errors were cleared: the same ones are new. Of all devices where the guid is zero.
    Cleared,
}

/// A request to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedIo {
    /// Whether it is a read or a write.
    pub kind: IoKind,
    /// Its class.
    pub priority: IoPriority,
    /// Where, in bytes from the start of the device's window.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// When the operation began, in nanoseconds: errors of one operation have one cause.
    pub begun_ns: u64,
}

/// A block that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadableBlock {
    /// Its object set, object, level and number.
    pub mark: TraversalMark,
    /// [`CHECKSUM_ERROR`] or [`IO_ERROR`].
    pub errno: i32,
    /// The class of the read.
    pub priority: IoPriority,
    /// When the operation began, in nanoseconds.
    pub begun_ns: u64,
}

/// Reports that were taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// In their order.
    pub reports: Vec<Report>,
    /// How many were dropped before these because too many waited.
    pub dropped: u64,
}

/// The queue of reports of a tree.
#[derive(Debug)]
pub struct Reports {
    waiting: Mutex<Waiting>,
    posted: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    reports: VecDeque<Report>,
    dropped: u64,
    is_closed: bool,
}

impl Reports {
    pub(crate) fn new() -> Arc<Reports> {
        Arc::new(Reports {
            waiting: Mutex::new(ranks::REPORTS, Waiting::default()),
            posted: Condvar::new(),
        })
    }

    /// Adds a report, or drops it where too many wait.
    pub(crate) fn post(&self, report: Report) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return;
        }
        match waiting.reports.len() < WAITING_MAX {
            true => waiting.reports.push_back(report),
            false => waiting.dropped += 1,
        }
        assert!(
            waiting.reports.len() <= WAITING_MAX,
            "the queue of reports is bounded"
        );
        drop(waiting);
        self.posted.notify_all();
    }

    /// Takes all reports, and waits for the next one where there is none. None after the queue was
    /// closed.
    pub fn take(&self) -> Option<Taken> {
        let mut waiting = self.waiting.lock();
        self.posted.wait_while(&mut waiting, |waiting| {
            waiting.reports.is_empty() && !waiting.is_closed
        });
        if waiting.reports.is_empty() {
            return None;
        }
        Some(Taken {
            reports: waiting.reports.drain(..).collect(),
            dropped: std::mem::take(&mut waiting.dropped),
        })
    }

    /// Later reports are left out, and [`take`](Self::take) ends when the waiting ones were taken.
    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.posted.notify_all();
    }
}

/// The error number of a failed request.
pub(crate) fn errno_of(error: &tarn_host::DeviceError) -> i32 {
    error.errno().map_or(IO_ERROR, |errno| errno.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(vdev: u64) -> Report {
        Report {
            vdev: Guid::from(vdev),
            what: ReportKind::State {
                before: VdevState::Online,
                now: Standing::ONLINE,
            },
        }
    }

    #[test]
    fn reports_beyond_the_bound_are_dropped_and_counted() {
        let reports = Reports::new();
        let count = u64::try_from(WAITING_MAX).unwrap();
        (0..count + 3).for_each(|vdev| reports.post(report(vdev)));
        let taken = reports.take().unwrap();
        assert_eq!((taken.reports.len(), taken.dropped), (WAITING_MAX, 3));
        assert_eq!(taken.reports[0], report(0));
        reports.post(report(7));
        let taken = reports.take().unwrap();
        assert_eq!((taken.reports, taken.dropped), (vec![report(7)], 0));
    }

    #[test]
    fn a_closed_queue_gives_what_waits_and_then_nothing() {
        let reports = Reports::new();
        reports.post(report(1));
        reports.close();
        reports.post(report(2));
        assert_eq!(reports.take().unwrap().reports, [report(1)]);
        assert_eq!(reports.take(), None);
    }
}
