//! `zfs mount`: one file system, or all of them, level by level of the tree of mount points
//! ([`mount_order`]).

use super::mount_values::{CanMount, Values};
use super::mountpoint::MountPoint;
use super::share::leave_share;
use super::{cannot_open, mount_order};
use crate::engine::{Engine, OpenPool};
use crate::files::{Held, HoldPurpose, Tree};
use crate::mount_options::{DISCARD_LOG, TemporaryOptions, UnknownOption, Words};
use crate::mounting::requests::{Mount, MountEntry, Mounted as MountedReply};
use crate::mounts::{
    Ending, MountKey, MountRefusal, MountRequest, Mounted, MountedBefore, Standing,
};
use crate::refusals::{Refusal, RefusalKind};
use crate::served::Hold;
use crate::tree::{ServedTree, TreeChoices};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use tarn_dataset::contents::{self, Contents};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::dataset_dir::CRYPTO_KEY;
use tarn_pool::Mode;
use tarn_posix::Unlinked;
use tarn_probe::Operation;

/// A file system to mount.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    name: String,
    point: MountPoint,
    values: Values,
    pub(super) is_received_half: bool,
    /// It is being sent as it is now (`zfs send` of an unmounted head).
    pub(super) is_in_use: bool,
    /// Its key is not loaded.
    pub(super) is_encrypted: bool,
}

impl Candidate {
    /// Its mount point; nothing where it has none.
    fn folder(&self) -> &Path {
        match &self.point {
            MountPoint::Path(path) => path,
            MountPoint::Legacy | MountPoint::None => Path::new(""),
        }
    }

    /// Whether `zfs mount -a` mounts it.
    fn is_automatic(&self) -> bool {
        self.values.can_mount == CanMount::On
    }
}

/// The path of a candidate that is sorted by it.
fn path_of(one: &(usize, (PathBuf, Candidate))) -> &Path {
    &one.1.0
}

/// Why a file system is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// By its name: a reason against it is returned.
    ByName,
    /// With others: file systems that are not to be mounted are skipped.
    WithAll,
    /// It was mounted before: as with others, but `canmount=noauto` does not matter.
    Again,
    /// The same, and increments may follow, so mounting must not change it.
    Untouched,
}

/// Whether a file system is mounted as a user or as administrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beneficiary {
    /// A privileged caller.
    Administrator,
    /// A user without privilege: no set-id programs, no devices.
    User,
}

/// The manner of a mount.
#[derive(Debug, Clone, Copy)]
struct How<'a> {
    asked: Asked,
    whom: Beneficiary,
    /// Options that override its properties.
    temporary: TemporaryOptions,
    /// The folder need not be empty.
    over_contents: bool,
    /// mount(8) names this folder, which is not the mount point.
    by_hand: Option<&'a Path>,
    /// The earlier mount that was undone for a change.
    before: Option<&'a MountedBefore>,
}

impl How<'_> {
    /// Among the others that `zfs mount -a` mounts.
    fn with_all(temporary: TemporaryOptions) -> How<'static> {
        How {
            asked: Asked::WithAll,
            whom: Beneficiary::Administrator,
            temporary,
            over_contents: false,
            by_hand: None,
            before: None,
        }
    }
}

impl Engine {
    /// Mounts one file system, or all of them.
    ///
    /// # Errors
    /// Why the named file system was not mounted.
    pub fn mount(&self, request: &Mount, operation: &Operation) -> Result<MountedReply, Refusal> {
        let Some(name) = &request.name else {
            let mut all = MountedReply::default();
            for open in self.pools() {
                let turn = self.turn(&open);
                let mounted = match &turn {
                    Ok(_) => self.mount_pool(&open, &request.options, operation),
                    Err(refusal) => MountedReply {
                        refused: vec![refusal.clone()],
                        ..MountedReply::default()
                    },
                };
                all.mounts.extend(mounted.mounts);
                all.refused.extend(mounted.refused);
            }
            return Ok(all);
        };
        let open = self.require_pool_of(name)?;
        let _turn = self.turn(&open)?;
        let words = Words::parse(&request.options).map_err(|_| unknown_option(name))?;
        let how = How {
            over_contents: request.overlay,
            by_hand: request.place.as_deref().map(Path::new),
            ..How::with_all(words.temporary)
        };
        if let (Some(place), Some(number)) = (&how.by_hand, request.place_mount)
            && self
                .mounter
                .mount_number(place)
                .is_some_and(|found| found != number)
        {
            let reason = format!(
                "{} is in another mount namespace than tarnd, which mounts in its own",
                place.display()
            );
            return Err(Refusal::new(
                RefusalKind::Invalid,
                cannot_mount(name),
                reason,
            ));
        }
        if words.remounts {
            return self.remount_by_words(&open, request, words.temporary, operation);
        }
        let mut reply = MountedReply::default();
        if request.recursive {
            let candidates = candidates_below(&open, Some(name), operation);
            let candidates = candidates.map_err(|error| cannot_open(name, &error))?;
            self.mount_candidates(&open, candidates, how, operation, &mut reply);
            return Ok(reply);
        }
        let candidate = candidate_of(&open, name, operation)?;
        let how = How {
            asked: Asked::ByName,
            ..how
        };
        let path = self.mount_one(
            &open,
            &candidate,
            self.standing_of(&open, &candidate.name),
            how,
            operation,
        )?;
        if request.place.is_some() {
            self.remember_by_hand(false);
        }
        let entry = path.map(|path| entry_of(name, &path));
        reply.mounts.extend(entry);
        Ok(reply)
    }

    /// Mounts all file systems of a pool that `zfs mount -a` mounts.
    pub(crate) fn mount_pool(
        &self,
        open: &Arc<OpenPool>,
        options: &[String],
        operation: &Operation,
    ) -> MountedReply {
        let mut reply = MountedReply::default();
        let temporary = match Words::parse(options) {
            Ok(words) => words.temporary,
            Err(UnknownOption(_)) => {
                reply.refused.push(unknown_option(open.pool.name()));
                return reply;
            }
        };
        let how = How::with_all(temporary);
        match candidates_below(open, None, operation) {
            Ok(candidates) => self.mount_candidates(open, candidates, how, operation, &mut reply),
            Err(error) => reply.refused.push(cannot_open(open.pool.name(), &error)),
        }
        reply
    }

    /// Mounts the candidates, level by level of the tree of mount points: a path is mounted before
    /// the paths below it. Paths through symbolic links of the machine come last, one after the
    /// other, since they may lead into any of the others.
    fn mount_candidates(
        &self,
        open: &Arc<OpenPool>,
        candidates: Vec<Candidate>,
        how: How<'_>,
        operation: &Operation,
        reply: &mut MountedReply,
    ) {
        let standings = open.standings();
        let mut sorted: Vec<(PathBuf, Candidate)> = candidates
            .into_iter()
            .map(|candidate| (candidate.folder().to_path_buf(), candidate))
            .collect();
        sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
        let numbered: Vec<(usize, (PathBuf, Candidate))> = sorted.into_iter().enumerate().collect();
        let (plain, linked) = mount_order::apart_from_linked(numbered, path_of, |path| {
            path.ancestors().any(|above| self.host.is_link(above))
        });
        let mount = |(number, (_, candidate)): (usize, (PathBuf, Candidate))| {
            let standing = standings.get(&candidate.name).copied();
            let mounted = self.mount_one(open, &candidate, standing, how, operation);
            (number, candidate.name, mounted)
        };
        let mut outcomes = Vec::new();
        for level in mount_order::levels(plain, path_of) {
            let threads = mount_order::THREADS;
            outcomes.extend(self.host.map_in_threads(level, threads, mount));
        }
        outcomes.extend(linked.into_iter().map(mount));
        outcomes.sort_by_key(|(number, ..)| *number);
        for (_, name, mounted) in outcomes {
            match mounted {
                Ok(Some(path)) => reply.mounts.push(entry_of(&name, &path)),
                Ok(None) => {}
                Err(refusal) => reply.refused.push(refusal),
            }
        }
    }

    /// Where a served dataset is mounted; none where it is not served.
    fn standing_of(&self, open: &OpenPool, name: &str) -> Option<Standing> {
        let served = open.served(name)?;
        Some(self.mounter.standing(served.key, &served.place))
    }

    /// Mounts one file system; `standing` is where it is mounted if it is served. None when it is
    /// not to be mounted.
    #[doc(alias = "share_mount_one")]
    fn mount_one(
        &self,
        open: &Arc<OpenPool>,
        candidate: &Candidate,
        standing: Option<Standing>,
        how: How<'_>,
        operation: &Operation,
    ) -> Result<Option<PathBuf>, Refusal> {
        let name = &candidate.name;
        if standing == Some(Standing::Ended) {
            self.finish_ended(open, name)?;
        }
        let is_mounted = standing == Some(Standing::Mounted);
        if let Some(refusal) = standing_against(candidate, is_mounted, how) {
            return match how.asked {
                Asked::ByName => Err(refusal),
                Asked::WithAll | Asked::Again | Asked::Untouched => Ok(None),
            };
        }
        let path = match (how.by_hand, &candidate.point) {
            (Some(path), _) => path,
            (None, MountPoint::Path(path)) => path,
            (None, MountPoint::Legacy | MountPoint::None) => return Ok(None),
        };
        let mut temporary = how.temporary;
        if open.pool.mode() == Mode::ReadOnly {
            temporary.read_only = Some(true);
        }
        if how.whom == Beneficiary::User {
            (temporary.setuid, temporary.devices) = (Some(false), Some(false));
        }
        let place = self.mount_place(name, path, how.before)?;
        if how.whom == Beneficiary::User && !self.host.is_guarded(path) {
            let reason = format!("others can lead {} elsewhere", path.display());
            return Err(Refusal::new(
                RefusalKind::Denied,
                cannot_mount(name),
                reason,
            ));
        }
        let may_overlay = how.over_contents || candidate.values.may_overlay;
        self.prepare_folder(&place, may_overlay)?;
        let at = At {
            path,
            place,
            is_by_hand: how.by_hand.is_some(),
            is_own: how.before.is_some(),
        };
        if self.attach_served(open, candidate, &at, &temporary)? {
            self.share_mounted(open, name, operation)?;
            return Ok(Some(path.to_path_buf()));
        }
        let unlinked = match how.asked {
            Asked::Untouched => Unlinked::Kept,
            _ => Unlinked::Freed,
        };
        let purpose = HoldPurpose::Mount;
        let (held, hold) =
            self.hold_tree(open, candidate, purpose, &temporary, unlinked, operation)?;
        let mount_options = candidate.values.mount_options(&temporary);
        if hold == Hold::Joined {
            if mount_options.read_only != held.files().properties().is_read_only {
                // Read-only or not is one state for all holders.
                return Err(mount_refusal(name, &MountRefusal::Busy));
            }
            let properties = candidate.values.mount_properties(&temporary);
            held.tree().set_properties(properties);
        }
        let mounted = Mounted {
            path: path.to_path_buf(),
            place: at.place,
            is_by_hand: at.is_by_hand,
            key: MountKey::NONE,
            options: mount_options,
            temporary,
            held: held.clone(),
        };
        self.hand_to_mounter(open, name, mounted)?;
        // More increments may come for one that was unmounted for a moment.
        if how.asked != Asked::Untouched {
            held.tree().bring_up_counts();
        }
        self.share_mounted(open, name, operation)?;
        Ok(Some(path.to_path_buf()))
    }

    /// Finishes a file system that the kernel has ended: waits for requests under way, and closes
    /// its intent log.
    pub fn finish_ended(&self, open: &Arc<OpenPool>, name: &str) -> Result<(), Refusal> {
        let Some(served) = open.served(name) else {
            return Ok(());
        };
        match self.mounter.standing(served.key, &served.place) {
            Standing::Ended => {
                let ended = vec![(name.to_string(), served)];
                self.unmount_these(open, ended, Ending::Own).map(drop)
            }
            Standing::Mounted | Standing::Elsewhere => Ok(()),
        }
    }

    /// Mounts once more a served file system that is in use elsewhere: its files have one state in
    /// memory. False when it is not served, or not any more.
    fn attach_served(
        &self,
        open: &Arc<OpenPool>,
        candidate: &Candidate,
        at: &At<'_>,
        temporary: &TemporaryOptions,
    ) -> Result<bool, Refusal> {
        let name = &candidate.name;
        let Some(served) = open.served(name) else {
            return Ok(false);
        };
        let options = candidate.values.mount_options(temporary);
        if options.read_only != served.held.files().properties().is_read_only {
            // Read-only or not is one state for all its mounts.
            return Err(mount_refusal(name, &MountRefusal::Busy));
        }
        // mount(8) mounts it on one more folder: the file system's own mount is the first.
        let is_one_more = !at.is_own && open.is_mounted(&served);
        let attached = self.mounter.attach(served.key, name, &at.place, options);
        match attached {
            Ok(()) => {}
            Err(MountRefusal::Ended) => {
                self.finish_ended(open, name)?;
                return Ok(false);
            }
            Err(refusal) => return Err(mount_refusal(name, &refusal)),
        }
        if is_one_more {
            return Ok(true);
        }
        let properties = candidate.values.mount_properties(temporary);
        served.held.tree().set_properties(properties);
        self.mounter.properties_changed(served.key);
        open.mounts.lock().change(name, |served| {
            (served.path, served.place) = (at.path.to_path_buf(), at.place.clone());
            served.is_by_hand = at.is_by_hand;
            (served.options, served.temporary) = (options, *temporary);
        });
        Ok(true)
    }

    /// Mounts a file system that was just created, or got another mount point. One that is not to
    /// be mounted is skipped.
    pub fn mount_new(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
    ) -> Result<Option<PathBuf>, Refusal> {
        self.mount_new_for(open, name, Beneficiary::Administrator, operation)
    }

    /// The same for a user.
    pub fn mount_new_for(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        whom: Beneficiary,
        operation: &Operation,
    ) -> Result<Option<PathBuf>, Refusal> {
        let candidate = candidate_of(open, name, operation)?;
        let how = How {
            whom,
            ..How::with_all(TemporaryOptions::default())
        };
        self.mount_one(
            open,
            &candidate,
            self.standing_of(open, &candidate.name),
            how,
            operation,
        )
    }

    /// Mounts a file system for mount(8), if its mount point is `legacy`.
    pub(super) fn mount_legacy(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        place: &Path,
        temporary: TemporaryOptions,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let candidate = candidate_of(open, name, operation)?;
        if candidate.point != MountPoint::Legacy {
            return Ok(());
        }
        let how = How {
            asked: Asked::ByName,
            by_hand: Some(place),
            ..How::with_all(temporary)
        };
        self.mount_one(
            open,
            &candidate,
            self.standing_of(open, &candidate.name),
            how,
            operation,
        )
        .map(drop)
    }

    /// Mounts a file system at its mount point after a change, with its earlier options.
    pub fn mount_follower(
        &self,
        whom: Beneficiary,
        open: &Arc<OpenPool>,
        name: &str,
        asked: Asked,
        before: Option<&MountedBefore>,
        operation: &Operation,
    ) -> Result<Option<PathBuf>, Refusal> {
        let candidate = candidate_of(open, name, operation)?;
        let temporary = before.map(|before| before.temporary);
        let by_hand = before.filter(|before| before.is_by_hand);
        let how = How {
            asked,
            whom,
            by_hand: by_hand.map(|before| before.path.as_path()),
            before,
            ..How::with_all(temporary.unwrap_or_default())
        };
        self.mount_one(
            open,
            &candidate,
            self.standing_of(open, &candidate.name),
            how,
            operation,
        )
    }

    /// Holds the files of a dataset, which opens them where there is no other hold.
    pub(super) fn hold_tree(
        &self,
        open: &Arc<OpenPool>,
        candidate: &Candidate,
        purpose: HoldPurpose,
        temporary: &TemporaryOptions,
        unlinked: Unlinked,
        operation: &Operation,
    ) -> Result<(Arc<Held>, Hold), Refusal> {
        let name = &candidate.name;
        let view = open.pool.namespace().view(operation);
        let head = view.directory(name).and_then(|directory| directory.head());
        let head = head.map_err(|error| cannot_open(name, &error))?;
        let head = head.ok_or_else(|| {
            let error = DatasetError::NotFound { name: name.clone() };
            cannot_open(name, &error)
        })?;
        let properties = candidate.values.mount_properties(temporary);
        let choices = TreeChoices {
            discards_log: temporary.discards_log,
            fixes_snapshot_names: self.fixes_snapshot_names,
            unlinked,
        };
        let held = open.served_files.hold(head.id(), purpose, || {
            ServedTree::open(open, &head, properties, choices, operation)
        });
        held.map_err(|error| {
            let refusal = Refusal::new(RefusalKind::Corrupt, cannot_mount(name), error.why);
            match error.is_log {
                true => refusal.with_hint(format!(
                    "use 'zfs mount -o {DISCARD_LOG} {name}' to give up what the log has that is not replayed"
                )),
                false => refusal,
            }
        })
    }

    /// Has the mounter mount it, and notes the mount. The kernel may end a mount by itself, even
    /// before it is noted.
    fn hand_to_mounter(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        mounted: Mounted,
    ) -> Result<(), Refusal> {
        let (path, options, held) = (mounted.place.clone(), mounted.options, mounted.held.clone());
        // This mount's own end: when it is reported late, the same file system may be mounted on
        // the same folder again.
        let own = Arc::downgrade(&held);
        open.mounts.lock().insert(name.to_string(), mounted);
        let weak: Weak<OpenPool> = Arc::downgrade(open);
        let sharer = self.sharer().cloned();
        let ended = Box::new(move || {
            let (Some(open), Some(held)) = (weak.upgrade(), own.upgrade()) else {
                return;
            };
            let name = held.tree().name().unwrap_or_default();
            let mut mounts = open.mounts.lock();
            let is_own = |mounted: &Mounted| Arc::ptr_eq(&mounted.held, &held);
            let gone = match mounts.get(&name).is_some_and(is_own) {
                true => mounts.remove(&name),
                false => None,
            };
            drop(mounts);
            // Where requests of clients do not end, the share keeps its hold.
            if gone.is_some()
                && sharer
                    .as_ref()
                    .is_none_or(|sharer| sharer.unshare(held.guid()).is_ok())
            {
                leave_share(&open, &held);
            }
            drop(gone);
            // The front end has finished with it, and may keep the hold for a moment.
            held.leave();
        });
        let request = MountRequest {
            source: name,
            path: &path,
            options,
            tree: held,
            ended,
        };
        match self.mounter.mount(request) {
            Ok(key) => {
                open.mounts.lock().set_key(name, key);
                Ok(())
            }
            Err(refusal) => {
                open.mounts.lock().remove(name);
                Err(mount_refusal(name, &refusal))
            }
        }
    }

    /// Makes the folder if it is missing, and refuses one that is not empty where that matters.
    fn prepare_folder(&self, path: &Path, may_overlay: bool) -> Result<(), Refusal> {
        let failed = |reason: String| {
            Refusal::new(
                RefusalKind::Busy,
                cannot_mount(&path.display().to_string()),
                reason,
            )
        };
        if self.host.file_kind(path) != tarn_host::FileKind::Directory {
            self.host
                .create_directories(path)
                .map_err(|error| failed(format!("failed to create mountpoint: {}", error.errno)))?;
        }
        if may_overlay {
            return Ok(());
        }
        match self.host.list_directory(path) {
            Ok(entries) if !entries.is_empty() => Err(failed("directory is not empty".to_string())),
            _ => Ok(()),
        }
    }
}

/// The folder of a new mount.
struct At<'a> {
    /// The path as given.
    path: &'a Path,
    /// The folder that it resolves to.
    place: PathBuf,
    /// mount(8) gave it.
    is_by_hand: bool,
    /// The mount is the file system's own, which was undone for a moment.
    is_own: bool,
}

/// The refusal to mount, in OpenZFS's words, if there is one.
fn standing_against(candidate: &Candidate, is_mounted: bool, how: How<'_>) -> Option<Refusal> {
    let (name, asked) = (&candidate.name, how.asked);
    let refuse = |kind, reason: &str| Some(Refusal::new(kind, cannot_mount(name), reason));
    if candidate.values.is_zoned {
        return refuse(RefusalKind::Busy, "dataset is exported to a local zone");
    }
    match candidate.point {
        _ if how.by_hand.is_some() => {}
        MountPoint::Legacy => {
            let refusal = refuse(RefusalKind::Invalid, "legacy mountpoint");
            let hint = "use mount(8) to mount this filesystem";
            return refusal.map(|refusal| refusal.with_hint(hint));
        }
        MountPoint::None => return refuse(RefusalKind::Invalid, "no mountpoint set"),
        MountPoint::Path(_) => {}
    }
    match (candidate.values.can_mount, asked) {
        // mount(8) mounts also with `canmount=off`.
        _ if how.by_hand.is_some() => {}
        (CanMount::Off, _) => {
            return refuse(RefusalKind::Invalid, "'canmount' property is set to 'off'");
        }
        (CanMount::NoAuto, Asked::WithAll) => {
            return refuse(RefusalKind::Invalid, "it is not automatic");
        }
        _ => {}
    }
    if candidate.is_encrypted {
        return refuse(RefusalKind::Invalid, "encryption key not loaded");
    }
    if candidate.is_received_half {
        let reason = "Contains partially-completed state from \"zfs receive -s\", which can be \
                      resumed with \"zfs send -t\"";
        return refuse(RefusalKind::Busy, reason);
    }
    match is_mounted {
        // mount(8) may mount it on several folders.
        true if how.by_hand.is_some() && asked == Asked::ByName => None,
        // Its own mount was undone; a bind mount on another folder does not count.
        true if how.before.is_some() => None,
        true => refuse(RefusalKind::Busy, "filesystem already mounted"),
        false if candidate.is_in_use => refuse(RefusalKind::Busy, BUSY),
        false => None,
    }
}

/// OpenZFS's reason when a mount is not possible at the moment.
const BUSY: &str = "mountpoint or dataset is busy";

/// The refusal of an unknown mount option.
pub fn unknown_option(name: &str) -> Refusal {
    Refusal::new(RefusalKind::Invalid, cannot_mount(name), INVALID_ARGUMENT)
}

/// The system's text for `EINVAL`.
pub(super) const INVALID_ARGUMENT: &str = "Invalid argument";

/// The action of refusals to mount.
pub fn cannot_mount(name: &str) -> String {
    format!("cannot mount '{name}'")
}

pub(super) fn mount_refusal(name: &str, refusal: &MountRefusal) -> Refusal {
    match refusal {
        MountRefusal::Busy => Refusal::new(RefusalKind::Busy, cannot_mount(name), BUSY),
        other => Refusal::new(RefusalKind::Device, cannot_mount(name), other.to_string()),
    }
}

/// A mount, as `zfs mount` lists it.
pub fn entry_of(name: &str, path: &Path) -> MountEntry {
    MountEntry {
        dataset: name.to_string(),
        path: path.display().to_string(),
    }
}

/// One file system by name.
pub(super) fn candidate_of(
    open: &OpenPool,
    name: &str,
    operation: &Operation,
) -> Result<Candidate, Refusal> {
    let view = open.pool.namespace().view(operation);
    let head = view.directory(name).and_then(|directory| directory.head());
    let head = head.map_err(|error| cannot_open(name, &error))?;
    let found = match &head {
        Some(head) => candidate(open, head).map_err(|error| cannot_open(name, &error))?,
        None => None,
    };
    found.ok_or_else(|| {
        let reason = "operation not applicable to datasets of this type";
        Refusal::new(
            RefusalKind::Invalid,
            format!("cannot open '{name}'"),
            reason,
        )
    })
}

/// All file systems of a pool, or at and below one dataset, that `zfs mount -a` mounts.
fn candidates_below(
    open: &OpenPool,
    name: Option<&str>,
    operation: &Operation,
) -> Result<Vec<Candidate>, DatasetError> {
    let first = name.unwrap_or(open.pool.name());
    let names = open.pool.namespace().names_below(first, operation)?;
    let (host, threads) = (open.pool.host(), mount_order::THREADS);
    let found = host.map_in_threads(names, threads, |name| {
        automatic_candidate(open, &name, operation)
    });
    let found: Vec<Option<Candidate>> = found.into_iter().collect::<Result<_, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// A dataset, if it is a file system that `zfs mount -a` mounts. None if it was destroyed
/// meanwhile.
fn automatic_candidate(
    open: &OpenPool,
    name: &str,
    operation: &Operation,
) -> Result<Option<Candidate>, DatasetError> {
    let namespace = open.pool.namespace();
    let found = namespace.consistently(|| {
        let head = namespace.view(operation).directory(name)?.head()?;
        let found = head.map(|head| candidate(open, &head)).transpose()?;
        Ok(found.flatten().filter(Candidate::is_automatic))
    });
    match found {
        Err(DatasetError::NotFound { .. }) => Ok(None),
        found => found,
    }
}

/// The facts needed to mount a dataset; none when it is no file system.
fn candidate(open: &OpenPool, head: &Dataset<'_>) -> Result<Option<Candidate>, DatasetError> {
    let contents = contents::outline(head)?;
    if !matches!(contents, Contents::Filesystem(_)) {
        return Ok(None);
    }
    let altroot = open.altroot.as_deref();
    let (values, point) = Values::read_with_mount_point(head, contents, altroot)?;
    Ok(Some(Candidate {
        name: head.name(),
        point,
        values,
        is_received_half: head.stored()?.flags.contains(DatasetFlags::INCONSISTENT),
        is_in_use: open.pool.namespace().is_in_use(head.id()),
        is_encrypted: head.directory().extension(CRYPTO_KEY)?.is_some(),
    }))
}
