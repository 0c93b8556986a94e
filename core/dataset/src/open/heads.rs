//! The object sets of heads that are open for writing: one for each dataset, shared by all users.
//!
//! # Mechanism
//! The table has weak references to them: an object set lives as long as it is used, and while it
//! has changes that are not stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use tarn_host::lock::{Mutex, Rank};
use tarn_object::{ObjectSet, Ownership};
use tarn_ondisk::units::ObjectId;

/// The table. Objects of the MOS are read while it is held, so that a set is opened once.
const HEADS: Rank = Rank::new(tarn_host::ranks::DATASET + 10, "open datasets").across_waits();

/// The door that tells owners apart; taken for a moment.
const OWNERSHIP: Rank = Rank::new(tarn_host::ranks::DATASET + 11, "ownership");

/// What has changed; taken for a moment.
const CHANGED: Rank = Rank::new(tarn_host::ranks::DATASET + 12, "changed policies");

/// The open heads of a pool.
pub(crate) struct OpenHeads {
    open: Mutex<Open>,
    ownership: Mutex<Option<Arc<dyn Ownership>>>,
    /// Directories at and below which blocks are to be written otherwise, and heads have not been
    /// told.
    changed: Mutex<BTreeSet<ObjectId>>,
}

/// The object sets that are open.
#[derive(Default)]
struct Open {
    sets: BTreeMap<ObjectId, Weak<ObjectSet>>,
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
}

impl OpenHeads {
    /// None.
    pub(crate) fn new() -> OpenHeads {
        OpenHeads {
            open: Mutex::new(HEADS, Open::default()),
            ownership: Mutex::new(OWNERSHIP, None),
            changed: Mutex::new(CHANGED, BTreeSet::new()),
        }
    }

    /// The object set of this head that is open; or what `open` gives, which is open from then on.
    /// Other threads wait meanwhile.
    pub(crate) fn find_or_open<E>(
        &self,
        id: ObjectId,
        open_set: impl FnOnce() -> Result<Arc<ObjectSet>, E>,
    ) -> Result<Arc<ObjectSet>, E> {
        let mut open = self.open.lock();
        if let Some(set) = open.find(id) {
            return Ok(set);
        }
        let set = open_set()?;
        debug_assert_eq!(set.id(), id, "what is opened is what was asked for");
        open.insert(&set);
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
        let open = self.open.lock();
        open.sets.values().filter_map(Weak::upgrade).collect()
    }

    /// A dataset is gone: its number can come back as another.
    pub(crate) fn forget(&self, id: ObjectId) {
        self.open.lock().sets.remove(&id);
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
