//! Sums agree: predicates, breakdowns, columns, rectangles and live results, held against plain
//! loops over plain vectors.

mod support;

use std::collections::BTreeMap;

use support::{SECOND_NS, any_record, compiled, plain, query};
use tarn_analytics::{
    Analytics, Collected, CompiledPredicate, Field, Measure, Order, QueryError, Tally,
};
use tarn_host::sim::Random;
use tarn_probe::{HistogramSnapshot, OperationKind, OperationRecord, Outcome, Protocol, Stage};

const FROM_NS: u64 = 5000 * SECOND_NS;
const SECONDS: u64 = 8;

/// Operations of eight seconds, so many that most are packed, with the vector of all.
fn filled(seed: u64, count: u64) -> (Analytics, Vec<OperationRecord>) {
    let mut random = Random::new(seed);
    let step_ns = SECONDS * SECOND_NS / count;
    let record = |random: &mut Random, i| any_record(random, FROM_NS + i * step_ns);
    let records: Vec<_> = (0..count).map(|i| record(&mut random, i)).collect();
    let analytics = Analytics::new(0);
    for part in records.chunks(777) {
        analytics.take(part);
    }
    analytics.note_collected(FROM_NS..FROM_NS + SECONDS * SECOND_NS, 0);
    (analytics, records)
}

type Meaning = Box<dyn Fn(&OperationRecord) -> bool>;

fn means(text: &str, meaning: impl Fn(&OperationRecord) -> bool + 'static) -> (String, Meaning) {
    (text.to_owned(), Box::new(meaning))
}

/// A comparison as text, and as a plain function.
fn any_comparison(random: &mut Random) -> (String, Meaning) {
    let number = random.below(100_000);
    let comparisons: Vec<(String, Meaning)> = vec![
        means("op=read", |r| r.kind() == Some(OperationKind::Read)),
        means("op in (write, lookup)", |r| {
            r.kind() != Some(OperationKind::Read)
        }),
        means("protocol prefix nfs", |r| {
            r.protocol() != Some(Protocol::Fuse)
        }),
        means("client=10.0.0.1", |r| r.client.0 == 17),
        means("client != #19", |r| r.client.0 != 19),
        means("user > 1000", |r| r.user > 1000),
        means("dataset prefix tank", |r| r.dataset.0 == 1),
        means("file=/seven", |r| (r.dataset.0, r.object()) == (1, 7)),
        means("file in (#1:3, #2:3, #2:4)", |r| {
            r.object() == 3 || (r.dataset.0, r.object()) == (2, 4)
        }),
        means("outcome=disk", |r| r.is_marked(Outcome::Disk)),
        means("failed=yes", |r| r.is_marked(Outcome::Error)),
        means("sync=no", |r| !r.is_marked(Outcome::Synchronous)),
        means("cause=disk", |r| {
            r.is_marked(Outcome::Disk) && !r.is_marked(Outcome::Error)
        }),
        means(&format!("latency<{number}"), move |r| {
            r.latency_ns() < number
        }),
        means(&format!("latency ≥ {number}ns"), move |r| {
            r.latency_ns() >= number
        }),
        means("size=4K", |r| r.size == 4096),
        means("offset <= 8K", |r| r.offset <= 8192),
        means("cache_time > 1us", |r| r.stage_ns(Stage::Cache) > 1000),
        means("slowest_stage=none", |r| {
            Stage::ALL.iter().all(|stage| r.stage_ns(*stage) == 0)
        }),
    ];
    let place = random.index(comparisons.len());
    comparisons.into_iter().nth(place).unwrap()
}

fn any_predicate(random: &mut Random, depth: u64) -> (String, Meaning) {
    if depth == 0 || random.chance(1, 3) {
        return any_comparison(random);
    }
    let (one_text, one) = any_predicate(random, depth - 1);
    let (other_text, other) = any_predicate(random, depth - 1);
    match random.below(3) {
        0 => means(&format!("not ({one_text})"), move |r| !one(r)),
        1 => means(&format!("({one_text}) and ({other_text})"), move |r| {
            one(r) && other(r)
        }),
        _ => means(&format!("({one_text}) or ({other_text})"), move |r| {
            one(r) || other(r)
        }),
    }
}

#[test]
fn predicates_mean_what_plain_functions_mean() {
    let (analytics, records) = filled(1, 40_000);
    let mut random = Random::new(2);
    for _ in 0..300 {
        let (text, meaning) = any_predicate(&mut random, 3);
        let expected = records.iter().filter(|record| meaning(record)).count();
        let recorder = analytics.flight_recorder();
        let found = recorder.operations(&(0..u64::MAX), &compiled(&text), Order::Oldest, 0);
        assert_eq!(found.count, expected as u64, "{text}");
    }
}

#[test]
fn the_groups_and_the_others_of_a_breakdown_add_up_to_the_total() {
    let (analytics, records) = filled(3, 50_000);
    for (text, keys_max) in [
        ("all.ops[op]", 10),
        ("nfs.bytes[client][op]", 3),
        ("all.wait[file][cause]:latency", 10),
        ("all.ops[outcome]:size", 2),
        ("all.ops[user][dataset]:device_time", 0),
        ("all.ops:offset", 10),
    ] {
        let query = query(text, FROM_NS, SECOND_NS, SECONDS, keys_max);
        let answer = analytics.flight_recorder().answer(&query).unwrap();
        for (column, total) in answer.total.iter().enumerate() {
            let mut sum = answer.other[column].clone();
            answer
                .groups
                .iter()
                .for_each(|group| sum.merge(&group.series[column]));
            assert_eq!(&sum, total, "{text}, column {column}");
        }
        assert_eq!(answer.unranked, 0);
        let total: u64 = answer.total.iter().map(|tally| tally.count).sum();
        let nfs = |r: &&OperationRecord| r.protocol() != Some(Protocol::Fuse);
        let data = |r: &&OperationRecord| r.kind() != Some(OperationKind::Lookup);
        let expected = match text.starts_with("nfs.bytes") {
            true => records.iter().filter(nfs).filter(data).count(),
            false => records.len(),
        };
        assert_eq!(total, expected as u64, "{text}");
    }
}

#[test]
fn the_groups_are_the_largest_ones_of_a_plain_map() {
    let (analytics, records) = filled(4, 50_000);
    let mut model = BTreeMap::<(u32, u64), u64>::new();
    for record in &records {
        *model
            .entry((record.dataset.0, record.object()))
            .or_default() += record.latency_ns();
    }
    let mut model: Vec<_> = model.into_iter().map(|(key, sum)| (sum, key)).collect();
    model.sort_by_key(|(sum, key)| (u64::MAX - sum, *key));
    let query = query("all.wait[file]", FROM_NS, SECOND_NS, SECONDS, 5);
    let answer = analytics.flight_recorder().answer(&query).unwrap();
    assert_eq!(answer.keys_found, model.len());
    let sum = |series: &[Tally]| series.iter().map(|tally| tally.sum).sum::<u64>();
    for (group, (expected, (dataset, object))) in answer.groups.iter().zip(&model) {
        assert_eq!(
            group.key[0],
            u128::from(*dataset) << 64 | u128::from(*object)
        );
        assert_eq!(sum(&group.series), *expected);
    }
    let rest: u64 = model[5..].iter().map(|(sum, _)| sum).sum();
    assert_eq!((answer.groups.len(), sum(&answer.other)), (5, rest));
}

#[test]
fn narrow_columns_merge_into_wide_ones_without_loss() {
    let (analytics, _) = filled(5, 30_000);
    let of = |column_ns: u64| {
        let columns = SECONDS * SECOND_NS / column_ns;
        let query = query("nfs.ops[op!=write]:latency", FROM_NS, column_ns, columns, 0);
        analytics.flight_recorder().answer(&query).unwrap().total
    };
    let seconds = of(SECOND_NS);
    for parts in [10, 100] {
        let narrow = of(SECOND_NS / parts);
        for (second, parts) in seconds.iter().zip(narrow.chunks(parts as usize)) {
            let mut sum = Tally::default();
            parts.iter().for_each(|part| sum.merge(part));
            assert_eq!(&sum, second);
        }
    }
}

#[test]
fn a_rectangle_of_a_heat_map_gives_its_operations() {
    let (analytics, records) = filled(6, 40_000);
    let mut random = Random::new(7);
    let query = query("all.ops:latency", FROM_NS, SECOND_NS, SECONDS, 0);
    let answer = analytics.flight_recorder().answer(&query).unwrap();
    for _ in 0..30 {
        let (from, to) = (random.index(8), 1 + random.index(8));
        let (from, to) = (from.min(to - 1), to.max(from + 1));
        let low = random.index(300);
        let high = low + random.index(100);
        let cells = answer.total[from..to].iter().flat_map(Tally::cells);
        let in_band = cells.filter(|(bucket, _)| (low..=high).contains(bucket));
        let count: u64 = in_band.map(|(_, count)| count).sum();

        let ends = |second: usize| FROM_NS + second as u64 * SECOND_NS;
        let band = (
            HistogramSnapshot::range_of(low).0,
            HistogramSnapshot::range_of(high).1,
        );
        let predicate = CompiledPredicate::within(Field::Latency, band.0, band.1);
        let range_ns = ends(from)..ends(to);
        let recorder = analytics.flight_recorder();
        let found = recorder.operations(&range_ns, &predicate, Order::Slowest, 20);
        assert_eq!((found.count, found.latency.count()), (count, count));
        let mut expected: Vec<u64> = (records.iter())
            .filter(|record| range_ns.contains(&record.ended_ns()))
            .map(OperationRecord::latency_ns)
            .filter(|latency| (band.0..=band.1).contains(latency))
            .collect();
        expected.sort_unstable_by(|one, other| other.cmp(one));
        expected.truncate(20);
        let slowest: Vec<u64> = found
            .records
            .iter()
            .map(OperationRecord::latency_ns)
            .collect();
        assert_eq!(slowest, expected);
    }
}

#[test]
fn live_results_are_the_answers_after_the_fact() {
    for text in [
        "all.ops[client]:latency",
        "nfs.bytes[op=read][user][op]",
        "all.wait:size",
    ] {
        let (source, records) = filled(8, 40_000);
        let query = query(text, FROM_NS, SECOND_NS, SECONDS, 4);
        let analytics = Analytics::new(0);
        let (predicate, breakdown) = (query.predicate.clone(), query.breakdown.clone());
        let id = analytics
            .instrument(predicate, breakdown, 4, FROM_NS)
            .unwrap();
        records.chunks(500).for_each(|part| analytics.take(part));
        let results = analytics.live_results(id, 0, FROM_NS).unwrap();
        let answer = source.flight_recorder().answer(&query).unwrap();
        assert_eq!(
            (results.late, results.seconds.len() as u64),
            (0, SECONDS),
            "{text}"
        );
        for (second, total) in results.seconds.iter().zip(&answer.total) {
            assert_eq!(&second.total, total, "{text}");
            let mut sum = second.other.clone();
            second.groups.iter().for_each(|(_, tally)| sum.merge(tally));
            assert_eq!(&sum, total, "{text}");
        }
    }
}

/// Passes go on for an hour of operations with ever new keys; then the seconds that are held and
/// their sums are right, and an instrumentation that was not read has ended.
#[test]
fn live_results_have_a_bound_and_idle_instrumentations_end() {
    let statement = tarn_analytics::Statement::parse("all.ops[file]:latency").unwrap();
    let analytics = Analytics::new(0);
    let all = CompiledPredicate::always;
    let id = analytics
        .instrument(all(), statement.breakdown(), 10, FROM_NS)
        .unwrap();
    let idle = analytics.instrument(all(), plain(), 0, FROM_NS).unwrap();
    let mut random = Random::new(9);
    for second in 0..700 {
        let start_ns = FROM_NS + second * SECOND_NS;
        let record = |random: &mut Random| {
            let ended_ns = start_ns + random.below(SECOND_NS);
            any_record(random, ended_ns)
        };
        let records: Vec<_> = (0..100).map(|_| record(&mut random)).collect();
        analytics.take(&records);
        analytics.pass(start_ns + SECOND_NS);
        let results = analytics.live_results(id, 0, start_ns).unwrap();
        for second in &results.seconds[results.seconds.len().saturating_sub(5)..] {
            let mut sum = second.other.clone();
            second.groups.iter().for_each(|(_, tally)| sum.merge(tally));
            assert_eq!((&sum, second.total.count), (&second.total, 100));
            assert!(second.groups.len() <= 10);
        }
        assert!(results.seconds.len() <= 601 && results.late == 0);
    }
    assert_eq!(analytics.instrumentations(), [id]);
    assert_eq!(analytics.live_results(idle, 0, 0), None);
    assert!(analytics.remove_instrumentation(id) && !analytics.remove_instrumentation(id));
    let add = || analytics.instrument(all(), plain(), 0, 0);
    let added = (0..100).map_while(|_| add().ok()).count();
    assert_eq!(added, tarn_analytics::INSTRUMENTATIONS_MAX);
}

#[test]
fn columns_that_were_not_collected_or_lost_operations_are_told() {
    let (analytics, _) = filled(10, 10_000);
    let end_ns = FROM_NS + SECONDS * SECOND_NS;
    analytics.note_collected(end_ns..end_ns + SECOND_NS, 17);
    let query = query("all.ops", FROM_NS - SECOND_NS, SECOND_NS, SECONDS + 3, 0);
    let answer = analytics.flight_recorder().answer(&query).unwrap();
    let collected: Vec<Collected> = answer
        .columns
        .iter()
        .map(|column| column.collected)
        .collect();
    let mut expected = vec![Collected::Whole; 11];
    (expected[0], expected[10]) = (Collected::NotCollected, Collected::NotCollected);
    expected[9] = Collected::Partly;
    assert_eq!(collected, expected);
    assert_eq!((answer.columns[9].dropped, answer.dropped), (17, 17));
}

#[test]
fn a_query_with_too_many_columns_is_refused() {
    let (analytics, _) = filled(11, 10);
    let ask = |column_ns: u64, columns: u64, keys_max| {
        let query = query("all.ops[op]", FROM_NS, column_ns, columns, keys_max);
        analytics.flight_recorder().answer(&query).map(drop)
    };
    assert!(matches!(ask(1, 60_000, 10), Err(QueryError::TooLarge(_))));
    assert!(matches!(
        ask(1, 10, usize::MAX),
        Err(QueryError::TooLarge(_))
    ));
    assert!(matches!(ask(0, 10, 1), Err(QueryError::EmptyRange)));
    assert_eq!(ask(SECOND_NS, 5000, 10), Ok(()));
    let two = tarn_analytics::Breakdown::new(&[Field::Latency], None, Measure::Operations);
    assert_eq!(two, Err(QueryError::WrongBreakdown));
}
