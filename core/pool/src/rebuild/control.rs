//! Begins and ends rebuilds, in the sync thread.

use super::put;
use super::state::{Progress, State};
use crate::error::PoolError;
use crate::events::class;
use crate::pool::Pool;
use crate::replacing;
use crate::sync_scope::SyncScope;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tarn_dataset::task::{FeatureCounts, InternalEvent};
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::rebuild::{ACTIVE, CANCELED, COMPLETE, Rebuild};
use tarn_ondisk::units::{Txg, VdevId};

/// Begins the rebuild of a vdev that a device has just joined, or has the one that is active begin
/// anew. Its thread is started when the txg is stored.
#[doc(alias("vdev_rebuild_initiate_sync", "vdev_rebuild_reset_sync"))]
pub(crate) fn begin(scope: &SyncScope<'_>, id: VdevId) -> Result<(), PoolError> {
    let pool = scope.pool;
    pool.end_scrub_for_rebuild(scope)?;
    assert!(
        pool.scans.running().is_none(),
        "no scan runs beside a rebuild"
    );
    let leaves = pool.vdevs().leaves().into_iter();
    leaves
        .filter(|leaf| pool.vdevs().top_of(leaf.guid) == Some(id))
        .for_each(|leaf| leaf.forget_rebuild_written());
    // A device that failed while it joined is not to be filled: the thread finds that.
    let missed = pool.vdevs().births_to_rebuild(id);
    let missed = missed.unwrap_or(Txg::INITIAL..=scope.writer.tx.txg());
    let before = {
        let rebuilds = pool.rebuilds.0.lock();
        let state = rebuilds.get(&id);
        let active = state.filter(|state| state.stored.state == ACTIVE);
        active.map(|state| state.stored)
    };
    let stored = Rebuild {
        state: ACTIVE,
        txg_min: Txg::new(missed.start().get() - 1),
        txg_max: missed.end().next(),
        start_time_s: before.map_or(scope.context.now_s, |before| before.start_time_s),
        ..Rebuild::default()
    };
    assert!(
        stored.txg_min < Txg::INITIAL && stored.txg_max > scope.writer.tx.txg(),
        "the new device misses all births up to that of its txg"
    );
    if before.is_none() {
        scope.features.increment(Feature::DeviceRebuild)?;
    }
    let thread = {
        let mut rebuilds = pool.rebuilds.0.lock();
        let state = rebuilds.entry(id).or_default();
        // A thread that has begun before the device joined ends, and changes nothing any more.
        state.progress.stops.store(true, Ordering::Release);
        std::mem::replace(state, State::of(stored)).thread
    };
    pool.sync_threads.lock().extend(thread);
    put(scope, id, &stored)?;
    note(
        scope,
        id,
        if before.is_some() { "reset" } else { "started" },
    );
    if before.is_none() {
        post(pool, id, class::RESILVER_START);
    }
    Ok(())
}

/// Ends a rebuild whose thread has come to the end of the vdev, unless it began anew meanwhile.
#[doc(alias = "vdev_rebuild_complete_sync")]
pub(super) fn complete(
    scope: &SyncScope<'_>,
    id: VdevId,
    progress: &Arc<Progress>,
) -> Result<(), PoolError> {
    let Some(stored) = end(scope, id, progress, COMPLETE)? else {
        return Ok(());
    };
    let pool = scope.pool;
    if stored.error_count == 0 {
        pool.vdevs()
            .end_rebuild(id, (stored.txg_min, stored.txg_max));
    }
    note(scope, id, "complete");
    post(pool, id, class::RESILVER_FINISH);
    replacing::finish(scope)?;
    pool.verify_rebuilt(scope)
}

/// Ends a rebuild none of whose devices is left, or in use.
#[doc(alias = "vdev_rebuild_cancel_sync")]
pub(super) fn cancel(
    scope: &SyncScope<'_>,
    id: VdevId,
    progress: &Arc<Progress>,
) -> Result<(), PoolError> {
    if end(scope, id, progress, CANCELED)?.is_none() {
        return Ok(());
    }
    note(scope, id, "canceled");
    post(scope.pool, id, class::RESILVER_FINISH);
    // Devices may miss blocks for another reason.
    scope.pool.defer_resilver();
    Ok(())
}

/// Notes and stores how an active rebuild ended. None if it is another one.
fn end(
    scope: &SyncScope<'_>,
    id: VdevId,
    progress: &Arc<Progress>,
    how: u64,
) -> Result<Option<Rebuild>, PoolError> {
    let stored = {
        let mut rebuilds = scope.pool.rebuilds.0.lock();
        let Some(state) = rebuilds.get_mut(&id) else {
            return Ok(None);
        };
        if state.stored.state != ACTIVE || !Arc::ptr_eq(&state.progress, progress) {
            return Ok(None);
        }
        state.stored = Rebuild {
            state: how,
            end_time_s: scope.context.now_s,
            ..state.now()
        };
        state.stored
    };
    assert_ne!(
        stored.state, ACTIVE,
        "a rebuild that has ended is not active"
    );
    put(scope, id, &stored)?;
    scope.features.decrement(Feature::DeviceRebuild)?;
    Ok(Some(stored))
}

/// Forgets the rebuilds that have ended: a resilver begins, and `zpool status` shows that from now
/// on.
#[doc(alias = "vdev_rebuild_clear_sync")]
pub(crate) fn forget_ended(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    let ended: Vec<VdevId> = {
        let mut rebuilds = scope.pool.rebuilds.0.lock();
        let ended = rebuilds
            .iter()
            .filter(|(_, state)| state.stored.state != ACTIVE);
        let ended: Vec<VdevId> = ended.map(|(id, _)| *id).collect();
        rebuilds.retain(|_, state| state.stored.state == ACTIVE);
        ended
    };
    for id in ended {
        put(scope, id, &Rebuild::default())?;
    }
    Ok(())
}

fn note(scope: &SyncScope<'_>, id: VdevId, what: &str) {
    let root = scope.pool.vdevs().config();
    let guid = root
        .children
        .get(id.index())
        .map_or(0, |top| top.guid.get());
    scope.context.record(InternalEvent {
        name: "rebuild",
        dataset: None,
        text: format!("vdev_id={} vdev_guid={guid} {what}", id.index()),
    });
}

#[doc(alias = "vdev_rebuild_log_notify")]
fn post(pool: &Pool, id: VdevId, name: &str) {
    let root = pool.vdevs().config();
    let top = root.children.get(id.index()).map(|top| top.guid);
    let more = NvList::new().with("resilver_type", "sequential");
    pool.post_event(name, top, more);
}
