//! The log and the sync: records of stored txgs are dropped, their blocks are freed, and the head
//! follows.
//!
//! # Mechanism
//! When a group is being stored, the blocks at the front of the chain whose records are all part of
//! it or of earlier ones are freed with it, and the head leads to the first block that is left.
//! After the group is stored, its records in memory are dropped.
//!
//! The sync thread waits for blocks on their way that point to places allocated in its group. So a
//! stored space map never has a log block that no written block leads to.
//!
//! # Invariants
//! - The head of a stored group leads to a block that this group's space maps have, or is empty.
//! - A block is freed in the same group in which the head passes it.

use std::collections::VecDeque;
use tarn_block::{BlockFreeError, WritePhase};
use tarn_host::canary::{Canary, sings};
use tarn_object::{AssignError, SyncTx};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::units::Txg;
use tarn_probe::Operation;

use crate::log::{Chain, ChainBlock, IntentLog, State};

/// When a closed log has no block on the disk any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogClosing {
    /// It has nothing there.
    Done,
    /// When the group that is open now is stored.
    WithGroup,
}

impl IntentLog {
    /// For the sync thread, in the first pass of a group and before the object set is stored: frees
    /// the blocks whose records this txg stores, and has the head lead to the first one left.
    ///
    /// # Errors
    /// When a block cannot be freed, which was the log's own: the group must not be stored.
    #[doc(alias = "zil_sync")]
    pub fn sync(&self, tx: &SyncTx, operation: &Operation) -> Result<(), BlockFreeError> {
        let txg = tx.txg();
        // Room is made without the lock, which commits wait for.
        let room = VecDeque::with_capacity(self.state.lock().chain.blocks.len());
        let mut state = self.state.lock();
        let is_under_way = |state: &mut State| state.batches.hold_up(txg);
        if !sings(Canary::PassLogBlocks) {
            self.changed.wait_while(&mut state, is_under_way);
        }
        let before = self.set.phys().intent_log;
        let mut head = before;
        let had_blocks = !state.chain.blocks.is_empty();
        let passed = state.chain.pass(txg, room);
        assert!(
            passed.iter().all(|block| block.pointer.birth() <= txg),
            "a block is freed in its txg or later"
        );
        debug_assert!(state.chain.is_in_order(), "a chain is freed from its front");
        if had_blocks {
            let first = state.chain.blocks.front().map(|block| block.pointer);
            let first = first.filter(|pointer| pointer.birth() <= txg);
            head = IntentLogHead {
                first: first.unwrap_or(BlockPointer::HOLE),
                ..IntentLogHead::default()
            };
        }
        drop(state);
        if head != before {
            self.set.change_head(tx, |objset| objset.intent_log = head);
        }
        let phase = WritePhase {
            txg,
            pass: tx.pass(),
        };
        for block in passed {
            let io = self.set.env().cache.io();
            io.free(&block.pointer, phase, operation)?;
        }
        Ok(())
    }

    /// After a group was stored: drops what is not needed any more.
    #[doc(alias = "zil_clean")]
    pub fn stored(&self, txg: Txg) {
        let dropped = self.state.lock().pending.drop_stored(txg);
        drop(dropped);
    }

    /// Ends the chain: when the group that is open now is stored, the log has no block on the disk
    /// that it has now. The next commit begins another chain, wherever there is room then.
    ///
    /// # Errors
    /// When the pool is suspended or being closed: the log stays.
    #[doc(alias = "zil_suspend")]
    pub fn vacate(&self, operation: &Operation) -> Result<LogClosing, AssignError> {
        self.end_chain(|_| {}, operation)
    }

    /// From now on durability comes from groups. When the group that is open now is stored, the log
    /// has no block on the disk.
    ///
    /// # Errors
    /// When the pool is suspended or being closed: the log stays, and the next import finds all in
    /// it stored, or replays it.
    #[doc(alias = "zil_close")]
    pub fn close(&self, operation: &Operation) -> Result<LogClosing, AssignError> {
        self.end_chain(|state| state.is_closed = true, operation)
    }

    /// Marks the state, has nothing more put behind the chain, waits until what is on its way is
    /// written, and has the chain freed with the group that is open now.
    fn end_chain(
        &self,
        mark: impl FnOnce(&mut State),
        operation: &Operation,
    ) -> Result<LogClosing, AssignError> {
        {
            let mut state = self.state.lock();
            mark(&mut state);
            state.chain.is_ended = true;
            self.changed
                .wait_while(&mut state, |state| state.batches.is_under_way());
            if state.chain.blocks.is_empty() {
                state.chain.is_ended = false;
                return Ok(LogClosing::Done);
            }
            // It may have begun meanwhile.
            state.chain.is_ended = true;
        }
        let tx = self.assign(operation)?;
        self.set.touch(&tx);
        self.state.lock().chain.end(tx.txg());
        Ok(LogClosing::WithGroup)
    }
}

impl Chain {
    /// Takes off the front what is not needed once this group is stored. `room`, which is empty, is
    /// for the blocks of the chain from then on: with as much room as there was it need not grow
    /// for some time, which would take long where every new page of memory is dear.
    fn pass(&mut self, txg: Txg, mut room: VecDeque<ChainBlock>) -> VecDeque<ChainBlock> {
        let is_stored = |block: &ChainBlock| block.newest.is_some_and(|newest| newest <= txg);
        if self.is_ended {
            let is_over = |block: &ChainBlock| is_stored(block) && block.pointer.birth() <= txg;
            return match self.blocks.iter().all(is_over) {
                true => std::mem::take(self).blocks,
                false => VecDeque::new(),
            };
        }
        let nexts = self.blocks.iter().skip(1);
        let pairs = self.blocks.iter().zip(nexts);
        let passed =
            pairs.take_while(|(block, next)| is_stored(block) && next.pointer.birth() <= txg);
        let count = passed.count();
        if count < self.blocks.len() / 2 {
            return self.blocks.drain(..count).collect();
        }
        room.extend(self.blocks.drain(count..));
        std::mem::replace(&mut self.blocks, room)
    }

    /// Nothing is written into the chain any more. It is freed as a whole, not before this group.
    pub(crate) fn end(&mut self, txg: Txg) {
        self.is_ended = true;
        for block in &mut self.blocks {
            block.newest = Some(block.newest.unwrap_or(txg).max(txg));
        }
    }

    /// The last names were not used.
    pub(crate) fn unname(&mut self, count: usize) {
        assert!(
            tarn_ondisk::declare::widen(count) <= self.count,
            "only names that were given"
        );
        self.count -= tarn_ondisk::declare::widen(count);
    }
}
