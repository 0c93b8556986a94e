//! What one device did: the numbers behind `zpool iostat` with `-l`, `-w`, `-r` and `-q`.
//!
//! An I/O waits in a queue of its class, then it is in the device. Reads and writes are kept apart
//! in total and device time; queue time and request sizes are kept by class, sizes once more for
//! merged requests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::histogram::{Histogram, HistogramSnapshot};

/// What a device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush its cache.
    Flush,
    /// Give up a range.
    Trim,
}

impl IoKind {
    /// All of them.
    pub const ALL: [IoKind; 4] = [IoKind::Read, IoKind::Write, IoKind::Flush, IoKind::Trim];

    fn index(self) -> usize {
        match self {
            IoKind::Read => 0,
            IoKind::Write => 1,
            IoKind::Flush => 2,
            IoKind::Trim => 3,
        }
    }
}

/// The I/O class (`zio_priority_t`). `zpool iostat -q` has columns for the first seven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoPriority {
    /// A synchronous read: a caller waits for it.
    SyncRead,
    /// A synchronous write: a caller waits for it.
    SyncWrite,
    /// Prefetch.
    AsyncRead,
    /// A transaction group is stored.
    AsyncWrite,
    /// Scrub or resilver.
    Scrub,
    /// Discarded ranges.
    Trim,
    /// Sequential rebuild.
    Rebuild,
    /// The contents of a vdev are moved away.
    Removal,
    /// Free space is written for the first time.
    Initializing,
}

impl IoPriority {
    /// How many there are.
    pub const COUNT: usize = 9;
    /// All of them.
    pub const ALL: [IoPriority; Self::COUNT] = [
        IoPriority::SyncRead,
        IoPriority::SyncWrite,
        IoPriority::AsyncRead,
        IoPriority::AsyncWrite,
        IoPriority::Scrub,
        IoPriority::Trim,
        IoPriority::Rebuild,
        IoPriority::Removal,
        IoPriority::Initializing,
    ];

    /// Its name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            IoPriority::SyncRead => "sync_read",
            IoPriority::SyncWrite => "sync_write",
            IoPriority::AsyncRead => "async_read",
            IoPriority::AsyncWrite => "async_write",
            IoPriority::Scrub => "scrub",
            IoPriority::Trim => "trim",
            IoPriority::Rebuild => "rebuild",
            IoPriority::Removal => "removal",
            IoPriority::Initializing => "initializing",
        }
    }

    /// Its place in an array with one entry for each.
    pub const fn index(self) -> usize {
        match self {
            IoPriority::SyncRead => 0,
            IoPriority::SyncWrite => 1,
            IoPriority::AsyncRead => 2,
            IoPriority::AsyncWrite => 3,
            IoPriority::Scrub => 4,
            IoPriority::Trim => 5,
            IoPriority::Rebuild => 6,
            IoPriority::Removal => 7,
            IoPriority::Initializing => 8,
        }
    }
}

/// A finished I/O, to be counted.
#[derive(Clone, Copy, Debug)]
pub struct FinishedIo {
    /// What it was.
    pub kind: IoKind,
    /// Its class.
    pub priority: IoPriority,
    /// Where on the device, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// How long it waited in a queue.
    pub queue_ns: u64,
    /// How long the device took.
    pub device_ns: u64,
    /// Whether it was merged from several requests.
    pub is_merged: bool,
    /// Whether it failed.
    pub has_failed: bool,
}

/// A histogram that costs nothing until its first value.
#[derive(Debug, Default)]
struct LazyHistogram(OnceLock<Histogram>);

impl LazyHistogram {
    fn record(&self, value: u64) {
        self.0.get_or_init(Histogram::new).record(value);
    }

    fn snapshot(&self) -> HistogramSnapshot {
        self.0.get().map(Histogram::snapshot).unwrap_or_default()
    }
}

/// Counters and histograms of one device, or of one vdev above devices.
#[derive(Debug, Default)]
pub struct VdevStatistics {
    operations: [AtomicU64; 4],
    bytes: [AtomicU64; 4],
    errors: [AtomicU64; 4],
    total_ns: [LazyHistogram; 2],
    device_ns: [LazyHistogram; 2],
    queue_ns: [LazyHistogram; IoPriority::COUNT],
    single_bytes: [LazyHistogram; IoPriority::COUNT],
    merged_bytes: [LazyHistogram; IoPriority::COUNT],
    pending: [AtomicI64; IoPriority::COUNT],
    active: [AtomicI64; IoPriority::COUNT],
}

impl VdevStatistics {
    /// Nothing counted yet.
    pub fn new() -> VdevStatistics {
        VdevStatistics::default()
    }

    /// I/Os entered the queue of their class (or left it without being started, if negative).
    pub fn add_pending(&self, priority: IoPriority, count: i64) {
        self.pending[priority.index()].fetch_add(count, Ordering::Relaxed);
    }

    /// Whether the device has I/Os of a class.
    pub fn is_active(&self, priority: IoPriority) -> bool {
        self.active[priority.index()].load(Ordering::Relaxed) > 0
    }

    /// I/Os were given to the device (or came back, if negative).
    pub fn add_active(&self, priority: IoPriority, count: i64) {
        self.active[priority.index()].fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a finished I/O.
    pub fn finish(&self, io: &FinishedIo) {
        let kind = io.kind.index();
        self.operations[kind].fetch_add(1, Ordering::Relaxed);
        self.bytes[kind].fetch_add(io.bytes, Ordering::Relaxed);
        if io.has_failed {
            self.errors[kind].fetch_add(1, Ordering::Relaxed);
        }
        if matches!(io.kind, IoKind::Read | IoKind::Write) {
            self.total_ns[kind].record(io.queue_ns + io.device_ns);
            self.device_ns[kind].record(io.device_ns);
        }
        if io.kind == IoKind::Flush {
            return;
        }
        let class = io.priority.index();
        self.queue_ns[class].record(io.queue_ns);
        let sizes = if io.is_merged {
            &self.merged_bytes
        } else {
            &self.single_bytes
        };
        sizes[class].record(io.bytes);
    }

    /// Reads and writes so far, without their histograms: cheap enough to ask at every txg.
    pub fn totals(&self) -> IoTotals {
        let of =
            |counts: &[AtomicU64; 4], kind: IoKind| counts[kind.index()].load(Ordering::Relaxed);
        IoTotals {
            reads: of(&self.operations, IoKind::Read),
            writes: of(&self.operations, IoKind::Write),
            read_bytes: of(&self.bytes, IoKind::Read),
            written_bytes: of(&self.bytes, IoKind::Write),
        }
    }

    /// What was counted so far.
    pub fn snapshot(&self) -> VdevStatisticsSnapshot {
        fn all<const N: usize>(histograms: &[LazyHistogram; N]) -> [HistogramSnapshot; N] {
            std::array::from_fn(|i| histograms[i].snapshot())
        }
        let load = |counts: &[AtomicU64; 4]| counts.each_ref().map(|c| c.load(Ordering::Relaxed));
        let now = |gauges: &[AtomicI64; IoPriority::COUNT]| {
            gauges
                .each_ref()
                .map(|g| u64::try_from(g.load(Ordering::Relaxed)).unwrap_or(0))
        };
        VdevStatisticsSnapshot {
            operations: load(&self.operations),
            bytes: load(&self.bytes),
            errors: load(&self.errors),
            total_ns: all(&self.total_ns),
            device_ns: all(&self.device_ns),
            queue_ns: all(&self.queue_ns),
            single_bytes: all(&self.single_bytes),
            merged_bytes: all(&self.merged_bytes),
            pending: now(&self.pending),
            active: now(&self.active),
        }
    }
}

/// Reads and writes of one device, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
    /// Finished reads.
    pub reads: u64,
    /// Finished writes.
    pub writes: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
}

impl IoTotals {
    /// Adds another device's.
    pub fn merge(&mut self, other: &IoTotals) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }

    /// What came after `earlier`, totals of the same devices.
    pub fn since(&self, earlier: &IoTotals) -> IoTotals {
        IoTotals {
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
        }
    }
}

/// The statistics of a device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VdevStatisticsSnapshot {
    operations: [u64; 4],
    bytes: [u64; 4],
    errors: [u64; 4],
    /// Queue and device time of reads, then of writes.
    pub total_ns: [HistogramSnapshot; 2],
    /// Device time of reads, then of writes.
    pub device_ns: [HistogramSnapshot; 2],
    /// Queue time by class.
    pub queue_ns: [HistogramSnapshot; IoPriority::COUNT],
    /// Sizes of requests that stayed alone, by class.
    pub single_bytes: [HistogramSnapshot; IoPriority::COUNT],
    /// Sizes of requests merged from several, by class.
    pub merged_bytes: [HistogramSnapshot; IoPriority::COUNT],
    /// Waiting now, by class.
    pub pending: [u64; IoPriority::COUNT],
    /// In the device now, by class.
    pub active: [u64; IoPriority::COUNT],
}

impl VdevStatisticsSnapshot {
    /// Finished I/Os of a kind.
    pub fn operations(&self, kind: IoKind) -> u64 {
        self.operations[kind.index()]
    }

    /// Their bytes.
    pub fn bytes(&self, kind: IoKind) -> u64 {
        self.bytes[kind.index()]
    }

    /// How many of them failed.
    pub fn errors(&self, kind: IoKind) -> u64 {
        self.errors[kind.index()]
    }

    /// What came after `earlier`, a snapshot of the same device. What is waiting stays as it is
    /// now.
    pub fn since(&self, earlier: &VdevStatisticsSnapshot) -> VdevStatisticsSnapshot {
        let count = |now: &[u64; 4], then: &[u64; 4]| {
            std::array::from_fn(|i| now[i].saturating_sub(then[i]))
        };
        VdevStatisticsSnapshot {
            operations: count(&self.operations, &earlier.operations),
            bytes: count(&self.bytes, &earlier.bytes),
            errors: count(&self.errors, &earlier.errors),
            total_ns: each_since(&self.total_ns, &earlier.total_ns),
            device_ns: each_since(&self.device_ns, &earlier.device_ns),
            queue_ns: each_since(&self.queue_ns, &earlier.queue_ns),
            single_bytes: each_since(&self.single_bytes, &earlier.single_bytes),
            merged_bytes: each_since(&self.merged_bytes, &earlier.merged_bytes),
            pending: self.pending,
            active: self.active,
        }
    }

    /// Adds another device's, for the sum over a vdev or a pool.
    pub fn merge(&mut self, other: &VdevStatisticsSnapshot) {
        for (mine, theirs) in [
            (&mut self.operations[..], &other.operations[..]),
            (&mut self.bytes[..], &other.bytes[..]),
            (&mut self.errors[..], &other.errors[..]),
            (&mut self.pending[..], &other.pending[..]),
            (&mut self.active[..], &other.active[..]),
        ] {
            mine.iter_mut()
                .zip(theirs)
                .for_each(|(mine, theirs)| *mine += theirs);
        }
        for (mine, theirs) in [
            (&mut self.total_ns[..], &other.total_ns[..]),
            (&mut self.device_ns[..], &other.device_ns[..]),
            (&mut self.queue_ns[..], &other.queue_ns[..]),
            (&mut self.single_bytes[..], &other.single_bytes[..]),
            (&mut self.merged_bytes[..], &other.merged_bytes[..]),
        ] {
            mine.iter_mut()
                .zip(theirs)
                .for_each(|(mine, theirs)| mine.merge(theirs));
        }
    }
}

fn each_since<const N: usize>(
    now: &[HistogramSnapshot; N],
    then: &[HistogramSnapshot; N],
) -> [HistogramSnapshot; N] {
    std::array::from_fn(|i| now[i].since(&then[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(bytes: u64, is_merged: bool) -> FinishedIo {
        FinishedIo {
            kind: IoKind::Write,
            priority: IoPriority::AsyncWrite,
            offset: 0,
            bytes,
            queue_ns: 1000,
            device_ns: 3000,
            is_merged,
            has_failed: false,
        }
    }

    #[test]
    fn waits_and_sizes_go_to_their_kind_and_class() {
        let statistics = VdevStatistics::new();
        statistics.finish(&write(4096, false));
        statistics.finish(&write(1 << 20, true));
        let snapshot = statistics.snapshot();
        let class = IoPriority::AsyncWrite.index();
        assert_eq!(snapshot.operations(IoKind::Write), 2);
        let totals = statistics.totals();
        assert_eq!((totals.writes, totals.written_bytes), (2, 4096 + (1 << 20)));
        assert_eq!(totals.since(&totals), IoTotals::default());
        assert_eq!(snapshot.bytes(IoKind::Write), 4096 + (1 << 20));
        assert_eq!(snapshot.total_ns[1].sum(), 8000);
        assert_eq!(snapshot.device_ns[0].count(), 0);
        assert_eq!(snapshot.queue_ns[class].count(), 2);
        assert_eq!(snapshot.single_bytes[class].by_power_of_two(25)[12], 1);
        assert_eq!(snapshot.merged_bytes[class].by_power_of_two(25)[20], 1);
    }

    #[test]
    fn an_interval_and_what_was_before_it_merge_to_the_whole() {
        let statistics = VdevStatistics::new();
        statistics.finish(&write(512, false));
        let mut before = statistics.snapshot();
        statistics.finish(&write(8192, false));
        let now = statistics.snapshot();
        let interval = now.since(&before);
        assert_eq!(interval.operations(IoKind::Write), 1);
        before.merge(&interval);
        assert_eq!(before, now);
    }
}
