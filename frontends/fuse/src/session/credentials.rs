//! The credentials of a request's caller.

use super::{Place, Session};
use crate::permission_checks::PermissionChecks;
use crate::protocol::{RequestHead, UNKNOWN_USER, opcode};
use tarn_engine::files::{
    AclType, Actor, CheckedByCaller, ControlEntry, Credentials, actor_of_process,
};

/// Requests that need permissions. Requests about open files were permitted at the open.
const CHECKED: [u32; 18] = [
    opcode::LOOKUP,
    opcode::SETATTR,
    opcode::SYMLINK,
    opcode::MKNOD,
    opcode::MKDIR,
    opcode::CREATE,
    opcode::TMPFILE,
    opcode::UNLINK,
    opcode::RMDIR,
    opcode::RENAME,
    opcode::RENAME2,
    opcode::LINK,
    opcode::OPEN,
    opcode::OPENDIR,
    opcode::GETXATTR,
    opcode::SETXATTR,
    opcode::REMOVEXATTR,
    opcode::IOCTL,
];

impl Session {
    /// Whether the file system checks access to a file: it has NFSv4 ACLs, or was mounted for them.
    pub(crate) fn enforces(&self, place: &Place) -> bool {
        self.checks == PermissionChecks::FileSystem
            || place.files.properties().acl_type == AclType::Nfs4
    }

    /// The caller's credentials. Where the kernel has checked permissions, with groups that the
    /// request does not have, the request is allowed. Otherwise, and for changes of snapshots,
    /// which the kernel does not check, the groups are looked up while the caller waits.
    pub(super) fn credentials_of(&self, head: &RequestHead, place: &Place) -> Credentials {
        let is_checked_here = CHECKED.contains(&head.opcode) || head.opcode == opcode::ACCESS;
        if is_checked_here && self.enforces(place) {
            return caller(head.uid, head.gid, head.pid);
        }
        let changes_names = matches!(head.opcode, opcode::MKDIR | opcode::RMDIR)
            || matches!(head.opcode, opcode::RENAME | opcode::RENAME2);
        let changes_snapshots = changes_names && ControlEntry::of(place.id).is_some();
        let told = Actor {
            uid: head.uid,
            gid: head.gid,
            groups: Vec::new(),
        };
        let Actor { uid, gid, groups } = match changes_snapshots {
            true => actor_of_process(head.pid).unwrap_or(told),
            false => told,
        };
        Credentials {
            checked: CheckedByCaller::ModeAndPosixAcls,
            ..Credentials::user(uid, gid, groups)
        }
    }
}

/// The user of a request with all groups, nothing checked. The user may differ from that of the
/// process (a server in the kernel acts for its clients): then not all groups are known.
fn caller(uid: u32, gid: u32, process: u32) -> Credentials {
    if uid == 0 {
        return Credentials::root();
    }
    let seen = actor_of_process(process);
    match seen {
        Some(actor) if uid == UNKNOWN_USER || uid == actor.uid => Credentials {
            privileged: actor.uid == 0,
            ..Credentials::user(actor.uid, actor.gid, actor.groups)
        },
        _ => Credentials {
            has_all_groups: false,
            ..Credentials::user(uid, gid, Vec::new())
        },
    }
}
