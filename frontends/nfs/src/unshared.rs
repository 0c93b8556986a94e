//! A server without sockets and shares: calls of all programs are decoded, and refused where they
//! name a file.
//!
//! Fuzzing gives it any bytes. What it knows of clients of version 4 is its own, so that the reply
//! to a record depends on the records before it alone.

use crate::calls::{Calls, Served};
use crate::client_numbers::Client;
use std::net::{Ipv4Addr, SocketAddr};
use tarn_tls::Peer;

/// A server that shares nothing, and one client of it.
pub struct UnsharedServer {
    calls: Calls,
    client: Client,
}

impl Default for UnsharedServer {
    fn default() -> UnsharedServer {
        UnsharedServer {
            calls: Calls::new(None, crate::LEASE, None),
            client: Client::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 700))),
        }
    }
}

impl UnsharedServer {
    /// Serves a record, and gives the reply with its mark. None where no reply is sent: the record
    /// is no call, or repeats one.
    pub fn serve(&self, record: &[u8]) -> Option<Vec<u8>> {
        match self.calls.serve(&self.client, (Peer::Plain, None), record) {
            Served::Reply(reply) => Some(reply.parts().concat()),
            Served::Nothing | Served::NoCall => None,
            Served::BeginTls(..) => unreachable!("this server has no certificate"),
            Served::WhenDurable(_) => unreachable!("nothing is changed without a share"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3;
    use crate::xdr::Writer;

    #[test]
    fn handles_lead_to_no_file_and_shares_are_none() {
        let server = UnsharedServer::default();
        let mut call = Writer::new();
        call.u32(7).u32(0).u32(2).u32(v3::PROGRAM).u32(3).u32(1);
        call.u32(0).u32(0).u32(0).u32(0).opaque(&[1, 2, 3]);
        let reply = server.serve(call.as_slice()).expect("a reply");
        let status = &reply[28..32];
        assert_eq!(status, v3::status::Status::BADHANDLE.0.to_be_bytes());
        assert_eq!(server.serve(&[0; 5]), None);
    }
}
