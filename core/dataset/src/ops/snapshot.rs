//! `zfs snapshot`: takes snapshots.
//!
//! # Mechanism
//! A snapshot is a second dataset that leads to the object set as it is stored now, between the
//! head and the snapshot before it. It takes over the head's deadlist, which has the blocks that
//! died since that one, and the head begins a new one. No block is copied, and the head's unique
//! blocks are shared from now on. All of it is a few objects of the MOS, whatever the size of the
//! data.
//!
//! Several snapshots are taken in one group, or none of them.
//!
//! # Invariants
//! - The head has nothing to store in the txg any more. Blocks that it stored after the snapshot
//!   would have the snapshot's txg as their birth, and look like its blocks. So there is one
//!   snapshot of a head in a txg at most, and a task that finds the head dirty runs again in the
//!   next txg.

use super::set::{Source, apply_one, check_settings, find};
use crate::chain_changes::ChainChange;
use crate::counting_bookmarks;
use crate::creation::{allocate_dataset, random};
use crate::dataset::Dataset;
use crate::deadlist;
use crate::error::DatasetError;
use crate::feature_use;
use crate::livelist;
use crate::names::{BadName, DatasetName, NameKind};
use crate::namespace::View;
use crate::properties::inherit::local_number;
use crate::properties::parse::Checked;
use crate::properties::value::Kinds;
use crate::snapshot_names;
use crate::space_charge::{Part, SpaceChange, charge};
use crate::space_used::directory_available;
use crate::task::{FeatureCounts, InternalEvent, Room, SyncTask, TaskContext, TaskRefusal};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use tarn_object::zap::ZapValue;
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset::{DatasetFlags, IVSET_GUID, REMAP_DEADLIST};
use tarn_ondisk::dataset_dir::CRYPTO_KEY;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg};

/// Takes snapshots: all of them in one group, or none.
#[derive(Debug, Clone)]
pub struct TakeSnapshots {
    /// Full names. The pool is the same for all, and no head is named twice.
    pub names: Vec<String>,
    /// User properties, for each of them.
    pub settings: Vec<Checked>,
}

impl SyncTask for TakeSnapshots {
    type Output = ();

    fn room(&self) -> Room {
        Room::normal(3 * self.names.len())
    }

    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        check_settings(None, &self.settings, Kinds::SNAPSHOT, features)?;
        let mut refusals = Vec::new();
        let mut heads = BTreeSet::new();
        let mut promised = Promised::default();
        for name in &self.names {
            let head = name.split('@').next();
            if !heads.insert(head) {
                return Err(TaskRefusal::SameHead);
            }
            let checked = check_new(view, name).and_then(|head| promised.add(&head));
            if let Err(refusal) = checked {
                refusals.push((name.clone(), refusal));
            }
        }
        TaskRefusal::of_several(refusals)
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            self.names
                .iter()
                .try_for_each(|name| take(context, name, &self.settings, Identity::New))
        })
    }
}

/// Says whether there can be a snapshot of this name. Gives its head.
fn check_new<'a>(view: View<'a>, name: &str) -> Result<Dataset<'a>, TaskRefusal> {
    let parsed = DatasetName::parse(name).map_err(|bad| match bad {
        BadName::TooLong => TaskRefusal::NameTooLong {
            why: "dataset name is too long".to_string(),
        },
        bad => bad_name(bad.to_string()),
    })?;
    let (NameKind::Snapshot, Some(short)) = (parsed.kind(), parsed.tail()) else {
        return Err(bad_name(
            "missing '@' delimiter in snapshot name".to_string(),
        ));
    };
    let head = find(view, parsed.head())?;
    if head.snapshot(short)?.is_some() {
        return Err(TaskRefusal::Exists {
            name: name.to_string(),
        });
    }
    let stored = head.stored()?;
    if stored.flags.contains(DatasetFlags::INCONSISTENT) {
        return Err(TaskRefusal::Busy {
            why: "dataset is busy".to_string(),
        });
    }
    if head.extension(REMAP_DEADLIST)?.is_some() {
        return Err(TaskRefusal::NotSupported {
            what: "a snapshot of a dataset with blocks on removed vdevs".to_string(),
        });
    }
    if !deadlist::is_divided(view.mos(), stored.deadlist)? {
        return Err(TaskRefusal::NotSupported {
            what: "a snapshot of a dataset of before pool version 26".to_string(),
        });
    }
    if view.is_syncing() {
        check_moment(view, &head, &stored)?;
    }
    Ok(head)
}

/// Refuses a head that has something left to store in this group, or has a snapshot of it.
pub(super) fn check_moment(
    view: View<'_>,
    head: &Dataset<'_>,
    stored: &ondisk::dataset::Dataset,
) -> Result<(), TaskRefusal> {
    let txgs = &view.namespace().mos().env().txgs;
    let storing = txgs.stored_txg().next();
    let sets = txgs.dirty_sets(storing);
    let is_dirty = sets.iter().any(|set| set.id() == head.id());
    match stored.previous_snapshot_txg.cmp(&storing) {
        Ordering::Less if !is_dirty => Ok(()),
        Ordering::Greater => Err(of_the_future(head.id()).into()),
        _ => Err(TaskRefusal::NotInThisGroup),
    }
}

/// The disk says what cannot be, and waiting would not end.
pub(super) fn of_the_future(object: ObjectId) -> DatasetError {
    DatasetError::Inconsistent {
        object,
        why: "it has a snapshot of a group that is not stored yet",
    }
}

fn bad_name(why: String) -> TaskRefusal {
    TaskRefusal::BadValue {
        property: "name".to_string(),
        why,
    }
}

/// What snapshots make refreservations take from directories: blocks that the reservation has paid
/// for so far are shared with the snapshot, and as much is set aside anew.
#[derive(Default)]
struct Promised {
    by_directory: BTreeMap<ObjectId, u64>,
}

impl Promised {
    #[doc(alias = "dsl_dataset_snapshot_reserve_space")]
    fn add(&mut self, head: &Dataset<'_>) -> Result<(), TaskRefusal> {
        let anew = set_aside_anew(head)?;
        if anew == 0 {
            return Ok(());
        }
        for directory in head.directory().lineage()? {
            let promised = self.by_directory.entry(directory.id()).or_default();
            *promised = promised.saturating_add(anew);
            if *promised > directory_available(&directory)? {
                return Err(TaskRefusal::NoSpace {
                    why: "out of space".to_string(),
                });
            }
        }
        Ok(())
    }
}

/// Refuses a snapshot for which a refreservation could not be kept.
pub(super) fn check_set_aside(head: &Dataset<'_>) -> Result<(), TaskRefusal> {
    Promised::default().add(head)
}

/// What a refreservation sets aside anew when a snapshot is taken.
fn set_aside_anew(head: &Dataset<'_>) -> Result<u64, DatasetError> {
    let reserved = local_number(head.directory(), "refreservation")?.unwrap_or(0);
    Ok(reserved.min(head.stored()?.unique.get()))
}

/// What a snapshot is known by.
#[derive(Debug, Clone, Copy)]
pub(super) enum Identity {
    /// It is a new one, of now.
    New,
    /// It is the same that another pool has.
    Received {
        /// Its guid.
        guid: Guid,
        /// When it was taken there, in seconds since 1970.
        creation_time_s: u64,
    },
}

#[doc(alias = "dsl_dataset_snapshot_sync_impl")]
pub(super) fn take(
    context: &TaskContext<'_>,
    name: &str,
    settings: &[Checked],
    identity: Identity,
) -> Result<(), DatasetError> {
    let not_found = || DatasetError::NotFound {
        name: name.to_string(),
    };
    let parsed = DatasetName::parse(name).map_err(|_| not_found())?;
    let short = parsed.tail().ok_or_else(not_found)?;
    let view = context.view();
    let head = view
        .directory(parsed.head())?
        .head()?
        .ok_or_else(not_found)?;
    let before = head.stored()?;
    let anew = set_aside_anew(&head)?;
    if anew > 0 {
        let change = SpaceChange::of_used(i128::from(anew));
        let directory = head.directory().id();
        charge(context.writing(), directory, Part::RefReservation, change)?;
    }
    let snapshot = make(context, &head, &before, identity)?;
    insert_before_head(context, head.id(), &before, snapshot)?;
    let deadlist = divide_time(context, head.id(), &before)?;
    context.namespace.chain_changed(ChainChange::Snapshotted {
        head: head.id(),
        snapshot,
    });
    context
        .writing()
        .change(head.id(), |head: &mut ondisk::dataset::Dataset| {
            head.deadlist = deadlist;
            head.previous_snapshot = snapshot;
            head.previous_snapshot_txg = context.tx.txg();
            head.unique = AllocatedSize::ZERO;
            head.flags = head.flags.with(DatasetFlags::UNIQUE_ACCURATE);
        })?;
    // Their list would have to say which of a clone's blocks are in the snapshot.
    livelist::remove(context, head.directory().id())?;
    snapshot_names::add(context, &head, short, snapshot)?;
    context.record(InternalEvent {
        name: "snapshot",
        dataset: Some((name.to_string(), snapshot)),
        text: " ".to_string(),
    });
    let dataset = view.dataset(&parsed)?;
    settings.iter().try_for_each(|checked| {
        apply_one(
            context,
            &dataset,
            &checked.name,
            &checked.setting,
            Source::Local,
        )
    })
}

/// Makes the dataset of a snapshot: as the head is now.
fn make(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    before: &ondisk::dataset::Dataset,
    identity: Identity,
) -> Result<ObjectId, DatasetError> {
    let writing = context.writing();
    let id = allocate_dataset(context)?;
    assert_ne!(id, head.id(), "a snapshot is an object of its own");
    let (guid, creation_time_s) = match identity {
        Identity::New => (Guid::new(random(context)), context.now_s),
        Identity::Received {
            guid,
            creation_time_s,
        } => (guid, creation_time_s),
    };
    let snapshot = ondisk::dataset::Dataset {
        next_snapshot: head.id(),
        snapshot_names: ObjectId::ZERO,
        child_count: 1,
        creation_time_s,
        creation_txg: context.tx.txg(),
        unique: AllocatedSize::ZERO,
        fsid: Guid::new(random(context) >> 8),
        guid,
        next_clones: ObjectId::ZERO,
        snapshot_properties: ObjectId::ZERO,
        user_holds: ObjectId::ZERO,
        ..*before
    };
    writing.change(id, |stored: &mut ondisk::dataset::Dataset| {
        *stored = snapshot
    })?;
    feature_use::take_over(context, head.id(), id)?;
    let is_encrypted = head.directory().extension(CRYPTO_KEY)?.is_some();
    if is_encrypted && context.features.is_enabled(Feature::BookmarkV2) {
        writing.extend(id, context.features)?;
        let guid = ZapValue::word(random(context) >> 8);
        writing.put(id, IVSET_GUID, &guid)?;
    }
    Ok(id)
}

/// The snapshot before leads to the new one where it led to the head.
fn insert_before_head(
    context: &TaskContext<'_>,
    head: ObjectId,
    before: &ondisk::dataset::Dataset,
    snapshot: ObjectId,
) -> Result<(), DatasetError> {
    if before.previous_snapshot.is_zero() {
        return Ok(());
    }
    let writing = context.writing();
    let previous: ondisk::dataset::Dataset =
        writing.reading().bonus_of(before.previous_snapshot)?;
    if previous.next_snapshot == head {
        return writing
            .change(
                before.previous_snapshot,
                |stored: &mut ondisk::dataset::Dataset| stored.next_snapshot = snapshot,
            )
            .map(|_| ());
    }
    // The head is a clone, and this is its first snapshot.
    if !previous.next_clones.is_zero() {
        writing.remove_number(previous.next_clones, head)?;
        writing.add_number(previous.next_clones, snapshot)?;
    }
    Ok(())
}

/// Makes the head's new deadlist: with a list for what was born since the snapshot before, too.
fn divide_time(
    context: &TaskContext<'_>,
    head: ObjectId,
    before: &ondisk::dataset::Dataset,
) -> Result<ObjectId, DatasetError> {
    let deadlist =
        deadlist::create_like(context, before.deadlist, Txg::MAX, before.previous_snapshot)?;
    deadlist::add_key(context, deadlist, before.previous_snapshot_txg)?;
    counting_bookmarks::divide_deadlist(context, head, deadlist, before.previous_snapshot_txg)?;
    Ok(deadlist)
}
