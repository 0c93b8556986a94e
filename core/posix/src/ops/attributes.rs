//! What `stat` shows.

use tarn_ondisk::acl::permission;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::control_directory::{self, ControlEntry, WhichSnapshot};
use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::ops::access::AccessModel;
use crate::types::{Attributes, Credentials, FileKind, Timestamp};

impl FileSystem {
    /// What `stat` shows of a file.
    ///
    /// # Errors
    /// `NotFound`, or what could not be read.
    pub fn attributes(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        match self.control_entry(id) {
            Some(entry) => self.control_attributes(entry, operation),
            None => Ok(self.node_attributes(&*self.node(id, operation)?)),
        }
    }

    /// What `stat` shows of a file, for a user that needs `read_attributes` where NFSv4 lists
    /// decide.
    ///
    /// # Errors
    /// `PermissionDenied`, and as [`attributes`](Self::attributes).
    pub fn attributes_for(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        let decides = self.access_model(credentials) == AccessModel::Nfs4;
        if decides && self.control_entry(id).is_none() {
            let node = self.node(id, operation)?;
            let wanted = permission::READ_ATTRIBUTES;
            self.check_nfs4(credentials, &node, wanted, operation)?;
        }
        self.attributes(id, operation)
    }

    /// What `stat` shows of a file in memory.
    pub(crate) fn node_attributes(&self, node: &Node) -> Attributes {
        let facts = node.facts();
        let info = node.object.info();
        let slots = u64::try_from(info.slots).unwrap_or(1);
        let mut block_size = info.block_size.get();
        if facts.kind() == FileKind::Regular && facts.size == 0 {
            // The first write decides the block size: writes of the record size are best.
            block_size = block_size.max(self.properties().record_size.get());
        }
        let shows_control = node.id == self.root() && self.lists_control_directory(node.id);
        let pending = *node.accessed.lock();
        Attributes {
            id: node.id,
            generation: facts.generation,
            kind: facts.kind(),
            permissions: facts.permissions(),
            links: facts.links + u64::from(shows_control),
            uid: facts.uid(),
            gid: facts.gid(),
            size: facts.size,
            blocks_512: info.used.get().saturating_add(256) / 512 + slots,
            block_size: u32::try_from(block_size).unwrap_or(u32::MAX),
            device: facts.device_number(),
            accessed: pending.map_or(facts.accessed, |time| time.max(facts.accessed)),
            modified: facts.modified,
            changed: facts.changed,
            created: facts.created,
            flags: facts.flags.word(),
            project: facts.project,
            is_space_unsettled: info.is_space_unsettled,
        }
    }

    /// What `stat` shows of an entry of the control directory.
    pub(crate) fn control_attributes(
        &self,
        entry: ControlEntry,
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        let created = self.node(self.root(), operation)?.facts().created;
        let door = self.snapshots.as_ref();
        match entry {
            ControlEntry::Root => {
                let attributes = control_directory::attributes(entry, 3, created, created);
                Ok(attributes)
            }
            ControlEntry::Snapshots => {
                let count = door.map_or(0, |door| door.count());
                let links = count.saturating_add(2);
                let changed = door.map_or_else(Timestamp::default, |door| door.changed());
                let attributes = control_directory::attributes(entry, links, created, changed);
                Ok(attributes)
            }
            ControlEntry::Snapshot(dataset) => {
                let snapshot = door.and_then(|door| door.find(WhichSnapshot::Numbered(dataset)));
                let snapshot = snapshot.ok_or(PosixError::NotFound)?;
                let created = snapshot.created;
                Ok(control_directory::attributes(entry, 2, created, created))
            }
        }
    }
}
