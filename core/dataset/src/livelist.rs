//! Livelists: the blocks that a clone has written since it was created, so that it can be destroyed
//! without a walk (feature `livelist`).
//!
//! # Problem
//! A clone that shares most of its blocks with its origin has few of its own, scattered over its
//! tree. Destroying it by a walk reads the whole tree to find them.
//!
//! # Mechanism
//! From its first txg on, a clone's ledger appends each block that is born, and each of them that
//! dies, to a list that its directory names. The list has the form of a deadlist: parts by birth,
//! so that a block's birth and death are in the same part. A full part is followed by another from
//! the next txg on ([`Recorder`]); one of which half has died is rewritten without pairs of birth
//! and death ([`condense`]), and joins the one before it if both are small.
//!
//! The list is dropped where it is not useful, or not complete, any more: when the clone gets a
//! snapshot, is promoted, rolled back or received into, when its list contradicts it, and when less
//! than three quarters of it are its origin's.
//!
//! A clone that is destroyed with its list hands it to the pool ([`hand_over`]); the blocks left on
//! it are freed in the background ([`free_in_background`](crate::free_in_background)).
//!
//! # Invariants
//! - A clone with a livelist has no snapshots. So a block that was born after its origin belongs to
//!   no other dataset.
//! - A list that was not handed over is never the only way to find a block.
//! - A block is freed by a list only where the list's sums agree with the space charged to the
//!   clone.

use crate::deadlist;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::space_charge::SpaceChange;
use crate::stored::{Reading, is_zap};
use crate::task::TaskContext;
use crate::writing::in_object;
use tarn_object::zap::ZapValue;
use tarn_object::{Entry, Step};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::dataset_dir::{DatasetDirectory, LIVELIST};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{DELETED_CLONES, POOL_DIRECTORY};
use tarn_ondisk::units::{AllocatedSize, ObjectId, Txg};

/// How much of a clone must be its origin's, in percent, for a livelist to be worth it: below that
/// a walk finds more to free in each block it reads than the list saves.
#[doc(alias = "zfs_livelist_min_percent_shared")]
const SHARED_PERCENT_MIN: u64 = 75;

/// A part that is smaller is not written anew. A guess: a few blocks of pointers.
const CONDENSED_MIN: u64 = 4096;

/// How many entries are gathered before they are stored.
const STORED_TOGETHER: usize = 16_384;

/// Has a new clone keep a livelist, where the pool may have them.
pub(crate) fn begin(context: &TaskContext<'_>, directory: ObjectId) -> Result<(), DatasetError> {
    if !context.features.is_enabled(Feature::Livelist) {
        return Ok(());
    }
    let writing = context.writing();
    writing.extend(directory, context.features)?;
    let list = deadlist::create(context)?;
    writing.put(directory, LIVELIST, &ZapValue::word(list.get()))?;
    context.features.increment(Feature::Livelist)?;
    debug_assert!(
        context.features.is_active(Feature::Livelist),
        "while a clone has a livelist, its feature is active"
    );
    Ok(())
}

/// The livelist of a directory's head.
fn of(reading: Reading<'_>, directory: ObjectId) -> Result<Option<ObjectId>, DatasetError> {
    if !is_zap(&*reading.object(directory)?) {
        return Ok(None);
    }
    let list = reading.number(directory, LIVELIST)?;
    Ok(list.map(ObjectId::new))
}

/// Gives up the livelist of a directory's head, if it has one.
#[doc(alias = "dsl_dir_remove_livelist")]
pub(crate) fn remove(context: &TaskContext<'_>, directory: ObjectId) -> Result<(), DatasetError> {
    let Some(list) = of(context.writing().reading(), directory)? else {
        return Ok(());
    };
    context.writing().remove(directory, LIVELIST)?;
    deadlist::free(context, list)?;
    context.features.decrement(Feature::Livelist)
}

/// Keeps a clone's livelist while one pass of a group is stored.
pub(crate) struct Recorder {
    directory: ObjectId,
    list: Option<ObjectId>,
    entries: Vec<Entry>,
    /// There is a part for blocks of this group.
    has_part: bool,
}

impl Recorder {
    /// For the head of a directory.
    pub(crate) fn open(
        context: &TaskContext<'_>,
        directory: ObjectId,
    ) -> Result<Recorder, DatasetError> {
        Ok(Recorder {
            directory,
            list: of(context.writing().reading(), directory)?,
            entries: Vec::new(),
            // Blocks of the passes before are in one that is there.
            has_part: context.tx.pass() > 1,
        })
    }

    /// A block that was born, or one of the clone's own that died. What is stored in its pointer
    /// takes no space, and is not noted.
    pub(crate) fn note(
        &mut self,
        context: &TaskContext<'_>,
        pointer: &BlockPointer,
        is_freed: bool,
    ) -> Result<(), DatasetError> {
        if self.list.is_none() || pointer.is_embedded() || pointer.is_hole() {
            return Ok(());
        }
        assert!(
            self.entries.len() < STORED_TOGETHER,
            "entries are stored as soon as there are enough"
        );
        let pointer = *pointer;
        self.entries.push(Entry { pointer, is_freed });
        match self.entries.len() >= STORED_TOGETHER {
            true => self.store(context),
            false => Ok(()),
        }
    }

    /// Stores what was noted so far.
    #[doc(alias = "dsl_flush_pending_livelist")]
    fn store(&mut self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        let entries = std::mem::take(&mut self.entries);
        let Some(list) = self.list.filter(|_| !entries.is_empty()) else {
            return Ok(());
        };
        let stored = self
            .make_part(context, list)
            .and_then(|()| deadlist::insert_entries(context, list, &entries));
        match stored {
            // It has not what it should: better none.
            Err(DatasetError::Inconsistent { .. }) => self.give_up(context),
            other => other,
        }
    }

    fn give_up(&mut self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        self.list = None;
        remove(context, self.directory)
    }

    /// Begins a part for the blocks of this group, if there is none yet or the newest is full.
    fn make_part(&mut self, context: &TaskContext<'_>, list: ObjectId) -> Result<(), DatasetError> {
        let reading = context.writing().reading();
        let parts = deadlist::lists(reading, list)?;
        let is_needed = match parts.last_key_value() {
            None => true,
            Some(_) if self.has_part => false,
            Some((_, newest)) => {
                let (count, freed) = counts(reading, *newest)?;
                count.saturating_sub(freed) > context.namespace.livelist_blocks_max()
            }
        };
        self.has_part = true;
        match is_needed {
            true => deadlist::add_key(context, list, before(context.tx.txg())),
            false => Ok(()),
        }
    }

    /// All is noted. The head refers to so much now, and its directory is charged.
    pub(crate) fn close(
        mut self,
        context: &TaskContext<'_>,
        referenced: AllocatedSize,
    ) -> Result<(), DatasetError> {
        self.store(context)?;
        assert!(
            self.entries.is_empty(),
            "no entry is left behind when the head is stored"
        );
        let Some(list) = self.list else {
            return Ok(());
        };
        let reading = context.writing().reading();
        let stored: DatasetDirectory = reading.bonus_of(self.directory)?;
        if !is_worth_it(stored.used_by.head.get(), referenced.get()) {
            return self.give_up(context);
        }
        // Later passes add little.
        if context.tx.pass() > 1 {
            return Ok(());
        }
        match condense(context, list) {
            Ok(true) => Ok(()),
            Ok(false) | Err(DatasetError::Inconsistent { .. }) => self.give_up(context),
            Err(cause) => Err(cause),
        }
    }
}

/// Whether a clone that refers to so many bytes, and has so many of them to itself, shares enough
/// with its origin.
#[doc(alias = "dsl_livelist_should_disable")]
fn is_worth_it(own: u64, referenced: u64) -> bool {
    let shared = referenced.saturating_sub(own);
    assert!(shared <= referenced, "what is shared is referenced");
    let percent = u128::from(shared) * 100 / u128::from(referenced.max(1));
    referenced == 0 || percent > u128::from(SHARED_PERCENT_MIN)
}

fn before(txg: Txg) -> Txg {
    Txg::from(txg.get().saturating_sub(1))
}

/// How many entries a part has, and how many of them say that a block died.
fn counts(reading: Reading<'_>, part: ObjectId) -> Result<(u64, u64), DatasetError> {
    let head = deadlist::open(reading, part)?
        .head()
        .map_err(in_object(part))?;
    Ok((head.count, head.freed_count))
}

/// Writes those parts of a livelist anew of which half has died. False when one contradicts itself.
#[doc(alias = "dsl_livelist_try_condense")]
fn condense(context: &TaskContext<'_>, livelist: ObjectId) -> Result<bool, DatasetError> {
    let reading = context.writing().reading();
    let small = CONDENSED_MIN.min(context.namespace.livelist_blocks_max());
    let mut worn = Vec::new();
    for (key, part) in deadlist::lists(reading, livelist)? {
        let (count, freed) = counts(reading, part)?;
        if count >= small && freed >= count / 4 {
            worn.push(key);
        }
    }
    debug_assert!(worn.is_sorted(), "parts are looked at from the oldest");
    for key in worn.into_iter().rev() {
        // Parts that join others give these another object.
        let part = deadlist::lists(reading, livelist)?.get(&key).copied();
        if let Some(part) = part
            && !write_anew(context, livelist, key, part)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes a part of a livelist anew, without blocks that were born and have died; into the part
/// before it, if there is room. False when it contradicts itself.
fn write_anew(
    context: &TaskContext<'_>,
    livelist: ObjectId,
    key: Txg,
    part: ObjectId,
) -> Result<bool, DatasetError> {
    let reading = context.writing().reading();
    let opened = deadlist::open(reading, part)?;
    let left = opened.still_allocated(context.operation);
    let Some(left) = left.map_err(in_object(part))? else {
        return Ok(false);
    };
    let entry = |pointer| Entry {
        pointer,
        is_freed: false,
    };
    let left: Vec<Entry> = left.into_iter().map(entry).collect();
    let parts = deadlist::lists(reading, livelist)?;
    let joins = match parts.range(..key).next_back() {
        None => false,
        Some((_, older)) => {
            let (count, _) = counts(reading, *older)?;
            let together = count.saturating_add(tarn_ondisk::declare::widen(left.len()));
            together <= context.namespace.livelist_blocks_max() / 2
        }
    };
    deadlist::remove_list(context, livelist, key, part)?;
    if !joins {
        deadlist::add_key(context, livelist, key)?;
    }
    deadlist::insert_entries(context, livelist, &left)?;
    Ok(true)
}

/// Gives the livelist of a clone that is being destroyed to the pool, which frees what is on it in
/// the background. Tells what that is; `None` when there is no list, or it does not have what its
/// directory is charged for: then the clone's tree says what to free.
#[doc(alias = "dsl_async_clone_destroy")]
pub(crate) fn hand_over(
    context: &TaskContext<'_>,
    directory: &Directory<'_>,
) -> Result<Option<SpaceChange>, DatasetError> {
    let writing = context.writing();
    let reading = writing.reading();
    let Some(list) = of(reading, directory.id())? else {
        return Ok(None);
    };
    let space = deadlist::totals(reading, list)?;
    if space.used != SpaceChange::all_of(&directory.stored()?).used {
        return Ok(None);
    }
    let deleted = match reading.number(POOL_DIRECTORY, DELETED_CLONES)? {
        Some(deleted) => ObjectId::new(deleted),
        None => {
            let deleted = writing.create_zap(ObjectType::ZapMetadata)?;
            let value = ZapValue::word(deleted.get());
            writing.put(POOL_DIRECTORY, DELETED_CLONES, &value)?;
            deleted
        }
    };
    writing.add_number(deleted, list)?;
    writing.remove(directory.id(), LIVELIST)?;
    Ok(Some(space))
}

/// Livelists of destroyed clones.
pub(crate) fn deleted(reading: Reading<'_>) -> Result<Vec<ObjectId>, DatasetError> {
    let Some(deleted) = reading.number(POOL_DIRECTORY, DELETED_CLONES)? else {
        return Ok(Vec::new());
    };
    let entries = reading.entries(ObjectId::new(deleted))?;
    let lists = entries.iter().filter_map(|(_, value)| value.as_word());
    Ok(lists.map(ObjectId::new).collect())
}

/// How far freeing by a livelist has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All of it is freed.
    Done,
    /// It was told to stop.
    Stopped,
    /// It contradicts itself, and nothing can be freed by it.
    Contradictory,
}

/// Frees what is on the livelist of a destroyed clone, a part after the other, each from its end,
/// until `free` says to stop.
#[doc(alias = "spa_livelist_delete_cb")]
pub(crate) fn free_deleted(
    context: &TaskContext<'_>,
    livelist: ObjectId,
    mut free: impl FnMut(&BlockPointer) -> Step,
) -> Result<Progress, DatasetError> {
    let writing = context.writing();
    while let Some((key, mut part)) = deadlist::lists(writing.reading(), livelist)?.pop_first() {
        let opened = deadlist::open(writing.reading(), part)?;
        let left = opened.still_allocated(context.operation);
        if left.map_err(in_object(part))?.is_none() {
            return Ok(Progress::Contradictory);
        }
        if counts(writing.reading(), part)?.1 > 0 {
            write_anew(context, livelist, key, part)?;
            part = deadlist::lists(writing.reading(), livelist)?[&key];
        }
        let mut space = SpaceChange::default();
        let mut is_stopped = false;
        let list = deadlist::open(writing.reading(), part)?;
        if !list.is_empty().map_err(in_object(part))? {
            let taken = list.take_each(context.tx, context.operation, |entry| {
                let step = free(&entry.pointer);
                match step {
                    Step::Stop => is_stopped = true,
                    _ => space.add(SpaceChange::of_block(context.io, &entry.pointer)),
                }
                step
            });
            taken.map_err(in_object(part))?;
            deadlist::change_totals(context, livelist, space.negated())?;
        }
        if is_stopped {
            return Ok(Progress::Stopped);
        }
        deadlist::remove_list(context, livelist, key, part)?;
    }
    Ok(Progress::Done)
}

/// Removes the livelist of a destroyed clone, of which nothing is left.
#[doc(alias = "livelist_delete_sync")]
pub(crate) fn forget_deleted(
    context: &TaskContext<'_>,
    livelist: ObjectId,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let Some(deleted) = writing.reading().number(POOL_DIRECTORY, DELETED_CLONES)? else {
        return Ok(());
    };
    let deleted = ObjectId::new(deleted);
    writing.remove_number(deleted, livelist)?;
    deadlist::free(context, livelist)?;
    context.features.decrement(Feature::Livelist)?;
    if writing.reading().entries(deleted)?.is_empty() {
        writing.remove(POOL_DIRECTORY, DELETED_CLONES)?;
        writing.free(deleted)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_worth_it_while_a_quarter_or_less_is_the_clones_own() {
        for (own, referenced, expected) in [
            (0, 0, true),
            (0, 100, true),
            (24, 100, true),
            (25, 100, false),
            (100, 100, false),
            (300, 100, false),
            (u64::MAX / 8, u64::MAX, true),
        ] {
            assert_eq!(is_worth_it(own, referenced), expected, "{own} {referenced}");
        }
    }
}
