//! Changes of the chains of snapshots that a scan follows.
//!
//! # Problem
//! A scrub or resilver visits datasets one after the other, over many txgs: from a snapshot to the
//! next, from an origin to its clones. Meanwhile datasets are destroyed, snapshotted and exchanged,
//! and the scan has to come to the blocks of each all the same.
//!
//! # Mechanism
//! The places in the sync thread that change a chain leave a [`ChainChange`] here. The sync thread
//! takes them after the jobs of the txg and changes the position and the queue of the scan, in the
//! same txg. Nothing here knows of scans.

use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::ObjectId;

/// The list.
const CHANGES: Rank = Rank::new(tarn_host::ranks::LEAF, "changes of chains");

/// A change of the chain of snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainChange {
    /// A dataset was destroyed.
    #[doc(alias = "dsl_scan_ds_destroyed")]
    Destroyed {
        /// The dataset.
        dataset: ObjectId,
        /// For a snapshot the dataset behind it, which has its blocks now; none for a head.
        next: Option<ObjectId>,
    },
    /// A snapshot was taken: it has the blocks that the head had.
    #[doc(alias = "dsl_scan_ds_snapshotted")]
    Snapshotted {
        /// The head.
        head: ObjectId,
        /// The snapshot.
        snapshot: ObjectId,
    },
    /// Two heads have exchanged their blocks.
    #[doc(alias = "dsl_scan_ds_clone_swapped")]
    Exchanged {
        /// One head.
        one: ObjectId,
        /// The other.
        other: ObjectId,
    },
}

/// The changes that were not taken yet, in their order.
#[derive(Debug)]
pub(crate) struct ChainChanges(Mutex<Vec<ChainChange>>);

impl ChainChanges {
    pub(crate) fn new() -> ChainChanges {
        ChainChanges(Mutex::new(CHANGES, Vec::new()))
    }

    pub(crate) fn push(&self, change: ChainChange) {
        self.0.lock().push(change);
    }

    pub(crate) fn take(&self) -> Vec<ChainChange> {
        std::mem::take(&mut *self.0.lock())
    }
}
