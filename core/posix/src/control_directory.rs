//! `.zfs`: the directory that is not stored, with the snapshots of the dataset.
//!
//! # Mechanism
//! `.zfs` in the root has one entry, `snapshot`, and that has one for each snapshot. They are no
//! objects. Their numbers are those OpenZFS gives them, counted down from the largest number that
//! an inode may have there: the root, a number unused, the directory of snapshots, and below it
//! each snapshot by the number of its dataset.
//!
//! What is inside a snapshot is another file system; the front end puts it in place of the
//! snapshot's entry.
//!
//! A change of names in `.zfs/snapshot` is a change of snapshots: who makes a directory takes one,
//! who removes a directory destroys one, full as it is, and a rename renames. Whether he may, and
//! the change itself, are the engine's business ([`SnapshotDoor`]).

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
/// Object numbers of datasets have far fewer bits than this; what is below is a file.
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
    /// Where a list goes on after it.
    pub next: u64,
}

/// Which snapshot is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichSnapshot<'a> {
    /// The one of this name.
    Named(&'a [u8]),
    /// The one with this dataset.
    Numbered(ObjectId),
}

/// The snapshots of the dataset that is mounted. There may be a hundred thousand. What cannot be
/// read is not there.
pub trait SnapshotDoor: Send + Sync {
    /// One of them.
    fn find(&self, which: WhichSnapshot<'_>) -> Option<SnapshotFacts>;

    /// How many there are.
    fn count(&self) -> u64;

    /// When one last came, went or was renamed; 1970 where none ever did.
    fn changed(&self) -> Timestamp;

    /// Up to so many of them, from a place in the list on; 0 is its beginning.
    fn list(&self, from: u64, count_max: usize) -> Vec<ListedSnapshot>;

    /// Changes one, if this user may, and waits until that is stored.
    ///
    /// # Errors
    /// Why not.
    fn change(&self, credentials: &Credentials, change: SnapshotChange) -> Result<(), PosixError>;
}

/// What a number stands for in the control directory.
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
    /// What the number stands for; none for files.
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

/// What `stat` shows of a directory that is not stored, which was last changed then.
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
        // Who may change what is decided by other rules.
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
    /// Changes a snapshot on behalf of whoever changes a name in `.zfs/snapshot`.
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

/// The name of a snapshot as it was given by the name of a directory.
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
