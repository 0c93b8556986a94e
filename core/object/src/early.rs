//! Blocks that are written before their group is stored, for the intent log.
//!
//! # Mechanism
//! A log record can lead to a block of the object itself instead of carrying its bytes. The newest contents of the block, if the open group has changed
//! it, are given their place ([`Object::place_early`]), written by the log, and noted in the group's changes. When the group is
//! stored and the block still has these very contents, it is not written again: the tree gets the pointer. If it was changed, cut off or
//! freed since, it is stored as ever, and the early place is freed with the group.
//!
//! # Invariants
//! - Each place taken early becomes part of the tree with its group, or is freed with it.
//! - A group is stored only after its early blocks are written or withdrawn: who writes them sees to that.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tarn_block::{Block, BlockRole, Embedding, PlacedBlocks, WriteRequest};
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, Level, LogicalSize, Txg};
use tarn_probe::Operation;

use crate::dirty::{Early, Pending};
use crate::object::Object;
use crate::tx::Tx;

/// Blocks of an object that have their places before their group is stored.
#[derive(Debug)]
pub struct EarlyBlocks {
    object: Arc<Object>,
    txg: Txg,
    /// By their numbers.
    places: BTreeMap<u64, BlockPointer>,
    /// What is to be written; none where that was done for an earlier record.
    unwritten: Option<PlacedBlocks>,
}

impl Object {
    /// Gives blocks of the open group their places. `None` when it has not changed all of them, or they are better stored with the
    /// group. Until they are written or [withdrawn](EarlyBlocks::withdraw) the group must not be stored.
    pub fn place_early(
        self: &Arc<Self>,
        tx: &Tx,
        blocks: Range<u64>,
        operation: &Operation,
    ) -> Option<EarlyBlocks> {
        let txg = tx.txg();
        let mut places = BTreeMap::new();
        let mut buffers: Vec<(u64, Arc<Buffer>)> = Vec::new();
        let mut settled = Vec::new();
        {
            let state = self.alive().ok()?;
            let pending = state.pending.back().filter(|pending| pending.txg == txg)?;
            for block in blocks {
                let buffer = pending.blocks.get(&block)?;
                match pending.early.get(&block) {
                    Some(early) if Arc::ptr_eq(&early.buffer, buffer) => {
                        places.insert(block, early.pointer);
                    }
                    _ => buffers.push((block, buffer.clone())),
                }
                let others = state.pending.iter().rev().skip(1);
                let is_changing = |older: &Pending| {
                    older.blocks.contains_key(&block)
                        || older.cloned.contains_key(&block)
                        || older.freed.contains(block)
                };
                if !others.into_iter().any(is_changing) {
                    settled.push(block);
                }
            }
        }
        let mut unwritten = None;
        if !buffers.is_empty() {
            let requests = buffers.iter().map(|(block, buffer)| {
                let request = self.early_request(buffer)?;
                if !request.policy.may_stay() || !settled.contains(block) {
                    return Some(request);
                }
                let previous = self.stored_pointer(Level::ZERO, *block, operation).ok()?;
                Some(WriteRequest {
                    previous,
                    ..request
                })
            });
            let requests = requests.collect::<Option<Vec<WriteRequest>>>()?;
            let io = self.context.env.cache.io();
            let placed = io.place_early(requests, txg, operation)?;
            let pointers = placed.pointers.iter().copied();
            let fresh: Vec<_> = buffers.into_iter().zip(pointers).collect();
            places.extend(fresh.iter().map(|((block, _), pointer)| (*block, *pointer)));
            self.note_early(txg, fresh);
            unwritten = Some(placed);
        }
        Some(EarlyBlocks {
            object: self.clone(),
            txg,
            places,
            unwritten,
        })
    }

    /// What was placed is part of the group, whatever became of the blocks meanwhile.
    fn note_early(&self, txg: Txg, placed: Vec<((u64, Arc<Buffer>), BlockPointer)>) {
        let mut state = self.state.lock();
        // The next group may have begun.
        let mut pending = state.pending.iter_mut();
        let pending = pending.find(|pending| pending.txg == txg);
        let pending = pending.expect("a group's changes are there as long as its transactions");
        for ((block, buffer), pointer) in placed {
            let before = pending.early.insert(block, Early { buffer, pointer });
            pending.superseded.extend(before.map(|early| early.pointer));
        }
    }

    /// How a block is written early; none if it is not.
    fn early_request(&self, buffer: &Arc<Buffer>) -> Option<WriteRequest> {
        let object_type = self.object_type();
        if !matches!(object_type, ObjectType::PlainFile | ObjectType::Zvol) {
            return None;
        }
        let data = Block::from(buffer.clone());
        let logical_size = LogicalSize::of(&data);
        let blocks = self.context.policy.read().blocks;
        let role = BlockRole::Tree;
        let mut policy = blocks.for_block(object_type, Level::ZERO, role, logical_size.get(), 1);
        policy.embedding = Embedding::Forbidden;
        Some(WriteRequest {
            data,
            logical_size,
            policy,
            previous: BlockPointer::HOLE,
            given: None,
            sealing: None,
        })
    }
}

impl EarlyBlocks {
    /// Where this block is, if it is one of them.
    pub fn pointer(&self, block: BlockId) -> Option<&BlockPointer> {
        self.places.get(&block.get())
    }

    /// What is to be written; none where that was done, or was taken before.
    pub fn take_unwritten(&mut self) -> Option<PlacedBlocks> {
        self.unwritten.take()
    }

    /// They were not written, or nobody knows: they are stored with their group, elsewhere.
    pub fn withdraw(self) {
        let mut state = self.object.state.lock();
        let mut pending = state.pending.iter_mut();
        let Some(pending) = pending.find(|pending| pending.txg == self.txg) else {
            return;
        };
        for (block, pointer) in self.places {
            let is_this = |early: &Early| early.pointer == pointer;
            if pending.early.get(&block).is_some_and(is_this) {
                pending.early.remove(&block);
                pending.superseded.push(pointer);
            }
        }
    }
}
