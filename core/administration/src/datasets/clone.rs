//! `zfs clone`: a file system or volume that begins with a snapshot's contents.

use super::bad_name;
use super::cannot_open;
use super::create::{cannot_create, checked, missing_parents, parent};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::call_record;
use crate::command_permissions::{need, permission};
use crate::inert;
use crate::messages::dataset::{Created, MakeClone};
use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::ops::clone::CloneSnapshot;
use tarn_dataset::properties::value::Kinds;
use tarn_engine::refusals::of_task;
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn clone_snapshot(
        &self,
        call: &Call,
        request: &MakeClone,
        operation: &Operation,
    ) -> Result<Created, Refusal> {
        let origin =
            DatasetName::parse(&request.origin).map_err(|bad| bad_name(&request.origin, bad))?;
        if origin.kind() != NameKind::Snapshot {
            let action = format!("cannot open '{}'", request.origin);
            let reason = "operation not applicable to datasets of this type";
            return Err(Refusal::new(RefusalKind::Invalid, action, reason));
        }
        let open = self.engine.require_pool_of(&request.origin)?;
        let view = open.pool.namespace().view(operation);
        let snapshot = view.dataset(&origin);
        let snapshot = snapshot.map_err(|error| cannot_open(&request.origin, &error))?;
        let target = self.pool_for_new(&request.name)?;
        let action = cannot_create(&request.name);
        if target.pool.name() != open.pool.name() {
            let reason = "source and target pools differ";
            return Err(Refusal::new(RefusalKind::Invalid, action, reason));
        }
        let mut created = Created::default();
        if request.parents {
            let there = view.directory(&request.name).and_then(|found| found.head());
            if matches!(there, Ok(Some(_))) {
                return Ok(created);
            }
            created.names = missing_parents(&open, &request.name, operation)?;
        }
        let found = contents::outline(&snapshot);
        let found = found.map_err(|error| cannot_open(&request.origin, &error))?;
        let kinds = match found {
            Contents::Volume(_) => Kinds::VOLUME,
            _ => Kinds::FILESYSTEM,
        };
        let invalid = |reason| Refusal::new(RefusalKind::Invalid, action.clone(), reason);
        let (quotas, settings) = match kinds {
            Kinds::FILESYSTEM => self.checked(&request.properties),
            kinds => checked(&request.properties, kinds).map(|checked| (Vec::new(), checked)),
        }
        .map_err(invalid)?;
        let needs = [need(&request.origin, &[permission::CLONE])];
        self.permit(call, &open, &action, &needs, operation)?;
        self.permit_creation(call, &open, &request.name, &request.properties, operation)?;
        for name in created.names.clone() {
            let task = parent(call, &name, request.parents_no_mount);
            let made = open.pool.run(self.creating(call, task, &name), operation);
            made.map_err(|error| of_task(cannot_create(&name), &error))?;
            self.mount_created(call, &open, &name, &mut created.warnings, operation);
        }
        let record = call_record::clone(&request.origin, &settings);
        let task = CloneSnapshot {
            origin: request.origin.clone(),
            name: request.name.clone(),
            settings,
        };
        let task = self.creating(call, task, &request.name);
        let command = self.record_with_call(call, record);
        let made = open.pool.run_command(task, command, operation);
        made.map_err(|error| of_task(action, &error))?;
        self.set_first_quotas(&open, &request.name, &quotas, operation)?;
        created.names.push(request.name.clone());
        if kinds == Kinds::VOLUME {
            open.touch_volumes(&request.name);
            let missing = self.engine.settle_volumes_of(&open, operation);
            created.warnings.extend(missing);
        }
        created
            .warnings
            .extend(inert::warnings(&request.properties));
        if !request.no_mount && kinds == Kinds::FILESYSTEM {
            self.mount_created(call, &open, &request.name, &mut created.warnings, operation);
        }
        Ok(created)
    }
}
