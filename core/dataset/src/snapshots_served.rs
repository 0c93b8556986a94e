//! The end of snapshots that are served: the door [`SnapshotsServed`].
//!
//! # Problem
//! A file system that serves a snapshot reads by pointers that it found in the snapshot. When that
//! is destroyed, its blocks are freed, and some groups later others own the places. Of a block with
//! several copies some may still be there: what is read verifies, and self-healing writes the
//! others again, over what the new owner wrote there. No command can close the file system before:
//! a snapshot also goes with its last hold, with its last clone, with a receive, by names that
//! change, and while a front end is about to open it.
//!
//! # Mechanism
//! Whatever destroys a snapshot comes to one place in the sync thread. There, when no name leads to
//! the snapshot any more, the door is called.
//!
//! # Invariants
//! - A server counts itself before it looks for the snapshot. Either it does not find it, or the
//!   door is called for it.
//! - The server ends at once: places are given out again only when later groups are stored.

use tarn_ondisk::units::ObjectId;

/// The servers of snapshots of a pool.
pub trait SnapshotsServed: Send + Sync {
    /// This snapshot was destroyed: it is served no longer. Called by the sync thread, which waits
    /// for nothing here.
    fn destroyed(&self, snapshot: ObjectId);
}
