//! The table of served file systems: one [`FileSystem`] for each object set, with its holders.
//!
//! # Problem
//! A [`FileSystem`] has a table of files in memory. Two of them over one object set do not see each
//! other's changes, and the updates of one overwrite those of the other. But mounts, exports,
//! commands that set quotas, and entries of `.zfs/snapshot` in several mounts all need the files of
//! one dataset.
//!
//! # Mechanism
//! The table has an entry for each held dataset or snapshot, by the object of the dataset in the
//! MOS. The first [hold](ServedFiles::hold) opens the file system. Holds that come while it is
//! being opened wait; later ones join. A hold has a [purpose](HoldPurpose), by which destroy,
//! rollback, receive, export and unmount find out what keeps a dataset in use.
//!
//! The last hold of a head that leaves in order ([`Held::begin_leaving`]) gets a [`Closing`]: dirty
//! data is stored and the intent log closed before the entry goes, and nothing opens the file
//! system anew in between. A hold that is dropped only leaves. The intent log of a head stays open
//! then, as after umount(8), until the next hold or the next command that needs the head closed.
//!
//! # Invariants
//! - Of one object set, the table gives out one file system at a time.
//! - An entry is there as long as its file system has holders, is being opened, or is being closed.
//! - A destroyed snapshot has no entry, and its file system [ends](FileSystem::set_ending) before
//!   its blocks are allocated again.
//!
//! # Locks
//! One lock, for lookups in the table. It is never held across a wait for a device: the sync thread
//! takes it too.

use crate::files::{FileSystem, ObjectId, Operation, OperationKind, PosixError, Tree, Who};
use crate::tree::ServedTree;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tarn_dataset::snapshots_served::SnapshotsServed;
use tarn_host::lock::{Condvar, Mutex, Rank};

/// The table.
const SERVED: Rank = Rank::new(tarn_host::ranks::ENGINE + 40, "served file systems");

/// What a file system is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldPurpose {
    /// A [`Mounter`](crate::mounts::Mounter) serves it.
    Mount,
    /// A front end that does not mount serves it.
    Export,
    /// A [`Sharer`](crate::sharing::Sharer) serves it while it is mounted.
    Share,
    /// A command reads or changes it, and leaves when it is done.
    Command,
    /// It is a snapshot, entered below `.zfs/snapshot` of a file system that is held.
    SnapshotEntry,
}

/// Whether a hold opened the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The first hold, which opened the file system.
    First,
    /// A later hold: the file system was open.
    Joined,
}

/// The file systems of one pool that are served.
pub struct ServedFiles {
    table: Mutex<Table>,
    /// Signalled when an entry was opened, or removed.
    settled: Condvar,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<ObjectId, Entry>,
    last_number: u64,
}

enum Entry {
    /// The first hold is opening the file system.
    Opening { is_destroyed: bool },
    /// The file system is open, with these holders. Each of them keeps the tree.
    Open {
        tree: Weak<ServedTree>,
        holders: BTreeMap<u64, HoldPurpose>,
    },
    /// The last hold stores dirty data.
    Closing,
}

impl Table {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Sets whether the open file system of a snapshot ends or goes on.
    fn set_ending(&self, snapshot: ObjectId, is_ending: bool) -> Option<Arc<ServedTree>> {
        let Some(Entry::Open { tree, .. }) = self.entries.get(&snapshot) else {
            return None;
        };
        let tree = tree.upgrade()?;
        tree.files().set_ending(is_ending);
        Some(tree)
    }
}

impl ServedFiles {
    pub(crate) fn nothing() -> Arc<ServedFiles> {
        Arc::new(ServedFiles {
            table: Mutex::new(SERVED, Table::default()),
            settled: Condvar::new(),
        })
    }

    /// Holds the file system of a dataset or snapshot. `open` opens it where nothing holds it yet,
    /// and may wait for devices. A snapshot that is destroyed meanwhile is returned all the same,
    /// and [ends](FileSystem::is_ending): the caller looks its name up again.
    ///
    /// # Errors
    /// Those of `open`; nothing is held then.
    pub(crate) fn hold<E>(
        self: &Arc<Self>,
        dataset: ObjectId,
        purpose: HoldPurpose,
        open: impl FnOnce() -> Result<Arc<ServedTree>, E>,
    ) -> Result<(Arc<Held>, Hold), E> {
        if let Some(held) = self.join_or_begin(dataset, purpose) {
            return Ok((held, Hold::Joined));
        }
        let mut opening = Opening {
            served: self,
            dataset,
            is_over: false,
        };
        let tree = open()?;
        assert_eq!(tree.id(), dataset, "the tree is of the entry's object set");
        Ok((opening.finish(tree, purpose), Hold::First))
    }

    /// An open file system, to look at its state in memory. That is no hold: it may close
    /// meanwhile.
    pub fn peek(&self, dataset: ObjectId) -> Option<Arc<ServedTree>> {
        match self.table.lock().entries.get(&dataset) {
            Some(Entry::Open { tree, .. }) => tree.upgrade(),
            _ => None,
        }
    }

    /// Joins the other holds. None where there are none: the caller then opens the file system, and
    /// the entry says so from here on.
    fn join_or_begin(
        self: &Arc<Self>,
        dataset: ObjectId,
        purpose: HoldPurpose,
    ) -> Option<Arc<Held>> {
        let mut table = self.table.lock();
        let number = table.next_number();
        loop {
            match table.entries.get_mut(&dataset) {
                None => {
                    let opening = Entry::Opening {
                        is_destroyed: false,
                    };
                    table.entries.insert(dataset, opening);
                    return None;
                }
                Some(Entry::Open { tree, holders }) => {
                    holders.insert(number, purpose);
                    return Some(Arc::new(Held {
                        tree: tree.upgrade().expect("its holders keep it"),
                        served: self.clone(),
                        number,
                        purpose,
                    }));
                }
                Some(Entry::Opening { .. } | Entry::Closing) => self.settled.wait(&mut table),
            }
        }
    }

    /// The purposes for which a dataset or snapshot is held, one per hold.
    pub(crate) fn purposes(&self, dataset: ObjectId) -> Vec<HoldPurpose> {
        match self.table.lock().entries.get(&dataset) {
            Some(Entry::Open { holders, .. }) => holders.values().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// Whether a dataset or snapshot is held.
    pub fn is_held(&self, dataset: ObjectId) -> bool {
        self.table.lock().entries.contains_key(&dataset)
    }

    /// All heads and snapshots that are held for this purpose.
    pub fn held_for(&self, purpose: HoldPurpose) -> Vec<Arc<ServedTree>> {
        let table = self.table.lock();
        let held = table.entries.values().filter_map(|entry| match entry {
            Entry::Open { tree, holders } if holders.values().any(|one| *one == purpose) => {
                tree.upgrade()
            }
            _ => None,
        });
        held.collect()
    }

    /// Begins to destroy a snapshot: it cannot be entered any more. False, and nothing changes,
    /// when a file of it is open or it is held for another purpose than entries of `.zfs/snapshot`.
    pub fn begin_ending(&self, snapshot: ObjectId) -> bool {
        let ending = self.table.lock().set_ending(snapshot, true);
        let is_entry = |purpose: &HoldPurpose| *purpose == HoldPurpose::SnapshotEntry;
        self.purposes(snapshot).iter().all(is_entry)
            && !ending.is_some_and(|tree| tree.files().is_in_use())
    }

    /// Ends [`begin_ending`](Self::begin_ending): the snapshot was not destroyed after all, or it
    /// was and has no entry any more.
    pub fn go_on(&self, snapshot: ObjectId) {
        let going_on = self.table.lock().set_ending(snapshot, false);
        drop(going_on);
    }

    /// Removes a hold. Where it was the last and `closes`, its tree's entry is returned to be
    /// closed; otherwise an entry without holders is removed.
    fn leave(self: &Arc<Self>, held: &Held, closes: bool) -> Option<Closing> {
        let mut table = self.table.lock();
        let entry = table.entries.get_mut(&held.tree.id());
        let Some(Entry::Open { holders, .. }) = entry else {
            return None;
        };
        // The hold has left before, or its snapshot was destroyed and another dataset has the
        // object number.
        if holders.remove(&held.number).is_none() || !holders.is_empty() {
            return None;
        }
        if closes && held.tree.is_head() {
            table.entries.insert(held.tree.id(), Entry::Closing);
            return Some(Closing {
                served: self.clone(),
                tree: held.tree.clone(),
            });
        }
        table.entries.remove(&held.tree.id());
        None
    }
}

impl SnapshotsServed for ServedFiles {
    /// Open files end too: their blocks may soon belong to another dataset.
    fn destroyed(&self, snapshot: ObjectId) {
        let mut table = self.table.lock();
        let ended = table.set_ending(snapshot, true);
        match table.entries.get_mut(&snapshot) {
            Some(Entry::Opening { is_destroyed }) => *is_destroyed = true,
            // The entry goes for good, as another snapshot can get the object number.
            Some(Entry::Open { .. }) => drop(table.entries.remove(&snapshot)),
            Some(Entry::Closing) | None => {}
        }
        drop(table);
        drop(ended);
    }
}

/// An entry whose file system is being opened. It is removed where that fails.
struct Opening<'a> {
    served: &'a Arc<ServedFiles>,
    dataset: ObjectId,
    is_over: bool,
}

impl Opening<'_> {
    fn finish(&mut self, tree: Arc<ServedTree>, purpose: HoldPurpose) -> Arc<Held> {
        let mut table = self.served.table.lock();
        let number = table.next_number();
        let found = table.entries.remove(&self.dataset);
        match found {
            Some(Entry::Opening { is_destroyed: true }) => tree.files().set_ending(true),
            Some(Entry::Opening {
                is_destroyed: false,
            }) => {
                let open = Entry::Open {
                    tree: Arc::downgrade(&tree),
                    holders: BTreeMap::from([(number, purpose)]),
                };
                table.entries.insert(self.dataset, open);
            }
            _ => unreachable!("only the hold that opens an entry changes it"),
        }
        self.is_over = true;
        drop(table);
        self.served.settled.notify_all();
        Arc::new(Held {
            tree,
            served: self.served.clone(),
            number,
            purpose,
        })
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.served.table.lock().entries.remove(&self.dataset);
            self.served.settled.notify_all();
        }
    }
}

/// A hold on the file system of a dataset or snapshot. Dropping it ends the hold, if it has not
/// ended before.
pub struct Held {
    tree: Arc<ServedTree>,
    served: Arc<ServedFiles>,
    number: u64,
    purpose: HoldPurpose,
}

impl Held {
    /// The purpose of the hold.
    pub fn purpose(&self) -> HoldPurpose {
        self.purpose
    }

    /// The file system's tree.
    pub fn tree(&self) -> &ServedTree {
        &self.tree
    }

    /// The file system's tree, for trees that follow its properties.
    pub(crate) fn weak_tree(&self) -> Weak<ServedTree> {
        Arc::downgrade(&self.tree)
    }

    /// Ends the hold. The last hold of a head gets the head to close; nothing can hold it
    /// meanwhile.
    pub(crate) fn begin_leaving(&self) -> Option<Closing> {
        self.served.leave(self, true)
    }

    /// Ends the hold without storing anything.
    pub(crate) fn leave(&self) {
        let closing = self.served.leave(self, false);
        debug_assert!(closing.is_none(), "it was not to be closed");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.leave();
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({:?}, {:?})", self.tree.files(), self.purpose)
    }
}

impl Tree for Held {
    fn files(&self) -> &Arc<FileSystem> {
        self.tree.files()
    }

    fn snapshot(&self, name: &[u8], operation: &Operation) -> Result<Arc<dyn Tree>, PosixError> {
        self.tree.snapshot(name, operation)
    }

    fn guid(&self) -> u64 {
        self.tree.guid()
    }

    fn snapshot_numbered(
        &self,
        dataset: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<dyn Tree>, PosixError> {
        self.tree.snapshot_numbered(dataset, operation)
    }

    fn is_suspended(&self) -> bool {
        self.tree.is_suspended()
    }

    fn begin(
        &self,
        who: Who,
        kind: OperationKind,
        object: ObjectId,
        range: (u64, u64),
    ) -> Operation {
        self.tree.begin(who, kind, object, range)
    }

    fn finish(&self, operation: Operation) {
        self.tree.finish(operation);
    }
}

/// A head without holders whose dirty data is being stored. It can be held again when this is
/// dropped.
#[must_use]
pub(crate) struct Closing {
    served: Arc<ServedFiles>,
    tree: Arc<ServedTree>,
}

impl Closing {
    /// The tree of the head.
    pub(crate) fn tree(&self) -> &ServedTree {
        &self.tree
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let closed = self.served.table.lock().entries.remove(&self.tree.id());
        debug_assert!(matches!(closed, Some(Entry::Closing)));
        self.served.settled.notify_all();
    }
}
