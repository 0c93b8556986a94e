//! Room for writes: quotas, reservations, and the pool's free space.
//!
//! # Problem
//! The space of a write is known when its txg is stored, seconds after the writer was told that it
//! succeeded. By then it is too late to refuse, so each writer asks before, for its worst case.
//!
//! # Mechanism
//! A writer reserves worst-case bytes. Dirty data that is not stored counts with its worst case,
//! set by set (`tarn_object`'s `in_flight`); so do reservations that are not used yet. A
//! reservation ends with its transaction: then its changes are dirty.
//!
//! The check goes from the dataset's directory up to the root, as far as no reservation covers the
//! request. At each:
//!
//! - *stored* space reaches the limit: refused, once all earlier changes are stored, since they may
//!   have freed space;
//! - stored space, space in flight and the request fit together: it may write;
//! - they do not fit, and something is in flight: the writer waits for the next txg, after which
//!   the worst cases are replaced by real sizes, and asks again;
//! - nothing else is in flight: a request that can be made in smaller pieces is refused, so that it
//!   is; the smallest piece may write. So limits are reached to the byte, and exceeded by one piece
//!   at most.
//!
//! The space in flight in the whole pool bounds that in any directory. Only where that bound does
//! not fit, the directories of the space in flight are looked up ([`Namespace::fold`]).
//!
//! Where there is plenty of room, a writer reserves more than it asked for, and later writers take
//! from that without a check, as long as the txg is open. The room must be there without what
//! reservations pay: so a volume with a `refreservation` has its limits read once for many writes
//! as well, and near a limit each request is counted by itself.
//!
//! A file system's `refquota` is checked first. At the root is the pool: its size less slop, less
//! freed space that cannot be reused yet. Operations that free space may use half of the slop, and
//! no quota stops them. The last half of the slop is for storing: space maps, lists of freed
//! blocks, and other objects of the MOS.
//!
//! The unused part of a `refreservation` is only for the head itself; for all others it counts as
//! used.
//!
//! # Invariants
//! - From its check until its txg is stored, a change is counted, once or twice.
//! - All reserved room fits the free space, less a part of the slop, so that storing finds room.
//! - A caller holds no transaction: it may have to wait for its own txg.

use crate::error::DatasetError;
use crate::namespace::Namespace;
pub use crate::open::Leave;
use crate::open::{ADVANCE_BYTES, Promises};
use crate::properties::inherit::number_in;
use crate::space_door::SpaceUse;
use crate::stored::Reading;
use crate::stored_tree::DEPTH_MAX;
use crate::task::{Room, SlopUse, TaskRefusal};
use std::collections::BTreeMap;
use tarn_object::AssignError;
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;

/// See [`ADVANCE_BYTES`].
const ADVANCE_PART: u64 = 4;

/// What a block of the MOS takes, in one copy.
#[doc(alias = "DST_AVG_BLKSHIFT")]
const MOS_BLOCK_BYTES: u64 = 16 << 10;

/// In how many copies it is stored.
const MOS_COPIES: u64 = 3;

/// How often a writer waits for a group before he is refused. A guess: others may use up again what
/// he waited for.
const WAITS_MAX: usize = 64;

/// How often he waits for others to have nothing in flight. Then the smallest piece may write
/// beside them.
const PATIENT_WAITS: usize = 8;

/// Why no more may be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitRefusal {
    /// A quota of the dataset or of one above it leaves nothing (`EDQUOT`).
    #[error("the quota of the dataset is used up")]
    QuotaExceeded,
    /// The pool has nothing left (`ENOSPC`).
    #[error("no space left in the pool")]
    NoSpace,
    /// The pool does not store anything now.
    #[error(transparent)]
    Stopped(#[from] AssignError),
    /// The dataset could not be read (`EIO`).
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Asking {
    head: ObjectId,
    bytes: u64,
    space_use: SpaceUse,
    /// The group that was open when it was first asked.
    since: Txg,
    /// How often it was waited since.
    waits: usize,
}

/// What comes of asking once.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// It may.
    Yes,
    /// Not before what is in flight is stored.
    Later,
    /// There is no room.
    No(Full),
}

/// What is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Full {
    Quota,
    Pool,
}

impl From<Full> for AdmitRefusal {
    fn from(full: Full) -> AdmitRefusal {
        match full {
            Full::Quota => AdmitRefusal::QuotaExceeded,
            Full::Pool => AdmitRefusal::NoSpace,
        }
    }
}

/// One limit of a directory or a head.
struct Limit {
    /// So much may be used.
    bytes: u64,
    /// So much of what is used will be free when more groups are stored.
    freed: u64,
    /// The smallest piece may exceed it by so much.
    overdraft: u64,
    full: Full,
}

/// One step on the way up.
struct Step {
    directory: ObjectId,
    used: u64,
    reserved: u64,
    limits: Vec<Limit>,
}

/// What is in flight, by head and by directory.
enum Flight {
    /// No more than this, anywhere.
    AtMost(u64),
    /// So much, and so much more since that was found out.
    Known(Folded, u64),
}

/// What is in flight at the moment it was looked up.
struct Folded {
    heads: BTreeMap<ObjectId, u64>,
    directories: BTreeMap<ObjectId, u64>,
    /// What had been promised by then, since the pool was opened.
    given: u64,
}

impl Flight {
    fn of_head(&self, head: ObjectId) -> u64 {
        match self {
            Flight::AtMost(bytes) => *bytes,
            Flight::Known(folded, more) => folded.heads.get(&head).copied().unwrap_or(0) + more,
        }
    }

    fn of(&self, directory: ObjectId) -> u64 {
        match self {
            Flight::AtMost(bytes) => *bytes,
            Flight::Known(folded, more) => {
                folded.directories.get(&directory).copied().unwrap_or(0) + more
            }
        }
    }
}

impl Namespace {
    /// Asks whether the head of this number may take so many more bytes at worst. May wait for
    /// groups to be stored.
    ///
    /// # Errors
    /// When a quota or the pool leaves no room.
    #[doc(alias = "dsl_dir_tempreserve_space")]
    pub fn admit(
        &self,
        head: ObjectId,
        bytes: u64,
        space_use: SpaceUse,
        operation: &Operation,
    ) -> Result<Leave, AdmitRefusal> {
        let txgs = &self.mos().env().txgs;
        let since = txgs.open_txg();
        if bytes == 0 || self.promised().take_advance(head, since, bytes) {
            return Ok(Leave::of_advance());
        }
        for waits in 0..WAITS_MAX {
            let asking = Asking {
                head,
                bytes,
                space_use,
                since,
                waits,
            };
            match self.ask(asking, operation)? {
                Ok(leave) => return Ok(leave),
                Err(Answer::No(full)) if !self.may_come_free(&asking, full) => {
                    return Err(full.into());
                }
                Err(_) => txgs.wait_stored(txgs.stored_txg().next(), operation)?,
            }
        }
        Err(AdmitRefusal::NoSpace)
    }

    /// Asks once. Gives leave, or the answer that is not yes.
    fn ask(
        &self,
        asking: Asking,
        operation: &Operation,
    ) -> Result<Result<Leave, Answer>, AdmitRefusal> {
        let reading = Reading {
            set: self.mos(),
            operation,
        };
        let txgs = &self.mos().env().txgs;
        loop {
            let (stored, open) = (txgs.stored_txg(), txgs.open_txg());
            debug_assert!(stored < open, "the open group is not stored yet");
            let (head, steps) = self.steps(&asking, reading)?;
            {
                let mut promises = self.promised().lock();
                let at_most = txgs.in_flight_bytes().saturating_add(promises.sum(open));
                let flight = Flight::AtMost(at_most);
                let answer = judge(&asking, &head, &steps, &flight);
                // What a group had in flight is used when it is stored.
                if txgs.stored_txg() != stored {
                    continue;
                }
                if let Answer::Yes = answer {
                    let has_plenty = has_plenty(&asking, &head, &steps, &flight);
                    return Ok(Ok(self.give(&asking, &mut promises, open, has_plenty)));
                }
            }
            let folded = self.fold(reading, open)?;
            let mut promises = self.promised().lock();
            let more = promises.given().wrapping_sub(folded.given);
            let answer = judge(&asking, &head, &steps, &Flight::Known(folded, more));
            if txgs.stored_txg() != stored {
                continue;
            }
            return Ok(match answer {
                Answer::Yes => Ok(self.give(&asking, &mut promises, open, false)),
                answer => Err(answer),
            });
        }
    }

    fn give(&self, asking: &Asking, promises: &mut Promises, open: Txg, has_plenty: bool) -> Leave {
        assert!(asking.bytes > 0, "room for nothing is not asked for");
        promises.give(asking.head, asking.bytes);
        // Quotas were not asked for what gives back room, and are for later writers.
        if has_plenty && asking.space_use != SpaceUse::Freeing {
            promises.give_advance(asking.head, open);
        }
        Leave::of_promise(self.promised(), asking.head, asking.bytes)
    }

    /// What limits a head, and the directories above it.
    fn steps(
        &self,
        asking: &Asking,
        reading: Reading<'_>,
    ) -> Result<(HeadLimits, Vec<Step>), DatasetError> {
        if asking.space_use == SpaceUse::Freeing {
            let root: DatasetDirectory = reading.bonus_of(self.root_directory())?;
            let step = self.step(self.root_directory(), &root, asking.space_use);
            return Ok((HeadLimits::default(), vec![step]));
        }
        let dataset: ondisk::dataset::Dataset = reading.bonus_of(asking.head)?;
        let mut steps = Vec::new();
        let mut head = None;
        let mut id = dataset.directory;
        for _ in 0..DEPTH_MAX {
            let directory: DatasetDirectory = reading.bonus_of(id)?;
            if head.is_none() {
                head = Some(HeadLimits::read(reading, &dataset, &directory)?);
            }
            steps.push(self.step(id, &directory, asking.space_use));
            if directory.parent.is_zero() {
                break;
            }
            id = directory.parent;
        }
        Ok((head.unwrap_or_default(), steps))
    }

    fn step(&self, id: ObjectId, directory: &DatasetDirectory, space_use: SpaceUse) -> Step {
        let used = directory.used.get();
        let mut limits = Vec::new();
        if directory.quota.get() != 0 && space_use != SpaceUse::Freeing {
            limits.push(Limit::of_quota(directory.quota.get()));
        }
        if directory.parent.is_zero() {
            limits.push(self.limit_of_pool(used, space_use));
        }
        Step {
            directory: id,
            used,
            reserved: directory.reservation.get(),
            limits,
        }
    }

    /// What all datasets together may use now.
    #[doc(alias = "dsl_pool_unreserved_space")]
    fn limit_of_pool(&self, used: u64, space_use: SpaceUse) -> Limit {
        let io = self.mos().env().cache.io();
        let slop = self.slop_bytes();
        let (into_slop, untouched) = match space_use {
            SpaceUse::Divisible | SpaceUse::Whole => (0, slop / 2),
            SpaceUse::Freeing => (slop / 2, slop / 4),
        };
        let freed = io.deferred_size().get();
        let by_size = self.adjusted_bytes().saturating_sub(freed);
        // Logs take room that no dataset is charged for, and a vdev that is out of use gives none.
        let free = io.free_size().get().saturating_sub(untouched);
        let by_free = used.saturating_add(free);
        Limit {
            bytes: by_size.saturating_add(into_slop).min(by_free),
            freed,
            overdraft: slop / 8,
            full: Full::Pool,
        }
    }

    /// Refuses a change of the tree that the pool has no room for. In the sync thread.
    ///
    /// # Errors
    /// The refusal; or the root cannot be read.
    #[doc(alias = "dsl_sync_task_sync")]
    pub fn check_room(&self, room: Room, operation: &Operation) -> Result<(), TaskRefusal> {
        let slop = self.slop_bytes();
        let into_slop = match room.slop {
            SlopUse::Nothing => 0,
            SlopUse::Half => slop / 2,
            SlopUse::ThreeQuarters => slop / 4 * 3,
            SlopUse::All => return Ok(()),
        };
        let reading = Reading {
            set: self.mos(),
            operation,
        };
        let root: DatasetDirectory = reading.bonus_of(self.root_directory())?;
        let freed = self.mos().env().cache.io().deferred_size().get();
        let limit = self.adjusted_bytes().saturating_sub(freed);
        let wanted = room.blocks.saturating_mul(MOS_BLOCK_BYTES * MOS_COPIES);
        let after = root.used.get().saturating_add(wanted);
        match after > limit.saturating_add(into_slop) {
            true => Err(TaskRefusal::NoSpace {
                why: "out of space".to_string(),
            }),
            false => Ok(()),
        }
    }

    /// What is in flight in each head and directory. A directory's reservation pays for what is in
    /// flight below it as for what is used there.
    #[doc(alias = "dsl_dir_willuse_space")]
    fn fold(&self, reading: Reading<'_>, open: Txg) -> Result<Folded, DatasetError> {
        let (mut heads, given) = {
            let promises = self.promised().lock();
            (promises.by_head(open), promises.given())
        };
        for set in self.open().heads.all() {
            match set.in_flight_bytes() {
                0 => {}
                bytes => *heads.entry(set.id()).or_default() += bytes,
            }
        }
        let root = self.root_directory();
        let mut known: BTreeMap<ObjectId, DatasetDirectory> = BTreeMap::new();
        let mut directories: BTreeMap<ObjectId, u64> = BTreeMap::new();
        directories.insert(root, self.mos().in_flight_bytes());
        for (&head, &bytes) in &heads {
            // One that is just being destroyed is counted for the pool.
            let Ok(dataset) = reading.bonus_of::<ondisk::dataset::Dataset>(head) else {
                *directories.entry(root).or_default() += bytes;
                continue;
            };
            let mut id = dataset.directory;
            for level in 0..DEPTH_MAX {
                if known.contains_key(&id) && level > 0 {
                    break;
                }
                let directory: DatasetDirectory = reading.bonus_of(id)?;
                if level == 0 {
                    let limits = HeadLimits::read(reading, &dataset, &directory)?;
                    let paid = limits.paid_by_reservation(bytes, 0);
                    assert!(paid <= bytes, "a reservation pays at most what is written");
                    let charged = bytes - paid;
                    *directories.entry(id).or_default() += charged;
                }
                let parent = directory.parent;
                known.insert(id, directory);
                if parent.is_zero() {
                    break;
                }
                id = parent;
            }
        }
        // From the deepest up: each is complete when its parent is told.
        let depth_of = |id: &ObjectId| {
            let mut depth = 0;
            let mut next = known.get(id);
            while let Some(directory) = next.filter(|_| depth < DEPTH_MAX) {
                depth += 1;
                next = known.get(&directory.parent);
            }
            depth
        };
        let mut order: Vec<ObjectId> = known.keys().copied().collect();
        order.sort_by_cached_key(|id| std::cmp::Reverse(depth_of(id)));
        for id in order {
            let directory = &known[&id];
            if directory.parent.is_zero() {
                continue;
            }
            let bytes = directories.get(&id).copied().unwrap_or(0);
            let felt = felt_above(directory.used.get(), directory.reservation.get(), 0, bytes);
            *directories.entry(directory.parent).or_default() += felt;
        }
        Ok(Folded {
            heads,
            directories,
            given,
        })
    }

    /// Whether a refusal has to wait until all that was changed before the question is stored: a
    /// file may have been removed, and its room is counted until then. What others dirty in the
    /// dataset's pool counts for the pool only.
    fn may_come_free(&self, asking: &Asking, full: Full) -> bool {
        let txgs = &self.mos().env().txgs;
        let mut txg = txgs.stored_txg().next();
        while txg <= asking.since {
            let sets = txgs.dirty_sets(txg);
            let is_concerned = match full {
                Full::Pool => !sets.is_empty(),
                Full::Quota => sets.iter().any(|set| set.id() == asking.head),
            };
            if is_concerned {
                return true;
            }
            txg = txg.next();
        }
        false
    }
}

impl Limit {
    fn of_quota(bytes: u64) -> Limit {
        Limit {
            bytes,
            freed: 0,
            overdraft: u64::MAX,
            full: Full::Quota,
        }
    }

    /// What becomes of a question, where so much is used and in flight.
    fn answer(&self, asking: &Asking, used: u64, in_flight: u64, wanted: u64) -> Answer {
        if used >= self.bytes {
            return match used - self.bytes < self.freed {
                true => Answer::Later,
                false => Answer::No(self.full),
            };
        }
        let left = self.bytes - used;
        let sum = in_flight.saturating_add(wanted);
        if sum <= left {
            return Answer::Yes;
        }
        if in_flight > 0 && asking.waits < PATIENT_WAITS {
            return Answer::Later;
        }
        let is_within = sum <= left.saturating_add(self.overdraft);
        match (asking.space_use, is_within) {
            (SpaceUse::Whole | SpaceUse::Freeing, true) => Answer::Yes,
            (SpaceUse::Whole | SpaceUse::Freeing, false) if in_flight > 0 => Answer::Later,
            _ => Answer::No(self.full),
        }
    }
}

/// Goes through all limits from a head up, as far as no reservation pays.
fn judge(asking: &Asking, head: &HeadLimits, steps: &[Step], flight: &Flight) -> Answer {
    let mut wanted = asking.bytes;
    if head.quota != 0 {
        let quota = Limit::of_quota(head.quota);
        let in_flight = flight.of_head(asking.head);
        match quota.answer(asking, head.referenced, in_flight, wanted) {
            Answer::Yes => {}
            other => return other,
        }
    }
    let paid = head.paid_by_reservation(wanted, flight.of_head(asking.head));
    assert!(paid <= wanted, "a reservation pays at most what is written");
    wanted -= paid;
    for step in steps {
        if wanted == 0 {
            break;
        }
        let in_flight = flight.of(step.directory);
        for limit in &step.limits {
            match limit.answer(asking, step.used, in_flight, wanted) {
                Answer::Yes => {}
                other => return other,
            }
        }
        wanted = felt_above(step.used, step.reserved, in_flight, wanted);
    }
    Answer::Yes
}

/// Whether each limit from a head up has room for what is asked for and several advances, though no
/// reservation pay for any of it.
fn has_plenty(asking: &Asking, head: &HeadLimits, steps: &[Step], flight: &Flight) -> bool {
    assert!(!steps.is_empty(), "each head is in a directory");
    let wanted = asking.bytes.saturating_add(ADVANCE_BYTES * ADVANCE_PART);
    assert!(
        wanted > ADVANCE_BYTES,
        "an advance fits in what must be left"
    );
    let leaves = |bytes: u64, used: u64, in_flight: u64| {
        bytes.saturating_sub(used) > in_flight.saturating_add(wanted)
    };
    let is_within =
        head.quota == 0 || leaves(head.quota, head.referenced, flight.of_head(asking.head));
    is_within
        && steps.iter().all(|step| {
            let in_flight = flight.of(step.directory);
            let mut limits = step.limits.iter();
            limits.all(|limit| leaves(limit.bytes, step.used, in_flight))
        })
}

/// How much of what is wanted in a directory is felt by its parent.
#[doc(alias = "parent_delta")]
fn felt_above(used: u64, reserved: u64, in_flight: u64, wanted: u64) -> u64 {
    let before = used.saturating_add(in_flight);
    let after = before.saturating_add(wanted);
    let felt = after.max(reserved) - before.max(reserved);
    assert!(felt <= wanted, "a reservation takes from what is wanted");
    felt
}

/// The limits of a head itself.
#[derive(Default)]
struct HeadLimits {
    referenced: u64,
    unique: u64,
    quota: u64,
    reserved: u64,
}

impl HeadLimits {
    fn read(
        reading: Reading<'_>,
        dataset: &ondisk::dataset::Dataset,
        directory: &DatasetDirectory,
    ) -> Result<HeadLimits, DatasetError> {
        let number = |name| number_in(reading, directory.properties, name);
        Ok(HeadLimits {
            referenced: dataset.referenced.get(),
            unique: dataset.unique.get(),
            quota: number("refquota")?.unwrap_or(0),
            reserved: number("refreservation")?.unwrap_or(0),
        })
    }

    /// How much of what is wanted comes out of the refreservation.
    fn paid_by_reservation(&self, wanted: u64, in_flight: u64) -> u64 {
        if self.reserved <= self.unique {
            return 0;
        }
        let after = self
            .unique
            .saturating_add(wanted)
            .saturating_add(in_flight)
            .max(self.reserved);
        assert!(
            after >= self.unique.max(self.reserved),
            "what is written takes no space away"
        );
        let beyond = after - self.unique.max(self.reserved);
        wanted - wanted.min(beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(unique: u64, reserved: u64) -> HeadLimits {
        HeadLimits {
            referenced: unique,
            unique,
            quota: 0,
            reserved,
        }
    }

    fn asking(space_use: SpaceUse, bytes: u64, waits: usize) -> Asking {
        Asking {
            head: ObjectId::new(1),
            bytes,
            space_use,
            since: Txg::ZERO,
            waits,
        }
    }

    /// The answer of a quota of 100, in a letter.
    fn of_quota(space_use: SpaceUse, used: u64, in_flight: u64, wanted: u64, waits: usize) -> char {
        let asking = asking(space_use, wanted, waits);
        letter(&Limit::of_quota(100).answer(&asking, used, in_flight, wanted))
    }

    fn letter(answer: &Answer) -> char {
        match answer {
            Answer::Yes => 'y',
            Answer::Later => 'l',
            Answer::No(_) => 'n',
        }
    }

    #[test]
    fn a_limit_is_reached_and_not_exceeded_by_what_is_in_flight() {
        for space_use in [SpaceUse::Divisible, SpaceUse::Whole] {
            assert_eq!(of_quota(space_use, 50, 20, 30, 0), 'y', "it fits");
            assert_eq!(
                of_quota(space_use, 50, 20, 31, 0),
                'l',
                "what is in flight may be less"
            );
            assert_eq!(of_quota(space_use, 100, 0, 1, 0), 'n', "it is reached");
            assert_eq!(of_quota(space_use, 100, 50, 1, 0), 'n', "it is reached");
        }
        assert_eq!(
            of_quota(SpaceUse::Divisible, 99, 0, 2, 0),
            'n',
            "a smaller piece may fit"
        );
        assert_eq!(
            of_quota(SpaceUse::Whole, 99, 0, 2, 0),
            'y',
            "the last piece"
        );
        assert_eq!(
            of_quota(SpaceUse::Whole, 99, 1, 2, 0),
            'l',
            "but not beside others"
        );
        assert_eq!(
            of_quota(SpaceUse::Whole, 99, 1, 2, PATIENT_WAITS),
            'y',
            "for ever"
        );
    }

    #[test]
    fn the_last_piece_leaves_most_of_the_slop() {
        let pool = Limit {
            overdraft: 10,
            ..Limit::of_quota(100)
        };
        let answer = |wanted, in_flight| {
            let asking = asking(SpaceUse::Whole, wanted, PATIENT_WAITS);
            letter(&pool.answer(&asking, 95, in_flight, wanted))
        };
        assert_eq!(answer(15, 0), 'y');
        assert_eq!(answer(16, 0), 'n');
        assert_eq!(answer(15, 1), 'l', "it would fit without the others");
    }

    #[test]
    fn leave_in_advance_needs_room_that_no_reservation_pays_for() {
        let plenty = ADVANCE_BYTES * ADVANCE_PART;
        let has_plenty = |head: &HeadLimits, bytes, reserved, in_flight| {
            let steps = [Step {
                directory: ObjectId::new(2),
                used: 100,
                reserved,
                limits: vec![Limit::of_quota(bytes)],
            }];
            let asking = asking(SpaceUse::Whole, 10, 0);
            has_plenty(&asking, head, &steps, &Flight::AtMost(in_flight))
        };
        let enough = 100 + plenty + 10 + 1;
        for head in [head(0, 0), head(10, 100)] {
            for reserved in [0, 1 << 40] {
                assert!(has_plenty(&head, enough, reserved, 0));
                assert!(!has_plenty(&head, enough - 1, reserved, 0), "10 bytes");
                assert!(!has_plenty(&head, enough, reserved, 1), "in flight");
                assert!(!has_plenty(&head, 50, reserved, 0), "it is exceeded");
            }
        }
        let with_quota = |quota| HeadLimits {
            quota,
            ..head(20, 0)
        };
        assert!(has_plenty(&with_quota(20 + plenty + 11), enough, 0, 0));
        assert!(!has_plenty(&with_quota(20 + plenty + 10), enough, 0, 0));
    }

    #[test]
    fn what_was_freed_is_waited_for() {
        let pool = Limit {
            freed: 10,
            ..Limit::of_quota(100)
        };
        let answer = |used| letter(&pool.answer(&asking(SpaceUse::Whole, 1, 0), used, 0, 1));
        assert_eq!([answer(99), answer(109), answer(110)], ['y', 'l', 'n']);
    }

    #[test]
    fn a_refreservation_pays_for_what_it_holds_free() {
        assert_eq!(head(10, 100).paid_by_reservation(50, 0), 50);
        assert_eq!(head(10, 100).paid_by_reservation(100, 0), 90);
        assert_eq!(head(10, 100).paid_by_reservation(50, 60), 30);
        assert_eq!(head(100, 100).paid_by_reservation(50, 0), 0);
    }

    #[test]
    fn a_directory_that_is_full_admits_what_a_reservation_pays_for() {
        let step = |directory, used, reserved| Step {
            directory: ObjectId::new(directory),
            used,
            reserved,
            limits: vec![Limit::of_quota(100)],
        };
        let full = [step(2, 50, 80), step(3, 100, 0)];
        let judged = |head: &HeadLimits, wanted, in_flight| {
            let asking = asking(SpaceUse::Whole, wanted, 0);
            letter(&judge(&asking, head, &full, &Flight::AtMost(in_flight)))
        };
        assert_eq!(judged(&head(0, 0), 30, 0), 'y', "of the directory below");
        assert_eq!(judged(&head(0, 0), 31, 0), 'n');
        assert_eq!(judged(&head(0, 0), 30, 1), 'n');
        assert_eq!(judged(&head(10, 30), 50, 0), 'y', "and of the head");
    }
}
