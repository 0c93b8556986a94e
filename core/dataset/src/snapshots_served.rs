//! The end of snapshots that somebody serves: the door [`SnapshotsServed`].
//!
//! # Problem
//! Whoever serves the files of a snapshot reads by pointers that he found in it. When it is destroyed, its blocks are freed, and some groups later others own
//! the places. Of a block with several copies some may still be there: what is read verifies, and the others are repaired, over what the new owner wrote there.
//! No command can see to it that he ends: a snapshot also goes with its last hold, with its last clone, with a receive, by names that change, and while somebody is about to begin.
//!
//! # Mechanism
//! Whatever destroys a snapshot comes to one place in the sync thread. There, when no name leads to it any more, the door is told.
//!
//! # Invariants
//! - Who begins to serve says so before he looks for the snapshot. Either he does not find it, or he is told.
//! - What was told ends at once: places are given out again only when later groups are stored.

use crate::namespace::Namespace;
use std::sync::Arc;
use tarn_ondisk::units::ObjectId;

/// Those who serve snapshots of a pool.
pub trait SnapshotsServed: Send + Sync {
    /// This snapshot was destroyed: nobody serves it any more. Called by the sync thread, which waits for nothing here.
    fn destroyed(&self, snapshot: ObjectId);
}

impl Namespace {
    /// Says who serves snapshots. Once, before anybody does.
    ///
    /// # Panics
    /// When it was said before.
    pub fn set_snapshots_served(&self, served: Arc<dyn SnapshotsServed>) {
        let said = self.snapshots_served().set(served);
        assert!(said.is_ok(), "one engine serves a pool");
    }

    /// No name leads to this snapshot any more, and it is no dataset.
    pub(crate) fn snapshot_destroyed(&self, snapshot: ObjectId) {
        if let Some(served) = self.snapshots_served().get() {
            served.destroyed(snapshot);
        }
    }
}
