//! What actors do: one call after the other on a file system, drawn by chance from those that its
//! state allows.
//!
//! A call is written down before it is made. Refusals for want of room are answers; any other
//! refusal is a finding, for the model knows that the call is possible.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tarn_engine::files::{
    Credentials, DeviceNumber, FileKind, FileSystem, NewFile, ObjectId, PosixError, RenameMode,
    WriteAt,
};
use tarn_host::Host;
use tarn_host::sim::Random;
use tarn_hostile::house::operation;

use crate::history::{Asked, Commit, History, Inode, Naming, What};
use crate::judge::tell;

/// Folders in which all actors have names.
pub const SHARED: [&str; 2] = ["s0", "s1"];
/// Files do not grow beyond this.
pub(crate) const SIZE_MAX: usize = 400_000;
/// Names an actor has at most.
const NAMES_MAX: usize = 40;
/// How many bytes some attributes have: too many for a place beside the others. All that have fewer
/// have room there together.
pub(crate) const LARGE_XATTR_BYTES: Range<usize> = 33_000..50_000;
/// Names of attributes.
pub(crate) const XATTRS: [&str; 3] = ["user.a", "user.bb", "security.c"];
/// So many lines of the trace are kept.
const TRACE_MAX: usize = 4000;

/// What a file system does with requests for durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// `sync=standard`.
    Standard,
    /// `sync=always`.
    Always,
    /// `sync=disabled`.
    Disabled,
}

/// Everything actors share: the history, and a trace of what happened.
#[derive(Debug, Clone, Default)]
pub struct Book {
    inner: Arc<Mutex<Pages>>,
}

/// What is in the book.
#[derive(Debug, Default)]
pub struct Pages {
    /// The history.
    pub history: History,
    /// What the administrator has done.
    pub admin: crate::administered::Log,
    /// The checkpoint of the pool.
    pub checkpoint: crate::checkpoint::Checkpoint,
    /// What was done with devices.
    pub devices: crate::devices::Counts,
    /// What happened, in lines.
    pub trace: Vec<String>,
    /// Findings: calls that should not have been refused.
    pub findings: Vec<String>,
}

impl Book {
    /// The pages. Never held while the file system is called.
    pub fn pages(&self) -> MutexGuard<'_, Pages> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: String) {
        self.pages().note(line);
    }
}

impl Pages {
    /// The administrator begins or ends a command.
    pub fn set_admin_under_way(&mut self, command: Option<crate::administered::Command>) {
        self.admin.under_way = command;
        self.checkpoint.see_admin(&self.admin);
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, line: String) {
        if self.trace.len() >= TRACE_MAX {
            self.trace.drain(..TRACE_MAX / 2);
        }
        self.trace.push(line);
    }
}

/// How an actor chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taste {
    /// Everything.
    Mixed,
    /// Names, mostly.
    Names,
    /// Small durable writes, mostly.
    Database,
    /// Large files, seldom durable.
    Bulk,
    /// The log against the groups: its disk is late, and both are asked for all the time.
    Race,
    /// Little of everything: an administrator is at work all the time.
    Administration,
}

/// One actor at work in one life of a machine.
pub struct Worker {
    /// His number in the history.
    pub number: usize,
    /// The book.
    pub book: Book,
    /// His file system.
    pub files: Arc<FileSystem>,
    /// Its policy.
    pub promise: Promise,
    /// What he prefers.
    pub taste: Taste,
    /// From which he draws.
    pub random: Random,
    /// The machine.
    pub host: Host,
    /// Files that are open, whether or not they have a name.
    pub open: Vec<ObjectId>,
}

/// Why an actor stops.
#[derive(Debug)]
pub struct Stopped;

pub(crate) type Step = Result<(), Stopped>;

impl Worker {
    /// Makes so many calls.
    pub fn work(mut self, calls: usize) {
        for _ in 0..calls {
            if self.step().is_err() {
                return;
            }
            self.pause();
        }
        for id in std::mem::take(&mut self.open) {
            let _ = self.files.closed(id, &operation());
        }
    }

    fn pause(&mut self) {
        let wait = match self.random.below(40) {
            0..32 => return,
            32..38 => Duration::from_micros(self.random.below(3000)),
            38 => Duration::from_millis(self.random.below(300)),
            _ => Duration::from_millis(self.random.below(6000)),
        };
        self.host.sleep(wait);
    }

    /// One call, and perhaps a request for durability.
    pub fn step(&mut self) -> Step {
        let chance = self.random.below(100);
        let (sync, all) = match self.taste {
            Taste::Mixed | Taste::Administration => (14, 1),
            Taste::Names => (8, 1),
            Taste::Database => (40, 0),
            Taste::Bulk => (3, 1),
            Taste::Race => (45, 10),
        };
        if chance < sync {
            return self.sync_one();
        }
        if chance < sync + all {
            return self.sync_all();
        }
        let names = match self.taste {
            Taste::Mixed | Taste::Administration => 40,
            Taste::Names => 85,
            Taste::Database => 12,
            Taste::Bulk | Taste::Race => 20,
        };
        match self.random.below(100) < names || self.regular().is_none() {
            true => self.change_names(),
            false => self.change_file(),
        }
    }

    /// A regular file of his with one of its names.
    pub(crate) fn regular(&mut self) -> Option<(String, Inode)> {
        self.pick(|kind| kind == FileKind::Regular)
    }

    pub(crate) fn pick(&mut self, wanted: impl Fn(FileKind) -> bool) -> Option<(String, Inode)> {
        let book = self.book.clone();
        let pages = book.pages();
        let actor = &pages.history.actors[self.number];
        let names: Vec<_> = actor
            .now
            .iter()
            .filter(|(path, inode)| path.contains('/') && wanted(actor.files[**inode].first.kind))
            .collect();
        let (path, inode) = names.get(self.random.index(names.len()))?;
        Some(((*path).clone(), **inode))
    }

    /// A name that is free, in a folder that is there.
    fn free_name(&mut self) -> Option<String> {
        let prefix = self.book.pages().history.actors[self.number].prefix.clone();
        for _ in 0..8 {
            let number = self.random.below(60);
            // Long ones make directories grow.
            let tail = match self.random.below(12) {
                0 => "x".repeat(40 + self.random.index(120)),
                _ => String::new(),
            };
            let path = match self.random.below(4) {
                0 => {
                    let folder = SHARED[self.random.index(SHARED.len())];
                    format!("{folder}/{prefix}_{number}{tail}")
                }
                1 => match self.pick(|kind| kind == FileKind::Directory) {
                    Some((folder, _)) => format!("{folder}/{number}{tail}"),
                    None => format!("{prefix}/{number}{tail}"),
                },
                _ => format!("{prefix}/{number}{tail}"),
            };
            let pages = self.book.pages();
            let now = &pages.history.actors[self.number].now;
            if !now.contains_key(&path) && path.len() < 900 {
                return Some(path);
            }
        }
        None
    }

    pub(crate) fn content(&mut self, length: usize) -> Vec<u8> {
        match self.random.below(4) {
            0 => {
                let word = self.random.draw().to_le_bytes();
                word.iter().copied().cycle().take(length).collect()
            }
            _ => {
                let mut bytes = vec![0; length];
                self.random.fill(&mut bytes);
                bytes
            }
        }
    }

    /// Writes down that a call begins.
    fn begin(&self, what: What) {
        let mut pages = self.book.pages();
        let begin = pages.history.tick();
        let told = tell(&what);
        let now = self.host.monotonic_ns() / 1000;
        pages.note(format!("{now} us, actor {}: [{begin}] {told}", self.number));
        pages.history.actors[self.number]
            .calls
            .push(crate::history::Call {
                what,
                begin,
                end: None,
            });
    }

    /// Writes down how a call ended.
    fn end<T>(&self, outcome: Result<T, PosixError>) -> Result<Option<T>, Stopped> {
        let mut pages = self.book.pages();
        let end = pages.history.tick();
        let actor = &mut pages.history.actors[self.number];
        match outcome {
            Ok(value) => {
                actor.succeed(end);
                Ok(Some(value))
            }
            Err(PosixError::NoSpace | PosixError::QuotaExceeded) => {
                actor.calls.pop();
                pages.note(format!("actor {}: no room", self.number));
                Ok(None)
            }
            Err(error) => {
                let text = format!("actor {}: {error}", self.number);
                pages.note(text.clone());
                pages.findings.push(text);
                Err(Stopped)
            }
        }
    }

    /// Makes a call that changes something. With `sync=always` it comes with a request for the
    /// durability of everything.
    pub(crate) fn change<T>(
        &self,
        what: What,
        make: impl FnOnce(&Worker) -> Result<T, PosixError>,
    ) -> Result<Option<T>, Stopped> {
        self.begin(what);
        let dataset = {
            let mut pages = self.book.pages();
            let actor = &pages.history.actors[self.number];
            let (dataset, last) = (actor.dataset, actor.calls.len() - 1);
            if self.promise == Promise::Always {
                let begin = actor.calls[last].begin;
                pages.history.commits.push(Commit {
                    dataset,
                    asked: Asked::All(Some((self.number, last))),
                    begin,
                    end: None,
                });
            }
            dataset
        };
        let made = self.end(make(self))?;
        if self.promise == Promise::Always {
            let mut pages = self.book.pages();
            let end = pages.history.tick();
            let is_mine = |commit: &&mut Commit| {
                commit.dataset == dataset
                    && commit.end.is_none()
                    && matches!(commit.asked, Asked::All(Some((actor, _))) if actor == self.number)
            };
            let mut commits = pages.history.commits.iter_mut().rev();
            let mine = commits.find(is_mine).map(|commit| {
                match made {
                    Some(_) => commit.end = Some(end),
                    // A change that was refused asks for nothing; the call it names will be another
                    // one.
                    None => {
                        commit.asked = Asked::All(None);
                        (commit.begin, commit.end) = (0, Some(0));
                    }
                }
            });
            debug_assert!(mine.is_some());
        }
        Ok(made)
    }

    pub(crate) fn find(&self, path: &str) -> Result<ObjectId, PosixError> {
        let mut id = self.files.root();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let root = Credentials::root();
            id = self
                .files
                .lookup(&root, id, part.as_bytes(), &operation())?
                .id;
        }
        Ok(id)
    }

    /// The folder and the last part of a path.
    fn place<'a>(&self, path: &'a str) -> Result<(ObjectId, &'a [u8]), PosixError> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(folder)?, name.as_bytes()))
    }

    fn change_names(&mut self) -> Step {
        let count = {
            let pages = self.book.pages();
            pages.history.actors[self.number].now.len()
        };
        let make = if count < NAMES_MAX { 45 } else { 5 };
        match self.random.below(100) {
            chance if chance < make => self.make_one(),
            chance if chance < make + 25 => self.rename_one(),
            chance if chance < make + 32 => self.link_one(),
            _ => self.remove_one(),
        }
    }

    fn make_one(&mut self) -> Step {
        if self.random.chance(1, 12) {
            return self.keep_unnamed();
        }
        let Some(path) = self.free_name() else {
            return Ok(());
        };
        if self.random.chance(1, 8) {
            let length = self.random.index(SIZE_MAX / 4);
            let bytes = self.content(length);
            return self.make_late(&path, &bytes);
        }
        let (kind, target) = match self.random.below(20) {
            0..13 => (FileKind::Regular, None),
            13..17 => (FileKind::Directory, None),
            17..19 => {
                let length = 1 + self.random.index(200);
                (
                    FileKind::SymbolicLink,
                    Some("t".repeat(length).into_bytes()),
                )
            }
            _ => (FileKind::Fifo, None),
        };
        let mode = match kind {
            FileKind::SymbolicLink => 0o777,
            _ => 0o600 | u32::try_from(self.random.below(0o200)).unwrap_or(0),
        };
        self.make(&path, kind, mode, target).map(drop)
    }

    /// Makes a file, and gives back which.
    ///
    /// # Errors
    /// A finding.
    pub fn make(
        &self,
        path: &str,
        kind: FileKind,
        mode: u32,
        target: Option<Vec<u8>>,
    ) -> Result<Option<Inode>, Stopped> {
        let inode = {
            let mut pages = self.book.pages();
            let actor = &mut pages.history.actors[self.number];
            actor.make(kind, mode, target.clone().unwrap_or_default())
        };
        let naming = Naming::Make {
            path: path.to_string(),
            inode,
        };
        let made = self.change(What::Naming(naming, Vec::new()), |worker| {
            let new = NewFile {
                kind,
                permissions: mode,
                umask: 0,
                device: DeviceNumber::default(),
                target: target.as_deref(),
            };
            let (folder, name) = worker.place(path)?;
            let root = Credentials::root();
            worker.files.create(&root, folder, name, &new, &operation())
        })?;
        let Some(made) = made else { return Ok(None) };
        let mut pages = self.book.pages();
        pages.history.actors[self.number].files[inode].id = Some(made.id.get());
        Ok(Some(inode))
    }

    /// Makes a file without a name, writes it, and then gives it its name: it has it with all of
    /// its bytes or not at all.
    fn make_late(&self, path: &str, bytes: &[u8]) -> Step {
        let mode = 0o600;
        let inode = {
            let mut pages = self.book.pages();
            let actor = &mut pages.history.actors[self.number];
            actor.make(FileKind::Regular, mode, bytes.to_vec())
        };
        let naming = Naming::Make {
            path: path.to_string(),
            inode,
        };
        let made = self.change(What::Naming(naming, Vec::new()), |worker| {
            let (folder, name) = worker.place(path)?;
            let root = Credentials::root();
            let id = worker.make_unnamed(folder, bytes)?;
            let linked = worker.files.link(&root, id, folder, name, &operation());
            worker.files.closed(id, &operation())?;
            linked.map(|_| id)
        })?;
        if let Some(id) = made {
            let mut pages = self.book.pages();
            pages.history.actors[self.number].files[inode].id = Some(id.get());
        }
        Ok(())
    }

    /// A file without a name, with these bytes, which is open; none if there is no room for them.
    fn make_unnamed(&self, folder: ObjectId, bytes: &[u8]) -> Result<ObjectId, PosixError> {
        let new = NewFile {
            kind: FileKind::Regular,
            permissions: 0o600,
            umask: 0,
            device: DeviceNumber::default(),
            target: None,
        };
        let root = Credentials::root();
        let id = self
            .files
            .create_unnamed(&root, folder, &new, &operation())?
            .id;
        let written = self
            .files
            .write(&root, id, WriteAt::Offset(0), bytes, &operation());
        let outcome = match written {
            Ok(count) if count == bytes.len() => return Ok(id),
            Ok(_) => Err(PosixError::NoSpace),
            Err(error) => Err(error),
        };
        self.files.closed(id, &operation())?;
        outcome
    }

    /// Makes a file without a name that never gets one: nothing of it is durable, and
    /// nothing of it is to be left.
    fn keep_unnamed(&mut self) -> Step {
        let length = self.random.index(SIZE_MAX / 4);
        let bytes = self.content(length);
        match self.make_unnamed(self.files.root(), &bytes) {
            Ok(id) => return self.keep(id),
            Err(PosixError::NoSpace | PosixError::QuotaExceeded) => {}
            Err(error) => return self.end::<()>(Err(error)).map(drop),
        }
        Ok(())
    }

    fn link_one(&mut self) -> Step {
        let wanted = |kind| kind == FileKind::Regular;
        let (Some((from, inode)), Some(path)) = (self.pick(wanted), self.free_name()) else {
            return Ok(());
        };
        self.link(&from, &path, inode)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// A finding.
    pub fn link(&self, from: &str, path: &str, inode: Inode) -> Step {
        let naming = Naming::Link {
            path: path.to_string(),
            inode,
        };
        self.change(What::Naming(naming, Vec::new()), |worker| {
            let id = worker.find(from)?;
            let (folder, name) = worker.place(path)?;
            let root = Credentials::root();
            worker.files.link(&root, id, folder, name, &operation())
        })
        .map(drop)
    }

    fn remove_one(&mut self) -> Step {
        let Some((path, inode)) = self.pick(|_| true) else {
            return Ok(());
        };
        let kind = self.kind(inode);
        if kind == FileKind::Directory && self.has_below(&path) {
            return Ok(());
        }
        if kind == FileKind::Regular && self.random.chance(1, 4) {
            self.keep_open(&path)?;
        }
        self.remove(&path, kind)
    }

    /// Removes a name.
    ///
    /// # Errors
    /// A finding.
    pub fn remove(&self, path: &str, kind: FileKind) -> Step {
        let naming = Naming::Remove {
            path: path.to_string(),
        };
        self.change(What::Naming(naming, Vec::new()), |worker| {
            let (folder, name) = worker.place(path)?;
            let (root, files) = (Credentials::root(), &worker.files);
            match kind {
                FileKind::Directory => files.remove_directory(&root, folder, name, &operation()),
                _ => files.unlink(&root, folder, name, &operation()),
            }
        })
        .map(drop)
    }

    /// Opens a file that is about to lose its name, and goes on using it: none of that is promised
    /// to be durable.
    fn keep_open(&mut self, path: &str) -> Step {
        let opened = self
            .find(path)
            .and_then(|id| self.files.opened(id, &operation()).map(|()| id));
        match opened {
            Ok(id) => self.keep(id),
            Err(error) => self.end::<()>(Err(error)).map(drop),
        }
    }

    /// Keeps a file open, and closes another if there are many.
    fn keep(&mut self, id: ObjectId) -> Step {
        self.open.push(id);
        if self.open.len() > 3 {
            let id = self.open.remove(self.random.index(3));
            if let Err(error) = self.files.closed(id, &operation()) {
                return self.end::<()>(Err(error)).map(drop);
            }
        }
        Ok(())
    }

    pub(crate) fn kind(&self, inode: Inode) -> FileKind {
        self.book.pages().history.actors[self.number].files[inode]
            .first
            .kind
    }

    /// Whether a folder has something in it.
    pub fn has_below(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let pages = self.book.pages();
        let now = &pages.history.actors[self.number].now;
        now.keys().any(|name| name.starts_with(&below))
    }

    fn rename_one(&mut self) -> Step {
        let Some((from, inode)) = self.pick(|_| true) else {
            return Ok(());
        };
        let exchange = self.random.chance(1, 5);
        let replace = self.random.chance(1, 3);
        let target = match exchange || replace {
            true => self.pick(|_| true),
            false => None,
        };
        let Some((to, other)) = target else {
            let Some(to) = self.free_name() else {
                return Ok(());
            };
            if to.starts_with(&format!("{from}/")) {
                return Ok(());
            }
            let mode = match self.random.chance(1, 3) {
                true => RenameMode::NoReplace,
                false => RenameMode::Replace,
            };
            return self.rename(&from, &to, mode, vec![inode]);
        };
        let inside = |one: &str, other: &str| one == other || one.starts_with(&format!("{other}/"));
        if inside(&from, &to) || inside(&to, &from) {
            return Ok(());
        }
        // Two names of one file: nothing moves, and so nothing is ordered by it.
        let moved = |files: &[Inode]| match inode == other {
            true => Vec::new(),
            false => files.to_vec(),
        };
        if exchange {
            return self.rename(&from, &to, RenameMode::Exchange, moved(&[inode, other]));
        }
        let are_folders = [inode, other].map(|inode| self.kind(inode) == FileKind::Directory);
        if are_folders[0] != are_folders[1] || (are_folders[1] && self.has_below(&to)) {
            return Ok(());
        }
        let mode = match self.random.chance(1, 5) {
            true => RenameMode::Whiteout,
            false => RenameMode::Replace,
        };
        self.rename(&from, &to, mode, moved(&[inode]))
    }

    /// Renames.
    ///
    /// # Errors
    /// A finding.
    pub fn rename(&self, from: &str, to: &str, mode: RenameMode, moved: Vec<Inode>) -> Step {
        let leaves = matches!(mode, RenameMode::Whiteout | RenameMode::WhiteoutNoReplace);
        let left = leaves.then(|| {
            let mut pages = self.book.pages();
            let actor = &mut pages.history.actors[self.number];
            actor.make(FileKind::CharacterDevice, 0, Vec::new())
        });
        let naming = match (mode, left) {
            (_, Some(inode)) => Naming::Whiteout {
                from: from.to_string(),
                to: to.to_string(),
                inode,
            },
            (RenameMode::Exchange, _) => Naming::Exchange {
                one: from.to_string(),
                other: to.to_string(),
            },
            _ => Naming::Rename {
                from: from.to_string(),
                to: to.to_string(),
            },
        };
        self.change(What::Naming(naming, moved), |worker| {
            let (folder, name) = worker.place(from)?;
            let (to_folder, to_name) = worker.place(to)?;
            let root = Credentials::root();
            worker
                .files
                .rename(&root, folder, name, to_folder, to_name, mode, &operation())
        })
        .map(drop)
    }

    fn sync_one(&mut self) -> Step {
        let Some((path, inode)) =
            self.pick(|kind| matches!(kind, FileKind::Regular | FileKind::Directory))
        else {
            return Ok(());
        };
        self.sync_file(&path, inode)
    }

    /// Has a file made durable.
    ///
    /// # Errors
    /// A finding.
    pub fn sync_file(&self, path: &str, inode: Inode) -> Step {
        let id = match self.find(path) {
            Ok(id) => id,
            Err(error) => return self.refused(error),
        };
        let commit = {
            let mut pages = self.book.pages();
            let begin = pages.history.tick();
            pages.note(format!("actor {}: [{begin}] fsync #{inode}", self.number));
            let dataset = pages.history.actors[self.number].dataset;
            pages.history.commits.push(Commit {
                dataset,
                asked: Asked::File(self.number, inode),
                begin,
                end: None,
            });
            pages.history.commits.len() - 1
        };
        let outcome = self.files.sync(id, false, &operation());
        let mut pages = self.book.pages();
        let end = pages.history.tick();
        match outcome {
            Ok(()) => {
                pages.note(format!("actor {}: [{end}] fsync returned", self.number));
                match self.promise {
                    Promise::Disabled => {
                        pages.history.commits[commit].begin = 0;
                        pages.history.commits[commit].end = Some(0);
                    }
                    _ => pages.history.commits[commit].end = Some(end),
                }
                Ok(())
            }
            Err(error) => {
                drop(pages);
                self.refused(error)
            }
        }
    }

    pub(crate) fn refused(&self, error: PosixError) -> Step {
        let mut pages = self.book.pages();
        let text = format!("actor {}: {error}", self.number);
        pages.note(text.clone());
        pages.findings.push(text);
        Err(Stopped)
    }

    pub(crate) fn sync_all(&self) -> Step {
        let begin = {
            let mut pages = self.book.pages();
            let begin = pages.history.tick();
            pages.note(format!("actor {}: [{begin}] syncfs", self.number));
            begin
        };
        match self.files.sync_all(&operation()) {
            Ok(()) => {
                let mut pages = self.book.pages();
                let end = pages.history.tick();
                pages.note(format!("actor {}: [{end}] syncfs returned", self.number));
                pages.history.stored = pages.history.stored.max(begin);
                Ok(())
            }
            Err(error) => self.refused(error),
        }
    }
}
