//! Where in a metaslab a block goes.
//!
//! # Mechanism
//! While there is room, we allocate behind a cursor: the next block follows the last, and a batch
//! becomes one run on the device. Blocks are kept in streams by the power of two of their size,
//! each with its cursor, so that small blocks fill small gaps and large ones stay contiguous. When
//! nothing fits within reach of the cursor, a large block goes to the largest free range, where its
//! followers fit too; a small one to the tightest. When the metaslab is nearly full or its ranges
//! are small, order no longer pays, and everything goes to the tightest range that fits.
//!
//! # Invariants
//! - If any free range is large enough, a place is found.
//! - A place is made of whole sectors, because free ranges and sizes are.

use crate::range_tree::{Range, RangeTree, bucket};
use tarn_ondisk::units::{AllocatedSize, VdevOffset};

/// How far behind its cursor a block is looked a place for. Like OpenZFS; a search that goes
/// further costs more than the seek it saves.
#[doc(alias = "metaslab_df_max_search")]
const REACH: AllocatedSize = AllocatedSize::new(16 << 20);
/// A metaslab without a range this large is not worth keeping in order. Like OpenZFS.
#[doc(alias = "metaslab_df_alloc_threshold")]
const ORDERLY_RANGE_MIN: u64 = 128 << 10;
/// Nor is one with less than this part free. Like OpenZFS.
#[doc(alias = "metaslab_df_free_pct")]
const ORDERLY_FREE_PERCENT_MIN: u64 = 4;
/// From this size on, a block that begins a new run begins it in the largest range. A guess: where
/// one block costs a device about as much as a seek.
const LARGE_BLOCK: u64 = 64 << 10;

/// How a place is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Behind the cursor while that pays.
    Orderly,
    /// At the start of the tightest range, so that the most blocks fit.
    Tight,
}

/// Where each stream of blocks goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cursors {
    /// By the power of two of the block size; missing ones begin at the start of the metaslab.
    next: Vec<VdevOffset>,
}

impl Cursors {
    fn of(&mut self, size: AllocatedSize) -> &mut VdevOffset {
        let stream = bucket(size.get());
        if self.next.len() <= stream {
            self.next.resize(stream + 1, VdevOffset::ZERO);
        }
        &mut self.next[stream]
    }
}

/// Finds a place of `size` bytes among `free`, of a metaslab of `total` bytes. Takes nothing.
pub(crate) fn pick(
    free: &RangeTree,
    cursors: &mut Cursors,
    total: AllocatedSize,
    size: AllocatedSize,
    fit: Fit,
) -> Option<Range> {
    let cursor = cursors.of(size);
    let place = match fit {
        Fit::Orderly if is_orderly(free, total) => free
            .first_fit(*cursor, size, REACH)
            .or_else(|| new_run(free, size)),
        _ => free.best_fit(size),
    }?;
    assert!(
        place.size >= size,
        "the range that was found is large enough"
    );
    let place = Range::new(place.start, size);
    debug_assert!(free.contains(place), "a block goes where all is free");
    *cursor = place.start + size;
    Some(place)
}

fn is_orderly(free: &RangeTree, total: AllocatedSize) -> bool {
    free.largest().get() >= ORDERLY_RANGE_MIN
        && free.bytes().get() / ORDERLY_FREE_PERCENT_MIN >= total.get() / 100
}

fn new_run(free: &RangeTree, size: AllocatedSize) -> Option<Range> {
    if size.get() >= LARGE_BLOCK {
        free.largest_fit().filter(|range| range.size >= size)
    } else {
        free.best_fit(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn metaslab(ranges: &[(u64, u64)]) -> RangeTree {
        let mut free: RangeTree = ranges
            .iter()
            .map(|&(start, size)| Range::new(VdevOffset::new(start), AllocatedSize::new(size)))
            .collect();
        free.index_by_size();
        free
    }

    fn place(free: &mut RangeTree, cursors: &mut Cursors, size: u64, fit: Fit) -> Option<u64> {
        let total = AllocatedSize::new(64 * MIB);
        let range = pick(free, cursors, total, AllocatedSize::new(size), fit)?;
        free.remove(range).unwrap();
        Some(range.start.get())
    }

    #[test]
    fn blocks_of_one_size_follow_each_other() {
        let mut free = metaslab(&[(0, 64 * MIB)]);
        let mut cursors = Cursors::default();
        let places: Vec<_> = (0..4)
            .map(|_| place(&mut free, &mut cursors, 131072, Fit::Orderly))
            .collect();
        assert_eq!(places, [Some(0), Some(131072), Some(262144), Some(393216)]);
    }

    #[test]
    fn a_full_metaslab_is_filled_tightly() {
        let mut free = metaslab(&[(0, 8192), (16384, 4096), (32768, 131072)]);
        let mut cursors = Cursors::default();
        assert_eq!(
            place(&mut free, &mut cursors, 4096, Fit::Orderly),
            Some(16384)
        );
        assert_eq!(place(&mut free, &mut cursors, 8192, Fit::Orderly), Some(0));
        assert_eq!(
            place(&mut free, &mut cursors, 8192, Fit::Orderly),
            Some(32768)
        );
        assert_eq!(place(&mut free, &mut cursors, MIB, Fit::Orderly), None);
    }

    #[test]
    fn a_large_block_begins_its_run_in_the_largest_range() {
        let mut free = metaslab(&[(0, MIB), (20 * MIB, 2 * MIB), (40 * MIB, 20 * MIB)]);
        let mut cursors = Cursors::default();
        assert_eq!(place(&mut free, &mut cursors, MIB, Fit::Orderly), Some(0));
        let next = place(&mut free, &mut cursors, MIB, Fit::Orderly);
        assert_eq!(next, Some(40 * MIB));
    }

    #[test]
    fn small_blocks_left_behind_the_cursor_are_found_again() {
        let mut free = metaslab(&[(0, 4096), (30 * MIB, 8 * MIB)]);
        let mut cursors = Cursors::default();
        *cursors.of(AllocatedSize::new(4096)) = VdevOffset::new(50 * MIB);
        assert_eq!(place(&mut free, &mut cursors, 4096, Fit::Orderly), Some(0));
    }
}
