//! Reserved room of writers: worst-case bytes that they may take, until their changes are dirty.
//!
//! Dirty changes count in the transactions of `tarn_object`; the file `limits` judges both
//! together.

use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_host::lock::{Mutex, MutexGuard, Rank};
use tarn_ondisk::units::{ObjectId, Txg};

/// The promises.
const PROMISED: Rank = Rank::new(tarn_host::ranks::DATASET, "promised room");

/// So much leave is given beyond what was asked for, where there is room for several times as
/// much.
pub(crate) const ADVANCE_BYTES: u64 = 16 << 20;

/// What writers have leave for and have not dirtied yet.
pub(crate) struct PromisedRoom(Mutex<Promises>);

#[derive(Default)]
pub(crate) struct Promises {
    /// By head.
    leaves: BTreeMap<ObjectId, u64>,
    /// Leave that was given to heads in advance and is not taken yet, and the group it is for.
    advances: BTreeMap<ObjectId, (Txg, u64)>,
    /// All that was given since the pool was opened.
    given: u64,
}

impl PromisedRoom {
    /// Nothing.
    pub(crate) fn new() -> Arc<PromisedRoom> {
        Arc::new(PromisedRoom(Mutex::new(PROMISED, Promises::default())))
    }

    /// The promises, to be judged and given in one step.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Promises> {
        self.0.lock()
    }

    /// Takes from what the head was given in advance. Says whether that sufficed.
    pub(crate) fn take_advance(&self, head: ObjectId, open: Txg, bytes: u64) -> bool {
        let mut promises = self.0.lock();
        match promises.advances.get_mut(&head) {
            Some((txg, left)) if *txg == open && *left >= bytes => {
                *left -= bytes;
                true
            }
            _ => false,
        }
    }
}

impl Promises {
    /// What is promised, by head.
    pub(crate) fn by_head(&self, open: Txg) -> BTreeMap<ObjectId, u64> {
        let mut sums = self.leaves.clone();
        let advances = self.advances.iter().filter(|(_, (txg, _))| *txg == open);
        for (head, (_, left)) in advances {
            *sums.entry(*head).or_default() += left;
        }
        sums
    }

    /// All that is promised.
    pub(crate) fn sum(&self, open: Txg) -> u64 {
        self.by_head(open).values().sum()
    }

    /// All that was given since the pool was opened, modulo 2^64.
    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    /// Leave for a head, until it is dropped.
    pub(crate) fn give(&mut self, head: ObjectId, bytes: u64) {
        assert!(bytes > 0, "a promise has bytes");
        *self.leaves.entry(head).or_default() += bytes;
        self.given = self.given.wrapping_add(bytes);
    }

    /// Leave for later writers to this head. What was left of an earlier one is forgotten.
    pub(crate) fn give_advance(&mut self, head: ObjectId, open: Txg) {
        self.advances.retain(|_, (txg, _)| *txg == open);
        self.advances.insert(head, (open, ADVANCE_BYTES));
        debug_assert!(
            self.advances.values().all(|(txg, _)| *txg == open),
            "advances are of the open group"
        );
        self.given = self.given.wrapping_add(ADVANCE_BYTES);
    }
}

/// Reserved room. To be dropped when its change is dirty, or is not made.
#[must_use = "room is promised as long as the leave is kept"]
pub struct Leave {
    promised: Option<(Arc<PromisedRoom>, ObjectId, u64)>,
}

impl Leave {
    /// Leave that was taken from what the head was given in advance.
    pub(crate) fn of_advance() -> Leave {
        Leave { promised: None }
    }

    /// Leave that counts as promised until it is dropped.
    pub(crate) fn of_promise(promised: &Arc<PromisedRoom>, head: ObjectId, bytes: u64) -> Leave {
        Leave {
            promised: Some((promised.clone(), head, bytes)),
        }
    }

    /// Whether it promises anything: not where it was taken from leave that was given in advance.
    pub fn is_to_be_kept(&self) -> bool {
        self.promised.is_some()
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let Some((promised, head, bytes)) = self.promised.take() else {
            return;
        };
        let mut promises = promised.0.lock();
        let left = promises.leaves.get_mut(&head);
        let left = left.expect("a leave counts as promised until it is dropped");
        assert!(*left >= bytes, "a head is promised the sum of its leaves");
        *left -= bytes;
        if *left == 0 {
            promises.leaves.remove(&head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leave_counts_until_it_is_dropped() {
        let promised = PromisedRoom::new();
        let (head, open) = (ObjectId::new(5), Txg::from(7));
        promised.lock().give(head, 30);
        promised.lock().give_advance(head, open);
        let leave = Leave::of_promise(&promised, head, 30);
        let sum = |open| promised.lock().sum(open);
        assert_eq!(sum(open), 30 + ADVANCE_BYTES);
        assert!(promised.take_advance(head, open, 10));
        assert_eq!(sum(open), 20 + ADVANCE_BYTES);
        assert!(!promised.take_advance(head, open.next(), 10));
        assert_eq!(sum(open.next()), 30, "an advance ends with its group");
        drop(leave);
        assert_eq!(sum(open.next()), 0);
    }
}
