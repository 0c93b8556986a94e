//! Clients with locks of version 3, in a file that outlives the server.
//!
//! # Mechanism
//! Locks are kept in memory alone. A file lists the clients that may have some: a line each with
//! the client's address, the address by which it reaches the server, and its name as hexadecimal
//! digits; above them the number of the server's life. A client is added before its first lock is
//! granted, and removed some time after its last one is gone. A server that starts raises the
//! number, tells each listed client so (`SM_NOTIFY`), and for [`GRACE`] grants locks only to these
//! clients, and only as reclaims.
//!
//! # Invariants
//! - A client that is granted a lock is in the file.
//! - The number of a life is odd, as that of a host that is up (XNFS, chapter 11).

use crate::state_file;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long clients reclaim after a restart: as long as lockd of Linux gives them (five times its
/// timeout of 10 s).
pub(crate) const GRACE: Duration = Duration::from_secs(50);

/// Most clients that may have locks. A guess; it bounds memory and the file.
const HOSTS_MAX: usize = 1024;
/// Most bytes of the file that are looked at: more than the most clients have.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A client's machine: its address, and the name that it gives itself. Machines behind one address
/// differ by their names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostKey {
    pub(crate) address: IpAddr,
    pub(crate) name: Vec<u8>,
}

impl HostKey {
    /// Whether a machine that calls itself so is this one: domains may be left out.
    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        let host = |name: &[u8]| name.split(|byte| *byte == b'.').next().map(<[u8]>::to_vec);
        self.name == name || host(&self.name) == host(name)
    }
}

/// Addresses by which clients reach the server.
type Listed = BTreeMap<HostKey, IpAddr>;

/// The clients of the server's earlier life, and the file that lists those of this one.
pub(crate) struct MonitoredHosts {
    /// None where nothing outlives the process.
    path: Option<PathBuf>,
    /// The number of this life.
    pub(crate) state: u32,
    listed: Listed,
    /// Those of the earlier life.
    reclaiming: Listed,
    ends: Instant,
}

impl MonitoredHosts {
    /// Reads the list. No client may reclaim where there is none, or where it cannot be read.
    pub(crate) fn begin(path: Option<PathBuf>, grace: Duration) -> MonitoredHosts {
        let (state, listed) = path.as_deref().and_then(read).unwrap_or_default();
        let mut hosts = MonitoredHosts {
            path,
            // The next odd number.
            state: state.wrapping_add(2) | 1,
            reclaiming: listed.clone(),
            listed: Listed::new(),
            ends: Instant::now() + grace,
        };
        if !listed.is_empty() {
            // Clients look at the number when they are told of the restart.
            let _ = hosts.store(listed);
        }
        hosts
    }

    /// The clients that may reclaim, and the addresses by which they reach the server.
    pub(crate) fn to_notify(&self) -> Vec<(HostKey, IpAddr)> {
        let all = self.reclaiming.iter();
        all.map(|(host, here)| (host.clone(), *here)).collect()
    }

    /// Until when only reclaims are granted; none when all is.
    pub(crate) fn grace_end(&self) -> Option<Instant> {
        let is_on = !self.reclaiming.is_empty() && Instant::now() < self.ends;
        is_on.then_some(self.ends)
    }

    /// Whether this client may reclaim what it had.
    pub(crate) fn may_reclaim(&self, host: &HostKey) -> bool {
        self.grace_end().is_some() && self.reclaiming.contains_key(host)
    }

    /// Lists a client. False when there are too many, or the file cannot be written.
    pub(crate) fn add(&mut self, host: &HostKey, here: IpAddr) -> bool {
        if self.listed.contains_key(host) {
            return true;
        }
        if self.listed.len() >= HOSTS_MAX {
            return false;
        }
        let mut all = self.listed.clone();
        all.insert(host.clone(), here);
        self.store(all)
    }

    /// Lists only clients that are `needed`, and none is forgotten that may reclaim.
    pub(crate) fn retain(&mut self, needed: impl Fn(&HostKey) -> bool) {
        let is_grace = self.grace_end().is_some();
        if !is_grace {
            self.reclaiming.clear();
        }
        let mut rest = self.listed.clone();
        rest.retain(|host, _| needed(host) || self.reclaiming.contains_key(host));
        if rest.len() < self.listed.len() {
            // One that stays in the file is told of a restart and has nothing to reclaim.
            let _ = self.store(rest);
        }
    }

    fn store(&mut self, listed: Listed) -> bool {
        let state = self.state;
        let is_stored = self.path.as_deref().is_none_or(|path| {
            let written = write(path, state, &listed);
            written.is_ok()
        });
        if is_stored {
            self.listed = listed;
        }
        is_stored
    }
}

fn read(path: &Path) -> Option<(u32, Listed)> {
    let text = state_file::read(path, FILE_BYTES_MAX)?;
    let mut lines = text.lines();
    let state = lines.next()?.parse().ok()?;
    Some((state, lines.filter_map(host_of).take(HOSTS_MAX).collect()))
}

fn host_of(line: &str) -> Option<(HostKey, IpAddr)> {
    let mut words = line.split(' ');
    let (address, here) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let (pairs, rest) = words.next()?.as_bytes().as_chunks::<2>();
    let name: Option<Vec<u8>> = pairs.iter().map(|pair| byte(pair)).collect();
    let name = name.filter(|_| rest.is_empty() && words.next().is_none())?;
    Some((HostKey { address, name }, here))
}

/// Replaces the file as a whole, durably.
fn write(path: &Path, state: u32, listed: &Listed) -> std::io::Result<()> {
    let mut text = format!("{state}\n");
    for (host, here) in listed {
        text.push_str(&format!("{} {here} ", host.address));
        for byte in &host.name {
            text.push_str(&format!("{byte:02x}"));
        }
        text.push('\n');
    }
    state_file::replace(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn host(name: &str) -> HostKey {
        HostKey {
            address: "10.0.0.1".parse().unwrap(),
            name: name.as_bytes().to_vec(),
        }
    }

    fn here() -> IpAddr {
        "fe80::1".parse().unwrap()
    }

    #[test]
    fn listed_clients_reclaim_after_a_restart_and_are_forgotten_without_locks() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("hosts"));
        let mut first = MonitoredHosts::begin(path.clone(), LONG);
        assert!(first.grace_end().is_none(), "there was no earlier life");
        assert!(first.add(&host("a"), here()) && first.add(&host("b"), here()));
        let mut second = MonitoredHosts::begin(path.clone(), LONG);
        assert_eq!(second.state, first.state + 2);
        assert_eq!(second.state % 2, 1);
        assert_eq!(
            second.to_notify(),
            [(host("a"), here()), (host("b"), here())]
        );
        assert!(second.may_reclaim(&host("a")) && !second.may_reclaim(&host("c")));
        // In the grace period none is forgotten.
        second.retain(|_| false);
        let mut third = MonitoredHosts::begin(path.clone(), Duration::ZERO);
        assert_eq!(third.to_notify().len(), 2);
        assert!(third.grace_end().is_none() && !third.may_reclaim(&host("a")));
        third.retain(|host| host.name == b"a");
        let fourth = MonitoredHosts::begin(path, LONG);
        assert_eq!(fourth.to_notify(), [(host("a"), here())]);
    }

    #[test]
    fn a_client_is_not_listed_where_the_file_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("missing/hosts"));
        assert!(!MonitoredHosts::begin(path, LONG).add(&host("a"), here()));
    }

    #[test]
    fn other_bytes_in_the_file_name_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        std::fs::write(
            &path,
            "5\nx y 61\n10.0.0.1 fe80::1 6\n10.0.0.1 fe80::1 61\n1 2\n",
        )
        .unwrap();
        let hosts = MonitoredHosts::begin(Some(path.clone()), LONG);
        assert_eq!(
            (hosts.state, hosts.to_notify()),
            (7, vec![(host("a"), here())])
        );
        std::fs::write(&path, "five").unwrap();
        assert_eq!(MonitoredHosts::begin(Some(path), LONG).state, 3);
    }

    #[test]
    fn names_match_with_and_without_their_domain() {
        assert!(host("a").is_named(b"a.example") && host("a.b").is_named(b"a"));
        assert!(!host("a").is_named(b"b.example"));
    }
}
