//! Commits in batches: one batch is made ready while another is being written.
//!
//! # Mechanism
//! A commit joins the next batch, or waits for one under way that has all its records. One thread
//! of a batch leads: it makes the batch ready (one at a time) and writes it; the batch is done when
//! it and all batches before it are written. A batch begins at once when none is under way. While
//! one is being written, the next begins as soon as as many threads wait for it as for that one: so
//! a commit that comes in between waits for about one write instead of two. Where writes take less
//! than waking a thread, there is one batch at a time, and batches are larger. No batch waits for
//! time to pass.
//!
//! # Invariants
//! - Batches are made ready and done in the order of their numbers.
//! - No group is stored while a batch is under way that holds it or an earlier one.

use tarn_ondisk::units::{ObjectId, Txg};

/// How many batches are under way at once, at most. A guess: more of them would be smaller.
const UNDER_WAY_MAX: usize = 2;

/// While batches are written more quickly than this, one is under way at a time: waking another
/// thread takes as long. A guess.
const SLOW_WRITE_NS: u64 = 100_000;

/// How many batches are looked back at to guess how large the next one is, and how long it takes.
const REMEMBERED_BATCHES: usize = 8;

/// A batch that has records to write, until it is done.
#[derive(Debug)]
struct UnderWay {
    number: u64,
    /// For how many commits it is.
    waiting: usize,
    /// The newest group of its records.
    newest: Txg,
    /// The files whose records it has; `None` for records that all files need. Each once, in order.
    files: Vec<Option<ObjectId>>,
    /// Its blocks have places allocated in this txg; blocks of indirect writes may have.
    holds: Option<Txg>,
}

/// All batches of a log.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// The commits that wait for the next batch: for which files.
    wanted: Vec<Option<ObjectId>>,
    begun: u64,
    /// All up to this one are done, well or badly.
    done: u64,
    is_preparing: bool,
    /// The oldest first.
    under_way: Vec<UnderWay>,
    /// About how many bytes the last ones had.
    sizes: [usize; REMEMBERED_BATCHES],
    /// How long writing the last ones took.
    writes_ns: [u64; REMEMBERED_BATCHES],
}

impl Batches {
    /// Joins the next batch: gives its number.
    pub(crate) fn join(&mut self, object: Option<ObjectId>) -> u64 {
        self.wanted.push(object);
        self.next()
    }

    /// The last batch under way with a record that this file needs; `None` is all files.
    pub(crate) fn last_for(&self, object: Option<ObjectId>) -> Option<u64> {
        let has = |batch: &&UnderWay| match object {
            None => true,
            Some(_) => [None, object]
                .iter()
                .any(|file| batch.files.binary_search(file).is_ok()),
        };
        let last = self.under_way.iter().rev().find(has);
        last.map(|batch| batch.number)
    }

    /// The number of the batch that will be begun next.
    pub(crate) fn next(&self) -> u64 {
        self.begun + 1
    }

    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.done >= number
    }

    /// Whether a thread that waits for the next batch is to begin it now.
    pub(crate) fn may_begin(&self) -> bool {
        let is_wanted = match self.under_way.as_slice() {
            [] => !self.wanted.is_empty(),
            [.., last] if self.under_way.len() < UNDER_WAY_MAX && self.writes_are_slow() => {
                self.wanted.len() >= last.waiting
            }
            _ => false,
        };
        is_wanted && !self.is_preparing
    }

    /// Whether most of the last writes were.
    fn writes_are_slow(&self) -> bool {
        let is_slow = |took_ns: &&u64| **took_ns >= SLOW_WRITE_NS;
        self.writes_ns.iter().filter(is_slow).count() > REMEMBERED_BATCHES / 2
    }

    /// Writing a batch took so long.
    pub(crate) fn note_write(&mut self, took_ns: u64) {
        self.writes_ns.rotate_right(1);
        self.writes_ns[0] = took_ns;
    }

    /// Begins the next batch: its number, and the files it is for.
    pub(crate) fn begin(&mut self) -> (u64, Vec<Option<ObjectId>>) {
        assert!(!self.is_preparing, "one batch is made ready at a time");
        assert!(self.under_way.len() < UNDER_WAY_MAX, "few are under way");
        self.begun += 1;
        (self.begun, std::mem::take(&mut self.wanted))
    }

    /// The batch that was just begun has records, the newest of this group, of these files, and is
    /// being made ready.
    pub(crate) fn set_out(
        &mut self,
        waiting: usize,
        newest: Txg,
        files: impl Iterator<Item = Option<ObjectId>>,
    ) {
        assert!(!self.is_preparing, "one batch is made ready at a time");
        let mut files: Vec<Option<ObjectId>> = files.collect();
        files.sort_unstable();
        files.dedup();
        let last = self.under_way.last();
        assert!(
            last.is_none_or(|last| last.number < self.begun),
            "batches set out in their order"
        );
        self.is_preparing = true;
        self.under_way.push(UnderWay {
            number: self.begun,
            waiting,
            newest,
            files,
            holds: None,
        });
    }

    /// The batch being made ready has places of this group from here on, and maybe of an earlier
    /// one.
    pub(crate) fn hold(&mut self, txg: Txg) {
        let batch = self.under_way.last_mut();
        let batch = batch.expect("what is made ready is under way");
        batch.holds.get_or_insert(txg);
    }

    /// It is ready, or will not be written; so many bytes it had.
    pub(crate) fn prepared(&mut self, bytes: usize) {
        assert!(self.is_preparing, "a batch was being made ready");
        self.is_preparing = false;
        self.sizes.rotate_right(1);
        self.sizes[0] = bytes;
    }

    /// Whether all before this one are done.
    pub(crate) fn is_next_to_finish(&self, number: u64) -> bool {
        self.done + 1 == number
    }

    pub(crate) fn finish(&mut self, number: u64) {
        assert!(self.is_next_to_finish(number), "batches end in their order");
        assert!(number <= self.begun, "a batch begins before it ends");
        self.done = number;
        self.under_way.retain(|batch| batch.number != number);
    }

    pub(crate) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether a batch needs that this group is not stored yet.
    pub(crate) fn hold_up(&self, txg: Txg) -> bool {
        let mut holds = self.under_way.iter().filter_map(|batch| batch.holds);
        holds.any(|held| held <= txg)
    }

    /// The newest group of a record under way; zero for none.
    pub(crate) fn newest(&self) -> Txg {
        let newest = self.under_way.iter().map(|batch| batch.newest);
        newest.max().unwrap_or(Txg::ZERO)
    }

    /// A guess at how many bytes the next batch has.
    pub(crate) fn likely_bytes(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(batches: &mut Batches, times: usize) {
        for _ in 0..times {
            batches.join(None);
        }
    }

    fn begun(batches: &mut Batches) -> u64 {
        assert!(batches.may_begin());
        let (number, wanted) = batches.begin();
        let files = wanted.iter().copied();
        batches.set_out(wanted.len(), Txg::from(7), files);
        number
    }

    #[test]
    fn a_single_commit_does_not_wait() {
        let mut batches = Batches::default();
        assert!(!batches.may_begin());
        let mine = batches.join(None);
        assert_eq!(begun(&mut batches), mine);
        batches.prepared(100);
        batches.finish(mine);
        assert!(batches.is_done(mine) && !batches.is_under_way());
    }

    fn on_slow_devices() -> Batches {
        Batches {
            writes_ns: [SLOW_WRITE_NS; REMEMBERED_BATCHES],
            ..Batches::default()
        }
    }

    #[test]
    fn where_writes_are_quick_one_is_under_way_at_a_time() {
        let mut batches = on_slow_devices();
        for _ in 0..REMEMBERED_BATCHES {
            batches.note_write(SLOW_WRITE_NS - 1);
        }
        joined(&mut batches, 1);
        begun(&mut batches);
        batches.prepared(100);
        joined(&mut batches, 9);
        assert!(!batches.may_begin());
        for _ in 0..REMEMBERED_BATCHES {
            batches.note_write(SLOW_WRITE_NS);
        }
        assert!(batches.may_begin());
    }

    #[test]
    fn another_batch_begins_beside_one_on_its_way_when_as_many_want_it() {
        let mut batches = on_slow_devices();
        joined(&mut batches, 3);
        let first = begun(&mut batches);
        joined(&mut batches, 5);
        assert!(!batches.may_begin(), "the first is not ready");
        batches.prepared(100);
        let second = begun(&mut batches);
        batches.prepared(100);
        joined(&mut batches, 9);
        assert!(!batches.may_begin(), "two are under way");
        assert!(!batches.is_next_to_finish(second));
        batches.finish(first);
        assert!(batches.may_begin());
        batches.finish(second);

        joined(&mut batches, 3);
        begun(&mut batches);
        batches.prepared(100);
        joined(&mut batches, 11);
        assert!(!batches.may_begin(), "twelve wait for the one under way");
        batches.join(None);
        assert!(batches.may_begin());
    }

    #[test]
    fn a_file_waits_for_batches_with_its_records_or_everybodys() {
        let mut batches = on_slow_devices();
        let [mine, other] = [5, 6].map(|id| Some(ObjectId::from(id)));
        batches.join(mine);
        let first = begun(&mut batches);
        batches.prepared(100);
        assert_eq!(batches.last_for(mine), Some(first));
        assert_eq!(batches.last_for(other), None);
        assert_eq!(batches.last_for(None), Some(first));
        batches.join(other);
        let second = begun(&mut batches);
        assert_eq!(batches.last_for(mine), Some(first));
        assert_eq!(batches.last_for(other), Some(second));
        batches.finish(first);
        assert_eq!(batches.last_for(mine), None);
        batches.prepared(100);
        batches.finish(second);
        batches.join(None);
        let third = begun(&mut batches);
        assert_eq!(batches.last_for(mine), Some(third));
    }

    #[test]
    fn a_group_is_held_up_by_those_under_way_alone() {
        let mut batches = Batches::default();
        joined(&mut batches, 1);
        let first = begun(&mut batches);
        assert!(!batches.hold_up(Txg::from(9)));
        batches.hold(Txg::from(8));
        batches.hold(Txg::from(9));
        batches.prepared(0);
        assert!(batches.hold_up(Txg::from(8)) && !batches.hold_up(Txg::from(7)));
        assert_eq!(batches.newest(), Txg::from(7));
        batches.finish(first);
        assert!(!batches.hold_up(Txg::from(8)));
        assert_eq!(batches.newest(), Txg::ZERO);
    }
}
