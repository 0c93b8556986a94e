//! The cells of one series in a block, as bytes.
//!
//! # Mechanism
//! Cells are written by columns of numbers, not one by one: which of them are there, then all
//! counts, all sums, all ranges, and for each bucket of a histogram its counts over time. What
//! follows from something else is left out. A number is its difference to the one before, divided
//! by what divides all of them, where that is shorter: counts of busy buckets stay alike, and
//! memory comes in pages. zstd takes what is left (`block_format.rs`).
//!
//! # Invariants
//! - What is read is what was written, bit by bit.
//! - What is read is any bytes: memory is bounded by the columns and buckets that there can be.

use tarn_probe::{BUCKET_COUNT, HistogramSnapshot};

use crate::byte_reading::{ByteReader, Malformed, put, put_difference, put_length};
use crate::cell::Cell;

/// All columns have a cell.
const ALL_THERE: u8 = 1;
/// Each cell is one sample: only sums follow.
const SAMPLES: u8 = 2;
/// Counts are those of the buckets together.
const COUNTED_BY_BUCKETS: u8 = 4;
/// Sums are counts.
const SUMS_ARE_COUNTS: u8 = 8;
/// Ranges lie in the first and the last bucket, and are told from there.
const RANGES_IN_BUCKETS: u8 = 16;
/// There are no ranges.
const NO_RANGES: u8 = 32;
const KNOWN_FLAGS: u8 = 63;

/// Writes cells, one or none for each column.
pub(crate) fn encode(cells: &[Option<&Cell>]) -> Vec<u8> {
    let there: Vec<&Cell> = cells.iter().copied().flatten().collect();
    let flags = flags_of(cells.len(), &there);
    let mut bytes = vec![flags];
    if flags & ALL_THERE == 0 {
        for eight in cells.chunks(8) {
            let bits = eight.iter().enumerate();
            bytes.push(bits.fold(0, |byte, (bit, cell)| {
                byte | u8::from(cell.is_some()) << bit
            }));
        }
    }
    let numbers = |number: fn(&Cell) -> u64| there.iter().map(|cell| number(cell)).collect();
    if flags & SAMPLES != 0 {
        put_numbers(&mut bytes, numbers(|cell| cell.sum));
        return bytes;
    }
    if flags & COUNTED_BY_BUCKETS == 0 {
        put_numbers(&mut bytes, numbers(|cell| cell.count));
    }
    if flags & SUMS_ARE_COUNTS == 0 {
        put_numbers(&mut bytes, numbers(|cell| cell.sum));
    }
    put_buckets(&mut bytes, &there);
    put_ranges(&mut bytes, flags, &there);
    bytes
}

fn flags_of(columns: usize, there: &[&Cell]) -> u8 {
    let all = |is: fn(&Cell) -> bool, flag: u8| match there.iter().all(|cell| is(cell)) {
        true => flag,
        false => 0,
    };
    let is_all = if there.len() == columns { ALL_THERE } else { 0 };
    is_all
        | all(Cell::is_sample, SAMPLES)
        | all(|cell| cell.count == bucket_sum(cell), COUNTED_BY_BUCKETS)
        | all(|cell| cell.sum == cell.count, SUMS_ARE_COUNTS)
        | all(|cell| range_in_buckets(cell).is_some(), RANGES_IN_BUCKETS)
        | all(|cell| cell.range.is_none(), NO_RANGES)
}

fn bucket_sum(cell: &Cell) -> u64 {
    let counts = cell.buckets.iter();
    counts.fold(0, |sum, (_, count)| sum.wrapping_add(*count))
}

/// How far the least is above the begin of the first bucket, and the most below the end of the
/// last one, if they are in them.
fn range_in_buckets(cell: &Cell) -> Option<(u64, u64)> {
    let (least, most) = cell.range?;
    let ends = (cell.buckets.first()?.0, cell.buckets.last()?.0);
    let (lowest, highest) = ends_of(ends);
    Some((least.checked_sub(lowest)?, highest.checked_sub(most)?))
}

/// The lowest value of the first bucket and the highest of the last.
fn ends_of((first, last): (u16, u16)) -> (u64, u64) {
    let range = |bucket: u16| HistogramSnapshot::range_of(bucket.into());
    (range(first).0, range(last).1)
}

/// Writes numbers: what divides all of them, then each as its difference.
fn put_numbers(bytes: &mut Vec<u8>, numbers: Vec<u64>) {
    let divisor = numbers
        .iter()
        .fold(0, |divisor, number| common_divisor(divisor, *number))
        .max(1);
    put(bytes, divisor);
    let mut before = 0;
    for number in numbers {
        put_difference(bytes, number / divisor, before);
        before = number / divisor;
    }
}

fn common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Counts of a bucket are differences from so many on average on: below it they differ by as much
/// as they are. Measured with operations of random times.
const DIFFERENCES_FROM: u64 = 6;

fn put_buckets(bytes: &mut Vec<u8>, there: &[&Cell]) {
    let mut is_used = vec![false; BUCKET_COUNT];
    for (bucket, _) in there.iter().flat_map(|cell| cell.buckets.iter()) {
        is_used[usize::from(*bucket)] = true;
    }
    let used: Vec<usize> = (0..BUCKET_COUNT)
        .filter(|bucket| is_used[*bucket])
        .collect();
    put_length(bytes, used.len());
    // The place of each cell in its list of buckets, which all are read in step.
    let mut places = vec![0; there.len()];
    let mut before = 0;
    for bucket in used {
        put_length(bytes, bucket - before);
        before = bucket;
        let counts: Vec<u64> = (there.iter().zip(&mut places))
            .map(|(cell, place)| match cell.buckets.get(*place) {
                Some((next, count)) if usize::from(*next) == bucket => {
                    *place += 1;
                    *count
                }
                _ => 0,
            })
            .collect();
        put_counts(bytes, &counts);
    }
}

fn put_counts(bytes: &mut Vec<u8>, counts: &[u64]) {
    let sum = counts
        .iter()
        .fold(0_u64, |sum, count| sum.saturating_add(*count));
    let length = u64::try_from(counts.len()).expect("a length in memory");
    let is_busy = sum / length.max(1) >= DIFFERENCES_FROM;
    bytes.push(u8::from(is_busy));
    let mut before = 0;
    for count in counts {
        match is_busy {
            true => put_difference(bytes, *count, before),
            false => put(bytes, *count),
        }
        before = *count;
    }
}

fn put_ranges(bytes: &mut Vec<u8>, flags: u8, there: &[&Cell]) {
    if flags & NO_RANGES != 0 {
        return;
    }
    for cell in there {
        let (least, most) = match flags & RANGES_IN_BUCKETS {
            0 => cell.range.unwrap_or(NO_RANGE),
            _ => range_in_buckets(cell).expect("it is so for all cells"),
        };
        put(bytes, least);
        put(bytes, most);
    }
}

/// The range of a cell that has none, where others have one.
const NO_RANGE: (u64, u64) = (1, 0);

/// Where the cells of a block go.
#[derive(Clone, Debug)]
pub(crate) struct Placing {
    /// For each column of the block the place of its cell, if it is asked for. They do not go back.
    places: Vec<Option<usize>>,
    /// How many places there are.
    count: usize,
    /// Whether cells have ranges and buckets, or only counts and sums.
    is_spread: bool,
}

impl Placing {
    /// Each cell has its own place.
    pub(crate) fn of_all(columns: usize) -> Placing {
        Placing::new((0..columns).map(Some).collect(), true)
    }

    /// Cells with the same place are merged.
    pub(crate) fn new(places: Vec<Option<usize>>, is_spread: bool) -> Placing {
        let asked = places.iter().flatten();
        assert!(asked.clone().is_sorted(), "time goes on");
        let count = asked.last().map_or(0, |last| last + 1);
        Placing {
            places,
            count,
            is_spread,
        }
    }
}

/// Reads cells, and merges those that go to the same place.
pub(crate) fn decode(bytes: &[u8], placing: &Placing) -> Result<Vec<Option<Cell>>, Malformed> {
    let mut reader = ByteReader::new(bytes);
    let flags = reader.byte()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Malformed);
    }
    let columns = placing.places.len();
    let there: Vec<Option<usize>> = match flags & ALL_THERE {
        0 => {
            let bits = reader.bytes(columns.div_ceil(8))?;
            let is_there = |column: &usize| bits[column / 8] >> (column % 8) & 1 == 1;
            let there = (0..columns).filter(is_there);
            there.map(|column| placing.places[column]).collect()
        }
        _ => placing.places.clone(),
    };
    let mut cells = vec![None; placing.count];
    for place in there.iter().flatten() {
        cells[*place] = Some(Cell::default());
    }
    decode_cells(&mut reader, flags, &there, placing.is_spread, &mut cells)?;
    match reader.is_at_end() {
        true => Ok(cells),
        false => Err(Malformed),
    }
}

/// A cell as it is read, without its buckets.
#[derive(Clone, Copy, Debug, Default)]
struct ReadCell {
    count: u64,
    sum: u64,
    /// What its buckets have together.
    bucketed: u64,
    /// The first bucket and the last, if there is one.
    ends: Option<(u16, u16)>,
    range: Option<(u64, u64)>,
}

fn decode_cells(
    reader: &mut ByteReader<'_>,
    flags: u8,
    there: &[Option<usize>],
    is_spread: bool,
    cells: &mut [Option<Cell>],
) -> Result<(), Malformed> {
    let mut read = vec![ReadCell::default(); there.len()];
    if flags & SAMPLES != 0 {
        for (cell, value) in read.iter_mut().zip(numbers(reader, there.len())?) {
            (cell.count, cell.sum, cell.range) = (1, value, Some((value, value)));
        }
    } else {
        decode_plain(reader, flags, &mut read, |bucket, counts| {
            if is_spread {
                add_bucket(cells, there, bucket, counts);
            }
        })?;
    }
    for (place, read) in there.iter().zip(&read) {
        if let Some(cell) = place.and_then(|place| cells[place].as_mut()) {
            cell.merge(&Cell {
                count: read.count,
                sum: read.sum,
                range: read.range.filter(|_| is_spread),
                buckets: Vec::new(),
            });
        }
    }
    Ok(())
}

/// Adds the counts of a bucket, which is above all that were added before.
fn add_bucket(cells: &mut [Option<Cell>], there: &[Option<usize>], bucket: u16, counts: &[u64]) {
    for (place, count) in there.iter().zip(counts) {
        let cell = place.and_then(|place| cells[place].as_mut());
        let Some(cell) = cell.filter(|_| *count > 0) else {
            continue;
        };
        match cell.buckets.last_mut() {
            Some((last, sum)) if *last == bucket => *sum = sum.wrapping_add(*count),
            _ => cell.buckets.push((bucket, *count)),
        }
    }
}

fn decode_plain(
    reader: &mut ByteReader<'_>,
    flags: u8,
    read: &mut [ReadCell],
    take_bucket: impl FnMut(u16, &[u64]),
) -> Result<(), Malformed> {
    if flags & COUNTED_BY_BUCKETS == 0 {
        let counts = numbers(reader, read.len())?.into_iter();
        read.iter_mut()
            .zip(counts)
            .for_each(|(cell, count)| cell.count = count);
    }
    if flags & SUMS_ARE_COUNTS == 0 {
        let sums = numbers(reader, read.len())?.into_iter();
        read.iter_mut()
            .zip(sums)
            .for_each(|(cell, sum)| cell.sum = sum);
    }
    decode_buckets(reader, read, take_bucket)?;
    for cell in &mut *read {
        if flags & COUNTED_BY_BUCKETS != 0 {
            cell.count = cell.bucketed;
        }
        if flags & SUMS_ARE_COUNTS != 0 {
            cell.sum = cell.count;
        }
    }
    decode_ranges(reader, flags, read)
}

fn numbers(reader: &mut ByteReader<'_>, count: usize) -> Result<Vec<u64>, Malformed> {
    let divisor = reader.number()?;
    let mut before = 0;
    (0..count)
        .map(|_| {
            before = reader.after(before)?;
            before.checked_mul(divisor).ok_or(Malformed)
        })
        .collect()
}

/// Reads the buckets, the lowest first, and hands over the counts of each.
fn decode_buckets(
    reader: &mut ByteReader<'_>,
    read: &mut [ReadCell],
    mut take: impl FnMut(u16, &[u64]),
) -> Result<(), Malformed> {
    let used = reader.length(BUCKET_COUNT)?;
    let mut bucket = 0;
    let mut counts = vec![0; read.len()];
    for number in 0..used {
        let step = reader.length(BUCKET_COUNT)?;
        bucket += step;
        if bucket >= BUCKET_COUNT || (step == 0 && number > 0) {
            return Err(Malformed);
        }
        let narrow = u16::try_from(bucket).expect("less than the number of buckets");
        let is_busy = reader.byte()? != 0;
        let mut before = 0;
        for (cell, stored) in read.iter_mut().zip(&mut counts) {
            let count = match is_busy {
                true => reader.after(before)?,
                false => reader.number()?,
            };
            (before, *stored) = (count, count);
            if count > 0 {
                cell.bucketed = cell.bucketed.wrapping_add(count);
                cell.ends = Some((cell.ends.map_or(narrow, |(first, _)| first), narrow));
            }
        }
        take(narrow, &counts);
    }
    Ok(())
}

fn decode_ranges(
    reader: &mut ByteReader<'_>,
    flags: u8,
    read: &mut [ReadCell],
) -> Result<(), Malformed> {
    if flags & NO_RANGES != 0 {
        return Ok(());
    }
    for cell in read {
        let (least, most) = (reader.number()?, reader.number()?);
        cell.range = match flags & RANGES_IN_BUCKETS {
            0 if (least, most) == NO_RANGE => None,
            0 => Some((least, most)),
            _ => {
                let (lowest, highest) = ends_of(cell.ends.ok_or(Malformed)?);
                let least = lowest.checked_add(least).ok_or(Malformed)?;
                Some((least, highest.checked_sub(most).ok_or(Malformed)?))
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::sim::Random;

    fn any_cell(random: &mut Random, kind: u64) -> Cell {
        let value = random.magnitude(u64::MAX);
        match kind {
            0 => Cell::of_sample(value),
            1 => Cell {
                count: value,
                sum: value,
                ..Cell::default()
            },
            _ => {
                let mut cell = Cell::default();
                for _ in 0..random.below(40) {
                    let value = random.magnitude(1 << 40);
                    let bucket = u16::try_from(HistogramSnapshot::bucket_of(value)).unwrap();
                    let one = Cell {
                        count: 1,
                        sum: value,
                        range: Some((value, value)),
                        buckets: vec![(bucket, 1)],
                    };
                    cell.merge(&one);
                }
                cell
            }
        }
    }

    #[test]
    fn any_cells_come_back() {
        let mut random = Random::new(11);
        for round in 0..400 {
            let columns = random.index(70);
            let mixed = round % 4 == 3;
            let cells: Vec<Option<Cell>> = (0..columns)
                .map(|_| {
                    let kind = if mixed { random.below(3) } else { round % 4 };
                    (!random.one_in(4)).then(|| any_cell(&mut random, kind))
                })
                .collect();
            let borrowed: Vec<Option<&Cell>> = cells.iter().map(Option::as_ref).collect();
            let placing = Placing::of_all(columns);
            assert_eq!(decode(&encode(&borrowed), &placing), Ok(cells));
        }
    }

    /// Cells that go to the same place are those that were merged one by one.
    #[test]
    fn cells_of_the_same_place_are_merged_as_they_are_read() {
        let mut random = Random::new(13);
        for round in 0..200 {
            let columns = 1 + random.index(70);
            let step = 1 + random.index(9);
            let cells: Vec<Option<Cell>> = (0..columns)
                .map(|_| (!random.one_in(4)).then(|| any_cell(&mut random, round % 3)))
                .collect();
            let borrowed: Vec<Option<&Cell>> = cells.iter().map(Option::as_ref).collect();
            let first = random.index(columns);
            let place = |column: usize| (column >= first).then(|| (column - first) / step);
            let mut merged = vec![None; (columns - first).div_ceil(step)];
            for (column, cell) in cells.iter().enumerate() {
                if let (Some(place), Some(cell)) = (place(column), cell) {
                    let sum: &mut Option<Cell> = &mut merged[place];
                    sum.get_or_insert_default().merge(cell);
                }
            }
            let places: Vec<Option<usize>> = (0..columns).map(place).collect();
            let bytes = encode(&borrowed);
            let placing = Placing::new(places.clone(), true);
            assert_eq!(decode(&bytes, &placing).as_ref(), Ok(&merged));
            let plain = decode(&bytes, &Placing::new(places, false)).unwrap();
            for (plain, merged) in plain.into_iter().zip(merged) {
                let merged = merged.map(|cell| Cell {
                    range: None,
                    buckets: Vec::new(),
                    ..cell
                });
                assert_eq!(plain, merged);
            }
        }
    }

    /// Each byte is overwritten, and the bytes are cut at each place.
    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut random = Random::new(12);
        let cells: Vec<Option<Cell>> = (0..20).map(|_| Some(any_cell(&mut random, 2))).collect();
        let borrowed: Vec<Option<&Cell>> = cells.iter().map(Option::as_ref).collect();
        let (bytes, placing) = (encode(&borrowed), Placing::of_all(20));
        for at in 0..bytes.len() {
            assert_eq!(decode(&bytes[..at], &placing), Err(Malformed));
            let mut damaged = bytes.clone();
            damaged[at] = random.byte();
            let _ = decode(&damaged, &placing);
        }
        assert_eq!(decode(&[64], &Placing::of_all(0)), Err(Malformed));
    }
}
