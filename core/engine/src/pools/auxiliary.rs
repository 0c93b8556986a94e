//! Hot spares and cache devices: they belong to no tree of vdevs, and are listed in objects of their own.

use crate::engine::{Auxiliary, OpenPool};
use tarn_ondisk::pool_directory as name;
use tarn_pool::{Pool, PoolError};
use tarn_probe::Operation;
use tarn_vdev::VdevConfig;
use tarn_vdev::import_search::DevicePaths;

/// Notes which there are, with the paths at which they were found.
pub(super) fn load(
    open: &OpenPool,
    paths: &DevicePaths,
    operation: &Operation,
) -> Result<(), PoolError> {
    *open.auxiliary.lock() = read(&open.pool, paths, operation)?;
    Ok(())
}

/// Reads which there are, with the paths at which they were found. Where none was found the stored one stays.
pub(super) fn read(
    pool: &Pool,
    paths: &DevicePaths,
    operation: &Operation,
) -> Result<Auxiliary, PoolError> {
    let mut auxiliary = Auxiliary {
        spares: listed(pool, name::SPARES, "spares", operation)?,
        caches: listed(pool, name::CACHE_DEVICES, "l2cache", operation)?,
    };
    for vdev in auxiliary.spares.iter_mut().chain(&mut auxiliary.caches) {
        paths.fix(pool.facts().guid, vdev);
    }
    Ok(auxiliary)
}

fn listed(
    pool: &Pool,
    object: &str,
    list: &str,
    operation: &Operation,
) -> Result<Vec<VdevConfig>, PoolError> {
    let directory = pool.directory(operation);
    let Some(id) = directory.find(object)?.filter(|id| !id.is_zero()) else {
        return Ok(Vec::new());
    };
    let packed = directory.packed_list(id)?;
    let vdevs = packed.optional_lists(list).ok().flatten().unwrap_or(&[]);
    // One that makes no sense can be shown by nobody; the pool does without it.
    Ok(vdevs.iter().flat_map(VdevConfig::parse).collect())
}
