//! Changes made one after the other, of which a crash may take the last ones and no others.
//!
//! # Problem
//! A file system that loses its server in the middle of work must come back as it was at some moment: with everything
//! that was promised to be durable, and with nothing out of order. Looking at the files that were made durable finds only what is
//! missing. What came back too early, half or twice is found only by somebody who knows all states that there were.
//!
//! # Mechanism
//! One thread changes a directory, one system call after the other, and writes each down before it makes it. After the crash the
//! directory is compared with what it was after each call: from the last call known to be durable, to the last one begun. It
//! must be one of these. An `fsync` that succeeded makes the last change of its file durable; whatever else does is told by the
//! caller ([`Ledger::count`], [`Ledger::promise`]). With a call all before it are durable, for they happened before it.
//!
//! # Invariants
//! - A call changes one file or one or two names, and is small enough to reach the file system as one request: so none may be
//!   found half done.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
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
    /// Whether it changes the file of this name, or makes it be the file of this name.
    fn changes(&self, name: &str) -> bool {
        match self {
            Call::MakeDirectory { path }
            | Call::Create { path }
            | Call::Write { path, .. }
            | Call::SetSize { path, .. }
            | Call::PunchHole { path, .. }
            | Call::SetMode { path, .. }
            | Call::SetAttribute { path, .. }
            | Call::Remove { path }
            | Call::Link { path, .. } => path == name,
            Call::Rename { from, to } => from == name || to == name,
            Call::Sync { .. } => false,
        }
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
    /// How many of them are durable.
    durable: usize,
    /// How many have returned.
    done: usize,
    chance: Twister,
}

/// A directory that is as it was at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survived {
    /// How many calls had to be there.
    pub durable: usize,
    /// How many are there.
    pub found: usize,
    /// How many had been begun.
    pub begun: usize,
}

/// A directory that is as it never was, or no more.
#[derive(Debug)]
pub struct Lost {
    survived: Survived,
    /// The call before the durable ones after which it was so, if there is one: whole, but too old.
    older: Option<usize>,
    differences: Vec<String>,
}

impl fmt::Display for Lost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Survived {
            durable,
            found,
            begun,
        } = self.survived;
        write!(
            out,
            "the directory is not as it was after any of the calls {durable} (durable) to {begun} (begun)"
        )?;
        if let Some(older) = self.older {
            return write!(out, ", but as it was after call {older}");
        }
        write!(out, "; closest is call {found}, but for:")?;
        self.differences
            .iter()
            .take(12)
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
                durable: 0,
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

    /// So many calls are durable now.
    pub fn promise(&self, count: usize) {
        let mut pages = self.pages();
        pages.durable = pages.durable.max(count.min(pages.done));
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
            if let Call::Sync { path } = &call {
                let last = pages.calls.iter().rposition(|call| call.changes(path));
                pages.durable = pages.durable.max(last.map_or(0, |index| index + 1));
            }
        }
        Ok(())
    }

    /// Compares `root` with what it may be, after a crash. What is found is what later calls start from.
    ///
    /// # Errors
    /// If it is not as it was at a moment when everything durable was there.
    pub fn check(&self, root: &Path) -> Result<Survived, CheckError> {
        let mut found = State::new();
        read_tree(root, "", &mut found)?;
        let mut pages = self.pages();
        let survived = pages.find(&found)?;
        pages.base = found.clone();
        pages.now = found;
        pages.calls.clear();
        (pages.durable, pages.done) = (0, 0);
        Ok(survived)
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().expect("no thread panics with the pages")
    }
}

impl Pages {
    /// Which call the directory is as it was after.
    fn find(&self, found: &State) -> Result<Survived, Box<Lost>> {
        let mut state = self.base.clone();
        let names: BTreeSet<&String> = state.keys().chain(found.keys()).collect();
        let mut differing: BTreeSet<String> = names
            .into_iter()
            .filter(|name| state.get(*name) != found.get(*name))
            .cloned()
            .collect();
        let mut closest = (usize::MAX, 0, State::new());
        let mut older = None;
        for count in 0..=self.calls.len() {
            if count > 0 {
                for name in apply(&mut state, &self.calls[count - 1]) {
                    match state.get(&name) == found.get(&name) {
                        true => differing.remove(&name),
                        false => differing.insert(name),
                    };
                }
            }
            if differing.is_empty() && count < self.durable {
                older = Some(count);
            }
            if count >= self.durable && differing.len() < closest.0 {
                closest = (differing.len(), count, state.clone());
            }
            if closest.0 == 0 {
                break;
            }
        }
        let (differing, count, state) = closest;
        let survived = Survived {
            durable: self.durable,
            found: count,
            begun: self.calls.len(),
        };
        if differing == 0 {
            return Ok(survived);
        }
        Err(Box::new(Lost {
            survived,
            older,
            differences: differences(&state, found),
        }))
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
            86..98 => Call::Remove { path },
            _ => Call::Sync { path },
        }
    }
}

/// Does a call to a state, and names what it touched.
fn apply(state: &mut State, call: &Call) -> Vec<String> {
    let mut change = |path: &String, change: &dyn Fn(&mut Contents)| {
        if let Some(Entry::File(file)) = state.get_mut(path) {
            change(file);
        }
        vec![path.clone()]
    };
    match call {
        Call::Write { path, at, bytes } => change(path, &|file| {
            let end = at + bytes.len();
            if file.bytes.len() < end {
                file.bytes.resize(end, 0);
            }
            file.bytes[*at..end].copy_from_slice(bytes);
        }),
        Call::SetSize { path, size } => change(path, &|file| file.bytes.resize(*size, 0)),
        Call::PunchHole { path, at, length } => change(path, &|file| {
            let end = file.bytes.len().min(at + length);
            file.bytes[*at..end].fill(0);
        }),
        Call::SetMode { path, mode } => change(path, &|file| file.mode = *mode),
        Call::SetAttribute { path, value } => {
            change(path, &|file| file.attribute = Some(value.clone()))
        }
        Call::MakeDirectory { path } => {
            state.insert(path.clone(), Entry::Directory);
            vec![path.clone()]
        }
        Call::Create { path } => {
            let file = Entry::File(Contents {
                mode: NEW_MODE,
                bytes: Vec::new(),
                attribute: None,
            });
            state.insert(path.clone(), file);
            vec![path.clone()]
        }
        Call::Link { path, target } => {
            state.insert(path.clone(), Entry::Link(target.clone()));
            vec![path.clone()]
        }
        Call::Remove { path } => {
            state.remove(path);
            vec![path.clone()]
        }
        Call::Rename { from, to } => {
            if let Some(entry) = state.remove(from) {
                state.insert(to.clone(), entry);
            }
            vec![from.clone(), to.clone()]
        }
        Call::Sync { .. } => Vec::new(),
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

fn differences(expected: &State, found: &State) -> Vec<String> {
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    names
        .into_iter()
        .filter_map(|name| match (expected.get(name), found.get(name)) {
            (Some(_), None) => Some(format!("{name} is missing")),
            (None, Some(_)) => Some(format!("{name} should not be there")),
            (Some(expected), Some(found)) if expected != found => {
                Some(format!("{name}: {}", difference(expected, found)))
            }
            _ => None,
        })
        .collect()
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
    fn an_earlier_state_is_accepted_down_to_what_is_durable() {
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
        assert!(
            error.contains(&format!("as it was after call {}", begun - 1)),
            "{error}"
        );
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
