//! The door [`SnapshotsServed`]: ends the file systems that serve a destroyed snapshot.
//!
//! # Problem
//! A file system that serves a snapshot reads by the snapshot's block pointers. When the snapshot
//! is destroyed, its blocks are freed, and some txgs later other blocks are in their places. Of a
//! block with several copies one may still be intact: a read verifies that one, and self-heal would
//! write it over the new blocks in the places of the others. No command can close the file system
//! before: a snapshot is also destroyed with its last hold, with its last clone, by a receive, by
//! rmdir in `.zfs/snapshot`, and while a front end is about to open it.
//!
//! # Mechanism
//! Each way to destroy a snapshot comes to one place in the sync thread. There, when no name leads
//! to the snapshot any more, the door is called.
//!
//! # Invariants
//! - A server registers before it looks up the snapshot. So either it does not find it, or the door
//!   is called for it.
//! - The server ends at once: blocks are reused only when later txgs are stored.

use tarn_ondisk::units::ObjectId;

/// The servers of snapshots of a pool.
pub trait SnapshotsServed: Send + Sync {
    /// This snapshot was destroyed: it is served no longer. Called by the sync thread, which waits
    /// for nothing here.
    fn destroyed(&self, snapshot: ObjectId);
}
