//! `zfs share` and `zfs unshare`, and the shares of file systems that are mounted and unmounted.
//!
//! # Mechanism
//! A mounted file system whose `sharenfs` is not `off` is handed to the
//! [`Sharer`](crate::sharing::Sharer). It is shared when it is mounted, so shares come back after a
//! restart and an import, and the share ends before it is unmounted. A change of the property
//! changes the shares of all file systems that inherit it. `zfs unshare` ends a share until it is
//! shared again, or mounted again.
//!
//! A share has a [hold](crate::served) of its own: the file system stays open while requests of
//! clients are under way, even where umount(8) has ended its mount.

use super::mount_values::{CanMount, Values};
use super::mountpoint::{self, MountPoint};
use super::{bad_name, cannot_open, missing_path};
use crate::engine::{Engine, OpenPool};
use crate::files::{Held, HoldPurpose, Tree};
use crate::mounting::requests::{Share, Shared, Unshare, Unshared};
use crate::mounts::{Found, Mounted};
use crate::refusals::{Refusal, RefusalKind};
use crate::sharing::{ShareRefusal, ShareRequest};
use std::path::Path;
use std::sync::Arc;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_dataset::properties::native::{self, Shown};
use tarn_probe::Operation;

/// The property.
pub const SHARENFS: &str = "sharenfs";
/// The value of a file system that is not shared.
const OFF: &str = "off";

impl Engine {
    /// Shares one mounted file system, or all.
    ///
    /// # Errors
    /// Why the named one is not shared.
    pub fn share(&self, request: &Share, operation: &Operation) -> Result<Shared, Refusal> {
        let mut reply = Shared::default();
        let Some(name) = &request.name else {
            for open in self.pools() {
                let turn = self.turn(&open);
                match turn {
                    Ok(_turn) => {
                        let refused = self.refresh_these(&open, open.all_served(), operation);
                        reply.refused.extend(refused);
                    }
                    Err(refusal) => reply.refused.push(refusal),
                }
            }
            return Ok(reply);
        };
        DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
        let open = self.require_pool_of(name)?;
        {
            let _turn = self.turn(&open)?;
            refuse_to_share(&open, name, operation)?;
            if self.sharer().is_none() {
                return Err(cannot_share(name, "this program serves no NFS"));
            }
            let is_shared = |mounted: &Mounted| self.is_shared(mounted);
            match open.mount_of(name) {
                Some(mounted) if is_shared(&mounted) => {
                    return Err(cannot_share(name, "filesystem already shared"));
                }
                Some(_) => return self.share_mounted(&open, name, operation).map(|()| reply),
                None => {}
            }
            // As with OpenZFS it is mounted first, and mounting shares it.
            self.mount_new(&open, name, operation)?;
        }
        Ok(reply)
    }

    /// Ends the share of one file system, or all.
    ///
    /// # Errors
    /// Why the named one is still shared, or is not.
    pub fn unshare(&self, request: &Unshare, operation: &Operation) -> Result<Unshared, Refusal> {
        let mut reply = Unshared::default();
        let Some(name) = request.name.as_deref() else {
            for open in self.pools() {
                match self.turn(&open) {
                    Ok(_turn) => {
                        for (name, mounted) in open.all_served() {
                            let ended = self.end_share(&open, &name, &mounted);
                            reply.refused.extend(ended.err());
                        }
                    }
                    Err(refusal) => reply.refused.push(refusal),
                }
            }
            return Ok(reply);
        };
        let (open, dataset) = match name.starts_with('/') {
            true => self.mounted_at(name)?,
            false => {
                DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
                (self.require_pool_of(name)?, name.to_string())
            }
        };
        let _turn = self.turn(&open)?;
        let refuse = |reason: &str| {
            let action = format!("cannot unshare '{name}'");
            Refusal::new(RefusalKind::Invalid, action, reason)
        };
        let view = open.pool.namespace().view(operation);
        let head = view.directory(&dataset).and_then(|found| found.head());
        let value = match head.map_err(|error| cannot_open(name, &error))? {
            Some(head) => shared_as(&head).map_err(|error| cannot_open(name, &error))?,
            None => OFF.to_string(),
        };
        if value == OFF {
            let hint = "use exports(5) or smb.conf(5) to unshare this filesystem";
            return Err(refuse("legacy share").with_hint(hint));
        }
        match open.served(&dataset).filter(|one| self.is_shared(one)) {
            Some(mounted) => self.end_share(&open, &dataset, &mounted).map(|()| reply),
            None => Err(refuse("not currently shared")),
        }
    }

    /// The dataset that is mounted on a folder, as `zfs unshare` takes it.
    fn mounted_at(&self, path: &str) -> Result<(Arc<OpenPool>, String), Refusal> {
        let refuse = |reason: &str| {
            let action = format!("cannot unshare '{path}'");
            Refusal::new(RefusalKind::NotFound, action, reason)
        };
        let (key, place) = match self.mounter.find(Path::new(path)) {
            Found::Mount(key, place) => (key, place),
            Found::Foreign => return Err(refuse("not a ZFS filesystem")),
            Found::Missing(why) => return Err(missing_path(path, why)),
        };
        if place.as_ref() != Some(&self.host.resolve(Path::new(path))) {
            return Err(refuse("not a mountpoint"));
        }
        let found = self.served_by(key);
        found.ok_or_else(|| refuse("not a ZFS filesystem"))
    }

    /// Whether a mounted file system is shared.
    fn is_shared(&self, mounted: &Mounted) -> bool {
        let guid = mounted.held.guid();
        self.sharer().is_some_and(|sharer| sharer.is_shared(guid))
    }

    /// Shares a file system that is mounted as its property says, or ends its share.
    ///
    /// # Errors
    /// Why it is not shared.
    pub(crate) fn share_mounted(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let Some(mounted) = open.served(name) else {
            return Ok(());
        };
        let view = open.pool.namespace().view(operation);
        let head = view.directory(name).and_then(|found| found.head());
        let head = head.map_err(|error| cannot_open(name, &error))?;
        let Some(head) = head.filter(|head| head.id() == mounted.held.tree().id()) else {
            return Ok(());
        };
        let value = shared_as(&head).map_err(|error| cannot_open(name, &error))?;
        if value == OFF || mounted.is_by_hand {
            return self.end_share(open, name, &mounted);
        }
        let Some(sharer) = self.sharer() else {
            return Ok(());
        };
        let known = open.shared.lock().get(&head.id()).cloned();
        let held: Arc<Held> = match known {
            Some(held) => held,
            None => {
                let purpose = HoldPurpose::Share;
                let joined = open.served_files.hold(head.id(), purpose, || {
                    Err(cannot_share(name, "not currently mounted"))
                });
                joined?.0
            }
        };
        let request = ShareRequest {
            dataset: name,
            path: &mounted.path,
            options: &value,
            tree: held.clone(),
        };
        match sharer.share(request) {
            Ok(()) => {
                open.shared.lock().insert(head.id(), held);
                Ok(())
            }
            Err(why) => {
                // With options that are not served it is not shared with those of before either.
                let ended = self.end_share(open, name, &mounted);
                if !open.shared.lock().contains_key(&head.id()) {
                    held.leave();
                }
                ended.and(Err(cannot_share(name, &why.to_string())))
            }
        }
    }

    /// Ends the share of a file system, if it has one.
    ///
    /// # Errors
    /// Requests of clients do not end: it is still shared.
    pub(crate) fn end_share(
        &self,
        open: &OpenPool,
        name: &str,
        mounted: &Mounted,
    ) -> Result<(), Refusal> {
        let ended = self
            .sharer()
            .map(|sharer| sharer.unshare(mounted.held.guid()));
        match ended.unwrap_or(Ok(())) {
            Ok(()) => {
                leave_share(open, &mounted.held);
                Ok(())
            }
            Err(why) => {
                let action = format!("cannot unshare '{name}'");
                Err(Refusal::new(RefusalKind::Busy, action, why.to_string()))
            }
        }
    }

    /// The share of a file system that is unmounted for a change comes back with its mount.
    pub(crate) fn interrupt_share(&self, mounted: &Mounted) {
        if let Some(sharer) = self.sharer() {
            sharer.interrupt(mounted.held.guid());
        }
    }

    /// Ends the share of a file system whose pool was given up.
    pub(crate) fn abandon_share(&self, open: &OpenPool, mounted: &Mounted) {
        if let Some(sharer) = self.sharer() {
            sharer.abandon(mounted.held.guid());
        }
        leave_share(open, &mounted.held);
    }

    /// The property of these datasets may have changed: shares begin, end and change.
    ///
    /// # Errors
    /// The first refusal; the others are shared as their properties say.
    pub fn refresh_shares(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let mounts = open.mounts.lock().at_and_below(name);
        let refused = self.refresh_these(open, mounts, operation);
        refused.into_iter().next().map_or(Ok(()), Err)
    }

    fn refresh_these(
        &self,
        open: &Arc<OpenPool>,
        mounts: Vec<(String, Mounted)>,
        operation: &Operation,
    ) -> Vec<Refusal> {
        let shared = mounts.iter();
        let shared = shared.map(|(name, _)| self.share_mounted(open, name, operation));
        shared.filter_map(Result::err).collect()
    }
}

/// Ends the hold of a share.
pub(crate) fn leave_share(open: &OpenPool, held: &Held) {
    let share = open.shared.lock().remove(&held.tree().id());
    if let Some(share) = share {
        share.leave();
    }
}

/// The value of `sharenfs`.
fn shared_as(head: &Dataset<'_>) -> Result<String, DatasetError> {
    let natives = native::of_dataset(head, |row| row.name == SHARENFS)?;
    let value = natives.into_iter().find_map(|one| match one.value {
        Shown::Text(text) => Some(text),
        Shown::Number(_) => None,
    });
    Ok(value.unwrap_or_else(|| OFF.to_string()))
}

/// Refuses to share a file system by its name, in OpenZFS's words.
#[doc(alias = "share_mount_one")]
fn refuse_to_share(open: &OpenPool, name: &str, operation: &Operation) -> Result<(), Refusal> {
    let view = open.pool.namespace().view(operation);
    let unreadable = |error: DatasetError| cannot_open(name, &error);
    let head = view.directory(name).and_then(|found| found.head());
    let Some(head) = head.map_err(unreadable)? else {
        return Ok(());
    };
    if !super::is_filesystem(&head).map_err(unreadable)? {
        let action = format!("cannot open '{name}'");
        let reason = "operation not applicable to datasets of this type";
        return Err(Refusal::new(RefusalKind::Invalid, action, reason));
    }
    if shared_as(&head).map_err(unreadable)? == OFF {
        let hint = "use exports(5) or smb.conf(5) to share this filesystem, or set the sharenfs or \
                    sharesmb property";
        return Err(cannot_share(name, "legacy share").with_hint(hint));
    }
    let point = mountpoint::of_dataset(&head, open.altroot.as_deref());
    let (point, _) = point.map_err(unreadable)?;
    match point {
        MountPoint::Legacy => {
            let hint = "use share(8) to share this filesystem";
            return Err(cannot_share(name, "legacy mountpoint").with_hint(hint));
        }
        MountPoint::None => return Err(cannot_share(name, "no mountpoint set")),
        MountPoint::Path(_) => {}
    }
    match Values::read(&head).map_err(unreadable)?.can_mount {
        CanMount::Off => Err(cannot_share(name, "'canmount' property is set to 'off'")),
        CanMount::On | CanMount::NoAuto => Ok(()),
    }
}

fn cannot_share(name: &str, reason: &str) -> Refusal {
    let action = format!("cannot share '{name}'");
    Refusal::new(RefusalKind::Invalid, action, reason)
}

/// Why options of `sharenfs` cannot be served, if they cannot: for a warning when they are set.
pub fn refused_options(engine: &Engine, value: &str) -> Option<ShareRefusal> {
    let sharer = engine.sharer().filter(|_| value != OFF)?;
    sharer.check(value).err()
}
