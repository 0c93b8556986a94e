//! Answers: what the archive has of a statement, in columns of time.
//!
//! # Mechanism
//! The tier is the coarsest whose columns are not longer than those asked for, among the tiers that
//! go back to the begin of the range; columns are as many of the tier's together as were asked for,
//! and at least one. A long range of a fine tier is answered from the next coarser one, whose
//! columns are a little longer ([`READ_COLUMNS_MAX`]). All processors read blocks, each of them the
//! series that are asked for; these and what memory has are added up by series, then by key.
//!
//! # Invariants
//! - In each column the groups and `other` add up to the total, bucket by bucket.
//! - A column that was not collected is told as such, whatever the series have there.

use std::collections::BTreeMap;
use std::ops::Range;

use tarn_analytics::{Collected, Field, columns_of_answer};

use crate::archive_contents::Sources;
use crate::archive_store::Archive;
use crate::block_format::PieceEntry;
use crate::block_reader::BlockReader;
use crate::cell::{Cell, Column, ColumnHead, SeriesKey};
use crate::error::ArchiveQueryError;
use crate::kept_statements::{ArchivedMeasure, Asked, Plan};
use crate::series_coding::Placing;
use crate::tier::Tier;

/// So many columns of a tier are read for an answer, unless no other tier will do: ten hours of
/// seconds, 25 days of minutes. Measured: they are read and added up in a tenth of a second.
const READ_COLUMNS_MAX: u64 = 36_000;
/// Columns of an answer from a coarser tier may be so many times as long as they were asked for.
const LONGER_MAX: u64 = 3;

/// What is asked of the archive.
#[derive(Clone, Debug)]
pub struct ArchiveQuery {
    /// A statement, or a sampled statistic.
    pub asked: Asked,
    /// Unix seconds.
    pub range_s: Range<u64>,
    /// How long a column is asked to be, in seconds. Columns of the answer may be longer.
    pub column_s: u64,
    /// How many keys are told apart.
    pub keys_max: usize,
}

/// What is known of a column of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchivedColumn {
    /// Whether it was collected.
    pub collected: Collected,
    /// Operations that were dropped meanwhile.
    pub dropped: u64,
}

/// One key of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedGroup {
    /// A value for each field of [`ArchiveAnswer::by`].
    pub key: Vec<String>,
    /// The sum over its columns.
    pub sum: u64,
    /// A cell for each column.
    pub series: Vec<Cell>,
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct ArchiveAnswer {
    /// From which tier.
    pub tier: Tier,
    /// The Unix second at which the first column begins.
    pub from_s: u64,
    /// The seconds of a column.
    pub column_s: u64,
    /// What is known of each column.
    pub columns: Vec<ArchivedColumn>,
    /// What the sums are.
    pub measure: ArchivedMeasure,
    /// The fields of the keys.
    pub by: Vec<String>,
    /// The field whose buckets the cells have.
    pub numeric: Option<Field>,
    /// All of it. Of means, the sum of the means of all keys.
    pub total: Vec<Cell>,
    /// The keys with the largest sums, largest first; empty without fields.
    pub groups: Vec<ArchivedGroup>,
    /// The other keys, and without fields all.
    pub other: Vec<Cell>,
    /// How many keys were found.
    pub keys_found: usize,
}

impl Archive {
    /// Answers a query.
    ///
    /// # Errors
    /// A statement that the archive does not keep, an empty range, and more columns and keys than
    /// an answer has.
    pub fn answer(&self, query: &ArchiveQuery) -> Result<ArchiveAnswer, ArchiveQueryError> {
        let plan = query.asked.plan()?;
        let frame = self.frame(query)?;
        let mut sums = Sums::new(&frame, &plan);
        let Sources { blocks, open } =
            self.shown(|shown| shown.sources(frame.tier, &frame.range_s));
        let host = &self.reader.host;
        let read = |(tier, start_s)| sums_of_block(&self.reader, &frame, &plan, tier, start_s);
        let parts = host.map_in_threads(blocks, host.processors(), read);
        parts
            .into_iter()
            .flatten()
            .for_each(|part| sums.add_part(part));
        open.iter().for_each(|column| sums.add_column(column));
        Ok(sums.answer(query.keys_max))
    }

    /// Chooses the tier and the columns.
    fn frame(&self, query: &ArchiveQuery) -> Result<Frame, ArchiveQueryError> {
        let range_s = query.range_s.start..query.range_s.end.min(crate::tier::LATEST_S);
        if range_s.is_empty() || query.column_s == 0 {
            return Err(ArchiveQueryError::EmptyRange);
        }
        let oldest_s = self.shown(|shown| Tier::ALL.map(|tier| shown.oldest(tier)));
        let first_s = oldest_s.iter().flatten().min().copied().unwrap_or(0);
        let holds = |oldest_s: Option<u64>| {
            oldest_s.is_some_and(|oldest_s| oldest_s <= range_s.start.max(first_s))
        };
        let held = Tier::ALL.into_iter().zip(oldest_s);
        let held: Vec<Tier> = held
            .filter(|(_, oldest_s)| holds(*oldest_s))
            .map(|(tier, _)| tier)
            .collect();
        let fine_enough = held
            .iter()
            .rev()
            .find(|tier| tier.column_s() <= query.column_s);
        let length_s = range_s.end - range_s.start;
        let is_long = |tier: Tier| length_s / tier.column_s() > READ_COLUMNS_MAX;
        let is_near = |tier: &Tier| tier.column_s() <= query.column_s.saturating_mul(LONGER_MAX);
        let mut tier = *fine_enough.or(held.first()).unwrap_or(&Tier::Second);
        if is_long(tier)
            && let Some(coarser) = tier.coarser().filter(is_near)
            && held.contains(&coarser)
        {
            tier = coarser;
        }
        let column_s = query.column_s.next_multiple_of(tier.column_s());
        let from_s = tier.column_of(range_s.start);
        let columns = (range_s.end - from_s).div_ceil(column_s);
        Ok(Frame {
            tier,
            range_s: from_s..range_s.end,
            column_s,
            columns: columns_of_answer(columns, query.keys_max)?,
        })
    }
}

/// What a block has of the columns of an answer.
#[derive(Debug)]
struct PartOfBlock {
    /// The place of its first column among those of the answer.
    first: usize,
    heads: Vec<ColumnHead>,
    /// Whether a series is damaged.
    is_missed: bool,
    series: Vec<(SeriesKey, Vec<Option<Cell>>)>,
}

/// Reads the series of a block that are asked for; `None` if it has no column of the answer, is
/// damaged or gone.
fn sums_of_block(
    reader: &BlockReader,
    frame: &Frame,
    plan: &Plan,
    tier: Tier,
    start_s: u64,
) -> Option<PartOfBlock> {
    let starts = (0..).map(|number| start_s + number * tier.column_s());
    let columns: Vec<Option<usize>> = (starts.take(tier.block_columns()))
        .map(|start_s| frame.column_at(start_s))
        .collect();
    let (first, last) = (
        columns.iter().flatten().next().copied()?,
        columns.iter().flatten().next_back().copied()?,
    );
    let index = reader.index(tier, start_s, &|statistic| statistic == plan.statistic)?;
    let mut heads = vec![ColumnHead::default(); last + 1 - first];
    for (column, head) in columns.iter().zip(&index.heads) {
        if let Some(column) = column {
            heads[column - first].merge(head);
        }
    }
    let places = columns
        .iter()
        .map(|column| column.map(|column| column - first));
    let placing = Placing::new(places.collect(), plan.numeric.is_some());
    let is_asked = |entry: &&PieceEntry| plan.wants(&entry.series.key);
    let entries: Vec<&PieceEntry> = index.pieces.iter().filter(is_asked).collect();
    let cells = reader.cells(tier, start_s, &entries, &placing);
    let is_missed = cells.iter().any(Option::is_none);
    let keys = entries.iter().map(|entry| entry.series.key.clone());
    let series = keys
        .zip(cells)
        .filter_map(|(key, cells)| Some((key, cells?)));
    Some(PartOfBlock {
        first,
        heads,
        is_missed,
        series: series.collect(),
    })
}

/// The columns of an answer.
#[derive(Debug)]
struct Frame {
    tier: Tier,
    range_s: Range<u64>,
    column_s: u64,
    columns: usize,
}

impl Frame {
    fn column_at(&self, second: u64) -> Option<usize> {
        self.range_s.contains(&second).then(|| {
            let column = (second - self.range_s.start) / self.column_s;
            usize::try_from(column).expect("less than the count of columns")
        })
    }

    /// How many seconds of a column are in the range.
    fn seconds_of(&self, column: usize) -> u64 {
        let column = u64::try_from(column).expect("less than the count of columns");
        let start_s = self.range_s.start + column * self.column_s;
        self.column_s.min(self.range_s.end - start_s)
    }
}

/// What was added up so far.
#[derive(Debug)]
struct Sums<'a> {
    frame: &'a Frame,
    plan: &'a Plan,
    heads: Vec<ColumnHead>,
    /// Columns of which a series is damaged.
    is_missed: Vec<bool>,
    places: BTreeMap<SeriesKey, usize>,
    series: Vec<Vec<Cell>>,
}

impl Sums<'_> {
    fn new<'a>(frame: &'a Frame, plan: &'a Plan) -> Sums<'a> {
        Sums {
            frame,
            plan,
            heads: vec![ColumnHead::default(); frame.columns],
            is_missed: vec![false; frame.columns],
            places: BTreeMap::new(),
            series: Vec::new(),
        }
    }

    fn series(&mut self, key: &SeriesKey) -> usize {
        if let Some(place) = self.places.get(key) {
            return *place;
        }
        self.places.insert(key.clone(), self.series.len());
        self.series.push(vec![Cell::default(); self.frame.columns]);
        self.series.len() - 1
    }

    /// Adds what a block has.
    fn add_part(&mut self, part: PartOfBlock) {
        let columns = part.first..part.first + part.heads.len();
        for (column, head) in columns.clone().zip(&part.heads) {
            self.heads[column].merge(head);
            self.is_missed[column] |= part.is_missed;
        }
        for (key, cells) in part.series {
            let series = self.series(&key);
            let sums = &mut self.series[series][columns.clone()];
            for (sum, cell) in sums.iter_mut().zip(cells) {
                match cell {
                    Some(cell) if *sum == Cell::default() => *sum = cell,
                    Some(cell) => sum.merge(&cell),
                    None => {}
                }
            }
        }
    }

    /// Adds a column that memory has.
    fn add_column(&mut self, part: &Column) {
        let Some(column) = self.frame.column_at(part.start_s) else {
            return;
        };
        self.heads[column].merge(&part.head);
        for (id, cell) in &part.cells {
            if id.statistic != self.plan.statistic || !self.plan.wants(&id.key) {
                continue;
            }
            let series = self.series(&id.key);
            let sum = &mut self.series[series][column];
            match self.plan.numeric {
                Some(_) => sum.merge(cell),
                None => {
                    sum.count = sum.count.wrapping_add(cell.count);
                    sum.sum = sum.sum.wrapping_add(cell.sum);
                }
            }
        }
    }

    fn answer(mut self, keys_max: usize) -> ArchiveAnswer {
        let columns = self.columns();
        if self.plan.measure == ArchivedMeasure::Mean {
            for cell in self.series.iter_mut().flatten() {
                cell.sum = cell.sum.checked_div(cell.count).unwrap_or(0);
            }
        }
        let empty = vec![Cell::default(); self.frame.columns];
        let (mut other, mut by_key) = (empty.clone(), BTreeMap::<Vec<String>, Vec<Cell>>::new());
        let mut total = empty.clone();
        for (key, place) in &self.places {
            let series = &self.series[*place];
            merge_series(&mut total, series);
            let key = match key {
                SeriesKey::Of(values) if !self.plan.by.is_empty() => self.plan.key_of(values),
                SeriesKey::Of(_) | SeriesKey::Other => None,
            };
            match key {
                Some(key) => {
                    merge_series(by_key.entry(key).or_insert_with(|| empty.clone()), series)
                }
                None => merge_series(&mut other, series),
            }
        }
        let mut groups: Vec<ArchivedGroup> = (by_key.into_iter())
            .map(|(key, series)| ArchivedGroup {
                key,
                sum: sum_of(&series),
                series,
            })
            .collect();
        groups.sort_by_key(|group| u64::MAX - group.sum);
        let keys_found = groups.len();
        assert_eq!(other.len(), total.len());
        for group in groups.drain(keys_max.min(keys_found)..) {
            merge_series(&mut other, &group.series);
        }
        ArchiveAnswer {
            tier: self.frame.tier,
            from_s: self.frame.range_s.start,
            column_s: self.frame.column_s,
            columns,
            measure: self.plan.measure,
            by: self.plan.by.clone(),
            numeric: self.plan.numeric,
            total,
            groups,
            other,
            keys_found,
        }
    }

    fn columns(&self) -> Vec<ArchivedColumn> {
        let of_column = |column: usize| {
            let (head, seconds) = (&self.heads[column], self.frame.seconds_of(column));
            let collected = match self.plan.measure {
                ArchivedMeasure::Of(_) => head.collected(seconds),
                ArchivedMeasure::Counted | ArchivedMeasure::Mean => {
                    let samples = self.series.iter().map(|series| series[column].count);
                    match samples.max().unwrap_or(0) {
                        0 => Collected::NotCollected,
                        samples if samples >= seconds => Collected::Whole,
                        _ => Collected::Partly,
                    }
                }
            };
            ArchivedColumn {
                collected: match (collected, self.is_missed[column]) {
                    (Collected::Whole, true) => Collected::Partly,
                    (collected, _) => collected,
                },
                dropped: head.dropped,
            }
        };
        (0..self.frame.columns).map(of_column).collect()
    }
}

fn merge_series(sum: &mut [Cell], series: &[Cell]) {
    for (sum, cell) in sum.iter_mut().zip(series) {
        if *cell != Cell::default() {
            sum.merge(cell);
        }
    }
}

fn sum_of(series: &[Cell]) -> u64 {
    series
        .iter()
        .fold(0, |sum, cell| sum.saturating_add(cell.sum))
}
