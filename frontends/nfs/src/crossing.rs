//! Looking up names across boundaries: into shares that are mounted below, into snapshots, and
//! back.

use crate::file_call::{Asker, FileCall, NotServed, Realm};
use std::sync::Arc;
use tarn_engine::files::{Attributes, ControlEntry, FileKind, ObjectId, OperationKind, PosixError};

/// What a name leads to.
pub(crate) struct Found {
    pub(crate) realm: Realm,
    pub(crate) attributes: Attributes,
}

/// Why a name leads nowhere.
pub(crate) enum NotFound {
    /// The file system says so.
    Posix(PosixError),
    /// It leads into a file system that is not served to this client.
    NotServed(NotServed),
}

impl From<PosixError> for NotFound {
    fn from(error: PosixError) -> NotFound {
        NotFound::Posix(error)
    }
}

impl From<NotServed> for NotFound {
    fn from(error: NotServed) -> NotFound {
        NotFound::NotServed(error)
    }
}

impl Asker<'_> {
    /// The file that a name in a directory leads to.
    pub(crate) fn lookup(&self, directory: &FileCall, name: &[u8]) -> Result<Found, NotFound> {
        let realm = &directory.realm;
        if name == b".." && directory.id == realm.files().root() {
            return self.above(directory);
        }
        let found = directory.files().lookup(
            &directory.credentials,
            directory.id,
            name,
            directory.operation(),
        );
        let attributes = found.inspect_err(|error| directory.note_missing(name, error))?;
        let here = |attributes| Found {
            realm: realm.clone(),
            attributes,
        };
        if attributes.kind != FileKind::Directory || matches!(name, b"." | b"..") {
            return Ok(here(attributes));
        }
        if let Some(ControlEntry::Snapshot(dataset)) = ControlEntry::of(attributes.id) {
            let entered = self.snapshot(realm, dataset, directory.operation());
            return self.root_of(entered.map_err(gone)?);
        }
        match realm.junction(attributes.id) {
            Some(below) => {
                let shares = realm.shares.clone();
                self.root_of(self.enter(&shares, &below.clone())?)
            }
            None => Ok(here(attributes)),
        }
    }

    /// The root of a file system.
    pub(crate) fn root_of(&self, realm: Realm) -> Result<Found, NotFound> {
        let root = realm.files().root();
        let call = self.call_in(realm, root, OperationKind::Lookup, (0, 0));
        let attributes = call.attributes()?;
        Ok(Found {
            realm: call.realm.clone(),
            attributes,
        })
    }

    /// `..` of the root of a file system. That of a share which no other share leads to is itself.
    fn above(&self, root: &FileCall) -> Result<Found, NotFound> {
        let realm = &root.realm;
        if realm.snapshot.is_some() {
            let shares = realm.shares.clone();
            let head = self.enter(&shares, &realm.share)?;
            return self.found_in(head, ControlEntry::Snapshots.id());
        }
        let shares = realm.shares.clone();
        let Some((above, folder)) = shares.above(realm.tree.guid()) else {
            return Ok(Found {
                realm: realm.clone(),
                attributes: root.attributes()?,
            });
        };
        let above: Realm = self.enter(&Arc::clone(&shares), above)?;
        let folder = self.call_in(above, folder, OperationKind::Lookup, (0, 0));
        self.lookup(&folder, b"..")
    }

    fn found_in(&self, realm: Realm, id: ObjectId) -> Result<Found, NotFound> {
        let call = self.call_in(realm, id, OperationKind::Lookup, (0, 0));
        let attributes = call.attributes()?;
        Ok(Found {
            realm: call.realm.clone(),
            attributes,
        })
    }
}

/// A snapshot that went away after its name was found.
fn gone(why: NotServed) -> NotFound {
    match why {
        NotServed::Stale => NotFound::Posix(PosixError::NotFound),
        why => NotFound::NotServed(why),
    }
}
