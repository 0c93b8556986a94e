//! Objects of the MOS that belong to vdevs, and are freed with them.
//!
//! Each vdev has a ZAP, which is also in the list of all such ZAPs; a top-level vdev has an array
//! of space maps; a leaf that missed writes has a dirty time log. They are created in
//! [`config`](crate::config), [`space_maps`](crate::space_maps) and
//! [`dirty_time_logs`](crate::dirty_time_logs).

use crate::directory::{LEAF_ZAP, TOP_ZAP};
use crate::error::PoolError;
use crate::features::SyncingFeatures;
use crate::mos_writer::MosWriter;
use crate::space_maps::map_in;
use crate::sync_scope::SyncScope;
use tarn_dataset::task::FeatureCounts;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory::VDEV_ZAP_MAP;
use tarn_ondisk::space_map::SpaceMapHead;
use tarn_ondisk::units::{ObjectId, VdevId};
use tarn_vdev::VdevConfig;

/// Frees the objects of a vdev and of all below it, except space maps.
#[doc(alias = "vdev_destroy_unlink_zap")]
pub(crate) fn free(scope: &SyncScope<'_>, vdev: &VdevConfig) -> Result<(), PoolError> {
    let writer = scope.writer;
    for vdev in vdev.walk() {
        let zaps = [TOP_ZAP, LEAF_ZAP].map(|name| vdev.other_object(name));
        for zap in zaps.into_iter().flatten().filter(|zap| !zap.is_zero()) {
            if let Some(map) = writer.directory().find(VDEV_ZAP_MAP)? {
                writer.remove(map, &format!("{:x}", zap.get()))?;
            }
            writer.free(zap)?;
        }
        if let Some(missed) = vdev.dtl.filter(|missed| !missed.is_zero()) {
            free_space_map(writer, scope.features, missed)?;
        }
    }
    Ok(())
}

/// Frees the space maps of a top-level vdev, and their array.
#[doc(alias = "vdev_destroy_spacemaps")]
pub(crate) fn free_space_maps(scope: &SyncScope<'_>, vdev: VdevId) -> Result<(), PoolError> {
    let tops = scope.pool.vdevs().top_levels();
    let top = tops.iter().find(|top| top.id == vdev);
    let Some(top) = top.filter(|top| !top.metaslab_array.is_zero()) else {
        return Ok(());
    };
    let count = tarn_vdev::sizes::metaslab_count(top.asize, top.metaslab_shift);
    free_array(scope, top.metaslab_array, count)
}

/// Frees an array of so many space maps, and the space maps.
pub(crate) fn free_array(
    scope: &SyncScope<'_>,
    array: ObjectId,
    count: u64,
) -> Result<(), PoolError> {
    let writer = scope.writer;
    for index in 0..count {
        if let Some(map) = map_in(writer.directory(), array, index)? {
            free_space_map(writer, scope.features, map)?;
        }
    }
    writer.free(array)
}

/// Frees a space map, and counts its use of `spacemap_histogram` down where it has a histogram: one
/// from before the feature was enabled has none.
#[doc(alias = "space_map_free_obj")]
pub(crate) fn free_space_map(
    writer: MosWriter<'_>,
    features: &SyncingFeatures<'_>,
    map: ObjectId,
) -> Result<(), PoolError> {
    let object = writer.directory().object(map)?;
    let (_, has_histogram) = head_of(&object.bonus(), map)?;
    if has_histogram {
        features.decrement(Feature::SpacemapHistogram)?;
    }
    writer.free(map)
}

fn head_of(bonus: &[u8], object: ObjectId) -> Result<(SpaceMapHead, bool), PoolError> {
    let head = SpaceMapHead::from_bonus(bonus, ByteOrder::Little);
    head.map_err(|cause| PoolError::Corrupt { object, cause })
}
