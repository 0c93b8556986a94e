//! A segment of the flight recorder: some thousand operations, packed column by column.
//!
//! # Mechanism
//! The operations are sorted by the time they ended, and cut into blocks of 256. Each block has
//! fifteen packed columns (`column_packing.rs`): the times between ends, latency, size, offset,
//! object, the origin, and the nine stages as records hold them. An origin is one number for
//! dataset, client, error, user, kind, protocol and outcome together, since few combinations of
//! them occur. Objects are rotated by a bit: missing names, which have the highest one, are small
//! numbers then. A query unpacks only the columns that it asks for, and only blocks whose times are
//! in its range.
//!
//! # Invariants
//! - A block gives back the operations that went in, number for number.
//! - A segment is never changed: queries read it while the collector goes on.

use std::ops::Range;

use tarn_probe::{OperationRecord, Stage, unpack_stage_ns};

use crate::column_batch::{
    BATCH_RECORDS, Batch, Column, ColumnSet, FillWhole, Numbers, kind_of, protocol_of,
};
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
/// Bytes that are made room for at first, for each operation.
const PACKED_BYTES_GUESS: usize = 16;

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
    /// Packs operations.
    ///
    /// # Panics
    /// If there are none: an empty segment has no times.
    pub(crate) fn pack(records: &[OperationRecord]) -> Segment {
        assert!(!records.is_empty(), "a segment has operations");
        // Times with places are sorted, a fourth of what records are.
        let mut order: Vec<(u64, usize)> = records
            .iter()
            .map(OperationRecord::ended_ns)
            .zip(0..)
            .collect();
        order.sort();
        let mut bytes = Vec::with_capacity(records.len() * PACKED_BYTES_GUESS);
        let mut origins = KeyTable::<2>::default();
        let mut sorted = Vec::with_capacity(BATCH_RECORDS);
        let mut blocks = Vec::new();
        for part in order.chunks(BATCH_RECORDS) {
            sorted.clear();
            sorted.extend(part.iter().map(|(_, place)| records[*place]));
            blocks.push(pack_block(&sorted, &mut origins, &mut bytes));
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
                    *number = unpack_stage_ns(u16::try_from(*number).expect("packed from 14 bits"));
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

/// The columns of an origin, with the first bit and the count of bits of each. Clients are numbered
/// far below 24 bits.
const ORIGIN_PARTS: [(Column, u32, u32); 7] = [
    (Column::Dataset, 0, 32),
    (Column::Client, 32, 24),
    (Column::Error, 56, 8),
    (Column::User, 64, 32),
    (Column::Kind, 96, 8),
    (Column::Protocol, 104, 8),
    (Column::Outcome, 112, 16),
];

/// What [`ORIGIN_PARTS`] tell of an operation, in two halves.
fn origin_of(record: &OperationRecord) -> [u64; 2] {
    let client = u64::from(record.client.0 & 0x00ff_ffff) << 32;
    let error = u64::from(record.error().number()) << 56;
    let low = u64::from(record.dataset.0) | client | error;
    let kind = u64::from(kind_of(record).number()) << 32;
    let protocol = u64::from(protocol_of(record).number()) << 40;
    let outcome = u64::from(record.outcome_bits()) << 48;
    [low, u64::from(record.user) | kind | protocol | outcome]
}

fn joined([low, high]: &[u64; 2]) -> u128 {
    u128::from(*high) << 64 | u128::from(*low)
}

fn pack_block(
    records: &[OperationRecord],
    origins: &mut KeyTable<2>,
    bytes: &mut Vec<u8>,
) -> Block {
    let count = records.len();
    let at = u32::try_from(bytes.len()).expect("a segment is less than 4 GiB");
    let mut lengths = [0; PACKED_COLUMNS];
    let mut numbers = [0; BATCH_RECORDS];
    let mut add = |place: usize, number: &mut dyn FnMut(&OperationRecord) -> u64| {
        for (stored, record) in numbers.iter_mut().zip(records) {
            *stored = number(record);
        }
        let before = bytes.len();
        pack(&numbers[..count], bytes);
        lengths[place] = u16::try_from(bytes.len() - before).expect("at most 256 numbers");
    };
    let first_ended_ns = records[0].ended_ns();
    let mut last_ended_ns = first_ended_ns;
    add(0, &mut |record| {
        let before_ns = std::mem::replace(&mut last_ended_ns, record.ended_ns());
        last_ended_ns - before_ns
    });
    add(1, &mut |record| record.latency_ns());
    add(2, &mut |record| record.size.into());
    add(3, &mut |record| record.offset);
    add(4, &mut |record| record.object().rotate_left(1));
    let mut last: Option<([u64; 2], u64)> = None;
    add(ORIGIN, &mut |record| {
        let origin = origin_of(record);
        let number = match last {
            Some((before, number)) if before == origin => number,
            _ => {
                let found = origins.find_or_add(&origin, usize::MAX);
                u64::try_from(found.expect("the table has no bound")).expect("fits 64 bits")
            }
        };
        last = Some((origin, number));
        number
    });
    for stage in Stage::ALL {
        let place = BEFORE_STAGES + stage.index();
        add(place, &mut |record| record.packed_stage(*stage).into());
    }
    Block {
        first_ended_ns,
        last_ended_ns,
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
