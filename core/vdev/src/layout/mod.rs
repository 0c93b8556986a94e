//! Layouts: where on the leaves of a top-level vdev the bytes of a block are.
//!
//! # Mechanism
//! A configuration may nest (a mirror in which a device is being replaced, a RAID-Z in which a hot
//! spare stands in), but bytes can be on devices in two ways only: as *copies*, any of which will
//! do, or as *columns* of rows with parity, each of which again is one or more copies. So a
//! top-level vdev has *children*, each of them a list of leaves with the same bytes, and a
//! [`Layout`] says for a place which [`Row`]s of columns over those children hold it. A mirror is
//! one child with many leaves, and a row of one column; a single device is a mirror of one.
//!
//! Each layout is in a file of its own. Reading, writing, self-healing and health use rows and
//! children only, whatever the layout.
//!
//! # Invariants
//! - The data columns of the rows, one behind the other, have the bytes of the block in their
//!   order.
//! - Within a row, a child has at most one column.

pub(crate) mod mirror;
pub mod raidz;
mod single;

use crate::config::{VdevConfig, VdevKind};
use crate::health::{Reason, Standing, VdevState};
use crate::place::Place;
use std::fmt;
use tarn_ondisk::declare::widen;
use tarn_ondisk::label::device_offset;
use tarn_ondisk::units::{AllocatedSize, VdevOffset};

/// How the blocks of a top-level vdev lie on its leaves.
pub(crate) trait Layout: fmt::Debug + Send + Sync {
    /// The rows that hold the block at a place, whose size is a multiple of the sector.
    fn rows(&self, place: &Place) -> Vec<Row>;

    /// The allocated size (`asize`) of a block of so many bytes, parity and padding included.
    fn allocated_size(&self, physical_bytes: u64) -> AllocatedSize;

    /// For each child, the leaves that have its bytes, as indices into the leaves of the vdev.
    fn children(&self) -> &[Vec<usize>];

    /// How many children may be lost: the parity of a RAID-Z, 0 for copies.
    fn parity(&self) -> usize;

    /// The standing of the vdev whose leaves are like this.
    fn standing(&self, leaves: &[Standing]) -> Standing;

    /// Whether a shorter block at the same offset has the same rows as the start of a longer one:
    /// then a write may store only the start of a place, and a read of the whole place finds it.
    fn has_prefixes(&self) -> bool;

    /// The bytes of a child, from where its data starts, that a range of the vdev takes.
    fn range_on_child(&self, _child: usize, range: std::ops::Range<u64>) -> std::ops::Range<u64> {
        range
    }
}

/// A run of bytes on one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Which child.
    pub child: usize,
    /// Where on the child, in bytes, from where its data starts.
    pub offset: u64,
    /// How many bytes.
    pub size: usize,
}

/// Columns that protect each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Parity first, then data in the order of its bytes. Parity columns are the longest.
    pub columns: Vec<Column>,
    /// How many of the columns are parity.
    pub parity: usize,
    /// Padding sectors that are allocated with the block and hold nothing, one column for each.
    pub skipped: Vec<Column>,
}

impl Row {
    /// A row of one column without parity, at the same offset on the only child.
    pub(crate) fn of_copies(place: &Place) -> Row {
        Row {
            columns: vec![Column {
                child: 0,
                offset: place.offset.get(),
                size: tarn_ondisk::declare::narrow(place.size),
            }],
            parity: 0,
            skipped: Vec::new(),
        }
    }

    /// The columns with data, in the order of its bytes.
    pub fn data(&self) -> &[Column] {
        assert!(
            self.parity < self.columns.len(),
            "a row has data beside its parity"
        );
        &self.columns[self.parity..]
    }

    /// How many bytes of the block the row has.
    pub fn data_size(&self) -> usize {
        self.data().iter().map(|column| column.size).sum()
    }

    /// The length of the longest column.
    pub fn column_size_max(&self) -> usize {
        debug_assert!(
            self.columns
                .iter()
                .all(|column| column.size <= self.columns[0].size),
            "no column is longer than the first parity"
        );
        self.columns[0].size
    }

    /// Where in the row's part of the block the bytes of each data column are.
    pub fn data_ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let mut start = 0;
        self.data().iter().map(move |column| {
            let range = start..start + column.size;
            start = range.end;
            range
        })
    }
}

/// Where on a leaf a column is.
pub(crate) fn column_offset(column: Column) -> u64 {
    device_offset(VdevOffset::from(column.offset)).expect("the range was checked")
}

/// The rows of a block, each with the range of the block's bytes that it has.
pub(crate) fn with_ranges<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
) -> impl Iterator<Item = (&'a Row, std::ops::Range<usize>)> {
    let mut start = 0;
    rows.into_iter().map(move |row| {
        let range = start..start + row.data_size();
        start = range.end;
        (row, range)
    })
}

/// Why a top-level vdev cannot hold blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoBlocks {
    /// Its index is not in use.
    Hole,
    /// No device of it was found.
    Missing,
    /// Its kind is not supported: it may have blocks that cannot be read.
    Unsupported(&'static str),
}

impl NoBlocks {
    /// The standing of such a vdev.
    pub(crate) fn standing(self) -> Standing {
        let unavailable = |reason| Standing::because(VdevState::Unavailable, reason);
        match self {
            NoBlocks::Hole => Standing::ONLINE,
            NoBlocks::Missing => unavailable(Reason::OpenFailed),
            NoBlocks::Unsupported(_) => unavailable(Reason::Unsupported),
        }
    }
}

const CANNOT_NEST: NoBlocks = NoBlocks::Unsupported("this nesting of vdevs");

/// Gives a leaf its index among the leaves of the vdev.
pub(crate) type AddLeaf<'a> = dyn FnMut(&VdevConfig) -> usize + 'a;

/// The layout of a top-level vdev. Its leaves are handed to `add_leaf` in the order of the tree.
pub(crate) fn of_config(
    config: &VdevConfig,
    ashift: u32,
    add_leaf: &mut AddLeaf<'_>,
) -> Result<Box<dyn Layout>, NoBlocks> {
    match config.kind {
        VdevKind::Hole => Err(NoBlocks::Hole),
        VdevKind::Missing => Err(NoBlocks::Missing),
        VdevKind::Indirect => Err(NoBlocks::Unsupported("a removed vdev")),
        VdevKind::Draid { .. } | VdevKind::DistributedSpare => Err(NoBlocks::Unsupported("dRAID")),
        VdevKind::Root => Err(NoBlocks::Unsupported("a root below the root")),
        _ if ashift == 0 => Err(NoBlocks::Unsupported("a vdev without a sector size")),
        VdevKind::Raidz { parity } => {
            let expansion = ["raidz_expanding", "raidz_expand_txgs"];
            let is_expanded = |(name, _): &(_, _)| expansion.iter().any(|known| name == known);
            if config.other.iter().any(is_expanded) {
                return Err(NoBlocks::Unsupported("an expanded RAID-Z"));
            }
            let children = config.children.iter();
            let children: Option<Vec<_>> =
                children.map(|child| copies_of(child, add_leaf)).collect();
            let children = children.ok_or(CANNOT_NEST)?;
            let shape = raidz::RaidzShape {
                width: widen(children.len()),
                parity: u64::from(parity),
                ashift,
            };
            Ok(Box::new(raidz::Raidz::new(shape, children)))
        }
        VdevKind::File | VdevKind::Disk => {
            let leaf = add_leaf(config);
            Ok(Box::new(single::Single::new(ashift, leaf)))
        }
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => {
            let leaves = copies_of(config, add_leaf).ok_or(CANNOT_NEST)?;
            Ok(Box::new(mirror::Mirror::new(config.kind, ashift, leaves)))
        }
    }
}

/// The leaves at or below a device or mirror, all of which have the same bytes. None for any other
/// kind.
fn copies_of(config: &VdevConfig, add_leaf: &mut AddLeaf<'_>) -> Option<Vec<usize>> {
    match config.kind {
        VdevKind::File | VdevKind::Disk => Some(vec![add_leaf(config)]),
        kind if kind.is_mirrored() => {
            let children = config.children.iter();
            let children = children.map(|child| copies_of(child, add_leaf));
            Some(children.collect::<Option<Vec<_>>>()?.concat())
        }
        _ => None,
    }
}
