//! `zfs clone`: file systems and volumes that begin with a snapshot's contents.
//!
//! # Mechanism
//! A clone's head leads to the object set of its origin, and from then on writes blocks of its own.
//! Every dataset is a clone, of the pool's empty snapshot (`$ORIGIN`) if of no other; so beside the
//! creation of a file system, all there is to do is to copy the origin's facts, and to drop the
//! intent log that the origin's head had when the snapshot was taken.

use super::create::{Made, apply_settings, check_name, check_new};
use super::set::{AUTO, find, reservation_of};
use super::snapshot::of_the_future;
use crate::contents::{self, Contents};
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::feature_use;
use crate::livelist;
use crate::names::DatasetName;
use crate::namespace::View;
use crate::properties::parse::{Checked, Setting};
use crate::properties::value::Kinds;
use crate::task::{FeatureCounts, Room, SyncTask, TaskContext, TaskRefusal};
use std::cmp::Ordering;
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::dataset_dir::CRYPTO_KEY;
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::units::ObjectId;

/// Makes a clone of a snapshot.
#[derive(Debug, Clone)]
pub struct CloneSnapshot {
    /// The full name of the snapshot.
    pub origin: String,
    /// The full name of the clone, in the same pool. The parent is there.
    pub name: String,
    /// Properties, parsed for what the snapshot is of.
    pub settings: Vec<Checked>,
}

impl SyncTask for CloneSnapshot {
    type Output = ObjectId;

    fn room(&self) -> Room {
        Room::normal(6)
    }

    #[doc(alias = "dsl_dataset_clone_check")]
    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let parent = check_name(view, &self.name)?;
        let origin = find(view, &self.origin)?;
        if !origin.is_snapshot() {
            return Err(TaskRefusal::BadValue {
                property: "origin".to_string(),
                why: "operation not applicable to datasets of this type".to_string(),
            });
        }
        if origin.directory().extension(CRYPTO_KEY)?.is_some() {
            return Err(TaskRefusal::NotSupported {
                what: "cloning an encrypted snapshot".to_string(),
            });
        }
        if view.is_syncing() && is_of_this_group(view, &origin)? {
            return Err(TaskRefusal::NotInThisGroup);
        }
        let kinds = match contents::outline(&origin)? {
            Contents::Volume(_) => Kinds::VOLUME,
            _ => Kinds::FILESYSTEM,
        };
        check_new(&parent, &self.resolved(&origin)?, kinds, features)
    }

    #[doc(alias = "dsl_dataset_clone_sync")]
    fn apply(self, context: &TaskContext<'_>) -> Result<ObjectId, DatasetError> {
        context.namespace.change(|| {
            let not_found = |_| DatasetError::NotFound {
                name: self.origin.clone(),
            };
            let name = DatasetName::parse(&self.origin).map_err(not_found)?;
            let origin = context.view().dataset(&name)?;
            assert!(origin.is_snapshot(), "a clone begins as a snapshot");
            let flags = origin.stored()?.flags;
            let made = Made::from(context, &self.name, Some(origin.id()))?;
            let writing = context.writing();
            for flag in [DatasetFlags::INCONSISTENT, DatasetFlags::CASE_INSENSITIVE] {
                if flags.contains(flag) {
                    writing.change(made.head(), |head: &mut ondisk::dataset::Dataset| {
                        head.flags = head.flags.with(flag);
                    })?;
                }
            }
            feature_use::take_over(context, origin.id(), made.head())?;
            livelist::begin(context, context.view().directory(&self.name)?.id())?;
            let text = format!("origin={} ({})", self.origin, origin.id());
            made.record(context, "clone", text);
            apply_settings(context, &self.name, &self.resolved(&origin)?)?;
            forget_log(context, made.head())?;
            Ok(made.head())
        })
    }
}

impl CloneSnapshot {
    /// The settings, with what `refreservation=auto` stands for. As OpenZFS, which counts the
    /// copies that the clone is made with, and not those that it inherits.
    #[doc(alias = "zfs_fix_auto_resv")]
    fn resolved(&self, origin: &Dataset<'_>) -> Result<Vec<Checked>, DatasetError> {
        let mut settings = self.settings.clone();
        let copies = settings.iter().find(|one| one.name == "copies");
        let copies = match copies.map(|one| &one.setting) {
            Some(Setting::Number(copies)) => *copies,
            _ => 1,
        };
        for checked in &mut settings {
            if checked.name == "refreservation" && checked.setting == Setting::Number(AUTO) {
                checked.setting = Setting::Number(reservation_of(origin, copies)?);
            }
        }
        Ok(settings)
    }
}

/// Whether a snapshot was taken in the group that is being stored. What its clone, or its head
/// after a rollback, stored in the same group would be as old as the snapshot, and could not be
/// told from its blocks.
pub(super) fn is_of_this_group(
    view: View<'_>,
    snapshot: &Dataset<'_>,
) -> Result<bool, DatasetError> {
    let storing = view.namespace().mos().env().txgs.stored_txg().next();
    match snapshot.stored()?.creation_txg.cmp(&storing) {
        Ordering::Less => Ok(false),
        Ordering::Equal => Ok(true),
        Ordering::Greater => Err(of_the_future(snapshot.id())),
    }
}

/// Has a head, whose object set is that of a snapshot, begin without the intent log that there was
/// when the snapshot was taken.
#[doc(alias = "dsl_dataset_zero_zil")]
pub(super) fn forget_log(context: &TaskContext<'_>, head: ObjectId) -> Result<(), DatasetError> {
    let set = context.namespace.head_set(head, context.operation)?;
    if set.phys().intent_log != IntentLogHead::default() {
        set.change_head(context.tx, |objset| {
            objset.intent_log = IntentLogHead::default();
        });
    }
    Ok(())
}
