//! Pools as InfluxDB's line protocol, with the measurements, tags and fields of OpenZFS's program
//! `zpool_influxdb` (version 2.3): dashboards that were made for it go on working.
//!
//! # Mechanism
//! `zpool_stats` and the histograms `zpool_latency` and `zpool_io_size` are of each vdev,
//! `zpool_vdev_stats`, `zpool_vdev_queue` and `zpool_scan_stats` of the pool. A vdev is named by
//! its place: `root/mirror-0/disk-1`; a device has its path besides. Hot spares and cache devices
//! are not in that tree. Buckets are octaves; what is below the first that is written is in it.
//!
//! # Where it differs
//! `paused_ts` and `paused_t` are those of the scan, where `zpool_influxdb` has zeros;
//! `remaining_t` is what is left, divided by the rate.

use crate::influx_line::{Integers, Line};
use std::collections::BTreeMap;
use tarn_administration::messages::pool::{PoolDescription, ScanStats, VdevRole, VdevStatus};
use tarn_administration::messages::statistics::VdevIo;

/// The first octave of times: 1,024 ns.
const FIRST_TIME: usize = 10;
/// Octaves of times: up to 2^36 ns.
const TIMES: usize = 37;
/// The first octave of sizes: 512 bytes.
const FIRST_SIZE: usize = 9;
/// Octaves of sizes: up to 16 MiB.
const SIZES: usize = 25;

/// Fields of `zpool_latency`, and the names that samples of devices have for them.
const LATENCIES: [(&str, &str); 11] = [
    ("total_read", "total_wait_read"),
    ("total_write", "total_wait_write"),
    ("disk_read", "disk_wait_read"),
    ("disk_write", "disk_wait_write"),
    ("sync_read", "syncq_wait_read"),
    ("sync_write", "syncq_wait_write"),
    ("async_read", "asyncq_wait_read"),
    ("async_write", "asyncq_wait_write"),
    ("scrub", "scrub_wait"),
    ("trim", "trim_wait"),
    ("rebuild", "rebuild_wait"),
];

/// The same of `zpool_io_size`.
const IO_SIZES: [(&str, &str); 14] = [
    ("sync_read_ind", "individual_sync_read"),
    ("sync_write_ind", "individual_sync_write"),
    ("async_read_ind", "individual_async_read"),
    ("async_write_ind", "individual_async_write"),
    ("scrub_read_ind", "individual_scrub"),
    ("sync_read_agg", "aggregated_sync_read"),
    ("sync_write_agg", "aggregated_sync_write"),
    ("async_read_agg", "aggregated_async_read"),
    ("async_write_agg", "aggregated_async_write"),
    ("scrub_read_agg", "aggregated_scrub"),
    ("trim_write_ind", "individual_trim"),
    ("trim_write_agg", "aggregated_trim"),
    ("rebuild_write_ind", "individual_rebuild"),
    ("rebuild_write_agg", "aggregated_rebuild"),
];

/// The same of `zpool_vdev_queue`; `zpool_vdev_stats` has them with `_queue` behind.
const QUEUES: [(&str, &str); 12] = [
    ("sync_r_active", "active_sync_read"),
    ("sync_w_active", "active_sync_write"),
    ("async_r_active", "active_async_read"),
    ("async_w_active", "active_async_write"),
    ("async_scrub_active", "active_scrub"),
    ("rebuild_active", "active_rebuild"),
    ("sync_r_pend", "pending_sync_read"),
    ("sync_w_pend", "pending_sync_write"),
    ("async_r_pend", "pending_async_read"),
    ("async_w_pend", "pending_async_write"),
    ("async_scrub_pend", "pending_scrub"),
    ("rebuild_pend", "pending_rebuild"),
];

/// How lines are written: the options of `zpool_influxdb`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineOptions {
    /// `--tags`: tags of each line, as they are written: `host=a,site=b`.
    pub tags: String,
    /// Not `--no-histograms`.
    pub has_histograms: bool,
    /// `--sum-histogram-buckets`: each bucket has what is in those below it, too.
    pub sums_buckets: bool,
    /// `--signed-int`.
    pub is_signed: bool,
}

impl Default for LineOptions {
    fn default() -> LineOptions {
        LineOptions {
            tags: String::new(),
            has_histograms: true,
            sums_buckets: false,
            is_signed: false,
        }
    }
}

impl LineOptions {
    pub(crate) fn integers(&self) -> Integers {
        match self.is_signed {
            true => Integers::Signed,
            false => Integers::Unsigned,
        }
    }
}

/// The lines of a pool, of its description and the sample of its devices.
pub fn pool_lines(
    pool: &PoolDescription,
    sample: &VdevIo,
    options: &LineOptions,
    time_ns: u64,
) -> String {
    let writer = Writer {
        name: &pool.name,
        options,
        time_ns,
    };
    let mut out = String::new();
    let vdevs = vdevs_of(pool, sample);
    for vdev in &vdevs {
        writer.push_summary(&mut out, vdev);
    }
    writer.push_queues(&mut out, "zpool_vdev_stats", "_queue", sample);
    if options.has_histograms {
        for vdev in &vdevs {
            writer.push_histograms(&mut out, vdev, "zpool_latency", &LATENCIES, time_bounds());
        }
        for vdev in &vdevs {
            writer.push_histograms(&mut out, vdev, "zpool_io_size", &IO_SIZES, size_bounds());
        }
        writer.push_queues(&mut out, "zpool_vdev_queue", "", sample);
    }
    if let Some(scan) = &pool.scan_stats {
        writer.push_scan(&mut out, scan);
    }
    out
}

/// A vdev as it is written.
struct Vdev<'a> {
    /// Its place in the tree.
    place: String,
    path: &'a str,
    state: &'a str,
    sizes: Sizes,
    /// Read, write and checksum errors.
    errors: [u64; 3],
    io: &'a VdevIo,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    allocated: u64,
    free: u64,
    fragmentation: u64,
}

/// What is not there has counted nothing.
static NOTHING: std::sync::LazyLock<VdevIo> = std::sync::LazyLock::new(VdevIo::default);

/// The vdevs of a pool, each before its children.
fn vdevs_of<'a>(pool: &'a PoolDescription, sample: &'a VdevIo) -> Vec<Vdev<'a>> {
    let mut samples = BTreeMap::new();
    add_samples(&mut samples, sample);
    let root = &pool.root;
    let state = match root.state.is_empty() {
        true => &pool.state,
        false => &root.state,
    };
    let mut vdevs = vec![Vdev {
        place: "root".to_owned(),
        path: "",
        state,
        sizes: Sizes {
            allocated: sample.allocated_bytes,
            free: sample.free_bytes,
            fragmentation: 0,
        },
        errors: [root.read_errors, root.write_errors, root.checksum_errors],
        io: sample,
    }];
    let is_in_tree = |vdev: &&VdevStatus| !matches!(vdev.role, VdevRole::Spare | VdevRole::Cache);
    for top in pool.layout.iter().filter(is_in_tree) {
        add_vdev(&mut vdevs, "root", top, &samples);
    }
    vdevs
}

fn add_samples<'a>(samples: &mut BTreeMap<u64, &'a VdevIo>, sample: &'a VdevIo) {
    samples.insert(sample.guid, sample);
    for child in &sample.children {
        add_samples(samples, child);
    }
}

fn add_vdev<'a>(
    vdevs: &mut Vec<Vdev<'a>>,
    parent: &str,
    status: &'a VdevStatus,
    samples: &BTreeMap<u64, &'a VdevIo>,
) {
    let place = format!("{parent}/{}-{}", status.kind, status.id);
    vdevs.push(Vdev {
        place: place.clone(),
        path: status.path.as_deref().unwrap_or_default(),
        state: &status.state,
        sizes: Sizes {
            allocated: status.allocated_bytes,
            free: status.size_bytes.saturating_sub(status.allocated_bytes),
            // OpenZFS's word for unknown: all bits.
            fragmentation: match status.size_bytes {
                0 => 0,
                _ => status.fragmentation_percent.unwrap_or(u64::MAX),
            },
        },
        errors: [
            status.read_errors,
            status.write_errors,
            status.checksum_errors,
        ],
        io: samples.get(&status.guid).copied().unwrap_or(&NOTHING),
    });
    for child in &status.children {
        add_vdev(vdevs, &place, child, samples);
    }
}

/// The upper bounds of the octaves that are written, as they are written; all that is beyond the
/// last is infinite.
fn time_bounds() -> (usize, Vec<String>) {
    let bounds = (FIRST_TIME..TIMES - 1).map(|power| {
        // Powers of two are exact.
        let seconds = (1_u64 << power) as f64 * 1e-9;
        format!("{seconds:.6}")
    });
    (FIRST_TIME, bounds.chain(["+Inf".to_owned()]).collect())
}

fn size_bounds() -> (usize, Vec<String>) {
    let bounds = (FIRST_SIZE..SIZES - 1).map(|power| (1_u64 << power).to_string());
    (FIRST_SIZE, bounds.chain(["+Inf".to_owned()]).collect())
}

struct Writer<'a> {
    name: &'a str,
    options: &'a LineOptions,
    time_ns: u64,
}

impl Writer<'_> {
    fn line(&self, measurement: &str) -> Line {
        Line::new(measurement, &self.options.tags, self.options.integers())
    }

    fn push_summary(&self, out: &mut String, vdev: &Vdev<'_>) {
        let (io, sizes) = (vdev.io, vdev.sizes);
        let line = self.line("zpool_stats").tag("name", self.name);
        let line = line.tag("state", vdev.state).tag("path", vdev.path);
        line.tag("vdev", &vdev.place)
            .field("alloc", sizes.allocated)
            .field("free", sizes.free)
            .field("size", sizes.allocated.saturating_add(sizes.free))
            .field("read_bytes", io.read_bytes)
            .field("read_errors", vdev.errors[0])
            .field("read_ops", io.reads)
            .field("write_bytes", io.written_bytes)
            .field("write_errors", vdev.errors[1])
            .field("write_ops", io.writes)
            .field("checksum_errors", vdev.errors[2])
            .field("fragmentation", sizes.fragmentation)
            .end(out, self.time_ns);
    }

    fn push_queues(&self, out: &mut String, measurement: &str, behind: &str, sample: &VdevIo) {
        let line = self.line(measurement).tag("name", self.name);
        let line = QUEUES
            .iter()
            .fold(line.tag("vdev", "root"), |line, (name, series)| {
                let counts = sample.series.get(*series);
                let count = counts.and_then(|counts| counts.first()).copied();
                line.field(&format!("{name}{behind}"), count.unwrap_or(0))
            });
        line.end(out, self.time_ns);
    }

    fn push_histograms(
        &self,
        out: &mut String,
        vdev: &Vdev<'_>,
        measurement: &str,
        names: &[(&str, &str)],
        (first, bounds): (usize, Vec<String>),
    ) {
        let counts: Vec<&[u64]> = (names.iter())
            .map(|(_, series)| vdev.io.series.get(*series).map_or(&[][..], Vec::as_slice))
            .collect();
        let sum = |counts: &[u64], until: usize| counts.iter().take(until).sum::<u64>();
        for (bucket, bound) in (first..).zip(&bounds) {
            let line = self
                .line(measurement)
                .tag("le", bound)
                .tag("name", self.name);
            let line = line.tag("path", vdev.path).tag("vdev", &vdev.place);
            let fields = names.iter().zip(&counts);
            let line = fields.fold(line, |line, ((name, _), counts)| {
                let count = match bucket == first || self.options.sums_buckets {
                    true => sum(counts, bucket + 1),
                    false => counts.get(bucket).copied().unwrap_or(0),
                };
                line.field(name, count)
            });
            line.end(out, self.time_ns);
        }
    }

    fn push_scan(&self, out: &mut String, scan: &ScanStats) {
        let examined = scan.examined_bytes.max(1);
        let pass_examined = scan.pass_examined_bytes.max(1);
        let is_running = scan.state == "SCANNING";
        let until_s = match is_running {
            true => self.time_ns / 1_000_000_000,
            false => scan.end_time_s,
        };
        let elapsed_s = until_s.saturating_sub(scan.pass_start_s);
        let elapsed_s = elapsed_s.saturating_sub(scan.spent_paused_s).max(1);
        let rate = (pass_examined / elapsed_s).max(1);
        let percent = match scan.to_examine_bytes {
            0 => 0.0,
            all => 100.0 * examined as f64 / all as f64,
        };
        let remaining_s = match is_running {
            true => scan.to_examine_bytes.saturating_sub(examined) / rate,
            false => 0,
        };
        let line = self.line("zpool_scan_stats");
        line.tag("function", &scan.function.to_lowercase())
            .tag("name", self.name)
            .tag("state", &scan.state.to_lowercase())
            .field("end_ts", scan.end_time_s)
            .field("errors", scan.errors)
            .field("examined", examined)
            .field("skipped", scan.skipped_bytes)
            .field("issued", scan.issued_bytes)
            .field("pass_examined", pass_examined)
            .field("pass_issued", scan.pass_issued_bytes)
            .field("paused_ts", scan.paused_since_s)
            .field("paused_t", scan.spent_paused_s)
            .number("pct_done", &format!("{percent:.2}"))
            .field("processed", scan.processed_bytes)
            .field("rate", rate)
            .field("remaining_t", remaining_s)
            .field("start_ts", scan.start_time_s)
            .field("to_examine", scan.to_examine_bytes)
            .end(out, self.time_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> (PoolDescription, VdevIo) {
        let series = BTreeMap::from([
            ("total_wait_read".to_owned(), (0..37).collect()),
            ("individual_scrub".to_owned(), vec![1; 25]),
            ("active_sync_read".to_owned(), vec![3]),
        ]);
        let leaf = VdevStatus {
            kind: "disk".to_owned(),
            path: Some("/dev/my disk".to_owned()),
            guid: 2,
            state: "ONLINE".to_owned(),
            size_bytes: 100,
            allocated_bytes: 30,
            ..VdevStatus::default()
        };
        let spare = VdevStatus {
            role: VdevRole::Spare,
            ..leaf.clone()
        };
        let pool = PoolDescription {
            name: "tank 1".to_owned(),
            state: "ONLINE".to_owned(),
            layout: vec![leaf, spare],
            scan_stats: Some(ScanStats {
                function: "SCRUB".to_owned(),
                state: "SCANNING".to_owned(),
                pass_start_s: 90,
                pass_examined_bytes: 500,
                examined_bytes: 500,
                to_examine_bytes: 2000,
                ..ScanStats::default()
            }),
            ..PoolDescription::default()
        };
        let io = |guid| VdevIo {
            guid,
            series: series.clone(),
            reads: 7,
            allocated_bytes: 30,
            free_bytes: 70,
            ..VdevIo::default()
        };
        let sample = VdevIo {
            children: vec![io(2)],
            ..io(1)
        };
        (pool, sample)
    }

    const TIME_NS: u64 = 100_000_000_000;

    #[test]
    fn a_pool_has_the_measurements_of_zpool_influxdb() {
        let (pool, sample) = pool();
        let text = pool_lines(&pool, &sample, &LineOptions::default(), TIME_NS);
        let lines: Vec<&str> = text.lines().collect();
        let of = |measurement: &str| {
            let begin = format!("{measurement},");
            lines.iter().filter(|line| line.starts_with(&begin)).count()
        };
        let counts = [
            "stats",
            "vdev_stats",
            "latency",
            "io_size",
            "vdev_queue",
            "scan_stats",
        ]
        .map(|name| of(&format!("zpool_{name}")));
        assert_eq!(counts, [2, 1, 2 * 27, 2 * 16, 1, 1]);
        assert_eq!(
            lines[1],
            "zpool_stats,name=tank\\ 1,state=ONLINE,path=/dev/my\\ disk,vdev=root/disk-0 \
             alloc=30u,free=70u,size=100u,read_bytes=0u,read_errors=0u,read_ops=7u,\
             write_bytes=0u,write_errors=0u,write_ops=0u,checksum_errors=0u,\
             fragmentation=18446744073709551615u 100000000000"
        );
        assert!(lines[2].contains("vdev=root sync_r_active_queue=3u,sync_w_active_queue=0u,"));
        let scan = lines.last().unwrap();
        assert!(scan.starts_with("zpool_scan_stats,function=scrub,name=tank\\ 1,state=scanning "));
        assert!(scan.contains(",pct_done=25.00,processed=0u,rate=50u,remaining_t=30u,"));
    }

    #[test]
    fn the_first_bucket_has_what_is_below_it_and_sums_have_all() {
        let (pool, sample) = pool();
        let bucket = |options: &LineOptions, bound: &str| {
            let text = pool_lines(&pool, &sample, options, TIME_NS);
            let begin = format!("zpool_latency,le={bound},name=tank\\ 1,vdev=root ");
            let line = text.lines().find_map(|line| line.strip_prefix(&begin));
            let fields = line.unwrap().split(',').next().unwrap();
            fields.to_owned()
        };
        let plain = LineOptions::default();
        assert_eq!(bucket(&plain, "0.000001"), "total_read=55u");
        assert_eq!(bucket(&plain, "0.000002"), "total_read=11u");
        assert_eq!(bucket(&plain, "+Inf"), "total_read=36u");
        let summed = LineOptions {
            sums_buckets: true,
            is_signed: true,
            ..LineOptions::default()
        };
        assert_eq!(bucket(&summed, "0.000002"), "total_read=66i");
        assert_eq!(bucket(&summed, "+Inf"), "total_read=666i");
    }

    #[test]
    fn histograms_can_be_left_out() {
        let (pool, sample) = pool();
        let options = LineOptions {
            has_histograms: false,
            tags: "host=a".to_owned(),
            ..LineOptions::default()
        };
        let text = pool_lines(&pool, &sample, &options, TIME_NS);
        assert_eq!(text.lines().count(), 4);
        assert!(text.lines().all(|line| line.contains(",host=a,")));
    }
}
