//! Finds one block of an object by its level and number.

use std::sync::Arc;
use tarn_object::{ObjectError, ObjectSet, Step, Visit, Visitor, WalkOptions, walk_object};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::units::{BlockId, ObjectId};
use tarn_probe::Operation;

/// A pointer has this many bytes, as a power of two.
const POINTER_SHIFT: u32 = 7;

/// What was found of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBlock {
    /// Its pointer.
    At(BlockPointer),
    /// There is no such block.
    Absent,
    /// What leads to it cannot be read.
    Unreadable,
}

/// Finds a block of an object, going down only where it is.
#[doc(alias("dbuf_dnode_findbp", "find_birth_txg"))]
pub fn find_block(
    set: &Arc<ObjectSet>,
    object: ObjectId,
    (level, block): (i64, BlockId),
    operation: &Operation,
) -> FoundBlock {
    let found = match set.object(object, operation) {
        Ok(found) => found,
        Err(ObjectError::NoSuchObject { .. }) => return FoundBlock::Absent,
        Err(_) => return FoundBlock::Unreadable,
    };
    let dnode = found.stored_dnode();
    let mut finder = Finder {
        level,
        block,
        shift: u32::from(dnode.indirect_shift).saturating_sub(POINTER_SHIFT),
        found: FoundBlock::Absent,
    };
    let (cache, options) = (&set.env().cache, WalkOptions::default());
    let _ = walk_object(
        cache,
        set.id(),
        object,
        &dnode,
        options,
        &mut finder,
        operation,
    );
    finder.found
}

struct Finder {
    level: i64,
    block: BlockId,
    /// How many pointers a block of them has, as a power of two.
    shift: u32,
    found: FoundBlock,
}

impl Visitor for Finder {
    fn enter(&mut self, visit: &Visit<'_>) -> Step {
        let mark = &visit.mark;
        if (mark.level, BlockId::new(mark.block)) == (self.level, self.block) {
            self.found = FoundBlock::At(*visit.pointer);
            return Step::Stop;
        }
        let up = u32::try_from(mark.level - self.level).unwrap_or(0);
        let above = self.block.get().checked_shr(self.shift * up).unwrap_or(0);
        match up > 0 && above == mark.block {
            true => Step::Continue,
            false => Step::Skip,
        }
    }

    fn unreadable(&mut self, _: &Visit<'_>, _: &ObjectError) -> Step {
        self.found = FoundBlock::Unreadable;
        Step::Stop
    }
}
