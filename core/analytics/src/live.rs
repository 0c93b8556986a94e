//! Live instrumentations: statistics that are counted as operations come.
//!
//! # Mechanism
//! The collector hands each batch to all instrumentations, which share what they ask of it
//! (`live_sharing.rs`): the request path has no part in it. An instrumentation counts by seconds of
//! the clock of operations. A second is open until [`GRACE_NS`] after its end, and counts up to
//! [`OPEN_KEYS_MAX`] keys; then it keeps the largest ones, and the others join `other`. An
//! instrumentation that was not read for [`IDLE_NS`] ends.
//!
//! # Invariants
//! - In each second the groups and `other` add up to the total, also for operations that come late.
//! - All instrumentations together take at most some 64 MiB; those of the archive, which reads them
//!   each second, besides a MiB each at most, and hold few seconds.

use std::collections::{BTreeMap, VecDeque};

use tarn_probe::OperationRecord;

use crate::breakdown::Breakdown;
use crate::column_batch::{BATCH_RECORDS, Batch};
use crate::compiled::CompiledPredicate;
use crate::error::LiveError;
use crate::live_second::{LiveSecond, OPEN_KEYS_MAX, Second};
use crate::live_sharing::{Shares, Sharing};

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

/// The number of an instrumentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstrumentationId(pub u64);

/// All instrumentations.
#[derive(Debug, Default)]
pub(crate) struct Live {
    all: BTreeMap<InstrumentationId, Instrumentation>,
    last_id: u64,
    sharing: Sharing,
    /// The one at hand.
    batch: Batch,
}

#[derive(Debug)]
struct Instrumentation {
    predicate: CompiledPredicate,
    breakdown: Breakdown,
    shares: Shares,
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
        let shares = (self.sharing).join(&predicate, &breakdown, purpose.shift_ns());
        let instrumentation = Instrumentation {
            predicate,
            breakdown,
            shares,
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
        let is_removed = self.all.remove(&id).is_some();
        self.share();
        is_removed
    }

    /// Joins anew what the instrumentations ask that there still are.
    fn share(&mut self) {
        self.sharing = Sharing::default();
        for one in self.all.values_mut() {
            let shift_ns = one.purpose.shift_ns();
            one.shares = (self.sharing).join(&one.predicate, &one.breakdown, shift_ns);
        }
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

    /// Counts operations, [`BATCH_RECORDS`] at most.
    pub(crate) fn count(&mut self, records: &[OperationRecord]) {
        assert!(records.len() <= BATCH_RECORDS, "they are a batch");
        self.batch.fill(records, self.sharing.wanted());
        self.sharing.begin(&self.batch);
        for instrumentation in self.all.values_mut() {
            instrumentation.count(&mut self.sharing, &self.batch);
        }
    }

    /// Closes seconds, and ends what is idle.
    pub(crate) fn tend(&mut self, now_ns: u64) {
        let count = self.all.len();
        self.all
            .retain(|_, one| now_ns.saturating_sub(one.read_ns) < IDLE_NS);
        if self.all.len() < count {
            self.share();
        }
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
    fn count(&mut self, sharing: &mut Sharing, batch: &Batch) {
        let meant = sharing.meant(&self.shares);
        if meant.is_empty() {
            return;
        }
        sharing.find(&self.shares, batch);
        let asked = sharing.asked(&self.shares, batch);
        for (number, of_second) in sharing.seconds(&self.shares) {
            let meant = meant.and(*of_second);
            if meant.is_empty() {
                continue;
            }
            match place_of_second(&mut self.seconds, *number, &self.breakdown) {
                Some(place) => self.seconds[place].count(&asked, meant),
                None => self.late += meant.count(),
            }
        }
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
fn place_of_second(
    seconds: &mut VecDeque<Second>,
    number: u64,
    breakdown: &Breakdown,
) -> Option<usize> {
    let place = seconds.partition_point(|second| second.number < number);
    if seconds
        .get(place)
        .is_none_or(|second| second.number != number)
    {
        let is_older_than_all = place == 0 && !seconds.is_empty();
        if is_older_than_all && seconds.iter().any(|second| !second.is_open) {
            return None;
        }
        seconds.insert(place, Second::new(number, breakdown));
    }
    Some(place)
}
