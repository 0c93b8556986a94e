//! Samples: what the machine and the layers counted since the sample before.
//!
//! # Invariants
//! - The first sample has no counters, since nothing is known of the time before it; a counter that
//!   went back, such as that of a pool that was exported, begins anew.

use std::collections::BTreeMap;

use tarn_host::{Host, MachineCounters, ProcessorTimes};
use tarn_probe::{Value, registry};

use crate::cell::{Cell, SeriesId};

/// What the sample before was.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    counters: BTreeMap<SeriesId, u64>,
    sampled_ns: Option<u64>,
}

/// A counter of layers: the statistic, its key, and the names in the tree of statistics.
type LayerStatistic = (&'static str, &'static [&'static str], &'static str);

const ARC_GAUGES: [LayerStatistic; 3] = [
    ("arc.size", &[], "size"),
    ("arc.target", &[], "c"),
    ("l2arc.size", &[], "l2_asize"),
];

const ARC_COUNTERS: [LayerStatistic; 13] = [
    ("arc.hits", &[], "hits"),
    ("arc.misses", &[], "misses"),
    ("arc.iohits", &[], "iohits"),
    ("l2arc.hits", &[], "l2_hits"),
    ("l2arc.misses", &[], "l2_misses"),
    (
        "arc.accesses",
        &["demand", "data", "hit"],
        "demand_data_hits",
    ),
    (
        "arc.accesses",
        &["demand", "data", "miss"],
        "demand_data_misses",
    ),
    (
        "arc.accesses",
        &["demand", "metadata", "hit"],
        "demand_metadata_hits",
    ),
    (
        "arc.accesses",
        &["demand", "metadata", "miss"],
        "demand_metadata_misses",
    ),
    (
        "arc.accesses",
        &["prefetch", "data", "hit"],
        "prefetch_data_hits",
    ),
    (
        "arc.accesses",
        &["prefetch", "data", "miss"],
        "prefetch_data_misses",
    ),
    (
        "arc.accesses",
        &["prefetch", "metadata", "hit"],
        "prefetch_metadata_hits",
    ),
    (
        "arc.accesses",
        &["prefetch", "metadata", "miss"],
        "prefetch_metadata_misses",
    ),
];

impl Sampler {
    /// Takes a sample. `now_ns` is of a clock that never goes back.
    pub(crate) fn sample(&mut self, host: &Host, now_ns: u64) -> Vec<(SeriesId, Cell)> {
        self.difference(counted(host), now_ns)
    }

    /// What was counted since the sample before, and the gauges.
    fn difference(
        &mut self,
        (counters, mut gauges): Counted,
        now_ns: u64,
    ) -> Vec<(SeriesId, Cell)> {
        let elapsed_ms = self
            .sampled_ns
            .map(|before| now_ns.saturating_sub(before) / 1_000_000);
        let mut samples = Vec::new();
        for (series, value) in &counters {
            let before = self.counters.get(series);
            let Some(difference) = before.and_then(|before| value.checked_sub(*before)) else {
                continue;
            };
            match (BUSY_TIMES.contains(&series.statistic.as_str()), elapsed_ms) {
                (false, _) => samples.push((series.clone(), Cell::of_sample(difference))),
                // Hundredths of the time that passed, rounded.
                (true, Some(elapsed_ms)) if elapsed_ms > 0 => {
                    let percent = (difference.saturating_mul(100) + elapsed_ms / 2) / elapsed_ms;
                    gauges.push((series.clone(), percent.min(100)));
                }
                (true, _) => {}
            }
        }
        (self.counters, self.sampled_ns) = (counters, Some(now_ns));
        samples.extend(
            gauges
                .into_iter()
                .map(|(series, value)| (series, Cell::of_sample(value))),
        );
        samples
    }
}

/// Counters of milliseconds, which are told as a share of the time that passed.
const BUSY_TIMES: [&str; 2] = ["cpu.utilization", "disk.utilization"];

/// Counters and gauges.
type Counted = (BTreeMap<SeriesId, u64>, Vec<(SeriesId, u64)>);

/// Counters and gauges as they are now.
fn counted(host: &Host) -> Counted {
    let (mut counters, mut gauges) = (BTreeMap::new(), Vec::new());
    of_machine(&host.machine_counters(), &mut counters, &mut gauges);
    let layers = registry().snapshot("zfs:0");
    let number = |value: &Value| match value {
        Value::Counter(count) => Some(*count),
        Value::Gauge(value) => u64::try_from(*value).ok(),
        _ => None,
    };
    let of_cache = |name: &str| layers.value("zfs", 0, "arcstats", name).and_then(number);
    for (statistic, key, name) in ARC_GAUGES {
        gauges.extend(of_cache(name).map(|value| (SeriesId::new(statistic, key), value)));
    }
    for (statistic, key, name) in ARC_COUNTERS {
        counters.extend(of_cache(name).map(|value| (SeriesId::new(statistic, key), value)));
    }
    let commits = layers
        .value("zfs", 0, "zil", "zil_commit_count")
        .and_then(number);
    counters.extend(commits.map(|count| (SeriesId::new("zil.commits", &[]), count)));
    (counters, gauges)
}

fn of_machine(
    machine: &MachineCounters,
    counters: &mut BTreeMap<SeriesId, u64>,
    gauges: &mut Vec<(SeriesId, u64)>,
) {
    let mut count = |statistic: &str, key: &[&str], value: u64| {
        // Names of interfaces and disks are short; one that is not is not sampled.
        if key.iter().all(|name| name.len() <= 64) {
            counters.insert(SeriesId::new(statistic, key), value);
        }
    };
    for processor in &machine.processors {
        let number = processor.number.to_string();
        for (mode, milliseconds) in ProcessorTimes::MODES.iter().zip(processor.milliseconds) {
            count("cpu.utilization", &[&number, mode], milliseconds);
        }
    }
    for interface in &machine.interfaces {
        let name = interface.name.as_str();
        count("net.bytes", &[name, "in"], interface.in_bytes);
        count("net.bytes", &[name, "out"], interface.out_bytes);
        count("net.packets", &[name, "in"], interface.in_packets);
        count("net.packets", &[name, "out"], interface.out_packets);
    }
    for disk in &machine.disks {
        let name = disk.name.as_str();
        count("disk.utilization", &[name], disk.busy_milliseconds);
        count("disk.ops", &[name, "read"], disk.reads);
        count("disk.ops", &[name, "write"], disk.writes);
        count("disk.bytes", &[name, "read"], disk.read_bytes);
        count("disk.bytes", &[name, "write"], disk.written_bytes);
    }
    if let Some(memory) = &machine.memory {
        let of_rest = [memory.free, memory.cached, memory.anonymous, memory.slab];
        let known = of_rest
            .iter()
            .fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        for (name, bytes) in [
            ("free", memory.free),
            ("cached", memory.cached),
            ("processes", memory.anonymous),
            ("slab", memory.slab),
            ("other", memory.total.saturating_sub(known)),
        ] {
            gauges.push((SeriesId::new("mem.bytes", &[name]), bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::RealOptions;

    /// Counters of this machine go on between two samples; the first has none.
    #[test]
    fn counters_are_told_from_the_second_sample_on() {
        let host = Host::real(RealOptions::default());
        let mut sampler = Sampler::default();
        let is_counter = |(series, _): &&(SeriesId, Cell)| series.statistic == "net.bytes";
        let first = sampler.sample(&host, 1_000_000_000);
        assert_eq!(first.iter().filter(is_counter).count(), 0);
        assert!(
            first
                .iter()
                .any(|(series, _)| series.statistic == "mem.bytes")
        );
        let second = sampler.sample(&host, 2_000_000_000);
        let of_processors = |(series, _): &&(SeriesId, Cell)| series.statistic == "cpu.utilization";
        let processors: Vec<&(SeriesId, Cell)> = second.iter().filter(of_processors).collect();
        assert!(!processors.is_empty());
        assert!(processors.iter().all(|(_, cell)| cell.sum <= 100));
    }

    #[test]
    fn a_counter_that_went_back_begins_anew_and_busy_time_is_a_share() {
        let disk = |busy_milliseconds, reads| MachineCounters {
            disks: vec![tarn_host::DiskCounters {
                name: "sda".to_owned(),
                busy_milliseconds,
                reads,
                ..tarn_host::DiskCounters::default()
            }],
            ..MachineCounters::default()
        };
        let mut sampler = Sampler::default();
        let (mut reads, mut busy) = (Vec::new(), Vec::new());
        let machines = [disk(100, 50), disk(350, 70), disk(400, 3), disk(9_000, 9)];
        for (second, machine) in (1..).zip(&machines) {
            let (mut counters, mut gauges) = (BTreeMap::new(), Vec::new());
            of_machine(machine, &mut counters, &mut gauges);
            let samples = sampler.difference((counters, gauges), second * 1_000_000_000);
            let of = |series: SeriesId| {
                let sample = samples.iter().find(|(known, _)| *known == series);
                sample.map(|(_, cell)| cell.sum)
            };
            reads.push(of(SeriesId::new("disk.ops", &["sda", "read"])));
            busy.push(of(SeriesId::new("disk.utilization", &["sda"])));
        }
        assert_eq!(reads, [None, Some(20), None, Some(6)]);
        assert_eq!(busy, [None, Some(25), Some(5), Some(100)]);
    }
}
