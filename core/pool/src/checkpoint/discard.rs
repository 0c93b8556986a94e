//! Freeing what was kept for a checkpoint that is given up, some of it in each txg.
//!
//! # Mechanism
//! The last entries of a vdev's map are decoded block by block, their ranges are freed, and the map
//! is cut off before them. An empty map is freed, and after the last of them the feature is not
//! active any more. Nothing else says how far it has come: another program goes on from there.

use super::maps::region_of;
use super::state::{CheckpointState, KeptMap};
use crate::error::PoolError;
use crate::log_space_maps::top_zap;
use crate::pool::Pool;
use crate::replacing;
use crate::space_maps::{head_of, set_head};
use crate::sync_scope::SyncScope;
use crate::vdev_objects::free_space_map;
use tarn_dataset::task::{FeatureCounts, InternalEvent};
use tarn_ondisk::declare::{ByteOrder, Corrupt, narrow, widen};
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory::VDEV_CHECKPOINT_SPACE_MAP;
use tarn_ondisk::space_map::{Action, Entry, SpaceMapDecoder};
use tarn_ondisk::units::{ObjectId, VdevId};
use tarn_vdev::TopLevel;

impl Pool {
    /// Whether a checkpoint is being discarded.
    pub(crate) fn is_discarding_checkpoint(&self) -> bool {
        self.checkpoint.state() == Some(CheckpointState::Discarding)
    }
}

/// Frees some of what was kept. Once in each txg, in its first pass.
#[doc(alias("spa_checkpoint_discard_thread", "spa_checkpoint_discard_thread_sync"))]
pub(crate) fn step(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    let pool = scope.pool;
    if !pool.is_discarding_checkpoint() {
        return Ok(());
    }
    let tops = pool.vdevs().top_levels();
    let mut left = pool.checkpoint.entries_max();
    for (vdev, map) in pool.checkpoint.maps() {
        if left == 0 {
            break;
        }
        let top = tops.iter().find(|top| top.id == vdev);
        let top = top.ok_or(PoolError::NoSpaceMaps { vdev })?;
        left -= cut(scope, top, map, left)?;
    }
    pool.publish_checkpoint();
    if pool.checkpoint.maps().is_empty() {
        return complete(scope);
    }
    pool.txgs().kick();
    Ok(())
}

/// Frees the last ranges of a map, so many at most, and gives their number.
#[doc(alias = "space_map_incremental_destroy")]
fn cut(
    scope: &SyncScope<'_>,
    top: &TopLevel,
    map: KeptMap,
    most: usize,
) -> Result<usize, PoolError> {
    let (pool, writer) = (scope.pool, scope.writer);
    let object = writer.directory().object(map.object)?;
    let (mut head, _) = head_of(&object)?;
    let block = object.block_size().get();
    let mut taken = 0;
    while head.length > 0 && taken < most {
        let start = (head.length - 1) / block * block;
        let mut bytes = vec![0; narrow(head.length - start)];
        let read = object.read(start, &mut bytes, writer.operation);
        read.map_err(|cause| PoolError::Object {
            object: map.object,
            cause,
        })?;
        let entries = entries_of(top, map.object, &bytes)?;
        let kept = entries.len().saturating_sub(most - taken);
        for (_, entry) in &entries[kept..] {
            if entry.action != Action::Free {
                return Err(impossible(map.object, "it has an allocation"));
            }
            let txg = writer.tx.txg();
            let freed = pool.space().free_kept(top.id, entry.start, entry.size, txg);
            freed.map_err(|_| impossible(map.object, "it has a range that is not allocated"))?;
            let size = entry.size.get().cast_signed();
            head.allocated = head.allocated.saturating_add(size);
        }
        taken += entries.len() - kept;
        head.length = match entries.get(kept) {
            Some((position, _)) if kept > 0 => start + widen(*position),
            _ => start,
        };
    }
    match head.length {
        0 => forget(scope, top.id, map.object)?,
        _ => {
            set_head(writer, &object, &head)?;
            let bytes = head.allocated.unsigned_abs();
            let map = KeptMap { bytes, ..map };
            pool.checkpoint.known.lock().maps.insert(top.id, map);
        }
    }
    Ok(taken)
}

/// The entries of a block, each with its place in it.
fn entries_of(
    top: &TopLevel,
    object: ObjectId,
    block: &[u8],
) -> Result<Vec<(usize, Entry)>, PoolError> {
    let mut decoder = SpaceMapDecoder::new(region_of(top));
    let mut entries = decoder.entries(block, ByteOrder::Little);
    let mut found = Vec::new();
    loop {
        let position = entries.position();
        match entries.next() {
            Some(entry) => {
                let entry = entry.map_err(|cause| PoolError::Corrupt { object, cause })?;
                found.push((position, entry));
            }
            None => return Ok(found),
        }
    }
}

/// Frees an empty map.
fn forget(scope: &SyncScope<'_>, vdev: VdevId, map: ObjectId) -> Result<(), PoolError> {
    let (pool, writer) = (scope.pool, scope.writer);
    free_space_map(writer, scope.features, map)?;
    if let Some(zap) = top_zap(&pool.vdevs().config(), vdev) {
        writer.remove(zap, VDEV_CHECKPOINT_SPACE_MAP)?;
    }
    pool.checkpoint.known.lock().maps.remove(&vdev);
    Ok(())
}

/// Nothing is left.
#[doc(alias = "spa_checkpoint_discard_complete_sync")]
fn complete(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    if scope.features.is_active(Feature::ZpoolCheckpoint) {
        scope.features.decrement(Feature::ZpoolCheckpoint)?;
    }
    scope.context.record(InternalEvent {
        name: "spa discard checkpoint",
        dataset: None,
        text: "finished discarding checkpointed state from the pool".to_string(),
    });
    scope.pool.checkpoint.known.lock().is_active = false;
    // Devices that were replaced meanwhile may leave.
    replacing::finish(scope)
}

fn impossible(object: ObjectId, why: &'static str) -> PoolError {
    let cause = Corrupt::Inconsistent {
        what: "space map of the checkpoint",
        offset: 0,
        why,
    };
    PoolError::Corrupt { object, cause }
}
