//! Prepared changes: the reads that a change needs, before its transaction opens.
//!
//! # Problem
//! A txg closes when its last transaction is dropped. A block that is overwritten in part must be
//! read first; if its writer reads it inside a transaction, a slow device holds up the txg, and
//! with it every writer of the pool.
//!
//! # Mechanism
//! A writer prepares a change ([`Object::prepare_write`], [`Object::prepare_free`]) before it opens
//! the transaction: the first and last block of the range, where they are changed in part, are read
//! and held with the object; the pointers to the others are looked up, which brings their indirect
//! blocks into the cache. The change then finds the contents held, and reads nothing. They are held
//! until the change is made or the [`PreparedChange`] is dropped.
//!
//! A change that was not prepared, or whose held contents another change has dropped, reads inside
//! the transaction, as OpenZFS does: slower, and as correct.
//!
//! # Invariants
//! - A held block is the newest contents of its block: every change of a block drops its held
//!   contents, also while they are still being read. So they may be used whenever no txg in flight
//!   has the block.

use std::ops::Range;

use tarn_ondisk::units::{BlockId, Level};
use tarn_probe::Operation;

use crate::error::ObjectError;
use crate::object::{Newest, Object};

/// The contents that a change of an object needs, held until the change is made.
#[derive(Debug)]
#[must_use = "held until the change is made"]
pub struct PreparedChange<'a> {
    object: &'a Object,
    /// Of the blocks that are held: the only block of an object that grows, the first and the last
    /// of the range.
    numbers: [Option<u64>; 3],
}

impl Object {
    /// Reads what writing `length` bytes at `offset` needs and is not in memory: blocks that are
    /// overwritten in part, and the pointers to all. To be called before the transaction of the
    /// write is opened.
    ///
    /// # Errors
    /// What cannot be read: the write would fail in the same way. `NoSuchObject` when the object
    /// was freed.
    #[doc(alias = "dmu_tx_hold_write")]
    pub fn prepare_write(
        &self,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<PreparedChange<'_>, ObjectError> {
        let mut prepared = PreparedChange::of(self);
        let end = offset.saturating_add(length);
        if length == 0 || self.context.is_sealed() {
            return Ok(prepared);
        }
        let block_size = self.block_size().get();
        prepared.grow(end, operation)?;
        let (first, last) = (offset / block_size, (end - 1) / block_size);
        let ends_in_first = first == last && !end.is_multiple_of(block_size);
        if !offset.is_multiple_of(block_size) || ends_in_first {
            prepared.hold(first, operation)?;
        }
        if last > first && !end.is_multiple_of(block_size) {
            prepared.hold(last, operation)?;
        }
        self.look_up_pointers(first..last.saturating_add(1), operation)?;
        Ok(prepared)
    }

    /// Reads what an object needs to grow to `end`: its only block, if that becomes larger.
    ///
    /// # Errors
    /// As [`prepare_write`](Self::prepare_write).
    pub fn prepare_growth(
        &self,
        end: u64,
        operation: &Operation,
    ) -> Result<PreparedChange<'_>, ObjectError> {
        let mut prepared = PreparedChange::of(self);
        if !self.context.is_sealed() {
            prepared.grow(end, operation)?;
        }
        Ok(prepared)
    }

    /// Reads what [`free_range`](Self::free_range) of the same range needs and is not in memory:
    /// blocks that are zeroed in part, and the pointers at both ends. To be called before its
    /// transaction is opened.
    ///
    /// # Errors
    /// As [`prepare_write`](Self::prepare_write).
    #[doc(alias = "dmu_tx_hold_free")]
    pub fn prepare_free(
        &self,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<PreparedChange<'_>, ObjectError> {
        let mut prepared = PreparedChange::of(self);
        let freed = self.freed_by(offset, length)?;
        let Some(freed) = freed.filter(|_| !self.context.is_sealed()) else {
            return Ok(prepared);
        };
        for (block, _) in freed.zeroed.iter().flatten() {
            prepared.hold(*block, operation)?;
        }
        for bound in freed.bounds() {
            self.look_up_bound(bound, operation)?;
        }
        Ok(prepared)
    }

    /// Looks up the pointers to blocks that txgs in flight know nothing of, one for each block of
    /// pointers, so that those are in the cache.
    ///
    /// # Errors
    /// A block of pointers cannot be read.
    pub fn look_up_pointers(
        &self,
        blocks: Range<u64>,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let mut next = blocks.start;
        while next < blocks.end {
            let (span_end, is_unknown) = {
                let state = self.alive()?;
                let geometry = state.geometry();
                let span = geometry.span(1, geometry.ancestor(next, 1));
                let end = span.end.min(blocks.end);
                let is_unknown = |block| matches!(state.newest_of(block), Newest::Unknown);
                (end, (next..end).any(is_unknown))
            };
            if is_unknown {
                self.stored_pointer(Level::ZERO, next, operation)?;
            }
            next = span_end.max(next + 1);
        }
        Ok(())
    }
}

impl<'a> PreparedChange<'a> {
    fn of(object: &'a Object) -> PreparedChange<'a> {
        PreparedChange {
            object,
            numbers: [None; 3],
        }
    }

    /// Holds the only block of an object that will reach to `end`, if it may become larger.
    fn grow(&mut self, end: u64, operation: &Operation) -> Result<(), ObjectError> {
        let may_grow = {
            let state = self.object.alive()?;
            state.newest.max_block.is_zero() && end > state.newest.block_size.get()
        };
        match may_grow {
            true => self.hold(0, operation),
            false => Ok(()),
        }
    }

    /// Reads and holds the newest contents of a block, if it has any.
    fn hold(&mut self, block: u64, operation: &Operation) -> Result<(), ObjectError> {
        let number = {
            let mut state = self.object.alive()?;
            let in_memory = match state.newest_of(block) {
                Newest::Data(buffer) => Some(buffer.clone()),
                Newest::Freed | Newest::Sealed => return Ok(()),
                Newest::Unknown if self.object.top_of(&state, block).is_none() => return Ok(()),
                Newest::Unknown | Newest::Cloned(_) => None,
            };
            let number = state.held.announce(block);
            let free = self.numbers.iter_mut().find(|slot| slot.is_none());
            *free.expect("three at most are held") = Some(number);
            if let Some(contents) = in_memory {
                state.held.hold(number, contents);
                return Ok(());
            }
            number
        };
        let block = BlockId::from(block);
        if self.object.has_block(block, operation)? {
            let contents = self.object.read_to_change(block, operation)?;
            self.object.alive()?.held.hold(number, contents);
        }
        Ok(())
    }
}

impl Drop for PreparedChange<'_> {
    fn drop(&mut self) {
        if self.numbers == [None; 3] {
            return;
        }
        let mut state = self.object.state.lock();
        for number in self.numbers.iter().flatten() {
            state.held.drop_number(*number);
        }
    }
}

/// What [`Object::free_range`] does to the blocks of a range.
#[derive(Debug)]
pub(crate) struct FreedRange {
    /// Blocks that are zeroed in part, and which bytes of them: those at the beginning and the end.
    pub zeroed: [Option<(u64, Range<usize>)>; 2],
    /// Blocks that are freed; none if the end is not behind the start.
    pub blocks: Range<u64>,
    /// Whether the object ends with the range.
    pub is_tail: bool,
}

impl FreedRange {
    /// The blocks at which freed ranges begin and end, except the end of the object.
    pub fn bounds(&self) -> impl Iterator<Item = u64> + use<> {
        let end = (!self.is_tail).then_some(self.blocks.end);
        let bounds = [Some(self.blocks.start), end];
        let is_any = !self.blocks.is_empty();
        bounds.into_iter().flatten().filter(move |_| is_any)
    }
}
