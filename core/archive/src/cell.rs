//! Cells: what a series was in one column of time.

use std::sync::Arc;

use tarn_analytics::{Collected, Tally};

/// Bytes of a name or of a value of a key that are kept.
pub(crate) const NAME_BYTES_MAX: usize = 1024;
/// Values of a key.
pub(crate) const KEY_VALUES_MAX: usize = 4;

/// Which series: a statistic, and which part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesId {
    /// A statement or the name of a sampled statistic: `nfs.ops[op]:latency`, `arc.size`.
    pub statistic: String,
    /// Which part.
    pub key: SeriesKey,
}

/// Which part of a statistic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesKey {
    /// That of these values, one for each of its fields: `["read"]`; without fields, all of it.
    Of(Vec<String>),
    /// The keys that were too many to be told apart.
    Other,
}

impl SeriesId {
    /// The series of a statistic with that key.
    ///
    /// # Panics
    /// If a name is longer than [`NAME_BYTES_MAX`], or the key has too many values.
    pub fn new(statistic: &str, key: &[&str]) -> SeriesId {
        let names = key.iter().chain([&statistic]);
        assert!(names.map(|name| name.len()).max().unwrap_or(0) <= NAME_BYTES_MAX);
        assert!(key.len() <= KEY_VALUES_MAX);
        SeriesId {
            statistic: statistic.to_owned(),
            key: SeriesKey::Of(key.iter().map(|value| (*value).to_owned()).collect()),
        }
    }

    /// The keys of a statistic that were too many.
    pub fn other(statistic: &str) -> SeriesId {
        SeriesId {
            key: SeriesKey::Other,
            ..SeriesId::new(statistic, &[])
        }
    }
}

/// What was counted or sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Operations or samples.
    pub count: u64,
    /// The sum of the measure: operations, bytes, nanoseconds; of samples their sum.
    pub sum: u64,
    /// The least and the most of the numeric field or of the samples.
    pub range: Option<(u64, u64)>,
    /// Operations by bucket of `probe`'s histograms, the lowest bucket first, none without any.
    pub buckets: Vec<(u16, u64)>,
}

impl Cell {
    /// One sample.
    pub fn of_sample(value: u64) -> Cell {
        Cell {
            count: 1,
            sum: value,
            range: Some((value, value)),
            buckets: Vec::new(),
        }
    }

    /// What a live instrumentation counted.
    pub fn of_tally(tally: &Tally) -> Cell {
        let buckets = tally.cells();
        let narrow = |bucket| u16::try_from(bucket).expect("a histogram has 496 buckets");
        Cell {
            count: tally.count,
            sum: tally.sum,
            range: tally.range(),
            buckets: buckets
                .map(|(bucket, count)| (narrow(bucket), count))
                .collect(),
        }
    }

    /// Adds all of another one. Sums wrap, as those of tallies do.
    pub fn merge(&mut self, other: &Cell) {
        self.count = self.count.wrapping_add(other.count);
        self.sum = self.sum.wrapping_add(other.sum);
        self.range = match (self.range, other.range) {
            (Some((low, high)), Some((least, most))) => Some((low.min(least), high.max(most))),
            (one, other) => one.or(other),
        };
        for (bucket, count) in &other.buckets {
            match self
                .buckets
                .binary_search_by_key(bucket, |(known, _)| *known)
            {
                Ok(at) => self.buckets[at].1 = self.buckets[at].1.wrapping_add(*count),
                Err(at) => self.buckets.insert(at, (*bucket, *count)),
            }
        }
    }

    /// Whether it is one sample and nothing else.
    pub(crate) fn is_sample(&self) -> bool {
        self.count == 1 && self.range == Some((self.sum, self.sum)) && self.buckets.is_empty()
    }
}

/// What is known of a column of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnHead {
    /// Seconds of it that were collected whole.
    pub whole_s: u32,
    /// Seconds of it of which some operations may be missing.
    pub partly_s: u32,
    /// Operations that were dropped.
    pub dropped: u64,
}

impl ColumnHead {
    /// That of one second.
    pub fn of_second(collected: Collected, dropped: u64) -> ColumnHead {
        ColumnHead {
            whole_s: u32::from(collected == Collected::Whole),
            partly_s: u32::from(collected == Collected::Partly),
            dropped,
        }
    }

    /// Adds another part of the same column.
    pub(crate) fn merge(&mut self, other: &ColumnHead) {
        self.whole_s = self.whole_s.saturating_add(other.whole_s);
        self.partly_s = self.partly_s.saturating_add(other.partly_s);
        self.dropped = self.dropped.wrapping_add(other.dropped);
    }

    /// Whether a column of so many seconds is known.
    pub(crate) fn collected(&self, column_s: u64) -> Collected {
        match (self.whole_s, self.partly_s) {
            (0, 0) => Collected::NotCollected,
            (whole_s, _) if u64::from(whole_s) >= column_s => Collected::Whole,
            _ => Collected::Partly,
        }
    }
}

/// All series in one column of time. A series that is not in it was zero, if the column was
/// collected; a sampled one was not sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// The Unix second at which it begins.
    pub start_s: u64,
    /// What is known of it.
    pub head: ColumnHead,
    /// The series, in their order, each once.
    pub cells: Vec<(Arc<SeriesId>, Cell)>,
}

impl Column {
    /// One that begins then, of nothing.
    pub fn new(start_s: u64) -> Column {
        Column {
            start_s,
            ..Column::default()
        }
    }

    /// The union of columns within one of a coarser tier, which begins at `start_s`.
    pub(crate) fn merged<'a>(start_s: u64, parts: impl Iterator<Item = &'a Column>) -> Column {
        let mut column = Column::new(start_s);
        let mut cells = std::collections::BTreeMap::<Arc<SeriesId>, Cell>::new();
        for part in parts {
            column.head.merge(&part.head);
            for (series, cell) in &part.cells {
                match cells.get_mut(series) {
                    Some(known) => known.merge(cell),
                    None => _ = cells.insert(series.clone(), cell.clone()),
                }
            }
        }
        column.cells = cells.into_iter().collect();
        column
    }
}
