//! `zfs rollback`: resets a file system or volume to a snapshot.
//!
//! # Mechanism
//! Newer snapshots and bookmarks are destroyed in the same txg, where that was asked for, and
//! clones of newer snapshots before. The file system is unmounted meanwhile, as the kernel would go
//! on showing its caches. A volume that is served stays so, with the contents of the snapshot.

use super::bad_name;
use super::cannot_open;
use super::destroy::{Circles, Dependent, add_clones, cannot_destroy, check_destruction, heads_of};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::call_record;
use crate::command_permissions::{need, permission};
use crate::messages::dataset::Rollback;
use crate::messages::{Done, Refusal, RefusalKind};
use std::sync::Arc;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::ops::rollback::Rollback as RollbackTask;
use tarn_engine::engine::OpenPool;
use tarn_engine::mounting::remount::{Back, Extent, named, with_those_on_them};
use tarn_engine::refusals::of_tasks;
use tarn_pool::Mode;
use tarn_probe::Operation;

/// How many newer snapshots and bookmarks a refusal lists.
const TOLD_MAX: usize = 32;

/// The snapshots and bookmarks that are newer.
#[derive(Default)]
struct Newer {
    snapshots: Vec<String>,
    bookmarks: Vec<String>,
    /// Clones of the snapshots with their dependents, in the order of destruction.
    clones: Vec<Dependent>,
}

impl Administrator {
    pub(crate) fn roll_back(
        &self,
        call: &Call,
        request: &Rollback,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let name = DatasetName::parse(&request.name).map_err(|bad| bad_name(&request.name, bad))?;
        if name.kind() != NameKind::Snapshot {
            let action = format!("cannot open '{}'", request.name);
            let reason = "missing '@' delimiter in snapshot name";
            return Err(Refusal::new(RefusalKind::Invalid, action, reason));
        }
        let open = self.engine.require_pool_of(&request.name)?;
        let _turn = self.engine.turn(&open)?;
        let circles = match request.clones {
            true => Circles::Refused,
            false => Circles::PassedOver,
        };
        let newer = newer(&open, &name, circles, operation);
        let newer = newer.map_err(|error| cannot_open(&request.name, &error))?;
        check(request, &newer)?;
        let head = name.head().to_string();
        if open.pool.mode() == Mode::ReadOnly {
            let action = cannot_roll_back(&head);
            return Err(Refusal::new(
                RefusalKind::ReadOnly,
                action,
                "pool is read-only",
            ));
        }
        let needs = [need(&head, &[permission::ROLLBACK])];
        self.permit(call, &open, cannot_roll_back(&head), &needs, operation)?;
        let clones: Vec<String> = newer.clones.iter().map(|one| one.name.clone()).collect();
        let mut heads = heads_of(&clones);
        heads.push(head.clone());
        let going = named(&open, &heads, operation)
            .and_then(|going| with_those_on_them(&open, going, operation))
            .map_err(|error| cannot_open(&head, &error))?;
        let newer_ones: Vec<String> = clones.iter().chain(&newer.snapshots).cloned().collect();
        self.permit_destruction(call, &open, cannot_roll_back(&head), &newer_ones, operation)?;
        self.permit_bookmarks_going(call, &open, &head, &newer, operation)?;
        let interrupted: Vec<String> = going.iter().map(|one| one.name.clone()).collect();
        self.permit_interruption(call, &open, &interrupted)?;
        self.remove_devices_of(&open, &newer_ones)?;
        check_destruction(&open, &clones, operation)?;
        let force = request.force && self.trusts(&call.caller);
        let unmounted = self.engine.take_off(
            self.beneficiary(call),
            &open,
            &going,
            Extent::wholly(force),
            operation,
        )?;
        let outcome = self
            .destroy_all(call, &open, &clones, operation)
            .and_then(|()| {
                let back = || self.go_back(call, &open, request, &newer, operation);
                self.engine.replacing_volume(&open, &head, operation, back)
            });
        let mounted = self.engine.put_back(
            self.beneficiary(call),
            &open,
            &going,
            &unmounted,
            Back::WhatWas,
            operation,
        );
        outcome.and(mounted).map(|()| Done {})
    }

    /// Refuses a caller without permission to destroy the newer bookmarks.
    #[doc(alias = "zfs_secpolicy_destroy_bookmarks")]
    fn permit_bookmarks_going(
        &self,
        call: &Call,
        open: &OpenPool,
        head: &str,
        newer: &Newer,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if newer.bookmarks.is_empty() {
            return Ok(());
        }
        let needs = [need(head, &[permission::DESTROY])];
        self.permit(call, open, cannot_roll_back(head), &needs, operation)
    }

    fn go_back(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        request: &Rollback,
        newer: &Newer,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let task = RollbackTask {
            snapshot: request.name.clone(),
            newer: newer
                .snapshots
                .iter()
                .chain(&newer.bookmarks)
                .cloned()
                .collect(),
        };
        let record = call_record::rollback(&request.name);
        let command = self.record_with_call(call, record);
        let gone_back = open.pool.run_command(task, command, operation);
        let head = request.name.split('@').next().unwrap_or_default();
        gone_back.map_err(|error| of_tasks(cannot_roll_back(head), cannot_destroy, &error))
    }
}

fn cannot_roll_back(head: &str) -> String {
    format!("cannot rollback '{head}'")
}

fn newer(
    open: &OpenPool,
    name: &DatasetName,
    circles: Circles,
    operation: &Operation,
) -> Result<Newer, DatasetError> {
    let namespace = open.pool.namespace();
    namespace.consistently(|| {
        let view = namespace.view(operation);
        let txg = view.dataset(name)?.stored()?.creation_txg;
        let mut newer = Newer::default();
        let Some(head) = view.directory(name.head())?.head()? else {
            return Ok(newer);
        };
        for snapshot in head.snapshots()? {
            if snapshot.stored()?.creation_txg > txg {
                let name = snapshot.name();
                add_clones(&snapshot, &name, circles, &mut newer.clones)?;
                newer.snapshots.push(name);
            }
        }
        for bookmark in head.bookmarks()? {
            if bookmark.stored.creation_txg > txg {
                newer
                    .bookmarks
                    .push(format!("{}#{}", name.head(), bookmark.name));
            }
        }
        Ok(newer)
    })
}

/// Whether the request allows to destroy what is newer; the refusal has OpenZFS's words.
#[doc(alias = "rollback_check")]
fn check(request: &Rollback, newer: &Newer) -> Result<(), Refusal> {
    let action = format!("cannot rollback to '{}'", request.name);
    let all: Vec<&String> = newer.snapshots.iter().chain(&newer.bookmarks).collect();
    let tell =
        |reason: &str, option: &str, what: &str, names: &mut dyn Iterator<Item = &String>| {
            let hint = format!("use '{option}' to force deletion of the following {what}:");
            let refusal = Refusal::new(RefusalKind::Exists, action.clone(), reason).with_hint(hint);
            names.fold(refusal, |refusal, name| refusal.with_hint(name))
        };
    if !request.newer && !request.clones && !all.is_empty() {
        let reason = "more recent snapshots or bookmarks exist";
        let mut told = all.iter().copied().take(TOLD_MAX);
        let refusal = tell(reason, "-r", "snapshots and bookmarks", &mut told);
        return Err(match all.len() >= TOLD_MAX {
            true => refusal.with_hint(format!("Output limited to {TOLD_MAX} snapshots/bookmarks")),
            false => refusal,
        });
    }
    if !request.clones && !newer.clones.is_empty() {
        let reason = "clones of previous snapshots exist";
        let mut told = newer.clones.iter().map(|one| &one.name);
        return Err(tell(reason, "-R", "clones and dependents", &mut told));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_snapshots_are_destroyed_only_on_request() {
        let newer = Newer {
            snapshots: vec!["tank@b".to_string()],
            ..Newer::default()
        };
        let request = |newer| Rollback {
            name: "tank@a".to_string(),
            newer,
            ..Rollback::default()
        };
        assert_eq!(
            check(&request(false), &newer).unwrap_err().to_string(),
            "cannot rollback to 'tank@a': more recent snapshots or bookmarks exist\n\
             use '-r' to force deletion of the following snapshots and bookmarks:\ntank@b"
        );
        assert!(check(&request(true), &newer).is_ok());
        assert!(check(&request(false), &Newer::default()).is_ok());
    }
}
