//! `zpool offline`, `zpool online` and `zpool reopen`.

use super::attach::find_leaf;
use super::vdev_change::{FoundVdev, TreeVdev, find_vdev, of_change};
use super::vdev_status::state_word;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{Offline, Online, Reopen, Switched, SwitchedDevice};
use crate::messages::{Done, Refusal, RefusalKind};
use std::sync::Arc;
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::of_task;
use tarn_ondisk::units::Guid;
use tarn_pool::Mode;
use tarn_probe::Operation;
use tarn_vdev::{AuxiliaryKind, OutOfUse};

impl Administrator {
    pub(crate) fn offline(
        &self,
        call: &Call,
        request: &Offline,
        operation: &Operation,
    ) -> Result<Switched, Refusal> {
        let how = match (request.fault, request.temporary) {
            (false, false) => OutOfUse::Offline,
            (false, true) => OutOfUse::OfflineForNow,
            (true, false) => OutOfUse::Faulted,
            (true, true) => OutOfUse::FaultedForNow,
        };
        let verb = if request.fault { "fault" } else { "offline" };
        self.switch(
            call,
            &request.name,
            &request.devices,
            operation,
            |open, device| {
                let action = format!("cannot {verb} {device}");
                if let Some(cache) = find_cache(open, device, &action)? {
                    let out = open.pool.take_out_of_use(cache, how, operation);
                    out.map_err(|error| of_change(action, &error))?;
                    return Ok(cache_state(open, cache));
                }
                let vdev = find_switchable(open, device, &action)?;
                let out = open.pool.take_out_of_use(vdev.config.guid, how, operation);
                out.map_err(|error| of_change(action, &error))?;
                state_of(open, &vdev)
            },
        )
    }

    pub(crate) fn online(
        &self,
        call: &Call,
        request: &Online,
        operation: &Operation,
    ) -> Result<Switched, Refusal> {
        self.switch(
            call,
            &request.name,
            &request.devices,
            operation,
            |open, device| {
                let action = match request.expand {
                    true => format!("cannot expand {device}"),
                    false => format!("cannot online {device}"),
                };
                if let Some(cache) = find_cache(open, device, &action)? {
                    if request.expand {
                        let reason = "cannot expand cache devices";
                        return Err(Refusal::new(RefusalKind::Unsupported, action, reason));
                    }
                    let back = open.pool.bring_online(cache, operation);
                    back.map_err(|error| of_change(action, &error))?;
                    return Ok(cache_state(open, cache));
                }
                let vdev = find_switchable(open, device, &action)?;
                let back = open.pool.bring_online(vdev.config.guid, operation);
                back.map_err(|error| of_change(action.clone(), &error))?;
                let expanded = match request.expand {
                    true => open.pool.expand(vdev.top_id(), operation),
                    false => open.pool.expand_by_property(operation),
                };
                expanded.map_err(|error| of_task(action, &error))?;
                state_of(open, &vdev)
            },
        )
    }

    pub(crate) fn reopen(
        &self,
        call: &Call,
        request: &Reopen,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let open = self.engine.require_pool(&request.name)?;
        let _turn = self.engine.turn(&open)?;
        // A pool that is read-only only looks at its devices, which OpenZFS shows in no way.
        if open.pool.mode() == Mode::ReadWrite {
            let action = format!("cannot reopen '{}'", request.name);
            let reopened = open.pool.reopen_devices(!request.no_resilver, operation);
            reopened.map_err(|error| of_change(action, &error))?;
            self.record_command(call, &request.name, operation);
        }
        Ok(Done {})
    }

    /// Switches several devices. A device that cannot be switched leaves the others to be.
    fn switch(
        &self,
        call: &Call,
        name: &str,
        devices: &[String],
        operation: &Operation,
        change: impl Fn(&Arc<OpenPool>, &str) -> Result<String, Refusal>,
    ) -> Result<Switched, Refusal> {
        let open = self.engine.require_pool(name)?;
        let _turn = self.engine.turn(&open)?;
        let mut switched = Switched::default();
        for device in devices {
            let outcome = change(&open, device);
            let (state, refusal) = match outcome {
                Ok(state) => (state, None),
                Err(refusal) => (String::new(), Some(refusal)),
            };
            switched.devices.push(SwitchedDevice {
                device: device.clone(),
                state,
                refusal,
            });
        }
        if switched.devices.iter().any(|one| one.refusal.is_none()) {
            self.engine.remember_pools(&[])?;
            self.record_command(call, name, operation);
        }
        Ok(switched)
    }
}

/// The device of this name, in a pool that can be changed.
fn find_switchable(open: &OpenPool, device: &str, action: &str) -> Result<TreeVdev, Refusal> {
    let vdev = find_leaf(open, device, action)?;
    if open.pool.mode() == Mode::ReadOnly {
        let reason = "pool is read-only";
        return Err(Refusal::new(RefusalKind::ReadOnly, action, reason));
    }
    if !vdev.config.kind.is_leaf() {
        let reason = "operation not supported on this type of pool";
        return Err(Refusal::new(RefusalKind::Invalid, action, reason));
    }
    Ok(vdev)
}

/// The cache device of this name, if it is one.
fn find_cache(open: &OpenPool, device: &str, action: &str) -> Result<Option<Guid>, Refusal> {
    let Some(FoundVdev::Auxiliary(AuxiliaryKind::Cache, config)) = find_vdev(open, device) else {
        return Ok(None);
    };
    if open.pool.mode() == Mode::ReadOnly {
        let reason = "pool is read-only";
        return Err(Refusal::new(RefusalKind::ReadOnly, action, reason));
    }
    Ok(Some(config.guid))
}

/// The present state of a cache device.
fn cache_state(open: &OpenPool, guid: Guid) -> String {
    let device = open.pool.vdevs().cache_device(guid);
    let standing = device.map(|device| state_word(device.standing()).to_string());
    standing.unwrap_or_default()
}

/// The present state of a device.
fn state_of(open: &OpenPool, vdev: &TreeVdev) -> Result<String, Refusal> {
    let leaf = open.pool.vdevs().leaf(vdev.config.guid);
    let standing = leaf.map(|leaf| state_word(leaf.standing()).to_string());
    Ok(standing.unwrap_or_default())
}
