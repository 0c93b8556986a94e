//! The object sets of heads that are open for writing: one for each dataset, shared by all users.
//!
//! # Mechanism
//! The table has weak references to them: an object set lives as long as it is
//! used, and while it has changes that are not stored. Different sets are opened at the same time;
//! of one set, one thread reads what is stored, and others that want it wait for that thread.
//!
//! # Invariants
//! - What is read to open a set is as stored when the set enters the table: nothing changes a head
//!   that is not open. So a head that is being opened is forgotten after that, and a look at all
//!   that are open waits for those that were being opened when it began.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_object::{ObjectSet, Ownership};
use tarn_ondisk::units::ObjectId;

/// The table; taken for a moment.
const HEADS: Rank = Rank::new(tarn_host::ranks::DATASET + 10, "open datasets");

/// The door that tells owners apart; taken for a moment.
const OWNERSHIP: Rank = Rank::new(tarn_host::ranks::DATASET + 11, "ownership");

/// What has changed; taken for a moment.
const CHANGED: Rank = Rank::new(tarn_host::ranks::DATASET + 12, "changed policies");

/// The open heads of a pool.
pub(crate) struct OpenHeads {
    open: Mutex<Open>,
    /// A set was opened, or could not be.
    settled: Condvar,
    ownership: Mutex<Option<Arc<dyn Ownership>>>,
    /// Directories at and below which blocks are to be written otherwise, and heads have not been
    /// told.
    changed: Mutex<BTreeSet<ObjectId>>,
}

/// The object sets that are open.
#[derive(Default)]
struct Open {
    sets: BTreeMap<ObjectId, Weak<ObjectSet>>,
    /// Those that are being opened, by numbers in the order in which that began.
    opening: BTreeMap<ObjectId, u64>,
    last_opening: u64,
    /// From so many on, those that are closed are removed: each look takes time for all.
    count_next_look: usize,
}

impl Open {
    fn insert(&mut self, set: &Arc<ObjectSet>) {
        if self.sets.len() >= self.count_next_look {
            self.sets.retain(|_, set| set.strong_count() > 0);
            self.count_next_look = 2 * self.sets.len() + 16;
        }
        self.sets.insert(set.id(), Arc::downgrade(set));
        assert!(
            self.sets.len() <= self.count_next_look,
            "the table is looked through before it doubles"
        );
    }

    fn find(&self, id: ObjectId) -> Option<Arc<ObjectSet>> {
        let found = self.sets.get(&id).and_then(Weak::upgrade);
        assert!(
            found.as_ref().is_none_or(|set| set.id() == id),
            "an object set is in the table by its id"
        );
        found
    }

    fn all(&self) -> Vec<Arc<ObjectSet>> {
        self.sets.values().filter_map(Weak::upgrade).collect()
    }
}

impl OpenHeads {
    /// None.
    pub(crate) fn new() -> OpenHeads {
        OpenHeads {
            open: Mutex::new(HEADS, Open::default()),
            settled: Condvar::new(),
            ownership: Mutex::new(OWNERSHIP, None),
            changed: Mutex::new(CHANGED, BTreeSet::new()),
        }
    }

    /// The object set of this head that is open; or what `open_set` gives, which is open from then
    /// on. Other threads that want the same one wait meanwhile.
    pub(crate) fn find_or_open<E>(
        &self,
        id: ObjectId,
        open_set: impl FnOnce() -> Result<Arc<ObjectSet>, E>,
    ) -> Result<Arc<ObjectSet>, E> {
        let mut open = self.open.lock();
        loop {
            if let Some(set) = open.find(id) {
                return Ok(set);
            }
            if !open.opening.contains_key(&id) {
                break;
            }
            self.settled.wait(&mut open);
        }
        open.last_opening += 1;
        let number = open.last_opening;
        open.opening.insert(id, number);
        drop(open);
        let mut opening = Opening {
            heads: self,
            id,
            opened: None,
        };
        let set = open_set()?;
        assert_eq!(set.id(), id, "what is opened is what was asked for");
        opening.opened = Some(set.clone());
        Ok(set)
    }

    /// An object set that was just made is open.
    pub(crate) fn add(&self, set: &Arc<ObjectSet>) {
        self.open.lock().insert(set);
    }

    /// Whether this is the open object set of its dataset. It is not when the dataset was
    /// destroyed.
    pub(crate) fn has(&self, set: &Arc<ObjectSet>) -> bool {
        let there = self.open.lock().find(set.id());
        there.is_some_and(|there| Arc::ptr_eq(&there, set))
    }

    /// All that are open.
    pub(crate) fn all(&self) -> Vec<Arc<ObjectSet>> {
        self.open.lock().all()
    }

    /// All that are open, those included that are being opened when this is called.
    pub(crate) fn all_when_opened(&self) -> Vec<Arc<ObjectSet>> {
        let mut open = self.open.lock();
        let last = open.last_opening;
        self.settled.wait_while(&mut open, |open| {
            open.opening.values().any(|number| *number <= last)
        });
        open.all()
    }

    /// A dataset is gone: its number can come back as another.
    pub(crate) fn forget(&self, id: ObjectId) {
        let mut open = self.open.lock();
        let is_opening = |open: &mut Open| open.opening.contains_key(&id);
        self.settled.wait_while(&mut open, is_opening);
        open.sets.remove(&id);
    }

    /// Blocks at and below this directory are to be written otherwise.
    pub(crate) fn note_changed(&self, directory: ObjectId) {
        self.changed.lock().insert(directory);
    }

    /// The directories that were noted since this was asked last.
    pub(crate) fn take_changed(&self) -> BTreeSet<ObjectId> {
        std::mem::take(&mut *self.changed.lock())
    }

    /// Sets the door that tells owners of files apart. Once, before datasets are opened for
    /// writing.
    pub(crate) fn set_ownership(&self, ownership: Arc<dyn Ownership>) {
        *self.ownership.lock() = Some(ownership);
    }

    /// The door that tells owners of a new file system's objects apart.
    pub(crate) fn ownership(&self) -> Option<Arc<dyn Ownership>> {
        self.ownership.lock().clone()
    }
}

/// A set that one thread opens. When that is over, the set is in the table, or nothing of it.
struct Opening<'a> {
    heads: &'a OpenHeads,
    id: ObjectId,
    opened: Option<Arc<ObjectSet>>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut open = self.heads.open.lock();
        let begun = open.opening.remove(&self.id);
        debug_assert!(begun.is_some(), "this thread alone opens it");
        if let Some(set) = &self.opened {
            open.insert(set);
        }
        drop(open);
        self.heads.settled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// An opening that fails after this was done.
    fn fail(heads: &OpenHeads, id: u64, meanwhile: impl FnOnce()) {
        let opened = heads.find_or_open(ObjectId::new(id), || {
            meanwhile();
            Err("it cannot be read")
        });
        assert_eq!(opened.err(), Some("it cannot be read"));
    }

    #[test]
    fn two_heads_are_opened_at_the_same_time() {
        let (heads, both_open) = (OpenHeads::new(), Barrier::new(2));
        std::thread::scope(|scope| {
            for id in [1, 2] {
                let (heads, both_open) = (&heads, &both_open);
                scope.spawn(move || fail(heads, id, || _ = both_open.wait()));
            }
        });
        assert!(heads.open.lock().opening.is_empty());
    }

    #[test]
    fn one_head_is_opened_by_one_thread_at_a_time() {
        let (heads, count) = (OpenHeads::new(), AtomicUsize::new(0));
        let alone = || {
            assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0);
            std::thread::yield_now();
            assert_eq!(count.fetch_sub(1, Ordering::SeqCst), 1);
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| fail(&heads, 7, alone)));
            }
        });
    }

    #[test]
    fn what_is_being_opened_is_forgotten_and_looked_at_afterwards() {
        let (heads, has_begun) = (OpenHeads::new(), Barrier::new(3));
        let is_over = AtomicUsize::new(0);
        let forget = || heads.forget(ObjectId::new(3));
        let look = || drop(heads.all_when_opened());
        let waiting: [&(dyn Fn() + Sync); 2] = [&forget, &look];
        std::thread::scope(|scope| {
            for wait in waiting {
                let (has_begun, is_over) = (&has_begun, &is_over);
                scope.spawn(move || {
                    has_begun.wait();
                    wait();
                    assert_eq!(is_over.load(Ordering::SeqCst), 1);
                });
            }
            fail(&heads, 3, || {
                has_begun.wait();
                assert!(heads.all().is_empty());
                heads.forget(ObjectId::new(4));
                is_over.store(1, Ordering::SeqCst);
            });
        });
    }
}
