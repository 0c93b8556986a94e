//! Random numbers that follow from a seed: SplitMix64 (Steele, Lea and Flood, 2014).
//!
//! The one generator of simulations, tests and fuzzing: small, fast, and good enough to choose by.
//! Only `tarn_workload::twister` stands beside it, since the trees in our fixtures were made by
//! Python's generator.

/// So many powers of ten [`Random::magnitude`] knows.
const MAGNITUDES: u64 = 5;

/// A stream of numbers. The same seed gives the same stream.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw().checked_rem(limit).unwrap_or(0)
    }

    /// A place in a list of that length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap_or(u64::MAX))).unwrap_or(0)
    }

    /// True `numerator` times of `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// A number up to `limit`, up to a tenth of it, up to a hundredth and so on, each as likely.
    pub fn magnitude(&mut self, limit: u64) -> u64 {
        let power = u32::try_from(self.below(MAGNITUDES)).unwrap_or(0);
        self.below((limit / 10_u64.pow(power)).max(1))
    }

    /// True once in so many times; always for 0.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.index(count) == 0
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.draw().to_le_bytes()[7]
    }

    /// So many bytes, which do not compress.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.fill(&mut bytes);
        bytes
    }

    /// Fills bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.draw().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Another stream that follows from this one.
    pub fn fork(&mut self) -> Random {
        Random(self.draw())
    }

    /// Puts a list into a random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.index(last + 1);
            list.swap(last, other);
        }
    }
}
