//! One mount: its file system, and the snapshots that were entered below `.zfs`.

mod credentials;
mod handshake;
mod locking;
mod place;
mod requests;
mod snapshots;
mod watching;

pub(crate) use place::Place;
pub use requests::DelayedReply;

use crate::device::Device;
use crate::handles::Handle;
use crate::kept::{RecentNodes, is_unsettled};
use crate::nodes::{Node, Which};
use crate::permission_checks::{Covered, PermissionChecks};
use locking::SessionLocks;
use rustix::io::Errno;
use snapshots::Entered;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tarn_engine::files::{
    Attributes, FileSystem, Holding, ObjectId, Operation, OperationKind, PosixError, Tree, Watcher,
};
use tarn_engine::mounts::Ended;

/// One mount.
pub struct Session {
    tree: Arc<dyn Tree>,
    /// The mount as a holder of its file system.
    holding: Holding,
    /// The device for notices of other holders' changes.
    device: OnceLock<Weak<Device>>,
    /// The state of lock requests.
    locks: SessionLocks,
    itself: Weak<Session>,
    entered: Mutex<Entered>,
    /// Files of the dataset that may be mapped, with their number of such opens.
    mapped: Mutex<BTreeMap<ObjectId, u64>>,
    /// Pages that the kernel has written back.
    written_back: WrittenBack,
    /// Nodes whose access control lists the kernel may cache.
    lists: RecentNodes,
    /// Nodes whose allocated size the kernel may cache until their dirty blocks are stored.
    unsettled: RecentNodes,
    /// The negotiated capabilities.
    agreed: AtomicU64,
    /// The side that checks permissions.
    checks: PermissionChecks,
    /// The minor number of the mount's device; zero until it is known.
    device_number: AtomicU32,
    ended: Ended,
}

/// Writes of pages by the kernel.
#[derive(Default)]
struct WrittenBack {
    count: AtomicU64,
    /// The last error; zero for none.
    refusal: AtomicI32,
}

impl Session {
    /// A session for a tree. `checks` is the side that checks permissions. `ended` is called when
    /// the kernel ends the mount.
    pub fn new(tree: Arc<dyn Tree>, checks: PermissionChecks, ended: Ended) -> Arc<Session> {
        tree.files().keep_removed_directories();
        Arc::new_cyclic(|itself: &Weak<Session>| Session {
            holding: tree.files().hold(itself.clone() as Weak<dyn Watcher>),
            tree,
            device: OnceLock::new(),
            locks: SessionLocks::default(),
            itself: itself.clone(),
            entered: Mutex::new(Entered::default()),
            mapped: Mutex::default(),
            written_back: WrittenBack::default(),
            lists: RecentNodes::with_lists(),
            unsettled: RecentNodes::unsettled(),
            agreed: AtomicU64::new(0),
            checks,
            device_number: AtomicU32::new(0),
            ended,
        })
    }

    /// The side that checks permissions, as negotiated with the kernel.
    pub(crate) fn checks(&self) -> PermissionChecks {
        self.checks
    }

    /// Sets the device number of the mount.
    pub fn shows(&self, device_number: u32) {
        self.device_number.store(device_number, Ordering::Relaxed);
    }

    /// Whether refusing this name would remove mounts below it.
    pub(crate) fn leads_to_mount(
        &self,
        directory: &Place,
        name: &[u8],
        operation: &Operation,
    ) -> bool {
        let number = self.device_number.load(Ordering::Relaxed);
        directory.which == Which::Dataset
            && Covered::read(number).is_on_the_way(&directory.files, directory.id, name, operation)
    }

    /// A file was opened with this handle.
    pub(crate) fn opened(&self, file: &Place, handle: Handle) {
        if file.which == Which::Dataset && handle.may_be_mapped() {
            *self.mapped().entry(file.id).or_default() += 1;
        }
    }

    /// A file is closed that was opened with this handle.
    pub(crate) fn closed(&self, file: &Place, handle: Handle) {
        if file.which.is_snapshot() || !handle.may_be_mapped() {
            return;
        }
        if let Entry::Occupied(mut opens) = self.mapped().entry(file.id) {
            *opens.get_mut() -= 1;
            if *opens.get() == 0 {
                opens.remove();
            }
        }
    }

    /// Whether a file may have stores through mappings that the kernel has not written back.
    pub(crate) fn may_be_mapped(&self, file: &Place) -> bool {
        file.which == Which::Dataset && self.mapped().contains_key(&file.id)
    }

    /// The kernel has written back a page of a mapped file, or was refused.
    pub(crate) fn wrote_back(&self, refusal: Option<Errno>) {
        self.written_back.count.fetch_add(1, Ordering::SeqCst);
        if let Some(errno) = refusal {
            let number = errno.raw_os_error();
            self.written_back.refusal.store(number, Ordering::SeqCst);
        }
    }

    /// The nodes whose access control lists the kernel may cache.
    pub(crate) fn lists(&self) -> &RecentNodes {
        &self.lists
    }

    /// Called before the attributes of a node are sent to the kernel.
    pub(crate) fn telling(&self, node: u64, attributes: &Attributes) {
        if is_unsettled(attributes) {
            self.unsettled.note(node);
        }
    }

    fn mapped(&self) -> MutexGuard<'_, BTreeMap<ObjectId, u64>> {
        // A thread that panicked under the lock was counting one open.
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of a node number.
    pub(crate) fn place(&self, number: u64) -> Result<Place, Errno> {
        let (which, id) = match Node::from_number(number).ok_or(Errno::STALE)? {
            Node::Root => (Which::Dataset, self.tree.files().root()),
            Node::Object { which, id } => (which, id),
        };
        let (files, holder, snapshot) = match which {
            Which::Dataset => (self.tree.files().clone(), self.holding.id(), None),
            which => {
                let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
                // The kernel looks the name up again.
                let snapshot = entered.find(which).ok_or(Errno::STALE)?;
                let (tree, holder) = (snapshot.tree.clone(), snapshot.holding.id());
                (tree.files().clone(), holder, Some(tree))
            }
        };
        Ok(Place {
            files,
            holder,
            snapshot,
            which,
            id,
        })
    }

    /// The node of an object; the root of the dataset is node 1.
    pub(crate) fn node_of(&self, which: Which, files: &FileSystem, id: ObjectId) -> u64 {
        if which == Which::Dataset && id == files.root() {
            return Node::Root.number();
        }
        Node::Object { which, id }.number()
    }

    /// The root of the mounted file system, from which snapshots are entered.
    pub(crate) fn mounted(&self) -> Place {
        let files = self.tree.files().clone();
        Place {
            id: files.root(),
            files,
            holder: self.holding.id(),
            snapshot: None,
            which: Which::Dataset,
        }
    }
}

/// The errno of an operation's error.
pub(crate) fn errno_of(error: &PosixError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// The kind in statistics of requests without one of their own.
pub(crate) const OTHER: OperationKind = OperationKind::Other;

#[cfg(test)]
mod tests;
