//! Skein-512, as a keyed hash with 256 bits of output.
//!
//! # Mechanism
//! Skein (version 1.3 of its specification) chains the tweakable block cipher Threefish: each step
//! encrypts 64 bytes of input under the state as key, and the next state is what comes out, mixed
//! with the input by exclusive or. The tweak tells the cipher what the bytes are for (key,
//! configuration, message, output), how many went before, and which block is first and last, so
//! that no two uses can be confused. A hash with a key is four such chains, one after the other.
//!
//! No library offers the keyed mode.

use super::threefish;

const BLOCK_BYTES: usize = 64;
const FIRST: u64 = 1 << 62;
const FINAL: u64 = 1 << 63;
/// The letters `SHA3` and version 1, little-endian.
const SCHEMA: u64 = 0x0000_0001_3341_4853;

/// What a chain of blocks is for: the type field of the tweak.
#[derive(Clone, Copy)]
enum Use {
    Key,
    Configuration,
    Message,
    Output,
}

impl Use {
    const fn tweak(self) -> u64 {
        let number: u64 = match self {
            Self::Key => 0,
            Self::Configuration => 4,
            Self::Message => 48,
            Self::Output => 63,
        };
        number << 56
    }
}

/// A Skein-512 hash under way.
#[derive(Clone)]
pub struct Skein512 {
    chain: Chain,
    /// The last bytes seen. A block is mixed in only when more follow it, for the last one is
    /// special.
    held: [u8; BLOCK_BYTES],
    held_bytes: usize,
}

impl Skein512 {
    /// Starts a hash of `output_bits` (at most 512) with a key, which may be empty.
    pub fn new(key: &[u8], output_bits: u64) -> Self {
        let mut state = [0; 8];
        if !key.is_empty() {
            let mut keyed = Self::start(state, Use::Key);
            keyed.update(key);
            state = keyed.close();
        }
        let mut configuration = Self::start(state, Use::Configuration);
        configuration.update(&SCHEMA.to_le_bytes());
        configuration.update(&output_bits.to_le_bytes());
        configuration.update(&[0; 16]);
        Self::start(configuration.close(), Use::Message)
    }

    fn start(state: [u64; 8], purpose: Use) -> Self {
        let chain = Chain {
            state,
            position: 0,
            flags: purpose.tweak() | FIRST,
        };
        Self {
            chain,
            held: [0; BLOCK_BYTES],
            held_bytes: 0,
        }
    }

    /// Takes in more of the message.
    pub fn update(&mut self, mut bytes: &[u8]) {
        if self.held_bytes > 0 {
            let taken = bytes.len().min(BLOCK_BYTES - self.held_bytes);
            let (head, rest) = bytes.split_at(taken);
            self.held[self.held_bytes..self.held_bytes + taken].copy_from_slice(head);
            self.held_bytes += taken;
            bytes = rest;
            if bytes.is_empty() {
                return;
            }
            self.chain.absorb(&self.held, 64);
            self.held_bytes = 0;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        let (whole, last) = match (blocks.split_last(), rest.is_empty()) {
            (Some((last, whole)), true) => (whole, last.as_slice()),
            _ => (blocks, rest),
        };
        for block in whole {
            self.chain.absorb(block, 64);
        }
        self.held[..last.len()].copy_from_slice(last);
        self.held_bytes = last.len();
    }

    /// Ends the hash. The output asked for is at the beginning of the 64 bytes.
    pub fn finish(self) -> [u8; BLOCK_BYTES] {
        let mut output = Self::start(self.close(), Use::Output);
        output.update(&0_u64.to_le_bytes());
        let mut bytes = [0; BLOCK_BYTES];
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (stored, word) in words.iter_mut().zip(output.close()) {
            *stored = word.to_le_bytes();
        }
        bytes
    }

    /// Mixes in what is held as the last block of this chain, filled up with zeros.
    fn close(mut self) -> [u64; 8] {
        self.held[self.held_bytes..].fill(0);
        self.chain.flags |= FINAL;
        let taken = u64::try_from(self.held_bytes).expect("less than a block");
        self.chain.absorb(&self.held, taken);
        self.chain.state
    }
}

#[derive(Clone)]
struct Chain {
    state: [u64; 8],
    /// Bytes mixed in so far.
    position: u64,
    flags: u64,
}

impl Chain {
    fn absorb(&mut self, block: &[u8; BLOCK_BYTES], bytes: u64) {
        self.position = self.position.wrapping_add(bytes);
        let (words, _) = block.as_chunks::<8>();
        let message: [u64; 8] = std::array::from_fn(|index| u64::from_le_bytes(words[index]));
        self.state = threefish::encrypt(&self.state, [self.position, self.flags], &message);
        for (word, input) in self.state.iter_mut().zip(message) {
            *word ^= input;
        }
        self.flags &= !FIRST;
    }
}

/// The hash as ZFS starts it: keyed with the salt, 256 bits of output.
pub(super) fn salted(salt: &[u8; 32]) -> Skein512 {
    Skein512::new(salt, 256)
}

/// Ends a hash started with [`salted`] over a block that lies in pieces.
pub(super) fn salted_digest(salted: &Skein512, pieces: &[&[u8]]) -> [u8; 32] {
    let mut hash = salted.clone();
    for piece in pieces {
        hash.update(piece);
    }
    let digest = hash.finish();
    *digest.first_chunk().expect("64 bytes begin with 32")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest_of_countdown(bytes: usize) -> String {
        let message: Vec<u8> = (0..=255).rev().cycle().take(bytes).collect();
        let mut hash = Skein512::new(&[], 512);
        for piece in message.chunks(7) {
            hash.update(piece);
        }
        hash.finish()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Appendix C of the specification: messages that count down from 255.
    #[test]
    fn the_specification_s_examples_come_out() {
        assert_eq!(
            digest_of_countdown(1),
            "71b7bce6fe6452227b9ced6014249e5bf9a9754c3ad618ccc4e0aae16b316cc8\
             ca698d864307ed3e80b6ef1570812ac5272dc409b5a012df2a579102f340617a"
        );
        assert_eq!(
            digest_of_countdown(64),
            "45863ba3be0c4dfc27e75d358496f4ac9a736a505d9313b42b2f5eada79fc17f\
             63861e947afb1d056aa199575ad3f8c9a3cc1780b5e5fa4cae050e989876625b"
        );
        assert_eq!(
            digest_of_countdown(128),
            "91cca510c263c4ddd010530a33073309628631f308747e1bcbaa90e451cab92e\
             5188087af4188773a332303e6667a7a210856f742139000071f48e8ba2a5adb7"
        );
    }
}
