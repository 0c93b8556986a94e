//! The swap at the end of an incremental receive: the target gets the contents and space charges of
//! the clone that was received into.

use super::newer::newer_than;
use super::receiver::{Receiver, Stored, not_found, receive_name};
use crate::chain_changes::ChainChange;
use crate::counting_bookmarks;
use crate::dataset::Dataset;
use crate::deadlist;
use crate::error::DatasetError;
use crate::feature_use;
use crate::livelist;
use crate::ops::destroy::{give_away, remove};
use crate::ops::rollback::{origin_txg, paid_for, written_since};
use crate::space_charge::{Part, SpaceChange, charge, move_between};
use crate::task::{SyncTask, TaskContext};
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::units::AllocatedSize;

/// Gives the target what the clone has, and removes the clone.
#[doc(alias = "dsl_dataset_clone_swap_sync_impl")]
pub(super) fn exchange(
    context: &TaskContext<'_>,
    target: &str,
    receiver: Receiver,
    force: bool,
) -> Result<(), DatasetError> {
    let directory = context.view().directory(target)?;
    let head_of =
        || -> Result<_, DatasetError> { directory.head()?.ok_or_else(|| not_found(target)) };
    let clone = context
        .view()
        .directory(&receive_name(target))?
        .head()?
        .filter(|clone| clone.id() == receiver.head)
        .ok_or_else(|| not_found(&receive_name(target)))?;
    if force {
        let newer = newer_than(&head_of()?, clone.stored()?.previous_snapshot_txg)?;
        newer.bookmarks.apply(context)?;
        newer.snapshots.apply(context)?;
    }
    let head = head_of()?;
    give_up_changes(context, &head)?;
    take_contents(context, &head, &clone)?;
    context.namespace.chain_changed(ChainChange::Exchanged {
        one: head.id(),
        other: clone.id(),
    });
    let emptied = clone.stored()?;
    remove(context, &clone, &emptied)?;
    context.namespace.forget_head(head.id());
    livelist::remove(context, directory.id())
}

/// Gives away what a head has stored since its newest snapshot, and brings its directory's charges
/// to where they were then. What the head leads to is to be replaced in the same group.
fn give_up_changes(context: &TaskContext<'_>, head: &Dataset<'_>) -> Result<(), DatasetError> {
    let writing = context.writing();
    let before = head.stored()?;
    let newest: Stored = writing.reading().bonus_of(before.previous_snapshot)?;
    let directory = head.directory().id();
    let paid = paid_for(head)?;
    let dead = deadlist::space_in(writing.reading(), before.deadlist, ..)?;
    give_away(context, head, written_since(&before, &newest, dead))?;
    let origin = origin_txg(context, head)?;
    let alive = deadlist::space_in(writing.reading(), before.deadlist, origin..)?;
    move_between(writing, directory, alive.used, Part::Snapshots, Part::Head)?;
    deadlist::free(context, before.deadlist)?;
    let paid = SpaceChange::of_used(i128::from(paid));
    charge(writing, directory, Part::RefReservation, paid)
}

/// Has a head, which has nothing of its own, be what the clone is.
fn take_contents(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    clone: &Dataset<'_>,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let taken = clone.stored()?;
    let base: Stored = writing.reading().bonus_of(taken.previous_snapshot)?;
    let dead = deadlist::space_in(writing.reading(), taken.deadlist, ..)?;
    let written = written_since(&taken, &base, dead);
    let (from, to) = (clone.directory().id(), head.directory().id());
    charge(writing, from, Part::Head, written.negated())?;
    charge(writing, to, Part::Head, written)?;
    let origin = origin_txg(context, head)?;
    let shared = deadlist::space_in(writing.reading(), taken.deadlist, origin..)?;
    move_between(writing, to, shared.used, Part::Head, Part::Snapshots)?;
    let only_base = deadlist::space_in(
        writing.reading(),
        taken.deadlist,
        base.previous_snapshot_txg..,
    )?;
    writing.change(taken.previous_snapshot, |stored: &mut Stored| {
        stored.unique = AllocatedSize::from(u64::try_from(only_base.used).unwrap_or(0));
    })?;
    writing.change(head.id(), |stored: &mut Stored| {
        stored.deadlist = taken.deadlist;
        stored.root = taken.root;
        stored.referenced = taken.referenced;
        stored.compressed = taken.compressed;
        stored.uncompressed = taken.uncompressed;
        stored.unique = taken.unique;
        stored.flags = stored.flags.with(DatasetFlags::UNIQUE_ACCURATE);
        if taken.flags.contains(DatasetFlags::CASE_INSENSITIVE) {
            stored.flags = stored.flags.with(DatasetFlags::CASE_INSENSITIVE);
        }
    })?;
    let paid = SpaceChange::of_used(-i128::from(paid_for(head)?));
    charge(writing, to, Part::RefReservation, paid)?;
    feature_use::deactivate_all(context, head.id())?;
    feature_use::take_over(context, clone.id(), head.id())?;
    feature_use::deactivate_all(context, clone.id())?;
    let base: Stored = writing.reading().bonus_of(taken.previous_snapshot)?;
    if base.next_snapshot == head.id() {
        counting_bookmarks::next_has_changed(context, head.id(), &base)?;
    }
    Ok(())
}
