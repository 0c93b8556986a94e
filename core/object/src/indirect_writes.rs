//! Indirect log writes (`WR_INDIRECT`): blocks that the intent log writes to their final places.
//!
//! # Mechanism
//! A log record can lead to a block of the object itself instead of carrying its bytes. The newest
//! contents of the block, if the open group has changed it, get their place
//! ([`Object::place_for_log`]), are written by the log, and noted in the group's changes. When the
//! group is stored and the block still has these contents, it is not written again: the tree gets
//! the pointer. A change of the block drops the note ([`Pending::supersede_placed`]): it is stored
//! as usual, and the place is freed with the txg, as it is where the block was truncated or freed.
//!
//! # Invariants
//! - Each place taken here becomes part of the tree with its txg, or is freed with it.
//! - A txg is stored only after its indirect writes are done or withdrawn: `zil` holds it until
//!   then.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tarn_block::{Block, BlockRole, Embedding, PlacedBlocks, WriteRequest};
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::widen;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, Level, LogicalSize, Txg};
use tarn_probe::Operation;

use crate::dirty::{Pending, PlacedForLog};
use crate::object::Object;
use crate::tx::Tx;

/// Blocks of an object that have their places before their group is stored.
#[derive(Debug)]
pub struct IndirectWrites {
    object: Arc<Object>,
    txg: Txg,
    /// By their numbers.
    places: BTreeMap<u64, BlockPointer>,
    /// What is to be written; none where that was done for an earlier record.
    unwritten: Option<PlacedBlocks>,
}

impl Object {
    /// Gives blocks of the open group their places. `None` when it has not changed all of them, or
    /// they are better stored with the group. Until they are written or
    /// [withdrawn](IndirectWrites::withdraw) the group must not be stored.
    pub fn place_for_log(
        self: &Arc<Self>,
        tx: &Tx,
        blocks: Range<u64>,
        operation: &Operation,
    ) -> Option<IndirectWrites> {
        let txg = tx.txg();
        let mut places = BTreeMap::new();
        let mut buffers: Vec<(u64, Arc<Buffer>)> = Vec::new();
        let mut settled = Vec::new();
        {
            let state = self.alive().ok()?;
            let pending = state.pending.back().filter(|pending| pending.txg == txg)?;
            for block in blocks {
                let buffer = pending.blocks.get(&block)?;
                match pending.placed_for_log.get(&block) {
                    Some(placed) if Arc::ptr_eq(&placed.buffer, buffer) => {
                        places.insert(block, placed.pointer);
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
                let request = self.log_data_request(buffer)?;
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
            let placed = io.place_log_data(requests, txg, operation)?;
            let pointers = placed.pointers.iter().copied();
            let fresh: Vec<_> = buffers.into_iter().zip(pointers).collect();
            places.extend(fresh.iter().map(|((block, _), pointer)| (*block, *pointer)));
            self.note_placed(txg, fresh);
            unwritten = Some(placed);
        }
        Some(IndirectWrites {
            object: self.clone(),
            txg,
            places,
            unwritten,
        })
    }

    /// What was placed is part of the group, whatever became of the blocks meanwhile.
    fn note_placed(&self, txg: Txg, placed: Vec<((u64, Arc<Buffer>), BlockPointer)>) {
        let mut state = self.state.lock();
        // The next group may have begun.
        let mut pending = state.pending.iter_mut();
        let pending = pending.find(|pending| pending.txg == txg);
        let pending = pending.expect("a group's changes are there as long as its transactions");
        assert!(
            placed.iter().all(|(_, pointer)| pointer.birth() == txg),
            "a place is part of its txg"
        );
        let bytes = placed.iter().map(|((_, buffer), _)| widen(buffer.len()));
        (self.context.env.txgs).note_written_early(bytes.sum());
        for ((block, buffer), pointer) in placed {
            let before = pending
                .placed_for_log
                .insert(block, PlacedForLog { buffer, pointer });
            pending
                .superseded
                .extend(before.map(|placed| placed.pointer));
        }
    }

    /// How a block of this object is written indirectly; none if it is not.
    fn log_data_request(&self, buffer: &Arc<Buffer>) -> Option<WriteRequest> {
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

impl IndirectWrites {
    /// Where this block is, if it is one of them.
    pub fn pointer(&self, block: BlockId) -> Option<&BlockPointer> {
        self.places.get(&block.get())
    }

    /// What is to be written; none where that was done, or was taken before.
    pub fn take_unwritten(&mut self) -> Option<PlacedBlocks> {
        self.unwritten.take()
    }

    /// The blocks were perhaps not written: they are stored with their txg, elsewhere.
    pub fn withdraw(self) {
        let mut state = self.object.state.lock();
        let mut pending = state.pending.iter_mut();
        let Some(pending) = pending.find(|pending| pending.txg == self.txg) else {
            return;
        };
        for (block, pointer) in self.places {
            let is_this = |placed: &PlacedForLog| placed.pointer == pointer;
            if pending.placed_for_log.get(&block).is_some_and(is_this) {
                pending.placed_for_log.remove(&block);
                pending.superseded.push(pointer);
            }
        }
    }
}
