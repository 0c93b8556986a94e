//! The thread that goes over the free space of one device.
//!
//! # Mechanism
//! Metaslab by metaslab it takes a hold, finds the parts of the free ranges that are on its device
//! and lie behind what was done before, and writes or discards these in pieces. Between two pieces
//! it looks whether it is to stop, whether the device is still in use, and whether an allocation
//! wants the metaslab; then it gives the hold back and takes it again.
//!
//! Errors of single requests are left out, as OpenZFS does: what is free need not be written. A
//! device that fails is taken out of use by other requests.

use super::{FreeSpaceWork, Key, Progress, store, top_of};
use crate::pool::Pool;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tarn_ondisk::units::{AllocatedSize, VdevId, VdevOffset};
use tarn_probe::Operation;
use tarn_space::MetaslabHold;
use tarn_vdev::Leaf;
use tarn_vdev::free_space::{FILL_BYTES, Filler};

/// The bytes that are filled between two looks around.
const FILL_BYTES_AT_ONCE: u64 = 16 * FILL_BYTES;

/// The largest and the smallest range that is discarded at once.
#[doc(alias = "zfs_trim_extent_bytes_max")]
pub(super) const DISCARD_BYTES_MAX: u64 = 128 << 20;
#[doc(alias = "zfs_trim_extent_bytes_min")]
pub(super) const DISCARD_BYTES_MIN: u64 = 32 << 10;

/// How often progress is stored.
const STORE_INTERVAL_NS: u64 = 5_000_000_000;

/// Interval at which a thread that is ahead of its rate looks.
const RATE_INTERVAL: Duration = Duration::from_millis(10);

/// What a thread is to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) key: Key,
    /// Most bytes in a second; zero for no limit.
    pub(super) rate: u64,
    /// Metaslabs without a space map are left out.
    pub(super) skips_untouched: bool,
}

/// How a thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// All was done.
    Complete,
    /// It was told to.
    Stopped,
    /// The device is not in use any more, or has left the pool.
    Gone,
}

/// One run over a device.
struct Pass<'a> {
    pool: &'a Arc<Pool>,
    plan: &'a Plan,
    progress: &'a Progress,
    stop: &'a AtomicBool,
    operation: &'a Operation,
    filler: Filler,
    began_ns: u64,
    /// Bytes since then, for the rate.
    moved: u64,
    stored_ns: u64,
}

/// Goes over the whole device.
#[doc(alias("vdev_initialize_thread", "vdev_trim_thread"))]
pub(super) fn run(
    pool: &Arc<Pool>,
    plan: &Plan,
    progress: &Progress,
    stop: &AtomicBool,
    operation: &Operation,
) -> Ended {
    let now_ns = pool.host().monotonic_ns();
    let pass = Pass {
        pool,
        plan,
        progress,
        stop,
        operation,
        filler: Filler::default(),
        began_ns: now_ns,
        moved: 0,
        stored_ns: now_ns,
    };
    match pass.all_metaslabs() {
        Ok(()) => Ended::Complete,
        Err(ended) => ended,
    }
}

impl Pass<'_> {
    fn all_metaslabs(mut self) -> Result<(), Ended> {
        let (vdev, _) = self.device()?;
        estimate(self.pool, self.plan.key, vdev, self.progress);
        let mut index = 0;
        // The vdev may grow meanwhile.
        while index < self.pool.space().metaslab_count(vdev) {
            if !self.plan.skips_untouched || self.is_touched(vdev, index) {
                self.metaslab(vdev, index)?;
            }
            index += 1;
        }
        Ok(())
    }

    /// The device and its top-level vdev, while it is in use.
    fn device(&self) -> Result<(VdevId, Arc<Leaf>), Ended> {
        if self.stop.load(Ordering::Acquire) {
            return Err(Ended::Stopped);
        }
        let zap = self.plan.key.0;
        let vdev = top_of(&self.pool.vdevs().config(), zap);
        let leaf = self.pool.leaf_of(zap).filter(|leaf| leaf.is_usable());
        vdev.zip(leaf).ok_or(Ended::Gone)
    }

    fn is_touched(&self, vdev: VdevId, index: u64) -> bool {
        let directory = self.pool.directory(self.operation);
        let map = self.pool.arrays.map_of(directory, vdev, index);
        // Where that cannot be read, the metaslab is gone over.
        !matches!(map, Ok(None))
    }

    fn metaslab(&mut self, vdev: VdevId, index: u64) -> Result<(), Ended> {
        loop {
            let (now, leaf) = self.device()?;
            if now != vdev {
                return Err(Ended::Gone);
            }
            let Some(hold) = self.pool.space().hold_metaslab(vdev, index) else {
                // It cannot be read, so what is free in it is not known.
                return Ok(());
            };
            if self.held(vdev, &leaf, &hold)? {
                return Ok(());
            }
            // An allocation wants the metaslab, and goes first.
        }
    }

    /// Goes over a held metaslab. False if an allocation wants it before all was done.
    fn held(&mut self, vdev: VdevId, leaf: &Arc<Leaf>, hold: &MetaslabHold) -> Result<bool, Ended> {
        for free in hold.ranges() {
            let range = self
                .pool
                .vdevs()
                .range_on_leaf(vdev, leaf.guid, free.start, free.size);
            let range = range.ok_or(Ended::Gone)?;
            assert!(
                range.start <= range.end && range.end - range.start <= free.size.get(),
                "the part of a free range on a device is no larger than the range"
            );
            let next = self.progress.next_offset.load(Ordering::Relaxed);
            let range = range.start.max(next)..range.end;
            let is_trim = self.plan.key.1 == FreeSpaceWork::Trim;
            if range.is_empty() || (is_trim && range.end - range.start < DISCARD_BYTES_MIN) {
                continue;
            }
            for piece in pieces(range, self.piece_bytes_max()) {
                if !self.keep_rate(hold)? {
                    return Ok(false);
                }
                self.device()?;
                self.piece(leaf, piece)?;
            }
        }
        Ok(true)
    }

    fn piece_bytes_max(&self) -> u64 {
        match self.plan.key.1 {
            FreeSpaceWork::Initialize => FILL_BYTES_AT_ONCE,
            FreeSpaceWork::Trim => DISCARD_BYTES_MAX,
        }
    }

    fn piece(&mut self, leaf: &Arc<Leaf>, piece: Range<u64>) -> Result<(), Ended> {
        assert!(
            piece.start < piece.end && piece.end - piece.start <= self.piece_bytes_max(),
            "a piece has bytes, and no more than a request takes"
        );
        let bytes = piece.end - piece.start;
        self.moved += bytes;
        let end = piece.end;
        let done = match self.plan.key.1 {
            FreeSpaceWork::Initialize => leaf.fill(piece, &self.filler, self.operation),
            FreeSpaceWork::Trim => leaf.discard(piece, self.operation),
        };
        if done.is_err() && !leaf.is_usable() {
            return Err(Ended::Gone);
        }
        if done.is_err() {
            self.progress.errors.fetch_add(1, Ordering::Relaxed);
        }
        self.progress.next_offset.store(end, Ordering::Release);
        self.progress.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.store_progress();
        Ok(())
    }

    /// Has the sync store the progress, from time to time.
    fn store_progress(&mut self) {
        let now_ns = self.pool.host().monotonic_ns();
        if now_ns.saturating_sub(self.stored_ns) < STORE_INTERVAL_NS {
            return;
        }
        self.stored_ns = now_ns;
        let key = self.plan.key;
        // A pool that stores nothing now goes on from what it has stored.
        if self
            .pool
            .leave_for_sync(move |scope| store(scope, key))
            .is_ok()
        {
            self.pool.txgs().kick();
        }
    }

    /// Waits while it is ahead of its rate. False as soon as an allocation wants the metaslab.
    #[doc(alias = "vdev_trim_calculate_rate")]
    fn keep_rate(&self, hold: &MetaslabHold) -> Result<bool, Ended> {
        let is_ahead = || {
            let elapsed_ns = self
                .pool
                .host()
                .monotonic_ns()
                .saturating_sub(self.began_ns);
            let elapsed_ms = u128::from(elapsed_ns / 1_000_000) + 1;
            u128::from(self.moved) * 1000 / elapsed_ms > u128::from(self.plan.rate)
        };
        while self.plan.rate > 0 && is_ahead() && !hold.is_wanted() {
            self.device()?;
            self.pool.host().sleep(RATE_INTERVAL);
        }
        Ok(!hold.is_wanted())
    }
}

/// Estimates how much there is to do, and how much of it is done.
#[doc(alias("vdev_initialize_calculate_progress", "vdev_trim_calculate_progress"))]
pub(super) fn estimate(pool: &Pool, key: Key, vdev: VdevId, progress: &Progress) {
    let (estimated, done) = pool.estimate_work(key, vdev, progress);
    progress.estimated_bytes.store(estimated, Ordering::Relaxed);
    progress.done_bytes.store(done, Ordering::Relaxed);
}

impl Pool {
    /// Bytes in the free space of a device, and how many of them lie before the next offset.
    fn estimate_work(&self, key: Key, vdev: VdevId, progress: &Progress) -> (u64, u64) {
        let tops = self.vdevs().top_levels();
        let Some(top) = tops.iter().find(|top| top.id == vdev) else {
            return (0, 0);
        };
        let Some(leaf) = self.leaf_of(key.0) else {
            return (0, 0);
        };
        let next = progress.next_offset.load(Ordering::Relaxed);
        let shares = self.vdevs().shares(vdev);
        let size = AllocatedSize::new(1 << top.metaslab_shift);
        let (mut estimated, mut done) = (0, 0);
        for index in 0..self.space().metaslab_count(vdev) {
            let Some(totals) = self.space().metaslab_totals(vdev, index) else {
                break;
            };
            let start = VdevOffset::new(index << top.metaslab_shift);
            let range = self.vdevs().range_on_leaf(vdev, leaf.guid, start, size);
            let Some(range) = range else { break };
            let free = totals.size.saturating_sub(totals.allocated).get() / shares;
            estimated += free;
            let length = range.end.saturating_sub(range.start).max(1);
            let passed = next.clamp(range.start, range.end) - range.start;
            let part = u128::from(free) * u128::from(passed) / u128::from(length);
            done += u64::try_from(part).unwrap_or(free);
        }
        (estimated, done)
    }
}

/// A range in pieces of at most so many bytes.
pub(super) fn pieces(range: Range<u64>, bytes_max: u64) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        if start >= range.end {
            return None;
        }
        let end = start.saturating_add(bytes_max).min(range.end);
        let piece = start..end;
        start = end;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range_once() {
        let all = |range, most| pieces(range, most).collect::<Vec<_>>();
        assert_eq!(all(5..25, 8), [5..13, 13..21, 21..25]);
        assert_eq!((all(5..13, 8).len(), all(5..13, 8)[0].end), (1, 13));
        assert_eq!(all(5..5, 8), []);
    }
}
