//! Storing the trees of many objects, level by level.
//!
//! # Problem
//! A group may have a million dirty blocks of thousands of objects. Each parent can be written only
//! when all its children have their places, many blocks should be written at once, and there is no
//! memory for all the parents.
//!
//! # Mechanism
//! Each object is a [`TreeJob`]: what the group changed in it, and the stored tree, which stays as
//! it is until the end. Storing makes *edits*: this block of this level has that pointer now. First
//! the frees: they walk the stored tree below the freed ranges, give up what is there, and leave
//! edits where a subtree ends. Then all blocks of level 0 are written, in batches over all objects;
//! each gives an edit, as do [indirect log writes](crate::indirect_writes) and
//! [clones](crate::cloned). Then, for each level above, the edits below are grouped by their
//! parent, the parents are read, changed and written, again in batches, which gives the edits of
//! that level. The edits of the highest level are the dnode's pointers. So between levels only
//! edits are in memory, a pointer each.
//!
//! When a tree grows, the dnode's old pointers become edits, too: the first ones of the first block
//! of the new level.
//!
//! An indirect block in which only holes are left becomes a hole itself.
//!
//! # Invariants
//! - Every pointer that the new tree lacks is passed to the ledger as killed, every one that the
//!   old tree lacked as born, once. A block rewritten in place is neither.
//! - Nothing of the old tree is changed: readers walk it until the new one replaces it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_block::{
    Block, BlockIo, BlockRole, BlockScope, DatasetPolicy, Embedding, HoleBirth, WritePhase,
    WriteRequest, seal_of_pointers,
};
use tarn_cache::PoolCache;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{Stored, narrow, widen};
use tarn_ondisk::dnode::{Dnode, DnodeFlags, POINTER_SHIFT};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{AllocatedSize, BlockId, Level, LogicalSize};
use tarn_probe::{Operation, Outcome};

use crate::block_ledger::SetLedger;
use crate::cloned::CLONE_DIRTY_BYTES;
use crate::dirty::{BlockRanges, Given, PlacedForLog, Shape, SpillContents};
use crate::error::SyncError;
use crate::head::{META_DNODE, MOS_ID, occupied};
use crate::object::Object;
use crate::set_sealing::SealedBlock;
use crate::tree_shape::{Geometry, check_tree, kind_of, low_bits};

/// How much is gathered for one batch of writes. Large enough to keep many devices busy; so much
/// memory is used on top of the dirty data itself.
const BATCH_BYTES: u64 = 64 << 20;
/// How many blocks are gathered for one batch.
const BATCH_BLOCKS: usize = 16_384;

/// What storing needs beside the objects.
pub(crate) struct Storing<'a> {
    pub io: &'a BlockIo,
    pub phase: WritePhase,
    pub operation: &'a Operation,
}

/// One object being stored.
pub(crate) struct TreeJob {
    /// Which of the object sets it belongs to.
    pub set: usize,
    pub object: Arc<Object>,
    /// The dnode as the group leaves it, but for pointers.
    pub shape: Shape,
    pub is_object_freed: bool,
    /// The stored dnode, with the old tree.
    pub old: Dnode,
    /// Whether that is in the meta dnode already.
    pub was_stored: bool,
    blocks: Vec<(u64, Arc<Buffer>)>,
    sealed: Vec<(u64, SealedBlock)>,
    /// Blocks whose stored form is given, unless they changed since.
    given: BTreeMap<u64, Given>,
    /// Those of them that need not be cached.
    passing: BTreeSet<u64>,
    /// Those of them that indirect log writes have written, unless they changed since.
    placed_for_log: BTreeMap<u64, PlacedForLog>,
    /// Blocks that are clones of others.
    cloned: BTreeMap<u64, BlockPointer>,
    /// Places of superseded indirect log writes, and clones that were replaced.
    superseded: Vec<BlockPointer>,
    freed: BlockRanges,
    /// What becomes of the spill block: none if nothing does.
    spill: Option<SpillContents>,
    new_spill: Option<BlockPointer>,
    levels: u8,
    /// New pointers by level.
    edits: Vec<Vec<(u64, BlockPointer)>>,
    used_change: i128,
    policy: DatasetPolicy,
    holes: HoleBirth,
    /// What the throttle still counts for it.
    pub dirty_bytes: u64,
}

impl TreeJob {
    /// What the group changed in the object. None if it changed nothing.
    pub fn new(set: usize, object: Arc<Object>, phase: WritePhase) -> Option<TreeJob> {
        let set_policy = *object.context.policy.read();
        let state = object.state.lock();
        let pending = state.pending.front()?;
        if pending.txg != phase.txg {
            return None;
        }
        let levels = state.stored.levels.max(pending.shape.levels_needed());
        let spill = pending
            .is_spill_changed
            .then(|| pending.shape.spill.clone());
        let job = TreeJob {
            set,
            shape: pending.shape.clone(),
            is_object_freed: pending.is_object_freed,
            old: state.stored.clone(),
            was_stored: state.is_stored,
            blocks: pending
                .blocks
                .iter()
                .map(|(id, buffer)| (*id, pending.to_be_stored(*id, buffer)))
                .collect(),
            sealed: pending
                .sealed
                .iter()
                .map(|(id, contents)| (*id, contents.clone()))
                .collect(),
            given: pending.given.clone(),
            passing: pending.passing.clone(),
            placed_for_log: pending.placed_for_log.clone(),
            cloned: pending.cloned.clone(),
            superseded: pending.superseded.clone(),
            freed: pending.freed.clone(),
            spill: if pending.is_object_freed {
                Some(SpillContents::Absent)
            } else {
                spill
            },
            new_spill: state.stored.spill,
            levels,
            edits: vec![Vec::new(); usize::from(levels)],
            used_change: 0,
            policy: set_policy.blocks,
            holes: set_policy.holes,
            dirty_bytes: pending.dirty_bytes,
            object: object.clone(),
        };
        drop(state);
        Some(job)
    }

    /// How the old tree is shaped.
    fn old_geometry(&self) -> Geometry {
        Geometry {
            object_type: self.old.object_type,
            indirect_shift: self.old.indirect_shift,
            block_size: self.old.data_block_size,
        }
    }

    /// How the new tree is shaped.
    fn geometry(&self) -> Geometry {
        Geometry {
            object_type: self.shape.object_type,
            indirect_shift: self.shape.indirect_shift,
            block_size: self.shape.block_size,
        }
    }

    fn cache(&self) -> &PoolCache {
        &self.object.context.env.cache
    }

    /// Gives up what the group freed.
    fn free(&mut self, ledger: &mut SetLedger<'_>, storing: &Storing<'_>) -> Result<(), SyncError> {
        if let Some(SpillContents::Absent) = self.spill
            && let Some(pointer) = self.new_spill.take()
        {
            self.kill(&pointer, ledger, storing);
        }
        if self.freed.is_empty() {
            return Ok(());
        }
        let level = self.old.levels - 1;
        let roots = self.old.pointers.clone();
        for (index, root) in (0..).zip(&roots) {
            self.free_below(root, level, index, ledger, storing)?;
        }
        Ok(())
    }

    /// Gives up what was freed below a pointer, and leaves an edit if all of it was. Goes down once
    /// per level.
    fn free_below(
        &mut self,
        pointer: &BlockPointer,
        level: u8,
        index: u64,
        ledger: &mut SetLedger<'_>,
        storing: &Storing<'_>,
    ) -> Result<(), SyncError> {
        let geometry = self.old_geometry();
        let span = geometry.span(level, index);
        if pointer.is_hole() || !self.freed.overlaps(span.start, span.end) {
            return Ok(());
        }
        if self.freed.covers(span.start, span.end) {
            self.kill_tree(pointer, level, index, ledger, storing);
            let hole = self.hole(pointer, level, storing);
            self.edits[usize::from(level)].push((index, hole));
            return Ok(());
        }
        self.object.check_pointer(pointer, level, &geometry)?;
        let pointers = self
            .object
            .read_pointers(pointer, level, index, storing.operation)?;
        for (entry, pointer) in pointers.present(0) {
            let child = (index << geometry.fanout_shift()) + widen(entry);
            self.free_below(&pointer, level - 1, child, ledger, storing)?;
        }
        Ok(())
    }

    /// Kills a block and all below it. Blocks below an unreadable one are leaked until the pool is
    /// created anew: leaked space does less harm than a pool that cannot be written.
    fn kill_tree(
        &mut self,
        pointer: &BlockPointer,
        level: u8,
        index: u64,
        ledger: &mut SetLedger<'_>,
        storing: &Storing<'_>,
    ) {
        if level > 0 && !pointer.is_hole() {
            let geometry = self.old_geometry();
            let is_sound = self.object.check_pointer(pointer, level, &geometry).is_ok();
            let pointers = is_sound
                .then(|| {
                    self.object
                        .read_pointers(pointer, level, index, storing.operation)
                        .ok()
                })
                .flatten();
            match pointers {
                Some(pointers) => {
                    for (entry, next) in pointers.present(0) {
                        let child = (index << geometry.fanout_shift()) + widen(entry);
                        self.kill_tree(&next, level - 1, child, ledger, storing);
                    }
                }
                None => storing.operation.mark(Outcome::Error),
            }
        }
        self.kill(pointer, ledger, storing);
    }

    /// What is left where a block was.
    fn hole(&self, previous: &BlockPointer, level: u8, storing: &Storing<'_>) -> BlockPointer {
        if self.holes == HoleBirth::Unrecorded || previous.logical_birth.is_zero() {
            return BlockPointer::HOLE;
        }
        let geometry = self.geometry();
        BlockPointer::punched(
            geometry.size_at(level),
            geometry.object_type,
            Level::new(level),
            storing.phase.txg,
        )
    }

    fn kill(&mut self, pointer: &BlockPointer, ledger: &mut SetLedger<'_>, storing: &Storing<'_>) {
        if pointer.is_hole() {
            return;
        }
        self.used_change -= i128::from(storing.io.deflated_size(pointer).get());
        // Replaced blocks of the MOS are not read again; and each txg makes some.
        if pointer.birth() == storing.phase.txg || self.object.context.id == MOS_ID {
            self.cache().forget(pointer);
        }
        ledger.killed(pointer);
    }

    /// Adds the write of one block of level 0, unless an indirect log write has written it.
    fn gather_block(
        &mut self,
        job: usize,
        block: u64,
        buffer: Arc<Buffer>,
        batches: &mut Batches<'_, '_>,
        ledgers: &mut [SetLedger<'_>],
    ) -> Result<(), SyncError> {
        let storing = batches.storing;
        let previous = self
            .object
            .stored_pointer(Level::ZERO, block, storing.operation)?;
        if let Some(placed) = self.placed_for_log.remove(&block) {
            if Arc::ptr_eq(&placed.buffer, &buffer) {
                let counted = widen(buffer.len());
                let is_cached = !self.passing.contains(&block);
                let contents = is_cached.then(|| Block::from(buffer));
                let (slot, ledger) = (Slot::Tree { level: 0, block }, &mut ledgers[self.set]);
                self.written(slot, &previous, placed.pointer, contents, ledger, storing);
                self.uncount(counted);
                return Ok(());
            }
            self.superseded.push(placed.pointer);
        }
        let fill = match self.shape.object_type {
            ObjectType::Dnode => widen(occupied(&buffer).count()),
            _ => 1,
        };
        let given = self.given.remove(&block);
        let given = given.filter(|given| Arc::ptr_eq(&given.buffer, &buffer));
        let target = Target {
            job,
            slot: Slot::Tree { level: 0, block },
            counted: widen(buffer.len()),
            // What is given is not what readers want.
            is_cached: given.is_none() && !self.passing.contains(&block),
        };
        if let Some(Given { bytes, form, .. }) = given {
            let size = LogicalSize::of(&buffer);
            let request =
                self.request_of(bytes, size, Level::ZERO, BlockRole::Tree, fill, previous);
            let given = Some(form);
            batches.push(target, WriteRequest { given, ..request });
            return Ok(());
        }
        let contents = Block::from(buffer);
        let mut request = self.request(contents, Level::ZERO, BlockRole::Tree, fill, previous);
        let context = &self.object.context;
        if context.is_sealed() {
            assert!(
                self.object.id() == META_DNODE,
                "what is encrypted is stored as it came"
            );
            request.sealing = Some(context.seal_of_dnodes(block, &previous));
        }
        batches.push(target, request);
        Ok(())
    }

    /// Puts the pointers to what blocks are clones of. Nothing is written: the references are
    /// counted already.
    fn put_clones(
        &mut self,
        ledger: &mut SetLedger<'_>,
        storing: &Storing<'_>,
    ) -> Result<(), SyncError> {
        for (block, pointer) in std::mem::take(&mut self.cloned) {
            let previous = self
                .object
                .stored_pointer(Level::ZERO, block, storing.operation)?;
            let slot = Slot::Tree { level: 0, block };
            self.written(slot, &previous, pointer, None, ledger, storing);
            self.uncount(CLONE_DIRTY_BYTES);
        }
        Ok(())
    }

    /// Adds the write of one block that is encrypted already.
    fn gather_sealed(
        &mut self,
        job: usize,
        block: u64,
        contents: &SealedBlock,
        batches: &mut Batches<'_, '_>,
    ) -> Result<(), SyncError> {
        let previous = self
            .object
            .stored_pointer(Level::ZERO, block, batches.storing.operation)?;
        let target = Target {
            job,
            slot: Slot::Tree { level: 0, block },
            counted: widen(contents.bytes.len()),
            is_cached: false,
        };
        let request = self.sealed_request(contents, BlockRole::Tree, previous);
        batches.push(target, request);
        Ok(())
    }

    /// The write of what is encrypted already.
    fn sealed_request(
        &self,
        contents: &SealedBlock,
        role: BlockRole,
        previous: BlockPointer,
    ) -> WriteRequest {
        let (data, size) = (contents.bytes.clone(), contents.logical_size);
        let request = self.request_of(data, size, Level::ZERO, role, 1, previous);
        WriteRequest {
            given: Some(contents.given),
            sealing: Some(contents.sealing),
            ..request
        }
    }

    /// The throttle counts so much less for it.
    fn uncount(&mut self, bytes: u64) {
        self.object.context.env.txgs.remove_dirty(bytes);
        self.dirty_bytes -= bytes;
    }

    /// Frees places of superseded indirect log writes, and gives up clones that were replaced. The
    /// ledger has no entry of them.
    fn free_superseded(&mut self, storing: &Storing<'_>) -> Result<(), SyncError> {
        let cut_off = std::mem::take(&mut self.placed_for_log).into_values();
        self.superseded.extend(cut_off.map(|placed| placed.pointer));
        for pointer in self.superseded.drain(..) {
            storing
                .io
                .free(&pointer, storing.phase, storing.operation)?;
        }
        Ok(())
    }

    /// Adds the write of the spill block, if it has changed.
    fn gather_spill(&self, job: usize, batches: &mut Batches<'_, '_>) {
        let previous = self.new_spill.unwrap_or(BlockPointer::HOLE);
        let (request, is_cached) = match &self.spill {
            Some(SpillContents::Dirty(buffer)) => {
                let contents = Block::from(buffer.clone());
                let request = self.request(contents, Level::ZERO, BlockRole::Spill, 1, previous);
                (request, true)
            }
            Some(SpillContents::Sealed(contents)) => {
                let request = self.sealed_request(contents, BlockRole::Spill, previous);
                (request, false)
            }
            Some(SpillContents::Absent | SpillContents::Stored) | None => return,
        };
        batches.push(
            Target {
                job,
                slot: Slot::Spill,
                counted: 0,
                is_cached,
            },
            request,
        );
    }

    /// The edits below a level, in order. The first block of a new level is among them whenever the
    /// dnode's old pointers belong there.
    fn take_edits_below(&mut self, level: u8) -> Vec<(u64, BlockPointer)> {
        let mut edits = std::mem::take(&mut self.edits[usize::from(level) - 1]);
        edits.sort_unstable_by_key(|(block, _)| *block);
        if level == self.old.levels {
            let old = (0..).zip(&self.old.pointers);
            let moved: Vec<_> = old
                .filter(|(index, pointer)| {
                    **pointer != BlockPointer::HOLE
                        && edits
                            .binary_search_by_key(index, |(block, _)| *block)
                            .is_err()
                })
                .map(|(index, pointer)| (index, *pointer))
                .collect();
            edits.splice(0..0, moved);
            edits.sort_by_key(|(block, _)| *block);
        }
        edits
    }

    fn request(
        &self,
        data: Block,
        level: Level,
        role: BlockRole,
        fill: u64,
        previous: BlockPointer,
    ) -> WriteRequest {
        let logical_size = LogicalSize::of(&data);
        self.request_of(data, logical_size, level, role, fill, previous)
    }

    fn request_of(
        &self,
        data: Block,
        logical_size: LogicalSize,
        level: Level,
        role: BlockRole,
        fill: u64,
        previous: BlockPointer,
    ) -> WriteRequest {
        let object_type = match role {
            BlockRole::Tree => self.shape.object_type,
            BlockRole::Spill => self.shape.bonus_type,
        };
        let mut policy = self
            .policy
            .for_block(object_type, level, role, logical_size.get(), fill);
        if !level.is_data() || object_type.counts_its_fill() {
            policy.embedding = Embedding::Forbidden;
        }
        let mut sealing = None;
        if self.object.context.is_sealed() {
            policy = policy.sealed();
            sealing = (!level.is_data()).then(|| seal_of_pointers(&data));
        }
        WriteRequest {
            data,
            logical_size,
            policy,
            previous,
            given: None,
            sealing,
        }
    }

    /// Adds the write of one block of pointers with its edits.
    fn gather_parent(
        &mut self,
        job: usize,
        level: u8,
        index: u64,
        edits: &[(u64, BlockPointer)],
        batches: &mut Batches<'_, '_>,
        ledgers: &mut [SetLedger<'_>],
    ) -> Result<(), SyncError> {
        let geometry = self.geometry();
        let (previous, mut bytes) = self.old_parent(level, index, batches.storing)?;
        for (block, pointer) in edits {
            let entry = low_bits(*block, geometry.fanout_shift());
            pointer.write_to(&mut bytes[entry << POINTER_SHIFT..]);
        }
        let (mut fill, mut are_holes) = (0_u64, true);
        for entry in bytes.chunks_exact(1 << POINTER_SHIFT) {
            if let Some(below) = BlockPointer::fill_in(entry) {
                are_holes = false;
                fill = fill.saturating_add(below);
            }
        }
        if are_holes {
            let hole = self.hole(&previous, level, batches.storing);
            self.kill(&previous, &mut ledgers[self.set], batches.storing);
            self.edits[usize::from(level)].push((index, hole));
            return Ok(());
        }
        let contents = Block::new(bytes);
        let request = self.request(contents, Level::new(level), BlockRole::Tree, fill, previous);
        let slot = Slot::Tree {
            level,
            block: index,
        };
        batches.push(
            Target {
                job,
                slot,
                counted: 0,
                is_cached: true,
            },
            request,
        );
        Ok(())
    }

    /// A block of pointers of the old tree, and the pointer to it.
    fn old_parent(
        &self,
        level: u8,
        index: u64,
        storing: &Storing<'_>,
    ) -> Result<(BlockPointer, Buffer), SyncError> {
        let geometry = self.geometry();
        let mut bytes = Buffer::zeroed(geometry.size_at(level).to_usize());
        let mut put = |entry: usize, pointer: &BlockPointer| {
            pointer.write_to(&mut bytes[entry << POINTER_SHIFT..]);
        };
        if level >= self.old.levels {
            return Ok((BlockPointer::HOLE, bytes));
        }
        let previous = self
            .object
            .stored_pointer(Level::new(level), index, storing.operation)?;
        if previous.is_hole() {
            let hole = geometry.hole_below(&previous, level - 1);
            if hole != BlockPointer::HOLE {
                (0..geometry.fanout()).for_each(|entry| put(entry, &hole));
            }
            return Ok((previous, bytes));
        }
        let pointers = self
            .object
            .read_pointers(&previous, level, index, storing.operation)?;
        pointers.write_to(&mut bytes);
        Ok((previous, bytes))
    }

    /// A block was written: notes its new pointer.
    fn written(
        &mut self,
        slot: Slot,
        previous: &BlockPointer,
        new: BlockPointer,
        contents: Option<Block>,
        ledger: &mut SetLedger<'_>,
        storing: &Storing<'_>,
    ) {
        let is_in_place = !new.is_hole() && new.is_same_block(previous);
        if !is_in_place {
            self.kill(previous, ledger, storing);
            if !new.is_hole() {
                self.used_change += i128::from(storing.io.deflated_size(&new).get());
                ledger.born(&new);
            }
        }
        if let Some(contents) = contents
            && !new.is_hole()
            && !new.is_embedded()
        {
            let scope = self.scope_of(slot);
            self.cache()
                .insert(&new, scope, contents, storing.operation);
        }
        match slot {
            Slot::Tree { level, block } => self.edits[usize::from(level)].push((block, new)),
            Slot::Spill => self.new_spill = (!new.is_hole()).then_some(new),
        }
    }

    /// Where the block of a slot belongs.
    fn scope_of(&self, slot: Slot) -> BlockScope {
        match slot {
            Slot::Tree { level, block } => {
                let kind = kind_of(self.shape.object_type);
                let (level, block) = (Level::new(level), BlockId::from(block));
                self.object.scope(level, block, kind)
            }
            Slot::Spill => BlockScope::of_spill(self.object.set_id(), self.object.id()),
        }
    }

    /// The dnode that leads to the new tree.
    pub fn finish(&mut self, flags: DnodeFlags) -> Dnode {
        let mut dnode = self.old.clone();
        dnode.object_type = self.shape.object_type;
        dnode.checksum = self.shape.checksum;
        dnode.compression = self.shape.compression;
        dnode.data_block_size = self.shape.block_size;
        dnode.indirect_shift = self.shape.indirect_shift;
        dnode.max_block = self.shape.max_block;
        dnode.flags = dnode.flags.with(flags).with(DnodeFlags::USED_BYTES);
        if self.levels > dnode.levels {
            dnode.levels = self.levels;
            dnode.pointers.fill(BlockPointer::HOLE);
        }
        for (block, pointer) in std::mem::take(&mut self.edits[usize::from(self.levels) - 1]) {
            dnode.pointers[narrow(block)] = pointer;
        }
        assert!(
            self.blocks.is_empty() && self.sealed.is_empty() && self.superseded.is_empty(),
            "all blocks are written before the dnode"
        );
        assert!(
            self.edits.iter().all(Vec::is_empty),
            "each new pointer has come into its parent"
        );
        if self.new_spill.is_none() {
            dnode.set_spill(None);
        }
        if dnode.bonus_type != self.shape.bonus_type || dnode.bonus() != &*self.shape.bonus {
            if dnode.spill.is_some() && self.shape.bonus.len() > dnode.bonus_capacity() {
                dnode.set_spill(None);
            }
            dnode.set_bonus(self.shape.bonus_type, &self.shape.bonus);
        }
        if self.new_spill.is_some() {
            dnode.set_spill(self.new_spill);
        }
        if let Some(form) = &self.shape.form {
            dnode.set_bonus_room(&form.bonus_room);
        }
        let used = i128::from(dnode.used.get()) + self.used_change;
        // A dnode that was damaged may have claimed less than it had.
        dnode.used = AllocatedSize::from(u64::try_from(used.max(0)).unwrap_or(u64::MAX));
        debug_assert!(
            dnode.object_type == ObjectType::None || check_tree(&dnode).is_ok(),
            "what is stored can be read back: {dnode:?}"
        );
        dnode
    }
}

/// Where a written block belongs.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Tree { level: u8, block: u64 },
    Spill,
}

/// A block in a batch.
#[derive(Debug, Clone, Copy)]
struct Target {
    job: usize,
    slot: Slot,
    /// What the throttle counts for it.
    counted: u64,
    /// Whether it goes into the cache.
    is_cached: bool,
}

/// Writes being gathered.
struct Batches<'a, 'b> {
    storing: &'a Storing<'b>,
    targets: Vec<Target>,
    requests: Vec<WriteRequest>,
    bytes: u64,
}

impl<'a, 'b> Batches<'a, 'b> {
    fn new(storing: &'a Storing<'b>) -> Self {
        Batches {
            storing,
            targets: Vec::new(),
            requests: Vec::new(),
            bytes: 0,
        }
    }

    fn push(&mut self, target: Target, request: WriteRequest) {
        self.bytes += request.logical_size.get();
        self.targets.push(target);
        self.requests.push(request);
    }

    /// Writes what was gathered, if it is much.
    fn flush_if_full(
        &mut self,
        jobs: &mut [TreeJob],
        ledgers: &mut [SetLedger<'_>],
    ) -> Result<(), SyncError> {
        if self.bytes >= BATCH_BYTES || self.requests.len() >= BATCH_BLOCKS {
            self.flush(jobs, ledgers)?;
        }
        Ok(())
    }

    /// Writes what was gathered.
    fn flush(
        &mut self,
        jobs: &mut [TreeJob],
        ledgers: &mut [SetLedger<'_>],
    ) -> Result<(), SyncError> {
        if self.requests.is_empty() {
            return Ok(());
        }
        let requests = std::mem::take(&mut self.requests);
        let targets = std::mem::take(&mut self.targets);
        self.bytes = 0;
        let kept: Vec<_> = requests
            .iter()
            .zip(&targets)
            .map(|(request, target)| {
                let contents = target.is_cached.then(|| request.data.clone());
                (request.previous, contents)
            })
            .collect();
        let Storing {
            io,
            phase,
            operation,
        } = *self.storing;
        for (request, target) in requests.iter().zip(&targets) {
            if request.may_rewrite(phase) {
                let job = &jobs[target.job];
                let scope = job.scope_of(target.slot);
                job.cache()
                    .keep_rewritten(&request.previous, scope, operation);
            }
        }
        let pointers = io.write(requests, phase, operation)?;
        for ((target, (previous, contents)), new) in targets.iter().zip(kept).zip(pointers) {
            let job = &mut jobs[target.job];
            let ledger = &mut ledgers[job.set];
            job.written(target.slot, &previous, new, contents, ledger, self.storing);
            job.uncount(target.counted);
        }
        Ok(())
    }
}

/// Stores the trees of all jobs, up to their dnodes' pointers.
pub(crate) fn store_trees(
    jobs: &mut [TreeJob],
    ledgers: &mut [SetLedger<'_>],
    storing: &Storing<'_>,
) -> Result<(), SyncError> {
    for job in jobs.iter_mut() {
        job.free(&mut ledgers[job.set], storing)?;
    }
    let mut batches = Batches::new(storing);
    for index in 0..jobs.len() {
        for (block, buffer) in std::mem::take(&mut jobs[index].blocks) {
            jobs[index].gather_block(index, block, buffer, &mut batches, ledgers)?;
            batches.flush_if_full(jobs, ledgers)?;
        }
        for (block, contents) in std::mem::take(&mut jobs[index].sealed) {
            jobs[index].gather_sealed(index, block, &contents, &mut batches)?;
            batches.flush_if_full(jobs, ledgers)?;
        }
        let ledger = jobs[index].set;
        jobs[index].put_clones(&mut ledgers[ledger], storing)?;
        jobs[index].free_superseded(storing)?;
        jobs[index].gather_spill(index, &mut batches);
    }
    batches.flush(jobs, ledgers)?;
    let levels = jobs.iter().map(|job| job.levels).max().unwrap_or(1);
    for level in 1..levels {
        for index in 0..jobs.len() {
            if level >= jobs[index].levels {
                continue;
            }
            let edits = jobs[index].take_edits_below(level);
            let shift = jobs[index].geometry().fanout_shift();
            for group in edits.chunk_by(|(one, _), (other, _)| one >> shift == other >> shift) {
                let parent = group[0].0 >> shift;
                jobs[index].gather_parent(index, level, parent, group, &mut batches, ledgers)?;
                batches.flush_if_full(jobs, ledgers)?;
            }
        }
        batches.flush(jobs, ledgers)?;
    }
    Ok(())
}
