//! The tree of blocks below a dnode: from the index of a block to its pointer.
//!
//! # Mechanism
//! An indirect block holds a power of two of pointers, so the bits of the index name the way down:
//! the highest choose one of the dnode's pointers, the next ones an entry in the block it leads to,
//! and so on. Indirect blocks come from the cache and are neither unpacked nor decoded: only the
//! wanted entry is. The last used lowest one is remembered with the object, so that a sequential
//! reader reads one entry per block.
//!
//! A hole in the middle of the tree stands for holes in all its blocks, with the same birth.
//!
//! # Invariants
//! - Each step goes exactly one level down, and the found pointer must have that level, and the
//!   size of its blocks. So a circular tree is refused at once.

use std::ops::Range;

use tarn_block::{BlockKind, BlockScope};
use tarn_cache::Hint;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::dnode::Dnode;
use tarn_ondisk::units::{BlockId, Level};
use tarn_probe::Operation;

use crate::error::ObjectError;
use crate::object::{Located, Newest, Object, ObjectState, READ_ATTEMPTS_MAX};
use crate::tree_shape::{Geometry, PointerBlock, PointerMemo, TreeTop, check_place, low_bits};

impl Object {
    /// Where to begin on the way to a block: at the remembered block of pointers, or at the dnode.
    /// None for what the stored tree does not reach.
    pub(crate) fn top_of(&self, state: &ObjectState, block: u64) -> Option<TreeTop> {
        let geometry = state.geometry();
        let top = |pointer, level| TreeTop {
            pointer,
            level,
            geometry,
            generation: state.generation,
        };
        if let Some(memo) = &state.memo
            && memo.index == geometry.ancestor(block, 1)
            && let Some(pointers) = memo.pointers()
        {
            let entry = low_bits(block, geometry.fanout_shift());
            return Some(top(pointers.get(entry), 0));
        }
        state
            .root_of(block, 0)
            .map(|(pointer, level)| top(pointer, level))
    }

    /// The pointer to a block of the stored tree. A hole for what is not there.
    pub(crate) fn stored_pointer(
        &self,
        level: Level,
        block: u64,
        operation: &Operation,
    ) -> Result<BlockPointer, ObjectError> {
        let top = {
            let state = self.state.lock();
            if level.is_data() {
                self.top_of(&state, block)
            } else {
                let root = state.root_of(block, level.get());
                let (geometry, generation) = (state.geometry(), state.generation);
                root.map(|(pointer, level)| TreeTop {
                    pointer,
                    level,
                    geometry,
                    generation,
                })
            }
        };
        match top {
            Some(top) => self.descend(top, level, block, operation),
            None => Ok(BlockPointer::HOLE),
        }
    }

    /// Goes down to a block of `level`, and gives back the pointer to it.
    pub(crate) fn descend(
        &self,
        top: TreeTop,
        level: Level,
        block: u64,
        operation: &Operation,
    ) -> Result<BlockPointer, ObjectError> {
        let TreeTop {
            mut pointer,
            level: mut at,
            geometry,
            generation,
        } = top;
        assert!(at >= level.get(), "the way leads down");
        self.check_pointer(&pointer, at, &geometry)?;
        while at > level.get() {
            if pointer.is_hole() {
                return Ok(geometry.hole_below(&pointer, level.get()));
            }
            let index = geometry.ancestor(block, at - level.get());
            let pointers = self.read_pointers(&pointer, at, index, operation)?;
            let next = geometry.ancestor(block, at - level.get() - 1);
            at -= 1;
            pointer = pointers.get(low_bits(next, geometry.fanout_shift()));
            self.check_pointer(&pointer, at, &geometry)?;
            if at == 0 {
                self.remember(generation, PointerMemo::new(index, &pointers));
            }
        }
        Ok(pointer)
    }

    /// Reads a block of pointers, which must not be a hole.
    pub(crate) fn read_pointers(
        &self,
        pointer: &BlockPointer,
        level: u8,
        index: u64,
        operation: &Operation,
    ) -> Result<PointerBlock, ObjectError> {
        let cache = &self.context.env.cache;
        let (level_above, block) = (Level::new(level), BlockId::from(index));
        let scope = self.scope(level_above, block, BlockKind::Metadata);
        let contents = cache.read_contents(pointer, scope, Hint::DEMAND, operation);
        let contents = contents.map_err(|why| self.read_error(level_above, block, why))?;
        PointerBlock::new(contents, pointer).map_err(|what| self.corrupt(what))
    }

    /// Where a block of the object's tree belongs.
    pub(crate) fn scope(&self, level: Level, block: BlockId, kind: BlockKind) -> BlockScope {
        BlockScope::of_object(self.context.id, self.id, level, block, kind)
    }

    /// Refuses a pointer that cannot be at this place of the tree.
    pub(crate) fn check_pointer(
        &self,
        pointer: &BlockPointer,
        level: u8,
        geometry: &Geometry,
    ) -> Result<(), ObjectError> {
        check_place(pointer, level, geometry).map_err(|what| self.corrupt(what))
    }

    fn remember(&self, generation: u64, memo: PointerMemo) {
        let forgotten = {
            let mut state = self.state.lock();
            if state.generation != generation {
                return;
            }
            state.memo.replace(memo)
        };
        drop(forgotten);
    }

    /// The first block from `from` on that has contents, if any.
    pub fn next_data(
        &self,
        from: BlockId,
        operation: &Operation,
    ) -> Result<Option<BlockId>, ObjectError> {
        let mut at = from.get();
        loop {
            let (in_memory, max_block) = self.next_dirty(at)?;
            if at > max_block {
                return Ok(None);
            }
            let on_disk = self.next_stored(at, Wanted::Data, operation)?;
            let found = match (in_memory, on_disk) {
                (Some(memory), Some(disk)) => memory.min(disk),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => return Ok(None),
            };
            // What is stored there may have been freed since.
            match self.freed_until(found)? {
                Some(end) => at = end,
                None if found > max_block => return Ok(None),
                None => return Ok(Some(BlockId::from(found))),
            }
        }
    }

    /// The last part of a range that has contents, of at most so many blocks: behind it none has
    /// any, up to the range's end. It is found in few steps however far apart contents lie. What is
    /// below a block of pointers that cannot be read counts as contents.
    ///
    /// # Errors
    /// When the object was freed.
    pub fn last_data(
        &self,
        within: Range<BlockId>,
        blocks_max: u64,
        operation: &Operation,
    ) -> Result<Option<Range<BlockId>>, ObjectError> {
        let (first, mut end) = (within.start.get(), within.end.get());
        let mut window = blocks_max;
        while end > first {
            let start = end.saturating_sub(window).max(first);
            let has_contents = match self.next_data(BlockId::from(start), operation) {
                Ok(next) => next.is_some_and(|block| block.get() < end),
                Err(ObjectError::Read { level, block, .. }) => {
                    let geometry = self.alive()?.geometry();
                    geometry.span(level.get(), block.get()).start < end
                }
                Err(ObjectError::Corrupt { .. }) => true,
                Err(error) => return Err(error),
            };
            match has_contents {
                false => (end, window) = (start, window.saturating_mul(2)),
                true if end - start > blocks_max => window = ((end - start) / 2).max(blocks_max),
                true => return Ok(Some(BlockId::from(start)..BlockId::from(end))),
            }
        }
        Ok(None)
    }

    /// The first block from `from` on that has no contents. Behind the highest block there are
    /// none.
    pub fn next_hole(&self, from: BlockId, operation: &Operation) -> Result<BlockId, ObjectError> {
        let mut at = from.get();
        loop {
            if at > self.alive()?.newest.max_block.get() {
                return Ok(BlockId::from(at));
            }
            match self.locate(BlockId::from(at))? {
                Located::Dirty(_) | Located::Sealed | Located::Cloned(_) => at += 1,
                Located::Zeros => return Ok(BlockId::from(at)),
                Located::Stored(_) => {
                    let hole = self
                        .next_stored(at, Wanted::Hole, operation)?
                        .unwrap_or(u64::MAX);
                    // Up to there all is stored, unless it was freed since.
                    let freed = self.first_freed(at, hole)?;
                    match freed {
                        Some(block) => return Ok(BlockId::from(block)),
                        None if hole == at => return Ok(BlockId::from(at)),
                        None => at = hole,
                    }
                }
            }
        }
    }

    /// The first block from `from` on in the stored tree that is what is wanted. Beyond the tree
    /// there are holes.
    fn next_stored(
        &self,
        from: u64,
        wanted: Wanted,
        operation: &Operation,
    ) -> Result<Option<u64>, ObjectError> {
        let mut attempts = 0;
        loop {
            let (stored, geometry, generation) = {
                let state = self.state.lock();
                (state.stored.clone(), state.geometry(), state.generation)
            };
            let failure = match self.next_within(&stored, &geometry, from, wanted, operation) {
                Ok(found) => return Ok(found),
                Err(failure) => failure,
            };
            attempts += 1;
            if attempts == READ_ATTEMPTS_MAX || !self.may_have_moved(generation) {
                return Err(failure);
            }
        }
    }

    /// The same in one tree, which may be replaced meanwhile: then blocks of pointers may not be
    /// there any more.
    fn next_within(
        &self,
        stored: &Dnode,
        geometry: &Geometry,
        from: u64,
        wanted: Wanted,
        operation: &Operation,
    ) -> Result<Option<u64>, ObjectError> {
        let level = stored.levels - 1;
        for (index, pointer) in (0..).zip(&stored.pointers) {
            let span = geometry.span(level, index);
            if span.end <= from {
                continue;
            }
            let found =
                self.next_below(pointer, level, index, from, wanted, geometry, operation)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let reach = geometry.span(level, widen(stored.pointers.len())).start;
        Ok((wanted == Wanted::Hole).then_some(from.max(reach)))
    }

    /// The same below one pointer. Goes down once per level, which the dnode's check has bounded.
    #[allow(
        clippy::too_many_arguments,
        reason = "a step of one search, called by itself"
    )]
    fn next_below(
        &self,
        pointer: &BlockPointer,
        level: u8,
        index: u64,
        from: u64,
        wanted: Wanted,
        geometry: &Geometry,
        operation: &Operation,
    ) -> Result<Option<u64>, ObjectError> {
        self.check_pointer(pointer, level, geometry)?;
        let span = geometry.span(level, index);
        match (pointer.is_hole(), wanted) {
            (true, Wanted::Data) => return Ok(None),
            (true, Wanted::Hole) => return Ok(Some(span.start.max(from))),
            (false, Wanted::Data) if level == 0 => return Ok(Some(index)),
            (false, Wanted::Hole) if level == 0 => return Ok(None),
            (false, _) => {}
        }
        let pointers = self.read_pointers(pointer, level, index, operation)?;
        let first = geometry.ancestor(from.max(span.start), level - 1);
        let start = narrow(first - (index << geometry.fanout_shift()));
        // What is left out is a hole.
        let mut next = start;
        let hole_at = |entry: usize| {
            let child = (index << geometry.fanout_shift()) + widen(entry);
            geometry.span(level - 1, child).start.max(from)
        };
        for (entry, pointer) in pointers.present(start) {
            if entry > next && wanted == Wanted::Hole {
                return Ok(Some(hole_at(next)));
            }
            let child = (index << geometry.fanout_shift()) + widen(entry);
            let found = self.next_below(
                &pointer,
                level - 1,
                child,
                from,
                wanted,
                geometry,
                operation,
            )?;
            if found.is_some() {
                return Ok(found);
            }
            next = entry + 1;
        }
        let is_hole_left = wanted == Wanted::Hole && next < pointers.count();
        Ok(is_hole_left.then(|| hole_at(next)))
    }

    /// The first block from `from` on that is dirty, and the highest block.
    fn next_dirty(&self, from: u64) -> Result<(Option<u64>, u64), ObjectError> {
        let state = self.alive()?;
        let mut next = None;
        for pending in &state.pending {
            let mut blocks = pending.written(from..u64::MAX);
            // An older version counts only if no later group has freed it.
            let first = blocks.find(|block| {
                let newest = state.newest_of(*block);
                matches!(newest, Newest::Data(_) | Newest::Sealed | Newest::Cloned(_))
            });
            next = match (next, first) {
                (Some(one), Some(other)) => Some(u64::min(one, other)),
                (one, other) => one.or(other),
            };
        }
        Ok((next, state.newest.max_block.get()))
    }

    /// The end of the freed range a block is in, if it is in one.
    fn freed_until(&self, block: u64) -> Result<Option<u64>, ObjectError> {
        let state = self.alive()?;
        for pending in state.pending.iter().rev() {
            if pending.written(block..block + 1).next().is_some() {
                return Ok(None);
            }
            if let Some(end) = pending.freed.end_of(block) {
                // An older or newer group may have written within; go on block by block then.
                let written = state
                    .pending
                    .iter()
                    .any(|other| other.written(block..end).next().is_some());
                return Ok(Some(if written { block + 1 } else { end }));
            }
        }
        Ok(None)
    }

    /// The first block from `from` up to `end` that was freed and not written again.
    fn first_freed(&self, from: u64, end: u64) -> Result<Option<u64>, ObjectError> {
        let state = self.alive()?;
        let end = end.min(state.newest.max_block.get().saturating_add(1));
        if !state
            .pending
            .iter()
            .any(|pending| pending.freed.overlaps(from, end))
        {
            return Ok(None);
        }
        let is_freed = |block: &u64| matches!(state.newest_of(*block), Newest::Freed);
        Ok((from..end).find(is_freed))
    }
}

/// What a search looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Data,
    Hole,
}

impl ObjectState {
    /// What decides the shape of the stored tree.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            object_type: self.stored.object_type,
            indirect_shift: self.stored.indirect_shift,
            block_size: self.stored.data_block_size,
        }
    }

    /// The dnode's pointer above a block of `level`, and the level it leads to.
    fn root_of(&self, block: u64, level: u8) -> Option<(BlockPointer, u8)> {
        let top = self.stored.levels.checked_sub(1)?;
        let index = self.geometry().ancestor(block, top.checked_sub(level)?);
        self.stored
            .pointers
            .get(narrow(index))
            .map(|pointer| (*pointer, top))
    }
}
