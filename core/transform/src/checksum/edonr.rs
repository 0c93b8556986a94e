//! Edon-R with 512 bits, cut to 256 and started with a block made of the pool's salt.
//!
//! # Mechanism
//! Edon-R was a candidate for SHA-3; ZFS uses it, with the tweak its authors proposed later,
//! because it is fast on machines without hash instructions. Its only tool is a *quasigroup*: an
//! operation on two vectors of eight words in which each word of the one side is a rotated sum of
//! five words of that side, and the results are combined three by three. The state is two such
//! vectors, and a block of 128 bytes two more; eight quasigroup operations, in four rows of two,
//! mix them.
//!
//! The salt is hashed, the hash is hashed, and both together are the first block of every hash.
//!
//! # Invariants
//! - The compression function is fixed by the golden blocks in `tests`; any change to a number
//!   below makes pools unreadable.

const BLOCK_BYTES: usize = 128;
const LENGTH_BYTES: usize = 8;

type Vector = [u64; 8];

/// Added to the first sum of the left operand; the right one gets its complement.
const LEFT_CONSTANT: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// Rotations of the sums of the left and of the right operand, left by so many bits.
const LEFT_ROTATIONS: [u32; 8] = [0, 5, 15, 22, 31, 40, 50, 59];
const RIGHT_ROTATIONS: [u32; 8] = [0, 10, 19, 29, 36, 44, 48, 55];

/// Which words of an operand each of its sums takes (two orthogonal Latin squares with three rows
/// struck out, says the specification).
const LEFT_SUMS: [[usize; 5]; 8] = [
    [0, 1, 2, 4, 7],
    [0, 1, 3, 4, 7],
    [0, 1, 4, 6, 7],
    [2, 3, 5, 6, 7],
    [1, 2, 3, 5, 6],
    [0, 2, 3, 4, 5],
    [0, 1, 5, 6, 7],
    [2, 3, 4, 5, 6],
];
const RIGHT_SUMS: [[usize; 5]; 8] = [
    [0, 1, 2, 5, 7],
    [0, 1, 3, 4, 6],
    [0, 1, 2, 3, 5],
    [2, 3, 4, 6, 7],
    [0, 1, 3, 4, 5],
    [2, 4, 5, 6, 7],
    [1, 2, 5, 6, 7],
    [0, 3, 4, 6, 7],
];

/// Which three rotated sums of each side are combined into each word of the result.
const LEFT_TRIPLES: [[usize; 3]; 8] = [
    [0, 1, 4],
    [0, 4, 7],
    [1, 6, 7],
    [2, 3, 4],
    [0, 1, 7],
    [3, 5, 6],
    [2, 5, 6],
    [2, 3, 5],
];
const RIGHT_TRIPLES: [[usize; 3]; 8] = [
    [0, 1, 5],
    [2, 6, 7],
    [0, 1, 3],
    [0, 3, 4],
    [1, 2, 5],
    [3, 4, 6],
    [2, 5, 7],
    [4, 6, 7],
];

/// The operation everything else is made of. The tables are constants and the loops have fixed
/// ends, so that nothing but additions, rotations and exclusive ors is left of this.
#[inline(always)]
fn quasigroup(left: &Vector, right: &Vector) -> Vector {
    let left = rotated_sums(left, LEFT_CONSTANT, &LEFT_SUMS, &LEFT_ROTATIONS);
    let right = rotated_sums(right, !LEFT_CONSTANT, &RIGHT_SUMS, &RIGHT_ROTATIONS);
    let mut result = [0; 8];
    for index in 0..8 {
        let [a, b, c] = LEFT_TRIPLES[index];
        let [d, e, f] = RIGHT_TRIPLES[index];
        result[index] = (left[a] ^ left[b] ^ left[c]).wrapping_add(right[d] ^ right[e] ^ right[f]);
    }
    result
}

#[inline(always)]
fn rotated_sums(
    words: &Vector,
    constant: u64,
    sums: &[[usize; 5]; 8],
    rotations: &[u32; 8],
) -> Vector {
    let mut result = [0; 8];
    for index in 0..8 {
        let mut sum = if index == 0 { constant } else { 0 };
        for &word in &sums[index] {
            sum = sum.wrapping_add(words[word]);
        }
        result[index] = sum.rotate_left(rotations[index]);
    }
    result
}

/// An Edon-R 512 hash under way.
#[derive(Clone)]
pub struct EdonR512 {
    low: Vector,
    high: Vector,
    held: [u8; BLOCK_BYTES],
    held_bytes: usize,
    /// Bytes taken in so far.
    length_bytes: u64,
}

impl Default for EdonR512 {
    fn default() -> Self {
        Self::new()
    }
}

impl EdonR512 {
    /// Starts a hash: the state is the bytes that count up from 0x80, read big-endian.
    pub fn new() -> Self {
        let word = |index: u64| 0x8081_8283_8485_8687 + index * 0x0808_0808_0808_0808;
        Self {
            low: [0, 1, 2, 3, 4, 5, 6, 7].map(word),
            high: [8, 9, 10, 11, 12, 13, 14, 15].map(word),
            held: [0; BLOCK_BYTES],
            held_bytes: 0,
            length_bytes: 0,
        }
    }

    /// Takes in more of the message.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.length_bytes += u64::try_from(bytes.len()).expect("a length fits 64 bits");
        if self.held_bytes > 0 {
            let taken = bytes.len().min(BLOCK_BYTES - self.held_bytes);
            let (head, rest) = bytes.split_at(taken);
            self.held[self.held_bytes..self.held_bytes + taken].copy_from_slice(head);
            self.held_bytes += taken;
            bytes = rest;
            if self.held_bytes < BLOCK_BYTES {
                return;
            }
            let block = self.held;
            self.absorb(&block);
            self.held_bytes = 0;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            self.absorb(block);
        }
        self.held[..rest.len()].copy_from_slice(rest);
        self.held_bytes = rest.len();
    }

    /// Ends the hash: a one bit, zeros, and the length in bits at the end of the last block.
    pub fn finish(mut self) -> [u8; 64] {
        let length_bits = self.length_bytes.wrapping_mul(8);
        let mut last = self.held;
        last[self.held_bytes] = 0x80;
        last[self.held_bytes + 1..].fill(0);
        if self.held_bytes >= BLOCK_BYTES - LENGTH_BYTES {
            self.absorb(&last);
            last.fill(0);
        }
        last[BLOCK_BYTES - LENGTH_BYTES..].copy_from_slice(&length_bits.to_le_bytes());
        self.absorb(&last);
        let mut bytes = [0; 64];
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (stored, word) in words.iter_mut().zip(self.high) {
            *stored = word.to_le_bytes();
        }
        bytes
    }

    fn absorb(&mut self, block: &[u8; BLOCK_BYTES]) {
        let (words, _) = block.as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        let first: Vector = std::array::from_fn(word);
        let second: Vector = std::array::from_fn(|index| word(index + 8));

        let a = quasigroup(&reversed(&second), &first);
        let b = quasigroup(&a, &second);
        let a = quasigroup(&self.high, &a);
        let b = quasigroup(&a, &b);
        let a = quasigroup(&a, &self.low);
        let b = quasigroup(&b, &a);
        let a = quasigroup(&reversed(&first), &a);
        let b = quasigroup(&a, &b);

        // The tweak: state and message are fed forward, so that a step cannot be run backwards.
        for index in 0..8 {
            self.low[index] ^= second[index] ^ a[index];
            self.high[index] ^= first[index] ^ b[index];
        }
    }
}

#[inline(always)]
fn reversed(words: &Vector) -> Vector {
    std::array::from_fn(|index| words[7 - index])
}

/// The hash as ZFS starts it, after the block made of the salt.
pub(super) fn salted(salt: &[u8; 32]) -> EdonR512 {
    let once = digest(salt);
    let twice = digest(&once);
    let mut hash = EdonR512::new();
    hash.update(&once);
    hash.update(&twice);
    hash
}

/// Ends a hash started with [`salted`] over a block that lies in pieces.
pub(super) fn salted_digest(salted: &EdonR512, pieces: &[&[u8]]) -> [u8; 32] {
    let mut hash = salted.clone();
    for piece in pieces {
        hash.update(piece);
    }
    let digest = hash.finish();
    *digest.first_chunk().expect("64 bytes begin with 32")
}

fn digest(bytes: &[u8]) -> [u8; 64] {
    let mut hash = EdonR512::new();
    hash.update(bytes);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex_of(message: &str) -> String {
        let mut hash = EdonR512::new();
        for piece in message.as_bytes().chunks(5) {
            hash.update(piece);
        }
        hash.finish()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Digests that implementations of Edon-R 512 with the tweak are tested with.
    #[test]
    fn the_known_digests_come_out() {
        assert_eq!(
            hex_of("abc"),
            "1b14db155f1d406594b8cef70a4362ec6b5de6a5daf50ec999e987c19d3049e2\
             de5977bb05b1bb220050a1ea5b46a9f1740acafbf6b45032adc90c628372c22b"
        );
        assert_eq!(
            hex_of(
                "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno\
                 ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"
            ),
            "5351070dc51c3b2baca5a60d0252ccb4e4921a96fe5a69e76dad48fd21a0845a\
             d57f880b3e4a907bc503151842bb949e1cba7439a6409a34b8436cb46921583c"
        );
    }
}
