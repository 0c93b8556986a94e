//! `zfs rename` of snapshots: of one dataset, or with `-r` of all datasets below it that have one
//! of that name.

use super::bad_name;
use super::cannot_open;
use super::rename::cannot_rename;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{Need, need, permission};
use crate::messages::dataset::Rename;
use crate::messages::{Done, Refusal, RefusalKind};
use tarn_dataset::look_through::Look;
use tarn_dataset::names::{BadName, DatasetName};
use tarn_dataset::ops::rename_snapshot::RenameSnapshots;
use tarn_dataset::task::TaskRefusal;
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::of_task;
use tarn_pool::TaskError;
use tarn_probe::Operation;

impl Administrator {
    pub(super) fn rename_snapshots(
        &self,
        call: &Call,
        open: &OpenPool,
        request: &Rename,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        // Both are for what has a mount point or ancestors: OpenZFS then takes no snapshot's name.
        if request.parents || request.no_mount {
            return Err(bad_name(&request.from, BadName::Delimiter('@')));
        }
        let from = DatasetName::parse(&request.from).map_err(|bad| bad_name(&request.from, bad))?;
        let view = open.pool.namespace().view(operation);
        view.dataset(&from)
            .map_err(|error| cannot_open(&request.from, &error))?;
        let to = target(&from, &request.to)?;
        if from == to {
            return Ok(Done {});
        }
        let mut heads = vec![from.head().to_string()];
        if request.recursive {
            heads = heads_below(open, &from, operation)?;
        }
        let short = from.tail().unwrap_or_default();
        let needs: Vec<Need<'_>> = heads
            .iter()
            .flat_map(|head| {
                let snapshot = format!("{head}@{short}");
                [
                    need(snapshot, &[permission::RENAME, permission::MOUNT]),
                    need(head, &[permission::CREATE, permission::MOUNT]),
                ]
            })
            .collect();
        self.permit(call, open, cannot_rename(&request.from), &needs, operation)?;
        let task = RenameSnapshots {
            head: from.head().to_string(),
            from: from.tail().unwrap_or_default().to_string(),
            to: to.tail().unwrap_or_default().to_string(),
            recursive: request.recursive,
        };
        let command = self.command_record(call);
        let renamed = open.pool.run_command(task, command, operation);
        renamed.map_err(|error| refusal(request, error))?;
        let new = to.tail().unwrap_or_default();
        for head in &heads {
            let names = (format!("{head}@{short}"), format!("{head}@{new}"));
            open.served_volumes.rename(&names.0, &names.1);
            open.touch_volumes_with_devices(std::iter::once(head.as_str()));
        }
        Ok(Done {})
    }
}

/// The datasets at and below this one that have a snapshot of this name.
fn heads_below(
    open: &OpenPool,
    from: &DatasetName,
    operation: &Operation,
) -> Result<Vec<String>, Refusal> {
    let short = from.tail().unwrap_or_default();
    let namespace = open.pool.namespace();
    let found = namespace.look_through(from.head(), None, operation, |directory| {
        let has_it = match directory.head()? {
            Some(head) => head.snapshot(short)?.is_some(),
            None => false,
        };
        Ok(Look {
            found: Vec::from_iter(has_it.then(|| directory.name().to_string())),
            goes_on: true,
        })
    });
    found.map_err(|error| cannot_open(from.as_str(), &error))
}

/// The new full name. The dataset may be left out, as it stays the same, and the `@` too.
fn target(from: &DatasetName, to: &str) -> Result<DatasetName, Refusal> {
    let invalid = |reason: &str| {
        let action = format!("cannot rename to '{to}'");
        Refusal::new(RefusalKind::Invalid, action, reason)
    };
    let full = match to.split_once('@') {
        None => format!("{}@{to}", from.head()),
        Some(("", short)) => format!("{}@{short}", from.head()),
        Some((head, _)) if head != from.head() => {
            return Err(invalid("snapshots must be part of same dataset"));
        }
        Some(_) => to.to_string(),
    };
    let parsed = DatasetName::parse(&full).map_err(|bad| invalid(&bad.to_string()))?;
    // Names with `%` are this program's temporary ones.
    match parsed.tail().is_some_and(|short| short.contains('%')) {
        true => Err(invalid(&BadName::Percent.to_string())),
        false => Ok(parsed),
    }
}

/// The refusal: the first dataset's.
fn refusal(request: &Rename, error: TaskError) -> Refusal {
    let (name, error) = match error {
        TaskError::Refused(TaskRefusal::Several(mut refused)) if !refused.is_empty() => {
            let (name, refusal) = refused.remove(0);
            (name, TaskError::Refused(refusal))
        }
        error => (request.from.clone(), error),
    };
    let mut told = of_task(cannot_rename(&name), &error);
    if request.recursive && told.kind == RefusalKind::Exists {
        told.reason = "a child dataset already has a snapshot with the new name".to_string();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_name_may_be_short() {
        let from = DatasetName::parse("tank/a@x").unwrap();
        let to = |to: &str| {
            let found = target(&from, to);
            found
                .map(|name| name.to_string())
                .map_err(|refusal| refusal.to_string())
        };
        for short in ["y", "@y", "tank/a@y"] {
            assert_eq!(to(short).unwrap(), "tank/a@y");
        }
        assert_eq!(
            to("tank/b@y").unwrap_err(),
            "cannot rename to 'tank/b@y': snapshots must be part of same dataset"
        );
        assert_eq!(
            to("y%").unwrap_err(),
            "cannot rename to 'y%': invalid character '%' in name"
        );
    }
}
