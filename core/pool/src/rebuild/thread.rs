//! The thread that copies what has blocks in a top-level vdev.
//!
//! # Mechanism
//! Metaslab by metaslab it takes a hold and divides the ranges that have blocks in pieces, some
//! pieces for each step. A few threads copy steps ([`steps`](super::steps)), so that a device has
//! the next requests before it is done with the last ones. For the same reason the hold of a
//! metaslab is kept beside that of the next one, until its last steps have ended. Before each step
//! the thread looks whether it is to stop, whether a device is still to be filled, and whether an
//! allocation wants a metaslab; then it waits for the steps under way, gives the holds back and
//! takes them again.
//!
//! It begins when all txgs are stored that may have blocks which were written before the device
//! joined: later ones are written to all devices.
//!
//! An intent log writes blocks that were allocated long before. One that is written while it is
//! copied may be overwritten on the new device by what was there before. So the end is left for a
//! txg that follows those that were open at the last copy: when it is stored these are, and replay
//! does not need such a block any more. Until then the dirty time log keeps the other devices from
//! leaving.
//!
//! While devices are absent beyond what redundancy covers, nothing can be copied: the thread waits,
//! and goes on where it was.

use super::state::Progress;
use super::steps::{Ended as StepEnded, Steps};
use super::{control, store};
use crate::pool::Pool;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tarn_host::background;
use tarn_ondisk::declare::widen;
use tarn_ondisk::rebuild::ACTIVE;
use tarn_ondisk::units::{Txg, VdevId};
use tarn_probe::{Operation, OperationKind};
use tarn_space::{MetaslabHold, RangeTree};
use tarn_vdev::copy_ranges::Copied;

/// A piece has no more bytes.
#[doc(alias = "zfs_rebuild_max_segment")]
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// A step has no more bytes, but for its last piece. A guess: enough that a disk reads for a tenth
/// of a second.
const STEP_BYTES: u64 = 16 << 20;

/// A step has no more pieces.
const STEP_PIECES_MAX: usize = 256;

/// How often progress is stored. After a crash as much is copied again. A guess: the txg takes the
/// arms of disks away for half a second to a second, and should not do that often.
const STORE_INTERVAL_NS: u64 = 15_000_000_000;

/// Interval at which the thread looks whether what it waits for has come.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Why the thread ends before the end of the vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// It was told to.
    Stopped,
    /// No device is to be filled any more.
    Gone,
}

/// How the work on a metaslab ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// All of it was copied, but for steps that are under way.
    Done,
    /// It goes on from the last offset, with other holds.
    Again,
}

/// What is under way. Steps end before holds are given back, also where it is dropped.
struct Work {
    steps: Steps,
    /// Each with the end of its metaslab, once all steps of that have begun.
    holds: Vec<(u64, MetaslabHold)>,
    /// All that lies before this offset is copied when all steps have ended.
    end: u64,
}

impl Work {
    /// Whether an allocation waits for a hold.
    fn is_wanted(&self) -> bool {
        self.holds.iter().any(|(_, hold)| hold.is_wanted())
    }
}

/// One run over a vdev.
struct Pass<'a> {
    pool: &'a Arc<Pool>,
    vdev: VdevId,
    progress: &'a Arc<Progress>,
    began_ns: u64,
    stored_ns: u64,
}

/// Copies all, and leaves the end to the sync thread.
#[doc(alias = "vdev_rebuild_thread")]
pub(super) fn run(pool: &Arc<Pool>, vdev: VdevId, progress: &Arc<Progress>) {
    // It has its own rate: the sync thread's does not count.
    background::keep_pace(None);
    let now_ns = pool.host().monotonic_ns();
    let mut pass = Pass {
        pool,
        vdev,
        progress,
        began_ns: now_ns,
        stored_ns: now_ns,
    };
    let ended = pass.all_metaslabs();
    pass.note_time();
    let ending = progress.clone();
    let left = match ended {
        Ok(()) => pool.leave_for_sync(move |scope| control::complete(scope, vdev, &ending)),
        Err(Ended::Gone) => pool.leave_for_sync(move |scope| control::cancel(scope, vdev, &ending)),
        Err(Ended::Stopped) => return,
    };
    // A pool that stores nothing any more goes on with the rebuild at the next import.
    if left.is_ok() {
        pool.txgs().kick();
    }
}

impl Pass<'_> {
    fn all_metaslabs(&mut self) -> Result<(), Ended> {
        self.wait_for_older_blocks()?;
        let tops = self.pool.vdevs().top_levels();
        let top = tops.iter().find(|top| top.id == self.vdev);
        let shift = top.ok_or(Ended::Gone)?.metaslab_shift;
        self.estimate(self.last_offset() >> shift);
        while self.rest(shift)? == Held::Again {}
        self.wait_until_closed(self.pool.txgs().open_txg())
    }

    /// Goes over the metaslabs from the last offset on.
    fn rest(&mut self, shift: u32) -> Result<Held, Ended> {
        let (pool, vdev) = (self.pool.clone(), self.vdev);
        let name = format!("tarn-rebuild-{}-{}", vdev.index(), pool.name());
        let steps = Steps::begin(self.pool.host(), &name, move |pieces| {
            let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Scan);
            let copied = pool.vdevs().copy_ranges(vdev, pieces, &operation);
            operation.finish();
            copied
        });
        let mut work = Work {
            steps,
            holds: Vec::new(),
            end: self.last_offset(),
        };
        let mut index = work.end >> shift;
        // The vdev may grow meanwhile.
        while index < self.pool.space().metaslab_count(self.vdev) {
            if self.metaslab(index, &mut work)? == Held::Again {
                return Ok(Held::Again);
            }
            index += 1;
            work.end = work.end.max(index << shift);
            if let Some((end, _)) = work.holds.last_mut() {
                *end = work.end;
            }
            self.note_ended(&mut work, &[])?;
        }
        self.drain(&mut work)
    }

    fn last_offset(&self) -> u64 {
        self.progress.last_offset.load(Ordering::Acquire)
    }

    fn is_stopped(&self) -> bool {
        self.progress.stops.load(Ordering::Acquire)
    }

    /// Waits until no block of the births that the devices miss can be written any more.
    fn wait_for_older_blocks(&self) -> Result<(), Ended> {
        let rebuilds = self.pool.rebuilds.0.lock();
        let state = rebuilds.get(&self.vdev);
        let active = state.filter(|state| state.stored.state == ACTIVE);
        let end = active.ok_or(Ended::Gone)?.stored.txg_max;
        drop(rebuilds);
        self.wait_until_stored(Txg::new(end.get().saturating_sub(1)))
    }

    fn wait_until_stored(&self, txg: Txg) -> Result<(), Ended> {
        while self.pool.txgs().stored_txg() < txg {
            if self.is_stopped() {
                return Err(Ended::Stopped);
            }
            self.pool.txgs().kick();
            self.pool.host().sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Waits until no change joins this txg any more: what is left for the sync thread then runs
    /// after it is stored.
    fn wait_until_closed(&self, txg: Txg) -> Result<(), Ended> {
        while self.pool.txgs().open_txg() <= txg {
            if self.is_stopped() {
                return Err(Ended::Stopped);
            }
            self.pool.txgs().kick();
            self.pool.host().sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Looks whether it goes on; waits while devices are absent.
    fn look(&self) -> Result<(), Ended> {
        loop {
            if self.is_stopped() {
                return Err(Ended::Stopped);
            }
            if self.is_pool_usable() {
                break;
            }
            self.pool.host().sleep(LOOK_INTERVAL);
        }
        match self.pool.vdevs().rebuild_targets(self.vdev).is_empty() {
            true => Err(Ended::Gone),
            false => Ok(()),
        }
    }

    fn is_pool_usable(&self) -> bool {
        let standing = self.pool.vdevs().health().standing;
        self.pool.failure().is_none() && standing.state.is_usable()
    }

    /// Begins the steps of one metaslab that lie behind those that were begun before.
    fn metaslab(&mut self, index: u64, work: &mut Work) -> Result<Held, Ended> {
        self.look()?;
        let mut hold = None;
        if !work.holds.is_empty() {
            hold = self.pool.space().try_hold_metaslab(self.vdev, index);
        }
        if hold.is_none() {
            // The owner of a hold does not wait for another one.
            if self.drain(work)? == Held::Again {
                return Ok(Held::Again);
            }
            hold = self.pool.space().hold_metaslab(self.vdev, index);
        }
        let Some(hold) = hold else {
            // It cannot be read, so what has blocks in it is not known.
            self.progress.errors.fetch_add(1, Ordering::AcqRel);
            return Ok(Held::Done);
        };
        let settled = hold.settled_ranges().ok_or(Ended::Gone)?;
        work.holds.push((u64::MAX, hold));
        self.held(&settled, work)
    }

    /// Begins the steps of the ranges of the metaslab that is held last.
    #[doc(alias = "vdev_rebuild_ranges")]
    fn held(&mut self, settled: &RangeTree, work: &mut Work) -> Result<Held, Ended> {
        let begun = work.end;
        let ranges = settled.iter().filter_map(|range| {
            let end = range.end()?.get();
            let start = range.start.get().max(begun);
            (start < end).then_some(start..end)
        });
        let mut pieces = ranges.flat_map(pieces).peekable();
        while pieces.peek().is_some() {
            self.look()?;
            if work.is_wanted() {
                // What was wanted is given back when nothing is under way.
                self.drain(work)?;
                return Ok(Held::Again);
            }
            let step = step_of(&mut pieces);
            assert!(
                step.first().is_none_or(|piece| piece.start >= work.end),
                "pieces come in the order of their offsets"
            );
            work.end = step.last().map_or(work.end, |piece| piece.end);
            let ended = work.steps.begin_one(step);
            if self.note_ended(work, &ended)? == Held::Again {
                return Ok(Held::Again);
            }
        }
        Ok(Held::Done)
    }

    /// Waits for the steps that are under way, and gives back the holds of metaslabs behind.
    fn drain(&mut self, work: &mut Work) -> Result<Held, Ended> {
        let ended = work.steps.wait();
        let noted = self.note_ended(work, &ended)?;
        work.holds.clear();
        Ok(noted)
    }

    /// Notes the outcomes of steps.
    fn note_ended(&mut self, work: &mut Work, ended: &[StepEnded]) -> Result<Held, Ended> {
        for step in ended {
            let copied = step.copied.as_ref().ok_or(Ended::Gone)?;
            assert!(
                copied.unreadable <= widen(step.pieces.len()),
                "a range that cannot be read counts once"
            );
            let has_failed = copied.unreadable > 0 || !copied.failed.is_empty();
            if has_failed && !self.is_pool_usable() {
                // It is copied once more, and so is what lies behind it.
                return Ok(Held::Again);
            }
            self.note(copied, &step.pieces);
        }
        let end = work.steps.first_under_way().unwrap_or(work.end);
        self.progress.last_offset.fetch_max(end, Ordering::AcqRel);
        work.holds.retain(|(of, _)| *of > end);
        self.store_progress();
        Ok(Held::Done)
    }

    fn note(&self, copied: &Copied, next: &[Range<u64>]) {
        let progress = self.progress;
        let add = |number: &AtomicU64, more| number.fetch_add(more, Ordering::AcqRel);
        let scanned: u64 = next.iter().map(|piece| piece.end - piece.start).sum();
        add(&progress.scanned_bytes, scanned);
        add(&progress.pass_scanned_bytes, scanned);
        add(&progress.issued_bytes, copied.read_bytes);
        add(&progress.pass_issued_bytes, copied.read_bytes);
        add(&progress.rebuilt_bytes, copied.written_bytes);
        // A device that has left the pool lacks nothing.
        let leaves = self.pool.vdevs().leaves();
        let is_there = |guid: &&_| leaves.iter().any(|leaf| leaf.guid == **guid);
        let failed = copied.failed.iter().filter(is_there).count();
        add(&progress.errors, copied.unreadable + widen(failed));
        self.note_time();
    }

    fn note_time(&self) {
        let now_ns = self.pool.host().monotonic_ns();
        let pass_ms = now_ns.saturating_sub(self.began_ns) / 1_000_000;
        self.progress.pass_ms.store(pass_ms, Ordering::Release);
    }

    /// Estimates how much there is to copy, from this metaslab on.
    #[doc(alias = "vdev_rebuild_update_bytes_est")]
    fn estimate(&self, first: u64) {
        let space = self.pool.space();
        let of = |index| space.metaslab_totals(self.vdev, index);
        let left = (first..space.metaslab_count(self.vdev)).filter_map(of);
        let left: u64 = left.map(|totals| totals.allocated.get()).sum();
        let scanned = self.progress.scanned_bytes.load(Ordering::Acquire);
        let estimated = scanned.saturating_add(left);
        self.progress
            .estimated_bytes
            .store(estimated, Ordering::Release);
    }

    /// Has the sync store the progress, from time to time.
    fn store_progress(&mut self) {
        let now_ns = self.pool.host().monotonic_ns();
        if now_ns.saturating_sub(self.stored_ns) < STORE_INTERVAL_NS {
            return;
        }
        self.stored_ns = now_ns;
        let vdev = self.vdev;
        // A pool that stores nothing now goes on from what it has stored. The next txg comes by
        // itself: each that is stored takes the arms of disks away from the copying.
        let _ = self.pool.leave_for_sync(move |scope| store(scope, vdev));
    }
}

/// The pieces of the next step.
fn step_of(pieces: &mut impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let (mut step, mut bytes) = (Vec::new(), 0);
    while bytes < STEP_BYTES
        && step.len() < STEP_PIECES_MAX
        && let Some(piece) = pieces.next()
    {
        bytes += piece.end - piece.start;
        debug_assert!(!piece.is_empty(), "a piece has bytes");
        step.push(piece);
    }
    step
}

fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let piece = start..start.saturating_add(PIECE_BYTES_MAX).min(range.end);
        start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_all_pieces_in_order_and_a_bound() {
        let range = 3 << 19..40 << 20;
        let mut left = pieces(range.clone());
        let mut at = range.start;
        loop {
            let step = step_of(&mut left);
            if step.is_empty() {
                break;
            }
            let bytes: u64 = step.iter().map(|piece| piece.end - piece.start).sum();
            assert!(bytes < STEP_BYTES + PIECE_BYTES_MAX);
            for piece in step {
                assert_eq!(piece.start, at);
                at = piece.end;
            }
        }
        assert_eq!(at, range.end);
    }
}
