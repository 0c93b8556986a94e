//! NFS versions 4.1 and 4.2 (RFC 8881, RFC 7862).
//!
//! # Mechanism
//! A call is a compound of operations on a current file (`compound`). Each is in a session, in
//! which it is carried out exactly once (`sessions`). Opens and locks are state of the client
//! (`state`), kept by `posix`, so that mounts and clients exclude each other. A client begins at
//! the root of the server and finds shares by their paths (`pseudo`).
//!
//! # Not built
//! Version 4.0, delegations, pNFS, callbacks, lists (ACLs), named and extended attributes. After a
//! restart of the daemon clients reclaim their opens and locks (`grace`); programs on mounts of
//! this machine do not wait for that, so a lock that one of them takes meanwhile is lost to the
//! client.

mod attributes;
mod bitmap;
mod compound;
mod contents;
mod directories;
mod grace;
mod held_ranges;
mod locking;
mod names;
mod opening;
mod pseudo;
mod sessions;
mod state;
mod status;

pub(crate) use compound::{Memory, run};

use crate::xdr::{Reader, Writer};
use compound::{Compound, Done};
use sessions::Replay;
use status::Status;
use tarn_engine::files::Allocate;

/// The version.
pub const VERSION: u32 = 4;
/// The procedure beside `NULL`.
pub const COMPOUND: u32 = 1;

/// Numbers of operations.
mod operation {
    pub(super) const ACCESS: u32 = 3;
    pub(super) const CLOSE: u32 = 4;
    pub(super) const COMMIT: u32 = 5;
    pub(super) const CREATE: u32 = 6;
    pub(super) const GETATTR: u32 = 9;
    pub(super) const GETFH: u32 = 10;
    pub(super) const LINK: u32 = 11;
    pub(super) const LOCK: u32 = 12;
    pub(super) const LOCKT: u32 = 13;
    pub(super) const LOCKU: u32 = 14;
    pub(super) const LOOKUP: u32 = 15;
    pub(super) const LOOKUPP: u32 = 16;
    pub(super) const NVERIFY: u32 = 17;
    pub(super) const OPEN: u32 = 18;
    pub(super) const OPEN_DOWNGRADE: u32 = 21;
    pub(super) const PUTFH: u32 = 22;
    pub(super) const PUTPUBFH: u32 = 23;
    pub(super) const PUTROOTFH: u32 = 24;
    pub(super) const READ: u32 = 25;
    pub(super) const READDIR: u32 = 26;
    pub(super) const READLINK: u32 = 27;
    pub(super) const REMOVE: u32 = 28;
    pub(super) const RENAME: u32 = 29;
    pub(super) const RESTOREFH: u32 = 31;
    pub(super) const SAVEFH: u32 = 32;
    pub(super) const SECINFO: u32 = 33;
    pub(super) const SETATTR: u32 = 34;
    pub(super) const VERIFY: u32 = 37;
    pub(super) const WRITE: u32 = 38;
    pub(super) const BIND_CONN_TO_SESSION: u32 = 41;
    pub(super) const EXCHANGE_ID: u32 = 42;
    pub(super) const CREATE_SESSION: u32 = 43;
    pub(super) const DESTROY_SESSION: u32 = 44;
    pub(super) const FREE_STATEID: u32 = 45;
    pub(super) const SECINFO_NO_NAME: u32 = 52;
    pub(super) const SEQUENCE: u32 = 53;
    pub(super) const TEST_STATEID: u32 = 55;
    pub(super) const DESTROY_CLIENTID: u32 = 57;
    pub(super) const RECLAIM_COMPLETE: u32 = 58;
    pub(super) const ALLOCATE: u32 = 59;
    pub(super) const COPY: u32 = 60;
    pub(super) const DEALLOCATE: u32 = 62;
    pub(super) const SEEK: u32 = 69;
    pub(super) const CLONE: u32 = 71;
    pub(super) const ILLEGAL: u32 = 10044;
    /// The first operation of version 4.2.
    pub(super) const FIRST_OF_2: u32 = ALLOCATE;
    /// Operations that version 4.0 had and these versions have not.
    pub(super) const OF_0: [u32; 5] = [20, 30, 35, 36, 39];
}

/// Whether a failure of an operation has more than its status.
fn has_failure_body(number: u32, status: Status) -> bool {
    let is_lock = matches!(number, operation::LOCK | operation::LOCKT);
    is_lock && status == Status::DENIED
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
            number if OF_0.contains(&number) => Err(Status::NOTSUPP),
            number if number >= FIRST_OF_2 && self.minor < 2 => Err(Status::OP_ILLEGAL),
            ACCESS => self.access(reader, out),
            CLOSE => self.close(reader, out),
            COMMIT => self.commit(reader, out),
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
            SEEK => self.seek(reader, out),
            CLONE => self.clone_range(reader),
            COPY => self.copy(reader, out),
            _ => Err(Status::NOTSUPP),
        })
    }

    /// `SECINFO`: how a name in the current directory may be reached.
    fn security(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        self.look_up(reader)?;
        self.current = None;
        put_security(out);
        Ok(())
    }

    fn security_of_current(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let style = reader.u32()?;
        if self.current.is_none() {
            return Err(Status::NOFILEHANDLE);
        }
        if style == 1 {
            self.look_up_parent()?;
        }
        self.current = None;
        put_security(out);
        Ok(())
    }
}

fn put_security(out: &mut Writer) {
    const AUTH_SYS: u32 = 1;
    out.u32(1).u32(AUTH_SYS);
}
