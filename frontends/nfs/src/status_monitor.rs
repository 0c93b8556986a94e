//! NSM version 1, the part of a server: which of two machines has restarted.
//!
//! # Mechanism
//! A client that restarts tells the servers at which it had locks (`SM_NOTIFY`), and they release
//! them. When this server restarts, it tells the clients that are listed as having locks, which
//! then reclaim them. A client is told by the names under which it may know the server: the address
//! by which it reached it, and the name of the machine.
//!
//! The other procedures are for a lock manager on the same machine, which is no other program here.
//!
//! # Source of the format
//! X/Open, Protocols for X/Open Interworking: XNFS, chapter 11.

use crate::client_numbers::Client;
use crate::lock_manager::{HostKey, LockManager, host_and_state};
use crate::rpc::asking::ask_host;
use crate::xdr::{Malformed, Reader, Writer};
use std::net::IpAddr;
use std::sync::Weak;
use std::time::Duration;

/// The program's number.
pub const PROGRAM: u32 = 100_024;
/// The version.
pub const VERSION: u32 = 1;

const NULL: u32 = 0;
const STAT: u32 = 1;
/// The procedure by which a machine says that it has restarted.
pub const NOTIFY: u32 = 6;

const NAME_BYTES_MAX: usize = 1024;

/// How long until clients that were not reached are told again. A guess: a few times in a grace
/// period.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Carries out a procedure, and appends its result. None where there is no such procedure.
///
/// # Errors
/// The arguments cannot be decoded.
pub(crate) fn run(
    client: &Client,
    manager: &LockManager,
    (procedure, arguments): (u32, &[u8]),
    out: &mut Writer,
) -> Option<Result<(), Malformed>> {
    let mut reader = Reader::new(arguments);
    Some(match procedure {
        NULL => Ok(()),
        STAT => reader.opaque(NAME_BYTES_MAX).map(|_| {
            // Any host is monitored that asks for a lock.
            out.u32(0).u32(manager.life());
        }),
        NOTIFY => host_and_state(&mut reader).map(|(name, _)| {
            manager.release_host(client.address, &name);
        }),
        _ => return None,
    })
}

/// Tells clients that had locks that the server has restarted, until all have heard it, or their
/// time to reclaim is over.
pub(crate) fn tell_clients(manager: &Weak<LockManager>) {
    let Some(present) = manager.upgrade() else {
        return;
    };
    let mut left = present.to_notify();
    drop(present);
    while !left.is_empty() {
        let Some(present) = manager.upgrade() else {
            return;
        };
        if present.grace_end().is_none() {
            return;
        }
        left.retain(|(host, here)| !tell(&present, host, *here));
        drop(present);
        if !left.is_empty() {
            std::thread::sleep(AGAIN_AFTER);
        }
    }
}

/// Tells one client. True when it has heard it.
fn tell(manager: &LockManager, host: &HostKey, here: IpAddr) -> bool {
    let names = [
        here.to_string().into_bytes(),
        rustix::system::uname().nodename().to_bytes().to_vec(),
    ];
    names.iter().all(|name| {
        let mut arguments = Writer::new();
        arguments.opaque(name).u32(manager.life());
        let which = (PROGRAM, VERSION, NOTIFY);
        ask_host(
            host.address,
            manager.rpcbind_of_clients(),
            which,
            &arguments,
        )
        .is_ok()
    })
}
