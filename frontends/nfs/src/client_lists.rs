//! Lists of clients, as `rw=`, `ro=`, `root=` and `none=` take them.
//!
//! Elements are separated by colons: an address, a network (`10.0.0.0/8`, `@10.0.0.0/8`,
//! `10.0.0.0/255.0.0.0`), addresses of IPv6 in brackets (`[fe80::1]`, `[2001:db8::]/32`), the name
//! of a host, a pattern of names (`*.example.org`, `node?`, or `.example.org` as on illumos), a
//! netgroup (`@staff`), or `*` for all. A `-` before an element excludes it (as on illumos); the
//! first element that is about a client decides.
//!
//! Patterns and netgroups are about the name that the resolver has for the client's address, if
//! that name has this address: the owner of an address alone does not say what it is called.

use crate::client_names::{Netgroup, matches_name, names_of};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the addresses of a host are taken for known. A guess: a client waits for the resolver
/// once a minute at most.
const ADDRESSES_KNOWN: Duration = Duration::from_secs(60);

/// A list of clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientList {
    elements: Vec<Element>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Element {
    pattern: Pattern,
    is_excluded: bool,
    /// As it was written.
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// All.
    Any,
    /// Addresses that begin with these bits.
    Network { address: IpAddr, bits: u32 },
    /// The addresses of a host, found when a client is looked at.
    Host(Host),
    /// Names that match.
    Names(String),
    /// The machines of a group.
    Netgroup(Netgroup),
}

/// A host by its name.
#[derive(Debug, Clone)]
struct Host {
    name: String,
    /// Its addresses, and when the resolver gave them.
    known: Arc<Mutex<Known>>,
}

/// Addresses, and when they were found out.
type Known = Option<(Instant, Vec<IpAddr>)>;

impl PartialEq for Host {
    fn eq(&self, other: &Host) -> bool {
        self.name == other.name
    }
}

impl Eq for Host {}

impl Host {
    fn has(&self, client: IpAddr) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, addresses)) = &*known
            && since.elapsed() < ADDRESSES_KNOWN
        {
            return addresses.contains(&client);
        }
        let found = (self.name.as_str(), 0).to_socket_addrs();
        let addresses: Vec<IpAddr> = found
            .into_iter()
            .flatten()
            .map(|one| one.ip().to_canonical())
            .collect();
        let has = addresses.contains(&client);
        *known = Some((Instant::now(), addresses));
        has
    }
}

/// An element that is not served, or is no element.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadClient {
    /// It is neither an address, nor a network, nor a name.
    #[error("'{0}' is no address, network, host, pattern of host names or netgroup")]
    Nothing(String),
}

impl ClientList {
    /// Decodes a list.
    ///
    /// # Errors
    /// Which element is wrong.
    pub fn parse(text: &str) -> Result<ClientList, BadClient> {
        let elements = split(text).into_iter().map(Element::parse);
        Ok(ClientList {
            elements: elements.collect::<Result<_, _>>()?,
        })
    }

    /// Whether the list has this client. Names of hosts are asked of the system's resolver.
    pub fn has(&self, client: IpAddr) -> bool {
        let found = self.elements.iter().find(|one| one.is_about(client));
        found.is_some_and(|one| !one.is_excluded)
    }

    /// The elements as they were written.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.elements.iter().map(|one| one.text.as_str())
    }
}

/// The elements of a list: colons in brackets do not separate.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.retain(|part| !part.is_empty());
    parts
}

impl Element {
    fn parse(text: &str) -> Result<Element, BadClient> {
        let (is_excluded, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        Ok(Element {
            pattern: Pattern::parse(rest)?,
            is_excluded,
            text: text.to_string(),
        })
    }

    fn is_about(&self, client: IpAddr) -> bool {
        match &self.pattern {
            Pattern::Any => true,
            Pattern::Network { address, bits } => begins_alike(*address, client, *bits),
            Pattern::Host(host) => host.has(client),
            Pattern::Names(pattern) => {
                let names = names_of(client);
                names.iter().any(|name| matches_name(pattern, name))
            }
            Pattern::Netgroup(group) => group.has(client),
        }
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Pattern, BadClient> {
        if text == "*" {
            return Ok(Pattern::Any);
        }
        let plain = text.strip_prefix('@').unwrap_or(text);
        let (address, length) = match plain.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (plain, None),
        };
        let bare = address
            .strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
            .unwrap_or(address);
        let nothing = || BadClient::Nothing(text.to_string());
        if let Ok(address) = bare.parse::<IpAddr>() {
            let width = match address {
                IpAddr::V4(_) => 32,
                IpAddr::V6(_) => 128,
            };
            let bits = match length {
                None => width,
                Some(length) => bits_of(length).ok_or_else(nothing)?,
            };
            return match bits <= width {
                true => Ok(Pattern::Network { address, bits }),
                false => Err(nothing()),
            };
        }
        let is_of_name = |letter: char| {
            letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | '*' | '?')
        };
        if length.is_some() || plain.is_empty() || !plain.chars().all(is_of_name) {
            return Err(nothing());
        }
        let is_pattern = plain.starts_with('.') || plain.contains(['*', '?']);
        match (text.starts_with('@'), is_pattern) {
            (true, true) => Err(nothing()),
            (true, false) => Ok(Pattern::Netgroup(Netgroup::new(plain))),
            (false, true) => Ok(Pattern::Names(plain.to_string())),
            (false, false) => Ok(Pattern::Host(Host {
                name: plain.to_string(),
                known: Arc::default(),
            })),
        }
    }
}

/// The length of a network: a number of bits, or a mask of IPv4.
fn bits_of(text: &str) -> Option<u32> {
    if let Ok(mask) = text.parse::<Ipv4Addr>() {
        let mask = u32::from(mask);
        return (mask.leading_ones() == mask.count_ones()).then(|| mask.leading_ones());
    }
    text.parse().ok()
}

/// Whether two addresses are of one kind and begin with the same bits.
fn begins_alike(one: IpAddr, other: IpAddr, bits: u32) -> bool {
    let differ = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => u128::from(u32::from(one) ^ u32::from(other)) << 96,
        (IpAddr::V6(one), IpAddr::V6(other)) => u128::from(one) ^ u128::from(other),
        _ => return false,
    };
    differ.leading_zeros() >= bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(list: &str, client: &str) -> bool {
        ClientList::parse(list)
            .unwrap()
            .has(client.parse().unwrap())
    }

    #[test]
    fn networks_and_addresses_are_compared_by_their_first_bits() {
        for (list, client, expected) in [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("@10.1.0.0/16:192.168.1.7", "192.168.1.7", true),
            ("@10.1.0.0/255.255.0.0", "10.1.9.9", true),
            ("@10.1.0.0/255.255.0.0", "10.2.9.9", false),
            ("[2001:db8::]/32:[fe80::1]", "2001:db8:1::1", true),
            ("[2001:db8::]/32:[fe80::1]", "fe80::1", true),
            ("[2001:db8::]/32:[fe80::1]", "fe80::2", false),
            ("0.0.0.0/0", "::1", false),
            ("*", "::1", true),
            ("", "10.0.0.1", false),
            ("-10.0.0.1:10.0.0.0/8", "10.0.0.1", false),
            ("-10.0.0.1:10.0.0.0/8", "10.0.0.2", true),
            ("localhost", "127.0.0.1", true),
            ("local*", "127.0.0.1", true),
            ("*.example.org:-*", "127.0.0.1", false),
            ("@no-group-of-this-name", "127.0.0.1", false),
        ] {
            assert_eq!(has(list, client), expected, "{list} {client}");
        }
    }

    #[test]
    fn what_is_not_served_is_refused_by_its_name() {
        for (list, why) in [
            ("@staff/24", "'@staff/24' is no address"),
            ("@st*ff", "'@st*ff' is no address"),
            ("[a-c].example.org", "is no address"),
            ("10.0.0.0/33", "'10.0.0.0/33' is no address"),
            ("10.0.0.0/255.0.255.0", "is no address"),
            ("host/24", "is no address"),
            ("a b", "'a b' is no address"),
        ] {
            let error = ClientList::parse(list).unwrap_err().to_string();
            assert!(error.contains(why), "{list}: {error}");
        }
    }
}
