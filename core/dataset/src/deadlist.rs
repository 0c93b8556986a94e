//! Deadlists: making them and adding to them.
//!
//! The stored form is in [`tarn_ondisk::deadlist`]. Many lists of a deadlist are empty, above all in datasets that never
//! had a snapshot; with the feature `empty_bpobj` they are one object that all share, and a list gets an object
//! of its own with its first block.

use crate::error::DatasetError;
use crate::task::TaskContext;
use crate::writing::in_object;
use std::collections::BTreeMap;
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{Entry, NewObject, PointerList};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bpobj::PointerListVersion;
use tarn_ondisk::deadlist::{DeadlistForm, DeadlistHead, entry_name, entry_txg};
use tarn_ondisk::declare::Stored;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{EMPTY_POINTER_LIST, POOL_DIRECTORY};
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

/// Makes a deadlist with the keys of another up to `before`, and nothing in its lists.
#[doc(alias = "dsl_deadlist_clone")]
pub(crate) fn create_like(
    context: &TaskContext<'_>,
    other: ObjectId,
    before: Txg,
) -> Result<ObjectId, DatasetError> {
    let made = create(context)?;
    for txg in lists(context, other)?.into_keys() {
        if txg < before {
            add_key(context, made, txg)?;
        }
    }
    Ok(made)
}

/// The lists of a deadlist, by the txg after which their blocks were born.
fn lists(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
) -> Result<BTreeMap<Txg, ObjectId>, DatasetError> {
    let entries = context.writing().reading().entries(deadlist)?;
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
fn shared_empty_list(context: &TaskContext<'_>) -> Result<Option<ObjectId>, DatasetError> {
    let reading = context.writing().reading();
    let shared = reading.number(POOL_DIRECTORY, EMPTY_POINTER_LIST)?;
    Ok(shared.map(ObjectId::new))
}

fn new_list(context: &TaskContext<'_>) -> Result<ObjectId, DatasetError> {
    let version = PointerListVersion::Nested;
    let made = PointerList::create(context.mos(), context.tx, version, context.operation);
    Ok(made.map_err(in_object(ObjectId::ZERO))?.id())
}

fn append(
    context: &TaskContext<'_>,
    list: ObjectId,
    pointers: &[BlockPointer],
) -> Result<(), DatasetError> {
    let opened = PointerList::open(context.mos(), list, context.operation);
    let opened = opened.map_err(in_object(list))?;
    let entries: Vec<Entry> = pointers
        .iter()
        .map(|pointer| Entry {
            pointer: *pointer,
            is_freed: false,
        })
        .collect();
    opened
        .append_all(context.tx, &entries, context.operation)
        .map_err(in_object(list))
}

/// Adds blocks that died.
#[doc(alias = "dsl_deadlist_insert")]
pub(crate) fn insert(
    context: &TaskContext<'_>,
    deadlist: ObjectId,
    dead: &[BlockPointer],
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let object = writing.reading().object(deadlist)?;
    if DeadlistForm::of(object.object_type()) == Some(DeadlistForm::List) {
        return append(context, deadlist, dead);
    }
    let lists = lists(context, deadlist)?;
    let mut by_key: BTreeMap<Txg, Vec<BlockPointer>> = BTreeMap::new();
    for pointer in dead {
        let key = lists.range(..pointer.birth()).next_back();
        let Some((key, _)) = key else {
            return Err(DatasetError::Inconsistent {
                object: deadlist,
                why: "a block died that was born before its first list begins",
            });
        };
        by_key.entry(*key).or_default().push(*pointer);
    }
    let shared = shared_empty_list(context)?;
    for (key, pointers) in by_key {
        let mut list = lists[&key];
        if Some(list) == shared {
            list = new_list(context)?;
            release_empty_list(context, lists[&key])?;
            let value = ZapValue::word(list.get());
            writing.put(deadlist, &entry_name(key), &value)?;
        }
        append(context, list, &pointers)?;
    }
    let mut space = (0, 0, 0);
    for pointer in dead {
        space.0 += context.io.deflated_size(pointer).get();
        space.1 += pointer.physical_size().get();
        space.2 += pointer.uncompressed_size();
    }
    writing.change(deadlist, |head: &mut DeadlistHead| {
        head.used += AllocatedSize::from(space.0);
        head.compressed += PhysicalSize::from(space.1);
        head.uncompressed += LogicalSize::from(space.2);
    })?;
    Ok(())
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
    if shared_empty_list(context)? == Some(list) {
        return release_empty_list(context, list);
    }
    PointerList::free(context.mos(), context.tx, list, context.operation).map_err(in_object(list))
}
