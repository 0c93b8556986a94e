//! Deadlists: creating, appending, and splitting them when snapshots are destroyed.
//!
//! The stored form is in [`tarn_ondisk::deadlist`]; the meaning of the lists, and where their
//! blocks go when a snapshot is destroyed, in the theory of snapshots. Many lists of a deadlist are
//! empty, above all in datasets that never had a snapshot; with the feature `empty_bpobj` they are
//! one object that all share, and a list gets an object of its own with its first block.
//!
//! # Old pools
//! A pool of before version 26 has each deadlist in one list, and keeps those when it is upgraded:
//! that of the head of `$ORIGIN`, of which every new dataset is a clone, for good. Such a list can
//! be appended to, summed, and freed; nothing here splits it. A dataset created after one with such
//! a list gets the keys that it would have. In a pool that is still that old nothing can be created
//! ([`check_pool`]): older programs do not know the form that is stored here.

use crate::error::DatasetError;
use crate::namespace::View;
use crate::space_charge::SpaceChange;
use crate::stored::Reading;
use crate::task::{TaskContext, TaskRefusal};
use crate::writing::in_object;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{Entry, LIST_BLOCK_BYTES, NewObject, PointerList, Step};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bpobj::PointerListVersion;
use tarn_ondisk::dataset::Dataset;
use tarn_ondisk::deadlist::{DeadlistForm, DeadlistHead, entry_name, entry_txg};
use tarn_ondisk::declare::Stored;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{EMPTY_POINTER_LIST, FREE_POINTER_LIST, POOL_DIRECTORY};
use tarn_ondisk::units::{AllocatedSize, LogicalSize, ObjectId, PhysicalSize, Txg};

/// Makes a deadlist without lists.
#[doc(alias = "dsl_deadlist_alloc")]
pub(crate) fn create(context: &TaskContext<'_>) -> Result<ObjectId, DatasetError> {
    let new = NewObject::plain(ObjectType::DeadlistMap, 0)
        .with_bonus(ObjectType::DeadlistHeader, DeadlistHead::SIZE);
    let zap = NewZap::micro(context.mos());
    let made = ObjectZap::allocate(context.mos(), context.tx, new, zap, context.operation);
    Ok(made.map_err(in_object(ObjectId::ZERO))?.object().id())
}

/// Adds an empty list for blocks born after `txg`.
#[doc(alias = "dsl_deadlist_add_key")]
pub(crate) fn add_key(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
    txg: Txg,
) -> Result<(), DatasetError> {
    let list = empty_list(context)?;
    let value = ZapValue::word(list.get());
    context.writing().put(deadlist, &entry_name(txg), &value)
}

/// Makes a deadlist with the keys of another up to `before`, and nothing in its lists. `newest` is
/// the newest snapshot that has a key to come: one that is not divided has none to copy, and they
/// are found from there on.
#[doc(alias = "dsl_deadlist_clone")]
pub(crate) fn create_like(
    context: &TaskContext<'_>,
    other: ObjectId,
    before: Txg,
    newest: ObjectId,
) -> Result<ObjectId, DatasetError> {
    let reading = context.writing().reading();
    let keys = match is_divided(reading, other)? {
        true => lists(reading, other)?.into_keys().collect(),
        false => keys_of_chain(reading, newest)?,
    };
    let made = create(context)?;
    for txg in keys.into_iter().filter(|txg| *txg < before) {
        add_key(context, made, txg)?;
    }
    Ok(made)
}

/// The keys that the deadlist of what comes after a snapshot has: when each snapshot was taken that
/// comes before that one.
#[doc(alias = "dsl_deadlist_regenerate")]
fn keys_of_chain(reading: Reading<'_>, newest: ObjectId) -> Result<Vec<Txg>, DatasetError> {
    let mut keys: Vec<Txg> = Vec::new();
    let mut next = newest;
    while !next.is_zero() {
        let snapshot: Dataset = reading.bonus_of(next)?;
        let key = snapshot.previous_snapshot_txg;
        if keys.last().is_some_and(|after| key >= *after) {
            return Err(DatasetError::Inconsistent {
                object: next,
                why: "the snapshot before it is not older",
            });
        }
        keys.push(key);
        next = snapshot.previous_snapshot;
    }
    debug_assert!(
        keys.is_sorted_by(|after, before| after > before),
        "the keys of a chain descend"
    );
    Ok(keys)
}

/// Refuses a pool in which deadlists are not divided: it has no list of what is freed in the
/// background either, which version 26 brought with them.
pub(crate) fn check_pool(view: View<'_>) -> Result<(), TaskRefusal> {
    match view.mos().number(POOL_DIRECTORY, FREE_POINTER_LIST)? {
        Some(_) => Ok(()),
        None => Err(TaskRefusal::NotSupported {
            what: "making a dataset in a pool of before version 26".to_string(),
        }),
    }
}

/// Whether a deadlist has its blocks in lists by birth; those of before pool version 26 have not.
pub(crate) fn is_divided(reading: Reading<'_>, deadlist: ObjectId) -> Result<bool, DatasetError> {
    let form = DeadlistForm::of(reading.object(deadlist)?.object_type());
    Ok(form == Some(DeadlistForm::Map))
}

/// What those of its blocks add up to whose lists are for births after a txg of this range.
#[doc(alias = "dsl_deadlist_space_range")]
pub(crate) fn space_in(
    reading: Reading<'_>,
    deadlist: ObjectId,
    range: impl RangeBounds<Txg>,
) -> Result<SpaceChange, DatasetError> {
    if !deadlist.is_zero() && !is_divided(reading, deadlist)? {
        return space_in_list(reading, deadlist, range);
    }
    let shared = shared_empty_list(reading)?;
    let mut space = SpaceChange::default();
    for (_, list) in lists(reading, deadlist)?.range(range) {
        if Some(*list) != shared {
            space.add(space_of(reading, *list)?);
        }
    }
    Ok(space)
}

/// The same of one that is not divided, whose blocks are all looked at.
#[doc(alias = "bpobj_space_range")]
fn space_in_list(
    reading: Reading<'_>,
    list: ObjectId,
    range: impl RangeBounds<Txg>,
) -> Result<SpaceChange, DatasetError> {
    if (range.start_bound(), range.end_bound()) == (Bound::Unbounded, Bound::Unbounded) {
        return space_of(reading, list);
    }
    let io = reading.set.env().cache.io();
    let mut space = SpaceChange::default();
    let add = |entry: &Entry| {
        // A key is for what was born after it, and what was born in the next one is still its.
        let born_after = Txg::from(entry.pointer.birth().get().saturating_sub(1));
        if range.contains(&born_after) {
            space.add(SpaceChange::of_block(io, &entry.pointer));
        }
        Step::Continue
    };
    open(reading, list)?
        .for_each(reading.operation, add)
        .map_err(in_object(list))?;
    Ok(space)
}

/// What all of its blocks add up to.
pub(crate) fn totals(
    reading: Reading<'_>,
    deadlist: ObjectId,
) -> Result<SpaceChange, DatasetError> {
    let totals: DeadlistHead = reading.bonus_of(deadlist)?;
    Ok(SpaceChange {
        used: i128::from(totals.used.get()),
        compressed: i128::from(totals.compressed.get()),
        uncompressed: i128::from(totals.uncompressed.get()),
    })
}

/// What all blocks of a list add up to.
fn space_of(reading: Reading<'_>, list: ObjectId) -> Result<SpaceChange, DatasetError> {
    let head = open(reading, list)?.head().map_err(in_object(list))?;
    Ok(SpaceChange {
        used: i128::from(head.allocated.get()),
        compressed: i128::from(head.compressed.get()),
        uncompressed: i128::from(head.uncompressed.get()),
    })
}

/// Takes the lists for births after `from` out of a deadlist, and gives their blocks to another
/// list. Tells what they add up to.
#[doc(alias = "dsl_deadlist_move_bpobj")]
pub(crate) fn hand_over(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
    from: Txg,
    to: &PointerList,
) -> Result<SpaceChange, DatasetError> {
    let writing = context.writing();
    let shared = shared_empty_list(context.writing().reading())?;
    let mut space = SpaceChange::default();
    for (key, list) in lists(context.writing().reading(), deadlist)?.range(from..) {
        writing.remove(deadlist, &entry_name(*key))?;
        if Some(*list) == shared {
            release_empty_list(context, *list)?;
            continue;
        }
        space.add(space_of(writing.reading(), *list)?);
        to.append_list(context.tx, *list, context.operation)
            .map_err(in_object(to.id()))?;
    }
    change_totals(context, deadlist, space.negated())?;
    Ok(space)
}

/// Moves all blocks of a deadlist into another, each list into the one that is for its births
/// there, and frees it.
#[doc(alias = "dsl_deadlist_merge")]
pub(crate) fn absorb(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
    other: ObjectId,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    for (key, list) in lists(context.writing().reading(), other)? {
        pour(context, deadlist, key, list)?;
    }
    let space = totals(writing.reading(), other)?;
    change_totals(context, deadlist, space)?;
    // Its lists belong to another dataset now.
    writing.free(other)
}

/// Gives the blocks of the list for births after `txg` to the list before it. A deadlist without
/// that list stays as it is.
#[doc(alias = "dsl_deadlist_remove_key")]
pub(crate) fn remove_key(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
    txg: Txg,
) -> Result<(), DatasetError> {
    if !is_divided(context.writing().reading(), deadlist)? {
        return Ok(());
    }
    let Some(list) = lists(context.writing().reading(), deadlist)?
        .get(&txg)
        .copied()
    else {
        return Ok(());
    };
    context.writing().remove(deadlist, &entry_name(txg))?;
    pour(context, deadlist, txg, list)
}

/// Moves the blocks of a list, which were born after `born_after`, into the list of this deadlist
/// that is for them. The list is gone, or in use as a part of that one, afterwards.
fn pour(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
    born_after: Txg,
    list: ObjectId,
) -> Result<(), DatasetError> {
    let shared = shared_empty_list(context.writing().reading())?;
    if Some(list) == shared {
        return release_empty_list(context, list);
    }
    let lists = lists(context.writing().reading(), deadlist)?;
    let Some((key, into)) = lists.range(..=born_after).next_back() else {
        return Err(before_first_list(deadlist));
    };
    if Some(*into) == shared {
        let value = ZapValue::word(list.get());
        context.writing().put(deadlist, &entry_name(*key), &value)?;
        return release_empty_list(context, *into);
    }
    open(context.writing().reading(), *into)?
        .append_list(context.tx, list, context.operation)
        .map_err(in_object(*into))
}

pub(crate) fn change_totals(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
    change: SpaceChange,
) -> Result<(), DatasetError> {
    let mut is_wrong = false;
    context
        .writing()
        .change(deadlist, |head: &mut DeadlistHead| {
            let mut sum = |size: u64, change: i128| {
                let sum = u64::try_from(i128::from(size) + change);
                is_wrong |= sum.is_err();
                sum.unwrap_or(0)
            };
            head.used = AllocatedSize::from(sum(head.used.get(), change.used));
            head.compressed = PhysicalSize::from(sum(head.compressed.get(), change.compressed));
            head.uncompressed =
                LogicalSize::from(sum(head.uncompressed.get(), change.uncompressed));
        })?;
    match is_wrong {
        true => Err(DatasetError::Inconsistent {
            object: deadlist,
            why: "its lists have more than it counts",
        }),
        false => Ok(()),
    }
}

fn before_first_list(deadlist: ObjectId) -> DatasetError {
    DatasetError::Inconsistent {
        object: deadlist,
        why: "a block died that was born before its first list begins",
    }
}

/// The lists of a deadlist, by the txg after which their blocks were born.
pub(crate) fn lists(
    reading: Reading<'_>,
    deadlist: ObjectId,
) -> Result<BTreeMap<Txg, ObjectId>, DatasetError> {
    let entries = reading.entries(deadlist)?;
    let named = entries
        .into_iter()
        .filter_map(|(name, value)| Some((entry_txg(&name)?, ObjectId::new(value.as_word()?))));
    Ok(named.collect())
}

/// The list that empty lists share, counted once more; or a new one.
#[doc(alias = "bpobj_alloc_empty")]
fn empty_list(context: &TaskContext<'_>) -> Result<ObjectId, DatasetError> {
    if !context.features.is_enabled(Feature::EmptyBpobj) {
        return new_list(context);
    }
    let writing = context.writing();
    let shared = writing
        .reading()
        .number(POOL_DIRECTORY, EMPTY_POINTER_LIST)?;
    let id = match shared {
        Some(id) => ObjectId::new(id),
        None => {
            let id = new_list(context)?;
            let value = ZapValue::word(id.get());
            writing.put(POOL_DIRECTORY, EMPTY_POINTER_LIST, &value)?;
            id
        }
    };
    context.features.increment(Feature::EmptyBpobj)?;
    debug_assert!(
        context.features.is_active(Feature::EmptyBpobj),
        "while a deadlist has the shared empty list, its feature is active"
    );
    Ok(id)
}

/// One use less of the list that empty lists share.
#[doc(alias = "bpobj_decr_empty")]
fn release_empty_list(context: &TaskContext<'_>, id: ObjectId) -> Result<(), DatasetError> {
    context.features.decrement(Feature::EmptyBpobj)?;
    if !context.features.is_active(Feature::EmptyBpobj) {
        let writing = context.writing();
        writing.remove(POOL_DIRECTORY, EMPTY_POINTER_LIST)?;
        writing.free(id)?;
    }
    Ok(())
}

/// The list that empty lists share, if there is one.
fn shared_empty_list(reading: Reading<'_>) -> Result<Option<ObjectId>, DatasetError> {
    let shared = reading.number(POOL_DIRECTORY, EMPTY_POINTER_LIST)?;
    Ok(shared.map(ObjectId::new))
}

fn new_list(context: &TaskContext<'_>) -> Result<ObjectId, DatasetError> {
    // Which lists are parts of livelists is not known here; nor is it to OpenZFS.
    let version = match context.features.is_active(Feature::Livelist) {
        true => PointerListVersion::Freed,
        false => PointerListVersion::Nested,
    };
    let made = PointerList::create(
        context.mos(),
        context.tx,
        version,
        LIST_BLOCK_BYTES,
        context.operation,
    );
    Ok(made.map_err(in_object(ObjectId::ZERO))?.id())
}

pub(crate) fn open(reading: Reading<'_>, list: ObjectId) -> Result<PointerList, DatasetError> {
    PointerList::open(reading.set, list, reading.operation).map_err(in_object(list))
}

fn append(
    context: &TaskContext<'_>,
    list: ObjectId,
    entries: &[Entry],
) -> Result<(), DatasetError> {
    open(context.writing().reading(), list)?
        .append_all(context.tx, entries, context.operation)
        .map_err(in_object(list))
}

/// Adds blocks that died.
#[doc(alias = "dsl_deadlist_insert")]
pub(crate) fn insert(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
    dead: &[BlockPointer],
) -> Result<(), DatasetError> {
    let entry = |pointer: &BlockPointer| Entry {
        pointer: *pointer,
        is_freed: false,
    };
    let entries: Vec<Entry> = dead.iter().map(entry).collect();
    let reading = context.writing().reading();
    let form = DeadlistForm::of(reading.object(deadlist)?.object_type());
    match form {
        Some(DeadlistForm::List) => append(context, deadlist, &entries),
        _ => insert_entries(context, deadlist, &entries),
    }
}

/// Adds entries to the lists that are for their births, in this order. What is marked as freed
/// counts negative.
pub(crate) fn insert_entries(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
    entries: &[Entry],
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let lists = lists(writing.reading(), deadlist)?;
    let mut by_key: BTreeMap<Txg, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        let Some((key, _)) = lists.range(..entry.pointer.birth()).next_back() else {
            return Err(before_first_list(deadlist));
        };
        assert!(
            *key < entry.pointer.birth(),
            "a list has blocks that were born after its key"
        );
        by_key.entry(*key).or_default().push(*entry);
    }
    assert_eq!(
        by_key.values().map(Vec::len).sum::<usize>(),
        entries.len(),
        "each dead block goes into one list"
    );
    let shared = shared_empty_list(writing.reading())?;
    for (key, entries) in by_key {
        let mut list = lists[&key];
        if Some(list) == shared {
            list = new_list(context)?;
            release_empty_list(context, lists[&key])?;
            let value = ZapValue::word(list.get());
            writing.put(deadlist, &entry_name(key), &value)?;
        }
        append(context, list, &entries)?;
    }
    let mut space = SpaceChange::default();
    for entry in entries {
        let block = SpaceChange::of_block(context.io, &entry.pointer);
        space.add(match entry.is_freed {
            true => block.negated(),
            false => block,
        });
    }
    change_totals(context, deadlist, space)
}

/// Removes the list for births after `txg`, with all that is in it.
#[doc(alias = "dsl_deadlist_remove_entry")]
pub(crate) fn remove_list(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
    txg: Txg,
    list: ObjectId,
) -> Result<(), DatasetError> {
    let space = space_of(context.writing().reading(), list)?;
    context.writing().remove(deadlist, &entry_name(txg))?;
    free_list(context, list)?;
    change_totals(context, deadlist, space.negated())
}

/// Frees a deadlist, but not the blocks in it.
#[doc(alias = "dsl_deadlist_free")]
pub(crate) fn free(context: &TaskContext<'_>, id: ObjectId) -> Result<(), DatasetError> {
    if id.is_zero() {
        return Ok(());
    }
    let writing = context.writing();
    match DeadlistForm::of(writing.reading().object(id)?.object_type()) {
        Some(DeadlistForm::Map) => {
            for (_, list) in writing.reading().entries(id)? {
                if let Some(list) = list.as_word() {
                    free_list(context, ObjectId::new(list))?;
                }
            }
            writing.free(id)
        }
        Some(DeadlistForm::List) => free_list(context, id),
        None => Err(DatasetError::Inconsistent {
            object: id,
            why: "it is no deadlist",
        }),
    }
}

/// Frees a list of block pointers; of the empty one that many share, only a use.
fn free_list(context: &TaskContext<'_>, list: ObjectId) -> Result<(), DatasetError> {
    if shared_empty_list(context.writing().reading())? == Some(list) {
        return release_empty_list(context, list);
    }
    PointerList::free(context.mos(), context.tx, list, context.operation).map_err(in_object(list))
}
