//! Storing a transaction group: all its dirty object sets together.
//!
//! # Mechanism
//! The order is that of `docs/theory/txg_sync.md`. The trees of all changed objects of all sets are
//! stored level by level ([`sync_tree`](crate::sync_tree)). Their dnodes are put into the blocks of
//! the meta dnodes, and each object gets its new tree. Changes of space are added to the owners'
//! counts, which changes the accounting objects; they are stored. Then the trees of the meta dnodes
//! are, and at last the objset blocks.
//!
//! A set can be stored several times in one group, each time with the changes since. The sync
//! thread calls this once per pass, with the sets that
//! [`Txgs::dirty_sets`](crate::Txgs::dirty_sets) names.
//!
//! # Invariants
//! - Level by level: when a parent is written, every child pointer in it is final for this pass.
//! - An object's changes are dropped only when the stored dnode leads to all of them, in the same
//!   step.
//! - After an error nothing may be stored any more in this run of the pool: some objects have their
//!   new trees already, others do not, and the ledgers know some of the changes. The disk still has
//!   the group before.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tarn_block::{Block, BlockIo, BlockRole, BlockScope, Embedding, WritePhase, WriteRequest};
use tarn_cache::Hint;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::widen;
use tarn_ondisk::dnode::{Dnode, DnodeFlags, SLOT_BYTES};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::Accounting;
use tarn_ondisk::sealing::Sealing;
use tarn_ondisk::units::{Level, LogicalSize, ObjectId};
use tarn_probe::Operation;

use crate::block_ledger::SetLedger;
use crate::dirty::SpillContents;
use crate::error::SyncError;
use crate::head::{META_DNODE, account_index, is_special};
use crate::object::Object;
use crate::objset::ObjectSet;
use crate::owner::Usage;
use crate::owner_door::Owner;
use crate::sync_tree::{Storing, TreeJob, store_trees};
use crate::tx::SyncTx;

/// Stores what the group has changed in these object sets since they were last stored. Gives back
/// where their heads are, in the same order.
pub fn sync_objsets(
    sets: &mut [SetLedger<'_>],
    tx: &SyncTx,
    io: &BlockIo,
    operation: &Operation,
) -> Result<Vec<BlockPointer>, SyncError> {
    let phase = WritePhase {
        txg: tx.txg(),
        pass: tx.pass(),
    };
    let storing = Storing {
        io,
        phase,
        operation,
    };
    let usage = store_objects(sets, tx, &storing)?;
    for (index, usage) in usage.into_iter().enumerate() {
        let set = sets[index].set.clone();
        usage.apply(&set, tx, operation)?;
    }
    store_specials(sets, &storing, |id| account_index(id).is_some())?;
    store_specials(sets, &storing, |id| id == META_DNODE)?;
    let roots = store_heads(sets, &storing)?;
    for entry in sets.iter() {
        entry.set.dirty.lock().remove(&tx.txg());
        entry
            .set
            .env()
            .txgs
            .remove_dirty_set(tx.txg(), entry.set.id());
    }
    Ok(roots)
}

/// Drops the changes of an object set in this group: no pointer leads to it any more, and it is not
/// stored.
///
/// # Errors
/// The place of an indirect log write, or a cloned block, cannot be freed: the txg must not be
/// stored.
pub fn discard_changes(
    set: &Arc<ObjectSet>,
    tx: &SyncTx,
    io: &BlockIo,
    operation: &Operation,
) -> Result<(), SyncError> {
    let txg = tx.txg();
    let phase = WritePhase {
        txg,
        pass: tx.pass(),
    };
    let dirty = set.dirty.lock().remove(&txg);
    for object in dirty
        .into_iter()
        .flat_map(|dirty| dirty.objects.into_values())
    {
        let dropped = {
            let mut state = object.state.lock();
            let is_of_group = state.pending.front().is_some_and(|first| first.txg == txg);
            is_of_group.then(|| state.pending.pop_front()).flatten()
        };
        if let Some(dropped) = dropped {
            set.env().txgs.remove_dirty(dropped.dirty_bytes);
            let placed = dropped
                .placed_for_log
                .into_values()
                .map(|placed| placed.pointer);
            let shared = dropped.cloned.into_values();
            for pointer in dropped.superseded.into_iter().chain(placed).chain(shared) {
                io.free(&pointer, phase, operation)?;
            }
        }
    }
    let mut head = set.head.lock();
    head.changed_in.retain(|changed| *changed != txg);
    head.replayed.remove(&txg);
    drop(head);
    set.env().txgs.remove_dirty_set(txg, set.id());
    Ok(())
}

/// Stores all objects that have numbers, and puts their dnodes into the meta dnodes. Gives back
/// what changed for their owners.
fn store_objects(
    sets: &mut [SetLedger<'_>],
    tx: &SyncTx,
    storing: &Storing<'_>,
) -> Result<Vec<Usage>, SyncError> {
    let mut jobs = take_jobs(sets, storing, |id| !is_special(id));
    store_trees(&mut jobs, sets, storing)?;
    let mut usage: Vec<Usage> = sets.iter().map(|_| Usage::default()).collect();
    let mut stored: Vec<Vec<(ObjectId, bool)>> = sets.iter().map(|_| Vec::new()).collect();
    for job in &mut jobs {
        let set = &sets[job.set].set;
        let dnode = job.finish(accounting_flags(set));
        let (at, slots) = (job.object.id().get() * widen(SLOT_BYTES), job.shape.slots);
        if slots > 1 && !job.is_object_freed {
            set.has_large_dnodes.store(true, Ordering::Relaxed);
        }
        let bytes = match job.is_object_freed {
            true => vec![0; slots * SLOT_BYTES],
            false => dnode.to_slots(),
        };
        set.meta.write(tx, at, &bytes, storing.operation)?;
        count_owners(&mut usage[job.set], set, job, &dnode, storing.operation)?;
        stored[job.set].push((job.object.id(), job.is_object_freed));
        commit(job, dnode);
    }
    for (entry, stored) in sets.iter().zip(&stored) {
        // Before objects may leave the table with their jobs: see the invariants of object sets.
        entry
            .set
            .context
            .dnode_generation
            .fetch_add(1, Ordering::AcqRel);
        entry.set.numbers_stored(stored, storing.phase.txg);
    }
    Ok(usage)
}

/// Stores objects that are in the heads.
fn store_specials(
    sets: &mut [SetLedger<'_>],
    storing: &Storing<'_>,
    is_wanted: impl Fn(ObjectId) -> bool,
) -> Result<(), SyncError> {
    let mut jobs = take_jobs(sets, storing, is_wanted);
    store_trees(&mut jobs, sets, storing)?;
    for job in &mut jobs {
        let dnode = job.finish(DnodeFlags::default());
        let id = job.object.id();
        {
            let mut head = sets[job.set].set.head.lock();
            match id {
                META_DNODE => {
                    let blocks = &sets[job.set].set.context.dnode_blocks;
                    blocks.store(dnode.max_block.get() + 1, Ordering::Relaxed);
                    head.objset.meta_dnode = dnode.clone();
                }
                _ => put_account(&mut head.objset.accounting, id, &dnode),
            }
        }
        commit(job, dnode);
    }
    Ok(())
}

/// Takes the wanted objects with changes off the lists of their sets.
fn take_jobs(
    sets: &[SetLedger<'_>],
    storing: &Storing<'_>,
    is_wanted: impl Fn(ObjectId) -> bool,
) -> Vec<TreeJob> {
    let mut jobs = Vec::new();
    for (index, entry) in sets.iter().enumerate() {
        let mut taken = Vec::new();
        if let Some(dirty) = entry.set.dirty.lock().get_mut(&storing.phase.txg) {
            let (wanted, others) = std::mem::take(&mut dirty.objects)
                .into_iter()
                .partition(|(id, _)| is_wanted(*id));
            dirty.objects = others;
            taken.push(wanted);
        }
        let objects = taken.into_iter().flatten();
        jobs.extend(objects.filter_map(|(_, object): (_, Arc<Object>)| {
            TreeJob::new(index, object, storing.phase)
        }));
    }
    jobs
}

/// Hands an object its new tree, and drops the changes that are in it.
fn commit(job: &TreeJob, dnode: Dnode) {
    let object = &job.object;
    let (forgotten, dropped) = {
        let mut state = object.state.lock();
        let pending = state
            .pending
            .pop_front()
            .expect("a job is made from changes");
        let is_newest = match (&state.newest.spill, &job.shape.spill) {
            (SpillContents::Dirty(newest), SpillContents::Dirty(stored)) => {
                Arc::ptr_eq(newest, stored)
            }
            (SpillContents::Sealed(newest), SpillContents::Sealed(stored)) => {
                Arc::ptr_eq(newest, stored)
            }
            _ => false,
        };
        if is_newest {
            state.newest.spill = SpillContents::Stored;
            for later in &mut state.pending {
                if !later.is_spill_changed {
                    later.shape.spill = SpillContents::Stored;
                }
            }
        }
        state.stored = dnode;
        state.is_stored = true;
        state.generation += 1;
        (state.memo.take(), pending)
    };
    object.context.env.txgs.remove_dirty(job.dirty_bytes);
    drop((forgotten, dropped));
}

/// The flags of dnodes that are counted for their owners.
fn accounting_flags(set: &ObjectSet) -> DnodeFlags {
    if !counts_owners(set) {
        return DnodeFlags::default();
    }
    let flags = DnodeFlags::USED_ACCOUNTED;
    if set.policy().counts_objects {
        flags.with(DnodeFlags::OBJECT_ACCOUNTED)
    } else {
        flags
    }
}

fn counts_owners(set: &ObjectSet) -> bool {
    set.owner().is_some()
        && !set.is_sealed()
        && !matches!(set.head.lock().objset.accounting, Accounting::None)
}

/// Counts what storing an object changes for its owners.
fn count_owners(
    usage: &mut Usage,
    set: &ObjectSet,
    job: &TreeJob,
    new: &Dnode,
    operation: &Operation,
) -> Result<(), SyncError> {
    if !counts_owners(set) {
        return Ok(());
    }
    let mut policy = set.policy();
    // A head without room for projects counts none.
    policy.counts_projects &= matches!(
        set.head.lock().objset.accounting,
        Accounting::Projects { .. }
    );
    if job.was_stored
        && let Some(owner) = owner_of(set, (job.object.id(), &job.old), None, operation)?
    {
        usage.remove(&job.old, owner, &policy);
    }
    let spill = match &job.shape.spill {
        SpillContents::Dirty(buffer) => Some(buffer),
        SpillContents::Absent | SpillContents::Stored | SpillContents::Sealed(_) => None,
    };
    if !job.is_object_freed
        && let Some(owner) = owner_of(set, (job.object.id(), new), spill, operation)?
    {
        usage.add(new, owner, &policy);
    }
    Ok(())
}

/// The owner that a dnode names in its bonus or, where that is empty, in its spill block.
fn owner_of(
    set: &ObjectSet,
    (id, dnode): (ObjectId, &Dnode),
    spill: Option<&Arc<Buffer>>,
    operation: &Operation,
) -> Result<Option<Owner>, SyncError> {
    let Some(door) = set.owner() else {
        return Ok(None);
    };
    let is_elsewhere = dnode.bonus().is_empty() && dnode.bonus_type == ObjectType::SystemAttributes;
    let contents = match (is_elsewhere, spill, &dnode.spill) {
        (false, ..) => return Ok(door.owner(dnode.bonus_type, dnode.bonus())),
        (true, Some(buffer), _) => Block::from(buffer.clone()),
        (true, None, None) => return Ok(None),
        (true, None, Some(pointer)) => {
            // An owner that cannot be read is not counted; that costs an account, not a pool.
            let scope = BlockScope::of_spill(set.id(), id);
            let cache = &set.env().cache;
            match cache.read(pointer, scope, Hint::DEMAND, operation) {
                Ok(block) => block,
                Err(_) => return Ok(None),
            }
        }
    };
    Ok(door.owner(dnode.bonus_type, &contents))
}

fn put_account(accounting: &mut Accounting, id: ObjectId, dnode: &Dnode) {
    let index = account_index(id).expect("it is one of the three");
    let slot = match (accounting, index) {
        (Accounting::Users { user, .. } | Accounting::Projects { user, .. }, 0) => user,
        (Accounting::Users { group, .. } | Accounting::Projects { group, .. }, 1) => group,
        (Accounting::Projects { project, .. }, 2) => project,
        _ => unreachable!("only accounts the head has room for are made"),
    };
    **slot = dnode.clone();
}

/// Stores the heads of all sets.
fn store_heads(
    sets: &mut [SetLedger<'_>],
    storing: &Storing<'_>,
) -> Result<Vec<BlockPointer>, SyncError> {
    for entry in sets.iter() {
        entry.set.head.lock().take_replayed(storing.phase.txg);
    }
    let requests: Vec<_> = sets.iter().map(|entry| head_request(&entry.set)).collect();
    let kept: Vec<_> = requests
        .iter()
        .map(|request| (request.previous, request.data.clone()))
        .collect();
    for (entry, request) in sets.iter().zip(&requests) {
        if request.may_rewrite(storing.phase) {
            let cache = &entry.set.env().cache;
            let scope = BlockScope::of_head(entry.set.id());
            cache.keep_rewritten(&request.previous, scope, storing.operation);
        }
    }
    let roots = storing
        .io
        .write(requests, storing.phase, storing.operation)?;
    for ((entry, (previous, contents)), root) in sets.iter_mut().zip(kept).zip(&roots) {
        if !root.is_same_block(&previous) {
            if !previous.is_hole() {
                entry.killed(&previous);
            }
            entry.born(root);
        }
        let scope = BlockScope::of_head(entry.set.id());
        let cache = &entry.set.env().cache;
        cache.insert(root, scope, contents, storing.operation);
        let mut head = entry.set.head.lock();
        head.root = *root;
        head.changed_in.retain(|txg| *txg != storing.phase.txg);
    }
    Ok(roots)
}

fn head_request(set: &ObjectSet) -> WriteRequest {
    let blocks = set.policy().blocks;
    let head = set.head.lock();
    let bytes = head.objset.to_block();
    let meta = &head.objset.meta_dnode;
    let fill = meta
        .pointers
        .iter()
        .map(BlockPointer::fill)
        .fold(0, u64::saturating_add);
    let logical_size = LogicalSize::of(&bytes);
    let mut policy = blocks.for_block(
        ObjectType::Objset,
        Level::ZERO,
        BlockRole::Tree,
        logical_size.get(),
        fill,
    );
    policy.embedding = Embedding::Forbidden;
    let is_sealed = set.is_sealed();
    if is_sealed {
        policy = policy.sealed();
    }
    WriteRequest {
        data: Block::from_slice(&bytes),
        logical_size,
        policy,
        previous: head.root,
        given: None,
        // Its codes are inside.
        sealing: is_sealed.then(Sealing::default),
    }
}
