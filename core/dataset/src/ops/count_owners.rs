//! Starts owner accounting in existing datasets, when the features `userobj_accounting` and
//! `project_quota` were enabled later.
//!
//! # Mechanism
//! [`BeginCounting`] has the dataset use the features, so that everything stored from then on is
//! counted; projects are counted right then. Existing objects follow in open txgs
//! ([`ObjectSet::count_objects`]), by the thread that has the pool's turn, so that the dataset is
//! neither destroyed nor exchanged meanwhile; then [`EndCounting`] sets the flag in the objset
//! block that all are counted.
//!
//! # After a crash
//! The next mount goes on with the objects that are not counted.

use super::receive::half_received::check_whole;
use crate::error::DatasetError;
use crate::feature_use;
use crate::namespace::View;
use crate::task::{FeatureCounts, SyncTask, TaskContext, TaskRefusal};
use crate::writing::in_object;
use std::cmp::Ordering;
use tarn_object::{Countable, ObjectSet};
use tarn_ondisk as ondisk;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::ObjectId;

/// The counts that a pool's features ask for.
pub fn countable(features: &dyn FeatureCounts) -> Countable {
    Countable {
        objects: features.is_enabled(Feature::UserobjAccounting),
        projects: features.is_enabled(Feature::ProjectQuota),
    }
}

/// Begins owner accounting in a file system, for the counts of the pool's features that it lacks.
#[derive(Debug, Clone, Copy)]
pub struct BeginCounting {
    /// The file system.
    pub head: ObjectId,
}

impl SyncTask for BeginCounting {
    /// Whether objects that are there are to be counted now.
    type Output = bool;

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        check_head(view, self.head)
    }

    #[doc(alias = "dmu_objset_id_quota_upgrade_cb")]
    fn apply(self, context: &TaskContext<'_>) -> Result<bool, DatasetError> {
        let set = context.namespace.head_set(self.head, context.operation)?;
        let uncounted = set.uncounted(countable(context.features));
        context.namespace.change(|| {
            if uncounted.projects {
                feature_use::activate(context, self.head, Feature::ProjectQuota)?;
                let counted = set.count_projects(context.tx, context.operation);
                counted.map_err(in_object(self.head))?;
            }
            if uncounted.objects {
                feature_use::activate(context, self.head, Feature::UserobjAccounting)?;
                set.begin_to_count_objects(context.tx);
            }
            Ok(uncounted.objects)
        })
    }
}

/// All objects of a file system were counted.
#[derive(Debug, Clone, Copy)]
pub struct EndCounting {
    /// The file system.
    pub head: ObjectId,
}

impl SyncTask for EndCounting {
    /// Whether it was counted without a break.
    type Output = bool;

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        check_head(view, self.head)
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<bool, DatasetError> {
        let set = context.namespace.head_set(self.head, context.operation)?;
        Ok(set.end_counting_objects(context.tx))
    }
}

/// Whether this is the object set that all users of the dataset share: it was neither destroyed nor
/// exchanged for another.
pub fn is_current(view: View<'_>, set: &std::sync::Arc<ObjectSet>) -> bool {
    view.namespace().is_open_head(set)
}

/// Refuses a head that is half received, or is not there any more; and one of which this group has
/// a snapshot: what its head stores would look as old.
fn check_head(view: View<'_>, head: ObjectId) -> Result<(), TaskRefusal> {
    let dataset = view.dataset_without_name(head)?;
    check_whole(&dataset)?;
    let stored: ondisk::dataset::Dataset = dataset.stored()?;
    let storing = view.namespace().mos().env().txgs.stored_txg().next();
    match stored.previous_snapshot_txg.cmp(&storing) {
        Ordering::Equal if view.is_syncing() => Err(TaskRefusal::NotInThisGroup),
        _ => Ok(()),
    }
}
