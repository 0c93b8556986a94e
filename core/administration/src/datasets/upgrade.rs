//! `zfs upgrade`: raises the version of file systems.
//!
//! A mounted file system stays mounted, with its present version until the next mount: every newer
//! version reads what an older one writes.

use super::cannot_open;
use super::set::kind_named;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::dataset::{DatasetKind, Upgrade, Upgraded};
use crate::messages::{Refusal, RefusalKind};
use std::sync::Arc;
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::upgrade::{self, UpgradeError, VERSION};
use tarn_dataset::task::TaskRefusal;
use tarn_engine::count_owners::count_all;
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::of_task;
use tarn_pool::{Mode, TaskError};
use tarn_probe::Operation;

/// Why one file system was not upgraded.
pub(super) enum Failed {
    /// Its pool cannot be written to.
    ReadOnly(Refusal),
    /// It could not be opened.
    Open(DatasetError),
    /// It could not be changed.
    Upgrade(UpgradeError),
}

impl Administrator {
    pub(crate) fn upgrade_datasets(
        &self,
        call: &Call,
        request: &Upgrade,
        operation: &Operation,
    ) -> Result<Upgraded, Refusal> {
        let version = request.version.unwrap_or(VERSION);
        let mut reply = Upgraded::default();
        if request.names.is_empty() {
            for open in self.engine.pools() {
                let name = open.pool.name().to_string();
                let _turn = match self.engine.turn(&open) {
                    Ok(turn) => turn,
                    Err(refusal) => {
                        reply.refused.push(refusal);
                        continue;
                    }
                };
                self.upgrade_tree(call, &open, &name, true, version, &mut reply, operation);
            }
        }
        for name in &request.names {
            let upgraded = self.engine.require_pool_of(name).and_then(|open| {
                let _turn = self.engine.turn(&open)?;
                check_kind(&open, name, operation)?;
                let recursive = request.recursive;
                self.upgrade_tree(call, &open, name, recursive, version, &mut reply, operation);
                Ok(())
            });
            match upgraded {
                Ok(()) => {}
                Err(refusal) => reply.refused.push(refusal),
            }
        }
        Ok(reply)
    }

    #[allow(clippy::too_many_arguments, reason = "one walk, and what it fills")]
    fn upgrade_tree(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        name: &str,
        recursive: bool,
        version: u64,
        reply: &mut Upgraded,
        operation: &Operation,
    ) {
        let found = match versions_below(open, name, recursive, operation) {
            Ok(found) => found,
            Err(error) => return reply.refused.push(cannot_open(name, &error)),
        };
        let mut is_changed = false;
        for (name, before) in found {
            if before >= version {
                reply.datasets.push((name, before, before));
                continue;
            }
            match self.upgrade_one(open, &name, version, operation) {
                Ok(()) => {
                    is_changed = true;
                    count_owners(open, &name, operation);
                    reply.datasets.push((name, before, version));
                }
                Err(failed) => {
                    let action = format!("cannot set property for '{name}'");
                    reply.refused.push(upgrade_refusal(action, failed));
                }
            }
        }
        if is_changed {
            self.record_command(call, open.pool.name(), operation);
        }
    }

    /// Sets the version of one file system.
    pub(super) fn upgrade_one(
        &self,
        open: &OpenPool,
        name: &str,
        version: u64,
        operation: &Operation,
    ) -> Result<(), Failed> {
        if open.pool.mode() == Mode::ReadOnly {
            let action = format!("cannot set property for '{name}'");
            return Err(Failed::ReadOnly(of_task(action, &TaskError::ReadOnly)));
        }
        raise(open, name, version, operation)
    }
}

fn raise(open: &OpenPool, name: &str, version: u64, operation: &Operation) -> Result<(), Failed> {
    let namespace = open.pool.namespace();
    let view = namespace.view(operation);
    let not_found = || DatasetError::NotFound {
        name: name.to_string(),
    };
    let parsed = DatasetName::parse(name).map_err(|_| Failed::Open(not_found()))?;
    let head = view.dataset(&parsed).map_err(Failed::Open)?;
    // A head is being sent as it is; the caller has the turn, in which sends begin.
    if namespace.is_in_use(head.id()) {
        let why = "dataset is busy".to_string();
        return Err(Failed::Upgrade(UpgradeError::Refused(TaskRefusal::Busy {
            why,
        })));
    }
    let set = namespace
        .head_set(head.id(), operation)
        .map_err(Failed::Open)?;
    upgrade::upgrade(view, &parsed, &set, version)
        .map(|_| ())
        .map_err(Failed::Upgrade)
}

/// Counts all objects for their owners, where the pool's features allow it. The caller has the
/// pool's turn. After an error the next mount goes on.
#[doc(alias = "zfs_ioc_userspace_upgrade")]
pub(super) fn count_owners(open: &Arc<OpenPool>, name: &str, operation: &Operation) {
    let view = open.pool.namespace().view(operation);
    let head = view.directory(name).and_then(|directory| directory.head());
    if let Ok(Some(head)) = head {
        count_all(open, head.id());
    }
}

/// The failure, in the words of commands.
pub(super) fn upgrade_refusal(action: String, failed: Failed) -> Refusal {
    let refused = |refusal: TaskRefusal| of_task(action.clone(), &TaskError::Refused(refusal));
    match failed {
        Failed::ReadOnly(refusal) => refusal,
        Failed::Open(error) => refused(TaskRefusal::Dataset(error)),
        Failed::Upgrade(UpgradeError::Refused(refusal)) => refused(refusal),
        Failed::Upgrade(other) => Refusal::new(RefusalKind::Device, action, other.to_string()),
    }
}

fn check_kind(open: &OpenPool, name: &str, operation: &Operation) -> Result<(), Refusal> {
    match kind_named(open, name, operation)? {
        DatasetKind::Filesystem => Ok(()),
        _ => Err(Refusal::new(
            RefusalKind::Invalid,
            format!("cannot open '{name}'"),
            "operation not applicable to datasets of this type",
        )),
    }
}

/// File systems with their versions: one, or also those below it.
fn versions_below(
    open: &OpenPool,
    name: &str,
    recursive: bool,
    operation: &Operation,
) -> Result<Vec<(String, u64)>, DatasetError> {
    let namespace = open.pool.namespace();
    namespace.consistently(|| {
        let mut found = Vec::new();
        let directory = namespace.view(operation).directory(name)?;
        add_versions(&directory, recursive, &mut found)?;
        Ok(found)
    })
}

fn add_versions(
    directory: &Directory<'_>,
    recursive: bool,
    found: &mut Vec<(String, u64)>,
) -> Result<(), DatasetError> {
    if let Some(head) = directory.head()?
        && let Contents::Filesystem(facts) = contents::read(&head)?
    {
        found.push((head.name(), facts.version));
    }
    if recursive {
        for child in directory.children()? {
            add_versions(&child, recursive, found)?;
        }
    }
    Ok(())
}
