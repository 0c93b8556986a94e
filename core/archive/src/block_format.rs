//! Blocks: immutable files that have all series of some time.
//!
//! # Mechanism
//! ```text
//!   | magic (8) | tier (4) | start (8) | index stored (4) | index expanded (4) | checksum (8) |
//!   | index, by zstd | a piece for each series, by zstd ...                                   |
//! ```
//!
//! Numbers of the header are little-endian. The checksum, XXH3 of 64 bits, is that of the header
//! before it and of the stored index. The index has the heads of all columns, then for each series
//! its name, how long its piece is stored and expanded, and the checksum of the piece. So a
//! question about one series reads the index and one piece.
//!
//! # Invariants
//! - A block is written whole or not at all, and never changed: [`Host::write_file_atomically`].
//! - What is read is any bytes: each length is checked against a bound before memory is taken.
//!
//! [`Host::write_file_atomically`]: tarn_host::Host::write_file_atomically

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::byte_reading::{ByteReader, Malformed, put, put_length, put_text};
use crate::cell::{Cell, Column, ColumnHead, KEY_VALUES_MAX, NAME_BYTES_MAX, SeriesId, SeriesKey};
use crate::error::WhySkipped;
use crate::series_coding::{self, Placing};
use crate::tier::{FileOfArchive, Tier};

const MAGIC: &[u8; 8] = b"TARNARC1";
/// The header with its checksum.
const HEADER_BYTES: usize = 36;
/// The part of the header that is in its checksum.
const CHECKED_BYTES: usize = 28;
/// Series of a block.
pub(crate) const SERIES_MAX: usize = 2048;
/// An index of [`SERIES_MAX`] series with long names, and with it the largest piece (300 columns
/// of 496 buckets), expands to less.
const EXPANDED_MAX: usize = 8 << 20;
/// What is read first: the index of some thousand series is within it.
pub(crate) const FIRST_READ_BYTES: usize = 32 << 10;
/// zstd's level: 3 expands as fast as the others, and more takes longer for a few percent.
const LEVEL: i32 = 3;

/// Makes the block of columns, all of which are in it.
pub(crate) fn encode(tier: Tier, start_s: u64, columns: &[&Column]) -> Vec<u8> {
    let places = tier.block_columns();
    let place = |column: &Column| {
        let place = (column.start_s - start_s) / tier.column_s();
        usize::try_from(place).expect("a column of the block")
    };
    let mut heads = vec![ColumnHead::default(); places];
    let mut series = BTreeMap::<&Arc<SeriesId>, Vec<Option<&Cell>>>::new();
    for column in columns {
        heads[place(column)] = column.head;
        for (id, cell) in &column.cells {
            series.entry(id).or_insert_with(|| vec![None; places])[place(column)] = Some(cell);
        }
    }
    assert!(
        series.len() <= SERIES_MAX,
        "series that are too many were folded"
    );
    let (mut index, mut pieces) = (Vec::new(), Vec::new());
    put_heads(&mut index, &heads);
    put_length(&mut index, series.len());
    for (id, cells) in series {
        let expanded = series_coding::encode(&cells);
        let piece = compressed(&expanded);
        put_series(&mut index, id);
        put_length(&mut index, piece.len());
        put_length(&mut index, expanded.len());
        index.extend_from_slice(&xxh3_64(&piece).to_le_bytes());
        pieces.extend_from_slice(&piece);
    }
    let mut block = header(tier, start_s, &index, &compressed(&index));
    block.extend_from_slice(&pieces);
    block
}

fn header(tier: Tier, start_s: u64, index: &[u8], stored: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("an index of bounded series");
    let mut block = MAGIC.to_vec();
    block.extend_from_slice(&number_of(tier).to_le_bytes());
    block.extend_from_slice(&start_s.to_le_bytes());
    block.extend_from_slice(&length(stored).to_le_bytes());
    block.extend_from_slice(&length(index).to_le_bytes());
    assert_eq!(block.len(), CHECKED_BYTES);
    let checksum = checksum_of_index(&block, stored);
    block.extend_from_slice(&checksum.to_le_bytes());
    block.extend_from_slice(stored);
    block
}

fn number_of(tier: Tier) -> u32 {
    match tier {
        Tier::Second => 1,
        Tier::Minute => 2,
        Tier::Hour => 3,
    }
}

fn checksum_of_index(header: &[u8], stored: &[u8]) -> u64 {
    xxh3_64(&[header, stored].concat())
}

/// A number for a column that is whole, which most are, and more for others.
fn put_heads(bytes: &mut Vec<u8>, heads: &[ColumnHead]) {
    for head in heads {
        put(bytes, head.whole_s.into());
        put(bytes, head.partly_s.into());
        put(bytes, head.dropped);
    }
}

/// Appends the name of a series.
pub(crate) fn put_series(bytes: &mut Vec<u8>, series: &SeriesId) {
    put_text(bytes, &series.statistic);
    match &series.key {
        SeriesKey::Other => put(bytes, 0),
        SeriesKey::Of(values) => {
            put_length(bytes, values.len() + 1);
            values.iter().for_each(|value| put_text(bytes, value));
        }
    }
}

/// Reads the name of a series.
pub(crate) fn read_series(reader: &mut ByteReader<'_>) -> Result<SeriesId, Malformed> {
    read_series_of(reader, &|_| true)?.ok_or(Malformed)
}

/// Reads the name of a series; `None` if it is of a statistic that is not wanted.
fn read_series_of(
    reader: &mut ByteReader<'_>,
    wants: &dyn Fn(&str) -> bool,
) -> Result<Option<SeriesId>, Malformed> {
    let statistic = reader.text(NAME_BYTES_MAX)?;
    let values = reader.length(KEY_VALUES_MAX + 1)?;
    let mut value = || reader.text(NAME_BYTES_MAX);
    if !wants(statistic) {
        (1..values).try_for_each(|_| value().map(drop))?;
        return Ok(None);
    }
    let key = match values {
        0 => SeriesKey::Other,
        _ => {
            let values = (1..values).map(|_| value().map(str::to_owned));
            SeriesKey::Of(values.collect::<Result<_, _>>()?)
        }
    };
    let statistic = statistic.to_owned();
    Ok(Some(SeriesId { statistic, key }))
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut stored = vec![0; zstd_safe::compress_bound(bytes.len())];
    let done = zstd_safe::compress(&mut stored[..], bytes, LEVEL);
    stored.truncate(done.expect("there is room for what zstd makes at most"));
    stored
}

fn expanded(stored: &[u8], length: usize) -> Result<Vec<u8>, Malformed> {
    if length > EXPANDED_MAX {
        return Err(Malformed);
    }
    let mut bytes = vec![0; length];
    let done = zstd_safe::decompress(&mut bytes[..], stored).map_err(|_| Malformed)?;
    match done == length {
        true => Ok(bytes),
        false => Err(Malformed),
    }
}

/// Where the piece of a series is.
#[derive(Clone, Debug)]
pub(crate) struct PieceEntry {
    pub(crate) series: SeriesId,
    /// In the file.
    pub(crate) stored: Range<u64>,
    expanded_bytes: usize,
    checksum: u64,
}

/// What a block says of itself.
#[derive(Clone, Debug)]
pub(crate) struct BlockIndex {
    /// One for each column.
    pub(crate) heads: Vec<ColumnHead>,
    /// In their order.
    pub(crate) pieces: Vec<PieceEntry>,
}

/// How many bytes from the begin of the file have the header and the index; `first` is its begin,
/// at least the header.
pub(crate) fn index_end(first: &[u8], file: FileOfArchive) -> Result<usize, WhySkipped> {
    let header = first.get(..HEADER_BYTES).ok_or(WhySkipped::Truncated)?;
    let damaged = |_: Malformed| WhySkipped::Damaged;
    let mut reader = ByteReader::new(header);
    let is_magic = reader.bytes(MAGIC.len()).map_err(damaged)? == MAGIC;
    let tier = reader.fixed_u32().map_err(damaged)?;
    let start_s = reader.fixed_u64().map_err(damaged)?;
    let stored = reader.fixed_u32().map_err(damaged)?;
    let known = Tier::ALL
        .into_iter()
        .find(|known| number_of(*known) == tier);
    let says = known.map(|tier| FileOfArchive::Block(tier, start_s));
    let stored = usize::try_from(stored).map_err(|_| WhySkipped::Damaged)?;
    match is_magic && says == Some(file) && stored <= EXPANDED_MAX {
        true => Ok(HEADER_BYTES + stored),
        false => Err(WhySkipped::Damaged),
    }
}

/// Reads the header and the index: `bytes` is the begin of the file up to [`index_end`]. It has the
/// series of statistics that are wanted.
pub(crate) fn read_index(
    bytes: &[u8],
    tier: Tier,
    wants: &dyn Fn(&str) -> bool,
) -> Result<BlockIndex, WhySkipped> {
    let stored = bytes.get(HEADER_BYTES..).ok_or(WhySkipped::Truncated)?;
    let damaged = |_: Malformed| WhySkipped::Damaged;
    let mut header = ByteReader::new(&bytes[CHECKED_BYTES - 4..HEADER_BYTES]);
    let length = header.fixed_u32().map_err(damaged)?;
    let checksum = header.fixed_u64().map_err(damaged)?;
    if checksum != checksum_of_index(&bytes[..CHECKED_BYTES], stored) {
        return Err(WhySkipped::Damaged);
    }
    let length = usize::try_from(length).map_err(|_| WhySkipped::Damaged)?;
    let pieces_at = u64::try_from(bytes.len()).expect("a length in memory");
    let read = || parse_index(&expanded(stored, length)?, tier, pieces_at, wants);
    read().map_err(damaged)
}

fn parse_index(
    bytes: &[u8],
    tier: Tier,
    pieces_at: u64,
    wants: &dyn Fn(&str) -> bool,
) -> Result<BlockIndex, Malformed> {
    let mut reader = ByteReader::new(bytes);
    let mut heads = Vec::new();
    for _ in 0..tier.block_columns() {
        let mut seconds = || u32::try_from(reader.number()?).map_err(|_| Malformed);
        heads.push(ColumnHead {
            whole_s: seconds()?,
            partly_s: seconds()?,
            dropped: reader.number()?,
        });
    }
    let mut pieces = Vec::new();
    let mut end = pieces_at;
    for _ in 0..reader.length(SERIES_MAX)? {
        let series = read_series_of(&mut reader, wants)?;
        let stored = reader.length(EXPANDED_MAX)?;
        let start = end;
        end += u64::try_from(stored).expect("a length of eight MiB at most");
        let (expanded_bytes, checksum) = (reader.length(EXPANDED_MAX)?, reader.fixed_u64()?);
        pieces.extend(series.map(|series| PieceEntry {
            series,
            stored: start..end,
            expanded_bytes,
            checksum,
        }));
    }
    match reader.is_at_end() {
        true => Ok(BlockIndex { heads, pieces }),
        false => Err(Malformed),
    }
}

/// Reads the cells of one series, which go where `placing` says.
pub(crate) fn read_piece(
    stored: &[u8],
    entry: &PieceEntry,
    placing: &Placing,
) -> Result<Vec<Option<Cell>>, WhySkipped> {
    let length = u64::try_from(stored.len()).expect("a length in memory");
    if length < entry.stored.end - entry.stored.start {
        return Err(WhySkipped::Truncated);
    }
    if xxh3_64(stored) != entry.checksum {
        return Err(WhySkipped::Damaged);
    }
    let read = || {
        let bytes = expanded(stored, entry.expanded_bytes)?;
        series_coding::decode(&bytes, placing)
    };
    read().map_err(|_| WhySkipped::Damaged)
}
