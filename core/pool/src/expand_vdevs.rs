//! `zpool online -e` and the property `autoexpand`: a top-level vdev uses what its devices have
//! gained.
//!
//! # Mechanism
//! The new size is part of the configuration; the same txg stores it in all labels, at the new ends
//! of the devices, too. Metaslabs are added when that txg is stored: until then no block may be
//! where the last uberblock knows no room.

use crate::error::{PoolError, TaskError};
use crate::pool::Pool;
use crate::properties;
use crate::sync_scope::SyncScope;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::units::VdevId;
use tarn_probe::Operation;
use tarn_vdev::sizes::metaslab_count;

/// The property with which vdevs grow by themselves.
#[doc(alias = "ZPOOL_PROP_AUTOEXPAND")]
const AUTOEXPAND: &str = "autoexpand";

impl Pool {
    /// Expands a top-level vdev, and waits until that is stored. Does nothing if its devices have
    /// no more room.
    ///
    /// # Errors
    /// The pool is read-only, suspended or being closed.
    #[doc(alias = "vdev_online")]
    pub fn expand(&self, vdev: VdevId, operation: &Operation) -> Result<(), TaskError> {
        self.run_in_sync(operation, move |scope| expand(scope, vdev).map(Ok))
    }
}

impl Pool {
    /// Expands all vdevs whose devices have more room, if the property `autoexpand` says so, and
    /// waits until that is stored.
    ///
    /// # Errors
    /// The pool is read-only, suspended or being closed.
    pub fn expand_by_property(&self, operation: &Operation) -> Result<(), TaskError> {
        let stored = properties::read(self.directory(operation));
        match stored.is_ok_and(|stored| properties::is_on(&stored, AUTOEXPAND)) {
            true => self.run_in_sync(operation, |scope| expand_automatically(scope).map(Ok)),
            false => Ok(()),
        }
    }
}

/// Expands a top-level vdev in the syncing txg.
#[doc(alias = "vdev_expand")]
pub(crate) fn expand(scope: &SyncScope<'_>, vdev: VdevId) -> Result<(), PoolError> {
    let pool = scope.pool;
    let before = space_bytes(pool);
    if !pool.vdevs().expand(vdev) {
        return Ok(());
    }
    pool.io().vdevs_changed();
    pool.grown.lock().push(vdev);
    let after = space_bytes(pool);
    assert!(after >= before, "a vdev that is expanded does not shrink");
    if after > before {
        let (name, grown) = (pool.name(), after - before);
        scope.context.record(InternalEvent {
            name: "vdev online",
            dataset: None,
            text: format!("pool '{name}' size: {after}(+{grown})"),
        });
    }
    Ok(())
}

/// The room in the metaslabs of all vdevs that hold data.
#[doc(alias = "metaslab_class_get_space")]
fn space_bytes(pool: &Pool) -> u64 {
    let tops = pool.vdevs().top_levels().into_iter();
    let with_data = tops.filter(|top| !top.is_log && top.metaslab_shift != 0);
    with_data
        .map(|top| metaslab_count(top.asize, top.metaslab_shift) << top.metaslab_shift)
        .sum()
}

/// Expands all vdevs whose devices have more room, if the property says so.
pub(crate) fn expand_automatically(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    if !properties::is_on(&properties::read(scope.writer.directory())?, AUTOEXPAND) {
        return Ok(());
    }
    for top in scope.pool.vdevs().top_levels() {
        expand(scope, top.id)?;
    }
    Ok(())
}
