//! Clients: their addresses, and their numbers in operation records.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, OnceLock, PoisonError};
use tarn_engine::files::ClientId;

/// Most clients with a number of their own; later ones share the last number. Users of mounts have
/// numbers below [`FIRST`].
const CLIENTS_MAX: u32 = 4096;
/// The first number of a client: behind those of users of mounts.
const FIRST: u32 = ClientId::FIRST_FREE.0 + 4097;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    /// Its address; one of IPv4 as such.
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// The address by which it has reached the server.
    pub(crate) here: IpAddr,
    /// Its number in operation records.
    pub(crate) id: ClientId,
}

impl Client {
    /// A client for tests and trials, of a server at its own address.
    pub(crate) fn at(address: SocketAddr) -> Client {
        Client::between(address, address)
    }

    /// A client that calls from an address, and the address of ours that it calls.
    pub(crate) fn between(address: SocketAddr, here: SocketAddr) -> Client {
        let ip = address.ip().to_canonical();
        Client {
            address: ip,
            port: address.port(),
            here: here.ip().to_canonical(),
            id: number_of(ip),
        }
    }
}

fn number_of(address: IpAddr) -> ClientId {
    static CLIENTS: OnceLock<Mutex<BTreeMap<IpAddr, ClientId>>> = OnceLock::new();
    let clients = CLIENTS.get_or_init(Mutex::default);
    let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
    let count = u32::try_from(clients.len()).unwrap_or(CLIENTS_MAX);
    let next = ClientId(FIRST + count.min(CLIENTS_MAX));
    match count < CLIENTS_MAX {
        true => *clients.entry(address).or_insert(next),
        false => clients.get(&address).copied().unwrap_or(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_its_number_over_its_connections() {
        let at = |text: &str| Client::at(text.parse().unwrap());
        let first = at("10.0.0.1:700");
        assert_eq!(at("[::ffff:10.0.0.1]:701").id, first.id);
        assert_ne!(at("10.0.0.2:700").id, first.id);
    }
}
