//! What the machine counts of itself: processors, memory, network interfaces, disks.
//!
//! The texts are those of `/proc/stat`, `/proc/meminfo`, `/proc/net/dev` and `/proc/diskstats`, as
//! proc(5) and the kernel's `admin-guide/iostats` describe them. A line that is not as described is
//! passed over: what it would say is not known.

use std::collections::BTreeSet;

/// Processors, interfaces and disks that are told, of each the first ones.
const LISTED_MAX: usize = 1024;

/// What the machine has counted since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineCounters {
    /// Of each processor.
    pub processors: Vec<ProcessorTimes>,
    /// `None` where it is not known.
    pub memory: Option<MachineMemory>,
    /// Of each network interface.
    pub interfaces: Vec<InterfaceCounters>,
    /// Of each whole disk.
    pub disks: Vec<DiskCounters>,
}

/// Where a processor's time went, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTimes {
    /// Its number.
    pub number: u32,
    /// Milliseconds of each of [`ProcessorTimes::MODES`].
    pub milliseconds: [u64; 7],
}

impl ProcessorTimes {
    /// What a processor is busy with; `iowait` and `idle` are none of them.
    pub const MODES: [&str; 7] = ["user", "nice", "system", "irq", "softirq", "steal", "guest"];
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// All there is.
    pub total: u64,
    /// Used for nothing.
    pub free: u64,
    /// Files and metadata that can be dropped.
    pub cached: u64,
    /// Of processes.
    pub anonymous: u64,
    /// Of the kernel's own tables.
    pub slab: u64,
}

/// Of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Its name.
    pub name: String,
    /// Bytes that came.
    pub in_bytes: u64,
    /// Packets that came.
    pub in_packets: u64,
    /// Bytes that went.
    pub out_bytes: u64,
    /// Packets that went.
    pub out_packets: u64,
}

/// Of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Its name, such as `sda`.
    pub name: String,
    /// Requests that read.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Milliseconds in which a request was under way.
    pub busy_milliseconds: u64,
}

/// Reads the counters of this machine.
pub(crate) fn read() -> MachineCounters {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let ticks = rustix::param::clock_ticks_per_second();
    assert!(ticks > 0, "the system counts ticks");
    let folders = std::fs::read_dir("/sys/block").into_iter().flatten();
    // A slash in the name of a disk is an exclamation mark in the name of its folder.
    let whole: BTreeSet<String> = (folders.flatten())
        .filter_map(|entry| Some(entry.file_name().to_str()?.replace('!', "/")))
        .collect();
    MachineCounters {
        processors: processors_of(&text("/proc/stat"), ticks),
        memory: memory_of(&text("/proc/meminfo")),
        interfaces: interfaces_of(&text("/proc/net/dev")),
        disks: disks_of(&text("/proc/diskstats"), &whole),
    }
}

/// The numbers at the begin of what is left of a line.
fn numbers<const COUNT: usize>(text: &str) -> Option<[u64; COUNT]> {
    let mut numbers = [0; COUNT];
    let mut words = text.split_ascii_whitespace();
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    Some(numbers)
}

/// Of `cpu0 USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL GUEST GUEST_NICE`, in ticks. Time of
/// guests is in that of user and nice too.
fn processors_of(text: &str, ticks: u64) -> Vec<ProcessorTimes> {
    let processor = |line: &str| {
        let (number, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        let number = number.parse().ok()?;
        let [
            user,
            nice,
            system,
            _,
            _,
            irq,
            softirq,
            steal,
            guest,
            guest_nice,
        ] = numbers(rest)?;
        let (user, nice) = (user.saturating_sub(guest), nice.saturating_sub(guest_nice));
        let guests = guest.saturating_add(guest_nice);
        let modes = [user, nice, system, irq, softirq, steal, guests];
        let milliseconds = modes.map(|count| count.saturating_mul(1000) / ticks);
        Some(ProcessorTimes {
            number,
            milliseconds,
        })
    };
    text.lines()
        .filter_map(processor)
        .take(LISTED_MAX)
        .collect()
}

fn memory_of(text: &str) -> Option<MachineMemory> {
    let bytes = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim_end().parse().ok()?;
        kilobytes.checked_mul(1024)
    };
    Some(MachineMemory {
        total: bytes("MemTotal")?,
        free: bytes("MemFree")?,
        cached: bytes("Cached")?.saturating_add(bytes("Buffers")?),
        anonymous: bytes("AnonPages")?,
        slab: bytes("Slab")?,
    })
}

/// Of `NAME: BYTES PACKETS` and six more received, then the same eight sent.
fn interfaces_of(text: &str) -> Vec<InterfaceCounters> {
    let interface = |line: &str| {
        let (name, rest) = line.rsplit_once(':')?;
        let [
            in_bytes,
            in_packets,
            _,
            _,
            _,
            _,
            _,
            _,
            out_bytes,
            out_packets,
        ] = numbers(rest)?;
        Some(InterfaceCounters {
            name: name.trim().to_owned(),
            in_bytes,
            in_packets,
            out_bytes,
            out_packets,
        })
    };
    text.lines()
        .filter_map(interface)
        .take(LISTED_MAX)
        .collect()
}

/// Sectors of `/proc/diskstats` have this size, whatever those of the disk have.
const SECTOR_BYTES: u64 = 512;

/// Of `MAJOR MINOR NAME READS MERGED SECTORS MS WRITES MERGED SECTORS MS IN_FLIGHT BUSY_MS`, those
/// that are whole disks and were ever used.
fn disks_of(text: &str, whole: &BTreeSet<String>) -> Vec<DiskCounters> {
    let disk = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let name = words.nth(2)?;
        let rest: Vec<&str> = words.collect();
        let [
            reads,
            _,
            read,
            _,
            writes,
            _,
            written,
            _,
            _,
            busy_milliseconds,
        ] = numbers(&rest.join(" "))?;
        let is_meant = whole.contains(name) && (reads, writes) != (0, 0);
        is_meant.then(|| DiskCounters {
            name: name.to_owned(),
            reads,
            read_bytes: read.saturating_mul(SECTOR_BYTES),
            writes,
            written_bytes: written.saturating_mul(SECTOR_BYTES),
            busy_milliseconds,
        })
    };
    text.lines().filter_map(disk).take(LISTED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Random;

    const STAT: &str = "\
cpu  4455303 1283984 1386997 1127728 39401 0 25847 8310 5 0
cpu0 2226530 616028 712325 581299 13888 7 9683 4135 3 2
cpu1 2228773 667956 674671 546428 25513 0 16163 4174 0 0
intr 76425334 0 0
ctxt 340803149
";
    const MEMINFO: &str = "\
MemTotal:       24684084 kB
MemFree:         7701672 kB
MemAvailable:   14363520 kB
Buffers:           74292 kB
Cached:         12805388 kB
SwapCached:            0 kB
AnonPages:       3622396 kB
Slab:             392176 kB
";
    const NET: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 496388 77870    0    0    0     0          0         0 496388 77870    0    0    0     0
  eth0:1715312101   58573    0    0    0     0          0         0  3068258   35485    0    0    0
 eth0:1: 7 6 0 0 0 0 0 0 5 4 0 0
";
    const DISKS: &str = "\
   7       9 loop9 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 4367476 287476 228507714 21168921 4675184 1532710 1010641384 6618656 0 1326928 28
 254       1 vda1 1 2 3 4 5 6 7 8 9 10 11
 104       0 cciss/c0d0 1 2 3 4 5 6 7 8 0 10 11
";

    fn whole() -> BTreeSet<String> {
        ["loop9", "vda", "cciss/c0d0"].map(str::to_owned).into()
    }

    #[test]
    fn the_texts_of_linux_are_read() {
        let processors = processors_of(STAT, 100);
        assert_eq!(processors.len(), 2);
        let milliseconds = [22_265_270, 6_160_260, 7_123_250, 70, 96_830, 41_350, 50];
        assert_eq!(
            processors[0],
            ProcessorTimes {
                number: 0,
                milliseconds
            }
        );
        let memory = memory_of(MEMINFO).unwrap();
        assert_eq!(memory.total, 24_684_084 * 1024);
        assert_eq!(memory.cached, (12_805_388 + 74_292) * 1024);
        let interfaces = interfaces_of(NET);
        let names: Vec<&str> = interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["lo", "eth0", "eth0:1"]);
        assert_eq!(
            (interfaces[1].in_bytes, interfaces[1].out_packets),
            (1_715_312_101, 35_485)
        );
        let disks = disks_of(DISKS, &whole());
        let names: Vec<&str> = disks.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["vda", "cciss/c0d0"]);
        assert_eq!(
            (disks[0].writes, disks[0].busy_milliseconds),
            (4_675_184, 1_326_928)
        );
        assert_eq!(disks[1].written_bytes, 7 * 512);
    }

    /// Texts are cut and bytes overwritten: what is left is read, and nothing panics.
    #[test]
    fn any_texts_are_read_or_passed_over() {
        let mut random = Random::new(9);
        for text in [STAT, MEMINFO, NET, DISKS] {
            for _ in 0..2000 {
                let mut bytes = text.as_bytes().to_vec();
                bytes.truncate(random.index(bytes.len()) + 1);
                let at = random.index(bytes.len());
                bytes[at] = b"0 9:\n-x"[random.index(7)];
                let text = String::from_utf8(bytes).unwrap();
                let _ = (processors_of(&text, 100), memory_of(&text));
                let _ = (interfaces_of(&text), disks_of(&text, &whole()));
            }
        }
        assert!(processors_of("cpu0 18446744073709551615 1 2 3 4 5 6 7 8 9", 100).len() == 1);
    }

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let counters = read();
        assert!(!counters.processors.is_empty());
        assert!(
            counters
                .memory
                .is_some_and(|memory| memory.free < memory.total)
        );
    }
}
