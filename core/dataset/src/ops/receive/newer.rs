//! Snapshots of a target that are newer than the increment's base, which `-F` destroys.

use super::receiver::busy;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::ops::bookmark::DestroyBookmarks;
use crate::ops::destroy_snapshot::DestroySnapshots;
use crate::task::TaskRefusal;
use tarn_ondisk::units::Txg;

/// What of a target is newer than what the clone was made of, and goes.
pub(super) struct Newer {
    pub(super) snapshots: DestroySnapshots,
    /// Of a past that is no longer the target's: an increment from there would be wrong.
    pub(super) bookmarks: DestroyBookmarks,
}

/// What of a target is newer than its snapshot of this group.
pub(super) fn newer_than(target: &Dataset<'_>, base: Txg) -> Result<Newer, DatasetError> {
    let mut snapshots = Vec::new();
    for snapshot in target.snapshots()? {
        if snapshot.stored()?.creation_txg > base {
            snapshots.push(snapshot.name());
        }
    }
    let bookmarks = target.bookmarks()?;
    let bookmarks = bookmarks
        .iter()
        .filter(|one| one.stored.creation_txg > base);
    let bookmarks = bookmarks.map(|one| format!("{}#{}", target.name(), one.name));
    Ok(Newer {
        snapshots: DestroySnapshots {
            names: snapshots,
            defer: false,
        },
        bookmarks: DestroyBookmarks {
            names: bookmarks.collect(),
        },
    })
}

/// Refuses a stream at its beginning that could not be ended: snapshots would have to go that
/// clones or holds keep. Whether they do is decided at the end.
pub(super) fn check_newer_can_go(target: &Dataset<'_>, base: Txg) -> Result<(), TaskRefusal> {
    let mut refused = Vec::new();
    for snapshot in target.snapshots()? {
        let stored = snapshot.stored()?;
        if stored.creation_txg <= base {
            continue;
        }
        if stored.child_count > 1 {
            refused.push((snapshot.name(), TaskRefusal::Cloned));
        } else if snapshot.hold_count()? > 0 {
            refused.push((snapshot.name(), busy("dataset is busy")));
        }
    }
    TaskRefusal::of_several(refused)
}
