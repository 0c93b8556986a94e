//! Another name for a file, or the first one for a file that was made without.
//!
//! # Mechanism
//! No record can express that a file without a name gets one: the intent log has neither the
//! creation of such files nor their contents. So later commits wait for the txg, which stores all
//! of it at once.

use tarn_object::Tx;
use tarn_ondisk::intent_log::LoggedChange;
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::holders::Change;
use crate::node::{Node, lock_existing};
use crate::ops::create::ENTRY_BYTES;
use crate::types::{Attributes, Credentials};

/// The largest number of links that Linux allows.
#[doc(alias = "ZFS_LINK_MAX")]
const LINKS_MAX: u64 = (1 << 31) - 1;

impl FileSystem {
    /// Gives a file another name.
    ///
    /// # Errors
    /// `Exists`, `TooManyLinks`, `NotPermitted` for a directory or an immutable file, `CrossDevice`
    /// between projects, `PermissionDenied`, `NoSpace`, `ReadOnly`; nothing has changed then.
    #[doc(alias = "zfs_link")]
    pub fn link(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        parent: ObjectId,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        if self.control_entry(parent).is_some() || self.control_entry(id).is_some() {
            return Err(PosixError::NotPermitted);
        }
        let (node, directory) = (self.node(id, operation)?, self.node(parent, operation)?);
        let came = Change::Entry {
            directory: parent,
            name,
        };
        let _told = self.telling(came, operation);
        let _counted = self.telling(Change::Attributes { file: id }, operation);
        let _changing = self.changing(id, operation)?;
        let change = lock_existing(&[&node, &directory])?;
        let facts = node.facts();
        self.check_new_entry(credentials, &directory, name, facts.kind(), operation)?;
        let pinned = ZnodeFlags::IMMUTABLE.and(ZnodeFlags::APPEND_ONLY);
        if facts.is_directory() || facts.flags.has_any(pinned) {
            return Err(PosixError::NotPermitted);
        }
        let is_first_name = facts.links == 0;
        if is_first_name && !node.awaits_name() {
            return Err(PosixError::NotFound);
        }
        if facts.links >= LINKS_MAX {
            return Err(PosixError::TooManyLinks);
        }
        check_project(&directory.facts(), &facts)?;
        let tx = self.begin(ENTRY_BYTES, operation)?;
        match is_first_name {
            true => self.add_first_name(&node, &directory, name, &tx, operation)?,
            false => self.add_link(&node, &directory, name, &tx, operation)?,
        }
        let txg = tx.txg();
        drop((tx, change));
        self.after_change(txg, operation)?;
        Ok(self.node_attributes(&node))
    }

    /// Adds the name of a file that is in the unlinked set, where no file may be that has one.
    fn add_first_name(
        &self,
        node: &Node,
        directory: &Node,
        name: &[u8],
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.remove_unlinked(node, tx, operation)?;
        if let Err(error) = self.add_link(node, directory, name, tx, operation) {
            // It cannot fail: the block of the set is in memory.
            let _ = self.add_unlinked(node, tx, operation);
            return Err(error);
        }
        node.set_awaits_name(false);
        // It does not wait to be freed any more.
        self.unlinked_counts.freed();
        Ok(())
    }

    /// Adds the name. The caller holds `change` of both, and has checked that the name is free.
    pub(crate) fn add_link(
        &self,
        node: &Node,
        directory: &Node,
        name: &[u8],
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let now = self.now();
        let mut facts = (*node.facts()).clone();
        let is_first_name = facts.links == 0;
        let table = self.directory(directory, operation)?;
        let inserted = table.insert(tx, name, node.id, facts.kind());
        self.unlogged_if_it_fails(tx, inserted)?;
        facts.links += 1;
        facts.parent = directory.id;
        facts.attributes_changed(now);
        let stored = self
            .store(node, facts, tx, operation)
            .and_then(|()| self.count_entries(directory, 1, 0, now, tx, operation));
        if let Err(error) = stored {
            let _ = table.remove(tx, name);
            self.log_nothing(tx);
            return Err(error);
        }
        if is_first_name {
            self.log_nothing(tx);
        } else {
            self.log_shared(tx, || LoggedChange::Link {
                directory: directory.id,
                object: node.id,
                name: Text::from(name),
            });
        }
        Ok(())
    }
}

/// Refuses to bring a file of another project into a directory that passes its project on.
pub(crate) fn check_project(directory: &Facts, file: &Facts) -> Result<(), PosixError> {
    let inherits = directory.flags.has(ZnodeFlags::INHERIT_PROJECT);
    match inherits && directory.project != file.project {
        true => Err(PosixError::CrossDevice),
        false => Ok(()),
    }
}
