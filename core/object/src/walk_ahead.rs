//! What a walk will read, prefetched in the order of places.
//!
//! # Problem
//! Blocks of dnodes and of pointers lie all over the devices, in an order that has nothing to do
//! with that of the walk. On a disk with an arm, one that is read when the walk comes to it costs a
//! move of the arm: longer than all that the scan of its objects reads.
//!
//! # Mechanism
//! The blocks of a long stretch of the walk are gathered ([`Soon`]), sorted by their places, and
//! prefetched as one job: the arm goes over the disk once for all of them. How long a stretch is,
//! is bounded by the memory that its blocks take until the walk comes to them.

use tarn_block::BlockScope;
use tarn_cache::{PREFETCH_BLOCKS_MAX, PoolCache};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_probe::Operation;

/// In memory a block takes no more than so many times its bytes on the disk: of blocks of pointers,
/// what is not there takes none. An estimate.
const EXPANSION: u64 = 16;

/// Blocks that are wanted soon.
#[derive(Debug, Default)]
pub(crate) struct Soon {
    blocks: Vec<(BlockPointer, BlockScope)>,
    bytes: u64,
}

impl Soon {
    /// Adds a block, unless its pointer is a hole or makes no sense.
    pub(crate) fn add(&mut self, pointer: &BlockPointer, scope: BlockScope) {
        if pointer.is_hole() || pointer.check().is_err() {
            return;
        }
        let stored = pointer.physical_size().get().saturating_mul(EXPANSION);
        self.bytes += pointer.logical_size().get().min(stored);
        self.blocks.push((*pointer, scope));
    }

    /// Whether they take so much memory, or are as many as can be prefetched at a time.
    pub(crate) fn is_full(&self, bytes_max: u64) -> bool {
        self.bytes >= bytes_max || self.blocks.len() >= PREFETCH_BLOCKS_MAX
    }

    /// Prefetches them.
    pub(crate) fn prefetch(mut self, cache: &PoolCache, operation: &Operation) {
        self.blocks.truncate(PREFETCH_BLOCKS_MAX);
        self.blocks.sort_by_key(|(pointer, _)| {
            let first = pointer.dvas().next();
            first.map(|dva| (dva.vdev(), dva.offset()))
        });
        cache.prefetch(&self.blocks, operation);
    }
}
