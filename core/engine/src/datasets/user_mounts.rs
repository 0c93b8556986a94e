//! Mounts and users without privilege.
//!
//! # Problem
//! The daemon can mount anything anywhere. A user who may mount a file system must not thereby get it where others trust what they find: over `/etc`, or through a link
//! that he puts in the way at the right moment.
//!
//! # Mechanism
//! OpenZFS on Linux lets only root mount. Here a user with the permission `mount` may have a file system mounted in one place, where that does no harm: in the folder of its name
//! below its parent, where that is mounted, when nobody but root can lead that path elsewhere and nothing is there. What is
//! mounted for him has no set-id programs and no devices. Everything else is refused in the words of OpenZFS.
//!
//! What moves when a name or a property changes stays where it is for him: the change is refused as long as it is mounted. What has to be
//! unmounted for a moment must be where nobody can put something else in its place meanwhile: in a folder that only root can change, whosever its own root is. And it is asked again before it is mounted again, for what came in the meantime may
//! have changed the way to it. Then, too, it has no set-id programs and no devices, whoever had mounted it before: its contents are what he has brought. No property that he sets
//! gives them to what is mounted without.
//!
//! # What it does not do
//! When a pool is imported, and so when the daemon starts, everything is mounted as its properties say, as with OpenZFS. Whoever lets others receive sets `setuid=off` and
//! `devices=off` where they do.

use super::cannot_open;
use super::mount::{Beneficiary, cannot_mount, entry_of};
use super::mountpoint::{self, MountPoint};
use crate::administration::Call;
use crate::engine::{Engine, OpenPool};
use crate::messages::dataset::Mounted as MountedReply;
use crate::messages::{Refusal, RefusalKind};
use crate::policy::{Need, need, permission};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tarn_dataset::names::DatasetName;
use tarn_probe::Operation;

impl Engine {
    /// Whether what is mounted for this caller, where it belongs, harms nobody; and whether he may.
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
        path == above.path.join(component) && self.host.is_guarded(&path) && self.is_free(&path)
    }

    /// Whether nothing is in a folder, or it is not there.
    fn is_free(&self, path: &Path) -> bool {
        match self.host.list_directory(path) {
            Ok(entries) => entries.is_empty(),
            Err(_) => self.host.file_kind(path) == tarn_host::FileKind::Other,
        }
    }

    /// Mounts what a caller has made, if he [may](Engine::may_mount).
    pub(super) fn mount_for(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
    ) -> Result<Option<PathBuf>, Refusal> {
        self.mount_new_for(open, name, self.beneficiary(call), operation)
    }

    /// For whom is mounted what this call mounts.
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
        let open = self.require_pool_of(name)?;
        let _turn = self.turn(&open)?;
        DatasetName::parse(name).map_err(|bad| super::describe::bad_name(name, bad))?;
        let view = open.pool.namespace().view(operation);
        let there = view.directory(name);
        there.map_err(|error| cannot_open(name, &error))?;
        let mut reply = MountedReply::default();
        if !self.may_mount(call, &open, name, operation) {
            let reason = "Insufficient privileges";
            return Err(Refusal::new(
                RefusalKind::Denied,
                cannot_mount(name),
                reason,
            ));
        }
        let mounted = self.mount_for(call, &open, name, operation)?;
        reply
            .mounts
            .extend(mounted.map(|path| entry_of(name, &path)));
        Ok(reply)
    }

    /// Mounting all is for those who may do everything.
    pub(super) fn permit_all_mounts(&self, call: &Call) -> Result<(), Refusal> {
        match self.trusts(&call.caller) {
            true => Ok(()),
            false => Err(Refusal::new(RefusalKind::Denied, "", "permission denied")),
        }
    }

    /// Refuses a caller who may not unmount a dataset or path, or all.
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
        let open = self.require_pool_of(name)?;
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
            .all(|(_, mounted)| self.host.is_guarded_above(&mounted.path))
        {
            true => Ok(()),
            false => Err(denied()),
        }
    }

    /// Refuses what would unmount these for a moment, or for good, where somebody could put something else into the place.
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
            if !self.host.is_guarded_above(&mounted.path) {
                return Err(cannot_unmount(&mounted.path));
            }
        }
        Ok(())
    }

    /// Refuses what would mount these somewhere else.
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

/// Where a file system belongs.
pub(super) fn place_of(open: &OpenPool, name: &str, operation: &Operation) -> Option<PathBuf> {
    let view = open.pool.namespace().view(operation);
    let head = view.directory(name).ok()?.head().ok()??;
    match mountpoint::of_dataset(&head, open.altroot.as_deref()).ok()? {
        (MountPoint::Path(path), _) => Some(path),
        _ => None,
    }
}

fn cannot_unmount(path: &Path) -> Refusal {
    let action = format!("cannot unmount '{}'", path.display());
    Refusal::new(RefusalKind::Denied, action, "permission denied")
}
