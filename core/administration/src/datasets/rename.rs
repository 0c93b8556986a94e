//! `zfs rename`: renames a file system or volume with the datasets below it.
//!
//! File systems whose mount points follow from the name are unmounted, and mounted at their new
//! mount points afterwards. File systems with a mount point of their own stay mounted and only get
//! their new names. Snapshots are renamed in [`rename_snapshots`](super::rename_snapshots).

use super::cannot_open;
use super::create::{cannot_create, missing_parents, parent};
use super::set::kind_named;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{need, permission};
use crate::messages::dataset::{DatasetKind, Rename};
use crate::messages::{Changed, Done, Refusal, RefusalKind};
use std::sync::Arc;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::on_behalf::Growth;
use tarn_dataset::ops::rename::Rename as RenameTask;
use tarn_dataset::task::TaskRefusal;
use tarn_engine::engine::OpenPool;
use tarn_engine::files::HoldPurpose;
use tarn_engine::mounting::remount::{Back, Extent, Follower, TakenOff, Unmounted, all_below};
use tarn_engine::refusals::of_task;
use tarn_pool::TaskError;
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn rename_dataset(
        &self,
        call: &Call,
        request: &Rename,
        operation: &Operation,
    ) -> Result<Changed, Refusal> {
        let open = self.engine.require_pool_of(&request.from)?;
        let _turn = self.engine.turn(&open)?;
        if request.from.contains('@') {
            let renamed = self.rename_snapshots(call, &open, request, operation);
            return renamed.map(|Done {}| Changed::default());
        }
        let (moved, unmounted) = self.rename_head(call, &open, request, operation)?;
        let mounted = self.engine.put_back(
            self.beneficiary(call),
            &open,
            &moved,
            &unmounted,
            Back::WhatWas,
            operation,
        );
        // Datasets that were not remounted may inherit from other ancestors now.
        let refreshed = self.engine.refresh_below(&open, &request.to, operation);
        // The rename stands, whether or not it can be mounted there.
        let told = mounted.and(refreshed).err();
        let warnings = Vec::from_iter(told.map(|refusal| refusal.to_string()));
        Ok(Changed { warnings })
    }

    /// Renames a file system, volume or snapshot. The caller mounts the returned heads, which were
    /// unmounted for it.
    pub(super) fn move_dataset(
        &self,
        call: &Call,
        request: &Rename,
        operation: &Operation,
    ) -> Result<Vec<TakenOff>, Refusal> {
        let open = self.engine.require_pool_of(&request.from)?;
        let _turn = self.engine.turn(&open)?;
        if request.from.contains('@') {
            let renamed = self.rename_snapshots(call, &open, request, operation);
            return renamed.map(|_| Vec::new());
        }
        let (_, unmounted) = self.rename_head(call, &open, request, operation)?;
        // Removes folders of mounts that moved.
        self.engine.put_back(
            self.beneficiary(call),
            &open,
            &[],
            &unmounted,
            Back::WhatWas,
            operation,
        )?;
        Ok(unmounted.heads())
    }

    /// Renames a file system or volume. The returned heads are still to be mounted.
    fn rename_head(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        request: &Rename,
        operation: &Operation,
    ) -> Result<(Vec<Follower>, Unmounted), Refusal> {
        let (from, to) = (&request.from, &request.to);
        let kind = kind_named(open, from, operation)?;
        check_kind(request, kind)?;
        if from == to {
            return Ok((Vec::new(), Unmounted::nothing()));
        }
        check_target(request)?;
        self.permit_rename(call, open, request, operation)?;
        if request.parents {
            self.create_ancestors(call, open, request, operation)?;
        }
        let moved = self.movers(open, request, kind, operation)?;
        self.permit_moves(call, open, moved.iter().map(|one| one.name.as_str()))?;
        let extent = Extent::move_away(request.force);
        let unmounted =
            self.engine
                .take_off(self.beneficiary(call), open, &moved, extent, operation)?;
        let task = RenameTask {
            from: from.clone(),
            to: to.clone(),
        };
        let (parent, _) = to.rsplit_once('/').unwrap_or_default();
        let growth = vec![Growth::Moved {
            from: from.clone(),
            to: parent.to_string(),
        }];
        let task = self.on_behalf(call, task, growth, Vec::new());
        match self.run_on_behalf(call, open, task, operation) {
            Ok(()) => {
                rename_served(open, from, to);
                let moved = moved.iter().map(|one| one.renamed(from, to)).collect();
                Ok((moved, unmounted))
            }
            Err(error) => {
                drop(self.engine.put_back(
                    self.beneficiary(call),
                    open,
                    &moved,
                    &unmounted,
                    Back::WhatWas,
                    operation,
                ));
                Err(rename_refusal(request, &error))
            }
        }
    }

    /// Refuses a caller without permission to rename this dataset to this name.
    #[doc(alias = "zfs_secpolicy_rename_perms")]
    fn permit_rename(
        &self,
        call: &Call,
        open: &OpenPool,
        request: &Rename,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let (from, to) = (&request.from, &request.to);
        let needs = [need(from, &[permission::RENAME, permission::MOUNT])];
        let action = cannot_rename(from);
        self.permit(call, open, &action, &needs, operation)?;
        self.permit_below(call, open, &action, to, operation)
    }

    fn create_ancestors(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        request: &Rename,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        for name in missing_parents(open, &request.to, operation)? {
            let task = parent(call, &name, request.parents_no_mount);
            let made = open.pool.run(self.creating(call, task, &name), operation);
            made.map_err(|error| {
                let hint = format!("failed to create ancestor '{name}'");
                of_task(cannot_create(&request.to), &error).with_hint(hint)
            })?;
            if self.may_mount(call, open, &name, operation) {
                self.mount_for(call, open, &name, operation)?;
            }
        }
        Ok(())
    }

    /// The file systems whose mount points change.
    fn movers(
        &self,
        open: &OpenPool,
        request: &Rename,
        kind: DatasetKind,
        operation: &Operation,
    ) -> Result<Vec<Follower>, Refusal> {
        if request.no_mount || kind != DatasetKind::Filesystem {
            return Ok(Vec::new());
        }
        let found = all_below(open, &request.from, operation);
        let mut found = found.map_err(|error| cannot_open(&request.from, &error))?;
        // Mounts of mount(8) stay where they are.
        open.look_for_mounts();
        let is_by_hand = |name: &str| open.served(name).is_some_and(|one| one.is_by_hand);
        found.retain(|one| one.moves_with(&request.from) && !is_by_hand(&one.name));
        Ok(found)
    }
}

/// Renames the served file systems at and below a dataset.
fn rename_served(open: &OpenPool, from: &str, to: &str) {
    let renamed = |name: &str| {
        let rest = name.strip_prefix(from)?;
        let is_below = rest.is_empty() || rest.starts_with('/');
        is_below.then(|| format!("{to}{rest}"))
    };
    let mut mounts = open.mounts.lock();
    for (old, _) in mounts.at_and_below(from) {
        let new = renamed(&old);
        if let Some(new) = new
            && let Some(mounted) = mounts.remove(&old)
        {
            mounted.held.tree().rename(&new);
            mounts.insert(new, mounted);
        }
    }
    drop(mounts);
    open.served_volumes.rename(from, to);
    open.touch_volumes(to);
    for tree in open.served_files.held_for(HoldPurpose::Export) {
        if let Some(new) = tree.name().and_then(|name| renamed(&name)) {
            tree.rename(&new);
        }
    }
}

pub(super) fn cannot_rename(name: &str) -> String {
    format!("cannot rename '{name}'")
}

fn check_kind(request: &Rename, kind: DatasetKind) -> Result<(), Refusal> {
    match kind {
        DatasetKind::Filesystem => Ok(()),
        DatasetKind::Volume if !request.no_mount => Ok(()),
        DatasetKind::Volume => Err(Refusal::new(
            RefusalKind::Invalid,
            format!("cannot open '{}'", request.from),
            "operation not applicable to datasets of this type",
        )),
        DatasetKind::Snapshot | DatasetKind::Bookmark => Err(Refusal::new(
            RefusalKind::Invalid,
            cannot_rename(&request.from),
            "operation not applicable to datasets of this type",
        )),
    }
}

/// Checks the new name as such.
fn check_target(request: &Rename) -> Result<(), Refusal> {
    let to = &request.to;
    let invalid = |reason: String| {
        let action = format!("cannot rename to '{to}'");
        Refusal::new(RefusalKind::Invalid, action, reason)
    };
    let parsed = DatasetName::parse_new_head(to).map_err(|bad| invalid(bad.to_string()))?;
    if parsed.parent().is_none() {
        let action = cannot_create(to);
        return Err(Refusal::new(
            RefusalKind::Invalid,
            action,
            "missing dataset name",
        ));
    }
    let from_pool = request.from.split('/').next().unwrap_or_default();
    if parsed.pool() != from_pool {
        return Err(invalid("datasets must be within same pool".to_string()));
    }
    // The partial state of a receive has no name of its own.
    if request.from.contains('%') {
        let action = cannot_rename(&request.from);
        return Err(Refusal::new(
            RefusalKind::Invalid,
            action,
            "invalid argument",
        ));
    }
    match to.strip_prefix(request.from.as_str()) {
        Some(rest) if rest.starts_with('/') => Err(invalid(
            "New dataset name cannot be a descendant of current dataset name".to_string(),
        )),
        _ => Ok(()),
    }
}

/// Why it was not renamed, in OpenZFS's words: an error of the new parent names the new dataset.
fn rename_refusal(request: &Rename, error: &TaskError) -> Refusal {
    let action = match error {
        TaskError::Refused(
            TaskRefusal::NoParent { .. } | TaskRefusal::ParentNotFilesystem { .. },
        ) => cannot_create(&request.to),
        TaskError::Refused(TaskRefusal::Dataset(DatasetError::NotFound { .. })) => {
            format!("cannot open '{}'", request.from)
        }
        _ => cannot_rename(&request.from),
    };
    of_task(action, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_is_in_the_same_pool_and_not_below_the_old_one() {
        let refused = |from: &str, to: &str| {
            let request = Rename {
                from: from.to_string(),
                to: to.to_string(),
                ..Rename::default()
            };
            check_target(&request)
                .err()
                .map(|refusal| refusal.to_string())
        };
        assert_eq!(refused("tank/a", "tank/b"), None);
        assert_eq!(refused("tank/a", "tank/ab"), None);
        assert_eq!(
            refused("tank/a", "dozer/a").unwrap(),
            "cannot rename to 'dozer/a': datasets must be within same pool"
        );
        assert_eq!(
            refused("tank/a", "tank/a/b").unwrap(),
            "cannot rename to 'tank/a/b': New dataset name cannot be a descendant of current dataset name"
        );
        assert_eq!(
            refused("tank/a/%recv", "tank/b").unwrap(),
            "cannot rename 'tank/a/%recv': invalid argument"
        );
        assert_eq!(
            refused("tank/a", "tank").unwrap(),
            "cannot create 'tank': missing dataset name"
        );
    }
}
