//! A micro ZAP: names and words in a single block.
//!
//! # Mechanism
//! The block is a row of slots of 64 bytes. The first is the header, each other an entry or, when
//! its name is empty, free:
//!
//! ```text
//!   0        8        16              24                    64
//!   | kind   | salt   | normalisation | reserved            |   slot 0: header
//!   0        8              12     14                       64
//!   | value  | differentiator | pad | name, ends in zero    |   others: entry
//! ```
//!
//! Entries are in no order. A caller that needs to find names fast builds an index of
//! (hash, differentiator) in memory, and works with slots from there.
//!
//! The block grows by 512 bytes at a time, up to 128 KiB (1 MiB in pools with the feature
//! `large_microzap`); growing it means adding zeros. What it cannot hold makes it a fat ZAP: see
//! [`must_be_fat`].

use super::{BlockKind, ZapHash, ZapValue, inconsistent, put, u32_at, u64_at};
use crate::declare::{Corrupt, Reserved, Stored, Writer, widen};
use crate::on_disk;

/// The size of the header and of each entry.
#[doc(alias = "MZAP_ENT_LEN")]
pub const SLOT_SIZE: usize = 64;
/// The longest name, in bytes with its final zero.
#[doc(alias = "MZAP_NAME_LEN")]
pub const NAME_BYTES_MAX: usize = 50;
/// The largest block without the feature `large_microzap`.
#[doc(alias = "SPA_OLD_MAXBLOCKSIZE")]
pub const BLOCK_BYTES_MAX: usize = 128 << 10;
/// The largest block with the feature `large_microzap`, if blocks may be that large.
#[doc(alias = "MZAP_MAX_SIZE")]
pub const LARGE_BLOCK_BYTES_MAX: usize = 1 << 20;
/// By how much a full block grows.
pub const GROWTH_BYTES: usize = 512;
/// How many names may be alike in the bits of the hash by which leaves are told apart
/// ([`table_bits_max`](super::fat::table_bits_max)): were it more, they would not fit in a leaf of
/// the usual size once the ZAP must be fat. A leaf has 638 chunks, an entry needs at most five.
const NEIGHBORS_MAX: usize = 127;

const WHAT: &str = "micro ZAP";
const NAME_PLACE: usize = 14;

on_disk! {
    /// The first slot of a micro ZAP.
    #[doc(alias = "mzap_phys_t")]
    pub struct MicroHeader [64 bytes] {
        /// Always [`BlockKind::Micro`].
        0 => kind: u64,
        /// What hashes of its names begin with. Never zero.
        8 => salt: u64,
        /// How names are normalised before they are hashed and compared, as `u8_textprep_str`
        /// numbers it.
        16 => normalization: u64,
        24 => reserved: Reserved<40>,
    }
}

/// An entry of a micro ZAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroEntry<'a> {
    /// The slot it is in.
    pub slot: usize,
    /// The name, without its final zero.
    pub name: &'a [u8],
    /// The value.
    pub value: u64,
    /// Tells names with one hash apart.
    pub differentiator: u32,
}

/// Why a micro ZAP cannot take an entry, and must become fat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MustBeFat {
    /// The value is not one 64-bit word.
    #[error("the value is not one word")]
    Value,
    /// The name is too long.
    #[error("the name has 50 bytes or more")]
    Name,
    /// All slots are taken, and the block may not grow.
    #[error("the block is full and may not grow")]
    Full,
    /// Too many names would share a leaf for ever.
    #[error("the hashes of too many names are alike")]
    Neighbors,
}

/// Whether an entry is of the kind that a micro ZAP can hold: `None` if so.
pub fn must_be_fat(name: &[u8], value: &ZapValue) -> Option<MustBeFat> {
    if value.as_word().is_none() {
        Some(MustBeFat::Value)
    } else if name.len() >= NAME_BYTES_MAX {
        Some(MustBeFat::Name)
    } else {
        None
    }
}

/// The size to which a full block of `size` bytes grows, where blocks may have `size_max`.
pub fn grown_size(size: usize, size_max: usize) -> Result<usize, MustBeFat> {
    let grown = size + GROWTH_BYTES;
    if grown <= size_max {
        Ok(grown)
    } else {
        Err(MustBeFat::Full)
    }
}

/// Whether a name may join `count` others whose hashes are alike.
#[doc(alias = "mze_canfit_fzap_leaf")]
pub fn join(count: usize) -> Result<(), MustBeFat> {
    match count < NEIGHBORS_MAX {
        true => Ok(()),
        false => Err(MustBeFat::Neighbors),
    }
}

/// The smallest differentiator that none of `taken` has: those of the entries with one hash.
pub fn unused_differentiator(taken: &mut [u32]) -> u32 {
    taken.sort_unstable();
    let mut unused = 0;
    for &differentiator in taken.iter() {
        if differentiator == unused {
            unused += 1;
        }
    }
    unused
}

/// A micro ZAP's block, to be read, or also changed where `B` can be.
#[derive(Debug, Clone)]
pub struct Micro<B> {
    block: B,
}

impl<B: AsRef<[u8]>> Micro<B> {
    /// Opens a block in little-endian form.
    pub fn open(block: B) -> Result<Micro<B>, Corrupt> {
        let bytes = block.as_ref();
        let header = MicroHeader::from_bytes(bytes, Default::default())?;
        if header.kind != BlockKind::Micro.word() {
            return Err(Corrupt::Magic {
                what: WHAT,
                offset: 0,
                found: header.kind,
                expected: BlockKind::Micro.word(),
            });
        }
        if bytes.len() % SLOT_SIZE != 0 || bytes.len() > LARGE_BLOCK_BYTES_MAX {
            return Err(inconsistent(
                WHAT,
                0,
                "its size is not one that a micro ZAP can have",
            ));
        }
        Ok(Micro { block })
    }

    /// The header.
    pub fn header(&self) -> MicroHeader {
        MicroHeader::from_bytes(self.bytes(), Default::default())
            .expect("an opened micro ZAP has a header")
    }

    /// What hashes of its names begin with.
    pub fn salt(&self) -> u64 {
        u64_at(self.bytes(), 8)
    }

    /// How names are normalised before they are hashed and compared.
    pub fn normalization(&self) -> u64 {
        u64_at(self.bytes(), 16)
    }

    /// How many entries there can be.
    pub fn slot_count(&self) -> usize {
        self.bytes().len() / SLOT_SIZE - 1
    }

    /// The entry in a slot; `None` where the slot is free or there is none.
    pub fn entry(&self, slot: usize) -> Option<MicroEntry<'_>> {
        let start = slot.checked_add(1)?.checked_mul(SLOT_SIZE)?;
        let bytes = self.bytes().get(start..start.checked_add(SLOT_SIZE)?)?;
        let name = bytes[NAME_PLACE..]
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default();
        if name.is_empty() {
            return None;
        }
        Some(MicroEntry {
            slot,
            name,
            value: u64_at(bytes, 0),
            differentiator: u32_at(bytes, 8),
        })
    }

    /// All entries, in the order of their slots.
    pub fn entries(&self) -> impl Iterator<Item = MicroEntry<'_>> {
        (0..self.slot_count()).filter_map(|slot| self.entry(slot))
    }

    /// The entry of exactly this name, found by looking at all.
    pub fn find(&self, name: &[u8]) -> Option<MicroEntry<'_>> {
        self.entries().find(|entry| entry.name == name)
    }

    /// The first free slot, looking from `start` to the end and then from the beginning.
    pub fn free_slot(&self, start: usize) -> Option<usize> {
        let count = self.slot_count();
        let start = start.min(count);
        (start..count)
            .chain(0..start)
            .find(|&slot| self.entry(slot).is_none())
    }

    /// The hash of a name here, if the name is normalised where that is due.
    pub fn hash(&self, normalized: &[u8]) -> ZapHash {
        ZapHash::of(
            super::Name::Text(normalized),
            self.salt(),
            super::ZapFlags::default(),
        )
    }

    fn bytes(&self) -> &[u8] {
        self.block.as_ref()
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Micro<B> {
    /// Makes an empty micro ZAP of the block, whatever it held.
    ///
    /// # Panics
    /// When the size is not a multiple of 512 up to 1 MiB, or the salt is zero.
    #[doc(alias = "mzap_create_impl")]
    pub fn format(mut block: B, salt: u64, normalization: u64) -> Micro<B> {
        let bytes = block.as_mut();
        assert!(!bytes.is_empty() && bytes.len() <= LARGE_BLOCK_BYTES_MAX);
        assert_eq!(
            bytes.len() % GROWTH_BYTES,
            0,
            "a micro ZAP's block has whole sectors"
        );
        assert_ne!(salt, 0, "a ZAP has a salt");
        bytes.fill(0);
        let header = MicroHeader {
            kind: BlockKind::Micro.word(),
            salt,
            normalization,
            reserved: Reserved::default(),
        };
        header.write_to(bytes);
        Micro { block }
    }

    /// Puts an entry into a free slot.
    ///
    /// # Panics
    /// When the slot is taken or there is none, or the name is empty, too long or contains a zero.
    #[doc(alias = "mzap_addent")]
    pub fn add(&mut self, slot: usize, name: &[u8], value: u64, differentiator: u32) {
        assert!(
            slot < self.slot_count() && self.entry(slot).is_none(),
            "the slot is free"
        );
        assert!(
            !name.is_empty() && name.len() < NAME_BYTES_MAX,
            "the name fits in a slot"
        );
        assert!(!name.contains(&0), "a name has no zeros");
        let mut writer = Writer::new(self.slot_bytes(slot));
        writer.u64(value);
        writer.u32(differentiator);
        writer.u16(0);
        writer.bytes(name);
        writer.zeros(NAME_BYTES_MAX - name.len());
    }

    /// Changes the value in a slot.
    ///
    /// # Panics
    /// When there is no entry in the slot.
    pub fn set_value(&mut self, slot: usize, value: u64) {
        assert!(self.entry(slot).is_some(), "the slot has an entry");
        put(self.slot_bytes(slot), 0, &value.to_le_bytes());
    }

    /// Empties a slot.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn remove(&mut self, slot: usize) {
        self.slot_bytes(slot).fill(0);
    }

    fn slot_bytes(&mut self, slot: usize) -> &mut [u8] {
        let start = (slot + 1) * SLOT_SIZE;
        &mut self.block.as_mut()[start..start + SLOT_SIZE]
    }
}

/// Turns the numbers of a block around.
pub(super) fn swap(block: &mut [u8]) {
    for (index, slot) in block.as_chunks_mut::<SLOT_SIZE>().0.iter_mut().enumerate() {
        if index == 0 {
            super::swap_words(&mut slot[..24]);
        } else {
            slot[..8].reverse();
            slot[8..12].reverse();
        }
    }
}

/// How many bytes a block with `count` entries needs at least.
pub fn size_for(count: usize) -> usize {
    ((count + 1) * SLOT_SIZE).next_multiple_of(GROWTH_BYTES)
}

/// An error for an entry that contradicts the others, for layers that index entries.
pub fn duplicate(slot: usize) -> Corrupt {
    bad_slot(slot, "a name occurs twice")
}

/// An error for an entry whose differentiator is [`DIFFERENTIATOR_END`](super::DIFFERENTIATOR_END)
/// or more, for layers that index entries.
pub fn bad_differentiator(slot: usize) -> Corrupt {
    bad_slot(slot, "a differentiator is larger than one can be")
}

fn bad_slot(slot: usize, why: &'static str) -> Corrupt {
    Corrupt::Inconsistent {
        what: WHAT,
        offset: widen((slot + 1) * SLOT_SIZE),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declare::ByteOrder;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_entry_lies_as_the_format_says() {
        let mut zap = Micro::format(vec![0; 512], 0x55, 0);
        zap.add(1, b"name", 0x0102, 3);
        let bytes = &zap.block[128..192];
        assert_eq!(bytes[..18], *b"\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0name");
        assert!(bytes[18..].iter().all(|&byte| byte == 0));
        assert_eq!(zap.find(b"name").map(|entry| entry.slot), Some(1));
    }

    #[test]
    fn what_does_not_fit_is_said_to() {
        let word = ZapValue::word(1);
        assert_eq!(must_be_fat(&[b'n'; 49], &word), None);
        assert_eq!(must_be_fat(&[b'n'; 50], &word), Some(MustBeFat::Name));
        assert_eq!(
            must_be_fat(b"n", &ZapValue::Words(vec![1, 2])),
            Some(MustBeFat::Value)
        );
        assert_eq!(
            must_be_fat(b"n", &ZapValue::text("t")),
            Some(MustBeFat::Value)
        );
        assert_eq!(grown_size(512, BLOCK_BYTES_MAX), Ok(1024));
        assert_eq!(
            grown_size(BLOCK_BYTES_MAX, BLOCK_BYTES_MAX),
            Err(MustBeFat::Full)
        );
    }

    #[test]
    fn the_smallest_unused_differentiator_is_found() {
        assert_eq!(unused_differentiator(&mut []), 0);
        assert_eq!(unused_differentiator(&mut [3, 0, 1]), 2);
    }

    #[test]
    fn names_that_are_alike_are_as_many_as_a_leaf_holds() {
        use crate::zap::leaf::{LeafEdit, chunks_of};
        use crate::zap::{Name, fat};
        let mut block = vec![0; 1 << fat::BLOCK_SHIFT];
        let room = LeafEdit::format(&mut block, false).view().chunk_count();
        let entry = chunks_of(Name::Text(&[b'n'; NAME_BYTES_MAX - 1]), &ZapValue::word(1));
        assert!(NEIGHBORS_MAX * entry <= room);
        assert_eq!(join(NEIGHBORS_MAX - 1), Ok(()));
        assert_eq!(join(NEIGHBORS_MAX), Err(MustBeFat::Neighbors));
    }

    #[test]
    fn a_block_that_is_not_one_is_refused() {
        assert!(Micro::open(vec![0; 512]).is_err());
        let block = Micro::format(vec![0; 512], 1, 0).block;
        assert!(Micro::open(&block[..32]).is_err());
        assert!(Micro::open(&block[..100]).is_err());
        assert!(Micro::open(&block[..]).is_ok());
    }

    #[test]
    fn the_other_byte_order_turns_numbers_and_not_names() {
        let mut zap = Micro::format(vec![0; 512], 0x55, 0);
        zap.add(0, b"name", 0x0102, 3);
        let little = zap.block.clone();
        let mut big = little.clone();
        swap(&mut big);
        assert_ne!(big, little);
        super::super::to_little_endian(&mut big, ByteOrder::Big).expect("it is a micro ZAP");
        assert_eq!(big, little);
    }

    #[derive(Debug, Clone)]
    enum Change {
        Set(u8, u64),
        Remove(u8),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            3 => (0u8..40, any::<u64>()).prop_map(|(name, value)| Change::Set(name, value)),
            1 => (0u8..40).prop_map(Change::Remove),
        ]
    }

    proptest! {
        #[test]
        fn a_micro_zap_behaves_like_a_map(changes in prop::collection::vec(change(), 0..200)) {
            let mut zap = Micro::format(vec![0; size_for(40)], 7, 0);
            let mut model = BTreeMap::new();
            for change in changes {
                match change {
                    Change::Set(name, value) => {
                        let name = format!("name {name}").into_bytes();
                        match zap.find(&name).map(|entry| entry.slot) {
                            Some(slot) => zap.set_value(slot, value),
                            None => {
                                let slot = zap.free_slot(3).expect("there is room for all");
                                zap.add(slot, &name, value, 0);
                            }
                        }
                        model.insert(name, value);
                    }
                    Change::Remove(name) => {
                        let name = format!("name {name}").into_bytes();
                        if let Some(slot) = zap.find(&name).map(|entry| entry.slot) {
                            zap.remove(slot);
                        }
                        model.remove(&name);
                    }
                }
            }
            let zap = Micro::open(zap.block).expect("it stayed valid");
            let found: BTreeMap<_, _> =
                zap.entries().map(|entry| (entry.name.to_vec(), entry.value)).collect();
            prop_assert_eq!(found, model);
        }

        #[test]
        fn any_bytes_open_or_are_refused(mut block in prop::collection::vec(any::<u8>(), 0..1024)) {
            if block.len() >= 8 {
                put(&mut block, 0, &BlockKind::Micro.word().to_le_bytes());
            }
            if let Ok(zap) = Micro::open(&block) {
                let _ = zap.entries().count();
                let _ = zap.entry(usize::MAX);
                let _ = zap.free_slot(usize::MAX);
            }
        }
    }
}
