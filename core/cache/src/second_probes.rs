//! What the second level counts, beside the first in `zfs:0:arcstats`, under OpenZFS's names.

use std::sync::Arc;
use tarn_ondisk::declare::widen;
use tarn_probe::{Counter, Gauge, Instance};

/// What is on the devices of a pool, in bytes where it is not a count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SecondSizes {
    pub(crate) entries: u64,
    /// The logical sizes of the blocks.
    pub(crate) logical_bytes: u64,
    /// What they take on the devices.
    pub(crate) allocated_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) metadata_bytes: u64,
    pub(crate) recent_bytes: u64,
    pub(crate) frequent_bytes: u64,
    pub(crate) log_count: u64,
    pub(crate) log_bytes: u64,
    /// What the index takes of memory.
    pub(crate) memory_bytes: u64,
}

/// The name of a gauge, and what it shows.
type NamedGauge = (&'static str, fn(&SecondSizes) -> u64);

const GAUGES: [NamedGauge; 9] = [
    ("l2_size", |sizes| sizes.logical_bytes),
    ("l2_asize", |sizes| sizes.allocated_bytes),
    ("l2_hdr_size", |sizes| sizes.memory_bytes),
    ("l2_bufc_data_asize", |sizes| sizes.data_bytes),
    ("l2_bufc_metadata_asize", |sizes| sizes.metadata_bytes),
    ("l2_mru_asize", |sizes| sizes.recent_bytes),
    ("l2_mfu_asize", |sizes| sizes.frequent_bytes),
    ("l2_log_blk_asize", |sizes| sizes.log_bytes),
    ("l2_log_blk_count", |sizes| sizes.log_count),
];

/// Everything that is counted.
pub(crate) struct SecondProbes {
    pub(crate) hits: Arc<Counter>,
    pub(crate) misses: Arc<Counter>,
    pub(crate) feeds: Arc<Counter>,
    pub(crate) read_bytes: Arc<Counter>,
    pub(crate) written_bytes: Arc<Counter>,
    pub(crate) writes_sent: Arc<Counter>,
    pub(crate) writes_done: Arc<Counter>,
    pub(crate) writes_failed: Arc<Counter>,
    /// Rounds without a write, because the index takes its share of memory.
    pub(crate) short_of_memory: Arc<Counter>,
    pub(crate) checksum_errors: Arc<Counter>,
    pub(crate) io_errors: Arc<Counter>,
    pub(crate) log_writes: Arc<Counter>,
    pub(crate) rebuilds: Arc<Counter>,
    pub(crate) rebuilds_without_header: Arc<Counter>,
    pub(crate) rebuilds_short_of_memory: Arc<Counter>,
    pub(crate) rebuild_io_errors: Arc<Counter>,
    pub(crate) rebuild_checksum_errors: Arc<Counter>,
    pub(crate) rebuilt_log_blocks: Arc<Counter>,
    pub(crate) rebuilt_buffers: Arc<Counter>,
    pub(crate) rebuilt_known_buffers: Arc<Counter>,
    pub(crate) rebuilt_bytes: Arc<Counter>,
    pub(crate) rebuilt_allocated_bytes: Arc<Counter>,
    gauges: [Arc<Gauge>; GAUGES.len()],
}

impl SecondProbes {
    pub(crate) fn new(instance: &Instance) -> SecondProbes {
        let counter = |name| instance.counter(name);
        SecondProbes {
            hits: counter("l2_hits"),
            misses: counter("l2_misses"),
            feeds: counter("l2_feeds"),
            read_bytes: counter("l2_read_bytes"),
            written_bytes: counter("l2_write_bytes"),
            writes_sent: counter("l2_writes_sent"),
            writes_done: counter("l2_writes_done"),
            writes_failed: counter("l2_writes_error"),
            short_of_memory: counter("l2_abort_lowmem"),
            checksum_errors: counter("l2_cksum_bad"),
            io_errors: counter("l2_io_error"),
            log_writes: counter("l2_log_blk_writes"),
            rebuilds: counter("l2_rebuild_success"),
            rebuilds_without_header: counter("l2_rebuild_unsupported"),
            rebuilds_short_of_memory: counter("l2_rebuild_lowmem"),
            rebuild_io_errors: counter("l2_rebuild_io_errors"),
            rebuild_checksum_errors: counter("l2_rebuild_cksum_lb_errors"),
            rebuilt_log_blocks: counter("l2_rebuild_log_blks"),
            rebuilt_buffers: counter("l2_rebuild_bufs"),
            rebuilt_known_buffers: counter("l2_rebuild_bufs_precached"),
            rebuilt_bytes: counter("l2_rebuild_size"),
            rebuilt_allocated_bytes: counter("l2_rebuild_asize"),
            gauges: GAUGES.map(|(name, _)| instance.gauge(name)),
        }
    }

    /// What a pool has on its devices was `before` and is `now`. Gauges have the sums of all pools.
    pub(crate) fn change_sizes(&self, before: &SecondSizes, now: &SecondSizes) {
        for (gauge, (_, size_of)) in self.gauges.iter().zip(GAUGES) {
            let signed = |size| i64::try_from(size).unwrap_or(i64::MAX);
            gauge.add(signed(size_of(now)) - signed(size_of(before)));
        }
    }

    /// So many bytes were written in so many buffers, of which these failed.
    pub(crate) fn count_written(&self, bytes: u64, failed: usize) {
        self.written_bytes.add(bytes);
        self.writes_sent.increment();
        match failed {
            0 => self.writes_done.increment(),
            failed => self.writes_failed.add(widen(failed)),
        }
    }
}
