//! `zfs unmount`: unmounts file systems with those mounted below them, the deepest first.

use super::mount_values::{CanMount, Values};
use super::mountpoint::{self, MountPoint};
use super::{bad_name, cannot_open, missing_path, mount_order};
use crate::engine::{Engine, OpenPool};
use crate::files::{HoldPurpose, Tree};
use crate::mounting::requests::{Unmount, Unmounted};
use crate::mounts::{Ending, Found, Left, MountRefusal, Mounted, Standing};
use crate::refusals::{Refusal, RefusalKind, of_task};
use crate::turns::is_stuck;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_dataset::contents;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;
use tarn_zil::LogClosing;

impl Engine {
    /// Unmounts one file system with what is mounted below it, or all.
    ///
    /// # Errors
    /// Why the one that was named stays mounted.
    pub fn unmount(&self, request: &Unmount, operation: &Operation) -> Result<Unmounted, Refusal> {
        let mut reply = Unmounted::default();
        match request.name.as_deref() {
            None => reply.refused = self.unmount_automatic(request.force, operation)?,
            Some(path) if path.starts_with('/') => {
                self.unmount_path(path, request.force, operation)?;
            }
            Some(name) => self.unmount_named(name, request.force, operation)?,
        }
        Ok(reply)
    }

    #[doc(alias = "unshare_unmount_path")]
    fn unmount_path(&self, path: &str, force: bool, operation: &Operation) -> Result<(), Refusal> {
        let refuse = |kind, reason: &str| {
            let action = format!("cannot unmount '{path}'");
            Err(Refusal::new(kind, action, reason))
        };
        let (key, place) = match self.mounter.find(Path::new(path)) {
            Found::Mount(key, place) => (key, place),
            Found::Foreign => return refuse(RefusalKind::NotFound, "not a ZFS filesystem"),
            Found::Missing(why) => return Err(missing_path(path, why)),
        };
        let Some((open, dataset)) = self.served_by(key) else {
            return refuse(RefusalKind::NotFound, "not a ZFS filesystem");
        };
        if place.as_ref() != Some(&self.host.resolve(Path::new(path))) {
            return refuse(RefusalKind::Invalid, "not a mountpoint");
        }
        let _turn = self.turn(&open)?;
        open.look_for_mounts();
        let own = open.mount_of(&dataset).map(|mounted| mounted.place);
        if own != place {
            return refuse(RefusalKind::Invalid, "not an original mountpoint");
        }
        refuse_legacy(&open, &dataset, operation)?;
        self.unmount_tree(&open, &dataset, force)
    }

    fn unmount_named(&self, name: &str, force: bool, operation: &Operation) -> Result<(), Refusal> {
        DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
        let open = self.require_pool_of(name)?;
        let _turn = self.turn(&open)?;
        refuse_legacy(&open, name, operation)?;
        // Force also ends mounts that are only in use elsewhere.
        let is_there = match force {
            true => open.served(name).is_some(),
            false => open.mount_of(name).is_some(),
        };
        if !is_there {
            let (action, reason) = (format!("cannot unmount '{name}'"), "not currently mounted");
            return Err(Refusal::new(RefusalKind::Invalid, action, reason));
        }
        self.unmount_tree(&open, name, force)
    }

    /// Unmounts everything that `zfs mount -a` mounts, the deepest paths first, over all pools: a
    /// file system of one pool may be mounted on one of another. A busy one leaves the others to be
    /// unmounted. Returns the refusals.
    fn unmount_automatic(
        &self,
        force: bool,
        operation: &Operation,
    ) -> Result<Vec<Refusal>, Refusal> {
        let pools = self.pools();
        let turns = pools.iter().map(|open| self.turn(open));
        let _turns = turns.collect::<Result<Vec<_>, Refusal>>()?;
        let mut all = Vec::new();
        for open in &pools {
            open.look_for_mounts();
            let mounts = automatic_mounts(open, operation).into_iter();
            all.extend(mounts.map(|mount| (open, mount)));
        }
        all.sort_by(|(_, (_, one)), (_, (_, other))| other.place.cmp(&one.place));
        let mut refused = Vec::new();
        // Neighbours of the same pool are stored in one txg.
        for together in all.chunk_by(|(one, _), (other, _)| Arc::ptr_eq(one, other)) {
            let (open, mounts) = (together[0].0, together.iter());
            let mounts = mounts.map(|(_, mount)| mount.clone()).collect();
            let (mounts, ending) = self.to_unmount(open, mounts, force);
            refused.extend(
                self.unmount_each(open, mounts, ending, AfterRefusal::GoOn)
                    .1,
            );
        }
        Ok(refused)
    }

    /// Unmounts all of a pool that is about to be closed. A pool with mounts in use is busy for
    /// `action`.
    pub fn unmount_pool(
        &self,
        open: &Arc<OpenPool>,
        force: bool,
        action: impl FnOnce() -> String,
    ) -> Result<(), Refusal> {
        let exported = open.served_files.held_for(HoldPurpose::Export);
        if let Some(tree) = exported.first().filter(|_| !force) {
            let refusal = Refusal::new(RefusalKind::Busy, action(), POOL_IS_BUSY);
            let name = tree.name().unwrap_or("a snapshot".to_string());
            return Err(refusal.with_hint(format!("'{name}' is exported")));
        }
        if !force {
            let refuse = |name: &str| {
                let hint = format!("the block device of the volume '{name}' is in use");
                Refusal::new(RefusalKind::Busy, "", POOL_IS_BUSY).with_hint(hint)
            };
            if let Err(refusal) = self.remove_devices(open, |_| true, refuse) {
                return Err(Refusal {
                    action: action(),
                    ..refusal
                });
            }
        }
        if let Some(name) = open.served_volumes.first_name().filter(|_| !force) {
            let refusal = Refusal::new(RefusalKind::Busy, action(), POOL_IS_BUSY);
            return Err(refusal.with_hint(format!("the volume '{name}' is served")));
        }
        open.look_for_mounts();
        let ending = match force {
            true => Ending::Everywhere,
            false => Ending::OfNamespace,
        };
        let in_use = self.unmount_these(open, open.all_served(), ending)?;
        match in_use.first() {
            Some((name, _)) => {
                let refusal = Refusal::new(RefusalKind::Busy, action(), POOL_IS_BUSY);
                Err(refusal.with_hint(still_in_use(name)))
            }
            None => {
                self.end_volumes(open);
                Ok(())
            }
        }
    }

    /// Unmounts all of a pool that is closed in any case. Mounts in use are detached, and the first
    /// one is returned as a refusal. A mount that cannot be unmounted in order does not affect the
    /// others, unless the pool does not answer: then none is waited for any more.
    pub(crate) fn unmount_pool_or_abandon(&self, open: &Arc<OpenPool>) -> Result<(), Refusal> {
        if open.pool.failure().is_none() {
            self.remove_closed_devices(open);
        }
        self.end_volumes(open);
        open.look_for_mounts();
        let mut left = open.all_served();
        left.sort_by(|(_, one), (_, other)| other.place.cmp(&one.place));
        if open.pool.failure().is_some() {
            self.abandon_mounts(open, &left);
            return Ok(());
        }
        left.reverse();
        let (mut first, mut gone) = (Ok(()), Vec::new());
        let is_given_up = AtomicBool::new(false);
        for level in mount_order::levels(left, place_of).into_iter().rev() {
            let unmount = |(name, mounted): (String, Mounted)| {
                if is_given_up.load(Ordering::SeqCst) {
                    return (name, mounted, Err(None));
                }
                let outcome = self.unmount_one(open, &name, &mounted, Ending::Everywhere);
                let is_over = outcome.is_err() && is_stuck(&open.pool);
                is_given_up.fetch_or(is_over, Ordering::SeqCst);
                (name, mounted, outcome.map_err(Some))
            };
            let threads = mount_order::THREADS;
            let mut lost = Vec::new();
            for (name, mounted, outcome) in self.host.map_in_threads(level, threads, unmount) {
                match outcome {
                    Ok(_) => gone.push(mounted),
                    Err(refusal) => {
                        lost.push((name, mounted));
                        first = first.and(refusal.map_or(Ok(()), Err));
                    }
                }
            }
            self.abandon_mounts(open, &lost);
        }
        let stored = self.store_unmounted(open, &gone.iter().collect::<Vec<_>>());
        first.and(stored)
    }

    /// Unmounts a dataset and all datasets below it.
    pub(crate) fn unmount_tree(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        force: bool,
    ) -> Result<(), Refusal> {
        let below = open.mounts.lock().at_and_below(name);
        self.unmount_mounted(open, below, force)
    }

    /// Unmounts those that are mounted. Uses elsewhere go on; force ends them.
    fn unmount_mounted(
        &self,
        open: &Arc<OpenPool>,
        mounts: Vec<(String, Mounted)>,
        force: bool,
    ) -> Result<(), Refusal> {
        let (mounts, ending) = self.to_unmount(open, mounts, force);
        self.unmount_these(open, mounts, ending).map(drop)
    }

    /// Those with mounts to end, and which mounts end.
    fn to_unmount(
        &self,
        open: &Arc<OpenPool>,
        mut mounts: Vec<(String, Mounted)>,
        force: bool,
    ) -> (Vec<(String, Mounted)>, Ending) {
        if force {
            return (mounts, Ending::Everywhere);
        }
        open.look_for_mounts();
        let standing = |served: &Mounted| self.mounter.standing(served.key, &served.place);
        mounts.retain(|(_, served)| standing(served) != Standing::Elsewhere);
        (mounts, Ending::Own)
    }

    /// Unmounts these, the deepest paths first, until the first busy one. Dirty data is stored
    /// before the mounts are gone. Returns those that are still in use elsewhere, and so still
    /// served.
    pub(super) fn unmount_these(
        &self,
        open: &Arc<OpenPool>,
        mounts: Vec<(String, Mounted)>,
        ending: Ending,
    ) -> Result<Vec<(String, Mounted)>, Refusal> {
        let (in_use, refused) = self.unmount_each(open, mounts, ending, AfterRefusal::End);
        refused.into_iter().next().map_or(Ok(in_use), Err)
    }

    /// The same; returns the refusals too.
    fn unmount_each(
        &self,
        open: &Arc<OpenPool>,
        mut mounts: Vec<(String, Mounted)>,
        ending: Ending,
        then: AfterRefusal,
    ) -> (Vec<(String, Mounted)>, Vec<Refusal>) {
        mounts.sort_by(|(_, one), (_, other)| other.place.cmp(&one.place));
        if ending == Ending::Everywhere && open.pool.failure().is_some() {
            self.abandon_mounts(open, &mounts);
            return (Vec::new(), Vec::new());
        }
        let outcomes = self.unmount_levels(open, &mounts, ending, then);
        let (mut gone, mut in_use, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for ((name, mounted), outcome) in mounts.iter().zip(outcomes) {
            match outcome {
                Some(Ok(Left::Nothing)) => gone.push(mounted),
                Some(Ok(Left::InUse)) => in_use.push((name.clone(), mounted.clone())),
                Some(Err(refusal)) => refused.push(refusal),
                None => {}
            }
        }
        refused.extend(self.store_unmounted(open, &gone).err());
        (in_use, refused)
    }

    /// Unmounts these, sorted with the deepest paths first, level by level of the tree of mount
    /// points, lower levels first. Returns the outcome of each; none for mounts left because of a
    /// refusal.
    fn unmount_levels(
        &self,
        open: &Arc<OpenPool>,
        mounts: &[(String, Mounted)],
        ending: Ending,
        then: AfterRefusal,
    ) -> Vec<Option<Result<Left, Refusal>>> {
        let is_refused = AtomicBool::new(false);
        let unmount = |number: usize| {
            if then == AfterRefusal::End && is_refused.load(Ordering::SeqCst) {
                return (number, None);
            }
            let (name, mounted) = &mounts[number];
            let outcome = self.unmount_one(open, name, mounted, ending);
            is_refused.fetch_or(outcome.is_err(), Ordering::SeqCst);
            (number, Some(outcome))
        };
        let unmount_placed = |(number, _): (usize, &Path)| unmount(number);
        let outcomes: Vec<_> = match mounts.len() <= mount_order::FEW {
            true => (0..mounts.len()).map(unmount).collect(),
            false => {
                let placed = mounts.iter().enumerate();
                let placed = placed.map(|(number, (_, one))| (number, one.place.as_path()));
                let levels = mount_order::levels(placed.rev().collect(), |(_, place)| *place);
                let levels = levels.into_iter().rev();
                let threads = mount_order::THREADS;
                levels
                    .flat_map(|level| self.host.map_in_threads(level, threads, unmount_placed))
                    .collect()
            }
        };
        let mut in_order: Vec<_> = mounts.iter().map(|_| None).collect();
        for (number, outcome) in outcomes {
            in_order[number] = outcome;
        }
        in_order
    }

    /// Ends the mounts of a pool that does not answer. Calls that waited for unstored data have
    /// failed already.
    fn abandon_mounts(&self, open: &Arc<OpenPool>, mounts: &[(String, Mounted)]) {
        let keys = mounts.iter();
        let keys: Vec<_> = keys
            .map(|(_, mounted)| (mounted.key, mounted.place.as_path()))
            .collect();
        self.mounter.abandon(&keys);
        for (name, mounted) in mounts {
            open.mounts.lock().remove(name);
            self.abandon_share(open, mounted);
            mounted.held.leave();
            open.pool.namespace().forget_log(mounted.held.tree().id());
        }
    }

    /// Unmounts one file system.
    fn unmount_one(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        mounted: &Mounted,
        ending: Ending,
    ) -> Result<Left, Refusal> {
        let is_shared = open.shared.lock().contains_key(&mounted.held.tree().id());
        self.end_share(open, name, mounted)?;
        let undone = self.mounter.unmount(mounted.key, &mounted.place, ending);
        let left = undone.map_err(|refusal| {
            if is_shared {
                // It stays mounted, and so it is shared. What is against that, a later
                // `zfs share` says.
                let _ = self.share_mounted(open, name, &self.operation(0));
            }
            let reason = match refusal {
                MountRefusal::Busy => POOL_BUSY.to_string(),
                other => other.to_string(),
            };
            Refusal::new(RefusalKind::Busy, cannot_unmount(mounted), reason)
        })?;
        if left == Left::Nothing {
            open.mounts.lock().remove(name);
        }
        Ok(left)
    }

    /// Stores dirty data of unmounted file systems, all in one txg, and closes the intent logs of
    /// those without other holds.
    fn store_unmounted(&self, open: &Arc<OpenPool>, gone: &[&Mounted]) -> Result<(), Refusal> {
        let mut leaving = Vec::with_capacity(gone.len());
        let mut held_on = None;
        for mounted in gone {
            match mounted.held.begin_leaving() {
                Some(closing) => leaving.push((cannot_unmount(mounted), closing)),
                None if !mounted.held.files().properties().is_read_only => {
                    held_on = Some(cannot_unmount(mounted));
                }
                None => {}
            }
        }
        self.close_files(&open.pool, leaving, held_on)
    }

    /// Closes the intent logs of those of these heads that have no holds: umount(8) has ended their
    /// mounts, or a hold was dropped, and their logs stayed open. If one stayed open while its head
    /// is replaced, a late call would extend the chain of a destroyed file system, and its blocks
    /// would leak.
    pub fn end_left_logs<'n>(
        &self,
        open: &OpenPool,
        heads: impl Iterator<Item = (&'n str, ObjectId)>,
    ) -> Result<(), Refusal> {
        if open.pool.failure().is_some() {
            // The pool stores nothing any more: the next import replays the logs.
            return Ok(());
        }
        let (operation, namespace) = (self.operation(0), open.pool.namespace());
        let action = |name: &str| format!("cannot close the intent log of '{name}'");
        let (mut closed, mut last) = (Vec::new(), None);
        for (name, head) in heads.filter(|(_, head)| !open.served_files.is_held(*head)) {
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
}

/// The folder of a mount.
fn place_of(one: &(String, Mounted)) -> &Path {
    &one.1.place
}

/// What happens to the others where one cannot be unmounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterRefusal {
    /// They stay mounted.
    End,
    /// They are unmounted.
    GoOn,
}

/// The mounts of a pool that `zfs mount -a` makes: not those of mount(8), nor those with
/// `canmount=noauto`.
fn automatic_mounts(open: &OpenPool, operation: &Operation) -> Vec<(String, Mounted)> {
    let view = open.pool.namespace().view(operation);
    let altroot = open.altroot.as_deref();
    let is_automatic = |name: &str| -> Result<bool, DatasetError> {
        let Some(head) = view.directory(name)?.head()? else {
            return Ok(true);
        };
        let contents = contents::outline(&head)?;
        let (values, point) = Values::read_with_mount_point(&head, contents, altroot)?;
        Ok(point != MountPoint::Legacy && values.can_mount != CanMount::NoAuto)
    };
    let (host, threads) = (open.pool.host(), mount_order::THREADS);
    let mounts = host.map_in_threads(open.all_served(), threads, |(name, mounted)| {
        // A dataset that cannot be read counts as mounted by `zfs mount -a`.
        let is_automatic = is_automatic(&name).unwrap_or(true);
        is_automatic.then_some((name, mounted))
    });
    mounts.into_iter().flatten().collect()
}

/// OpenZFS's reason for a pool in use.
pub const POOL_IS_BUSY: &str = "pool is busy";

/// Where a file system may still be in use, and how to end that.
pub(super) fn still_in_use(name: &str) -> String {
    format!(
        "'{name}' is in use in another mount namespace, through a bind mount, or by files that were left \
         open; 'zfs unmount -f {name}' ends that"
    )
}

/// OpenZFS's reason for a pool or dataset in use.
pub(super) const POOL_BUSY: &str = "pool or dataset is busy";

pub(super) fn cannot_unmount(mounted: &Mounted) -> String {
    format!("cannot unmount '{}'", mounted.path.display())
}

/// Refuses `zfs unmount` of a `legacy` mount, which is for umount(8).
fn refuse_legacy(open: &OpenPool, name: &str, operation: &Operation) -> Result<(), Refusal> {
    let view = open.pool.namespace().view(operation);
    let head = view.directory(name).and_then(|directory| directory.head());
    let Some(head) = head.map_err(|error| cannot_open(name, &error))? else {
        return Ok(());
    };
    let point = mountpoint::of_dataset(&head, open.altroot.as_deref());
    let (point, _) = point.map_err(|error| cannot_open(name, &error))?;
    match point {
        MountPoint::Legacy => {
            let action = format!("cannot unmount '{name}'");
            let refusal = Refusal::new(RefusalKind::Invalid, action, "legacy mountpoint");
            Err(refusal.with_hint("use umount(8) to unmount this filesystem"))
        }
        MountPoint::Path(_) | MountPoint::None => Ok(()),
    }
}
