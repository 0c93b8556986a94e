//! The grace period: what a client had before the server restarted is granted to it before anything
//! is granted to others.
//!
//! # Mechanism
//! Opens and locks are kept in memory alone, but a file lists the clients that may have some: a
//! line each, with the bytes of the client's name as hexadecimal digits ([`ClientName::line`]). A
//! client is added when it says `RECLAIM_COMPLETE`, before which it gets nothing new, and removed
//! before what it had may be granted to another. A client of version 4.0 has no such call: it is
//! added before its first open, and what it reclaims it may reclaim until the grace period ends. A
//! server that starts reads that list. While one of these clients has not ended its reclaims, and
//! at most for the time of a lease, opens and locks are granted to these clients alone, and only as
//! reclaims.
//!
//! # Invariants
//! - A client that lost its state, since its lease ran out or since it did not reclaim in time, is
//!   not in the file when a state is granted that conflicts with what it had. So it cannot reclaim
//!   that after a further restart (RFC 8881, section 8.4.3).
//! - Where the file cannot be written, nothing is granted that this would be needed for.

use super::client_name::ClientName;
use crate::state_file;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most bytes of the file that are looked at: more than the most clients have.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The clients of the server's earlier life, and the file that lists those of this one.
pub(crate) struct Grace {
    /// None where nothing outlives the process.
    path: Option<PathBuf>,
    listed: BTreeSet<ClientName>,
    /// Of the earlier life's clients, those that have not ended their reclaims.
    reclaiming: BTreeSet<ClientName>,
    /// Of these, those of version 4.0 that have reclaimed something.
    came: BTreeSet<ClientName>,
    ends: Instant,
    /// Clients of version 3 reclaim until then.
    others_end: Option<Instant>,
}

impl Grace {
    /// Reads the list. No client may reclaim where there is none, or where it cannot be read.
    pub(crate) fn begin(path: Option<PathBuf>, length: Duration) -> Grace {
        let listed = path.as_deref().and_then(read).unwrap_or_default();
        Grace {
            path,
            reclaiming: listed.clone(),
            listed,
            came: BTreeSet::new(),
            ends: Instant::now() + length,
            others_end: None,
        }
    }

    /// Clients of version 3 reclaim their locks until then: what is new is granted to none.
    pub(crate) fn others_reclaim_until(&mut self, end: Instant) {
        self.others_end = Some(end);
    }

    /// Whether only reclaims are granted, to clients of this version or of others.
    pub(crate) fn is_on(&mut self) -> bool {
        let others_reclaim = self.others_end.is_some_and(|end| Instant::now() < end);
        self.is_own_on() || others_reclaim
    }

    fn is_own_on(&mut self) -> bool {
        if self.reclaiming.is_empty() {
            return false;
        }
        if Instant::now() < self.ends {
            return true;
        }
        // Those that did not come have lost what they had.
        let mut late = std::mem::take(&mut self.reclaiming);
        late.retain(|client| !self.came.contains(client));
        let mut rest = self.listed.clone();
        rest.retain(|owner| !late.contains(owner));
        if !self.store(rest) {
            self.reclaiming = late;
            return true;
        }
        false
    }

    /// Whether this client may reclaim what it had.
    pub(crate) fn may_reclaim(&mut self, client: &ClientName) -> bool {
        let may = self.is_own_on() && self.reclaiming.contains(client);
        if may && !client.has_sessions {
            self.came.insert(client.clone());
            self.add(client);
        }
        may
    }

    /// A client has ended its reclaims.
    pub(crate) fn ended(&mut self, client: &ClientName) {
        self.reclaiming.remove(client);
    }

    /// Lists a client. A client that cannot be listed may not reclaim after a restart.
    pub(crate) fn add(&mut self, client: &ClientName) {
        if !self.listed.contains(client) {
            let mut all = self.listed.clone();
            all.insert(client.clone());
            self.store(all);
        }
    }

    /// Lists these clients no longer. False where that cannot be stored.
    pub(crate) fn remove(&mut self, clients: &[ClientName]) -> bool {
        let mut rest = self.listed.clone();
        rest.retain(|client| !clients.contains(client) || self.is_awaited(client));
        rest == self.listed || self.store(rest)
    }

    /// Whether what this client had before the restart may come yet.
    fn is_awaited(&self, client: &ClientName) -> bool {
        self.reclaiming.contains(client) && !self.came.contains(client)
    }

    fn store(&mut self, listed: BTreeSet<ClientName>) -> bool {
        let is_stored = self.path.as_deref().is_none_or(|path| {
            let written = write(path, &listed);
            written.is_ok()
        });
        if is_stored {
            self.listed = listed;
        }
        is_stored
    }
}

fn read(path: &Path) -> Option<BTreeSet<ClientName>> {
    let text = state_file::read(path, FILE_BYTES_MAX)?;
    Some(text.lines().filter_map(ClientName::parse).collect())
}

/// Replaces the file as a whole, durably.
fn write(path: &Path, listed: &BTreeSet<ClientName>) -> std::io::Result<()> {
    let mut text = String::new();
    for client in listed {
        text.push_str(&client.line());
        text.push('\n');
    }
    state_file::replace(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(owner: &[u8]) -> ClientName {
        ClientName {
            has_sessions: true,
            owner: owner.to_vec(),
        }
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn only_listed_clients_reclaim_and_the_last_one_ends_the_grace_period() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("clients"));
        let mut grace = Grace::begin(path.clone(), LONG);
        assert!(!grace.is_on(), "there was no earlier life");
        grace.add(&named(b"a"));
        grace.add(&named(b"b\n"));
        grace.add(&named(b"gone"));
        assert!(grace.remove(&[named(b"gone")]));
        let mut grace = Grace::begin(path.clone(), LONG);
        assert!(grace.is_on());
        assert!(grace.may_reclaim(&named(b"a")) && grace.may_reclaim(&named(b"b\n")));
        assert!(!grace.may_reclaim(&named(b"gone")));
        grace.ended(&named(b"a"));
        assert!(grace.is_on() && !grace.may_reclaim(&named(b"a")));
        grace.ended(&named(b"b\n"));
        assert!(!grace.is_on());
        // A client that came in time is listed still, for the next restart.
        assert!(Grace::begin(path, LONG).may_reclaim(&named(b"a")));
    }

    #[test]
    fn who_does_not_reclaim_in_time_may_not_after_a_further_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("clients"));
        Grace::begin(path.clone(), LONG).add(&named(b"a"));
        let mut late = Grace::begin(path.clone(), Duration::ZERO);
        assert!(!late.is_on() && !late.may_reclaim(&named(b"a")));
        assert!(!Grace::begin(path, LONG).is_on());
    }

    #[test]
    fn nothing_is_granted_while_a_loss_cannot_be_stored() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("below/clients"));
        std::fs::create_dir(folder.path().join("below")).unwrap();
        Grace::begin(path.clone(), LONG).add(&named(b"a"));
        let mut grace = Grace::begin(path, Duration::ZERO);
        std::fs::remove_dir_all(folder.path().join("below")).unwrap();
        assert!(grace.is_on());
        assert!(!grace.remove(&[named(b"none")]) || grace.is_on());
    }

    #[test]
    fn other_bytes_in_the_file_name_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clients");
        std::fs::write(&path, "zz\n6\n\n61\n+1\n").unwrap();
        let mut grace = Grace::begin(Some(path), LONG);
        assert!(grace.may_reclaim(&named(b"a")));
        grace.ended(&named(b"a"));
        grace.ended(&named(&[1]));
        assert!(!grace.is_on());
    }

    #[test]
    fn a_client_of_version_4_0_that_reclaimed_stays_listed_when_the_grace_period_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("clients"));
        let old = |owner: &[u8]| ClientName {
            has_sessions: false,
            ..named(owner)
        };
        let mut grace = Grace::begin(path.clone(), LONG);
        grace.add(&old(b"came"));
        grace.add(&old(b"late"));
        let mut grace = Grace::begin(path.clone(), LONG);
        assert!(!grace.may_reclaim(&named(b"came")), "that is another one");
        assert!(grace.may_reclaim(&old(b"came")) && grace.may_reclaim(&old(b"came")));
        grace.ends = Instant::now();
        assert!(!grace.is_on() && !grace.may_reclaim(&old(b"came")));
        let mut grace = Grace::begin(path, LONG);
        assert!(grace.may_reclaim(&old(b"came")) && !grace.may_reclaim(&old(b"late")));
    }
}
