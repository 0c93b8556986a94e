//! Chance that follows from a seed.

/// A generator of 64 bits of state: fast, and good enough to choose by.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// What follows from a seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Any number: SplitMix64.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// An index into a list of this length; 0 for an empty one.
    pub fn index(&mut self, length: usize) -> usize {
        let length = u64::try_from(length.max(1)).expect("a length fits in 64 bits");
        usize::try_from(self.draw() % length).expect("below a length")
    }

    /// True once in so many times.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.index(count) == 0
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.draw().to_le_bytes()[7]
    }
}
