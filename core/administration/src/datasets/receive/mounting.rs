//! Mounts received file systems after the last stream.
//!
//! # Problem
//! Mounting may change a file system: it frees files that were unlinked and open when the snapshot
//! was taken, and reading it changes access times. The next increment of the package goes on from
//! the snapshot, and does not fit a changed file system.
//!
//! # Mechanism
//! After the last stream, the package's first file system is mounted with all file systems below it
//! whose mount points follow from its own, as far as they are to be mounted. File systems that were
//! mounted stay mounted meanwhile, except for the moment in which each gets its snapshots, and are
//! remounted so that nothing of them changes. Those that the package moved were unmounted for that,
//! and are mounted again even if a stream failed.

use super::Run;
use crate::datasets::user_mounts::place_of;
use crate::messages::Refusal;
use std::path::PathBuf;
use std::sync::Arc;
use tarn_engine::engine::OpenPool;
use tarn_engine::mounting::mount::Asked;
use tarn_engine::mounting::remount::followers;
use tarn_engine::mounts::MountedBefore;

impl Run<'_> {
    /// Mounts the received file systems. `is_whole` says whether all streams came.
    pub(super) fn mount_received(&mut self, is_whole: bool) {
        let mounts_new = is_whole && self.mounts && !self.request.no_mount;
        let top = self.top.clone().filter(|_| mounts_new);
        if top.is_none() && self.taken_off.is_empty() {
            return;
        }
        let pool = self.request.target.split(['/', '@']).next();
        let Some(open) = pool.and_then(|pool| self.administrator.engine.find_pool(pool)) else {
            return;
        };
        let Ok(_turn) = self.administrator.engine.turn(&open) else {
            return;
        };
        let mut waiting = Vec::new();
        if let Some(top) = top {
            for one in followers(&open, &top, self.operation).unwrap_or_default() {
                self.wait(&open, one.name, None, &mut waiting);
            }
        }
        let view = open.pool.namespace().view(self.operation);
        for (head, before) in std::mem::take(&mut self.taken_off) {
            // It may have been renamed or destroyed.
            if let Ok(head) = view.dataset_by_id(head) {
                self.wait(&open, head.name(), Some(before), &mut waiting);
            }
        }
        // A path comes before the paths below it.
        waiting.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        for (_, name, before) in waiting {
            if open.mount_of(&name).is_some() {
                continue;
            }
            if let Err(refusal) = self.mount_one(&open, &name, before) {
                self.done.warnings.push(refusal.to_string());
            }
        }
    }

    fn wait(
        &self,
        open: &OpenPool,
        name: String,
        before: Option<MountedBefore>,
        waiting: &mut Vec<(PathBuf, String, Option<MountedBefore>)>,
    ) {
        if let Some(path) = place_of(open, &name, self.operation) {
            waiting.push((path, name, before));
        }
    }

    /// Mounts one that was mounted before, or that the caller may mount.
    fn mount_one(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        before: Option<MountedBefore>,
    ) -> Result<(), Refusal> {
        let (administrator, call, operation) = (self.administrator, self.call, self.operation);
        let mounted = match before {
            Some(before) => {
                let asked = Asked::Again;
                administrator.engine.mount_follower(
                    administrator.beneficiary(call),
                    open,
                    name,
                    asked,
                    Some(&before),
                    operation,
                )
            }
            None if administrator.may_mount(call, open, name, operation) => {
                administrator.mount_for(call, open, name, operation)
            }
            None => return Ok(()),
        };
        mounted.map(drop)
    }
}
