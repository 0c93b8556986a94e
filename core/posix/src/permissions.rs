//! Who may change a directory's entries, a file's attributes, and what nobody may change.

use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::ops::access::{EXECUTE, WRITE};
use crate::types::{Credentials, FileKind};

/// The set-user-id bit.
pub(crate) const SET_UID: u32 = 0o4000;
/// The set-group-id bit.
pub(crate) const SET_GID: u32 = 0o2000;
/// The sticky bit.
pub(crate) const STICKY: u32 = 0o1000;

/// What neither can be removed nor get another name.
const PINNED: ZnodeFlags = ZnodeFlags::IMMUTABLE
    .and(ZnodeFlags::APPEND_ONLY)
    .and(ZnodeFlags::NO_UNLINK);

impl FileSystem {
    /// Refuses new entries in a directory that is gone or does not let this user write.
    pub(crate) fn check_may_add(
        &self,
        credentials: &Credentials,
        directory: &Node,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let facts = directory.facts();
        if !facts.is_directory() {
            return Err(PosixError::NotDirectory);
        }
        if facts.links == 0 {
            return Err(PosixError::NotFound);
        }
        self.check_writable()?;
        if facts.flags.has(ZnodeFlags::IMMUTABLE) {
            return Err(PosixError::NotPermitted);
        }
        self.check_access(credentials, directory, WRITE | EXECUTE, operation)
    }

    /// Refuses to remove an entry: by the directory's permissions, the sticky bit, and the file's flags.
    pub(crate) fn check_may_remove(
        &self,
        credentials: &Credentials,
        directory: &Node,
        file: &Node,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.check_may_add(credentials, directory, operation)?;
        let (directory, file) = (directory.facts(), file.facts());
        if directory.flags.has(ZnodeFlags::APPEND_ONLY) || file.flags.has_any(PINNED) {
            return Err(PosixError::NotPermitted);
        }
        let is_sticky = directory.mode & STICKY != 0;
        let is_owner = credentials.privileged
            || credentials.uid == directory.uid()
            || credentials.uid == file.uid();
        if is_sticky && !is_owner {
            return Err(PosixError::NotPermitted);
        }
        Ok(())
    }

    /// Refuses changes of contents that flags forbid.
    pub(crate) fn check_contents_flags(facts: &Facts, appends: bool) -> Result<(), PosixError> {
        let is_immutable = facts.flags.has(ZnodeFlags::IMMUTABLE);
        let is_append_only = facts.flags.has(ZnodeFlags::APPEND_ONLY);
        if is_immutable || (is_append_only && !appends) {
            return Err(PosixError::NotPermitted);
        }
        Ok(())
    }
}

/// True for the owner of a file, and for who may act as if he were.
pub(crate) fn is_owner(credentials: &Credentials, facts: &Facts) -> bool {
    credentials.privileged || credentials.uid == facts.uid()
}

/// The permission bits of a file whose contents or owner somebody changes: programs that run as their owner or group do not
/// survive it. A set-group-id bit without execution by the group means something else, and goes only where the one who
/// changes it is not of the group.
#[doc(alias("zfs_clear_setid_bits_if_necessary", "setattr_should_drop_suidgid"))]
pub(crate) fn without_set_ids(credentials: &Credentials, facts: &Facts) -> u32 {
    let mut permissions = facts.permissions();
    if facts.kind() == FileKind::Directory {
        return permissions;
    }
    permissions &= !SET_UID;
    let runs_as_group = permissions & 0o010 != 0;
    if runs_as_group || !(credentials.privileged || credentials.is_member(facts.gid())) {
        permissions &= !SET_GID;
    }
    permissions
}
