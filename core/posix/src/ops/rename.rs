//! Renaming a file, in its directory or to another one.
//!
//! # Mechanism
//! Up to four files are involved: two directories, the file, and the file that has the new name
//! already. The names are looked up, all files are locked, and the names are looked up again. Then
//! all changes are one transaction: the new name first, so that a failure half-way can be undone.
//!
//! A directory must not be moved below itself. So its new ancestors are checked, under a lock that
//! keeps other directories from moving between parents (`renaming`).

use std::sync::Arc;

use tarn_dataset::ops::snapshot_of_head::SnapshotChange;
use tarn_object::Tx;
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::intent_log::{LoggedWhiteout, RenameKind};
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::control_directory::{self, ControlEntry};
use crate::directory::Entry;
use crate::error::PosixError;
use crate::facts::{Facts, words};
use crate::filesystem::FileSystem;
use crate::holders::Change;
use crate::intent::renamed;
use crate::node::{Node, lock_all};
use crate::ops::access::{EXECUTE, WRITE};
use crate::ops::create::{Birth, ENTRY_BYTES, Inherited};
use crate::ops::link::check_project;
use crate::ops::unlink::ATTEMPTS_MAX;
use crate::permissions::SET_GID;
use crate::types::{Credentials, DeviceNumber, FileKind, NewFile, RenameMode, Timestamp};

/// The bound for a walk up to the root. A damaged tree could have a circle; no real tree is so
/// deep.
const DEPTH_MAX: usize = 1 << 20;

/// The shift of the number of dnode slots in a record's object number.
#[doc(alias = "LR_FOID_SET_SLOTS")]
const SLOTS_SHIFT: u32 = 56;

/// A name in a directory, and what it leads to.
struct Named {
    entry: Entry,
    node: Arc<Node>,
}

/// The files and names of a rename, as they were looked up.
struct Renaming<'a> {
    /// None in a replay, which was permitted before.
    credentials: Option<&'a Credentials>,
    from_parent: Arc<Node>,
    from: &'a [u8],
    to_parent: Arc<Node>,
    to: &'a [u8],
    mode: RenameMode,
    /// The whiteout under the old name, if there is to be one.
    whiteout: Option<Whiteout>,
    source: Named,
    target: Option<Named>,
}

/// A whiteout (`RENAME_WHITEOUT`): a device 0:0 under the old name, which overlayfs takes for a
/// removed file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whiteout {
    pub kind: FileKind,
    pub permissions: u32,
    pub owner: Fuid,
    pub group: Fuid,
    pub birth: Birth,
}

impl Whiteout {
    /// The whiteout of this user in a directory: a character device 0:0 without permissions.
    fn left_by(credentials: &Credentials, directory: &Facts) -> Whiteout {
        Whiteout {
            kind: FileKind::CharacterDevice,
            permissions: 0,
            owner: Fuid::posix(credentials.uid),
            group: match directory.mode & SET_GID {
                0 => Fuid::posix(credentials.gid),
                _ => directory.group,
            },
            birth: Birth::Now,
        }
    }
}

impl RenameMode {
    /// Whether a rename refuses when the new name exists.
    fn spares_what_is_there(self) -> bool {
        matches!(self, RenameMode::NoReplace | RenameMode::WhiteoutNoReplace)
    }

    /// Whether a rename leaves a whiteout under the old name.
    fn leaves_whiteout(self) -> bool {
        matches!(self, RenameMode::Whiteout | RenameMode::WhiteoutNoReplace)
    }
}

impl FileSystem {
    /// Renames a snapshot, within `.zfs/snapshot` only.
    #[doc(alias = "zfsctl_snapdir_rename")]
    fn rename_snapshot(
        &self,
        credentials: &Credentials,
        from: &[u8],
        to: &[u8],
        mode: RenameMode,
        is_within: bool,
    ) -> Result<(), PosixError> {
        if mode != RenameMode::Replace {
            return Err(PosixError::Invalid("snapshots are renamed without flags"));
        }
        let from = control_directory::snapshot_name(from)?;
        let to = control_directory::snapshot_name(to)?;
        if !is_within {
            return Err(PosixError::Invalid("a snapshot stays where snapshots are"));
        }
        self.change_snapshot(credentials, SnapshotChange::Rename { from, to })
    }

    /// Renames a file. A file with the new name is replaced, refused or swapped, as the mode says.
    ///
    /// # Errors
    /// `Exists` with `NoReplace`, `NotFound`, `NotEmpty`, `NotDirectory` and `IsDirectory` where
    /// one cannot replace the other, `Invalid` for a directory into itself, `CrossDevice` between
    /// projects, `PermissionDenied`, `NotPermitted`, `NoSpace`, `ReadOnly`; nothing has changed
    /// then.
    #[doc(alias = "zfs_rename")]
    #[expect(
        clippy::too_many_arguments,
        reason = "two places, each a directory and a name"
    )]
    pub fn rename(
        &self,
        credentials: &Credentials,
        from_parent: ObjectId,
        from: &[u8],
        to_parent: ObjectId,
        to: &[u8],
        mode: RenameMode,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let is_below_control = |parent| self.control_entry(parent).is_some();
        if self.control_entry(from_parent) == Some(ControlEntry::Snapshots) {
            let is_within = from_parent == to_parent;
            return self.rename_snapshot(credentials, from, to, mode, is_within);
        }
        if is_below_control(to_parent) && !is_below_control(from_parent) {
            return Err(PosixError::CrossDevice);
        }
        let from_parent = self.directory_of_entry(from_parent, from, operation)?;
        let to_parent = self.directory_of_entry(to_parent, to, operation)?;
        if [from, to]
            .iter()
            .any(|name| *name == b"." || *name == b"..")
        {
            return Err(PosixError::Invalid("'.' and '..' cannot be renamed"));
        }
        self.naming
            .check_new(to, self.properties().name_bytes_max())?;
        self.check_access(credentials, &from_parent, EXECUTE, operation)?;
        self.check_access(credentials, &to_parent, EXECUTE, operation)?;
        let whiteout = mode
            .leaves_whiteout()
            .then(|| Whiteout::left_by(credentials, &from_parent.facts()));
        let (from, to) = ((&from_parent, from), (&to_parent, to));
        self.rename_between(Some(credentials), from, to, mode, whiteout, operation)
    }

    /// Renames; without credentials for a replay.
    pub(crate) fn rename_between(
        &self,
        credentials: Option<&Credentials>,
        (from_parent, from): (&Arc<Node>, &[u8]),
        (to_parent, to): (&Arc<Node>, &[u8]),
        mode: RenameMode,
        whiteout: Option<Whiteout>,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        for _ in 0..ATTEMPTS_MAX {
            let renaming = Renaming {
                credentials,
                source: self
                    .named(from_parent, from, operation)?
                    .ok_or_else(|| self.missing(from))?,
                target: self.named(to_parent, to, operation)?,
                from_parent: from_parent.clone(),
                from,
                to_parent: to_parent.clone(),
                to,
                mode,
                whiteout,
            };
            let _moving = self.changing(renaming.source.node.id, operation)?;
            let target = renaming.target.as_ref();
            let replaced = target.map(|target| self.removing(target.node.id, operation));
            let _replacing = replaced.transpose()?;
            let tried = self.try_rename(&renaming, operation);
            if !matches!(tried, Ok(None)) {
                self.tell_renamed(&renaming, operation);
            }
            if let Some((txg, replaced)) = tried? {
                if let Some(replaced) = replaced {
                    // A file that cannot be freed now stays in the unlinked set, and is freed at
                    // the next mount.
                    let _ = self.free_if_unused(&replaced, operation);
                }
                return self.after_change(txg, operation);
            }
        }
        Err(PosixError::Contended)
    }

    /// Tells the other holders of both names, and of the files that had them.
    fn tell_renamed(&self, renaming: &Renaming<'_>, operation: &Operation) {
        let target = renaming.target.as_ref();
        for (directory, name) in [
            (&renaming.from_parent, renaming.from),
            (&renaming.to_parent, renaming.to),
        ] {
            let directory = directory.id;
            self.tell(Change::Entry { directory, name }, operation);
        }
        for named in std::iter::once(&renaming.source).chain(target) {
            let file = named.node.id;
            self.tell(Change::Attributes { file }, operation);
        }
    }

    /// The entry and file of a name, if it exists.
    fn named(
        &self,
        directory: &Node,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Option<Named>, PosixError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(entry) = self.find_entry(directory, name, operation)? else {
                return Ok(None);
            };
            let node = self.child(directory, name, operation)?;
            if node.id == entry.id {
                return Ok(Some(Named { entry, node }));
            }
        }
        Err(PosixError::Contended)
    }

    /// Renames, unless the names have changed since they were looked up. Gives the txg and the file
    /// that was replaced.
    #[expect(clippy::type_complexity, reason = "said in words above")]
    fn try_rename(
        &self,
        renaming: &Renaming<'_>,
        operation: &Operation,
    ) -> Result<Option<(Txg, Option<Arc<Node>>)>, PosixError> {
        let Renaming {
            from_parent,
            to_parent,
            source,
            target,
            ..
        } = renaming;
        let moves_directory = renaming.crosses()
            && (source.is_directory() || target.as_ref().is_some_and(Named::is_directory));
        let _one_at_a_time = moves_directory.then(|| self.renaming.lock());
        let mut nodes = vec![from_parent, to_parent, &source.node];
        nodes.extend(target.as_ref().map(|target| &target.node));
        let _change = lock_all(&nodes);
        let is_same = |directory: &Arc<Node>, name, before: Option<&Named>| {
            let now = self
                .find_entry(directory, name, operation)?
                .map(|entry| entry.id);
            let is_gone = before.is_some_and(|named| named.node.is_gone());
            Ok::<bool, PosixError>(!is_gone && now == before.map(|named| named.entry.id))
        };
        if !is_same(from_parent, renaming.from, Some(source))?
            || !is_same(to_parent, renaming.to, target.as_ref())?
        {
            return Ok(None);
        }
        if from_parent.is_gone() || to_parent.is_gone() {
            return Err(PosixError::NotFound);
        }
        self.check_rename(renaming, operation)?;
        let is_same_entry = target
            .as_ref()
            .is_some_and(|target| !renaming.crosses() && target.entry.name == source.entry.name);
        let is_same_file = target
            .as_ref()
            .is_some_and(|target| target.node.id == source.node.id);
        let changes_spelling = is_same_entry && renaming.to != source.entry.name;
        if is_same_file && !changes_spelling {
            // Two names of one file: by POSIX, nothing happens.
            return Ok(Some((source.node.changed_in(), None)));
        }
        if let (Some(whiteout), Some(_)) = (&renaming.whiteout, renaming.credentials) {
            if changes_spelling {
                return Err(PosixError::Invalid(
                    "a file and what it leaves behind cannot have one name",
                ));
            }
            let (project, _) = self.inherited_project(&from_parent.facts(), whiteout.kind);
            let (owner, group) = (whiteout.owner, whiteout.group);
            self.check_new_file_quota(owner, group, project.unwrap_or(0), operation)?;
        }
        let tx = match renaming.credentials {
            Some(_) => self.begin(2 * ENTRY_BYTES, operation)?,
            None => self.begin_replay(2 * ENTRY_BYTES, operation)?,
        };
        let now = self.now();
        let (mut replaced, mut left) = (None, None);
        let changed = if changes_spelling {
            self.respell(renaming, now, &tx, operation)
        } else if renaming.mode == RenameMode::Exchange {
            self.exchange(renaming, now, &tx, operation)
        } else {
            replaced = target.as_ref().map(|target| target.node.clone());
            let moved = self.move_entry(renaming, now, &tx, operation);
            moved.and_then(|()| match &renaming.whiteout {
                Some(whiteout) => {
                    left = Some(self.make_whiteout(renaming, whiteout, &tx, operation)?);
                    Ok(())
                }
                None => Ok(()),
            })
        };
        self.unlogged_if_it_fails(&tx, changed)?;
        self.log_renamed(renaming, left.as_deref(), &tx);
        if let Some(left) = left {
            self.add_new(left);
        }
        if let Some(replaced) = &replaced {
            let lost = self.lose_name(replaced, now, &tx, operation);
            self.unlogged_if_it_fails(&tx, lost)?;
        }
        Ok(Some((tx.txg(), replaced)))
    }

    fn log_renamed(&self, renaming: &Renaming<'_>, left: Option<&Node>, tx: &Tx) {
        let kind = match (left, renaming.mode) {
            (Some(left), _) => match whiteout_record(left) {
                Some(record) => RenameKind::Whiteout(record),
                None => return self.log_nothing(tx),
            },
            (None, RenameMode::Exchange) => RenameKind::Exchange,
            (None, _) => RenameKind::Plain,
        };
        let mut moved = vec![renaming.source.node.id];
        if let (RenameMode::Exchange, Some(target)) = (renaming.mode, &renaming.target) {
            moved.push(target.node.id);
        }
        let from = (renaming.from_parent.id, renaming.from);
        let to = (renaming.to_parent.id, renaming.to);
        self.log_rename(tx, &moved, renamed(kind, from, to));
    }

    /// Makes the whiteout. It comes into the table of files only after the rename was logged, whose
    /// record has its creation.
    fn make_whiteout(
        &self,
        renaming: &Renaming<'_>,
        whiteout: &Whiteout,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<Arc<Node>, PosixError> {
        let parent = renaming.from_parent.facts();
        let (project, flags) = self.inherited_project(&parent, whiteout.kind);
        let inherited = Inherited {
            permissions: whiteout.permissions,
            owner: whiteout.owner,
            group: whiteout.group,
            project,
            flags,
            access_acl: None,
            default_acl: None,
            nfs4_acl: None,
            times: None,
        };
        let new = NewFile {
            kind: whiteout.kind,
            permissions: whiteout.permissions,
            umask: 0,
            device: DeviceNumber::default(),
            target: None,
        };
        let (directory, name, birth) = (&renaming.from_parent, renaming.from, whiteout.birth);
        let made = self.make_unlogged(directory, name, &new, inherited, birth, tx, operation);
        made.map(|(node, _)| node)
    }

    /// Refuses a rename that this user, or any user, may not make.
    fn check_rename(
        &self,
        renaming: &Renaming<'_>,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let Renaming {
            credentials,
            from_parent,
            to_parent,
            source,
            target,
            mode,
            ..
        } = renaming;
        match (mode, target) {
            (mode, Some(_)) if mode.spares_what_is_there() => return Err(PosixError::Exists),
            (RenameMode::Exchange, None) => return Err(PosixError::NotFound),
            _ => {}
        }
        if let Some(credentials) = *credentials {
            self.check_may_remove(credentials, from_parent, &source.node, operation)?;
            if let Some(target) = target {
                self.check_may_remove(credentials, to_parent, &target.node, operation)?;
            }
            let kind = source.node.facts().kind();
            self.check_may_add(credentials, to_parent, kind, operation)?;
            if let (RenameMode::Exchange, Some(target)) = (mode, target) {
                let kind = target.node.facts().kind();
                self.check_may_add(credentials, from_parent, kind, operation)?;
            }
            if let Some(whiteout) = &renaming.whiteout {
                self.check_may_add(credentials, from_parent, whiteout.kind, operation)?;
            }
            if renaming.crosses() {
                check_project(&to_parent.facts(), &source.node.facts())?;
            }
        }
        if renaming.crosses() {
            self.check_move(*credentials, to_parent, source, operation)?;
        }
        let Some(target) = target else { return Ok(()) };
        if *mode == RenameMode::Exchange {
            if renaming.crosses() {
                if credentials.is_some() {
                    check_project(&from_parent.facts(), &target.node.facts())?;
                }
                self.check_move(*credentials, from_parent, target, operation)?;
            }
            return Ok(());
        }
        if source.node.id == target.node.id {
            return Ok(());
        }
        match (source.is_directory(), target.is_directory()) {
            (true, false) => Err(PosixError::NotDirectory),
            (false, true) => Err(PosixError::IsDirectory),
            (true, true) if self.directory(&target.node, operation)?.count()? != 0 => {
                Err(PosixError::NotEmpty)
            }
            _ => Ok(()),
        }
    }

    /// Refuses to move a directory into itself, and one whose `..` this user may not change.
    fn check_move(
        &self,
        credentials: Option<&Credentials>,
        to_parent: &Arc<Node>,
        moved: &Named,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if !moved.is_directory() {
            return Ok(());
        }
        let mut at = to_parent.clone();
        for _ in 0..DEPTH_MAX {
            if at.id == moved.node.id {
                return Err(PosixError::Invalid(
                    "a directory cannot be moved into itself",
                ));
            }
            if at.id == self.root() {
                return match credentials {
                    Some(credentials) => {
                        self.check_access(credentials, &moved.node, WRITE, operation)
                    }
                    None => Ok(()),
                };
            }
            at = self.node(at.facts().parent, operation)?;
        }
        Err(PosixError::Damaged {
            object: to_parent.id,
            why: "its parents do not lead to the root",
        })
    }

    /// Moves the entry: the new name leads to the source, and the old name is removed.
    fn move_entry(
        &self,
        renaming: &Renaming<'_>,
        now: Timestamp,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let Renaming {
            from_parent,
            to_parent,
            source,
            target,
            ..
        } = renaming;
        let (old, new) = (
            self.directory(from_parent, operation)?,
            self.directory(to_parent, operation)?,
        );
        let mut facts = (*source.node.facts()).clone();
        let (id, kind) = (source.node.id, facts.kind());
        match target {
            Some(target) => new.replace(tx, &target.entry.name, id, kind)?,
            None => new.insert(tx, renaming.to, id, kind)?,
        }
        if let Err(error) = old.remove(tx, &source.entry.name) {
            let _ = match target {
                Some(target) => {
                    let kind = target.node.facts().kind();
                    new.replace(tx, &target.entry.name, target.node.id, kind)
                }
                None => new.remove(tx, renaming.to),
            };
            return Err(error);
        }
        facts.parent = to_parent.id;
        inherit_flag(&mut facts, &to_parent.facts());
        facts.attributes_changed(now);
        self.store(&source.node, facts, tx, operation)?;
        let moved_directories = i64::from(source.is_directory());
        let lost = target.as_ref();
        let lost_entries = i64::from(lost.is_some());
        let lost_directories = i64::from(lost.is_some_and(Named::is_directory));
        if renaming.crosses() {
            let gained = (1 - lost_entries, moved_directories - lost_directories);
            self.count_entries(to_parent, gained.0, gained.1, now, tx, operation)?;
            self.count_entries(from_parent, -1, -moved_directories, now, tx, operation)?;
        } else {
            self.count_entries(
                from_parent,
                -lost_entries,
                -lost_directories,
                now,
                tx,
                operation,
            )?;
        }
        Ok(())
    }

    /// Removes a link of the file that had the new name.
    fn lose_name(
        &self,
        replaced: &Arc<Node>,
        now: Timestamp,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let mut facts = (*replaced.facts()).clone();
        facts.attributes_changed(now);
        if facts.is_directory() || facts.links <= 1 {
            return self.lose_last_name(replaced, facts, tx, operation);
        }
        facts.links -= 1;
        self.store(replaced, facts, tx, operation)
    }

    /// Swaps the two entries.
    fn exchange(
        &self,
        renaming: &Renaming<'_>,
        now: Timestamp,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let Renaming {
            from_parent,
            to_parent,
            source,
            ..
        } = renaming;
        let target = renaming
            .target
            .as_ref()
            .expect("there is something to exchange with");
        let places = [(from_parent, source, target), (to_parent, target, source)];
        let lead = |directory, name: &Named, to: &Named| {
            let kind = to.node.facts().kind();
            let table = self.directory(directory, operation)?;
            table.replace(tx, &name.entry.name, to.node.id, kind)
        };
        lead(from_parent, source, target)?;
        if let Err(error) = lead(to_parent, target, source) {
            let _ = lead(from_parent, source, source);
            return Err(error);
        }
        for (directory, _, becomes) in places {
            let mut facts = (*becomes.node.facts()).clone();
            facts.parent = directory.id;
            inherit_flag(&mut facts, &directory.facts());
            facts.attributes_changed(now);
            self.store(&becomes.node, facts, tx, operation)?;
        }
        let gained = i64::from(source.is_directory()) - i64::from(target.is_directory());
        if renaming.crosses() {
            self.count_entries(to_parent, 0, gained, now, tx, operation)?;
            self.count_entries(from_parent, 0, -gained, now, tx, operation)
        } else {
            self.count_entries(from_parent, 0, 0, now, tx, operation)
        }
    }

    /// Changes the spelling of a name that is the same in the directory's form.
    fn respell(
        &self,
        renaming: &Renaming<'_>,
        now: Timestamp,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let Renaming {
            from_parent,
            source,
            ..
        } = renaming;
        let table = self.directory(from_parent, operation)?;
        let mut facts = (*source.node.facts()).clone();
        table.insert(tx, renaming.to, source.node.id, facts.kind())?;
        if let Err(error) = table.remove(tx, &source.entry.name) {
            let _ = table.remove(tx, renaming.to);
            return Err(error);
        }
        facts.attributes_changed(now);
        self.store(&source.node, facts, tx, operation)?;
        self.count_entries(from_parent, 0, 0, now, tx, operation)
    }
}

/// The whiteout in the record of a rename; none where it would have to name a Windows domain.
#[doc(alias = "zfs_log_rename_whiteout")]
fn whiteout_record(left: &Node) -> Option<LoggedWhiteout> {
    let facts = left.facts();
    if facts.owner.domain() != 0 || facts.group.domain() != 0 {
        return None;
    }
    let slots_more = u64::try_from(left.object.info().slots.max(1) - 1).unwrap_or(0);
    Some(LoggedWhiteout {
        object_word: left.id.get() | (slots_more << SLOTS_SHIFT),
        mode: u64::from(facts.mode),
        owner: facts.owner,
        group: facts.group,
        generation: facts.generation,
        creation_time: words(facts.created),
        device: facts.device,
    })
}

/// A file that comes into a directory that passes its project on does the same.
fn inherit_flag(facts: &mut Facts, directory: &Facts) {
    let hands_down = matches!(facts.kind(), FileKind::Regular | FileKind::Directory);
    if hands_down && directory.flags.has(ZnodeFlags::INHERIT_PROJECT) {
        facts.flags = facts.flags.and(ZnodeFlags::INHERIT_PROJECT);
    }
}

impl Renaming<'_> {
    /// Whether it leads from one directory to another.
    fn crosses(&self) -> bool {
        self.from_parent.id != self.to_parent.id
    }
}

impl Named {
    fn is_directory(&self) -> bool {
        self.node.facts().is_directory()
    }
}
