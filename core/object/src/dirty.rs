//! The changes of an object that are not stored yet, group by group.
//!
//! # Mechanism
//! An object has a [`Pending`] per transaction group that changed it: the blocks written, the
//! ranges freed, and the dnode's fields as the group leaves them (its [`Shape`]). At most three
//! groups are in flight, so there are at most three.
//!
//! In one group a block is written, freed or untouched: writing takes it out of the freed ranges,
//! freeing drops the written contents. So a read asks the groups from the newest to the oldest, and
//! the first that has the block decides; if none does, the stored tree has it.
//!
//! Groups share the bytes of a block until a later group changes them (copy on write through
//! `Arc`).
//!
//! # Invariants
//! - Pendings are in order of their groups, and only the newest is changed: groups follow each
//!   other strictly.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use tarn_block::{Block, GivenForm};
use tarn_host::buffer::Buffer;
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::widen;
use tarn_ondisk::dnode::{CORE_BYTES, POINTER_SHIFT, SLOT_BYTES, Spill};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, LogicalSize, Txg};

use crate::set_sealing::SealedBlock;

/// The fields of a dnode that transactions change.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub object_type: ObjectType,
    pub bonus_type: ObjectType,
    pub bonus: Arc<[u8]>,
    pub checksum: ChecksumKind,
    pub compression: Compression,
    pub block_size: LogicalSize,
    pub indirect_shift: u8,
    pub pointer_count: usize,
    pub slots: usize,
    pub max_block: BlockId,
    pub spill: SpillContents,
    /// What else is said of an object that is encrypted.
    pub form: Option<Form>,
}

/// What an object keeps to, because the owner of the key will check it.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub levels: u8,
    /// All the room for the bonus, encrypted.
    pub bonus_room: Arc<[u8]>,
}

/// The newest contents of the spill block.
#[derive(Debug, Clone)]
pub(crate) enum SpillContents {
    /// There is none.
    Absent,
    /// As stored.
    Stored,
    /// These bytes.
    Dirty(Arc<Buffer>),
    /// This, encrypted.
    Sealed(Arc<SealedBlock>),
}

impl Shape {
    /// As a stored dnode has it.
    pub fn of(dnode: &ondisk::dnode::Dnode) -> Shape {
        Shape {
            object_type: dnode.object_type,
            bonus_type: dnode.bonus_type,
            bonus: dnode.bonus().into(),
            checksum: dnode.checksum,
            compression: dnode.compression,
            block_size: dnode.data_block_size,
            indirect_shift: dnode.indirect_shift,
            pointer_count: dnode.pointers.len(),
            slots: dnode.slots(),
            max_block: dnode.max_block,
            spill: match dnode.spill {
                None => SpillContents::Absent,
                Some(_) => SpillContents::Stored,
            },
            form: None,
        }
    }

    /// How many pointers a block of pointers holds, as a power of two.
    pub fn fanout_shift(&self) -> u32 {
        u32::from(self.indirect_shift).saturating_sub(ondisk::dnode::POINTER_SHIFT)
    }

    /// How many levels the tree must have so that its highest block can be reached.
    pub fn levels_needed(&self) -> u8 {
        let fanout = self.fanout_shift();
        let mut levels = 1;
        let mut reach = u128::try_from(self.pointer_count).expect("at most 3 pointers");
        while reach <= u128::from(self.max_block.get()) {
            reach <<= fanout;
            levels += 1;
        }
        let told = self.form.as_ref().map_or(1, |form| form.levels);
        levels.max(told)
    }

    /// How many bytes of bonus there is room for, with or without a spill block. None if the
    /// pointers leave no room for one to a spill block.
    pub fn bonus_room(&self, spill: Spill) -> Option<usize> {
        let spill_pointers = match spill {
            Spill::Absent => 0,
            Spill::Present => 1,
        };
        let pointers = (self.pointer_count + spill_pointers) << POINTER_SHIFT;
        (self.slots * SLOT_BYTES - CORE_BYTES).checked_sub(pointers)
    }

    /// Whether there is a spill block.
    pub fn spill_kind(&self) -> Spill {
        match self.spill {
            SpillContents::Absent => Spill::Absent,
            SpillContents::Stored | SpillContents::Dirty(_) | SpillContents::Sealed(_) => {
                Spill::Present
            }
        }
    }
}

/// The stored form of a block, from the stream that brought it compressed.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    /// The contents that it is of. As long as the block has these, it is stored as given.
    pub buffer: Arc<Buffer>,
    /// What is stored.
    pub bytes: Block,
    /// Its form.
    pub form: GivenForm,
}

/// A block of an indirect log write: it was written before its txg is stored.
#[derive(Debug, Clone)]
pub(crate) struct PlacedForLog {
    /// What was written. As long as this is what the block has, it need not be written again.
    pub buffer: Arc<Buffer>,
    /// Where.
    pub pointer: BlockPointer,
}

/// What one group changes in an object.
#[derive(Debug)]
pub(crate) struct Pending {
    pub txg: Txg,
    /// The dnode's fields as the group leaves them.
    pub shape: Shape,
    /// Blocks of encrypted objects written, by index, as they are to be stored. Such objects have
    /// no others.
    pub sealed: BTreeMap<u64, SealedBlock>,
    /// Blocks written, by index.
    pub blocks: BTreeMap<u64, Arc<Buffer>>,
    /// Those of them whose stored form is given.
    pub given: BTreeMap<u64, Given>,
    /// Those of them that need not be cached when they are stored.
    pub passing: BTreeSet<u64>,
    /// Those of them that indirect log writes have placed and written.
    pub placed_for_log: BTreeMap<u64, PlacedForLog>,
    /// Blocks that are clones of others, by index, as they are to be pointed at. None of them is
    /// also written.
    pub cloned: BTreeMap<u64, BlockPointer>,
    /// Places of indirect log writes whose blocks changed since, and clones that were replaced.
    pub superseded: Vec<BlockPointer>,
    /// Blocks freed.
    pub freed: BlockRanges,
    /// Whether the spill block was written or taken away.
    pub is_spill_changed: bool,
    /// Whether the object is freed, with everything it has.
    pub is_object_freed: bool,
    /// What the throttle counts for it, blocks included.
    pub dirty_bytes: u64,
    /// Blocks of pointers that change, by level and index: how many pointers they have, and what is
    /// counted as in flight for them.
    pub parents: BTreeMap<(u8, u64), (u64, u64)>,
    /// What is counted as in flight for the spill block.
    pub spill_worst: u64,
}

impl Pending {
    /// Whether blocks come or go in this group. What is only noted in the bonus takes no more space
    /// than before.
    pub fn changes_space(&self) -> bool {
        !self.blocks.is_empty()
            || !self.sealed.is_empty()
            || !self.cloned.is_empty()
            || !self.freed.is_empty()
            || self.is_spill_changed
    }

    pub fn new(txg: Txg, shape: Shape) -> Pending {
        Pending {
            txg,
            shape,
            sealed: BTreeMap::new(),
            blocks: BTreeMap::new(),
            given: BTreeMap::new(),
            passing: BTreeSet::new(),
            placed_for_log: BTreeMap::new(),
            cloned: BTreeMap::new(),
            superseded: Vec::new(),
            freed: BlockRanges::default(),
            is_spill_changed: false,
            is_object_freed: false,
            dirty_bytes: 0,
            parents: BTreeMap::new(),
            spill_worst: 0,
        }
    }

    /// The block changes: what an indirect log write has written is not its contents any more.
    /// Gives how many bytes that was. The buffer need not be kept as it is for that: it is changed
    /// in place where no other thread has it.
    pub fn supersede_placed(&mut self, block: u64) -> Option<u64> {
        let placed = self.placed_for_log.remove(&block)?;
        self.superseded.push(placed.pointer);
        Some(widen(placed.buffer.len()))
    }

    /// What is stored of a block, and cached then: without the room that it had to grow. Blocks of
    /// indirect log writes, and those given in their stored form, are recognized by their buffer.
    pub fn to_be_stored(&self, block: u64, buffer: &Arc<Buffer>) -> Arc<Buffer> {
        let is_known = self.placed_for_log.contains_key(&block) || self.given.contains_key(&block);
        match buffer.has_room_to_spare() && !is_known {
            true => Arc::new((**buffer).clone()),
            false => buffer.clone(),
        }
    }

    /// The blocks of a range that the group gives contents, in order.
    pub fn written(&self, range: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let sealed = self.sealed.range(range.clone()).map(|(block, _)| *block);
        let mut plain = self.blocks.range(range.clone()).map(|(block, _)| *block);
        let mut cloned = self.cloned.range(range).map(|(block, _)| *block);
        let (mut next_plain, mut next_cloned) = (plain.next(), cloned.next());
        let mixed = std::iter::from_fn(move || match (next_plain, next_cloned) {
            (Some(block), other) if other.is_none_or(|other| block < other) => {
                next_plain = plain.next();
                Some(block)
            }
            (_, found) => {
                next_cloned = cloned.next();
                found
            }
        });
        // An object that has sealed blocks has no others.
        sealed.chain(mixed)
    }
}

/// Whether a change needs what was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Old {
    /// It does.
    Needed,
    /// It writes the whole block, and may see anything.
    Overwritten,
}

/// A set of block indexes, as ranges that neither touch nor overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BlockRanges {
    /// Start to end, the end not included.
    ranges: BTreeMap<u64, u64>,
}

impl BlockRanges {
    /// True for no block at all.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds the blocks from `start` up to, not including, `end`.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut from, mut to) = (start, end);
        while let Some((&other_start, &other_end)) = self.ranges.range(..=to).next_back() {
            if other_end < from {
                break;
            }
            self.ranges.remove(&other_start);
            from = from.min(other_start);
            to = to.max(other_end);
        }
        self.ranges.insert(from, to);
        debug_assert!(self.is_apart(), "ranges neither touch nor overlap");
    }

    fn is_apart(&self) -> bool {
        let mut ranges = self.ranges.iter();
        let mut end_before = None;
        ranges.all(|(start, end)| {
            let is_apart = start < end && end_before.is_none_or(|before| before < *start);
            end_before = Some(*end);
            is_apart
        })
    }

    /// Takes one block out.
    pub fn remove(&mut self, block: u64) {
        let Some((&start, &end)) = self.ranges.range(..=block).next_back() else {
            return;
        };
        if block >= end {
            return;
        }
        self.ranges.remove(&start);
        if start < block {
            self.ranges.insert(start, block);
        }
        if block + 1 < end {
            self.ranges.insert(block + 1, end);
        }
    }

    /// The end of the range that has this block.
    pub fn end_of(&self, block: u64) -> Option<u64> {
        let (_, &end) = self.ranges.range(..=block).next_back()?;
        (block < end).then_some(end)
    }

    /// True when the block is in it.
    pub fn contains(&self, block: u64) -> bool {
        self.end_of(block).is_some()
    }

    /// True when all blocks from `start` up to `end` are in it.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        self.end_of(start).is_some_and(|range_end| range_end >= end)
    }

    /// True when any block from `start` up to `end` is in it.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        let before = self.ranges.range(..end).next_back();
        before.is_some_and(|(_, &range_end)| range_end > start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_the_set_that_was_put_in() {
        let mut ranges = BlockRanges::default();
        let mut model = BTreeSet::new();
        let mut state = 1_u64;
        for _ in 0..2000 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let (start, length) = ((state >> 33) % 64, (state >> 50) % 9);
            if state >> 63 == 0 {
                ranges.insert(start, start + length);
                model.extend(start..start + length);
            } else {
                ranges.remove(start);
                model.remove(&start);
            }
            for block in 0..80 {
                assert_eq!(ranges.contains(block), model.contains(&block));
                let covered = (block..block + 3).all(|b| model.contains(&b));
                assert_eq!(ranges.covers(block, block + 3), covered);
                let touched = (block..block + 3).any(|b| model.contains(&b));
                assert_eq!(ranges.overlaps(block, block + 3), touched);
            }
            let parts: Vec<_> = ranges.ranges.iter().collect();
            assert!(
                parts.windows(2).all(|pair| pair[0].1 < pair[1].0),
                "ranges are merged"
            );
        }
    }

    #[test]
    fn a_tree_has_the_levels_its_highest_block_needs() {
        let mut dnode = ondisk::dnode::Dnode::new(ObjectType::PlainFile, 1, 1);
        for (max_block, levels) in [(0, 1), (1, 2), (1023, 2), (1024, 3), (1 << 20, 4)] {
            dnode.max_block = BlockId::from(max_block);
            assert_eq!(Shape::of(&dnode).levels_needed(), levels);
        }
        let mut dnode = ondisk::dnode::Dnode::new(ObjectType::PlainFile, 1, 3);
        for (max_block, levels) in [(2, 1), (3, 2), (3071, 2), (3072, 3)] {
            dnode.max_block = BlockId::from(max_block);
            assert_eq!(Shape::of(&dnode).levels_needed(), levels);
        }
    }
}
