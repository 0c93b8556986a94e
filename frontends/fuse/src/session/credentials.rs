//! The credentials of the caller, as they are told by the kernel.

use super::Place;
use crate::protocol::{RequestHead, opcode};
use tarn_engine::files::{Actor, ControlEntry, Credentials, actor_of_process};

/// The caller. The kernel has checked permissions, with groups that we are not told; so what reaches us is allowed. Who changes snapshots is not known to
/// the kernel: there user and groups are looked up, while the caller waits.
pub(super) fn credentials_of(head: &RequestHead, place: &Place) -> Credentials {
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
        uid,
        gid,
        groups,
        privileged: true,
    }
}
