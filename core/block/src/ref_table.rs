//! The door to reference counts of blocks: the block reference table (BRT).

use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::units::{AllocatedSize, Txg};
use tarn_probe::Operation;

/// The result of releasing a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It was the only one: the block is to be freed.
    Last,
    /// Others are left, and the table has counted.
    Shared,
}

/// Counts the references to blocks that have several: the block reference table of clones; the
/// dedup table is planned. Declared here, implemented by `pool`, which has the tables.
pub trait RefTable: Send + Sync {
    /// Whether blocks can get further references.
    fn is_enabled(&self) -> bool;

    /// Gives a block one more reference, in a txg that is not syncing yet. It counts before
    /// anything is released in that txg. `size` is what the block counts for its dataset. Called
    /// with locks of objects held: never waits.
    fn add(&self, pointer: &BlockPointer, size: AllocatedSize, txg: Txg);

    /// Gives up one reference to a block, in the syncing txg, called by the sync thread only. Says
    /// whether it was the last.
    ///
    /// # Errors
    /// The table cannot be read: the number of references is unknown, and the txg must not be
    /// stored.
    fn release(
        &self,
        pointer: &BlockPointer,
        size: AllocatedSize,
        operation: &Operation,
    ) -> Result<Release, Box<dyn std::error::Error + Send + Sync>>;
}
