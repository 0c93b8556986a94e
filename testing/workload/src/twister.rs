//! Chance with a seed: the Mersenne Twister, seeded and read as Python's `random` does.
//!
//! # Problem
//! The trees inside our fixtures were made by a script that used Python's generator. With the same
//! generator the same seed gives the same files here, without Python, and a tree filled by us can
//! be compared with one filled by the script. It also never changes, which no library promises.
//!
//! # Mechanism
//! MT19937 over 624 words (Matsumoto and Nishimura, 1998), started by `init_by_array` with the
//! words of the seed, lowest first. Numbers below a bound are drawn by taking as many bits as the
//! bound has and drawing again while they are too large.
//!
//! # Knows nothing about
//! secrets: it is predictable on purpose.

const WORDS: usize = 624;
const MIDDLE: usize = 397;

/// A generator of the same numbers for the same seed.
#[derive(Debug)]
pub struct Twister {
    state: Box<[u32; WORDS]>,
    next: usize,
}

impl Twister {
    /// Starts from a seed, as `random.Random(seed)` would.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let low = (seed & 0xffff_ffff) as u32;
        let high = (seed >> 32) as u32;
        let key: &[u32] = if high == 0 { &[low] } else { &[low, high] };
        let mut twister = Self::from_word(19_650_218);
        twister.mix_key(key);
        twister
    }

    fn from_word(word: u32) -> Self {
        let mut state = Box::new([0u32; WORDS]);
        state[0] = word;
        for index in 1..WORDS {
            let before = state[index - 1];
            let position = u32::try_from(index).expect("624 fits");
            state[index] = 1_812_433_253u32
                .wrapping_mul(before ^ (before >> 30))
                .wrapping_add(position);
        }
        Self { state, next: WORDS }
    }

    fn mix_key(&mut self, key: &[u32]) {
        let state = &mut self.state;
        let (mut at, mut from) = (1usize, 0usize);
        for _ in 0..WORDS.max(key.len()) {
            let before = state[at - 1];
            let position = u32::try_from(from).expect("a key has two words at most");
            state[at] = (state[at] ^ (before ^ (before >> 30)).wrapping_mul(1_664_525))
                .wrapping_add(key[from])
                .wrapping_add(position);
            at += 1;
            from = (from + 1) % key.len();
            if at == WORDS {
                state[0] = state[WORDS - 1];
                at = 1;
            }
        }
        for _ in 0..WORDS - 1 {
            let before = state[at - 1];
            let position = u32::try_from(at).expect("624 fits");
            state[at] = (state[at] ^ (before ^ (before >> 30)).wrapping_mul(1_566_083_941))
                .wrapping_sub(position);
            at += 1;
            if at == WORDS {
                state[0] = state[WORDS - 1];
                at = 1;
            }
        }
        state[0] = 0x8000_0000;
    }

    fn refill(&mut self) {
        for index in 0..WORDS {
            let upper = self.state[index] & 0x8000_0000;
            let lower = self.state[(index + 1) % WORDS] & 0x7fff_ffff;
            let word = upper | lower;
            let twist = if word & 1 == 0 { 0 } else { 0x9908_b0df };
            self.state[index] = self.state[(index + MIDDLE) % WORDS] ^ (word >> 1) ^ twist;
        }
        self.next = 0;
    }

    /// The next 32 bits.
    pub fn word(&mut self) -> u32 {
        if self.next == WORDS {
            self.refill();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// A number of at least 0 and less than 1, with 53 random bits.
    pub fn fraction(&mut self) -> f64 {
        let high = f64::from(self.word() >> 5);
        let low = f64::from(self.word() >> 6);
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }

    /// A number below `bound`, each as likely as the others.
    ///
    /// # Panics
    /// If `bound` is zero: there is no number below it.
    pub fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "no number is below zero");
        let spare_bits = bound.leading_zeros();
        loop {
            let word = self.word() >> spare_bits;
            if word < bound {
                return word;
            }
        }
    }

    /// An index into a slice of `length` elements.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(u32::try_from(length).expect("slices here are short")) as usize
    }

    /// A number below `bound`, for bounds up to 64 bits.
    pub fn below_wide(&mut self, bound: u64) -> u64 {
        match u32::try_from(bound) {
            Ok(bound) => u64::from(self.below(bound)),
            Err(_) => {
                let wide = (u64::from(self.word()) << 32) | u64::from(self.word());
                wide % bound
            }
        }
    }

    /// `count` random bytes, as `randbytes` gives them.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 4);
        while bytes.len() + 4 <= count {
            bytes.extend_from_slice(&self.word().to_le_bytes());
        }
        let rest = count - bytes.len();
        if rest > 0 {
            // The last word keeps its upper bits, moved down.
            let word = self.word() >> (32 - 8 * rest);
            bytes.extend_from_slice(&word.to_le_bytes()[..rest]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are what Python 3.11 prints for `random.Random(seed)`.
    #[test]
    fn the_same_seed_gives_the_numbers_python_gives() {
        let mut twister = Twister::new(7);
        let words = [twister.word(), twister.word(), twister.word()];
        assert_eq!(words, [1_390_851_128, 4_071_050_724, 647_892_279]);
        assert!((twister.fraction() - 0.394_823_496_423_173_5).abs() < 1e-16);
        assert_eq!(twister.below(100), 6);
        assert_eq!(twister.below(1 << 30), 155_555_737);
        assert_eq!(twister.bytes(7), [0x24, 0x08, 0x3f, 0xd2, 0x90, 0x2f, 0x89]);

        let mut twister = Twister::new((5 << 32) + 9);
        let words = [twister.word(), twister.word(), twister.word()];
        assert_eq!(words, [2_413_448_013, 1_408_078_549, 3_741_743_216]);
        assert_eq!(twister.bytes(700)[697..], [0xd0, 0xa1, 0x97]);
        assert_eq!(twister.below(10), 0);

        assert_eq!(Twister::new(0).word(), 3_626_764_237);
    }
}
