//! Directories without a name that the kernel of a front end still knows.
//!
//! # Problem
//! A program can be in a directory that another removes. It has not opened it, so no request says
//! that the directory is in use; yet the kernel asks for its attributes when the program goes on
//! to the directory above, lists it, or changes its mode.
//!
//! # Mechanism
//! The kernel of a mount says when it forgets a file, and knows the directories that are removed
//! through it. So each of them counts as open ([`Node::open`]) from the moment it loses its name
//! until it is forgotten ([`FileSystem::forgotten`]), and is in the unlinked set as long. What the
//! kernel does not tell, because the mount ends first, is freed by the next mount.
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

/// The directories of a file system that wait to be forgotten.
pub(crate) struct RemovedDirectories {
    are_kept: AtomicBool,
    /// How many there are, for those who only ask whether there is any.
    count: AtomicUsize,
    ids: Mutex<BTreeSet<ObjectId>>,
}

impl RemovedDirectories {
    /// None, and none is kept.
    pub fn new() -> RemovedDirectories {
        RemovedDirectories {
            are_kept: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            ids: Mutex::new(ranks::REMOVED, BTreeSet::new()),
        }
    }

    /// A directory loses its name: it counts as open, if it is kept.
    pub fn enter(&self, node: &Node) {
        let is_kept = node.facts().is_directory() && self.are_kept.load(Ordering::Relaxed);
        if is_kept && node.open() {
            let mut ids = self.ids.lock();
            ids.insert(node.id);
            self.count.store(ids.len(), Ordering::Relaxed);
        }
    }

    /// Whether the directory was kept. Who is told so closes it.
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
    /// From now on a directory that loses its name stays until it is [forgotten](Self::forgotten).
    pub fn keep_removed_directories(&self) {
        self.removed.are_kept.store(true, Ordering::Relaxed);
    }

    /// Whether directories without a name wait to be forgotten.
    pub fn has_removed_directories(&self) -> bool {
        self.removed.count.load(Ordering::Relaxed) > 0
    }

    /// The front end will not be asked about this file any more, until it gives it out again.
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
