//! `zpool reguid`: a pool gets another guid.
//!
//! # Mechanism
//! The guid is that of the root vdev: one txg changes it in the configuration of the MOS and in all
//! labels. The sum of guids in the uberblock changes with it.
//!
//! # After a crash
//! The labels of a device may have the old guid and the new one. The import search takes that of
//! the newest uberblock of the pool ([`tarn_vdev::import_search`]): before that was written the
//! pool is found by its old guid, and after it by its new one.

use crate::create::new_guid;
use crate::error::TaskError;
use crate::events::class;
use crate::pool::Pool;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;
use tarn_vdev::health::VdevState;

/// Why a pool keeps its guid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReguidError {
    /// Devices are missing or failed: their labels would keep the old guid.
    #[error("one or more devices is currently unavailable")]
    NotHealthy,
    /// The pool could not be changed.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl Pool {
    /// Changes the guid of the pool, to a random one where none is given, and waits until that is
    /// stored.
    ///
    /// # Errors
    /// Not all devices are online, or the pool stores nothing: it keeps its guid.
    #[doc(alias = "spa_change_guid")]
    pub fn reguid(&self, guid: Option<Guid>, operation: &Operation) -> Result<(), ReguidError> {
        self.require_writable()?;
        let new = guid.unwrap_or_else(|| new_guid(self.host()));
        let changed = self.run_in_sync(operation, move |scope| {
            let pool = scope.pool;
            if pool.vdevs().health().standing.state != VdevState::Online {
                return Ok(Ok(false));
            }
            let old = pool.vdevs().config().guid;
            pool.vdevs().change_config(|root| root.guid = new);
            scope.change_facts(move |facts| facts.guid = new);
            pool.cache().set_pool_guid(new);
            scope.context.record(InternalEvent {
                name: "guid change",
                dataset: None,
                text: format!("old={old} new={new}"),
            });
            Ok(Ok(true))
        })?;
        if !changed {
            return Err(ReguidError::NotHealthy);
        }
        assert_eq!(
            self.facts().guid,
            self.vdevs().config().guid,
            "the guid of a pool is that of its root vdev"
        );
        self.post_event(class::POOL_REGUID, None, NvList::new());
        Ok(())
    }
}
