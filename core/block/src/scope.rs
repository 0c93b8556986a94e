//! Where a block belongs, as its reader knows it: [`BlockScope`].
//!
//! # Problem
//! A block pointer says where bytes are, and not whose they are. The key that opens an encrypted
//! block is that of its object set; statistics tell reads of one object set, object or kind from
//! those of others.
//!
//! # Mechanism
//! Each read carries the logical address of its block from the layer that looked up the pointer
//! (`object`, `zil`, `pool`, `stream`) through `cache` down to [`BlockIo::read`]. The scope is a
//! small value on the stack. A read that the cache answers looks at nothing of it but its kind.
//!
//! [`BlockIo::read`]: crate::BlockIo::read

use std::fmt;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::{HEAD_LEVEL, INTENT_LOG_LEVEL, SPILL_BLOCK, TraversalMark};
use tarn_ondisk::intent_log::{OBJECT_SET_WORD, SEQUENCE_WORD};
use tarn_ondisk::units::{BlockId, Level, ObjectId};

/// What a block is to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Contents of a file or volume.
    Data,
    /// A block of pointers or dnodes, a spill block, the head of an object set, the contents of
    /// any other object.
    Metadata,
    /// A block of an intent log.
    IntentLog,
}

/// The logical address of a block that is read, and its kind.
#[doc(alias = "zbookmark_phys_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockScope {
    /// Object set, object, level and number of the block, with OpenZFS's special values for heads,
    /// spill blocks and log blocks.
    pub mark: TraversalMark,
    /// What it is.
    pub kind: BlockKind,
}

impl BlockScope {
    /// A block in the tree of an object. It is data at level 0 if `kind` says so, and metadata
    /// above.
    pub fn of_object(
        objset: ObjectId,
        object: ObjectId,
        level: Level,
        block: BlockId,
        kind: BlockKind,
    ) -> BlockScope {
        let kind = match level.is_data() {
            true => kind,
            false => BlockKind::Metadata,
        };
        let (level, block) = (i64::from(level.get()), block.get());
        BlockScope {
            mark: TraversalMark {
                objset,
                object,
                level,
                block,
            },
            kind,
        }
    }

    /// The spill block of an object.
    pub fn of_spill(objset: ObjectId, object: ObjectId) -> BlockScope {
        let block = BlockId::from(SPILL_BLOCK);
        BlockScope::of_object(objset, object, Level::ZERO, block, BlockKind::Metadata)
    }

    /// The head of an object set.
    pub fn of_head(objset: ObjectId) -> BlockScope {
        let mark = TraversalMark {
            objset,
            object: ObjectId::ZERO,
            level: HEAD_LEVEL,
            block: 0,
        };
        let kind = BlockKind::Metadata;
        BlockScope { mark, kind }
    }

    /// A block of an intent log, whose pointer names object set and place in the chain.
    pub fn of_log_block(pointer: &BlockPointer) -> BlockScope {
        let words = pointer.checksum_words.0;
        let mark = TraversalMark {
            objset: ObjectId::from(words[OBJECT_SET_WORD]),
            object: ObjectId::ZERO,
            level: INTENT_LOG_LEVEL,
            block: words[SEQUENCE_WORD],
        };
        let kind = BlockKind::IntentLog;
        BlockScope { mark, kind }
    }

    /// The block that a write record of an intent log leads to (`WR_INDIRECT`): `offset` is that of
    /// the write, in bytes.
    pub fn of_logged_write(
        objset: ObjectId,
        object: ObjectId,
        offset: u64,
        pointer: &BlockPointer,
    ) -> BlockScope {
        let block = BlockId::from(offset / pointer.logical_size().get().max(1));
        BlockScope::of_object(objset, object, Level::ZERO, block, BlockKind::Data)
    }

    /// What a traversal found: the mark says where, the pointer of what kind.
    pub fn of_visit(mark: TraversalMark, pointer: &BlockPointer) -> BlockScope {
        let kind = match (mark.level, pointer.is_metadata()) {
            (INTENT_LOG_LEVEL, _) => BlockKind::IntentLog,
            (_, true) => BlockKind::Metadata,
            (_, false) => BlockKind::Data,
        };
        BlockScope { mark, kind }
    }
}

/// As `zpool status -v` and OpenZFS's messages name a block: `<objset, object, level, block>`.
impl fmt::Display for BlockScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraversalMark {
            objset,
            object,
            level,
            block,
        } = self.mark;
        write!(f, "<{objset}, {}, {level}, {block:x}>", object.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_data_is_metadata_and_logs_are_known_by_their_pointers() {
        let (set, object) = (ObjectId::from(54), ObjectId::from(7));
        let at = |level| {
            let (level, block) = (Level::new(level), BlockId::from(0x1f));
            BlockScope::of_object(set, object, level, block, BlockKind::Data)
        };
        assert_eq!(at(0).kind, BlockKind::Data);
        assert_eq!(at(1).kind, BlockKind::Metadata);
        assert_eq!(at(1).to_string(), "<54, 7, 1, 1f>");
        assert_eq!(BlockScope::of_head(set).to_string(), "<54, 0, -1, 0>");
        let mut pointer = BlockPointer::HOLE;
        pointer.checksum_words.0 = [1, 2, 54, 9];
        let log = BlockScope::of_log_block(&pointer);
        assert_eq!(log.to_string(), "<54, 0, -2, 9>");
        assert_eq!(BlockScope::of_visit(log.mark, &pointer), log);
    }
}
