//! What the kernel keeps of what it is told, and for how long.
//!
//! # Mechanism
//! Whatever changes a mounted dataset comes through its mount, so the kernel may keep names and
//! attributes. Where something changes without a request, it may not keep it: the space that a file
//! takes, while blocks of it wait to be stored; what is below `.zfs`. That there is nothing of a
//! name is never kept.
//!
//! Access control lists stay with the attributes, and longer: a change of attributes lets the
//! kernel keep the list that it had. Which lists there are changes with the property `acltype`. So
//! [`KeptLists`] remembers the nodes of which the kernel may have one.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tarn_engine::files::{Attributes, ControlEntry, FileKind, ObjectId};

use crate::session::Place;

/// How long the kernel may keep names and attributes that change by requests only, in seconds.
const CACHED_S: u64 = 10;

/// How long the kernel may keep a name that leads to an object. Where names that differ are the
/// same to the directory the kernel does not know that: it would go on with the other spellings of
/// a name that was given to another file, or taken away. And snapshots are named, and `.zfs` comes
/// and goes, without a word to the kernel.
pub(crate) fn names_cached_s(place: &Place, id: ObjectId) -> u64 {
    let leads_into_snapshot = place.which > 0 && id == place.files.root();
    let is_control = ControlEntry::of(id).is_some();
    match place.files.naming().normalize() {
        None if !leads_into_snapshot && !is_control => CACHED_S,
        _ => 0,
    }
}

/// How long the kernel may keep the attributes of a file.
pub(crate) fn attributes_cached_s(attributes: &Attributes) -> u64 {
    match ControlEntry::of(attributes.id) {
        // Links and times follow the snapshots. A snapshot has its entry's number, and never
        // changes.
        Some(ControlEntry::Root | ControlEntry::Snapshots) => 0,
        // Directories are asked about with each name in them: what they take is told late, not
        // often.
        None if attributes.kind == FileKind::Regular && attributes.is_space_unsettled => 0,
        _ => CACHED_S,
    }
}

/// Nodes whose access control lists the kernel may keep. Those that it was told of twice as long
/// ago as it keeps attributes are not remembered.
#[derive(Debug)]
pub(crate) struct KeptLists(Mutex<Periods>);

/// Nodes of this period, and of the one before.
#[derive(Debug)]
struct Periods {
    began: Instant,
    now: HashSet<u64>,
    before: HashSet<u64>,
}

impl KeptLists {
    /// None are.
    pub(crate) fn none() -> KeptLists {
        KeptLists(Mutex::new(Periods {
            began: Instant::now(),
            now: HashSet::new(),
            before: HashSet::new(),
        }))
    }

    /// The kernel is about to be told the list of a node, or lets one live on with the attributes
    /// that it is told.
    pub(crate) fn note(&self, node: u64) {
        self.note_at(node, Instant::now());
    }

    fn note_at(&self, node: u64, now: Instant) {
        let period = Duration::from_secs(CACHED_S);
        let mut periods = self.periods();
        let age = now.saturating_duration_since(periods.began);
        if age > period {
            let noted = std::mem::take(&mut periods.now);
            periods.before = match age > 2 * period {
                true => HashSet::new(),
                false => noted,
            };
            periods.began = now;
        }
        periods.now.insert(node);
    }

    /// Gives them, and remembers none.
    pub(crate) fn take(&self) -> Vec<u64> {
        let mut periods = self.periods();
        let before = std::mem::take(&mut periods.before);
        before.into_iter().chain(periods.now.drain()).collect()
    }

    fn periods(&self) -> MutexGuard<'_, Periods> {
        // A thread that panicked while it held them was adding a node.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_remembered_as_long_as_the_kernel_may_keep_its_list() {
        let lists = KeptLists::none();
        let began = Instant::now();
        let noted_s = [(1, 0), (2, 9), (3, 11), (4, 19)];
        for (node, s) in noted_s {
            lists.note_at(node, began + Duration::from_secs(s));
        }
        let mut taken = lists.take();
        taken.sort_unstable();
        assert_eq!(taken, [1, 2, 3, 4]);
        assert!(lists.take().is_empty());
        for (node, s) in [(1, 30), (2, 41), (3, 52)] {
            lists.note_at(node, began + Duration::from_secs(s));
        }
        let mut taken = lists.take();
        taken.sort_unstable();
        assert_eq!(taken, [2, 3], "the first is from before the last period");
        lists.note_at(1, began + Duration::from_secs(53));
        lists.note_at(2, began + Duration::from_secs(80));
        assert_eq!(lists.take(), [2]);
    }
}
