//! What a pool that was split off has in its MOS of vdevs that stayed behind.

use crate::config::ROOT_ZAP;
use crate::directory::{LEAF_ZAP, TOP_ZAP};
use crate::error::PoolError;
use crate::sync_scope::SyncScope;
use crate::vdev_objects;
use std::collections::BTreeSet;
use tarn_ondisk::pool_directory::{CACHE_DEVICES, POOL_DIRECTORY, SPARES, VDEV_ZAP_MAP};
use tarn_ondisk::units::ObjectId;
use tarn_vdev::VdevConfig;
use tarn_vdev::sizes::metaslab_count;

/// Frees what belongs to vdevs of the old pool that the new one does not have, in the first txg of
/// the new pool.
#[doc(alias("AVZ_ACTION_REBUILD", "spa_avz_build"))]
pub(crate) fn free_left_behind(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    let writer = scope.writer;
    let root = scope.pool.vdevs().config();
    let vdevs = root.walk();
    let zaps = vdevs.iter().flat_map(|vdev| {
        let names = [LEAF_ZAP, TOP_ZAP, ROOT_ZAP];
        names.into_iter().filter_map(|name| vdev.other_object(name))
    });
    let zaps: BTreeSet<ObjectId> = zaps.collect();
    if let Some(map) = writer.directory().find(VDEV_ZAP_MAP)? {
        for (name, value) in writer.directory().entries(map)? {
            let Some(zap) = value.as_word().map(ObjectId::new) else {
                continue;
            };
            if !zaps.contains(&zap) && !zap.is_zero() {
                writer.remove(map, &name)?;
                writer.free(zap)?;
            }
        }
    }
    let old = writer.directory().configuration()?;
    let old = old.list("vdev_tree").ok().map(VdevConfig::parse);
    let old = old.and_then(Result::ok);
    for vdev in old.iter().flat_map(VdevConfig::walk) {
        let is_here = root.find(vdev.guid).is_some();
        if let Some(log) = vdev.dtl.filter(|log| !is_here && !log.is_zero()) {
            vdev_objects::free_space_map(writer, scope.features, log)?;
        }
        let facts = vdev.top_level.as_ref();
        if let Some(facts) = facts.filter(|facts| facts.is_log && !is_here)
            && !facts.metaslab_array.is_zero()
        {
            let count = metaslab_count(facts.asize, facts.metaslab_shift);
            vdev_objects::free_array(scope, facts.metaslab_array, count)?;
        }
    }
    for list in [SPARES, CACHE_DEVICES] {
        if let Some(id) = writer.directory().find(list)?.filter(|id| !id.is_zero()) {
            writer.remove(POOL_DIRECTORY, list)?;
            writer.free(id)?;
        }
    }
    Ok(())
}
