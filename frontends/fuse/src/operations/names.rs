//! Names in directories: lookups, renames, links and removals.
//!
//! `LOOKUP`, `UNLINK`, `RMDIR`, `RENAME`, `RENAME2`, `LINK`, `READLINK`.

use super::answers::put_entry;
use super::{Call, Reply, done, gone, refused};
use crate::kept::{self, EntryCached};
use crate::protocol::{Answer, Arguments, opcode};
use crate::session::Place;
use rustix::io::Errno;
use tarn_engine::files::{Attributes, ControlEntry, FileKind, ObjectId, PosixError, RenameMode};

/// Both flags of `renameat2`.
const WHITEOUT_NO_REPLACE: u32 = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;

impl Call<'_> {
    pub(super) fn lookup(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let name = arguments.name()?;
        if name == b"." {
            // A node number from an NFS handle: the kernel asks what it is, and it need not be a
            // directory.
            let attributes = file.files.attributes(file.id, self.operation);
            return self.entry(file, &attributes.map_err(refused)?);
        }
        if name == b".." && file.is_root_of_snapshot() {
            // The directory of snapshots is above it.
            let above = self.session.mounted().beside(ControlEntry::Snapshots.id());
            let attributes = above.files.attributes(above.id, self.operation);
            return self.entry(&above, &attributes.map_err(refused)?);
        }
        let found = file
            .files
            .lookup(self.credentials, file.id, name, self.operation);
        match found {
            Ok(found) => self.found(file, name, &found),
            Err(PosixError::PermissionDenied) if self.session.enforces(file) => {
                match self.session.leads_to_mount(file, name, self.operation) {
                    true => Err(Errno::NOMEM),
                    false => Err(Errno::ACCESS),
                }
            }
            Err(error) => {
                if matches!(error, PosixError::NotFound) {
                    self.operation.found_no_name(name);
                }
                Err(refused(error))
            }
        }
    }

    /// Seconds for which the kernel may cache a name that leads to this object: none where the file
    /// system checks search permission at each step of a path.
    pub(super) fn names_cached_s(&self, place: &Place, id: ObjectId) -> u64 {
        match self.session.enforces(place) {
            true => 0,
            false => kept::names_cached_s(place, id),
        }
    }

    /// The same for a name and its attributes as they are shown.
    pub(super) fn entry_cached(
        &self,
        directory: &Place,
        id: ObjectId,
        attributes: &Attributes,
    ) -> EntryCached {
        EntryCached {
            name_s: self.names_cached_s(directory, id),
            attributes_s: self.session.changed_cached_s(directory, attributes),
        }
    }

    /// The reply to a lookup.
    pub(super) fn found(
        &self,
        file: &Place,
        name: &[u8],
        found: &Attributes,
    ) -> Result<Reply, Errno> {
        if !is_snapshot(found.id) {
            if found.kind != FileKind::Directory && found.links > 1 {
                // The kernel may know the file by another name, and keeps its cached access control
                // list.
                let node = self.session.node_of(file.which, &file.files, found.id);
                self.session.lists().note(node);
            }
            return self.entry(file, found);
        }
        // The name of a snapshot: from here on the snapshot's own file system answers.
        let entered = self.session.enter(name, found.id, self.operation)?;
        let root = entered
            .files
            .attributes(entered.id, self.operation)
            .map_err(refused)?;
        self.entry(&entered, &root)
    }

    pub(super) fn entry(&self, file: &Place, attributes: &Attributes) -> Result<Reply, Errno> {
        let mut answer = Answer::new();
        let node = self.session.node_of(file.which, &file.files, attributes.id);
        let shown = file.shown(attributes.clone());
        self.session.telling(node, &shown);
        let cached = self.entry_cached(file, attributes.id, &shown);
        put_entry(&mut answer, node, cached, &shown);
        Ok(Reply::Parts(answer))
    }

    pub(super) fn read_link(&self, file: &Place) -> Result<Reply, Errno> {
        let target = file
            .files
            .read_link(self.credentials, file.id, self.operation);
        let mut answer = Answer::new();
        answer.bytes(&target.map_err(refused)?);
        Ok(Reply::Parts(answer))
    }

    pub(super) fn unlink(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let name = arguments.name()?;
        done(
            parent
                .files
                .unlink(self.credentials, parent.id, name, self.operation),
        )
    }

    pub(super) fn remove_directory(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let name = arguments.name()?;
        done(
            parent
                .files
                .remove_directory(self.credentials, parent.id, name, self.operation),
        )
    }

    pub(super) fn rename(
        &self,
        parent: &Place,
        code: u32,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let to_node = arguments.u64()?;
        let mode = if code == opcode::RENAME2 {
            let flags = arguments.u32()?;
            arguments.skip(4)?;
            match flags {
                0 => RenameMode::Replace,
                libc::RENAME_NOREPLACE => RenameMode::NoReplace,
                libc::RENAME_EXCHANGE => RenameMode::Exchange,
                libc::RENAME_WHITEOUT => RenameMode::Whiteout,
                WHITEOUT_NO_REPLACE => RenameMode::WhiteoutNoReplace,
                _ => return Err(Errno::INVAL),
            }
        } else {
            RenameMode::Replace
        };
        let (from, to) = (arguments.name()?, arguments.name()?);
        let to_parent = self.same_files(parent, to_node)?;
        let credentials = self.credentials;
        let renamed = parent.files.rename(
            credentials,
            parent.id,
            from,
            to_parent,
            to,
            mode,
            self.operation,
        );
        done(renamed)
    }

    pub(super) fn link(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let node = arguments.u64()?;
        let name = arguments.name()?;
        let id = self.same_files(parent, node)?;
        self.session.lists().note(node);
        let linked = parent
            .files
            .link(self.credentials, id, parent.id, name, self.operation);
        let linked = linked.map_err(|error| match self.has_name(parent, id) {
            true => refused(error),
            false => gone(refused(error)),
        });
        self.entry(parent, &linked?)
    }

    /// Whether a file still has a name.
    fn has_name(&self, beside: &Place, id: ObjectId) -> bool {
        let attributes = beside.files.attributes(id, self.operation);
        attributes.is_ok_and(|attributes| attributes.links > 0)
    }

    /// The object of a second node, which must be in the same file system.
    pub(super) fn same_files(&self, file: &Place, node: u64) -> Result<ObjectId, Errno> {
        let place = self.session.place(node)?;
        if place.which == file.which {
            Ok(place.id)
        } else {
            Err(Errno::XDEV)
        }
    }
}

/// True for an entry of `.zfs/snapshot`.
pub(super) fn is_snapshot(id: ObjectId) -> bool {
    matches!(ControlEntry::of(id), Some(ControlEntry::Snapshot(_)))
}
