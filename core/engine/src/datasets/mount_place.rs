//! Which folder a mount point means.
//!
//! # Problem
//! The daemon mounts as root, and the system follows links to where it mounts. Contents of file systems belong to their users, and come with streams that anybody may have made: a link
//! in them where a folder is expected would put a file system over `/etc`.
//!
//! # Mechanism
//! A mount point is turned into a path without links before anything is made or mounted there, and what is mounted goes into exactly that folder or nowhere: the
//! [`Mounter`](crate::mounts::Mounter) looks again at the folder that it has opened. Links are followed where the machine's administrator has put them, in folders that no mount of
//! ours has:
//! - Above the last name of a mount point all are, as OpenZFS does.
//! - In the place of the last name one is only where nobody but root can put one.
//!
//! In what we have mounted none is followed. What was unmounted for a change is mounted again only where it was, if its mount point is still the same.

use super::mount::cannot_mount;
use crate::engine::Engine;
use crate::messages::{Refusal, RefusalKind};
use crate::mounts::MountedBefore;
use std::path::{Path, PathBuf};

impl Engine {
    /// The folder that a mount point means, which need not be there.
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
        let before = before.filter(|before| before.path == path);
        let place = match (before, self.below_a_mount(path)) {
            (Some(before), _) => before.place.clone(),
            (None, Some(place)) => place,
            (None, None) => self.followed(path).map_err(elsewhere)?,
        };
        match self.host.leads_to(path) {
            Some(found) if found == place => Ok(place),
            found => Err(elsewhere(found)),
        }
    }

    /// Where a path leads that is below a mount of ours, if all on it are folders.
    fn below_a_mount(&self, path: &Path) -> Option<PathBuf> {
        let mut nearest: Option<(usize, PathBuf)> = None;
        for open in self.pools() {
            for mounted in open.mounts.lock().values() {
                for above in [&mounted.path, &mounted.place] {
                    let Ok(rest) = path.strip_prefix(above) else {
                        continue;
                    };
                    let depth = above.components().count();
                    if nearest.as_ref().is_none_or(|(other, _)| depth > *other) {
                        let place = mounted.place.components().chain(rest.components());
                        nearest = Some((depth, place.collect()));
                    }
                }
            }
        }
        nearest.map(|(_, place)| place)
    }

    /// Where a path leads through links that the machine has; where it would lead, if that is not for us to follow.
    fn followed(&self, path: &Path) -> Result<PathBuf, Option<PathBuf>> {
        let (Some(parent), Some(last)) = (path.parent(), path.file_name()) else {
            return Ok(path.to_path_buf());
        };
        let parent = self.host.leads_to(parent).ok_or(None)?;
        let itself = parent.join(last);
        if !self.host.is_link(&itself) {
            return Ok(itself);
        }
        let found = self.host.leads_to(&itself);
        match found {
            Some(found)
                if self.below_a_mount(&itself).is_none() && self.host.is_guarded(&parent) =>
            {
                Ok(found)
            }
            found => Err(found),
        }
    }
}
