//! Finds the parts of an object set to send, in the order of the stream.
//!
//! # Mechanism
//! A walk over the blocks born after the base, and over all holes that may be new. Its visits
//! become things that records can describe: objects, free object numbers, blocks, holes. Objects
//! come before their blocks, all in rising order.
//!
//! # Invariants
//! - Pointers in the result are checked: their size is their object's block size.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tarn_cache::PoolCache;
use tarn_object::{Holes, META_DNODE, ObjectError, Step, Visit, Visitor, WalkOptions, walk_objset};
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::bookmark::{HEAD_LEVEL, SPILL_BLOCK, TraversalMark};
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::dnode::Dnode;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;

use super::SendError;

/// A part to send.
#[derive(Debug)]
pub(crate) enum Found {
    /// An object.
    Object {
        id: ObjectId,
        dnode: Box<Dnode>,
        /// The byte order of the block with its dnode.
        order: ByteOrder,
        /// Its spill block, where the base has it already.
        old_spill: Option<BlockPointer>,
    },
    /// Free object numbers.
    FreeNumbers { first: u64, count: u64 },
    /// A block of dnodes, for raw streams.
    Dnodes {
        pointer: BlockPointer,
        first: u64,
        count: u64,
    },
    /// Blocks `start` to `end` of an object are holes. An end of zero means to the largest block.
    Hole {
        object: ObjectId,
        start: u64,
        end: u64,
        block_size: u64,
    },
    /// A block of an object; number [`SPILL_BLOCK`] is its spill block.
    Data {
        object: ObjectId,
        object_type: ObjectType,
        block: u64,
        pointer: BlockPointer,
    },
}

/// The search.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    /// The object set.
    pub set: ObjectId,
    /// Its root block pointer.
    pub root: BlockPointer,
    /// The txg of the base: only later births count.
    pub born_after: Txg,
    /// The position to resume at: object and block.
    pub resume: Option<(u64, u64)>,
    /// Whether blocks of dnodes are wanted.
    pub is_raw: bool,
    /// Whether all blocks must be encrypted or authenticated.
    pub is_encrypted: bool,
}

/// The progress of a walk.
#[derive(Debug, Default)]
pub struct Walk {
    /// Number of visited blocks and objects.
    pub visited: AtomicU64,
    /// Set when the walk is to end.
    pub is_cancelled: AtomicBool,
}

/// Passes all parts to `take`, until it refuses more.
pub(crate) fn find(
    cache: &PoolCache,
    search: &Search,
    walk: &Walk,
    operation: &Operation,
    take: &mut dyn FnMut(Found) -> bool,
) -> Result<(), SendError> {
    let options = WalkOptions {
        born_after: search.born_after,
        resume: search.resume.map(|(object, block)| TraversalMark {
            objset: search.set,
            object: ObjectId::new(object),
            level: 0,
            block,
        }),
        holes: Holes::MaybeNew,
        ..WalkOptions::default()
    };
    let mut finder = Finder {
        search,
        walk,
        take,
        dnode_order: ByteOrder::Little,
        failure: None,
    };
    walk_objset(
        cache,
        search.set,
        &search.root,
        options,
        &mut finder,
        operation,
    );
    match finder.failure {
        None => Ok(()),
        Some(failure) => Err(failure),
    }
}

struct Finder<'a> {
    search: &'a Search,
    walk: &'a Walk,
    take: &'a mut dyn FnMut(Found) -> bool,
    dnode_order: ByteOrder,
    failure: Option<SendError>,
}

impl Finder<'_> {
    fn give(&mut self, found: Found) -> Step {
        match (self.take)(found) {
            true => Step::Continue,
            false => Step::Stop,
        }
    }

    fn fail(&mut self, failure: SendError) -> Step {
        self.failure.get_or_insert(failure);
        Step::Stop
    }

    fn count(&self, visits: u64) {
        self.walk.visited.fetch_add(visits, Ordering::Relaxed);
    }

    fn hole(&mut self, visit: &Visit<'_>, dnode: &Dnode) -> Step {
        let level = u32::try_from(visit.mark.level).unwrap_or(0);
        let block = visit.mark.block;
        // Beyond the largest block number there were never blocks, only holes.
        let span = 1u64.checked_shl(level * dnode.pointers_per_block_shift());
        let start = span.and_then(|span| span.checked_mul(block));
        let (Some(span), Some(start)) = (span, start) else {
            return Step::Continue;
        };
        if !dnode.object_type.is_metadata() && start > dnode.max_block.get() {
            return Step::Continue;
        }
        self.give(Found::Hole {
            object: visit.mark.object,
            start,
            end: start.checked_add(span).unwrap_or(0),
            block_size: dnode.data_block_size.get(),
        })
    }

    fn dnodes(&mut self, visit: &Visit<'_>) -> Step {
        self.dnode_order = visit.pointer.byte_order();
        if !self.search.is_raw {
            return Step::Continue;
        }
        let count = visit.pointer.logical_size().get() / 512;
        self.give(Found::Dnodes {
            pointer: *visit.pointer,
            first: visit.mark.block.saturating_mul(count),
            count,
        })
    }
}

impl Visitor for Finder<'_> {
    fn enter(&mut self, visit: &Visit<'_>) -> Step {
        let Some(dnode) = visit.dnode else {
            return Step::Continue;
        };
        self.count(1);
        if self.walk.is_cancelled.load(Ordering::Relaxed) {
            return Step::Stop;
        }
        let kind = visit.pointer.kind();
        let must_be_encrypted = self.search.is_encrypted && kind != PointerKind::Hole;
        if must_be_encrypted && !visit.pointer.uses_encryption() {
            return self.fail(SendError::NotEncrypted {
                object: visit.mark.object,
            });
        }
        match kind {
            PointerKind::Hole => self.hole(visit, dnode),
            PointerKind::Redacted => self.fail(SendError::Redacted),
            _ if visit.mark.object == META_DNODE && visit.mark.level == 0 => self.dnodes(visit),
            PointerKind::Embedded | PointerKind::Stored => Step::Continue,
        }
    }

    /// Visits data blocks, after checks of their pointers.
    fn leave(&mut self, visit: &Visit<'_>) -> Step {
        let (Some(dnode), mark) = (visit.dnode, visit.mark) else {
            return Step::Continue;
        };
        let is_data = mark.level == 0 && mark.object != META_DNODE && !visit.pointer.is_hole();
        if !is_data {
            return Step::Continue;
        }
        if mark.block == SPILL_BLOCK
            && let Err(what) = visit.pointer.check()
        {
            return self.fail(SendError::Object(ObjectError::Corrupt {
                set: self.search.set,
                object: mark.object,
                what,
            }));
        }
        self.give(Found::Data {
            object: mark.object,
            object_type: dnode.object_type,
            block: mark.block,
            pointer: *visit.pointer,
        })
    }

    fn object(&mut self, id: ObjectId, dnode: &Dnode) -> Step {
        if id == META_DNODE {
            return Step::Continue;
        }
        // The accounting objects, which the receiver has its own of.
        if id.get().cast_signed() <= 0 {
            return Step::Skip;
        }
        self.count(1);
        let is_old = |spill: &BlockPointer| {
            !spill.is_hole() && spill.logical_birth <= self.search.born_after
        };
        let old_spill = dnode.spill.filter(is_old);
        if old_spill.is_some_and(|spill| spill.check().is_err()) {
            return self.fail(SendError::BadSpill { object: id });
        }
        self.give(Found::Object {
            id,
            dnode: Box::new(dnode.clone()),
            order: self.dnode_order,
            old_spill,
        })
    }

    fn free_numbers(&mut self, first: ObjectId, count: u64) -> Step {
        self.count(count);
        // Those before the resumed object were sent before.
        let (first, end) = (first.get(), first.get().saturating_add(count));
        let start = first.max(self.search.resume.map_or(0, |(object, _)| object));
        if start >= end {
            return Step::Continue;
        }
        self.give(Found::FreeNumbers {
            first: start,
            count: end - start,
        })
    }

    fn unreadable(&mut self, visit: &Visit<'_>, why: &ObjectError) -> Step {
        debug_assert!(visit.mark.level >= HEAD_LEVEL);
        self.fail(SendError::Object(why.clone()))
    }
}
