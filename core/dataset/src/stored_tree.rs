//! The tree of datasets as it is stored: objects of the MOS, which the sync thread changes while
//! other threads read them.
//!
//! # Consistency
//! A structural change (create, destroy, rename) is several objects long, so its `apply` runs
//! between two steps of a version counter. A reader that must see one state
//! ([`StoredTree::consistently`]) notes the counter, reads, and reads again if the counter moved.
//! No lock is held while a device is waited for, and a reader delays no other thread.
//!
//! # Invariants
//! - The counter is even when the tree is at rest, and odd while a change is applied.
//! - One thread changes the tree at a time: the sync thread.

use crate::error::DatasetError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_object::{ObjectError, ObjectSet};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// How often a reader tries again before it takes what it has; structural changes are rare.
const CONSISTENT_READS_MAX: usize = 64;

/// Longest chain of directories that is followed; the format's name limit allows no more
/// components.
pub(crate) const DEPTH_MAX: usize = 256;

/// The tree of one pool.
pub(crate) struct StoredTree {
    mos: Arc<ObjectSet>,
    pool_name: String,
    root: ObjectId,
    /// Even when the tree is at rest, odd while a change is applied.
    version: AtomicU64,
}

impl StoredTree {
    /// The tree whose root directory is this object of the MOS.
    pub(crate) fn new(mos: Arc<ObjectSet>, pool_name: &str, root: ObjectId) -> StoredTree {
        StoredTree {
            mos,
            pool_name: pool_name.to_string(),
            root,
            version: AtomicU64::new(0),
        }
    }

    /// The pool's meta object set.
    pub(crate) fn mos(&self) -> &Arc<ObjectSet> {
        &self.mos
    }

    /// The name of the pool, which is the name of the root.
    pub(crate) fn pool_name(&self) -> &str {
        &self.pool_name
    }

    /// The directory that all others are below.
    pub(crate) fn root_directory(&self) -> ObjectId {
        self.root
    }

    /// The object set of a dataset as it is stored under this root, to read.
    pub(crate) fn open_set(
        &self,
        id: ObjectId,
        root: &BlockPointer,
        operation: &Operation,
    ) -> Result<Arc<ObjectSet>, ObjectError> {
        let (env, policy) = (self.mos.env().clone(), self.mos.policy());
        ObjectSet::open(env, id, root, policy, None, operation)
    }

    /// Odd while the structure changes, and another after each change.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Reads until nothing moved in between.
    pub(crate) fn consistently<T>(
        &self,
        read: impl Fn() -> Result<T, DatasetError>,
    ) -> Result<T, DatasetError> {
        for _ in 1..CONSISTENT_READS_MAX {
            let before = self.version();
            let outcome = read();
            if before.is_multiple_of(2) && self.version() == before {
                return outcome;
            }
        }
        read()
    }

    /// Runs a structural change, in the sync thread. One inside another is a part of it.
    pub(crate) fn change<T>(&self, apply: impl FnOnce() -> T) -> T {
        if !self.version().is_multiple_of(2) {
            return apply();
        }
        let before = self.version.fetch_add(1, Ordering::AcqRel);
        assert!(
            before.is_multiple_of(2),
            "the version is odd while the tree changes"
        );
        let outcome = apply();
        let during = self.version.fetch_add(1, Ordering::AcqRel);
        assert_eq!(during, before + 1, "the sync thread alone changes the tree");
        outcome
    }
}
