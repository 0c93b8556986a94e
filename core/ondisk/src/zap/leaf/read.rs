//! Reading a leaf: finding entries, their names and their values.

use super::{
    ARRAY, ARRAY_SIZE, END, ENTRY, ENTRY_COUNT_PLACE, FREE_COUNT_PLACE, Geometry, LeafHeader,
    MAGIC, NEXT_PLACE, PREFIX_BITS_MAX, PREFIX_LENGTH_PLACE, PREFIX_PLACE, WHAT, chunks_for,
    name_count, stored_name, without_zero,
};
use crate::declare::{Corrupt, Stored};
use crate::zap::{
    BlockKind, Cursor, DIFFERENTIATOR_END, Name, OwnedName, ZapHash, ZapValue, inconsistent,
    u16_at, u32_at, u64_at, words_from_big_endian,
};

/// An entry of a leaf, as its chunk has it; name and value are for [`Leaf`] to fetch.
#[doc(alias = "zap_leaf_entry")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafEntry {
    /// The hash of the name.
    pub hash: ZapHash,
    /// Tells names with one hash apart.
    pub differentiator: u32,
    /// The size of one integer of the value, in bytes.
    pub integer_size: u8,
    /// How many integers the value has.
    pub integer_count: u16,
    pub(super) chunk: u16,
    pub(super) next: u16,
    pub(super) name_chunk: u16,
    pub(super) name_count: u16,
    pub(super) value_chunk: u16,
}

impl LeafEntry {
    /// Where a walk stands that has this entry before it.
    pub const fn cursor(&self) -> Cursor {
        Cursor {
            hash: self.hash,
            differentiator: self.differentiator,
        }
    }

    /// The number of its chunk. Entries of a leaf from which nothing was removed have the order
    /// in which they were added.
    pub const fn chunk(&self) -> u16 {
        self.chunk
    }

    pub(super) fn value_size(&self) -> usize {
        usize::from(self.integer_size) * usize::from(self.integer_count)
    }
}

/// A leaf, to be read.
#[derive(Debug, Clone, Copy)]
pub struct Leaf<'a> {
    pub(super) block: &'a [u8],
    pub(super) geometry: Geometry,
}

impl<'a> Leaf<'a> {
    /// Opens a block in little-endian form, and looks at its header only.
    pub fn open(block: &'a [u8]) -> Result<Leaf<'a>, Corrupt> {
        let geometry = Geometry::of(block)?;
        let header = LeafHeader::from_bytes(block, Default::default())?;
        for (offset, found, expected) in [
            (0, header.kind, BlockKind::Leaf.word()),
            (24, u64::from(header.magic), u64::from(MAGIC)),
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
        let length = u32::from(header.prefix_length);
        if length > PREFIX_BITS_MAX || ZapHash::of_prefix(header.prefix, length).is_none() {
            return Err(inconsistent(
                WHAT,
                PREFIX_PLACE,
                "the prefix is longer than it says",
            ));
        }
        Ok(Leaf { block, geometry })
    }

    /// The header.
    pub fn header(&self) -> LeafHeader {
        LeafHeader::from_bytes(self.block, Default::default()).expect("an opened leaf has a header")
    }

    /// How the hashes of all entries begin.
    pub fn prefix(&self) -> u64 {
        u64_at(self.block, PREFIX_PLACE)
    }

    /// How many bits the prefix has.
    pub fn prefix_length(&self) -> u32 {
        u32::from(u16_at(self.block, PREFIX_LENGTH_PLACE))
    }

    /// True when names with this hash belong here.
    pub fn covers(&self, hash: ZapHash) -> bool {
        hash.prefix(self.prefix_length()) == self.prefix()
    }

    /// Refuses a leaf to which names with this hash do not belong, though the table leads there.
    pub fn require(&self, hash: ZapHash) -> Result<(), Corrupt> {
        if self.covers(hash) {
            return Ok(());
        }
        Err(inconsistent(
            WHAT,
            PREFIX_PLACE,
            "the table leads other hashes to this leaf than its prefix says",
        ))
    }

    /// How many entries there are.
    pub fn entry_count(&self) -> usize {
        usize::from(u16_at(self.block, ENTRY_COUNT_PLACE))
    }

    /// How many chunks are free.
    pub fn free_count(&self) -> usize {
        usize::from(u16_at(self.block, FREE_COUNT_PLACE))
    }

    /// How many chunks there are.
    pub fn chunk_count(&self) -> usize {
        usize::from(self.geometry.chunk_count)
    }

    /// The entry of exactly this name.
    #[doc(alias = "zap_leaf_lookup")]
    pub fn find(&self, hash: ZapHash, name: Name<'_>) -> Result<Option<LeafEntry>, Corrupt> {
        let stored = stored_name(name);
        let count = name_count(name);
        self.find_among(hash, |leaf, entry| {
            Ok(entry.name_count == count && leaf.array_equals(entry.name_chunk, &stored)?)
        })
    }

    /// The first entry with this hash whose name `matches`, the name being without its final zero.
    pub fn find_matching(
        &self,
        hash: ZapHash,
        mut matches: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<LeafEntry>, Corrupt> {
        self.find_among(hash, |leaf, entry| {
            let name = leaf.array(entry.name_chunk, usize::from(entry.name_count))?;
            Ok(matches(without_zero(&name)))
        })
    }

    /// The name of an entry of this leaf. `words` says that names are words here.
    pub fn name(&self, entry: &LeafEntry, words: bool) -> Result<OwnedName, Corrupt> {
        let count = usize::from(entry.name_count);
        if words {
            let bytes = self.array(entry.name_chunk, 8 * count)?;
            return Ok(OwnedName::Words(words_from_big_endian(&bytes)));
        }
        let mut name = self.array(entry.name_chunk, count)?;
        name.truncate(without_zero(&name).len());
        Ok(OwnedName::Text(name))
    }

    /// The value of an entry of this leaf.
    #[doc(alias = "zap_entry_read")]
    pub fn value(&self, entry: &LeafEntry) -> Result<ZapValue, Corrupt> {
        let bytes = self.array(entry.value_chunk, entry.value_size())?;
        ZapValue::from_big_endian(bytes, entry.integer_size)
            .ok_or_else(|| self.bad_chunk(entry.chunk, "integers have a size that none have"))
    }

    /// The value of an entry of this leaf where it is one word, as in directories; `None` where it
    /// is something else.
    pub fn word(&self, entry: &LeafEntry) -> Result<Option<u64>, Corrupt> {
        if (entry.integer_size, entry.integer_count) != (8, 1) {
            return Ok(None);
        }
        let place = self.chunk_of(entry.value_chunk, ARRAY)?;
        Ok(words_from_big_endian(&self.block[place + 1..place + 9])
            .first()
            .copied())
    }

    /// All entries at or behind a cursor, in the order of walks.
    #[doc(alias = "zap_leaf_lookup_closest")]
    pub fn entries_from(&self, cursor: Cursor) -> Result<Vec<LeafEntry>, Corrupt> {
        let mut entries = Vec::new();
        let mut seen_count = 0;
        for chain in 0..self.geometry.chain_count() {
            self.walk_chain(chain, |_, entry| {
                seen_count += 1;
                if seen_count > self.chunk_count() {
                    return Err(inconsistent(WHAT, 0, "chains run into each other"));
                }
                if entry.cursor() >= cursor {
                    entries.push(entry);
                }
                Ok(false)
            })?;
        }
        entries.sort_unstable_by_key(LeafEntry::cursor);
        Ok(entries)
    }

    /// The chain for a hash.
    #[doc(alias = "LEAF_HASH")]
    pub(super) fn chain(&self, hash: ZapHash) -> usize {
        let bits = self.geometry.chain_bits;
        let shift = 64 - bits - self.prefix_length();
        let chain = (hash.word() >> shift) & ((1 << bits) - 1);
        usize::try_from(chain).expect("a chain's number has at most 15 bits")
    }

    /// The first entry with this hash for which `is_it`.
    fn find_among(
        &self,
        hash: ZapHash,
        mut is_it: impl FnMut(&Self, &LeafEntry) -> Result<bool, Corrupt>,
    ) -> Result<Option<LeafEntry>, Corrupt> {
        self.walk_chain(self.chain(hash), |leaf, entry| {
            Ok(entry.hash == hash && is_it(leaf, &entry)?)
        })
    }

    /// The first entry of a chain for which `is_it`. Refuses a chain that goes in a circle.
    pub(super) fn walk_chain(
        &self,
        chain: usize,
        mut is_it: impl FnMut(&Self, LeafEntry) -> Result<bool, Corrupt>,
    ) -> Result<Option<LeafEntry>, Corrupt> {
        let head = self.geometry.head_place(chain);
        let mut chunk = u16_at(self.block, head);
        for _ in 0..=self.geometry.chunk_count {
            if chunk == END {
                return Ok(None);
            }
            let entry = self.entry(chunk)?;
            if is_it(self, entry)? {
                return Ok(Some(entry));
            }
            chunk = entry.next;
        }
        Err(inconsistent(WHAT, head, "a chain of entries has no end"))
    }

    /// The entry in a chunk.
    pub(super) fn entry(&self, chunk: u16) -> Result<LeafEntry, Corrupt> {
        let place = self.chunk_of(chunk, ENTRY)?;
        let differentiator = u32_at(self.block, place + 12);
        if differentiator >= DIFFERENTIATOR_END {
            return Err(self.bad_chunk(chunk, "a differentiator is larger than one can be"));
        }
        Ok(LeafEntry {
            chunk,
            integer_size: self.block[place + 1],
            next: u16_at(self.block, place + 2),
            name_chunk: u16_at(self.block, place + 4),
            name_count: u16_at(self.block, place + 6),
            value_chunk: u16_at(self.block, place + 8),
            integer_count: u16_at(self.block, place + 10),
            differentiator,
            hash: ZapHash::from_word(u64_at(self.block, place + 16)),
        })
    }

    /// Where a chunk is, which must be of this kind.
    pub(super) fn chunk_of(&self, chunk: u16, kind: u8) -> Result<usize, Corrupt> {
        if chunk >= self.geometry.chunk_count {
            return Err(inconsistent(
                WHAT,
                0,
                "a chunk's number is larger than there are chunks",
            ));
        }
        let place = self.geometry.chunk_place(chunk);
        if self.block[place] != kind {
            return Err(inconsistent(
                WHAT,
                place,
                "a chunk is not of the kind it must be",
            ));
        }
        Ok(place)
    }

    /// The first `size` bytes of an array.
    fn array(&self, first: u16, size: usize) -> Result<Vec<u8>, Corrupt> {
        // A chain that bites its tail would make more of it.
        if chunks_for(size) > self.chunk_count() {
            return Err(inconsistent(WHAT, 0, "an array is longer than its leaf"));
        }
        let mut bytes = Vec::with_capacity(size);
        let mut chunk = first;
        while bytes.len() < size {
            let place = self.chunk_of(chunk, ARRAY)?;
            let count = ARRAY_SIZE.min(size - bytes.len());
            bytes.extend(&self.block[place + 1..place + 1 + count]);
            chunk = u16_at(self.block, place + NEXT_PLACE);
        }
        Ok(bytes)
    }

    /// Whether an array begins with these bytes.
    fn array_equals(&self, first: u16, bytes: &[u8]) -> Result<bool, Corrupt> {
        let mut chunk = first;
        for part in bytes.chunks(ARRAY_SIZE) {
            let place = self.chunk_of(chunk, ARRAY)?;
            if &self.block[place + 1..place + 1 + part.len()] != part {
                return Ok(false);
            }
            chunk = u16_at(self.block, place + NEXT_PLACE);
        }
        Ok(true)
    }

    pub(super) fn bad_chunk(&self, chunk: u16, why: &'static str) -> Corrupt {
        inconsistent(WHAT, self.geometry.chunk_place(chunk), why)
    }
}
