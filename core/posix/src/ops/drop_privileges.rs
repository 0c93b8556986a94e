//! Set-id bits and capabilities (`security.capability`) are removed from a file that is written,
//! truncated or given another owner, since these privileges were granted to its old contents or
//! owner.
//!
//! The kernel leaves this to the file system, and says in each request whether the caller may keep
//! the set-id bits. It is a transaction of its own, before the change: a crash in between leaves a
//! file with fewer privileges.

use tarn_ondisk::attributes::FileAttribute;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::holders::Change;
use crate::intent::{AttributesSet, Pending, attributes_set};
use crate::node::{Node, lock_existing};
use crate::ops::set_attributes::ATTRIBUTE_BYTES;
use crate::permissions::{SET_GID, SET_UID, without_set_ids};
use crate::types::{Credentials, FileKind, Privileges};

/// The extended attribute with the capabilities of a program.
const CAPABILITY_NAME: &[u8] = b"security.capability";

impl FileSystem {
    /// Takes privileges from a file that these credentials change. True if it had any.
    ///
    /// # Errors
    /// When there is no such file, it cannot be read, or the change cannot be stored.
    #[doc(alias = "file_remove_privs")]
    pub fn drop_privileges(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        which: Privileges,
        operation: &Operation,
    ) -> Result<bool, PosixError> {
        if self.control_entry(id).is_some() {
            return Ok(false);
        }
        let node = self.node(id, operation)?;
        // Nearly always the file has no privileges, which needs no lock to see.
        if !self.may_have_privileges(&node, which) {
            return Ok(false);
        }
        let _told = self.telling(Change::Attributes { file: id }, operation);
        let _changing = self.changing(id, operation)?;
        let change = lock_existing(&[&node])?;
        let old = (*node.facts()).clone();
        let capability = self.stored_xattr(&node, &old, CAPABILITY_NAME, operation)?;
        let permissions = match which {
            Privileges::Capabilities => old.permissions(),
            Privileges::All => without_set_ids(credentials, &old),
        };
        if capability.is_none() && permissions == old.permissions() {
            return Ok(false);
        }
        let tx = self.begin(ATTRIBUTE_BYTES, operation)?;
        let mut facts = self.facts_to_change(&node, &tx, operation)?;
        let mut pending = Pending::default();
        if capability.is_some() {
            self.take_xattr(
                &node.object,
                &mut facts,
                CAPABILITY_NAME,
                &mut pending,
                &tx,
                operation,
            )?;
        }
        if permissions != facts.permissions() {
            self.change_permissions(&mut facts, permissions);
            pending.own(attributes_set(id, &old, &facts, AttributesSet::default()));
            self.follow_permissions(&node, &old, &mut facts, &mut pending, &tx, operation)?;
        }
        facts.attributes_changed(self.now());
        self.store(&node, facts, &tx, operation)?;
        self.log_pending(&tx, &node, pending);
        let txg = tx.txg();
        drop((tx, change));
        self.after_change(txg, operation)?;
        Ok(true)
    }

    fn may_have_privileges(&self, node: &Node, which: Privileges) -> bool {
        let facts = node.facts();
        if facts.kind() != FileKind::Regular || self.properties().is_read_only {
            return false;
        }
        let listed = facts.value(FileAttribute::Xattrs, &self.tables.current());
        let has_attributes = !facts.xattr_directory.is_zero() || listed.is_some();
        let has_set_ids = facts.permissions() & (SET_UID | SET_GID) != 0;
        has_attributes || (which == Privileges::All && has_set_ids)
    }
}
