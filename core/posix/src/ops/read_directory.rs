//! Listing a directory.
//!
//! # Mechanism
//! A list goes on after an entry by its cookie. 1 and 2 are the cookies of `.` and `..`, 3 that of
//! `.zfs` where it is listed. Larger ones are cursors of the directory's ZAP, as in OpenZFS: the
//! hash of a name and a number that tells names of one hash apart. They stay valid while entries
//! are added and removed. Cursors that collide with the first three go on from the start, which may
//! give an entry twice and loses none.

use tarn_object::zap::{Cursor, OwnedName};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::control_directory::{self, ControlEntry};
use crate::error::{PosixError, table_error};
use crate::filesystem::FileSystem;
use crate::ops::access::READ;
use crate::properties::SnapshotDirectory;
use crate::types::{Credentials, DirectoryEntry, FileKind, Noting};

/// The cookie of the last entry before those of the ZAP.
const FIRST_OF_TABLE: u64 = 3;
/// How many entries are taken from the ZAP at a time.
const BATCH: usize = 64;

impl FileSystem {
    /// Gives the entries of a directory from a cookie on (0 is the start) to `take`, until it says
    /// that it is full.
    ///
    /// # Errors
    /// `NotDirectory`, `NotFound`, or what could not be read. Entries before it were given to
    /// `take`.
    pub fn read_directory(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        cookie: u64,
        take: &mut dyn FnMut(DirectoryEntry) -> bool,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.read_directory_noting(credentials, id, cookie, take, Noting::Access, operation)
    }

    /// As [`read_directory`](Self::read_directory), with the choice whether the access time
    /// changes.
    ///
    /// # Errors
    /// As [`read_directory`](Self::read_directory).
    pub fn read_directory_noting(
        &self,
        _credentials: &Credentials,
        id: ObjectId,
        cookie: u64,
        take: &mut dyn FnMut(DirectoryEntry) -> bool,
        noting: Noting,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if let Some(entry) = self.control_entry(id) {
            self.read_control_directory(entry, cookie, take);
            return Ok(());
        }
        let node = self.node(id, operation)?;
        let directory = self.directory(&node, operation)?;
        let dots = [(0, id, &b"."[..]), (1, node.facts().parent, &b".."[..])];
        for (index, id, name) in dots {
            if cookie <= index && !take(control_directory::entry(index, id, name)) {
                return Ok(());
            }
        }
        if cookie <= 2 && self.lists_control_directory(id) {
            let entry =
                control_directory::entry(2, ControlEntry::Root.id(), control_directory::NAME);
            if !take(entry) {
                return Ok(());
            }
        }
        let flags = directory.zap.flags().map_err(table_error(id))?;
        let mut cursor = match cookie {
            0..=FIRST_OF_TABLE => Cursor::START,
            cookie => Cursor::from_cookie(cookie, flags),
        };
        loop {
            let batch = directory
                .zap
                .entries_from(cursor, BATCH)
                .map_err(table_error(id))?;
            let Some(last) = batch.last() else { break };
            cursor = last.next;
            for found in batch {
                let cookie = found.next.to_cookie(flags);
                let entry = directory.entry(found.name, &found.value)?;
                let kind = match entry.kind {
                    Some(kind) => kind,
                    None => self.kind_of(entry.id, operation)?,
                };
                if !take(DirectoryEntry {
                    id: entry.id,
                    kind,
                    name: entry.name,
                    cookie,
                }) {
                    return Ok(());
                }
            }
        }
        let keeps_times = self.properties().keeps_directory_times;
        if noting == Noting::Access && !keeps_times {
            self.note_access_and_tell(&node, operation);
        }
        Ok(())
    }

    /// Checks that a user may list a directory.
    ///
    /// # Errors
    /// `PermissionDenied`, `NotDirectory`, `NotFound`, or what could not be read.
    pub fn check_list(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.access(credentials, id, READ, operation)
    }

    /// The kind of an object whose entry has no type.
    fn kind_of(&self, id: ObjectId, operation: &Operation) -> Result<FileKind, PosixError> {
        match self.node(id, operation) {
            Ok(node) => Ok(node.facts().kind()),
            // It was removed since, or is damaged: looking up its name gives the error.
            Err(PosixError::NotFound | PosixError::Attributes { .. }) => Ok(FileKind::Regular),
            Err(error) => Err(error),
        }
    }

    /// Whether the root shows `.zfs` in its list.
    pub(crate) fn lists_control_directory(&self, id: ObjectId) -> bool {
        self.shows_control_directory(id)
            && self.properties().snapshot_directory == SnapshotDirectory::Visible
    }

    fn read_control_directory(
        &self,
        directory: ControlEntry,
        cookie: u64,
        take: &mut dyn FnMut(DirectoryEntry) -> bool,
    ) {
        let parent = match directory {
            ControlEntry::Root => self.root(),
            ControlEntry::Snapshots => ControlEntry::Root.id(),
            ControlEntry::Snapshot(_) => ControlEntry::Snapshots.id(),
        };
        let mut entries = vec![(directory.id(), b".".to_vec()), (parent, b"..".to_vec())];
        match directory {
            ControlEntry::Root => {
                let name = control_directory::SNAPSHOT_NAME.to_vec();
                entries.push((ControlEntry::Snapshots.id(), name));
            }
            ControlEntry::Snapshots | ControlEntry::Snapshot(_) => {}
        }
        for (index, (id, name)) in (0..).zip(entries) {
            if index >= cookie && !take(control_directory::entry(index, id, &name)) {
                return;
            }
        }
        if directory == ControlEntry::Snapshots {
            self.read_snapshots(cookie, take);
        }
    }

    /// The snapshots, behind `.` and `..`.
    fn read_snapshots(&self, cookie: u64, take: &mut dyn FnMut(DirectoryEntry) -> bool) {
        let Some(door) = &self.snapshots else {
            return;
        };
        let mut next = if cookie <= 2 { 0 } else { cookie };
        loop {
            let listed = door.list(next, BATCH);
            let Some(last) = listed.last() else {
                return;
            };
            next = last.next;
            for snapshot in listed {
                if !take(snapshot.into_entry()) {
                    return;
                }
            }
        }
    }
}

/// The name of an entry, where names are text.
pub(crate) fn text_of(name: OwnedName) -> Option<Vec<u8>> {
    match name {
        OwnedName::Text(name) => Some(name),
        OwnedName::Words(_) => None,
    }
}
