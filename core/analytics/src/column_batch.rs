//! A batch: up to 256 operations, column by column.
//!
//! # Mechanism
//! The collector, the flight recorder's segments, predicates, live instrumentations and queries all
//! work on batches. A test of a predicate runs over one column of 256 numbers at a time, which the
//! compiler turns into vector code, and gives a [`Mask`] with a bit for each operation. Columns
//! that no field asks for are not filled.

use tarn_probe::{
    ClientId, DatasetId, ErrorCode, HolderId, OperationKind, OperationRecord, Outcome, Protocol,
    Stage, What, Who,
};

/// Operations in a batch: a position in it is a byte.
pub const BATCH_RECORDS: usize = 256;

/// A column of a batch: one number of an operation record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// When the operation ended, in nanoseconds of its clock.
    Ended,
    /// Nanoseconds from begin to end.
    Latency,
    /// Bytes.
    Size,
    /// Where in the object, in bytes.
    Offset,
    /// The object (file) number.
    Object,
    /// The number of the dataset.
    Dataset,
    /// The number of the client.
    Client,
    /// The user's numeric id.
    User,
    /// The number of the [`OperationKind`].
    Kind,
    /// The number of the [`Protocol`].
    Protocol,
    /// A bit for each [`Outcome`].
    Outcome,
    /// The number of the [`ErrorCode`].
    Error,
    /// Nanoseconds of a stage.
    Stage(Stage),
}

/// Columns beside those of stages.
const PLAIN_COLUMNS: usize = 12;
/// How many columns a batch has.
const COLUMNS: usize = PLAIN_COLUMNS + Stage::COUNT;

impl Column {
    fn index(self) -> usize {
        match self {
            Column::Ended => 0,
            Column::Latency => 1,
            Column::Size => 2,
            Column::Offset => 3,
            Column::Object => 4,
            Column::Dataset => 5,
            Column::Client => 6,
            Column::User => 7,
            Column::Kind => 8,
            Column::Protocol => 9,
            Column::Outcome => 10,
            Column::Error => 11,
            Column::Stage(stage) => PLAIN_COLUMNS + stage.index(),
        }
    }
}

/// Which columns are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ColumnSet(u32);

impl ColumnSet {
    /// All columns.
    pub const ALL: ColumnSet = ColumnSet(u32::MAX);

    /// With one more.
    #[must_use]
    pub fn with(self, column: Column) -> ColumnSet {
        ColumnSet(self.0 | 1 << column.index())
    }

    /// With those of another set.
    #[must_use]
    pub fn and(self, other: ColumnSet) -> ColumnSet {
        ColumnSet(self.0 | other.0)
    }

    /// Whether the column is wanted.
    pub fn has(self, column: Column) -> bool {
        self.0 & 1 << column.index() != 0
    }
}

/// Fills a batch with all columns of the operations of another one, which has only some.
pub(crate) type FillWhole<'f> = dyn Fn(&mut Batch) + 'f;

/// Takes the operations of a batch in a mask, and what fills another batch with all their columns.
pub(crate) type TakeBlock<'t> = dyn FnMut(&Batch, Mask, &FillWhole<'_>) + 't;

/// A column's numbers; those at and beyond the batch's length mean nothing.
pub type Numbers = [u64; BATCH_RECORDS];

/// Up to [`BATCH_RECORDS`] operations.
#[derive(Clone, Debug)]
pub struct Batch {
    length: usize,
    columns: Box<[Numbers]>,
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

impl Batch {
    /// An empty one, which takes some 40 KiB.
    pub fn new() -> Batch {
        Batch {
            length: 0,
            columns: vec![[0; BATCH_RECORDS]; COLUMNS].into_boxed_slice(),
        }
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.length == BATCH_RECORDS
    }

    /// Forgets its operations.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// The numbers of a column.
    pub fn numbers(&self, column: Column) -> &Numbers {
        &self.columns[column.index()]
    }

    pub(crate) fn numbers_mut(&mut self, column: Column) -> &mut Numbers {
        &mut self.columns[column.index()]
    }

    /// Says how many operations the filled columns have.
    pub(crate) fn set_length(&mut self, length: usize) {
        assert!(length <= BATCH_RECORDS, "a batch has {length} operations");
        self.length = length;
    }

    /// Adds an operation.
    ///
    /// # Panics
    /// If the batch is full.
    pub fn push(&mut self, record: &OperationRecord) {
        let place = self.length;
        assert!(place < BATCH_RECORDS, "a full batch gets no operation");
        let (kind, protocol) = (kind_of(record), protocol_of(record));
        let plain = [
            record.ended_ns(),
            record.latency_ns(),
            u64::from(record.size),
            record.offset,
            record.object(),
            u64::from(record.dataset.0),
            u64::from(record.client.0),
            u64::from(record.user),
            u64::from(kind.number()),
            u64::from(protocol.number()),
            u64::from(record.outcome_bits()),
            u64::from(record.error().number()),
        ];
        for (column, number) in self.columns.iter_mut().zip(plain) {
            column[place] = number;
        }
        for stage in Stage::ALL {
            self.columns[PLAIN_COLUMNS + stage.index()][place] = record.stage_ns(*stage);
        }
        self.length = place + 1;
    }

    /// Has these operations instead, with the wanted columns.
    ///
    /// # Panics
    /// If there are more than [`BATCH_RECORDS`].
    pub fn fill(&mut self, records: &[OperationRecord], wanted: ColumnSet) {
        self.set_length(records.len());
        let mut fill = |column: Column, number: fn(&OperationRecord) -> u64| {
            if wanted.has(column) {
                let numbers = self.numbers_mut(column).iter_mut().zip(records);
                numbers.for_each(|(place, record)| *place = number(record));
            }
        };
        fill(Column::Ended, OperationRecord::ended_ns);
        fill(Column::Latency, OperationRecord::latency_ns);
        fill(Column::Size, |record| record.size.into());
        fill(Column::Offset, |record| record.offset);
        fill(Column::Object, OperationRecord::object);
        fill(Column::Dataset, |record| record.dataset.0.into());
        fill(Column::Client, |record| record.client.0.into());
        fill(Column::User, |record| record.user.into());
        fill(Column::Kind, |record| kind_of(record).number().into());
        fill(Column::Protocol, |record| {
            protocol_of(record).number().into()
        });
        fill(Column::Outcome, |record| record.outcome_bits().into());
        fill(Column::Error, |record| record.error().number().into());
        for stage in Stage::ALL {
            if wanted.has(Column::Stage(*stage)) {
                let numbers = self.numbers_mut(Column::Stage(*stage)).iter_mut();
                let numbers = numbers.zip(records);
                numbers.for_each(|(place, record)| *place = record.stage_ns(*stage));
            }
        }
    }

    /// The record of one operation, if all columns were filled.
    pub fn record(&self, place: usize) -> OperationRecord {
        let number = |column: Column| self.columns[column.index()][place];
        let small = |column| u32::try_from(number(column)).unwrap_or(u32::MAX);
        let byte = |column| u8::try_from(number(column)).unwrap_or(u8::MAX);
        let who = Who {
            client: ClientId(small(Column::Client)),
            protocol: Protocol::from_number(byte(Column::Protocol)).unwrap_or(Protocol::Internal),
            user: small(Column::User),
            holder: HolderId::NONE,
        };
        let what = What {
            kind: OperationKind::from_number(byte(Column::Kind)).unwrap_or(OperationKind::Other),
            dataset: DatasetId(small(Column::Dataset)),
            object: number(Column::Object),
            offset: number(Column::Offset),
            size: number(Column::Size),
        };
        let latency_ns = number(Column::Latency);
        let stages = std::array::from_fn(|i| self.columns[PLAIN_COLUMNS + i][place]);
        let record = OperationRecord::new(
            number(Column::Ended).saturating_sub(latency_ns),
            latency_ns,
            &who,
            &what,
            u16::try_from(number(Column::Outcome)).unwrap_or(u16::MAX),
            &stages,
        );
        record.with_error(ErrorCode::from_number(byte(Column::Error)))
    }
}

/// The kind of an operation; other programs may know more of them.
pub(crate) fn kind_of(record: &OperationRecord) -> OperationKind {
    record.kind().unwrap_or(OperationKind::Other)
}

/// The protocol of an operation; other programs may know more of them.
pub(crate) fn protocol_of(record: &OperationRecord) -> Protocol {
    record.protocol().unwrap_or(Protocol::Internal)
}

/// The bits of outcomes that were marked.
pub(crate) fn has_outcome(bits: u64, outcome: Outcome) -> bool {
    bits & u64::from(outcome.bit()) != 0
}

const WORDS: usize = BATCH_RECORDS / 64;

/// A bit for each operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask([u64; WORDS]);

impl Mask {
    /// No operation.
    pub const NONE: Mask = Mask([0; WORDS]);

    /// The first `length` operations.
    pub fn first(length: usize) -> Mask {
        Mask::of(|place| place < length)
    }

    /// The operations for which `is_in` says so; it is asked for all 256 places.
    pub fn of(is_in: impl Fn(usize) -> bool) -> Mask {
        let mut places = [0_u8; BATCH_RECORDS];
        for (number, place) in places.iter_mut().enumerate() {
            *place = u8::from(is_in(number));
        }
        let mut words = [0; WORDS];
        for (word, places) in words.iter_mut().zip(places.chunks_exact(64)) {
            for (eight, places) in places.chunks_exact(8).enumerate() {
                // Eight bytes that are 0 or 1 become the bits of the highest byte.
                let bytes = u64::from_le_bytes(places.try_into().expect("eight bytes"));
                *word |= bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56 << (8 * eight);
            }
        }
        Mask(words)
    }

    /// Those in both.
    #[must_use]
    pub fn and(self, other: Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Those in either.
    #[must_use]
    pub fn or(self, other: Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Those not in it, up to the end of a full batch.
    #[must_use]
    pub fn inverted(self) -> Mask {
        Mask(self.0.map(|word| !word))
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == [0; WORDS]
    }

    /// How many operations it has.
    pub fn count(self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The places of its first and its last operation.
    pub fn bounds(self) -> Option<(usize, usize)> {
        let first = self.0.iter().position(|word| *word != 0)?;
        let last = self.0.iter().rposition(|word| *word != 0)?;
        let bit = |bits: u32| usize::try_from(bits).expect("at most 63");
        let lowest = bit(self.0[first].trailing_zeros());
        let highest = 63 - bit(self.0[last].leading_zeros());
        Some((first * 64 + lowest, last * 64 + highest))
    }

    /// Calls `take` with the place of each operation, in order.
    pub fn for_each(self, mut take: impl FnMut(usize)) {
        for (index, word) in self.0.into_iter().enumerate() {
            let (mut rest, mut place) = (word, index * 64);
            while rest != 0 {
                let skipped = rest.trailing_zeros();
                place += usize::try_from(skipped).expect("at most 63");
                take(place);
                rest = rest.checked_shr(skipped + 1).unwrap_or(0);
                place += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::sim::Random;

    #[test]
    fn a_mask_gives_exactly_the_places_that_were_put_in() {
        let mut random = Random::new(1);
        for _ in 0..50 {
            let is_in: Vec<bool> = (0..BATCH_RECORDS).map(|_| random.chance(1, 3)).collect();
            let mask = Mask::of(|place| is_in[place]);
            let mut places = Vec::new();
            mask.for_each(|place| places.push(place));
            let expected: Vec<usize> = (0..BATCH_RECORDS).filter(|place| is_in[*place]).collect();
            assert_eq!(places, expected);
            let bounds = places.first().copied().zip(places.last().copied());
            assert_eq!(mask.bounds(), bounds);
            assert_eq!(mask.count(), u64::try_from(expected.len()).unwrap());
            assert_eq!(mask.and(mask.inverted()), Mask::NONE);
            assert_eq!(mask.or(mask.inverted()), Mask::first(BATCH_RECORDS));
        }
    }
}
