//! A hasher without a seed: the same keys give the same table in every run.
//!
//! The keys are places on disk, which a hostile pool may choose; what it can slow down by that is
//! its own reading.

use std::hash::{BuildHasher, Hasher};

/// Makes [`FixedHasher`]s.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FixedState;

impl BuildHasher for FixedState {
    type Hasher = FixedHasher;

    fn build_hasher(&self) -> FixedHasher {
        FixedHasher(0)
    }
}

/// Mixes words by multiplication and folding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedHasher(u64);

/// Odd, with bits well spread: the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        let folded = self.0 ^ (self.0 >> 32);
        folded.wrapping_mul(FACTOR) ^ (folded >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
}
