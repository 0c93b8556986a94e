//! Temporary snapshots, which exist only while a command reads them.
//!
//! # Problem
//! `zfs diff` of a file system reads it for minutes while programs write to it. The command needs
//! the present state of the file system, and must leave nothing behind, however it ends.
//!
//! # Mechanism
//! In one txg a snapshot is taken, gets a hold, and is destroyed as `zfs destroy -d` does: it goes
//! with that hold. The hold is temporary: it is also in a table of the pool, by the number of the
//! snapshot and the tag. An import releases all holds in that table. OpenZFS does the same, so each
//! cleans up after the other.

use super::destroy_snapshot::destroy_or_mark;
use super::hold::{self, Lasts};
use super::snapshot::TakeSnapshots;
use super::temporary_holds::{self, parse_key, table};
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::names::DatasetName;
use crate::namespace::View;
use crate::task::{FeatureCounts, Room, SyncTask, TaskContext, TaskRefusal};
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::zap::can_hold_name;

/// Takes a snapshot that goes with the only hold it has: see [`ReleaseHolds`](hold::ReleaseHolds).
#[doc(alias = "dsl_dataset_snapshot_tmp")]
#[derive(Debug, Clone)]
pub struct TakeTemporarySnapshot {
    /// Its full name.
    pub name: String,
    /// The tag of its hold.
    pub tag: String,
}

impl TakeTemporarySnapshot {
    fn taking(&self) -> TakeSnapshots {
        TakeSnapshots {
            names: vec![self.name.clone()],
            settings: Vec::new(),
        }
    }
}

impl SyncTask for TakeTemporarySnapshot {
    type Output = ();

    fn room(&self) -> Room {
        Room::normal(3)
    }

    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let key = temporary_holds::key(ObjectId::new(u64::MAX), &self.tag);
        if !can_hold_name(&self.tag) || !can_hold_name(&key) {
            return Err(TaskRefusal::TagTooLong);
        }
        match self.taking().check(view, features) {
            // There is only the one.
            Err(TaskRefusal::Several(refused)) => Err(refused
                .into_iter()
                .next()
                .map_or(TaskRefusal::NotInThisGroup, |(_, refusal)| refusal)),
            checked => checked,
        }
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            self.taking().apply(context)?;
            let not_found = |_| DatasetError::NotFound {
                name: self.name.clone(),
            };
            let parsed = DatasetName::parse(&self.name).map_err(not_found)?;
            let snapshot = context.view().dataset(&parsed)?;
            hold::add(context, &snapshot, &self.tag, Lasts::UntilImport)?;
            destroy_or_mark(context, &snapshot, true)
        })
    }
}

/// Releases all temporary holds of the pool, which a crash left.
#[doc(alias = "dsl_pool_clean_tmp_userrefs")]
#[derive(Debug, Clone, Copy)]
pub struct ReleaseTemporaryHolds;

impl ReleaseTemporaryHolds {
    /// Whether there are any.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn is_needed(view: View<'_>) -> Result<bool, DatasetError> {
        match table(view)? {
            None => Ok(false),
            Some(table) => Ok(view.mos().count(table)? > 0),
        }
    }
}

impl SyncTask for ReleaseTemporaryHolds {
    type Output = ();

    fn room(&self) -> Room {
        Room::freeing()
    }

    fn check(&self, _: View<'_>, _: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        Ok(())
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        let view = context.view();
        let Some(table) = table(view)? else {
            return Ok(());
        };
        context.namespace.change(|| {
            for (key, _) in view.mos().entries(table)? {
                let held = parse_key(&key).map(|(id, tag)| (find(view, id), tag));
                let was_released = match held {
                    Some((Some(snapshot), tag)) => hold::remove(context, &snapshot, tag)?,
                    _ => false,
                };
                // Of what is not there any more.
                if !was_released {
                    context.writing().remove(table, &key)?;
                }
            }
            Ok(())
        })
    }
}

/// The snapshot of this number. None where there is no such thing any more: the number may belong
/// to anything now.
fn find(view: View<'_>, id: ObjectId) -> Option<Dataset<'_>> {
    view.dataset_by_id(id).ok().filter(Dataset::is_snapshot)
}
