//! The chunks of a leaf that is changed: taken from the free list and given back, one by one and
//! as arrays, and entries joined to their hash chains.

use super::{
    ARRAY, ARRAY_SIZE, END, FREE, FREE_CHUNK_PLACE, FREE_COUNT_PLACE, LeafEdit, LeafEntry,
    NEXT_PLACE, PREFIX_LENGTH_PLACE, PREFIX_PLACE, count_u16,
};
use crate::zap::{put, u16_at, u32_at};

impl LeafEdit<'_> {
    /// Puts an entry into its chain, behind those with the same or a smaller differentiator.
    #[doc(alias = "zap_leaf_rehash_entry")]
    pub(super) fn link(&mut self, chunk: u16) {
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
    pub(super) fn unlink(&mut self, entry: &LeafEntry) {
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

    pub(super) fn break_chains(&mut self) {
        let start = self.geometry.head_place(0);
        let end = self.geometry.head_place(self.geometry.chain_count());
        self.block[start..end].fill(0xff);
    }

    pub(super) fn set_prefix(&mut self, prefix: u64, length: u32) {
        put(self.block, PREFIX_PLACE, &prefix.to_le_bytes());
        let length = u16::try_from(length).expect("a prefix has at most 48 bits");
        self.put_u16(PREFIX_LENGTH_PLACE, length);
    }

    #[doc(alias = "zap_leaf_chunk_alloc")]
    pub(super) fn take_chunk(&mut self) -> u16 {
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
    pub(super) fn free_chunk(&mut self, chunk: u16) {
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
    pub(super) fn add_array(&mut self, bytes: &[u8]) -> u16 {
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
    pub(super) fn copy_array(&self, first: u16, to: &mut LeafEdit<'_>) -> u16 {
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
    pub(super) fn free_array(&mut self, first: u16) {
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

    pub(super) fn put_u16(&mut self, place: usize, number: u16) {
        put(self.block, place, &number.to_le_bytes());
    }
}
