//! Snapshots that were entered below `.zfs`.
//!
//! # Invariants
//! - Within a session, no node number names files of two snapshots, although a new snapshot may get
//!   the dataset number of a destroyed one, whose nodes the kernel may still know.

use super::{Place, Session, errno_of};
use crate::nodes::{RENUMBERED_MAX, Which};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};
use tarn_engine::files::{ControlEntry, FileSystem, Holding, ObjectId, Operation, Tree, Watcher};

/// A snapshot that was entered.
pub(super) struct EnteredSnapshot {
    pub(super) tree: Arc<dyn Tree>,
    /// The mount as a holder of it, for locks. A snapshot does not change, so it gets no notices.
    pub(super) holding: Holding,
}

impl EnteredSnapshot {
    fn place(&self, which: Which) -> Place {
        let files = self.tree.files().clone();
        Place {
            id: files.root(),
            files,
            holder: self.holding.id(),
            snapshot: Some(self.tree.clone()),
            which,
        }
    }
}

/// Entered snapshots, by dataset.
#[derive(Default)]
pub(super) struct Entered {
    by_dataset: BTreeMap<ObjectId, Slot>,
    /// The datasets of renumbered snapshots.
    renumbered: Vec<ObjectId>,
}

/// The last entered snapshot of a dataset number.
struct Slot {
    which: Which,
    /// None when it was destroyed.
    snapshot: Option<EnteredSnapshot>,
    /// Tells it from another snapshot with the same dataset number.
    files: Weak<FileSystem>,
}

impl Entered {
    /// An entered snapshot. Of a destroyed one only the numbering is kept.
    pub(super) fn find(&mut self, which: Which) -> Option<&EnteredSnapshot> {
        let dataset = match which {
            Which::Dataset => return None,
            Which::Snapshot(dataset) => dataset,
            Which::Renumbered(place) => *self.renumbered.get(usize::from(place))?,
        };
        let slot = self.by_dataset.get_mut(&dataset)?;
        if slot.which != which {
            return None;
        }
        if slot
            .snapshot
            .as_ref()
            .is_some_and(|snapshot| snapshot.tree.files().is_ending())
        {
            slot.snapshot = None;
        }
        slot.snapshot.as_ref()
    }

    /// The snapshot with this dataset, if it was entered.
    fn known(&mut self, dataset: ObjectId) -> Option<Place> {
        let which = self.by_dataset.get(&dataset)?.which;
        Some(self.find(which)?.place(which))
    }

    /// Adds an entered snapshot. None where too many were renumbered.
    pub(super) fn add(&mut self, dataset: ObjectId, tree: Arc<dyn Tree>) -> Option<Place> {
        let files = tree.files().clone();
        let of_files = Arc::downgrade(&files);
        let before = self.by_dataset.get(&dataset);
        let own = match before {
            None => Which::of_snapshot(dataset),
            // It was about to be destroyed, and was not.
            Some(slot) => Weak::ptr_eq(&slot.files, &of_files).then_some(slot.which),
        };
        let which = match own {
            Some(which) => which,
            None => {
                let place = self.renumbered.len();
                if place >= RENUMBERED_MAX {
                    return None;
                }
                self.renumbered.push(dataset);
                Which::Renumbered(u16::try_from(place).expect("it has 15 bits"))
            }
        };
        let nothing_to_tell: Weak<dyn Watcher> = Weak::<Session>::new();
        let holding = files.hold(nothing_to_tell);
        let snapshot = EnteredSnapshot { tree, holding };
        let place = snapshot.place(which);
        let slot = Slot {
            which,
            snapshot: Some(snapshot),
            files: of_files,
        };
        self.by_dataset.insert(dataset, slot);
        Some(place)
    }
}

impl Session {
    /// Enters a snapshot at its root: the one with this entry below `.zfs`, found under this name.
    pub(crate) fn enter(
        &self,
        name: &[u8],
        entry: ObjectId,
        operation: &Operation,
    ) -> Result<Place, Errno> {
        let Some(ControlEntry::Snapshot(dataset)) = ControlEntry::of(entry) else {
            return Err(Errno::NOENT);
        };
        let lock = || self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().known(dataset) {
            return Ok(found);
        }
        // Opened without the lock, since it reads from devices; another thread may be faster.
        let tree = self.tree.snapshot(name, operation);
        let tree = tree.map_err(|error| errno_of(&error))?;
        // The name may be another snapshot's by now. The kernel looks it up again.
        if tree.files().object_set().id() != dataset {
            return Err(Errno::STALE);
        }
        let mut entered = lock();
        if let Some(found) = entered.known(dataset) {
            return Ok(found);
        }
        entered.add(dataset, tree).ok_or(Errno::NOENT)
    }
}
