//! Breakdowns: by which fields operations are counted, and what is summed up.

use crate::column_batch::{Batch, Column, ColumnSet};
use crate::error::QueryError;
use crate::field::Field;
use crate::key_table::Key;
use crate::tally::Tally;

/// Most discrete fields of a breakdown.
pub const DISCRETE_MAX: usize = 2;

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
        match self.measure {
            Measure::Operations => columns,
            Measure::Bytes => columns.with(Column::Size),
            Measure::WaitTime => columns.with(Column::Latency),
        }
    }

    /// The key of one operation.
    pub(crate) fn key(&self, batch: &Batch, place: usize) -> Key {
        let mut key = [0; DISCRETE_MAX];
        for (value, field) in key.iter_mut().zip(&self.by) {
            *value = field.key(batch, place);
        }
        key
    }

    /// How much one operation counts.
    pub(crate) fn weight(&self, batch: &Batch, place: usize) -> u64 {
        match self.measure {
            Measure::Operations => 1,
            Measure::Bytes => batch.numbers(Column::Size)[place],
            Measure::WaitTime => batch.numbers(Column::Latency)[place],
        }
    }

    /// Adds one operation to a tally.
    pub(crate) fn add(&self, tally: &mut Tally, batch: &Batch, place: usize) {
        let number = self.numeric.map(|field| field.number(batch, place));
        tally.add(self.weight(batch, place), number);
    }
}
