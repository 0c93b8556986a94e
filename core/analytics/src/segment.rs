//! A segment of the flight recorder: some thousand operations, packed column by column.
//!
//! # Mechanism
//! The operations are sorted by the time they ended, and cut into blocks of 256. Each block has
//! fourteen packed columns (`column_packing.rs`): the times between ends, latency, size, offset,
//! object, the origin, and the eight stages as records hold them. An origin is one number for
//! dataset, client, user, kind, protocol and outcome together, since few combinations of them
//! occur. Objects are rotated by a bit: missing names, which have the highest one, are small
//! numbers then. A query unpacks only the columns that it asks for, and only blocks whose times are
//! in its range.
//!
//! # Invariants
//! - A block gives back the operations that went in, number for number.
//! - A segment is never changed: queries read it while the collector goes on.

use std::ops::Range;

use tarn_probe::{OperationRecord, Stage, pack_stage_ns, unpack_stage_ns};

use crate::column_batch::{BATCH_RECORDS, Batch, Column, ColumnSet, FillWhole, Numbers};
use crate::column_packing::{PADDING, pack, unpack};
use crate::key_table::KeyTable;

/// Packed columns before those of the stages.
const BEFORE_STAGES: usize = 6;
/// Packed columns of a block.
const PACKED_COLUMNS: usize = BEFORE_STAGES + Stage::COUNT;

/// Those that are packed as they are, with their place among the packed ones. Times are first, the
/// origin is last.
const DIRECT: [Column; 4] = [
    Column::Latency,
    Column::Size,
    Column::Offset,
    Column::Object,
];
/// The place of the origin.
const ORIGIN: usize = 5;

/// Operations that are packed together.
#[derive(Debug)]
pub(crate) struct Segment {
    blocks: Box<[Block]>,
    bytes: Box<[u8]>,
    /// What each number of an origin means.
    origins: Box<[u128]>,
}

/// Where a block is, and when its operations ended.
#[derive(Debug)]
struct Block {
    first_ended_ns: u64,
    last_ended_ns: u64,
    at: u32,
    /// The length of each packed column in bytes.
    lengths: [u16; PACKED_COLUMNS],
    count: u16,
}

impl Segment {
    /// Packs the operations, which are sorted for it.
    ///
    /// # Panics
    /// If there are none: an empty segment has no times.
    pub(crate) fn pack(records: &mut [OperationRecord]) -> Segment {
        assert!(!records.is_empty(), "a segment has operations");
        records.sort_by_key(OperationRecord::ended_ns);
        let (mut bytes, mut origins) = (Vec::new(), KeyTable::<2>::default());
        let mut batch = Batch::new();
        let mut blocks = Vec::new();
        for part in records.chunks(BATCH_RECORDS) {
            batch.clear();
            part.iter().for_each(|record| batch.push(record));
            blocks.push(pack_block(&batch, &mut origins, &mut bytes));
        }
        bytes.extend(PADDING);
        Segment {
            blocks: blocks.into_boxed_slice(),
            bytes: bytes.into_boxed_slice(),
            origins: origins.keys().iter().map(joined).collect(),
        }
    }

    /// How much memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Segment>()
            + self.blocks.len() * size_of::<Block>()
            + self.bytes.len()
            + self.origins.len() * size_of::<u128>()
    }

    /// How many operations it has.
    pub(crate) fn count(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.count)).sum()
    }

    /// When its first operation ended.
    pub(crate) fn first_ended_ns(&self) -> u64 {
        self.blocks[0].first_ended_ns
    }

    /// When its last operation ended.
    pub(crate) fn last_ended_ns(&self) -> u64 {
        self.blocks[self.blocks.len() - 1].last_ended_ns
    }

    /// Fills `batch` with the wanted columns of each block that has operations of the time range,
    /// and calls `take`. Such a block may have others as well. What `take` is given besides fills
    /// another batch with all columns of the block.
    pub(crate) fn for_each_block(
        &self,
        range_ns: &Range<u64>,
        wanted: ColumnSet,
        batch: &mut Batch,
        take: &mut dyn FnMut(&Batch, &FillWhole<'_>),
    ) {
        for block in &self.blocks {
            let is_before = block.last_ended_ns < range_ns.start;
            let is_behind = block.first_ended_ns >= range_ns.end;
            if !is_before && !is_behind {
                self.unpack_block(block, wanted, batch);
                take(batch, &|whole| {
                    self.unpack_block(block, ColumnSet::ALL, whole)
                });
            }
        }
    }

    fn unpack_block(&self, block: &Block, wanted: ColumnSet, batch: &mut Batch) {
        let count = usize::from(block.count);
        let mut at = usize::try_from(block.at).expect("memory has more than 32 bits");
        let mut next = |place: usize| {
            let from = at;
            at += usize::from(block.lengths[place]);
            &self.bytes[from..]
        };
        batch.set_length(count);
        unpack_times(
            next(0),
            block.first_ended_ns,
            count,
            batch.numbers_mut(Column::Ended),
        );
        for (place, column) in DIRECT.into_iter().enumerate() {
            let packed = next(place + 1);
            if wanted.has(column) {
                let numbers = batch.numbers_mut(column);
                unpack(packed, count, numbers);
                if column == Column::Object {
                    for number in &mut numbers[..count] {
                        *number = number.rotate_right(1);
                    }
                }
            }
        }
        self.unpack_origins(next(ORIGIN), count, wanted, batch);
        for stage in Stage::ALL {
            let packed = next(BEFORE_STAGES + stage.index());
            if wanted.has(Column::Stage(*stage)) {
                let numbers = batch.numbers_mut(Column::Stage(*stage));
                unpack(packed, count, numbers);
                for number in &mut numbers[..count] {
                    *number = unpack_stage_ns(u16::try_from(*number).expect("packed from 16 bits"));
                }
            }
        }
    }

    /// The columns that an origin is made of.
    fn unpack_origins(&self, packed: &[u8], count: usize, wanted: ColumnSet, batch: &mut Batch) {
        let parts = ORIGIN_PARTS.iter().filter(|part| wanted.has(part.0));
        let mut origins: Option<Numbers> = None;
        for (column, shift, bits) in parts {
            let origins = origins.get_or_insert_with(|| {
                let mut origins = [0; BATCH_RECORDS];
                unpack(packed, count, &mut origins);
                origins
            });
            let mask = (1_u128 << bits) - 1;
            let numbers = batch.numbers_mut(*column);
            for (number, origin) in numbers[..count].iter_mut().zip(origins.iter()) {
                let origin = self.origins[usize::try_from(*origin).expect("a small number")];
                *number = u64::try_from(origin >> shift & mask).expect("at most 32 bits");
            }
        }
    }
}

/// The columns of an origin, with the first bit and the count of bits of each.
const ORIGIN_PARTS: [(Column, u32, u32); 6] = [
    (Column::Dataset, 0, 32),
    (Column::Client, 32, 32),
    (Column::User, 64, 32),
    (Column::Kind, 96, 8),
    (Column::Protocol, 104, 8),
    (Column::Outcome, 112, 16),
];

fn origin_of(batch: &Batch, place: usize) -> u128 {
    ORIGIN_PARTS.iter().fold(0, |origin, (column, shift, _)| {
        origin | u128::from(batch.numbers(*column)[place]) << shift
    })
}

/// An origin as a key.
fn halves(origin: u128) -> [u64; 2] {
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).expect("64 bits");
    [half(origin), half(origin >> 64)]
}

fn joined([low, high]: &[u64; 2]) -> u128 {
    u128::from(*high) << 64 | u128::from(*low)
}

fn pack_block(batch: &Batch, origins: &mut KeyTable<2>, bytes: &mut Vec<u8>) -> Block {
    let count = batch.len();
    let at = u32::try_from(bytes.len()).expect("a segment is less than 4 GiB");
    let mut lengths = [0; PACKED_COLUMNS];
    let mut add = |place: usize, numbers: &[u64]| {
        let before = bytes.len();
        pack(numbers, bytes);
        lengths[place] = u16::try_from(bytes.len() - before).expect("at most 256 numbers");
    };
    let ended = &batch.numbers(Column::Ended)[..count];
    let mut numbers = [0; BATCH_RECORDS];
    for (place, times) in ended.windows(2).enumerate() {
        numbers[place + 1] = times[1] - times[0];
    }
    add(0, &numbers[..count]);
    for (place, column) in DIRECT.into_iter().enumerate() {
        if column == Column::Object {
            let objects = batch.numbers(column).iter();
            (numbers.iter_mut().zip(objects)).for_each(|(n, object)| *n = object.rotate_left(1));
            add(place + 1, &numbers[..count]);
            continue;
        }
        add(place + 1, &batch.numbers(column)[..count]);
    }
    for (place, number) in numbers[..count].iter_mut().enumerate() {
        let found = origins.find_or_add(&halves(origin_of(batch, place)), usize::MAX);
        let found = found.expect("the table has no bound");
        *number = u64::try_from(found).expect("fits 64 bits");
    }
    add(ORIGIN, &numbers[..count]);
    for stage in Stage::ALL {
        let durations = batch.numbers(Column::Stage(*stage));
        for (number, duration) in numbers[..count].iter_mut().zip(durations) {
            *number = u64::from(pack_stage_ns(*duration));
        }
        add(BEFORE_STAGES + stage.index(), &numbers[..count]);
    }
    Block {
        first_ended_ns: ended[0],
        last_ended_ns: ended[count - 1],
        at,
        lengths,
        count: u16::try_from(count).expect("at most 256"),
    }
}

fn unpack_times(packed: &[u8], first_ns: u64, count: usize, times: &mut Numbers) {
    unpack(packed, count, times);
    let mut time = first_ns;
    for number in &mut times[..count] {
        time += *number;
        *number = time;
    }
}
