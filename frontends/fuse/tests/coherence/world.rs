//! Random operations by two holders of one file system, and on a model.

use crate::bench::Bench;
use crate::checks::id_of;
use crate::locks::ModelLocks;
use crate::model::{Model, ModelFile};
use crate::nfs_clients::{NfsClient, can_do};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use tarn_engine::files::{
    Change, Credentials, DeviceNumber, FileKind, FileSystem, HolderId, Holding, NewFile, Operation,
    OperationKind, PosixError, Protocol, RenameMode, Tree, Watcher, Who, WriteAt,
};
use tarn_workload::mapped::Mapping;
use tarn_workload::twister::Twister;

/// The largest file.
pub const SIZE_MAX: usize = 48 << 10;
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The operation of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Create,
    MakeDirectory,
    Symlink,
    Link,
    Unlink,
    RemoveDirectory,
    Rename,
    Write,
    WriteAsUser,
    Append,
    Truncate,
    Punch,
    Extend,
    Chmod,
    Chown,
    Times,
    SetXattr,
    RemoveXattr,
    SetAcl,
    Copy,
    Unnamed,
    Open,
    Close,
    Store,
    Lock,
}

impl Deed {
    /// How often each is drawn.
    const WEIGHTS: [(Deed, u32); 25] = [
        (Deed::Create, 10),
        (Deed::MakeDirectory, 5),
        (Deed::Symlink, 2),
        (Deed::Link, 5),
        (Deed::Unlink, 10),
        (Deed::RemoveDirectory, 5),
        (Deed::Rename, 12),
        (Deed::Write, 16),
        (Deed::WriteAsUser, 2),
        (Deed::Append, 6),
        (Deed::Truncate, 6),
        (Deed::Punch, 4),
        (Deed::Extend, 2),
        (Deed::Chmod, 4),
        (Deed::Chown, 3),
        (Deed::Times, 3),
        (Deed::SetXattr, 4),
        (Deed::RemoveXattr, 2),
        (Deed::SetAcl, 3),
        (Deed::Copy, 5),
        (Deed::Unnamed, 3),
        (Deed::Open, 10),
        (Deed::Close, 5),
        (Deed::Store, 8),
        (Deed::Lock, 12),
    ];

    /// Those of which the mount needs a notice.
    pub const TOLD: [Deed; 14] = [
        Deed::Create,
        Deed::Link,
        Deed::Unlink,
        Deed::RemoveDirectory,
        Deed::Rename,
        Deed::Write,
        Deed::Truncate,
        Deed::Punch,
        Deed::Chmod,
        Deed::Chown,
        Deed::Times,
        Deed::SetXattr,
        Deed::SetAcl,
        Deed::Copy,
    ];
}

/// The holder that does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Mount,
    Direct,
    /// A client of NFS, by its number.
    Nfs(usize),
}

/// A difference that was found, with the steps that led to it.
#[derive(Debug)]
pub struct Fault {
    why: String,
    history: Vec<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", self.why, self.history.join("\n  "))
    }
}

pub fn no(why: String) -> Fault {
    Fault {
        why,
        history: Vec::new(),
    }
}

pub fn refused(error: PosixError) -> Fault {
    no(format!("direct: {error}"))
}

pub fn failed(error: std::io::Error) -> Fault {
    no(format!("mount: {error}"))
}

pub fn said(errno: rustix::io::Errno) -> Fault {
    no(format!("mount: {errno}"))
}

/// An open file, possibly mapped.
pub struct OpenFile {
    pub id: u64,
    pub number: u64,
    pub file: File,
    pub mapping: Option<Mapping>,
}

/// A holder without caches, which ignores notices.
struct Quiet;

impl Watcher for Quiet {
    fn changed(&self, _: &Change<'_>) {}
}

pub struct World {
    pub root: PathBuf,
    pub files: Arc<FileSystem>,
    tree: Arc<dyn Tree>,
    pub holding: Holding,
    pub user: Credentials,
    pub chance: Twister,
    /// Clients of NFS, where there are some.
    pub clients: Vec<NfsClient>,
    pub model: Model,
    pub open: Vec<OpenFile>,
    pub locks: BTreeMap<u64, ModelLocks>,
    pub last_open: u64,
    /// Files with stores through mappings.
    pub dirty: BTreeSet<u64>,
    canary: Option<Deed>,
    history: VecDeque<String>,
    by_mount: u64,
    _watcher: Arc<dyn Watcher>,
}

impl World {
    pub fn new(bench: &Bench, seed: u64, canary: Option<Deed>) -> World {
        rustix::process::umask(Mode::empty());
        let tree = bench.tree.clone();
        let files = tree.files().clone();
        let watcher: Arc<dyn Watcher> = Arc::new(Quiet);
        let holding = files.hold(Arc::downgrade(&watcher) as Weak<dyn Watcher>);
        World {
            root: bench.path.clone(),
            holding,
            tree,
            user: Credentials::root(),
            chance: Twister::new(seed),
            clients: Vec::new(),
            model: Model::new(files.root().get()),
            open: Vec::new(),
            locks: BTreeMap::new(),
            last_open: 0,
            dirty: BTreeSet::new(),
            canary,
            history: VecDeque::new(),
            by_mount: 0,
            files,
            _watcher: watcher,
        }
    }

    pub fn by_mount(&self) -> u64 {
        self.by_mount
    }

    /// An operation of the direct holder; for a canary, one in the name of the mount.
    pub fn operation(&self, deed: Option<Deed>) -> Operation {
        let own = self.holding.id();
        let holder = match deed {
            // The mount was the first holder, the share the second.
            Some(deed) if Some(deed) == self.canary => HolderId(own.0 - 2),
            _ => own,
        };
        let who = Who {
            protocol: Protocol::Internal,
            holder,
            ..Who::INTERNAL
        };
        let root = self.files.root();
        self.tree.begin(who, OperationKind::Other, root, (0, 0))
    }

    pub fn path(&self, directory: u64, name: &str) -> PathBuf {
        self.root.join(self.model.path_of(directory)).join(name)
    }

    pub fn run(&mut self, operations: u64) -> Result<(), Fault> {
        for number in 0..operations {
            if let Err(fault) = self.step(number) {
                let history = self.history.iter().cloned().collect();
                return Err(Fault { history, ..fault });
            }
        }
        Ok(())
    }

    fn step(&mut self, number: u64) -> Result<(), Fault> {
        let sum = Deed::WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.chance.below(sum);
        let weighted = Deed::WEIGHTS.iter().find(|(_, weight)| {
            let is_it = drawn < *weight;
            drawn = drawn.wrapping_sub(*weight);
            is_it
        });
        let deed = weighted.expect("it is below the sum").0;
        let clients = u32::try_from(self.clients.len()).expect("there are few");
        let side = match self.chance.below(2 + clients) {
            0 => Side::Mount,
            drawn if drawn >= 2 && can_do(deed) => Side::Nfs(drawn as usize - 2),
            _ => Side::Direct,
        };
        self.by_mount += u64::from(side == Side::Mount);
        if self.history.len() > 30 {
            self.history.pop_front();
        }
        self.history
            .push_back(format!("{number}: {deed:?} by {side:?}"));
        self.act(deed, side)?;
        if number.is_multiple_of(50) {
            let directories: Vec<u64> = self.model.entries.keys().copied().collect();
            for directory in directories {
                self.check_listing(directory)?;
                self.check_listing_by_nfs(directory)?;
            }
        }
        Ok(())
    }

    pub fn tell(&mut self, what: String) {
        let last = self.history.back_mut().expect("a step has begun");
        last.push_str(": ");
        last.push_str(&what);
    }

    pub fn any_directory(&mut self) -> u64 {
        let at = self.chance.index(self.model.entries.len());
        *self
            .model
            .entries
            .keys()
            .nth(at)
            .expect("it is below the count")
    }

    pub fn any_name(&mut self) -> String {
        NAMES[self.chance.index(NAMES.len())].to_string()
    }

    /// A random name of such a file.
    pub fn any_entry(&mut self, is_it: impl Fn(&ModelFile) -> bool) -> Option<(u64, String, u64)> {
        self.any_entry_of(|model, id| is_it(&model.files[id]))
    }

    fn any_entry_of(&mut self, is_it: impl Fn(&Model, &u64) -> bool) -> Option<(u64, String, u64)> {
        let mut all = Vec::new();
        for (directory, entries) in &self.model.entries {
            let found = entries.iter().filter(|(_, id)| is_it(&self.model, id));
            all.extend(found.map(|(name, id)| (*directory, name.clone(), *id)));
        }
        match all.len() {
            0 => None,
            count => Some(all.swap_remove(self.chance.index(count))),
        }
    }

    pub fn any_regular(&mut self) -> Option<(u64, String, u64)> {
        self.any_entry(|file| file.kind == FileKind::Regular)
    }

    /// A free name in some directory.
    pub fn free_name(&mut self) -> Option<(u64, String)> {
        let (directory, name) = (self.any_directory(), self.any_name());
        self.model
            .find(directory, &name)
            .is_none()
            .then_some((directory, name))
    }

    fn act(&mut self, deed: Deed, side: Side) -> Result<(), Fault> {
        match deed {
            Deed::Create | Deed::MakeDirectory | Deed::Symlink => self.make(deed, side),
            Deed::Link => self.link(side),
            Deed::Unlink | Deed::RemoveDirectory => self.remove(deed, side),
            Deed::Rename => self.rename(side),
            Deed::Write | Deed::Append | Deed::WriteAsUser => self.write(deed, side),
            Deed::Truncate | Deed::Punch | Deed::Extend => self.resize(deed, side),
            Deed::Chmod | Deed::Chown | Deed::Times => self.set_attributes(deed, side),
            Deed::SetXattr | Deed::RemoveXattr | Deed::SetAcl => self.set_xattr(deed, side),
            Deed::Copy => self.copy(side),
            Deed::Unnamed => self.make_unnamed(side),
            Deed::Open => self.open_file(),
            Deed::Close => self.close_file(),
            Deed::Store => self.store(),
            Deed::Lock => self.lock(side),
        }
    }

    fn make(&mut self, deed: Deed, side: Side) -> Result<(), Fault> {
        let Some((directory, name)) = self.free_name() else {
            return Ok(());
        };
        if deed == Deed::MakeDirectory && self.model.depth(directory) >= 3 {
            return Ok(());
        }
        self.check_missing(directory, &name)?;
        self.check_file(directory)?;
        let path = self.path(directory, &name);
        self.tell(format!("{path:?}"));
        let target = format!("target-{}", self.chance.below(1000));
        let kind = match deed {
            Deed::Create => FileKind::Regular,
            Deed::MakeDirectory => FileKind::Directory,
            _ => FileKind::SymbolicLink,
        };
        let permissions = match kind {
            FileKind::Regular => 0o644,
            FileKind::Directory => 0o755,
            _ => 0o777,
        };
        let id = match side {
            Side::Mount => {
                match kind {
                    FileKind::Regular => {
                        let mut options = OpenOptions::new();
                        options.write(true).create_new(true).mode(permissions);
                        options.open(&path).map_err(failed).map(drop)?;
                    }
                    FileKind::Directory => {
                        let mut builder = std::fs::DirBuilder::new();
                        builder.mode(permissions).create(&path).map_err(failed)?;
                    }
                    _ => std::os::unix::fs::symlink(&target, &path).map_err(failed)?,
                }
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::statat(CWD, &path, flags).map_err(said)?.st_ino
            }
            Side::Nfs(which) => {
                let place = (directory, &name[..]);
                self.make_by_nfs(which, kind, place, permissions, &target)?
            }
            Side::Direct => {
                let new = NewFile {
                    kind,
                    permissions,
                    umask: 0,
                    device: DeviceNumber::default(),
                    target: (kind == FileKind::SymbolicLink).then_some(target.as_bytes()),
                };
                let operation = self.operation(Some(deed));
                let made = (self.files).create(
                    &self.user,
                    id_of(directory),
                    name.as_bytes(),
                    &new,
                    &operation,
                );
                made.map_err(refused)?.id.get()
            }
        };
        let mut file = ModelFile::new(kind, permissions);
        if kind == FileKind::SymbolicLink {
            file.target = target;
        }
        if kind == FileKind::Directory {
            self.model.entries.insert(id, BTreeMap::new());
        }
        self.model.files.insert(id, file);
        self.model.add_name(id, directory, &name);
        self.check_file(directory)?;
        self.check_file(id)
    }

    fn make_unnamed(&mut self, side: Side) -> Result<(), Fault> {
        let Some((directory, name)) = self.free_name() else {
            return Ok(());
        };
        self.check_file(directory)?;
        let bytes = self.chance.bytes(100);
        let path = self.path(directory, &name);
        self.tell(format!("{path:?}"));
        let id = match side {
            Side::Mount => {
                let above = self.root.join(self.model.path_of(directory));
                let flags = OFlags::TMPFILE | OFlags::RDWR;
                let file = rustix::fs::open(&above, flags, Mode::from_raw_mode(0o600));
                let file = file.map_err(said)?;
                rustix::io::write(&file, &bytes).map_err(said)?;
                rustix::fs::linkat(&file, c"", CWD, &path, AtFlags::EMPTY_PATH).map_err(said)?;
                rustix::fs::fstat(&file).map_err(said)?.st_ino
            }
            Side::Direct | Side::Nfs(_) => {
                let new = NewFile {
                    kind: FileKind::Regular,
                    permissions: 0o600,
                    umask: 0,
                    device: DeviceNumber::default(),
                    target: None,
                };
                let (user, parent) = (&self.user, id_of(directory));
                let operation = self.operation(Some(Deed::Unnamed));
                let files = &self.files;
                let made = files.create_unnamed(user, parent, &new, &operation);
                let id = made.map_err(refused)?.id;
                let written = files.write(user, id, WriteAt::Offset(0), &bytes, &operation);
                written.map_err(refused)?;
                let linked = files.link(user, id, parent, name.as_bytes(), &operation);
                linked.map_err(refused)?;
                files.closed(id, &operation).map_err(refused)?;
                id.get()
            }
        };
        let mut file = ModelFile::new(FileKind::Regular, 0o600);
        file.contents = bytes;
        self.model.files.insert(id, file);
        self.model.add_name(id, directory, &name);
        self.check_file(directory)?;
        self.check_file(id)
    }

    fn link(&mut self, side: Side) -> Result<(), Fault> {
        let (Some((directory, name)), Some((from, old, id))) =
            (self.free_name(), self.any_regular())
        else {
            return Ok(());
        };
        self.check_missing(directory, &name)?;
        self.check_file(id)?;
        let (path, old) = (self.path(directory, &name), self.path(from, &old));
        self.tell(format!("{old:?} {path:?}"));
        match side {
            Side::Mount => std::fs::hard_link(&old, &path).map_err(failed)?,
            Side::Nfs(which) => self.link_by_nfs(which, id, (directory, &name))?,
            Side::Direct => {
                let operation = self.operation(Some(Deed::Link));
                let (parent, name) = (id_of(directory), name.as_bytes());
                let linked = (self.files).link(&self.user, id_of(id), parent, name, &operation);
                linked.map_err(refused)?;
            }
        }
        self.model.add_name(id, directory, &name);
        self.check_file(directory)?;
        self.check_file(id)
    }

    fn remove(&mut self, deed: Deed, side: Side) -> Result<(), Fault> {
        let is_directory = deed == Deed::RemoveDirectory;
        // Only empty ones of directories.
        let is_it = |model: &Model, id: &u64| match is_directory {
            true => model.entries.get(id).is_some_and(BTreeMap::is_empty),
            false => !model.files[id].is_directory(),
        };
        let Some((directory, name, id)) = self.any_entry_of(is_it) else {
            return Ok(());
        };
        self.check_file(id)?;
        self.check_file(directory)?;
        let path = self.path(directory, &name);
        self.tell(format!("{path:?}"));
        match (side, is_directory) {
            (Side::Mount, true) => std::fs::remove_dir(&path).map_err(failed)?,
            (Side::Mount, false) => std::fs::remove_file(&path).map_err(failed)?,
            (Side::Nfs(which), _) => {
                self.remove_by_nfs(which, is_directory, (directory, &name))?;
            }
            (Side::Direct, _) => {
                let operation = self.operation(Some(deed));
                let (files, user, parent) = (&self.files, &self.user, id_of(directory));
                let removed = match is_directory {
                    true => files.remove_directory(user, parent, name.as_bytes(), &operation),
                    false => files.unlink(user, parent, name.as_bytes(), &operation),
                };
                removed.map_err(refused)?;
            }
        }
        self.model.remove_name(directory, &name);
        self.check_missing(directory, &name)?;
        self.check_file(directory)?;
        self.check_or_forget(id)
    }

    /// Checks a file, or removes it from the model where it has lost its last name.
    pub fn check_or_forget(&mut self, id: u64) -> Result<(), Fault> {
        let has_names = !self.model.files[&id].names.is_empty();
        if has_names || self.open.iter().any(|open| open.id == id) {
            return self.check_file(id);
        }
        self.dirty.remove(&id);
        self.locks.remove(&id);
        self.model.forget(id);
        Ok(())
    }

    fn rename(&mut self, side: Side) -> Result<(), Fault> {
        let Some((from_directory, from, id)) = self.any_entry(|_| true) else {
            return Ok(());
        };
        let (to_directory, to) = (self.any_directory(), self.any_name());
        let target = self.model.find(to_directory, &to);
        let is_directory = self.model.files[&id].is_directory();
        if is_directory
            && (self.model.is_within(to_directory, id) || self.model.depth(to_directory) >= 2)
        {
            return Ok(());
        }
        let exchanges = target.is_some() && self.chance.below(3) == 0;
        if let Some(target) = target {
            let is_above = self.model.files[&target].is_directory()
                && self.model.is_within(from_directory, target);
            let fits = is_directory == self.model.files[&target].is_directory();
            let is_empty = self
                .model
                .entries
                .get(&target)
                .is_none_or(|entries| entries.is_empty());
            if target == id || is_above || (!exchanges && (!fits || !is_empty)) {
                return Ok(());
            }
            self.check_file(target)?;
        } else {
            self.check_missing(to_directory, &to)?;
        }
        self.check_file(id)?;
        let (old, new) = (
            self.path(from_directory, &from),
            self.path(to_directory, &to),
        );
        self.tell(format!("{old:?} {new:?} exchanges: {exchanges}"));
        match side {
            Side::Mount => {
                let flags = match exchanges {
                    true => RenameFlags::EXCHANGE,
                    false => RenameFlags::empty(),
                };
                rustix::fs::renameat_with(CWD, &old, CWD, &new, flags).map_err(said)?;
            }
            Side::Nfs(which) if !exchanges => {
                self.rename_by_nfs(which, (from_directory, &from), (to_directory, &to))?;
            }
            Side::Direct | Side::Nfs(_) => {
                let mode = match exchanges {
                    true => RenameMode::Exchange,
                    false => RenameMode::Replace,
                };
                let operation = self.operation(Some(Deed::Rename));
                let renamed = (self.files).rename(
                    &self.user,
                    id_of(from_directory),
                    from.as_bytes(),
                    id_of(to_directory),
                    to.as_bytes(),
                    mode,
                    &operation,
                );
                renamed.map_err(refused)?;
            }
        }
        self.model.remove_name(from_directory, &from);
        if let Some(target) = target {
            self.model.remove_name(to_directory, &to);
            if exchanges {
                self.model.add_name(target, from_directory, &from);
            }
        }
        self.model.add_name(id, to_directory, &to);
        self.check_file(from_directory)?;
        self.check_file(to_directory)?;
        self.check_file(id)?;
        if !exchanges {
            self.check_missing(from_directory, &from)?;
        }
        target.map_or(Ok(()), |target| self.check_or_forget(target))
    }
}
