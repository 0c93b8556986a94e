//! Reading ahead of readers.
//!
//! # Mechanism
//! The cache watches who reads what, and says which blocks should be brought in; here their pointers are looked up. Asking the cache
//! takes a lock that all readers share. So each object remembers, without a lock, the blocks it was read at last, one for
//! each of a few regions, and asks only for a block whose predecessor is among them: one lock for each block that a sequential
//! reader moves on, none for random reads and none for reads within a block.
//!
//! # Invariants
//! - Nothing here can fail: a pointer that cannot be looked up is not prefetched, and whoever reads the block hears why.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use tarn_cache::{Kind, ObjectKey};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::units::Level;
use tarn_probe::Operation;

use crate::object::Object;

/// How many regions are told apart.
const SLOTS: usize = 8;
/// How many blocks are a region, as a power of two. A guess: readers of one file are further apart, if there are several.
const REGION_SHIFT: u32 = 8;

/// The blocks read last, plus one.
#[derive(Debug, Default)]
pub(crate) struct LastRead([AtomicU64; SLOTS]);

impl LastRead {
    /// Notes a read. True if it is the next step of a reader.
    fn is_next_step(&self, blocks: &Range<u64>) -> bool {
        let previous = self
            .slot(blocks.start.saturating_sub(1))
            .load(Ordering::Relaxed);
        let last = self.slot(blocks.end - 1);
        if last.load(Ordering::Relaxed) == blocks.end {
            return false;
        }
        last.store(blocks.end, Ordering::Relaxed);
        blocks.start > 0 && previous == blocks.start || blocks.end - blocks.start > 1
    }

    fn slot(&self, block: u64) -> &AtomicU64 {
        &self.0[narrow(block >> REGION_SHIFT) % SLOTS]
    }
}

impl Object {
    /// These blocks are about to be read: has those read that will probably be wanted next.
    pub(crate) fn read_ahead(&self, blocks: Range<u64>, operation: &Operation) {
        if blocks.is_empty() || !self.last_read.is_next_step(&blocks) {
            return;
        }
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
        let pointers: Vec<_> = wanted
            .map_while(|block| self.stored_pointer(Level::ZERO, block, operation).ok())
            .filter(|pointer| !pointer.is_hole())
            .collect();
        let kind = if object_type.is_metadata() {
            Kind::Metadata
        } else {
            Kind::Data
        };
        cache.prefetch(&pointers, kind, operation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_of_a_sequential_reader_are_noticed() {
        let last = LastRead::default();
        assert!(!last.is_next_step(&(0..1)), "a first read is no step");
        assert!(last.is_next_step(&(1..2)));
        assert!(!last.is_next_step(&(1..2)), "again in the same block");
        assert!(last.is_next_step(&(2..3)));
        assert!(!last.is_next_step(&(1000..1001)));
        assert!(
            last.is_next_step(&(3..4)),
            "another reader does not disturb"
        );
        assert!(last.is_next_step(&(1001..1002)));
        assert!(!last.is_next_step(&(7..8)));
        for block in 200..600 {
            assert_eq!(
                last.is_next_step(&(block..block + 1)),
                block > 200,
                "block {block}"
            );
        }
    }
}
