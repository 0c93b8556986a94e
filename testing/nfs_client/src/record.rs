//! RPC calls and replies (RFC 5531) as records on a TCP connection.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The connection.
    #[error("the connection to the NFS server: {0}")]
    Connection(#[from] io::Error),
    /// A reply that no server may give.
    #[error("the NFS server's reply is malformed: {0}")]
    Malformed(&'static str),
    /// A reply that says no.
    #[error("the NFS server answers {operation} with status {status}")]
    Refused {
        /// What was asked for.
        operation: &'static str,
        /// The protocol's number.
        status: u32,
    },
}

/// A server that says nothing for so long is one that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// No reply that we ask for is longer.
const MOST_BYTES: usize = 4 << 20;

const LAST_FRAGMENT: u32 = 1 << 31;
const RPC_VERSION: u32 = 2;
const AUTH_SYS: u32 = 1;

/// A program, its version, and one of its procedures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Procedure {
    pub program: u32,
    pub version: u32,
    pub number: u32,
}

/// Bytes of a request, as XDR (RFC 4506) has them.
#[derive(Debug, Default)]
pub(crate) struct Out(pub Vec<u8>);

impl Out {
    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Bytes whose count both sides know, a multiple of four.
    pub(crate) fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        assert!(bytes.len().is_multiple_of(4), "no padding");
        self.0.extend(bytes);
        self
    }

    pub(crate) fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).expect("requests are small"));
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// What is left of a reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct In<'a>(pub &'a [u8]);

impl<'a> In<'a> {
    pub(crate) fn u32(&mut self) -> Result<u32, Failure> {
        let bytes = self.fixed(4)?.try_into().expect("four bytes");
        Ok(u32::from_be_bytes(bytes))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Failure> {
        let bytes = self.fixed(8)?.try_into().expect("eight bytes");
        Ok(u64::from_be_bytes(bytes))
    }

    pub(crate) fn fixed(&mut self, count: usize) -> Result<&'a [u8], Failure> {
        let split = self.0.split_at_checked(count);
        let (head, rest) = split.ok_or(Failure::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn opaque(&mut self) -> Result<&'a [u8], Failure> {
        let count = usize::try_from(self.u32()?).map_err(|_| Failure::Malformed("a length"))?;
        let bytes = self.fixed(count)?;
        self.fixed(count.next_multiple_of(4) - count)?;
        Ok(bytes)
    }
}

/// A server keeps replies of version 3, and gives one again to a call with the same number and
/// arguments from the same machine: so each connection has numbers that none had shortly before.
fn first_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let base = now.map_or(0, |since| since.as_micros() as u32);
    let connection = NEXT.fetch_add(1, Ordering::Relaxed);
    base.wrapping_add(connection.wrapping_mul(0x9e37_79b9))
}

/// The machine that a client seems to be: servers know clients by their addresses, of which this
/// one has all that begin with 127.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// Where its calls come from.
    pub address: Ipv4Addr,
    /// What it says that it is called.
    pub name: &'a str,
}

impl Machine<'static> {
    /// A machine like any other.
    pub const ANY: Machine<'static> = Machine {
        address: Ipv4Addr::LOCALHOST,
        name: "load",
    };
}

/// Calls out, replies in.
#[derive(Debug)]
pub(crate) struct Records {
    stream: BufReader<TcpStream>,
    last: u32,
    /// Mark, header and arguments of the call that is being made.
    call: Out,
    reply: Vec<u8>,
    /// The name that the machine gives of itself.
    machine: String,
}

/// A connection to a port of this machine, from one of its addresses.
fn connect_from(address: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(address, 0))?;
    connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    Ok(TcpStream::from(socket))
}

impl Records {
    pub(crate) fn connect(machine: &Machine<'_>, port: u16) -> Result<Records, Failure> {
        let stream = connect_from(machine.address, port)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Records {
            stream: BufReader::with_capacity(256 << 10, stream),
            last: first_number(),
            call: Out::default(),
            reply: Vec::new(),
            machine: machine.name.to_owned(),
        })
    }

    /// Sends a call of root's, and gives its number.
    pub(crate) fn call(
        &mut self,
        procedure: Procedure,
        arguments: impl FnOnce(&mut Out),
    ) -> Result<u32, Failure> {
        self.last = self.last.wrapping_add(1);
        let call = &mut self.call;
        call.0.clear();
        call.u32(0).u32(self.last).u32(0).u32(RPC_VERSION);
        call.u32(procedure.program).u32(procedure.version);
        call.u32(procedure.number);
        let (stamp, root, groups) = (0, 0, 0);
        let length = 20 + self.machine.len().next_multiple_of(4);
        call.u32(AUTH_SYS);
        call.u32(u32::try_from(length).expect("names are short"));
        call.u32(stamp).opaque(self.machine.as_bytes());
        call.u32(root).u32(root).u32(groups);
        // No verifier.
        call.u32(0).u32(0);
        arguments(call);
        let length = u32::try_from(call.0.len() - 4).expect("requests are small");
        call.0[..4].copy_from_slice(&(length | LAST_FRAGMENT).to_be_bytes());
        self.stream.get_mut().write_all(&call.0)?;
        Ok(self.last)
    }

    /// The number of the call that the next reply answers, and its result.
    pub(crate) fn reply(&mut self) -> Result<(u32, In<'_>), Failure> {
        self.reply.clear();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let length = (mark & !LAST_FRAGMENT) as usize;
            let before = self.reply.len();
            if before + length > MOST_BYTES {
                return Err(Failure::Malformed("a reply is too long"));
            }
            self.reply.resize(before + length, 0);
            self.stream.read_exact(&mut self.reply[before..])?;
            if mark & LAST_FRAGMENT != 0 {
                break;
            }
        }
        let mut reply = In(&self.reply);
        let call = reply.u32()?;
        let (is_reply, is_denied) = (reply.u32()?, reply.u32()?);
        if (is_reply, is_denied) != (1, 0) {
            return Err(Failure::Malformed("the call is denied"));
        }
        let _verifier = (reply.u32()?, reply.opaque()?);
        match reply.u32()? {
            0 => Ok((call, reply)),
            _ => Err(Failure::Malformed("the call is not accepted")),
        }
    }
}
