//! The operations of each actor in order, and which of them must survive a power cut.
//!
//! # Mechanism
//! Each *actor* has names of its own, which no other uses, and makes one change after the other;
//! so what its files may be is told by a list. Many actors work at the same time, in the same file
//! systems and folders. Beginnings and ends of all calls are stamped by one clock that counts them:
//! of two calls, one was before the other, or they overlap.
//!
//! Files are known by numbers of the history ([`Inode`]), whatever their names are.

use std::collections::BTreeMap;

use tarn_engine::files::FileKind;

use crate::tree::{File, Tree};

/// A file of an actor.
pub type Inode = usize;

/// A change of one file.
#[derive(Debug, Clone)]
pub enum Change {
    /// Bytes from an offset on.
    Write {
        /// Where.
        at: usize,
        /// What.
        bytes: Vec<u8>,
    },
    /// Bytes of another file, or of another place of this one, from an offset on.
    Copy {
        /// Whose bytes.
        source: String,
        /// From here.
        from: usize,
        /// To here.
        at: usize,
        /// What they are.
        bytes: Vec<u8>,
    },
    /// The size.
    Resize(usize),
    /// Zeros in a range, within the size.
    Punch {
        /// From here.
        at: usize,
        /// So many.
        length: usize,
    },
    /// Permission bits.
    Mode(u32),
    /// Owner and group.
    Owner(u32, u32),
    /// An extended attribute; without a value it is taken away.
    Xattr(Vec<u8>, Option<Vec<u8>>),
}

impl Change {
    /// Does it.
    pub fn apply(&self, file: &mut File) {
        match self {
            Change::Write { at, bytes } | Change::Copy { at, bytes, .. } => {
                let end = at + bytes.len();
                if file.bytes.len() < end {
                    file.bytes.resize(end, 0);
                }
                file.bytes[*at..end].copy_from_slice(bytes);
            }
            Change::Resize(size) => file.bytes.resize(*size, 0),
            Change::Punch { at, length } => {
                let end = file.bytes.len().min(at + length);
                if *at < end {
                    file.bytes[*at..end].fill(0);
                }
            }
            Change::Mode(mode) => file.mode = *mode,
            Change::Owner(user, group) => file.owner = (*user, *group),
            Change::Xattr(name, Some(value)) => {
                file.xattrs.insert(name.clone(), value.clone());
            }
            Change::Xattr(name, None) => {
                file.xattrs.remove(name);
            }
        }
    }
}

/// A change of names.
#[derive(Debug, Clone)]
pub enum Naming {
    /// A new file has this name.
    Make {
        /// The name.
        path: String,
        /// The file.
        inode: Inode,
    },
    /// A file has one more.
    Link {
        /// The name.
        path: String,
        /// The file.
        inode: Inode,
    },
    /// A name is gone.
    Remove {
        /// The name.
        path: String,
    },
    /// A name, and those below it, is another one. What had that is gone.
    Rename {
        /// From.
        from: String,
        /// To.
        to: String,
    },
    /// The same, and a new file has the old name.
    Whiteout {
        /// From.
        from: String,
        /// To.
        to: String,
        /// The new file.
        inode: Inode,
    },
    /// Two names are swapped, with those below.
    Exchange {
        /// The one.
        one: String,
        /// The other.
        other: String,
    },
}

/// Which files have which names.
pub type Names = BTreeMap<String, Inode>;

/// Moves a name and all below it.
fn moved(path: &str, from: &str, to: &str) -> Option<String> {
    let rest = path.strip_prefix(from)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
}

/// Renames. False for two names of one file: then nothing happens.
fn rename(names: &mut Names, from: &str, to: &str) -> bool {
    if names.get(from) == names.get(to) {
        return false;
    }
    names.remove(to);
    let all = std::mem::take(names).into_iter();
    let all = all.map(|(path, inode)| (moved(&path, from, to).unwrap_or(path), inode));
    names.extend(all);
    true
}

impl Naming {
    /// Does it.
    pub fn apply(&self, names: &mut Names) {
        match self {
            Naming::Make { path, inode } | Naming::Link { path, inode } => {
                names.insert(path.clone(), *inode);
            }
            Naming::Remove { path } => {
                names.remove(path);
            }
            Naming::Rename { from, to } => {
                rename(names, from, to);
            }
            Naming::Whiteout { from, to, inode } => {
                if rename(names, from, to) {
                    names.insert(from.clone(), *inode);
                }
            }
            Naming::Exchange { one, other } => {
                let all = std::mem::take(names).into_iter();
                let swap = |path: String| {
                    moved(&path, one, other)
                        .or_else(|| moved(&path, other, one))
                        .unwrap_or(path)
                };
                names.extend(all.map(|(path, inode)| (swap(path), inode)));
            }
        }
    }
}

/// What a call changes.
#[derive(Debug, Clone)]
pub enum What {
    /// Names, and which files are moved by it.
    Naming(Naming, Vec<Inode>),
    /// A file.
    File(Inode, Change),
}

/// A call that changes something.
#[derive(Debug, Clone)]
pub struct Call {
    /// What.
    pub what: What,
    /// When it began.
    pub begin: u64,
    /// When it returned well; none while it has not.
    pub end: Option<u64>,
}

/// What made something durable: `fsync`, `sync`, `O_SYNC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// One file of an actor.
    File(usize, Inode),
    /// Everything in a file system; as part of a change, whose actor and place among his calls is
    /// given.
    All(Option<(usize, usize)>),
}

/// A request for durability of something in one file system, by its log.
#[derive(Debug, Clone)]
pub struct Commit {
    /// In which file system.
    pub dataset: usize,
    /// Of what.
    pub asked: Asked,
    /// When it began.
    pub begin: u64,
    /// When it was promised; none while it was not.
    pub end: Option<u64>,
}

/// One file's part of the history.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its object number, when that is known.
    pub id: Option<u64>,
    /// As it was in the beginning, or when it was made.
    pub first: File,
    /// As it is now, if all calls succeed.
    pub now: File,
}

/// A thread that changes files.
#[derive(Debug, Clone)]
pub struct Actor {
    /// The file system he works in.
    pub dataset: usize,
    /// It keeps extended attributes in hidden directories.
    pub hides_xattrs: bool,
    /// By which his names are known: the first part of a path, or the beginning of the second one.
    pub prefix: String,
    /// All files, gone ones included.
    pub files: Vec<Known>,
    /// Names in the beginning.
    pub base: Names,
    /// Names now, if all calls succeed.
    pub now: Names,
    /// What was called since, in order. At most the last one has not returned.
    pub calls: Vec<Call>,
}

impl Actor {
    /// Without a file.
    pub fn new(dataset: usize, hides_xattrs: bool, prefix: &str) -> Actor {
        Actor {
            dataset,
            hides_xattrs,
            prefix: prefix.to_string(),
            files: Vec::new(),
            base: Names::new(),
            now: Names::new(),
            calls: Vec::new(),
        }
    }

    /// Whether a name is his.
    pub fn owns(&self, path: &str) -> bool {
        let mut parts = path.split('/');
        let (first, second) = (parts.next(), parts.next());
        first == Some(&*self.prefix)
            || second.is_some_and(|second| second.starts_with(&*self.prefix))
    }

    /// What was found is what is known from now on.
    pub fn adopt(&mut self, tree: &Tree) {
        self.calls.clear();
        self.files.clear();
        self.base.clear();
        let mut numbers: BTreeMap<u64, Inode> = BTreeMap::new();
        for (path, id) in &tree.names {
            if !self.owns(path) {
                continue;
            }
            let inode = *numbers.entry(*id).or_insert_with(|| {
                let file = tree.files[id].file.clone();
                self.files.push(Known {
                    id: Some(*id),
                    first: file.clone(),
                    now: file,
                });
                self.files.len() - 1
            });
            self.base.insert(path.clone(), inode);
        }
        self.now = self.base.clone();
    }

    /// A new file as it is made.
    pub fn make(&mut self, kind: FileKind, mode: u32, bytes: Vec<u8>) -> Inode {
        let file = File {
            kind,
            mode,
            owner: (0, 0),
            bytes,
            xattrs: BTreeMap::new(),
        };
        self.files.push(Known {
            id: None,
            first: file.clone(),
            now: file,
        });
        self.files.len() - 1
    }

    /// Of the write or copy that is under way, only so many bytes are taken.
    pub fn cut_short(&mut self, count: usize) {
        let last = self.calls.last_mut().map(|call| &mut call.what);
        if let Some(What::File(_, Change::Write { bytes, .. } | Change::Copy { bytes, .. })) = last
        {
            bytes.truncate(count);
        }
    }

    /// A call has succeeded.
    pub fn succeed(&mut self, end: u64) {
        let Some(call) = self.calls.last_mut() else {
            return;
        };
        call.end = Some(end);
        match &call.what {
            What::Naming(naming, _) => naming.apply(&mut self.now),
            What::File(inode, change) => change.apply(&mut self.files[*inode].now),
        }
    }
}

/// Everything that was done in one life of a machine.
#[derive(Debug, Clone, Default)]
pub struct History {
    clock: u64,
    /// The actor.
    pub actors: Vec<Actor>,
    /// Requests for durability by logs.
    pub commits: Vec<Commit>,
    /// When a request for durability of everything in the pool was begun that has returned.
    pub stored: u64,
    /// The pool is or was nearly full: a write that does not fit as a whole is made block by
    /// block, each in a transaction of its own.
    pub is_full: bool,
}

impl History {
    /// The next moment.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Nothing has happened yet.
    pub fn forget(&mut self) {
        self.commits.clear();
        for actor in &mut self.actors {
            actor.calls.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_write_that_is_cut_short_the_first_bytes_are_promised() {
        let mut actor = Actor::new(0, false, "t0");
        let inode = actor.make(FileKind::Regular, 0o600, vec![1; 3]);
        actor.calls.push(Call {
            what: What::File(
                inode,
                Change::Write {
                    at: 2,
                    bytes: vec![2; 8],
                },
            ),
            begin: 1,
            end: None,
        });
        actor.cut_short(2);
        actor.succeed(2);
        assert_eq!(actor.files[inode].now.bytes, [1, 1, 2, 2]);
    }
}
