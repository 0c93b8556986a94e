//! Breakdowns: by which fields operations are counted, and what is summed up.

use crate::column_batch::{BATCH_RECORDS, Batch, Column, ColumnSet, Numbers};
use crate::error::QueryError;
use crate::field::Field;
use crate::key_table::Key;
use crate::tally::Tally;

/// Most discrete fields of a breakdown.
pub const DISCRETE_MAX: usize = 2;

/// Most words of a key.
pub(crate) const KEY_WORDS_MAX: usize = 2 * DISCRETE_MAX;

/// What is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Operations.
    Operations,
    /// Their bytes.
    Bytes,
    /// Their nanoseconds from begin to end: shares of the time that clients wait.
    WaitTime,
}

impl Measure {
    /// The name that programs get.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Operations => "operations",
            Measure::Bytes => "bytes",
            Measure::WaitTime => "wait-time",
        }
    }

    /// What a statistic of it is called, behind the point.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Measure::Operations => "ops",
            Measure::Bytes => "bytes",
            Measure::WaitTime => "wait",
        }
    }
}

/// Up to two discrete fields and one numeric, and a measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakdown {
    by: Vec<Field>,
    numeric: Option<Field>,
    measure: Measure,
}

impl Breakdown {
    /// Refuses more than two fields in `by`, a numeric one there, and a discrete `numeric`.
    pub fn new(
        by: &[Field],
        numeric: Option<Field>,
        measure: Measure,
    ) -> Result<Breakdown, QueryError> {
        let is_right = by.len() <= DISCRETE_MAX
            && !by.iter().any(|field| field.is_numeric())
            && numeric.is_none_or(Field::is_numeric);
        match is_right {
            true => Ok(Breakdown {
                by: by.to_vec(),
                numeric,
                measure,
            }),
            false => Err(QueryError::WrongBreakdown),
        }
    }

    /// The discrete fields: what the values of a [`Key`] are.
    pub fn by(&self) -> &[Field] {
        &self.by
    }

    /// The numeric field, whose buckets the cells of a [`Tally`] are.
    pub fn numeric(&self) -> Option<Field> {
        self.numeric
    }

    /// What is summed up.
    pub fn measure(&self) -> Measure {
        self.measure
    }

    /// The columns that are needed.
    pub fn columns(&self) -> ColumnSet {
        let fields = self.by.iter().chain(&self.numeric);
        let columns = fields.fold(ColumnSet::default(), |set, field| set.and(field.columns()));
        (self.weight_column()).map_or(columns, |weight| columns.with(weight))
    }

    /// The column of what is summed up; none where each operation is one.
    pub(crate) fn weight_column(&self) -> Option<Column> {
        match self.measure {
            Measure::Operations => None,
            Measure::Bytes => Some(Column::Size),
            Measure::WaitTime => Some(Column::Latency),
        }
    }

    /// How many words the key of an operation has: a file is two, its dataset and its object.
    pub(crate) fn key_words(&self) -> usize {
        let words = |field: &Field| if *field == Field::File { 2 } else { 1 };
        self.by.iter().map(words).sum()
    }

    /// The key of each operation of a batch, in words; those at and beyond its length mean nothing.
    /// A word that no field has stays as it is.
    pub(crate) fn fill_keys<const W: usize>(
        &self,
        batch: &Batch,
        keys: &mut [[u64; W]; BATCH_RECORDS],
    ) {
        let mut word = 0;
        for field in &self.by {
            if *field == Field::File {
                copy_word(batch.numbers(Column::Dataset), keys, word);
                word += 1;
            }
            match field.plain_column() {
                Some(column) => copy_word(batch.numbers(column), keys, word),
                None => {
                    let mut numbers = [0; BATCH_RECORDS];
                    field.fill_numbers(batch, &mut numbers);
                    copy_word(&numbers, keys, word);
                }
            }
            word += 1;
        }
    }

    /// The key of these words.
    pub(crate) fn key_of(&self, words: &[u64]) -> Key {
        let mut words = words.iter().copied().map(u128::from);
        let mut next = || words.next().expect("a word for each of the fields");
        let mut key = [0; DISCRETE_MAX];
        for (value, field) in key.iter_mut().zip(&self.by) {
            *value = match field {
                Field::File => next() << 64 | next(),
                _ => next(),
            };
        }
        key
    }

    /// What is counted of a batch.
    pub(crate) fn counted<'b>(&self, batch: &'b Batch) -> Counted<'b> {
        let weights = self.weight_column().map(|column| batch.numbers(column));
        let numeric = self.numeric.map(|field| batch.numbers(field.column()));
        Counted { weights, numeric }
    }
}

fn copy_word<const W: usize>(numbers: &Numbers, keys: &mut [[u64; W]; BATCH_RECORDS], word: usize) {
    for (key, number) in keys.iter_mut().zip(numbers) {
        key[word] = *number;
    }
}

/// The columns of a batch that are counted.
pub(crate) struct Counted<'b> {
    /// None: each operation is one.
    weights: Option<&'b Numbers>,
    numeric: Option<&'b Numbers>,
}

impl Counted<'_> {
    /// How much one operation counts.
    pub(crate) fn weight(&self, place: usize) -> u64 {
        self.weights.map_or(1, |weights| weights[place])
    }

    /// Adds one operation to a tally.
    pub(crate) fn add(&self, tally: &mut Tally, place: usize) {
        let number = self.numeric.map(|numbers| numbers[place]);
        tally.add(self.weight(place), number);
    }
}
