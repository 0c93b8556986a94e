//! `zpool attach` and `zpool replace`.

use super::vdev_change::{
    FoundVdev, NO_SUCH_DEVICE, TreeVdev, find_vdev, of_change, refuse_unchangeable,
};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::create::devices::{self, Asking, Redundancy};
use crate::messages::pool::{Attach, VdevKind, VdevRole, VdevSpec};
use crate::messages::{Done, Refusal, RefusalKind};
use std::path::Path;
use tarn_engine::engine::OpenPool;
use tarn_host::OpenMode;
use tarn_pool::attach::{Joining, Newcomer};
use tarn_probe::Operation;
use tarn_vdev::VdevKind::{Raidz, Spare};
use tarn_vdev::{AuxiliaryKind, VdevConfig, open_window};

impl Administrator {
    pub(crate) fn attach(
        &self,
        call: &Call,
        request: &Attach,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let (old, new) = (&request.device, &request.new_device);
        let action = match request.replaces {
            true => format!("cannot replace {old} with {new}"),
            false => format!("cannot attach {new} to {old}"),
        };
        let open = self.engine.require_pool(&request.name)?;
        let _turn = self.engine.turn(&open)?;
        let vdev = find_leaf(&open, old, &action)?;
        refuse_unchangeable(&open, || action.clone())?;
        let refuse = |kind, reason: &str| Err(Refusal::new(kind, action.clone(), reason));
        if !request.replaces && matches!(vdev.config.kind, Raidz { .. }) {
            let reason = "expanding a raidz vdev is not supported by this version of tarn";
            return refuse(RefusalKind::Unsupported, reason);
        }
        let spare = spare_at(&open, new).filter(|_| request.replaces);
        let spares_it = vdev.top.parent_kind(vdev.config.guid) == Some(Spare);
        if request.replaces && vdev.config.is_spare && spares_it && spare.is_none() {
            let reason = "can only be replaced by another hot spare";
            return refuse(RefusalKind::Invalid, reason);
        }
        let guid = vdev.config.guid;
        let joining = match request.replaces {
            true => Joining::InsteadOf(guid),
            false => Joining::Beside(guid),
        };
        // As in OpenZFS, the new device has the sector size of its vdev.
        super::add::ashift_of(&request.properties)
            .map_err(|reason| Refusal::new(RefusalKind::Invalid, action.clone(), reason))?;
        match &spare {
            Some(spare) if self.engine.pool_with_spare_in_use(spare.guid).is_some() => {
                let reason = format!("{new} is busy, or device removal is in progress");
                return refuse(RefusalKind::Busy, &reason);
            }
            Some(_) => {}
            None => self.check_newcomer(request, &action)?,
        }
        let newcomer = Newcomer {
            path: new,
            spare: spare.as_ref(),
            is_sequential: request.sequential,
        };
        let joined = open.pool.join(joining, newcomer, operation);
        joined.map_err(|error| of_change(action, &error))?;
        self.engine.remember_pools(&[])?;
        self.record_command(call, &request.name, operation);
        Ok(Done {})
    }

    /// Refuses a new device that is in use.
    fn check_newcomer(&self, request: &Attach, action: &str) -> Result<(), Refusal> {
        let path = Path::new(&request.new_device);
        let window = open_window(&self.engine.host, path, OpenMode::ReadOnly);
        if window.is_ok_and(|window| window.size_bytes() < devices::DEVICE_BYTES_MIN) {
            let reason = "device is too small";
            return Err(Refusal::new(RefusalKind::Device, action, reason));
        }
        let asking = Asking {
            action,
            force: request.force,
            use_here: &|found| self.use_here(found),
            own_mount: &|path| self.engine.own_mount_below(path),
            redundancy: Redundancy::Any,
        };
        let spec = VdevSpec {
            kind: VdevKind::Leaf,
            path: Some(request.new_device.clone()),
            children: Vec::new(),
            role: VdevRole::Data,
        };
        devices::check(&self.engine.host, &[spec], &asking)?;
        Ok(())
    }
}

/// The hot spare of the pool at this path.
fn spare_at(open: &OpenPool, path: &str) -> Option<VdevConfig> {
    let auxiliary = open.pool.vdevs().auxiliary();
    let at = |spare: &&VdevConfig| {
        let known = spare.path.as_ref().and_then(|path| path.as_str());
        known == Some(path)
    };
    auxiliary.spares.iter().find(at).cloned()
}

/// The device of the tree that has this name.
pub(super) fn find_leaf(open: &OpenPool, name: &str, action: &str) -> Result<TreeVdev, Refusal> {
    let refuse = |kind, reason: &str| Err(Refusal::new(kind, action, reason));
    match find_vdev(open, name) {
        None => refuse(RefusalKind::NotFound, NO_SUCH_DEVICE),
        Some(FoundVdev::Auxiliary(AuxiliaryKind::Spare, _)) => {
            refuse(RefusalKind::Busy, "device is reserved as a hot spare")
        }
        Some(FoundVdev::Auxiliary(AuxiliaryKind::Cache, _)) => {
            refuse(RefusalKind::Busy, "device is in use as a cache")
        }
        Some(FoundVdev::Tree(vdev)) => Ok(*vdev),
    }
}
