//! Changing an object: dirty buffers, frees, and the fields of its dnode.
//!
//! # Mechanism
//! A change belongs to the group of its [`Tx`]. The first change of a group makes a [`Pending`] for
//! it and puts the object on the group's list. A block written for the first time in a group gets a
//! buffer of its own: with its old contents if only a part is written (those that a prepared change
//! [holds](crate::prepare), or else read from the stored tree, if no older group has them), without
//! if it is written whole. Later writes of the group go into that buffer, unless a reader still has
//! it; then into a copy.
//!
//! Before a block is written whole, the pointer to it is looked up, though its contents are not
//! needed, and a new one has none: storing the txg will need the indirect block, and if that cannot
//! be read, the write must fail, not the sync. The same holds for the ends of a range before it is
//! freed. Blocks wholly in the range need not be readable.
//!
//! # Invariants
//! - The lock is not held while a block is read; decisions under it are made again afterwards.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tarn_block::{Block, GivenForm};
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::BLOCK_BYTES_MAX;
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{ByteOrder, narrow, widen};
use tarn_ondisk::dnode::{OBJECT_BITS, Spill};
use tarn_ondisk::object_type::{Layout, ObjectType};
use tarn_ondisk::units::{BlockId, Level, LogicalSize};
use tarn_probe::Operation;

use crate::dirty::{Given, Old, Pending, Shape, SpillContents};
use crate::error::ObjectError;
use crate::head::META_DNODE;
use crate::object::{Caching, Newest, Object, ObjectState};
use crate::prepare::FreedRange;
use crate::set_sealing::SealedBlock;
use crate::tx::Tx;

/// What the throttle counts for a changed dnode: its part of a block of dnodes, and the
/// bookkeeping. A guess.
const DNODE_DIRTY_BYTES: u64 = 1024;

/// The largest length: to the end of the object, wherever that is.
#[doc(alias = "DMU_OBJECT_END")]
pub const TO_END: u64 = u64::MAX;

impl Object {
    /// Writes bytes. The object grows as needed.
    ///
    /// # Errors
    /// `NoSuchObject` when it was freed meanwhile, or the block that could not be read to be
    /// changed in part.
    pub fn write(
        &self,
        tx: &Tx,
        offset: u64,
        bytes: &[u8],
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        self.write_caching(tx, offset, bytes, Caching::Ours, operation)
    }

    /// Writes bytes; `caching` applies to the blocks that they fill. Blocks that are changed in
    /// part stay in our cache: the rest of them is likely to follow.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_caching(
        &self,
        tx: &Tx,
        offset: u64,
        bytes: &[u8],
        caching: Caching,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let block_size = self.block_size().get();
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let within = narrow(at % block_size);
            let count = (narrow(block_size) - within).min(rest.len());
            let (now, later) = rest.split_at(count);
            let (part, is_whole) = (within..within + count, count == narrow(block_size));
            let old = if is_whole {
                Old::Overwritten
            } else {
                Old::Needed
            };
            self.change_part(tx, at / block_size, part, old, operation, |bytes| {
                bytes.copy_from_slice(now);
            })?;
            if is_whole && caching == Caching::Callers {
                self.let_pass(tx, at / block_size);
            }
            rest = later;
            at = at
                .checked_add(widen(count))
                .ok_or_else(|| self.too_large(offset))?;
        }
        Ok(())
    }

    /// Writes the first `length` bytes of buffers, of which all but the last are used whole;
    /// `caching` applies to the blocks that they fill. A buffer that is exactly a block becomes it,
    /// uncopied.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_buffers(
        &self,
        tx: &Tx,
        offset: u64,
        (buffers, length): (Vec<Buffer>, usize),
        caching: Caching,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let block_size = self.block_size().get();
        let (mut at, mut rest) = (offset, length);
        for mut buffer in buffers {
            buffer.truncate(buffer.len().min(rest));
            rest -= buffer.len();
            let next = at.checked_add(widen(buffer.len()));
            let is_full = buffer.len() == buffer.capacity();
            let is_block = is_full && widen(buffer.len()) == block_size;
            if is_block && at.is_multiple_of(block_size) {
                let block = BlockId::from(at / block_size);
                self.write_block(tx, block, Block::from(buffer), operation)?;
                if caching == Caching::Callers {
                    self.let_pass(tx, block.get());
                }
            } else {
                self.write_caching(tx, at, &buffer, caching, operation)?;
            }
            at = next.ok_or_else(|| self.too_large(offset))?;
        }
        Ok(())
    }

    /// A block of this group need not be cached when it is stored.
    fn let_pass(&self, tx: &Tx, block: u64) {
        let mut state = self.state.lock();
        if let Some(pending) = state.pending.back_mut()
            && pending.txg == tx.txg()
        {
            pending.passing.insert(block);
        }
    }

    /// Gives a block contents that are ready, without a copy.
    ///
    /// # Panics
    /// When the contents are not as large as the object's blocks.
    ///
    /// # Errors
    /// `NoSuchObject` when it was freed meanwhile.
    pub fn write_block(
        &self,
        tx: &Tx,
        block: BlockId,
        contents: Block,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        self.check_plain()?;
        self.look_up_parent(tx, block.get(), Old::Overwritten, operation)?;
        let mut state = self.alive()?;
        assert_eq!(
            LogicalSize::of(&contents),
            state.newest.block_size,
            "a block is as large as its object's blocks"
        );
        self.check_reach(&state, block.get())?;
        self.put_buffer(&mut state, tx, block.get(), contents.shared().clone());
        Ok(())
    }

    /// Gives a block contents that are ready, together with their stored form: the sender of a
    /// stream has compressed them. Changed before its group is stored, the block is stored as
    /// others are.
    ///
    /// # Panics
    /// As [`write_block`](Self::write_block).
    ///
    /// # Errors
    /// As [`write_block`](Self::write_block).
    pub fn write_block_given(
        &self,
        tx: &Tx,
        block: BlockId,
        contents: Block,
        (bytes, form): (Block, GivenForm),
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let buffer = contents.shared().clone();
        self.write_block(tx, block, contents, operation)?;
        let given = Given {
            buffer,
            bytes,
            form,
        };
        let mut state = self.alive()?;
        let pending = self.pending_for(&mut state, tx);
        pending.given.insert(block.get(), given);
        Ok(())
    }

    /// Changes a block in place: `change` sees its newest contents.
    ///
    /// # Errors
    /// The block could not be read, or the object was freed meanwhile.
    pub fn change_block(
        &self,
        tx: &Tx,
        block: BlockId,
        operation: &Operation,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), ObjectError> {
        let all = 0..self.block_size().to_usize();
        self.change_part(tx, block.get(), all, Old::Needed, operation, change)
    }

    /// Changes a part of a block through `change`.
    fn change_part(
        &self,
        tx: &Tx,
        block: u64,
        part: Range<usize>,
        old: Old,
        operation: &Operation,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), ObjectError> {
        self.check_plain()?;
        let mut base: Option<Arc<Buffer>> = None;
        let is_whole = old == Old::Overwritten;
        self.look_up_parent(tx, block, old, operation)?;
        loop {
            let mut state = self.alive()?;
            self.check_reach(&state, block)?;
            let held = state.take_held(block);
            if let Some(pending) = state.pending.back_mut()
                && pending.txg == tx.txg()
                && pending.blocks.contains_key(&block)
            {
                // It may be the same buffer, which is changed in place.
                drop(held);
                self.note_block_changes(pending, block);
                if let Some(buffer) = pending.blocks.get_mut(&block) {
                    if is_whole && Arc::get_mut(buffer).is_none() {
                        // A reader or the log has it: nothing of it is wanted here.
                        *buffer = Arc::new(Buffer::for_overwrite(buffer.len()));
                    }
                    change(&mut Arc::make_mut(buffer)[part]);
                }
                pending.passing.remove(&block);
                return Ok(());
            }
            let size = state.newest.block_size.to_usize();
            let old = base.take().or(held).filter(|_| !is_whole);
            let mut buffer = match (state.newest_of(block), old) {
                (Newest::Data(_), _) | (Newest::Unknown | Newest::Cloned(_), None) if is_whole => {
                    Arc::new(Buffer::for_overwrite(size))
                }
                (Newest::Data(older), _) => older.clone(),
                (Newest::Sealed, _) => return Err(self.is_encrypted_error()),
                (Newest::Freed, _) => Arc::new(Buffer::zeroed(size)),
                (Newest::Unknown | Newest::Cloned(_), Some(base)) => base,
                (Newest::Unknown, None) if self.top_of(&state, block).is_none() => {
                    Arc::new(Buffer::zeroed(size))
                }
                (Newest::Unknown | Newest::Cloned(_), None) => {
                    drop(state);
                    base = Some(self.read_to_change(BlockId::from(block), operation)?);
                    continue;
                }
            };
            if buffer.len() != size {
                Arc::make_mut(&mut buffer).resize(size);
            }
            change(&mut Arc::make_mut(&mut buffer)[part]);
            self.put_buffer(&mut state, tx, block, buffer);
            return Ok(());
        }
    }

    /// The contents of a block, to be changed: in little-endian order, as everything we write.
    pub(crate) fn read_to_change(
        &self,
        block: BlockId,
        operation: &Operation,
    ) -> Result<Arc<Buffer>, ObjectError> {
        let (contents, order) = self.read_block_ordered(block, operation)?;
        let is_dnodes = self.object_type().layout() == Some(Layout::Dnode);
        if order == ByteOrder::Big && is_dnodes {
            return self.turn_dnodes(&contents).map(Arc::new);
        }
        if order == ByteOrder::Big && self.object_type().is_zap() {
            let mut turned = Buffer::from_slice(&contents);
            let done = tarn_ondisk::zap::to_little_endian(&mut turned, order);
            return done
                .map(|()| Arc::new(turned))
                .map_err(|what| self.corrupt(what));
        }
        Ok(self.in_our_order(contents, order).shared().clone())
    }

    /// A block of big-endian dnodes as a little-endian one.
    fn turn_dnodes(&self, contents: &[u8]) -> Result<Buffer, ObjectError> {
        let mut turned = Buffer::zeroed(contents.len());
        for (slot, dnode) in tarn_ondisk::dnode::walk_block(contents, ByteOrder::Big) {
            let dnode = dnode.map_err(|what| self.corrupt(what))?;
            dnode.write_to_slots(&mut turned[slot * tarn_ondisk::dnode::SLOT_BYTES..]);
        }
        Ok(turned)
    }

    /// Looks up the pointer to a block that will be written, unless it is read anyway. Where it is
    /// in memory already, that was done; but what this group has freed and will have after all is
    /// taken out of what is given up unread.
    pub(crate) fn look_up_parent(
        &self,
        tx: &Tx,
        block: u64,
        old: Old,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        if tx.is_syncing() {
            return Ok(());
        }
        let is_known = {
            let state = self.alive()?;
            match state.newest_of(block) {
                Newest::Unknown => old == Old::Needed,
                Newest::Freed => !state.is_freed_in(tx.txg(), block),
                Newest::Data(_) | Newest::Sealed | Newest::Cloned(_) => true,
            }
        };
        if !is_known {
            self.stored_pointer(Level::ZERO, block, operation)?;
        }
        Ok(())
    }

    /// Looks up what will be changed where a range of freed blocks begins or ends: all blocks of
    /// pointers of which a part is in it.
    pub(crate) fn look_up_bound(
        &self,
        bound: u64,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let (levels, geometry) = {
            let state = self.alive()?;
            (state.stored.levels, state.geometry())
        };
        // The highest level of which a block begins right there.
        let is_start = |level: &u8| {
            geometry
                .span(*level, geometry.ancestor(bound, *level))
                .start
                == bound
        };
        let level = (0..levels).rev().find(is_start).unwrap_or(0);
        let block = geometry.ancestor(bound, level);
        self.stored_pointer(Level::new(level), block, operation)?;
        Ok(())
    }

    /// Refuses a block beyond what an object can have.
    pub(crate) fn check_reach(&self, state: &ObjectState, block: u64) -> Result<(), ObjectError> {
        let end = block
            .checked_add(1)
            .and_then(|b| b.checked_mul(state.newest.block_size.get()));
        // The meta dnode, too, ends where object numbers do. The last byte of others can be the one
        // at 2^63 - 2, as offsets go, so their last block may end just beyond.
        let is_meta = self.id == META_DNODE;
        let bound = if is_meta {
            1 << (OBJECT_BITS + 9)
        } else {
            1 << 63
        };
        match end {
            Some(end) if end <= bound => Ok(()),
            _ => Err(self.too_large(block.saturating_mul(state.newest.block_size.get()))),
        }
    }

    /// What indirect log writes have of a block will not be its contents.
    fn note_block_changes(&self, pending: &mut Pending, block: u64) {
        if let Some(bytes) = pending.supersede_placed(block) {
            self.context.env.txgs.note_superseded(bytes);
        }
    }

    /// Makes a buffer the newest contents of a block.
    fn put_buffer(&self, state: &mut ObjectState, tx: &Tx, block: u64, buffer: Arc<Buffer>) {
        let bytes = widen(buffer.len());
        let newest_max = state.newest.max_block.max(BlockId::from(block));
        state.newest.max_block = newest_max;
        let levels = state.stored_levels();
        state.held.drop_range(block..block + 1);
        let pending = self.pending_for(state, tx);
        pending.shape.max_block = newest_max;
        pending.freed.remove(block);
        pending.passing.remove(&block);
        pending.drop_clone(block);
        self.note_block_changes(pending, block);
        if pending.blocks.insert(block, buffer).is_none() {
            pending.dirty_bytes += bytes;
            self.context.env.txgs.add_dirty(bytes);
            self.count_block(pending, bytes);
            self.count_pointers(pending, levels, block);
        }
    }

    /// The changes of the transaction's group, which begin here if there are none yet.
    pub(crate) fn pending_for<'a>(&self, state: &'a mut ObjectState, tx: &Tx) -> &'a mut Pending {
        tx.note_change();
        let newest = state.pending.back().map(|pending| pending.txg);
        if newest != Some(tx.txg()) {
            assert!(newest < Some(tx.txg()), "groups follow each other");
            let mut pending = Pending::new(tx.txg(), state.newest.clone());
            pending.dirty_bytes = DNODE_DIRTY_BYTES;
            state.pending.push_back(pending);
            self.context.env.txgs.add_dirty(DNODE_DIRTY_BYTES);
            let itself = self
                .itself
                .upgrade()
                .expect("an object that is used is there");
            self.context.register(tx, itself);
        }
        state.pending.back_mut().expect("there is one now")
    }

    /// Changes fields of the dnode.
    pub(crate) fn change_shape(
        &self,
        tx: &Tx,
        change: impl FnOnce(&mut Shape),
    ) -> Result<(), ObjectError> {
        let mut state = self.alive()?;
        change(&mut state.newest);
        let newest = state.newest.clone();
        self.pending_for(&mut state, tx).shape = newest;
        Ok(())
    }

    /// Has the dnode stored with the group, though nothing of it changes.
    pub fn touch(&self, tx: &Tx) -> Result<(), ObjectError> {
        self.change_shape(tx, |_| {})
    }

    /// Replaces the bonus.
    pub fn set_bonus(&self, tx: &Tx, bonus: &[u8]) -> Result<(), ObjectError> {
        let bonus_type = self.alive()?.newest.bonus_type;
        self.set_typed_bonus(tx, bonus_type, bonus)
    }

    /// Replaces the bonus and says what it is.
    pub fn set_typed_bonus(
        &self,
        tx: &Tx,
        bonus_type: ObjectType,
        bonus: &[u8],
    ) -> Result<(), ObjectError> {
        self.check_plain()?;
        let mut state = self.alive()?;
        let room = state
            .newest
            .bonus_room(state.newest.spill_kind())
            .unwrap_or(0);
        if bonus.len() > room {
            return Err(self.bonus_too_large(room, bonus.len()));
        }
        state.newest.bonus_type = bonus_type;
        state.newest.bonus = bonus.into();
        let newest = state.newest.clone();
        self.pending_for(&mut state, tx).shape = newest;
        Ok(())
    }

    /// Says what the bonus is.
    pub fn set_bonus_type(&self, tx: &Tx, bonus_type: ObjectType) -> Result<(), ObjectError> {
        self.change_shape(tx, |shape| shape.bonus_type = bonus_type)
    }

    /// Says what the object is, when it becomes something else.
    pub fn set_object_type(&self, tx: &Tx, object_type: ObjectType) -> Result<(), ObjectError> {
        self.change_shape(tx, |shape| shape.object_type = object_type)
    }

    /// Says how new blocks are checksummed; `Inherit` for as the dataset says.
    pub fn set_checksum(&self, tx: &Tx, checksum: ChecksumKind) -> Result<(), ObjectError> {
        self.change_shape(tx, |shape| shape.checksum = checksum)
    }

    /// Says how new blocks are compressed; `Inherit` for as the dataset says.
    pub fn set_compression(&self, tx: &Tx, kind: Compression) -> Result<(), ObjectError> {
        self.change_shape(tx, |shape| shape.compression = kind)
    }

    /// Replaces the spill block, or takes it away. It is padded with zeros to whole sectors.
    pub fn set_spill(&self, tx: &Tx, contents: Option<&[u8]>) -> Result<(), ObjectError> {
        let spill = match contents {
            None => SpillContents::Absent,
            Some(bytes) => {
                let size = LogicalSize::from(widen(bytes.len().max(1))).round_up(512);
                let mut buffer = Buffer::zeroed(size.to_usize());
                buffer[..bytes.len()].copy_from_slice(bytes);
                SpillContents::Dirty(Arc::new(buffer))
            }
        };
        let mut state = self.alive()?;
        if contents.is_some() {
            self.check_plain()?;
            let (room, wanted) = (
                state.newest.bonus_room(Spill::Present),
                state.newest.bonus.len(),
            );
            if room.is_none_or(|room| wanted > room) {
                return Err(self.bonus_too_large(room.unwrap_or(0), wanted));
            }
        }
        state.newest.spill = spill;
        let newest = state.newest.clone();
        let bytes = contents.map_or(0, |bytes| widen(bytes.len()));
        let pending = self.pending_for(&mut state, tx);
        pending.shape = newest;
        pending.is_spill_changed = true;
        pending.dirty_bytes += bytes;
        self.context.env.txgs.add_dirty(bytes);
        if bytes != 0 {
            self.count_spill(pending, bytes);
        }
        Ok(())
    }

    /// Changes the size of the object's blocks, which is possible while it has at most one. Its
    /// contents are kept, cut or continued with zeros.
    #[doc(alias = "dmu_object_set_blocksize")]
    pub fn set_block_size(
        &self,
        tx: &Tx,
        size: LogicalSize,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let size = LogicalSize::from(size.get().max(1)).round_up(512);
        assert!(size.get() <= BLOCK_BYTES_MAX, "a block is at most 16 MiB");
        let contents = {
            let mut state = self.alive()?;
            let now = state.newest.block_size;
            if size == now {
                return Ok(());
            }
            if !state.newest.max_block.is_zero() {
                let (set, object) = (self.context.id, self.id);
                return Err(ObjectError::BlockSizeFixed {
                    set,
                    object,
                    size: now,
                });
            }
            // What a txg in flight has is newer, or the same buffer, which is resized in place.
            let held = state.take_held(0);
            let held = held.filter(|_| !matches!(state.newest_of(0), Newest::Data(_)));
            if self.resize_changed(&mut state, tx, size) {
                return Ok(());
            }
            drop(state);
            match held {
                Some(held) => Some(held),
                None if self.has_block(BlockId::ZERO, operation)? => {
                    Some(self.read_to_change(BlockId::ZERO, operation)?)
                }
                None => None,
            }
        };
        let mut state = self.alive()?;
        // Callers keep writers of one object's size apart; a write that slipped in is newer.
        let newer = match state.newest_of(0) {
            Newest::Data(buffer) => Some(buffer.clone()),
            Newest::Sealed => return Err(self.is_encrypted_error()),
            Newest::Freed => None,
            Newest::Unknown | Newest::Cloned(_) => contents,
        };
        state.newest.block_size = size;
        let newest = state.newest.clone();
        self.pending_for(&mut state, tx).shape = newest;
        if let Some(buffer) = newer {
            let mut resized = Buffer::for_overwrite(size.to_usize());
            let kept = buffer.len().min(resized.len());
            resized[..kept].copy_from_slice(&buffer[..kept]);
            resized[kept..].fill(0);
            self.put_resized(&mut state, tx, Arc::new(resized));
        }
        Ok(())
    }

    /// Changes the size of the only block where this group has changed it already: then there is a
    /// buffer to resize, with room for what is likely to follow. A file that grows by small writes
    /// comes here for each of them.
    fn resize_changed(&self, state: &mut ObjectState, tx: &Tx, size: LogicalSize) -> bool {
        let newest = state.pending.back_mut();
        let Some(pending) = newest.filter(|pending| pending.txg == tx.txg()) else {
            return false;
        };
        let Some(buffer) = pending.blocks.get(&0) else {
            return false;
        };
        let (before, after) = (widen(buffer.len()), size.get());
        self.note_block_changes(pending, 0);
        let Some(buffer) = pending.blocks.get_mut(&0) else {
            return false;
        };
        // Other holders of the buffer keep it as it is.
        let most = narrow(BLOCK_BYTES_MAX);
        Arc::make_mut(buffer).grow(size.to_usize(), most);
        pending.passing.remove(&0);
        pending.dirty_bytes = pending.dirty_bytes - before + after;
        state.newest.block_size = size;
        pending.shape = state.newest.clone();
        let txgs = &self.context.env.txgs;
        txgs.add_dirty(after.saturating_sub(before));
        txgs.remove_dirty(before.saturating_sub(after));
        true
    }

    /// Puts the only block with its new size, whose bytes are counted anew.
    fn put_resized(&self, state: &mut ObjectState, tx: &Tx, buffer: Arc<Buffer>) {
        let pending = self.pending_for(state, tx);
        if let Some(old) = pending.blocks.remove(&0) {
            pending.dirty_bytes -= widen(old.len());
            self.context.env.txgs.remove_dirty(widen(old.len()));
            self.uncount_blocks(pending, [widen(old.len())].into_iter());
        }
        self.put_buffer(state, tx, 0, buffer);
    }

    /// Makes a range read as zeros, and gives back the blocks that are wholly in it. With
    /// [`TO_END`] as the length the object ends at `offset`, as it does when the range reaches its
    /// end.
    ///
    /// It costs little now, and when the group is stored about as much as there are blocks of
    /// pointers in the range; huge ranges are better freed in several groups.
    ///
    /// # Errors
    /// What could not be read to be zeroed in part, or has pointers to blocks of which a part is
    /// freed; or the object was freed meanwhile.
    pub fn free_range(
        &self,
        tx: &Tx,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let Some(freed) = self.freed_by(offset, length)? else {
            return Ok(());
        };
        let bounds = freed.bounds();
        let FreedRange {
            zeroed,
            blocks,
            is_tail,
        } = freed;
        for (block, part) in zeroed.into_iter().flatten() {
            self.zero_part(tx, block, part, operation)?;
        }
        if blocks.is_empty() {
            return Ok(());
        }
        if !tx.is_syncing() {
            for bound in bounds {
                self.look_up_bound(bound, operation)?;
            }
        }
        self.free_blocks(tx, blocks.start, blocks.end, is_tail)
    }

    /// What freeing a range does to its blocks; none where the object has nothing there.
    pub(crate) fn freed_by(
        &self,
        offset: u64,
        length: u64,
    ) -> Result<Option<FreedRange>, ObjectError> {
        let (block_size, max_block) = {
            let state = self.alive()?;
            (state.newest.block_size.get(), state.newest.max_block.get())
        };
        let data_end = (max_block.saturating_add(1)).saturating_mul(block_size);
        let end = offset.saturating_add(length);
        if offset >= data_end || length == 0 {
            return Ok(None);
        }
        let is_tail = end >= data_end;
        let first = offset.div_ceil(block_size);
        let last = if is_tail {
            max_block + 1
        } else {
            end / block_size
        };
        let mut zeroed = [None, None];
        if !offset.is_multiple_of(block_size) {
            let stop = if last < first {
                end % block_size
            } else {
                block_size
            };
            let part = narrow(offset % block_size)..narrow(stop);
            zeroed[0] = Some((offset / block_size, part));
        }
        if !is_tail && !end.is_multiple_of(block_size) && last >= first {
            zeroed[1] = Some((last, 0..narrow(end % block_size)));
        }
        Ok(Some(FreedRange {
            zeroed,
            blocks: first..last,
            is_tail,
        }))
    }

    /// Zeroes a part of a block, if it has contents.
    fn zero_part(
        &self,
        tx: &Tx,
        block: u64,
        part: Range<usize>,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        if part.is_empty() {
            return Ok(());
        }
        let is_held = self.alive()?.held.has(block);
        if is_held || self.has_block(BlockId::from(block), operation)? {
            self.change_part(tx, block, part, Old::Needed, operation, |bytes| {
                bytes.fill(0)
            })?;
        }
        Ok(())
    }

    /// Frees whole blocks; at the tail, all that may follow as well.
    fn free_blocks(
        &self,
        tx: &Tx,
        first: u64,
        last: u64,
        is_tail: bool,
    ) -> Result<(), ObjectError> {
        let mut state = self.alive()?;
        // What is encrypted ends where it was said to.
        if is_tail && state.newest.form.is_none() {
            state.newest.max_block = BlockId::from(first.saturating_sub(1));
        }
        let max_block = state.newest.max_block;
        let levels = state.stored_levels();
        let end = if is_tail { u64::MAX } else { last };
        state.held.drop_range(first..end);
        let pending = self.pending_for(&mut state, tx);
        pending.shape.max_block = max_block;
        // Of the blocks of pointers in between nothing is left.
        self.count_pointers(pending, levels, first);
        if !is_tail {
            self.count_pointers(pending, levels, last - 1);
        }
        let mut dropped = pending.blocks.split_off(&first);
        pending.blocks.append(&mut dropped.split_off(&end));
        pending.freed.insert(first, end);
        pending.drop_clones(first..end);
        let mut dropped_sealed = pending.sealed.split_off(&first);
        pending.sealed.append(&mut dropped_sealed.split_off(&end));
        let bytes = count_bytes(&dropped) + count_sealed_bytes(&dropped_sealed);
        pending.dirty_bytes -= bytes;
        self.context.env.txgs.remove_dirty(bytes);
        self.uncount_blocks(pending, sizes_of(&dropped, &dropped_sealed));
        drop(state);
        Ok(())
    }

    /// Frees the object with all it has. Gives back how many slots its dnode takes.
    pub(crate) fn free_all(&self, tx: &Tx) -> Result<usize, ObjectError> {
        let mut state = self.alive()?;
        let slots = state.newest.slots;
        state.held.drop_range(0..u64::MAX);
        let pending = self.pending_for(&mut state, tx);
        let bytes = count_bytes(&pending.blocks) + count_sealed_bytes(&pending.sealed);
        self.uncount_blocks(pending, sizes_of(&pending.blocks, &pending.sealed));
        pending.blocks.clear();
        pending.sealed.clear();
        pending.drop_clones(0..u64::MAX);
        pending.freed.insert(0, u64::MAX);
        pending.is_object_freed = true;
        pending.dirty_bytes -= bytes;
        self.context.env.txgs.remove_dirty(bytes);
        state.is_freed = true;
        Ok(slots)
    }

    pub(crate) fn bonus_too_large(&self, room: usize, wanted: usize) -> ObjectError {
        ObjectError::BonusTooLarge {
            set: self.context.id,
            object: self.id,
            room,
            wanted,
        }
    }
}

fn count_sealed_bytes(blocks: &BTreeMap<u64, SealedBlock>) -> u64 {
    blocks.values().map(|block| widen(block.bytes.len())).sum()
}

/// The size of each dirty block.
fn sizes_of<'a>(
    plain: &'a BTreeMap<u64, Arc<Buffer>>,
    sealed: &'a BTreeMap<u64, SealedBlock>,
) -> impl Iterator<Item = u64> + 'a {
    let plain = plain.values().map(|buffer| widen(buffer.len()));
    plain.chain(sealed.values().map(|block| widen(block.bytes.len())))
}

fn count_bytes(blocks: &BTreeMap<u64, Arc<Buffer>>) -> u64 {
    blocks.values().map(|buffer| widen(buffer.len())).sum()
}
