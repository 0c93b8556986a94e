//! `zfs hold`, `zfs release` and `zfs holds`.

use super::bad_name;
use super::cannot_open;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::call_record;
use crate::command_permissions::{Need, need, permission};
use crate::messages::dataset::{Hold, Holds, ListHolds, SnapshotHolds};
use crate::messages::{Done, Refusal, RefusalKind};
use tarn_dataset::error::DatasetError;
use tarn_dataset::look_through::Look;
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::ops::hold::{HoldSnapshots, ReleaseHolds};
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::{of_task, of_tasks};
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn hold(
        &self,
        call: &Call,
        request: &Hold,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let name = parse(&request.name)?;
        let open = self.engine.require_pool_of(name.head())?;
        let _turn = self.engine.turn(&open)?;
        let names = found(&open, &name, request.recursive, operation)?;
        if names.is_empty() {
            let (action, reason) = (cannot_hold(&request.name), "dataset does not exist");
            return Err(Refusal::new(RefusalKind::NotFound, action, reason));
        }
        self.permit_on_heads(
            call,
            &open,
            "cannot hold",
            permission::HOLD,
            &names,
            operation,
        )?;
        let task = HoldSnapshots {
            names: names.into_iter().map(|one| one.name).collect(),
            tag: request.tag.clone(),
        };
        let record = call_record::hold(&task.names, &task.tag);
        let command = self.record_with_call(call, record);
        let held = open.pool.run_command(task, command, operation);
        held.map(|()| Done {})
            .map_err(|error| of_tasks("cannot hold", cannot_hold, &error))
            .map_err(|refusal| match request.tag.is_empty() {
                true => refusal.with_hint("a tag has at least one character"),
                false => refusal,
            })
    }

    pub(crate) fn release(
        &self,
        call: &Call,
        request: &Hold,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let name = parse(&request.name)?;
        let open = self.engine.require_pool_of(name.head())?;
        let _turn = self.engine.turn(&open)?;
        let names = found(&open, &name, request.recursive, operation)?;
        let action = format!("cannot release hold from snapshot '{}'", request.name);
        if names.is_empty() {
            let reason = "dataset does not exist";
            return Err(Refusal::new(RefusalKind::NotFound, action, reason));
        }
        self.permit_on_heads(call, &open, &action, permission::RELEASE, &names, operation)?;
        let task = ReleaseHolds {
            names: names.into_iter().map(|one| one.name).collect(),
            tag: request.tag.clone(),
        };
        let record = call_record::release(&task.names, &task.tag);
        let command = self.record_with_call(call, record);
        let released = open.pool.run_command(task, command, operation);
        released
            .map(|()| Done {})
            .map_err(|error| of_task(action, &error))
    }

    #[doc(alias("zfs_secpolicy_hold", "zfs_secpolicy_release"))]
    fn permit_on_heads(
        &self,
        call: &Call,
        open: &OpenPool,
        action: &str,
        permission: &str,
        snapshots: &[SnapshotHolds],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let head_of = |one: &SnapshotHolds| one.name.split('@').next().map(str::to_string);
        let heads = snapshots.iter().filter_map(head_of);
        let needs: Vec<Need<'_>> = heads.map(|head| need(head, &[permission])).collect();
        self.permit(call, open, action, &needs, operation)
    }

    pub(crate) fn list_holds(
        &self,
        request: &ListHolds,
        operation: &Operation,
    ) -> Result<Holds, Refusal> {
        let name = parse(&request.name)?;
        let open = self.engine.require_pool_of(&request.name)?;
        let snapshots = found(&open, &name, request.recursive, operation)?;
        if snapshots.is_empty() && !request.recursive {
            let missing = DatasetError::NotFound {
                name: request.name.clone(),
            };
            return Err(cannot_open(&request.name, &missing));
        }
        Ok(Holds { snapshots })
    }
}

fn cannot_hold(name: &str) -> String {
    format!("cannot hold snapshot '{name}'")
}

fn parse(name: &str) -> Result<DatasetName, Refusal> {
    let parsed = DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
    match parsed.kind() {
        NameKind::Snapshot => Ok(parsed),
        _ => {
            let reason = format!("'{name}' is not a snapshot");
            Err(Refusal::new(RefusalKind::Invalid, "", reason))
        }
    }
}

/// The existing snapshots of this name: of its dataset, or also of all datasets below.
fn found(
    open: &OpenPool,
    name: &DatasetName,
    recursive: bool,
    operation: &Operation,
) -> Result<Vec<SnapshotHolds>, Refusal> {
    let (head, short) = (name.head(), name.tail().unwrap_or_default());
    let namespace = open.pool.namespace();
    let found = namespace.look_through(head, None, operation, |directory| {
        let snapshot = match directory.head()? {
            Some(head) => head.snapshot(short)?,
            None => None,
        };
        let described = snapshot.map(|snapshot| {
            Ok::<_, DatasetError>(SnapshotHolds {
                name: snapshot.name(),
                holds: snapshot.holds()?,
            })
        });
        Ok(Look {
            found: described.transpose()?.into_iter().collect(),
            goes_on: recursive,
        })
    });
    found.map_err(|error| cannot_open(head, &error))
}
