//! Resolves mount points to folders, and follows only the administrator's symbolic links.
//!
//! # Problem
//! The daemon mounts as root, and the kernel follows symbolic links to the folder. Contents of file
//! systems belong to their users, and may come with received streams: a link in them where a folder
//! is expected would put a file system over `/etc`.
//!
//! # Mechanism
//! A mount point is resolved to a path without symbolic links before a folder is made or mounted
//! on, and the mount goes to exactly that folder or fails: the [`Mounter`](crate::mounts::Mounter)
//! checks the folder again that it has opened. The path is resolved name by name, and so is the
//! target of a link. A link is followed only if both hold:
//! - It is in a folder that is not in a mount of this daemon, also after earlier links.
//! - Only the administrator can have put it into that folder: other users cannot write to the
//!   folder, or it is sticky (`/tmp`) and the link is the administrator's.
//!
//! A file system that was unmounted for a change is mounted again only on the same folder, if its
//! mount point is still the same.

use super::mount::cannot_mount;
use crate::engine::Engine;
use crate::mounts::{Found, MountedBefore};
use crate::refusals::{Refusal, RefusalKind};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Most links on one path, as in Linux.
#[doc(alias = "MAXSYMLINKS")]
const LINKS_MAX: usize = 40;

impl Engine {
    /// The folder that a mount point resolves to, which may be missing. A dead mount that an
    /// earlier daemon left on it is removed.
    pub(super) fn mount_place(
        &self,
        name: &str,
        path: &Path,
        before: Option<&MountedBefore>,
    ) -> Result<PathBuf, Refusal> {
        let elsewhere = |found: Option<PathBuf>| {
            let found = found.map_or("nowhere".to_string(), |found| found.display().to_string());
            let reason = format!("{} leads to {found}", path.display());
            Refusal::new(RefusalKind::Denied, cannot_mount(name), reason)
        };
        self.mounter.clear_remains(path);
        let before = before.filter(|before| before.path == path);
        let place = match (before, self.below_a_mount(path)) {
            (Some(before), _) => before.place.clone(),
            (None, Some(place)) => place,
            (None, None) => self.followed(path).map_err(elsewhere)?,
        };
        if place != path {
            // A dead mount is not removed through a link.
            self.mounter.clear_remains(&place);
        }
        match self.host.leads_to(path) {
            Some(found) if found == place => Ok(place),
            found => Err(elsewhere(found)),
        }
    }

    /// Where a path below a mount of this daemon resolves to, if all its components are folders.
    fn below_a_mount(&self, path: &Path) -> Option<PathBuf> {
        let mut nearest: Option<(usize, PathBuf)> = None;
        for open in self.pools() {
            // Also below the last folder of a file system that is only in use elsewhere: no link is
            // followed there.
            let found = open.mounts.lock().lead_from_above(path);
            if let Some((depth, place)) = found
                && nearest.as_ref().is_none_or(|(other, _)| depth > *other)
            {
                nearest = Some((depth, place));
            }
        }
        nearest.map(|(_, place)| place)
    }

    /// Where a path leads through the machine's links. The error has where it would lead, if one of
    /// its links must not be followed.
    fn followed(&self, path: &Path) -> Result<PathBuf, Option<PathBuf>> {
        let mut place = PathBuf::new();
        let mut links = 0;
        let mut ahead: Vec<OsString> = names_from_last(path).collect();
        while let Some(name) = ahead.pop() {
            if name == ".." {
                // The name is no link, so the kernel would go here.
                place.pop();
                continue;
            }
            let itself = place.join(name);
            let Some(target) = self.host.link_target(&itself) else {
                place = itself;
                continue;
            };
            links += 1;
            let is_ours = self.below_a_mount(&place).is_some()
                // A mount of this daemon that is bound to another folder, or was moved.
                || matches!(self.mounter.find(&place), Found::Mount(..));
            if links > LINKS_MAX || is_ours || !self.host.is_guarded_link(&itself) {
                return Err(self.host.leads_to(path));
            }
            ahead.extend(names_from_last(&target));
        }
        Ok(place)
    }
}

/// The names of a path, the last one first; the root counts as one.
fn names_from_last(path: &Path) -> impl Iterator<Item = OsString> {
    let names = path.components().rev();
    let names = names.filter(|name| *name != Component::CurDir);
    names.map(|name| name.as_os_str().to_owned())
}
