//! The names of a file's extended attributes.
//!
//! `system.nfs4_acl` is listed only for a list that is not trivial: programs that show files with
//! longer lists, as `ls -l` does, find it by its name, and programs that copy attributes have
//! nothing to do for other files. It can be read of every file.

use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::acl::{ACCESS_NAME, DEFAULT_NAME};
use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::nfs4_acl::wire;
use crate::properties::{AclType, XattrStore};
use crate::types::Credentials;
use crate::xattrs::Namespace;

impl FileSystem {
    /// The names of the extended attributes that this user may see.
    ///
    /// # Errors
    /// `NotFound`, or what could not be read.
    pub fn list_xattr(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Vec<Vec<u8>>, PosixError> {
        let properties = self.properties();
        if self.control_entry(id).is_some() {
            return Ok(Vec::new());
        }
        let node = self.node(id, operation)?;
        let facts = node.facts();
        let users_have_none = properties.xattrs == XattrStore::Off;
        let shown = |name: Vec<u8>| match Namespace::of(&name) {
            None | Some(Namespace::User) if users_have_none => None,
            None => Some([b"user.", name.as_slice()].concat()),
            Some(Namespace::System) => {
                let is_acl = name == ACCESS_NAME || name == DEFAULT_NAME;
                (is_acl && properties.acl_type == AclType::Posix).then_some(name)
            }
            Some(namespace) => namespace.is_visible_to(credentials).then_some(name),
        };
        let names = self.stored_xattr_names(&node, &facts, operation)?;
        let mut names: Vec<Vec<u8>> = names.into_iter().filter_map(shown).collect();
        let is_trivial = facts.flags.has(ZnodeFlags::ACL_TRIVIAL);
        if properties.acl_type == AclType::Nfs4 && !is_trivial {
            names.push(wire::NAME.to_vec());
        }
        Ok(names)
    }
}
