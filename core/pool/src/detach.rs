//! `zpool detach`: removes a device from a mirror.
//!
//! In a data mirror another device must be complete: in use, with an empty dirty time log. A log
//! vdev is emptied first, and then any other working device suffices.
//!
//! # After a crash
//! The pool is found with the device or without it; in the second case the device may still have
//! its labels.

use crate::error::VdevChangeError;
use crate::log_holds::LogHold;
use crate::pool::Pool;
use crate::vdev_objects;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;
use tarn_vdev::{Change, Departed, Leaf, VdevConfig};

/// The refusal for a device without copies.
const NOT_A_MIRROR: VdevChangeError = VdevChangeError::WrongKind {
    why: "only applicable to mirror and replacing vdevs",
};

impl Pool {
    /// Removes a device from its mirror, and waits until that is stored.
    ///
    /// # Errors
    /// The device has no copies, no other device is complete, or the pool stores nothing: the
    /// device stays.
    #[doc(alias = "spa_vdev_detach")]
    pub fn detach(&self, guid: Guid, operation: &Operation) -> Result<(), VdevChangeError> {
        self.require_writable()?;
        let id = self.vdevs().top_of(guid).ok_or(NOT_A_MIRROR)?;
        let root = self.vdevs().config();
        let top = &root.children[id.index()];
        let is_log = top.top_level.as_ref().is_some_and(|top| top.is_log);
        top.without(guid).ok_or(NOT_A_MIRROR)?;
        self.require_replicas(top, guid, is_log)?;
        let hold = match is_log {
            true => Some(self.empty_log(id, operation)?),
            false => None,
        };
        let detached = self.run_in_sync(operation, move |scope| {
            let pool = scope.pool;
            let root = pool.vdevs().config();
            let top = &root.children[id.index()];
            let Some(change) = top.without(guid) else {
                return Ok(Ok(None));
            };
            let reshaped = Change {
                config: change.config,
                joining: None,
                heir: change.heir,
            };
            let departed = pool.vdevs().reshape_if(reshaped, is_enough(is_log));
            let Some(departed) = departed else {
                return Ok(Ok(None));
            };
            vdev_objects::free(scope, &change.leaf)?;
            let path = change.leaf.path.as_ref().map(ToString::to_string);
            scope.context.record(InternalEvent {
                name: "detach",
                dataset: None,
                text: format!("vdev={}", path.as_deref().unwrap_or("none")),
            });
            Ok(Ok(Some((departed, hold))))
        });
        let detached: Option<(Departed, Option<LogHold>)> = detached?;
        let (departed, _hold) = detached.ok_or(VdevChangeError::NoReplicas)?;
        departed.clear();
        Ok(())
    }

    /// Refuses if no other device has all data of this one.
    #[doc(alias = "vdev_dtl_required")]
    fn require_replicas(
        &self,
        top: &VdevConfig,
        guid: Guid,
        is_log: bool,
    ) -> Result<(), VdevChangeError> {
        let others = top.leaves().into_iter().filter(|leaf| leaf.guid != guid);
        let mut others = others.filter_map(|leaf| self.vdevs().leaf(leaf.guid));
        match others.any(|leaf| is_enough(is_log)(&leaf)) {
            true => Ok(()),
            false => Err(VdevChangeError::NoReplicas),
        }
    }
}

/// Whether a device may be the only one left.
fn is_enough(is_log: bool) -> impl Fn(&Leaf) -> bool {
    move |leaf| match is_log {
        true => leaf.is_usable(),
        false => leaf.is_whole(),
    }
}
