//! How much the archive takes, and how fast it opens and answers, beside the bars that are set.
//!
//! Prints lines as the example `bars` of `tarn-analytics` does; `cargo xtask bench --only
//! analytics` judges them. The archive is made in memory and then copied to a folder for temporary
//! files: so nothing waits for half a million syncs.
//!
//! Arguments: the days that are archived, 14 without; `collecting`, which measures B6 alone.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tarn_analytics::{Analytics, Collected, DEFAULT_BUDGET_BYTES, Tally, ValueNames};
use tarn_archive::{
    Archive, ArchiveQuery, Asked, Cell, Column, ColumnHead, DEFAULT_CAP_BYTES, Gatherer, SeriesId,
};
use tarn_host::sim::Random;
use tarn_host::{Host, RealOptions, SimHost, SimOptions};
use tarn_probe::{
    ClientId, DatasetId, HolderId, OperationKind, OperationRecord, Outcome, Protocol, Stage, What,
    Who,
};

/// A day begins then.
const BEGIN_S: u64 = 1_700_006_400;
const DAY_S: u64 = 86_400;
/// Heat maps and scalars of the set that bar B12 is about.
const MAPS: usize = 12;
const SCALARS: usize = 200;
/// Operations a second of each heat map.
const OPERATIONS: u64 = 20_000;
/// Seconds that are drawn; those of the archive are chosen among them at random.
const DRAWN: usize = 64;
/// Seconds of operations that the collector takes.
const COLLECTED_S: u32 = 10;
/// Questions of each kind.
const QUESTIONS: usize = 15;

fn main() {
    let argument = std::env::args().nth(1);
    let wanted = argument.and_then(|days| days.parse().ok());
    let days: u64 = wanted.unwrap_or(14);
    println!("bar\twhat\tmeasured\tunit\ttarget");
    if std::env::args()
        .nth(2)
        .is_some_and(|part| part == "collecting")
    {
        return collecting();
    }
    let mut random = Random::new(1);
    let drawn: Vec<Cell> = (0..DRAWN).map(|_| latencies(&mut random)).collect();
    sizes(&drawn, &mut random);
    collecting();
    let folder = std::env::temp_dir().join(format!("tarn-archive-bars-{}", std::process::id()));
    let until_s = BEGIN_S + days * DAY_S;
    fill(&folder, &drawn, &mut random, until_s);
    retention(&folder, days);
    answers(&folder, until_s);
    let removed = std::fs::remove_dir_all(&folder);
    removed.expect("the folder is there");
}

fn tell(bar: &str, what: &str, measured: f64, unit: &str, target: &str) {
    println!("{bar}\t{what}\t{measured:.2}\t{unit}\t{target}");
}

/// Latencies of hits of the cache and of reads of disks.
fn latencies(random: &mut Random) -> Cell {
    let mut tally = Tally::default();
    for _ in 0..OPERATIONS {
        let (middle_ns, spread) = match random.below(10) {
            0 => (4_000_000.0, 0.5),
            _ => (12_000.0, 0.35),
        };
        // The sum of twelve numbers is all but normal.
        let sum: u64 = (0..12).map(|_| random.below(1 << 20)).sum();
        let normal = sum as f64 / f64::from(1 << 20) - 6.0;
        tally.add(1, Some((middle_ns * (normal * spread).exp()) as u64));
    }
    Cell::of_tally(&tally)
}

/// The series of the set, made once.
struct Set {
    maps: Vec<Arc<SeriesId>>,
    scalars: Vec<Arc<SeriesId>>,
    /// Where scalars are that walk.
    pages: Vec<u64>,
}

impl Set {
    fn new(maps: usize, scalars: usize) -> Set {
        let map = |number: usize| {
            let statistic = match number {
                0 => "nfs.ops[cause]:latency".to_owned(),
                _ => format!("map{number}"),
            };
            Arc::new(SeriesId::new(&statistic, &["disk"]))
        };
        let scalar = |number: usize| {
            Arc::new(SeriesId::new(
                "disk.bytes",
                &[&format!("sd{number}"), "read"],
            ))
        };
        Set {
            maps: (0..maps).map(map).collect(),
            scalars: (0..scalars).map(scalar).collect(),
            pages: vec![1_000_000; scalars],
        }
    }

    fn second(&mut self, start_s: u64, drawn: &[Cell], random: &mut Random) -> Column {
        let mut cells: Vec<(Arc<SeriesId>, Cell)> = (self.maps.iter())
            .map(|map| (map.clone(), drawn[random.index(drawn.len())].clone()))
            .collect();
        for (number, scalar) in self.scalars.iter().enumerate() {
            let value = match number % 10 {
                0..5 => 0,
                5 => random.below(4),
                6 => 80 + random.below(20),
                7 => 3000 + random.below(400),
                8 => 7,
                _ => {
                    self.pages[number] = self.pages[number] + random.below(200) - 100;
                    self.pages[number] * 4096
                }
            };
            cells.push((scalar.clone(), Cell::of_sample(value)));
        }
        let head = ColumnHead::of_second(Collected::Whole, 0);
        Column {
            start_s,
            head,
            cells,
        }
    }
}

fn in_memory() -> (Host, &'static Path) {
    (Host::simulated(SimOptions::seed(1)), Path::new("/archive"))
}

/// B6: what the collector and the archive take of a processor for all that the archive counts: by
/// the clock of a simulated machine, whose seconds are over at once, and the time of this thread.
fn collecting() {
    for (rate, name, target) in [(100_000, "100,000", "3"), (500_000, "500,000", "15")] {
        let machine = SimHost::new(SimOptions::seed(1));
        let took = machine.run(|host| {
            let archive = Archive::open(host, Path::new("/archive"), DEFAULT_CAP_BYTES);
            let archive = Arc::new(archive.expect("it is new"));
            let analytics = Arc::new(Analytics::new(DEFAULT_BUDGET_BYTES));
            let mut gatherer = Gatherer::new(host, archive, analytics.clone());
            let (names, mut random) = (ValueNames::new(), Random::new(4));
            let mut took_ns = 0.0;
            for _ in 0..COLLECTED_S {
                // A moment after the begin of a second, as the thread of the archive has it.
                let now_ns = host.monotonic_ns();
                let records = operations(&mut random, rate, now_ns);
                let began_ns = processor_ns();
                records.chunks(4096).for_each(|part| analytics.take(part));
                took_ns += processor_ns() - began_ns;
                host.sleep(Duration::from_secs(1));
                let began_ns = processor_ns();
                analytics.note_collected(now_ns..host.monotonic_ns(), 0);
                gatherer.gather(host, &names);
                took_ns += processor_ns() - began_ns;
            }
            took_ns / f64::from(COLLECTED_S)
        });
        let percent = took.expect("nothing stops it") / 1e9 * 100.0;
        let what = format!("collector with the archive, {name} op/s");
        tell("B6", &what, percent, "% of a core", target);
    }
}

/// Operations of a second, of all protocols that are archived.
fn operations(random: &mut Random, rate: u64, from_ns: u64) -> Vec<OperationRecord> {
    let protocols = [
        Protocol::Nfs3,
        Protocol::Nfs4,
        Protocol::Iscsi,
        Protocol::Fuse,
    ];
    let kinds = [
        OperationKind::Read,
        OperationKind::Write,
        OperationKind::GetAttributes,
    ];
    let outcomes = [
        Outcome::CacheHit,
        Outcome::CacheHit,
        Outcome::Disk,
        Outcome::Log,
    ];
    let one = |number: u64| {
        let small = |number: u64| u32::try_from(number).expect("a small number");
        let who = Who {
            client: ClientId(small(16 + random.below(40))),
            protocol: protocols[random.index(protocols.len())],
            user: 1000 + small(random.below(10)),
            holder: HolderId::NONE,
        };
        let what = What {
            kind: kinds[random.index(kinds.len())],
            dataset: DatasetId(small(1 + random.below(4))),
            object: 128 + random.below(100_000),
            offset: random.below(256) * 131_072,
            size: 131_072 >> random.below(6),
        };
        let latency_ns = 4_000 + random.magnitude(14_000_000);
        let outcome = outcomes[random.index(outcomes.len())].bit();
        let ended_ns = from_ns + number * (1_000_000_000 / rate);
        let began_ns = ended_ns.saturating_sub(latency_ns);
        OperationRecord::new(
            began_ns,
            latency_ns,
            &who,
            &what,
            outcome,
            &[0; Stage::COUNT],
        )
    };
    (0..rate).map(one).collect()
}

/// The time that this thread had a processor: what other programs take does not count.
fn processor_ns() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat");
    let told = told.expect("the kernel tells times of threads");
    let first = told.split(' ').next().and_then(|first| first.parse().ok());
    first.expect("it begins with nanoseconds")
}

/// B12: bytes of the blocks of an hour.
fn sizes(drawn: &[Cell], random: &mut Random) {
    let an_hour = |maps: usize, scalars: usize, random: &mut Random| {
        let (host, folder) = in_memory();
        let archive = Archive::open(&host, folder, DEFAULT_CAP_BYTES).expect("it is new");
        let mut set = Set::new(maps, scalars);
        for start_s in BEGIN_S..BEGIN_S + 3604 {
            let second = set.second(start_s, drawn, random);
            archive.append(second).expect("there is room");
        }
        let files = host
            .list_directory(folder)
            .expect("it is there")
            .into_iter();
        let blocks = files.filter(|file| file.path.to_string_lossy().ends_with(".block"));
        let bytes = blocks.map(|file| host.file_size_bytes(&file.path).expect("it is there"));
        bytes.sum::<u64>() as f64
    };
    let map = an_hour(1, 0, random) / 3600.0;
    tell(
        "B12",
        "heat map of 20,000 operations a second",
        map,
        "B/s",
        "150",
    );
    let scalar = an_hour(0, SCALARS, random) / 3600.0 / SCALARS as f64;
    tell("B12", "scalar", scalar, "B/sample", "1");
    let day = an_hour(MAPS, SCALARS, random) * 24.0 / 1e6;
    tell(
        "B12",
        "12 heat maps and 200 scalars, with minutes",
        day,
        "MB/day",
        "180",
    );
}

/// Makes an archive up to a second.
fn fill(folder: &Path, drawn: &[Cell], random: &mut Random, until_s: u64) {
    let (host, in_memory) = in_memory();
    let archive = Archive::open(&host, in_memory, DEFAULT_CAP_BYTES).expect("it is new");
    let mut set = Set::new(MAPS, SCALARS);
    for start_s in BEGIN_S..until_s {
        let second = set.second(start_s, drawn, random);
        archive.append(second).expect("there is room");
    }
    std::fs::create_dir_all(folder).expect("there is a folder for temporary files");
    for file in host.list_directory(in_memory).expect("it is there") {
        let name = file.path.file_name().expect("files have names");
        let contents = host.read_file(&file.path).expect("it is there");
        std::fs::write(folder.join(name), contents).expect("there is room");
    }
}

/// B13: what is kept for how long takes of the cap.
fn retention(folder: &Path, days: u64) {
    let mut bytes = 0.0;
    for (tier, kept_days) in [("1s-", 14.0), ("1m-", 180.0), ("1h-", 5.0 * 365.0)] {
        let files = std::fs::read_dir(folder).expect("it is there").flatten();
        let of_tier = files.filter(|file| file.file_name().to_string_lossy().starts_with(tier));
        let sizes = of_tier.map(|file| file.metadata().expect("it is there").len());
        let of_tier: u64 = sizes.map(|bytes| bytes.next_multiple_of(4096)).sum();
        bytes += of_tier as f64 / days as f64 * kept_days;
    }
    let what = "14 days of 1 s, 180 of 1 min, 5 years of 1 h";
    tell("B13", what, bytes / f64::from(1 << 30), "GiB", "4");
}

/// B14: minutes that are not the merge of their seconds.
fn merges(archive: &Archive, until_s: u64) {
    let ask = |from_s: u64, column_s: u64| {
        let query = ArchiveQuery {
            asked: Asked::parse("nfs.ops[cause]:latency").expect("it is a statement"),
            range_s: from_s..from_s + 3600,
            column_s,
            keys_max: 10,
        };
        archive.answer(&query).expect("it is kept").total
    };
    let mut others = 0;
    for from_s in (BEGIN_S..until_s - 3600).step_by(6 * 3600) {
        let (seconds, minutes) = (ask(from_s, 1), ask(from_s, 60));
        for (minute, seconds) in minutes.iter().zip(seconds.chunks(60)) {
            let mut merged = Cell::default();
            seconds.iter().for_each(|second| merged.merge(second));
            others += u32::from(merged != *minute);
        }
    }
    let what = "minutes that are no merge of their seconds";
    tell("B14", what, others.into(), "", "0");
}

/// B15 and B17: opening, and questions over ranges of all lengths.
fn answers(folder: &Path, until_s: u64) {
    let host = Host::real(RealOptions::default());
    let began = Instant::now();
    let archive = Archive::open(&host, folder, DEFAULT_CAP_BYTES).expect("it is there");
    let opened_ms = began.elapsed().as_secs_f64() * 1e3;
    let state = archive.state();
    let gigabytes = state.bytes as f64 / f64::from(1 << 30);
    let what = format!("opening {gigabytes:.1} GiB in {} files", state.blocks);
    tell("B15", &what, opened_ms, "ms", "1000");
    merges(&archive, until_s);
    let mut random = Random::new(2);
    for (name, length_s) in [
        ("30 minutes", 1800),
        ("6 hours", 6 * 3600),
        ("29 hours", 29 * 3600),
        ("7 days", 7 * DAY_S),
        ("14 days", 14 * DAY_S),
    ] {
        let length_s = length_s.min(until_s - BEGIN_S);
        let mut took: Vec<f64> = (0..QUESTIONS)
            .map(|_| {
                let latest_s = until_s - length_s;
                let from_s = BEGIN_S + random.below(latest_s - BEGIN_S + 1);
                question(&archive, from_s, length_s)
            })
            .collect();
        took.sort_by(f64::total_cmp);
        let p95 = took[QUESTIONS * 95 / 100];
        let what = format!("1,800 columns of {name}, p95");
        tell("B17", &what, p95, "ms", "250");
    }
}

fn question(archive: &Archive, from_s: u64, length_s: u64) -> f64 {
    let query = ArchiveQuery {
        asked: Asked::parse("nfs.ops:latency").expect("it is a statement"),
        range_s: from_s..from_s + length_s,
        column_s: length_s.div_ceil(1800),
        keys_max: 10,
    };
    let began = Instant::now();
    let answer = archive.answer(&query).expect("it is kept");
    let took_ms = began.elapsed().as_secs_f64() * 1e3;
    assert!(answer.total.iter().all(|cell| cell.count > 0));
    took_ms
}
