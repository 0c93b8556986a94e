//! Hot spares and cache devices: they belong to no tree of vdevs, and are listed in objects of their own.

use crate::engine::{Auxiliary, OpenPool};
use tarn_ondisk::pool_directory as name;
use tarn_pool::PoolError;
use tarn_probe::Operation;
use tarn_vdev::VdevConfig;
use tarn_vdev::import_search::DevicePaths;

/// Reads which there are, with the paths at which they were found. Where none was found the stored one stays.
pub(super) fn load(
    open: &OpenPool,
    paths: &DevicePaths,
    operation: &Operation,
) -> Result<(), PoolError> {
    let mut auxiliary = Auxiliary {
        spares: listed(open, name::SPARES, "spares", operation)?,
        caches: listed(open, name::CACHE_DEVICES, "l2cache", operation)?,
    };
    for vdev in auxiliary.spares.iter_mut().chain(&mut auxiliary.caches) {
        paths.fix(vdev);
    }
    *open.auxiliary.lock() = auxiliary;
    Ok(())
}

fn listed(
    open: &OpenPool,
    object: &str,
    list: &str,
    operation: &Operation,
) -> Result<Vec<VdevConfig>, PoolError> {
    let directory = open.pool.directory(operation);
    let Some(id) = directory.find(object)?.filter(|id| !id.is_zero()) else {
        return Ok(Vec::new());
    };
    let packed = directory.packed_list(id)?;
    let vdevs = packed.optional_lists(list).ok().flatten().unwrap_or(&[]);
    // One that makes no sense can be shown by nobody; the pool does without it.
    Ok(vdevs.iter().flat_map(VdevConfig::parse).collect())
}
