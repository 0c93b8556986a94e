//! Prefetch: the pointers of blocks that readers will probably want next.
//!
//! # Mechanism
//! The cache watches reads, and names the blocks to prefetch; here their pointers are looked up.
//! Asking the cache takes a lock that all readers share. So each object remembers, without a lock,
//! its last read blocks, one for each of a few regions, and asks only for a block whose predecessor
//! is among them: one lock for each block that a sequential reader moves on, none for random reads
//! and none for reads within a block.
//!
//! # Invariants
//! - Nothing here can fail: a pointer that cannot be looked up is not prefetched, and the read of
//!   the block reports why.

use std::ops::Range;

use tarn_cache::ObjectKey;
use tarn_ondisk::units::{BlockId, Level};
use tarn_probe::{Operation, Outcome};

use crate::object::Object;
use crate::tree_shape::kind_of;

impl Object {
    /// Called before these blocks are read: prefetches the blocks that will probably be wanted
    /// next.
    pub(crate) fn read_ahead(&self, blocks: Range<u64>, operation: &Operation) {
        if blocks.is_empty() || !self.last_read.is_next_step(&blocks) {
            return;
        }
        operation.mark(Outcome::Sequential);
        let (block_size, max_block, object_type) = {
            let state = self.state.lock();
            let shape = &state.newest;
            (
                shape.block_size.get(),
                shape.max_block.get(),
                shape.object_type,
            )
        };
        if max_block == 0 {
            return;
        }
        let cache = &self.context.env.cache;
        let key = ObjectKey {
            pool: cache.pool(),
            objset: self.context.id.get(),
            object: self.id.get(),
        };
        let Some(wanted) = cache.cache().prefetcher().observe(key, blocks, block_size) else {
            return;
        };
        let wanted = wanted.start..wanted.end.min(max_block.saturating_add(1));
        let kind = kind_of(object_type);
        let wanted: Vec<_> = wanted
            .map_while(|block| {
                let pointer = self.stored_pointer(Level::ZERO, block, operation).ok()?;
                let scope = self.scope(Level::ZERO, BlockId::from(block), kind);
                Some((pointer, scope))
            })
            .filter(|(pointer, _)| !pointer.is_hole())
            .collect();
        cache.prefetch(&wanted, operation);
    }
}
