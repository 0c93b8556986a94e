//! The queue of a scan: copies of blocks that were found and are not verified yet, by their places.
//!
//! # Mechanism
//! A tree for each top-level vdev has the queued copies by offset, those of metadata apart. Threads
//! take runs behind a cursor that goes round the vdev: long sequential reads. Metadata comes first,
//! unless that would cost another way over the whole disk (`Sorted::merge_sparse`). A copy that is
//! freed while it is queued leaves the queue. One that is freed while a thread has it is marked:
//! its outcome does not count.
//!
//! The space of a freed block is allocated again when two more txgs are stored
//! ([`tarn_space`]). Before that the thread that stores a txg waits for the runs that were taken
//! three txgs earlier or more.
//!
//! # Invariants
//! - A place is in the queue at most once.
//! - A copy that a thread has is not reallocated before the thread gives it back.

use crate::ranks;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_host::lock::{Condvar, Mutex};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::{Txg, VdevId};

/// About how much memory a queued copy takes: its 168 bytes, its key, and its part of the tree.
const ITEM_BYTES: u64 = 288;

/// A run has no more copies.
const RUN_COUNT_MAX: usize = 512;

/// A run has no more bytes, but for its last copy.
const RUN_BYTES_MAX: u64 = 4 << 20;

/// A disk reads about so many bytes in the time in which its arm moves.
const SEEK_BYTES: u64 = 1 << 20;

/// Metadata comes first if the way to it is no more than this part of what else there is.
const FIRST_PART: u64 = 8;

/// So many runs of one vdev are with threads at once: while one is verified or written, the next is
/// read, and another one waits at the device.
pub const RUNS_MAX: usize = 3;

/// A copy of a block that is to be scanned.
#[derive(Debug, Clone, Copy)]
pub struct ScanItem {
    /// The block.
    pub pointer: BlockPointer,
    /// Which of its copies.
    pub copy: usize,
    /// Where the block belongs.
    pub mark: TraversalMark,
}

impl ScanItem {
    fn place(&self) -> Option<(VdevId, u64)> {
        let dva = self.pointer.dvas().nth(self.copy)?;
        Some((dva.vdev(), dva.offset().get()))
    }

    /// The space that the copy takes, in bytes.
    pub fn allocated_bytes(&self) -> u64 {
        let dva = self.pointer.dvas().nth(self.copy);
        dva.map_or(0, |dva| dva.allocated_size().get())
    }
}

/// Copies that a thread has taken. It gives them back by [`ScanQueue::done`].
#[derive(Debug)]
pub struct Run {
    /// The copies, by their places.
    pub items: Vec<ScanItem>,
    number: u64,
}

/// The queued copies of one vdev.
#[derive(Debug, Default)]
struct Sorted {
    first: BTreeMap<u64, ScanItem>,
    others: BTreeMap<u64, ScanItem>,
    /// Runs that threads have.
    runs: usize,
    /// Where the next run begins.
    cursor: u64,
}

impl Sorted {
    /// Has metadata in the order of places with the others, where it is so little at so many places
    /// that the way to it would take longer than a part of the way to the others.
    fn merge_sparse(&mut self) {
        let others = self.others.values().map(ScanItem::allocated_bytes);
        let way_bytes = widen(self.first.len()) * SEEK_BYTES;
        if way_bytes > others.sum::<u64>() / FIRST_PART {
            self.others.append(&mut self.first);
        }
    }

    fn next_tree(&mut self) -> Option<&mut BTreeMap<u64, ScanItem>> {
        match (self.first.is_empty(), self.others.is_empty()) {
            (false, _) => Some(&mut self.first),
            (true, false) => Some(&mut self.others),
            (true, true) => None,
        }
    }

    fn take(&mut self) -> Vec<ScanItem> {
        let cursor = self.cursor;
        let Some(tree) = self.next_tree() else {
            return Vec::new();
        };
        let from = match tree.range(cursor..).next() {
            Some((from, _)) => *from,
            None => 0,
        };
        let mut bytes = 0;
        let offsets: Vec<u64> = tree
            .range(from..)
            .take(RUN_COUNT_MAX)
            .take_while(|(_, item)| {
                let is_in = bytes < RUN_BYTES_MAX;
                bytes += item.allocated_bytes();
                is_in
            })
            .map(|(offset, _)| *offset)
            .collect();
        let items = offsets.iter().filter_map(|offset| tree.remove(offset));
        let items = items.collect();
        self.cursor = offsets.last().map_or(0, |last| last + 1);
        items
    }
}

#[derive(Debug, Default)]
struct State {
    vdevs: BTreeMap<VdevId, Sorted>,
    count: u64,
    /// What threads have: by the number of the run the places that are not freed, with the txg
    /// that was stored when it was taken.
    taken: BTreeMap<u64, Taken>,
    next_run: u64,
    /// Whether runs are given out.
    is_open: bool,
    /// Threads are to end.
    is_closed: bool,
    /// The newest stored txg.
    stored: Txg,
}

impl State {
    /// Whether all queued copies are counted, and all runs.
    fn is_consistent(&self) -> bool {
        let queued = self.vdevs.values();
        let queued = queued.map(|sorted| sorted.first.len() + sorted.others.len());
        let runs: usize = self.vdevs.values().map(|sorted| sorted.runs).sum();
        widen(queued.sum()) == self.count && runs == self.taken.len()
    }
}

#[derive(Debug)]
struct Taken {
    stored: Txg,
    vdev: VdevId,
    places: BTreeSet<u64>,
}

impl Taken {
    /// Whether it may have copies whose space is released when this txg is stored.
    fn is_older(&self, stored: Txg) -> bool {
        self.stored.get() + 3 <= stored.get()
    }
}

/// The queue of a scan.
#[derive(Debug)]
pub struct ScanQueue {
    state: Mutex<State>,
    changed: Condvar,
    /// False while nothing is queued or taken: then frees need not look.
    is_used: AtomicBool,
}

impl ScanQueue {
    pub(crate) fn new() -> ScanQueue {
        ScanQueue {
            state: Mutex::new(ranks::SCAN_QUEUE, State::default()),
            changed: Condvar::new(),
            is_used: AtomicBool::new(false),
        }
    }

    /// Adds a copy, unless its place is queued already.
    pub fn add(&self, item: ScanItem) {
        let Some((vdev, offset)) = item.place() else {
            return;
        };
        let is_metadata = item.pointer.is_metadata() || !item.pointer.level().is_data();
        let mut state = self.state.lock();
        self.is_used.store(true, Ordering::Release);
        let sorted = state.vdevs.entry(vdev).or_default();
        let tree = match is_metadata {
            true => &mut sorted.first,
            false => &mut sorted.others,
        };
        if tree.insert(offset, item).is_none() {
            state.count += 1;
        }
        if state.is_open {
            drop(state);
            self.changed.notify_all();
        }
    }

    /// A place was freed: it leaves the queue, and if a thread has it, its outcome does not count.
    pub(crate) fn freed(&self, vdev: VdevId, offset: u64) {
        if !self.is_used.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        if let Some(sorted) = state.vdevs.get_mut(&vdev) {
            let of_first = sorted.first.remove(&offset).is_some();
            let of_others = sorted.others.remove(&offset).is_some();
            assert!(
                !(of_first && of_others),
                "a place is in the queue at most once"
            );
            state.count -= u64::from(of_first) + u64::from(of_others);
        }
        for taken in state.taken.values_mut() {
            if taken.vdev == vdev {
                taken.places.remove(&offset);
            }
        }
    }

    /// Waits for copies to scan. None when the queue was [closed](ScanQueue::close).
    pub fn take(&self) -> Option<Run> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(run) = take_from(&mut state) {
                return Some(run);
            }
            self.changed.wait(&mut state);
        }
    }

    /// For each copy of a run whether its outcome counts: it was not freed meanwhile.
    pub fn counting(&self, run: &Run) -> Vec<bool> {
        let state = self.state.lock();
        let taken = state.taken.get(&run.number);
        let counts = |item: &ScanItem| {
            let place = item.place();
            taken.is_some_and(|taken| {
                place.is_some_and(|(_, offset)| taken.places.contains(&offset))
            })
        };
        run.items.iter().map(counts).collect()
    }

    /// A thread gives a run back, whose outcomes were noted.
    pub fn done(&self, run: &Run) {
        let mut state = self.state.lock();
        let taken = state.taken.remove(&run.number);
        let taken = taken.expect("a run is given back once");
        if let Some(sorted) = state.vdevs.get_mut(&taken.vdev) {
            assert!(sorted.runs > 0, "a run that is given back was counted");
            sorted.runs -= 1;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A thread gives a run back that it has not scanned: what was not freed meanwhile is queued
    /// again.
    pub fn put_back(&self, run: &Run) {
        let counting = self.counting(run);
        let left = run.items.iter().zip(counting).filter(|(_, counts)| *counts);
        left.for_each(|(item, _)| self.add(*item));
        self.done(run);
    }

    /// Whether runs are given out.
    pub fn is_open(&self) -> bool {
        self.state.lock().is_open
    }

    /// Gives out runs, or does not: while the walk goes on, copies are gathered.
    pub fn open(&self, is_open: bool) {
        let mut state = self.state.lock();
        if is_open && !state.is_open {
            state.vdevs.values_mut().for_each(Sorted::merge_sparse);
        }
        state.is_open = is_open;
        drop(state);
        self.changed.notify_all();
    }

    /// Drops what is queued, and waits for the threads that have runs.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.is_open = false;
        self.changed
            .wait_while(&mut state, |state| !state.taken.is_empty());
        // Threads may have put runs back.
        state.vdevs.values_mut().for_each(|sorted| {
            sorted.first.clear();
            sorted.others.clear();
        });
        state.count = 0;
        self.is_used.store(false, Ordering::Release);
    }

    /// Has threads end. What is queued stays: a queue that is closed is not [done](Self::is_done)
    /// by that.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.is_open = false;
        drop(state);
        self.changed.notify_all();
    }

    /// Has threads take runs again.
    pub fn reopen(&self) {
        self.state.lock().is_closed = false;
    }

    /// About how much memory the queued copies take, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.state.lock().count * ITEM_BYTES
    }

    /// Whether nothing is queued, and no thread has anything.
    pub fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.count == 0 && state.taken.is_empty()
    }

    /// Whether [`ScanQueue::wait_for_older`] has to wait.
    pub fn has_older(&self, stored: Txg) -> bool {
        let state = self.state.lock();
        state.taken.values().any(|taken| taken.is_older(stored))
    }

    /// Before space is released that was freed two txgs before this one, which is stored now:
    /// waits for runs that may have copies in it. A later txg takes runs of its own.
    pub fn wait_for_older(&self, stored: Txg) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| {
            state.taken.values().any(|taken| taken.is_older(stored))
        });
        assert!(state.stored <= stored, "groups are stored in their order");
        state.stored = state.stored.max(stored);
    }
}

fn take_from(state: &mut State) -> Option<Run> {
    if !state.is_open {
        return None;
    }
    let is_free = |sorted: &&mut Sorted| {
        sorted.runs < RUNS_MAX && !(sorted.first.is_empty() && sorted.others.is_empty())
    };
    // The vdev with the fewest runs is the one that has the most to gain.
    let candidates = state.vdevs.values_mut().filter(is_free);
    let sorted = candidates.min_by_key(|sorted| sorted.runs)?;
    let items = sorted.take();
    assert!(
        items.len() <= RUN_COUNT_MAX,
        "a run has no more copies than a batch takes"
    );
    sorted.runs += 1;
    assert!(
        sorted.runs <= RUNS_MAX,
        "so many runs of one vdev are with threads at once"
    );
    let (vdev, _) = items.first()?.place()?;
    state.count -= widen(items.len());
    let number = state.next_run;
    state.next_run += 1;
    let places = items.iter().filter_map(ScanItem::place);
    let taken = Taken {
        stored: state.stored,
        vdev,
        places: places.map(|(_, offset)| offset).collect(),
    };
    let before = state.taken.insert(number, taken);
    assert!(before.is_none(), "runs have different numbers");
    debug_assert!(
        state.is_consistent(),
        "all queued copies and runs are counted"
    );
    Some(Run { items, number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::block_pointer::Dva;
    use tarn_ondisk::object_type::ObjectType;
    use tarn_ondisk::units::{AllocatedSize, Level, VdevOffset};

    fn item(vdev: u64, offset: u64) -> ScanItem {
        let mut pointer = BlockPointer::HOLE;
        pointer.set_dvas(&[Dva::new(
            VdevId::from(vdev),
            VdevOffset::from(offset),
            AllocatedSize::from(4096),
        )]);
        ScanItem {
            pointer,
            copy: 0,
            mark: TraversalMark::default(),
        }
    }

    fn offsets(run: &Run) -> Vec<u64> {
        let places = run.items.iter().filter_map(ScanItem::place);
        places.map(|(_, offset)| offset).collect()
    }

    #[test]
    fn runs_are_sorted_by_place_and_lack_what_was_freed() {
        let queue = ScanQueue::new();
        for offset in [9, 3, 5, 7].map(|number| number * 4096) {
            queue.add(item(1, offset));
        }
        queue.freed(VdevId::from(1), 5 * 4096);
        queue.freed(VdevId::from(2), 3 * 4096);
        queue.open(true);
        let run = queue.take().unwrap();
        assert_eq!(offsets(&run), [3 * 4096, 7 * 4096, 9 * 4096]);
        assert!(!queue.is_done(), "a thread has a run");
        queue.freed(VdevId::from(1), 7 * 4096);
        assert_eq!(queue.counting(&run), [true, false, true]);
        queue.done(&run);
        assert!(queue.is_done());
    }

    #[test]
    fn metadata_comes_first_unless_it_is_sparse() {
        let of_level = |offset: u64, level: u8, bytes: u64| {
            let mut item = item(0, offset);
            item.pointer.set_object_type(ObjectType::PlainFile);
            item.pointer.set_level(Level::new(level));
            let dva = Dva::new(
                VdevId::from(0),
                VdevOffset::from(offset),
                AllocatedSize::from(bytes),
            );
            item.pointer.set_dvas(&[dva]);
            item
        };
        let order = |data_bytes: u64| {
            let queue = ScanQueue::new();
            queue.add(of_level(4096, 0, data_bytes));
            queue.add(of_level(1 << 30, 1, 4096));
            queue.open(true);
            offsets(&queue.take().unwrap())
        };
        assert_eq!(order(FIRST_PART * SEEK_BYTES), [1 << 30]);
        assert_eq!(order(4096), [4096, 1 << 30]);
    }

    #[test]
    fn a_run_that_is_put_back_is_taken_again_without_what_was_freed() {
        let queue = ScanQueue::new();
        queue.add(item(0, 4096));
        queue.add(item(0, 8192));
        queue.open(true);
        let run = queue.take().unwrap();
        queue.freed(VdevId::from(0), 4096);
        queue.put_back(&run);
        assert!(!queue.is_done());
        let run = queue.take().unwrap();
        assert_eq!(offsets(&run), [8192]);
        queue.done(&run);
        assert!(queue.is_done());
    }

    /// Closing a pool must not make its scan look complete.
    #[test]
    fn a_closed_queue_is_not_done_while_it_has_copies() {
        let queue = ScanQueue::new();
        queue.add(item(0, 4096));
        queue.open(true);
        queue.close();
        assert!(queue.take().is_none());
        assert!(!queue.is_done());
        queue.clear();
        assert!(queue.is_done());
    }
}
