//! Suspension: a pool stops storing while devices are gone that redundancy does not cover, and goes
//! on when they are back.
//!
//! # Problem
//! When more devices fail than redundancy covers, nothing can be stored. The devices may come back,
//! when a cable is plugged in again. Until then dirty data must stay in memory, and must not count
//! as stored.
//!
//! # Mechanism
//! A write of a transaction group waits here, in the midst of its call. `zpool clear`
//! ([`VdevTree::resume`]) makes it try once more; giving the pool up makes it fail. Reads for
//! applications wait, too, while the pool's `failmode` is `wait`. Administration never waits here.
//!
//! While devices are opened again nothing is written. A write of a transaction group does not begin
//! while the pool is suspended: its flush would succeed although devices are absent, or do not have
//! the unflushed writes yet. An intent log write is tried while its own devices work; while devices
//! are opened again it fails at once. Opening devices waits for writes that are under way.
//!
//! A device that comes back may have lost its unflushed writes. So all writes since the last flush
//! are kept in memory ([`UnflushedWrites`]), and written again before the pool goes on. They have a
//! bound; when it is reached, devices are flushed in the midst of a txg.
//!
//! A device is taken back if its labels are of this vdev of this pool, it is not smaller, and its
//! newest uberblock is the one that was written to it last: so it is neither an old copy nor was it
//! used by another host meanwhile. A device that missed writes before the last flush keeps its
//! dirty time log and needs a resilver. So does a device that missed intent log writes, which are
//! not kept: they would be as much as is written to logs between two flushes.
//!
//! # Invariants
//! - No call waits while the pool is being opened, or after it was given up.
//! - The unflushed writes are written again, and flushed, before the first waiting call goes on.
//! - Between the last flush and the end of a suspension no kept write is dropped.

use crate::error::{LeafFailure, VdevReadError, VdevWriteError};
use crate::health::{Reason, Standing, VdevState};
use crate::labels;
use crate::leaf::Leaf;
use crate::place::{PhysicalWrite, Place};
use crate::ranks;
use crate::top::TopVdev;
use crate::tree::VdevTree;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tarn_host::lock::{Condvar, Mutex, MutexGuard};
use tarn_ondisk::units::{Guid, Txg, VdevId, VdevOffset};
use tarn_probe::{Operation, OperationKind};

/// How long `resume` waits for another one, and for writes under way. No command waits longer for a
/// device.
const OTHERS_MAX: Duration = Duration::from_secs(2);

/// So many bytes may be written and not flushed. A txg is stored when it has 64 MiB, so only larger
/// ones need a flush before their end. A guess.
const UNFLUSHED_BYTES_MAX: u64 = 256 << 20;

/// A door: hears when a pool is suspended, and when it is resumed.
pub trait SuspensionDoor: Send + Sync {
    /// The pool is suspended.
    fn suspended(&self, why: &str);

    /// The pool is resumed.
    fn resumed(&self);
}

/// Why a suspended pool could not be resumed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// Devices are absent, or have other labels or contents than before. Attaching the right ones
    /// cures it.
    #[error("devices are not back: {}", .vdevs.join(", "))]
    Devices {
        /// The top-level vdevs that cannot be used, and why.
        vdevs: Vec<String>,
    },
    /// Another call is opening the devices. When a device does not answer, only giving the pool up
    /// ends that.
    #[error("devices are being opened already")]
    Busy,
    /// A write is under way and does not end. When a device does not answer, only giving the pool
    /// up ends that.
    #[error("devices are being written")]
    Writing,
    /// The devices are back, and cannot be written.
    #[error(transparent)]
    Write(#[from] VdevWriteError),
}

/// What a call does after it waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Try once more.
    Again,
    /// Fail.
    GiveUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The pool is being opened: what fails, fails the import.
    Opening,
    Running,
    /// The door is being told.
    Suspending,
    Suspended,
    /// Devices are being opened again.
    Resuming,
    GivenUp,
}

impl Phase {
    fn is_suspended(self) -> bool {
        matches!(self, Phase::Suspending | Phase::Suspended | Phase::Resuming)
    }
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// How many writes are under way.
    writers: usize,
}

/// The state of suspension, at which calls wait for devices.
pub(crate) struct Suspension {
    state: Mutex<State>,
    changed: Condvar,
    door: Mutex<Option<Arc<dyn SuspensionDoor>>>,
    readers_wait: AtomicBool,
}

impl Suspension {
    pub(crate) fn new() -> Suspension {
        Suspension {
            state: Mutex::new(
                ranks::SUSPENSION,
                State {
                    phase: Phase::Opening,
                    writers: 0,
                },
            ),
            changed: Condvar::new(),
            door: Mutex::new(ranks::SUSPENSION, None),
            readers_wait: AtomicBool::new(true),
        }
    }

    fn is_running(&self) -> bool {
        self.state.lock().phase != Phase::Opening
    }

    /// Begins a write of a transaction group, after waiting while the pool is suspended.
    pub(crate) fn begin_storing(&self) -> Result<Writing<'_>, VdevWriteError> {
        let mut state = self.state.lock();
        self.changed
            .wait_while(&mut state, |state| state.phase.is_suspended());
        self.begin_writing(state)
    }

    /// Begins an intent log write, which does not wait.
    pub(crate) fn begin_log_write(&self) -> Result<Writing<'_>, VdevWriteError> {
        let state = self.state.lock();
        match state.phase {
            Phase::Resuming => Err(VdevWriteError::Reopening),
            _ => self.begin_writing(state),
        }
    }

    fn begin_writing(
        &self,
        mut state: MutexGuard<'_, State>,
    ) -> Result<Writing<'_>, VdevWriteError> {
        if state.phase == Phase::GivenUp {
            return Err(VdevWriteError::GivenUp);
        }
        state.writers += 1;
        Ok(Writing(self))
    }

    /// Whether the pool is suspended, and the caller is to open the devices. Then no write is under
    /// way until [`resume`](Self::resume) or [`stay_suspended`](Self::stay_suspended). Waits for
    /// another caller that opens devices, such as the pool itself, which tries now and then.
    fn begin_resuming(&self) -> Result<bool, ResumeError> {
        let mut state = self.state.lock();
        let waits = |state: &mut MutexGuard<'_, State>| {
            let outcome = self.changed.wait_timeout(state, OTHERS_MAX);
            !outcome.timed_out()
        };
        loop {
            let phase = state.phase;
            match phase {
                Phase::Opening | Phase::Running | Phase::GivenUp => return Ok(false),
                Phase::Suspended => break,
                Phase::Suspending | Phase::Resuming if waits(&mut state) => {}
                Phase::Suspending | Phase::Resuming => return Err(ResumeError::Busy),
            }
        }
        state.phase = Phase::Resuming;
        // In this phase no write begins: their number only falls.
        while state.phase == Phase::Resuming && state.writers > 0 {
            if !waits(&mut state) {
                drop(state);
                self.stay_suspended();
                return Err(ResumeError::Writing);
            }
        }
        Ok(state.phase == Phase::Resuming)
    }

    /// Ends an attempt to resume without devices: the pool stays suspended.
    fn stay_suspended(&self) {
        {
            let mut state = self.state.lock();
            if state.phase == Phase::Resuming {
                state.phase = Phase::Suspended;
            }
        }
        self.changed.notify_all();
    }

    /// Suspends the pool, if it is not yet, and waits until it is resumed or given up.
    pub(crate) fn wait(&self, why: &dyn fmt::Display) -> Verdict {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Opening | Phase::GivenUp => return Verdict::GiveUp,
            Phase::Suspending | Phase::Suspended | Phase::Resuming => {}
            Phase::Running => {
                state.phase = Phase::Suspending;
                drop(state);
                let door = self.door.lock().clone();
                if let Some(door) = door {
                    door.suspended(&why.to_string());
                }
                state = self.state.lock();
                if state.phase == Phase::Suspending {
                    state.phase = Phase::Suspended;
                    self.changed.notify_all();
                }
            }
        }
        self.changed
            .wait_while(&mut state, |state| state.phase.is_suspended());
        match state.phase {
            Phase::GivenUp => Verdict::GiveUp,
            _ => Verdict::Again,
        }
    }

    /// Resumes the pool: all waiting calls go on.
    fn resume(&self) {
        let door = self.door.lock().clone();
        // The door hears this before any call goes on: that call may fail and suspend the pool
        // again.
        if let Some(door) = door {
            door.resumed();
        }
        {
            let mut state = self.state.lock();
            if state.phase == Phase::Resuming {
                assert_eq!(
                    state.writers, 0,
                    "no write is under way while devices are opened again"
                );
                state.phase = Phase::Running;
            }
        }
        self.changed.notify_all();
    }

    fn give_up(&self) {
        self.state.lock().phase = Phase::GivenUp;
        *self.door.lock() = None;
        self.changed.notify_all();
    }

    /// Whether reads for this operation wait for devices that are gone.
    fn holds_reader(&self, operation: &Operation, error: &VdevReadError) -> bool {
        let VdevReadError::Unreadable { devices, .. } = error else {
            return false;
        };
        // A device that answered with an error is not gone, and waiting does not change its answer.
        if devices.iter().any(LeafFailure::is_answer) {
            return false;
        }
        match operation.what().kind {
            OperationKind::TxgSync => true,
            OperationKind::Administration
            | OperationKind::Prefetch
            | OperationKind::Scan
            | OperationKind::LogSearch
            | OperationKind::Other => false,
            _ => self.readers_wait.load(Ordering::Relaxed),
        }
    }

    /// Waits with a read that failed, if it may wait. Whether the read is to be tried again.
    pub(crate) fn wait_to_read(&self, operation: &Operation, error: &VdevReadError) -> bool {
        self.is_running()
            && self.holds_reader(operation, error)
            && self.wait(error) == Verdict::Again
    }
}

impl fmt::Debug for Suspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Suspension({:?})", *self.state.lock())
    }
}

/// A write under way: devices are opened again only after it is dropped.
pub(crate) struct Writing<'a>(&'a Suspension);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let is_waited_for = {
            let mut state = self.0.state.lock();
            assert!(state.writers > 0, "a write that ends was begun");
            state.writers -= 1;
            state.phase == Phase::Resuming && state.writers == 0
        };
        if is_waited_for {
            self.0.changed.notify_all();
        }
    }
}

/// The writes since the last flush, with their bytes.
#[derive(Debug, Default)]
pub(crate) struct UnflushedWrites {
    /// The newest write of each place.
    writes: BTreeMap<(VdevId, VdevOffset), PhysicalWrite>,
    bytes: u64,
    /// Counts flushes: the kept writes began after the last one.
    generation: u64,
}

impl UnflushedWrites {
    fn keep(&mut self, write: PhysicalWrite) {
        let Place {
            vdev, offset, size, ..
        } = write.place;
        self.bytes += size;
        if let Some(before) = self.writes.insert((vdev, offset), write) {
            assert!(
                self.bytes >= before.place.size,
                "all kept writes are counted"
            );
            self.bytes -= before.place.size;
        }
    }

    /// Drops writes that a flush made durable. Newer writes to the same places, during the flush,
    /// stay.
    fn forget(&mut self, durable: &[PhysicalWrite]) {
        for before in durable {
            let Place { vdev, offset, .. } = before.place;
            let is_it = |now: &&PhysicalWrite| Arc::ptr_eq(&now.data, &before.data);
            if let Some(size) = self
                .writes
                .get(&(vdev, offset))
                .filter(is_it)
                .map(|now| now.place.size)
            {
                self.writes.remove(&(vdev, offset));
                assert!(self.bytes >= size, "all kept writes are counted");
                self.bytes -= size;
            }
        }
        assert!(
            !self.writes.is_empty() || self.bytes == 0,
            "without kept writes no bytes are counted"
        );
        self.generation += 1;
    }
}

impl VdevTree {
    /// Ends the opening of the pool: from now on writes of transaction groups wait for devices that
    /// are gone, where they failed before.
    pub fn begin(&self, door: Arc<dyn SuspensionDoor>) {
        *self.suspension.door.lock() = Some(door);
        self.suspension.state.lock().phase = Phase::Running;
    }

    /// Sets whether reads for applications wait for devices that are gone (`failmode=wait`), or
    /// fail.
    pub fn set_readers_wait(&self, they_wait: bool) {
        self.suspension
            .readers_wait
            .store(they_wait, Ordering::Relaxed);
    }

    /// Gives the pool up: waiting calls and later ones fail, and requests to devices that do not
    /// answer fail, too.
    pub fn give_up(&self) {
        self.suspension.give_up();
        *self.unflushed.lock() = UnflushedWrites::default();
        for leaf in self.leaves() {
            leaf.give_up();
        }
        self.give_up_cache_devices();
    }

    /// The longest time for which a device with requests under way has not answered any.
    pub fn silent_ns(&self) -> u64 {
        let leaves = self.leaves();
        let silent = leaves.iter().map(|leaf| leaf.silent_ns());
        silent.max().unwrap_or(0)
    }

    /// Keeps writes in memory until they are flushed.
    ///
    /// Gives whether their bytes exceed the bound, so that devices should be flushed now.
    pub(crate) fn keep_unflushed(&self, writes: Vec<PhysicalWrite>) -> bool {
        if !self.suspension.is_running() {
            return false;
        }
        let mut unflushed = self.unflushed.lock();
        writes.into_iter().for_each(|write| unflushed.keep(write));
        unflushed.bytes > UNFLUSHED_BYTES_MAX
    }

    /// The number of the flush since which all writes are kept. None while the pool is being
    /// opened.
    pub(crate) fn kept_since(&self) -> Option<u64> {
        let is_kept = self.suspension.is_running();
        is_kept.then(|| self.unflushed.lock().generation)
    }

    /// The writes that are kept now.
    pub(crate) fn kept(&self) -> Vec<PhysicalWrite> {
        self.unflushed.lock().writes.values().cloned().collect()
    }

    /// These writes are durable.
    pub(crate) fn flushed(&self, writes: &[PhysicalWrite]) {
        self.unflushed.lock().forget(writes);
    }

    /// Resumes a suspended pool (`zpool clear`): opens failed devices again, checks their labels
    /// and uberblocks, writes the unflushed writes again, and lets the waiting calls go on. Does
    /// nothing when the pool is not suspended.
    ///
    /// # Errors
    /// Devices are not back: the pool stays suspended.
    #[doc(alias = "zio_resume")]
    pub fn resume(&self, operation: &Operation) -> Result<(), ResumeError> {
        if !self.suspension.begin_resuming()? {
            return Ok(());
        }
        let back = self.bring_back(operation);
        match &back {
            Ok(()) => self.suspension.resume(),
            Err(_) => self.suspension.stay_suspended(),
        }
        back
    }

    fn bring_back(&self, operation: &Operation) -> Result<(), ResumeError> {
        let pool = self.config().guid;
        let generation = self.unflushed.lock().generation;
        for top in self.tops() {
            self.reopen(&top, pool, generation);
        }
        self.note_change();
        let lost = |top: &Arc<TopVdev>| {
            let standing = top.standing();
            // A pool can do without its log devices.
            let is_lost = top.holds_data() && !top.is_log && !standing.state.is_usable();
            let reason = standing.reason.map_or("", Reason::text);
            is_lost.then(|| format!("{} is {} ({reason})", top.name, standing.state))
        };
        let vdevs: Vec<String> = self.tops().iter().filter_map(lost).collect();
        if !vdevs.is_empty() {
            return Err(ResumeError::Devices { vdevs });
        }
        self.try_write(self.kept(), operation)?;
        self.try_flush(operation)?;
        Ok(())
    }

    fn reopen(&self, top: &TopVdev, pool: Guid, generation: u64) {
        let wanted = |leaf: &&Arc<Leaf>| leaf.wants_reopening(generation);
        let (again, others): (Vec<_>, Vec<_>) = top.leaves.iter().partition(wanted);
        let usable: Vec<_> = others.into_iter().filter(|leaf| leaf.is_usable()).collect();
        for leaf in &again {
            leaf.reopen(&self.host, generation, self.next_txg());
        }
        top.check_labels(pool);
        top.check_sizes();
        // A device that turned out to be gone only now may come back as well.
        for leaf in usable.iter().filter(|leaf| !leaf.is_usable()) {
            leaf.retire(leaf.standing(), Some(generation), self.next_txg());
        }
        for leaf in again {
            let Some(window) = leaf.window() else {
                continue;
            };
            let found = labels::read_uberblocks(&window, top.ashift);
            let newest = found.iter().map(|found| found.uberblock.txg).max();
            match leaf.is_newest_uberblock(newest.unwrap_or(Txg::ZERO)) {
                true => leaf.note_back(generation),
                false => leaf.set_standing(Standing::because(
                    VdevState::Unavailable,
                    Reason::CorruptData,
                )),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::buffer::Buffer;
    use tarn_ondisk::declare::widen;

    fn write(offset: u64, bytes: usize) -> PhysicalWrite {
        PhysicalWrite {
            place: Place {
                vdev: VdevId::from(0),
                offset: VdevOffset::from(offset),
                size: widen(bytes),
                birth: Txg::INITIAL,
            },
            data: Arc::new(Buffer::zeroed(bytes)),
        }
    }

    #[test]
    fn what_is_written_in_place_is_kept_once_and_what_comes_during_a_flush_stays() {
        let mut unflushed = UnflushedWrites::default();
        let writes = [write(0, 4096), write(8192, 512), write(0, 4096)];
        writes.into_iter().for_each(|write| unflushed.keep(write));
        assert_eq!((unflushed.writes.len(), unflushed.bytes), (2, 4608));
        let flushed: Vec<_> = unflushed.writes.values().cloned().collect();
        unflushed.keep(write(4096, 1024));
        unflushed.keep(write(8192, 512));
        unflushed.forget(&flushed);
        assert_eq!((unflushed.writes.len(), unflushed.bytes), (2, 1536));
        assert_eq!(unflushed.generation, 1);
    }

    #[test]
    fn who_waits_fails_before_the_pool_is_begun_and_after_it_was_given_up() {
        let suspension = Suspension::new();
        assert_eq!(suspension.wait(&"gone"), Verdict::GiveUp);
        suspension.state.lock().phase = Phase::Running;
        suspension.give_up();
        assert_eq!(suspension.wait(&"gone"), Verdict::GiveUp);
        assert!(!suspension.begin_resuming().unwrap());
    }

    #[test]
    fn who_opens_devices_waits_for_another_who_does() {
        for is_back in [false, true] {
            let suspension = Arc::new(Suspension::new());
            suspension.state.lock().phase = Phase::Suspended;
            assert!(suspension.begin_resuming().unwrap());
            let second = std::thread::spawn({
                let suspension = suspension.clone();
                move || suspension.begin_resuming()
            });
            match is_back {
                true => suspension.resume(),
                false => suspension.stay_suspended(),
            }
            assert_eq!(second.join().unwrap().unwrap(), !is_back);
        }
        let suspension = Suspension::new();
        suspension.state.lock().phase = Phase::Resuming;
        let refused = suspension.begin_resuming();
        assert!(matches!(refused, Err(ResumeError::Busy)));
    }

    #[test]
    fn who_opens_devices_waits_for_who_is_writing_and_no_other_begins() {
        let suspension = Suspension::new();
        suspension.state.lock().phase = Phase::Suspended;
        let writing = suspension.begin_log_write().unwrap();
        let refused = suspension.begin_resuming();
        assert!(matches!(refused, Err(ResumeError::Writing)));
        assert_eq!(suspension.state.lock().phase, Phase::Suspended);
        drop(writing);
        assert!(suspension.begin_resuming().unwrap());
        let refused = suspension.begin_log_write().map(|_| ());
        assert!(matches!(refused, Err(VdevWriteError::Reopening)));
        suspension.give_up();
        for begun in [suspension.begin_log_write(), suspension.begin_storing()] {
            assert!(matches!(begun.map(|_| ()), Err(VdevWriteError::GivenUp)));
        }
    }
}
