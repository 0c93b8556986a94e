//! Looking up a name in a directory.

use std::sync::Arc;

use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::control_directory::{self, ControlEntry, WhichSnapshot};
use crate::directory::Entry;
use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::names;
use crate::node::Node;
use crate::ops::access::EXECUTE;
use crate::properties::{LONG_NAME_BYTES_MAX, SnapshotDirectory};
use crate::types::{Attributes, Credentials};

impl FileSystem {
    /// The file that a name in a directory leads to.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NameTooLong`, `PermissionDenied`, or what could not be read.
    pub fn lookup(
        &self,
        credentials: &Credentials,
        parent: ObjectId,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        if let Some(entry) = self.control_entry(parent) {
            let found = self.control_lookup(entry, name)?;
            return self.attributes(found, operation);
        }
        let directory = self.node(parent, operation)?;
        let facts = directory.facts();
        if !facts.is_directory() {
            return Err(PosixError::NotDirectory);
        }
        self.check_access(credentials, &directory, EXECUTE, operation)?;
        match name {
            b"." => Ok(self.node_attributes(&directory)),
            b".." => self.attributes(facts.parent, operation),
            control_directory::NAME if self.shows_control_directory(parent) => {
                self.control_attributes(ControlEntry::Root, operation)
            }
            name => {
                let node = self.child(&directory, name, operation)?;
                Ok(self.node_attributes(&node))
            }
        }
    }

    /// The entry of a name in a directory. An existing long name is found even if the dataset has
    /// `longname=off` now.
    pub(crate) fn find_entry(
        &self,
        directory: &Node,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Option<Entry>, PosixError> {
        names::check(name, LONG_NAME_BYTES_MAX)?;
        self.directory(directory, operation)?.find(name)
    }

    /// The error for a name without an entry.
    pub(crate) fn missing(&self, name: &[u8]) -> PosixError {
        match name.len() > self.properties().name_bytes_max() {
            true => PosixError::NameTooLong,
            false => PosixError::NotFound,
        }
    }

    /// The file that a name in a directory leads to, without a check of permissions.
    pub(crate) fn child(
        &self,
        directory: &Node,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Arc<Node>, PosixError> {
        let entry = self
            .find_entry(directory, name, operation)?
            .ok_or_else(|| self.missing(name))?;
        match self.node(entry.id, operation) {
            Err(PosixError::NotFound) => {
                // It may have been removed since the entry was read; if the entry still exists, the
                // object is lost.
                match self.find_entry(directory, name, operation)? {
                    Some(again) if again.id == entry.id => Err(PosixError::Damaged {
                        object: directory.id,
                        why: "an entry leads to an object that does not exist",
                    }),
                    Some(again) => self.node(again.id, operation),
                    None => Err(PosixError::NotFound),
                }
            }
            found => found,
        }
    }

    /// Whether the root has `.zfs`.
    pub(crate) fn shows_control_directory(&self, parent: ObjectId) -> bool {
        parent == self.root()
            && self.snapshots.is_some()
            && self.properties().snapshot_directory != SnapshotDirectory::Disabled
    }

    fn control_lookup(&self, parent: ControlEntry, name: &[u8]) -> Result<ObjectId, PosixError> {
        match (parent, name) {
            (_, b".") => Ok(parent.id()),
            (ControlEntry::Root, b"..") => Ok(self.root()),
            (ControlEntry::Snapshots, b"..") => Ok(ControlEntry::Root.id()),
            (ControlEntry::Snapshot(_), b"..") => Ok(ControlEntry::Snapshots.id()),
            (ControlEntry::Root, control_directory::SNAPSHOT_NAME) => {
                Ok(ControlEntry::Snapshots.id())
            }
            (ControlEntry::Snapshots, name) => {
                let door = self.snapshots.as_ref().ok_or(PosixError::NotFound)?;
                let snapshot = door.find(WhichSnapshot::Named(name));
                let snapshot = snapshot.ok_or(PosixError::NotFound)?;
                Ok(ControlEntry::Snapshot(snapshot.dataset).id())
            }
            _ => Err(PosixError::NotFound),
        }
    }
}
