//! `zpool export`: gives a pool up, in order.

use crate::administration::Call;
use crate::engine::Engine;
use crate::messages::pool::Export;
use crate::messages::{Done, Refusal, RefusalKind};
use crate::refusals::{SUSPENDED, of_task};
use tarn_pool::{Leaving, TaskError};
use tarn_probe::Operation;

impl Engine {
    pub(crate) fn export(
        &self,
        call: &Call,
        request: &Export,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let _changes = self.changes.lock();
        let open = self.require_pool(&request.name)?;
        if open.pool.failure().is_some() && !request.force {
            let action = format!("cannot export '{}'", request.name);
            let cure = "use 'zpool export -f' to give it up with what was stored last";
            let refusal = Refusal::new(RefusalKind::Suspended, action, SUSPENDED);
            return Err(refusal.with_hint(cure));
        }
        self.unmount_pool(&open, request.force)?;
        self.record_command(call, &request.name, operation);
        let left: Vec<_> = self.cache_file_of(&open).into_iter().collect();
        let closed = open.pool.close(Leaving::Exported, operation);
        self.remove_pool(&request.name);
        self.remember_pools(&left)?;
        match closed {
            // What could not be stored was told to those who waited for it.
            Err(TaskError::Suspended { .. }) if request.force => Ok(Done {}),
            Err(error) => Err(of_task(format!("cannot export '{}'", request.name), &error)),
            Ok(()) => Ok(Done {}),
        }
    }
}
