//! The file of a request, and the numbers that it shows.

use crate::nodes::{Which, inode_in_snapshot};
use std::sync::Arc;
use tarn_engine::files::{
    Attributes, ControlEntry, DirectoryEntry, FileSystem, HolderId, ObjectId, Tree,
};

/// A file of the dataset or of a snapshot.
pub(crate) struct Place {
    /// Its file system.
    pub(crate) files: Arc<FileSystem>,
    /// The holder as which this mount changes it.
    pub(crate) holder: HolderId,
    /// The snapshot that this is, to count its requests.
    pub(crate) snapshot: Option<Arc<dyn Tree>>,
    /// Which file system of the session that is.
    pub(crate) which: Which,
    /// Its object.
    pub(crate) id: ObjectId,
}

impl Place {
    /// Another object of the same file system.
    pub(crate) fn beside(&self, id: ObjectId) -> Place {
        Place {
            files: self.files.clone(),
            holder: self.holder,
            snapshot: self.snapshot.clone(),
            which: self.which,
            id,
        }
    }

    /// Whether it is the root of a snapshot.
    pub(crate) fn is_root_of_snapshot(&self) -> bool {
        self.which.is_snapshot() && self.id == self.files.root()
    }

    /// The inode number that an object of the same file system shows. The root of a snapshot has
    /// that of its entry in `.zfs/snapshot`, as if it were mounted there.
    fn inode_of(&self, id: ObjectId) -> ObjectId {
        let dataset = self.files.object_set().id();
        match self.which {
            Which::Dataset => id,
            _ if id == self.files.root() => ControlEntry::Snapshot(dataset).id(),
            _ => ObjectId::new(inode_in_snapshot(dataset, id)),
        }
    }

    /// The attributes of an object of the same file system as they are shown. A snapshot can get
    /// the dataset number of a destroyed one, and after a restart its node numbers: the generation
    /// tells their files apart, as the snapshot's last txg is mixed into it.
    pub(crate) fn shown(&self, attributes: Attributes) -> Attributes {
        if self.which == Which::Dataset {
            return attributes;
        }
        let born = self.files.object_set().root_pointer().logical_birth.get();
        // Linux keeps 32 bits. The factor is odd, so different txgs stay different in these.
        let of_snapshot = born.wrapping_mul(0x9e37_79b1) & u64::from(u32::MAX);
        Attributes {
            id: self.inode_of(attributes.id),
            generation: attributes.generation ^ of_snapshot,
            ..attributes
        }
    }

    /// An entry of this directory as it is shown.
    pub(crate) fn shown_entry(&self, entry: DirectoryEntry) -> DirectoryEntry {
        let is_above = self.is_root_of_snapshot() && entry.name == b"..";
        let id = match is_above {
            true => ControlEntry::Snapshots.id(),
            false => self.inode_of(entry.id),
        };
        DirectoryEntry { id, ..entry }
    }
}
