//! The end of a receive: takes the snapshot, with its guid at the sender.

use super::exchange::exchange;
use super::half_received::check_whole;
use super::newer::newer_than;
use super::receiver::{
    Receiver, Stored, beginning_of_all, check_snapshot_name, is_modified, not_found,
};
use super::resume::forget_resume_facts;
use super::settings::{NotSet, ReceiveSettings, check_names, set_all, waits_for_contents};
use crate::crypto_key::KeyFacts;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::names::DatasetName;
use crate::namespace::View;
use crate::ops::destroy_snapshot::{Going, check_stays_or_unused, check_unused, destroy_if_marked};
use crate::ops::set::{Source, apply_one, check_received, check_settings, clear_received};
use crate::ops::snapshot::{Identity, check_moment, check_set_aside, take};
use crate::properties::inherit::local_number;
use crate::properties::parse::Checked;
use crate::properties::value::Kinds;
use crate::task::{FeatureCounts, InternalEvent, Room, SyncTask, TaskContext, TaskRefusal};
use tarn_object::zap::ZapValue;
use tarn_ondisk::dataset::{DatasetFlags, IVSET_GUID};
use tarn_ondisk::units::{Guid, ObjectId};

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

/// The file system or volume that gets the snapshot, by its object: it may have been renamed.
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
                exchange(context, &self.target, self.receiver, self.force)?;
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
            forget_resume_facts(context, target.id())?;
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
