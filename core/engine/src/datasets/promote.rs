//! `zfs promote`.

use super::cannot_open;
use super::describe::bad_name;
use crate::administration::Call;
use crate::engine::Engine;
use crate::messages::dataset::Promote;
use crate::messages::{Done, Refusal};
use crate::refusals::of_task;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::promote::Promote as PromoteTask;
use tarn_probe::Operation;

impl Engine {
    pub(crate) fn promote(
        &self,
        call: &Call,
        request: &Promote,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let name = &request.name;
        let parsed = DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
        let open = self.require_pool_of(name)?;
        let _turn = self.turn(&open)?;
        let view = open.pool.namespace().view(operation);
        view.dataset(&parsed)
            .map_err(|error| cannot_open(name, &error))?;
        let task = PromoteTask { name: name.clone() };
        let command = self.command_record(call);
        let promoted = open.pool.run_command(task, command, operation);
        promoted
            .map(|()| Done {})
            .map_err(|error| of_task(format!("cannot promote '{name}'"), &error))
    }
}
