//! `zpool attach` and `zpool replace` of log devices. Data devices would have to be resilvered,
//! which is not built.

use super::vdev_change::{
    FoundVdev, NO_SUCH_DEVICE, TreeVdev, find_vdev, of_change, refuse_unchangeable,
};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::create::devices::{self, Asking, Redundancy};
use crate::messages::pool::{Attach, VdevKind, VdevRole, VdevSpec};
use crate::messages::{Done, Refusal, RefusalKind};
use tarn_engine::engine::OpenPool;
use tarn_pool::attach::Joining;
use tarn_probe::Operation;
use tarn_vdev::AuxiliaryKind;

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
        let guid = vdev.config.guid;
        let joining = match request.replaces {
            true => Joining::InsteadOf(guid),
            false => Joining::Beside(guid),
        };
        if !vdev.is_log() {
            let reason = "filling a data vdev's new device (resilvering) is not supported by this version of tarn";
            return Err(Refusal::new(RefusalKind::Unsupported, action, reason));
        }
        let ashift = super::add::ashift_of(&request.properties)
            .map_err(|reason| Refusal::new(RefusalKind::Invalid, action.clone(), reason))?;
        let asking = Asking {
            action: &action,
            force: request.force,
            use_here: &|found| self.use_here(found),
            own_mount: &|path| self.engine.own_mount_below(path),
            redundancy: Redundancy::Any,
        };
        let spec = VdevSpec {
            kind: VdevKind::Leaf,
            path: Some(new.clone()),
            children: Vec::new(),
            role: VdevRole::Log,
        };
        devices::check(&self.engine.host, &[spec], &asking)?;
        let joined = open.pool.join_log(joining, new, ashift, operation);
        joined.map_err(|error| of_change(action, &error))?;
        self.engine.remember_pools(&[])?;
        self.record_command(call, &request.name, operation);
        Ok(Done {})
    }
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
