//! Destroying snapshots.
//!
//! # Mechanism
//! Between its two neighbours, a snapshot shares each of its blocks with the one before, with the
//! one after, with both or with neither. The deadlist of the next one has the blocks that died
//! before it, in lists by birth, so each answer is a whole list: blocks born after the previous
//! snapshot and dead in the next one belong to no other dataset, and the list goes to the pool's
//! list of blocks to free; blocks born before are in the previous snapshot too, and the list is
//! joined with the snapshot's own. No block is read, whatever the size of the snapshot. The theory
//! of snapshots has the picture.
//!
//! A snapshot with holds or clones can be marked (`zfs destroy -d`), and is destroyed with the last
//! of them.
//!
//! Several snapshots are destroyed in one group, or none of them.

use crate::chain_changes::ChainChange;
use crate::counting_bookmarks;
use crate::creation::FREE_DIRECTORY;
use crate::dataset::Dataset;
use crate::deadlist;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::feature_use;
use crate::names::{DatasetName, NameKind};
use crate::namespace::View;
use crate::properties::inherit::local_number;
use crate::snapshot_names;
use crate::space_charge::{Part, SpaceChange, charge};
use crate::stored::Reading;
use crate::task::{FeatureCounts, InternalEvent, Room, SyncTask, TaskContext, TaskRefusal};
use crate::writing::in_object;
use std::collections::BTreeMap;
use tarn_object::PointerList;
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset::{DatasetFlags, REMAP_DEADLIST};
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::pool_directory::{self, POOL_DIRECTORY};
use tarn_ondisk::units::{AllocatedSize, ObjectId, Txg};

use super::boot_filesystem::clear_boot_filesystem;
use super::going::Gone;
use super::set::find;

/// What of a snapshot that is destroyed, as it is stored.
type Stored = ondisk::dataset::Dataset;

/// Destroys snapshots: all of them in one txg, or none. Missing ones are skipped, unless all are
/// missing.
#[derive(Debug, Clone)]
pub struct DestroySnapshots {
    /// Full names, of one pool.
    pub names: Vec<String>,
    /// Those with holds or clones are marked, and go later.
    pub defer: bool,
}

impl SyncTask for DestroySnapshots {
    type Output = ();

    fn room(&self) -> Room {
        Room::freeing()
    }

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let mut refusals = Vec::new();
        let mut missing = 0;
        for name in &self.names {
            match check(view, name, self.defer) {
                Ok(()) => {}
                Err(TaskRefusal::NotFound { .. }) => missing += 1,
                Err(refusal) => refusals.push((name.clone(), refusal)),
            }
        }
        if missing == self.names.len() && missing > 0 {
            let name = self.names.first().cloned().unwrap_or_default();
            return Err(TaskRefusal::NotFound { name });
        }
        TaskRefusal::of_several(refusals)
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            for name in &self.names {
                let parsed = DatasetName::parse(name)
                    .map_err(|_| DatasetError::NotFound { name: name.clone() })?;
                match context.view().dataset(&parsed) {
                    Ok(snapshot) => destroy_or_mark(context, &snapshot, self.defer)?,
                    Err(DatasetError::NotFound { .. }) => {}
                    Err(cause) => return Err(cause),
                }
            }
            Ok(())
        })
    }
}

fn check(view: View<'_>, name: &str, defer: bool) -> Result<(), TaskRefusal> {
    let is_snapshot = DatasetName::parse(name).is_ok_and(|name| name.kind() == NameKind::Snapshot);
    if !is_snapshot {
        return Err(TaskRefusal::BadValue {
            property: "name".to_string(),
            why: "it is not a snapshot".to_string(),
        });
    }
    check_snapshot(view, &find(view, name)?, defer, &Gone::default())
}

/// Refuses a snapshot that is in use, or that something keeps which is not gone by then.
#[doc(alias = "dsl_destroy_snapshot_check_impl")]
pub(super) fn check_snapshot(
    view: View<'_>,
    snapshot: &Dataset<'_>,
    defer: bool,
    gone: &Gone,
) -> Result<(), TaskRefusal> {
    let stored = snapshot.stored()?;
    check_unused(view, snapshot.id())?;
    if !defer && snapshot.hold_count()? > 0 {
        return Err(TaskRefusal::Busy {
            why: "dataset is busy".to_string(),
        });
    }
    let kept_by = stored
        .child_count
        .saturating_sub(gone.clones_of(snapshot.id()));
    if !defer && kept_by > 1 {
        return Err(TaskRefusal::Cloned);
    }
    match hindrance(view.mos(), snapshot, &stored)? {
        None => Ok(()),
        Some(what) => Err(TaskRefusal::NotSupported {
            what: what.to_string(),
        }),
    }
}

/// What of a snapshot cannot be taken apart, and so keeps it from being destroyed.
fn hindrance(
    reading: Reading<'_>,
    snapshot: &Dataset<'_>,
    stored: &Stored,
) -> Result<Option<&'static str>, DatasetError> {
    if snapshot.extension(REMAP_DEADLIST)?.is_some() {
        return Ok(Some("destroying a snapshot with blocks on removed vdevs"));
    }
    let next: Stored = reading.bonus_of(stored.next_snapshot)?;
    let is_divided = deadlist::is_divided(reading, stored.deadlist)?
        && deadlist::is_divided(reading, next.deadlist)?;
    Ok((!is_divided).then_some("destroying a snapshot of before pool version 26"))
}

/// Refuses what would destroy or change a dataset that is being sent. Where a task is about to do
/// so, no use of it can begin from here on.
pub(crate) fn check_unused(view: View<'_>, dataset: ObjectId) -> Result<(), TaskRefusal> {
    let namespace = view.namespace();
    let is_unused = match view.is_syncing() {
        true => namespace.decide_on(dataset),
        false => !namespace.is_in_use(dataset),
    };
    match is_unused {
        true => Ok(()),
        false => Err(TaskRefusal::Busy {
            why: "dataset is busy".to_string(),
        }),
    }
}

/// What goes of what keeps a snapshot.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Going {
    pub(super) holds: u64,
    pub(super) clones: u64,
}

/// Refuses to take from a snapshot what keeps it, where it is marked, nothing else keeps it, and it
/// is in use: it would go, too.
pub(super) fn check_stays_or_unused(
    view: View<'_>,
    snapshot: ObjectId,
    going: Going,
) -> Result<(), TaskRefusal> {
    if snapshot.is_zero() {
        return Ok(());
    }
    let stored: Stored = view.mos().bonus_of(snapshot)?;
    let holds = view.mos().count(stored.user_holds)?;
    match is_only_marked(&stored, holds, going) {
        true => check_unused(view, snapshot),
        false => Ok(()),
    }
}

/// Whether a snapshot is marked, and nothing keeps it when this is gone: it has one child always,
/// and each clone is one more.
fn is_only_marked(stored: &Stored, holds: u64, going: Going) -> bool {
    stored.flags.contains(DatasetFlags::DEFER_DESTROY)
        && stored.child_count.saturating_sub(going.clones) <= 1
        && holds <= going.holds
}

/// Destroys a snapshot, or marks it where something keeps it.
pub(crate) fn destroy_or_mark(
    context: &TaskContext<'_>,
    snapshot: &Dataset<'_>,
    defer: bool,
) -> Result<(), DatasetError> {
    let stored = snapshot.stored()?;
    let is_kept = snapshot.hold_count()? > 0 || stored.child_count > 1;
    if !(defer && is_kept) {
        return destroy(context, snapshot);
    }
    context
        .writing()
        .change(snapshot.id(), |stored: &mut Stored| {
            stored.flags = stored.flags.with(DatasetFlags::DEFER_DESTROY);
        })?;
    record(context, "defer_destroy", snapshot);
    Ok(())
}

/// Destroys a snapshot that was only waiting for its last clone or hold, if this is one and they
/// are gone. One that cannot be taken apart stays, with its mark, as when the mark was set.
pub(crate) fn destroy_if_marked(
    context: &TaskContext<'_>,
    snapshot: ObjectId,
) -> Result<(), DatasetError> {
    if snapshot.is_zero() {
        return Ok(());
    }
    let reading = context.writing().reading();
    let stored: Stored = reading.bonus_of(snapshot)?;
    let holds = reading.count(stored.user_holds)?;
    if !is_only_marked(&stored, holds, Going::default()) {
        return Ok(());
    }
    let snapshot = context.view().dataset_by_id(snapshot)?;
    match hindrance(reading, &snapshot, &stored)? {
        None => destroy(context, &snapshot),
        Some(_) => Ok(()),
    }
}

fn record(context: &TaskContext<'_>, name: &'static str, snapshot: &Dataset<'_>) {
    context.record(InternalEvent {
        name,
        dataset: Some((snapshot.name(), snapshot.id())),
        text: " ".to_string(),
    });
}

#[doc(alias = "dsl_destroy_snapshot_sync_impl")]
fn destroy(context: &TaskContext<'_>, snapshot: &Dataset<'_>) -> Result<(), DatasetError> {
    let (writing, id) = (context.writing(), snapshot.id());
    let stored = snapshot.stored()?;
    let directory = snapshot.directory();
    let head = directory.head()?.ok_or(DatasetError::Inconsistent {
        object: id,
        why: "its directory has no head",
    })?;
    assert!(
        stored.child_count <= 1,
        "a snapshot with clones is not destroyed"
    );
    record(context, "destroy", snapshot);
    let bookmark_stays = counting_bookmarks::snapshot_goes(context, head.id(), &stored)?;
    feature_use::deactivate_all(context, id)?;
    let neighbours = Neighbours::of(context, id, &stored)?;
    neighbours.meet(context, id, &stored)?;
    neighbours.divide_blocks(context, directory.id(), &stored)?;
    // Lists are asked for here that are joined below.
    neighbours.count_what_is_unique(context, &head, &stored)?;
    if !bookmark_stays {
        join_births(context, &head, stored.creation_txg)?;
    }
    let short = snapshot.snapshot_name().ok_or(DatasetError::Inconsistent {
        object: id,
        why: "it is no snapshot",
    })?;
    snapshot_names::remove(context, &head, short)?;
    clear_boot_filesystem(writing, id)?;
    for own in [
        stored.next_clones,
        stored.snapshot_properties,
        stored.user_holds,
    ] {
        writing.free(own)?;
    }
    writing.free_extended(id, context.features)?;
    context.namespace.snapshot_destroyed(id);
    context.namespace.chain_changed(ChainChange::Destroyed {
        dataset: id,
        next: Some(stored.next_snapshot),
    });
    Ok(())
}

/// The datasets before and after a snapshot.
struct Neighbours {
    /// The snapshot before it, if there is one.
    before: Option<Stored>,
    /// Whether that one is of the same dataset: it is not, if it is the origin of a clone whose
    /// first snapshot this is.
    is_own: bool,
    /// What comes after it, as that was before anything changed: a snapshot or the head.
    after: Stored,
}

impl Neighbours {
    fn of(
        context: &TaskContext<'_>,
        id: ObjectId,
        snapshot: &Stored,
    ) -> Result<Neighbours, DatasetError> {
        let reading = context.writing().reading();
        let before: Option<Stored> = match snapshot.previous_snapshot {
            ObjectId::ZERO => None,
            before => Some(reading.bonus_of(before)?),
        };
        let after: Stored = reading.bonus_of(snapshot.next_snapshot)?;
        if after.previous_snapshot != id {
            return Err(DatasetError::Inconsistent {
                object: snapshot.next_snapshot,
                why: "the snapshot before it is another than the one that leads to it",
            });
        }
        Ok(Neighbours {
            is_own: before.is_some_and(|before| before.next_snapshot == id),
            before,
            after,
        })
    }

    /// They become each other's neighbours.
    fn meet(
        &self,
        context: &TaskContext<'_>,
        id: ObjectId,
        snapshot: &Stored,
    ) -> Result<(), DatasetError> {
        let writing = context.writing();
        writing.change(snapshot.next_snapshot, |after: &mut Stored| {
            after.previous_snapshot = snapshot.previous_snapshot;
            after.previous_snapshot_txg = snapshot.previous_snapshot_txg;
        })?;
        match self.before {
            Some(_) if self.is_own => {
                writing.change(snapshot.previous_snapshot, |before: &mut Stored| {
                    before.next_snapshot = snapshot.next_snapshot;
                })?;
            }
            Some(origin) if !origin.next_clones.is_zero() => {
                writing.remove_number(origin.next_clones, id)?;
                writing.add_number(origin.next_clones, snapshot.next_snapshot)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The blocks that no other dataset has are freed in the background; the others belong to the
    /// snapshot before it.
    fn divide_blocks(
        &self,
        context: &TaskContext<'_>,
        directory: ObjectId,
        snapshot: &Stored,
    ) -> Result<(), DatasetError> {
        let writing = context.writing();
        let since = snapshot.previous_snapshot_txg;
        if let Some(before) = self.before.filter(|_| self.is_own) {
            let range = before.previous_snapshot_txg..since;
            let shared =
                deadlist::space_in(context.writing().reading(), self.after.deadlist, range)?;
            add_unique(context, snapshot.previous_snapshot, shared)?;
        }
        let free = free_list(context)?;
        let freed = deadlist::hand_over(context, self.after.deadlist, since, &free)?;
        charge(writing, directory, Part::Snapshots, freed.negated())?;
        charge(writing, free_directory(context)?, Part::Head, freed)?;
        deadlist::absorb(context, self.after.deadlist, snapshot.deadlist)
    }

    /// What was shared only between the snapshot and the next is the next one's now.
    fn count_what_is_unique(
        &self,
        context: &TaskContext<'_>,
        head: &Dataset<'_>,
        snapshot: &Stored,
    ) -> Result<(), DatasetError> {
        if snapshot.next_snapshot == head.id() {
            return count_unique_of_head(context, head, self.after.unique.get());
        }
        let reading = context.writing().reading();
        let second_next: Stored = reading.bonus_of(self.after.next_snapshot)?;
        let range = snapshot.previous_snapshot_txg..snapshot.creation_txg;
        let shared = deadlist::space_in(context.writing().reading(), second_next.deadlist, range)?;
        add_unique(context, snapshot.next_snapshot, shared)
    }
}

fn add_unique(
    context: &TaskContext<'_>,
    snapshot: ObjectId,
    space: SpaceChange,
) -> Result<(), DatasetError> {
    let more = u64::try_from(space.used).map_err(|_| DatasetError::Inconsistent {
        object: snapshot,
        why: "a deadlist counts less space than nothing",
    })?;
    context
        .writing()
        .change(snapshot, |stored: &mut Stored| {
            stored.unique = stored.unique.saturating_add(AllocatedSize::from(more));
        })
        .map(|_| ())
}

/// A head has more to itself when its newest snapshot is gone, and a refreservation that much less
/// to hold free.
#[doc(alias = "dsl_dataset_recalc_head_uniq")]
fn count_unique_of_head(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    before: u64,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let stored = head.stored()?;
    let dead = head.deadlist_used()?;
    let newest = head.previous()?.map_or(0, |newest| newest.referenced.get());
    let unique = newest
        .checked_sub(dead)
        .and_then(|shared| stored.referenced.get().checked_sub(shared))
        .ok_or(DatasetError::Inconsistent {
            object: head.id(),
            why: "its deadlist does not fit what it and its newest snapshot refer to",
        })?;
    assert!(
        unique <= stored.referenced.get(),
        "what only the head has, it refers to"
    );
    writing.change(head.id(), |stored: &mut Stored| {
        stored.unique = AllocatedSize::from(unique);
        stored.flags = stored.flags.with(DatasetFlags::UNIQUE_ACCURATE);
    })?;
    let reserved = local_number(head.directory(), "refreservation")?.unwrap_or(0);
    let paid = unique.min(reserved).saturating_sub(before.min(reserved));
    if paid == 0 {
        return Ok(());
    }
    let change = SpaceChange::of_used(-i128::from(paid));
    charge(writing, head.directory().id(), Part::RefReservation, change)
}

/// The deadlists of a head, of clones, and of their clones, need not tell births before and after
/// this txg apart any more: neither a snapshot nor a counting bookmark is there that was made in
/// it.
#[doc(alias = "dsl_dir_remove_clones_key")]
pub(super) fn join_births(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    txg: Txg,
) -> Result<(), DatasetError> {
    deadlist::remove_key(context, head.stored()?.deadlist, txg)?;
    let reading = context.writing().reading();
    let mut waiting = vec![head.directory().id()];
    let mut seen = BTreeMap::new();
    while let Some(directory) = waiting.pop() {
        if seen.insert(directory, ()).is_some() {
            return Err(DatasetError::Inconsistent {
                object: directory,
                why: "it is a clone of itself",
            });
        }
        let stored: DatasetDirectory = reading.bonus_of(directory)?;
        for clone in reading.number_names(stored.clones)? {
            let head: Stored = reading.bonus_of(clone)?;
            let its_directory: DatasetDirectory = reading.bonus_of(head.directory)?;
            let origin: Stored = reading.bonus_of(its_directory.origin)?;
            if origin.creation_txg > txg {
                deadlist::remove_key(context, head.deadlist, txg)?;
                waiting.push(head.directory);
            }
        }
    }
    Ok(())
}

/// The pool's list of blocks that are freed in the background.
fn free_list(context: &TaskContext<'_>) -> Result<PointerList, DatasetError> {
    let name = pool_directory::FREE_POINTER_LIST;
    let id = context.writing().reading().number(POOL_DIRECTORY, name)?;
    let id = ObjectId::new(id.ok_or(DatasetError::Inconsistent {
        object: POOL_DIRECTORY,
        why: "the pool has no list of blocks to free",
    })?);
    PointerList::open(context.mos(), id, context.operation).map_err(in_object(id))
}

fn free_directory(context: &TaskContext<'_>) -> Result<ObjectId, DatasetError> {
    let root = context.view().root()?;
    let free = root.child(FREE_DIRECTORY)?;
    free.as_ref()
        .map(Directory::id)
        .ok_or(DatasetError::Inconsistent {
            object: root.id(),
            why: "it has no directory for what is being freed",
        })
}
