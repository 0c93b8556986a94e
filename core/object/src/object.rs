//! Objects in memory: a dnode, its bonus, and the changes of txgs in flight.
//!
//! # Mechanism
//! An [`Object`] is the dnode in memory. It has the dnode *as stored*, whose pointers root the tree
//! of blocks on disk, and, for each transaction group in flight, the changes of that group
//! ([`dirty`](crate::dirty)). A read asks the groups from the newest to the oldest and then the
//! tree ([`walk`](crate::walk)); a change (`buffer.rs`) adds to the newest. Storing a group
//! (`sync.rs`) writes its blocks, makes a new tree beside the old one, and then replaces the stored
//! dnode and drops the group's changes in one step under the lock. So a reader sees the state
//! before or after, and both have the same contents.
//!
//! Clean blocks are not kept here: `cache` has them.
//!
//! # Invariants
//! - The lock of an object is never held across a wait for a device. A lookup under it gives bytes,
//!   or a pointer that stays readable long enough: its block is not reused for two more groups. The
//!   exception are blocks of the MOS that are rewritten in place within a group: `cache` has their
//!   earlier contents, and a read that fails is looked up again.
//! - An object with changes is kept alive by its object set.
//!
//! # Knows nothing about
//! The meaning of its bytes.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tarn_block::{Block, BlockKind, BlockScope};
use tarn_cache::Hint;
use tarn_host::buffer::Buffer;
use tarn_host::lock::{Mutex, MutexGuard};
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{ByteOrder, Corrupt, narrow, widen};
use tarn_ondisk::dnode::DnodeFlags;
use tarn_ondisk::object_type::{Layout, ObjectType};
use tarn_ondisk::units::{AllocatedSize, BlockId, Level, LogicalSize, ObjectId, Txg};
use tarn_probe::{Operation, Outcome};

use crate::dirty::{Pending, Shape, SpillContents};
use crate::error::ObjectError;
use crate::held_blocks::HeldBlocks;
use crate::last_read::LastRead;
use crate::objset::SetContext;
use crate::ranks;
use crate::tree_shape::{PointerMemo, TreeTop, check_tree, kind_of};

/// How often a failed read is looked up again while its object is being stored.
pub(crate) const READ_ATTEMPTS_MAX: u32 = 20;
/// Pause between these attempts. A guess: a batch of writes takes about as long.
const READ_RETRY_PAUSE: Duration = Duration::from_millis(5);

/// An object of an object set. Shared; all users have the same one.
pub struct Object {
    pub(crate) context: Arc<SetContext>,
    pub(crate) id: ObjectId,
    pub(crate) itself: Weak<Object>,
    pub(crate) state: Mutex<ObjectState>,
    /// Whether it was looked up since the table last considered dropping it.
    pub(crate) was_used: AtomicBool,
    pub(crate) last_read: LastRead,
    companion: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

/// The state under the lock of an object.
pub(crate) struct ObjectState {
    /// The dnode whose tree is on disk.
    pub stored: ondisk::dnode::Dnode,
    /// Whether the dnode is stored: false until the group that allocates the object is.
    pub is_stored: bool,
    /// Number of replacements of `stored`.
    pub generation: u64,
    /// The dnode's fields as the open group sees them.
    pub newest: Shape,
    /// The changes of groups in flight, the oldest first.
    pub pending: VecDeque<Pending>,
    /// The block of pointers used last.
    pub memo: Option<PointerMemo>,
    /// Whether the newest group has freed the object.
    pub is_freed: bool,
    /// Blocks that prepared changes have read.
    pub held: HeldBlocks,
}

/// Facts about an object, as of now.
#[derive(Debug, Clone)]
pub struct ObjectInfo {
    /// Its number.
    pub id: ObjectId,
    /// Its type.
    pub object_type: ObjectType,
    /// The type of its bonus.
    pub bonus_type: ObjectType,
    /// The size of its bonus.
    pub bonus_size: usize,
    /// Largest size of its bonus, beside the spill pointer if there is one.
    pub bonus_room: usize,
    /// The size of its blocks.
    pub block_size: LogicalSize,
    /// The size of its blocks of pointers, as a power of two.
    pub indirect_shift: u8,
    /// Number of levels of its stored tree.
    pub levels: u8,
    /// Its highest block.
    pub max_block: BlockId,
    /// Allocated bytes of its stored blocks.
    pub used: AllocatedSize,
    /// Number of stored data blocks.
    pub fill: u64,
    /// Number of slots of its dnode.
    pub slots: usize,
    /// The checksum of its blocks.
    pub checksum: ChecksumKind,
    /// The compression of its blocks.
    pub compression: Compression,
    /// The flags of its stored dnode.
    pub flags: DnodeFlags,
    /// Whether it has a spill block.
    pub has_spill: bool,
    /// Whether it has changes that are not stored.
    pub is_dirty: bool,
    /// Whether storing its changes will change its allocated bytes.
    pub is_space_unsettled: bool,
}

impl ObjectInfo {
    /// The end of its highest block.
    pub fn end_offset(&self) -> u64 {
        self.max_block
            .get()
            .saturating_add(1)
            .saturating_mul(self.block_size.get())
    }
}

/// Whether contents of a block that is read or written whole go to the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// They do.
    Ours,
    /// They do not: the caller keeps a copy itself, as the kernel does above FUSE, or needs none,
    /// as a receive. A copy in the cache would evict another block, and rarely be read.
    Callers,
}

/// The place of a block's newest contents.
pub(crate) enum Located {
    /// In memory, not stored yet.
    Dirty(Arc<Buffer>),
    /// In memory, and encrypted.
    Sealed,
    /// In a block that this one is a clone of, which is not stored yet.
    Cloned(BlockPointer),
    /// None: the block is a hole.
    Zeros,
    /// Below this pointer of the stored tree.
    Stored(TreeTop),
}

/// The newest change of a block by the groups in flight.
pub(crate) enum Newest<'a> {
    /// It was written.
    Data(&'a Arc<Buffer>),
    /// It was written, encrypted.
    Sealed,
    /// It became a clone.
    Cloned(&'a BlockPointer),
    /// It was freed.
    Freed,
    /// There is none.
    Unknown,
}

impl ObjectState {
    /// Drops the held contents of a block that is about to be changed, and returns them.
    pub fn take_held(&mut self, block: u64) -> Option<Arc<Buffer>> {
        let taken = self.held.take(block);
        debug_assert!(!self.held.has(block), "a change drops what is held");
        taken
    }

    /// The newest change of a block by the groups in flight.
    pub fn newest_of(&self, block: u64) -> Newest<'_> {
        for pending in self.pending.iter().rev() {
            if let Some(buffer) = pending.blocks.get(&block) {
                return Newest::Data(buffer);
            }
            if pending.sealed.contains_key(&block) {
                return Newest::Sealed;
            }
            if let Some(pointer) = pending.cloned.get(&block) {
                return Newest::Cloned(pointer);
            }
            if pending.freed.contains(block) {
                return Newest::Freed;
            }
        }
        Newest::Unknown
    }

    /// Whether the last change of a block by this group was to free it.
    pub fn is_freed_in(&self, txg: Txg, block: u64) -> bool {
        let group = self.pending.back().filter(|pending| pending.txg == txg);
        group.is_some_and(|pending| pending.freed.contains(block))
            && matches!(self.newest_of(block), Newest::Freed)
    }
}

impl Object {
    /// The object of a dnode that was read.
    pub(crate) fn from_stored(
        context: Arc<SetContext>,
        id: ObjectId,
        stored: ondisk::dnode::Dnode,
    ) -> Result<Arc<Object>, ObjectError> {
        check_tree(&stored).map_err(|what| ObjectError::Corrupt {
            set: context.id,
            object: id,
            what,
        })?;
        Ok(Object::new(context, id, stored, true))
    }

    /// An object that is not stored yet, with the fields of `fresh`.
    pub(crate) fn new(
        context: Arc<SetContext>,
        id: ObjectId,
        dnode: ondisk::dnode::Dnode,
        is_stored: bool,
    ) -> Arc<Object> {
        Arc::new_cyclic(|itself| Object {
            context,
            id,
            itself: itself.clone(),
            state: Mutex::new(
                ranks::OBJECT,
                ObjectState {
                    newest: Shape::of(&dnode),
                    stored: dnode,
                    is_stored,
                    generation: 0,
                    pending: VecDeque::new(),
                    memo: None,
                    is_freed: false,
                    held: HeldBlocks::default(),
                },
            ),
            was_used: AtomicBool::new(true),
            last_read: LastRead::default(),
            companion: Mutex::new(ranks::COMPANION, None),
        })
    }

    /// Its number.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The number of its object set.
    pub fn set_id(&self) -> ObjectId {
        self.context.id
    }

    /// Its object set. None when the set is closed.
    pub fn set(&self) -> Option<Arc<crate::ObjectSet>> {
        self.context.outer.upgrade()
    }

    /// Facts about it.
    pub fn info(&self) -> ObjectInfo {
        let state = self.state.lock();
        let (shape, stored) = (&state.newest, &state.stored);
        ObjectInfo {
            id: self.id,
            object_type: shape.object_type,
            bonus_type: shape.bonus_type,
            bonus_size: shape.bonus.len(),
            bonus_room: shape.bonus_room(shape.spill_kind()).unwrap_or(0),
            block_size: shape.block_size,
            indirect_shift: shape.indirect_shift,
            levels: stored.levels,
            max_block: shape.max_block,
            used: stored.used,
            fill: stored
                .pointers
                .iter()
                .map(BlockPointer::fill)
                .fold(0, u64::saturating_add),
            slots: shape.slots,
            checksum: shape.checksum,
            compression: shape.compression,
            flags: stored.flags,
            has_spill: !matches!(shape.spill, SpillContents::Absent),
            is_dirty: !state.pending.is_empty(),
            is_space_unsettled: state.pending.iter().any(Pending::changes_space),
        }
    }

    /// The dnode as it is stored, for `zdb` and walks over trees.
    pub fn stored_dnode(&self) -> ondisk::dnode::Dnode {
        self.state.lock().stored.clone()
    }

    /// Its type.
    pub fn object_type(&self) -> ObjectType {
        self.state.lock().newest.object_type
    }

    /// The size of its blocks.
    pub fn block_size(&self) -> LogicalSize {
        self.state.lock().newest.block_size
    }

    /// Its highest block.
    pub fn max_block(&self) -> BlockId {
        self.state.lock().newest.max_block
    }

    /// True once it was freed: everything else will say that there is no such object.
    pub fn is_freed(&self) -> bool {
        self.state.lock().is_freed
    }

    /// Whether the group has changes of it that are not stored.
    pub fn is_dirty_in(&self, txg: Txg) -> bool {
        self.state
            .lock()
            .pending
            .iter()
            .any(|pending| pending.txg == txg)
    }

    /// The bonus.
    pub fn bonus(&self) -> Arc<[u8]> {
        self.state.lock().newest.bonus.clone()
    }

    /// The bonus and its type.
    pub fn typed_bonus(&self) -> (ObjectType, Arc<[u8]>) {
        let state = self.state.lock();
        (state.newest.bonus_type, state.newest.bonus.clone())
    }

    /// The contents of the spill block, if there is one.
    pub fn spill(&self, operation: &Operation) -> Result<Option<Block>, ObjectError> {
        let pointer = {
            let state = self.alive()?;
            match &state.newest.spill {
                SpillContents::Absent => return Ok(None),
                SpillContents::Dirty(buffer) => return Ok(Some(Block::from(buffer.clone()))),
                SpillContents::Sealed(_) => return Err(self.is_encrypted_error()),
                SpillContents::Stored => state.stored.spill.unwrap_or(BlockPointer::HOLE),
            }
        };
        pointer.check().map_err(|what| self.corrupt(what))?;
        let scope = BlockScope::of_spill(self.context.id, self.id);
        let cache = &self.context.env.cache;
        let block = cache.read(&pointer, scope, Hint::DEMAND, operation);
        block
            .map(Some)
            .map_err(|why| self.read_error(Level::ZERO, BlockId::MAX, why))
    }

    /// Reads bytes. Holes, and ranges beyond the highest block, read as zeros.
    pub fn read(
        &self,
        offset: u64,
        bytes: &mut [u8],
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let block_size = self.block_size().get();
        let end = offset.saturating_add(widen(bytes.len()));
        self.read_ahead(offset / block_size..end.div_ceil(block_size), operation);
        let mut done = 0;
        while done < bytes.len() {
            let Some(at) = offset.checked_add(widen(done)) else {
                return Err(self.too_large(offset));
            };
            let (block, within) = (at / block_size, narrow(at % block_size));
            let count = (narrow(block_size) - within).min(bytes.len() - done);
            let part = &mut bytes[done..done + count];
            match self.fetch(BlockId::from(block), Hint::DEMAND, operation)? {
                None => part.fill(0),
                Some((contents, order)) => {
                    let contents = self.in_our_order(contents, order);
                    // The block size may have changed while no lock was held.
                    let end = (within + count).min(contents.len());
                    let there = contents.get(within..end).unwrap_or_default();
                    part[..there.len()].copy_from_slice(there);
                    part[there.len()..].fill(0);
                }
            }
            done += count;
        }
        Ok(())
    }

    /// The newest contents of a block, uncopied. A hole gives a block of zeros.
    pub fn read_block(&self, block: BlockId, operation: &Operation) -> Result<Block, ObjectError> {
        self.read_block_caching(block, Caching::Ours, operation)
    }

    /// The same, for a caller that may keep the whole block itself.
    pub fn read_block_caching(
        &self,
        block: BlockId,
        caching: Caching,
        operation: &Operation,
    ) -> Result<Block, ObjectError> {
        self.read_ahead(block.get()..block.get().saturating_add(1), operation);
        self.read_block_alone(block, caching, operation)
    }

    /// The same without prefetch.
    pub(crate) fn read_block_alone(
        &self,
        block: BlockId,
        caching: Caching,
        operation: &Operation,
    ) -> Result<Block, ObjectError> {
        let hint = match caching {
            Caching::Ours => Hint::DEMAND,
            Caching::Callers => Hint::PASSING,
        };
        let found = self.fetch(block, hint, operation)?;
        let zeros = || (self.context.env.zeros(self.block_size()), ByteOrder::Little);
        let (contents, order) = found.unwrap_or_else(zeros);
        Ok(self.in_our_order(contents, order))
    }

    /// The stored form with its byte order: for ZAPs and dnodes, whose bytes are swapped only when
    /// they are decoded.
    pub fn read_block_ordered(
        &self,
        block: BlockId,
        operation: &Operation,
    ) -> Result<(Block, ByteOrder), ObjectError> {
        match self.fetch(block, Hint::DEMAND, operation)? {
            Some(found) => Ok(found),
            None => Ok((self.context.env.zeros(self.block_size()), ByteOrder::Little)),
        }
    }

    /// Whether a block is not a hole.
    pub fn has_block(&self, block: BlockId, operation: &Operation) -> Result<bool, ObjectError> {
        match self.locate(block)? {
            Located::Dirty(_) | Located::Sealed | Located::Cloned(_) => Ok(true),
            Located::Zeros => Ok(false),
            Located::Stored(top) => Ok(!self
                .descend(top, Level::ZERO, block.get(), operation)?
                .is_hole()),
        }
    }

    /// A value that a layer above keeps with the object, such as an index of its contents. Created
    /// by the first call, and dropped with the object.
    pub fn companion<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut companion = self.companion.lock();
        let existing = companion
            .as_ref()
            .and_then(|any| any.clone().downcast::<T>().ok());
        existing.unwrap_or_else(|| {
            let made = Arc::new(make());
            *companion = Some(made.clone());
            made
        })
    }

    /// The newest contents of a block and their byte order; none for zeros.
    fn fetch(
        &self,
        block: BlockId,
        hint: Hint,
        operation: &Operation,
    ) -> Result<Option<(Block, ByteOrder)>, ObjectError> {
        let mut attempts = 0;
        loop {
            let top = match self.locate(block)? {
                Located::Dirty(buffer) => {
                    operation.mark(Outcome::Dirty);
                    return Ok(Some((Block::from(buffer), ByteOrder::Little)));
                }
                Located::Sealed => return Err(self.is_encrypted_error()),
                Located::Cloned(pointer) => {
                    // Only contents of files and volumes are cloned.
                    let kind = BlockKind::Data;
                    let found = self.fetch_at(&pointer, block, kind, hint, operation);
                    return found.map(Some);
                }
                Located::Zeros => return Ok(None),
                Located::Stored(top) => top,
            };
            let generation = top.generation;
            let failure = match self.fetch_stored(top, block, hint, operation) {
                Ok(found) => return Ok(found),
                Err(failure) => failure,
            };
            attempts += 1;
            if attempts == READ_ATTEMPTS_MAX || !self.may_have_moved(generation) {
                return Err(failure);
            }
        }
    }

    /// Reads a block from the stored tree.
    fn fetch_stored(
        &self,
        top: TreeTop,
        block: BlockId,
        hint: Hint,
        operation: &Operation,
    ) -> Result<Option<(Block, ByteOrder)>, ObjectError> {
        let kind = kind_of(top.geometry.object_type);
        let pointer = self.descend(top, Level::ZERO, block.get(), operation)?;
        if pointer.is_hole() {
            return Ok(None);
        }
        let found = self.fetch_at(&pointer, block, kind, hint, operation);
        found.map(Some)
    }

    /// Reads a block at this pointer.
    fn fetch_at(
        &self,
        pointer: &BlockPointer,
        block: BlockId,
        kind: BlockKind,
        hint: Hint,
        operation: &Operation,
    ) -> Result<(Block, ByteOrder), ObjectError> {
        let scope = self.scope(Level::ZERO, block, kind);
        let cache = &self.context.env.cache;
        let contents = cache.read(pointer, scope, hint, operation);
        let contents = contents.map_err(|why| self.read_error(Level::ZERO, block, why))?;
        Ok((contents, pointer.byte_order()))
    }

    /// After a failed read: whether the stored tree was replaced since, or is being replaced. In
    /// the latter case waits a little.
    pub(crate) fn may_have_moved(&self, generation: u64) -> bool {
        {
            let state = self.state.lock();
            if state.generation != generation {
                return true;
            }
            if state.pending.is_empty() {
                return false;
            }
        }
        self.context.env.host.sleep(READ_RETRY_PAUSE);
        true
    }

    /// The place of a block's newest contents, at one instant.
    pub(crate) fn locate(&self, block: BlockId) -> Result<Located, ObjectError> {
        let state = self.alive()?;
        match state.newest_of(block.get()) {
            Newest::Data(buffer) => Ok(Located::Dirty(buffer.clone())),
            Newest::Sealed => Ok(Located::Sealed),
            Newest::Cloned(pointer) => Ok(Located::Cloned(*pointer)),
            Newest::Freed => Ok(Located::Zeros),
            Newest::Unknown => match self.top_of(&state, block.get()) {
                Some(top) => Ok(Located::Stored(top)),
                None => Ok(Located::Zeros),
            },
        }
    }

    /// The state, unless the object was freed.
    pub(crate) fn alive(&self) -> Result<MutexGuard<'_, ObjectState>, ObjectError> {
        let state = self.state.lock();
        if state.is_freed {
            Err(self.no_such_object())
        } else {
            Ok(state)
        }
    }

    /// Words in the machine's byte order.
    pub(crate) fn in_our_order(&self, contents: Block, order: ByteOrder) -> Block {
        let word = match (order, self.object_type().layout()) {
            (ByteOrder::Big, Some(Layout::Words16)) => 2,
            (ByteOrder::Big, Some(Layout::Words32)) => 4,
            (ByteOrder::Big, Some(Layout::Words64)) => 8,
            _ => return contents,
        };
        let mut turned = contents.into_buffer();
        turned.chunks_exact_mut(word).for_each(<[u8]>::reverse);
        Block::new(turned)
    }

    pub(crate) fn mark_used(&self) {
        self.was_used.store(true, Ordering::Relaxed);
    }

    pub(crate) fn no_such_object(&self) -> ObjectError {
        ObjectError::NoSuchObject {
            set: self.context.id,
            object: self.id,
        }
    }

    pub(crate) fn too_large(&self, offset: u64) -> ObjectError {
        ObjectError::TooLarge {
            set: self.context.id,
            object: self.id,
            offset,
        }
    }

    pub(crate) fn corrupt(&self, what: Corrupt) -> ObjectError {
        ObjectError::Corrupt {
            set: self.context.id,
            object: self.id,
            what,
        }
    }

    pub(crate) fn read_error(
        &self,
        level: Level,
        block: BlockId,
        why: tarn_block::ReadError,
    ) -> ObjectError {
        ObjectError::Read {
            set: self.context.id,
            object: self.id,
            level,
            block,
            why: Box::new(why),
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(set) = self.context.outer.upgrade() {
            set.forget_dropped(self.id);
        }
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Object({} of {})",
            self.id.get().cast_signed(),
            self.context.id
        )
    }
}
