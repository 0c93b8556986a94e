//! The object sets of heads that are open for writing: one for each dataset, shared by all users.
//!
//! # Mechanism
//! The table knows which are open, and keeps none of them: an object set lives as long as it is
//! used, and while it has changes that are not stored.

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
    open: Mutex<BTreeMap<ObjectId, Weak<ObjectSet>>>,
    ownership: Mutex<Option<Arc<dyn Ownership>>>,
    /// Directories at and below which blocks are to be written otherwise, and heads have not been
    /// told.
    changed: Mutex<BTreeSet<ObjectId>>,
}

impl OpenHeads {
    /// None.
    pub(crate) fn new() -> OpenHeads {
        OpenHeads {
            open: Mutex::new(HEADS, BTreeMap::new()),
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
        if let Some(set) = open.get(&id).and_then(Weak::upgrade) {
            return Ok(set);
        }
        let set = open_set()?;
        debug_assert_eq!(set.id(), id, "what is opened is what was asked for");
        open.retain(|_, set| set.strong_count() > 0);
        open.insert(id, Arc::downgrade(&set));
        Ok(set)
    }

    /// An object set that was just made is open.
    pub(crate) fn add(&self, set: &Arc<ObjectSet>) {
        self.open.lock().insert(set.id(), Arc::downgrade(set));
    }

    /// Whether this is the open object set of its dataset. It is not when the dataset was
    /// destroyed.
    pub(crate) fn has(&self, set: &Arc<ObjectSet>) -> bool {
        let there = self.open.lock().get(&set.id()).and_then(Weak::upgrade);
        there.is_some_and(|there| Arc::ptr_eq(&there, set))
    }

    /// All that are open.
    pub(crate) fn all(&self) -> Vec<Arc<ObjectSet>> {
        let open = self.open.lock();
        open.values().filter_map(Weak::upgrade).collect()
    }

    /// A dataset is gone: its number can come back as another.
    pub(crate) fn forget(&self, id: ObjectId) {
        self.open.lock().remove(&id);
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
