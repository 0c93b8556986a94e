//! Mounts by users without privilege.
//!
//! # Problem
//! The daemon can mount anything on any folder. The permission `mount` must not let a user mount a
//! file system on a folder that other users trust: over `/etc`, or through a symbolic link that the
//! user puts in the path at the right moment.
//!
//! # Mechanism
//! OpenZFS on Linux lets only root mount. Here a user with the permission `mount` may have a file
//! system mounted on one folder: that of its name in the mount of its parent, if only root can
//! change the path to it and the folder is empty or missing. Such a mount is `nosuid` and `nodev`.
//! All other mounts are refused in OpenZFS's words.
//!
//! A change of a name or property that would move a mounted file system is refused to the user. An
//! unmount for a moment (rollback, receive) is refused unless only root can change the folders
//! above the mount, so that the folder cannot be replaced meanwhile. The conditions are checked
//! again before the remount, since received contents may have changed the path. The remount is
//! `nosuid` and `nodev` even if the first mount was not, since the user determines the contents;
//! properties that the user sets do not change that.
//!
//! # What it does not do
//! An import of the pool, and so the start of the daemon, mounts everything as its properties say,
//! as OpenZFS does. Before delegating `receive`, an administrator sets `setuid=off` and
//! `devices=off` on the parent.

use super::cannot_open;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{Need, need, permission};
use crate::messages::dataset::Mounted as MountedReply;
use crate::messages::{Refusal, RefusalKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tarn_dataset::names::DatasetName;
use tarn_engine::engine::OpenPool;
use tarn_engine::mounting::mount::{Beneficiary, cannot_mount, entry_of};
use tarn_engine::mounting::mountpoint::{self, MountPoint};
use tarn_probe::Operation;

impl Administrator {
    /// Whether the caller has the permission `mount`, and mounting the file system on its mount
    /// point is harmless.
    pub(super) fn may_mount(
        &self,
        call: &Call,
        open: &OpenPool,
        name: &str,
        operation: &Operation,
    ) -> bool {
        self.trusts(&call.caller)
            || (self.may(call, open, &need(name, &[permission::MOUNT]), operation)
                && self.is_harmless(open, name, operation))
    }

    fn is_harmless(&self, open: &OpenPool, name: &str, operation: &Operation) -> bool {
        let Some((parent, component)) = name.rsplit_once('/') else {
            return false;
        };
        let Some(above) = open.mount_of(parent) else {
            return false;
        };
        let Some(path) = place_of(open, name, operation) else {
            return false;
        };
        path == above.path.join(component)
            && self.engine.host.is_guarded(&path)
            && self.is_free(&path)
    }

    /// Whether a folder is empty or missing.
    fn is_free(&self, path: &Path) -> bool {
        match self.engine.host.list_directory(path) {
            Ok(entries) => entries.is_empty(),
            Err(_) => self.engine.host.file_kind(path) == tarn_host::FileKind::Other,
        }
    }

    /// Mounts a file system that the caller created, if [permitted](Self::may_mount).
    pub(super) fn mount_for(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
    ) -> Result<Option<PathBuf>, Refusal> {
        self.engine
            .mount_new_for(open, name, self.beneficiary(call), operation)
    }

    /// Whether this call mounts as a user or as administrator.
    pub(super) fn beneficiary(&self, call: &Call) -> Beneficiary {
        match self.trusts(&call.caller) {
            true => Beneficiary::Administrator,
            false => Beneficiary::User,
        }
    }

    /// `zfs mount` of one file system.
    pub(super) fn mount_for_user(
        &self,
        call: &Call,
        name: &str,
        operation: &Operation,
    ) -> Result<MountedReply, Refusal> {
        let open = self.engine.require_pool_of(name)?;
        let _turn = self.engine.turn(&open)?;
        DatasetName::parse(name).map_err(|bad| super::bad_name(name, bad))?;
        let view = open.pool.namespace().view(operation);
        let there = view.directory(name);
        there.map_err(|error| cannot_open(name, &error))?;
        let mut reply = MountedReply::default();
        if !self.may_mount(call, &open, name, operation) {
            return Err(denied_mount(name));
        }
        let mounted = self.mount_for(call, &open, name, operation)?;
        reply
            .mounts
            .extend(mounted.map(|path| entry_of(name, &path)));
        Ok(reply)
    }

    /// Refuses `zfs mount -a` to a caller without privilege.
    pub(super) fn permit_all_mounts(&self, call: &Call) -> Result<(), Refusal> {
        match self.trusts(&call.caller) {
            true => Ok(()),
            false => Err(Refusal::new(RefusalKind::Denied, "", "permission denied")),
        }
    }

    /// Refuses to unmount a dataset or path, or all, without permission.
    pub(super) fn permit_unmount(&self, call: &Call, what: Option<&str>) -> Result<(), Refusal> {
        if self.trusts(&call.caller) {
            return Ok(());
        }
        let denied = || {
            let action = match what {
                Some(what) => format!("cannot unmount '{what}'"),
                None => String::new(),
            };
            Refusal::new(RefusalKind::Denied, action, "permission denied")
        };
        let name = what.ok_or_else(denied)?;
        if name.starts_with('/') {
            return Err(denied());
        }
        let open = self.engine.require_pool_of(name)?;
        let below = format!("{name}/");
        open.look_for_mounts();
        let mut mounts = open.all_served();
        mounts.retain(|(dataset, served)| {
            (dataset == name || dataset.starts_with(&below)) && open.is_mounted(served)
        });
        let operation = Operation::unmeasured();
        let needs: Vec<Need<'_>> = mounts
            .iter()
            .map(|(dataset, _)| need(dataset, &[permission::MOUNT]))
            .collect();
        let action = format!("cannot unmount '{name}'");
        self.permit(call, &open, action, &needs, &operation)?;
        match mounts
            .iter()
            .all(|(_, mounted)| self.engine.host.is_guarded_above(&mounted.path))
        {
            true => Ok(()),
            false => Err(denied()),
        }
    }

    /// Refuses to unmount these, for a moment or for good, where other users could replace their
    /// folders.
    pub(super) fn permit_interruption(
        &self,
        call: &Call,
        open: &OpenPool,
        heads: &[String],
    ) -> Result<(), Refusal> {
        if self.trusts(&call.caller) {
            return Ok(());
        }
        open.look_for_mounts();
        let mounts = heads.iter().filter_map(|head| open.mount_of(head));
        for mounted in mounts {
            if !self.engine.host.is_guarded_above(&mounted.path) {
                return Err(cannot_unmount(&mounted.path));
            }
        }
        Ok(())
    }

    /// Refuses a change that would move these mounts.
    pub(super) fn permit_moves<'n>(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        mut heads: impl Iterator<Item = &'n str>,
    ) -> Result<(), Refusal> {
        if self.trusts(&call.caller) {
            return Ok(());
        }
        match heads.find_map(|head| open.mount_of(head)) {
            None => Ok(()),
            Some(mounted) => Err(cannot_unmount(&mounted.path)),
        }
    }
}

/// The mount point of a file system.
pub(super) fn place_of(open: &OpenPool, name: &str, operation: &Operation) -> Option<PathBuf> {
    let view = open.pool.namespace().view(operation);
    let head = view.directory(name).ok()?.head().ok()??;
    match mountpoint::of_dataset(&head, open.altroot.as_deref()).ok()? {
        (MountPoint::Path(path), _) => Some(path),
        _ => None,
    }
}

/// The refusal of a mount without permission.
pub(super) fn denied_mount(name: &str) -> Refusal {
    let reason = "Insufficient privileges";
    Refusal::new(RefusalKind::Denied, cannot_mount(name), reason)
}

fn cannot_unmount(path: &Path) -> Refusal {
    let action = format!("cannot unmount '{}'", path.display());
    Refusal::new(RefusalKind::Denied, action, "permission denied")
}
