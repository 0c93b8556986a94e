//! The holders of a served file system: mounts and exports, which are told of each other's changes.
//!
//! # Problem
//! A mount and an export serve one file system. Names, attributes and pages that the mount's kernel
//! caches are stale when the export has changed them, and a page that a program has dirtied through
//! a mapping is not yet in the file when the export reads it.
//!
//! # Mechanism
//! A front end registers a [`Watcher`] (`FileSystem::hold`) and gets a [`HolderId`], which it
//! puts into the [`Who`](tarn_probe::Who) of each of its operations. An operation tells all holders
//! but the one in its `Who` of its changes: after it has released its locks, and before it returns.
//! So a caller that has its answer finds the change through every holder. A failed operation tells
//! too, since it may have made a part of its change.
//!
//! Before an operation reads or changes contents, the other holders write back their dirty pages
//! ([`Watcher::write_back`]).
//!
//! With one holder each operation costs one relaxed load: `sole` has the number of the only holder.
//! A holder that registers later has cached nothing before, and reads state under a lock that an
//! operation releases before it loads `sole`; so either the new holder reads the new state, or the
//! operation sees the new holder.
//!
//! # Invariants
//! - No lock of this crate is held while a watcher is called.
//! - A holder that has ended is not called any more by operations that begin afterwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tarn_host::lock::RwLock;
use tarn_ondisk::units::ObjectId;
use tarn_probe::{HolderId, Operation};

use crate::ranks;

/// The end of a range that reaches to the end of the file, wherever that is.
pub const TO_END: u64 = u64::MAX;

/// What an operation has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// What `stat` shows of a file, its extended attributes and access control lists.
    Attributes {
        /// The file.
        file: ObjectId,
    },
    /// Contents of a file, and its attributes with them.
    Contents {
        /// The file.
        file: ObjectId,
        /// The first byte that may differ.
        offset: u64,
        /// How many bytes may differ; [`TO_END`] for all that follow.
        length: u64,
    },
    /// A name came into a directory, went, or leads to another file; and the directory's
    /// attributes.
    Entry {
        /// The directory.
        directory: ObjectId,
        /// The name.
        name: &'a [u8],
    },
    /// Anything may have changed: properties that names and attributes follow from.
    Everything,
}

/// A door: how a holder hears of changes through other holders.
///
/// It is called in the thread of the operation, which holds no locks. A watcher may call the file
/// system. It must not wait for an operation of another holder.
pub trait Watcher: Send + Sync {
    /// Another holder has made a change: cached copies of it are dropped before this returns.
    fn changed(&self, change: &Change<'_>);

    /// Another holder is about to read or change `length` bytes of a file from `offset` on: dirty
    /// copies of them are written before this returns.
    fn write_back(&self, file: ObjectId, offset: u64, length: u64) {
        let _ = (file, offset, length);
    }

    /// A file that this holder has delegated is about to be changed: it has its clients return the
    /// delegations, or revokes them, in a bounded time ([`delegations`](crate::delegations)). It
    /// returns at once. It is called again for each change that finds the file delegated.
    fn recall(&self, file: ObjectId) {
        let _ = file;
    }
}

/// More than one holder.
const SEVERAL: u64 = u64::MAX;

/// The holders of a file system.
pub(crate) struct Holders {
    /// The only holder's number, 0 for none, or [`SEVERAL`].
    sole: AtomicU64,
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    last: u64,
    watchers: Vec<(HolderId, Weak<dyn Watcher>)>,
}

impl Holders {
    /// No holders.
    pub fn new() -> Holders {
        Holders {
            sole: AtomicU64::new(0),
            table: RwLock::new(ranks::HOLDERS, Table::default()),
        }
    }

    pub fn add(&self, watcher: Weak<dyn Watcher>) -> HolderId {
        let mut table = self.table.write();
        table.last += 1;
        assert!(
            table.last < SEVERAL,
            "the number of a holder means one holder"
        );
        let id = HolderId(table.last);
        debug_assert!(
            table.watchers.iter().all(|(other, _)| *other < id),
            "the number of a holder is new"
        );
        table.watchers.push((id, watcher));
        self.note_sole(&table);
        id
    }

    pub fn remove(&self, id: HolderId) {
        let mut table = self.table.write();
        let removed = table.watchers.iter().position(|(other, _)| *other == id);
        let removed = removed.map(|at| table.watchers.swap_remove(at));
        assert!(removed.is_some(), "a holder ends once");
        self.note_sole(&table);
        drop(table);
        drop(removed);
    }

    fn note_sole(&self, table: &Table) {
        let sole = match table.watchers[..] {
            [] => 0,
            [(HolderId(only), _)] => only,
            _ => SEVERAL,
        };
        self.sole.store(sole, Ordering::Relaxed);
    }

    /// Whether there is no holder but that of this operation.
    fn asks_alone(&self, operation: &Operation) -> bool {
        let sole = self.sole.load(Ordering::Relaxed);
        sole == 0 || sole == operation.who().holder.0
    }

    /// Whether there are holders beside this one.
    pub fn are_others(&self, holder: HolderId) -> bool {
        let sole = self.sole.load(Ordering::Relaxed);
        sole != 0 && sole != holder.0
    }

    /// Tells all holders but that of this operation of a change. The caller holds no locks.
    pub fn tell(&self, change: Change<'_>, operation: &Operation) {
        self.each_other(operation, |other| other.changed(&change));
    }

    /// Has the other holders write back their dirty copies of contents. The caller holds no locks.
    pub fn have_written_back(
        &self,
        file: ObjectId,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) {
        self.each_other(operation, |other| other.write_back(file, offset, length));
    }

    /// Tells of a change at the end of the scope.
    pub fn telling<'a>(&'a self, change: Change<'a>, operation: &'a Operation) -> Telling<'a> {
        Telling {
            holders: self,
            change,
            operation,
        }
    }

    /// Asks these holders to have a file returned. The caller holds no locks.
    pub fn recall(&self, file: ObjectId, holders: &[HolderId]) {
        let asked: Vec<Arc<dyn Watcher>> = {
            let table = self.table.read();
            let asked = table.watchers.iter().filter(|(id, _)| holders.contains(id));
            asked.filter_map(|(_, watcher)| watcher.upgrade()).collect()
        };
        asked.iter().for_each(|holder| holder.recall(file));
    }

    /// Calls all holders but that of this operation.
    fn each_other(&self, operation: &Operation, call: impl Fn(&dyn Watcher)) {
        if self.asks_alone(operation) {
            return;
        }
        let itself = operation.who().holder;
        let others: Vec<Arc<dyn Watcher>> = {
            let table = self.table.read();
            let others = table.watchers.iter().filter(|(id, _)| *id != itself);
            others
                .filter_map(|(_, watcher)| watcher.upgrade())
                .collect()
        };
        others.iter().for_each(|other| call(&**other));
    }
}

/// Tells the other holders of a change when it is dropped. An operation declares it before it takes
/// locks, so that these are released first.
#[must_use = "the change is told when this is dropped"]
pub(crate) struct Telling<'a> {
    holders: &'a Holders,
    change: Change<'a>,
    operation: &'a Operation,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.holders.tell(self.change, self.operation);
    }
}
