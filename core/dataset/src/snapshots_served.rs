//! The end of snapshots that are served below `.zfs/snapshot`: the door [`SnapshotsServed`].
//!
//! # Problem
//! A file system that serves a snapshot reads by pointers that it found there. When it is
//! destroyed, its blocks are freed, and some groups later others own the places. Of a block with
//! several copies some may still be there: what is read verifies, and the others are repaired, over
//! what the new owner wrote there. Commands cannot end it: a snapshot also goes with its last hold,
//! with its last clone, with a receive, by names that change, and while serving it is about to
//! begin.
//!
//! # Mechanism
//! Whatever destroys a snapshot comes to one place in the sync thread. There, when no name leads to
//! it any more, the door is told.
//!
//! # Invariants
//! - Serving is announced before the snapshot is looked up. Either the lookup fails, or the door is
//!   told of the end.
//! - What was told ends at once: places are given out again only when later groups are stored.

use crate::namespace::Namespace;
use std::sync::Arc;
use tarn_ondisk::units::ObjectId;

/// The server of snapshots of a pool.
pub trait SnapshotsServed: Send + Sync {
    /// This snapshot was destroyed: it must not be served any more. Called by the sync thread,
    /// which waits for nothing here.
    fn destroyed(&self, snapshot: ObjectId);
}

impl Namespace {
    /// Sets the server of snapshots. Once, before any is served.
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
