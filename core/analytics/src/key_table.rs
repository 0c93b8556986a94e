//! A table of keys: the number of each key, in the order in which the keys came.
//!
//! Open addressing with a fixed hash, so that the same keys give the same table in each run. A
//! breakdown by file looks up millions of keys; a tree would compare some twenty for each. Keys are
//! as many words as the fields of a breakdown need, and lie in the table itself: one look at memory
//! finds a key.

/// The values of up to two fields. A field that is not there is 0.
pub type Key = [u128; 2];

/// A place in the table without a key.
const FREE: u32 = u32::MAX;
/// A table of no more places lies in the cache of the processor.
const CACHED_PLACES: usize = 4096;

/// Keys of `W` words with their numbers, up to a bound.
#[derive(Clone, Debug)]
pub(crate) struct KeyTable<const W: usize> {
    keys: Vec<[u64; W]>,
    /// A power of two of places, at most half of them taken.
    places: Vec<Place<W>>,
}

/// A place of the table.
#[derive(Clone, Copy, Debug)]
struct Place<const W: usize> {
    key: [u64; W],
    sum: u64,
    number: u32,
}

impl<const W: usize> Place<W> {
    const FREE: Place<W> = Place {
        key: [0; W],
        sum: 0,
        number: FREE,
    };
}

impl<const W: usize> Place<W> {
    fn add(&mut self, more: u64) {
        self.sum = self.sum.saturating_add(more);
    }
}

impl<const W: usize> Default for KeyTable<W> {
    fn default() -> Self {
        KeyTable {
            keys: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl<const W: usize> KeyTable<W> {
    /// The keys, each at its number.
    pub(crate) fn keys(&self) -> &[[u64; W]] {
        &self.keys
    }

    /// How much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<[u64; W]>()
            + self.places.capacity() * size_of::<Place<W>>()
    }

    /// The number of a key, if it is in the table.
    pub(crate) fn find(&self, key: &[u64; W]) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let number = self.places[self.place_of(key)].number;
        (number != FREE).then(|| index(number))
    }

    /// The sum of what was added to each key, by its number.
    pub(crate) fn sums(&self) -> Vec<u64> {
        let mut sums = vec![0; self.keys.len()];
        for place in self.taken() {
            sums[index(place.number)] = place.sum;
        }
        sums
    }

    fn taken(&self) -> impl Iterator<Item = &Place<W>> {
        self.places.iter().filter(|place| place.number != FREE)
    }

    /// Adds the sums of another table.
    pub(crate) fn merge(&mut self, other: &KeyTable<W>) {
        for place in other.taken() {
            if let Some((at, _)) = self.place_for(&place.key, usize::MAX) {
                self.places[at].add(place.sum);
            }
        }
    }

    /// Reads the places where these keys are looked for, so that the memory comes for all of them
    /// at once and not for one after the other.
    pub(crate) fn touch<'k>(&self, keys: impl Iterator<Item = &'k [u64; W]>) {
        if self.places.len() > CACHED_PLACES {
            let last = self.places.len() - 1;
            let touched = keys.fold(0, |all, key| {
                all ^ self.places[index_of_hash(key) & last].number
            });
            std::hint::black_box(touched);
        }
    }

    /// Adds to the sum of a key; gives its number as [`find_or_add`](Self::find_or_add) does.
    pub(crate) fn add(&mut self, key: &[u64; W], more: u64, keys_max: usize) -> Option<usize> {
        let (place, number) = self.place_for(key, keys_max)?;
        self.places[place].add(more);
        Some(number)
    }

    /// The number of a key, which is new if the key is. `None` when it is new and the table already
    /// has `keys_max`.
    pub(crate) fn find_or_add(&mut self, key: &[u64; W], keys_max: usize) -> Option<usize> {
        self.place_for(key, keys_max).map(|(_, number)| number)
    }

    fn place_for(&mut self, key: &[u64; W], keys_max: usize) -> Option<(usize, usize)> {
        if self.keys.len() * 2 >= self.places.len() {
            self.grow();
        }
        let place = self.place_of(key);
        match self.places[place].number {
            FREE if self.keys.len() >= keys_max => None,
            FREE => {
                let number = self.keys.len();
                let stored = u32::try_from(number).expect("bounded by keys_max");
                self.places[place] = Place {
                    key: *key,
                    sum: 0,
                    number: stored,
                };
                self.keys.push(*key);
                Some((place, number))
            }
            number => Some((place, index(number))),
        }
    }

    /// Where the key is, or would be.
    fn place_of(&self, key: &[u64; W]) -> usize {
        let last = self.places.len() - 1;
        let mut place = index_of_hash(key) & last;
        loop {
            let stored = &self.places[place];
            if stored.number == FREE || stored.key == *key {
                return place;
            }
            place = (place + 1) & last;
        }
    }

    fn grow(&mut self) {
        assert!(
            self.keys.len() <= self.places.len(),
            "each key has a place of its own"
        );
        let length = (self.places.len() * 2).max(16);
        let before = std::mem::replace(&mut self.places, vec![Place::FREE; length]);
        for stored in before.iter().filter(|place| place.number != FREE) {
            let place = self.place_of(&stored.key);
            self.places[place] = *stored;
        }
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("memory has more than 32 bits")
}

/// The low bits of a hash.
fn index_of_hash<const W: usize>(key: &[u64; W]) -> usize {
    let low = hash(key) & u64::from(u32::MAX);
    usize::try_from(low).expect("masked to 32 bits")
}

/// Mixes all bits of a key into all of 64.
pub(crate) fn hash<const W: usize>(key: &[u64; W]) -> u64 {
    let state = key.iter().fold(0_u64, |state, word| {
        (state.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    let state = (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state ^ state >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tarn_host::sim::Random;

    #[test]
    fn a_table_numbers_keys_as_a_tree_does() {
        let mut random = Random::new(3);
        let (mut table, mut model) = (KeyTable::default(), BTreeMap::new());
        let mut sums: Vec<u64> = Vec::new();
        for _ in 0..20_000 {
            let key = [random.below(3000) << 52, random.below(2)];
            let next = model.len();
            let expected = *model.entry(key).or_insert(next);
            assert_eq!(table.find_or_add(&key, usize::MAX), Some(expected));
            assert_eq!(table.keys()[expected], key);
            let more = random.below(100);
            table.add(&key, more, usize::MAX);
            sums.resize(model.len(), 0);
            sums[expected] += more;
        }
        assert_eq!(table.sums(), sums);
        assert_eq!(table.keys().len(), model.len());
        assert_eq!(table.find(&[1, 1]), None);
    }

    #[test]
    fn merged_tables_have_all_sums() {
        let [mut one, mut other]: [KeyTable<1>; 2] = Default::default();
        for key in 0..60 {
            one.add(&[key], 2, usize::MAX);
            other.add(&[key + 30], 3, usize::MAX);
            other.add(&[key + 30], 4, usize::MAX);
        }
        one.merge(&other);
        let sums = one.sums();
        let expected = |key: u64| match key {
            0..30 => 2,
            30..60 => 9,
            _ => 7,
        };
        let keys = one.keys().iter().map(|key| expected(key[0]));
        assert_eq!((sums.len(), sums), (90, keys.collect::<Vec<u64>>()));
    }

    #[test]
    fn a_table_at_its_bound_takes_no_new_key_and_knows_the_others() {
        let mut table = KeyTable::default();
        assert_eq!(table.find(&[0, 0]), None);
        assert_eq!(table.find_or_add(&[1, 0], 1), Some(0));
        assert_eq!(table.find_or_add(&[2, 0], 1), None);
        assert_eq!(table.find_or_add(&[1, 0], 1), Some(0));
    }
}
