//! A table of keys: the number of each key, in the order in which the keys came.
//!
//! Open addressing with a fixed hash, so that the same keys give the same table in each run. A
//! breakdown by file looks up millions of keys; a tree would compare some twenty for each.

/// The values of up to two fields. A field that is not there is 0.
pub type Key = [u128; 2];

/// A place in the table without a key.
const FREE: u32 = u32::MAX;

/// Keys with their numbers, up to a bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyTable {
    keys: Vec<Key>,
    /// A power of two of places, at most half of them taken.
    places: Vec<u32>,
}

impl KeyTable {
    /// The keys, each at its number.
    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// How much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<Key>() + self.places.capacity() * size_of::<u32>()
    }

    /// The number of a key, if it is in the table.
    pub(crate) fn find(&self, key: &Key) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let place = self.place_of(key);
        Some(self.places[place])
            .filter(|number| *number != FREE)
            .map(index)
    }

    /// The number of a key, which is new if the key is. `None` when it is new and the table already
    /// has `keys_max`.
    pub(crate) fn find_or_add(&mut self, key: &Key, keys_max: usize) -> Option<usize> {
        if self.keys.len() * 2 >= self.places.len() {
            self.grow();
        }
        let place = self.place_of(key);
        match self.places[place] {
            FREE if self.keys.len() >= keys_max => None,
            FREE => {
                let number = self.keys.len();
                self.places[place] = u32::try_from(number).expect("bounded by keys_max");
                self.keys.push(*key);
                Some(number)
            }
            number => Some(index(number)),
        }
    }

    /// Where the key is, or would be.
    fn place_of(&self, key: &Key) -> usize {
        let last = self.places.len() - 1;
        let mut place = index_of_hash(key) & last;
        loop {
            match self.places[place] {
                FREE => return place,
                number if self.keys[index(number)] == *key => return place,
                _ => place = (place + 1) & last,
            }
        }
    }

    fn grow(&mut self) {
        let length = (self.places.len() * 2).max(16);
        self.places = vec![FREE; length];
        for number in 0..self.keys.len() {
            let place = self.place_of(&self.keys[number]);
            self.places[place] = u32::try_from(number).expect("bounded by keys_max");
        }
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("memory has more than 32 bits")
}

/// The low bits of a hash.
fn index_of_hash(key: &Key) -> usize {
    let low = hash(key) & u64::from(u32::MAX);
    usize::try_from(low).expect("masked to 32 bits")
}

/// Mixes all bits of a key into the low ones.
fn hash(key: &Key) -> u64 {
    let mut state = 0_u64;
    for value in key {
        let low = value & u128::from(u64::MAX);
        for word in [low, value >> 64] {
            let word = u64::try_from(word).expect("half of 128 bits");
            state = (state.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
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
        for _ in 0..20_000 {
            let key = [u128::from(random.below(3000)) << 60, random.below(2).into()];
            let next = model.len();
            let expected = *model.entry(key).or_insert(next);
            assert_eq!(table.find_or_add(&key, usize::MAX), Some(expected));
            assert_eq!(table.keys()[expected], key);
        }
        assert_eq!(table.keys().len(), model.len());
        assert_eq!(table.find(&[1, 1]), None);
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
