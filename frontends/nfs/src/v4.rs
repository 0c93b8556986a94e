//! NFS versions 4.0, 4.1 and 4.2 (RFC 7530, RFC 8881, RFC 7862).
//!
//! # Mechanism
//! A call is a compound of operations on a current file (`compound`). Each is in a session, in
//! which it is carried out exactly once (`sessions`); in version 4.0, clients have numbers instead
//! (`client_ids`), and owners of opens and locks count their operations (`owner_turns`). Opens and
//! locks are state of the client (`state`), kept by `posix`, so that mounts and clients exclude
//! each other. A client begins at the root of the server and finds shares by their paths
//! (`pseudo`). A client that only reads a file is promised that no other changes it (`delegating`).
//!
//! # Not built
//! Write delegations, pNFS, named attributes. After a
//! restart of the daemon clients reclaim their opens and locks (`grace`); programs on mounts of
//! this machine do not wait for that, so a lock that one of them takes meanwhile is lost to the
//! client.

mod attributes;
mod binding;
mod bitmap;
mod callback_place;
mod callback_route;
mod client_ids;
mod client_name;
mod compound;
mod contents;
mod delegating;
mod delegation_table;
mod directories;
mod grace;
mod held_ranges;
mod locking;
mod names;
mod open_arguments;
mod opening;
mod operation;
mod owner_names;
mod owner_turns;
mod owners;
mod pseudo;
mod recalling;
mod security;
mod sessions;
mod sparse_reads;
mod state;
mod status;
mod user_attributes;

pub(crate) use compound::{Memory, minor_of, run};
pub(crate) use held_ranges::HeldRanges;
pub use owner_names::is_domain;
pub(crate) use recalling::{begin as call_clients, have_returned};
pub(crate) use state::reservation;

use crate::xdr::{Reader, Writer};
use compound::{Compound, Done};
use sessions::Replay;
use status::Status;
use tarn_engine::files::Allocate;

/// The version.
pub const VERSION: u32 = 4;
/// The procedure beside `NULL`.
pub const COMPOUND: u32 = 1;

/// Whether a failure of an operation has more than its status.
fn has_failure_body(number: u32, status: Status) -> bool {
    let is_lock = matches!(number, operation::LOCK | operation::LOCKT);
    let is_client = number == operation::SETCLIENTID;
    (is_lock && status == Status::DENIED) || (is_client && status == Status::CLID_INUSE)
}

impl Compound<'_> {
    /// Carries out an operation, and appends its result.
    fn run(
        &mut self,
        number: u32,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<Done, Replay> {
        use operation::*;
        Ok(match number {
            SEQUENCE => return self.sequence(reader, out),
            number if self.minor > 0 && ONLY_OF_0.contains(&number) => Err(Status::NOTSUPP),
            number if number >= FIRST_OF_2 && self.minor < 2 => Err(Status::OP_ILLEGAL),
            ACCESS => self.access(reader, out),
            CLOSE => self.close(reader, out),
            COMMIT => self.commit(reader, out),
            // What a client had before it restarted is not kept.
            DELEGPURGE => Err(Status::NOTSUPP),
            DELEGRETURN => self.return_delegation(reader),
            CREATE => self.create(reader, out),
            GETATTR => self.get_attributes(reader, out),
            GETFH => self.get_handle(out),
            LINK => self.link(reader, out),
            LOCK => self.lock(reader, out),
            LOCKT => self.test_lock(reader, out),
            LOCKU => self.unlock(reader, out),
            LOOKUP => self.look_up(reader),
            LOOKUPP => self.look_up_parent(),
            NVERIFY => self.verify(reader, true),
            OPEN => self.open(reader, out),
            OPEN_CONFIRM => self.confirm_open(reader, out),
            OPEN_DOWNGRADE => self.downgrade(reader, out),
            PUTFH => self.put_handle(reader),
            PUTPUBFH | PUTROOTFH => self.put_root(),
            READ => self.read(reader, out),
            READDIR => self.read_directory(reader, out),
            READLINK => self.read_link(out),
            REMOVE => self.remove(reader, out),
            RENAME => self.rename(reader, out),
            RESTOREFH => self.restore(),
            SAVEFH => self.save(),
            SECINFO => self.security(reader, out),
            SECINFO_NO_NAME => self.security_of_current(reader, out),
            SETATTR => self.set_attributes(reader, out),
            VERIFY => self.verify(reader, false),
            WRITE => self.write(reader, out),
            RENEW => self.renew(reader),
            SETCLIENTID => self.set_client_id(reader, out),
            SETCLIENTID_CONFIRM => self.confirm_client_id(reader),
            RELEASE_LOCKOWNER => self.release_lock_owner(reader),
            BACKCHANNEL_CTL => self.control_back(reader),
            BIND_CONN_TO_SESSION => self.bind_connection(reader, out),
            EXCHANGE_ID => self.exchange_id(reader, out),
            CREATE_SESSION => self.create_session(reader, out),
            DESTROY_SESSION => self.destroy_session(reader),
            FREE_STATEID => self.free_state(reader),
            TEST_STATEID => self.test_states(reader, out),
            DESTROY_CLIENTID => self.destroy_client(reader),
            RECLAIM_COMPLETE => self.reclaim_complete(reader),
            ALLOCATE => self.allocate(reader, Allocate::Extend),
            DEALLOCATE => self.allocate(reader, Allocate::PunchHole),
            READ_PLUS => self.read_plus(reader, out),
            SEEK => self.seek(reader, out),
            CLONE => self.clone_range(reader),
            COPY => self.copy(reader, out),
            GETXATTR => self.get_user_attribute(reader, out),
            SETXATTR => self.set_user_attribute(reader, out),
            LISTXATTRS => self.list_user_attributes(reader, out),
            REMOVEXATTR => self.remove_user_attribute(reader, out),
            _ => Err(Status::NOTSUPP),
        })
    }
}
