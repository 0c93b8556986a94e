//! `zfs destroy`: a file system or volume, alone or with all that depends on it.
//!
//! # Mechanism
//! What depends on a dataset is listed first, the deepest first: children, snapshots, clones of snapshots. When all of it may go, all
//! of it is unmounted; when one mount is in use nothing is destroyed, and what was unmounted comes back. Then the datasets go
//! in few groups ([`TASKS_MAX`]), and their blocks are freed in the background.
//!
//! Snapshots that are named go another way ([`destroy_snapshots`](super::destroy_snapshots)), and so do bookmarks
//! ([`bookmarks`](super::bookmarks)).

use super::describe::bad_name;
use super::remount::{Back, named};
use super::{cannot_open, properties::kind_of};
use crate::administration::Call;
use crate::engine::{Engine, OpenPool};
use crate::messages::dataset::{DatasetKind, Destroy, Destroyed};
use crate::messages::{Refusal, RefusalKind};
use crate::policy::{Need, need, permission};
use crate::refusals::of_task;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::destroy::Destroy as DestroyHead;
use tarn_dataset::ops::destroy_snapshot::{DestroyAny, DestroySnapshots};
use tarn_pool::{Mode, TaskError};
use tarn_probe::Operation;

/// How many datasets go in one group. A guess: each changes some ten objects of the MOS, which are all in memory until the group
/// is stored.
const TASKS_MAX: usize = 500;

/// A dataset that goes, or stands in the way.
#[derive(Debug, Clone)]
pub(super) struct Dependent {
    pub(super) name: String,
    /// Below the dataset that is named; else a clone somewhere else.
    is_below: bool,
}

impl Engine {
    pub(crate) fn destroy_dataset(
        &self,
        call: &Call,
        request: &Destroy,
        operation: &Operation,
    ) -> Result<Destroyed, Refusal> {
        let name = &request.name;
        let open = self.require_pool_of(name)?;
        let _turn = self.turn(&open)?;
        if name.contains('@') {
            return self.destroy_snapshots(call, &open, request, operation);
        }
        if name.contains('#') {
            return self.destroy_bookmark(call, &open, request, operation);
        }
        let (kind, dependents) = found(&open, request, operation)?;
        check(request, kind, &dependents)?;
        let mut names: Vec<String> = dependents.iter().map(|one| one.name.clone()).collect();
        names.push(name.clone());
        let destroyed = Destroyed {
            names: names.clone(),
            ..Destroyed::default()
        };
        if request.dry_run {
            return Ok(destroyed);
        }
        // The root stays: `zpool destroy` is for it.
        names.retain(|name| name.contains('/'));
        self.permit_destruction(call, &open, cannot_destroy(name), &names, operation)?;
        let heads: Vec<String> = names
            .iter()
            .filter(|name| !name.contains('@'))
            .cloned()
            .collect();
        let going = named(&open, &heads, operation).map_err(|error| cannot_open(name, &error))?;
        self.permit_interruption(call, &open, &heads)?;
        let force = request.force && self.trusts(&call.caller);
        let unmounted = self.take_off(&open, &going, force, operation)?;
        let outcome = self.destroy_all(call, &open, &names, operation);
        // What is not gone comes back, if it can.
        drop(self.put_back(&open, &going, &unmounted, Back::WhatWas, operation));
        outcome.map(|()| destroyed)
    }

    /// Refuses a caller who may not destroy all of these: heads and snapshots.
    #[doc(alias = "zfs_secpolicy_destroy_perms")]
    pub(super) fn permit_destruction(
        &self,
        call: &Call,
        open: &OpenPool,
        action: impl Into<String>,
        names: &[String],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let needed = [permission::MOUNT, permission::DESTROY];
        let needs: Vec<Need<'_>> = names.iter().map(|name| need(name, &needed)).collect();
        self.permit(call, open, action, &needs, operation)
    }

    pub(super) fn destroy_all(
        &self,
        call: &Call,
        open: &OpenPool,
        names: &[String],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let mut first = None;
        for part in names.chunks(TASKS_MAX) {
            let is_last = part.last() == names.last();
            let command = is_last.then(|| self.command_record(call));
            let tasks = part.iter().map(|name| task_for(name));
            let outcomes = open.pool.run_each(tasks.collect(), command, operation);
            let outcomes = outcomes.map_err(|error| of_task(cannot_destroy(&part[0]), &error))?;
            for (name, outcome) in part.iter().zip(outcomes) {
                if let Err(refusal) = outcome
                    && first.is_none()
                {
                    let error = TaskError::Refused(refusal);
                    first = Some(of_task(cannot_destroy(name), &error));
                }
            }
        }
        first.map_or(Ok(()), Err)
    }
}

fn task_for(name: &str) -> DestroyAny {
    match name.contains('@') {
        true => DestroyAny::Snapshots(DestroySnapshots {
            names: vec![name.to_string()],
            defer: false,
        }),
        false => DestroyAny::Head(DestroyHead {
            name: name.to_string(),
        }),
    }
}

pub(super) fn cannot_destroy(name: &str) -> String {
    format!("cannot destroy '{name}'")
}

/// Refuses what is in a pool that is open read-only.
pub(super) fn check_writable(open: &OpenPool, name: &str) -> Result<(), Refusal> {
    match open.pool.mode() {
        Mode::ReadWrite => Ok(()),
        Mode::ReadOnly => {
            let action = cannot_destroy(name);
            let reason = "pool is read-only";
            Err(Refusal::new(RefusalKind::ReadOnly, action, reason))
        }
    }
}

/// The kind of the dataset, and what depends on it.
fn found(
    open: &OpenPool,
    request: &Destroy,
    operation: &Operation,
) -> Result<(DatasetKind, Vec<Dependent>), Refusal> {
    let name = request.name.as_str();
    DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
    check_writable(open, name)?;
    let namespace = open.pool.namespace();
    let found = namespace.consistently(|| {
        let view = namespace.view(operation);
        let directory = view.directory(name)?;
        let head = directory.head()?.ok_or_else(|| DatasetError::NotFound {
            name: name.to_string(),
        })?;
        let mut dependents = Vec::new();
        add_below(&directory, name, &mut Vec::new(), &mut dependents)?;
        Ok((kind_of(&head)?, dependents))
    });
    found.map_err(|error| cannot_open(name, &error))
}

/// Adds what depends on a directory's head, the deepest first: children, then snapshots with their clones. `above` is what led here: who
/// is there already goes round.
#[doc(alias = "zfs_iter_dependents")]
fn add_below(
    directory: &Directory<'_>,
    target: &str,
    above: &mut Vec<String>,
    dependents: &mut Vec<Dependent>,
) -> Result<(), DatasetError> {
    let name = directory.name();
    if above.iter().any(|one| one == name) {
        return Err(DatasetError::Recursive {
            name: name.to_string(),
        });
    }
    above.push(name.to_string());
    for child in directory.children()? {
        add_below(&child, target, above, dependents)?;
        if let Some(head) = child.head()? {
            add(&head, target, dependents)?;
        }
    }
    if let Some(head) = directory.head()? {
        for snapshot in head.snapshots()? {
            add_clones_below(&snapshot, target, above, dependents)?;
            add(&snapshot, target, dependents)?;
        }
    }
    above.pop();
    Ok(())
}

/// Adds the clones of a snapshot, with what depends on them.
pub(super) fn add_clones(
    snapshot: &Dataset<'_>,
    target: &str,
    dependents: &mut Vec<Dependent>,
) -> Result<(), DatasetError> {
    add_clones_below(snapshot, target, &mut Vec::new(), dependents)
}

fn add_clones_below(
    snapshot: &Dataset<'_>,
    target: &str,
    above: &mut Vec<String>,
    dependents: &mut Vec<Dependent>,
) -> Result<(), DatasetError> {
    for id in snapshot.clone_ids()? {
        // Either its head or, if it has snapshots, the first of them.
        let first = snapshot.directory().view().dataset_by_id(id)?;
        let clone = first.directory();
        // What the target itself descends from does not depend on it.
        let is_known = |one: &Dependent| one.name == clone.name();
        if dependents.iter().any(is_known) || is_below(target, clone.name()) {
            continue;
        }
        add_below(clone, target, above, dependents)?;
        if let Some(head) = clone.head()? {
            add(&head, target, dependents)?;
        }
    }
    Ok(())
}

fn add(
    dataset: &Dataset<'_>,
    target: &str,
    dependents: &mut Vec<Dependent>,
) -> Result<(), DatasetError> {
    let name = dataset.name();
    dependents.push(Dependent {
        is_below: is_below(target, &name),
        name,
    });
    Ok(())
}

/// Whether a name is one below (or a snapshot of) another.
fn is_below(above: &str, name: &str) -> bool {
    name.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with(['/', '@']))
}

/// Whether what was asked for allows all of it to go, in OpenZFS's words.
fn check(request: &Destroy, kind: DatasetKind, dependents: &[Dependent]) -> Result<(), Refusal> {
    let name = &request.name;
    let recursive = request.recursive || request.dependents;
    let busy = |reason: String| Refusal::new(RefusalKind::Busy, cannot_destroy(name), reason);
    if !recursive && !name.contains('/') {
        let refusal = busy("operation does not apply to pools".to_string());
        return Err(refusal
            .with_hint(format!(
                "use 'zfs destroy -r {name}' to destroy all datasets in the pool"
            ))
            .with_hint(format!(
                "use 'zpool destroy {name}' to destroy the pool itself"
            )));
    }
    let (reason, option, in_the_way): (_, _, Vec<_>) = match (recursive, request.dependents) {
        (_, true) => return Ok(()),
        (true, false) => (
            "dependent clones",
            "-R",
            dependents.iter().filter(|one| !one.is_below).collect(),
        ),
        (false, false) => (
            "children",
            "-r",
            dependents.iter().filter(|one| one.is_below).collect(),
        ),
    };
    if in_the_way.is_empty() {
        return Ok(());
    }
    let word = match kind {
        DatasetKind::Volume => "volume",
        _ => "filesystem",
    };
    let refusal = busy(format!("{word} has {reason}"));
    let hint = format!("use '{option}' to destroy the following datasets:");
    let refusal = refusal.with_hint(hint);
    Err(in_the_way
        .into_iter()
        .fold(refusal, |refusal, one| refusal.with_hint(&one.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Destroy {
        Destroy {
            name: "tank/a".to_string(),
            recursive: line.contains('r'),
            dependents: line.contains('R'),
            ..Destroy::default()
        }
    }

    fn dependents() -> Vec<Dependent> {
        let of = |name: &str, is_below| Dependent {
            name: name.to_string(),
            is_below,
        };
        vec![
            of("tank/a/b", true),
            of("tank/c", false),
            of("tank/a@s", true),
        ]
    }

    fn refused(line: &str) -> Option<String> {
        let checked = check(&request(line), DatasetKind::Filesystem, &dependents());
        checked.err().map(|refusal| refusal.to_string())
    }

    #[test]
    fn what_depends_on_a_dataset_goes_only_when_it_is_asked_for() {
        assert_eq!(
            refused("").unwrap(),
            "cannot destroy 'tank/a': filesystem has children\n\
             use '-r' to destroy the following datasets:\ntank/a/b\ntank/a@s"
        );
        assert_eq!(
            refused("-r").unwrap(),
            "cannot destroy 'tank/a': filesystem has dependent clones\n\
             use '-R' to destroy the following datasets:\ntank/c"
        );
        assert_eq!(refused("-R"), None);
    }

    #[test]
    fn a_pool_is_not_destroyed_as_a_dataset() {
        let request = Destroy {
            name: "tank".to_string(),
            ..Destroy::default()
        };
        let refusal = check(&request, DatasetKind::Filesystem, &[]).unwrap_err();
        assert_eq!(refusal.reason, "operation does not apply to pools");
        assert_eq!(refusal.hints.len(), 2);
    }
}
