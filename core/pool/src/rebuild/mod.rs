//! Sequential rebuild (`zpool replace -s`, `zpool attach -s`): a new device of a mirror is filled
//! in the order of its surface, without block pointers; a scrub verifies it afterwards.
//!
//! # Problem
//! A resilver finds blocks by walking all trees, which takes hours before redundancy is back. A
//! mirror's devices have the same bytes at the same offsets, and space maps say which are in use.
//!
//! # Mechanism
//! A device joins with a dirty time log of all births, as for a resilver, and its configuration has
//! `rebuild_txg`. A thread for each top-level vdev goes over the metaslabs in their order
//! ([`thread`]). It [holds](tarn_space::MetaslabHold) one at a time, so that nothing is allocated
//! there meanwhile, and copies what has blocks in large pieces from whole devices to the new ones
//! ([`tarn_vdev::copy_ranges`]). Blocks that are allocated later are written to all devices by
//! their own writes.
//!
//! The state ([`Rebuild`]) is OpenZFS's, in the ZAP of the top-level vdev, so either program goes
//! on where the other stopped. The feature `device_rebuild` counts the rebuilds that are active.
//!
//! When all was copied, births leave the dirty time logs, replaced devices leave the pool, and a
//! scrub begins: a rebuild cannot verify checksums. When a range could not be read or written,
//! births stay, and a resilver begins instead. While a rebuild is active no scan runs.
//!
//! # Invariants
//! - What lies before the stored offset was copied, or counted as an error, before the txg that has
//!   the offset was flushed.
//! - Births leave the log of a device in a txg after all its ranges were written without error.
//! - A rebuild that is *active* in the MOS of an open pool has a thread, or its vdev is not in use.
//!
//! # After a crash
//! The rebuild goes on from the stored offset: some of it is done twice.

pub(crate) mod control;
pub(crate) mod state;
mod status;
mod steps;
mod thread;

pub use status::RebuildStatus;

use crate::directory::TOP_ZAP;
use crate::error::PoolError;
use crate::pool::{Mode, Pool};
use crate::sync_scope::SyncScope;
use state::State;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use tarn_object::zap::ZapValue;
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory::VDEV_REBUILD;
use tarn_ondisk::rebuild::{ACTIVE, Rebuild};
use tarn_ondisk::units::{ObjectId, VdevId};
use tarn_probe::Operation;
use tarn_vdev::VdevConfig;

impl Pool {
    /// Loads what the MOS has, when the pool is opened. What makes no sense counts for none, as in
    /// OpenZFS.
    ///
    /// # Errors
    /// The ZAP of a vdev cannot be read.
    #[doc(alias = "vdev_rebuild_load")]
    pub(crate) fn load_rebuilds(&self, operation: &Operation) -> Result<(), PoolError> {
        let feature = Feature::DeviceRebuild.guid();
        if self.features().count(feature).is_none() {
            return Ok(());
        }
        let mut rebuilds = BTreeMap::new();
        for top in &self.vdevs().config().children {
            let Some(zap) = zap_of(top) else { continue };
            let stored = self.directory(operation).value_in(zap, VDEV_REBUILD)?;
            let stored = stored.and_then(|stored| Rebuild::from_words(&stored.to_words()));
            if let Some(stored) = stored.filter(|stored| stored.state != 0) {
                rebuilds.insert(VdevId::from(top.id), State::of(stored));
            }
        }
        *self.rebuilds.0.lock() = rebuilds;
        Ok(())
    }

    /// Whether a rebuild is active.
    #[doc(alias = "vdev_rebuild_active")]
    pub fn is_rebuilding(&self) -> bool {
        let rebuilds = self.rebuilds.0.lock();
        let mut states = rebuilds.values();
        states.any(|state| state.stored.state == ACTIVE)
    }

    /// Whether the rebuild of a vdev is active.
    pub(crate) fn is_rebuilding_vdev(&self, id: VdevId) -> bool {
        let rebuilds = self.rebuilds.0.lock();
        let state = rebuilds.get(&id);
        state.is_some_and(|state| state.stored.state == ACTIVE)
    }

    /// Starts the threads of the rebuilds that are active and have none. Called when the pool is
    /// open, and when devices are in use again.
    #[doc(alias = "vdev_rebuild_restart")]
    pub(crate) fn resume_rebuilds(&self) {
        let pool = self.this.get().and_then(std::sync::Weak::upgrade);
        let Some(pool) = pool.filter(|pool| pool.mode() == Mode::ReadWrite) else {
            return;
        };
        let mut rebuilds = self.rebuilds.0.lock();
        for (id, state) in rebuilds.iter_mut() {
            if state.stored.state != ACTIVE || state.has_thread() || self.is_closing() {
                continue;
            }
            let (pool, id, progress) = (pool.clone(), *id, state.progress.clone());
            let name = format!("tarn-rebuild-{}-{}", id.index(), self.name());
            let run = move || thread::run(&pool, id, &progress);
            state.thread = Some(self.host().spawn_background(&name, run));
        }
    }

    /// Ends all threads, and leaves their progress to the next txg; the rebuilds go on when the
    /// pool is opened again.
    #[doc(alias = "vdev_rebuild_stop_all")]
    pub(crate) fn end_rebuilds(&self) {
        let mut threads = Vec::new();
        let mut active = Vec::new();
        for (id, state) in self.rebuilds.0.lock().iter_mut() {
            state.progress.stops.store(true, Ordering::Release);
            if state.stored.state == ACTIVE {
                active.push(*id);
            }
            threads.extend(state.thread.take());
        }
        for thread in threads {
            thread.join().unwrap_or_else(|panicked| panicked.resume());
        }
        for id in active {
            // A pool that stores nothing goes on from what it has stored.
            drop(self.leave_for_sync(move |scope| store(scope, id)));
        }
    }
}

/// The ZAP of a top-level vdev.
fn zap_of(top: &VdevConfig) -> Option<ObjectId> {
    top.other_object(TOP_ZAP).filter(|zap| !zap.is_zero())
}

/// Stores the state and the progress of a rebuild in the syncing txg.
#[doc(alias = "vdev_rebuild_update_sync")]
fn store(scope: &SyncScope<'_>, id: VdevId) -> Result<(), PoolError> {
    let stored = {
        let mut rebuilds = scope.pool.rebuilds.0.lock();
        let Some(state) = rebuilds.get_mut(&id) else {
            return Ok(());
        };
        // What lies before its offset was written: the devices are flushed before the uberblock.
        let now = state.now();
        assert!(
            now.last_offset >= state.stored.last_offset,
            "a rebuild goes forward, or begins anew with another progress"
        );
        state.stored = now;
        now
    };
    put(scope, id, &stored)
}

fn put(scope: &SyncScope<'_>, id: VdevId, stored: &Rebuild) -> Result<(), PoolError> {
    let root = scope.pool.vdevs().config();
    let Some(zap) = root.children.get(id.index()).and_then(zap_of) else {
        return Ok(());
    };
    let words = ZapValue::Words(stored.to_words());
    scope.writer.put(zap, VDEV_REBUILD, &words)?;
    debug_assert_eq!(
        Rebuild::from_words(&words.to_words()),
        Some(*stored),
        "what was stored is read as it was"
    );
    Ok(())
}
