//! `.zfs`: the control directory, with the snapshots of the dataset. It is not stored.
//!
//! # Mechanism
//! `.zfs` in the root has one entry, `snapshot`, and that has one for each snapshot. They are no
//! objects. Their inode numbers are those of OpenZFS, which counts down from its largest inode
//! number: the root, an unused number, the directory of snapshots, and below it each snapshot by
//! the number of its dataset.
//!
//! The contents of a snapshot are another file system, which the front end serves in place of the
//! snapshot's entry.
//!
//! A change of names in `.zfs/snapshot` changes snapshots: `mkdir` takes one, `rmdir` destroys one,
//! although it is not empty, and a rename renames one. The engine checks the permission and makes
//! the change ([`SnapshotDoor`]).

use tarn_dataset::ops::snapshot_of_head::SnapshotChange;

use tarn_ondisk::units::ObjectId;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::types::{Attributes, Credentials, DeviceNumber, DirectoryEntry, FileKind, Timestamp};

/// `.zfs`.
#[doc(alias = "ZFSCTL_INO_ROOT")]
pub const CONTROL_ROOT: ObjectId = ObjectId::new(0x0000_ffff_ffff_ffff);
/// `.zfs/snapshot`.
#[doc(alias = "ZFSCTL_INO_SNAPDIR")]
pub const SNAPSHOTS: ObjectId = ObjectId::new(0x0000_ffff_ffff_fffd);
/// The numbers of snapshots count down from here.
#[doc(alias = "ZFSCTL_INO_SNAPDIRS")]
const SNAPSHOTS_FROM: u64 = 0x0000_ffff_ffff_fffc;
/// The numbers of snapshots end here, since object numbers of datasets have far fewer bits; lower
/// numbers are files.
const SNAPSHOTS_END: u64 = 0x0000_f000_0000_0000;

/// The name of the control directory in the root.
pub const NAME: &[u8] = b".zfs";
/// The name of the directory of snapshots in it.
pub const SNAPSHOT_NAME: &[u8] = b"snapshot";

/// A snapshot as the control directory shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotFacts {
    /// The number of its dataset in the MOS.
    pub dataset: ObjectId,
    /// When it was taken.
    pub created: Timestamp,
}

/// A snapshot in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSnapshot {
    /// Its name, without the dataset's.
    pub name: Vec<u8>,
    /// The number of its dataset in the MOS.
    pub dataset: ObjectId,
    /// The cookie with which a list goes on after it.
    pub next: u64,
}

/// A snapshot by its name or its dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichSnapshot<'a> {
    /// The one of this name.
    Named(&'a [u8]),
    /// The one with this dataset.
    Numbered(ObjectId),
}

/// A door: the snapshots of the mounted dataset, of which there may be a hundred thousand. Those
/// that cannot be read are left out.
pub trait SnapshotDoor: Send + Sync {
    /// One of them.
    fn find(&self, which: WhichSnapshot<'_>) -> Option<SnapshotFacts>;

    /// How many there are.
    fn count(&self) -> u64;

    /// When a snapshot was last taken, destroyed or renamed; 1970 if never.
    fn changed(&self) -> Timestamp;

    /// Up to so many of them, from a cookie on; 0 is the start.
    fn list(&self, from: u64, count_max: usize) -> Vec<ListedSnapshot>;

    /// Takes, destroys or renames a snapshot, if this user may, and waits until that is stored.
    ///
    /// # Errors
    /// The change was refused, or failed.
    fn change(&self, credentials: &Credentials, change: SnapshotChange) -> Result<(), PosixError>;
}

/// An entry of the control directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlEntry {
    /// `.zfs`.
    Root,
    /// `.zfs/snapshot`.
    Snapshots,
    /// The snapshot with this dataset.
    Snapshot(ObjectId),
}

impl ControlEntry {
    /// The entry with this inode number; none for files.
    pub fn of(id: ObjectId) -> Option<ControlEntry> {
        match id {
            CONTROL_ROOT => Some(ControlEntry::Root),
            SNAPSHOTS => Some(ControlEntry::Snapshots),
            id if (SNAPSHOTS_END..SNAPSHOTS_FROM).contains(&id.get()) => Some(
                ControlEntry::Snapshot(ObjectId::from(SNAPSHOTS_FROM - id.get())),
            ),
            _ => None,
        }
    }

    /// Its number.
    pub fn id(self) -> ObjectId {
        match self {
            ControlEntry::Root => CONTROL_ROOT,
            ControlEntry::Snapshots => SNAPSHOTS,
            ControlEntry::Snapshot(dataset) => ObjectId::from(SNAPSHOTS_FROM - dataset.get()),
        }
    }
}

/// What `stat` shows of a directory below `.zfs`, with these times.
pub(crate) fn attributes(
    entry: ControlEntry,
    links: u64,
    created: Timestamp,
    changed: Timestamp,
) -> Attributes {
    Attributes {
        id: entry.id(),
        generation: 0,
        kind: FileKind::Directory,
        // The engine checks permissions for snapshots (`zfs allow`).
        permissions: 0o777,
        links,
        uid: 0,
        gid: 0,
        size: links,
        blocks_512: 0,
        block_size: 512,
        device: DeviceNumber::default(),
        accessed: created,
        modified: changed,
        changed,
        created,
        flags: 0,
        project: 0,
        is_space_unsettled: false,
    }
}

/// An entry of one of these directories. Cookies are the count of entries before the next.
pub(crate) fn entry(index: u64, id: ObjectId, name: &[u8]) -> DirectoryEntry {
    DirectoryEntry {
        id,
        kind: FileKind::Directory,
        name: name.to_vec(),
        cookie: index + 1,
    }
}

impl ListedSnapshot {
    /// Its entry in the directory of snapshots.
    pub(crate) fn into_entry(self) -> DirectoryEntry {
        DirectoryEntry {
            id: ControlEntry::Snapshot(self.dataset).id(),
            kind: FileKind::Directory,
            name: self.name,
            cookie: self.next,
        }
    }
}

impl FileSystem {
    /// Changes a snapshot for a user that changes a name in `.zfs/snapshot`.
    pub(crate) fn change_snapshot(
        &self,
        credentials: &Credentials,
        change: SnapshotChange,
    ) -> Result<(), PosixError> {
        self.check_writable()?;
        let door = self.snapshots.as_ref().ok_or(PosixError::NotPermitted)?;
        door.change(credentials, change)
    }
}

/// The name of a snapshot, from the name of its directory.
pub(crate) fn snapshot_name(name: &[u8]) -> Result<String, PosixError> {
    let name = std::str::from_utf8(name).map_err(|_| PosixError::BadName)?;
    Ok(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_what_they_were_made_from() {
        for entry in [
            ControlEntry::Root,
            ControlEntry::Snapshots,
            ControlEntry::Snapshot(ObjectId::from(387)),
        ] {
            assert_eq!(ControlEntry::of(entry.id()), Some(entry));
        }
        assert_eq!(ControlEntry::of(ObjectId::from(34)), None);
    }
}
