//! [`LastRead`]: the last read blocks of an object, without a lock. For
//! [`prefetch`](crate::prefetch).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use tarn_ondisk::declare::narrow;

/// Number of regions that are told apart.
const SLOTS: usize = 8;
/// Blocks of a region, as a power of two. A guess: several readers of one file are further apart.
const REGION_SHIFT: u32 = 8;

/// The blocks read last, plus one.
#[derive(Debug, Default)]
pub(crate) struct LastRead([AtomicU64; SLOTS]);

impl LastRead {
    /// Notes a read. True if it is the next step of a reader.
    pub fn is_next_step(&self, blocks: &Range<u64>) -> bool {
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
