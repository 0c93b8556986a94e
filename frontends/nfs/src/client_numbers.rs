//! Clients: their addresses, and their numbers in operation records.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_engine::files::{ClientId, FrontEnd, add_client_alias, client_number};

/// Words of 64 bits for the numbers of clients: all that front ends have.
const NUMBER_WORDS: usize = 512;

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
    client_number(FrontEnd::Nfs, &address.to_string())
}

impl Client {
    /// Keeps the name that the machine gives of itself, the first time: calls have it each time.
    /// `machine` is any bytes.
    pub(crate) fn keep_machine_name(&self, machine: impl FnOnce() -> Option<String>) {
        static NAMED: [AtomicU64; NUMBER_WORDS] = [const { AtomicU64::new(0) }; NUMBER_WORDS];
        let (word, bit) = (self.id.0 / 64, 1_u64 << (self.id.0 % 64));
        let word = usize::try_from(word).ok().and_then(|word| NAMED.get(word));
        let Some(word) = word else { return };
        if word.load(Ordering::Relaxed) & bit == 0
            && let Some(name) = machine()
            && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
        {
            add_client_alias(self.id, &name);
        }
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
