//! RAID-Z: where the sectors of a block are.
//!
//! # Problem
//! A block on RAID-Z is a row of its own: as many columns as it needs, its own parity, no fixed
//! stripes. So a write never has to read first. The layout follows from offset and size alone, and
//! is part of the format.
//!
//! # Mechanism
//! Sectors are numbered across the children: sector `n` of the vdev is sector `n / width` of child
//! `n % width`. A block that starts at sector `b` and has `s` data sectors takes the next ones, row
//! by row. In every row the first `parity` sectors are parity; column `c` of the block is the run
//! of its sectors on one child. Data goes into the columns one after the other, not row by row, so
//! that each column is one piece of the block:
//!
//! ```text
//!   width 5, parity 1, b = 1, s = 6          child  0   1   2   3   4
//!                                                   .  P0  D0  D2  D4   row 0: b .. b+3
//!                                                  D5  P1  D1  D3   X   row 1; X is skipped
//! ```
//!
//! Three rules besides:
//! - A block is padded with *skipped* sectors to a multiple of `parity + 1`, so that free space
//!   never has a hole too small for any block.
//! - The first columns may be one sector longer than the last; parity has the length of the
//!   longest, and counts missing sectors as zeros.
//! - With one parity, where bit 20 of the offset is set, columns 0 and 1 change places. That was
//!   meant to spread parity over the children, and is part of the format.
//!
//! # Invariants
//! - Columns and skipped sectors together are exactly the sectors of the allocation.

use super::{Column, Layout, Row};
use crate::config::VdevKind;
use crate::health::Standing;
use crate::place::Place;
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::{AllocatedSize, VdevOffset};

/// The bit of an offset that makes a single parity change places with the first data.
const SWAP_BIT: u64 = 1 << 20;

/// The shape of a RAID-Z vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaidzShape {
    /// How many children there are.
    pub width: u64,
    /// How many of them may be lost.
    pub parity: u64,
    /// A sector is `2^ashift` bytes.
    pub ashift: u32,
}

/// The layout of a RAID-Z.
#[derive(Debug)]
pub(super) struct Raidz {
    shape: RaidzShape,
    children: Vec<Vec<usize>>,
}

impl Raidz {
    pub(super) fn new(shape: RaidzShape, children: Vec<Vec<usize>>) -> Raidz {
        assert_eq!(
            widen(children.len()),
            shape.width,
            "a RAID-Z is as wide as its children"
        );
        assert!(
            shape.parity < shape.width,
            "a RAID-Z has data beside its parity"
        );
        assert!(
            (1..=3).contains(&shape.parity),
            "a RAID-Z has one to three parities"
        );
        Raidz { shape, children }
    }
}

impl Layout for Raidz {
    fn rows(&self, place: &Place) -> Vec<Row> {
        vec![self.shape.map(place.offset, place.size)]
    }

    fn allocated_size(&self, physical_bytes: u64) -> AllocatedSize {
        self.shape.allocated_size(physical_bytes)
    }

    fn children(&self) -> &[Vec<usize>] {
        &self.children
    }

    fn parity(&self) -> usize {
        index(self.shape.parity)
    }

    fn standing(&self, leaves: &[Standing]) -> Standing {
        let child = |copies: &Vec<usize>| match copies.as_slice() {
            [one] => leaves[*one],
            copies => {
                let standings: Vec<_> = copies.iter().map(|leaf| leaves[*leaf]).collect();
                Standing::of_parent(VdevKind::Replacing, &standings)
            }
        };
        let standings: Vec<_> = self.children.iter().map(child).collect();
        let parity = u8::try_from(self.shape.parity).expect("parity is at most 3");
        Standing::of_parent(VdevKind::Raidz { parity }, &standings)
    }

    fn has_prefixes(&self) -> bool {
        false
    }

    fn range_on_child(&self, child: usize, range: std::ops::Range<u64>) -> std::ops::Range<u64> {
        self.shape.range_on_child(widen(child), range)
    }
}

impl RaidzShape {
    /// The bytes of a child whose sectors are within a range of the vdev: one run, as sectors go
    /// round the children.
    #[doc(alias = "vdev_raidz_xlate")]
    pub fn range_on_child(&self, child: u64, range: std::ops::Range<u64>) -> std::ops::Range<u64> {
        debug_assert!(
            [range.start, range.end]
                .iter()
                .all(|bound| bound.is_multiple_of(self.sector_bytes())),
            "free ranges are whole sectors"
        );
        // The first row whose sector of the child is not before this one.
        let row = |sector: u64| sector.saturating_sub(child).div_ceil(self.width);
        let [start, end] = [range.start, range.end].map(|bound| row(bound >> self.ashift));
        start << self.ashift..end << self.ashift
    }

    /// How much room a block takes, parity and padding included.
    #[doc(alias = "vdev_raidz_psize_to_asize")]
    pub fn allocated_size(&self, physical_bytes: u64) -> AllocatedSize {
        let data = physical_bytes.div_ceil(self.sector_bytes()).max(1);
        let total = data + self.parity * data.div_ceil(self.width - self.parity);
        let padded = total.next_multiple_of(self.parity + 1);
        AllocatedSize::from(padded << self.ashift)
    }

    /// The layout of a block of `physical_bytes`, a multiple of the sector size.
    ///
    /// # Panics
    /// When the offset or the size is not a multiple of the sector size, or the size is zero: the
    /// caller has rounded.
    #[doc(alias = "vdev_raidz_map_alloc")]
    pub fn map(&self, offset: VdevOffset, physical_bytes: u64) -> Row {
        let sector = self.sector_bytes();
        assert!(
            offset.is_multiple_of(sector),
            "a RAID-Z block starts at a sector"
        );
        assert!(physical_bytes > 0 && physical_bytes.is_multiple_of(sector));
        let first = offset.get() >> self.ashift;
        let data = physical_bytes >> self.ashift;
        let full_rows = data / (self.width - self.parity);
        let rest = data % (self.width - self.parity);
        let longer_columns = if rest == 0 { 0 } else { rest + self.parity };
        let column_count = if full_rows == 0 {
            longer_columns
        } else {
            self.width
        };
        let columns = (0..column_count).map(|column| {
            let rows = full_rows + u64::from(column < longer_columns);
            self.piece(first + column, rows)
        });
        let mut columns: Vec<_> = columns.collect();
        if self.parity == 1 && offset.get() & SWAP_BIT != 0 {
            columns.swap(0, 1);
        }
        let total = data + self.parity * (full_rows + u64::from(rest > 0));
        let padded = total.next_multiple_of(self.parity + 1);
        let skipped = (total..padded).map(|sector| self.piece(first + sector, 1));
        let row = Row {
            columns,
            parity: index(self.parity),
            skipped: skipped.collect(),
        };
        debug_assert_eq!(
            row.columns
                .iter()
                .chain(&row.skipped)
                .map(|column| widen(column.size))
                .sum::<u64>(),
            self.allocated_size(physical_bytes).get(),
            "columns and skipped sectors are the allocation"
        );
        debug_assert_eq!(
            widen(row.data_size()),
            physical_bytes,
            "the data columns have the bytes of the block"
        );
        debug_assert!(
            are_distinct(row.columns.iter().map(|column| column.child)),
            "within a row, a child has at most one column"
        );
        row
    }

    /// A run of sectors on one child, the first of which is sector `sector` of the vdev.
    fn piece(&self, sector: u64, rows: u64) -> Column {
        Column {
            child: index(sector % self.width),
            offset: (sector / self.width) << self.ashift,
            size: index(rows << self.ashift),
        }
    }

    fn sector_bytes(&self) -> u64 {
        1 << self.ashift
    }
}

fn are_distinct(children: impl Iterator<Item = usize>) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    children.into_iter().all(|child| seen.insert(child))
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a block fits in memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn shape(width: u64, parity: u64, ashift: u32) -> RaidzShape {
        RaidzShape {
            width,
            parity,
            ashift,
        }
    }

    /// (child, sector on it) for each sector of the columns.
    fn sectors(columns: &[Column], ashift: u32) -> Vec<(usize, u64)> {
        let sectors_of = |column: &Column| {
            let count = u64::try_from(column.size).unwrap() >> ashift;
            let first = column.offset >> ashift;
            let child = column.child;
            (first..first + count).map(move |sector| (child, sector))
        };
        columns.iter().flat_map(sectors_of).collect()
    }

    #[test]
    fn a_block_is_laid_out_as_in_the_picture() {
        let map = shape(5, 1, 9).map(VdevOffset::from(512), 6 * 512);
        let column = |child, row: u64, rows: usize| Column {
            child,
            offset: row * 512,
            size: rows * 512,
        };
        assert_eq!(
            map.columns,
            [
                column(1, 0, 2),
                column(2, 0, 2),
                column(3, 0, 2),
                column(4, 0, 1),
                column(0, 1, 1)
            ]
        );
        assert_eq!(map.skipped, []);
        let map = shape(5, 1, 9).map(VdevOffset::from(0), 512 * 2);
        assert_eq!(map.skipped, [column(3, 0, 1)]);
    }

    #[test]
    fn single_parity_changes_places_in_every_second_mebibyte() {
        let shape = shape(4, 1, 12);
        let low = shape.map(VdevOffset::from(1 << 21), 12288);
        let high = shape.map(VdevOffset::from(3 << 20), 12288);
        assert_eq!(low.columns[0].child, 0);
        assert_eq!(high.columns[0].child, 1);
        assert_eq!(high.columns[1].child, 0);
        let double = RaidzShape { parity: 2, ..shape }.map(VdevOffset::from(3 << 20), 8192);
        assert_eq!(double.columns[0].child, 0);
    }

    #[test]
    fn room_is_counted_with_parity_and_padding() {
        let size =
            |width, parity, ashift, bytes| shape(width, parity, ashift).allocated_size(bytes).get();
        assert_eq!(size(4, 1, 12, 4096), 8192);
        assert_eq!(size(4, 1, 12, 131_072), 43 * 4096 + 4096);
        assert_eq!(size(6, 2, 9, 512), 1536);
        assert_eq!(size(8, 3, 12, 20_480), 8 * 4096);
        assert_eq!(size(8, 3, 12, 24_576), 12 * 4096);
    }

    proptest! {
        /// Every sector of the allocation is in exactly one column or skipped, none is outside.
        #[test]
        fn every_sector_of_the_allocation_is_used_once(
            width in 2u64..=20,
            parity in 1u64..=3,
            ashift in prop::sample::select(vec![9u32, 12]),
            first in 0u64..5000,
            count in 1u64..=80,
        ) {
            prop_assume!(width > parity);
            let shape = shape(width, parity, ashift);
            let bytes = count << ashift;
            let map = shape.map(VdevOffset::from(first << ashift), bytes);
            let mut found = sectors(&map.columns, ashift);
            found.extend(sectors(&map.skipped, ashift));
            let total = shape.allocated_size(bytes).get() >> ashift;
            let expected: BTreeSet<_> = (first..first + total)
                .map(|sector| (usize::try_from(sector % width).unwrap(), sector / width))
                .collect();
            prop_assert_eq!(u64::try_from(found.len()).unwrap(), total);
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
            for child in 0..width {
                let range = shape.range_on_child(child, first << ashift..(first + total) << ashift);
                let rows: BTreeSet<u64> = (range.start >> ashift..range.end >> ashift).collect();
                let own = (first..first + total).filter(|sector| sector % width == child);
                prop_assert_eq!(rows, own.map(|sector| sector / width).collect());
            }
            let data: usize = map.data().iter().map(|column| column.size).sum();
            prop_assert_eq!(u64::try_from(data).unwrap(), bytes);
            prop_assert!(map.columns.windows(2).all(|pair| pair[0].size >= pair[1].size));
            let mut parity = map.columns[..map.parity].iter();
            prop_assert!(parity.all(|column| column.size == map.column_size_max()));
            let children: BTreeSet<_> = map.columns.iter().map(|column| column.child).collect();
            prop_assert_eq!(children.len(), map.columns.len());
        }
    }
}
