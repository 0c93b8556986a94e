//! The table of file systems that are served: one [`FileSystem`] for each object set, with its holders.
//!
//! # Problem
//! A [`FileSystem`] has a table of files in memory. Two of them over one object set do not see each
//! other's changes, and the updates of one overwrite those of the other. But mounts, exports,
//! commands that set quotas, and entries of `.zfs/snapshot` in several mounts all need the files of
//! one dataset.
//!
//! # Mechanism
//! The table has an entry for each dataset or snapshot that is held, by the object of the dataset
//! in the MOS. The first [hold](ServedFiles::hold) opens the file system. Holds that come while it
//! is being opened wait; later ones join. A hold has a [purpose](HoldPurpose), so that destroy,
//! rollback, receive, export and unmount find out what is in their way.
//!
//! The last hold of a head that leaves in order ([`Held::begin_leaving`]) gets a [`Closing`]: what
//! is left is stored and the intent log closed before the entry goes, and nothing opens the file
//! system anew in between. A hold that is dropped only leaves. The intent log of a head stays open
//! then, as after umount(8), until the next hold or the next command that needs the head closed.
//!
//! # Invariants
//! - Of one object set, the table gives out one file system at a time.
//! - An entry is there as long as its file system has holders, is being opened, or is being closed.
//! - A destroyed snapshot has no entry, and its file system [ends](FileSystem::set_ending) before
//!   its blocks are given out again.
//!
//! # Locks
//! One, for looks into the table. No device is waited for under it: the sync thread takes it, too.

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
    /// A command reads or changes it, and leaves when it is done.
    Command,
    /// It is a snapshot, entered below `.zfs/snapshot` of a file system that is held.
    SnapshotEntry,
}

/// What a hold found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It is the first, and has opened the file system.
    First,
    /// The file system was open.
    Joined,
}

/// The file systems of one pool that are served.
pub(crate) struct ServedFiles {
    table: Mutex<Table>,
    /// An entry was opened, or is gone.
    settled: Condvar,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<ObjectId, Entry>,
    last_number: u64,
}

enum Entry {
    /// The first hold opens it.
    Opening { is_destroyed: bool },
    /// It has these holders. Each of them keeps the tree.
    Open {
        tree: Weak<ServedTree>,
        holders: BTreeMap<u64, HoldPurpose>,
    },
    /// The last hold stores what is left.
    Closing,
}

impl Table {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The file system of a snapshot that is open ends, or goes on.
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

    /// Holds the file system of a dataset or snapshot. `open` opens it where nothing holds it yet;
    /// it may wait for devices. A snapshot that is destroyed meanwhile is given all the same, and
    /// [ends](FileSystem::is_ending): its name is to be looked up again.
    ///
    /// # Errors
    /// Those of `open`. Nothing is held then.
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

    /// A file system that is open, for a look at what is in memory. That is no hold: it may be
    /// closed meanwhile.
    pub(crate) fn peek(&self, dataset: ObjectId) -> Option<Arc<ServedTree>> {
        match self.table.lock().entries.get(&dataset) {
            Some(Entry::Open { tree, .. }) => tree.upgrade(),
            _ => None,
        }
    }

    /// Joins the other holds. None where nothing does: the caller is to open it, and an entry says
    /// so from here on.
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

    /// What a dataset or snapshot is held for, each purpose as often as it is.
    pub(crate) fn purposes(&self, dataset: ObjectId) -> Vec<HoldPurpose> {
        match self.table.lock().entries.get(&dataset) {
            Some(Entry::Open { holders, .. }) => holders.values().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// Whether a dataset or snapshot is held.
    pub(crate) fn is_held(&self, dataset: ObjectId) -> bool {
        self.table.lock().entries.contains_key(&dataset)
    }

    /// All heads and snapshots that are held for this purpose.
    pub(crate) fn held_for(&self, purpose: HoldPurpose) -> Vec<Arc<ServedTree>> {
        let table = self.table.lock();
        let held = table.entries.values().filter_map(|entry| match entry {
            Entry::Open { tree, holders } if holders.values().any(|one| *one == purpose) => {
                tree.upgrade()
            }
            _ => None,
        });
        held.collect()
    }

    /// A snapshot is about to be destroyed, and cannot be entered any more. Says whether it may be:
    /// no file of it is open, and it is held for nothing but entries of `.zfs/snapshot`.
    pub(crate) fn begin_ending(&self, snapshot: ObjectId) -> bool {
        let ending = self.table.lock().set_ending(snapshot, true);
        let is_entry = |purpose: &HoldPurpose| *purpose == HoldPurpose::SnapshotEntry;
        self.purposes(snapshot).iter().all(is_entry)
            && !ending.is_some_and(|tree| tree.files().is_in_use())
    }

    /// A snapshot was not destroyed after all, or was and has no entry any more.
    pub(crate) fn go_on(&self, snapshot: ObjectId) {
        let going_on = self.table.lock().set_ending(snapshot, false);
        drop(going_on);
    }

    /// A hold leaves. Gives its tree's entry over to be closed where it was the last and is to
    /// be closed; an entry without holders is removed otherwise.
    fn leave(self: &Arc<Self>, held: &Held, closes: bool) -> Option<Closing> {
        let mut table = self.table.lock();
        let entry = table.entries.get_mut(&held.tree.id());
        let Some(Entry::Open { holders, .. }) = entry else {
            return None;
        };
        // Not there: it has left before, or its snapshot was destroyed and another has the number.
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
    /// Open files end, too: what they read would be another dataset's.
    fn destroyed(&self, snapshot: ObjectId) {
        let mut table = self.table.lock();
        let ended = table.set_ending(snapshot, true);
        match table.entries.get_mut(&snapshot) {
            Some(Entry::Opening { is_destroyed }) => *is_destroyed = true,
            // It never goes on, and another snapshot can get the number.
            Some(Entry::Open { .. }) => drop(table.entries.remove(&snapshot)),
            Some(Entry::Closing) | None => {}
        }
        drop(table);
        drop(ended);
    }
}

/// An entry that is being opened. It goes where that fails.
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

/// A hold on the file system of a dataset or snapshot. It ends when this is dropped, if it did not
/// before.
pub struct Held {
    tree: Arc<ServedTree>,
    served: Arc<ServedFiles>,
    number: u64,
    purpose: HoldPurpose,
}

impl Held {
    /// What it is held for.
    pub fn purpose(&self) -> HoldPurpose {
        self.purpose
    }

    /// What is held.
    pub(crate) fn tree(&self) -> &ServedTree {
        &self.tree
    }

    /// What is held, for those that follow its properties.
    pub(crate) fn weak_tree(&self) -> Weak<ServedTree> {
        Arc::downgrade(&self.tree)
    }

    /// Leaves. The last hold of a head is to close it; nothing can hold it meanwhile.
    pub(crate) fn begin_leaving(&self) -> Option<Closing> {
        self.served.leave(self, true)
    }

    /// Leaves. Nothing is stored for it.
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

/// A head that nothing holds any more, while what is left of it is stored. It can be held again
/// when this is dropped.
#[must_use]
pub(crate) struct Closing {
    served: Arc<ServedFiles>,
    tree: Arc<ServedTree>,
}

impl Closing {
    /// What is being closed.
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
