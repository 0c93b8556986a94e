//! `zpool checkpoint`: keeps the present state of a pool, or gives that up.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{Checkpoint, CheckpointAction};
use crate::messages::{Done, Refusal, RefusalKind};
use tarn_engine::refusals::of_task;
use tarn_pool::Mode;
use tarn_pool::checkpoint::{CheckpointError, CheckpointRefusal};
use tarn_probe::Operation;

impl Administrator {
    #[doc(alias("zfs_ioc_pool_checkpoint", "zfs_ioc_pool_discard_checkpoint"))]
    pub(crate) fn checkpoint(
        &self,
        call: &Call,
        request: &Checkpoint,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let _changes = self.engine.changes.lock();
        let open = self.engine.require_pool(&request.name)?;
        let _turn = self.engine.turn(&open)?;
        let action = match request.action {
            CheckpointAction::Create => format!("cannot checkpoint '{}'", request.name),
            CheckpointAction::Discard => {
                format!("cannot discard checkpoint in '{}'", request.name)
            }
        };
        if open.pool.mode() == Mode::ReadOnly {
            return Err(Refusal::new(
                RefusalKind::ReadOnly,
                action,
                "pool is read-only",
            ));
        }
        let changed = match request.action {
            CheckpointAction::Create => open.pool.create_checkpoint(operation),
            CheckpointAction::Discard => open.pool.discard_checkpoint(operation),
        };
        changed.map_err(|error| match error {
            CheckpointError::Task(error) => of_task(action, &error),
            CheckpointError::Refused(refusal) => {
                Refusal::new(kind_of(refusal), action, refusal.to_string())
            }
            other => Refusal::new(RefusalKind::Corrupt, action, other.to_string()),
        })?;
        self.record_command(call, &request.name, operation);
        Ok(Done {})
    }
}

fn kind_of(refusal: CheckpointRefusal) -> RefusalKind {
    match refusal {
        CheckpointRefusal::Exists => RefusalKind::Exists,
        CheckpointRefusal::Discarding => RefusalKind::Busy,
        CheckpointRefusal::Absent => RefusalKind::NotFound,
        CheckpointRefusal::NoSpace => RefusalKind::NoSpace,
        _ => RefusalKind::Unsupported,
    }
}
