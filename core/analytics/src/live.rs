//! Live instrumentations: statistics that are counted as operations come.
//!
//! # Mechanism
//! The collector hands each batch to all instrumentations: the request path has no part in it. An
//! instrumentation counts by seconds of the clock of operations. A second is open until
//! [`GRACE_NS`] after its end, and counts up to [`OPEN_KEYS_MAX`] keys; then it keeps the largest
//! ones, and the others join `other`. An instrumentation that was not read for [`IDLE_NS`] ends.
//!
//! # Invariants
//! - In each second the groups and `other` add up to the total, also for operations that come late.
//! - All instrumentations together take at most some 64 MiB; those of the archive, which reads them
//!   each second, besides a MiB each at most, and hold few seconds.

use std::collections::{BTreeMap, VecDeque};

use crate::breakdown::{Breakdown, KEY_WORDS_MAX};
use crate::column_batch::{BATCH_RECORDS, Batch, Column, Mask};
use crate::compiled::CompiledPredicate;
use crate::error::LiveError;
use crate::key_table::{Key, KeyTable};
use crate::tally::Tally;

const SECOND_NS: u64 = 1_000_000_000;
/// How long after its end a second gets operations that come late: passes of the collector are 50
/// ms apart.
const GRACE_NS: u64 = SECOND_NS;
/// Without being read for so long, an instrumentation ends. Cloud Analytics kept them that long.
const IDLE_NS: u64 = 600 * SECOND_NS;
/// Seconds that are held, if their tallies take little room.
const SECONDS_MAX: usize = 600;
/// Instrumentations at once.
pub const INSTRUMENTATIONS_MAX: usize = 32;
/// Seconds that one for the archive holds, which is read each second.
const ARCHIVED_SECONDS_MAX: usize = 20;
/// Instrumentations for the archive.
const ARCHIVED_MAX: usize = 64;
/// What the seconds of one may take.
const BYTES_MAX: usize = 1 << 20;
/// Keys of an open second. A key that comes later than those is in `other`: no such key has more
/// than that; the flight recorder ranks all keys.
const OPEN_KEYS_MAX: usize = 256;

/// The number of an instrumentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstrumentationId(pub u64);

/// All instrumentations.
#[derive(Debug, Default)]
pub(crate) struct Live {
    all: BTreeMap<InstrumentationId, Instrumentation>,
    last_id: u64,
}

#[derive(Debug)]
struct Instrumentation {
    predicate: CompiledPredicate,
    breakdown: Breakdown,
    keys_max: usize,
    purpose: Purpose,
    began_ns: u64,
    read_ns: u64,
    seconds: VecDeque<Second>,
    /// Operations of seconds that are no longer held.
    late: u64,
}

/// What an instrumentation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// People: they are shown seconds of the clock of operations.
    People,
    /// The archive. This is added to times of the clock before they are cut into seconds, so that
    /// these are of another clock.
    Archive { shift_ns: u64 },
}

impl Purpose {
    fn shift_ns(self) -> u64 {
        match self {
            Purpose::People => 0,
            Purpose::Archive { shift_ns } => shift_ns,
        }
    }
}

#[derive(Debug)]
struct Second {
    number: u64,
    is_open: bool,
    keys: KeyTable<KEY_WORDS_MAX>,
    tallies: Vec<Tally>,
    other: Tally,
    /// What it takes, since it is closed: operations that come late add little. 0 while it is open.
    bytes: usize,
}

/// What an instrumentation counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveResults {
    /// Since when it counts, by the clock of operations: what ended before is in the flight
    /// recorder only.
    pub began_ns: u64,
    /// Seconds in which something was counted, oldest first. A second that is not here had no such
    /// operation, or was not collected: [`FlightRecorder::coverage`] tells.
    ///
    /// [`FlightRecorder::coverage`]: crate::FlightRecorder::coverage
    pub seconds: Vec<LiveSecond>,
    /// Operations that came when their second was no longer held.
    pub late: u64,
}

/// One second of an instrumentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSecond {
    /// Which second of the clock of operations.
    pub second: u64,
    /// Whether it may still become more.
    pub is_open: bool,
    /// All operations.
    pub total: Tally,
    /// By key, the largest sum first.
    pub groups: Vec<(Key, Tally)>,
    /// Operations of other keys; without discrete fields, all.
    pub other: Tally,
}

impl Live {
    /// Begins to count.
    pub(crate) fn add(
        &mut self,
        predicate: CompiledPredicate,
        breakdown: Breakdown,
        keys_max: usize,
        purpose: Purpose,
        now_ns: u64,
    ) -> Result<InstrumentationId, LiveError> {
        let is_for_people = purpose == Purpose::People;
        let same = |one: &&Instrumentation| (one.purpose == Purpose::People) == is_for_people;
        let max = match is_for_people {
            true => INSTRUMENTATIONS_MAX,
            false => ARCHIVED_MAX,
        };
        if self.all.values().filter(same).count() >= max {
            return Err(LiveError::TooMany { max });
        }
        self.last_id += 1;
        let id = InstrumentationId(self.last_id);
        let instrumentation = Instrumentation {
            predicate,
            breakdown,
            keys_max: keys_max.min(OPEN_KEYS_MAX),
            purpose,
            began_ns: now_ns,
            read_ns: now_ns,
            seconds: VecDeque::new(),
            late: 0,
        };
        self.all.insert(id, instrumentation);
        Ok(id)
    }

    /// Ends one. Says whether there was one.
    pub(crate) fn remove(&mut self, id: InstrumentationId) -> bool {
        self.all.remove(&id).is_some()
    }

    /// The instrumentations that count for people.
    pub(crate) fn ids(&self) -> Vec<InstrumentationId> {
        let for_people = self
            .all
            .iter()
            .filter(|(_, one)| one.purpose == Purpose::People);
        for_people.map(|(id, _)| *id).collect()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Counts a batch, of which all columns are filled.
    pub(crate) fn count(&mut self, batch: &Batch) {
        let mut keys = [[0; KEY_WORDS_MAX]; BATCH_RECORDS];
        for instrumentation in self.all.values_mut() {
            keys.fill([0; KEY_WORDS_MAX]);
            instrumentation.count(batch, &mut keys);
        }
    }

    /// Closes seconds, and ends what is idle.
    pub(crate) fn tend(&mut self, now_ns: u64) {
        self.all
            .retain(|_, one| now_ns.saturating_sub(one.read_ns) < IDLE_NS);
        for instrumentation in self.all.values_mut() {
            instrumentation.close_seconds(now_ns);
        }
    }

    /// What one has counted from a second on; `None` when it has ended.
    pub(crate) fn read(
        &mut self,
        id: InstrumentationId,
        from_second: u64,
        now_ns: u64,
    ) -> Option<LiveResults> {
        let instrumentation = self.all.get_mut(&id)?;
        instrumentation.read_ns = now_ns;
        let seconds = instrumentation.seconds.iter();
        let seconds = seconds.filter(|second| second.number >= from_second);
        Some(LiveResults {
            began_ns: instrumentation.began_ns,
            seconds: seconds
                .map(|second| second.shown(&instrumentation.breakdown, instrumentation.keys_max))
                .collect(),
            late: instrumentation.late,
        })
    }
}

impl Instrumentation {
    fn count(&mut self, batch: &Batch, keys: &mut [[u64; KEY_WORDS_MAX]; BATCH_RECORDS]) {
        let meant = self.predicate.mask(batch, Mask::first(batch.len()));
        if meant.is_empty() {
            return;
        }
        self.breakdown.fill_keys(batch, keys);
        let is_broken_down = !self.breakdown.by().is_empty();
        let ended = batch.numbers(Column::Ended);
        let counted = self.breakdown.counted(batch);
        let shift_ns = self.purpose.shift_ns();
        // Most operations of a batch ended in the same second.
        let mut at = None;
        meant.for_each(|place| {
            let number = ended[place].saturating_add(shift_ns) / SECOND_NS;
            if at.is_none_or(|(last, _)| last != number) {
                at = Some((number, place_of_second(&mut self.seconds, number)));
            }
            let Some((_, Some(second))) = at else {
                self.late += 1;
                return;
            };
            let second = &mut self.seconds[second];
            let tally = match is_broken_down {
                true => second.tally(&keys[place]),
                false => &mut second.other,
            };
            counted.add(tally, place);
        });
    }

    fn close_seconds(&mut self, now_ns: u64) {
        let keys_max = self.keys_max;
        let now_ns = now_ns.saturating_add(self.purpose.shift_ns());
        let seconds_max = match self.purpose {
            Purpose::People => SECONDS_MAX,
            Purpose::Archive { .. } => ARCHIVED_SECONDS_MAX,
        };
        let is_due = |second: &Second| {
            let end_ns = (second.number + 1).saturating_mul(SECOND_NS);
            second.is_open && end_ns.saturating_add(GRACE_NS) <= now_ns
        };
        let due = self.seconds.iter_mut().filter(|second| is_due(second));
        if due.map(|second| second.close(keys_max)).count() == 0 {
            return;
        }
        let mut bytes: usize = self.seconds.iter().map(|second| second.bytes).sum();
        while (bytes > BYTES_MAX || self.seconds.len() > seconds_max)
            && self.seconds.front().is_some_and(|second| !second.is_open)
            && let Some(oldest) = self.seconds.pop_front()
        {
            bytes -= oldest.bytes;
        }
    }
}

/// Where the second of that number is, which is made if it is not older than all that are held.
fn place_of_second(seconds: &mut VecDeque<Second>, number: u64) -> Option<usize> {
    let place = seconds.partition_point(|second| second.number < number);
    if seconds
        .get(place)
        .is_none_or(|second| second.number != number)
    {
        let is_older_than_all = place == 0 && !seconds.is_empty();
        if is_older_than_all && seconds.iter().any(|second| !second.is_open) {
            return None;
        }
        seconds.insert(place, Second::new(number));
    }
    Some(place)
}

impl Second {
    fn new(number: u64) -> Second {
        Second {
            number,
            is_open: true,
            keys: KeyTable::default(),
            tallies: Vec::new(),
            other: Tally::default(),
            bytes: 0,
        }
    }

    /// Where an operation with this key is counted.
    fn tally(&mut self, key: &[u64; KEY_WORDS_MAX]) -> &mut Tally {
        let number = match self.is_open {
            true => self.keys.find_or_add(key, OPEN_KEYS_MAX),
            false => self.keys.find(key),
        };
        match number {
            None => &mut self.other,
            Some(number) => {
                if number == self.tallies.len() {
                    self.tallies.push(Tally::default());
                }
                &mut self.tallies[number]
            }
        }
    }

    /// The numbers of the keys, the largest sum first.
    fn ranked(&self) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..self.tallies.len()).collect();
        numbers.sort_by_key(|number| (u64::MAX - self.tallies[*number].sum, *number));
        numbers
    }

    /// Keeps only the largest keys.
    fn close(&mut self, keys_max: usize) {
        let (mut keys, mut tallies) = (KeyTable::default(), Vec::new());
        for number in self.ranked() {
            if tallies.len() < keys_max {
                keys.find_or_add(&self.keys.keys()[number], keys_max);
                tallies.push(std::mem::take(&mut self.tallies[number]));
            } else {
                self.other.merge(&self.tallies[number]);
            }
        }
        (self.keys, self.tallies) = (keys, tallies);
        self.is_open = false;
        self.bytes = self.counted_bytes();
    }

    fn counted_bytes(&self) -> usize {
        let tallies = self.tallies.iter().chain([&self.other]);
        size_of::<Second>()
            + self.keys.bytes()
            + tallies
                .map(|tally| size_of::<Tally>() + tally.bytes())
                .sum::<usize>()
    }

    fn shown(&self, breakdown: &Breakdown, keys_max: usize) -> LiveSecond {
        let mut other = self.other.clone();
        let mut total = self.other.clone();
        let mut groups = Vec::new();
        for number in self.ranked() {
            let tally = &self.tallies[number];
            total.merge(tally);
            match groups.len() < keys_max {
                true => groups.push((breakdown.key_of(&self.keys.keys()[number]), tally.clone())),
                false => other.merge(tally),
            }
        }
        LiveSecond {
            second: self.number,
            is_open: self.is_open,
            total,
            groups,
            other,
        }
    }
}
