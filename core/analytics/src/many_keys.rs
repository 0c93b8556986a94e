//! The keys with the largest sums, where there are too many keys for a table.
//!
//! # Problem
//! Clients by file are millions of keys. A table of them is larger than the caches of a processor:
//! each operation waits for memory.
//!
//! # Mechanism
//! Each operation leaves the hash of its key, 64 bits, in one of [`PARTS`] lists, chosen by the
//! hash. Lists are written one after another, and each is then counted in a table that a cache
//! holds. Where the operations are so many that their hashes would take more than
//! [`HASHES_MAX`], there are several rounds, each for a part of the hashes.
//!
//! # Invariants
//! - The sums are exact for each hash. Two keys of one hash, which 12 million keys have with a
//!   chance of one in 250,000, are ranked by their sum; what is counted of them later is apart.

use crate::breakdown::Breakdown;
use crate::column_batch::{BATCH_RECORDS, Batch, Mask};
use crate::key_table::hash;

/// Lists of hashes. A list of some ten thousand is counted in a table of half a MiB.
const PARTS: usize = 512;
/// Hashes that are held at once, weights counted as well: 96 MiB, and what lists have room for.
const HASHES_MAX: u64 = 12 << 20;
/// Hashes are added to a list so many at a time.
const CHUNK: usize = 256;

/// Lists of hashes of one processor.
#[derive(Debug)]
pub(crate) struct HashLists {
    lists: Vec<HashList>,
}

#[derive(Clone, Debug, Default)]
struct HashList {
    hashes: Vec<u64>,
    /// None where each operation is one.
    weights: Vec<u64>,
}

/// Which hashes a round has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    number: u64,
    count: u64,
}

/// The hashes with the largest sums.
#[derive(Debug, Default)]
pub(crate) struct LargestHashes {
    /// The largest sum first.
    pub(crate) largest: Vec<(u64, u64)>,
    /// How many hashes there were.
    pub(crate) found: usize,
}

impl Round {
    /// The rounds that so many operations take.
    pub(crate) fn all(operations: u64, has_weights: bool) -> impl Iterator<Item = Round> {
        let hashes = operations.saturating_mul(if has_weights { 2 } else { 1 });
        let count = hashes.div_ceil(HASHES_MAX).max(1);
        (0..count).map(move |number| Round { number, count })
    }

    fn has(self, hash: u64) -> bool {
        // Upper bits choose a list within the round, lower ones a place in a table.
        self.count == 1 || (hash >> 24 & 0xffff_ffff) % self.count == self.number
    }
}

impl Default for HashLists {
    fn default() -> HashLists {
        HashLists {
            lists: vec![HashList::default(); PARTS],
        }
    }
}

impl HashLists {
    /// Adds the hashes of operations that the round has.
    pub(crate) fn take<const W: usize>(
        &mut self,
        round: Round,
        breakdown: &Breakdown,
        batch: &Batch,
        mask: Mask,
    ) {
        let mut keys = [[0; W]; BATCH_RECORDS];
        breakdown.fill_keys(batch, &mut keys);
        let weights = breakdown
            .weight_column()
            .map(|column| batch.numbers(column));
        mask.for_each(|place| {
            let hash = hash(&keys[place]);
            if round.has(hash) {
                let list = &mut self.lists[part_of(hash)];
                list.reserve(weights.is_some());
                list.hashes.push(hash);
                if let Some(weights) = weights {
                    list.weights.push(weights[place]);
                }
            }
        });
    }

    /// The lists of each part, of all processors.
    pub(crate) fn by_part(all: Vec<HashLists>) -> Vec<Part> {
        let mut parts: Vec<Part> = (0..PARTS).map(|_| Part { lists: Vec::new() }).collect();
        for lists in all {
            for (part, list) in parts.iter_mut().zip(lists.lists) {
                part.lists.push(list);
            }
        }
        parts
    }
}

impl HashList {
    /// Lists grow by a half, not to twice their size: there are many of them.
    fn reserve(&mut self, has_weights: bool) {
        if self.hashes.len() == self.hashes.capacity() {
            let more = CHUNK.max(self.hashes.len() / 2);
            self.hashes.reserve_exact(more);
            if has_weights {
                self.weights.reserve_exact(more);
            }
        }
    }
}

/// The lists of one part.
#[derive(Debug)]
pub(crate) struct Part {
    lists: Vec<HashList>,
}

impl Part {
    /// Sums up each hash, and gives the largest ones.
    pub(crate) fn largest(self, keys_max: usize) -> LargestHashes {
        let count: usize = self.lists.iter().map(|list| list.hashes.len()).sum();
        let mut places = vec![(0_u64, 0_u64); (count * 2).next_power_of_two().max(2)];
        let last = places.len() - 1;
        let mut of_zero = None;
        let mut found = 0;
        for list in &self.lists {
            let mut weights = list.weights.iter();
            for hash in &list.hashes {
                let weight = weights.next().copied().unwrap_or(1);
                if *hash == 0 {
                    // A place with this hash is free.
                    let sum: &mut u64 = of_zero.get_or_insert(0);
                    *sum = sum.saturating_add(weight);
                    continue;
                }
                let mut place = low_bits(*hash) & last;
                while places[place].0 != *hash && places[place].0 != 0 {
                    place = (place + 1) & last;
                }
                found += usize::from(places[place].0 == 0);
                places[place] = (*hash, places[place].1.saturating_add(weight));
            }
        }
        found += usize::from(of_zero.is_some());
        let of_zero = of_zero.map(|sum| (0, sum));
        let taken = places.into_iter().filter(|(hash, _)| *hash != 0);
        let mut largest = LargestHashes {
            largest: taken.chain(of_zero).collect(),
            found,
        };
        largest.cut(keys_max);
        largest
    }
}

impl LargestHashes {
    /// Joins those of parts that have no hash in common.
    pub(crate) fn join(
        parts: impl Iterator<Item = LargestHashes>,
        keys_max: usize,
    ) -> LargestHashes {
        let mut all = LargestHashes::default();
        for part in parts {
            all.found += part.found;
            all.largest.extend(part.largest);
        }
        all.cut(keys_max);
        all.largest.sort_unstable_by_key(rank);
        all
    }

    fn cut(&mut self, keys_max: usize) {
        if keys_max < self.largest.len() {
            self.largest.select_nth_unstable_by_key(keys_max, rank);
            self.largest.truncate(keys_max);
        }
        self.largest.shrink_to_fit();
    }
}

fn rank((hash, sum): &(u64, u64)) -> (u64, u64) {
    (u64::MAX - sum, *hash)
}

/// The list of a hash: its highest bits.
fn part_of(hash: u64) -> usize {
    let part = hash >> (64 - PARTS.trailing_zeros());
    usize::try_from(part).expect("there are few parts")
}

fn low_bits(hash: u64) -> usize {
    usize::try_from(hash & u64::from(u32::MAX)).expect("masked to 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tarn_host::sim::Random;

    /// Against a tree of all sums.
    #[test]
    fn the_largest_hashes_are_those_of_a_tree() {
        let mut random = Random::new(8);
        for has_weights in [false, true] {
            let mut all = [HashLists::default(), HashLists::default()];
            let mut model = BTreeMap::<u64, u64>::new();
            for _ in 0..50_000 {
                let draws = random.below(1 << 14);
                let hash = (draws * draws) << 40 | draws;
                let weight = if has_weights { random.below(1000) } else { 1 };
                *model.entry(hash).or_default() += weight;
                let list = &mut all[random.index(2)].lists[part_of(hash)];
                list.hashes.push(hash);
                if has_weights {
                    list.weights.push(weight);
                }
            }
            let parts = HashLists::by_part(all.into());
            let parts = parts.into_iter().map(|part| part.largest(30));
            let found = LargestHashes::join(parts, 30);
            assert_eq!(found.found, model.len());
            let mut expected: Vec<(u64, u64)> = model.into_iter().collect();
            expected.sort_unstable_by_key(rank);
            expected.truncate(30);
            assert_eq!(found.largest, expected);
        }
    }

    #[test]
    fn each_hash_is_in_one_round() {
        let rounds: Vec<Round> = Round::all(3 * HASHES_MAX, false).collect();
        assert_eq!(rounds.len(), 3);
        let mut random = Random::new(9);
        for _ in 0..1000 {
            let hash = random.draw();
            assert_eq!(rounds.iter().filter(|round| round.has(hash)).count(), 1);
        }
        assert_eq!(Round::all(HASHES_MAX, true).count(), 2);
        assert_eq!(Round::all(0, true).count(), 1);
    }
}
