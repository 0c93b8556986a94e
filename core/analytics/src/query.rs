//! Queries: what the flight recorder holds, broken down after the fact.
//!
//! # Mechanism
//! The first scan finds the keys with the largest sums. As long as there are not many keys, such as
//! kinds of operations, it counts all of them on the way; otherwise a second scan counts the
//! largest ones and all others together, column by column of time. Where keys are more than a table
//! in the caches of a processor has, their hashes are ranked (`many_keys.rs`). What a batch needs
//! is looked up once for its 256 operations: their keys, the columns that are counted, and the
//! column of time, which most batches have only one of.
//!
//! # Invariants
//! - In each column and each bucket, the groups and `other` add up to the total exactly: one scan
//!   counts each operation in one of them, and the total is their sum.
//! - A column that was not collected is told as such, whatever was counted in it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use tarn_probe::{Histogram, HistogramSnapshot, OperationRecord};

use crate::answer_size::{CELLS_MAX, columns_of_answer};
use crate::breakdown::{Breakdown, KEY_WORDS_MAX};
use crate::column_batch::{BATCH_RECORDS, Batch, Column, Mask, Numbers};
use crate::compiled::CompiledPredicate;
use crate::coverage::Collected;
use crate::error::QueryError;
use crate::flight_recorder::FlightRecorder;
use crate::key_table::{Key, KeyTable, hash};
use crate::many_keys::{HashLists, LargestHashes, Round};
use crate::tally::Tally;

/// Distinct keys that a processor has in a table: some MiB. Where it finds more, hashes are ranked.
/// The tests of this file have fewer keys.
const TABLE_KEYS_MAX: usize = if cfg!(test) { 64 } else { 1 << 17 };
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
    /// Operations whose keys were too many to be ranked: 0, since all are.
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
        let sums = match query.breakdown.key_words() {
            0 => self.count_all(query, columns),
            _ if query.keys_max == 0 => self.count_all(query, columns),
            1 => self.count_keys::<1>(query, columns),
            2 => self.count_keys::<2>(query, columns),
            _ => self.count_keys::<KEY_WORDS_MAX>(query, columns),
        };
        let mut total = sums.other.clone();
        for (column, tally) in total.iter_mut().enumerate() {
            (sums.groups.iter()).for_each(|group| tally.merge(&group.series[column]));
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
            groups: sums.groups,
            other: sums.other,
            keys_found: sums.keys_found,
            unranked: 0,
        })
    }

    /// Counts all operations together.
    fn count_all(&self, query: &Query, columns: usize) -> Sums {
        let empty = || vec![Tally::default(); columns];
        let parts = self.fold_meant(query, empty, |other: &mut Series, batch, mask| {
            let (counted, times) = (query.breakdown.counted(batch), query.times(batch, mask));
            mask.for_each(|place| counted.add(&mut other[times.column(place)], place));
        });
        Sums {
            other: merged(parts, columns),
            ..Sums::default()
        }
    }

    fn count_keys<const W: usize>(&self, query: &Query, columns: usize) -> Sums {
        let Some(ranked) = self.rank::<W>(query, columns) else {
            return self.count_many_keys::<W>(query, columns);
        };
        let keys_max = query.keys_max;
        let (sums, keys) = (ranked.table.sums(), ranked.table.keys());
        // Words have the order of the keys that they make.
        let rank = |number: &usize| (u64::MAX - sums[*number], keys[*number]);
        let mut order: Vec<usize> = (0..sums.len()).collect();
        if keys_max < order.len() {
            order.select_nth_unstable_by_key(keys_max, rank);
        }
        let count = keys_max.min(order.len());
        let (top, rest) = order.split_at_mut(count);
        top.sort_unstable_by_key(rank);
        let (groups, other) = match ranked.counted {
            Some(mut all) => {
                let mut series = |number: &usize| std::mem::take(&mut all[*number]);
                let groups = top.iter().map(|number| (keys[*number], series(number)));
                let groups: Vec<([u64; W], Series)> = groups.collect();
                (groups, merged(rest.iter().map(series).collect(), columns))
            }
            None => {
                let top = top.iter().map(|number| keys[*number]);
                self.count_top(query, top.collect(), columns)
            }
        };
        let group = |(words, series): ([u64; W], Series)| Group {
            key: query.breakdown.key_of(&words),
            series,
        };
        Sums {
            groups: groups.into_iter().map(group).collect(),
            other,
            keys_found: keys.len(),
        }
    }

    /// Finds the sums of all keys; and counts them, as long as there are not many. `None` if they
    /// are more than a table has.
    fn rank<const W: usize>(&self, query: &Query, columns: usize) -> Option<Ranked<W>> {
        let counted_max = (as_usize(CELLS_MAX) / columns).max(query.keys_max);
        let are_many = AtomicBool::new(false);
        let parts = self.fold_meant(query, Ranked::default, |ranked, batch, mask| {
            let goes_on = !are_many.load(Ordering::Relaxed);
            if goes_on && !ranked.take(query, (columns, counted_max), batch, mask) {
                are_many.store(true, Ordering::Relaxed);
            }
        });
        if are_many.into_inner() {
            return None;
        }
        let largest_first = |one: &Ranked<W>| usize::MAX - one.table.keys().len();
        let mut parts = parts;
        parts.sort_by_key(largest_first);
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        parts.for_each(|part| all.merge(&part, (columns, counted_max)));
        Some(all)
    }

    /// Ranks hashes of keys, then counts those of the largest.
    fn count_many_keys<const W: usize>(&self, query: &Query, columns: usize) -> Sums {
        let (keys_max, breakdown) = (query.keys_max, &query.breakdown);
        let operations = self.count_about(&query.range_ns);
        let rounds = Round::all(operations, breakdown.weight_column().is_some());
        let largest = rounds.map(|round| {
            let lists = self.fold_meant(query, HashLists::default, |lists, batch, mask| {
                lists.take::<W>(round, breakdown, batch, mask);
            });
            let parts = self.map(HashLists::by_part(lists), |part| part.largest(keys_max));
            LargestHashes::join(parts.into_iter(), keys_max)
        });
        let largest = LargestHashes::join(largest, keys_max);
        let mut numbers = KeyTable::<1>::default();
        for (hash, _) in &largest.largest {
            numbers.find_or_add(&[*hash], usize::MAX);
        }
        let count = largest.largest.len();
        let empty = || CountedHashes::<W>::new(count, columns);
        let parts = self.fold_meant(query, empty, |counted, batch, mask| {
            counted.take(query, &numbers, batch, mask);
        });
        let mut all = empty();
        parts.into_iter().for_each(|part| all.merge(part));
        let (mut groups, other) = all.groups(breakdown);
        // The largest first, and of the same size the one with the lower key.
        groups.sort_by_cached_key(|group| (u64::MAX - sum_of(&group.series), group.key));
        Sums {
            groups,
            other,
            keys_found: largest.found,
        }
    }

    /// Counts the keys of `top`, and all others together.
    fn count_top<const W: usize>(
        &self,
        query: &Query,
        top: Vec<[u64; W]>,
        columns: usize,
    ) -> (Vec<([u64; W], Series)>, Series) {
        let mut table = KeyTable::default();
        for key in &top {
            table.find_or_add(key, usize::MAX);
        }
        // The last series is that of all others.
        let empty = || vec![vec![Tally::default(); columns]; top.len() + 1];
        let parts = self.fold_meant(query, empty, |all, batch, mask| {
            let mut keys = [[0; W]; BATCH_RECORDS];
            query.breakdown.fill_keys(batch, &mut keys);
            let (counted, times) = (query.breakdown.counted(batch), query.times(batch, mask));
            mask.for_each(|place| {
                let number = table.find(&keys[place]).unwrap_or(top.len());
                counted.add(&mut all[number][times.column(place)], place);
            });
        });
        let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
        let mut next = || {
            merged(
                parts.iter_mut().filter_map(Iterator::next).collect(),
                columns,
            )
        };
        let groups = top.iter().map(|key| (*key, next())).collect();
        (groups, next())
    }

    fn fold_meant<T: Send>(
        &self,
        query: &Query,
        make: impl Fn() -> T + Sync,
        take: impl Fn(&mut T, &Batch, Mask) + Sync,
    ) -> Vec<T> {
        let wanted = query.predicate.columns().and(query.breakdown.columns());
        self.fold(&query.range_ns, wanted, make, |state, batch, in_range| {
            let mask = query.predicate.mask(batch, in_range);
            if !mask.is_empty() {
                take(state, batch, mask);
            }
        })
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
        let mut whole = Batch::new();
        let wanted = predicate.columns().with(Column::Latency);
        self.scan_blocks(range_ns, wanted, &mut |batch, in_range, fill| {
            // All columns are looked at only where an operation is listed.
            let mut is_filled = false;
            let ended = batch.numbers(Column::Ended);
            let latencies = batch.numbers(Column::Latency);
            predicate.mask(batch, in_range).for_each(|place| {
                latency.record(latencies[place]);
                count += 1;
                let rank = match order {
                    Order::Oldest => ended[place],
                    Order::Slowest => u64::MAX - latencies[place],
                };
                let last = kept.last_key_value().map(|(key, _)| *key);
                if kept.len() < limit || last.is_some_and(|last| (rank, count) < last) {
                    if !is_filled {
                        fill(&mut whole);
                        is_filled = true;
                    }
                    kept.insert((rank, count), whole.record(place));
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

/// What was counted.
#[derive(Debug, Default)]
struct Sums {
    /// The largest sum first.
    groups: Vec<Group>,
    other: Series,
    keys_found: usize,
}

/// What was counted of the keys with the largest sums.
#[derive(Debug)]
struct CountedHashes<const W: usize> {
    /// The key of each hash, once an operation of it was found.
    keys: Vec<Option<[u64; W]>>,
    series: Vec<Series>,
    other: Series,
}

impl<const W: usize> CountedHashes<W> {
    fn new(count: usize, columns: usize) -> CountedHashes<W> {
        CountedHashes {
            keys: vec![None; count],
            series: vec![vec![Tally::default(); columns]; count],
            other: vec![Tally::default(); columns],
        }
    }

    fn take(&mut self, query: &Query, numbers: &KeyTable<1>, batch: &Batch, mask: Mask) {
        let mut keys = [[0; W]; BATCH_RECORDS];
        query.breakdown.fill_keys(batch, &mut keys);
        let (counted, times) = (query.breakdown.counted(batch), query.times(batch, mask));
        mask.for_each(|place| {
            let key = keys[place];
            let number = numbers.find(&[hash(&key)]);
            // Another key with the hash of a large one is counted with the others.
            let number = number.filter(|number| *self.keys[*number].get_or_insert(key) == key);
            let series = match number {
                Some(number) => &mut self.series[number],
                None => &mut self.other,
            };
            counted.add(&mut series[times.column(place)], place);
        });
    }

    fn merge(&mut self, part: CountedHashes<W>) {
        let groups = self.keys.iter_mut().zip(&mut self.series);
        for ((key, series), (more, its_series)) in groups.zip(part.keys.iter().zip(&part.series)) {
            let Some(more) = more else {
                continue;
            };
            match key.get_or_insert(*more) == more {
                true => add_series(series, its_series),
                false => add_series(&mut self.other, its_series),
            }
        }
        add_series(&mut self.other, &part.other);
    }

    fn groups(self, breakdown: &Breakdown) -> (Vec<Group>, Series) {
        let groups = self
            .keys
            .iter()
            .zip(self.series)
            .filter_map(|(key, series)| {
                let key = breakdown.key_of(&(*key)?);
                Some(Group { key, series })
            });
        (groups.collect(), self.other)
    }
}

fn sum_of(series: &Series) -> u64 {
    series
        .iter()
        .fold(0, |sum, tally| sum.saturating_add(tally.sum))
}

/// The sums of all keys.
#[derive(Debug)]
struct Ranked<const W: usize> {
    table: KeyTable<W>,
    /// The columns of each, while there are not many.
    counted: Option<Vec<Series>>,
    /// Those of a batch.
    keys: Box<[[u64; W]; BATCH_RECORDS]>,
}

impl<const W: usize> Default for Ranked<W> {
    fn default() -> Self {
        Ranked {
            table: KeyTable::default(),
            counted: Some(Vec::new()),
            keys: Box::new([[0; W]; BATCH_RECORDS]),
        }
    }
}

impl<const W: usize> Ranked<W> {
    /// Says whether the table had room for the keys.
    fn take(&mut self, query: &Query, bounds: (usize, usize), batch: &Batch, mask: Mask) -> bool {
        query.breakdown.fill_keys(batch, &mut self.keys);
        let (counted, times) = (query.breakdown.counted(batch), query.times(batch, mask));
        self.table.touch(self.keys[..batch.len()].iter());
        let mut has_room = true;
        mask.for_each(|place| {
            let weight = counted.weight(place);
            match self.table.add(&self.keys[place], weight, TABLE_KEYS_MAX) {
                Some(number) => {
                    if let Some(series) = self.series(number, bounds) {
                        counted.add(&mut series[times.column(place)], place);
                    }
                }
                None => has_room = false,
            }
        });
        has_room
    }

    /// The columns of a key; a key that is new is one too many where there is no room for it.
    fn series(&mut self, number: usize, (columns, max): (usize, usize)) -> Option<&mut Series> {
        let is_new = number == self.counted.as_ref()?.len();
        if is_new && number == max {
            self.counted = None;
        }
        let all = self.counted.as_mut()?;
        if is_new {
            all.push(vec![Tally::default(); columns]);
        }
        all.get_mut(number)
    }

    fn merge(&mut self, other: &Ranked<W>, bounds: (usize, usize)) {
        if let Some(counted) = &other.counted {
            for (key, series) in other.table.keys().iter().zip(counted) {
                let number = self.table.find_or_add(key, usize::MAX);
                if let Some(all) = number.and_then(|number| self.series(number, bounds)) {
                    add_series(all, series);
                }
            }
        } else {
            self.counted = None;
        }
        self.table.merge(&other.table);
    }
}

fn add_series(all: &mut Series, more: &Series) {
    let pairs = all.iter_mut().zip(more);
    pairs.for_each(|(tally, more)| tally.merge(more));
}

/// The sum of these, none of which is longer.
fn merged(parts: Vec<Series>, columns: usize) -> Series {
    let mut parts = parts.into_iter();
    let mut all = parts
        .next()
        .unwrap_or_else(|| vec![Tally::default(); columns]);
    parts.for_each(|part| add_series(&mut all, &part));
    all
}

/// The columns of time of a batch's operations.
enum Times<'b> {
    /// All have the same.
    One(usize),
    /// By the times they ended.
    Each(&'b Query, &'b Numbers),
}

impl Times<'_> {
    fn column(&self, place: usize) -> usize {
        match self {
            Times::One(column) => *column,
            Times::Each(query, ended) => query.column_of(ended[place]),
        }
    }
}

fn as_usize(number: u64) -> usize {
    usize::try_from(number).expect("memory has more than 32 bits")
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
        Ok(columns_of_answer(columns, keys)?)
    }

    /// The columns of the meant operations of a batch.
    fn times<'b>(&'b self, batch: &'b Batch, mask: Mask) -> Times<'b> {
        let ended = batch.numbers(Column::Ended);
        let bounds = mask.bounds().map(|(first, last)| {
            let is_sorted = ended[first..=last].is_sorted();
            (
                is_sorted,
                self.column_of(ended[first]),
                self.column_of(ended[last]),
            )
        });
        match bounds {
            Some((true, first, last)) if first == last => Times::One(first),
            _ => Times::Each(self, ended),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Measure;
    use crate::field::Field;
    use tarn_host::sim::Random;
    use tarn_host::{Host, RealOptions};
    use tarn_probe::{ClientId, DatasetId, HolderId, OperationKind, Protocol, Stage, What, Who};

    /// An operation, its key by client and file, and its bytes.
    fn any_record(random: &mut Random, ended_ns: u64) -> (OperationRecord, Key, u64) {
        let client = random.below(8) as u32;
        let who = Who {
            client: ClientId(client),
            protocol: Protocol::Nfs3,
            user: 0,
            holder: HolderId::NONE,
        };
        let object = random.below(20) * random.below(20);
        let what = What {
            size: random.below(5000),
            ..What::plain(OperationKind::Read, DatasetId(3), object)
        };
        let record = OperationRecord::new(ended_ns, 0, &who, &what, 0, &[0; Stage::COUNT]);
        (
            record,
            [client.into(), 3 << 64 | u128::from(object)],
            what.size,
        )
    }

    /// The model is a tree of all sums.
    #[test]
    fn keys_that_are_too_many_for_a_table_are_counted_as_a_tree_counts_them() {
        let mut random = Random::new(21);
        let recorder = FlightRecorder::of_segments(64 << 20, 1000);
        recorder.use_processors(&Host::real(RealOptions::default()));
        let drawn: Vec<_> = (0..20_000).map(|ns| any_record(&mut random, ns)).collect();
        let records: Vec<OperationRecord> = drawn.iter().map(|(record, ..)| *record).collect();
        recorder.take(&records);
        for measure in [Measure::Operations, Measure::Bytes] {
            let mut model = BTreeMap::<Key, u64>::new();
            for (_, key, bytes) in &drawn {
                let weight = if measure == Measure::Bytes { *bytes } else { 1 };
                *model.entry(*key).or_default() += weight;
            }
            assert!(model.len() > 10 * TABLE_KEYS_MAX);
            let by = [Field::Client, Field::File];
            let query = Query {
                range_ns: 0..20_000,
                column_ns: 7000,
                predicate: CompiledPredicate::always(),
                breakdown: Breakdown::new(&by, None, measure).unwrap(),
                keys_max: 25,
            };
            let answer = recorder.answer(&query).unwrap();
            assert_eq!((answer.keys_found, answer.unranked), (model.len(), 0));
            let sums: Vec<u64> = answer
                .groups
                .iter()
                .map(|group| sum_of(&group.series))
                .collect();
            for (group, sum) in answer.groups.iter().zip(&sums) {
                assert_eq!(model[&group.key], *sum);
            }
            let mut largest: Vec<u64> = model.values().copied().collect();
            largest.sort_unstable_by_key(|sum| u64::MAX - sum);
            assert_eq!(sums, largest[..25]);
            assert_eq!(sum_of(&answer.total), model.values().sum::<u64>());
            assert_eq!(
                sum_of(&answer.total),
                sums.iter().sum::<u64>() + sum_of(&answer.other)
            );
            assert_eq!(
                answer.total.iter().map(|tally| tally.count).sum::<u64>(),
                20_000
            );
        }
    }
}
