//! Destroyed datasets that are freed in the background (bptree): an object of the MOS that lists
//! the roots of their trees.
//!
//! # Mechanism
//! Entries are appended at the end and freed from the start. Freeing an entry is a walk through its
//! tree ([`traverse`](crate::traverse)) that passes each block to the caller after the blocks below
//! it. When the caller stops for this group, the walk's mark is stored with the entry, and the next
//! group resumes there.
//!
//! Blocks below an unreadable block are waited for or leaked, as the caller chooses
//! ([`Unreadable`]).
//!
//! # Invariants
//! - All entries of a list that was opened are within its object, and none of them is a hole of it:
//!   going through them ends.
//! - The caller stops on level 0 only; see the traversal.

use std::sync::Arc;

use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::bptree::{BlockTreeEntry, BlockTreeHead};
use tarn_ondisk::declare::{ByteOrder, Corrupt, Stored, widen};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{AllocatedSize, LogicalSize, ObjectId, PhysicalSize, Txg};
use tarn_probe::Operation;

use crate::error::ObjectError;
use crate::object::Object;
use crate::objset::{NewObject, ObjectSet};
use crate::traverse::{Step, Visit, Visitor, WalkOptions, Walked, walk_objset};
use crate::tx::SyncTx;

/// The object set of marks in a destroyed dataset.
#[doc(alias = "ZB_DESTROYED_OBJSET")]
const DESTROYED_OBJSET: ObjectId = ObjectId::new(u64::MAX);

/// The block size of the list.
const BLOCK_BYTES: u64 = 128 << 10;

/// Trees of blocks to free.
#[doc(alias = "bptree_phys_t")]
#[derive(Clone)]
pub struct BlockTrees {
    set: Arc<ObjectSet>,
    object: Arc<Object>,
}

/// How far freeing has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freeing {
    /// Nothing is left.
    Completed,
    /// The caller stopped it.
    Stopped,
}

/// What becomes of what is below a block that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// It is tried again: freeing stops there. What was read and makes no sense will not become
    /// better, and leaks.
    Wait,
    /// It is given up: it stays allocated, and nothing leads to it.
    Leak,
}

impl BlockTrees {
    /// Makes an empty list.
    pub fn create(
        set: &Arc<ObjectSet>,
        tx: &SyncTx,
        operation: &Operation,
    ) -> Result<BlockTrees, ObjectError> {
        let new = NewObject::plain(ObjectType::Words64Metadata, BLOCK_BYTES)
            .with_bonus(ObjectType::Words64Metadata, BlockTreeHead::SIZE);
        let object = set.allocate(tx, new, operation)?;
        Ok(BlockTrees {
            set: set.clone(),
            object,
        })
    }

    /// Opens a list.
    pub fn open(
        set: &Arc<ObjectSet>,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<BlockTrees, ObjectError> {
        let trees = BlockTrees {
            set: set.clone(),
            object: set.object(id, operation)?,
        };
        let (head, info) = (trees.head()?, trees.object.info());
        if head.begin > head.end || head.end > info.end_offset() / entry_bytes() {
            return Err(trees.damaged("the trees that it counts are not all in its object"));
        }
        Ok(trees)
    }

    /// Its object.
    pub fn id(&self) -> ObjectId {
        self.object.id()
    }

    /// What is still to be freed.
    pub fn head(&self) -> Result<BlockTreeHead, ObjectError> {
        let head = BlockTreeHead::from_bytes(&self.object.bonus(), ByteOrder::Little);
        head.map_err(|what| self.object.corrupt(what))
    }

    /// True when nothing is.
    pub fn is_empty(&self) -> Result<bool, ObjectError> {
        let head = self.head()?;
        Ok(head.begin >= head.end)
    }

    /// Adds a tree: the blocks below `root`, and it, that were born after `born_after`; `sizes` is
    /// what they add up to. One that was never stored has none.
    #[doc(alias = "bptree_add")]
    pub fn append(
        &self,
        tx: &SyncTx,
        root: &BlockPointer,
        born_after: Txg,
        sizes: (AllocatedSize, PhysicalSize, LogicalSize),
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        if root.is_hole() {
            return Ok(());
        }
        let mut head = self.head()?;
        let entry = BlockTreeEntry {
            root: *root,
            birth: born_after,
            resume: TraversalMark::default(),
        };
        self.put(tx, head.end, &entry, operation)?;
        head.end += 1;
        head.allocated = head.allocated.saturating_add(sizes.0);
        head.compressed = head.compressed.saturating_add(sizes.1);
        head.uncompressed = head.uncompressed.saturating_add(sizes.2);
        self.object.set_bonus(tx, &head.to_bytes())
    }

    /// Gives blocks to `free` until nothing is left, or it says to stop; the one it stops at is
    /// given again next time. It may stop at blocks of level 0 that are not heads.
    #[doc(alias = "bptree_iterate")]
    pub fn free_each(
        &self,
        tx: &SyncTx,
        operation: &Operation,
        unreadable: Unreadable,
        mut free: impl FnMut(&BlockPointer) -> Step,
    ) -> Result<Freeing, ObjectError> {
        let mut head = self.head()?;
        while head.begin < head.end {
            let mut entry = self.entry(head.begin, operation)?;
            let has_begun = entry.resume != TraversalMark::default();
            let options = WalkOptions {
                born_after: entry.birth,
                resume: has_begun.then_some(entry.resume),
                ..WalkOptions::default()
            };
            let mut freer = Freer {
                set: &self.set,
                head: &mut head,
                free: &mut free,
                unreadable,
            };
            let cache = &self.set.env().cache;
            let walked = walk_objset(
                cache,
                DESTROYED_OBJSET,
                &entry.root,
                options,
                &mut freer,
                operation,
            );
            if let Walked::Stopped(mark) = walked {
                entry.resume = TraversalMark { level: 0, ..mark };
                self.put(tx, head.begin, &entry, operation)?;
                self.object.set_bonus(tx, &head.to_bytes())?;
                return Ok(Freeing::Stopped);
            }
            let at = self.place(head.begin)?;
            self.object.free_range(tx, at, entry_bytes(), operation)?;
            head.begin += 1;
            if head.begin >= head.end {
                // What could not be read was never counted off.
                head.allocated = AllocatedSize::ZERO;
                head.compressed = PhysicalSize::ZERO;
                head.uncompressed = LogicalSize::ZERO;
            }
            self.object.set_bonus(tx, &head.to_bytes())?;
        }
        Ok(Freeing::Completed)
    }

    /// Visits all blocks that are still to be freed; nothing is changed. For checks.
    pub fn for_each(
        &self,
        operation: &Operation,
        visitor: &mut dyn Visitor,
    ) -> Result<(), ObjectError> {
        let head = self.head()?;
        for index in head.begin..head.end {
            let entry = self.entry(index, operation)?;
            let has_begun = entry.resume != TraversalMark::default();
            let options = WalkOptions {
                born_after: entry.birth,
                resume: has_begun.then_some(entry.resume),
                ..WalkOptions::default()
            };
            let cache = &self.set.env().cache;
            walk_objset(
                cache,
                DESTROYED_OBJSET,
                &entry.root,
                options,
                visitor,
                operation,
            );
        }
        Ok(())
    }

    fn entry(&self, index: u64, operation: &Operation) -> Result<BlockTreeEntry, ObjectError> {
        let mut bytes = [0; BlockTreeEntry::SIZE];
        self.object
            .read(self.place(index)?, &mut bytes, operation)?;
        let entry = BlockTreeEntry::from_bytes(&bytes, ByteOrder::Little)
            .map_err(|what| self.object.corrupt(what))?;
        // OpenZFS may have added a tree that was never stored, but none that is older than the
        // pool.
        if entry.root.is_hole() && entry.birth == Txg::ZERO {
            return Err(self.damaged("a tree that it counts was never written"));
        }
        Ok(entry)
    }

    fn put(
        &self,
        tx: &SyncTx,
        index: u64,
        entry: &BlockTreeEntry,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let at = self.place(index)?;
        self.object.write(tx, at, &entry.to_bytes(), operation)
    }

    /// Where an entry is in the object.
    fn place(&self, index: u64) -> Result<u64, ObjectError> {
        let at = index.checked_mul(entry_bytes());
        at.ok_or_else(|| self.damaged("it counts more trees than an object can hold"))
    }

    fn damaged(&self, why: &'static str) -> ObjectError {
        self.object.corrupt(Corrupt::Inconsistent {
            what: "BlockTreeHead",
            offset: 0,
            why,
        })
    }
}

/// How much of the object an entry takes.
fn entry_bytes() -> u64 {
    widen(BlockTreeEntry::SIZE)
}

/// Gives blocks to be freed, and counts them off.
struct Freer<'a> {
    set: &'a ObjectSet,
    head: &'a mut BlockTreeHead,
    free: &'a mut dyn FnMut(&BlockPointer) -> Step,
    unreadable: Unreadable,
}

impl Visitor for Freer<'_> {
    fn leave(&mut self, visit: &Visit<'_>) -> Step {
        let pointer = visit.pointer;
        if pointer.is_hole() || pointer.is_redacted() {
            return Step::Continue;
        }
        if (self.free)(pointer) == Step::Stop {
            return Step::Stop;
        }
        let (head, io) = (&mut *self.head, self.set.env().cache.io());
        head.allocated = head.allocated.saturating_sub(io.deflated_size(pointer));
        head.compressed = head.compressed.saturating_sub(pointer.physical_size());
        let uncompressed = LogicalSize::from(pointer.uncompressed_size());
        head.uncompressed = head.uncompressed.saturating_sub(uncompressed);
        Step::Continue
    }

    fn unreadable(&mut self, _visit: &Visit<'_>, why: &ObjectError) -> Step {
        let may_come_back = matches!(why, ObjectError::Read { .. });
        match self.unreadable {
            Unreadable::Wait if may_come_back => Step::Stop,
            Unreadable::Wait | Unreadable::Leak => Step::Continue,
        }
    }
}
