//! Permission rules beside access to one file: entries of directories, owner-only changes, set-id
//! bits, and the flags that bind privileged users as well.

use tarn_ondisk::acl::permission;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::ops::access::{AccessModel, EXECUTE, WRITE};
use crate::types::{Credentials, FileKind};

/// The set-user-id bit.
pub(crate) const SET_UID: u32 = 0o4000;
/// The set-group-id bit.
pub(crate) const SET_GID: u32 = 0o2000;
/// The sticky bit.
pub(crate) const STICKY: u32 = 0o1000;

/// Files with one of these can neither be removed nor get another name.
const PINNED: ZnodeFlags = ZnodeFlags::IMMUTABLE
    .and(ZnodeFlags::APPEND_ONLY)
    .and(ZnodeFlags::NO_UNLINK);

impl FileSystem {
    /// Refuses new entries in a directory that was removed or is immutable.
    fn check_takes_entries(&self, directory: &Facts) -> Result<(), PosixError> {
        if !directory.is_directory() {
            return Err(PosixError::NotDirectory);
        }
        if directory.links == 0 {
            return Err(PosixError::NotFound);
        }
        self.check_writable()?;
        match directory.flags.has(ZnodeFlags::IMMUTABLE) {
            true => Err(PosixError::NotPermitted),
            false => Ok(()),
        }
    }

    /// Refuses a new entry for a file of this kind in a directory that was removed, or where this
    /// user may not add one.
    pub(crate) fn check_may_add(
        &self,
        credentials: &Credentials,
        directory: &Node,
        kind: FileKind,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.check_takes_entries(&directory.facts())?;
        match self.access_model(credentials) {
            AccessModel::Nfs4 => {
                let adds = match kind {
                    FileKind::Directory => permission::APPEND_DATA,
                    _ => permission::WRITE_DATA,
                };
                let wanted = adds | permission::EXECUTE;
                self.check_nfs4(credentials, directory, wanted, operation)
            }
            _ => self.check_access(credentials, directory, WRITE | EXECUTE, operation),
        }
    }

    /// Refuses to remove an entry: by the directory's permissions and, with NFSv4 lists, the
    /// file's; by the sticky bit, and by the flags of both.
    pub(crate) fn check_may_remove(
        &self,
        credentials: &Credentials,
        directory: &Node,
        file: &Node,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let (directory_facts, file_facts) = (directory.facts(), file.facts());
        self.check_takes_entries(&directory_facts)?;
        let model = self.access_model(credentials);
        match model {
            AccessModel::Nfs4 => self.check_nfs4_delete(credentials, directory, file, operation)?,
            _ => self.check_access(credentials, directory, WRITE | EXECUTE, operation)?,
        }
        if directory_facts.flags.has(ZnodeFlags::APPEND_ONLY) || file_facts.flags.has_any(PINNED) {
            return Err(PosixError::NotPermitted);
        }
        let is_sticky = directory_facts.mode & STICKY != 0;
        let may_remove = credentials.privileged
            || model == AccessModel::Checked
            || credentials.uid == directory_facts.uid()
            || credentials.uid == file_facts.uid();
        match is_sticky && !may_remove {
            true => Err(PosixError::NotPermitted),
            false => Ok(()),
        }
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

    /// True for the owner of a file, for privileged users, and where the caller has checked that
    /// the user is one of them.
    pub(crate) fn is_owner(&self, credentials: &Credentials, facts: &Facts) -> bool {
        credentials.privileged
            || self.access_model(credentials) == AccessModel::Checked
            || credentials.uid == facts.uid()
    }
}

/// The permission bits of a file after its contents or owner change: set-id bits go, so that no
/// program runs with the rights of an owner or group that did not write it. A set-group-id bit
/// without execution by the group has another meaning, and is removed only if the user is not in
/// the group.
#[doc(alias("zfs_clear_setid_bits_if_necessary", "setattr_should_drop_suidgid"))]
pub(crate) fn without_set_ids(credentials: &Credentials, facts: &Facts) -> u32 {
    let mut permissions = facts.permissions();
    if facts.kind() == FileKind::Directory {
        return permissions;
    }
    permissions &= !SET_UID;
    let runs_as_group = permissions & 0o010 != 0;
    if runs_as_group || !(credentials.passes_posix_rules() || credentials.is_member(facts.gid())) {
        permissions &= !SET_GID;
    }
    permissions
}
