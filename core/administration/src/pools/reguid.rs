//! `zpool reguid`: gives a pool another guid.

use super::vdev_change::refuse_unchangeable;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::Reguid;
use crate::messages::{Done, Refusal, RefusalKind};
use tarn_engine::refusals::of_task;
use tarn_ondisk::units::Guid;
use tarn_pool::reguid::ReguidError;
use tarn_probe::Operation;

impl Administrator {
    #[doc(alias = "zfs_ioc_pool_reguid")]
    pub(crate) fn reguid(
        &self,
        call: &Call,
        request: &Reguid,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let _changes = self.engine.changes.lock();
        let open = self.engine.require_pool(&request.name)?;
        let _turn = self.engine.turn(&open)?;
        let action = format!("cannot reguid '{}'", request.name);
        refuse_unchangeable(&open, || action.clone())?;
        let refuse = |kind, reason: &str| Err(Refusal::new(kind, action.clone(), reason));
        let guid = request.guid.map(Guid::from);
        if guid == Some(Guid::ZERO) {
            return refuse(RefusalKind::Invalid, "Invalid argument");
        }
        let pools = self.engine.pools();
        if pools
            .iter()
            .any(|open| Some(open.pool.facts().guid) == guid)
        {
            return refuse(RefusalKind::Exists, "pool already exists");
        }
        match open.pool.reguid(guid, operation) {
            Ok(()) => {}
            Err(ReguidError::Task(error)) => return Err(of_task(action, &error)),
            Err(error) => return refuse(RefusalKind::Device, &error.to_string()),
        }
        self.engine.remember_pools(&[])?;
        self.record_command(call, &request.name, operation);
        Ok(Done {})
    }
}
