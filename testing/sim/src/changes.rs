//! What actors do to one file: writes, copies, sizes, holes, modes, owners, extended attributes.
//!
//! # Mechanism
//! Where room is scarce, a write that does not fit as a whole is made block by block, each in a
//! transaction of its own, and perhaps only its first blocks. The call then answers how many bytes
//! it took; those are the change that is promised. Where there is room, a write takes all bytes,
//! and a short answer is a finding.

use tarn_engine::files::{
    Allocate, Credentials, FileKind, ObjectId, PosixError, SetAttributes, WriteAt, XattrMode,
};
use tarn_hostile::house::operation;

use crate::history::{Change, Inode, What};
use crate::work::{LARGE_XATTR_BYTES, SIZE_MAX, Step, Stopped, Taste, Worker, XATTRS};

/// With less than this left, room may run out in the middle of a call: more than all actors write
/// while one txg is stored.
const ROOM_SCARCE: u64 = 16 << 20;

impl Worker {
    /// A change of one file, and perhaps a request for its durability.
    pub(crate) fn change_file(&mut self) -> Step {
        // Now and then a folder's attributes.
        let picked = match self.random.below(12) {
            0 => self.pick(|kind| kind == FileKind::Directory),
            _ => self.regular(),
        };
        let Some((path, inode)) = picked else {
            return Ok(());
        };
        let size = self.book.pages().history.actors[self.number].files[inode]
            .now
            .bytes
            .len();
        let is_folder = self.kind(inode) == FileKind::Directory;
        if !is_folder && self.random.chance(1, 6) {
            return self.copy_one(&path, inode);
        }
        let chance = match is_folder {
            true => 75 + self.random.below(25),
            false => self.random.below(100),
        };
        let change = match chance {
            0..52 => {
                let at = match self.random.below(13) {
                    0..4 => size,
                    4..8 => self.random.index(size + 1),
                    8..12 => self.random.index(size + 1) / 4096 * 4096,
                    // Behind the end.
                    _ => size + self.random.index(50_000),
                };
                let length = match (self.taste, self.random.below(24)) {
                    (Taste::Bulk, 0..12) | (_, 23) => 1 + self.random.index(250_000),
                    (_, 20..23) => 1 + self.random.index(40_000),
                    (_, 10..20) => 4096,
                    _ => 1 + self.random.index(3000),
                };
                let at = at.min(SIZE_MAX);
                let bytes = self.content(length);
                Change::Write { at, bytes }
            }
            52..64 => Change::Resize(match self.random.below(4) {
                0 => 0,
                1 => self.random.index(SIZE_MAX),
                _ => self.random.index(size + 1),
            }),
            64..75 => Change::Punch {
                at: self.random.index(size + 1),
                length: 1 + self.random.index(100_000),
            },
            75..83 => Change::Mode(u32::try_from(self.random.below(0o1000)).unwrap_or(0)),
            83..88 => Change::Owner(
                u32::try_from(self.random.below(5)).unwrap_or(0),
                u32::try_from(self.random.below(5)).unwrap_or(0),
            ),
            _ => {
                let name = XATTRS[self.random.index(XATTRS.len())].as_bytes().to_vec();
                let has = self.book.pages().history.actors[self.number].files[inode]
                    .now
                    .xattrs
                    .contains_key(&name);
                let value = match has && self.random.chance(1, 3) {
                    true => None,
                    false => {
                        let length = match self.random.below(10) {
                            0 => match self.random.below(3) {
                                0 => {
                                    LARGE_XATTR_BYTES.start
                                        + self.random.index(LARGE_XATTR_BYTES.len())
                                }
                                _ => 1 + self.random.index(20_000),
                            },
                            1 => 0,
                            _ => 1 + self.random.index(300),
                        };
                        Some(self.content(length))
                    }
                };
                Change::Xattr(name, value)
            }
        };
        self.change_one(&path, inode, change)?;
        let durable = match self.taste {
            Taste::Database => 1,
            _ => 12,
        };
        match self.random.chance(1, durable) {
            true => self.sync_file(&path, inode),
            false => Ok(()),
        }
    }

    /// Copies a part of one of his files to a place of this one. The part is such that it is one
    /// change, which is there as a whole or not at all: a block, bytes that are parts of blocks in
    /// any case, or blocks of which all are stored.
    fn copy_one(&mut self, path: &str, inode: Inode) -> Step {
        let Some((source, from_inode)) = self.regular() else {
            return Ok(());
        };
        let block = self.block_size(&source)?;
        let (has, size) = {
            let pages = self.book.pages();
            let files = &pages.history.actors[self.number].files;
            let size_of = |inode: Inode| files[inode].now.bytes.len();
            (size_of(from_inode), size_of(inode))
        };
        let (blocks, places) = (has.div_ceil(block), SIZE_MAX.min(size).div_ceil(block) + 1);
        let mut from = self.random.index(blocks.max(1)) * block;
        let at = self.random.index(places) * block;
        let length = match self.random.below(6) {
            0 => {
                from += 1 + self.random.index(block - 1);
                1 + self.random.index(100_000)
            }
            1 | 2 => {
                self.sync_all()?;
                let rest = has.saturating_sub(from);
                let count = 1 + self.random.index(rest.div_ceil(block).max(1));
                match at + rest >= size {
                    true => rest.min(count * block),
                    false => count.min(rest / block) * block,
                }
            }
            _ => block,
        };
        let length = length.min(has.saturating_sub(from));
        let overlaps = inode == from_inode && from < at + length && at < from + length;
        if length == 0 || overlaps {
            return Ok(());
        }
        let bytes = {
            let pages = self.book.pages();
            let file = &pages.history.actors[self.number].files[from_inode];
            file.now.bytes[from..from + length].to_vec()
        };
        let change = Change::Copy {
            source,
            from,
            at,
            bytes,
        };
        self.change_one(path, inode, change)?;
        match self.random.chance(1, 3) {
            true => self.sync_file(path, inode),
            false => Ok(()),
        }
    }

    /// The size of a file's blocks now.
    ///
    /// # Errors
    /// A finding.
    pub fn block_size(&self, path: &str) -> Result<usize, Stopped> {
        let attributes = self
            .find(path)
            .and_then(|id| self.files.attributes(id, &operation()));
        match attributes {
            Ok(attributes) => Ok(usize::try_from(attributes.block_size).unwrap_or(1)),
            Err(error) => {
                self.refused(error)?;
                Err(Stopped)
            }
        }
    }

    /// Changes a file.
    ///
    /// # Errors
    /// A finding.
    pub fn change_one(&self, path: &str, inode: Inode, change: Change) -> Step {
        self.look_at_room();
        let what = What::File(inode, change.clone());
        self.change(what, |worker| {
            let id = worker.find(path)?;
            worker.make_change(id, &change)
        })
        .map(drop)
    }

    /// From here on the judge knows that a write may be there in part.
    fn look_at_room(&self) {
        if self.files.space().available_bytes < ROOM_SCARCE {
            self.book.pages().history.is_full = true;
        }
    }

    /// So many bytes of a write or a copy were taken.
    fn took(&self, count: usize, wanted: usize) -> Result<(), PosixError> {
        if count == wanted {
            return Ok(());
        }
        let mut pages = self.book.pages();
        pages.note(format!("actor {}: only {count} bytes", self.number));
        if !pages.history.is_full {
            return Err(PosixError::Invalid("a short write, and there is room"));
        }
        pages.history.actors[self.number].cut_short(count);
        Ok(())
    }

    fn make_change(&self, id: ObjectId, change: &Change) -> Result<(), PosixError> {
        let (files, root) = (&self.files, Credentials::root());
        let set = |changes: SetAttributes| {
            files
                .set_attributes(&root, id, &changes, &operation())
                .map(drop)
        };
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        match change {
            Change::Write { at, bytes } => {
                let is_end = wide(*at) == files.attributes(id, &operation())?.size;
                let at = match is_end {
                    true => WriteAt::End,
                    false => WriteAt::Offset(wide(*at)),
                };
                let written = files.write(&root, id, at, bytes, &operation())?;
                self.took(written, bytes.len())
            }
            Change::Copy {
                source,
                from,
                at,
                bytes,
            } => {
                let source = self.find(source)?;
                let (from, to, length) = (wide(*from), wide(*at), wide(bytes.len()));
                let (from, to) = ((source, from), (id, to));
                let copied = files.copy_range(&root, from, to, length, &operation())?;
                self.took(usize::try_from(copied).unwrap_or(usize::MAX), bytes.len())
            }
            Change::Resize(size) => set(SetAttributes {
                size: Some(wide(*size)),
                ..SetAttributes::default()
            }),
            Change::Punch { at, length } => {
                let (at, length) = (wide(*at), wide(*length));
                files.allocate(&root, id, Allocate::PunchHole, at, length, &operation())
            }
            Change::Mode(mode) => set(SetAttributes {
                permissions: Some(*mode),
                ..SetAttributes::default()
            }),
            Change::Owner(user, group) => set(SetAttributes {
                uid: Some(*user),
                gid: Some(*group),
                ..SetAttributes::default()
            }),
            Change::Xattr(name, Some(value)) => {
                files.set_xattr(&root, id, name, value, XattrMode::Any, &operation())
            }
            Change::Xattr(name, None) => files.remove_xattr(&root, id, name, &operation()),
        }
    }
}
