//! Short works, all of them: each pair, or triple, of changes around an `fsync`.
//!
//! # Mechanism
//! Each script has a folder of its own with a few files, which are stored. Then come its changes,
//! with one request for durability among them, and the power is cut after each number of writes
//! there can be, until one comes to its end.

use tarn_engine::files::{FileKind, RenameMode};

use crate::history::{Change, Inode};
use crate::work::{Stopped, Worker};

/// A change of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// A new file.
    Create,
    /// A new folder.
    MakeFolder,
    /// A new symbolic link.
    Symlink,
    /// Some bytes in the middle of the first file.
    Write,
    /// Some bytes at its end.
    Append,
    /// A large write.
    WriteMuch,
    /// It becomes shorter.
    Shorten,
    /// It becomes longer.
    Lengthen,
    /// A hole in it.
    Punch,
    /// Its mode.
    Mode,
    /// Its owner.
    Owner,
    /// An attribute.
    Xattr,
    /// An attribute is taken away.
    NoXattr,
    /// It gets a new name.
    Rename,
    /// It moves to a folder.
    Move,
    /// The second file takes its name.
    Replace,
    /// Both swap names.
    Exchange,
    /// It gets one name more.
    Link,
    /// It loses a name.
    Remove,
    /// The second file is written.
    WriteOther,
    /// The second file goes.
    RemoveOther,
    /// The first block of the first file becomes that of the second.
    CopyToOther,
    /// The folder gets a new name.
    RenameFolder,
    /// The folder goes.
    RemoveFolder,
}

impl Deed {
    /// All of them.
    pub const ALL: [Deed; 24] = [
        Deed::Create,
        Deed::MakeFolder,
        Deed::Symlink,
        Deed::Write,
        Deed::Append,
        Deed::WriteMuch,
        Deed::Shorten,
        Deed::Lengthen,
        Deed::Punch,
        Deed::Mode,
        Deed::Owner,
        Deed::Xattr,
        Deed::NoXattr,
        Deed::Rename,
        Deed::Move,
        Deed::Replace,
        Deed::Exchange,
        Deed::Link,
        Deed::Remove,
        Deed::WriteOther,
        Deed::RemoveOther,
        Deed::CopyToOther,
        Deed::RenameFolder,
        Deed::RemoveFolder,
    ];
}

/// What is done, and before which deed what was done so far is made durable.
#[derive(Debug, Clone)]
pub struct Script {
    /// The deeds.
    pub deeds: Vec<Deed>,
    /// The request comes after so many of them.
    pub sync_after: usize,
    /// It is for the second file.
    pub syncs_other: bool,
}

impl Script {
    /// How many there are of this length.
    pub fn count(length: u32) -> u64 {
        let deeds = u64::try_from(Deed::ALL.len()).unwrap_or(0);
        deeds.pow(length) * u64::from(length) * 2
    }

    /// The one of this number.
    pub fn numbered(length: u32, number: u64) -> Script {
        let mut rest = number;
        let mut take = |choices: u64| {
            let taken = rest % choices;
            rest /= choices;
            usize::try_from(taken).unwrap_or(0)
        };
        let syncs_other = take(2) == 1;
        let sync_after = 1 + take(u64::from(length));
        let deeds = u64::try_from(Deed::ALL.len()).unwrap_or(1);
        Script {
            deeds: (0..length).map(|_| Deed::ALL[take(deeds)]).collect(),
            sync_after,
            syncs_other,
        }
    }
}

/// The files of a script.
pub struct Stage {
    folder: String,
    first: Inode,
    second: Inode,
    inner: Inode,
}

impl Worker {
    /// Makes the files of a script, which are then to be stored.
    ///
    /// # Errors
    /// A finding.
    pub fn set_stage(&self, folder: &str) -> Result<Option<Stage>, Stopped> {
        let folder_made = self.make(folder, FileKind::Directory, 0o755, None)?;
        let path = |name: &str| format!("{folder}/{name}");
        let first = self.make(&path("a"), FileKind::Regular, 0o644, None)?;
        let second = self.make(&path("b"), FileKind::Regular, 0o640, None)?;
        let inner = self.make(&path("d"), FileKind::Directory, 0o700, None)?;
        let (Some(_), Some(first), Some(second), Some(inner)) = (folder_made, first, second, inner)
        else {
            return Ok(None);
        };
        let write = |at, byte, length| Change::Write {
            at,
            bytes: vec![byte; length],
        };
        self.change_one(&path("a"), first, write(0, 1, 9000))?;
        self.change_one(&path("b"), second, write(0, 2, 700))?;
        let attribute = Change::Xattr(b"user.a".to_vec(), Some(b"before".to_vec()));
        self.change_one(&path("a"), first, attribute)?;
        Ok(Some(Stage {
            folder: folder.to_string(),
            first,
            second,
            inner,
        }))
    }

    /// Plays a script.
    ///
    /// # Errors
    /// A finding.
    pub fn play(&self, stage: &Stage, script: &Script) -> Result<(), Stopped> {
        for (number, deed) in script.deeds.iter().enumerate() {
            self.do_deed(stage, *deed, number)?;
            if number + 1 == script.sync_after {
                let wanted = match script.syncs_other {
                    true => stage.second,
                    false => stage.first,
                };
                if let Some(path) = self.path_of(wanted) {
                    self.sync_file(&path, wanted)?;
                }
            }
        }
        Ok(())
    }

    fn path_of(&self, inode: Inode) -> Option<String> {
        let pages = self.book.pages();
        let now = &pages.history.actors[self.number].now;
        let mut named = now.iter().filter(|(_, of)| **of == inode);
        named.next().map(|(path, _)| path.clone())
    }

    fn size_of(&self, inode: Inode) -> usize {
        let pages = self.book.pages();
        pages.history.actors[self.number].files[inode]
            .now
            .bytes
            .len()
    }

    fn do_deed(&self, stage: &Stage, deed: Deed, number: usize) -> Result<(), Stopped> {
        let path = |name: &str| format!("{}/{name}{number}", stage.folder);
        let fill = u8::try_from(16 + number).unwrap_or(0);
        let write = |at, length| Change::Write {
            at,
            bytes: vec![fill; length],
        };
        let first = self.path_of(stage.first);
        let second = self.path_of(stage.second);
        let folder = self.path_of(stage.inner);
        let size = self.size_of(stage.first);
        let has_xattr = {
            let pages = self.book.pages();
            let file = &pages.history.actors[self.number].files[stage.first];
            file.now.xattrs.contains_key(&b"user.a"[..])
        };
        let change = match deed {
            Deed::Write => write(size / 3, 2000),
            Deed::Append => write(size, 5000),
            Deed::WriteMuch => write(size / 2, 150_000),
            Deed::Shorten => Change::Resize(size / 2),
            Deed::Lengthen => Change::Resize(size + 10_000),
            Deed::Punch => Change::Punch {
                at: size / 4,
                length: size / 2 + 1,
            },
            Deed::Mode => Change::Mode(0o600 + u32::from(fill)),
            Deed::Owner => Change::Owner(u32::from(fill), 7),
            Deed::Xattr => Change::Xattr(b"user.a".to_vec(), Some(vec![fill; 90])),
            Deed::NoXattr if has_xattr => Change::Xattr(b"user.a".to_vec(), None),
            Deed::NoXattr => return Ok(()),
            Deed::WriteOther => {
                return match second {
                    Some(second) => self.change_one(&second, stage.second, write(300, 3000)),
                    None => Ok(()),
                };
            }
            Deed::CopyToOther => {
                return match (first, second) {
                    (Some(first), Some(second)) => self.copy_block(stage, first, &second),
                    _ => Ok(()),
                };
            }
            _ => return self.do_naming(stage, deed, &path, (first, second, folder)),
        };
        match first {
            Some(first) => self.change_one(&first, stage.first, change),
            None => Ok(()),
        }
    }

    /// Copies a block, which is one change.
    fn copy_block(&self, stage: &Stage, first: String, second: &str) -> Result<(), Stopped> {
        let block = self.block_size(&first)?;
        let bytes = {
            let pages = self.book.pages();
            let file = &pages.history.actors[self.number].files[stage.first];
            let bytes = &file.now.bytes;
            bytes[..bytes.len().min(block)].to_vec()
        };
        let change = Change::Copy {
            source: first,
            from: 0,
            at: 0,
            bytes,
        };
        self.change_one(second, stage.second, change)
    }

    fn do_naming(
        &self,
        stage: &Stage,
        deed: Deed,
        path: &dyn Fn(&str) -> String,
        (first, second, folder): (Option<String>, Option<String>, Option<String>),
    ) -> Result<(), Stopped> {
        match deed {
            Deed::Create => {
                return self
                    .make(&path("new"), FileKind::Regular, 0o604, None)
                    .map(drop);
            }
            Deed::MakeFolder => {
                return self
                    .make(&path("folder"), FileKind::Directory, 0o711, None)
                    .map(drop);
            }
            Deed::Symlink => {
                let target = Some(b"somewhere".to_vec());
                return self
                    .make(&path("link"), FileKind::SymbolicLink, 0o777, target)
                    .map(drop);
            }
            _ => {}
        }
        let replace = RenameMode::Replace;
        match (deed, first, second, folder) {
            (Deed::Rename, Some(first), _, _) => {
                self.rename(&first, &path("c"), replace, vec![stage.first])
            }
            (Deed::Move, Some(first), _, Some(folder)) => {
                let to = format!("{folder}/moved");
                match first == to {
                    true => Ok(()),
                    false => self.rename(&first, &to, replace, vec![stage.first]),
                }
            }
            (Deed::Replace, Some(first), Some(second), _) => {
                self.rename(&second, &first, replace, vec![stage.second])
            }
            (Deed::Exchange, Some(first), Some(second), _) => {
                let moved = vec![stage.first, stage.second];
                self.rename(&first, &second, RenameMode::Exchange, moved)
            }
            (Deed::Link, Some(first), _, _) => self.link(&first, &path("l"), stage.first),
            (Deed::Remove, Some(first), _, _) => self.remove(&first, FileKind::Regular),
            (Deed::RemoveOther, _, Some(second), _) => self.remove(&second, FileKind::Regular),
            (Deed::RenameFolder, _, _, Some(folder)) => {
                self.rename(&folder, &path("e"), replace, vec![stage.inner])
            }
            (Deed::RemoveFolder, _, _, Some(folder)) if !self.has_below(&folder) => {
                self.remove(&folder, FileKind::Directory)
            }
            _ => Ok(()),
        }
    }

    /// Removes all that is below a folder of his, and the folder.
    ///
    /// # Errors
    /// A finding.
    pub fn clear(&self, folder: &str) -> Result<(), Stopped> {
        let mut below: Vec<(String, FileKind)> = {
            let pages = self.book.pages();
            let actor = &pages.history.actors[self.number];
            let inside = format!("{folder}/");
            let names = actor.now.iter();
            names
                .filter(|(path, _)| path.starts_with(&inside) || *path == folder)
                .map(|(path, inode)| (path.clone(), actor.files[*inode].first.kind))
                .collect()
        };
        below.reverse();
        for (path, kind) in below {
            self.remove(&path, kind)?;
        }
        Ok(())
    }
}
