//! What is counted of intent logs, under OpenZFS's names: of all together `zfs:0:zil` in the tree
//! of statistics, of each what [`IntentLog::counted`](crate::IntentLog::counted) gives for the
//! statistics of its dataset.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tarn_probe::{Counter, Instance};

/// What is counted: each has its place in [`NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Event {
    /// Commits asked for.
    Commit,
    /// Batches that were written for them.
    Batch,
    /// Of commits those whose blocks could not be written or had no room.
    Failed,
    /// Commits that waited for a group instead.
    Waited,
    /// Records made.
    Record,
    /// Records written that lead to the blocks that have their bytes.
    Indirect,
    /// These bytes.
    IndirectBytes,
    /// Records written that had all they need.
    Whole,
    /// The bytes of files in them.
    WholeBytes,
    /// Records written whose bytes were fetched.
    Fetched,
    /// These bytes.
    FetchedBytes,
    /// Blocks written to devices that are no log devices.
    Block,
    /// Bytes of records in them.
    BlockRecordBytes,
    /// Bytes written of them.
    BlockWrittenBytes,
    /// Bytes allocated for them.
    BlockAllocatedBytes,
    /// Blocks written to log devices.
    LogDeviceBlock,
    /// Bytes of records in them.
    LogDeviceRecordBytes,
    /// Bytes written of them.
    LogDeviceWrittenBytes,
    /// Bytes allocated for them.
    LogDeviceAllocatedBytes,
}

/// The names of what is counted, in the order of [`Event`].
const NAMES: [&str; 19] = [
    "zil_commit_count",
    "zil_commit_writer_count",
    "zil_commit_error_count",
    "zil_commit_stall_count",
    "zil_itx_count",
    "zil_itx_indirect_count",
    "zil_itx_indirect_bytes",
    "zil_itx_copied_count",
    "zil_itx_copied_bytes",
    "zil_itx_needcopy_count",
    "zil_itx_needcopy_bytes",
    "zil_itx_metaslab_normal_count",
    "zil_itx_metaslab_normal_bytes",
    "zil_itx_metaslab_normal_write",
    "zil_itx_metaslab_normal_alloc",
    "zil_itx_metaslab_slog_count",
    "zil_itx_metaslab_slog_bytes",
    "zil_itx_metaslab_slog_write",
    "zil_itx_metaslab_slog_alloc",
];

/// Of OpenZFS's, what does not happen: logs are not suspended while commits go on.
const NEVER: &str = "zil_commit_suspend_count";

/// What one log counted.
#[derive(Debug, Default)]
pub(crate) struct LogCounts([AtomicU64; NAMES.len()]);

impl LogCounts {
    /// Counts for this log, and for all.
    pub(crate) fn add(&self, event: Event, count: u64) {
        let place = usize::from(event as u8);
        self.0[place].fetch_add(count, Ordering::Relaxed);
        of_all().counters[place].add(count);
    }

    /// All numbers by their names.
    pub(crate) fn by_name(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        let named = NAMES.into_iter().zip(counts);
        named.chain([(NEVER, 0)]).collect()
    }
}

/// What all logs counted.
struct OfAll {
    counters: [Arc<Counter>; NAMES.len()],
    _instance: Arc<Instance>,
}

fn of_all() -> &'static OfAll {
    static OF_ALL: OnceLock<OfAll> = OnceLock::new();
    OF_ALL.get_or_init(|| {
        let instance = tarn_probe::registry().instance("zfs", 0, "zil");
        // It is there, and stays 0.
        let _ = instance.counter(NEVER);
        OfAll {
            counters: NAMES.map(|name| instance.counter(name)),
            _instance: instance,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_and_all_logs_count_the_same_event() {
        let name = "zil_itx_metaslab_slog_alloc";
        let of_all =
            || of_all().counters[usize::from(Event::LogDeviceAllocatedBytes as u8)].value();
        let before = of_all();
        let log = LogCounts::default();
        log.add(Event::LogDeviceAllocatedBytes, 4096);
        log.add(Event::Commit, 2);
        assert_eq!(of_all() - before, 4096);
        let named = log.by_name();
        assert!(named.contains(&(name, 4096)) && named.contains(&("zil_commit_count", 2)));
        assert_eq!(named.len(), NAMES.len() + 1);
        assert_eq!(
            NAMES[usize::from(Event::LogDeviceAllocatedBytes as u8)],
            name
        );
    }
}
