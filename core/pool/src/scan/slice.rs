//! One slice of the walk over all metadata, in the sync thread.
//!
//! # Mechanism
//! A slice begins where the last one stopped: in the MOS as it was stored last, or in a dataset. It
//! ends when its time is over, or when the queue of copies has its share of memory. It stops only
//! before blocks of level 0 outside the accounting objects, as OpenZFS's does, so each program can
//! resume the other's.
//!
//! What cannot be read is an error of the scan, and what is below it is passed over.

use super::datasets::{behind, dataset, first};
use super::progress::{Progress, is_running};
use crate::error::PoolError;
use crate::error_log::place_of;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use std::collections::BTreeMap;
use tarn_block::ScanItem;
use tarn_object::{
    META_DNODE, MOS_ID, ObjectError, Step, Visit, Visitor, WalkOptions, Walked, walk_objset,
};
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::error_log::ErrorPlace;
use tarn_ondisk::scan::{NO_DATASET, RESILVER, Scan};
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::{Operation, OperationKind};

/// How long a slice walks while something waits for its txg, in nanoseconds: changes of datasets,
/// and writers at the limit of dirty data.
const SLICE_NS: u64 = 200_000_000;

/// How long a slice walks otherwise, in nanoseconds: on a disk with an arm, the txg after each
/// slice takes as long as a short slice. OpenZFS takes at least 1 second for a scrub and 3 for a
/// resilver.
#[doc(alias("zfs_scrub_min_time_ms", "zfs_resilver_min_time_ms"))]
const SLICE_NS_MAX: u64 = 2_000_000_000;

/// The queue of copies takes no more than this part of memory.
#[doc(alias = "zfs_scan_mem_lim_fact")]
const MEMORY_PART: u64 = 20;

/// It may take so much in any case, in bytes.
#[doc(alias = "zfs_scan_mem_lim_min")]
const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// How many objects a block of dnodes has.
const DNODES_PER_BLOCK: u64 = 32;

/// Accounting objects have numbers from here on, as those of negative numbers.
const ACCOUNTING: u64 = 1 << 63;

/// Between two looks at the memory of the queue so many blocks are visited.
const LOOK_INTERVAL: u32 = 256;

impl Pool {
    /// How much memory the queue of copies may take, in bytes.
    pub(super) fn scan_memory_max(&self) -> u64 {
        (self.host().memory_total_bytes() / MEMORY_PART).max(MEMORY_BYTES_MIN)
    }

    /// Whether the slice that began then is long enough.
    fn is_slice_over(&self, began_ns: u64) -> bool {
        let took_ns = self.host().monotonic_ns().saturating_sub(began_ns);
        took_ns >= SLICE_NS_MAX || took_ns >= SLICE_NS && self.txgs().is_waited_for()
    }

    /// Walks on for a while.
    #[doc(alias = "dsl_scan_visit")]
    pub(super) fn walk_slice(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        let (scan, queue, is_stuck) = {
            let mut progress = self.scans.progress.lock();
            let now = progress.now.filter(is_running).expect("the scan runs");
            assert!(
                !progress.is_walked(),
                "a walk that has ended goes no further"
            );
            if scope.writer.tx.txg() < progress.walks_from {
                return Ok(());
            }
            let is_stuck = progress.fruitless_slices >= FRUITLESS_MAX;
            (now, std::mem::take(&mut progress.queue), is_stuck)
        };
        let cache_bytes = self.cache().cache().target_bytes();
        // A txg waits for these reads: they have its class, not that of scrubs.
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::TxgSync);
        let examined_before = scan.examined_bytes;
        let mut slice = Slice {
            pool: self,
            scope,
            operation: &operation,
            began_ns: self.host().monotonic_ns(),
            memory_max: self.scan_memory_max(),
            ahead_bytes: match is_stuck {
                true => 0,
                false => cache_bytes / AHEAD_PART,
            },
            scan,
            queue,
            errors: BTreeMap::new(),
        };
        let from = scan.mark;
        let walked = slice.walk();
        let Slice {
            scan,
            queue,
            errors,
            ..
        } = slice;
        operation.finish();
        {
            let mut progress = self.scans.progress.lock();
            let progress: &mut Progress = &mut progress;
            progress.pass.examined_bytes += scan.examined_bytes - examined_before;
            progress.fruitless_slices = match scan.mark == from {
                true => progress.fruitless_slices + 1,
                false => 0,
            };
            progress.now = Some(scan);
            progress.queue = queue;
        }
        for (place, birth) in errors {
            self.log_error(place, birth);
        }
        walked
    }
}

/// How much memory what is read ahead of the walk may take: a part of the cache.
const AHEAD_PART: u64 = 4;

/// After so many slices that came no further nothing is read ahead: the cache may be too small to
/// keep it.
const FRUITLESS_MAX: u32 = 64;

struct Slice<'a> {
    pool: &'a Pool,
    scope: &'a SyncScope<'a>,
    operation: &'a Operation,
    began_ns: u64,
    memory_max: u64,
    ahead_bytes: u64,
    scan: Scan,
    queue: BTreeMap<ObjectId, Txg>,
    errors: BTreeMap<ErrorPlace, Txg>,
}

impl Slice<'_> {
    fn is_over(&self) -> bool {
        self.pool.is_slice_over(self.began_ns)
    }

    fn walk(&mut self) -> Result<(), PoolError> {
        assert!(is_running(&self.scan), "only a scan that runs walks");
        assert!(
            self.memory_max >= MEMORY_BYTES_MIN,
            "the queue of copies has room for some"
        );
        let directory = self.scope.writer.directory();
        let set = self.scan.mark.objset;
        if set == MOS_ID {
            self.scan.current_txg_min = self.scan.txg_min;
            self.scan.current_txg_max = self.scan.txg_max;
            let root = self.pool.uberblock().root;
            if !self.objset(MOS_ID, &root) {
                return Ok(());
            }
            for dataset in first(directory)? {
                self.enqueue(dataset, Txg::ZERO);
            }
            self.take_next();
        } else if set != NO_DATASET {
            if !self.dataset(set)? {
                return Ok(());
            }
            self.take_next();
        }
        while let Some((id, after)) = self.queue.pop_first() {
            if self.is_over() {
                self.queue.insert(id, after);
                return Ok(());
            }
            let Some(stored) = dataset(directory, id)? else {
                continue;
            };
            let after = match after {
                Txg::ZERO => stored.previous_snapshot_txg,
                after => after,
            };
            self.scan.current_txg_min = self.scan.txg_min.max(after);
            self.scan.current_txg_max = match stored.is_snapshot() {
                true => self.scan.txg_max.min(stored.creation_txg),
                false => self.scan.txg_max,
            };
            assert!(
                self.scan.current_txg_min >= self.scan.txg_min
                    && self.scan.current_txg_max <= self.scan.txg_max,
                "a dataset is walked within the births of the scan"
            );
            self.scan.mark = TraversalMark {
                objset: id,
                ..TraversalMark::default()
            };
            if !self.dataset(id)? {
                return Ok(());
            }
            self.take_next();
        }
        Ok(())
    }

    /// The next dataset is taken from the queue.
    fn take_next(&mut self) {
        self.scan.mark = TraversalMark {
            objset: NO_DATASET,
            ..TraversalMark::default()
        };
    }

    fn enqueue(&mut self, dataset: ObjectId, after: Txg) {
        let known = self.queue.get(&dataset).copied();
        let after = known.map_or(after, |known| known.min(after));
        self.queue.insert(dataset, after);
    }

    /// Walks through one dataset from the mark on. False if it has more.
    #[doc(alias = "dsl_scan_visitds")]
    fn dataset(&mut self, id: ObjectId) -> Result<bool, PoolError> {
        let directory = self.scope.writer.directory();
        let Some(stored) = dataset(directory, id)? else {
            return Ok(true);
        };
        // It and all behind it have only blocks that were visited, or need not be.
        if self.scan.current_txg_min >= self.scan.txg_max {
            self.scan.flags &= !Scan::VISIT_AGAIN;
            return Ok(true);
        }
        if !self.objset(id, &stored.root) {
            return Ok(false);
        }
        if self.scan.flags & Scan::VISIT_AGAIN != 0 {
            self.scan.flags &= !Scan::VISIT_AGAIN;
            let after = self.scan.current_txg_max;
            self.enqueue(id, after);
            return Ok(true);
        }
        for next in behind(directory, &stored) {
            self.enqueue(next, stored.creation_txg);
        }
        Ok(true)
    }

    /// Walks through one object set from the mark on. False if it has more.
    fn objset(&mut self, set: ObjectId, root: &BlockPointer) -> bool {
        let options = WalkOptions {
            born_after: self.scan.current_txg_min,
            resume: resume_at(self.scan.mark),
            ahead_bytes: self.ahead_bytes,
            ..WalkOptions::default()
        };
        let mut finder = Finder {
            pool: self.pool,
            began_ns: self.began_ns,
            memory_max: self.memory_max,
            visits: 0,
            is_full: false,
            scan: &mut self.scan,
            errors: &mut self.errors,
        };
        let cache = self.pool.cache();
        match walk_objset(cache, set, root, options, &mut finder, self.operation) {
            Walked::Completed => true,
            Walked::Stopped(mark) => {
                self.scan.mark = mark;
                false
            }
        }
    }
}

/// Where the walk goes on. A block of dnodes in OpenZFS's marks is one whose objects were not
/// visited.
fn resume_at(mark: TraversalMark) -> Option<TraversalMark> {
    let is_start = mark.object.is_zero() && mark.block == 0;
    if is_start || mark.level != 0 {
        return None;
    }
    Some(match mark.object {
        META_DNODE => TraversalMark {
            object: ObjectId::new(mark.block.saturating_mul(DNODES_PER_BLOCK)),
            block: 0,
            ..mark
        },
        _ => mark,
    })
}

/// Puts the copies of all blocks into the queue.
struct Finder<'a> {
    pool: &'a Pool,
    began_ns: u64,
    memory_max: u64,
    visits: u32,
    is_full: bool,
    scan: &'a mut Scan,
    errors: &'a mut BTreeMap<ErrorPlace, Txg>,
}

impl Finder<'_> {
    /// Whether the slice ends before this block.
    #[doc(alias = "dsl_scan_check_suspend")]
    fn ends_before(&mut self, mark: &TraversalMark) -> bool {
        if mark.level != 0 || mark.object.get() >= ACCOUNTING {
            return false;
        }
        self.visits += 1;
        if self.visits.is_multiple_of(LOOK_INTERVAL) {
            self.is_full = self.pool.io().scan_queue().memory_bytes() >= self.memory_max;
        }
        self.is_full || (self.visits > 1 && self.pool.is_slice_over(self.began_ns))
    }

    /// A block below which everything was visited.
    #[doc(alias = "dsl_scan_scrub_cb")]
    fn found(&mut self, visit: &Visit<'_>) {
        let pointer = visit.pointer;
        if pointer.kind() != PointerKind::Stored {
            return;
        }
        // A block from after the snapshot belongs to the dataset behind it. A clone that was made
        // since may be all that leads to an older block.
        let birth = pointer.physical_birth();
        if birth > self.scan.current_txg_max {
            return;
        }
        let bytes = pointer.allocated_size().get();
        if birth <= self.scan.txg_min || birth >= self.scan.txg_max {
            self.scan.skipped_bytes += bytes;
            return;
        }
        debug_assert!(
            birth <= self.scan.current_txg_max,
            "a block of a later birth is visited with another dataset"
        );
        self.scan.examined_bytes += bytes;
        let vdevs = self.pool.vdevs();
        // The places of a gang are known from its headers: it is scanned as a whole.
        let copies = match pointer.is_gang() {
            true => 1,
            false => pointer.dva_count(),
        };
        for (copy, dva) in pointer.dvas().take(copies).enumerate() {
            let is_needed = self.scan.function != RESILVER
                || pointer.is_gang()
                || vdevs.needs_resilver(dva.vdev(), birth);
            if !is_needed {
                self.scan.skipped_bytes += dva.allocated_size().get();
                continue;
            }
            self.pool.io().scan_queue().add(ScanItem {
                pointer: *pointer,
                copy,
                mark: visit.mark,
            });
        }
    }
}

impl Visitor for Finder<'_> {
    fn enter(&mut self, visit: &Visit<'_>) -> Step {
        match self.ends_before(&visit.mark) {
            true => Step::Stop,
            false => Step::Continue,
        }
    }

    fn leave(&mut self, visit: &Visit<'_>) -> Step {
        self.found(visit);
        Step::Continue
    }

    /// The next slice goes on to wait: what was prefetched comes meanwhile.
    fn waits(&mut self, visit: &Visit<'_>) -> Step {
        let may_end = visit.mark.object.get() < ACCOUNTING;
        match may_end && self.pool.is_slice_over(self.began_ns) {
            true => Step::Stop,
            false => Step::Continue,
        }
    }

    fn unreadable(&mut self, visit: &Visit<'_>, _why: &ObjectError) -> Step {
        self.scan.error_count += 1;
        let place = place_of(&visit.mark);
        self.errors.insert(place, visit.pointer.logical_birth);
        Step::Skip
    }
}
