//! `zfs destroy` of snapshots: one, several, ranges; of a dataset or of all below it.
//!
//! # Mechanism
//! Names and ranges are looked up in each dataset first; names that are missing are skipped. Then
//! all found snapshots are destroyed in one txg, or none; clones, where they go as well, before. If
//! a file of one snapshot is open below `.zfs`, all of them stay.

use super::bad_name;
use super::cannot_open;
use super::destroy::{
    Circles, Dependent, add_clones, cannot_destroy, check_destruction, check_writable, heads_of,
};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::call_record;
use crate::messages::dataset::{Destroy, Destroyed};
use crate::messages::{Refusal, RefusalKind};
use std::sync::Arc;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::destroy_snapshot::DestroySnapshots;
use tarn_dataset::space_used::freed_by_range;
use tarn_engine::engine::OpenPool;
use tarn_engine::mounting::remount::{Back, Extent, named};
use tarn_engine::refusals::of_tasks;
use tarn_engine::served::ServedFiles;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// The snapshots that a request names.
#[derive(Default)]
struct Found {
    snapshots: Vec<Snapshot>,
    reclaimed_bytes: u64,
}

/// A snapshot to destroy.
struct Snapshot {
    name: String,
    id: ObjectId,
    /// Its clones and their dependents, in the order of destruction.
    clones: Vec<Dependent>,
}

impl Administrator {
    pub(super) fn destroy_snapshots(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        request: &Destroy,
        operation: &Operation,
    ) -> Result<Destroyed, Refusal> {
        let (head, wanted) = request.name.split_once('@').unwrap_or_default();
        DatasetName::parse(head).map_err(|bad| bad_name(head, bad))?;
        check_writable(open, &request.name)?;
        let namespace = open.pool.namespace();
        let found = namespace.consistently(|| {
            let mut found = Found::default();
            let directory = namespace.view(operation).directory(head)?;
            gather(&directory, wanted, request, &mut found)?;
            Ok(found)
        });
        let found = found.map_err(|error| cannot_open(head, &error))?;
        if found.snapshots.is_empty() {
            let reason = "could not find any snapshots to destroy; check snapshot names.";
            return Err(Refusal::new(RefusalKind::NotFound, "", reason));
        }
        if !request.dependents && !request.defer {
            check_clones(&found.snapshots)?;
        }
        let destroyed = Destroyed {
            names: found.snapshots.iter().map(|one| one.name.clone()).collect(),
            reclaimed_bytes: Some(found.reclaimed_bytes),
            clones: match request.dependents {
                true => clones_of(&found.snapshots),
                false => Vec::new(),
            },
        };
        if !request.dry_run {
            let action = "cannot destroy snapshots";
            let all: Vec<String> = destroyed
                .clones
                .iter()
                .chain(&destroyed.names)
                .cloned()
                .collect();
            self.permit_destruction(call, open, action, &all, operation)?;
            self.permit_interruption(call, open, &destroyed.clones)?;
            self.remove_devices_of(open, &all)?;
            if !destroyed.clones.is_empty() {
                let going = match request.defer {
                    true => &destroyed.clones,
                    false => &all,
                };
                check_destruction(open, going, operation)?;
            }
            let force = request.force && self.trusts(&call.caller);
            self.destroy_clones(call, open, &destroyed.clones, force, operation)?;
            self.destroy_these(call, open, &found.snapshots, request.defer, operation)?;
        }
        Ok(destroyed)
    }

    fn destroy_clones(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        names: &[String],
        force: bool,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if names.is_empty() {
            return Ok(());
        }
        let heads = heads_of(names);
        let going =
            named(open, &heads, operation).map_err(|error| cannot_open(&names[0], &error))?;
        let unmounted = self.engine.take_off(
            self.beneficiary(call),
            open,
            &going,
            Extent::wholly(force),
            operation,
        )?;
        let outcome = self.destroy_all(call, open, names, operation);
        // Mounts again, where possible, the file systems that still exist.
        drop(self.engine.put_back(
            self.beneficiary(call),
            open,
            &going,
            &unmounted,
            Back::WhatWas,
            operation,
        ));
        outcome
    }

    fn destroy_these(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        snapshots: &[Snapshot],
        defer: bool,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let ids = snapshots.iter().map(|one| (one.name.as_str(), one.id));
        let _closed = Closed::close(open, ids)?;
        let task = DestroySnapshots {
            names: snapshots.iter().map(|one| one.name.clone()).collect(),
            defer,
        };
        let record = call_record::destroy_snapshots(&task.names, defer);
        let command = self.record_with_call(call, record);
        let outcome = open.pool.run_command(task, command, operation);
        outcome
            .map_err(|error| of_tasks("cannot destroy snapshots", cannot_destroy_snapshot, &error))
    }
}

/// Snapshots that cannot be entered below `.zfs` until this is dropped. Those that were not
/// destroyed can be entered again then.
#[must_use]
pub(super) struct Closed {
    served: Arc<ServedFiles>,
    snapshots: Vec<ObjectId>,
}

impl Closed {
    /// Closes all of these, or none: a snapshot that has an open file or is exported is busy.
    pub(super) fn close<'n>(
        open: &OpenPool,
        snapshots: impl Iterator<Item = (&'n str, ObjectId)>,
    ) -> Result<Closed, Refusal> {
        let mut closed = Closed {
            served: open.served_files.clone(),
            snapshots: Vec::new(),
        };
        for (name, id) in snapshots {
            closed.snapshots.push(id);
            if !closed.served.begin_ending(id) {
                let action = cannot_destroy_snapshot(name);
                return Err(Refusal::new(RefusalKind::Busy, action, "dataset is busy"));
            }
        }
        Ok(closed)
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        for snapshot in &self.snapshots {
            self.served.go_on(*snapshot);
        }
    }
}

/// The OpenZFS wording, without quotation marks.
pub(super) fn cannot_destroy_snapshot(name: &str) -> String {
    format!("cannot destroy snapshot {name}")
}

/// Adds the named snapshots of a dataset and of the datasets below it.
#[doc(alias = "gather_snapshots")]
fn gather(
    directory: &Directory<'_>,
    wanted: &str,
    request: &Destroy,
    found: &mut Found,
) -> Result<(), DatasetError> {
    if let Some(head) = directory.head()? {
        let snapshots = head.snapshots()?;
        let short: Vec<&str> = snapshots
            .iter()
            .map(|one| one.snapshot_name().unwrap_or_default())
            .collect();
        let is_wanted = chosen(&short, wanted);
        for run in runs(&is_wanted) {
            let (first, last) = (&snapshots[run.start], &snapshots[run.end - 1]);
            let freed = freed_by_range(first, last)?;
            found.reclaimed_bytes = found.reclaimed_bytes.saturating_add(freed);
            for snapshot in &snapshots[run] {
                found
                    .snapshots
                    .push(described(snapshot, Circles::of(request))?);
            }
        }
    }
    if request.recursive {
        for child in directory.children()? {
            gather(&child, wanted, request, found)?;
        }
    }
    Ok(())
}

fn described(snapshot: &Dataset<'_>, circles: Circles) -> Result<Snapshot, DatasetError> {
    let name = snapshot.name();
    let mut clones = Vec::new();
    add_clones(snapshot, &name, circles, &mut clones)?;
    Ok(Snapshot {
        id: snapshot.id(),
        clones,
        name,
    })
}

/// Which of a dataset's snapshots, oldest first, names and ranges select: `x,y%z`. A range whose
/// ends are missing selects none.
#[doc(alias = "zfs_iter_snapspec")]
fn chosen(snapshots: &[&str], wanted: &str) -> Vec<bool> {
    let mut is_wanted = vec![false; snapshots.len()];
    let place = |name: &str| snapshots.iter().position(|other| *other == name);
    for one in wanted.split(',') {
        let range = match one.split_once('%') {
            None => place(one).map(|place| place..=place),
            Some((first, last)) => {
                let first = if first.is_empty() {
                    Some(0)
                } else {
                    place(first)
                };
                let end = snapshots.len().checked_sub(1);
                let last = if last.is_empty() { end } else { place(last) };
                first.zip(last).map(|(first, last)| first..=last)
            }
        };
        for place in range.into_iter().flatten() {
            is_wanted[place] = true;
        }
    }
    is_wanted
}

/// Runs of selected snapshots.
fn runs(is_wanted: &[bool]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for place in (0..is_wanted.len()).filter(|place| is_wanted[*place]) {
        match runs.last_mut() {
            Some(run) if run.end == place => run.end += 1,
            _ => runs.push(place..place + 1),
        }
    }
    runs
}

/// Refuses snapshots that have clones, in OpenZFS's words.
#[doc(alias = "destroy_check_dependent")]
fn check_clones(snapshots: &[Snapshot]) -> Result<(), Refusal> {
    let mut cloned = snapshots.iter().filter(|one| !one.clones.is_empty());
    let Some(first) = cloned.next() else {
        return Ok(());
    };
    let hint = "use '-R' to destroy the following datasets:";
    let reason = "snapshot has dependent clones";
    let refusal = Refusal::new(RefusalKind::Busy, cannot_destroy(&first.name), reason);
    let names = |refusal: Refusal, one: &Snapshot| {
        let clones = one.clones.iter();
        clones.fold(refusal.with_hint(hint), |refusal, clone| {
            refusal.with_hint(&clone.name)
        })
    };
    Err(cloned.fold(names(refusal, first), |refusal, one| {
        let next = format!("{}: {reason}", cannot_destroy(&one.name));
        names(refusal.with_hint(next), one)
    }))
}

/// Clones of snapshots with their dependents, each once, in the order of destruction.
fn clones_of(snapshots: &[Snapshot]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for clone in snapshots.iter().flat_map(|one| &one.clones) {
        if !names.contains(&clone.name) {
            names.push(clone.name.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ranges_select_snapshots() {
        let all = ["a", "b", "c", "d", "e"];
        let found = |wanted: &str| -> String {
            let is_wanted = chosen(&all, wanted);
            let found = all.iter().zip(is_wanted).filter(|(_, wanted)| *wanted);
            found.map(|(name, _)| *name).collect()
        };
        assert_eq!(found("b"), "b");
        assert_eq!(found("d,b"), "bd");
        assert_eq!(found("b%d"), "bcd");
        assert_eq!(found("%b"), "ab");
        assert_eq!(found("d%"), "de");
        assert_eq!(found("%"), "abcde");
        assert_eq!(found("a,c%d"), "acd");
        // In the wrong order, or missing.
        assert_eq!(found("d%b"), "");
        assert_eq!(found("x"), "");
        assert_eq!(found("b%x"), "");
        assert_eq!(found("x%b"), "");
        assert_eq!(chosen(&[], "%"), Vec::<bool>::new());
    }

    #[test]
    fn runs_of_selected_snapshots_are_found() {
        assert_eq!(runs(&[true, true, false, true]), [0..2, 3..4]);
        assert_eq!(runs(&[]), []);
    }
}
