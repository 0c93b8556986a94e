//! Which ranges of a volume are being changed.
//!
//! # Problem
//! Clients write to many places of a volume at the same time. Changes that overlap must be made one
//! after the other, and their records must be in the same order; those that do not need not wait
//! for each other.
//!
//! # Mechanism
//! A change takes the blocks that it reaches, in the order of coming: it waits for those before it
//! that overlap, whether they are being made or wait themselves. So no change is passed by later
//! ones for ever.
//!
//! # Invariants
//! - No two changes that overlap are made at the same time.
//! - A change that is being made waits for no other: a range is taken once, before the transaction
//!   is opened.

use std::ops::Range;

use tarn_host::lock::{Condvar, Mutex};
use tarn_host::wait_as_for_lock;

use crate::ranks;

/// A change that is being made, or waits for its turn.
#[derive(Debug)]
struct Change {
    number: u64,
    range: Range<u64>,
}

#[derive(Debug, Default)]
struct Changes {
    /// In the order in which they came.
    in_order: Vec<Change>,
    last_number: u64,
    /// How many of them wait.
    waiting: usize,
}

impl Changes {
    /// Whether one that came before overlaps.
    fn must_wait(&self, number: u64, range: &Range<u64>) -> bool {
        let mut before = self.in_order.iter().take_while(|one| one.number != number);
        before.any(|one| one.range.start < range.end && range.start < one.range.end)
    }
}

/// The changes of a volume.
pub(crate) struct ChangedRanges {
    changes: Mutex<Changes>,
    ended: Condvar,
}

/// The right to change a range, until it is dropped.
#[must_use = "the range is released when this is dropped"]
pub(crate) struct ChangedRange<'a> {
    ranges: &'a ChangedRanges,
    number: u64,
}

impl ChangedRanges {
    pub(crate) fn new() -> ChangedRanges {
        ChangedRanges {
            changes: Mutex::new(ranks::CHANGES, Changes::default()),
            ended: Condvar::new(),
        }
    }

    /// Waits until no change that came before overlaps this range.
    pub(crate) fn take(&self, range: Range<u64>) -> ChangedRange<'_> {
        assert!(range.start < range.end, "each change reaches something");
        let mut changes = self.changes.lock();
        changes.last_number += 1;
        let number = changes.last_number;
        changes.in_order.push(Change {
            number,
            range: range.clone(),
        });
        if changes.must_wait(number, &range) {
            changes.waiting += 1;
            wait_as_for_lock(|| {
                self.ended
                    .wait_while(&mut changes, |changes| changes.must_wait(number, &range));
            });
            changes.waiting -= 1;
        }
        assert!(
            !changes.must_wait(number, &range),
            "no change that overlaps is being made"
        );
        ChangedRange {
            ranges: self,
            number,
        }
    }

    /// Waits until no change that came before is being made; later ones wait for this.
    pub(crate) fn take_all(&self) -> ChangedRange<'_> {
        self.take(0..u64::MAX)
    }
}

impl Drop for ChangedRange<'_> {
    fn drop(&mut self) {
        let mut changes = self.ranges.changes.lock();
        let mut all = changes.in_order.iter();
        let at = all.position(|one| one.number == self.number);
        changes
            .in_order
            .remove(at.expect("a change is in the list until it ends"));
        let has_waiting = changes.waiting > 0;
        drop(changes);
        if has_waiting {
            self.ranges.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Waits until so many changes wait.
    fn await_waiting(ranges: &ChangedRanges, count: usize) {
        while ranges.changes.lock().waiting < count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn changes_that_overlap_are_made_in_order_and_others_side_by_side() {
        let ranges = Arc::new(ChangedRanges::new());
        let first = ranges.take(0..10);
        let apart = ranges.take(10..20);
        let order = Arc::new(Mutex::new(tarn_host::Rank::new(1, "order"), Vec::new()));
        let mut threads = Vec::new();
        // The second waits for the first, the third for the second, though not for the first.
        for (count, range) in [5..30, 20..25, 40..50].into_iter().enumerate() {
            let (shared, made) = (ranges.clone(), order.clone());
            threads.push(std::thread::spawn(move || {
                let taken = shared.take(range);
                made.lock().push(count);
                drop(taken);
            }));
            if count < 2 {
                await_waiting(&ranges, count + 1);
            }
        }
        threads.pop().unwrap().join().unwrap();
        assert_eq!(*order.lock(), [2], "what touches no other does not wait");
        drop(first);
        assert_eq!(order.lock().len(), 1, "another one is in the way still");
        drop(apart);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*order.lock(), [2, 0, 1]);
        assert!(ranges.changes.lock().in_order.is_empty());
    }

    #[test]
    fn no_two_changes_of_a_block_are_made_at_the_same_time() {
        let (ranges, blocks) = (ChangedRanges::new(), [const { AtomicUsize::new(0) }; 4]);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (ranges, blocks) = (&ranges, &blocks);
                scope.spawn(move || {
                    for step in 0..500 {
                        let start = (thread + step) % 4;
                        let end = (start + 1 + step % 3).min(4);
                        let taken = match step % 50 {
                            0 => ranges.take_all(),
                            _ => ranges.take(start..end),
                        };
                        for block in start..end {
                            let block = &blocks[usize::try_from(block).unwrap()];
                            assert_eq!(block.fetch_add(1, Ordering::SeqCst), 0);
                        }
                        for block in start..end {
                            let block = &blocks[usize::try_from(block).unwrap()];
                            block.fetch_sub(1, Ordering::SeqCst);
                        }
                        drop(taken);
                    }
                });
            }
        });
    }
}
