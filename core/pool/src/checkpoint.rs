//! The pool checkpoint, and the space that it takes.
//!
//! # Mechanism
//! Blocks of the checkpoint that are freed later keep their space; each top-level vdev has a space
//! map with these ranges, in its ZAP. Their sum is the space of the checkpoint, which datasets
//! cannot use. Neither can they use the space of blocks that the last txg left to the next one to
//! free.

use crate::error::PoolError;
use crate::pool::Pool;
use crate::size::deflated;
use tarn_ondisk::bpobj::PointerListHead;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::space_map::SpaceMapHead;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;
use tarn_vdev::TopLevel;

/// The ZAP of a top-level vdev, in its configuration.
const VDEV_ZAP: &str = "com.delphix:vdev_zap_top";

/// Space of the checkpoint in deflated bytes; none where there is no checkpoint. The tree of
/// datasets counts it as used.
pub fn load(pool: &Pool, operation: &Operation) -> Result<Option<u64>, PoolError> {
    let directory = pool.directory(operation);
    let mut bytes = 0_u64;
    let mut has_maps = false;
    let root = pool.vdevs().config();
    for (config, top) in root.children.iter().zip(pool.vdevs().top_levels()) {
        let Some(zap) = config.other_object(VDEV_ZAP).filter(|zap| !zap.is_zero()) else {
            continue;
        };
        let map = directory.value_in(zap, name::VDEV_CHECKPOINT_SPACE_MAP)?;
        if let Some(map) = map.and_then(|value| value.as_word()) {
            has_maps = true;
            bytes = bytes.saturating_add(kept_bytes(pool, &top, ObjectId::new(map), operation)?);
        }
    }
    let exists = directory.value(name::CHECKPOINT)?.is_some();
    let kept = bytes.saturating_add(deferred_bytes(pool, operation)?);
    pool.namespace().set_kept_bytes(kept);
    Ok((exists || has_maps).then_some(bytes))
}

/// Space on one vdev. The space map has only frees, so its sum is negative.
fn kept_bytes(
    pool: &Pool,
    top: &TopLevel,
    map: ObjectId,
    operation: &Operation,
) -> Result<u64, PoolError> {
    let object = pool.directory(operation).object(map)?;
    let (head, _) = SpaceMapHead::from_bonus(&object.bonus(), ByteOrder::Little)
        .map_err(|cause| PoolError::Corrupt { object: map, cause })?;
    Ok(deflated(top, head.allocated.unsigned_abs()))
}

/// Space of blocks that the next txg will free.
fn deferred_bytes(pool: &Pool, operation: &Operation) -> Result<u64, PoolError> {
    let directory = pool.directory(operation);
    let Some(list) = directory.find(name::SYNC_POINTER_LIST)? else {
        return Ok(0);
    };
    let object = directory.object(list)?;
    let head = PointerListHead::from_bonus(&object.bonus(), ByteOrder::Little);
    let (head, _) = head.map_err(|cause| PoolError::Corrupt {
        object: list,
        cause,
    })?;
    Ok(head.allocated.get())
}
