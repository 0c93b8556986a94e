//! The value of an extended attribute.

use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::acl::{ACCESS_NAME, DEFAULT_NAME};
use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::nfs4_acl::wire;
use crate::ops::access::READ;
use crate::properties::{AclType, XattrStore};
use crate::types::Credentials;
use crate::xattrs::{NAME_BYTES_MAX, Namespace};

impl FileSystem {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported` where users have none (`xattr=off`), `PermissionDenied`, or
    /// what could not be read.
    pub fn get_xattr(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Vec<u8>, PosixError> {
        if self.control_entry(id).is_some() {
            return Err(PosixError::NotSupported("extended attributes in .zfs"));
        }
        let namespace = self.check_xattr_name(credentials, name)?;
        if name == wire::NAME {
            return self.get_nfs4_acl(credentials, id, operation);
        }
        let node = self.node(id, operation)?;
        if namespace == Namespace::User {
            self.check_access(credentials, &node, READ, operation)?;
        }
        let facts = node.facts();
        let bare = Namespace::bare_user_name(name);
        for name in [Some(name), bare].into_iter().flatten() {
            if let Some(value) = self.stored_xattr(&node, &facts, name, operation)? {
                return Ok(value);
            }
        }
        Err(PosixError::NoAttribute)
    }

    /// Refuses names that no attribute can have here, or that are hidden from this user.
    pub(crate) fn check_xattr_name(
        &self,
        credentials: &Credentials,
        name: &[u8],
    ) -> Result<Namespace, PosixError> {
        let properties = self.properties();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
            return Err(PosixError::Invalid("no name of an extended attribute"));
        }
        let is_acl = name == ACCESS_NAME || name == DEFAULT_NAME;
        if is_acl && properties.acl_type != AclType::Posix {
            return Err(PosixError::NotSupported(
                "POSIX access control lists (acltype)",
            ));
        }
        let is_nfs4_acl = name == wire::NAME;
        if is_nfs4_acl && properties.acl_type != AclType::Nfs4 {
            return Err(PosixError::NotSupported(
                "NFSv4 access control lists (acltype)",
            ));
        }
        let namespace =
            Namespace::of(name).ok_or(PosixError::NotSupported("attributes of this namespace"))?;
        if namespace == Namespace::System && !is_acl && !is_nfs4_acl {
            return Err(PosixError::NotSupported(
                "attributes of the system's namespace",
            ));
        }
        if namespace.is_all_of(name) {
            return Err(PosixError::Invalid(
                "an attribute has a name behind its namespace",
            ));
        }
        if !namespace.is_visible_to(credentials) {
            return Err(PosixError::NoAttribute);
        }
        if namespace == Namespace::User && properties.xattrs == XattrStore::Off {
            return Err(PosixError::NotSupported(
                "extended attributes of users (xattr=off)",
            ));
        }
        Ok(namespace)
    }
}
