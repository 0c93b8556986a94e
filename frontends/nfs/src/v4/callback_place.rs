//! Where a client takes calls: the back channel of a session, or an address in version 4.0.
//!
//! The server calls a client only at the address from which the client has called it: else a client
//! could have it connect to any machine.

use crate::rpc::back_channel::{BackChannel, Credential};
use crate::xdr::{Malformed, Reader};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

/// Most connections of a session that the server calls in; more are bound for calls of the client.
const CHANNELS_MAX: usize = 16;
/// The back channel of a session. The server has one call under way, in the first slot.
pub(crate) struct Back4 {
    pub(crate) minor: u32,
    pub(crate) program: u32,
    /// None where the client takes no credentials that the server has.
    pub(crate) credential: Option<Credential>,
    channels: Vec<Weak<BackChannel>>,
    /// The number of the last call.
    pub(crate) sequence: u32,
}

impl Back4 {
    pub(crate) fn new(minor: u32, program: u32, credential: Option<Credential>) -> Back4 {
        Back4 {
            minor,
            program,
            credential,
            channels: Vec::new(),
            sequence: 0,
        }
    }

    /// Binds a connection. False when too many are.
    pub(crate) fn bind(&mut self, channel: &Arc<BackChannel>) -> bool {
        self.channels
            .retain(|other| other.strong_count() > 0 && !is_same(other, channel));
        let has_room = self.channels.len() < CHANNELS_MAX;
        if has_room {
            self.channels.push(Arc::downgrade(channel));
        }
        has_room
    }

    /// A connection is called no more.
    pub(crate) fn unbind(&mut self, channel: &Arc<BackChannel>) {
        self.channels.retain(|other| !is_same(other, channel));
    }

    /// The connection that was bound last of those that are there.
    pub(crate) fn channel(&self) -> Option<Arc<BackChannel>> {
        self.credential.as_ref()?;
        self.channels.iter().rev().find_map(Weak::upgrade)
    }
}

/// Whether both are of one connection.
fn is_same(weak: &Weak<BackChannel>, channel: &Arc<BackChannel>) -> bool {
    std::ptr::eq(weak.as_ptr(), Arc::as_ptr(channel))
}

/// Where a client of version 4.0 takes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Callback40 {
    pub(crate) program: u32,
    pub(crate) at: SocketAddr,
    /// By which the client knows to which of its names a call belongs.
    pub(crate) identifier: u32,
}

impl Callback40 {
    /// From a network and a universal address (RFC 5665), of a client with this address. None where
    /// it takes no calls over TCP, or at another address.
    pub(crate) fn parse(
        (program, identifier): (u32, u32),
        network: &[u8],
        address: &[u8],
        client: IpAddr,
    ) -> Option<Callback40> {
        if network != b"tcp" && network != b"tcp6" {
            return None;
        }
        let text = std::str::from_utf8(address).ok()?;
        let (rest, low) = text.rsplit_once('.')?;
        let (host, high) = rest.rsplit_once('.')?;
        let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
        let host: IpAddr = host.parse().ok()?;
        let is_client = host.to_canonical() == client;
        (is_client && port != 0).then_some(Callback40 {
            program,
            at: SocketAddr::new(client, port),
            identifier,
        })
    }
}

/// Most bytes of a principal's handle.
const HANDLE_BYTES_MAX: usize = 1024;

/// How the server is to authenticate itself (`callback_sec_parms4<>`): the first way that it has.
pub(crate) fn decode_credential(reader: &mut Reader<'_>) -> Result<Option<Credential>, Malformed> {
    /// More ways than there are.
    const WAYS_MAX: u32 = 8;
    let ways = reader.u32()?;
    if ways > WAYS_MAX {
        return Err(Malformed);
    }
    let mut first = None;
    for _ in 0..ways {
        let way = decode_way(reader)?;
        first = first.or(way);
    }
    Ok(first)
}

fn decode_way(reader: &mut Reader<'_>) -> Result<Option<Credential>, Malformed> {
    const NONE: u32 = 0;
    const SYSTEM: u32 = 1;
    const GSS: u32 = 6;
    /// RFC 5531, appendix A.
    const MACHINE_BYTES_MAX: usize = 255;
    const GROUPS_MAX: u32 = 16;
    match reader.u32()? {
        NONE => Ok(Some(Credential::NONE)),
        SYSTEM => {
            let begun = reader.rest();
            reader.u32()?;
            reader.opaque(MACHINE_BYTES_MAX)?;
            reader.u64()?;
            let groups = reader.u32()?;
            if groups > GROUPS_MAX {
                return Err(Malformed);
            }
            for _ in 0..groups {
                reader.u32()?;
            }
            let body = &begun[..begun.len() - reader.rest().len()];
            Ok(Some(Credential::system(body.to_vec())))
        }
        GSS => {
            // The server has no context of its own.
            reader.u32()?;
            reader.opaque(HANDLE_BYTES_MAX)?;
            reader.opaque(HANDLE_BYTES_MAX)?;
            Ok(None)
        }
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_called_only_at_its_own_address() {
        let client: IpAddr = "10.0.0.7".parse().unwrap();
        let parse = |network: &[u8], address: &[u8]| {
            Callback40::parse((1 << 30, 5), network, address, client)
        };
        let good = parse(b"tcp", b"10.0.0.7.3.20").unwrap();
        assert_eq!(good.at.port(), 3 * 256 + 20);
        assert!(parse(b"tcp6", b"::ffff:10.0.0.7.0.9").is_some());
        for (network, address) in [
            (&b"udp"[..], &b"10.0.0.7.3.20"[..]),
            (b"tcp", b"10.0.0.8.3.20"),
            (b"tcp", b"10.0.0.7.0.0"),
            (b"tcp", b"10.0.0.7.256.1"),
            (b"tcp", b"10.0.0.7"),
            (b"tcp", b""),
            (b"tcp", b"\xff.1.1"),
        ] {
            assert_eq!(parse(network, address), None, "{address:?}");
        }
    }
}
