//! May this user do that to this file? Decided by the mode, or by a POSIX access control list where there is one.

use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::acl::{ACCESS_NAME, PosixAcl};
use crate::error::PosixError;
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::properties::AclType;
use crate::types::Credentials;

/// To read.
pub(crate) const READ: u32 = 4;
/// To write.
pub(crate) const WRITE: u32 = 2;
/// To execute, or to search a directory.
pub(crate) const EXECUTE: u32 = 1;

impl FileSystem {
    /// Whether all of `mask` (4 to read, 2 to write, 1 to execute or search) is allowed.
    ///
    /// # Errors
    /// `PermissionDenied`, `ReadOnly` for writing where nothing can be written, `NotFound`, or what could not
    /// be read.
    pub fn access(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        mask: u32,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if self.control_entry(id).is_some() {
            return if mask & WRITE == 0 {
                Ok(())
            } else {
                Err(PosixError::ReadOnly)
            };
        }
        let node = self.node(id, operation)?;
        if mask & WRITE != 0 {
            let facts = node.facts();
            let changes_file_system =
                facts.is_directory() || facts.kind() == crate::types::FileKind::Regular;
            if changes_file_system {
                self.check_writable()?;
            }
        }
        self.check_access(credentials, &node, mask, operation)
    }

    /// The same for a file in memory.
    pub(crate) fn check_access(
        &self,
        credentials: &Credentials,
        node: &Node,
        mask: u32,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let facts = node.facts();
        if credentials.privileged {
            let can_execute = facts.is_directory() || facts.mode & 0o111 != 0;
            let is_allowed = mask & EXECUTE == 0 || can_execute;
            return if is_allowed {
                Ok(())
            } else {
                Err(PosixError::PermissionDenied)
            };
        }
        let is_allowed = match self.access_acl(node, &facts, operation)? {
            Some(acl) => acl.grants(credentials, facts.uid(), facts.gid(), mask),
            None => mode_grants(&facts, credentials, mask),
        };
        if is_allowed {
            Ok(())
        } else {
            Err(PosixError::PermissionDenied)
        }
    }

    /// The file's own POSIX list, if the dataset uses such and the file has one.
    pub(crate) fn access_acl(
        &self,
        node: &Node,
        facts: &Facts,
        operation: &Operation,
    ) -> Result<Option<PosixAcl>, PosixError> {
        self.posix_acl(node, facts, ACCESS_NAME, operation)
    }

    /// A POSIX list of a file.
    pub(crate) fn posix_acl(
        &self,
        node: &Node,
        facts: &Facts,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Option<PosixAcl>, PosixError> {
        if self.properties().acl_type != AclType::Posix {
            return Ok(None);
        }
        match self.stored_xattr(node, facts, name, operation)? {
            Some(bytes) => {
                let list = PosixAcl::decode(&bytes).map_err(|_| PosixError::Damaged {
                    object: node.id,
                    why: "its access control list is none",
                });
                list.map(Some)
            }
            None => Ok(None),
        }
    }
}

/// What the mode says of these rights.
fn mode_grants(facts: &Facts, credentials: &Credentials, mask: u32) -> bool {
    let bits = if credentials.uid == facts.uid() {
        facts.mode >> 6
    } else if credentials.is_member(facts.gid()) {
        facts.mode >> 3
    } else {
        facts.mode
    };
    bits & mask == mask
}
