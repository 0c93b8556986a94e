//! Calls of other machines: one call for a connection, with an answer in a bounded time.
//!
//! The server asks rarely, and only clients: whether they take a lock that they wait for, and
//! whether they know that it has restarted.

use super::back_channel::{Credential, call};
use super::record::LAST_FRAGMENT;
use super::reply::result_of;
use crate::xdr::{Malformed, Reader, Writer};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long each step may take: connecting, sending, receiving. A guess: clients are near.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes of a reply.
const REPLY_BYTES_MAX: usize = 4096;

const PORT_MAPPER: u32 = 100_000;
const PORT_MAPPER_VERSION: u32 = 2;
const GETPORT: u32 = 3;
const TCP: u32 = 6;

/// The port of rpcbind.
pub(crate) const RPCBIND_PORT: u16 = 111;

/// Asks the rpcbind at this address for the TCP port of a program.
///
/// # Errors
/// It is not answered, or the program is not registered.
pub(crate) fn port_of(rpcbind: SocketAddr, (program, version): (u32, u32)) -> Result<u16, Error> {
    let mut arguments = Writer::new();
    arguments.u32(program).u32(version).u32(TCP).u32(0);
    let which = (PORT_MAPPER, PORT_MAPPER_VERSION, GETPORT);
    let result = ask(rpcbind, which, &arguments)?;
    let port = Reader::new(&result).u32().unwrap_or_default();
    match u16::try_from(port) {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(Error::from(ErrorKind::NotFound)),
    }
}

/// Calls a procedure of a program of a host, which is found by the host's rpcbind.
///
/// # Errors
/// It is not answered, or refused.
pub(crate) fn ask_host(
    host: IpAddr,
    rpcbind: u16,
    (program, version, procedure): (u32, u32, u32),
    arguments: &Writer,
) -> Result<Vec<u8>, Error> {
    let port = port_of(SocketAddr::new(host, rpcbind), (program, version))?;
    let at = SocketAddr::new(host, port);
    ask(at, (program, version, procedure), arguments)
}

/// Calls a procedure as no user, and gives its result.
///
/// # Errors
/// It is not answered, or refused.
pub(crate) fn ask(
    at: SocketAddr,
    which: (u32, u32, u32),
    arguments: &Writer,
) -> Result<Vec<u8>, Error> {
    ask_as(&Credential::NONE, at, which, arguments)
}

/// Calls a procedure, and gives its result.
///
/// # Errors
/// It is not answered, or refused.
pub(crate) fn ask_as(
    credential: &Credential,
    at: SocketAddr,
    which: (u32, u32, u32),
    arguments: &Writer,
) -> Result<Vec<u8>, Error> {
    const XID: u32 = 1;
    let call = call(XID, which, credential, arguments)?;
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(call.as_slice())?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mark = u32::from_be_bytes(mark);
    let length = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
    // A reply in several fragments is none that a program sends for results so small.
    if mark & LAST_FRAGMENT == 0 || length > REPLY_BYTES_MAX {
        return Err(Error::from(ErrorKind::InvalidData));
    }
    let mut reply = vec![0; length];
    stream.read_exact(&mut reply)?;
    let result = result_of(&reply, XID);
    result.map_err(|Malformed| Error::from(ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn results_come_and_refusals_are_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            // A result; a refusal; another number; a reply that is too long.
            for (xid, status, mark) in [
                (1, 0, None),
                (1, 3, None),
                (2, 0, None),
                (1, 0, Some(1 << 20)),
            ] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut call = [0; 44];
                stream.read_exact(&mut call).unwrap();
                let mut reply = Writer::new();
                reply
                    .u32(0)
                    .u32(xid)
                    .u32(1)
                    .u32(0)
                    .u32(0)
                    .u32(0)
                    .u32(status)
                    .u32(77);
                let length = u32::try_from(reply.len() - 4).unwrap();
                reply.put_u32(0, LAST_FRAGMENT | mark.unwrap_or(length));
                stream.write_all(reply.as_slice()).unwrap();
            }
        });
        let asked = || ask(at, (5, 6, 7), &Writer::new());
        assert_eq!(asked().unwrap(), [0, 0, 0, 77]);
        assert!(asked().is_err() && asked().is_err() && asked().is_err());
        serving.join().unwrap();
    }
}
