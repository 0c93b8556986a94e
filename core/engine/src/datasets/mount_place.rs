//! Which folder a mount point means.
//!
//! # Problem
//! The daemon mounts as root, and the system follows links to where it mounts. Contents of file systems belong to their users, and come with streams that anybody may have made: a link
//! in them where a folder is expected would put a file system over `/etc`.
//!
//! # Mechanism
//! A mount point is turned into a path without links before anything is made or mounted there, and what is mounted goes into exactly that folder or nowhere: the
//! [`Mounter`](crate::mounts::Mounter) looks again at the folder that it has opened. The path is gone through name by name, and what a link says is gone through in the same way. Each link on it must be
//! one that the machine's administrator has put there, or it is not followed:
//! - It is in a folder that no mount of ours has, whichever links have led there.
//! - Only the administrator can have put it into that folder: other users cannot write to it, or can and may not
//!   remove what is there (`/tmp`), and the link is the administrator's.
//!
//! What was unmounted for a change is mounted again only where it was, if its mount point is still the same.

use super::mount::cannot_mount;
use crate::engine::Engine;
use crate::messages::{Refusal, RefusalKind};
use crate::mounts::{Found, MountedBefore};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// So many links on one path are followed, as in Linux.
#[doc(alias = "MAXSYMLINKS")]
const LINKS_MAX: usize = 40;

impl Engine {
    /// The folder that a mount point means, which need not be there. What a daemon that died has left mounted on it is removed.
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
            // It is not removed by way of a link.
            self.mounter.clear_remains(&place);
        }
        match self.host.leads_to(path) {
            Some(found) if found == place => Ok(place),
            found => Err(elsewhere(found)),
        }
    }

    /// Where a path leads that is below a mount of ours, if all on it are folders.
    fn below_a_mount(&self, path: &Path) -> Option<PathBuf> {
        let mut nearest: Option<(usize, PathBuf)> = None;
        for open in self.pools() {
            // Also where one was that is in use elsewhere only: no link is followed there.
            let found = open.mounts.lock().lead_from_above(path);
            if let Some((depth, place)) = found
                && nearest.as_ref().is_none_or(|(other, _)| depth > *other)
            {
                nearest = Some((depth, place));
            }
        }
        nearest.map(|(_, place)| place)
    }

    /// Where a path leads through links that the machine has; where it would lead, if one of them is not for us to follow.
    fn followed(&self, path: &Path) -> Result<PathBuf, Option<PathBuf>> {
        let mut place = PathBuf::new();
        let mut links = 0;
        let mut ahead: Vec<OsString> = names_from_last(path).collect();
        while let Some(name) = ahead.pop() {
            if name == ".." {
                // There is no link in the place, so this is where the system would go.
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
                // Bound to another folder, or moved.
                || matches!(self.mounter.find(&place), Found::Mount(..));
            if links > LINKS_MAX || is_ours || !self.host.is_guarded_link(&itself) {
                return Err(self.host.leads_to(path));
            }
            ahead.extend(names_from_last(&target));
        }
        Ok(place)
    }
}

/// The names of a path, the last one first; the root is one of them.
fn names_from_last(path: &Path) -> impl Iterator<Item = OsString> {
    let names = path.components().rev();
    let names = names.filter(|name| *name != Component::CurDir);
    names.map(|name| name.as_os_str().to_owned())
}
