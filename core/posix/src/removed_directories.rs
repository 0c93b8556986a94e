//! Removed directories that the kernel of a mount still knows.
//!
//! # Problem
//! A directory that is the current directory of one program may be removed by another. It is not
//! open, so no request says that it is in use; yet the kernel asks for its attributes when the
//! program changes to the directory above, lists it, or changes its mode.
//!
//! # Mechanism
//! The kernel says when it forgets an inode (`FUSE_FORGET`), and knows the directories that are
//! removed through its mount. So each of them counts as open ([`Node::open`]) from the moment it
//! loses its name until it is forgotten ([`FileSystem::forgotten`]), and is in the unlinked set as
//! long. If the mount ends first, the next mount frees it.
//!
//! A front end asks for that ([`FileSystem::keep_removed_directories`]); without it a directory is
//! freed with its name.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tarn_host::lock::Mutex;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::ranks;

/// The removed directories of a file system that are not forgotten yet.
pub(crate) struct RemovedDirectories {
    are_kept: AtomicBool,
    /// How many there are, to see without the lock whether there is any.
    count: AtomicUsize,
    ids: Mutex<BTreeSet<ObjectId>>,
}

impl RemovedDirectories {
    /// Without directories, and without keeping any.
    pub fn new() -> RemovedDirectories {
        RemovedDirectories {
            are_kept: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            ids: Mutex::new(ranks::REMOVED, BTreeSet::new()),
        }
    }

    /// Counts a directory that loses its name as open, if such are kept.
    pub fn enter(&self, node: &Node) {
        let is_kept = node.facts().is_directory() && self.are_kept.load(Ordering::Relaxed);
        if is_kept && node.open() {
            let mut ids = self.ids.lock();
            assert_eq!(
                self.count.load(Ordering::Relaxed),
                ids.len(),
                "the count is that of the set"
            );
            ids.insert(node.id);
            self.count.store(ids.len(), Ordering::Relaxed);
        }
    }

    /// Whether the directory was kept. Then the caller closes it.
    pub fn leave(&self, id: ObjectId) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut ids = self.ids.lock();
        let was_kept = ids.remove(&id);
        self.count.store(ids.len(), Ordering::Relaxed);
        was_kept
    }
}

impl FileSystem {
    /// Keeps directories that lose their names from now on, until they are
    /// [forgotten](Self::forgotten).
    pub fn keep_removed_directories(&self) {
        self.removed.are_kept.store(true, Ordering::Relaxed);
    }

    /// Whether there are removed directories that are not forgotten yet.
    pub fn has_removed_directories(&self) -> bool {
        self.removed.count.load(Ordering::Relaxed) > 0
    }

    /// Notes that the kernel has forgotten a file: it sends no request for it until it looks it up
    /// again.
    ///
    /// # Errors
    /// As [`FileSystem::closed`].
    pub fn forgotten(&self, id: ObjectId, operation: &Operation) -> Result<(), PosixError> {
        match self.removed.leave(id) {
            true => self.closed(id, operation),
            false => Ok(()),
        }
    }
}
