//! How long the kernel may cache names and attributes.
//!
//! # Mechanism
//! The kernel may cache names and attributes: it makes the changes itself, or gets notices of
//! changes by other holders of the dataset (`session/watching`). Missing names are never cached,
//! nor is anything below `.zfs`. Two things change without a request, and their nodes are
//! remembered ([`RecentNodes`]) as long as the kernel may cache them:
//! - Access control lists end with a change of the property `acltype`. The kernel caches them
//!   longer than attributes: a change of attributes lets it keep the list.
//! - The allocated size of a file is known when its dirty blocks are stored. Until then the kernel
//!   caches attributes for a short time, and `zpool sync` invalidates them.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tarn_engine::files::{Attributes, ControlEntry, FileKind, ObjectId};

use crate::session::Place;

/// Seconds for which the kernel may cache names and attributes that change by requests only.
const CACHED_S: u64 = 10;

/// The same for attributes of a file with dirty blocks. One second bounds how late the allocated
/// size is shown after a txg, and programs that open many new files send few more requests.
const UNSETTLED_S: u64 = 1;

/// Seconds for which the kernel may cache a name that leads to an object. None in directories where
/// different spellings are one name: the kernel does not know that, and would keep the other
/// spellings of a name that was removed or given to another file. None below `.zfs`, where names
/// come and go without a request.
pub(crate) fn names_cached_s(place: &Place, id: ObjectId) -> u64 {
    let leads_into_snapshot = place.which.is_snapshot() && id == place.files.root();
    let is_control = ControlEntry::of(id).is_some();
    match place.files.naming().normalize() {
        None if !leads_into_snapshot && !is_control => CACHED_S,
        _ => 0,
    }
}

/// Seconds for which the kernel may cache a name and the attributes that come with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryCached {
    pub(crate) name_s: u64,
    pub(crate) attributes_s: u64,
}

/// Seconds for which the kernel may cache the attributes of a file.
pub(crate) fn attributes_cached_s(attributes: &Attributes) -> u64 {
    match ControlEntry::of(attributes.id) {
        // Links and times change with the snapshots. A snapshot has its entry's number, and never
        // changes.
        Some(ControlEntry::Root | ControlEntry::Snapshots) => 0,
        None if is_unsettled(attributes) => UNSETTLED_S,
        _ => CACHED_S,
    }
}

/// Whether the allocated size of a file is still to change. Not for directories: the kernel asks
/// for their attributes with each name in them, so their size is shown late.
pub(crate) fn is_unsettled(attributes: &Attributes) -> bool {
    attributes.kind == FileKind::Regular && attributes.is_space_unsettled
}

/// Nodes whose attributes or lists were recently sent to the kernel.
#[derive(Debug)]
pub(crate) struct RecentNodes {
    /// They are remembered for one to two of these periods.
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
    /// Remembers nodes as long as the kernel may cache their access control lists.
    pub(crate) fn with_lists() -> RecentNodes {
        RecentNodes::of(CACHED_S)
    }

    /// Remembers nodes as long as the kernel may cache their allocated size while it is to change.
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

    /// Notes a node whose attributes are about to be sent, or whose cached ones are extended.
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

    /// Takes all remembered nodes.
    pub(crate) fn take(&self) -> Vec<u64> {
        let mut periods = self.periods();
        let before = std::mem::take(&mut periods.before);
        before.into_iter().chain(periods.now.drain()).collect()
    }

    fn periods(&self) -> MutexGuard<'_, Periods> {
        // A thread that panicked under the lock was adding a node.
        self.periods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_remembered_while_the_kernel_may_cache_its_list() {
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
