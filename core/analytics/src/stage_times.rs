//! In which stages operations spent their time, together.

use std::ops::Range;

use tarn_probe::Stage;

use crate::column_batch::{Column, ColumnSet};
use crate::compiled::CompiledPredicate;
use crate::flight_recorder::FlightRecorder;

/// Sums of nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// Of each stage, at the place of its number. A stage is known within 0.1 %.
    pub stages_ns: [u64; Stage::COUNT],
    /// In no stage. An operation whose stages add up to more than its latency, as several threads
    /// worked for it at once, has none.
    pub unaccounted_ns: u64,
}

impl StageTimes {
    fn add(&mut self, other: &StageTimes) {
        let stages = self.stages_ns.iter_mut().zip(other.stages_ns);
        stages.for_each(|(sum, one)| *sum = sum.saturating_add(one));
        self.unaccounted_ns = self.unaccounted_ns.saturating_add(other.unaccounted_ns);
    }
}

impl FlightRecorder {
    /// Sums up the stages of operations that ended in a time and that the predicate means.
    pub fn stage_times(&self, range_ns: &Range<u64>, predicate: &CompiledPredicate) -> StageTimes {
        let stages = Stage::ALL.iter().map(|stage| Column::Stage(*stage));
        let wanted = stages.fold(predicate.columns().with(Column::Latency), ColumnSet::with);
        let parts = self.fold(
            range_ns,
            wanted,
            StageTimes::default,
            |sums, batch, in_range| {
                let latencies = batch.numbers(Column::Latency);
                predicate.mask(batch, in_range).for_each(|place| {
                    let of = |stage: &Stage| batch.numbers(Column::Stage(*stage))[place];
                    let mut one = StageTimes::default();
                    for (sum, stage) in one.stages_ns.iter_mut().zip(Stage::ALL) {
                        *sum = of(stage);
                    }
                    let accounted_ns: u64 = one.stages_ns.iter().sum();
                    one.unaccounted_ns = latencies[place].saturating_sub(accounted_ns);
                    sums.add(&one);
                });
            },
        );
        let mut sums = StageTimes::default();
        parts.iter().for_each(|part| sums.add(part));
        sums
    }
}
