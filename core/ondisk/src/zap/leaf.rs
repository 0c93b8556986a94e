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
//! # Two ways in
//! [`Leaf`] reads. It trusts nothing it has not looked at, so every answer may be "corrupt".
//! [`LeafEdit`] changes. It looks at everything when it is opened, and nothing can go wrong after.
//!
//! # Invariants
//! - Every chunk is in one chain, one array, or the free list, and in no other.
//! - In ZAPs that normalise, chains are sorted by differentiator (the header says so), so that the
//!   first match is the oldest name.

use super::{
    BlockKind, Cursor, DIFFERENTIATOR_END, Name, OwnedName, ZapHash, ZapValue, block_shift,
    inconsistent, put, u16_at, u32_at, u64_at, words_from_big_endian,
};
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
        /// Always [`BlockKind::Leaf`].
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
    chunk: u16,
    next: u16,
    name_chunk: u16,
    name_count: u16,
    value_chunk: u16,
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

    fn value_size(&self) -> usize {
        usize::from(self.integer_size) * usize::from(self.integer_count)
    }
}

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

/// A leaf, to be read.
#[derive(Debug, Clone, Copy)]
pub struct Leaf<'a> {
    block: &'a [u8],
    geometry: Geometry,
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

    /// Looks at everything: that every chunk is where it belongs, and what the header counts.
    pub fn check(&self) -> Result<(), Corrupt> {
        let mut seen = Seen::new(self);
        let mut entry_count = 0;
        for chain in 0..self.geometry.chain_count() {
            self.walk_chain(chain, |leaf, entry| {
                entry_count += 1;
                seen.mark(entry.chunk)?;
                leaf.check_entry(&entry, chain, &mut seen)?;
                Ok(false)
            })?;
        }
        if entry_count != self.entry_count() {
            return Err(inconsistent(
                WHAT,
                ENTRY_COUNT_PLACE,
                "entries are miscounted",
            ));
        }
        let mut free_count = 0;
        let mut free = u16_at(self.block, FREE_CHUNK_PLACE);
        // A full leaf ends its list in whatever the last chunk had for its next one.
        while free_count < self.free_count() {
            let place = self.chunk_of(free, FREE)?;
            seen.mark(free)?;
            free_count += 1;
            free = u16_at(self.block, place + NEXT_PLACE);
        }
        // Of lost chunks there would be no end: a leaf that has no room, and nothing to give to another, would be split for it again and again.
        for chunk in 0..self.geometry.chunk_count {
            if !seen.chunks[usize::from(chunk)] {
                return Err(self.bad_chunk(chunk, "a chunk is in no chain"));
            }
        }
        Ok(())
    }

    /// Checks that an entry is in its chain, and marks the chunks of its name and value.
    fn check_entry(&self, entry: &LeafEntry, chain: usize, seen: &mut Seen) -> Result<(), Corrupt> {
        if !self.covers(entry.hash) || self.chain(entry.hash) != chain {
            return Err(self.bad_chunk(entry.chunk, "an entry's hash does not belong there"));
        }
        if ![1, 2, 4, 8].contains(&entry.integer_size) {
            return Err(self.bad_chunk(entry.chunk, "integers have a size that none have"));
        }
        let name_chunks = self.mark_array(entry.name_chunk, seen)?;
        let value_chunks = self.mark_array(entry.value_chunk, seen)?;
        let count = usize::from(entry.name_count);
        // Whether names are words is in the ZAP's header. Either reading of the count must do.
        if name_chunks != chunks_for(count) && name_chunks != chunks_for(8 * count) {
            return Err(self.bad_chunk(entry.chunk, "a name has another length than it says"));
        }
        if value_chunks != chunks_for(entry.value_size()) {
            return Err(self.bad_chunk(entry.chunk, "a value has another length than it says"));
        }
        Ok(())
    }

    /// Marks the chunks of an array, and counts them.
    fn mark_array(&self, first: u16, seen: &mut Seen) -> Result<usize, Corrupt> {
        let mut count = 0;
        let mut chunk = first;
        while chunk != END {
            let place = self.chunk_of(chunk, ARRAY)?;
            seen.mark(chunk)?;
            count += 1;
            chunk = u16_at(self.block, place + NEXT_PLACE);
        }
        Ok(count)
    }

    /// The chain for a hash.
    #[doc(alias = "LEAF_HASH")]
    fn chain(&self, hash: ZapHash) -> usize {
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
    fn walk_chain(
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
    fn entry(&self, chunk: u16) -> Result<LeafEntry, Corrupt> {
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
    fn chunk_of(&self, chunk: u16, kind: u8) -> Result<usize, Corrupt> {
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

    fn bad_chunk(&self, chunk: u16, why: &'static str) -> Corrupt {
        inconsistent(WHAT, self.geometry.chunk_place(chunk), why)
    }
}

/// Which chunks were met, to find those that are met twice.
struct Seen {
    chunks: Vec<bool>,
}

impl Seen {
    fn new(leaf: &Leaf<'_>) -> Seen {
        Seen {
            chunks: vec![false; leaf.chunk_count()],
        }
    }

    fn mark(&mut self, chunk: u16) -> Result<(), Corrupt> {
        let seen = &mut self.chunks[usize::from(chunk)];
        if std::mem::replace(seen, true) {
            return Err(inconsistent(WHAT, 0, "a chunk is used twice"));
        }
        Ok(())
    }
}

/// Why a leaf cannot take an entry or a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LeafFull {
    /// Not enough chunks are free: the leaf must split.
    #[error("the leaf has too few free chunks")]
    MustSplit,
    /// No leaf of this size has enough chunks.
    #[error("the name and value are larger than a leaf")]
    TooLarge,
}

/// A leaf, to be changed.
#[derive(Debug)]
pub struct LeafEdit<'a> {
    block: &'a mut [u8],
    geometry: Geometry,
}

impl<'a> LeafEdit<'a> {
    /// Opens a block in little-endian form, and looks at everything in it.
    pub fn open(block: &'a mut [u8]) -> Result<LeafEdit<'a>, Corrupt> {
        let leaf = Leaf::open(block)?;
        leaf.check()?;
        let geometry = leaf.geometry;
        Ok(LeafEdit { block, geometry })
    }

    /// Opens a block that was opened before and changed only here, without looking again.
    ///
    /// Where it holds something else after all, changing it may panic.
    pub fn reopen(block: &'a mut [u8]) -> Result<LeafEdit<'a>, Corrupt> {
        let geometry = Leaf::open(block)?.geometry;
        Ok(LeafEdit { block, geometry })
    }

    /// Makes an empty leaf of the block, with the empty prefix. `sorted` is for ZAPs that
    /// normalise names.
    ///
    /// # Panics
    /// When the block's size is not one that a leaf can have.
    #[doc(alias = "zap_leaf_init")]
    pub fn format(block: &'a mut [u8], sorted: bool) -> LeafEdit<'a> {
        let geometry = Geometry::of(block).expect("a leaf's block has a size that leaves have");
        block.fill(0);
        let header = LeafHeader {
            kind: BlockKind::Leaf.word(),
            reserved: Reserved::default(),
            prefix: 0,
            magic: MAGIC,
            free_count: geometry.chunk_count,
            entry_count: 0,
            prefix_length: 0,
            free_chunk: 0,
            flags: if sorted { SORTED } else { 0 },
            reserved_2: Reserved::default(),
        };
        header.write_to(block);
        let mut leaf = LeafEdit { block, geometry };
        leaf.break_chains();
        for chunk in 0..geometry.chunk_count {
            let next = if chunk + 1 < geometry.chunk_count {
                chunk + 1
            } else {
                END
            };
            let place = geometry.chunk_place(chunk);
            leaf.block[place] = FREE;
            leaf.put_u16(place + NEXT_PLACE, next);
        }
        leaf
    }

    /// The leaf, to be read.
    pub fn view(&self) -> Leaf<'_> {
        Leaf {
            block: self.block,
            geometry: self.geometry,
        }
    }

    /// Adds an entry with the smallest differentiator that is not in use, and gives that.
    ///
    /// # Panics
    /// When the hash does not belong here. The name must not be there yet.
    #[doc(alias = "zap_entry_create")]
    pub fn insert(
        &mut self,
        hash: ZapHash,
        name: Name<'_>,
        value: &ZapValue,
    ) -> Result<u32, LeafFull> {
        let differentiator = self.unused_differentiator(hash);
        self.insert_with(hash, name, value, differentiator)?;
        Ok(differentiator)
    }

    /// Adds an entry with a differentiator that it had elsewhere, as when a micro ZAP becomes fat.
    ///
    /// # Panics
    /// When the hash does not belong here. Name and differentiator must not be there yet.
    pub fn insert_with(
        &mut self,
        hash: ZapHash,
        name: Name<'_>,
        value: &ZapValue,
        differentiator: u32,
    ) -> Result<(), LeafFull> {
        assert!(self.view().covers(hash), "the name belongs into this leaf");
        let name_bytes = stored_name(name);
        let value_bytes = value.to_big_endian();
        let needed = chunks_of(name, value);
        if needed > self.view().chunk_count() {
            return Err(LeafFull::TooLarge);
        }
        if needed > self.view().free_count() {
            return Err(LeafFull::MustSplit);
        }
        let chunk = self.take_chunk();
        let place = self.geometry.chunk_place(chunk);
        self.block[place] = ENTRY;
        self.block[place + 1] = value.integer_size();
        let name_chunk = self.add_array(&name_bytes);
        self.put_u16(place + 4, name_chunk);
        self.put_u16(place + 6, name_count(name));
        let value_chunk = self.add_array(&value_bytes);
        self.put_u16(place + 8, value_chunk);
        self.put_u16(place + 10, count_u16(value.integer_count()));
        put(self.block, place + 12, &differentiator.to_le_bytes());
        put(self.block, place + 16, &hash.word().to_le_bytes());
        self.link(chunk);
        self.put_u16(ENTRY_COUNT_PLACE, count_u16(self.view().entry_count() + 1));
        Ok(())
    }

    /// Changes the value of an entry that was found here. The entry in hand is stale afterwards.
    #[doc(alias = "zap_entry_update")]
    pub fn update(&mut self, entry: &LeafEntry, value: &ZapValue) -> Result<(), LeafFull> {
        let bytes = value.to_big_endian();
        let needed = chunks_for(bytes.len());
        if 1 + self.name_chunks(entry) + needed > self.view().chunk_count() {
            return Err(LeafFull::TooLarge);
        }
        if needed > self.view().free_count() + chunks_for(entry.value_size()) {
            return Err(LeafFull::MustSplit);
        }
        self.free_array(entry.value_chunk);
        let value_chunk = self.add_array(&bytes);
        let place = self.geometry.chunk_place(entry.chunk);
        self.block[place + 1] = value.integer_size();
        self.put_u16(place + 8, value_chunk);
        self.put_u16(place + 10, count_u16(value.integer_count()));
        Ok(())
    }

    /// Removes an entry that was found here.
    #[doc(alias = "zap_entry_remove")]
    pub fn remove(&mut self, entry: &LeafEntry) {
        self.unlink(entry);
        self.free_entry(entry);
    }

    /// Makes the prefix one bit longer, and moves the entries whose next bit is set into a new
    /// leaf, which is made of `other`.
    ///
    /// # Panics
    /// When the prefix has as many bits as it can have, or the blocks differ in size.
    #[doc(alias = "zap_leaf_split")]
    pub fn split<'b>(&mut self, other: &'b mut [u8], sorted: bool) -> LeafEdit<'b> {
        assert_eq!(self.block.len(), other.len(), "both leaves have one size");
        let length = self.view().prefix_length() + 1;
        assert!(
            length <= PREFIX_BITS_MAX,
            "the hash has more bits than the prefix"
        );
        let prefix = self.view().prefix() << 1;
        let mut new = LeafEdit::format(other, sorted);
        self.set_prefix(prefix, length);
        new.set_prefix(prefix | 1, length);
        self.break_chains();
        if sorted {
            self.block[FLAGS_PLACE] |= SORTED;
        }
        for chunk in 0..self.geometry.chunk_count {
            if self.block[self.geometry.chunk_place(chunk)] != ENTRY {
                continue;
            }
            let entry = self.view().entry(chunk).expect("the chunk is an entry");
            if entry.hash.prefix(length) & 1 == 1 {
                self.move_entry(&entry, &mut new);
            } else {
                self.link(chunk);
            }
        }
        new
    }

    /// Makes the prefix of an empty leaf one bit shorter, so that it covers what its sibling
    /// covered.
    ///
    /// # Panics
    /// When the leaf has entries, or no prefix.
    #[doc(alias = "zap_shrink")]
    pub fn cover_sibling(&mut self) {
        assert_eq!(
            self.view().entry_count(),
            0,
            "only an empty leaf covers more"
        );
        let length = self.view().prefix_length();
        assert!(length > 0, "a leaf without a prefix has no sibling");
        self.set_prefix(self.view().prefix() >> 1, length - 1);
    }

    /// Whether an entry that has no room here would have it in a leaf of those only whose hashes begin with the same `bits`: no split takes those apart.
    pub fn could_insert(&self, hash: ZapHash, name: Name<'_>, value: &ZapValue, bits: u32) -> bool {
        self.chunks_alike(hash, bits) + chunks_of(name, value) <= self.view().chunk_count()
    }

    /// The same of a value of an entry that was found here.
    pub fn could_update(&self, entry: &LeafEntry, value: &ZapValue, bits: u32) -> bool {
        let others = self.chunks_alike(entry.hash, bits) - chunks_for(entry.value_size());
        others + chunks_for(value.size()) <= self.view().chunk_count()
    }

    /// How many chunks the entries take whose hashes have the same first `bits` as this one.
    fn chunks_alike(&self, hash: ZapHash, bits: u32) -> usize {
        let chunks = (0..self.geometry.chunk_count)
            .filter(|&chunk| self.block[self.geometry.chunk_place(chunk)] == ENTRY);
        let entries = chunks.map(|chunk| self.view().entry(chunk));
        let entries = entries.map(|entry| entry.expect("a checked leaf has sound entries"));
        entries
            .filter(|entry| entry.hash.prefix(bits) == hash.prefix(bits))
            .map(|entry| 1 + self.name_chunks(&entry) + chunks_for(entry.value_size()))
            .sum()
    }

    /// How many chunks the name of an entry takes.
    fn name_chunks(&self, entry: &LeafEntry) -> usize {
        let mut count = 0;
        let mut chunk = entry.name_chunk;
        while chunk != END {
            count += 1;
            chunk = u16_at(self.block, self.geometry.chunk_place(chunk) + NEXT_PLACE);
        }
        count
    }

    /// The smallest differentiator that no entry with this hash has.
    fn unused_differentiator(&self, hash: ZapHash) -> u32 {
        let mut taken = Vec::new();
        let chain = self.view().chain(hash);
        self.view()
            .walk_chain(chain, |_, entry| {
                if entry.hash == hash {
                    taken.push(entry.differentiator);
                }
                Ok(false)
            })
            .expect("a checked leaf has sound chains");
        taken.sort_unstable();
        let mut unused = 0;
        for differentiator in taken {
            if differentiator == unused {
                unused += 1;
            }
        }
        unused
    }

    /// Moves an entry, which is in no chain, to another leaf.
    #[doc(alias = "zap_leaf_transfer_entry")]
    fn move_entry(&mut self, entry: &LeafEntry, to: &mut LeafEdit<'_>) {
        let chunk = to.take_chunk();
        let place = to.geometry.chunk_place(chunk);
        let from = self.geometry.chunk_place(entry.chunk);
        put(to.block, place, &self.block[from..from + CHUNK_SIZE]);
        to.link(chunk);
        let name_chunk = self.copy_array(entry.name_chunk, to);
        to.put_u16(place + 4, name_chunk);
        let value_chunk = self.copy_array(entry.value_chunk, to);
        to.put_u16(place + 8, value_chunk);
        to.put_u16(ENTRY_COUNT_PLACE, count_u16(to.view().entry_count() + 1));
        self.free_entry(entry);
    }

    fn free_entry(&mut self, entry: &LeafEntry) {
        self.free_array(entry.value_chunk);
        self.free_array(entry.name_chunk);
        self.free_chunk(entry.chunk);
        self.put_u16(ENTRY_COUNT_PLACE, count_u16(self.view().entry_count() - 1));
    }

    /// Puts an entry into its chain, behind those with the same or a smaller differentiator.
    #[doc(alias = "zap_leaf_rehash_entry")]
    fn link(&mut self, chunk: u16) {
        let entry = self.view().entry(chunk).expect("the chunk is an entry");
        let mut place = self.geometry.head_place(self.view().chain(entry.hash));
        loop {
            let next = u16_at(self.block, place);
            if next == END {
                break;
            }
            let other = self.geometry.chunk_place(next);
            if u32_at(self.block, other + 12) > entry.differentiator {
                break;
            }
            place = other + 2;
        }
        let next = u16_at(self.block, place);
        self.put_u16(self.geometry.chunk_place(chunk) + 2, next);
        self.put_u16(place, chunk);
    }

    /// Takes an entry out of its chain.
    fn unlink(&mut self, entry: &LeafEntry) {
        let mut place = self.geometry.head_place(self.view().chain(entry.hash));
        loop {
            let chunk = u16_at(self.block, place);
            assert_ne!(chunk, END, "an entry that was found is in its chain");
            if chunk == entry.chunk {
                break;
            }
            place = self.geometry.chunk_place(chunk) + 2;
        }
        let next = u16_at(self.block, self.geometry.chunk_place(entry.chunk) + 2);
        self.put_u16(place, next);
    }

    fn break_chains(&mut self) {
        let start = self.geometry.head_place(0);
        let end = self.geometry.head_place(self.geometry.chain_count());
        self.block[start..end].fill(0xff);
    }

    fn set_prefix(&mut self, prefix: u64, length: u32) {
        put(self.block, PREFIX_PLACE, &prefix.to_le_bytes());
        let length = u16::try_from(length).expect("a prefix has at most 48 bits");
        self.put_u16(PREFIX_LENGTH_PLACE, length);
    }

    #[doc(alias = "zap_leaf_chunk_alloc")]
    fn take_chunk(&mut self) -> u16 {
        let chunk = u16_at(self.block, FREE_CHUNK_PLACE);
        let place = self
            .view()
            .chunk_of(chunk, FREE)
            .expect("free chunks were counted before");
        let next = u16_at(self.block, place + NEXT_PLACE);
        self.put_u16(FREE_CHUNK_PLACE, next);
        self.put_u16(FREE_COUNT_PLACE, count_u16(self.view().free_count() - 1));
        chunk
    }

    #[doc(alias = "zap_leaf_chunk_free")]
    fn free_chunk(&mut self, chunk: u16) {
        let place = self.geometry.chunk_place(chunk);
        let next = u16_at(self.block, FREE_CHUNK_PLACE);
        self.block[place] = FREE;
        self.block[place + 1..place + NEXT_PLACE].fill(0);
        self.put_u16(place + NEXT_PLACE, next);
        self.put_u16(FREE_CHUNK_PLACE, chunk);
        self.put_u16(FREE_COUNT_PLACE, count_u16(self.view().free_count() + 1));
    }

    /// Stores an array, and gives its first chunk. There must be room.
    #[doc(alias = "zap_leaf_array_create")]
    fn add_array(&mut self, bytes: &[u8]) -> u16 {
        let mut first = END;
        let mut previous = None;
        for part in bytes.chunks(ARRAY_SIZE) {
            let chunk = self.take_chunk();
            let place = self.geometry.chunk_place(chunk);
            self.block[place] = ARRAY;
            self.block[place + 1..place + NEXT_PLACE].fill(0);
            put(self.block, place + 1, part);
            self.put_u16(place + NEXT_PLACE, END);
            match previous.replace(place) {
                None => first = chunk,
                Some(previous) => self.put_u16(previous + NEXT_PLACE, chunk),
            }
        }
        first
    }

    /// Copies an array to another leaf, chunk by chunk, and gives its first chunk there.
    #[doc(alias = "zap_leaf_array_copy")]
    fn copy_array(&self, first: u16, to: &mut LeafEdit<'_>) -> u16 {
        let mut bytes = Vec::new();
        let mut chunk = first;
        while chunk != END {
            let place = self.geometry.chunk_place(chunk);
            bytes.extend(&self.block[place + 1..place + NEXT_PLACE]);
            chunk = u16_at(self.block, place + NEXT_PLACE);
        }
        to.add_array(&bytes)
    }

    /// Frees an array, its first chunk becoming the first free one.
    #[doc(alias = "zap_leaf_array_free")]
    fn free_array(&mut self, first: u16) {
        let free = u16_at(self.block, FREE_CHUNK_PLACE);
        let mut link_place = FREE_CHUNK_PLACE;
        let mut chunk = first;
        while chunk != END {
            self.put_u16(link_place, chunk);
            let place = self.geometry.chunk_place(chunk);
            chunk = u16_at(self.block, place + NEXT_PLACE);
            self.block[place] = FREE;
            self.block[place + 1..place + NEXT_PLACE].fill(0);
            link_place = place + NEXT_PLACE;
            self.put_u16(FREE_COUNT_PLACE, count_u16(self.view().free_count() + 1));
        }
        self.put_u16(link_place, free);
    }

    fn put_u16(&mut self, place: usize, number: u16) {
        put(self.block, place, &number.to_le_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declare::ByteOrder;
    use crate::zap::ZapFlags;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SALT: u64 = 0x1234_5678_9abc_def1;

    fn hash_of(name: &[u8]) -> ZapHash {
        ZapHash::of(Name::Text(name), SALT, ZapFlags::default())
    }

    #[test]
    fn an_array_is_no_longer_than_its_leaf() {
        let mut block = vec![0; 512];
        let mut leaf = LeafEdit::format(&mut block, false);
        let value = ZapValue::Words(vec![1, 2, 3, u64::MAX]);
        leaf.insert(hash_of(b"name"), Name::Text(b"name"), &value)
            .expect("there is room");
        let found = leaf.view().find(hash_of(b"name"), Name::Text(b"name"));
        let entry = found.expect("the leaf is sound").expect("it was inserted");
        let first = leaf.geometry.chunk_place(entry.value_chunk);
        leaf.put_u16(first + NEXT_PLACE, entry.value_chunk);
        let longest = leaf.view().chunk_count() * ARRAY_SIZE / 8;
        for (count, is_right) in [(longest, true), (longest + 1, false), (60_000, false)] {
            let entry = LeafEntry {
                integer_count: count_u16(count),
                ..entry
            };
            assert_eq!(leaf.view().value(&entry).is_ok(), is_right, "{count}");
        }
    }

    #[test]
    fn a_name_is_found_with_its_value() {
        let mut block = vec![0; 512];
        let mut leaf = LeafEdit::format(&mut block, false);
        let value = ZapValue::Words(vec![1, 2, 3, u64::MAX]);
        leaf.insert(hash_of(b"name"), Name::Text(b"name"), &value)
            .expect("there is room");
        let leaf = leaf.view();
        leaf.check().expect("it stayed valid");
        let entry = leaf
            .find(hash_of(b"name"), Name::Text(b"name"))
            .expect("it is sound");
        let entry = entry.expect("it is there");
        assert_eq!(leaf.value(&entry), Ok(value));
        assert_eq!(
            leaf.name(&entry, false),
            Ok(OwnedName::Text(b"name".to_vec()))
        );
        assert_eq!(leaf.word(&entry), Ok(None));
        assert_eq!(leaf.find(hash_of(b"nome"), Name::Text(b"nome")), Ok(None));
    }

    #[test]
    fn names_may_be_words() {
        let mut block = vec![0; 512];
        let mut leaf = LeafEdit::format(&mut block, false);
        let words = [7u64, u64::MAX, 1];
        let flags = ZapFlags::WORD_NAMES.and(ZapFlags::NAMES_ARE_HASHED);
        let hash = ZapHash::of(Name::Words(&words), SALT, flags);
        assert_eq!(
            hash,
            ZapHash::ZERO,
            "only the first bits of the first word count"
        );
        leaf.insert(hash, Name::Words(&words), &ZapValue::word(9))
            .expect("there is room");
        let leaf = leaf.view();
        let entry = leaf
            .find(hash, Name::Words(&words))
            .expect("it is sound")
            .expect("it is there");
        assert_eq!(
            leaf.name(&entry, true),
            Ok(OwnedName::Words(words.to_vec()))
        );
        assert_eq!(leaf.word(&entry), Ok(Some(9)));
        leaf.check().expect("it stayed valid");
    }

    #[test]
    fn names_with_one_hash_differ_by_differentiator_and_sort_by_it() {
        let mut block = vec![0; 512];
        let mut leaf = LeafEdit::format(&mut block, true);
        let hash = hash_of(b"a");
        for (index, name) in [b"a", b"A", b"b"].into_iter().enumerate() {
            let differentiator = leaf.insert(hash, Name::Text(name), &ZapValue::word(1));
            assert_eq!(
                differentiator,
                Ok(u32::try_from(index).expect("it is small"))
            );
        }
        let entry = leaf
            .view()
            .find(hash, Name::Text(b"a"))
            .expect("it is sound");
        leaf.remove(&entry.expect("it is there"));
        let matching = leaf
            .view()
            .find_matching(hash, |name| name.eq_ignore_ascii_case(b"a"));
        assert_eq!(
            matching
                .expect("it is sound")
                .map(|entry| entry.differentiator),
            Some(1)
        );
        assert_eq!(
            leaf.insert(hash, Name::Text(b"a"), &ZapValue::word(1)),
            Ok(0)
        );
        let matching = leaf
            .view()
            .find_matching(hash, |name| name.eq_ignore_ascii_case(b"a"));
        assert_eq!(
            matching
                .expect("it is sound")
                .map(|entry| entry.differentiator),
            Some(0)
        );
    }

    #[test]
    fn a_full_leaf_says_so_and_is_unchanged() {
        let mut block = vec![0; 512];
        let mut leaf = LeafEdit::format(&mut block, false);
        let large = ZapValue::Bytes(vec![1; 21 * 16]);
        leaf.insert(hash_of(b"a"), Name::Text(b"a"), &large)
            .expect("it fits exactly");
        assert_eq!(leaf.view().free_count(), 0);
        leaf.view().check().expect("it stayed valid");
        let before = leaf.block.to_vec();
        let refused = leaf.insert(hash_of(b"b"), Name::Text(b"b"), &ZapValue::word(1));
        assert_eq!(refused, Err(LeafFull::MustSplit));
        let larger = ZapValue::Bytes(vec![1; 21 * 17]);
        let refused = leaf.insert(hash_of(b"b"), Name::Text(b"b"), &larger);
        assert_eq!(refused, Err(LeafFull::TooLarge));
        let entry = leaf
            .view()
            .find(hash_of(b"a"), Name::Text(b"a"))
            .expect("it is sound");
        let refused = leaf.update(&entry.expect("it is there"), &larger);
        assert_eq!(refused, Err(LeafFull::TooLarge));
        assert_eq!(leaf.block, before);
    }

    #[test]
    fn freed_chunks_are_zero_and_used_again_in_order() {
        let mut block = vec![0; 512];
        let mut leaf = LeafEdit::format(&mut block, false);
        let value = ZapValue::Bytes((0..60).collect());
        leaf.insert(hash_of(b"a"), Name::Text(b"a"), &value)
            .expect("there is room");
        let first = leaf.block.to_vec();
        let entry = leaf
            .view()
            .find(hash_of(b"a"), Name::Text(b"a"))
            .expect("it is sound");
        leaf.remove(&entry.expect("it is there"));
        // The entry was freed last, before it the name, before that the three chunks of the value.
        let mut order = Vec::new();
        let mut free = u16_at(leaf.block, FREE_CHUNK_PLACE);
        while free != END {
            order.push(free);
            let place = leaf.geometry.chunk_place(free);
            assert!(
                leaf.block[place + 1..place + NEXT_PLACE]
                    .iter()
                    .all(|&byte| byte == 0)
            );
            free = u16_at(leaf.block, place + NEXT_PLACE);
        }
        assert_eq!(order[..6], [0, 1, 2, 3, 4, 5]);
        leaf.insert(hash_of(b"a"), Name::Text(b"a"), &value)
            .expect("there is room");
        assert_eq!(leaf.block, first);
    }

    #[test]
    fn a_leaf_that_goes_in_circles_is_refused() {
        let mut block = vec![0; 512];
        let mut leaf = LeafEdit::format(&mut block, false);
        let hash = hash_of(b"a");
        leaf.insert(hash, Name::Text(b"a"), &ZapValue::word(1))
            .expect("there is room");
        let chain = leaf.view().chain(hash);
        let head = u16_at(leaf.block, leaf.geometry.head_place(chain));
        let place = leaf.geometry.chunk_place(head) + 2;
        put(&mut block, place, &head.to_le_bytes());
        let leaf = Leaf::open(&block).expect("its header is sound");
        assert!(leaf.find(hash, Name::Text(b"b")).is_err());
        assert!(leaf.entries_from(Cursor::START).is_err());
        assert!(leaf.check().is_err());
    }

    #[test]
    fn a_leaf_with_lost_chunks_is_refused() {
        let mut block = vec![0; 512];
        let mut leaf = LeafEdit::format(&mut block, false);
        leaf.insert(hash_of(b"a"), Name::Text(b"a"), &ZapValue::word(1))
            .expect("there is room");
        // The last of the free ones is cut off, and not counted.
        let free_count = count_u16(leaf.view().free_count() - 1);
        leaf.put_u16(FREE_COUNT_PLACE, free_count);
        assert!(leaf.view().check().is_err());
        // All that are free.
        leaf.put_u16(FREE_COUNT_PLACE, 0);
        leaf.put_u16(FREE_CHUNK_PLACE, END);
        assert!(leaf.view().check().is_err());
        assert!(LeafEdit::open(&mut block).is_err());
    }

    #[derive(Debug, Clone)]
    enum Change {
        Set(u16, Vec<u64>),
        SetText(u16, String),
        Remove(u16),
    }

    fn change() -> impl Strategy<Value = Change> {
        let name = 0u16..60;
        prop_oneof![
            3 => (name.clone(), prop::collection::vec(any::<u64>(), 0..9))
                .prop_map(|(name, words)| Change::Set(name, words)),
            2 => (name.clone(), "[a-z]{0,40}").prop_map(|(name, text)| Change::SetText(name, text)),
            2 => name.prop_map(Change::Remove),
        ]
    }

    /// A table of leaves without a table: looked through one by one.
    struct Leaves {
        blocks: Vec<Vec<u8>>,
        sorted: bool,
    }

    impl Leaves {
        fn index(&self, hash: ZapHash) -> usize {
            let covering =
                |block: &Vec<u8>| Leaf::open(block).expect("it stayed valid").covers(hash);
            self.blocks
                .iter()
                .position(covering)
                .expect("some leaf covers each hash")
        }

        fn set(&mut self, name: &[u8], value: &ZapValue) {
            let hash = hash_of(name);
            loop {
                let index = self.index(hash);
                let mut leaf = LeafEdit::open(&mut self.blocks[index]).expect("it stayed valid");
                let found = leaf
                    .view()
                    .find(hash, Name::Text(name))
                    .expect("it is sound");
                let result = match found {
                    Some(entry) => leaf.update(&entry, value),
                    None => leaf.insert(hash, Name::Text(name), value).map(|_| ()),
                };
                match result {
                    Ok(()) => return,
                    Err(LeafFull::MustSplit) => {
                        let mut other = vec![0; 512];
                        leaf.split(&mut other, self.sorted);
                        self.blocks.push(other);
                    }
                    Err(LeafFull::TooLarge) => panic!("all values are small"),
                }
            }
        }

        fn remove(&mut self, name: &[u8]) {
            let hash = hash_of(name);
            let index = self.index(hash);
            let mut leaf = LeafEdit::open(&mut self.blocks[index]).expect("it stayed valid");
            let found = leaf
                .view()
                .find(hash, Name::Text(name))
                .expect("it is sound");
            if let Some(entry) = found {
                leaf.remove(&entry);
            }
        }

        fn contents(&self) -> BTreeMap<Vec<u8>, ZapValue> {
            let mut contents = BTreeMap::new();
            for block in &self.blocks {
                let leaf = Leaf::open(block).expect("it stayed valid");
                leaf.check().expect("it stayed valid");
                for entry in leaf.entries_from(Cursor::START).expect("it is sound") {
                    let Ok(OwnedName::Text(name)) = leaf.name(&entry, false) else {
                        panic!("names are text here");
                    };
                    contents.insert(name, leaf.value(&entry).expect("it is sound"));
                }
            }
            contents
        }
    }

    proptest! {
        #[test]
        fn leaves_that_split_behave_like_a_map(
            changes in prop::collection::vec(change(), 0..150),
            sorted: bool,
        ) {
            let mut first = vec![0; 512];
            LeafEdit::format(&mut first, sorted);
            let mut leaves = Leaves { blocks: vec![first], sorted };
            let mut model = BTreeMap::new();
            for change in changes {
                let (name, value) = match change {
                    Change::Set(name, words) => (name, Some(ZapValue::Words(words))),
                    Change::SetText(name, text) => (name, Some(ZapValue::text(&text))),
                    Change::Remove(name) => (name, None),
                };
                let name = format!("a name of some length, number {name}").into_bytes();
                match value {
                    Some(value) => {
                        leaves.set(&name, &value);
                        model.insert(name, value);
                    }
                    None => {
                        leaves.remove(&name);
                        model.remove(&name);
                    }
                }
            }
            prop_assert_eq!(leaves.contents(), model);
        }

        #[test]
        fn damaged_leaves_are_read_or_refused_and_never_changed_unsound(
            damage in prop::collection::vec((0usize..512, any::<u8>()), 0..6),
        ) {
            let mut block = vec![0; 512];
            let mut leaf = LeafEdit::format(&mut block, false);
            for name in [b"one", b"two", b"abc"] {
                let value = ZapValue::text("something of several chunks' length");
                leaf.insert(hash_of(name), Name::Text(name), &value).expect("there is room");
            }
            for (place, byte) in damage {
                block[place] = byte;
            }
            if let Ok(leaf) = Leaf::open(&block) {
                let _ = leaf.find(hash_of(b"one"), Name::Text(b"one"));
                for entry in leaf.entries_from(Cursor::START).unwrap_or_default() {
                    let _ = leaf.name(&entry, false);
                    let _ = leaf.name(&entry, true);
                    let _ = leaf.value(&entry);
                    let _ = leaf.word(&entry);
                }
            }
            if let Ok(mut leaf) = LeafEdit::open(&mut block) {
                let prefix_length = leaf.view().prefix_length();
                for entry in leaf.view().entries_from(Cursor::START).expect("it was checked") {
                    leaf.remove(&entry);
                }
                leaf.view().check().expect("it stayed valid");
                if prefix_length < PREFIX_BITS_MAX {
                    leaf.split(&mut vec![0; 512], true);
                }
                leaf.view().check().expect("it stayed valid");
            }
        }

        #[test]
        fn the_other_byte_order_turns_back(words in prop::collection::vec(any::<u64>(), 0..9)) {
            let mut block = vec![0; 512];
            let mut leaf = LeafEdit::format(&mut block, false);
            let value = ZapValue::Words(words);
            leaf.insert(hash_of(b"name"), Name::Text(b"name"), &value).expect("there is room");
            let mut big = block.clone();
            swap(&mut big).expect("it is a leaf");
            crate::zap::to_little_endian(&mut big, ByteOrder::Big).expect("it is a leaf");
            prop_assert_eq!(big, block);
        }
    }
}
