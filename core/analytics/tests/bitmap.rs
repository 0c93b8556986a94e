//! The correctness of the picture: operations that draw a known bitmap come out as that bitmap, in
//! live heat maps and in those made after the fact.

mod support;

use support::{SECOND_NS, names, query, read_of};
use tarn_analytics::{Analytics, Statement, Tally};
use tarn_host::sim::Random;
use tarn_probe::HistogramSnapshot;

/// A column of the picture is a column of the heat map, a row is one of its buckets.
const PICTURE: [&str; 7] = [
    "#####..###..####..#...#",
    "..#...#...#.#...#.##..#",
    "..#...#...#.#...#.##..#",
    "..#...#####.####..#.#.#",
    "..#...#...#.#.#...#..##",
    "..#...#...#.#..#..#..##",
    "..#...#...#.#...#.#...#",
];
const COLUMNS: u64 = 23;
/// The bucket of the lowest row: 65 us. Rows are three buckets apart.
const LOWEST_BUCKET: usize = 160;
const ROW_BUCKETS: usize = 3;
/// The second of the first column.
const FIRST_SECOND: u64 = 1_000_000;
/// The client that draws; others make noise.
const PAINTER: u32 = 17;

fn bucket_of_row(row: usize) -> usize {
    LOWEST_BUCKET + (PICTURE.len() - 1 - row) * ROW_BUCKETS
}

/// The places of the picture that are set, as column and bucket.
fn drawn() -> Vec<(usize, usize)> {
    let rows = PICTURE.iter().enumerate();
    let places = rows.flat_map(|(row, line)| {
        let columns = line.bytes().enumerate().filter(|(_, byte)| *byte == b'#');
        columns.map(move |(column, _)| (column, bucket_of_row(row)))
    });
    let mut places: Vec<(usize, usize)> = places.collect();
    places.sort_unstable();
    places
}

/// Draws the picture with columns of that width, three operations a place, among noise of other
/// clients. Operations come in no order within a column.
fn painted(column_ns: u64) -> Analytics {
    let analytics = Analytics::new(0);
    let mut random = Random::new(21);
    let from_ns = FIRST_SECOND * SECOND_NS;
    for column in 0..COLUMNS {
        let start_ns = from_ns + column * column_ns;
        let mut records = Vec::new();
        for (_, bucket) in (drawn().into_iter()).filter(|place| place.0 as u64 == column) {
            let (low, high) = HistogramSnapshot::range_of(bucket);
            for latency_ns in [low, (low + high) / 2, high] {
                let ended_ns = start_ns + random.below(column_ns);
                records.push(read_of(PAINTER, ended_ns, latency_ns));
            }
        }
        for _ in 0..200 {
            let client = PAINTER + 1 + u32::try_from(random.below(5)).unwrap();
            let latency_ns = random.magnitude(100_000_000);
            let ended_ns = start_ns + random.below(column_ns);
            records.push(read_of(client, ended_ns, latency_ns));
        }
        analytics.take(&records);
        analytics.note_collected(start_ns..start_ns + column_ns, 0);
    }
    analytics
}

/// The cells of heat map columns; each must have three operations.
fn places<'a>(columns: impl Iterator<Item = &'a Tally>) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for (column, tally) in columns.enumerate() {
        for (bucket, count) in tally.cells() {
            assert_eq!(count, 3, "column {column}, bucket {bucket}");
            places.push((column, bucket));
        }
    }
    places
}

#[test]
fn a_heat_map_after_the_fact_is_the_picture_at_each_width_of_columns() {
    for column_ns in [SECOND_NS, SECOND_NS / 10, SECOND_NS / 100] {
        let analytics = painted(column_ns);
        let from_ns = FIRST_SECOND * SECOND_NS;
        let text = "nfs.ops[client=10.0.0.1]:latency";
        let query = query(text, from_ns, column_ns, COLUMNS, 0);
        let answer = analytics.flight_recorder().answer(&query).unwrap();
        assert_eq!(places(answer.total.iter()), drawn());
        let everything = support::query("nfs.ops[client]:latency", from_ns, column_ns, COLUMNS, 3);
        let answer = analytics.flight_recorder().answer(&everything).unwrap();
        let group = answer
            .groups
            .iter()
            .find(|group| group.key[0] == PAINTER.into());
        // The painter has fewer operations than each of the others.
        assert!(group.is_none() && answer.keys_found == 6);
    }
}

#[test]
fn a_live_heat_map_is_the_picture() {
    let statement = Statement::parse("nfs.ops[client=10.0.0.1]:latency").unwrap();
    let predicate = statement.predicate.compile(&names()).unwrap();
    let source = painted(SECOND_NS);
    let all = support::compiled("");
    let order = tarn_analytics::Order::Oldest;
    let operations = source
        .flight_recorder()
        .operations(&(0..u64::MAX), &all, order, 100_000);
    assert_eq!(
        operations.count,
        u64::try_from(operations.records.len()).unwrap()
    );

    let analytics = Analytics::new(0);
    let from_ns = FIRST_SECOND * SECOND_NS;
    let id = analytics
        .instrument(predicate, statement.breakdown(), 0, from_ns)
        .unwrap();
    analytics.take(&operations.records);
    let results = analytics.live_results(id, FIRST_SECOND, from_ns).unwrap();
    assert_eq!(results.seconds[0].second, FIRST_SECOND);
    let mut columns = vec![Tally::default(); usize::try_from(COLUMNS).unwrap()];
    for second in results.seconds {
        columns[usize::try_from(second.second - FIRST_SECOND).unwrap()] = second.total;
    }
    assert_eq!(places(columns.iter()), drawn());
}

/// A picture with one operation more at another place is not the picture.
#[test]
fn the_comparison_sees_one_operation_too_many() {
    let analytics = painted(SECOND_NS);
    let from_ns = FIRST_SECOND * SECOND_NS;
    let (low, _) = HistogramSnapshot::range_of(LOWEST_BUCKET + 1);
    let stray = read_of(PAINTER, from_ns + 5 * SECOND_NS, low);
    analytics.take(&[stray; 3]);
    let query = query(
        "nfs.ops[client=10.0.0.1]:latency",
        from_ns,
        SECOND_NS,
        COLUMNS,
        0,
    );
    let answer = analytics.flight_recorder().answer(&query).unwrap();
    let found = places(answer.total.iter());
    assert_eq!(found.len(), drawn().len() + 1);
}
