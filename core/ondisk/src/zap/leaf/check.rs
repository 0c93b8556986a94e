//! Checking a whole leaf: every chunk is in one chain, one array or the free list, and counted.

use super::{
    ARRAY, END, ENTRY_COUNT_PLACE, FREE, FREE_CHUNK_PLACE, Leaf, LeafEntry, NEXT_PLACE, WHAT,
    chunks_for,
};
use crate::declare::Corrupt;
use crate::zap::{inconsistent, u16_at};

impl Leaf<'_> {
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
        // Of lost chunks there would be no end: a leaf that has no room, and nothing to give to
        // another, would be split for it again and again.
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
