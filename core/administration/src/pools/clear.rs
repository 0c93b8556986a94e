//! `zpool clear`: resets error counts, and resumes a suspended pool.
//!
//! A suspended pool resumes when its devices are back and have the expected labels; then the
//! waiting calls go on, and nothing is lost. Opening the devices takes a thread of its own, which
//! is left behind if a device does not answer.

use super::vdev_change::{FoundVdev, NO_SUCH_DEVICE, find_vdev};
use crate::administrator::Administrator;
use crate::messages::pool::Clear;
use crate::messages::{Done, Refusal, RefusalKind};
use std::sync::Arc;
use std::time::Duration;
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::SUSPENDED;
use tarn_host::channel::{self, NoMessage};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::Guid;
use tarn_pool::events::class::{CONFIG_SYNC, VDEV_CLEAR};
use tarn_pool::{Mode, ResumeRefusal};
use tarn_vdev::{AuxiliaryKind, VdevConfig, VdevState};

/// How long reopening the devices may take.
const PATIENCE: Duration = Duration::from_millis(1700);

impl Administrator {
    pub(crate) fn clear(&self, request: &Clear) -> Result<Done, Refusal> {
        let open = self.engine.require_pool(&request.name)?;
        if open.pool.mode() == Mode::ReadOnly {
            let what = request.device.as_ref().unwrap_or(&request.name);
            let action = format!("cannot clear errors for {what}");
            return Err(Refusal::new(
                RefusalKind::ReadOnly,
                action,
                "pool is read-only",
            ));
        }
        let device = match &request.device {
            Some(device) => Some(find_device(&open, device)?),
            None => None,
        };
        let changes = open.pool.vdevs().change_count();
        open.pool.vdevs().clear_errors(device);
        for restored in open.pool.vdevs().restore_degraded(device) {
            open.pool
                .post_event(VDEV_CLEAR, Some(restored), NvList::new());
        }
        self.resume(&open)?;
        self.bring_back(&open, device)?;
        if open.pool.vdevs().change_count() == changes {
            // The txg that stores a changed configuration posts it.
            open.pool.post_event(CONFIG_SYNC, None, NvList::new());
        }
        Ok(Done {})
    }

    /// Brings failed devices back, and starts a resilver of what they missed; not those that an
    /// administrator took offline. A hot spare that stands in for a device that came back leaves
    /// when the device is whole.
    #[doc(alias = "vdev_clear")]
    fn bring_back(&self, open: &Arc<OpenPool>, only: Option<Guid>) -> Result<(), Refusal> {
        let failed = || -> Vec<Guid> {
            let vdevs = open.pool.vdevs();
            let root = vdevs.config();
            // A cache device is not in the tree.
            let meant = only.map_or(Some(&root), |only| root.find(only));
            let leaves = meant.into_iter().flat_map(VdevConfig::leaves);
            let has_failed = |leaf: &&VdevConfig| {
                let leaf = vdevs.leaf(leaf.guid);
                let state = leaf.map(|leaf| leaf.standing().state);
                state.is_some_and(|state| !state.is_usable() && state != VdevState::Offline)
            };
            let leaves = leaves.filter(has_failed).map(|leaf| leaf.guid);
            let caches = vdevs.cache_devices().into_iter().filter(|device| {
                let state = device.standing().state;
                let is_meant = only.is_none_or(|only| only == device.guid());
                is_meant && !state.is_usable() && state != VdevState::Offline
            });
            leaves.chain(caches.map(|device| device.guid())).collect()
        };
        if failed().is_empty() {
            return Ok(());
        }
        let _turn = self.engine.turn(open)?;
        let operation = self.engine.operation(0);
        for guid in failed() {
            if open.pool.vdevs().return_to_offline(guid) {
                continue;
            }
            // A device that does not come back stays as it is, as `zpool status` shows.
            let back = open.pool.bring_online(guid, &operation);
            if back.is_ok_and(|standing| standing.state.is_usable()) {
                open.pool.vdevs().end_sparing(guid);
            }
        }
        // Devices that missed nothing are not resilvered.
        drop(open.pool.finish_replacing(&operation));
        Ok(())
    }

    fn resume(&self, open: &Arc<OpenPool>) -> Result<(), Refusal> {
        if open.pool.failure().is_none() {
            return Ok(());
        }
        let (tell, told) = channel::bounded(1);
        let (pool, operation) = (open.pool.clone(), self.engine.operation(0));
        let resume = move || drop(tell.send(pool.resume(&operation)));
        drop(self.engine.host.spawn("tarn-resume", resume));
        let action = || format!("cannot clear errors for {}", open.pool.name());
        let unanswered = |why: String| {
            let refusal = Refusal::new(RefusalKind::Suspended, action(), SUSPENDED);
            refusal.with_hint(why)
        };
        let patience = match open.pool.is_lease_expired() {
            true => PATIENCE.saturating_add(open.pool.take_over_time_max()),
            false => PATIENCE,
        };
        match told.recv_timeout(patience) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ResumeRefusal::OtherHost)) => {
                let reason = "pool is imported on a different host";
                let cure = "use 'zpool export -f' to give it up on this host";
                Err(Refusal::new(RefusalKind::OtherHost, action(), reason).with_hint(cure))
            }
            Ok(Err(ResumeRefusal::ForGood { why })) => {
                let cure =
                    "use 'zpool export -f' and 'zpool import', which find what was stored last";
                Err(unanswered(why).with_hint(cure))
            }
            Ok(Err(error)) => {
                let refusal = Refusal::new(RefusalKind::Device, action(), "I/O error");
                Err(refusal.with_hint(error.to_string()))
            }
            Err(NoMessage::Closed) => Err(unanswered("it was given up".to_string())),
            Err(_) => Err(unanswered("a device does not answer".to_string())),
        }
    }
}

fn find_device(open: &OpenPool, device: &str) -> Result<Guid, Refusal> {
    match find_vdev(open, device) {
        Some(FoundVdev::Tree(vdev)) => Ok(vdev.config.guid),
        Some(FoundVdev::Auxiliary(AuxiliaryKind::Cache, config)) => Ok(config.guid),
        _ => {
            let action = format!("cannot clear errors for {device}");
            Err(Refusal::new(RefusalKind::NotFound, action, NO_SUCH_DEVICE))
        }
    }
}
