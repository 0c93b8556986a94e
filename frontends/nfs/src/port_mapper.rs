//! Registering with rpcbind(8), where one runs: clients that are given no port ask it.
//!
//! The protocol is version 2 of the port mapper (RFC 1833), over UDP on this machine. Nothing
//! depends on it: without rpcbind, clients name the port (`-o port=N,mountport=N`).

use crate::rpc::call::RPC_VERSION;
use crate::xdr::Writer;
use crate::{mount_protocol, v3};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

const PROGRAM: u32 = 100_000;
const VERSION: u32 = 2;
const SET: u32 = 1;
const UNSET: u32 = 2;
const TCP: u32 = 6;

/// Where rpcbind listens.
pub const RPCBIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 111);

/// How long a reply is waited for. A guess: it is on this machine.
const PATIENCE: Duration = Duration::from_millis(300);

/// rpcbind takes registrations only from ports of privileged programs.
const PORTS: std::ops::Range<u16> = 600..1024;

/// What is registered.
const REGISTERED: [(u32, u32); 4] = [
    (v3::PROGRAM, v3::VERSION),
    (mount_protocol::PROGRAM, 1),
    (mount_protocol::PROGRAM, 2),
    (mount_protocol::PROGRAM, mount_protocol::VERSION),
];

/// Registers the programs at a port. Says whether rpcbind has taken them all.
pub fn register(rpcbind: SocketAddr, port: u16) -> bool {
    let Some(socket) = open(rpcbind) else {
        return false;
    };
    REGISTERED.iter().all(|(program, version)| {
        // What an earlier daemon has left is in the way.
        ask(&socket, UNSET, *program, *version, 0);
        ask(&socket, SET, *program, *version, port) == Some(true)
    })
}

/// Takes the programs out of the register.
pub fn unregister(rpcbind: SocketAddr) {
    if let Some(socket) = open(rpcbind) {
        for (program, version) in REGISTERED {
            ask(&socket, UNSET, program, version, 0);
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

/// One call; none where it is not answered.
fn ask(socket: &UdpSocket, procedure: u32, program: u32, version: u32, port: u16) -> Option<bool> {
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
            let result = reply.get(RESULT_AT..RESULT_AT + 4)?;
            return Some(result == [0, 0, 0, 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_registered_and_taken_out_again() {
        let rpcbind = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = rpcbind.local_addr().unwrap();
        let count = 2 * REGISTERED.len() + REGISTERED.len();
        let answering = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for _ in 0..count {
                let mut call = [0; 256];
                let (length, from) = rpcbind.recv_from(&mut call).unwrap();
                let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
                assert_eq!(length, 56);
                asked.push((word(20), word(40), word(44), word(52)));
                let mut reply = Writer::new();
                reply.u32(word(0)).u32(1).u32(0).u32(0).u32(0).u32(0).u32(1);
                rpcbind.send_to(reply.as_slice(), from).unwrap();
            }
            asked
        });
        assert!(register(address, 2049));
        unregister(address);
        let asked = answering.join().unwrap();
        assert!(asked.contains(&(SET, v3::PROGRAM, 3, 2049)));
        assert!(asked.contains(&(SET, mount_protocol::PROGRAM, 3, 2049)));
        assert_eq!(asked.last(), Some(&(UNSET, mount_protocol::PROGRAM, 3, 0)));
    }

    #[test]
    fn without_rpcbind_nothing_is_registered() {
        // A port that was free a moment ago.
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        assert!(!register(address, 2049));
    }
}
