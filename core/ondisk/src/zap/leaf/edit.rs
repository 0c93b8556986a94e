//! Changing a leaf: entries are added, changed and removed, and a leaf is split in two.

use super::{
    CHUNK_SIZE, END, ENTRY, ENTRY_COUNT_PLACE, FLAGS_PLACE, FREE, Geometry, Leaf, LeafEntry,
    LeafHeader, MAGIC, NEXT_PLACE, PREFIX_BITS_MAX, SORTED, chunks_for, chunks_of, count_u16,
    name_count, stored_name,
};
use crate::declare::{Corrupt, Reserved, Stored};
use crate::zap::{BlockKind, Name, ZapHash, ZapValue, put, u16_at};

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
    pub(super) block: &'a mut [u8],
    pub(super) geometry: Geometry,
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
        let free_before = self.view().free_count();
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
        assert_eq!(
            free_before - self.view().free_count(),
            needed,
            "an entry takes the chunks that were counted for it"
        );
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
        let chunks = 1 + self.name_chunks(entry) + chunks_for(entry.value_size());
        let free_before = self.view().free_count();
        self.unlink(entry);
        self.free_entry(entry);
        assert_eq!(
            self.view().free_count() - free_before,
            chunks,
            "an entry gives back all of its chunks"
        );
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
        debug_assert_eq!(self.view().check(), Ok(()), "the first half is sound");
        debug_assert_eq!(new.view().check(), Ok(()), "the second half is sound");
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
        debug_assert_eq!(self.view().check(), Ok(()), "an empty leaf stays sound");
    }

    /// Whether an entry that has no room here would have it in a leaf of those only whose hashes
    /// begin with the same `bits`: no split takes those apart.
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
}
