//! The tail: seconds that are in no block yet, in a file that is appended to each second.
//!
//! # Mechanism
//! ```text
//!   | length (4) | checksum (8) | second, head, new names, cells | next frame ...
//! ```
//!
//! A frame has one second. The first frame that has a series gives it its name; later ones, and the
//! cells, take its number. A frame for a second that was there before takes its place: operations
//! that ended in it came late.
//!
//! # After a crash
//! The last frame may be cut off. It and what is after it are not used, and the file is cut before
//! it is appended to again.

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::block_format::{SERIES_MAX, put_series, read_series};
use crate::byte_reading::{ByteReader, Malformed, put, put_difference, put_length};
use crate::cell::{Cell, Column, ColumnHead, SeriesId};
use crate::tier::Tier;

/// Length and checksum of a frame.
const FRAME_HEADER_BYTES: usize = 12;
/// A frame is not longer: [`SERIES_MAX`] series with long names and some hundred buckets each.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// The numbers of the series of a tail, and how long its file is.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    numbers: BTreeMap<Arc<SeriesId>, usize>,
    pub(crate) bytes: u64,
}

impl Tail {
    /// How many series it has.
    pub(crate) fn series(&self) -> usize {
        self.numbers.len()
    }

    /// Whether it has that one.
    pub(crate) fn has(&self, series: &SeriesId) -> bool {
        self.numbers.contains_key(series)
    }

    /// The frame of a second. Its new series have their numbers from now on.
    pub(crate) fn frame(&mut self, column: &Column) -> Vec<u8> {
        let mut body = Vec::new();
        put(&mut body, column.start_s);
        put(&mut body, column.head.whole_s.into());
        put(&mut body, column.head.partly_s.into());
        put(&mut body, column.head.dropped);
        let is_new = |(series, _): &&(Arc<SeriesId>, Cell)| !self.numbers.contains_key(series);
        let new: Vec<Arc<SeriesId>> = (column.cells.iter().filter(is_new))
            .map(|(series, _)| series.clone())
            .collect();
        put_length(&mut body, new.len());
        for series in new {
            assert!(
                self.numbers.len() < SERIES_MAX,
                "series that are too many were folded"
            );
            put_series(&mut body, &series);
            self.numbers.insert(series, self.numbers.len());
        }
        put_length(&mut body, column.cells.len());
        for (series, cell) in &column.cells {
            put_length(&mut body, self.numbers[series]);
            put_cell(&mut body, cell);
        }
        let length = u32::try_from(body.len()).expect("bounded series");
        let mut frame = length.to_le_bytes().to_vec();
        frame.extend_from_slice(&xxh3_64(&body).to_le_bytes());
        frame.extend_from_slice(&body);
        frame
    }
}

const IS_SAMPLE: u64 = 0;
const HAS_NO_RANGE: u64 = 1;
const HAS_RANGE: u64 = 2;

fn put_cell(bytes: &mut Vec<u8>, cell: &Cell) {
    if cell.is_sample() {
        put(bytes, IS_SAMPLE);
        return put(bytes, cell.sum);
    }
    let kind = cell.range.map_or(HAS_NO_RANGE, |_| HAS_RANGE);
    put(bytes, kind);
    put(bytes, cell.count);
    put(bytes, cell.sum);
    if let Some((least, most)) = cell.range {
        put(bytes, least);
        put(bytes, most);
    }
    put_length(bytes, cell.buckets.len());
    let mut before = 0;
    for (bucket, count) in &cell.buckets {
        put_difference(bytes, (*bucket).into(), before);
        put(bytes, *count);
        before = (*bucket).into();
    }
}

fn read_cell(reader: &mut ByteReader<'_>) -> Result<Cell, Malformed> {
    let kind = reader.number()?;
    if kind == IS_SAMPLE {
        return Ok(Cell::of_sample(reader.number()?));
    }
    let (count, sum) = (reader.number()?, reader.number()?);
    let range = match kind {
        HAS_NO_RANGE => None,
        HAS_RANGE => Some((reader.number()?, reader.number()?)),
        _ => return Err(Malformed),
    };
    let mut buckets = Vec::<(u16, u64)>::new();
    let mut before = 0;
    for _ in 0..reader.length(tarn_probe::BUCKET_COUNT)? {
        before = reader.after(before)?;
        let bucket = u16::try_from(before).map_err(|_| Malformed)?;
        let is_next = buckets.last().is_none_or(|(last, _)| *last < bucket);
        if !is_next || usize::from(bucket) >= tarn_probe::BUCKET_COUNT {
            return Err(Malformed);
        }
        buckets.push((bucket, reader.number()?));
    }
    Ok(Cell {
        count,
        sum,
        range,
        buckets,
    })
}

/// What a tail has.
#[derive(Debug, Default)]
pub(crate) struct TailContents {
    /// The seconds, in their order.
    pub(crate) columns: BTreeMap<u64, Column>,
    /// How to go on.
    pub(crate) tail: Tail,
    /// How many bytes of the file are good.
    pub(crate) good_bytes: usize,
}

/// Reads the tail of the block that begins at `start_s`, up to the first frame that is none.
pub(crate) fn read(bytes: &[u8], start_s: u64) -> TailContents {
    let mut contents = TailContents::default();
    let mut series = Vec::<Arc<SeriesId>>::new();
    while let Some(body) = frame_at(&bytes[contents.good_bytes..]) {
        let known = series.len();
        let Ok(column) = read_column(body, &mut series, start_s) else {
            series.truncate(known);
            break;
        };
        contents.columns.insert(column.start_s, column);
        contents.good_bytes += FRAME_HEADER_BYTES + body.len();
    }
    let numbers = series.into_iter().enumerate();
    contents.tail = Tail {
        numbers: numbers.map(|(number, series)| (series, number)).collect(),
        bytes: u64::try_from(contents.good_bytes).expect("a length in memory"),
    };
    contents
}

/// The body of the frame at the begin of these bytes, if it is whole.
fn frame_at(bytes: &[u8]) -> Option<&[u8]> {
    let mut reader = ByteReader::new(bytes);
    let length = usize::try_from(reader.fixed_u32().ok()?).ok()?;
    let checksum = reader.fixed_u64().ok()?;
    let body = reader.bytes(length.min(FRAME_BYTES_MAX)).ok()?;
    (body.len() == length && xxh3_64(body) == checksum).then_some(body)
}

fn read_column(
    body: &[u8],
    series: &mut Vec<Arc<SeriesId>>,
    start_s: u64,
) -> Result<Column, Malformed> {
    let mut reader = ByteReader::new(body);
    let mut column = Column::new(reader.number()?);
    let block = start_s..start_s + Tier::Second.block_s();
    if !block.contains(&column.start_s) {
        return Err(Malformed);
    }
    let mut seconds = || u32::try_from(reader.number()?).map_err(|_| Malformed);
    column.head = ColumnHead {
        whole_s: seconds()?,
        partly_s: seconds()?,
        dropped: reader.number()?,
    };
    for _ in 0..reader.length(SERIES_MAX)? {
        let name = Arc::new(read_series(&mut reader)?);
        if series.len() == SERIES_MAX {
            return Err(Malformed);
        }
        series.push(name);
    }
    let mut cells = BTreeMap::new();
    for _ in 0..reader.length(SERIES_MAX)? {
        let name = series.get(reader.length(SERIES_MAX)?).ok_or(Malformed)?;
        cells.insert(name.clone(), read_cell(&mut reader)?);
    }
    column.cells = cells.into_iter().collect();
    match reader.is_at_end() {
        true => Ok(column),
        false => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(start_s: u64, value: u64) -> Column {
        let mut column = Column::new(start_s);
        column.head.whole_s = 1;
        let bucketed = Cell {
            count: 3,
            sum: 5,
            range: Some((1, value)),
            buckets: vec![(2, 1), (400, 2)],
        };
        column.cells = vec![
            (Arc::new(SeriesId::new("a", &["x", "y"])), bucketed),
            (Arc::new(SeriesId::new("b", &[])), Cell::of_sample(value)),
            (Arc::new(SeriesId::other("b")), Cell::default()),
        ];
        column
    }

    #[test]
    fn a_tail_is_read_up_to_where_it_is_cut_or_damaged() {
        let mut tail = Tail::default();
        let frames: Vec<Vec<u8>> = (0..3).map(|n| tail.frame(&second(600 + n, n))).collect();
        let bytes = frames.concat();
        let ends = [
            0,
            frames[0].len(),
            frames[0].len() + frames[1].len(),
            bytes.len(),
        ];
        for cut in 0..=bytes.len() {
            let contents = read(&bytes[..cut], 600);
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(contents.columns.len(), whole);
            assert_eq!(contents.good_bytes, ends[whole]);
            let expected = (0..).map(|n| second(600 + n, n));
            assert!(contents.columns.into_values().eq(expected.take(whole)));
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            let contents = read(&damaged, 600);
            let whole = ends.iter().filter(|end| **end <= at).count() - 1;
            assert_eq!(contents.columns.len(), whole, "byte {at}");
        }
        assert!(read(&bytes, 900).columns.is_empty());
    }

    #[test]
    fn a_tail_goes_on_after_it_was_read() {
        let mut tail = Tail::default();
        let mut bytes = tail.frame(&second(600, 1));
        let mut again = read(&bytes, 600).tail;
        bytes.extend(again.frame(&second(601, 2)));
        // A second that came once more takes the place of the first.
        bytes.extend(again.frame(&second(600, 9)));
        let contents = read(&bytes, 600);
        let expected = [second(600, 9), second(601, 2)];
        assert!(contents.columns.into_values().eq(expected));
    }
}
