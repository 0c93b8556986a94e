//! Changes made one after the other, of which a crash may take the last ones and no others.
//!
//! # Problem
//! A file system that loses its server in the middle of work must come back as it was at some moment: with everything
//! that was promised to be durable, and with nothing out of order. Looking at the files that were made durable finds only what is
//! missing. What came back too early, half or twice is found only by somebody who knows all states that there were.
//!
//! # Mechanism
//! One thread changes a directory, one system call after the other, and writes each down before it makes it. After the crash the
//! directory is compared with all that it may be. That is told by three rules:
//!
//! - All calls up to some moment are there, at least those that the caller knows to be stored ([`Ledger::count`],
//!   [`Ledger::promise`]).
//! - Of later calls, those are there that an `fsync` which succeeded has promised: all changes of names before it, those of its
//!   file before it, and those of a file before such a change of its name. No other change of names is there.
//! - Of a file that is not promised, more calls may be there, from the first on, as far as the last `fsync`: an intent log
//!   may have stored them with what it was asked for.
//!   It stores bytes as they are by then. So where a change of its name promised a file, each byte may be one of those it had since.
//! - An `fsync` that did not return may have kept its promise in part.
//! - The kernel may hand over one write in two pieces, cut where a page ends. So at the moment itself a write may be half there.
//!
//! The moment is not known; so all are tried, each a step from the one before.
//!
//! # Invariants
//! - A call changes one file or one or two names, and is small enough to reach the file system as one request, but for what was said of
//!   writes: so none other may be found half done.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, XattrFlags, fallocate, fsetxattr, getxattr};

use crate::twister::Twister;

/// Directories that the files are in, made by the first calls.
const DIRECTORIES: u32 = 4;
/// Names in each. Few, so that most calls meet a file that exists.
const NAMES: u32 = 24;
/// Files do not grow beyond this: some blocks of the usual size.
const SIZE_MAX: usize = 400_000;
/// One write. Within what the kernel hands over at once.
const WRITE_MAX: usize = 48 << 10;
/// What files are created with: what no usual mask takes anything from.
const NEW_MODE: u32 = 0o600;
/// Where writes may be cut.
const PAGE_BYTES: usize = 4096;
/// So many differences are told.
const DIFFERENCES_MAX: usize = 12;
/// The one extended attribute that is set.
const ATTRIBUTE: &str = "user.ledger";

/// One system call.
#[derive(Debug, Clone)]
enum Call {
    MakeDirectory {
        path: String,
    },
    Create {
        path: String,
    },
    Write {
        path: String,
        at: usize,
        bytes: Vec<u8>,
    },
    SetSize {
        path: String,
        size: usize,
    },
    PunchHole {
        path: String,
        at: usize,
        length: usize,
    },
    SetMode {
        path: String,
        mode: u32,
    },
    SetAttribute {
        path: String,
        value: Vec<u8>,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    Link {
        path: String,
        target: String,
    },
    /// Changes nothing, and promises the last change of this file.
    Sync {
        path: String,
    },
}

impl Call {
    /// Whether it changes names, which every `fsync` promises.
    fn is_of_names(&self) -> bool {
        matches!(
            self,
            Call::MakeDirectory { .. }
                | Call::Create { .. }
                | Call::Rename { .. }
                | Call::Remove { .. }
                | Call::Link { .. }
        )
    }
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Directory,
    Link(String),
    File(Contents),
}

/// A regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Contents {
    mode: u32,
    bytes: Vec<u8>,
    attribute: Option<Vec<u8>>,
}

impl Default for Contents {
    /// As a file is made.
    fn default() -> Contents {
        Contents {
            mode: NEW_MODE,
            bytes: Vec::new(),
            attribute: None,
        }
    }
}

type State = BTreeMap<String, Entry>;

/// The calls made in one directory.
#[derive(Debug)]
pub struct Ledger {
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    /// The directory before the first of `calls`.
    base: State,
    /// The directory after all of them.
    now: State,
    /// Calls made since, the last perhaps only begun.
    calls: Vec<Call>,
    /// How many of them are stored, whatever was asked for.
    stored: usize,
    /// How many have returned.
    done: usize,
    chance: Twister,
}

/// A directory that is as it was at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survived {
    /// How many calls had to be there, all of them.
    pub durable: usize,
    /// How many are there, all of them.
    pub found: usize,
    /// How many calls of `fsync` after these kept their promise.
    pub synced: usize,
    /// How many had been begun.
    pub begun: usize,
}

/// A directory that is as it never was, or no more.
#[derive(Debug)]
pub struct Lost {
    survived: Survived,
    differences: Vec<String>,
}

impl fmt::Display for Lost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Survived {
            durable,
            found,
            synced,
            begun,
        } = self.survived;
        write!(
            out,
            "the directory is not as it can be after any of the calls {durable} (stored) to {begun} (begun) and what {synced} calls of \
             fsync have promised; closest is call {found}, but for:"
        )?;
        self.differences
            .iter()
            .try_for_each(|line| write!(out, "\n  {line}"))
    }
}

impl std::error::Error for Lost {}

/// Why a directory could not be compared, or does not compare.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It is not what it should be.
    #[error("{0}")]
    Lost(#[from] Box<Lost>),
    /// It could not be read.
    #[error("reading {}: {source}", path.display())]
    Unreadable {
        /// What.
        path: PathBuf,
        /// The answer.
        source: io::Error,
    },
}

impl Ledger {
    /// A ledger of an empty directory.
    #[must_use]
    pub fn new(seed: u64) -> Ledger {
        Ledger {
            pages: Mutex::new(Pages {
                base: State::new(),
                now: State::new(),
                calls: Vec::new(),
                stored: 0,
                done: 0,
                chance: Twister::new(seed),
            }),
        }
    }

    /// How many calls have returned.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pages().done
    }

    /// So many calls are stored now.
    pub fn promise(&self, count: usize) {
        let mut pages = self.pages();
        pages.stored = pages.stored.max(count.min(pages.done));
    }

    /// Makes calls in `root` until told to stop, or until one is refused.
    ///
    /// # Errors
    /// The refusal. That call may have been done, or not.
    pub fn run(&self, root: &Path, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let call = {
                let mut pages = self.pages();
                let call = pages.draw();
                apply(&mut pages.now, &call);
                pages.calls.push(call.clone());
                call
            };
            make(root, &call)?;
            let mut pages = self.pages();
            pages.done = pages.calls.len();
        }
        Ok(())
    }

    /// Compares `root` with what it may be, after a crash. What is found is what later calls start from.
    ///
    /// # Errors
    /// If it is not what it may be.
    pub fn check(&self, root: &Path) -> Result<Survived, CheckError> {
        let mut found = State::new();
        read_tree(root, "", &mut found)?;
        let mut pages = self.pages();
        let survived = pages.find(&found)?;
        pages.base = found.clone();
        pages.now = found;
        pages.calls.clear();
        (pages.stored, pages.done) = (0, 0);
        Ok(survived)
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().expect("no thread panics with the pages")
    }
}

impl Pages {
    /// Which calls are there.
    fn find(&self, found: &State) -> Result<Survived, Box<Lost>> {
        let history = History::of(&self.base, &self.calls);
        let synced = (self.stored..self.done)
            .filter(|index| matches!(self.calls[*index], Call::Sync { .. }))
            .count();
        let asked = history.asked(&self.calls, self.done);
        let begun = self.calls.len();
        // What is asked for once more, and was not answered.
        let unanswered = (self.done < begun && matches!(self.calls[begun - 1], Call::Sync { .. }))
            .then(|| history.asked(&self.calls, begun));
        let is_renamed = |index: &usize| matches!(self.calls[*index], Call::Rename { .. });
        let partly = (0..begun)
            .filter(|index| is_renamed(index) || (unanswered.is_some() && *index + 1 == begun))
            .filter_map(|index| history.file[index])
            .collect();
        let limits = Limits {
            promised: asked.files.clone(),
            partly,
            names: unanswered.as_ref().map_or(asked.names, |_| begun),
        };
        let mut guess = Guess::new(&self.base, found, &self.calls, &history, limits);
        let names_of = |from: usize, until: usize| {
            let mut indexes: Vec<usize> = (from..until).collect();
            indexes.retain(|index| history.names[*index]);
            indexes
        };
        guess.moment = self.stored;
        for index in names_of(0, self.stored.max(asked.names)) {
            guess.apply_name(index);
        }
        guess.compare_all();
        let mut closest = (usize::MAX, 0, Vec::new());
        for moment in self.stored..=begun {
            if moment > self.stored {
                guess.step_to(moment, asked.names);
            }
            let mut differing = guess.differing.len();
            if differing > 0 && unanswered.is_some() {
                let more = names_of(moment.max(asked.names), begun);
                if differing <= 2 * more.len() && guess.is_with_some(&more) {
                    differing = 0;
                }
            }
            if differing < closest.0 {
                closest = (differing, moment, guess.differences());
            }
            if closest.0 == 0 {
                break;
            }
        }
        let (differing, moment, differences) = closest;
        let survived = Survived {
            durable: self.stored,
            found: moment,
            synced,
            begun,
        };
        match differing {
            0 => Ok(survived),
            _ => Err(Box::new(Lost {
                survived,
                differences,
            })),
        }
    }

    /// The next call: one that the directory, as it is, allows.
    fn draw(&mut self) -> Call {
        for index in 0..DIRECTORIES {
            let path = format!("d{index}");
            if !self.now.contains_key(&path) {
                return Call::MakeDirectory { path };
            }
        }
        let path = format!(
            "d{}/f{}",
            self.chance.below(DIRECTORIES),
            self.chance.below(NAMES)
        );
        let length = match self.now.get(&path) {
            None if self.chance.below(5) == 0 => {
                let target = format!("to/{}", self.chance.below(1000));
                return Call::Link { path, target };
            }
            None => return Call::Create { path },
            Some(Entry::File(file)) => file.bytes.len(),
            Some(_) => return Call::Remove { path },
        };
        match self.chance.below(100) {
            0..45 => {
                let at = self.chance.index(length.min(SIZE_MAX - WRITE_MAX) + 1);
                let size = 1 + self.chance.index(WRITE_MAX);
                let bytes = self.chance.bytes(size);
                Call::Write { path, at, bytes }
            }
            45..57 => Call::SetSize {
                path,
                size: self.chance.index(SIZE_MAX),
            },
            57..64 => Call::PunchHole {
                path,
                at: self.chance.index(length + 1),
                length: 1 + self.chance.index(200_000),
            },
            64..70 => Call::SetMode {
                path,
                mode: NEW_MODE | self.chance.below(0o200),
            },
            70..76 => {
                let size = 1 + self.chance.index(600);
                let value = self.chance.bytes(size);
                Call::SetAttribute { path, value }
            }
            76..86 => {
                let to = format!(
                    "d{}/f{}",
                    self.chance.below(DIRECTORIES),
                    self.chance.below(NAMES)
                );
                Call::Rename { from: path, to }
            }
            86..95 => Call::Remove { path },
            _ => Call::Sync { path },
        }
    }
}

/// Which file each call was about: files are known by the call that made them, whatever their names were later.
struct History {
    file: Vec<Option<FileNumber>>,
    /// Whether it changes names.
    names: Vec<bool>,
}

/// Files of the beginning by their place in the order of names, and then by the call that made them.
type FileNumber = usize;

/// Up to which call changes of names were promised, and changes of each file.
struct Asked {
    names: usize,
    files: BTreeMap<FileNumber, usize>,
}

impl History {
    fn of(base: &State, calls: &[Call]) -> History {
        let mut names = numbered(base);
        let first = base.len();
        let file = calls.iter().enumerate().map(|(index, call)| match call {
            Call::Create { path } => {
                names.insert(path.clone(), first + index);
                Some(first + index)
            }
            Call::Rename { from, to } => {
                let file = names.remove(from);
                match file {
                    Some(file) => names.insert(to.clone(), file),
                    None => names.remove(to),
                };
                file
            }
            Call::Remove { path } => names.remove(path),
            Call::Write { path, .. }
            | Call::SetSize { path, .. }
            | Call::PunchHole { path, .. }
            | Call::SetMode { path, .. }
            | Call::SetAttribute { path, .. }
            | Call::Sync { path } => names.get(path).copied(),
            Call::MakeDirectory { .. } | Call::Link { .. } => None,
        });
        History {
            file: file.collect(),
            names: calls.iter().map(Call::is_of_names).collect(),
        }
    }

    /// What the calls of `fsync` among the first ones ask for.
    fn asked(&self, calls: &[Call], count: usize) -> Asked {
        let is_sync = |index: &usize| matches!(calls[*index], Call::Sync { .. });
        let names = (0..count).rev().find(is_sync).unwrap_or(0);
        let mut files = BTreeMap::new();
        for (index, call) in calls.iter().enumerate().take(count) {
            let is_asked = match call {
                Call::Sync { .. } => true,
                // A name that is given to its own file again changes nothing: the kernel does not even ask.
                Call::Rename { from, to } => from != to && index < names,
                _ => false,
            };
            if let (true, Some(file)) = (is_asked, self.file[index]) {
                files.insert(file, index);
            }
        }
        Asked { names, files }
    }
}

/// What a file is called.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    Directory,
    Link(String),
    File(FileNumber),
}

/// How much of each file's calls must and may be there, beside those before the moment.
#[derive(Clone)]
struct Limits {
    /// Up to these calls, what is of a file must be there.
    promised: BTreeMap<FileNumber, usize>,
    /// Files of which some calls may be there in part.
    partly: BTreeSet<FileNumber>,
    /// Up to this call, what is of any file may be there.
    names: usize,
}

/// The directory as it may be at a moment, and where it is not as it was found.
#[derive(Clone)]
struct Guess<'a> {
    found: &'a State,
    calls: &'a [Call],
    history: &'a History,
    limits: Limits,
    /// All calls before this one are there.
    moment: usize,
    names: BTreeMap<String, Named>,
    /// What files had in the beginning.
    first: BTreeMap<FileNumber, Rc<Contents>>,
    /// The calls that changed each file.
    own: Rc<BTreeMap<FileNumber, Vec<usize>>>,
    /// After how many of its calls a file is what was found under a name.
    matching: BTreeMap<(FileNumber, String), Rc<Vec<usize>>>,
    /// Where files are now.
    places: BTreeMap<FileNumber, String>,
    differing: BTreeSet<String>,
}

impl<'a> Guess<'a> {
    fn new(
        base: &State,
        found: &'a State,
        calls: &'a [Call],
        history: &'a History,
        limits: Limits,
    ) -> Guess<'a> {
        let mut own: BTreeMap<FileNumber, Vec<usize>> = BTreeMap::new();
        for (index, file) in history.file.iter().enumerate() {
            if let (Some(file), false) = (file, history.names[index]) {
                own.entry(*file).or_default().push(index);
            }
        }
        let numbers = numbered(base);
        let mut guess = Guess {
            found,
            calls,
            history,
            limits,
            moment: 0,
            names: BTreeMap::new(),
            first: BTreeMap::new(),
            own: Rc::new(own),
            matching: BTreeMap::new(),
            places: BTreeMap::new(),
            differing: BTreeSet::new(),
        };
        for (path, entry) in base {
            let named = match entry {
                Entry::Directory => Named::Directory,
                Entry::Link(target) => Named::Link(target.clone()),
                Entry::File(contents) => {
                    let number = numbers[path];
                    guess.first.insert(number, Rc::new(contents.clone()));
                    Named::File(number)
                }
            };
            guess.name(path, Some(named));
        }
        guess
    }

    /// The next call is there, if it was not already.
    fn step_to(&mut self, moment: usize, names: usize) {
        self.moment = moment;
        let index = moment - 1;
        match (self.history.names[index], self.history.file[index]) {
            (true, _) if index >= names => {
                for path in self.apply_name(index) {
                    self.compare(&path);
                }
            }
            (false, Some(file)) => {
                if let Some(path) = self.places.get(&file).cloned() {
                    self.compare(&path);
                }
            }
            _ => {}
        }
        // It may be half there, and was perhaps not compared with this in mind.
        if let (Some(Call::Write { .. }), Some(Some(file))) =
            (self.calls.get(moment), self.history.file.get(moment))
            && let Some(path) = self.places.get(file).cloned()
        {
            self.compare(&path);
        }
    }

    /// Whether the first ones of more changes of names explain all that differs.
    fn is_with_some(&self, more: &[usize]) -> bool {
        let mut guess = self.clone();
        more.iter().any(|&index| {
            for path in guess.apply_name(index) {
                guess.compare(&path);
            }
            guess.differing.is_empty()
        })
    }

    /// A change of names is there. Gives back which.
    fn apply_name(&mut self, index: usize) -> Vec<String> {
        let file = self.history.file[index];
        match &self.calls[index] {
            Call::MakeDirectory { path } => self.name(path, Some(Named::Directory)),
            Call::Link { path, target } => self.name(path, Some(Named::Link(target.clone()))),
            Call::Create { path } => {
                let number = file.expect("a call that makes a file has one");
                self.first.entry(number).or_default();
                self.name(path, Some(Named::File(number)));
            }
            Call::Remove { path } => self.name(path, None),
            Call::Rename { from, to } if from != to => {
                let named = self.names.get(from).cloned();
                self.name(from, None);
                self.name(to, named);
                return vec![from.clone(), to.clone()];
            }
            _ => return Vec::new(),
        }
        match &self.calls[index] {
            Call::MakeDirectory { path }
            | Call::Link { path, .. }
            | Call::Create { path }
            | Call::Remove { path } => vec![path.clone()],
            _ => Vec::new(),
        }
    }

    fn name(&mut self, path: &str, named: Option<Named>) {
        if let Some(Named::File(number)) = self.names.remove(path)
            && self.places.get(&number).is_some_and(|place| place == path)
        {
            self.places.remove(&number);
        }
        if let Some(named) = named {
            if let Named::File(number) = named {
                self.places.insert(number, path.to_string());
            }
            self.names.insert(path.to_string(), named);
        }
    }

    fn compare_all(&mut self) {
        let names = self.names.keys().chain(self.found.keys());
        let paths: BTreeSet<String> = names.cloned().collect();
        paths.iter().for_each(|path| self.compare(path));
    }

    fn compare(&mut self, path: &str) {
        let is_same = match (self.names.get(path).cloned(), self.found.get(path)) {
            (None, None) | (Some(Named::Directory), Some(Entry::Directory)) => true,
            (Some(Named::Link(target)), Some(Entry::Link(found))) => target == *found,
            (Some(Named::File(number)), Some(Entry::File(found))) => {
                self.may_be(number, path, found)
            }
            _ => false,
        };
        match is_same {
            true => self.differing.remove(path),
            false => self.differing.insert(path.to_string()),
        };
    }

    /// Whether a file may be what was found, with enough of its calls and not too many.
    fn may_be(&mut self, number: FileNumber, path: &str, found: &Contents) -> bool {
        let own = self.own.clone();
        let own = own.get(&number).map_or(&[][..], Vec::as_slice);
        let promised = self.limits.promised.get(&number).copied().unwrap_or(0);
        let least = own.partition_point(|index| *index < self.moment.max(promised));
        let most = own.partition_point(|index| *index < self.moment.max(self.limits.names));
        let key = (number, path.to_string());
        let matching = match self.matching.get(&key) {
            Some(matching) => matching.clone(),
            None => {
                let matching = Rc::new(self.matching_counts(number, own, found));
                self.matching.insert(key, matching.clone());
                matching
            }
        };
        let is_whole = matching.iter().any(|count| (least..=most).contains(count));
        is_whole
            || self.is_cut(number, own, found)
            || self.limits.partly.contains(&number)
                && self.is_mixed(number, &own[..most], least, found)
    }

    /// Whether it is the file at the moment, when one of its writes was half done.
    fn is_cut(&self, number: FileNumber, own: &[usize], found: &Contents) -> bool {
        let Some(Call::Write { path, at, bytes }) = self.calls.get(self.moment) else {
            return false;
        };
        let promised = self.limits.promised.get(&number).copied().unwrap_or(0);
        if self.history.file[self.moment] != Some(number) || self.moment < promised {
            return false;
        }
        let mut before = (*self.first[&number]).clone();
        for index in own.iter().take_while(|index| **index < self.moment) {
            change(&mut before, &self.calls[*index]);
        }
        let first_cut = (at + 1).next_multiple_of(PAGE_BYTES);
        (first_cut..at + bytes.len())
            .step_by(PAGE_BYTES)
            .any(|cut| {
                let mut contents = before.clone();
                let part = Call::Write {
                    path: path.clone(),
                    at: *at,
                    bytes: bytes[..cut - at].to_vec(),
                };
                change(&mut contents, &part);
                contents == *found
            })
    }

    /// Whether each byte of a file is one that it had after `least` of these calls or later.
    fn is_mixed(&self, number: FileNumber, own: &[usize], least: usize, found: &Contents) -> bool {
        let mut contents = (*self.first[&number]).clone();
        let mut is_right = vec![false; found.bytes.len()];
        let (mut sizes, mut modes, mut attributes) = (false, false, false);
        for count in 0..=own.len() {
            if count > 0 {
                change(&mut contents, &self.calls[own[count - 1]]);
            }
            if count < least {
                continue;
            }
            sizes |= contents.bytes.len() == found.bytes.len();
            modes |= contents.mode == found.mode;
            attributes |= contents.attribute == found.attribute;
            for (at, is_right) in is_right.iter_mut().enumerate() {
                let byte = contents.bytes.get(at).copied().unwrap_or(0);
                *is_right |= byte == found.bytes[at];
            }
        }
        sizes && modes && attributes && is_right.into_iter().all(|is_right| is_right)
    }

    /// After how many of its calls a file is this.
    fn matching_counts(&self, number: FileNumber, own: &[usize], found: &Contents) -> Vec<usize> {
        let mut contents = (*self.first[&number]).clone();
        let mut counts = Vec::new();
        if contents == *found {
            counts.push(0);
        }
        for (count, index) in own.iter().enumerate() {
            change(&mut contents, &self.calls[*index]);
            if contents == *found {
                counts.push(count + 1);
            }
        }
        counts
    }

    /// What a file is at least.
    fn least(&self, number: FileNumber) -> Contents {
        let promised = self.limits.promised.get(&number).copied().unwrap_or(0);
        let mut contents = (*self.first[&number]).clone();
        let own = self.own.get(&number).into_iter().flatten();
        for index in own.take_while(|index| **index < self.moment.max(promised)) {
            change(&mut contents, &self.calls[*index]);
        }
        contents
    }

    /// All that was done to a file, and how far it is what was found after each call.
    fn story(&self, path: &str, found: &Entry) -> String {
        let (Some(Named::File(number)), Entry::File(found)) = (self.names.get(path), found) else {
            return String::new();
        };
        let promised = self.limits.promised.get(number).copied().unwrap_or(0);
        let mut told = format!(
            "\n    promised up to call {promised}; more may be there up to call {}",
            self.limits.names
        );
        let mut contents = (*self.first[number]).clone();
        for index in self.own.get(number).into_iter().flatten() {
            change(&mut contents, &self.calls[*index]);
            let pairs = contents.bytes.iter().zip(&found.bytes);
            let same = pairs.take_while(|(ours, theirs)| ours == theirs).count();
            let what = match &self.calls[*index] {
                Call::Write { at, bytes, .. } => format!("write {at} + {}", bytes.len()),
                Call::SetSize { size, .. } => format!("size {size}"),
                Call::PunchHole { at, length, .. } => format!("hole {at} + {length}"),
                Call::SetMode { mode, .. } => format!("mode {mode:o}"),
                Call::SetAttribute { .. } => "attribute".to_string(),
                _ => "sync".to_string(),
            };
            told += &format!(
                "\n    call {index}: {what}; {same} bytes as found, of {}",
                contents.bytes.len()
            );
        }
        told
    }

    fn differences(&self) -> Vec<String> {
        let entry = |path: &String| {
            Some(match self.names.get(path)? {
                Named::Directory => Entry::Directory,
                Named::Link(target) => Entry::Link(target.clone()),
                Named::File(number) => Entry::File(self.least(*number)),
            })
        };
        let paths = self.differing.iter().take(DIFFERENCES_MAX);
        paths
            .map(|path| match (entry(path), self.found.get(path)) {
                (Some(expected), Some(found)) => {
                    format!(
                        "{path}: {}{}",
                        difference(&expected, found),
                        self.story(path, found)
                    )
                }
                (Some(_), None) => format!("{path} is missing"),
                (None, _) => format!("{path} should not be there"),
            })
            .collect()
    }
}

/// The files of a state, numbered.
fn numbered(state: &State) -> BTreeMap<String, FileNumber> {
    let files = state.iter().enumerate();
    files
        .filter(|(_, (_, entry))| matches!(entry, Entry::File(_)))
        .map(|(number, (path, _))| (path.clone(), number))
        .collect()
}

/// Changes a file as a call does.
fn change(file: &mut Contents, call: &Call) {
    match call {
        Call::Write { at, bytes, .. } => {
            let end = at + bytes.len();
            if file.bytes.len() < end {
                file.bytes.resize(end, 0);
            }
            file.bytes[*at..end].copy_from_slice(bytes);
        }
        Call::SetSize { size, .. } => file.bytes.resize(*size, 0),
        Call::PunchHole { at, length, .. } => {
            let end = file.bytes.len().min(at + length);
            if *at < end {
                file.bytes[*at..end].fill(0);
            }
        }
        Call::SetMode { mode, .. } => file.mode = *mode,
        Call::SetAttribute { value, .. } => file.attribute = Some(value.clone()),
        _ => {}
    }
}

/// Does a call to a state.
fn apply(state: &mut State, call: &Call) {
    match call {
        Call::MakeDirectory { path } => {
            state.insert(path.clone(), Entry::Directory);
        }
        Call::Create { path } => {
            state.insert(path.clone(), Entry::File(Contents::default()));
        }
        Call::Link { path, target } => {
            state.insert(path.clone(), Entry::Link(target.clone()));
        }
        Call::Remove { path } => {
            state.remove(path);
        }
        Call::Rename { from, to } => {
            if let Some(entry) = state.remove(from) {
                state.insert(to.clone(), entry);
            }
        }
        Call::Write { path, .. }
        | Call::SetSize { path, .. }
        | Call::PunchHole { path, .. }
        | Call::SetMode { path, .. }
        | Call::SetAttribute { path, .. } => {
            if let Some(Entry::File(file)) = state.get_mut(path) {
                change(file, call);
            }
        }
        Call::Sync { .. } => {}
    }
}

/// Makes a call.
fn make(root: &Path, call: &Call) -> io::Result<()> {
    let place = |path: &String| root.join(path);
    let open = |path: &String| OpenOptions::new().write(true).open(root.join(path));
    match call {
        Call::MakeDirectory { path } => fs::create_dir(place(path)),
        Call::Create { path } => {
            let mut new = OpenOptions::new();
            let new = new.write(true).create_new(true).mode(NEW_MODE);
            new.open(place(path)).map(drop)
        }
        Call::Write { path, at, bytes } => open(path)?.write_all_at(bytes, *at as u64),
        Call::SetSize { path, size } => open(path)?.set_len(*size as u64),
        Call::PunchHole { path, at, length } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(open(path)?, flags, *at as u64, *length as u64)?)
        }
        Call::SetMode { path, mode } => {
            fs::set_permissions(place(path), Permissions::from_mode(*mode))
        }
        Call::SetAttribute { path, value } => Ok(fsetxattr(
            open(path)?,
            ATTRIBUTE,
            value,
            XattrFlags::empty(),
        )?),
        Call::Rename { from, to } => fs::rename(place(from), place(to)),
        Call::Remove { path } => fs::remove_file(place(path)),
        Call::Link { path, target } => symlink(target, place(path)),
        Call::Sync { path } => open(path)?.sync_all(),
    }
}

fn read_tree(root: &Path, below: &str, state: &mut State) -> Result<(), CheckError> {
    let folder = root.join(below);
    let unreadable = |path: &Path| {
        let path = path.to_path_buf();
        move |source| CheckError::Unreadable { path, source }
    };
    for entry in fs::read_dir(&folder).map_err(unreadable(&folder))? {
        let entry = entry.map_err(unreadable(&folder))?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = match below {
            "" => name,
            below => format!("{below}/{name}"),
        };
        let kind = entry.file_type().map_err(unreadable(&path))?;
        if kind.is_dir() {
            read_tree(root, &name, state)?;
        }
        let entry = read_entry(&path, kind).map_err(unreadable(&path))?;
        state.insert(name, entry);
    }
    Ok(())
}

fn read_entry(path: &Path, kind: fs::FileType) -> io::Result<Entry> {
    if kind.is_dir() {
        return Ok(Entry::Directory);
    }
    if kind.is_symlink() {
        let target = fs::read_link(path)?;
        return Ok(Entry::Link(target.to_string_lossy().into_owned()));
    }
    let file = File::open(path)?;
    let mut value = vec![0; 64 << 10];
    let attribute = match getxattr(path, ATTRIBUTE, &mut value) {
        Ok(length) => {
            value.truncate(length);
            Some(value)
        }
        Err(rustix::io::Errno::NODATA) => None,
        Err(errno) => return Err(errno.into()),
    };
    Ok(Entry::File(Contents {
        mode: file.metadata()?.permissions().mode() & 0o7777,
        bytes: fs::read(path)?,
        attribute,
    }))
}

fn difference(expected: &Entry, found: &Entry) -> String {
    let (Entry::File(expected), Entry::File(found)) = (expected, found) else {
        return format!("{found:?} instead of {expected:?}");
    };
    let pairs = expected.bytes.iter().zip(&found.bytes);
    let same = pairs
        .take_while(|(expected, found)| expected == found)
        .count();
    let mut told = format!(
        "mode {:o} instead of {:o}, {} bytes instead of {}",
        found.mode,
        expected.mode,
        found.bytes.len(),
        expected.bytes.len()
    );
    if expected.bytes != found.bytes {
        told += &format!(", the first {same} bytes are right");
    }
    if expected.attribute != found.attribute {
        told += ", another attribute";
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger_of(calls: usize) -> (tempfile::TempDir, Ledger) {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(1);
        for _ in 0..calls {
            let call = ledger.pages().draw();
            // Not every file system under a temporary folder has them.
            if matches!(call, Call::SetAttribute { .. } | Call::PunchHole { .. }) {
                continue;
            }
            apply(&mut ledger.pages().now, &call);
            ledger.pages().calls.push(call.clone());
            make(folder.path(), &call).unwrap();
            let done = ledger.pages().calls.len();
            ledger.pages().done = done;
        }
        (folder, ledger)
    }

    #[test]
    fn a_directory_without_a_crash_is_as_it_was_last() {
        let (folder, ledger) = ledger_of(400);
        ledger.promise(ledger.count());
        let survived = ledger.check(folder.path()).unwrap();
        assert_eq!(
            (survived.found, survived.durable),
            (survived.begun, survived.begun)
        );
    }

    #[test]
    fn an_earlier_state_is_accepted_down_to_what_is_stored() {
        let (folder, ledger) = ledger_of(200);
        let last = Call::MakeDirectory {
            path: "never".to_string(),
        };
        ledger.pages().calls.push(last);
        let begun = ledger.pages().calls.len();
        assert_eq!(
            ledger
                .pages()
                .find(&ledger.pages_now(folder.path()))
                .unwrap()
                .found,
            begun - 1
        );
        ledger.pages().done = begun;
        ledger.promise(begun);
        let error = ledger.check(folder.path()).unwrap_err().to_string();
        assert!(error.contains("never is missing"), "{error}");
    }

    /// What a log has of two files, of which one was asked for.
    #[test]
    fn what_was_synced_must_be_there_and_what_was_not_may_not_be_there_without_all_before_it() {
        let file = |path: &str| path.to_string();
        let write = |path: &str, byte| Call::Write {
            path: file(path),
            at: 0,
            bytes: vec![byte],
        };
        let calls = [
            Call::Create { path: file("a") },
            Call::Create { path: file("b") },
            write("b", 1),
            write("a", 2),
            Call::Rename {
                from: file("a"),
                to: file("c"),
            },
            write("c", 3),
            Call::Sync { path: file("b") },
            write("b", 4),
        ];
        let state = |b: &[u8], c: Option<&[u8]>| {
            let entry = |bytes: &[u8]| {
                Entry::File(Contents {
                    bytes: bytes.to_vec(),
                    ..Contents::default()
                })
            };
            let mut state = State::from([(file("b"), entry(b))]);
            state.extend(c.map(|c| (file("c"), entry(c))));
            state
        };
        let ledger = Ledger::new(1);
        let mut pages = ledger.pages();
        pages.calls = calls.to_vec();
        pages.done = calls.len();
        let is_right = |pages: &Pages, state: State| pages.find(&state).is_ok();
        // Only what was asked for; the rename made what was written before it part of that.
        assert!(is_right(&pages, state(&[1], Some(&[2]))));
        // Everything up to the sync, and everything.
        assert!(is_right(&pages, state(&[1], Some(&[3]))));
        assert!(is_right(&pages, state(&[4], Some(&[3]))));
        // The rename is missing, the write before it is, the one before the sync is, or something came too early.
        assert!(!is_right(&pages, state(&[1], None)));
        assert!(!is_right(&pages, state(&[1], Some(&[]))));
        assert!(!is_right(&pages, state(&[], Some(&[2]))));
        assert!(!is_right(&pages, state(&[4], Some(&[2]))));
        assert!(!is_right(&pages, state(&[4], None)));
        // A sync that did not return may have stored a part.
        pages.calls.truncate(7);
        pages.done = 6;
        assert!(is_right(&pages, State::new()));
        assert!(is_right(&pages, state(&[1], Some(&[2]))));
        assert!(!is_right(&pages, state(&[4], Some(&[2]))));
    }

    #[test]
    fn a_name_given_to_its_own_file_again_promises_nothing() {
        let file = |path: &str| path.to_string();
        let rename = |to: &str| Call::Rename {
            from: file("a"),
            to: file(to),
        };
        let calls = |to: &str| {
            vec![
                Call::Create { path: file("a") },
                Call::Create { path: file("b") },
                Call::SetMode {
                    path: file("a"),
                    mode: 0o640,
                },
                rename(to),
                Call::Sync { path: file("b") },
            ]
        };
        let is_right = |to: &str| {
            let ledger = Ledger::new(1);
            let mut pages = ledger.pages();
            pages.calls = calls(to);
            pages.done = pages.calls.len();
            let made = || Entry::File(Contents::default());
            let found = State::from([(file(to), made()), (file("b"), made())]);
            pages.find(&found).is_ok()
        };
        assert!(is_right("a"));
        assert!(!is_right("c"), "another name promises the file's mode");
    }

    #[test]
    fn one_wrong_byte_is_found_and_told() {
        let (folder, ledger) = ledger_of(300);
        let is_filled =
            |entry: &Entry| matches!(entry, Entry::File(file) if file.bytes.len() > 100);
        let name = {
            let pages = ledger.pages();
            let found = pages.now.iter().find(|(_, entry)| is_filled(entry));
            found.unwrap().0.clone()
        };
        let path = folder.path().join(&name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[70] ^= 1;
        fs::write(&path, bytes).unwrap();
        ledger.promise(ledger.count());
        let error = ledger.check(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{name}: ")) && error.contains("the first 70 bytes are right"),
            "{error}"
        );
    }

    impl Ledger {
        fn pages_now(&self, root: &Path) -> State {
            let mut found = State::new();
            read_tree(root, "", &mut found).unwrap();
            found
        }
    }
}
