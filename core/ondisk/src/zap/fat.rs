//! The header of a fat ZAP, and its pointer table.
//!
//! # Mechanism
//! Block 0 of the object is the header. The table that leads from the first bits of a hash to a
//! leaf's block is the second half of the header at first (*embedded*), and from then on whole
//! blocks of their own (*external*). With `shift` bits it has `2^shift` entries of one word.
//!
//! The external table doubles bit by bit: `next_block` is where the new one begins, and each
//! change to the ZAP may copy one more block of the old table, each word twice, into two of the
//! new. Meanwhile a change of an entry that was or will be copied is made in both.
//!
//! New blocks of the object, for leaves and tables, are taken at `free_block`. Freed ones are not
//! used again: the object has holes there.
//!
//! # Invariants
//! - `2^shift` words fill the embedded half, or `block_count` blocks.
//! - A leaf whose prefix is shorter than `shift` has `2^(shift - length)` entries in a row.

use super::{BlockKind, ZapFlags, ZapHash, block_shift, inconsistent, put, u64_at};
use crate::declare::{Corrupt, Stored, narrow, widen};
use crate::on_disk;

/// Marks a header, beside its kind.
#[doc(alias = "ZAP_MAGIC")]
pub const MAGIC: u64 = 0x2_f52a_b2ab;

/// The usual size of blocks: a micro ZAP that becomes fat has these.
#[doc(alias = "fzap_default_block_shift")]
pub const BLOCK_SHIFT: u32 = 14;

/// How many bits of the hash the table leaves unused, at least.
const UNUSED_BITS_MIN: u32 = 2;

/// No ZAP has more blocks or entries: so many bytes no object has. Counts up to it can be added
/// without going over, and none goes up beyond it.
const COUNT_MAX: u64 = 1 << 60;
/// Block 0 is the header, and there was always a leaf. A table that is moved to a block in use
/// would overwrite it.
const FREE_BLOCK_MIN: u64 = 2;

const WHAT: &str = "fat ZAP header";

on_disk! {
    /// The state of a pointer table.
    #[doc(alias = "zap_table_phys_t")]
    #[derive(Copy, Default)]
    pub struct PointerTable [40 bytes] {
        /// The block where the table begins; 0 while it is embedded.
        0 => block: u64,
        /// How many blocks it has; 0 while it is embedded.
        8 => block_count: u64,
        /// How many bits index it.
        16 => shift: u64,
        /// The block where a table of twice the size begins, while that is being filled; else 0.
        24 => next_block: u64,
        /// How many blocks of this table were copied to the next.
        32 => copied_count: u64,
    }
}

on_disk! {
    /// The start of the first block of a fat ZAP.
    #[doc(alias = "zap_phys_t")]
    pub struct FatHeader [104 bytes] {
        /// Always [`BlockKind::Header`].
        0 => kind: u64,
        /// Always [`MAGIC`].
        8 => magic: u64,
        16 => table: PointerTable,
        /// The first block that was never used.
        56 => free_block: u64,
        64 => leaf_count: u64,
        72 => entry_count: u64,
        /// What hashes of its names begin with. Never zero.
        80 => salt: u64,
        /// How names are normalised before they are hashed and compared, as `u8_textprep_str`
        /// numbers it.
        88 => normalization: u64,
        /// The words of [`ZapFlags`].
        96 => flag_word: u64,
    }
}

/// A place in the pointer table: the word at `index` of a block of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TablePlace {
    /// The block: 0 is the header.
    pub block: u64,
    /// The word in the block, counted from its start.
    pub index: usize,
}

/// One step in doubling an external table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableCopy {
    /// The block to copy from.
    pub from: u64,
    /// The blocks that its first and second half go to.
    pub to: [u64; 2],
}

/// Blocks of an object, in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRange {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// The table has all the bits of the hash that it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the ZAP is full: its pointer table cannot grow any more")]
pub struct TableFull;

impl FatHeader {
    /// The header of a new fat ZAP with one leaf, which is block 1. The header's block is to be
    /// made by [`format`](FatHeader::format), and the leaf's by
    /// [`LeafEdit::format`](super::leaf::LeafEdit::format).
    ///
    /// # Panics
    /// When the salt is zero.
    #[doc(alias = "fzap_upgrade")]
    pub fn new(block_shift: u32, salt: u64, normalization: u64, flags: ZapFlags) -> FatHeader {
        assert_ne!(salt, 0, "a ZAP has a salt");
        FatHeader {
            kind: BlockKind::Header.word(),
            magic: MAGIC,
            table: PointerTable {
                shift: u64::from(embedded_shift(block_shift)),
                ..PointerTable::default()
            },
            free_block: 2,
            leaf_count: 1,
            entry_count: 0,
            salt,
            normalization,
            flag_word: flags.word(),
        }
    }

    /// Fills the block of a header that was just made: zeros, the header, and an embedded table
    /// that leads to block 1 for every hash.
    pub fn format(&self, block: &mut [u8]) {
        block.fill(0);
        self.write_to(block);
        let half = block.len() / 2;
        for pointer in block[half..].as_chunks_mut::<8>().0 {
            *pointer = 1u64.to_le_bytes();
        }
    }

    /// Decodes the header from its block, in little-endian form.
    pub fn open(block: &[u8]) -> Result<FatHeader, Corrupt> {
        let header = FatHeader::from_bytes(block, Default::default())?;
        for (offset, found, expected) in [
            (0, header.kind, BlockKind::Header.word()),
            (8, header.magic, MAGIC),
        ] {
            if found != expected {
                return Err(Corrupt::Magic {
                    what: WHAT,
                    offset,
                    found,
                    expected,
                });
            }
        }
        header.check_table(block_shift(WHAT, block)?)?;
        Ok(header)
    }

    fn check_table(&self, block_shift: u32) -> Result<(), Corrupt> {
        for (field, offset, found) in [
            ("free block", 56, self.free_block),
            ("leaf count", 64, self.leaf_count),
            ("entry count", 72, self.entry_count),
        ] {
            if found > COUNT_MAX {
                return Err(Corrupt::Value {
                    what: WHAT,
                    field,
                    offset,
                    found,
                });
            }
        }
        if self.free_block < FREE_BLOCK_MIN {
            return Err(Corrupt::Value {
                what: WHAT,
                field: "free block",
                offset: 56,
                found: self.free_block,
            });
        }
        let table = self.table;
        let words_in_block = 1u64 << (block_shift - 3);
        let bad_shift = || Corrupt::Value {
            what: WHAT,
            field: "shift",
            offset: 32,
            found: table.shift,
        };
        let entries = 1u64.checked_shl(self.shift()).ok_or_else(bad_shift)?;
        let fits = if self.is_embedded() {
            table.block == 0 && self.shift() == embedded_shift(block_shift)
        } else {
            table.block != 0
                && table.block_count.checked_mul(words_in_block) == Some(entries)
                && table
                    .block
                    .checked_add(table.block_count)
                    .is_some_and(|end| end <= self.free_block)
        };
        if !fits || self.shift() > table_bits_max(self.flags()) {
            return Err(bad_shift());
        }
        let copying = table.next_block != 0 || table.copied_count != 0;
        let next_end = table
            .next_block
            .checked_add(table.block_count.saturating_mul(2));
        if copying
            && (self.is_embedded()
                || table.copied_count >= table.block_count
                || next_end.is_none_or(|end| end > self.free_block))
        {
            return Err(inconsistent(
                WHAT,
                40,
                "the table's copy is not where it can be",
            ));
        }
        Ok(())
    }

    /// How the ZAP treats its names.
    pub const fn flags(&self) -> ZapFlags {
        ZapFlags::from_word(self.flag_word)
    }

    /// How many bits index the table.
    pub fn shift(&self) -> u32 {
        u32::try_from(self.table.shift).unwrap_or(u32::MAX)
    }

    /// True while the table is in the header's block.
    pub const fn is_embedded(&self) -> bool {
        self.table.block_count == 0
    }

    /// The entry of the table that leads to the leaf for a hash.
    pub fn index(&self, hash: ZapHash) -> u64 {
        hash.prefix(self.shift())
    }

    /// Where an entry of the table is stored, in blocks of `2^block_shift` bytes.
    ///
    /// # Panics
    /// When the table has no such entry.
    pub fn place(&self, index: u64, block_shift: u32) -> TablePlace {
        assert!(index >> self.shift() == 0, "the entry is in the table");
        let words_in_block = 1u64 << (block_shift - 3);
        if self.is_embedded() {
            TablePlace {
                block: 0,
                index: narrow(words_in_block / 2 + index),
            }
        } else {
            TablePlace {
                block: self.table.block + index / words_in_block,
                index: narrow(index % words_in_block),
            }
        }
    }

    /// Where else an entry is to be stored when it is changed, while the table is being copied.
    pub fn places_in_next(&self, index: u64, block_shift: u32) -> Option<[TablePlace; 2]> {
        let next = self.table.next_block;
        let words_in_block = 1u64 << (block_shift - 3);
        let place = |index: u64| TablePlace {
            block: next + index / words_in_block,
            index: narrow(index % words_in_block),
        };
        (next != 0).then(|| [place(2 * index), place(2 * index + 1)])
    }

    /// The entries of the table that lead to a leaf: the first, and how many follow it in a row.
    ///
    /// `None` where the prefix is longer than the table's index, or not a prefix.
    pub fn entries_of(&self, prefix: u64, prefix_length: u32) -> Option<std::ops::Range<u64>> {
        let more = self.shift().checked_sub(prefix_length)?;
        if prefix_length < 64 && prefix >> prefix_length != 0 {
            return None;
        }
        let first = prefix << more;
        Some(first..first + (1 << more))
    }

    /// Takes `count` new blocks, and gives the first. None is left where the header lies about how
    /// many are taken.
    pub fn allocate_blocks(&mut self, count: u64) -> Result<u64, TableFull> {
        let first = self.free_block;
        let end = first.checked_add(count);
        self.free_block = end.filter(|end| *end <= COUNT_MAX).ok_or(TableFull)?;
        Ok(first)
    }

    /// There is one leaf more.
    pub fn count_leaf(&mut self) {
        self.leaf_count = (self.leaf_count + 1).min(COUNT_MAX);
    }

    /// There is one entry more.
    pub fn count_entry(&mut self) {
        self.entry_count = (self.entry_count + 1).min(COUNT_MAX);
    }

    /// Moves the embedded table into a block of its own, of twice the entries, and gives its
    /// number. `header_block` holds the table; `table_block` becomes the new one.
    ///
    /// # Panics
    /// When the table is external already.
    #[doc(alias = "zap_grow_ptrtbl")]
    pub fn make_external(
        &mut self,
        header_block: &[u8],
        table_block: &mut [u8],
    ) -> Result<u64, TableFull> {
        assert!(self.is_embedded(), "only an embedded table is moved out");
        self.check_growth()?;
        let block = self.allocate_blocks(1)?;
        spread(&header_block[header_block.len() / 2..], table_block);
        self.table = PointerTable {
            block,
            block_count: 1,
            shift: self.table.shift + 1,
            ..PointerTable::default()
        };
        Ok(block)
    }

    /// The next step in doubling the external table, beginning to do so if need be. To be done
    /// with [`spread`] and then recorded with [`record_copy`](FatHeader::record_copy).
    ///
    /// # Panics
    /// When the table is embedded.
    #[doc(alias = "zap_table_grow")]
    pub fn next_copy(&mut self) -> Result<TableCopy, TableFull> {
        assert!(!self.is_embedded(), "an embedded table does not double");
        self.check_growth()?;
        if self.table.next_block == 0 {
            self.table.next_block = self.allocate_blocks(2 * self.table.block_count)?;
        }
        let done = self.table.copied_count;
        let next = self.table.next_block;
        Ok(TableCopy {
            from: self.table.block + done,
            to: [next + 2 * done, next + 2 * done + 1],
        })
    }

    /// How many entries of the table are still to be copied before it has twice as many.
    pub fn words_to_copy(&self) -> u64 {
        let words = 1 << self.shift();
        match self.table.block_count {
            0 => words,
            blocks => (words / blocks).saturating_mul(blocks - self.table.copied_count),
        }
    }

    /// Notes that one more block of the table was copied. When it was the last, the new table
    /// takes over, and the blocks of the old one are given back, to be freed.
    pub fn record_copy(&mut self) -> Option<BlockRange> {
        let table = &mut self.table;
        table.copied_count += 1;
        if table.copied_count < table.block_count {
            return None;
        }
        let old = BlockRange {
            first: table.block,
            count: table.block_count,
        };
        *table = PointerTable {
            block: table.next_block,
            block_count: 2 * table.block_count,
            shift: table.shift + 1,
            ..PointerTable::default()
        };
        Some(old)
    }

    fn check_growth(&self) -> Result<(), TableFull> {
        if self.shift() >= table_bits_max(self.flags()) {
            Err(TableFull)
        } else {
            Ok(())
        }
    }
}

/// How many bits of a hash may index the table. Names that are alike in these are in one leaf for
/// ever.
pub const fn table_bits_max(flags: ZapFlags) -> u32 {
    flags.hash_bits() - UNUSED_BITS_MIN
}

/// How many bits index an embedded table, in blocks of `2^block_shift` bytes.
#[doc(alias = "ZAP_EMBEDDED_PTRTBL_SHIFT")]
pub const fn embedded_shift(block_shift: u32) -> u32 {
    block_shift - 4
}

/// The pointer at `index` of a block, in little-endian form, that holds a part of the table.
/// `None` past its end.
pub fn pointer(block: &[u8], index: usize) -> Option<u64> {
    let start = index.checked_mul(8)?;
    (start.checked_add(8)? <= block.len()).then(|| u64_at(block, start))
}

/// Changes the pointer at `index` of a block that holds a part of the table.
///
/// # Panics
/// Past the end of the block.
pub fn set_pointer(block: &mut [u8], index: usize, leaf: u64) {
    put(block, 8 * index, &leaf.to_le_bytes());
}

/// Writes each pointer in `from` twice into `to`, which has twice the size.
///
/// # Panics
/// When it has not.
#[doc(alias = "zap_ptrtbl_transfer")]
pub fn spread(from: &[u8], to: &mut [u8]) {
    assert_eq!(2 * from.len(), to.len(), "the new part has twice the size");
    for (pointer, twice) in from
        .as_chunks::<8>()
        .0
        .iter()
        .zip(to.as_chunks_mut::<16>().0)
    {
        twice[..8].copy_from_slice(pointer);
        twice[8..].copy_from_slice(pointer);
    }
}

/// An error for a pointer that cannot lead to a leaf.
pub fn bad_pointer(place: TablePlace, found: u64) -> Corrupt {
    Corrupt::Value {
        what: "fat ZAP pointer table",
        field: "leaf",
        offset: 8 * widen(place.index),
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declare::ByteOrder;
    use proptest::prelude::*;

    fn new_header() -> (FatHeader, Vec<u8>) {
        let header = FatHeader::new(9, 7, 0, ZapFlags::default());
        let mut block = vec![0xee; 512];
        header.format(&mut block);
        (header, block)
    }

    #[test]
    fn a_new_header_leads_every_hash_to_block_one() {
        let (header, block) = new_header();
        assert_eq!(FatHeader::open(&block), Ok(header.clone()));
        for index in 0..32 {
            let place = header.place(index, 9);
            assert_eq!(place.block, 0);
            assert_eq!(pointer(&block, place.index), Some(1));
        }
        assert_eq!(header.entries_of(0, 0), Some(0..32));
        assert_eq!(header.entries_of(5, 3), Some(20..24));
        assert_eq!(header.entries_of(8, 3), None);
        assert_eq!(header.entries_of(0, 6), None);
    }

    /// Grows a table from embedded to four blocks, changing entries on the way, and compares it
    /// with a table of pointers in memory.
    #[test]
    fn a_growing_table_keeps_leading_to_the_same_leaves() {
        let (mut header, mut block) = new_header();
        for index in 0..32 {
            let place = header.place(index, 9);
            set_pointer(&mut block, place.index, 100 + index);
        }
        let mut blocks = std::collections::BTreeMap::from([(0, block.clone())]);
        let mut external = vec![0; 512];
        let number = header
            .make_external(&block, &mut external)
            .expect("there are bits left");
        blocks.insert(number, external);
        for _ in 0..3 {
            let copy = header.next_copy().expect("there are bits left");
            let from = blocks[&copy.from].clone();
            for (half, to) in from.chunks(256).zip(copy.to) {
                let mut table_block = vec![0; 512];
                spread(half, &mut table_block);
                blocks.insert(to, table_block);
            }
            if let Some(old) = header.record_copy() {
                for number in old.first..old.first + old.count {
                    blocks.remove(&number);
                }
            }
        }
        assert_eq!((header.shift(), header.table.block_count), (8, 4));
        for index in 0..256 {
            let place = header.place(index, 9);
            assert_eq!(
                pointer(&blocks[&place.block], place.index),
                Some(100 + index / 8)
            );
        }
        header.write_to(&mut block);
        assert_eq!(FatHeader::open(&block), Ok(header));
    }

    #[test]
    fn while_a_table_is_copied_its_entries_have_two_more_places() {
        let (mut header, block) = new_header();
        let mut external = vec![0; 512];
        header
            .make_external(&block, &mut external)
            .expect("there are bits left");
        assert_eq!(header.places_in_next(3, 9), None);
        header.next_copy().expect("there are bits left");
        let next = header.table.next_block;
        let places = header.places_in_next(40, 9);
        let expected = [(next + 1, 16), (next + 1, 17)];
        assert_eq!(
            places.map(|places| places.map(|p| (p.block, p.index))),
            Some(expected)
        );
    }

    #[test]
    fn a_table_does_not_grow_past_the_hash() {
        let (mut header, block) = new_header();
        let mut external = vec![0; 512];
        header
            .make_external(&block, &mut external)
            .expect("there are bits left");
        while header.shift() < 26 {
            header.next_copy().expect("there are bits left");
            header.record_copy();
        }
        assert_eq!(header.next_copy(), Err(TableFull));
    }

    #[test]
    fn a_header_whose_table_does_not_fit_is_refused() {
        let (header, mut block) = new_header();
        for (shift, blocks) in [(6, 0), (64, 0), (u64::MAX, 0), (6, 2), (62, 1 << 56)] {
            let mut bad = header.clone();
            bad.table.shift = shift;
            bad.table.block_count = blocks;
            bad.write_to(&mut block);
            assert!(
                FatHeader::open(&block).is_err(),
                "{shift} bits in {blocks} blocks"
            );
        }
        assert!(FatHeader::open(&block[..64]).is_err());
    }

    #[test]
    fn a_table_with_more_bits_than_it_may_have_is_refused() {
        for flags in [ZapFlags::default(), ZapFlags::HASH_48_BITS] {
            let (mut header, mut block) = new_header();
            header.flag_word = flags.word();
            let most = table_bits_max(flags);
            for shift in [most, most + 1, 48, 62] {
                header.table = PointerTable {
                    block: 2,
                    block_count: 1 << (shift - 6),
                    shift: u64::from(shift),
                    ..PointerTable::default()
                };
                header.free_block = 2 + header.table.block_count;
                header.write_to(&mut block);
                let opened = FatHeader::open(&block);
                assert_eq!(opened.is_ok(), shift <= most, "{shift} bits");
            }
        }
    }

    #[test]
    fn the_other_byte_order_turns_the_whole_block() {
        let (_, block) = new_header();
        let mut big = block.clone();
        super::super::swap_words(&mut big);
        super::super::to_little_endian(&mut big, ByteOrder::Big).expect("it is a header");
        assert_eq!(big, block);
    }

    proptest! {
        #[test]
        fn any_bytes_open_or_are_refused(
            mut block in prop::collection::vec(any::<u8>(), 512),
            shift in 0u64..70,
            count in 0u64..9,
        ) {
            put(&mut block, 0, &BlockKind::Header.word().to_le_bytes());
            put(&mut block, 8, &MAGIC.to_le_bytes());
            let _ = FatHeader::open(&block);
            put(&mut block, 32, &shift.to_le_bytes());
            put(&mut block, 24, &count.to_le_bytes());
            if let Ok(header) = FatHeader::open(&block) {
                let index = header.index(ZapHash::from_word(u64::MAX));
                let _ = header.place(index, 9);
                let _ = header.places_in_next(index, 9);
                let _ = header.entries_of(u64::MAX, 64);
            }
        }
    }
}
