//! ZAPs: objects that map names to values. Directories, properties and indexes are stored as these.
//!
//! # Mechanism
//! A small ZAP is one block, a list of entries ([`micro`]): names shorter than 50 bytes, values of
//! one 64-bit word. When that does not do, the object becomes a *fat* ZAP: a header block with a
//! table of pointers ([`fat`]), and *leaf* blocks ([`leaf`]). Names are hashed ([`hash`]); the
//! first bits of the hash are an index into the table, which says in which leaf the name is. A leaf
//! that is full splits in two by the next bit; when the table has no more bits, it doubles.
//!
//! ```text
//!   hash  0110 1001…          table            leaves
//!         ──┬─                ┌──┐
//!           └── shift bits ──▶│ 3│──────────▶ block 3: prefix 01, 2 bits long
//!                             │ 3│──────────▶ (two table entries, one leaf)
//!                             │ 1│──────────▶ block 1: prefix 1, 1 bit long
//!                             │ …│
//!                             └──┘
//! ```
//!
//! Names that share a hash are told apart by their *collision differentiator*, a number that is
//! unique among them. Hash and differentiator together are the cursor of a walk through the ZAP.
//!
//! Everything here works on the bytes of one block. The layer above finds, reads and writes the
//! block, and normalises names: it passes names as they are to be hashed.
//!
//! # Invariants
//! - Blocks are worked on in little-endian form; [`to_little_endian`] makes them so after a read.
//! - Whatever is changed in a block, the block is valid for OpenZFS after each call.
//!
//! # Knows nothing about
//! I/O, caches, Unicode.

pub mod fat;
pub mod hash;
pub mod leaf;
pub mod micro;

pub use hash::{Cursor, DIFFERENTIATOR_END, ZapHash};

use crate::declare::{ByteOrder, Corrupt, Reader, widen};

/// The longest name, in bytes with its final zero.
#[doc(alias = "ZAP_MAXNAMELEN")]
pub const NAME_BYTES_MAX: usize = 256;

/// The longest name in directories of pools with the feature `longname`.
#[doc(alias = "ZAP_MAXNAMELEN_NEW")]
pub const LONG_NAME_BYTES_MAX: usize = 1024;

/// The largest value, in bytes.
#[doc(alias = "ZAP_MAXVALUELEN")]
pub const VALUE_BYTES_MAX: usize = 8192;

/// Whether a ZAP that is no directory can hold an entry of this name: the name is not empty, has no
/// zero, and leaves room for the final one. OpenZFS cannot read an entry that breaks this rule, and
/// no value of a name that a user gives may.
pub fn can_hold_name(name: &str) -> bool {
    !name.is_empty() && name.len() < NAME_BYTES_MAX && !name.contains('\0')
}

/// What the first word of a ZAP's block says it is. The first block of a ZAP is `Header` or
/// `Micro`; blocks of an external pointer table have no mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Entries of a fat ZAP.
    #[doc(alias = "ZBT_LEAF")]
    Leaf,
    /// The header of a fat ZAP.
    #[doc(alias = "ZBT_HEADER")]
    Header,
    /// A whole small ZAP.
    #[doc(alias = "ZBT_MICRO")]
    Micro,
}

impl BlockKind {
    /// The kind that `word` stands for.
    pub fn from_word(word: u64) -> Option<BlockKind> {
        [BlockKind::Leaf, BlockKind::Header, BlockKind::Micro]
            .into_iter()
            .find(|kind| kind.word() == word)
    }

    /// The first word of a block of this kind.
    pub const fn word(self) -> u64 {
        match self {
            BlockKind::Leaf => 1 << 63,
            BlockKind::Header => (1 << 63) + 1,
            BlockKind::Micro => (1 << 63) + 3,
        }
    }

    /// The kind of a block in little-endian form; `None` for anything but the three.
    pub fn of_block(block: &[u8]) -> Option<BlockKind> {
        let word = block.get(..8)?.try_into().ok()?;
        BlockKind::from_word(u64::from_le_bytes(word))
    }
}

/// How a ZAP treats its names, as its header has it.
#[doc(alias = "zap_flags_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ZapFlags(u64);

impl ZapFlags {
    /// Hashes of 48 bits, for very large ZAPs.
    #[doc(alias = "ZAP_FLAG_HASH64")]
    pub const HASH_48_BITS: ZapFlags = ZapFlags(1);
    /// Names are arrays of 64-bit words.
    #[doc(alias = "ZAP_FLAG_UINT64_KEY")]
    pub const WORD_NAMES: ZapFlags = ZapFlags(2);
    /// The first word of a name is its hash.
    #[doc(alias = "ZAP_FLAG_PRE_HASHED_KEY")]
    pub const NAMES_ARE_HASHED: ZapFlags = ZapFlags(4);

    /// As they are stored. Flags that are not known are kept.
    pub const fn from_word(word: u64) -> ZapFlags {
        ZapFlags(word)
    }

    /// As they are stored.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// All flags of both.
    pub const fn and(self, other: ZapFlags) -> ZapFlags {
        ZapFlags(self.0 | other.0)
    }

    /// True when all of `other` are set.
    pub const fn has(self, other: ZapFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// How many bits of a hash are used, the others being zero.
    #[doc(alias = "zap_hashbits")]
    pub const fn hash_bits(self) -> u32 {
        if self.has(ZapFlags::HASH_48_BITS) {
            48
        } else {
            28
        }
    }
}

/// A name in a ZAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name<'a> {
    /// A string, without the final zero that is stored with it.
    Text(&'a [u8]),
    /// Words, in ZAPs with [`ZapFlags::WORD_NAMES`].
    Words(&'a [u64]),
}

impl<'a> From<&'a [u8]> for Name<'a> {
    fn from(text: &'a [u8]) -> Self {
        Name::Text(text)
    }
}

impl<'a> From<&'a str> for Name<'a> {
    fn from(text: &'a str) -> Self {
        Name::Text(text.as_bytes())
    }
}

impl<'a> From<&'a [u64]> for Name<'a> {
    fn from(words: &'a [u64]) -> Self {
        Name::Words(words)
    }
}

/// A name taken out of a ZAP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnedName {
    /// A string, without the final zero that is stored with it.
    Text(Vec<u8>),
    /// Words, in ZAPs with [`ZapFlags::WORD_NAMES`].
    Words(Vec<u64>),
}

impl OwnedName {
    /// The name, borrowed.
    pub fn as_name(&self) -> Name<'_> {
        match self {
            OwnedName::Text(text) => Name::Text(text),
            OwnedName::Words(words) => Name::Words(words),
        }
    }
}

/// A value in a ZAP: an array of integers of one size. In the bytes of a leaf they are big-endian.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ZapValue {
    /// Integers of one byte: usually text with its final zero.
    Bytes(Vec<u8>),
    /// Integers of two bytes.
    Halves(Vec<u16>),
    /// Integers of four bytes.
    Quads(Vec<u32>),
    /// Integers of eight bytes.
    Words(Vec<u64>),
}

impl ZapValue {
    /// One word, which is all that a micro ZAP can hold.
    pub fn word(word: u64) -> ZapValue {
        ZapValue::Words(vec![word])
    }

    /// A string with its final zero, as properties are stored.
    pub fn text(text: &str) -> ZapValue {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        ZapValue::Bytes(bytes)
    }

    /// The size of one integer, in bytes.
    pub const fn integer_size(&self) -> u8 {
        match self {
            ZapValue::Bytes(_) => 1,
            ZapValue::Halves(_) => 2,
            ZapValue::Quads(_) => 4,
            ZapValue::Words(_) => 8,
        }
    }

    /// How many integers there are.
    pub fn integer_count(&self) -> usize {
        match self {
            ZapValue::Bytes(integers) => integers.len(),
            ZapValue::Halves(integers) => integers.len(),
            ZapValue::Quads(integers) => integers.len(),
            ZapValue::Words(integers) => integers.len(),
        }
    }

    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        self.integer_count() * usize::from(self.integer_size())
    }

    /// The word, where the value is one.
    pub fn as_word(&self) -> Option<u64> {
        match self {
            ZapValue::Words(words) if words.len() == 1 => Some(words[0]),
            _ => None,
        }
    }

    /// The string, where the value is bytes: up to the first zero.
    pub fn as_text(&self) -> Option<&[u8]> {
        match self {
            ZapValue::Bytes(bytes) => bytes.split(|&byte| byte == 0).next(),
            _ => None,
        }
    }

    /// The integers, each widened to a word.
    pub fn to_words(&self) -> Vec<u64> {
        match self {
            ZapValue::Bytes(integers) => integers.iter().map(|&n| u64::from(n)).collect(),
            ZapValue::Halves(integers) => integers.iter().map(|&n| u64::from(n)).collect(),
            ZapValue::Quads(integers) => integers.iter().map(|&n| u64::from(n)).collect(),
            ZapValue::Words(integers) => integers.clone(),
        }
    }

    /// The bytes as a leaf holds them.
    fn to_big_endian(&self) -> Vec<u8> {
        match self {
            ZapValue::Bytes(integers) => integers.clone(),
            ZapValue::Halves(integers) => integers.iter().flat_map(|n| n.to_be_bytes()).collect(),
            ZapValue::Quads(integers) => integers.iter().flat_map(|n| n.to_be_bytes()).collect(),
            ZapValue::Words(integers) => integers.iter().flat_map(|n| n.to_be_bytes()).collect(),
        }
    }

    /// From the bytes as a leaf holds them; `None` when integers have no such size.
    fn from_big_endian(bytes: Vec<u8>, integer_size: u8) -> Option<ZapValue> {
        Some(match integer_size {
            1 => ZapValue::Bytes(bytes),
            2 => ZapValue::Halves(
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&n| u16::from_be_bytes(n))
                    .collect(),
            ),
            4 => ZapValue::Quads(
                bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&n| u32::from_be_bytes(n))
                    .collect(),
            ),
            8 => ZapValue::Words(words_from_big_endian(&bytes)),
            _ => return None,
        })
    }
}

/// Words from the bytes as a leaf holds them.
fn words_from_big_endian(bytes: &[u8]) -> Vec<u64> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|&n| u64::from_be_bytes(n))
        .collect()
}

/// Brings a block of a ZAP, as it was read, into little-endian form, in which everything else
/// here expects it. `order` is that of its block pointer.
#[doc(alias = "zap_byteswap")]
pub fn to_little_endian(block: &mut [u8], order: ByteOrder) -> Result<(), Corrupt> {
    if order == ByteOrder::Little {
        return Ok(());
    }
    let first = Reader::new("ZAP block", block, order).u64()?;
    match BlockKind::from_word(first) {
        Some(BlockKind::Micro) => micro::swap(block),
        Some(BlockKind::Leaf) => leaf::swap(block)?,
        _ => swap_words(block),
    }
    Ok(())
}

/// Turns the bytes of each word around, as far as there are whole words.
fn swap_words(bytes: &mut [u8]) {
    for word in bytes.as_chunks_mut::<8>().0 {
        word.reverse();
    }
}

/// The number of two bytes at `place`, which the caller knows to be inside.
fn u16_at(block: &[u8], place: usize) -> u16 {
    let [first, second] = [block[place], block[place + 1]];
    u16::from_le_bytes([first, second])
}

/// The number of four bytes at `place`, which the caller knows to be inside.
fn u32_at(block: &[u8], place: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&block[place..place + 4]);
    u32::from_le_bytes(bytes)
}

/// The number of eight bytes at `place`, which the caller knows to be inside.
fn u64_at(block: &[u8], place: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[place..place + 8]);
    u64::from_le_bytes(bytes)
}

/// Puts bytes at `place`, which the caller knows to be inside.
fn put(block: &mut [u8], place: usize, bytes: &[u8]) {
    block[place..place + bytes.len()].copy_from_slice(bytes);
}

/// An error for a rule that is broken at `place`.
fn inconsistent(what: &'static str, place: usize, why: &'static str) -> Corrupt {
    Corrupt::Inconsistent {
        what,
        offset: widen(place),
        why,
    }
}

/// The power of two that is the size of a block of a fat ZAP, from 512 bytes up to what chunk
/// numbers of 16 bits can count.
fn block_shift(what: &'static str, block: &[u8]) -> Result<u32, Corrupt> {
    let shift = block.len().trailing_zeros();
    if block.len().is_power_of_two() && (9..=20).contains(&shift) {
        return Ok(shift);
    }
    Err(Corrupt::Value {
        what,
        field: "block size",
        offset: 0,
        found: widen(block.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_of_words_lies_big_endian_in_a_leaf() {
        let value = ZapValue::Words(vec![0x0102_0304_0506_0708]);
        assert_eq!(value.to_big_endian(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(
            ZapValue::from_big_endian(value.to_big_endian(), 8),
            Some(value)
        );
    }

    proptest! {
        #[test]
        fn any_block_comes_into_little_endian_form_or_is_refused(
            mut block in prop::collection::vec(any::<u8>(), 0..2048),
            kind in 0u8..4,
        ) {
            if block.len() >= 8 {
                block[0] = 0x80;
                block[7] = kind;
            }
            let _ = to_little_endian(&mut block, ByteOrder::Big);
        }
    }
}
