//! A second of a live instrumentation: what was counted, by key.
//!
//! # Invariants
//! - The tallies of keys and `other` add up to all that was counted.

use crate::breakdown::{Breakdown, KEY_WORDS_MAX};
use crate::column_batch::{BATCH_RECORDS, Mask, Numbers};
use crate::key_table::{Key, KeyTable};
use crate::live_sharing::Asked;
use crate::tally::Tally;

/// Keys of an open second. A key that comes later than those is in `other`: no such key has more
/// than that; the flight recorder ranks all keys.
pub(crate) const OPEN_KEYS_MAX: usize = 256;

/// What was counted of a second.
#[derive(Debug)]
pub(crate) struct Second {
    pub(crate) number: u64,
    pub(crate) is_open: bool,
    keys: Keys,
    tallies: Vec<Tally>,
    other: Tally,
    /// What it takes, since it is closed: operations that come late add little. 0 while it is open.
    pub(crate) bytes: usize,
}

/// Keys of as many words as the breakdown has.
#[derive(Debug)]
enum Keys {
    None,
    One(KeyTable<1>),
    Two(KeyTable<2>),
    Four(KeyTable<KEY_WORDS_MAX>),
}

/// What is shown of a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSecond {
    /// Which second of the clock of operations.
    pub second: u64,
    /// Whether it may still become more.
    pub is_open: bool,
    /// All operations.
    pub total: Tally,
    /// By key, the largest sum first.
    pub groups: Vec<(Key, Tally)>,
    /// Operations of other keys; without discrete fields, all.
    pub other: Tally,
}

/// Where the tally of an operation is that is counted with the other keys.
const OTHER: u16 = u16::MAX;

impl Second {
    /// One in which nothing was counted yet.
    pub(crate) fn new(number: u64, breakdown: &Breakdown) -> Second {
        Second {
            number,
            is_open: true,
            keys: Keys::of_words(breakdown.key_words()),
            tallies: Vec::new(),
            other: Tally::default(),
            bytes: 0,
        }
    }

    /// Counts operations of a batch.
    pub(crate) fn count(&mut self, asked: &Asked<'_>, meant: Mask) {
        let keys_max = if self.is_open { OPEN_KEYS_MAX } else { 0 };
        let mut slots = [OTHER; BATCH_RECORDS];
        self.keys.find(&asked.words, meant, keys_max, &mut slots);
        self.tallies.resize_with(self.keys.len(), Tally::default);
        let Second { tallies, other, .. } = self;
        meant.for_each(|place| {
            let tally = match slots[place] {
                OTHER => &mut *other,
                slot => &mut tallies[usize::from(slot)],
            };
            let weight = asked.weights.map_or(1, |weights| weights[place]);
            match asked.bucketed {
                Some((numbers, buckets)) => {
                    tally.add_in(weight, numbers[place], buckets[place]);
                }
                None => tally.add(weight, None),
            }
        });
    }

    /// The numbers of the keys, the largest sum first.
    fn ranked(&self) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..self.tallies.len()).collect();
        numbers.sort_by_key(|number| (u64::MAX - self.tallies[*number].sum, *number));
        numbers
    }

    /// Keeps only the largest keys.
    pub(crate) fn close(&mut self, keys_max: usize) {
        let mut ranked = self.ranked();
        let rest = ranked.split_off(keys_max.min(ranked.len()));
        for number in rest {
            self.other.merge(&self.tallies[number]);
        }
        let mut tally = |number: &usize| std::mem::take(&mut self.tallies[*number]);
        let tallies: Vec<Tally> = ranked.iter().map(&mut tally).collect();
        self.tallies = tallies;
        self.keys.keep(&ranked);
        assert_eq!(self.keys.len(), self.tallies.len());
        self.is_open = false;
        self.bytes = self.counted_bytes();
    }

    fn counted_bytes(&self) -> usize {
        let tallies = self.tallies.iter().chain([&self.other]);
        let tallies = tallies.map(|tally| size_of::<Tally>() + tally.bytes());
        size_of::<Second>() + self.keys.bytes() + tallies.sum::<usize>()
    }

    /// What is shown of it.
    pub(crate) fn shown(&self, breakdown: &Breakdown, keys_max: usize) -> LiveSecond {
        let mut other = self.other.clone();
        let mut total = self.other.clone();
        let mut groups = Vec::new();
        for number in self.ranked() {
            let tally = &self.tallies[number];
            total.merge(tally);
            match groups.len() < keys_max {
                true => groups.push((breakdown.key_of(self.keys.words(number)), tally.clone())),
                false => other.merge(tally),
            }
        }
        LiveSecond {
            second: self.number,
            is_open: self.is_open,
            total,
            groups,
            other,
        }
    }
}

impl Keys {
    fn of_words(words: usize) -> Keys {
        match words {
            0 => Keys::None,
            1 => Keys::One(KeyTable::default()),
            2 => Keys::Two(KeyTable::default()),
            _ => Keys::Four(KeyTable::default()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Keys::None => 0,
            Keys::One(table) => table.keys().len(),
            Keys::Two(table) => table.keys().len(),
            Keys::Four(table) => table.keys().len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Keys::None => 0,
            Keys::One(table) => table.bytes(),
            Keys::Two(table) => table.bytes(),
            Keys::Four(table) => table.bytes(),
        }
    }

    fn words(&self, number: usize) -> &[u64] {
        match self {
            Keys::None => &[],
            Keys::One(table) => &table.keys()[number],
            Keys::Two(table) => &table.keys()[number],
            Keys::Four(table) => &table.keys()[number],
        }
    }

    /// Finds the numbers of the keys of operations, and adds those that are new as long as there
    /// are fewer than `keys_max`.
    fn find(
        &mut self,
        words: &[&Numbers; KEY_WORDS_MAX],
        meant: Mask,
        keys_max: usize,
        slots: &mut [u16; BATCH_RECORDS],
    ) {
        match self {
            Keys::None => {}
            Keys::One(table) => find(table, words, meant, keys_max, slots),
            Keys::Two(table) => find(table, words, meant, keys_max, slots),
            Keys::Four(table) => find(table, words, meant, keys_max, slots),
        }
    }

    /// Keeps these, in their order.
    fn keep(&mut self, numbers: &[usize]) {
        match self {
            Keys::None => {}
            Keys::One(table) => *table = kept(table, numbers),
            Keys::Two(table) => *table = kept(table, numbers),
            Keys::Four(table) => *table = kept(table, numbers),
        }
    }
}

fn find<const W: usize>(
    table: &mut KeyTable<W>,
    words: &[&Numbers; KEY_WORDS_MAX],
    meant: Mask,
    keys_max: usize,
    slots: &mut [u16; BATCH_RECORDS],
) {
    // Operations that follow one another often have the same key.
    let mut last: Option<([u64; W], u16)> = None;
    meant.for_each(|place| {
        let key: [u64; W] = std::array::from_fn(|word| words[word][place]);
        let slot = match last {
            Some((before, slot)) if before == key => slot,
            _ => {
                let number = table.find_or_add(&key, keys_max);
                let slot = number.map(|number| u16::try_from(number).expect("keys are few"));
                slot.unwrap_or(OTHER)
            }
        };
        last = Some((key, slot));
        slots[place] = slot;
    });
}

fn kept<const W: usize>(table: &KeyTable<W>, numbers: &[usize]) -> KeyTable<W> {
    let mut kept = KeyTable::default();
    for number in numbers {
        kept.find_or_add(&table.keys()[*number], numbers.len());
    }
    kept
}
