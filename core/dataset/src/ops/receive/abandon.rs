//! Discards a partly received dataset (`zfs receive -A`).

use super::receiver::busy;
use crate::error::DatasetError;
use crate::namespace::View;
use crate::ops::destroy::{check_abandoned, destroy};
use crate::ops::destroy_snapshot::destroy_if_marked;
use crate::task::{FeatureCounts, Room, SyncTask, TaskContext, TaskRefusal};
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::units::ObjectId;

/// Discards a partly received dataset.
#[derive(Debug, Clone)]
pub struct AbandonReceive {
    /// Where the stream went.
    pub head: ObjectId,
}

impl SyncTask for AbandonReceive {
    type Output = ();

    fn room(&self) -> Room {
        Room::any()
    }

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let head = view.dataset_without_name(self.head)?;
        let stored = head.stored()?;
        if !stored.flags.contains(DatasetFlags::INCONSISTENT) {
            return Err(busy("dataset is busy"));
        }
        check_abandoned(view, &head)
    }

    #[doc(alias = "dmu_recv_cleanup_ds")]
    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            let head = context.view().dataset_by_id(self.head)?;
            let origin = head.stored()?.previous_snapshot;
            destroy(context, &head)?;
            destroy_if_marked(context, origin)
        })
    }
}
