//! Access to one file: by the mode, by a POSIX access control list, or by an NFSv4 one.
//!
//! # Mechanism
//! The property `acltype` chooses the model. With `nfsv4` the file's NFSv4 list decides, for every
//! caller. Otherwise the mode decides, or the POSIX list of a file that has one (`acltype=posix`),
//! unless the caller has checked both before ([`CheckedByCaller`]).
//!
//! Contents are read and written without a check of each request: a caller with open files checks
//! when a file is opened ([`check_open`](FileSystem::check_open)), a protocol without them calls
//! the same before each request.
//!
//! # Invariants
//! - A privileged user passes every check but one: a regular file that no class may execute is
//!   executed by no user.

use tarn_ondisk::acl::permission;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::acl::{ACCESS_NAME, PosixAcl};
use crate::error::PosixError;
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::properties::AclType;
use crate::types::{CheckedByCaller, Credentials, FileKind, OpenRights};

/// To read.
pub(crate) const READ: u32 = 4;
/// To write.
pub(crate) const WRITE: u32 = 2;
/// To execute, or to search a directory.
pub(crate) const EXECUTE: u32 = 1;

/// The rules that decide about access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessModel {
    /// The caller has checked.
    Checked,
    /// Mode bits, and POSIX lists where the dataset has them.
    Posix,
    /// NFSv4 lists.
    Nfs4,
}

impl FileSystem {
    /// Whether all of `mask` (4 to read, 2 to write, 1 to execute or search) is allowed.
    ///
    /// # Errors
    /// `PermissionDenied`, `ReadOnly` for writing where nothing can be written, `NotFound`, or what
    /// could not be read.
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
            let changes_file_system = facts.is_directory() || facts.kind() == FileKind::Regular;
            if changes_file_system {
                self.check_writable()?;
            }
        }
        self.check_access(credentials, &node, mask, operation)
    }

    /// Checks that a user may open a file with these rights: by its permissions, by its flags, and
    /// whether the mount is writable. A device or pipe may be opened for writing on a read-only
    /// mount, since that changes nothing here.
    ///
    /// # Errors
    /// `PermissionDenied`, `NotPermitted` for an immutable file, or one that takes only appended
    /// data, `ReadOnly`, `NotFound`, or what could not be read.
    pub fn check_open(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        rights: OpenRights,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if rights.writes {
            self.check_writing(id, rights.appends, operation)?;
        }
        if self.control_entry(id).is_some() {
            return Ok(());
        }
        let node = self.node(id, operation)?;
        let bit = |wanted: bool, bit: u32| if wanted { bit } else { 0 };
        let others = bit(rights.reads, READ) | bit(rights.executes, EXECUTE);
        if rights.writes && rights.appends && self.access_model(credentials) == AccessModel::Nfs4 {
            // Each of these rights permits appending.
            let appended = self
                .check_nfs4(credentials, &node, permission::WRITE_DATA, operation)
                .or_else(|_| {
                    self.check_nfs4(credentials, &node, permission::APPEND_DATA, operation)
                });
            appended?;
            return self.check_access(credentials, &node, others, operation);
        }
        let mask = others | bit(rights.writes, WRITE);
        self.check_access(credentials, &node, mask, operation)
    }

    /// The access model for these credentials.
    pub(crate) fn access_model(&self, credentials: &Credentials) -> AccessModel {
        match (self.properties().acl_type, credentials.checked) {
            (AclType::Nfs4, _) => AccessModel::Nfs4,
            (_, CheckedByCaller::ModeAndPosixAcls) => AccessModel::Checked,
            (_, CheckedByCaller::Nothing) => AccessModel::Posix,
        }
    }

    /// As [`access`](Self::access) for a file in memory, also on a read-only mount.
    pub(crate) fn check_access(
        &self,
        credentials: &Credentials,
        node: &Node,
        mask: u32,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let facts = node.facts();
        let is_allowed = match self.access_model(credentials) {
            AccessModel::Nfs4 => {
                let bit = |wanted: u32, right: u32| if mask & wanted != 0 { right } else { 0 };
                let rights = bit(READ, permission::READ_DATA)
                    | bit(WRITE, permission::WRITE_DATA)
                    | bit(EXECUTE, permission::EXECUTE);
                return self.check_nfs4(credentials, node, rights, operation);
            }
            _ if credentials.passes_posix_rules() => may_override(&facts, mask & EXECUTE != 0),
            AccessModel::Checked | AccessModel::Posix => {
                match self.access_acl(node, &facts, operation)? {
                    Some(acl) => acl.grants(credentials, facts.uid(), facts.gid(), mask),
                    None => mode_grants(&facts, credentials, mask),
                }
            }
        };
        match is_allowed {
            true => Ok(()),
            false => Err(PosixError::PermissionDenied),
        }
    }

    /// The file's access list (POSIX), if the dataset has `acltype=posix` and the file has one.
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

/// Whether privilege overrides the permissions of a file: always, but for execution of a regular
/// file that no class may execute.
pub(crate) fn may_override(facts: &Facts, executes: bool) -> bool {
    !executes || facts.is_directory() || facts.mode & 0o111 != 0
}

/// Whether the mode grants these rights.
pub(crate) fn mode_grants(facts: &Facts, credentials: &Credentials, mask: u32) -> bool {
    let bits = if credentials.uid == facts.uid() {
        facts.mode >> 6
    } else if credentials.is_member(facts.gid()) {
        facts.mode >> 3
    } else {
        facts.mode
    };
    bits & mask == mask
}
