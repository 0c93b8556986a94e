//! `zpool iostat`: counters of devices since the pool was opened.

use super::vdev_status::layout_of_pool;
use crate::administrator::Administrator;
use crate::messages::Refusal;
use crate::messages::pool::VdevStatus;
use crate::messages::statistics::{IoSample, IoSamples, VdevIo};
use std::collections::BTreeMap;
use tarn_engine::engine::OpenPool;
use tarn_probe::{HistogramSnapshot, IoKind, IoPriority, VdevStatisticsSnapshot};
use tarn_vdev::VdevHealth;

/// Buckets of a histogram of waits: up to 2^36 ns, about a minute.
const WAIT_BUCKETS: usize = 37;

/// Buckets of a histogram of sizes: up to 2^24 bytes.
const SIZE_BUCKETS: usize = 25;

impl Administrator {
    pub(crate) fn iostat(&self, request: &IoSample) -> Result<IoSamples, Refusal> {
        let pools = self.engine.named_pools(&request.names)?;
        let pools = pools.iter().map(|open| self.sample(open)).collect();
        Ok(IoSamples { pools })
    }

    fn sample(&self, open: &OpenPool) -> VdevIo {
        let health = open.pool.vdevs().health();
        let layout = layout_of_pool(open, &health);
        let time_ns = self
            .engine
            .host
            .monotonic_ns()
            .saturating_sub(open.opened_ns);
        let by_guid: BTreeMap<u64, &VdevHealth> = health
            .children
            .iter()
            .map(|top| (top.guid.get(), top))
            .collect();
        let tops = layout.iter().filter_map(|status| {
            let top = by_guid.get(&status.guid)?;
            Some(vdev_io(status, top, time_ns))
        });
        let caches = super::vdev_status::cache_devices(&open.pool).into_iter();
        let caches = caches.map(|(status, health)| vdev_io(&status, &health, time_ns));
        let children: Vec<VdevIo> = tops.chain(caches).collect();
        let space = super::properties::space_of(&open.pool);
        let mut whole = io_of(&health.statistics, time_ns);
        whole.name = open.pool.name().to_string();
        whole.kind = "root".to_string();
        whole.guid = health.guid.get();
        whole.allocated_bytes = space.allocated_bytes;
        whole.free_bytes = space.size_bytes.saturating_sub(space.allocated_bytes);
        whole.children = children;
        whole
    }
}

fn vdev_io(status: &VdevStatus, health: &VdevHealth, time_ns: u64) -> VdevIo {
    let pairs = status.children.iter().zip(&health.children);
    VdevIo {
        name: status.name.clone(),
        kind: status.kind.clone(),
        guid: status.guid,
        path: status.path.clone(),
        role: status.role,
        allocated_bytes: status.allocated_bytes,
        free_bytes: status.size_bytes.saturating_sub(status.allocated_bytes),
        children: pairs
            .map(|(status, health)| vdev_io(status, health, time_ns))
            .collect(),
        ..io_of(&health.statistics, time_ns)
    }
}

fn io_of(statistics: &VdevStatisticsSnapshot, time_ns: u64) -> VdevIo {
    VdevIo {
        time_ns,
        reads: statistics.operations(IoKind::Read),
        writes: statistics.operations(IoKind::Write),
        read_bytes: statistics.bytes(IoKind::Read),
        written_bytes: statistics.bytes(IoKind::Write),
        series: series_of(statistics),
        ..VdevIo::default()
    }
}

/// Histograms and queues by name; empty ones are left out.
fn series_of(statistics: &VdevStatisticsSnapshot) -> BTreeMap<String, Vec<u64>> {
    let mut series = BTreeMap::new();
    let mut add = |name: String, histogram: &HistogramSnapshot, buckets: usize| {
        if histogram.count() > 0 {
            series.insert(name, histogram.by_power_of_two(buckets));
        }
    };
    for (index, kind) in ["read", "write"].into_iter().enumerate() {
        let (total, device) = (&statistics.total_ns[index], &statistics.device_ns[index]);
        add(format!("total_wait_{kind}"), total, WAIT_BUCKETS);
        add(format!("disk_wait_{kind}"), device, WAIT_BUCKETS);
    }
    for priority in IoPriority::ALL {
        let index = priority.index();
        let (class, wait) = names_of(priority);
        add(wait.to_string(), &statistics.queue_ns[index], WAIT_BUCKETS);
        let single = &statistics.single_bytes[index];
        add(format!("individual_{class}"), single, SIZE_BUCKETS);
        let merged = &statistics.merged_bytes[index];
        add(format!("aggregated_{class}"), merged, SIZE_BUCKETS);
    }
    for priority in IoPriority::ALL {
        let (class, _) = names_of(priority);
        let queues = [
            ("pending", statistics.pending[priority.index()]),
            ("active", statistics.active[priority.index()]),
        ];
        for (name, count) in queues.into_iter().filter(|(_, count)| *count > 0) {
            series.insert(format!("{name}_{class}"), vec![count]);
        }
    }
    series
}

/// The names of an I/O class, and of its wait time in the queue.
fn names_of(priority: IoPriority) -> (&'static str, &'static str) {
    match priority {
        IoPriority::SyncRead => ("sync_read", "syncq_wait_read"),
        IoPriority::SyncWrite => ("sync_write", "syncq_wait_write"),
        IoPriority::AsyncRead => ("async_read", "asyncq_wait_read"),
        IoPriority::AsyncWrite => ("async_write", "asyncq_wait_write"),
        IoPriority::Scrub => ("scrub", "scrub_wait"),
        IoPriority::Trim => ("trim", "trim_wait"),
        IoPriority::Rebuild => ("rebuild", "rebuild_wait"),
        IoPriority::Removal => ("removal", "removal_wait"),
        IoPriority::Initializing => ("initializing", "initializing_wait"),
    }
}
