//! What Analytics costs, and how fast it answers, beside the bars that are set for it.
//!
//! Prints one line of tab-separated fields for each bar, after a line that names them:
//!
//! ```text
//! bar  what  measured  unit  target
//! ```
//!
//! A measured figure is good where it is at most the target; bars that ask for at least something
//! begin with `-`. `cargo xtask bench --only analytics` runs it in release and judges.
//!
//! Arguments: the number of operations that queries go over, 12,000,000 without; then the parts
//! that are measured, all without: `request` (B1, B9), `live` (B3), `collector` (B6, B7, B11),
//! `queries` (B8, B10, B16, B18).

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tarn_analytics::{
    Analytics, Breakdown, CompiledPredicate, DEFAULT_BUDGET_BYTES, Field, Order, Query, Statement,
    ValueNames,
};
use tarn_host::sim::Random;
use tarn_host::{Host, RealOptions};
use tarn_probe::{
    BUCKET_COUNT, ClientId, DatasetId, DatasetPlace, DatasetStatistics, HistogramSnapshot,
    HolderId, Operation, OperationKind, OperationRecord, Outcome, Protocol, Stage, What, Who,
    registry,
};

/// Operations between two looks at the clock: its own cost is spread over them.
const ROUND: usize = 64;
/// How many rounds are measured.
const ROUNDS: usize = 20_000;
/// Operations a second of the time that queries go over.
const RATE: u64 = 20_000;
/// When that time begins, by the clock of operations.
const BEGAN_NS: u64 = 1_000_000_000;
/// Operations that are waited for one after another.
const FRESH: u32 = 100;
/// Instrumentations that count at the same time.
const INSTRUMENTATIONS: usize = 12;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().and_then(|count| count.parse().ok());
    let count: usize = wanted.unwrap_or(12_000_000);
    let parts: Vec<String> = arguments.collect();
    let is_asked = |part: &str| parts.is_empty() || parts.iter().any(|asked| asked == part);
    println!("bar\twhat\tmeasured\tunit\ttarget");
    if is_asked("request") {
        request_path();
    }
    let records = operations(count);
    if is_asked("live") {
        live(&records);
    }
    if !is_asked("collector") && !is_asked("queries") {
        return;
    }
    let end_ns = records.last().map_or(0, OperationRecord::ended_ns) + 1;
    let range_ns = BEGAN_NS..end_ns;
    let analytics = Arc::new(collector(&records));
    drop(records);
    if !is_asked("queries") {
        return;
    }
    resolution();
    let host = Host::real(RealOptions::default());
    // Queries use the processors of its machine.
    let _collector = analytics.start(&host);
    queries(&analytics, count, &range_ns);
    freshness(&analytics);
}

fn tell(bar: &str, what: &str, measured: f64, unit: &str, target: &str) {
    println!("{bar}\t{what}\t{measured:.2}\t{unit}\t{target}");
}

fn who(client: u32) -> Who {
    Who {
        client: ClientId(client),
        protocol: Protocol::Nfs3,
        user: 1000,
        holder: HolderId::NONE,
    }
}

/// B1: an operation from begin to end in one thread, with the statistics of its dataset;
/// with and without a ring that takes its record.
fn request_path() {
    let place = DatasetPlace {
        pool: "tank".to_owned(),
        pool_guid: 1,
        object: 54,
        guid: 1,
    };
    let dataset = DatasetStatistics::register(registry(), &place, "tank", Arc::default());
    let analytics = Analytics::new(0);
    let (mut medians, mut passes_ns) = (Vec::new(), 0.0);
    for is_kept in [false, true] {
        let mut rounds: Vec<f64> = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            let began = Instant::now();
            for number in 0..ROUND {
                let what = What {
                    kind: OperationKind::Read,
                    dataset: dataset.id(),
                    object: u64::try_from(number).expect("a small number"),
                    offset: 4096,
                    size: 4096,
                };
                let operation = Operation::begin(tarn_host::operation_clock_ns, who(17), what);
                operation.mark(Outcome::CacheHit);
                black_box(operation.finish_with(dataset.operations()));
            }
            rounds.push(nanoseconds(began) / as_f64(ROUND));
            if is_kept && round % 64 == 63 {
                let began_ns = processor_ns();
                analytics.pass(tarn_host::monotonic_ns());
                passes_ns += processor_ns() - began_ns;
            }
        }
        rounds.sort_by(f64::total_cmp);
        medians.push((rounds[ROUNDS / 2], rounds[ROUNDS * 99 / 100]));
    }
    let ((plain, _), (kept, kept_p99)) = (medians[0], medians[1]);
    tell(
        "B1",
        "request path of an operation, median",
        kept,
        "ns",
        "40",
    );
    tell(
        "B1",
        "request path of an operation, 99 %",
        kept_p99,
        "ns",
        "150",
    );
    // No part of the first: without a collector, a thread counts its operations itself.
    eprintln!("without a collector an operation takes {plain:.0} ns");
    let pass_ns = passes_ns / as_f64(ROUND * ROUNDS);
    eprintln!("a pass takes {pass_ns:.0} ns for each operation, with what drains the rings");
    let mut off_ns = 0;
    for _ in 0..ROUNDS {
        let before_ns = tarn_host::monotonic_ns();
        let what = What::plain(OperationKind::Read, dataset.id(), 7);
        let operation = Operation::begin(tarn_host::operation_clock_ns, who(17), what);
        let record = operation.finish_with(dataset.operations());
        let after_ns = tarn_host::monotonic_ns();
        let ended_ns = record.ended_ns();
        off_ns = off_ns.max(before_ns.saturating_sub(ended_ns) + ended_ns.saturating_sub(after_ns));
    }
    let what = "time of a record, furthest from its operation's end";
    tell("B9", what, off_ns as f64 / 1e6, "ms", "1");
}

/// B10: how wide a bucket is beside its values, and how much a latency may be off.
fn resolution() {
    let mut widest = 0_f64;
    // From 64 ns to 137 s; the first bucket and the last have what is beyond.
    for bucket in 1..BUCKET_COUNT - 1 {
        let (low, high) = HistogramSnapshot::range_of(bucket);
        widest = widest.max((high - low + 1) as f64 / low as f64);
    }
    tell(
        "B10",
        "width of a bucket of the archive",
        widest * 100.0,
        "%",
        "6.25",
    );
    let mut random = Random::new(3);
    let mut off = 0_f64;
    for _ in 0..100_000 {
        let latency_ns = 64 + random.magnitude(137_000_000_000);
        let what = What::plain(OperationKind::Read, DatasetId(1), 7);
        let stages = [0; Stage::COUNT];
        let record = OperationRecord::new(0, latency_ns, &who(17), &what, 0, &stages);
        let error = latency_ns.abs_diff(record.latency_ns());
        off = off.max(error as f64 / latency_ns as f64);
    }
    let what = "error of a latency in the flight recorder";
    tell("B10", what, off * 100.0, "%", "0.8");
}

/// B16: how long after its end an operation is in an answer. The page asks once a second: what is
/// left of 1.5 s for the way to it.
fn freshness(analytics: &Analytics) {
    let mut took: Vec<f64> = Vec::new();
    for number in 0..FRESH {
        let client = 1_000_000 + number;
        let what = What::plain(OperationKind::Lookup, DatasetId(1), 7);
        Operation::begin(tarn_host::monotonic_ns, who(client), what).finish();
        let began = Instant::now();
        let is_it = CompiledPredicate::has_key(Field::Client, client.into());
        let since_ns = tarn_host::monotonic_ns() - 1_000_000_000;
        let recorder = analytics.flight_recorder();
        let held = || {
            recorder
                .operations(&(since_ns..u64::MAX), &is_it, Order::Oldest, 0)
                .count
        };
        while held() == 0 {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        took.push(nanoseconds(began) / 1e6);
    }
    took.sort_by(f64::total_cmp);
    let what = "end of an operation to an answer that has it, 95 %";
    tell("B16", what, took[took.len() * 95 / 100], "ms", "500");
}

/// Operations of a server: few clients, many files, latencies of a cache, an SSD and a disk.
fn operations(count: usize) -> Vec<OperationRecord> {
    let mut random = Random::new(7);
    let mut ended_ns = BEGAN_NS;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        ended_ns += random.below(2 * 1_000_000_000 / RATE);
        all.push(any_operation(&mut random, ended_ns));
    }
    all
}

fn any_operation(random: &mut Random, ended_ns: u64) -> OperationRecord {
    let (cause, latency_ns) = match random.below(100) {
        0..70 => (Outcome::CacheHit, 4_000 + random.below(30_000)),
        70..90 => (Outcome::SecondLevel, 90_000 + random.below(100_000)),
        _ => (Outcome::Disk, 2_000_000 + random.below(14_000_000)),
    };
    let kinds = [
        OperationKind::Read,
        OperationKind::Read,
        OperationKind::Write,
        OperationKind::GetAttributes,
        OperationKind::Lookup,
    ];
    let kind = kinds[random.index(kinds.len())];
    // Of 100,000 files a fifth has most of the operations.
    let file = match random.chance(4, 5) {
        true => random.below(20_000),
        false => random.below(100_000),
    };
    let what = What {
        kind,
        dataset: DatasetId(u32::try_from(random.below(4)).expect("a small number") + 1),
        object: 128 + file,
        offset: random.below(256) * 131_072,
        size: 131_072 >> random.below(6),
    };
    let mut stages = [0; Stage::COUNT];
    stages[Stage::Device.index()] = match cause {
        Outcome::Disk => latency_ns / 10 * 9,
        _ => 0,
    };
    let client = u32::try_from(16 + random.below(40)).expect("a small number");
    let began_ns = ended_ns - latency_ns.min(ended_ns);
    OperationRecord::new(
        began_ns,
        latency_ns,
        &who(client),
        &what,
        cause.bit(),
        &stages,
    )
}

/// What a statement means.
fn meant(text: &str) -> (CompiledPredicate, Breakdown) {
    let statement = Statement::parse(text).expect("a statement of this program");
    let predicate = statement.predicate.compile(&ValueNames::new());
    (predicate.expect("it has no names"), statement.breakdown())
}

/// How much of a processor's time a collector takes for each of these operations.
fn taken_ns(analytics: &Analytics, records: &[OperationRecord]) -> f64 {
    let began_ns = processor_ns();
    for chunk in records.chunks(4096) {
        analytics.take(chunk);
    }
    (processor_ns() - began_ns) / as_f64(records.len())
}

/// The time that this thread had a processor: what other programs take does not count.
fn processor_ns() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat");
    let told = told.expect("the kernel tells times of threads");
    let first = told.split(' ').next().and_then(|first| first.parse().ok());
    first.expect("it begins with nanoseconds")
}

/// B3: what each instrumentation takes of the collector's time for an operation.
fn live(records: &[OperationRecord]) {
    let analytics = Analytics::new(DEFAULT_BUDGET_BYTES);
    let records = &records[..records.len() / 4];
    let alone_ns = taken_ns(&analytics, records);
    for number in 0..INSTRUMENTATIONS {
        let texts = [
            "nfs.ops[op=read][client]:latency",
            "nfs.ops[file]",
            "nfs.ops[cause]:size",
            "nfs.bytes[dataset]:offset",
        ];
        let (predicate, breakdown) = meant(texts[number % texts.len()]);
        let begun = analytics.instrument(predicate, breakdown, 20, 0);
        begun.expect("there is room for some instrumentations");
    }
    let each_ns = (taken_ns(&analytics, records) - alone_ns) / as_f64(INSTRUMENTATIONS);
    let what = "each live drill-down, on the collector";
    tell("B3", what, each_ns, "ns/op", "10");
}

/// B6: what the collector takes for each operation.
fn collector(records: &[OperationRecord]) -> Analytics {
    let analytics = Analytics::new(DEFAULT_BUDGET_BYTES);
    let alone_ns = taken_ns(&analytics, records);
    for (rate, name, target) in [(1e5, "100,000", "3"), (5e5, "500,000", "15")] {
        let what = format!("collector at {name} operations a second");
        let percent = alone_ns * rate / 1e9 * 100.0;
        tell("B6", &what, percent, "% of a core", target);
    }
    window(&analytics);
    analytics
}

/// B7 and B11: how much is held, and in how many bytes.
fn window(analytics: &Analytics) {
    let state = analytics.flight_recorder().state();
    let held = usize::try_from(state.held).expect("it is held here");
    let bytes = as_f64(state.bytes) / as_f64(held);
    let room = as_f64(DEFAULT_BUDGET_BYTES) / bytes;
    let minutes = |rate: f64| room / rate / 60.0;
    tell(
        "B7",
        "bytes of an operation that is held",
        bytes,
        "bytes",
        "16",
    );
    tell(
        "B11",
        "window at 20,000 operations a second",
        minutes(2e4),
        "minutes",
        "-30",
    );
    tell(
        "B11",
        "window at 100,000 operations a second",
        minutes(1e5),
        "minutes",
        "-5",
    );
}

/// B18: questions after the fact over all of them. B8: each operation is in one group, or with the
/// others, as another scan counts them.
fn queries(analytics: &Analytics, count: usize, range_ns: &Range<u64>) {
    let (mut took, mut elsewhere) = (Vec::new(), 0);
    for text in [
        "nfs.ops:latency",
        "nfs.ops[op]:latency",
        "nfs.ops[client]:latency",
        "nfs.ops[file]",
        "nfs.ops[file]:latency",
        "nfs.ops[client][file]",
        "nfs.ops[latency>10ms][file]:latency",
        "nfs.ops[client=#17][op=read][file]:latency",
        "nfs.bytes[file]",
        "nfs.wait[cause]:latency",
    ] {
        let (predicate, breakdown) = meant(text);
        let column_ns = ((range_ns.end - range_ns.start) / 600).max(1_000_000_000);
        let query = Query {
            range_ns: range_ns.clone(),
            column_ns,
            predicate: predicate.clone(),
            breakdown,
            keys_max: 20,
        };
        let began = Instant::now();
        let answer = analytics.flight_recorder().answer(&query);
        let answer = black_box(answer.expect("the answer is of a size that is given"));
        let answer_ms = nanoseconds(began) / 1e6;
        let began = Instant::now();
        let listed = analytics.flight_recorder();
        let listed = black_box(listed.operations(range_ns, &predicate, Order::Slowest, 20));
        let list_ms = nanoseconds(began) / 1e6;
        eprintln!("{text}: {answer_ms:.0} ms, the slowest of them {list_ms:.0} ms");
        took.extend([answer_ms, list_ms]);
        let groups = answer.groups.iter().flat_map(|group| &group.series);
        let counted: u64 = groups.chain(&answer.other).map(|tally| tally.count).sum();
        elsewhere += counted.abs_diff(listed.count);
    }
    let what = "operations that are in no group, or in two";
    tell("B8", what, elsewhere as f64, "", "0");
    took.sort_by(f64::total_cmp);
    let what = format!("question over {count} operations, 95 %");
    tell("B18", &what, took[took.len() * 95 / 100], "ms", "500");
}

fn nanoseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e9
}

fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}
