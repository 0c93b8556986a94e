//! The tree of names: from `tank/home@monday` to objects of the MOS, and back.
//!
//! # Mechanism
//! A dataset's name is a path of directories ([`Directory`]), each an object of the MOS with a ZAP
//! of children. A directory has a head dataset; the head has a ZAP of its snapshots' names. Nothing
//! of this is kept in memory here: objects and ZAPs are cached below, and a second copy would have
//! to be kept true.
//!
//! # Consistency
//! The sync thread changes the tree while other threads read it. A structural change (create,
//! destroy, rename) is several objects long, so its `apply` runs between two steps of a version
//! counter. A reader that must see one state ([`Namespace::consistently`]) notes the counter,
//! reads, and reads again if the counter moved. No lock is held while a device is waited for, and a
//! reader delays no other thread.
//!
//! # Knows nothing about
//! Mounting, and how properties are shown.

use crate::dataset::Dataset;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::heads::Heads;
use crate::in_use::InUse;
use crate::limits::Promised;
use crate::livelist;
use crate::names::{DatasetName, NameKind};
use crate::open_logs::OpenLogs;
use crate::receiving::Receiving;
use crate::snapshots_served::SnapshotsServed;
use crate::stored::Reading;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tarn_object::{ObjectError, ObjectSet};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// How often a reader tries again before it takes what it has; structural changes are rare.
const CONSISTENT_READS_MAX: usize = 64;

/// Longest chain of directories that is followed; the format's name limit allows no more
/// components.
pub(crate) const DEPTH_MAX: usize = 256;

/// The datasets of one pool.
pub struct Namespace {
    mos: Arc<ObjectSet>,
    pool_name: String,
    root: ObjectId,
    /// Even when the tree is at rest, odd while a change is applied.
    version: AtomicU64,
    /// What all datasets together may use: the pool's size less slop, in deflated bytes.
    adjusted_bytes: AtomicU64,
    /// What is kept back of the pool.
    slop_bytes: AtomicU64,
    /// What writers have leave for.
    promised: Arc<Promised>,
    /// Counts changes of how blocks are written.
    property_generation: AtomicU64,
    /// Object sets that are open for writing.
    heads: Heads,
    /// Intent logs of mounted datasets.
    logs: OpenLogs,
    /// Receives under way.
    receiving: Arc<Receiving>,
    /// Datasets that are not to be destroyed now.
    in_use: InUse,
    /// The door to the server of snapshots, once it is set.
    snapshots_served: OnceLock<Arc<dyn SnapshotsServed>>,
    /// How many blocks a part of a livelist may have.
    livelist_blocks_max: AtomicU64,
    /// What of it is kept for a checkpoint, and for frees that are not done yet.
    kept_bytes: AtomicU64,
}

impl Namespace {
    /// The namespace whose root directory is this object of the MOS.
    pub fn new(mos: Arc<ObjectSet>, pool_name: &str, root: ObjectId) -> Self {
        Namespace {
            mos,
            pool_name: pool_name.to_string(),
            root,
            version: AtomicU64::new(0),
            adjusted_bytes: AtomicU64::new(0),
            slop_bytes: AtomicU64::new(0),
            promised: Promised::new(),
            property_generation: AtomicU64::new(0),
            heads: Heads::new(),
            logs: OpenLogs::new(),
            receiving: Arc::new(Receiving::new()),
            in_use: InUse::new(),
            snapshots_served: OnceLock::new(),
            livelist_blocks_max: AtomicU64::new(livelist::BLOCKS_MAX),
            kept_bytes: AtomicU64::new(0),
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

    /// The pool's meta object set.
    pub fn mos(&self) -> &Arc<ObjectSet> {
        &self.mos
    }

    /// The name of the pool, which is the name of the root.
    pub fn pool_name(&self) -> &str {
        &self.pool_name
    }

    /// Tells what all datasets together may use; `pool` does so at import and after each txg.
    pub fn set_adjusted_bytes(&self, bytes: u64) {
        self.adjusted_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Tells what is kept back besides, in deflated bytes, so that a full pool can still be
    /// changed.
    pub fn set_slop_bytes(&self, bytes: u64) {
        self.slop_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What is kept back of the pool.
    pub(crate) fn slop_bytes(&self) -> u64 {
        self.slop_bytes.load(Ordering::Relaxed)
    }

    /// The directory that all others are below.
    pub(crate) fn root_directory(&self) -> ObjectId {
        self.root
    }

    /// Changes whenever blocks of some dataset may have to be written otherwise than before: see
    /// [`refresh_policies`](Namespace::refresh_policies).
    pub fn property_generation(&self) -> u64 {
        self.property_generation.load(Ordering::Acquire)
    }

    /// How blocks of this directory's head, and of those below it, are to be written may have
    /// changed.
    pub(crate) fn policies_changed(&self, directory: &Directory<'_>) {
        self.heads.note_changed(directory.id());
        self.property_generation.fetch_add(1, Ordering::AcqRel);
    }

    /// There is no such head any more.
    pub(crate) fn head_destroyed(&self, head: ObjectId) {
        self.forget_head(head);
    }

    /// What writers have leave for.
    pub(crate) fn promised(&self) -> &Arc<Promised> {
        &self.promised
    }

    /// Object sets that are open for writing.
    pub(crate) fn heads(&self) -> &Heads {
        &self.heads
    }

    /// Datasets that are not to be destroyed now.
    pub(crate) fn in_use(&self) -> &InUse {
        &self.in_use
    }

    /// The door to the server of snapshots, once it is set.
    pub(crate) fn snapshots_served(&self) -> &OnceLock<Arc<dyn SnapshotsServed>> {
        &self.snapshots_served
    }

    /// Intent logs of mounted datasets.
    pub(crate) fn logs(&self) -> &OpenLogs {
        &self.logs
    }

    /// Receives under way.
    pub(crate) fn receiving(&self) -> &Arc<Receiving> {
        &self.receiving
    }

    /// Tells what is kept for a checkpoint, and for frees that are not done yet, in deflated bytes:
    /// datasets cannot use it.
    pub fn set_kept_bytes(&self, bytes: u64) {
        self.kept_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What all datasets together may use.
    pub(crate) fn adjusted_bytes(&self) -> u64 {
        let kept = self.kept_bytes.load(Ordering::Relaxed);
        self.adjusted_bytes
            .load(Ordering::Relaxed)
            .saturating_sub(kept)
    }

    /// How many blocks a part of a livelist may have before the next is begun.
    pub(crate) fn livelist_blocks_max(&self) -> u64 {
        self.livelist_blocks_max.load(Ordering::Relaxed)
    }

    /// Has livelists have parts of another size than [`livelist::BLOCKS_MAX`].
    pub fn set_livelist_blocks_max(&self, blocks: u64) {
        self.livelist_blocks_max.store(blocks, Ordering::Relaxed);
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
    ///
    /// # Errors
    /// Those of `read`.
    pub fn consistently<T>(
        &self,
        read: impl Fn() -> Result<T, DatasetError>,
    ) -> Result<T, DatasetError> {
        for _ in 1..CONSISTENT_READS_MAX {
            let before = self.version.load(Ordering::Acquire);
            let outcome = read();
            if before.is_multiple_of(2) && self.version.load(Ordering::Acquire) == before {
                return outcome;
            }
        }
        read()
    }

    /// Runs a structural change. Only the sync thread may, so that one inside another is a part of
    /// it.
    pub fn change<T>(&self, apply: impl FnOnce() -> T) -> T {
        if !self.version.load(Ordering::Acquire).is_multiple_of(2) {
            return apply();
        }
        self.version.fetch_add(1, Ordering::AcqRel);
        let outcome = apply();
        self.version.fetch_add(1, Ordering::AcqRel);
        outcome
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
            set: &self.namespace.mos,
            operation: self.operation,
        }
    }

    /// The root directory.
    ///
    /// # Errors
    /// What could not be read.
    pub fn root(self) -> Result<Directory<'a>, DatasetError> {
        Directory::open(self, self.namespace.root, self.namespace.pool_name.clone())
    }

    /// The directory of a file system or volume, by full name without `@` or `#`.
    ///
    /// # Errors
    /// `NotFound` when a component is missing.
    pub fn directory(self, name: &str) -> Result<Directory<'a>, DatasetError> {
        let not_found = || DatasetError::NotFound {
            name: name.to_string(),
        };
        let mut components = name.split('/');
        if components.next() != Some(self.namespace.pool_name.as_str()) {
            return Err(not_found());
        }
        let mut directory = self.root()?;
        for component in components {
            directory = directory.child(component)?.ok_or_else(not_found)?;
        }
        Ok(directory)
    }

    /// The dataset of this name: a head, or a snapshot.
    ///
    /// # Errors
    /// `NotFound`; bookmarks are no datasets, and are not found here.
    pub fn dataset(self, name: &DatasetName) -> Result<Dataset<'a>, DatasetError> {
        let not_found = || DatasetError::NotFound {
            name: name.to_string(),
        };
        let head = self.directory(name.head())?.head()?.ok_or_else(not_found)?;
        match (name.kind(), name.tail()) {
            (NameKind::Head, _) => Ok(head),
            (NameKind::Snapshot, Some(tail)) => head.snapshot(tail)?.ok_or_else(not_found),
            _ => Err(not_found()),
        }
    }

    /// The dataset of this object number, with its full name found through its parents.
    ///
    /// # Errors
    /// There is no such dataset, or what could not be read.
    pub fn dataset_by_id(self, id: ObjectId) -> Result<Dataset<'a>, DatasetError> {
        Dataset::open_by_id(self, id)
    }

    /// The dataset of this object number, without its name: finding the name takes longer than all
    /// the rest.
    ///
    /// # Errors
    /// There is no such dataset, or what could not be read.
    pub fn dataset_without_name(self, id: ObjectId) -> Result<Dataset<'a>, DatasetError> {
        Dataset::open_unnamed(self, id)
    }

    /// The full name of a directory, found through its parents.
    ///
    /// # Errors
    /// What could not be read, or parents that lead in a circle.
    pub fn directory_name(self, id: ObjectId) -> Result<String, DatasetError> {
        let mut components = Vec::new();
        let mut current = id;
        while current != self.namespace.root {
            if components.len() > DEPTH_MAX {
                return Err(DatasetError::Inconsistent {
                    object: id,
                    why: "its chain of parents does not end",
                });
            }
            let directory = Directory::open(self, current, String::new())?;
            let parent = directory.stored()?.parent;
            let parent_directory = Directory::open(self, parent, String::new())?;
            let children = parent_directory.child_ids()?;
            let found = children.into_iter().find(|(_, child)| *child == current);
            let (component, _) = found.ok_or(DatasetError::Inconsistent {
                object: current,
                why: "its parent does not have it as a child",
            })?;
            components.push(component);
            current = parent;
        }
        components.push(self.namespace.pool_name.clone());
        components.reverse();
        Ok(components.join("/"))
    }
}
