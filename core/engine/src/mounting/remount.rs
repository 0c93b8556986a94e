//! Remounting: what changes of names and properties do to mounts.
//!
//! # Mechanism
//! The mount point of a file system follows from its own `mountpoint`, or from that of the ancestor
//! it inherits from. A change of that property, or of a name, moves all file systems that follow.
//! They are unmounted before the change is made, so that a busy one prevents it, and mounted at
//! their new mount points afterwards.
//!
//! A moved file system may stay in use elsewhere, as a bind mount or in another mount namespace: it
//! goes on there. A file system that is destroyed, or read anew from the pool (rollback, receive),
//! may not: its mounts end everywhere, or it is busy.
//!
//! Other properties reach mounts at once: the file system gets its new properties, and the kernel
//! the mount options that it enforces.

use super::mount::{Asked, Beneficiary};
use super::mount_values::Values;
use super::mountpoint::{self, MountPoint};
use super::unmount::{POOL_BUSY, cannot_unmount, still_in_use};
use super::{cannot_open, is_filesystem};
use crate::engine::{Engine, OpenPool};
use crate::files::{HoldPurpose, Tree};
use crate::mount_options::TemporaryOptions;
use crate::mounts::{Ending, MountOptions, MountRefusal, Mounted, MountedBefore, Standing};
use crate::refusals::{Refusal, RefusalKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::look_through::Look;
use tarn_dataset::properties::inherit::Place;
use tarn_dataset::properties::native::ShownSource;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// A file system whose mount point follows from a change.
#[derive(Debug, Clone)]
pub struct Follower {
    /// Its name.
    pub name: String,
    /// The dataset itself.
    head: ObjectId,
    /// Where its mount point is set.
    source: ShownSource,
}

impl Follower {
    /// The same, after it or an ancestor was renamed.
    pub fn renamed(&self, from: &str, to: &str) -> Follower {
        let rest = self.name.strip_prefix(from).unwrap_or_default();
        Follower {
            name: format!("{to}{rest}"),
            ..self.clone()
        }
    }

    /// Whether its mount point changes when this dataset, itself or an ancestor, is renamed: it
    /// does unless the mount point is set on the renamed dataset or on one below that.
    pub fn moves_with(&self, renamed: &str) -> bool {
        match &self.source {
            ShownSource::Default => true,
            ShownSource::Set(Place::Inherited(above)) => {
                let rest = above.strip_prefix(renamed);
                !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            _ => false,
        }
    }

    /// Whether its folder's name follows from the dataset's, so that the daemon makes and removes
    /// it.
    fn owns_folder(&self) -> bool {
        matches!(
            self.source,
            ShownSource::Default | ShownSource::Set(Place::Inherited(_))
        )
    }
}

/// The file systems that were unmounted for a change.
pub struct Unmounted {
    mounts: Vec<(Follower, MountedBefore)>,
}

/// A head, and its mount before the change.
pub type TakenOff = (ObjectId, MountedBefore);

impl Unmounted {
    /// An empty list.
    pub fn nothing() -> Unmounted {
        Unmounted { mounts: Vec::new() }
    }

    /// The heads by object, whatever their names are now.
    pub fn heads(&self) -> Vec<TakenOff> {
        let head = |(one, before): &(Follower, MountedBefore)| (one.head, before.clone());
        self.mounts.iter().map(head).collect()
    }
}

/// Which mounts end for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Those in this namespace: the file systems move.
    Here,
    /// All in all namespaces; one in use elsewhere is busy.
    Everywhere,
    /// All in all namespaces, also those in use.
    ByForce,
}

impl Extent {
    /// The extent for destroying, or reading anew from the pool.
    pub fn wholly(by_force: bool) -> Extent {
        match by_force {
            true => Extent::ByForce,
            false => Extent::Everywhere,
        }
    }

    /// The extent for moving.
    pub fn move_away(by_force: bool) -> Extent {
        match by_force {
            true => Extent::ByForce,
            false => Extent::Here,
        }
    }

    fn ending(self) -> Ending {
        match self {
            Extent::Here | Extent::Everywhere => Ending::Own,
            Extent::ByForce => Ending::Everywhere,
        }
    }
}

/// Which file systems are mounted after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// Those that were mounted before.
    WhatWas,
    /// The same; increments may follow, so mounting changes nothing of them.
    WhatWasUntouched,
    /// Those that were mounted, and all that `zfs mount -a` mounts.
    AllThatMay,
}

impl Engine {
    /// Unmounts these, the deepest first, or none of them. The intent logs are closed, also of
    /// those whose mounts the kernel has ended.
    pub fn take_off(
        &self,
        whom: Beneficiary,
        open: &Arc<OpenPool>,
        followers: &[Follower],
        extent: Extent,
        operation: &Operation,
    ) -> Result<Unmounted, Refusal> {
        open.look_for_mounts();
        let (mut going, mut taken) = (Vec::new(), Vec::new());
        for one in followers {
            let Some(served) = open.served(&one.name) else {
                continue;
            };
            match self.mounter.standing(served.key, &served.place) {
                Standing::Mounted => {
                    let mut before = served.before();
                    // A moved file system goes to its mount point, also if mount(8) mounted it.
                    before.is_by_hand &= extent != Extent::Here;
                    taken.push((one.clone(), before));
                }
                Standing::Elsewhere if extent == Extent::Here => continue,
                Standing::Elsewhere if extent == Extent::Everywhere => {
                    return Err(in_use_elsewhere(&one.name, &served));
                }
                Standing::Elsewhere | Standing::Ended => {}
            }
            going.push((one.name.clone(), served));
        }
        if extent != Extent::Here {
            refuse_exported(open, followers)?;
            self.close_left_volumes(open)?;
        }
        for (_, served) in &going {
            self.interrupt_share(served);
        }
        let unmounted = self.unmount_these(open, going, extent.ending());
        let unmounted = unmounted.and_then(|in_use| match in_use.first() {
            Some((name, served)) if extent != Extent::Here => Err(in_use_elsewhere(name, served)),
            _ => Ok(()),
        });
        let heads = followers.iter().map(|one| (one.name.as_str(), one.head));
        let unmounted = unmounted.and_then(|()| self.end_left_logs(open, heads));
        let mounts = Unmounted { mounts: taken };
        match unmounted {
            Ok(()) => Ok(mounts),
            Err(refusal) => {
                drop(self.put_back(whom, open, followers, &mounts, Back::WhatWas, operation));
                Err(refusal)
            }
        }
    }

    /// Mounts file systems at their present mount points, the highest first, and removes folders of
    /// mounts that moved. Returns the first refusal; the others are mounted.
    pub fn put_back(
        &self,
        whom: Beneficiary,
        open: &Arc<OpenPool>,
        followers: &[Follower],
        unmounted: &Unmounted,
        back: Back,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let view = open.pool.namespace().view(operation);
        let was = unmounted.mounts.iter();
        let was: BTreeMap<ObjectId, &MountedBefore> =
            was.map(|(one, before)| (one.head, before)).collect();
        let mut places: Vec<(PathBuf, String, Option<&MountedBefore>)> = Vec::new();
        for follower in followers {
            let before = was.get(&follower.head).copied();
            if before.is_none() && back != Back::AllThatMay {
                continue;
            }
            // A destroyed file system is not mounted, nor another that has its name by now.
            let head = view
                .directory(&follower.name)
                .and_then(|found| found.head());
            let Some(head) = head
                .ok()
                .flatten()
                .filter(|head| head.id() == follower.head)
            else {
                continue;
            };
            let point = mountpoint::of_dataset(&head, open.altroot.as_deref());
            match (point, before) {
                (_, Some(before)) if before.is_by_hand => {
                    places.push((before.path.clone(), follower.name.clone(), Some(before)));
                }
                (Ok((MountPoint::Path(path), _)), before) => {
                    places.push((path, follower.name.clone(), before));
                }
                _ => {}
            }
        }
        self.remove_folders(unmounted, &places);
        places.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let mut first = Ok(());
        for (_, name, before) in places {
            // Its own mount was undone, though a bind mount of its root still shows it.
            if before.is_some() || open.mount_of(&name).is_none() {
                let asked = match (before, back) {
                    (Some(_), Back::WhatWasUntouched) => Asked::Untouched,
                    (Some(_), _) => Asked::Again,
                    (None, _) => Asked::WithAll,
                };
                let mounted = self.mount_follower(whom, open, &name, asked, before, operation);
                first = first.and(mounted.map(|_| ()));
            }
        }
        first
    }

    /// Removes the folders of mounts that moved or are gone. A folder that is not empty stays, and
    /// so does one to which a symbolic link at the mount point leads: the link would lead nowhere.
    fn remove_folders<T>(&self, unmounted: &Unmounted, places: &[(PathBuf, String, T)]) {
        let taken: BTreeSet<&PathBuf> = places.iter().map(|(path, ..)| path).collect();
        let mut left: Vec<&PathBuf> = unmounted
            .mounts
            .iter()
            .filter(|(one, before)| {
                one.owns_folder()
                    && !taken.contains(&before.path)
                    && !self.host.is_link(&before.path)
            })
            .map(|(_, before)| &before.place)
            .collect();
        left.sort();
        for place in left.into_iter().rev() {
            if self.host.leads_to(place).as_ref() == Some(place) {
                drop(self.host.remove_directory(place));
            }
        }
    }

    /// Properties of these datasets may have changed: their mounts get the new ones.
    pub fn refresh_mounts(
        &self,
        whom: Beneficiary,
        open: &Arc<OpenPool>,
        name: &str,
        property: &str,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let mounts: Vec<(String, Mounted)> = {
            let mut table = open.mounts.lock();
            // A property that is set overrides the mount's option again.
            table.change(name, |mounted| mounted.temporary.forget(property));
            if whom == Beneficiary::User {
                for (dataset, _) in table.at_and_below(name) {
                    table.change(&dataset, |mounted| {
                        mounted.temporary.keep_harmless(property, mounted.options);
                    });
                }
            }
            table.at_and_below(name)
        };
        self.refresh_all(open, mounts, operation)
            .and(self.refresh_exported(open, name, operation))
            .and(self.refresh_volumes(open, name, operation))
    }

    /// A dataset was moved in the tree of names, or received other properties: the inherited
    /// properties of it and those below may have changed.
    pub fn refresh_below(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let mounts = open.mounts.lock().at_and_below(name);
        self.refresh_all(open, mounts, operation)
            .and(self.refresh_exported(open, name, operation))
            .and(self.refresh_volumes(open, name, operation))
            .and(self.refresh_shares(open, name, operation))
    }

    /// Sets the properties of file systems, at and below a dataset, that are served and not
    /// mounted.
    fn refresh_exported(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let below = format!("{name}/");
        for tree in open.served_files.held_for(HoldPurpose::Export) {
            let concerned = tree
                .name()
                .filter(|dataset| dataset == name || dataset.starts_with(&below));
            let Some(dataset) = concerned else { continue };
            if open.served(&dataset).is_some() {
                continue;
            }
            let view = open.pool.namespace().view(operation);
            let values = view
                .dataset_without_name(tree.id())
                .and_then(|head| Values::read(&head));
            let values = values.map_err(|error| cannot_open(&dataset, &error))?;
            tree.set_properties(values.mount_properties(&TemporaryOptions::default()));
        }
        Ok(())
    }

    /// Sets the properties of these mounts. Returns the first refusal; the others have the new
    /// properties.
    fn refresh_all(
        &self,
        open: &Arc<OpenPool>,
        mounts: Vec<(String, Mounted)>,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let mut first = Ok(());
        for (dataset, mounted) in mounts {
            first = first.and(self.refresh_one(open, &dataset, &mounted, operation));
        }
        first
    }

    fn refresh_one(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        mounted: &Mounted,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let view = open.pool.namespace().view(operation);
        let head = view.directory(name).and_then(|found| found.head());
        let head = head.map_err(|error| cannot_open(name, &error))?;
        let Some(head) = head.filter(|head| head.id() == mounted.held.tree().id()) else {
            return Ok(());
        };
        let values = Values::read(&head).map_err(|error| cannot_open(name, &error))?;
        let unable = |refusal: MountRefusal| {
            let action = format!("cannot remount '{name}'");
            Refusal::new(RefusalKind::Busy, action, refusal.to_string())
        };
        let old = *mounted.held.files().properties();
        let new = values.mount_properties(&mounted.temporary);
        let written = match new.is_read_only && !old.is_read_only {
            // After the remount to read-only, dirty pages could not be written any more.
            true => self.mounter.write_back(mounted.key).map_err(unable),
            false => Ok(()),
        };
        mounted.held.tree().set_properties(new);
        if (old.acl_type, old.snapshot_directory) != (new.acl_type, new.snapshot_directory) {
            self.mounter.properties_changed(mounted.key);
        }
        let options = values.mount_options(&mounted.temporary);
        let effective = self.change_options(mounted, options).map_err(unable)?;
        open.mounts
            .lock()
            .change(name, |mounted| mounted.options = effective);
        written
    }

    /// Sets the options of a mount, and returns those that it has then. While files are open for
    /// writing the kernel does not make it read-only; the file system itself refuses their writes.
    fn change_options(
        &self,
        mounted: &Mounted,
        options: MountOptions,
    ) -> Result<MountOptions, MountRefusal> {
        let change = |options: MountOptions| match options == mounted.options {
            true => Ok(options),
            false => {
                let (mounter, key) = (&self.mounter, mounted.key);
                mounter
                    .change_options(key, &mounted.place, options)
                    .map(|()| options)
            }
        };
        match change(options) {
            Err(MountRefusal::Busy) if options.read_only => {
                let writable = MountOptions {
                    read_only: mounted.options.read_only,
                    ..options
                };
                change(writable)
            }
            changed => changed,
        }
    }
}

/// The file systems whose mount points follow from that of this dataset: itself, and those below it
/// except below another that sets its own.
pub fn followers(
    open: &OpenPool,
    name: &str,
    operation: &Operation,
) -> Result<Vec<Follower>, DatasetError> {
    gathered(open, name, operation, |source| {
        !matches!(source, ShownSource::Set(Place::Local | Place::Received))
    })
}

/// All file systems at and below this dataset.
pub fn all_below(
    open: &OpenPool,
    name: &str,
    operation: &Operation,
) -> Result<Vec<Follower>, DatasetError> {
    gathered(open, name, operation, |_| true)
}

fn gathered(
    open: &OpenPool,
    name: &str,
    operation: &Operation,
    follows: impl Fn(&ShownSource) -> bool,
) -> Result<Vec<Follower>, DatasetError> {
    let namespace = open.pool.namespace();
    namespace.look_through(name, None, operation, |directory| {
        let follower = follower(directory)?;
        let follower = follower.filter(|found| directory.name() == name || follows(&found.source));
        Ok(Look {
            goes_on: follower.is_some(),
            found: follower.into_iter().collect(),
        })
    })
}

/// A directory's file system. A volume is none, and has nothing below it.
fn follower(directory: &Directory<'_>) -> Result<Option<Follower>, DatasetError> {
    let Some(head) = directory.head()? else {
        return Ok(None);
    };
    if !is_filesystem(&head)? {
        return Ok(None);
    }
    let (_, source) = mountpoint::of_dataset(&head, None)?;
    Ok(Some(Follower {
        name: directory.name().to_string(),
        head: head.id(),
        source,
    }))
}

/// These file systems, and those mounted somewhere below them: a file system is unmounted only
/// after those mounted on it.
pub fn with_those_on_them(
    open: &OpenPool,
    mut followers: Vec<Follower>,
    operation: &Operation,
) -> Result<Vec<Follower>, DatasetError> {
    open.look_for_mounts();
    let mut mounted = open.all_served();
    mounted.retain(|(_, served)| open.is_mounted(served));
    let names: BTreeSet<&str> = followers.iter().map(|one| one.name.as_str()).collect();
    let is_going = |name: &String| names.contains(name.as_str());
    let going = mounted.iter().filter(|(name, _)| is_going(name));
    let below: BTreeSet<&Path> = going.map(|(_, mounted)| mounted.place.as_path()).collect();
    let is_on = |mounted: &Mounted| {
        let mut above = mounted.place.ancestors();
        above.any(|place| below.contains(place))
    };
    let on_them = mounted.iter();
    let on_them = on_them.filter(|(name, mounted)| !is_going(name) && is_on(mounted));
    let on_them: Vec<String> = on_them.map(|(name, _)| name.clone()).collect();
    followers.extend(named(open, &on_them, operation)?);
    Ok(followers)
}

/// The refusal of a command on a file system that is in use elsewhere.
pub fn in_use_elsewhere(name: &str, served: &Mounted) -> Refusal {
    let refusal = Refusal::new(RefusalKind::Busy, cannot_unmount(served), POOL_BUSY);
    refusal.with_hint(still_in_use(name))
}

/// Refuses to destroy these file systems, or to read them anew, while front ends that do not mount
/// hold them. Such holds do not end by force.
fn refuse_exported(open: &OpenPool, followers: &[Follower]) -> Result<(), Refusal> {
    let is_exported = |one: &&Follower| {
        let purposes = open.served_files.purposes(one.head);
        purposes.contains(&HoldPurpose::Export)
    };
    match followers.iter().find(is_exported) {
        None => Ok(()),
        Some(one) => {
            let action = format!("cannot unmount '{}'", one.name);
            let refusal = Refusal::new(RefusalKind::Busy, action, POOL_BUSY);
            Err(refusal.with_hint(format!("'{}' is exported", one.name)))
        }
    }
}

/// The file systems of these names.
pub fn named(
    open: &OpenPool,
    names: &[String],
    operation: &Operation,
) -> Result<Vec<Follower>, DatasetError> {
    let view = open.pool.namespace().view(operation);
    let mut found = Vec::new();
    for name in names {
        found.extend(follower(&view.directory(name)?)?);
    }
    Ok(found)
}
