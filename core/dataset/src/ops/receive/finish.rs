//! Finishing a receive: the clone's contents become those of the file system, and the snapshot is
//! taken that the stream was of.

use super::{
    NotSet, ReceiveSettings, Receiver, Stored, beginning_of_all, busy, check_names,
    check_snapshot_name, check_whole, is_modified, not_found, receive_name, set_all,
    waits_for_contents,
};
use crate::crypto_key::KeyFacts;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::names::DatasetName;
use crate::namespace::View;
use crate::ops::bookmark::DestroyBookmarks;
use crate::ops::destroy::{give_away, remove};
use crate::ops::destroy_snapshot::{
    DestroySnapshots, Going, check_stays_or_unused, check_unused, destroy_if_marked,
};
use crate::ops::rollback::{origin_txg, paid_for, written_since};
use crate::ops::set::{Source, apply_one, check_received, check_settings, clear_received};
use crate::ops::snapshot::{Identity, check_moment, check_set_aside, take};
use crate::properties::inherit::local_number;
use crate::properties::parse::Checked;
use crate::properties::value::Kinds;
use crate::space_charge::{Part, SpaceChange, charge, move_between};
use crate::stored::is_zap;
use crate::task::{FeatureCounts, InternalEvent, Room, SyncTask, TaskContext, TaskRefusal};
use crate::{counting_bookmarks, deadlist, feature_use, livelist};
use tarn_object::zap::ZapValue;
use tarn_ondisk::dataset::{
    DatasetFlags, IVSET_GUID, RESUME_BYTES, RESUME_COMPRESSED, RESUME_EMBEDDED, RESUME_FROM_GUID,
    RESUME_LARGE_BLOCK, RESUME_OBJECT, RESUME_OFFSET, RESUME_RAW, RESUME_REDACTION_SNAPSHOTS,
    RESUME_TO_GUID, RESUME_TO_NAME,
};
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg};

/// By how much what is received may exceed a refquota: what one transaction can store at most, as
/// it could at the sender.
#[doc(alias = "refquota_slack")]
const REFQUOTA_SLACK_BYTES: u64 = (64 << 20) * 24;

/// Ends a receive: the snapshot is there.
#[derive(Debug, Clone)]
pub struct FinishReceive {
    /// The full name of the file system or volume.
    pub target: String,
    /// The snapshot's short name.
    pub snapshot: String,
    /// Where the stream went.
    pub receiver: Receiver,
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// When it was taken at the sender, in seconds since 1970.
    pub creation_time_s: u64,
    /// What was changed or added at the target since the common snapshot is given up.
    pub force: bool,
    /// What the target gets set.
    pub settings: ReceiveSettings,
    /// Whether something new was given its settings when room was made for it, but for those that
    /// wait for the contents.
    pub is_set: bool,
    /// Whether properties came with the stream at all: what was received before and did not come
    /// again goes.
    pub has_properties: bool,
    /// What came with the stream for the snapshot.
    pub snapshot_settings: Vec<Checked>,
    /// The key, in a raw stream of something encrypted.
    pub key: Option<KeyFacts>,
}

/// The file system or volume that gets the snapshot: whatever it is called by now.
///
/// # Errors
/// When the head cannot be read, or is gone.
pub fn target_of(view: View<'_>, receiver: Receiver) -> Result<Dataset<'_>, DatasetError> {
    let head = view.dataset_by_id(receiver.head)?;
    if receiver.is_new {
        return Ok(head);
    }
    let missing = || not_found(&head.name());
    let parent = head.directory().parent()?.ok_or_else(missing)?;
    parent.head()?.ok_or_else(missing)
}

impl SyncTask for FinishReceive {
    /// What of the settings was not made.
    type Output = Vec<NotSet>;

    fn room(&self) -> Room {
        Room::normal(3)
    }

    #[doc(alias = "dmu_recv_end_check")]
    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let head = view.dataset_without_name(self.receiver.head)?;
        let stored = head.stored()?;
        if view.is_syncing() {
            check_moment(view, &head, &stored)?;
        }
        check_settings(None, &self.snapshot_settings, Kinds::SNAPSHOT, features)?;
        check_received(&self.snapshot_settings)?;
        check_names(&self.settings)?;
        check_snapshot_name(&self.target, &self.snapshot)?;
        let target = target_of(view, self.receiver)?;
        if target.name() != self.target {
            return Err(TaskRefusal::NotFound {
                name: self.target.clone(),
            });
        }
        if target.snapshot(&self.snapshot)?.is_some() {
            return Err(TaskRefusal::Exists {
                name: format!("{}@{}", self.target, self.snapshot),
            });
        }
        check_set_aside(&target)?;
        if self.receiver.is_new {
            return Ok(());
        }
        check_unused(view, target.id())?;
        check_whole(&target)?;
        check_base(view, &target, &stored)?;
        let going = Going {
            holds: 0,
            clones: 1,
        };
        check_stays_or_unused(view, stored.previous_snapshot, going)?;
        let before = target.stored()?;
        if view.is_syncing() {
            check_moment(view, &target, &before)?;
        }
        if let Some(key) = &self.key
            && !key.is_key_of(target.directory())?
        {
            return Err(TaskRefusal::BadKey {
                why: "encryption key does not match existing key".to_string(),
            });
        }
        if self.force {
            let newer = newer_than(&target, stored.previous_snapshot_txg)?;
            newer.snapshots.check(view, features)?;
            newer.bookmarks.check(view, features)?;
        } else if before.previous_snapshot != stored.previous_snapshot {
            return Err(TaskRefusal::Modified);
        } else {
            let base = Dataset::open_unnamed(view, before.previous_snapshot)?;
            if is_modified(&target, &base)? {
                return Err(TaskRefusal::Modified);
            }
        }
        check_room(&target, &stored)
    }

    #[doc(alias = "dmu_recv_end_sync")]
    fn apply(self, context: &TaskContext<'_>) -> Result<Vec<NotSet>, DatasetError> {
        context.namespace.change(|| {
            if !self.receiver.is_new {
                self.exchange(context)?;
            }
            let target = context.view().directory(&self.target)?.head()?;
            let target = target.ok_or_else(|| not_found(&self.target))?;
            context.record(InternalEvent {
                name: "finish receiving",
                dataset: Some((target.name(), target.id())),
                text: format!("snap={}", self.snapshot),
            });
            let writing = context.writing();
            writing.change(target.id(), |stored: &mut Stored| {
                stored.flags = stored.flags.without(DatasetFlags::INCONSISTENT);
            })?;
            if is_zap(&*writing.reading().object(target.id())?) {
                for name in [
                    RESUME_FROM_GUID,
                    RESUME_TO_GUID,
                    RESUME_TO_NAME,
                    RESUME_OBJECT,
                    RESUME_OFFSET,
                    RESUME_BYTES,
                    RESUME_LARGE_BLOCK,
                    RESUME_EMBEDDED,
                    RESUME_COMPRESSED,
                    RESUME_RAW,
                    RESUME_REDACTION_SNAPSHOTS,
                ] {
                    writing.remove(target.id(), name)?;
                }
            }
            if !self.receiver.is_new && self.has_properties {
                clear_received(context, &target, &self.settings.received)?;
            }
            let mut settings = self.settings.clone();
            if self.receiver.is_new && self.is_set {
                settings.received.retain(waits_for_contents);
                settings.local.clear();
                settings.inherited.clear();
            }
            let not_set = set_all(context, &target, &settings)?;
            let name = format!("{}@{}", self.target, self.snapshot);
            let identity = Identity::Received {
                guid: Guid::new(self.to_guid),
                creation_time_s: self.creation_time_s,
            };
            let base = target.stored()?.previous_snapshot;
            take(context, &name, &[], identity)?;
            let parsed = DatasetName::parse(&name).map_err(|_| not_found(&name))?;
            let snapshot = context.view().dataset(&parsed)?;
            if let Some(key) = &self.key {
                if !self.receiver.is_new {
                    key.replace(context, target.directory())?;
                }
                if key.to_ivset_guid != 0 {
                    writing.extend(snapshot.id(), context.features)?;
                    let guid = ZapValue::word(key.to_ivset_guid);
                    writing.put(snapshot.id(), IVSET_GUID, &guid)?;
                }
            }
            for checked in &self.snapshot_settings {
                let (name, setting) = (&checked.name, &checked.setting);
                apply_one(context, &snapshot, name, setting, Source::Received)?;
            }
            if !self.receiver.is_new {
                // The clone may have been all that kept it.
                destroy_if_marked(context, base)?;
            }
            Ok(not_set)
        })
    }
}

/// Refuses a target whose snapshots are not those any more that the clone's contents follow: a
/// promotion has given them to another.
#[doc(alias = "dmu_recv_end_check")]
fn check_base(view: View<'_>, target: &Dataset<'_>, clone: &Stored) -> Result<(), TaskRefusal> {
    let (base, own) = (clone.previous_snapshot, target.directory().id());
    let is_own = |id: ObjectId| -> Result<bool, DatasetError> {
        let stored: Stored = view.mos().bonus_of(id)?;
        Ok(stored.directory == own)
    };
    let begins_anew = base.is_zero() || beginning_of_all(view)? == Some(base);
    if !begins_anew && !is_own(base)? {
        return Err(TaskRefusal::NoBase);
    }
    let mut at = target.stored()?.previous_snapshot;
    let mut steps_left = target.snapshot_count()?;
    while at != base {
        if at.is_zero() || steps_left == 0 || !is_own(at)? {
            return Err(TaskRefusal::NoBase);
        }
        let stored: Stored = view.mos().bonus_of(at)?;
        at = stored.previous_snapshot;
        steps_left -= 1;
    }
    Ok(())
}

/// What of a target is newer than what the clone was made of, and goes.
struct Newer {
    snapshots: DestroySnapshots,
    /// Of a past that is no longer the target's: an increment from there would be wrong.
    bookmarks: DestroyBookmarks,
}

/// What of a target is newer than its snapshot of this group.
fn newer_than(target: &Dataset<'_>, base: Txg) -> Result<Newer, DatasetError> {
    let mut snapshots = Vec::new();
    for snapshot in target.snapshots()? {
        if snapshot.stored()?.creation_txg > base {
            snapshots.push(snapshot.name());
        }
    }
    let bookmarks = target.bookmarks()?;
    let bookmarks = bookmarks
        .iter()
        .filter(|one| one.stored.creation_txg > base);
    let bookmarks = bookmarks.map(|one| format!("{}#{}", target.name(), one.name));
    Ok(Newer {
        snapshots: DestroySnapshots {
            names: snapshots,
            defer: false,
        },
        bookmarks: DestroyBookmarks {
            names: bookmarks.collect(),
        },
    })
}

/// Refuses a stream at its beginning that could not be ended: snapshots would have to go that
/// clones or holds keep. Whether they do is decided at the end.
pub(super) fn check_newer_can_go(target: &Dataset<'_>, base: Txg) -> Result<(), TaskRefusal> {
    let mut refused = Vec::new();
    for snapshot in target.snapshots()? {
        let stored = snapshot.stored()?;
        if stored.creation_txg <= base {
            continue;
        }
        if stored.child_count > 1 {
            refused.push((snapshot.name(), TaskRefusal::Cloned));
        } else if snapshot.hold_count()? > 0 {
            refused.push((snapshot.name(), busy("dataset is busy")));
        }
    }
    TaskRefusal::of_several(refused)
}

/// Refuses what would not fit the target's refquota.
#[doc(alias = "dsl_dataset_clone_swap_check_impl")]
fn check_room(target: &Dataset<'_>, clone: &Stored) -> Result<(), TaskRefusal> {
    let limit = local_number(target.directory(), "refquota")?.unwrap_or(0);
    if limit != 0 && clone.referenced.get() > limit.saturating_add(REFQUOTA_SLACK_BYTES) {
        return Err(TaskRefusal::NoSpace {
            why: "quota exceeded".to_string(),
        });
    }
    Ok(())
}

impl FinishReceive {
    /// Gives the target what the clone has, and removes the clone.
    #[doc(alias = "dsl_dataset_clone_swap_sync_impl")]
    fn exchange(&self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        let directory = context.view().directory(&self.target)?;
        let head_of = || -> Result<_, DatasetError> {
            directory.head()?.ok_or_else(|| not_found(&self.target))
        };
        let clone = context
            .view()
            .directory(&receive_name(&self.target))?
            .head()?
            .filter(|clone| clone.id() == self.receiver.head)
            .ok_or_else(|| not_found(&receive_name(&self.target)))?;
        if self.force {
            let newer = newer_than(&head_of()?, clone.stored()?.previous_snapshot_txg)?;
            newer.bookmarks.apply(context)?;
            newer.snapshots.apply(context)?;
        }
        let head = head_of()?;
        give_up_changes(context, &head)?;
        take_contents(context, &head, &clone)?;
        let emptied = clone.stored()?;
        remove(context, &clone, &emptied)?;
        context.namespace.forget_head(head.id());
        livelist::remove(context, directory.id())
    }
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
