//! `zpool split`: a new pool of one device of each mirror.

use super::vdev_change::{FoundVdev, find_vdev, of_change, refuse_unchangeable};
use super::vdev_status::layout_of_pool;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{Split, SplitPool, VdevStatus};
use crate::messages::{Refusal, RefusalKind};
use std::sync::Arc;
use tarn_dataset::names::{check_pool_name, pool_reason};
use tarn_engine::engine::OpenPool;
use tarn_engine::importing::requests::{Import, Search};
use tarn_engine::importing::settings::{Occasion, PoolSettings};
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn split(
        &self,
        call: &Call,
        request: &Split,
        operation: &Operation,
    ) -> Result<SplitPool, Refusal> {
        let action = format!("Unable to split {}", request.name);
        let refuse = |kind, reason: String| Refusal::new(kind, action.clone(), reason);
        let open = self.engine.require_pool(&request.name)?;
        check_pool_name(&request.new_name, true)
            .map_err(|bad| refuse(RefusalKind::Invalid, pool_reason(bad)))?;
        if self.engine.find_pool(&request.new_name).is_some() {
            let reason = "pool already exists".to_string();
            return Err(refuse(RefusalKind::Exists, reason));
        }
        self.refuse_properties(request)
            .map_err(|reason| refuse(RefusalKind::Invalid, reason))?;
        let (split, devices) = {
            let _turn = self.engine.turn(&open)?;
            refuse_unchangeable(&open, || action.clone())?;
            let chosen = chosen_devices(&open, &request.devices, &action)?;
            let plan = open.pool.plan_split(&chosen);
            let plan = plan.map_err(|error| of_change(action.clone(), &error))?;
            let layout = layout_of_pool(&open, &open.pool.vdevs().health());
            let devices: Vec<VdevStatus> = plan
                .iter()
                .flatten()
                .filter_map(|guid| find_status(&layout, *guid).cloned())
                .collect();
            if request.dry_run {
                return Ok(SplitPool {
                    layout: devices,
                    warnings: Vec::new(),
                });
            }
            let split = open.pool.split(&request.new_name, &plan, operation);
            (
                split.map_err(|error| of_change(action.clone(), &error))?,
                devices,
            )
        };
        self.engine.remember_pools(&[])?;
        self.record_command(call, &request.name, operation);
        let (host, cache) = (&self.engine.host, &self.engine.cache);
        let owner = open.pool.owner().clone();
        let stored = split.store(host, cache, &request.name, owner, operation);
        stored.map_err(|error| refuse(RefusalKind::Device, error.to_string()))?;
        let warnings = self.open_split(call, request, &devices, operation)?;
        Ok(SplitPool {
            layout: devices,
            warnings,
        })
    }

    /// Refuses properties that the new pool cannot get, before anything is changed.
    fn refuse_properties(&self, request: &Split) -> Result<(), String> {
        let is_property = |(_, value): &&(String, String)| !value.is_empty();
        let given = request.properties.iter().filter(is_property);
        let given: Vec<(String, String)> = given.cloned().collect();
        let settings = PoolSettings::parse(&self.engine.host, &given, Occasion::Import)?;
        if settings.read_only.is_some() && request.altroot.is_none() {
            return Err("property 'readonly' can only be set at import time".to_string());
        }
        match settings.version {
            Some(version) => Err(format!("property 'version' number {version} is invalid.")),
            None => Ok(()),
        }
    }

    /// Imports the new pool at its altroot, and sets its properties. Gives warnings.
    fn open_split(
        &self,
        call: &Call,
        request: &Split,
        devices: &[VdevStatus],
        operation: &Operation,
    ) -> Result<Vec<String>, Refusal> {
        if request.altroot.is_none() && request.properties.is_empty() {
            return Ok(Vec::new());
        }
        let import = Import {
            search: Search {
                places: devices
                    .iter()
                    .filter_map(|vdev| vdev.path.clone())
                    .collect(),
                ..Search::default()
            },
            pool: Some(request.new_name.clone()),
            altroot: request.altroot.clone(),
            properties: request.properties.clone(),
            no_mount: request.altroot.is_none(),
            ..Import::default()
        };
        let imported = self.engine.import(&call.presence, &import, operation)?;
        if request.altroot.is_none() {
            let record = self.command_record(call);
            self.engine
                .export(&request.new_name, false, record, operation)?;
        }
        Ok(imported.warnings)
    }
}

fn find_status(layout: &[VdevStatus], guid: Guid) -> Option<&VdevStatus> {
    layout
        .iter()
        .find_map(|vdev| match vdev.guid == guid.get() {
            true => Some(vdev),
            false => find_status(&vdev.children, guid),
        })
}

/// The guids of the devices that the command names.
fn chosen_devices(
    open: &Arc<OpenPool>,
    names: &[String],
    action: &str,
) -> Result<Vec<Guid>, Refusal> {
    let find = |name: &String| match find_vdev(open, name) {
        Some(FoundVdev::Tree(vdev)) => Ok(vdev.config.guid),
        _ => {
            let reason = "Device list must include at most one disk from each mirror";
            Err(Refusal::new(RefusalKind::Invalid, action, reason))
        }
    };
    names.iter().map(find).collect()
}
