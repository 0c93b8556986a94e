//! `zfs destroy`: a file system or volume, alone or with its dependents.
//!
//! # Mechanism
//! The dependents of a dataset are listed first, the deepest first: children, snapshots, clones of
//! snapshots. When all may be destroyed, all are unmounted; when one mount is in use, or one
//! dataset cannot be destroyed, nothing is, and the unmounted file systems are mounted again. Then
//! the datasets go, in one txg unless they are very many ([`GROUP_FULL`]), and their blocks are
//! freed in the background.
//!
//! The partial state of an interrupted receive (`%recv`) depends on its target, and on the snapshot
//! that it goes on from.
//!
//! Snapshots given by name are destroyed in [`destroy_snapshots`](super::destroy_snapshots),
//! bookmarks in [`bookmarks`](super::bookmarks).

use super::bad_name;
use super::destroy_snapshots::{Closed, cannot_destroy_snapshot};
use super::{cannot_open, kind_of};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{Need, need, permission};
use crate::messages::dataset::{DatasetKind, Destroy, Destroyed};
use crate::messages::{Refusal, RefusalKind};
use std::collections::BTreeSet;
use std::sync::Arc;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::destroy_together::DestroyTogether;
use tarn_dataset::task::SyncTask;
use tarn_engine::engine::OpenPool;
use tarn_engine::mounting::remount::{Back, Extent, named};
use tarn_engine::refusals::of_tasks;
use tarn_ondisk::units::ObjectId;
use tarn_pool::{Mode, TaskError};
use tarn_probe::Operation;

/// A txg with this many destroyed datasets takes no further file system, nor its snapshots. A
/// guess: each changes some ten objects of the MOS, which are all in memory until the txg is
/// stored.
const GROUP_FULL: usize = 500;

/// A dataset that is destroyed with another, or prevents it.
#[derive(Debug, Clone)]
pub(super) struct Dependent {
    pub(super) name: String,
    id: ObjectId,
    /// It is below the named dataset; else it is a clone elsewhere.
    is_below: bool,
}

impl Administrator {
    pub(crate) fn destroy_dataset(
        &self,
        call: &Call,
        request: &Destroy,
        operation: &Operation,
    ) -> Result<Destroyed, Refusal> {
        let name = &request.name;
        let open = self.engine.require_pool_of(name)?;
        let _turn = self.engine.turn(&open)?;
        if name.contains('@') {
            return self.destroy_snapshots(call, &open, request, operation);
        }
        if name.contains('#') {
            return self.destroy_bookmark(call, &open, request, operation);
        }
        let dependents = found(&open, request, operation)?;
        let mut names: Vec<String> = dependents.iter().map(|one| one.name.clone()).collect();
        names.push(name.clone());
        let destroyed = Destroyed {
            names: names.clone(),
            ..Destroyed::default()
        };
        if request.dry_run {
            return Ok(destroyed);
        }
        // The root dataset stays: `zpool destroy` removes it.
        names.retain(|name| name.contains(['/', '@']));
        self.permit_destruction(call, &open, cannot_destroy(name), &names, operation)?;
        self.remove_devices_of(&open, &names)?;
        check_destruction(&open, &names, operation)?;
        let heads = heads_of(&names);
        let going = named(&open, &heads, operation).map_err(|error| cannot_open(name, &error))?;
        self.permit_interruption(call, &open, &heads)?;
        let force = request.force && self.trusts(&call.caller);
        // The root dataset stays mounted. Its snapshots come last, so they go in one txg.
        let root = format!("{}@", open.pool.name());
        let of_root = dependents.iter().filter(|one| one.name.starts_with(&root));
        let _closed = Closed::close(&open, of_root.map(|one| (one.name.as_str(), one.id)))?;
        let outcome = self
            .engine
            .take_off(
                self.beneficiary(call),
                &open,
                &going,
                Extent::wholly(force),
                operation,
            )
            .and_then(|unmounted| {
                let outcome = self.destroy_all(call, &open, &names, operation);
                // Mounts again, where possible, the file systems that still exist.
                drop(self.engine.put_back(
                    self.beneficiary(call),
                    &open,
                    &going,
                    &unmounted,
                    Back::WhatWas,
                    operation,
                ));
                outcome
            });
        outcome.map(|()| destroyed)
    }

    /// Refuses a caller without permission to destroy all of these heads and snapshots.
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

    /// Removes the block devices of volumes and snapshots that are about to be destroyed. Refused
    /// where one is open.
    pub(super) fn remove_devices_of(
        &self,
        open: &Arc<OpenPool>,
        names: &[String],
    ) -> Result<(), Refusal> {
        self.engine
            .remove_devices_of(open, names, |name| match name.contains('@') {
                true => cannot_destroy_snapshot(name),
                false => cannot_destroy(name),
            })
    }

    /// Destroys these datasets, which [`check_destruction`] has passed.
    pub(super) fn destroy_all(
        &self,
        call: &Call,
        open: &OpenPool,
        names: &[String],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        for part in groups(names) {
            let is_last = part.last() == names.last();
            let command = is_last.then(|| self.command_record(call));
            let task = DestroyTogether {
                names: part.to_vec(),
            };
            let outcomes = open.pool.run_each(vec![task], command, operation);
            let outcome = outcomes.and_then(|outcomes| {
                let refused = |outcome: Result<(), _>| outcome.map_err(TaskError::Refused);
                outcomes.into_iter().try_for_each(refused)
            });
            outcome.map_err(|error| refused(&part[0], &error))?;
        }
        Ok(())
    }
}

/// Refuses when a dataset could not be destroyed even after those before it.
pub(super) fn check_destruction(
    open: &OpenPool,
    names: &[String],
    operation: &Operation,
) -> Result<(), Refusal> {
    let Some(first) = names.first() else {
        return Ok(());
    };
    let task = DestroyTogether {
        names: names.to_vec(),
    };
    let view = open.pool.namespace().view(operation);
    let checked = task.check(view, &open.pool.features());
    checked.map_err(|refusal| refused(first, &TaskError::Refused(refusal)))
}

fn refused(first: &str, error: &TaskError) -> Refusal {
    let action = |name: &str| match name.contains('@') {
        true => cannot_destroy_snapshot(name),
        false => cannot_destroy(name),
    };
    of_tasks(action(first), action, error)
}

/// Divides the list after each head, so that snapshots go together and with their head.
fn groups(names: &[String]) -> Vec<&[String]> {
    let mut groups = Vec::new();
    let mut begin = 0;
    for (place, name) in names.iter().enumerate() {
        let end = place + 1;
        let is_full = end - begin >= GROUP_FULL && !name.contains('@');
        if is_full || end == names.len() {
            groups.push(&names[begin..end]);
            begin = end;
        }
    }
    groups
}

/// Those of these names that can be mounted.
pub(super) fn heads_of(names: &[String]) -> Vec<String> {
    let heads = names.iter().filter(|name| !name.contains(['@', '%']));
    heads.cloned().collect()
}

pub(super) fn cannot_destroy(name: &str) -> String {
    format!("cannot destroy '{name}'")
}

/// Refuses a dataset of a pool that is open read-only.
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

/// The dependents of the dataset, where the request allows to destroy all of them.
fn found(
    open: &OpenPool,
    request: &Destroy,
    operation: &Operation,
) -> Result<Vec<Dependent>, Refusal> {
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
        let mut found = Found::of(name, Circles::of(request));
        found.add_below(&directory)?;
        Ok((kind_of(&head)?, found))
    });
    let (kind, found) = found.map_err(|error| cannot_open(name, &error))?;
    check(request, kind, &found.dependents)?;
    match found.circle.filter(|_| request.recursive) {
        Some(name) => Err(cannot_open(
            &name.clone(),
            &DatasetError::Recursive { name },
        )),
        None => Ok(found.dependents),
    }
}

/// Adds the clones of a snapshot with their dependents.
pub(super) fn add_clones(
    snapshot: &Dataset<'_>,
    target: &str,
    circles: Circles,
    dependents: &mut Vec<Dependent>,
) -> Result<(), DatasetError> {
    let mut found = Found::of(target, circles);
    found.known = dependents.iter().map(|one| one.name.clone()).collect();
    found.add_clones(snapshot)?;
    dependents.append(&mut found.dependents);
    Ok(())
}

/// The treatment of circular dependencies, which renames and promotions can make: a dataset in one
/// depends on itself, so there is no order in which to destroy it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "allowrecursion")]
pub(super) enum Circles {
    /// Skipped: the dependents are only listed.
    PassedOver,
    /// An error: the dependents are to be destroyed.
    Refused,
}

impl Circles {
    pub(super) fn of(request: &Destroy) -> Circles {
        match request.dependents {
            true => Circles::Refused,
            false => Circles::PassedOver,
        }
    }
}

/// The dependents of a dataset found so far.
struct Found<'n> {
    target: &'n str,
    /// The directories that led here. One that comes again closes a circle.
    above: Vec<String>,
    circles: Circles,
    /// The first skipped circle: the dataset that was met again.
    circle: Option<String>,
    known: BTreeSet<String>,
    dependents: Vec<Dependent>,
}

impl Found<'_> {
    fn of(target: &str, circles: Circles) -> Found<'_> {
        Found {
            target,
            above: Vec::new(),
            circles,
            circle: None,
            known: BTreeSet::new(),
            dependents: Vec::new(),
        }
    }

    /// Adds the dependents of a directory's head, the deepest first: children, then snapshots with
    /// their clones.
    #[doc(alias = "zfs_iter_dependents")]
    fn add_below(&mut self, directory: &Directory<'_>) -> Result<(), DatasetError> {
        let name = directory.name();
        if self.above.iter().any(|one| one == name) {
            return Err(DatasetError::Recursive {
                name: name.to_string(),
            });
        }
        self.above.push(name.to_string());
        for child in directory.children()? {
            self.add_with_dependents(&child)?;
        }
        if let Some(head) = directory.head()? {
            for snapshot in head.snapshots()? {
                self.add_clones(&snapshot)?;
                self.add(&snapshot);
            }
        }
        self.above.pop();
        Ok(())
    }

    fn add_clones(&mut self, snapshot: &Dataset<'_>) -> Result<(), DatasetError> {
        for id in snapshot.clone_ids()? {
            // The head, or the first snapshot where it has snapshots.
            let first = snapshot.directory().view().dataset_by_id(id)?;
            self.add_with_dependents(first.directory())?;
        }
        Ok(())
    }

    /// A clone below the target is found twice: as a clone and as a child.
    fn add_with_dependents(&mut self, directory: &Directory<'_>) -> Result<(), DatasetError> {
        let name = directory.name();
        if self.known.contains(name) {
            return Ok(());
        }
        if self.circles == Circles::PassedOver && self.above.iter().any(|one| one == name) {
            self.circle.get_or_insert_with(|| name.to_string());
            return Ok(());
        }
        self.add_below(directory)?;
        if let Some(head) = directory.head()? {
            self.add(&head);
        }
        Ok(())
    }

    fn add(&mut self, dataset: &Dataset<'_>) {
        let name = dataset.name();
        self.known.insert(name.clone());
        self.dependents.push(Dependent {
            is_below: is_below(self.target, &name),
            id: dataset.id(),
            name,
        });
    }
}

/// Whether a name is below another, or one of its snapshots.
fn is_below(above: &str, name: &str) -> bool {
    name.strip_prefix(above)
        .is_some_and(|rest| rest.starts_with(['/', '@']))
}

/// Whether the request allows to destroy all dependents; the refusal has OpenZFS's words.
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
            id: ObjectId::ZERO,
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
    fn dependents_are_destroyed_only_on_request() {
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
    fn groups_end_after_a_head() {
        let snapshots = |head: &str, count: usize| {
            let name = |number| format!("tank/{head}@{number}");
            (0..count).map(name).collect::<Vec<_>>()
        };
        let mut names = snapshots("a", GROUP_FULL - 1);
        names.push("tank/a".to_string());
        names.extend(snapshots("b", 3 * GROUP_FULL));
        names.push("tank/b".to_string());
        names.push("tank/c".to_string());
        names.extend(snapshots("d", 2));
        let ends: Vec<&str> = groups(&names)
            .iter()
            .map(|group| group.last().unwrap().as_str())
            .collect();
        assert_eq!(ends, ["tank/a", "tank/b", "tank/d@1"]);
        assert_eq!(groups(&names).concat(), names);
        assert!(groups(&[]).is_empty());
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
