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
    let (lowest, highest) = ends_of_buckets(cell)?;
    Some((least.checked_sub(lowest)?, highest.checked_sub(most)?))
}

/// The lowest value of the first bucket and the highest of the last.
fn ends_of_buckets(cell: &Cell) -> Option<(u64, u64)> {
    let lowest = HistogramSnapshot::range_of(cell.buckets.first()?.0.into()).0;
    let highest = HistogramSnapshot::range_of(cell.buckets.last()?.0.into()).1;
    Some((lowest, highest))
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

/// Reads the cells of so many columns.
pub(crate) fn decode(bytes: &[u8], columns: usize) -> Result<Vec<Option<Cell>>, Malformed> {
    let mut reader = ByteReader::new(bytes);
    let flags = reader.byte()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Malformed);
    }
    let is_there: Vec<bool> = match flags & ALL_THERE {
        0 => {
            let bits = reader.bytes(columns.div_ceil(8))?;
            (0..columns)
                .map(|column| bits[column / 8] >> (column % 8) & 1 == 1)
                .collect()
        }
        _ => vec![true; columns],
    };
    let count = is_there.iter().filter(|is_there| **is_there).count();
    let mut cells = decode_cells(&mut reader, flags, count)?.into_iter();
    if !reader.is_at_end() {
        return Err(Malformed);
    }
    let cell = |is_there: bool| is_there.then(|| cells.next().expect("as many as are there"));
    Ok(is_there.into_iter().map(cell).collect())
}

fn decode_cells(
    reader: &mut ByteReader<'_>,
    flags: u8,
    count: usize,
) -> Result<Vec<Cell>, Malformed> {
    if flags & SAMPLES != 0 {
        let values = numbers(reader, count)?;
        return Ok(values.into_iter().map(Cell::of_sample).collect());
    }
    let mut cells = vec![Cell::default(); count];
    if flags & COUNTED_BY_BUCKETS == 0 {
        let counts = numbers(reader, count)?;
        cells
            .iter_mut()
            .zip(counts)
            .for_each(|(cell, count)| cell.count = count);
    }
    if flags & SUMS_ARE_COUNTS == 0 {
        let sums = numbers(reader, count)?;
        cells
            .iter_mut()
            .zip(sums)
            .for_each(|(cell, sum)| cell.sum = sum);
    }
    decode_buckets(reader, &mut cells)?;
    for cell in &mut cells {
        if flags & COUNTED_BY_BUCKETS != 0 {
            cell.count = bucket_sum(cell);
        }
        if flags & SUMS_ARE_COUNTS != 0 {
            cell.sum = cell.count;
        }
    }
    decode_ranges(reader, flags, &mut cells)?;
    Ok(cells)
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

fn decode_buckets(reader: &mut ByteReader<'_>, cells: &mut [Cell]) -> Result<(), Malformed> {
    let used = reader.length(BUCKET_COUNT)?;
    let mut bucket = 0;
    for number in 0..used {
        let step = reader.length(BUCKET_COUNT)?;
        bucket += step;
        if bucket >= BUCKET_COUNT || (step == 0 && number > 0) {
            return Err(Malformed);
        }
        let narrow = u16::try_from(bucket).expect("less than the number of buckets");
        let is_busy = reader.byte()? != 0;
        let mut before = 0;
        for cell in &mut *cells {
            let count = match is_busy {
                true => reader.after(before)?,
                false => reader.number()?,
            };
            before = count;
            if count > 0 {
                cell.buckets.push((narrow, count));
            }
        }
    }
    Ok(())
}

fn decode_ranges(
    reader: &mut ByteReader<'_>,
    flags: u8,
    cells: &mut [Cell],
) -> Result<(), Malformed> {
    if flags & NO_RANGES != 0 {
        return Ok(());
    }
    for cell in cells {
        let (least, most) = (reader.number()?, reader.number()?);
        cell.range = match flags & RANGES_IN_BUCKETS {
            0 if (least, most) == NO_RANGE => None,
            0 => Some((least, most)),
            _ => {
                let (lowest, highest) = ends_of_buckets(cell).ok_or(Malformed)?;
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
            assert_eq!(decode(&encode(&borrowed), columns), Ok(cells));
        }
    }

    /// Each byte is overwritten, and the bytes are cut at each place.
    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut random = Random::new(12);
        let cells: Vec<Option<Cell>> = (0..20).map(|_| Some(any_cell(&mut random, 2))).collect();
        let borrowed: Vec<Option<&Cell>> = cells.iter().map(Option::as_ref).collect();
        let bytes = encode(&borrowed);
        for at in 0..bytes.len() {
            assert_eq!(decode(&bytes[..at], 20), Err(Malformed));
            let mut damaged = bytes.clone();
            damaged[at] = random.byte();
            let _ = decode(&damaged, 20);
        }
        assert_eq!(decode(&[64], 0), Err(Malformed));
    }
}
