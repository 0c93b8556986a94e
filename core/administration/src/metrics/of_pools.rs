//! Metrics of pools and of their devices.
//!
//! Only devices have counters of I/O, as those of a vdev above them are their sums. A device is
//! named as `zpool_influxdb` names it, by its place in the tree: `root/mirror-0/disk-1`.

use super::metric_families::{COUNTER, Families, GAUGE, Labels, TIMES, labels, spread};
use crate::administrator::Administrator;
use crate::messages::metrics::MetricValue;
use crate::messages::pool::VdevRole;
use crate::pools::vdev_status::{cache_devices, layout_of_pool, state_word};
use std::collections::BTreeMap;
use tarn_engine::engine::OpenPool;
use tarn_probe::{HistogramSnapshot, IoKind, IoPriority, Value, registry};
use tarn_vdev::VdevHealth;

const KINDS: [(IoKind, &str); 4] = [
    (IoKind::Read, "read"),
    (IoKind::Write, "write"),
    (IoKind::Flush, "flush"),
    (IoKind::Trim, "trim"),
];

impl Administrator {
    /// Adds those of all open pools.
    pub(super) fn add_pools(&self, families: &mut Families) {
        for open in self.engine.pools() {
            add_pool(families, &open);
        }
    }
}

fn add_pool(families: &mut Families, open: &OpenPool) {
    let pool = open.pool.name().to_string();
    let health = open.pool.vdevs().health();
    let space = crate::pools::properties::space_of(&open.pool);
    let of = labels(&[("pool", &pool)]);
    let free_bytes = space.size_bytes.saturating_sub(space.allocated_bytes);
    for (name, help, value) in [
        ("tarn_pool_size_bytes", "Size of pools.", space.size_bytes),
        (
            "tarn_pool_allocated_bytes",
            "Allocated bytes of pools.",
            space.allocated_bytes,
        ),
        ("tarn_pool_free_bytes", "Free bytes of pools.", free_bytes),
    ] {
        families.add(name, help, GAUGE, of.clone(), MetricValue::Whole(value));
    }
    families.add(
        "tarn_pool_state",
        "1, with the state of the pool as its label, as zpool list shows it.",
        GAUGE,
        labels(&[("pool", &pool), ("state", &state_of(&pool))]),
        MetricValue::Whole(1),
    );
    let layout = layout_of_pool(open, &health);
    let roles: BTreeMap<u64, VdevRole> = (layout.iter())
        .map(|status| (status.guid, status.role))
        .collect();
    for top in &health.children {
        let role = roles.get(&top.guid.get()).copied().unwrap_or_default();
        add_vdev(families, &pool, "root", role_name(role), top);
    }
    for (_, health) in cache_devices(&open.pool) {
        add_vdev(
            families,
            &pool,
            "cache",
            role_name(VdevRole::Cache),
            &health,
        );
    }
}

/// The state as `zpool list` has it.
fn state_of(pool: &str) -> String {
    let escaped = in_pattern(pool);
    let snapshot = registry().snapshot(&format!("zfs/{escaped}:0:state"));
    let states = snapshot
        .iter()
        .flat_map(|(_, _, _, values)| values.values());
    let mut states = states.filter_map(|value| match value {
        Value::Text(state) => Some(state.clone()),
        _ => None,
    });
    states.next().unwrap_or_else(|| "UNKNOWN".to_owned())
}

/// A name in a pattern of statistics.
fn in_pattern(name: &str) -> String {
    name.replace(':', "\\:")
}

fn role_name(role: VdevRole) -> &'static str {
    match role {
        VdevRole::Data => "data",
        VdevRole::Log => "log",
        VdevRole::Spare => "spare",
        VdevRole::Cache => "cache",
        VdevRole::Special => "special",
        VdevRole::Dedup => "dedup",
    }
}

fn add_vdev(families: &mut Families, pool: &str, parent: &str, role: &str, health: &VdevHealth) {
    let place = format!("{parent}/{}-{}", health.kind.name(), health.id);
    for child in &health.children {
        add_vdev(families, pool, &place, role, child);
    }
    if health.children.is_empty() {
        let path = health.path.as_ref().map(ToString::to_string);
        let path = path.unwrap_or_default();
        let device = Device {
            of: [
                ("path", &path),
                ("pool", pool),
                ("role", role),
                ("vdev", &place),
            ],
        };
        device.add(families, health);
    }
}

/// A device, by its labels.
struct Device<'a> {
    of: [(&'a str, &'a str); 4],
}

impl Device<'_> {
    fn labels(&self, more: &[(&str, &str)]) -> Labels {
        labels(&[&self.of, more].concat())
    }

    fn add(&self, families: &mut Families, health: &VdevHealth) {
        families.add(
            "tarn_vdev_state",
            "1, with the state of the device as its label, as zpool status shows it.",
            GAUGE,
            self.labels(&[("state", state_word(health.standing))]),
            MetricValue::Whole(1),
        );
        for (kind, count) in [
            ("read", health.errors.read),
            ("write", health.errors.write),
            ("checksum", health.errors.checksum),
            ("slow", health.errors.slow),
        ] {
            families.add(
                "tarn_vdev_errors_total",
                "Errors of devices since they were cleared, as zpool status shows them.",
                COUNTER,
                self.labels(&[("kind", kind)]),
                MetricValue::Whole(count),
            );
        }
        self.add_requests(families, health);
        self.add_classes(families, health);
    }

    fn add_requests(&self, families: &mut Families, health: &VdevHealth) {
        let io = &health.statistics;
        for (kind, name) in KINDS {
            let mut count = |family: &str, help: &str, value: u64| {
                let of = self.labels(&[("kind", name)]);
                families.add(family, help, COUNTER, of, MetricValue::Whole(value));
            };
            let (requests, failed) = (io.operations(kind), io.errors(kind));
            count("tarn_vdev_requests_total", "Requests to devices.", requests);
            count(
                "tarn_vdev_bytes_total",
                "Bytes of requests to devices.",
                io.bytes(kind),
            );
            count(
                "tarn_vdev_failed_total",
                "Requests to devices that failed.",
                failed,
            );
        }
        for (kind, place) in [("read", 0), ("write", 1)] {
            for (part, histogram) in [
                ("total", &io.total_ns[place]),
                ("device", &io.device_ns[place]),
            ] {
                let of = self.labels(&[("kind", kind), ("part", part)]);
                families.add(
                    "tarn_vdev_latency_seconds",
                    "Requests to devices by how long they took: in queue and device, or in it.",
                    TIMES,
                    of,
                    spread(histogram),
                );
            }
        }
    }

    fn add_classes(&self, families: &mut Families, health: &VdevHealth) {
        let io = &health.statistics;
        for priority in IoPriority::ALL {
            let of = self.labels(&[("class", priority.name())]);
            let place = priority.index();
            for (name, help, count) in [
                (
                    "tarn_vdev_pending",
                    "Requests that wait in queues of devices, now.",
                    io.pending[place],
                ),
                (
                    "tarn_vdev_active",
                    "Requests that devices have, now.",
                    io.active[place],
                ),
            ] {
                families.add(name, help, GAUGE, of.clone(), MetricValue::Whole(count));
            }
            let waits: &HistogramSnapshot = &io.queue_ns[place];
            if waits.count() > 0 {
                families.add(
                    "tarn_vdev_queue_seconds",
                    "Requests to devices by how long they waited in the queue of their class.",
                    TIMES,
                    of,
                    spread(waits),
                );
            }
        }
    }
}
