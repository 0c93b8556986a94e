//! The shape of the tree of blocks below a dnode, and checks of its pointers. Finding blocks in it:
//! [`walk`](crate::walk).
//!
//! # Invariants
//! - A pointer that passed [`check_place`] is on the level of its place in the tree, with the size
//!   that blocks of that level have.

use std::ops::Range;

use tarn_block::BlockKind;
use tarn_cache::{Contents, WeakContents};
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::declare::{ByteOrder, Corrupt, Stored, narrow};
use tarn_ondisk::dnode::{Dnode, INDIRECT_SHIFT_MAX, INDIRECT_SHIFT_MIN, POINTER_SHIFT};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{Level, LogicalSize};

/// A pointer of the stored tree from which to go down, as of one instant.
#[derive(Debug, Clone)]
pub(crate) struct TreeTop {
    pub pointer: BlockPointer,
    /// The level of the block it leads to.
    pub level: u8,
    pub geometry: Geometry,
    /// The generation of the stored dnode.
    pub generation: u64,
}

/// What decides the shape of a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub object_type: ObjectType,
    pub indirect_shift: u8,
    pub block_size: LogicalSize,
}

impl Geometry {
    /// How many pointers a block of pointers holds, as a power of two.
    pub fn fanout_shift(&self) -> u32 {
        u32::from(self.indirect_shift) - POINTER_SHIFT
    }

    /// How many pointers a block of pointers holds.
    pub fn fanout(&self) -> usize {
        1 << self.fanout_shift()
    }

    /// The size of a block of this level.
    pub fn size_at(&self, level: u8) -> LogicalSize {
        if level == 0 {
            self.block_size
        } else {
            LogicalSize::from(1 << self.indirect_shift)
        }
    }

    /// The index, `levels` further up, of what holds this block.
    pub fn ancestor(&self, block: u64, levels: u8) -> u64 {
        block
            .checked_shr(self.fanout_shift() * u32::from(levels))
            .unwrap_or(0)
    }

    /// The blocks of level 0 below a block of `level`; the end is the largest number where it would
    /// be more.
    pub fn span(&self, level: u8, block: u64) -> Range<u64> {
        let shift = self.fanout_shift() * u32::from(level);
        let bound = |block: u128| u64::try_from(block << shift.min(64)).unwrap_or(u64::MAX);
        bound(u128::from(block))..bound(u128::from(block) + 1)
    }

    /// What a hole stands for one level further down.
    pub fn hole_below(&self, hole: &BlockPointer, level: u8) -> BlockPointer {
        if hole.logical_birth.is_zero() {
            return BlockPointer::HOLE;
        }
        let (size, birth) = (self.size_at(level), hole.logical_birth);
        BlockPointer::punched(size, self.object_type, Level::new(level), birth)
    }
}

/// A block of pointers, as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct PointerBlock {
    contents: Contents,
    order: ByteOrder,
}

impl PointerBlock {
    /// What a pointer leads to. Refused if it is not as large as the pointer says.
    pub fn new(contents: Contents, pointer: &BlockPointer) -> Result<PointerBlock, Corrupt> {
        if contents.pointer_count() != pointer.logical_size().to_usize() >> POINTER_SHIFT {
            return Err(Corrupt::Inconsistent {
                what: "block of pointers",
                offset: 0,
                why: "the block is not as large as its pointer says",
            });
        }
        Ok(PointerBlock {
            contents,
            order: pointer.byte_order(),
        })
    }

    /// How many pointers it holds.
    pub fn count(&self) -> usize {
        self.contents.pointer_count()
    }

    /// One of them.
    pub fn get(&self, index: usize) -> BlockPointer {
        let bytes = self.contents.pointer(index);
        bytes.map_or(BlockPointer::HOLE, |bytes| self.decode(bytes))
    }

    /// Those from this index on, with their indexes. Holes that remember nothing may be left out.
    pub fn present(&self, from: usize) -> impl Iterator<Item = (usize, BlockPointer)> {
        let each = self.contents.pointers();
        each.skip_while(move |(index, _)| *index < from)
            .map(|(index, bytes)| (index, self.decode(bytes)))
    }

    /// Puts all of them into bytes that are zeros, in the order that we write.
    pub fn write_to(&self, bytes: &mut [u8]) {
        for (index, stored) in self.contents.pointers() {
            let place = &mut bytes[index << POINTER_SHIFT..][..stored.len()];
            match self.order {
                ByteOrder::Little => place.copy_from_slice(stored),
                ByteOrder::Big => self.decode(stored).write_to(place),
            }
        }
    }

    fn decode(&self, bytes: &[u8]) -> BlockPointer {
        BlockPointer::from_bytes(bytes, self.order).expect("these are the bytes of a pointer")
    }
}

/// The block of pointers to data that was used last, as long as the cache keeps it: thousands of
/// objects that are open and not used hold none.
#[derive(Debug)]
pub(crate) struct PointerMemo {
    /// Its index at level 1.
    pub index: u64,
    contents: WeakContents,
    order: ByteOrder,
}

impl PointerMemo {
    /// What to remember of a block of pointers at this index of level 1.
    pub fn new(index: u64, pointers: &PointerBlock) -> PointerMemo {
        PointerMemo {
            index,
            contents: pointers.contents.downgrade(),
            order: pointers.order,
        }
    }

    /// The block, if the cache still has it.
    pub fn pointers(&self) -> Option<PointerBlock> {
        Some(PointerBlock {
            contents: self.contents.upgrade()?,
            order: self.order,
        })
    }
}

/// Refuses a pointer that cannot be at its place of a tree.
pub(crate) fn check_place(
    pointer: &BlockPointer,
    level: u8,
    geometry: &Geometry,
) -> Result<(), Corrupt> {
    pointer.check()?;
    let refuse = |why| {
        Err(Corrupt::Inconsistent {
            what: "block pointer",
            offset: 48,
            why,
        })
    };
    match pointer.kind() {
        PointerKind::Hole | PointerKind::Redacted => return Ok(()),
        PointerKind::Embedded | PointerKind::Stored => {}
    }
    if pointer.level().get() != level {
        return refuse("the level is not that of its place in the tree");
    }
    if pointer.logical_size() != geometry.size_at(level) {
        return refuse("the size is not that of the object's blocks");
    }
    Ok(())
}

/// Refuses a dnode whose tree cannot be walked, or does not reach the blocks it claims to have.
pub(crate) fn check_tree(dnode: &Dnode) -> Result<(), Corrupt> {
    dnode.check()?;
    let refuse = |field, offset, found| {
        Err(Corrupt::Value {
            what: "Dnode",
            field,
            offset,
            found,
        })
    };
    let shifts = INDIRECT_SHIFT_MIN..=INDIRECT_SHIFT_MAX;
    if !shifts.contains(&dnode.indirect_shift) {
        return refuse("indirect shift", 1, u64::from(dnode.indirect_shift));
    }
    let fanout = dnode.pointers_per_block_shift();
    let roots = u128::try_from(dnode.pointers.len()).expect("at most 3 pointers");
    let reach = roots << (fanout * u32::from(dnode.levels - 1)).min(120);
    if u128::from(dnode.max_block.get()) >= reach {
        return refuse("highest block", 16, dnode.max_block.get());
    }
    Ok(())
}

/// The lowest bits of an index: its place within its block of pointers.
pub(crate) fn low_bits(index: u64, bits: u32) -> usize {
    narrow(index & ((1 << bits) - 1))
}

/// What the lowest blocks of an object are.
pub(crate) fn kind_of(object_type: ObjectType) -> BlockKind {
    match object_type.is_metadata() {
        true => BlockKind::Metadata,
        false => BlockKind::Data,
    }
}
