//! A door upward: has this block twins?

use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::units::{AllocatedSize, Txg};
use tarn_probe::Operation;

/// What became of a reference that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It was the only one: the block is to be freed.
    Last,
    /// Others are left, and the table has counted.
    Shared,
}

/// Counts the references to blocks that have several: clones, and one day deduplicated ones. Declared here,
/// implemented by `pool`, which has the tables.
pub trait RefTable: Send + Sync {
    /// Whether blocks can get further references.
    fn is_enabled(&self) -> bool;

    /// Gives a block one more reference, as part of a group that is not being stored yet. It counts before anything is
    /// released in that group. `size` is what the block counts for who has it. Called with locks of objects held: it waits for nothing.
    fn add(&self, pointer: &BlockPointer, size: AllocatedSize, txg: Txg);

    /// Gives up one reference to a block, in the group that is being stored, whose thread alone asks. Says whether it was the last.
    ///
    /// # Errors
    /// When the table cannot be read: nobody knows, and the pool must not go on storing.
    fn release(
        &self,
        pointer: &BlockPointer,
        size: AllocatedSize,
        operation: &Operation,
    ) -> Result<Release, Box<dyn std::error::Error + Send + Sync>>;
}
