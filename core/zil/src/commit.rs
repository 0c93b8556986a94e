//! Commits: making changes durable now (`zil_commit`).
//!
//! # Mechanism
//! The thread that commits writes itself: it takes the records that its file needs, makes them
//! ready for the block that waits at the end of the chain ([`ready`](crate::ready)), writes, and
//! flushes. Commits that come meanwhile join the next batch ([`batches`](crate::batches)), which
//! one thread writes for all, maybe while this batch is being written. A single thread never waits
//! for another.
//!
//! Where the log cannot be written, commits wait until their txg is stored. That is so for the
//! first commit of all, whose chain begins in a head that must be stored first; and when a block
//! has no room, cannot be written, or contents cannot be read. From then on until that group is
//! stored no batch is begun, and what is on its way behind a block that was not written counts as
//! not written, so the log has no gaps.
//!
//! A commit with more than [`CARRIED_BYTES_MAX`](crate::log) for the log's own blocks waits for
//! txgs, too. What large writes of the open group have does not count, as their records lead to
//! their blocks ([`ready`](crate::ready)). Where too much is in a group that is closed, and so on
//! its way to the disk, the commit waits for that group alone, and then writes what is left.
//!
//! # Invariants
//! - A commit returns well only when each record it needs is in a stored group, or in a block that
//!   was written and flushed, after all blocks before it.
//! - No lock and no transaction is held while contents are fetched or a device is waited for.

use tarn_host::lock::MutexGuard;
use tarn_object::AssignError;
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::{Operation, Outcome, Stage};

use crate::error::CommitError;
use crate::log::{Durability, IntentLog, State};
use crate::pending::Entry;
use crate::probes::Event;
use crate::ready::{Basis, Preparation};

/// How a commit makes the changes of a file durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the log.
    Log,
    /// With this txg, and what was recorded before.
    Group(Txg),
    /// With this txg, which is closed, what was recorded up to it, and then the rest.
    ClosedGroup(Txg),
}

impl IntentLog {
    /// Returns when all changes of this file that were recorded before are durable, and what they
    /// build on; without a file all changes. The caller holds no transaction, and no lock that a
    /// thread may wait for while it adds records.
    ///
    /// # Errors
    /// When the pool is suspended or being closed, or devices are lost.
    #[doc(alias = "zil_commit")]
    pub fn commit(
        &self,
        object: Option<ObjectId>,
        operation: &Operation,
    ) -> Result<(), CommitError> {
        self.commit_together(&[object], operation)
    }

    /// As [`IntentLog::commit`], of several files in one batch.
    ///
    /// # Errors
    /// As there: some of them may be durable.
    pub fn commit_together(
        &self,
        objects: &[Option<ObjectId>],
        operation: &Operation,
    ) -> Result<(), CommitError> {
        // Waits for the batches of others included, and without devices and groups.
        let _timer = operation.stage_alone(Stage::Log);
        self.counts.add(Event::Commit, widen(objects.len()));
        operation.mark(Outcome::Synchronous);
        let mut rest = self.commit_once(objects, operation)?;
        if rest.is_empty() {
            return Ok(());
        }
        // What comes from now on is not waited for.
        let open = self.txgs().open_txg();
        while !rest.is_empty() && self.txgs().stored_txg() < open {
            rest = self.commit_once(&rest, operation)?;
        }
        Ok(())
    }

    /// Gives the files of which only a part is durable: the rest was left until a closed group
    /// was stored, which it is.
    fn commit_once(
        &self,
        objects: &[Option<ObjectId>],
        operation: &Operation,
    ) -> Result<Vec<Option<ObjectId>>, CommitError> {
        let mut rest = Vec::new();
        let txgs = self.txgs();
        if self.durability == Durability::ByGroup || txgs.is_suspended() {
            operation.mark(Outcome::Log);
            txgs.wait_stored(txgs.open_txg(), operation)?;
            return Ok(rest);
        }
        let stored = txgs.stored_txg();
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            operation.mark(Outcome::Log);
            txgs.wait_stored(txgs.open_txg(), operation)?;
            return Ok(rest);
        }
        // One that waits for its group says nothing about the others: theirs may be a later one.
        let mut group_of_some = Txg::ZERO;
        let mut last = None;
        for object in objects {
            match self.way_of(&state, *object, stored) {
                Way::Log => last = last.max(state.join_for(*object, stored)),
                Way::Group(txg) => group_of_some = group_of_some.max(txg),
                Way::ClosedGroup(txg) => {
                    group_of_some = group_of_some.max(txg);
                    rest.push(*object);
                }
            }
        }
        if let Some(mine) = last {
            operation.mark(Outcome::Log);
            while !state.batches.is_done(mine) {
                if state.batches.next() == mine && state.batches.may_begin() {
                    state = self.lead(state, operation);
                } else {
                    self.turn_of(mine).wait(&mut state);
                }
            }
            group_of_some = group_of_some.max(state.must_wait);
        }
        drop(state);
        if group_of_some > stored {
            operation.mark(Outcome::Log);
            self.counts.add(Event::Waited, 1);
            txgs.wait_stored(group_of_some, operation)?;
        }
        Ok(rest)
    }

    /// How the changes of this file become durable.
    fn way_of(&self, state: &State, object: Option<ObjectId>, stored: Txg) -> Way {
        let newest = || state.pending.newest(object).max(state.batches.newest());
        if state.must_wait > stored {
            return Way::Group(newest().max(state.must_wait));
        }
        let limits = self.limits();
        let room = state.pending.room(object, stored);
        if room.bytes <= limits.carried_bytes {
            return Way::Log;
        }
        let open = self.txgs().open_txg();
        let leading = match self.leads_to_large_writes() {
            true => Some(open),
            false => None,
        };
        assert!(stored < open, "the open txg is not stored");
        if leading.is_some() {
            self.txgs().expect_early_writes(room.large_bytes);
        }
        match state.pending.too_much(object, stored, leading, limits) {
            None => Way::Log,
            Some(txg) if txg < open => Way::ClosedGroup(txg),
            Some(_) => Way::Group(newest()),
        }
    }

    /// Whether a commit of this file would find nothing to write and nothing to wait for.
    pub fn is_durable(&self, object: ObjectId) -> bool {
        let txgs = self.txgs();
        if self.durability == Durability::ByGroup || txgs.is_suspended() {
            return false;
        }
        let stored = txgs.stored_txg();
        let state = self.state.lock();
        !state.is_closed
            && state.must_wait <= stored
            && state.pending.newest(Some(object)) <= stored
            && state.batches.last_for(Some(object)).is_none()
    }

    /// Writes the next batch for all threads that wait for it.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        operation: &Operation,
    ) -> MutexGuard<'a, State> {
        let stored = self.txgs().stored_txg();
        let (number, wanted) = state.batches.begin();
        let entries = state.pending.take(&wanted, stored);
        let newest = entries.last().map(|entry| entry.txg);
        if let Some(newest) = newest {
            if state.must_wait > stored || state.chain.is_ended || state.is_closed {
                state.must_wait = state.must_wait.max(newest);
            } else {
                let files = entries.iter().map(|entry| entry.record.object);
                state.batches.set_out(wanted.len(), newest, files);
                state = self.write_batch(state, entries, newest, operation);
            }
        }
        self.finish(state, number)
    }

    /// Makes a batch ready, writes it, and notes what came of it.
    fn write_batch<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        entries: Vec<Entry>,
        newest: Txg,
        operation: &Operation,
    ) -> MutexGuard<'a, State> {
        self.counts.add(Event::Batch, 1);
        let basis = Basis {
            last: state.chain.blocks.back().map(|block| block.pointer),
            likely_bytes: state.batches.likely_bytes(),
            sequence: state.sequence,
        };
        drop(state);
        let preparation = self.prepare(entries, basis, operation);
        let mut state = self.state.lock();
        if let Preparation::Impossible { wait_for } = preparation {
            state.must_wait = state.must_wait.max(newest).max(wait_for);
        }
        state.batches.prepared(preparation.record_bytes());
        self.call_next(&state);
        let Preparation::Ready(ready) = preparation else {
            return state;
        };
        drop(state);
        let (writes, data) = ready.writes;
        let io = self.set.env().cache.io();
        let begun_ns = tarn_host::monotonic_ns();
        let written = io.write_log(writes, data, operation);
        let took_ns = tarn_host::monotonic_ns().saturating_sub(begun_ns);
        if written.is_err() {
            self.counts.add(Event::Failed, 1);
            ready.indirect.withdraw();
        }
        let mut state = self.state.lock();
        state.batches.note_write(took_ns);
        match written {
            Ok(()) => state.chain.note_written(&ready.newest),
            Err(_) => state.break_off(),
        }
        self.txgs().store_much_superseded();
        state
    }

    /// A batch is done when all before it are.
    fn finish<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        number: u64,
    ) -> MutexGuard<'a, State> {
        let is_before = |state: &mut State| !state.batches.is_next_to_finish(number);
        self.changed.wait_while(&mut state, is_before);
        state.batches.finish(number);
        self.changed.notify_all();
        self.turn_of(number).notify_all();
        self.call_next(&state);
        state
    }

    /// Wakes one thread that waits for the next batch, if the batch is to be begun.
    fn call_next(&self, state: &State) {
        if state.batches.may_begin() {
            self.turn_of(state.batches.next()).notify_one();
        }
    }
}

impl State {
    /// The batch that a commit of this file waits for: the next, which it joins if it has something
    /// to write, or one under way. A second commit of a file mostly has nothing left to write, and
    /// need not wait for the records of others.
    fn join_for(&mut self, object: Option<ObjectId>, stored: Txg) -> Option<u64> {
        match self.pending.newest(object) > stored {
            true => Some(self.batches.join(object)),
            false => self.batches.last_for(object),
        }
    }

    /// A batch could not be written: the chain ends, and neither this batch nor what is on its way
    /// behind it is durable before its group.
    fn break_off(&mut self) {
        let newest = self.batches.newest();
        let births = self.chain.blocks.iter().map(|block| block.pointer.birth());
        let last_birth = births.max().unwrap_or(newest);
        self.must_wait = self.must_wait.max(newest).max(last_birth);
        self.chain.end(newest);
    }
}

impl From<AssignError> for CommitError {
    fn from(cause: AssignError) -> CommitError {
        CommitError::NotStored { cause }
    }
}
