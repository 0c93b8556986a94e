//! Open datasets of a pool, in memory only: object sets, intent logs, receives, uses, and reserved
//! room. Each table is empty when the pool is imported.
//!
//! The tables here know nothing of the tree. Files beside this folder join both: `heads` opens an
//! object set from the tree, `limits` judges room by stored and reserved space.

mod heads;
mod logs;
mod pool_room;
mod promised_room;
mod receives;
mod uses;

pub(crate) use heads::OpenHeads;
pub(crate) use logs::OpenLogs;
pub(crate) use pool_room::PoolRoom;
pub use promised_room::Leave;
pub(crate) use promised_room::{ADVANCE_BYTES, PromisedRoom, Promises};
pub(crate) use receives::Receives;
pub use receives::{ReceiveClaim, ResumePoint};
pub(crate) use uses::Uses;

use crate::chain_changes::ChainChanges;
use crate::snapshots_served::SnapshotsServed;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// How many blocks a part of a livelist may have before the next is begun.
#[doc(alias = "zfs_livelist_max_entries")]
const LIVELIST_BLOCKS_MAX: u64 = 500_000;

/// What is open of the datasets of a pool.
pub(crate) struct OpenDatasets {
    /// Object sets that are open for writing.
    pub(crate) heads: OpenHeads,
    /// Intent logs of mounted datasets.
    pub(crate) logs: OpenLogs,
    /// Receives under way.
    pub(crate) receives: Arc<Receives>,
    /// Datasets that are not to be destroyed now.
    pub(crate) uses: Uses,
    /// Room that writers were promised and have not dirtied yet.
    pub(crate) promised: Arc<PromisedRoom>,
    /// What all datasets together may use.
    pub(crate) room: PoolRoom,
    /// The engine that serves snapshots, once there is one.
    pub(crate) snapshots_served: OnceLock<Arc<dyn SnapshotsServed>>,
    /// Changes of chains of snapshots in the syncing txg.
    pub(crate) chain_changes: ChainChanges,
    /// Counts changes of how blocks are written.
    property_generation: AtomicU64,
    /// How many blocks a part of a livelist may have.
    livelist_blocks_max: AtomicU64,
}

impl OpenDatasets {
    /// Nothing is open.
    pub(crate) fn new() -> OpenDatasets {
        OpenDatasets {
            heads: OpenHeads::new(),
            logs: OpenLogs::new(),
            receives: Arc::new(Receives::new()),
            uses: Uses::new(),
            promised: PromisedRoom::new(),
            room: PoolRoom::default(),
            snapshots_served: OnceLock::new(),
            chain_changes: ChainChanges::new(),
            property_generation: AtomicU64::new(0),
            livelist_blocks_max: AtomicU64::new(LIVELIST_BLOCKS_MAX),
        }
    }

    /// Changes whenever blocks of some dataset may have to be written otherwise than before.
    pub(crate) fn property_generation(&self) -> u64 {
        self.property_generation.load(Ordering::Acquire)
    }

    /// Blocks of some dataset may have to be written otherwise.
    pub(crate) fn next_property_generation(&self) {
        let before = self.property_generation.fetch_add(1, Ordering::AcqRel);
        assert!(before < u64::MAX, "a generation does not come again");
    }

    /// How many blocks a part of a livelist may have before the next is begun.
    pub(crate) fn livelist_blocks_max(&self) -> u64 {
        self.livelist_blocks_max.load(Ordering::Relaxed)
    }

    /// Has livelists have parts of another size.
    pub(crate) fn set_livelist_blocks_max(&self, blocks: u64) {
        self.livelist_blocks_max.store(blocks, Ordering::Relaxed);
    }
}
