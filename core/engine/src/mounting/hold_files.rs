//! Holds on the files of a dataset without a mount: for front ends that export, and for commands.
//!
//! # Mechanism
//! The table of [served](crate::served) file systems has one for each object set, so holds made
//! here share it with mounts. A dataset without holds is opened as for a mount: its intent log is
//! replayed. The last hold that leaves in order closes the intent log and waits until dirty data is
//! stored.

use super::mount::candidate_of;
use super::mount_values::Values;
use super::{bad_name, cannot_open, mount::Candidate};
use crate::engine::{Engine, OpenPool};
use crate::files::{FileSystem, Held, HoldPurpose, Tree};
use crate::mount_options::TemporaryOptions;
use crate::refusals::{Refusal, RefusalKind, of_task};
use crate::served::Closing;
use crate::tree::{ServedTree, TreeError};
use std::sync::Arc;
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_pool::Pool;
use tarn_posix::Unlinked;
use tarn_probe::Operation;
use tarn_zil::LogClosing;

impl Engine {
    /// Holds the files of a file system or snapshot for a front end that does not mount. Where the
    /// dataset is mounted too, both serve one [`FileSystem`]. A held dataset cannot be destroyed,
    /// rolled back or received into, and its pool is exported only by force.
    ///
    /// # Errors
    /// There is no such dataset, or it has no files; its key is not loaded; it is partly received
    /// or cannot be read.
    pub fn hold_files(&self, name: &str, operation: &Operation) -> Result<Arc<Held>, Refusal> {
        let parsed = DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
        let open = self.require_pool_of(name)?;
        let _turn = self.turn(&open)?;
        match parsed.kind() {
            NameKind::Snapshot => hold_snapshot(&open, &parsed, operation),
            _ => self.hold_head(&open, name, HoldPurpose::Export, operation),
        }
    }

    /// Ends a hold of [`hold_files`](Engine::hold_files) in order: the last one stores dirty data
    /// and closes the intent log. A hold that is dropped does neither.
    ///
    /// # Errors
    /// Data that could not be stored. The hold has ended all the same.
    pub fn release_files(&self, held: &Held) -> Result<(), Refusal> {
        let pool = held.tree().pool();
        let Some(open) = self.find_pool(pool.name()) else {
            held.leave();
            return Ok(());
        };
        let _turn = self.turn(&open).inspect_err(|_| held.leave())?;
        self.leave_head(held)
    }

    /// Calls `act` with the files of a dataset, mounted or not. The caller has the pool's turn.
    pub fn with_files<T>(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
        then: impl FnOnce(&FileSystem) -> T,
    ) -> Result<T, Refusal> {
        let held = self.hold_head(open, name, HoldPurpose::Command, operation)?;
        let outcome = then(held.files());
        self.leave_head(&held)?;
        Ok(outcome)
    }

    fn hold_head(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        purpose: HoldPurpose,
        operation: &Operation,
    ) -> Result<Arc<Held>, Refusal> {
        self.finish_ended(open, name)?;
        let candidate = candidate_of(open, name, operation)?;
        refuse_unreadable(open, name, &candidate)?;
        let (temporary, unlinked) = (TemporaryOptions::default(), Unlinked::Freed);
        let held = self.hold_tree(open, &candidate, purpose, &temporary, unlinked, operation);
        held.map(|(held, _)| held)
    }

    fn leave_head(&self, held: &Held) -> Result<(), Refusal> {
        let name = held.tree().name().unwrap_or_default();
        let closing = held.begin_leaving();
        let leaving = closing.map(|closing| (format!("cannot open '{name}'"), closing));
        self.close_files(held.tree().pool(), Vec::from_iter(leaving), None)
    }

    /// Stores dirty data of file systems without holders, all in one txg, and closes their intent
    /// logs. Each comes with the beginning of its refusal; so does another file system that is only
    /// to be stored, where there is one.
    pub(super) fn close_files(
        &self,
        pool: &Pool,
        closing: Vec<(String, Closing)>,
        other: Option<String>,
    ) -> Result<(), Refusal> {
        let stored = self.store_last_changes(pool, &closing, other);
        for (_, one) in &closing {
            pool.namespace().forget_log(one.tree().id());
        }
        stored
    }

    fn store_last_changes(
        &self,
        pool: &Pool,
        closing: &[(String, Closing)],
        mut last_changed: Option<String>,
    ) -> Result<(), Refusal> {
        let operation = self.operation(0);
        for (action, one) in closing {
            let failed = |why: String| Refusal::new(RefusalKind::Device, action, why);
            let tree = one.tree();
            if !tree.files().properties().is_read_only {
                let stored = tree.files().store_access_times(&operation);
                stored.map_err(|error| failed(error.to_string()))?;
                last_changed = Some(action.clone());
            }
            let closed = pool.namespace().close_log(tree.id(), &operation);
            if closed.map_err(|error| failed(error.to_string()))? == LogClosing::WithGroup {
                last_changed = Some(action.clone());
            }
        }
        let Some(action) = last_changed else {
            return Ok(());
        };
        let stored = pool.sync_all(&operation);
        stored.map_err(|error| of_task(action, &error))
    }
}

/// Refuses a file system whose files cannot be opened, unless they are open already.
fn refuse_unreadable(open: &OpenPool, name: &str, candidate: &Candidate) -> Result<(), Refusal> {
    if open.served(name).is_some() {
        return Ok(());
    }
    let action = format!("cannot open '{name}'");
    if candidate.is_encrypted {
        let reason = "encryption key not loaded";
        return Err(Refusal::new(RefusalKind::Invalid, action, reason));
    }
    match candidate.is_received_half || candidate.is_in_use {
        true => Err(Refusal::new(RefusalKind::Busy, action, "dataset is busy")),
        false => Ok(()),
    }
}

/// Holds a snapshot, with the properties of its file system.
fn hold_snapshot(
    open: &Arc<OpenPool>,
    name: &DatasetName,
    operation: &Operation,
) -> Result<Arc<Held>, Refusal> {
    let text = name.to_string();
    let view = open.pool.namespace().view(operation);
    let properties = || {
        let head = view.directory(name.head())?.head()?;
        let values = head.as_ref().map(Values::read).transpose()?;
        let values = values.unwrap_or_default();
        Ok(values.mount_properties(&TemporaryOptions::default()))
    };
    let found = view.dataset(name);
    let snapshot = found.map_err(|error| cannot_open(&text, &error))?;
    let properties = properties().map_err(|error| cannot_open(&text, &error))?;
    let held = open
        .served_files
        .hold(snapshot.id(), HoldPurpose::Export, || {
            ServedTree::open_snapshot(&open.pool, &snapshot, properties, operation)
        });
    let (held, _) = held.map_err(|error: TreeError| {
        Refusal::new(
            RefusalKind::Corrupt,
            format!("cannot open '{text}'"),
            error.why,
        )
    })?;
    // rmdir(2) below `.zfs/snapshot` destroys snapshots without taking the pool's turn.
    let again = view.dataset(name).map(|found| found.id());
    match again.is_ok_and(|id| id == snapshot.id()) && !held.files().is_ending() {
        true => Ok(held),
        false => {
            let action = format!("cannot open '{text}'");
            Err(Refusal::new(
                RefusalKind::NotFound,
                action,
                "dataset does not exist",
            ))
        }
    }
}
