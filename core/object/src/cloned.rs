//! Block cloning: blocks of an object that another object shares.
//!
//! # Mechanism
//! A copy of a range looks up the pointers to its blocks ([`Object::clonable`]), and gives them to
//! another object ([`Object::clone_blocks`]), or to another offset of the same one. No block is
//! read or written: it gets one more reference ([`BlockIo::share`](tarn_block::BlockIo::share)),
//! and when the group is stored the tree gets the pointer. Its logical birth is this group, its
//! physical birth the original's; so snapshots, deadlists and increments treat it as any other
//! block.
//!
//! A clone that is overwritten, freed or cloned over before its group is stored releases its
//! reference with the group, as the place of a superseded [indirect log
//! write](crate::indirect_writes) is freed.
//!
//! # Invariants
//! - Every added reference becomes part of the tree with its group, or is released with it.
//! - A cloned block was stored with an earlier txg, and has not changed since: a record of the
//!   intent log can lead to it after a crash. References of a txg count before any of its frees, so
//!   the block is not freed in between.

use std::ops::Range;

use tarn_block::{Block, BlockKind, ReadError};
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::declare::widen;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, Level, LogicalSize, Txg};
use tarn_probe::Operation;

use crate::dirty::{Old, Pending};
use crate::error::ObjectError;
use crate::object::{Newest, Object};
use crate::tx::Tx;

/// What the throttle counts for a clone: the pointer.
pub(crate) const CLONE_DIRTY_BYTES: u64 = 128;

impl Object {
    /// The pointers to blocks as they are now, for them to be cloned in this transaction; holes
    /// where there is nothing. `None` for a block that cannot be: it is not stored yet, or in the
    /// dedup table. The caller keeps them from changing before they are cloned.
    ///
    /// # Errors
    /// When the tree cannot be read, or the object was freed meanwhile.
    #[doc(alias = "dmu_read_l0_bps")]
    pub fn clonable(
        &self,
        tx: &Tx,
        blocks: Range<u64>,
        operation: &Operation,
    ) -> Result<Vec<Option<BlockPointer>>, ObjectError> {
        self.check_plain()?;
        debug_assert!(!tx.is_syncing(), "files are copied in open groups");
        blocks
            .map(|block| {
                let found = self.pointer_now(block, operation)?;
                Ok(found.filter(|pointer| self.accepts_clone(pointer)))
            })
            .collect()
    }

    /// The contents of a stored block that will become the block of this number by being copied,
    /// where it cannot be cloned.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_to_clone(
        &self,
        pointer: &BlockPointer,
        block: BlockId,
        operation: &Operation,
    ) -> Result<Block, ReadError> {
        let scope = self.scope(Level::ZERO, block, BlockKind::Data);
        self.context.env.cache.io().read(pointer, scope, operation)
    }

    /// Whether a block of this object can be a clone of this one: it is as large, was stored
    /// before, no device [misses](tarn_block::BlockIo::is_missed) it, and references to it can be
    /// counted. Holes always can.
    pub fn accepts_clone(&self, pointer: &BlockPointer) -> bool {
        let env = &self.context.env;
        let is_counted = || {
            let io = env.cache.io();
            io.shares_blocks() && io.has_places(pointer) && !io.is_missed(pointer)
        };
        is_clonable(pointer, self.block_size(), env.txgs.stored_txg())
            && (pointer.kind() != PointerKind::Stored || is_counted())
    }

    /// The pointer to a block; none while its contents are in memory only.
    fn pointer_now(
        &self,
        block: u64,
        operation: &Operation,
    ) -> Result<Option<BlockPointer>, ObjectError> {
        {
            let state = self.alive()?;
            match state.newest_of(block) {
                Newest::Data(_) | Newest::Sealed => return Ok(None),
                Newest::Freed => return Ok(Some(BlockPointer::HOLE)),
                Newest::Cloned(pointer) => return Ok(Some(*pointer)),
                Newest::Unknown if block > state.stored.max_block.get() => {
                    return Ok(Some(BlockPointer::HOLE));
                }
                Newest::Unknown => {}
            }
        }
        let pointer = self.stored_pointer(Level::ZERO, block, operation)?;
        Ok(Some(pointer))
    }

    /// Makes blocks from `first` on clones of others, whose pointers [`Object::clonable`] or a
    /// record of the intent log has given: holes are freed. As ever with writing, the object grows
    /// as needed.
    ///
    /// # Panics
    /// When a block is not of the size of the object's blocks, or was not stored before this group.
    ///
    /// # Errors
    /// When the object was freed meanwhile, cannot have so many blocks, or its tree cannot be read.
    #[doc(alias = "dmu_brt_clone")]
    pub fn clone_blocks(
        &self,
        tx: &Tx,
        first: BlockId,
        pointers: &[BlockPointer],
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        self.check_plain()?;
        let Some(last) = widen(pointers.len()).checked_sub(1) else {
            return Ok(());
        };
        let last = first.get().checked_add(last);
        let last = last.ok_or_else(|| self.too_large(u64::MAX))?;
        for block in first.get()..=last {
            self.look_up_parent(tx, block, Old::Overwritten, operation)?;
        }
        let io = self.context.env.cache.io();
        let mut state = self.alive()?;
        self.check_reach(&state, last)?;
        let block_size = state.newest.block_size;
        for (block, source) in (first.get()..).zip(pointers) {
            state.held.drop_range(block..block + 1);
            if source.is_hole() {
                let pending = self.pending_for(&mut state, tx);
                self.drop_written(pending, block);
                pending.freed.insert(block, block + 1);
                continue;
            }
            assert_eq!(
                source.uncompressed_size(),
                block_size.get(),
                "a clone is as large as its object's blocks"
            );
            let pointer = born_again(source, tx.txg());
            if pointer.kind() == PointerKind::Stored {
                assert!(
                    pointer.physical_birth() < tx.txg(),
                    "what is cloned was stored before"
                );
                io.share(&pointer, tx.txg());
            }
            state.newest.max_block = state.newest.max_block.max(BlockId::from(block));
            let newest_max = state.newest.max_block;
            let levels = state.stored_levels();
            let pending = self.pending_for(&mut state, tx);
            pending.shape.max_block = newest_max;
            pending.freed.remove(block);
            self.drop_written(pending, block);
            pending.cloned.insert(block, pointer);
            pending.dirty_bytes += CLONE_DIRTY_BYTES;
            self.context.env.txgs.add_dirty(CLONE_DIRTY_BYTES);
            self.count_block(pending, source.uncompressed_size());
            self.count_pointers(pending, levels, block);
        }
        Ok(())
    }

    /// What the group has given a block so far is not wanted any more.
    fn drop_written(&self, pending: &mut Pending, block: u64) {
        if let Some(buffer) = pending.blocks.remove(&block) {
            let bytes = widen(buffer.len());
            pending.dirty_bytes -= bytes;
            self.context.env.txgs.remove_dirty(bytes);
            self.uncount_blocks(pending, [bytes].into_iter());
        }
        pending.passing.remove(&block);
        pending.drop_clone(block);
    }
}

impl Pending {
    /// A clone of this group is not wanted any more, if the block is one. The throttle counts its
    /// pointer on, which is kept until the group is stored.
    pub fn drop_clone(&mut self, block: u64) {
        self.superseded.extend(self.cloned.remove(&block));
    }

    /// The same of all blocks in a range.
    pub fn drop_clones(&mut self, blocks: Range<u64>) {
        let dropped: Vec<u64> = self.cloned.range(blocks).map(|(block, _)| *block).collect();
        for block in dropped {
            self.drop_clone(block);
        }
    }
}

/// Whether a block can be cloned as a block of this size, when this is the newest txg that is
/// stored.
fn is_clonable(pointer: &BlockPointer, size: LogicalSize, stored: Txg) -> bool {
    let fits = pointer.uncompressed_size() == size.get();
    match pointer.kind() {
        PointerKind::Hole => true,
        PointerKind::Embedded => fits,
        PointerKind::Redacted => false,
        PointerKind::Stored => {
            fits && !pointer.is_dedup()
                && !pointer.uses_encryption()
                && pointer.level().is_data()
                && pointer.physical_birth() <= stored
                && matches!(
                    pointer.object_type(),
                    ObjectType::PlainFile | ObjectType::Zvol
                )
        }
    }
}

/// The pointer to the same block, for a clone born in this txg.
fn born_again(pointer: &BlockPointer, txg: Txg) -> BlockPointer {
    let mut again = *pointer;
    match pointer.kind() {
        PointerKind::Embedded => again.logical_birth = txg,
        _ => {
            again.set_births(txg, pointer.physical_birth());
            again.clear_rewritten();
        }
    }
    again
}
