//! `zfs snapshot`: takes snapshots of datasets, or of all datasets below them too, in one txg.

use super::bad_name;
use super::cannot_open;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::call_record;
use crate::command_permissions::{Need, need, permission};
use crate::messages::dataset::Snapshot;
use crate::messages::{Done, Refusal, RefusalKind};
use tarn_dataset::look_through::Look;
use tarn_dataset::names::{BadName, DatasetName, NameKind};
use tarn_dataset::ops::on_behalf::Growth;
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_dataset::properties::parse::{Checked, Moment, check};
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::task::TaskRefusal;
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::{of_task, of_tasks};
use tarn_ondisk::dataset::DatasetFlags;
use tarn_pool::TaskError;
use tarn_probe::Operation;

/// The action of a refusal that concerns all of them. The trailing blank is OpenZFS's.
const CANNOT_CREATE: &str = "cannot create snapshots ";

impl Administrator {
    pub(crate) fn take_snapshots(
        &self,
        call: &Call,
        request: &Snapshot,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let names = parse(&request.names)?;
        let Some(first) = names.first() else {
            let reason = "missing snapshot argument";
            return Err(Refusal::new(RefusalKind::Invalid, CANNOT_CREATE, reason));
        };
        let open = self.engine.require_pool_of(first.head())?;
        let _turn = self.engine.turn(&open)?;
        let settings = settings(&request.properties)?;
        let mut all = Vec::new();
        for name in &names {
            self.add_all(&open, name, request.recursive, &mut all, operation)?;
        }
        let heads: Vec<String> = all
            .iter()
            .map(|name| name.split('@').next().unwrap_or_default().to_string())
            .collect();
        let needed = |head: &String| {
            let mut needed = vec![permission::SNAPSHOT];
            if !settings.is_empty() {
                needed.push(permission::USER_PROPERTY);
            }
            need(head, &needed)
        };
        let needs: Vec<Need<'_>> = heads.iter().map(needed).collect();
        self.permit(call, &open, CANNOT_CREATE, &needs, operation)?;
        let record = call_record::snapshot(&all, &settings);
        let task = TakeSnapshots {
            names: all,
            settings,
        };
        open.touch_volumes_with_devices(heads.iter().map(String::as_str));
        let growth = heads.into_iter().map(Growth::Snapshot).collect();
        let task = self.on_behalf(call, task, growth, Vec::new());
        let command = self.record_with_call(call, record);
        let taken = open.pool.run_command(task, command, operation);
        taken.map(|()| Done {}).map_err(|error| {
            let refusal = match &error {
                TaskError::Refused(TaskRefusal::LimitReached) => {
                    let name = request.names.first().map_or("", String::as_str);
                    of_task(cannot_create(name), &error)
                }
                error => of_tasks(CANNOT_CREATE, cannot_create, error),
            };
            match request.recursive || request.names.len() > 1 {
                true => refusal.with_hint("no snapshots were created"),
                false => refusal,
            }
        })
    }

    /// Adds the snapshots that one argument names.
    #[doc(alias = "zfs_snapshot_cb")]
    fn add_all(
        &self,
        open: &OpenPool,
        name: &DatasetName,
        recursive: bool,
        all: &mut Vec<String>,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let (head, short) = (name.head(), name.tail().unwrap_or_default());
        if name.pool() != open.pool.name() {
            self.engine.require_pool_of(head)?;
            let reason = "multiple snapshots of same fs not allowed";
            return Err(Refusal::new(RefusalKind::Exists, CANNOT_CREATE, reason));
        }
        let namespace = open.pool.namespace();
        let found = namespace.look_through(head, None, operation, |directory| {
            let Some(dataset) = directory.head()? else {
                return Ok(Look {
                    found: Vec::new(),
                    goes_on: recursive,
                });
            };
            // A partly received dataset has no contents to snapshot.
            let flags = dataset.stored()?.flags;
            let is_named = directory.name() == head;
            let is_taken = is_named || !flags.contains(DatasetFlags::INCONSISTENT);
            Ok(Look {
                found: match is_taken {
                    true => vec![format!("{}@{short}", directory.name())],
                    false => Vec::new(),
                },
                goes_on: recursive,
            })
        });
        all.extend(found.map_err(|error| cannot_open(head, &error))?);
        Ok(())
    }
}

fn cannot_create(name: &str) -> String {
    format!("cannot create snapshot '{name}'")
}

/// Parses the names.
fn parse(names: &[String]) -> Result<Vec<DatasetName>, Refusal> {
    let parsed = names.iter().map(|name| {
        let refuse = |bad: BadName| {
            let action = cannot_create(name);
            Refusal::new(RefusalKind::Invalid, action, bad.to_string())
        };
        let head = name.split('@').next().unwrap_or_default();
        DatasetName::parse(head).map_err(|bad| bad_name(head, bad))?;
        let parsed = DatasetName::parse(name).map_err(refuse)?;
        match (parsed.kind(), parsed.tail()) {
            // Names with `%` are this program's temporary ones.
            (NameKind::Snapshot, Some(tail)) if tail.contains('%') => Err(refuse(BadName::Percent)),
            (NameKind::Snapshot, _) => Ok(parsed),
            _ => Err(Refusal::new(
                RefusalKind::Invalid,
                cannot_create(name),
                "missing '@' delimiter in snapshot name",
            )),
        }
    });
    parsed.collect()
}

/// Parses the properties of the snapshots.
fn settings(given: &[(String, String)]) -> Result<Vec<Checked>, Refusal> {
    let checked = given.iter().map(|(name, value)| {
        let is_native = tarn_dataset::properties::table::find(name).is_some();
        match is_native {
            true => Err("this property can not be modified for snapshots".to_string()),
            false => check(name, value, Kinds::SNAPSHOT, Moment::Creation),
        }
    });
    let checked: Result<Vec<Checked>, String> = checked.collect();
    checked.map_err(|reason| Refusal::new(RefusalKind::Invalid, CANNOT_CREATE, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str) -> Option<String> {
        let parsed = parse(&[name.to_string()]);
        parsed.err().map(|refusal| refusal.to_string())
    }

    #[test]
    fn a_name_of_a_snapshot_has_one_delimiter_and_no_percent_sign() {
        assert_eq!(refused("tank/a@b"), None);
        assert_eq!(
            refused("tank/a@b%c").unwrap(),
            "cannot create snapshot 'tank/a@b%c': invalid character '%' in name"
        );
        assert_eq!(
            refused("tank/a@b@c").unwrap(),
            "cannot create snapshot 'tank/a@b@c': multiple '@' and/or '#' delimiters in name"
        );
        assert!(refused("tank/a").is_some());
    }

    #[test]
    fn snapshots_get_user_properties_only() {
        let given = |name: &str| vec![(name.to_string(), "on".to_string())];
        assert_eq!(
            settings(&given("exec")).unwrap_err().to_string(),
            "cannot create snapshots : this property can not be modified for snapshots"
        );
        assert_eq!(settings(&given("a:b")).unwrap().len(), 1);
    }
}
