//! Extended attributes, access control lists among them.
//!
//! `GETXATTR`, `LISTXATTR`, `SETXATTR`, `REMOVEXATTR`.

use super::{Call, Reply, done, refused};
use crate::permission_checks::PermissionChecks;
use crate::protocol::{Answer, Arguments, SETXATTR_DROP_SET_GID, init_flags};
use crate::session::{Place, errno_of};
use rustix::io::Errno;
use tarn_engine::files::{PosixError, SetGroupId, XattrMode};

/// The names of POSIX ACLs, which the kernel reads before it decides by the mode.
const ACL_NAMES: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// The name of NFSv4 ACLs.
const NFS4_ACL_NAME: &[u8] = b"system.nfs4_acl";

impl Call<'_> {
    pub(super) fn get_xattr(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let room = arguments.u32()?;
        arguments.skip(4)?;
        let name = arguments.name()?;
        if ACL_NAMES.contains(&name) {
            self.session.lists().note(self.node);
        }
        let value = file
            .files
            .get_xattr(self.credentials, file.id, name, self.operation);
        let kernel_decides = self.session.checks() == PermissionChecks::Kernel;
        let value = value.map_err(|error| match kernel_decides {
            true => no_acl(name, &error),
            false => refused(error),
        });
        sized(&value?, room)
    }

    pub(super) fn list_xattr(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let room = arguments.u32()?;
        let names = file
            .files
            .list_xattr(self.credentials, file.id, self.operation);
        let mut names = names.map_err(refused)?;
        // The kernel decides by an attribute's name which callers may read it; for a listing it
        // does not know the names.
        let is_roots = |name: &[u8]| name.starts_with(b"trusted.");
        if names.iter().any(|name| is_roots(name)) && !self.is_by_root() {
            names.retain(|name| !is_roots(name));
        }
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        sized(&list, room)
    }

    pub(super) fn set_xattr(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (size, flags) = (arguments.u32()?, arguments.u32()?);
        let mut set_gid = SetGroupId::AsTheyMay;
        if self.session.agreed_on(init_flags::SETXATTR_EXT) {
            // The kernel has checked the caller's groups, which the request does not have.
            if arguments.u32()? & SETXATTR_DROP_SET_GID != 0 {
                set_gid = SetGroupId::Goes;
            }
            arguments.skip(4)?;
        }
        let name = arguments.name()?;
        let value = arguments.bytes(size)?;
        let mode = match i32::try_from(flags) {
            Ok(0) => XattrMode::Any,
            Ok(libc::XATTR_CREATE) => XattrMode::Create,
            Ok(libc::XATTR_REPLACE) => XattrMode::Replace,
            _ => return Err(Errno::INVAL),
        };
        let set = file.files.set_xattr_and_mode(
            self.credentials,
            file.id,
            name,
            value,
            mode,
            set_gid,
            self.operation,
        );
        self.mode_follows_list(name);
        done(set)
    }

    pub(super) fn remove_xattr(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let name = arguments.name()?;
        let removed = file
            .files
            .remove_xattr(self.credentials, file.id, name, self.operation);
        self.mode_follows_list(name);
        done(removed)
    }

    /// Called after an ACL may have changed: the kernel knows that modes follow POSIX ACLs, but not
    /// that they follow NFSv4 ones.
    fn mode_follows_list(&self, name: &[u8]) {
        if name == NFS4_ACL_NAME {
            let _ = self.device.forget_attributes(self.node);
        }
    }
}

/// Why an attribute could not be read. For `ENODATA` (no ACL) the kernel decides by the mode; for
/// `EOPNOTSUPP` it would not.
fn no_acl(name: &[u8], error: &PosixError) -> Errno {
    match errno_of(error) {
        Errno::OPNOTSUPP if ACL_NAMES.contains(&name) => Errno::NODATA,
        errno => errno,
    }
}

/// Bytes for a caller with this buffer size; zero asks for the length.
fn sized(bytes: &[u8], room: u32) -> Result<Reply, Errno> {
    let size = u32::try_from(bytes.len()).map_err(|_| Errno::TOOBIG)?;
    let mut answer = Answer::new();
    if room == 0 {
        answer.u32(size).u32(0);
    } else if size > room {
        return Err(Errno::RANGE);
    } else {
        answer.bytes(bytes);
    }
    Ok(Reply::Parts(answer))
}
