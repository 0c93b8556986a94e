//! A leaf of a fat ZAP: the entries whose hashes begin alike.
//!
//! # Mechanism
//! After a header come the heads of hash chains, and then *chunks* of 24 bytes, each an entry, a
//! piece of an array (a name or a value), or free. Chunks point at each other by number:
//!
//! ```text
//!   0         48                48 + 2 × chains
//!   | header  | chain heads     | chunk 0 | chunk 1 | …                               |
//!
//!   entry     | 252 | integer size | next in chain | name | name count | value | value count |
//!             |   differentiator   |                     hash                          |
//!   array     | 251 | 21 bytes                                  | next in array         |
//!   free      | 253 | 21 zeros                                  | next free             |
//! ```
//!
//! A block of `2^n` bytes has `2^(n-5)` chains; the bits of the hash behind the leaf's prefix
//! choose one. Names are stored with their final zero. Integers in arrays are big-endian whatever
//! the byte order of the pool, and run across chunks.
//!
//! The last free chunk to be given back is the first to be used. An array is freed in its order,
//! and an entry's value is freed before its name, before the entry: so a pool that was changed by
//! us has the same chunks in the same places as one that was changed by OpenZFS.
//!
//! # Reading and changing
//! [`Leaf`] (`read`) reads. It trusts no chunk that it has not checked, so every answer may be
//! [`Corrupt`]. [`LeafEdit`] (`edit`, and for chunks and chains `chunks`) changes. Opening it
//! checks the whole leaf (`check`), and no change fails afterwards but for want of room.
//!
//! # Invariants
//! - Every chunk is in one chain, one array, or the free list, and in no other.
//! - In ZAPs that normalise, chains are sorted by differentiator (the header says so), so that the
//!   first match is the oldest name.

mod check;
mod chunks;
mod edit;
mod read;
#[cfg(test)]
mod tests;

pub use edit::{LeafEdit, LeafFull};
pub use read::{Leaf, LeafEntry};

use super::{Name, ZapValue, block_shift};
use crate::declare::{Corrupt, Reserved, Stored};
use crate::on_disk;

/// Marks a leaf, beside its kind.
#[doc(alias = "ZAP_LEAF_MAGIC")]
pub const MAGIC: u32 = 0x2ab_1eaf;

/// When a leaf that can split no further has fewer free chunks, the table grows in advance.
#[doc(alias = "ZAP_LEAF_LOW_WATER")]
pub const FREE_CHUNKS_LOW: usize = 20;

/// The size of a chunk.
#[doc(alias = "ZAP_LEAF_CHUNKSIZE")]
const CHUNK_SIZE: usize = 24;
/// How many bytes of an array are in a chunk.
#[doc(alias = "ZAP_LEAF_ARRAY_BYTES")]
const ARRAY_SIZE: usize = 21;
/// Where in a chunk of an array, or a free one, the next one's number is.
const NEXT_PLACE: usize = 22;
/// Ends chains, arrays and the free list.
const END: u16 = 0xffff;

const ARRAY: u8 = 251;
const ENTRY: u8 = 252;
const FREE: u8 = 253;

/// Chains are sorted by differentiator.
#[doc(alias = "ZLF_ENTRIES_CDSORTED")]
const SORTED: u8 = 1;

/// How many bits of a hash may choose leaf and chain.
const PREFIX_BITS_MAX: u32 = 48;

const WHAT: &str = "ZAP leaf";

on_disk! {
    /// The start of a leaf.
    #[doc(alias = "zap_leaf_header")]
    pub struct LeafHeader [48 bytes] {
        /// Always [`BlockKind::Leaf`](super::BlockKind::Leaf).
        0 => kind: u64,
        8 => reserved: Reserved<8>,
        /// How the hashes of all its entries begin.
        16 => prefix: u64,
        /// Always [`MAGIC`].
        24 => magic: u32,
        28 => free_count: u16,
        30 => entry_count: u16,
        /// How many bits the prefix has.
        32 => prefix_length: u16,
        /// The first free chunk.
        34 => free_chunk: u16,
        36 => flags: u8,
        37 => reserved_2: Reserved<11>,
    }
}

/// Places of header fields that change one by one.
const PREFIX_PLACE: usize = 16;
const FREE_COUNT_PLACE: usize = 28;
const ENTRY_COUNT_PLACE: usize = 30;
const PREFIX_LENGTH_PLACE: usize = 32;
const FREE_CHUNK_PLACE: usize = 34;
const FLAGS_PLACE: usize = 36;

/// Where things are in a leaf of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Geometry {
    chain_bits: u32,
    chunk_count: u16,
}

impl Geometry {
    fn of(block: &[u8]) -> Result<Geometry, Corrupt> {
        let chain_bits = block_shift(WHAT, block)? - 5;
        let chunks = (block.len() - LeafHeader::SIZE - (2 << chain_bits)) / CHUNK_SIZE;
        let chunk_count = u16::try_from(chunks).expect("blocks have at most 2^20 bytes");
        Ok(Geometry {
            chain_bits,
            chunk_count,
        })
    }

    fn chain_count(self) -> usize {
        1 << self.chain_bits
    }

    fn head_place(self, chain: usize) -> usize {
        LeafHeader::SIZE + 2 * chain
    }

    fn chunk_place(self, chunk: u16) -> usize {
        self.head_place(self.chain_count()) + CHUNK_SIZE * usize::from(chunk)
    }
}

/// Turns the numbers of a leaf around; integers in arrays are big-endian anyway.
#[doc(alias = "zap_leaf_byteswap")]
pub(super) fn swap(block: &mut [u8]) -> Result<(), Corrupt> {
    let geometry = Geometry::of(block)?;
    block[..8].reverse();
    block[PREFIX_PLACE..PREFIX_PLACE + 8].reverse();
    block[24..28].reverse();
    for place in [
        FREE_COUNT_PLACE,
        ENTRY_COUNT_PLACE,
        PREFIX_LENGTH_PLACE,
        FREE_CHUNK_PLACE,
    ] {
        block[place..place + 2].reverse();
    }
    let chunks = geometry.chunk_place(0);
    for head in block[geometry.head_place(0)..chunks].as_chunks_mut::<2>().0 {
        head.reverse();
    }
    for chunk in block[chunks..].as_chunks_mut::<CHUNK_SIZE>().0 {
        match chunk[0] {
            ENTRY => {
                for place in [2, 4, 6, 8, 10] {
                    chunk[place..place + 2].reverse();
                }
                chunk[12..16].reverse();
                chunk[16..24].reverse();
            }
            _ => chunk[NEXT_PLACE..].reverse(),
        }
    }
    Ok(())
}

/// How many chunks an array of `size` bytes takes.
#[doc(alias = "ZAP_LEAF_ARRAY_NCHUNKS")]
const fn chunks_for(size: usize) -> usize {
    size.div_ceil(ARRAY_SIZE)
}

/// How many chunks an entry takes.
pub fn chunks_of(name: Name<'_>, value: &ZapValue) -> usize {
    let name_bytes = match name {
        Name::Text(text) => text.len() + 1,
        Name::Words(words) => 8 * words.len(),
    };
    1 + chunks_for(name_bytes) + chunks_for(value.size())
}

/// A name as an array holds it.
fn stored_name(name: Name<'_>) -> Vec<u8> {
    match name {
        Name::Text(text) => {
            let mut bytes = Vec::with_capacity(text.len() + 1);
            bytes.extend(text);
            bytes.push(0);
            bytes
        }
        Name::Words(words) => words.iter().flat_map(|word| word.to_be_bytes()).collect(),
    }
}

/// How many integers a name has, as an entry counts them.
fn name_count(name: Name<'_>) -> u16 {
    match name {
        Name::Text(text) => count_u16(text.len() + 1),
        Name::Words(words) => count_u16(words.len()),
    }
}

/// Up to the first zero.
fn without_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A count that is small because a leaf is.
fn count_u16(count: usize) -> u16 {
    u16::try_from(count).expect("what is in a leaf is counted in 16 bits")
}
