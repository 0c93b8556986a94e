//! What the kernel keeps of what it is told, and for how long.
//!
//! # Mechanism
//! The kernel may keep names and attributes: it makes the changes itself, or is told of those
//! that come through other holders of the dataset (`session/watching`). That there is nothing of
//! a name is never kept, and neither is what is below `.zfs`. Two things change without a
//! request, and the nodes that were told of are remembered ([`RecentNodes`]) as long as the
//! kernel may keep that:
//! - Access control lists end with the property `acltype`. The kernel keeps them with the
//!   attributes, and longer: a change of attributes lets it keep the list that it had.
//! - The space that a file takes is known when the blocks that wait are stored. Until then the
//!   kernel keeps attributes for a short time, and `zpool sync` tells it when that is over.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tarn_engine::files::{Attributes, ControlEntry, FileKind, ObjectId};

use crate::session::Place;

/// How long the kernel may keep names and attributes that change by requests only, in seconds.
const CACHED_S: u64 = 10;

/// The same of attributes of a file whose blocks wait to be stored. One second bounds how old the
/// space is that is shown after a group, and programs that open many new files ask little more.
const UNSETTLED_S: u64 = 1;

/// How long the kernel may keep a name that leads to an object. Where names that differ are the
/// same to the directory the kernel does not know that: it would go on with the other spellings of
/// a name that was given to another file, or taken away. And snapshots are named, and `.zfs` comes
/// and goes, without a word to the kernel.
pub(crate) fn names_cached_s(place: &Place, id: ObjectId) -> u64 {
    let leads_into_snapshot = place.which.is_snapshot() && id == place.files.root();
    let is_control = ControlEntry::of(id).is_some();
    match place.files.naming().normalize() {
        None if !leads_into_snapshot && !is_control => CACHED_S,
        _ => 0,
    }
}

/// For how many seconds the kernel may keep a name and the attributes that come with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryCached {
    pub(crate) name_s: u64,
    pub(crate) attributes_s: u64,
}

/// How long the kernel may keep the attributes of a file.
pub(crate) fn attributes_cached_s(attributes: &Attributes) -> u64 {
    match ControlEntry::of(attributes.id) {
        // Links and times follow the snapshots. A snapshot has its entry's number, and never
        // changes.
        Some(ControlEntry::Root | ControlEntry::Snapshots) => 0,
        None if is_unsettled(attributes) => UNSETTLED_S,
        _ => CACHED_S,
    }
}

/// Whether the space that is told of a file is not the last word. Of directories, which are asked
/// about with each name in them, it is told late.
pub(crate) fn is_unsettled(attributes: &Attributes) -> bool {
    attributes.kind == FileKind::Regular && attributes.is_space_unsettled
}

/// Nodes of which something was told a short while ago.
#[derive(Debug)]
pub(crate) struct RecentNodes {
    /// They are remembered so long at least, and twice as long at most.
    period: Duration,
    periods: Mutex<Periods>,
}

/// Nodes of this period, and of the one before.
#[derive(Debug)]
struct Periods {
    began: Instant,
    now: HashSet<u64>,
    before: HashSet<u64>,
}

impl RecentNodes {
    /// Remembers nodes as long as the kernel may keep their access control lists.
    pub(crate) fn with_lists() -> RecentNodes {
        RecentNodes::of(CACHED_S)
    }

    /// Remembers nodes as long as the kernel may keep what space they take, while that changes.
    pub(crate) fn unsettled() -> RecentNodes {
        RecentNodes::of(UNSETTLED_S)
    }

    fn of(period_s: u64) -> RecentNodes {
        RecentNodes {
            period: Duration::from_secs(period_s),
            periods: Mutex::new(Periods {
                began: Instant::now(),
                now: HashSet::new(),
                before: HashSet::new(),
            }),
        }
    }

    /// The kernel is about to be told of a node, or lets live on what it was told.
    pub(crate) fn note(&self, node: u64) {
        self.note_at(node, Instant::now());
    }

    fn note_at(&self, node: u64, now: Instant) {
        let mut periods = self.periods();
        let age = now.saturating_duration_since(periods.began);
        if age > self.period {
            let noted = std::mem::take(&mut periods.now);
            periods.before = match age > 2 * self.period {
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
        self.periods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_remembered_as_long_as_the_kernel_may_keep_its_list() {
        let lists = RecentNodes::with_lists();
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
