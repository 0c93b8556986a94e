//! The inputs that are worth keeping.
//!
//! # Mechanism
//! Each feature that was ever seen belongs to the smallest input that reaches it. An input that
//! reaches a new feature, or a known one with fewer bytes, is kept; one that no feature belongs to
//! any more is dropped. So what is kept covers all that was reached, and gets smaller.
//!
//! Half of what is changed next is drawn by feature: an input that alone reaches much is drawn
//! often. The rest are the newest, and any.

use tarn_host::sim::Random;

/// One input.
struct Kept {
    bytes: Vec<u8>,
    /// How many features belong to it.
    owned: u32,
}

/// Inputs, and what they reach.
#[derive(Default)]
pub struct Corpus {
    inputs: Vec<Kept>,
    /// By feature: the input that it belongs to, plus one.
    owners: Vec<u32>,
    /// The features that were seen.
    seen: Vec<u32>,
    /// Those that were not dropped.
    living: Vec<u32>,
}

impl Corpus {
    /// Keeps an input that reaches something new, or something known with fewer bytes. True for
    /// something new.
    pub fn consider(&mut self, bytes: &[u8], features: &[u32]) -> bool {
        let is_new = features
            .iter()
            .any(|feature| self.owner(*feature).is_none());
        let is_smaller = |feature: &u32| {
            let owner = self.owner(*feature);
            owner.is_some_and(|owner| self.inputs[owner].bytes.len() > bytes.len())
        };
        // Taking features over costs more than it gives when it is done for each byte less.
        if !is_new
            && features
                .iter()
                .filter(|feature| is_smaller(feature))
                .count()
                < 2
        {
            return false;
        }
        self.keep(bytes, features);
        is_new
    }

    fn keep(&mut self, bytes: &[u8], features: &[u32]) {
        let index = self.inputs.len();
        let mut owned = 0;
        let mut is_dropped = false;
        for &feature in features {
            match self.owner(feature) {
                Some(owner) if self.inputs[owner].bytes.len() <= bytes.len() => continue,
                Some(owner) => {
                    self.inputs[owner].owned -= 1;
                    if self.inputs[owner].owned == 0 {
                        self.inputs[owner].bytes = Vec::new();
                        is_dropped = true;
                    }
                }
                None => self.seen.push(feature),
            }
            self.set_owner(feature, index);
            owned += 1;
        }
        self.inputs.push(Kept {
            bytes: bytes.to_vec(),
            owned,
        });
        self.living
            .push(u32::try_from(index).expect("inputs are counted in 32 bits"));
        if is_dropped {
            let inputs = &self.inputs;
            self.living.retain(|index| inputs[place(*index)].owned > 0);
        }
    }

    fn owner(&self, feature: u32) -> Option<usize> {
        let owner = self.owners.get(place(feature)).copied().unwrap_or(0);
        owner.checked_sub(1).map(place)
    }

    fn set_owner(&mut self, feature: u32, index: usize) {
        let feature = place(feature);
        if self.owners.len() <= feature {
            self.owners.resize(feature + 1, 0);
        }
        self.owners[feature] = u32::try_from(index + 1).expect("inputs are counted in 32 bits");
    }

    /// An input to be changed; nothing while there is none.
    pub fn draw(&self, random: &mut Random) -> &[u8] {
        let count = self.living.len();
        let index = match random.index(4) {
            0 | 1 if !self.seen.is_empty() => {
                let feature = self.seen[random.index(self.seen.len())];
                self.owner(feature)
            }
            2 => {
                let newest = random.index(count.div_ceil(8));
                self.living
                    .get(count.wrapping_sub(1 + newest))
                    .map(|index| place(*index))
            }
            _ => self
                .living
                .get(random.index(count))
                .map(|index| place(*index)),
        };
        index.map_or(&[], |index| &self.inputs[index].bytes)
    }

    /// All inputs that are kept.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.living
            .iter()
            .map(|index| &self.inputs[place(*index)].bytes[..])
    }

    /// How many features were seen.
    pub fn feature_count(&self) -> usize {
        self.seen.len()
    }
}

fn place(index: u32) -> usize {
    usize::try_from(index).expect("32 bits are an index")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_something_new_is_kept_and_what_a_smaller_one_reaches_is_dropped() {
        let mut corpus = Corpus::default();
        assert!(corpus.consider(b"long input", &[1, 2, 30]));
        assert!(!corpus.consider(b"long input, too", &[1, 2]));
        assert!(corpus.consider(b"other", &[4]));
        assert!(!corpus.consider(b"short", &[1, 2, 30]));
        let kept: Vec<&[u8]> = corpus.inputs().collect();
        assert_eq!(kept, [&b"other"[..], b"short"]);
        assert_eq!(corpus.feature_count(), 4);
        let mut random = Random::new(1);
        for _ in 0..100 {
            assert!(!corpus.draw(&mut random).is_empty());
        }
    }
}
