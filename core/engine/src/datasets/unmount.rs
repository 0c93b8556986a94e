//! `zfs unmount`: file systems with all that is mounted below them, the deepest first.

use super::mountpoint::{self, MountPoint};
use super::{cannot_open, describe::bad_name};
use crate::administration::Call;
use crate::engine::{Engine, OpenPool};
use crate::files::Tree;
use crate::messages::dataset::Unmount;
use crate::messages::{Done, Refusal, RefusalKind};
use crate::mounts::{MountRefusal, Mounted};
use crate::refusals::of_task;
use crate::turns::is_stuck;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tarn_dataset::names::DatasetName;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;
use tarn_zil::LogClosing;

impl Engine {
    pub(crate) fn unmount(
        &self,
        call: &Call,
        request: &Unmount,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        self.permit_unmount(call, request.name.as_deref())?;
        match request.name.as_deref() {
            None => {
                for open in self.pools() {
                    let _turn = self.turn(&open)?;
                    self.unmount_pool(&open, request.force)?;
                }
            }
            Some(path) if path.starts_with('/') => self.unmount_path(path, request.force)?,
            Some(name) => self.unmount_named(name, request.force, operation)?,
        }
        Ok(Done {})
    }

    fn unmount_path(&self, path: &str, force: bool) -> Result<(), Refusal> {
        let action = || format!("cannot unmount '{path}'");
        let resolved = self.host.resolve(Path::new(path));
        match self.mount_above(Path::new(path)) {
            Some((open, dataset, point)) if point == resolved => {
                let _turn = self.turn(&open)?;
                self.unmount_tree(&open, &dataset, force)
            }
            Some(_) => Err(Refusal::new(
                RefusalKind::Invalid,
                action(),
                "not a mountpoint",
            )),
            None => {
                let reason = "not a ZFS filesystem";
                Err(Refusal::new(RefusalKind::NotFound, action(), reason))
            }
        }
    }

    fn unmount_named(&self, name: &str, force: bool, operation: &Operation) -> Result<(), Refusal> {
        DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
        let open = self.require_pool_of(name)?;
        let _turn = self.turn(&open)?;
        let view = open.pool.namespace().view(operation);
        let head = view.directory(name).and_then(|directory| directory.head());
        let head = head.map_err(|error| cannot_open(name, &error))?;
        let action = format!("cannot unmount '{name}'");
        if let Some(head) = &head {
            let point = mountpoint::of_dataset(head, open.altroot.as_deref());
            let (point, _) = point.map_err(|error| cannot_open(name, &error))?;
            if point == MountPoint::Legacy {
                let refusal = Refusal::new(RefusalKind::Invalid, action, "legacy mountpoint");
                return Err(refusal.with_hint("use umount(8) to unmount this filesystem"));
            }
        }
        if open.mount_of(name).is_none() {
            let reason = "not currently mounted";
            return Err(Refusal::new(RefusalKind::Invalid, action, reason));
        }
        self.unmount_tree(&open, name, force)
    }

    /// Unmounts everything of a pool.
    pub(crate) fn unmount_pool(&self, open: &Arc<OpenPool>, force: bool) -> Result<(), Refusal> {
        self.unmount_these(open, mounts_of(open), force)
    }

    /// Unmounts everything of a pool that is about to be closed whatever becomes of its mounts.
    /// What is in use is let go, and the first of it told. One that cannot be unmounted in order
    /// takes nothing from the others, but where the pool does not answer: then none is waited for
    /// any more.
    pub(crate) fn unmount_pool_or_abandon(&self, open: &Arc<OpenPool>) -> Result<(), Refusal> {
        let mut left = mounts_of(open);
        if open.pool.failure().is_some() {
            self.abandon_mounts(open, &left);
            return Ok(());
        }
        let (mut first, mut gone) = (Ok(()), Vec::new());
        left.reverse();
        while let Some((name, mounted)) = left.pop() {
            match self.unmount_one(open, &name, &mounted, true) {
                Ok(()) => gone.push(mounted),
                Err(refusal) => {
                    let mut lost = vec![(name, mounted)];
                    if is_stuck(&open.pool) {
                        left.reverse();
                        lost.append(&mut left);
                    }
                    self.abandon_mounts(open, &lost);
                    first = first.and(Err(refusal));
                }
            }
        }
        let stored = self.store_unmounted(open, &gone.iter().collect::<Vec<_>>());
        first.and(stored)
    }

    /// Unmounts a dataset and everything that is below it in the tree of names.
    pub(crate) fn unmount_tree(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        force: bool,
    ) -> Result<(), Refusal> {
        let prefix = format!("{name}/");
        let below: Vec<(String, Mounted)> = open
            .mounts
            .lock()
            .iter()
            .filter(|(dataset, _)| *dataset == name || dataset.starts_with(&prefix))
            .map(|(name, mounted)| (name.clone(), mounted.clone()))
            .collect();
        self.unmount_these(open, below, force)
    }

    /// Unmounts these, the deepest paths first. The first that is in use ends it. What was written is stored before they are gone.
    pub(super) fn unmount_these(
        &self,
        open: &Arc<OpenPool>,
        mut mounts: Vec<(String, Mounted)>,
        force: bool,
    ) -> Result<(), Refusal> {
        mounts.sort_by(|(_, one), (_, other)| other.place.cmp(&one.place));
        if force && open.pool.failure().is_some() {
            self.abandon_mounts(open, &mounts);
            return Ok(());
        }
        let mut outcome = Ok(());
        let mut gone = Vec::new();
        for (name, mounted) in &mounts {
            outcome = self.unmount_one(open, name, mounted, force);
            if outcome.is_err() {
                break;
            }
            gone.push(mounted);
        }
        let stored = self.store_unmounted(open, &gone);
        outcome.and(stored)
    }

    /// Unmounts what belongs to a pool that nobody waits for. What it could not store was told to those who waited for it.
    fn abandon_mounts(&self, open: &Arc<OpenPool>, mounts: &[(String, Mounted)]) {
        let keys = mounts.iter();
        let keys: Vec<_> = keys
            .map(|(_, mounted)| (mounted.key, mounted.place.as_path()))
            .collect();
        self.mounter.abandon(&keys);
        for (name, mounted) in mounts {
            open.mounts.lock().remove(name);
            open.pool.namespace().forget_log(mounted.tree.head());
        }
    }

    /// Unmounts one.
    fn unmount_one(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        mounted: &Mounted,
        force: bool,
    ) -> Result<(), Refusal> {
        let undone = self.mounter.unmount(mounted.key, &mounted.place, force);
        undone.map_err(|refusal| match refusal {
            MountRefusal::Busy => {
                let reason = "pool or dataset is busy";
                Refusal::new(RefusalKind::Busy, cannot_unmount(mounted), reason)
            }
            MountRefusal::Failed(why) => {
                Refusal::new(RefusalKind::Busy, cannot_unmount(mounted), why)
            }
        })?;
        open.mounts.lock().remove(name);
        Ok(())
    }

    /// Stores what was changed in file systems that are not mounted any more, all in one group, and leaves no intent log of them.
    fn store_unmounted(&self, open: &Arc<OpenPool>, gone: &[&Mounted]) -> Result<(), Refusal> {
        let stored = self.store_last_changes(open, gone);
        for mounted in gone {
            open.pool.namespace().forget_log(mounted.tree.head());
        }
        stored
    }

    /// Leaves no intent log of those of these heads whose mounts the system has ended: it asked nobody, and their logs stayed open. Calls that are still
    /// served there would go on with the chain of a file system that is gone, and nobody would free that.
    pub(super) fn end_left_logs<'n>(
        &self,
        open: &OpenPool,
        heads: impl Iterator<Item = (&'n str, ObjectId)>,
    ) -> Result<(), Refusal> {
        if open.pool.failure().is_some() {
            // Nothing is stored any more: what logs have is replayed.
            return Ok(());
        }
        let mounted: BTreeSet<ObjectId> = {
            let mounts = open.mounts.lock();
            mounts.values().map(|mounted| mounted.tree.head()).collect()
        };
        let (operation, namespace) = (self.operation(0), open.pool.namespace());
        let action = |name: &str| format!("cannot close the intent log of '{name}'");
        let (mut closed, mut last) = (Vec::new(), None);
        for (name, head) in heads.filter(|(_, head)| !mounted.contains(head)) {
            let closing = namespace.close_log(head, &operation).map_err(|error| {
                Refusal::new(RefusalKind::Device, action(name), error.to_string())
            })?;
            if closing == LogClosing::WithGroup {
                last = Some(name);
            }
            closed.push(head);
        }
        if let Some(name) = last {
            let stored = open.pool.sync_all(&operation);
            stored.map_err(|error| of_task(action(name), &error))?;
        }
        for head in closed {
            namespace.forget_log(head);
        }
        Ok(())
    }

    fn store_last_changes(&self, open: &Arc<OpenPool>, gone: &[&Mounted]) -> Result<(), Refusal> {
        let operation = self.operation(0);
        let failed = |mounted: &Mounted, why: String| {
            Refusal::new(RefusalKind::Device, cannot_unmount(mounted), why)
        };
        let mut last_changed = None;
        for mounted in gone.iter().copied() {
            if !mounted.tree.files().properties().is_read_only {
                let stored = mounted.tree.files().store_access_times(&operation);
                stored.map_err(|error| failed(mounted, error.to_string()))?;
                last_changed = Some(mounted);
            }
            let closed = open
                .pool
                .namespace()
                .close_log(mounted.tree.head(), &operation);
            if closed.map_err(|error| failed(mounted, error.to_string()))? == LogClosing::WithGroup
            {
                last_changed = Some(mounted);
            }
        }
        let Some(mounted) = last_changed else {
            return Ok(());
        };
        let stored = open.pool.sync_all(&operation);
        stored.map_err(|error| of_task(cannot_unmount(mounted), &error))
    }
}

/// All mounts of a pool, the deepest paths first.
fn mounts_of(open: &OpenPool) -> Vec<(String, Mounted)> {
    let table = open.mounts.lock();
    let own = |(name, mounted): (&String, &Mounted)| (name.clone(), mounted.clone());
    let mut all: Vec<(String, Mounted)> = table.iter().map(own).collect();
    all.sort_by(|(_, one), (_, other)| other.place.cmp(&one.place));
    all
}

fn cannot_unmount(mounted: &Mounted) -> String {
    format!("cannot unmount '{}'", mounted.path.display())
}
