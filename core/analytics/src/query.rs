//! Queries: what the flight recorder holds, broken down after the fact.
//!
//! # Mechanism
//! The first scan finds the keys with the largest sums. Where there are no more keys than the
//! answer has room for, such as kinds of operations, it has counted them already; otherwise a
//! second scan counts the largest ones and all others together, column by column of time.
//!
//! # Invariants
//! - In each column and each bucket, the groups and `other` add up to the total exactly: one scan
//!   counts each operation in one of them, and the total is their sum.
//! - A column that was not collected is told as such, whatever was counted in it.

use std::collections::BTreeMap;
use std::ops::Range;

use tarn_probe::{Histogram, HistogramSnapshot, OperationRecord};

use crate::breakdown::Breakdown;
use crate::column_batch::{Batch, Column, ColumnSet, Mask};
use crate::compiled::CompiledPredicate;
use crate::coverage::Collected;
use crate::error::QueryError;
use crate::flight_recorder::FlightRecorder;
use crate::key_table::{Key, KeyTable};
use crate::tally::Tally;

/// Columns times keys of an answer, total and `other` included.
pub const CELLS_MAX: u64 = 65_536;
/// Distinct keys that are ranked: 60 MiB. Operations with later keys are in `other`.
const RANKED_MAX: usize = 1 << 20;
/// Most operations that are listed at once.
pub const LISTED_MAX: usize = 100_000;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Query {
    /// Operations that ended in this time, by their clock.
    pub range_ns: Range<u64>,
    /// How long a column of the answer is: 1 s, 100 ms, 10 ms.
    pub column_ns: u64,
    /// Which operations.
    pub predicate: CompiledPredicate,
    /// By what.
    pub breakdown: Breakdown,
    /// How many keys are told apart.
    pub keys_max: usize,
}

/// What is known of a column of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnState {
    /// Whether its operations are known.
    pub collected: Collected,
    /// Operations of any kind that were dropped in passes of the collector that overlap it.
    pub dropped: u64,
}

/// A tally for each column.
pub type Series = Vec<Tally>;

/// The operations of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// A value for each discrete field of the breakdown; 0 beyond them.
    pub key: Key,
    /// Its columns.
    pub series: Series,
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What was asked for.
    pub range_ns: Range<u64>,
    /// How long a column is. The last one may be cut off by the end of the range.
    pub column_ns: u64,
    /// What is known of each column.
    pub columns: Vec<ColumnState>,
    /// Operations dropped in passes of the collector that overlap the range.
    pub dropped: u64,
    /// All operations that the predicate means.
    pub total: Series,
    /// The keys with the largest sums, largest first; empty without discrete fields.
    pub groups: Vec<Group>,
    /// All operations of other keys.
    pub other: Series,
    /// How many distinct keys were found, those in `other` included.
    pub keys_found: usize,
    /// Operations whose keys were too many to be ranked: no key in `other` that was not ranked has
    /// more. 0 means that the groups are the largest ones exactly.
    pub unranked: u64,
}

/// In which order operations are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Those that ended first.
    Oldest,
    /// Those with the largest latency.
    Slowest,
}

/// Operations one by one, and what they are together.
#[derive(Clone, Debug)]
pub struct Operations {
    /// How many there are.
    pub count: u64,
    /// The nanoseconds that each took.
    pub latency: HistogramSnapshot,
    /// The first of them by the order asked for.
    pub records: Vec<OperationRecord>,
}

impl FlightRecorder {
    /// Answers a query.
    pub fn answer(&self, query: &Query) -> Result<Answer, QueryError> {
        let columns = query.column_count()?;
        let ranking = self.rank(query, columns);
        let (groups, other) = match ranking.counted {
            Some(groups) => (groups, vec![Tally::default(); columns]),
            None => self.count(query, &ranking.top, columns),
        };
        let mut total = other.clone();
        for (column, tally) in total.iter_mut().enumerate() {
            groups
                .iter()
                .for_each(|group| tally.merge(&group.series[column]));
        }
        let ranges = (0..columns).map(|column| query.column_range(column));
        let states = self.coverage_of(ranges.chain([query.range_ns.clone()]));
        let states = states.into_iter();
        let mut states: Vec<ColumnState> = states
            .map(|(collected, dropped)| ColumnState { collected, dropped })
            .collect();
        let whole = states.pop().expect("the range was asked for, last");
        Ok(Answer {
            range_ns: query.range_ns.clone(),
            column_ns: query.column_ns,
            columns: states,
            dropped: whole.dropped,
            total,
            groups,
            other,
            keys_found: ranking.keys_found,
            unranked: ranking.unranked,
        })
    }

    /// Finds the keys with the largest sums; and counts them, as long as no more keys are found
    /// than the answer has.
    fn rank(&self, query: &Query, columns: usize) -> Ranking {
        let mut ranking = Ranking::default();
        let (breakdown, keys_max) = (&query.breakdown, query.keys_max);
        if breakdown.by().is_empty() || keys_max == 0 {
            return ranking;
        }
        let (mut table, mut sums) = (KeyTable::default(), Vec::<u64>::new());
        let mut counted = Vec::<Series>::new();
        self.each_meant(query, &mut |batch, mask| {
            let ended = batch.numbers(Column::Ended);
            mask.for_each(|place| {
                let key = breakdown.key(batch, place);
                let Some(number) = table.find_or_add(&key, RANKED_MAX) else {
                    ranking.unranked += 1;
                    return;
                };
                if number == sums.len() {
                    sums.push(0);
                    match sums.len() <= keys_max {
                        true => counted.push(vec![Tally::default(); columns]),
                        false => counted.clear(),
                    }
                }
                let weight = breakdown.weight(batch, place);
                sums[number] = sums[number].saturating_add(weight);
                if let Some(series) = counted.get_mut(number) {
                    let column = query.column_of(ended[place]);
                    breakdown.add(&mut series[column], batch, place);
                }
            });
        });
        let mut order: Vec<usize> = (0..sums.len()).collect();
        let keys = table.keys();
        order.sort_by_key(|number| (u64::MAX - sums[*number], keys[*number]));
        ranking.keys_found = order.len();
        for number in order.iter().take(keys_max) {
            ranking.top.find_or_add(&keys[*number], keys_max);
        }
        ranking.counted = (counted.len() == order.len()).then(|| {
            let group = |number: &usize| Group {
                key: keys[*number],
                series: std::mem::take(&mut counted[*number]),
            };
            order.iter().map(group).collect()
        });
        ranking
    }

    /// Counts the keys of `top`, and all others together.
    fn count(&self, query: &Query, top: &KeyTable, columns: usize) -> (Vec<Group>, Series) {
        let breakdown = &query.breakdown;
        let empty: Series = vec![Tally::default(); columns];
        let of_key = |key: &Key| Group {
            key: *key,
            series: empty.clone(),
        };
        let mut groups: Vec<Group> = top.keys().iter().map(of_key).collect();
        let mut other = empty.clone();
        self.each_meant(query, &mut |batch, mask| {
            let ended = batch.numbers(Column::Ended);
            mask.for_each(|place| {
                let group = match groups.is_empty() {
                    true => None,
                    false => top.find(&breakdown.key(batch, place)),
                };
                let series = match group {
                    Some(number) => &mut groups[number].series,
                    None => &mut other,
                };
                let column = query.column_of(ended[place]);
                breakdown.add(&mut series[column], batch, place);
            });
        });
        (groups, other)
    }

    fn each_meant(&self, query: &Query, take: &mut dyn FnMut(&Batch, Mask)) {
        let wanted = query.predicate.columns().and(query.breakdown.columns());
        self.scan(&query.range_ns, wanted, &mut |batch, in_range| {
            let mask = query.predicate.mask(batch, in_range);
            if !mask.is_empty() {
                take(batch, mask);
            }
        });
    }

    /// Lists operations that ended in a time and that the predicate means, at most `limit` and
    /// [`LISTED_MAX`]; counts all of them.
    pub fn operations(
        &self,
        range_ns: &Range<u64>,
        predicate: &CompiledPredicate,
        order: Order,
        limit: usize,
    ) -> Operations {
        let limit = limit.min(LISTED_MAX);
        let latency = Histogram::new();
        let mut count = 0_u64;
        let mut kept = BTreeMap::<(u64, u64), OperationRecord>::new();
        self.scan(range_ns, ColumnSet::ALL, &mut |batch, in_range| {
            predicate.mask(batch, in_range).for_each(|place| {
                let latency_ns = batch.numbers(Column::Latency)[place];
                latency.record(latency_ns);
                count += 1;
                let rank = match order {
                    Order::Oldest => batch.numbers(Column::Ended)[place],
                    Order::Slowest => u64::MAX - latency_ns,
                };
                let last = kept.last_key_value().map(|(key, _)| *key);
                if kept.len() < limit || last.is_some_and(|last| (rank, count) < last) {
                    kept.insert((rank, count), batch.record(place));
                }
                if kept.len() > limit {
                    kept.pop_last();
                }
            });
        });
        Operations {
            count,
            latency: latency.snapshot(),
            records: kept.into_values().collect(),
        }
    }
}

/// The keys of the groups.
#[derive(Debug, Default)]
struct Ranking {
    /// The largest sum first.
    top: KeyTable,
    /// The groups, if they are all keys that were found.
    counted: Option<Vec<Group>>,
    keys_found: usize,
    unranked: u64,
}

impl Query {
    /// How many columns the answer has.
    fn column_count(&self) -> Result<usize, QueryError> {
        if self.range_ns.is_empty() || self.column_ns == 0 {
            return Err(QueryError::EmptyRange);
        }
        let columns = (self.range_ns.end - self.range_ns.start).div_ceil(self.column_ns);
        let keys = match self.breakdown.by().is_empty() {
            true => 0,
            false => self.keys_max,
        };
        let rows = u64::try_from(keys).unwrap_or(u64::MAX).saturating_add(2);
        match columns.checked_mul(rows) {
            Some(cells) if cells <= CELLS_MAX => {
                Ok(usize::try_from(columns).expect("at most the cells"))
            }
            _ => Err(QueryError::TooLarge {
                columns,
                keys,
                cells_max: CELLS_MAX,
            }),
        }
    }

    /// The column of a time of the range.
    fn column_of(&self, time_ns: u64) -> usize {
        let column = (time_ns - self.range_ns.start) / self.column_ns;
        usize::try_from(column).expect("less than the count of columns")
    }

    fn column_range(&self, column: usize) -> Range<u64> {
        let column = u64::try_from(column).expect("less than the count of columns");
        let start = self.range_ns.start + column * self.column_ns;
        start..start.saturating_add(self.column_ns).min(self.range_ns.end)
    }
}
