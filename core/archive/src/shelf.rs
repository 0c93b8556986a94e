//! Which blocks there are, and which go when the cap is reached.
//!
//! # Mechanism
//! A file counts with whole pages of 4 KiB. Before anything is written there is made room for it:
//! blocks go whose tier does not keep them for so long; then, as long as room is missing, the
//! oldest block of the tier that exceeds its share of the cap most.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::tier::Tier;

/// What file systems take at least for a file, and round its end up to.
const PAGE_BYTES: u64 = 4096;

/// How much a file of that length counts.
pub(crate) fn on_disk(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// The blocks of all tiers.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    blocks: BTreeMap<(Tier, u64), u64>,
    by_tier: BTreeMap<Tier, u64>,
}

impl Shelf {
    /// A block of so many bytes is there.
    pub(crate) fn add(&mut self, tier: Tier, start_s: u64, bytes: u64) {
        self.remove(tier, start_s);
        assert_eq!(
            tier.block_of(start_s),
            start_s,
            "a block begins where one may"
        );
        self.blocks.insert((tier, start_s), on_disk(bytes));
        *self.by_tier.entry(tier).or_default() += on_disk(bytes);
    }

    /// A block is gone.
    pub(crate) fn remove(&mut self, tier: Tier, start_s: u64) {
        if let Some(bytes) = self.blocks.remove(&(tier, start_s)) {
            *self.by_tier.entry(tier).or_default() -= bytes;
        }
    }

    /// What all of them count.
    pub(crate) fn bytes(&self) -> u64 {
        self.by_tier.values().sum()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there is that one.
    pub(crate) fn has(&self, tier: Tier, start_s: u64) -> bool {
        self.blocks.contains_key(&(tier, start_s))
    }

    /// The blocks of a tier, by where they begin.
    pub(crate) fn of_tier(&self, tier: Tier) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let all = self.blocks.range((tier, 0)..=(tier, u64::MAX));
        all.map(|((_, start_s), _)| *start_s)
    }

    /// Those that have seconds of a range.
    pub(crate) fn overlapping(&self, tier: Tier, range_s: &Range<u64>) -> Vec<u64> {
        let first = tier.block_of(range_s.start);
        let all = self
            .blocks
            .range((tier, first)..(tier, range_s.end.max(first)));
        all.map(|((_, start_s), _)| *start_s).collect()
    }

    /// The block that goes so that all together count at most `room_bytes`; `None` when they do, or
    /// none is left.
    pub(crate) fn to_drop(&self, room_bytes: u64, newest_s: u64) -> Option<(Tier, u64)> {
        let oldest = |tier: &Tier| Some((*tier, self.of_tier(*tier).next()?));
        let is_too_old = |(tier, start_s): &(Tier, u64)| {
            start_s + tier.block_s() + tier.retention_s() <= newest_s
        };
        let mut all = Tier::ALL.iter().filter_map(oldest);
        if let Some(old) = all.find(is_too_old) {
            return Some(old);
        }
        if self.bytes() <= room_bytes {
            return None;
        }
        let excess = |(tier, _): &(Tier, u64)| {
            let bytes = self.by_tier.get(tier).copied().unwrap_or(0);
            u128::from(bytes) * 1000 / u128::from(tier.share_permille())
        };
        Tier::ALL.iter().filter_map(oldest).max_by_key(excess)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_old_goes_first_then_the_oldest_of_the_tier_over_its_share() {
        let mut shelf = Shelf::default();
        for number in 0..10 {
            shelf.add(Tier::Second, number * 300, 4096);
        }
        shelf.add(Tier::Minute, 0, 8192);
        shelf.add(Tier::Hour, 0, 1);
        assert_eq!(shelf.bytes(), 13 * 4096);
        assert_eq!(shelf.to_drop(shelf.bytes(), 4000), None);
        // Minutes have 6 % of their share's size, seconds 16 %.
        assert_eq!(shelf.to_drop(0, 4000), Some((Tier::Second, 0)));
        for number in 0..8 {
            shelf.remove(Tier::Second, number * 300);
        }
        assert_eq!(shelf.to_drop(0, 4000), Some((Tier::Hour, 0)));
        shelf.remove(Tier::Hour, 0);
        assert_eq!(shelf.to_drop(0, 4000), Some((Tier::Minute, 0)));
        let later_s = 2700 + Tier::Second.retention_s();
        assert_eq!(shelf.to_drop(u64::MAX, later_s - 1), None);
        assert_eq!(shelf.to_drop(u64::MAX, later_s), Some((Tier::Second, 2400)));
        assert_eq!(shelf.overlapping(Tier::Second, &(2500..2700)), [2400]);
        assert_eq!(shelf.overlapping(Tier::Second, &(2600..2701)), [2400, 2700]);
    }
}
