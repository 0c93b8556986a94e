//! Registering with rpcbind(8), where one runs: clients that are given no port ask it.
//!
//! # Mechanism
//! The protocol is version 2 of the port mapper (RFC 1833), over UDP on this machine. Nothing
//! depends on it: without rpcbind, clients name the port (`-o port=N,mountport=N`), and lock
//! nothing by version 3 (`nolock`), since a client finds the lock manager by rpcbind alone.
//!
//! Another program of this machine may have registered the same: the NFS server of the kernel, or
//! its lock manager and `rpc.statd`, which an NFS client on this machine needs. What is registered
//! at a port that is served stays as it is; what a daemon that is gone has left is replaced. The
//! server of NFS itself is replaced by the one that listens on the port of NFS.

use crate::rpc::call::RPC_VERSION;
use crate::xdr::Writer;
use crate::{lock_manager, mount_protocol, status_monitor, v3, v4};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

const PROGRAM: u32 = 100_000;
const VERSION: u32 = 2;
const SET: u32 = 1;
const UNSET: u32 = 2;
const GETPORT: u32 = 3;
const TCP: u32 = 6;

/// Where rpcbind listens.
pub const RPCBIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 111);

/// How long a reply is waited for. A guess: it is on this machine.
const PATIENCE: Duration = Duration::from_millis(300);

/// rpcbind takes registrations only from ports of privileged programs.
const PORTS: std::ops::Range<u16> = 600..1024;

/// What is registered.
const REGISTERED: [(u32, u32); 7] = [
    (v3::PROGRAM, v3::VERSION),
    (v3::PROGRAM, v4::VERSION),
    (mount_protocol::PROGRAM, 1),
    (mount_protocol::PROGRAM, 2),
    (mount_protocol::PROGRAM, mount_protocol::VERSION),
    (lock_manager::PROGRAM, lock_manager::VERSION),
    (status_monitor::PROGRAM, status_monitor::VERSION),
];

/// Registers the programs at a port. Gives those programs that others have.
pub fn register(rpcbind: SocketAddr, port: u16) -> Vec<u32> {
    let Some(socket) = open(rpcbind) else {
        return Vec::new();
    };
    let set = |(program, version)| ask(&socket, SET, program, version, port) == Some(1);
    let is_of_others = |which: &(u32, u32)| {
        if set(*which) {
            return false;
        }
        let found = ask(&socket, GETPORT, which.0, which.1, 0);
        let other = found.and_then(|found| u16::try_from(found).ok());
        match other {
            // It does not answer.
            None => false,
            Some(other) if other == port => false,
            Some(other) if other != 0 && !may_replace(which.0, port) && is_served(other) => true,
            Some(_) => {
                ask(&socket, UNSET, which.0, which.1, 0);
                !set(*which)
            }
        }
    };
    let of_others = REGISTERED.iter().filter(|which| is_of_others(which));
    let mut programs: Vec<u32> = of_others.map(|(program, _)| *program).collect();
    programs.dedup();
    programs
}

/// The kernel's NFS server cannot run beside one that listens on its port, so it is gone, and what
/// its mount daemon has registered is of no use.
fn may_replace(program: u32, port: u16) -> bool {
    port == crate::NFS_PORT && matches!(program, v3::PROGRAM | mount_protocol::PROGRAM)
}

/// Whether a program of this machine listens on a port.
fn is_served(port: u16) -> bool {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&at, PATIENCE).is_ok()
}

/// Takes the programs that are registered at a port out of the register.
pub fn unregister(rpcbind: SocketAddr, port: u16) {
    if let Some(socket) = open(rpcbind) {
        for (program, version) in REGISTERED {
            if ask(&socket, GETPORT, program, version, 0) == Some(u32::from(port)) {
                ask(&socket, UNSET, program, version, 0);
            }
        }
    }
}

fn open(rpcbind: SocketAddr) -> Option<UdpSocket> {
    let bind = |port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok();
    let socket = PORTS.rev().find_map(bind).or_else(|| bind(0))?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    socket.connect(rpcbind).ok()?;
    Some(socket)
}

/// One call, and its result; none where it is not answered.
fn ask(socket: &UdpSocket, procedure: u32, program: u32, version: u32, port: u16) -> Option<u32> {
    /// Where the result is in a reply that was accepted.
    const RESULT_AT: usize = 24;
    let xid = procedure << 24 | (program & 0xffff) << 8 | version;
    let mut call = Writer::new();
    call.u32(xid).u32(0).u32(RPC_VERSION);
    call.u32(PROGRAM).u32(VERSION).u32(procedure);
    // Neither credentials nor a verifier.
    call.u32(0).u32(0).u32(0).u32(0);
    call.u32(program).u32(version).u32(TCP).u32(u32::from(port));
    socket.send(call.as_slice()).ok()?;
    let mut reply = [0; 256];
    loop {
        let length = socket.recv(&mut reply).ok()?;
        let reply = &reply[..length];
        if reply.starts_with(&xid.to_be_bytes()) {
            let result = reply.get(RESULT_AT..)?.first_chunk()?;
            return Some(u32::from_be_bytes(*result));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    type Registered = BTreeMap<(u32, u32), u32>;

    /// A register that answers until it is asked for program 0.
    fn rpcbind(registered: Registered) -> (SocketAddr, Arc<Mutex<Registered>>) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let all = Arc::new(Mutex::new(registered));
        let of_thread = all.clone();
        std::thread::spawn(move || {
            loop {
                let mut call = [0; 256];
                let (length, from) = socket.recv_from(&mut call).unwrap();
                let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
                assert_eq!(length, 56);
                let mut all = of_thread.lock().unwrap();
                let which = (word(40), word(44));
                let result = match word(20) {
                    SET if all.contains_key(&which) => 0,
                    SET => {
                        all.insert(which, word(52));
                        1
                    }
                    UNSET => u32::from(all.remove(&which).is_some()),
                    _ => all.get(&which).copied().unwrap_or(0),
                };
                let mut reply = Writer::new();
                reply
                    .u32(word(0))
                    .u32(1)
                    .u32(0)
                    .u32(0)
                    .u32(0)
                    .u32(0)
                    .u32(result);
                socket.send_to(reply.as_slice(), from).unwrap();
            }
        });
        (address, all)
    }

    #[test]
    fn programs_are_registered_and_taken_out_again() {
        let (address, all) = rpcbind(Registered::new());
        assert!(register(address, 20_599).is_empty());
        let registered = all.lock().unwrap().clone();
        assert_eq!(registered.len(), REGISTERED.len());
        assert!(registered.values().all(|port| *port == 20_599));
        unregister(address, 20_598);
        assert_eq!(all.lock().unwrap().len(), REGISTERED.len());
        unregister(address, 20_599);
        assert!(all.lock().unwrap().is_empty());
    }

    #[test]
    fn what_others_serve_stays_and_what_nobody_serves_is_replaced() {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let served = u32::from(other.local_addr().unwrap().port());
        // A port that was free a moment ago.
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let left = u32::from(gone.local_addr().unwrap().port());
        drop(gone);
        let (files, mounts) = ((v3::PROGRAM, 3), (mount_protocol::PROGRAM, 3));
        let (locks, monitor) = ((lock_manager::PROGRAM, 4), (status_monitor::PROGRAM, 1));
        let before = [
            (files, served),
            (mounts, left),
            (locks, left),
            (monitor, served),
        ];
        let (address, all) = rpcbind(before.into_iter().collect());
        let of_others = register(address, 20_599);
        assert_eq!(of_others, [v3::PROGRAM, status_monitor::PROGRAM]);
        let now = |which| all.lock().unwrap()[&which];
        assert_eq!((now(files), now(mounts)), (served, 20_599));
        assert_eq!((now(locks), now(monitor)), (20_599, served));
        // The port of NFS is the kernel's no more, when we have it.
        assert_eq!(
            register(address, crate::NFS_PORT),
            [status_monitor::PROGRAM]
        );
        assert_eq!(now(files), u32::from(crate::NFS_PORT));
        unregister(address, crate::NFS_PORT);
        assert_eq!(now(monitor), served);
    }

    #[test]
    fn without_rpcbind_nothing_is_registered() {
        // A port that was free a moment ago.
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        assert!(register(address, 2049).is_empty());
    }
}
