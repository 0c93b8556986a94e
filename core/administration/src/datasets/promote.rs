//! `zfs promote`.

use super::bad_name;
use super::cannot_open;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{need, permission};
use crate::messages::dataset::Promote;
use crate::messages::{Done, Refusal};
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::on_behalf::Growth;
use tarn_dataset::ops::promote::Promote as PromoteTask;
use tarn_engine::refusals::of_task;
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn promote(
        &self,
        call: &Call,
        request: &Promote,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let name = &request.name;
        let parsed = DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
        let open = self.engine.require_pool_of(name)?;
        let _turn = self.engine.turn(&open)?;
        let view = open.pool.namespace().view(operation);
        let clone = view.dataset(&parsed);
        let clone = clone.map_err(|error| cannot_open(name, &error))?;
        let action = format!("cannot promote '{name}'");
        let mut needs = vec![need(name, &[permission::PROMOTE, permission::MOUNT])];
        let origin = clone.directory().stored();
        let origin = origin.and_then(|stored| match stored.origin {
            none if none.is_zero() => Ok(None),
            origin => view.dataset_by_id(origin).map(|origin| Some(origin.name())),
        });
        let origin = origin.map_err(|error| cannot_open(name, &error))?;
        // Devices of snapshots follow them to the clone.
        let heads = [Some(name), origin.as_ref()];
        open.touch_volumes_with_devices(heads.into_iter().flatten().map(String::as_str));
        needs.extend(origin.map(|origin| need(origin, &[permission::PROMOTE])));
        self.permit(call, &open, &action, &needs, operation)?;
        let task = PromoteTask { name: name.clone() };
        let growth = vec![Growth::Promoted(name.clone())];
        let task = self.on_behalf(call, task, growth, Vec::new());
        let promoted = self.run_on_behalf(call, &open, task, operation);
        promoted
            .map(|()| Done {})
            .map_err(|error| of_task(action, &error))
    }
}
