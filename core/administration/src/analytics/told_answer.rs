//! Answers as they travel: with the names of the keys, and only the buckets that are used.

use super::wall_clock::WallClock;
use crate::administrator::Administrator;
use crate::messages::analytics::{Answer, Group, Series};
use std::collections::{BTreeMap, BTreeSet};
use tarn_analytics::{Collected, Field, Statement, Tally, ValueNames};
use tarn_probe::HistogramSnapshot;

impl Administrator {
    /// An answer with the names of what it shows.
    pub(super) fn tell_answer(
        &self,
        statement: &Statement,
        mut names: ValueNames,
        answer: &tarn_analytics::Answer,
        clock: WallClock,
    ) -> Answer {
        let by = statement.by();
        let groups = answer.groups.iter();
        let keys = groups.flat_map(|group| by.iter().copied().zip(group.key));
        let shown: BTreeSet<(Field, u128)> = keys.collect();
        self.engine.add_shown_names(&mut names, &shown);
        let places = places(&answer.total);
        let series = |tallies: &[Tally]| told_series(tallies, &places);
        let groups = answer.groups.iter().map(|group| {
            let values = || by.iter().copied().zip(group.key);
            Group {
                key: values()
                    .map(|(field, key)| names.name(field, key))
                    .collect(),
                ids: values().map(|(field, key)| id_of(field, key)).collect(),
                sum: group
                    .series
                    .iter()
                    .map(|tally| tally.sum)
                    .fold(0, u64::saturating_add),
                series: series(&group.series),
            }
        });
        Answer {
            statement: statement.to_string(),
            title: statement.title(),
            source: "recorder".to_owned(),
            measure: statement.measure.name().to_owned(),
            from_ms: clock.unix_ms(answer.range_ns.start),
            column_ms: answer.column_ns / 1_000_000,
            columns: wide(answer.columns.len()),
            states: answer
                .columns
                .iter()
                .map(|column| state_of(column.collected))
                .collect(),
            dropped: answer.dropped,
            by: by.iter().map(|field| field.name()).collect(),
            numeric: statement.numeric().map(Field::name),
            buckets: places.keys().map(|bucket| range_of(*bucket)).collect(),
            total: series(&answer.total),
            groups: groups.collect(),
            other: series(&answer.other),
            keys_found: wide(answer.keys_found),
            unranked: answer.unranked,
        }
    }
}

pub(super) fn state_of(collected: Collected) -> u8 {
    match collected {
        Collected::NotCollected => 0,
        Collected::Partly => 1,
        Collected::Whole => 2,
    }
}

/// The place of each bucket that is used, in the list of them.
fn places(total: &[Tally]) -> BTreeMap<usize, u64> {
    let buckets = total.iter().flat_map(|tally| tally.cells());
    let used: BTreeSet<usize> = buckets.map(|(bucket, _)| bucket).collect();
    used.into_iter().zip(0..).collect()
}

/// The values of a bucket, the end excluded.
pub(super) fn range_of(bucket: usize) -> [u64; 2] {
    let (low, high) = HistogramSnapshot::range_of(bucket);
    [low, high.saturating_add(1)]
}

fn told_series(tallies: &[Tally], places: &BTreeMap<usize, u64>) -> Series {
    let mut cells = Vec::new();
    for (column, tally) in (0..).zip(tallies) {
        for (bucket, count) in tally.cells() {
            cells.extend([column, places[&bucket], count]);
        }
    }
    Series {
        sums: tallies.iter().map(|tally| tally.sum).collect(),
        cells,
    }
}

/// A key as a number; of a file dataset and object.
fn id_of(field: Field, key: u128) -> String {
    match field {
        Field::File => format!("{}:{}", key >> 64, key & u128::from(u64::MAX)),
        _ => key.to_string(),
    }
}

pub(super) fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
