//! Visits every block of a pool.
//!
//! # Mechanism
//! The MOS comes first, then each dataset by its object number. A walk of a snapshot skips blocks
//! born at or before the snapshot before it, which were visited there; so every block is visited
//! once. A head has its intent log besides, whose chain begins in the header of its object set.
//!
//! Blocks that wait to be freed are in no object set any more, and are visited apart: deferred
//! frees, frees of destroyed snapshots, trees of destroyed datasets, and livelists of destroyed
//! clones.

use super::error::InspectError;
use super::open::Inspection;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use tarn_object::{
    BlockTrees, MOS_ID, ObjectError, PointerList, Step, Visit, Visitor, WalkOptions, read_head,
    walk_objset,
};
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::bookmark::{HEAD_LEVEL, INTENT_LOG_LEVEL, TraversalMark};
use tarn_ondisk::dataset::Dataset;
use tarn_ondisk::dnode::Dnode;
use tarn_ondisk::intent_log::{LoggedChange, OBJECT_SET_WORD};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_zil::chain::{Found, place_in_chain, walk};

/// The pool version since which blocks of destroyed snapshots are freed from a list.
#[doc(alias = "SPA_VERSION_DEADLISTS")]
const VERSION_DEADLISTS: u64 = 26;

/// What references a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// An object set.
    ObjectSet,
    /// An intent log.
    IntentLog,
    /// A list of blocks to be freed.
    Deferred,
}

/// A visited block: neither a hole nor redacted.
#[derive(Debug)]
pub struct FoundBlock<'a> {
    /// What references it.
    pub reference: Reference,
    /// Its object set, object, level and number.
    pub mark: TraversalMark,
    /// Its pointer.
    pub pointer: &'a BlockPointer,
    /// The dnode of its object; none for objset blocks, intent logs and blocks to be freed.
    pub dnode: Option<&'a Dnode>,
}

impl FoundBlock<'_> {
    /// The block's offset in its object, as `zdb` shows it.
    #[doc(alias = "blkid2offset")]
    pub fn offset(&self) -> u64 {
        let block = self.mark.block;
        match (self.dnode, u32::try_from(self.mark.level)) {
            (Some(dnode), Ok(level)) => {
                let shift = level.saturating_mul(dnode.pointers_per_block_shift());
                let first = block.checked_shl(shift).unwrap_or(u64::MAX);
                first.saturating_mul(dnode.data_block_size.get())
            }
            _ if self.mark.object.is_zero() => block,
            _ => block.saturating_mul(self.pointer.logical_size().get()),
        }
    }
}

/// Receives the blocks of a walk.
pub trait BlockVisitor {
    /// A block was found.
    fn block(&mut self, found: &FoundBlock<'_>);

    /// The blocks below this mark cannot be read; the walk goes on after them.
    fn unreadable(&mut self, mark: &TraversalMark, why: &ObjectError);
}

impl Inspection {
    /// Visits all blocks in use: of the MOS, of all datasets, of intent logs.
    #[doc(alias = "traverse_pool")]
    pub fn visit_used(&self, visitor: &mut dyn BlockVisitor) -> Result<(), InspectError> {
        let root = self.pool().uberblock().root;
        self.visit_set(MOS_ID, &root, Txg::ZERO, visitor);
        let (mos, operation) = (self.pool().mos(), self.operation());
        let in_mos = |object| move |cause| InspectError::Object { object, cause };
        let mut last = ObjectId::ZERO;
        while let Some(id) = mos.next_object(last, operation).map_err(in_mos(last))? {
            last = id;
            let object = mos.object(id, operation).map_err(in_mos(id))?;
            if object.info().bonus_type == ObjectType::DslDataset {
                let dataset: Dataset = self.directory().bonus(id)?;
                if !dataset.is_snapshot() {
                    self.visit_intent_log(id, &dataset.root, visitor);
                }
                self.visit_set(id, &dataset.root, dataset.previous_snapshot_txg, visitor);
            }
        }
        Ok(())
    }

    /// Visits the blocks of one object set that were born after a txg.
    pub fn visit_set(
        &self,
        set: ObjectId,
        root: &BlockPointer,
        born_after: Txg,
        visitor: &mut dyn BlockVisitor,
    ) {
        let options = WalkOptions {
            born_after,
            ..WalkOptions::default()
        };
        let (cache, operation) = (self.pool().cache(), self.operation());
        let mut adapter = Adapter {
            visitor,
            reference: Reference::ObjectSet,
        };
        walk_objset(cache, set, root, options, &mut adapter, operation);
    }

    /// Visits the blocks of the intent log of an object set, and the blocks that its records name.
    ///
    /// The chain of an unclaimed log ends at the first block that does not verify or was born after
    /// the stored txg, or after the checkpoint whose state is opened; that of a claimed one ends
    /// where the claim did.
    #[doc(alias = "traverse_zil")]
    pub fn visit_intent_log(
        &self,
        set: ObjectId,
        root: &BlockPointer,
        visitor: &mut dyn BlockVisitor,
    ) {
        if root.is_hole() {
            return;
        }
        // The walk reports an unreadable objset block.
        let Ok(head) = read_head(self.pool().cache(), set, root, self.operation()) else {
            return;
        };
        let log: &IntentLogHead = &head.intent_log;
        let is_claimed = !log.claim_txg.is_zero();
        let uberblock = self.pool().uberblock();
        let stored_until = match uberblock.is_checkpoint() {
            true => uberblock.checkpoint_txg,
            false => uberblock.txg,
        };
        let mut seen = BTreeSet::new();
        let mut set_of_log = set;
        let mut look = |found: Found<'_>| -> ControlFlow<()> {
            let (pointer, mark) = match &found {
                Found::Block(pointer) => {
                    if !is_claimed && pointer.logical_birth > stored_until {
                        return ControlFlow::Break(());
                    }
                    set_of_log = ObjectId::new(pointer.checksum_words.0[OBJECT_SET_WORD]);
                    (*pointer, mark_of_block(set, place_in_chain(pointer)))
                }
                Found::Written(_) => return ControlFlow::Continue(()),
                Found::Record(record) => match &record.change {
                    LoggedChange::Write(write)
                        if is_claimed
                            && !write.pointer.is_hole()
                            && write.pointer.logical_birth >= log.claim_txg =>
                    {
                        let size = write.pointer.logical_size().get().max(1);
                        let mark = TraversalMark {
                            objset: set_of_log,
                            object: write.object,
                            level: INTENT_LOG_LEVEL,
                            block: write.offset / size,
                        };
                        (&write.pointer, mark)
                    }
                    _ => return ControlFlow::Continue(()),
                },
            };
            if seen.insert(first_place(pointer)) {
                visitor.block(&FoundBlock {
                    reference: Reference::IntentLog,
                    mark,
                    pointer,
                    dnode: None,
                });
            }
            ControlFlow::Continue(())
        };
        walk(self.pool().io(), log, self.operation(), &mut look);
    }

    /// Visits the blocks that records of claimed intent logs clone (`TX_CLONE_RANGE`). `zdb` does
    /// not count them.
    pub fn visit_logged_clones(&self, visitor: &mut dyn BlockVisitor) -> Result<(), InspectError> {
        for (set, head) in self.heads()? {
            let Ok(head) = read_head(self.pool().cache(), set, &head.root, self.operation()) else {
                continue;
            };
            let log = &head.intent_log;
            if log.claim_txg.is_zero() {
                continue;
            }
            let mut look = |found: Found<'_>| -> ControlFlow<()> {
                if let Found::Record(record) = &found
                    && let LoggedChange::CloneRange { pointers, .. } = &record.change
                {
                    for pointer in pointers.iter().filter(|pointer| !pointer.is_hole()) {
                        visitor.block(&FoundBlock {
                            reference: Reference::IntentLog,
                            mark: mark_of_block(set, 0),
                            pointer,
                            dnode: None,
                        });
                    }
                }
                ControlFlow::Continue(())
            };
            walk(self.pool().io(), log, self.operation(), &mut look);
        }
        Ok(())
    }

    /// The heads and snapshots of all datasets that were ever stored.
    fn heads(&self) -> Result<Vec<(ObjectId, Dataset)>, InspectError> {
        let (mos, operation) = (self.pool().mos(), self.operation());
        let in_mos = |object| move |cause| InspectError::Object { object, cause };
        let (mut heads, mut last) = (Vec::new(), ObjectId::ZERO);
        while let Some(id) = mos.next_object(last, operation).map_err(in_mos(last))? {
            last = id;
            let object = mos.object(id, operation).map_err(in_mos(id))?;
            if object.info().bonus_type == ObjectType::DslDataset {
                let dataset: Dataset = self.directory().bonus(id)?;
                if !dataset.is_snapshot() && !dataset.root.is_hole() {
                    heads.push((id, dataset));
                }
            }
        }
        Ok(heads)
    }

    /// Visits all blocks that wait to be freed.
    pub fn visit_deferred(&self, visitor: &mut dyn BlockVisitor) -> Result<(), InspectError> {
        let directory = self.directory();
        let lists = match self.pool().uberblock().version {
            0..VERSION_DEADLISTS => &[name::SYNC_POINTER_LIST][..],
            _ => &[name::SYNC_POINTER_LIST, name::FREE_POINTER_LIST],
        };
        for list in lists {
            if let Some(id) = directory.find(list)? {
                self.each_in_list(id, &mut |pointer, _| deferred(visitor, pointer))?;
            }
        }
        if let Some(id) = directory.find(name::BLOCK_TREE)? {
            let in_mos = |cause| InspectError::Object { object: id, cause };
            let trees =
                BlockTrees::open(self.pool().mos(), id, self.operation()).map_err(in_mos)?;
            let mut adapter = Adapter {
                visitor,
                reference: Reference::Deferred,
            };
            trees
                .for_each(self.operation(), &mut adapter)
                .map_err(in_mos)?;
        }
        if let Some(clones) = directory.find(name::DELETED_CLONES)? {
            for (_, value) in directory.entries(clones)? {
                let livelist = value.as_word().unwrap_or(0);
                self.visit_livelist(ObjectId::new(livelist), visitor)?;
            }
        }
        Ok(())
    }

    /// The blocks that a livelist has allocated and not freed.
    #[doc(alias = "dsl_process_sub_livelist")]
    fn visit_livelist(
        &self,
        livelist: ObjectId,
        visitor: &mut dyn BlockVisitor,
    ) -> Result<(), InspectError> {
        for (_, value) in self.directory().entries(livelist)? {
            let mut kept: BTreeMap<(Option<Dva>, Txg), (BlockPointer, i64)> = BTreeMap::new();
            let list = ObjectId::new(value.as_word().unwrap_or(0));
            self.each_in_list(list, &mut |pointer, is_freed| {
                let key = (first_place(pointer), pointer.birth());
                let (_, count) = kept.entry(key).or_insert((*pointer, 0));
                *count += if is_freed { -1 } else { 1 };
            })?;
            // A cloned block counts once per clone.
            for (pointer, count) in kept.values() {
                (0..*count).for_each(|_| deferred(visitor, pointer));
            }
        }
        Ok(())
    }

    /// Passes all pointers of a list, each with whether it is marked as freed.
    pub fn each_in_list(
        &self,
        list: ObjectId,
        each: &mut dyn FnMut(&BlockPointer, bool),
    ) -> Result<(), InspectError> {
        let in_mos = |cause| InspectError::Object {
            object: list,
            cause,
        };
        let mos = self.pool().mos();
        let opened = PointerList::open(mos, list, self.operation()).map_err(in_mos)?;
        opened
            .for_each(self.operation(), |entry| {
                each(&entry.pointer, entry.is_freed);
                Step::Continue
            })
            .map_err(in_mos)
    }
}

fn deferred(visitor: &mut dyn BlockVisitor, pointer: &BlockPointer) {
    visitor.block(&FoundBlock {
        reference: Reference::Deferred,
        mark: TraversalMark::default(),
        pointer,
        dnode: None,
    });
}

/// The mark of a block of an intent log.
fn mark_of_block(set: ObjectId, place: u64) -> TraversalMark {
    TraversalMark {
        objset: set,
        object: ObjectId::ZERO,
        level: INTENT_LOG_LEVEL,
        block: place,
    }
}

/// The first DVA, which identifies a block.
fn first_place(pointer: &BlockPointer) -> Option<Dva> {
    pointer.dvas().next()
}

/// Passes the blocks of a walk on to the visitor.
struct Adapter<'a> {
    visitor: &'a mut dyn BlockVisitor,
    reference: Reference,
}

impl Visitor for Adapter<'_> {
    fn enter(&mut self, visit: &Visit<'_>) -> Step {
        if visit.pointer.is_hole() || visit.pointer.is_redacted() {
            return Step::Continue;
        }
        let is_head = visit.mark.level == HEAD_LEVEL;
        self.visitor.block(&FoundBlock {
            reference: self.reference,
            mark: visit.mark,
            pointer: visit.pointer,
            dnode: visit.dnode.filter(|_| !is_head),
        });
        Step::Continue
    }

    fn unreadable(&mut self, visit: &Visit<'_>, why: &ObjectError) -> Step {
        self.visitor.unreadable(&visit.mark, why);
        Step::Continue
    }
}
