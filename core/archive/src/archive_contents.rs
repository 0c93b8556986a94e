//! What questions are answered from: which blocks there are, and what is in none.
//!
//! # Invariants
//! - For each tier a time is in one of: a block of the tier, columns in memory of it or of finer
//!   tiers, a finer block that is unmade.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::cell::Column;
use crate::shelf::Shelf;
use crate::tier::Tier;

/// What is known of all times.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) shelf: Shelf,
    /// Columns that are in no block, of each tier.
    pub(crate) open: BTreeMap<Tier, BTreeMap<u64, Arc<Column>>>,
    /// Blocks whose columns of the next coarser tier are neither in a block nor in memory: found
    /// when the archive was opened, and read when they are asked for.
    pub(crate) unmade: BTreeSet<(Tier, u64)>,
    pub(crate) tail_bytes: u64,
    /// The second that was appended last. The clock may have been set back since others were.
    pub(crate) now_s: u64,
    /// Seconds and blocks that could not be written.
    pub(crate) refused: u64,
}

/// What has a range of time for a tier, as it was at one moment.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Blocks of the tier, and unmade ones of finer tiers.
    pub(crate) blocks: Vec<(Tier, u64)>,
    /// Columns of the tier and of finer ones.
    pub(crate) open: Vec<Arc<Column>>,
}

impl Shown {
    pub(crate) fn bytes(&self) -> u64 {
        self.shelf.bytes() + self.tail_bytes
    }

    /// What has seconds of a range.
    pub(crate) fn sources(&self, tier: Tier, range_s: &Range<u64>) -> Sources {
        let overlaps = |(finer, start_s): &&(Tier, u64)| {
            *finer < tier && *start_s < range_s.end && start_s + finer.block_s() > range_s.start
        };
        let of_tier = self.shelf.overlapping(tier, range_s).into_iter();
        let unmade = self.unmade.iter().filter(overlaps).copied();
        let open = self.open.range(..=tier);
        let open = open.flat_map(|(_, columns)| columns.range(range_s.clone()));
        Sources {
            blocks: of_tier
                .map(|start_s| (tier, start_s))
                .chain(unmade)
                .collect(),
            open: open.map(|(_, column)| column.clone()).collect(),
        }
    }

    /// The first second that a tier has, in blocks, or in memory and blocks of finer tiers.
    pub(crate) fn oldest(&self, tier: Tier) -> Option<u64> {
        let open = self.open.range(..=tier);
        let open = open.filter_map(|(_, columns)| columns.first_key_value());
        let open = open.map(|(start_s, _)| *start_s);
        let unmade = self.unmade.iter().filter(|(finer, _)| *finer < tier);
        let unmade = unmade.map(|(_, start_s)| *start_s);
        let first = self.shelf.of_tier(tier).next().into_iter();
        first.chain(open).chain(unmade).min()
    }

    /// Where the last block of seconds ends.
    pub(crate) fn sealed_to(&self) -> u64 {
        let last = self.shelf.of_tier(Tier::Second).next_back();
        last.map_or(0, |start_s| start_s + Tier::Second.block_s())
    }

    /// The blocks of a tier that are still to be written, and have something.
    pub(crate) fn open_blocks(&self, tier: Tier) -> Vec<u64> {
        let columns = self.open.get(&tier).into_iter().flat_map(BTreeMap::keys);
        let is_of_tier = |(finer, _): &&(Tier, u64)| finer.coarser() == Some(tier);
        let unmade = self.unmade.iter().filter(is_of_tier);
        let starts = columns.chain(unmade.map(|(_, start_s)| start_s));
        let blocks: BTreeSet<u64> = starts.map(|start_s| tier.block_of(*start_s)).collect();
        blocks.into_iter().collect()
    }

    /// The unmade blocks of which the columns of a block of `tier` are made.
    pub(crate) fn unmade_of(&self, tier: Tier, block_s: u64) -> Vec<(Tier, u64)> {
        let is_of_block = |(finer, start_s): &&(Tier, u64)| {
            finer.coarser() == Some(tier) && tier.block_of(*start_s) == block_s
        };
        self.unmade.iter().filter(is_of_block).copied().collect()
    }
}
