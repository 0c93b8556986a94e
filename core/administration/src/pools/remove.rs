//! `zpool remove`: removes log vdevs, hot spares and cache devices.

use super::vdev_change::{
    FoundVdev, NO_SUCH_DEVICE, TreeVdev, find_vdev, of_change, refuse_unchangeable,
};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{Remove, Removed, RemovedDevice};
use crate::messages::{Refusal, RefusalKind};
use std::sync::Arc;
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::of_task;
use tarn_probe::Operation;

/// The first pool version with holes among top-level vdevs.
#[doc(alias = "SPA_VERSION_HOLES")]
const VERSION_HOLES: u64 = 26;

impl Administrator {
    pub(crate) fn remove(
        &self,
        call: &Call,
        request: &Remove,
        operation: &Operation,
    ) -> Result<Removed, Refusal> {
        let open = self.engine.require_pool(&request.name)?;
        let _turn = self.engine.turn(&open)?;
        if request.cancel {
            // Only the removal of a data vdev takes long enough to be cancelled.
            let reason = "operation is not in progress";
            let action = "cannot cancel removal";
            return Err(Refusal::new(RefusalKind::Invalid, action, reason));
        }
        let mut removed = Removed::default();
        for device in &request.devices {
            match self.remove_one(&open, device, request.dry_run, operation) {
                Ok(memory_bytes) => removed.devices.push(RemovedDevice {
                    device: device.clone(),
                    memory_bytes,
                }),
                Err(refusal) => {
                    removed.refused.push(refusal);
                    if request.dry_run {
                        break;
                    }
                }
            }
        }
        if !request.dry_run && !removed.devices.is_empty() {
            self.engine.remember_pools(&[])?;
            self.record_command(call, &request.name, operation);
        }
        Ok(removed)
    }

    /// Removes one device, or with `-n` returns how much memory its removal would take.
    fn remove_one(
        &self,
        open: &Arc<OpenPool>,
        device: &str,
        is_trial: bool,
        operation: &Operation,
    ) -> Result<u64, Refusal> {
        let action = || match is_trial {
            true => format!("cannot determine indirect size of {device}"),
            false => format!("cannot remove {device}"),
        };
        let found = find_vdev(open, device)
            .ok_or_else(|| Refusal::new(RefusalKind::NotFound, action(), NO_SUCH_DEVICE))?;
        if let FoundVdev::Tree(vdev) = &found {
            refuse_kind(open, vdev, &action)?;
        }
        if is_trial {
            return Ok(0);
        }
        refuse_unchangeable(open, action)?;
        match found {
            FoundVdev::Tree(vdev) => {
                let removed = open.pool.remove_log(vdev.top_id(), operation);
                removed.map_err(|error| of_change(action(), &error))?;
            }
            FoundVdev::Auxiliary(kind, config) => {
                if open.pool.vdevs().config().find(config.guid).is_some() {
                    let reason = "Pool busy; removal may already be in progress";
                    return Err(Refusal::new(RefusalKind::Busy, action(), reason));
                }
                let removed = open.pool.remove_auxiliary(kind, config.guid, operation);
                removed.map_err(|error| of_task(action(), &error))?;
            }
        }
        Ok(0)
    }
}

/// Refuses vdevs that cannot be removed.
fn refuse_kind(
    open: &OpenPool,
    vdev: &TreeVdev,
    action: &impl Fn() -> String,
) -> Result<(), Refusal> {
    if !vdev.is_top() {
        let reason = "operation not supported on this type of pool";
        return Err(Refusal::new(RefusalKind::Invalid, action(), reason));
    }
    if !vdev.is_log() {
        let reason = "removing data vdevs is not supported by this version of tarn";
        return Err(Refusal::new(RefusalKind::Unsupported, action(), reason));
    }
    if open.pool.facts().version < VERSION_HOLES {
        let reason = "pool must be upgraded to support log removal";
        return Err(Refusal::new(RefusalKind::Unsupported, action(), reason));
    }
    Ok(())
}
