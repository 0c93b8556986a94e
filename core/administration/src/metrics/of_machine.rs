//! Metrics of the machine: processors, memory, interfaces and disks, from `/proc`.

use super::metric_families::{COUNTER, COUNTER_OF_TIME, Families, GAUGE, labels};
use crate::messages::metrics::MetricValue;
use tarn_host::{MachineCounters, ProcessorTimes};

const MILLISECOND_NS: u64 = 1_000_000;

/// Adds them.
pub(super) fn add(families: &mut Families, machine: &MachineCounters) {
    add_processors(families, machine);
    let mut count = |name: &str, help: &str, of: &[(&str, &str)], value: u64| {
        families.add(name, help, COUNTER, labels(of), MetricValue::Whole(value));
    };
    for interface in &machine.interfaces {
        for (direction, bytes, packets) in [
            ("in", interface.in_bytes, interface.in_packets),
            ("out", interface.out_bytes, interface.out_packets),
        ] {
            let of = [("direction", direction), ("interface", &interface.name)];
            count(
                "tarn_net_bytes_total",
                "Bytes of network interfaces.",
                &of,
                bytes,
            );
            count(
                "tarn_net_packets_total",
                "Packets of network interfaces.",
                &of,
                packets,
            );
        }
    }
    for disk in &machine.disks {
        for (direction, requests, bytes) in [
            ("read", disk.reads, disk.read_bytes),
            ("write", disk.writes, disk.written_bytes),
        ] {
            let of = [("direction", direction), ("disk", &disk.name)];
            count(
                "tarn_disk_requests_total",
                "Requests of disks.",
                &of,
                requests,
            );
            count("tarn_disk_bytes_total", "Bytes of disks.", &of, bytes);
        }
    }
    for disk in &machine.disks {
        families.add(
            "tarn_disk_busy_seconds_total",
            "Time that disks were busy.",
            COUNTER_OF_TIME,
            labels(&[("disk", &disk.name)]),
            MetricValue::Whole(disk.busy_milliseconds.saturating_mul(MILLISECOND_NS)),
        );
    }
    let memory = machine.memory.iter().flat_map(|memory| {
        [
            ("total", memory.total),
            ("free", memory.free),
            ("cached", memory.cached),
            ("processes", memory.anonymous),
            ("slab", memory.slab),
        ]
    });
    for (use_of, bytes) in memory {
        families.add(
            "tarn_mem_bytes",
            "Memory of the machine.",
            GAUGE,
            labels(&[("use", use_of)]),
            MetricValue::Whole(bytes),
        );
    }
}

fn add_processors(families: &mut Families, machine: &MachineCounters) {
    for processor in &machine.processors {
        let number = processor.number.to_string();
        for (mode, milliseconds) in ProcessorTimes::MODES.iter().zip(processor.milliseconds) {
            families.add(
                "tarn_cpu_seconds_total",
                "Time of processors.",
                COUNTER_OF_TIME,
                labels(&[("cpu", &number), ("mode", mode)]),
                MetricValue::Whole(milliseconds.saturating_mul(MILLISECOND_NS)),
            );
        }
    }
}
