//! Removing names: of files, and of directories that are empty.
//!
//! # Mechanism
//! With its last name a file is freed, in the same transaction if it is small and not open, else
//! later (`unlinked`).

use std::sync::Arc;

use tarn_dataset::ops::snapshot_of_head::SnapshotChange;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;

use crate::control_directory::{self, ControlEntry};
use crate::directory::Entry;
use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::holders::Change;
use crate::intent::removed;
use crate::node::{Node, lock_all};
use crate::ops::access::EXECUTE;
use crate::types::{Credentials, FileKind};

/// How often an operation looks its names up again when others change them. A guess: each time
/// another operation succeeded.
pub(crate) const ATTEMPTS_MAX: usize = 1000;

impl FileSystem {
    /// Removes a name of a file that is no directory.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`, `PermissionDenied`, `NotPermitted`, `ReadOnly`; nothing has
    /// changed then.
    #[doc(alias = "zfs_remove")]
    pub fn unlink(
        &self,
        credentials: &Credentials,
        parent: ObjectId,
        name: &[u8],
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let directory = self.directory_of_entry(parent, name, operation)?;
        let remove = |file: &Arc<Node>, entry: &Entry| -> Result<Txg, PosixError> {
            self.check_may_remove(credentials, &directory, file, operation)?;
            self.drop_name(&directory, file, entry, operation)
        };
        self.check_access(credentials, &directory, EXECUTE, operation)?;
        self.remove_entry(&directory, name, remove, operation)
    }

    /// Removes a name of a file. The caller holds `change` of both, and has checked that the entry
    /// leads to the file.
    pub(crate) fn drop_name(
        &self,
        directory: &Arc<Node>,
        file: &Arc<Node>,
        entry: &Entry,
        operation: &Operation,
    ) -> Result<Txg, PosixError> {
        let mut facts = (*file.facts()).clone();
        let kind = facts.kind();
        if facts.is_directory() {
            return Err(PosixError::IsDirectory);
        }
        let is_last = facts.links <= 1;
        let freed_bytes = if is_last {
            file.object.info().used.get()
        } else {
            0
        };
        let tx = self.begin_freeing(freed_bytes, operation)?;
        let now = self.now();
        let table = self.directory(directory, operation)?;
        let removed_entry = table.remove(&tx, &entry.name);
        self.unlogged_if_it_fails(&tx, removed_entry)?;
        if let Err(error) = self.count_entries(directory, -1, 0, now, &tx, operation) {
            let _ = table.insert(&tx, &entry.name, file.id, kind);
            self.log_nothing(&tx);
            return Err(error);
        }
        facts.attributes_changed(now);
        self.log_shared(&tx, || removed(directory.id, &entry.name, kind));
        let lost = if is_last {
            self.lose_last_name(file, facts, &tx, operation)
        } else {
            facts.links -= 1;
            self.store(file, facts, &tx, operation)
        };
        self.unlogged_if_it_fails(&tx, lost)?;
        Ok(tx.txg())
    }

    /// Removes an empty directory, or destroys a snapshot in `.zfs/snapshot`.
    ///
    /// # Errors
    /// `NotEmpty`, `NotFound`, `NotDirectory`, `PermissionDenied`, `NotPermitted`, `ReadOnly`;
    /// nothing has changed then.
    #[doc(alias = "zfs_rmdir")]
    pub fn remove_directory(
        &self,
        credentials: &Credentials,
        parent: ObjectId,
        name: &[u8],
        operation: &Operation,
    ) -> Result<(), PosixError> {
        match name {
            b"." => return Err(PosixError::Invalid("a directory cannot be removed as '.'")),
            b".." => return Err(PosixError::NotEmpty),
            _ => {}
        }
        if self.control_entry(parent) == Some(ControlEntry::Snapshots) {
            let change = SnapshotChange::Destroy(control_directory::snapshot_name(name)?);
            return self.change_snapshot(credentials, change);
        }
        let directory = self.directory_of_entry(parent, name, operation)?;
        let remove = |child: &Arc<Node>, entry: &Entry| -> Result<Txg, PosixError> {
            self.check_may_remove(credentials, &directory, child, operation)?;
            self.drop_directory(&directory, child, entry, operation)
        };
        self.check_access(credentials, &directory, EXECUTE, operation)?;
        self.remove_entry(&directory, name, remove, operation)
    }

    /// Removes a directory that is empty. The caller holds `change` of both, and has checked that
    /// the entry leads to it.
    pub(crate) fn drop_directory(
        &self,
        directory: &Arc<Node>,
        child: &Arc<Node>,
        entry: &Entry,
        operation: &Operation,
    ) -> Result<Txg, PosixError> {
        let mut facts = (*child.facts()).clone();
        if self.directory(child, operation)?.count()? != 0 {
            return Err(PosixError::NotEmpty);
        }
        let tx = self.begin_freeing(0, operation)?;
        let now = self.now();
        let table = self.directory(directory, operation)?;
        let kind = FileKind::Directory;
        let removed_entry = table.remove(&tx, &entry.name);
        self.unlogged_if_it_fails(&tx, removed_entry)?;
        if let Err(error) = self.count_entries(directory, -1, -1, now, &tx, operation) {
            let _ = table.insert(&tx, &entry.name, child.id, kind);
            self.log_nothing(&tx);
            return Err(error);
        }
        facts.attributes_changed(now);
        self.log_shared(&tx, || removed(directory.id, &entry.name, kind));
        let lost = self.lose_last_name(child, facts, &tx, operation);
        self.unlogged_if_it_fails(&tx, lost)?;
        Ok(tx.txg())
    }

    /// The directory of an entry that is to change. Refuses those below `.zfs`.
    pub(crate) fn directory_of_entry(
        &self,
        parent: ObjectId,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Arc<Node>, PosixError> {
        let is_control = name == control_directory::NAME && self.shows_control_directory(parent);
        if is_control || self.control_entry(parent).is_some() {
            return Err(PosixError::NotPermitted);
        }
        let directory = self.node(parent, operation)?;
        match directory.facts().is_directory() {
            true => Ok(directory),
            false => Err(PosixError::NotDirectory),
        }
    }

    /// Runs `remove` with `change` of a directory and of the file that a name in it leads to, and
    /// then frees a file that has lost its last name.
    pub(crate) fn remove_entry(
        &self,
        directory: &Arc<Node>,
        name: &[u8],
        remove: impl Fn(&Arc<Node>, &Entry) -> Result<Txg, PosixError>,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        for _ in 0..ATTEMPTS_MAX {
            let file = self.child(directory, name, operation)?;
            let went = Change::Entry {
                directory: directory.id,
                name,
            };
            let _told = self.telling(went, operation);
            let _counted = self.telling(Change::Attributes { file: file.id }, operation);
            let _changing = self.removing(file.id, operation)?;
            let locks = lock_all(&[directory, &file]);
            let entry = self.find_entry(directory, name, operation)?;
            let entry = entry.ok_or(PosixError::NotFound)?;
            if entry.id != file.id || file.is_gone() {
                continue;
            }
            let txg = remove(&file, &entry)?;
            drop(locks);
            // A file that cannot be freed now stays in the unlinked set, and is freed at the next
            // mount.
            let _ = self.free_if_unused(&file, operation);
            return self.after_change(txg, operation);
        }
        Err(PosixError::Contended)
    }
}
