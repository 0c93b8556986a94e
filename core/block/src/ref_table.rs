//! A door upward: has this block twins?

use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::units::Txg;

/// What became of a reference that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It was the only one: the block is to be freed.
    Last,
    /// Others are left, and the table has counted.
    Shared,
}

/// Counts the references to blocks that have several: deduplicated ones and clones. Declared here,
/// implemented by `pool`, which has the tables.
pub trait RefTable: Send + Sync {
    /// Gives up one reference to a block, in a txg. Says whether it was the last.
    fn release(
        &self,
        pointer: &BlockPointer,
        txg: Txg,
    ) -> Result<Release, Box<dyn std::error::Error + Send + Sync>>;
}
