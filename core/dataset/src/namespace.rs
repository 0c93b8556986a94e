//! The datasets of a pool: the stored tree of names, from `tank/home@monday` to objects of the MOS,
//! and the open datasets.
//!
//! # Mechanism
//! A dataset's name is a path of directories (`Directory`), each an object of the MOS with a ZAP of
//! children. A directory has a head dataset; the head has a ZAP of its snapshots' names. None of
//! this is copied to memory here: objects and ZAPs are cached below, and a second copy would have
//! to be kept in step.
//!
//! [`Namespace`] has two halves. The *stored* one is the tree in the MOS, which the sync thread
//! changes while other threads read it: a reader that must see one state uses
//! [`Namespace::consistently`]. The *open* one is in memory only: object sets of heads, intent
//! logs, receives, uses, reserved room. The files of this crate that need both (`heads`,
//! `open_logs`, `receiving`, `in_use`, `limits`) add methods to [`Namespace`], and neither half
//! knows them.
//!
//! # Knows nothing about
//! Mounting, and the display of properties.

use crate::chain_changes::ChainChange;
use crate::error::DatasetError;
use crate::open::{OpenDatasets, PromisedRoom};
use crate::snapshots_served::SnapshotsServed;
use crate::stored::Reading;
use crate::stored_tree::StoredTree;
use std::sync::Arc;
use tarn_object::{ObjectError, ObjectSet};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// The datasets of one pool.
pub struct Namespace {
    stored: StoredTree,
    open: OpenDatasets,
}

impl Namespace {
    /// The namespace whose root directory is this object of the MOS.
    pub fn new(mos: Arc<ObjectSet>, pool_name: &str, root: ObjectId) -> Self {
        Namespace {
            stored: StoredTree::new(mos, pool_name, root),
            open: OpenDatasets::new(),
        }
    }

    /// The tree as one operation sees it.
    pub fn view<'a>(&'a self, operation: &'a Operation) -> View<'a> {
        View {
            namespace: self,
            operation,
            is_syncing: false,
        }
    }

    /// What is stored.
    pub(crate) fn stored(&self) -> &StoredTree {
        &self.stored
    }

    /// What is open.
    pub(crate) fn open(&self) -> &OpenDatasets {
        &self.open
    }

    /// The pool's meta object set.
    pub fn mos(&self) -> &Arc<ObjectSet> {
        self.stored.mos()
    }

    /// The name of the pool, which is the name of the root.
    pub fn pool_name(&self) -> &str {
        self.stored.pool_name()
    }

    /// The directory that all others are below.
    pub(crate) fn root_directory(&self) -> ObjectId {
        self.stored.root_directory()
    }

    /// Reads until nothing moved in between.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn consistently<T>(
        &self,
        read: impl Fn() -> Result<T, DatasetError>,
    ) -> Result<T, DatasetError> {
        self.stored.consistently(read)
    }

    /// Runs a structural change. Only the sync thread may, so that one inside another is a part of
    /// it.
    pub fn change<T>(&self, apply: impl FnOnce() -> T) -> T {
        self.stored.change(apply)
    }

    /// Odd while the structure changes, and another after each change.
    pub(crate) fn version(&self) -> u64 {
        self.stored.version()
    }

    /// The object set of a dataset as it is stored under this root, to read.
    pub(crate) fn open_set(
        &self,
        id: ObjectId,
        root: &BlockPointer,
        operation: &Operation,
    ) -> Result<Arc<ObjectSet>, ObjectError> {
        self.stored.open_set(id, root, operation)
    }

    /// Sets the space that all datasets together may use; `pool` calls it at import and after each
    /// txg.
    pub fn set_adjusted_bytes(&self, bytes: u64) {
        self.open.room.set_adjusted_bytes(bytes);
    }

    /// Sets the slop, in deflated bytes, so that a full pool can still be changed.
    pub fn set_slop_bytes(&self, bytes: u64) {
        self.open.room.set_slop_bytes(bytes);
    }

    /// Sets the space of the checkpoint and of unfinished frees, in deflated bytes: datasets cannot
    /// use it.
    pub fn set_kept_bytes(&self, bytes: u64) {
        self.open.room.set_kept_bytes(bytes);
    }

    /// What is kept back of the pool.
    pub(crate) fn slop_bytes(&self) -> u64 {
        self.open.room.slop_bytes()
    }

    /// What all datasets together may use.
    pub(crate) fn adjusted_bytes(&self) -> u64 {
        self.open.room.usable_bytes()
    }

    /// Room that writers were promised.
    pub(crate) fn promised(&self) -> &Arc<PromisedRoom> {
        &self.open.promised
    }

    /// Changes whenever blocks of some dataset may have to be written otherwise than before: see
    /// [`refresh_policies`](Namespace::refresh_policies).
    pub fn property_generation(&self) -> u64 {
        self.open.property_generation()
    }

    /// How blocks of this directory's head, and of those below it, are to be written may have
    /// changed.
    pub(crate) fn policies_changed(&self, directory: ObjectId) {
        self.open.heads.note_changed(directory);
        self.open.next_property_generation();
    }

    /// An object set that was just made is open.
    pub(crate) fn add_head(&self, set: &Arc<ObjectSet>) {
        self.open.heads.add(set);
    }

    /// Whether this is the open object set of its dataset. It is not when the dataset was
    /// destroyed.
    pub(crate) fn is_open_head(&self, set: &Arc<ObjectSet>) -> bool {
        self.open.heads.has(set)
    }

    /// There is no such head any more: its number can come back as another.
    pub(crate) fn forget_head(&self, head: ObjectId) {
        self.open.heads.forget(head);
    }

    /// How many blocks a part of a livelist may have before the next is begun.
    pub(crate) fn livelist_blocks_max(&self) -> u64 {
        self.open.livelist_blocks_max()
    }

    /// Sets the size of livelists' parts, in blocks.
    pub fn set_livelist_blocks_max(&self, blocks: u64) {
        self.open.set_livelist_blocks_max(blocks);
    }

    /// Sets the door to the engine that serves snapshots. Once, before it serves any.
    ///
    /// # Panics
    /// When it was set before.
    pub fn set_snapshots_served(&self, served: Arc<dyn SnapshotsServed>) {
        let said = self.open.snapshots_served.set(served);
        assert!(said.is_ok(), "one engine serves a pool");
    }

    /// The chain of snapshots has changed.
    pub(crate) fn chain_changed(&self, change: ChainChange) {
        self.open.chain_changes.push(change);
    }

    /// The changes of chains of snapshots since the last call, in their order. For the sync thread.
    pub fn take_chain_changes(&self) -> Vec<ChainChange> {
        self.open.chain_changes.take()
    }

    /// No name leads to this snapshot any more, and it is no dataset.
    pub(crate) fn snapshot_destroyed(&self, snapshot: ObjectId) {
        if let Some(served) = self.open.snapshots_served.get() {
            served.destroyed(snapshot);
        }
    }
}

/// The tree as one operation sees it. Handles that come from it live as long as the operation.
#[derive(Clone, Copy)]
pub struct View<'a> {
    namespace: &'a Namespace,
    operation: &'a Operation,
    is_syncing: bool,
}

impl<'a> View<'a> {
    /// The tree as a task sees it while its group is stored.
    pub(crate) fn in_sync(self) -> View<'a> {
        View {
            is_syncing: true,
            ..self
        }
    }

    /// Whether this is the tree that a task is about to change, and not one that may be another
    /// when the task comes to it.
    pub(crate) fn is_syncing(self) -> bool {
        self.is_syncing
    }

    /// The namespace.
    pub fn namespace(self) -> &'a Namespace {
        self.namespace
    }

    /// The operation on whose behalf the tree is read.
    pub fn operation(self) -> &'a Operation {
        self.operation
    }

    /// The MOS, to read.
    pub(crate) fn mos(self) -> Reading<'a> {
        Reading {
            set: self.namespace.mos(),
            operation: self.operation,
        }
    }
}
