//! `zpool detach`: a device leaves its `mirror`, `replacing` or `spare` vdev.

use super::attach::find_leaf;
use super::vdev_change::{of_change, refuse_unchangeable};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::Detach;
use crate::messages::{Done, Refusal};
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn detach(
        &self,
        call: &Call,
        request: &Detach,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let action = format!("cannot detach {}", request.device);
        let open = self.engine.require_pool(&request.name)?;
        let _turn = self.engine.turn(&open)?;
        let vdev = find_leaf(&open, &request.device, &action)?;
        refuse_unchangeable(&open, || action.clone())?;
        let detached = open.pool.detach(vdev.config.guid, operation);
        let kept_spare = detached.map_err(|error| of_change(action, &error))?;
        if let Some(guid) = kept_spare {
            self.unlist_spare(guid, operation);
        }
        self.engine.remember_pools(&[])?;
        self.record_command(call, &request.name, operation);
        Ok(Done {})
    }
}
