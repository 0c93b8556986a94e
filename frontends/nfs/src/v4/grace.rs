//! The grace period: what a client had before the server restarted is granted to it before anything
//! is granted to others.
//!
//! # Mechanism
//! Opens and locks are kept in memory alone, but a file lists the clients that may have some: a
//! line each, with the bytes of `co_ownerid` as hexadecimal digits. A client is added when it says
//! `RECLAIM_COMPLETE`, before which it gets nothing new, and removed before what it had may be
//! granted to another. A server that starts reads that list. While one of these clients has not
//! ended its reclaims, and at most for the time of a lease, opens and locks are granted to these
//! clients alone, and only as reclaims.
//!
//! # Invariants
//! - A client that lost its state, since its lease ran out or since it did not reclaim in time, is
//!   not in the file when a state is granted that conflicts with what it had. So it cannot reclaim
//!   that after a further restart (RFC 8881, section 8.4.3).
//! - Where the file cannot be written, nothing is granted that this would be needed for.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most bytes of the file that are looked at: more than the most clients have.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The clients of the server's earlier life, and the file that lists those of this one.
pub(crate) struct Grace {
    /// None where nothing outlives the process.
    path: Option<PathBuf>,
    listed: BTreeSet<Vec<u8>>,
    /// Of the earlier life's clients, those that have not ended their reclaims.
    reclaiming: BTreeSet<Vec<u8>>,
    ends: Instant,
}

impl Grace {
    /// Reads the list. No client may reclaim where there is none, or where it cannot be read.
    pub(crate) fn begin(path: Option<PathBuf>, length: Duration) -> Grace {
        let listed = path.as_deref().and_then(read).unwrap_or_default();
        Grace {
            path,
            reclaiming: listed.clone(),
            listed,
            ends: Instant::now() + length,
        }
    }

    /// Whether only reclaims are granted.
    pub(crate) fn is_on(&mut self) -> bool {
        if self.reclaiming.is_empty() {
            return false;
        }
        if Instant::now() < self.ends {
            return true;
        }
        // Those that did not come have lost what they had.
        let late = std::mem::take(&mut self.reclaiming);
        let mut rest = self.listed.clone();
        rest.retain(|owner| !late.contains(owner));
        if !self.store(rest) {
            self.reclaiming = late;
            return true;
        }
        false
    }

    /// Whether this client may reclaim what it had.
    pub(crate) fn may_reclaim(&mut self, owner: &[u8]) -> bool {
        self.is_on() && self.reclaiming.contains(owner)
    }

    /// A client has ended its reclaims.
    pub(crate) fn ended(&mut self, owner: &[u8]) {
        self.reclaiming.remove(owner);
    }

    /// Lists a client. A client that cannot be listed may not reclaim after a restart.
    pub(crate) fn add(&mut self, owner: &[u8]) {
        if !self.listed.contains(owner) {
            let mut all = self.listed.clone();
            all.insert(owner.to_vec());
            self.store(all);
        }
    }

    /// Lists these clients no longer. False where that cannot be stored.
    pub(crate) fn remove(&mut self, owners: &[Vec<u8>]) -> bool {
        let mut rest = self.listed.clone();
        rest.retain(|owner| !owners.contains(owner) || self.reclaiming.contains(owner));
        rest == self.listed || self.store(rest)
    }

    fn store(&mut self, listed: BTreeSet<Vec<u8>>) -> bool {
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

fn read(path: &Path) -> Option<BTreeSet<Vec<u8>>> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let owner = |line: &str| -> Option<Vec<u8>> {
        let (pairs, rest) = line.as_bytes().as_chunks::<2>();
        let owner: Option<Vec<u8>> = pairs.iter().map(|pair| byte(pair)).collect();
        owner.filter(|owner| rest.is_empty() && !owner.is_empty())
    };
    Some(text.lines().filter_map(owner).collect())
}

/// Replaces the file as a whole, durably.
fn write(path: &Path, listed: &BTreeSet<Vec<u8>>) -> std::io::Result<()> {
    let mut text = String::new();
    for owner in listed {
        for byte in owner {
            text.push_str(&format!("{byte:02x}"));
        }
        text.push('\n');
    }
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn only_listed_clients_reclaim_and_the_last_one_ends_the_grace_period() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("clients"));
        let mut grace = Grace::begin(path.clone(), LONG);
        assert!(!grace.is_on(), "there was no earlier life");
        grace.add(b"a");
        grace.add(b"b\n");
        grace.add(b"gone");
        assert!(grace.remove(&[b"gone".to_vec()]));
        let mut grace = Grace::begin(path.clone(), LONG);
        assert!(grace.is_on());
        assert!(grace.may_reclaim(b"a") && grace.may_reclaim(b"b\n"));
        assert!(!grace.may_reclaim(b"gone"));
        grace.ended(b"a");
        assert!(grace.is_on() && !grace.may_reclaim(b"a"));
        grace.ended(b"b\n");
        assert!(!grace.is_on());
        // A client that came in time is listed still, for the next restart.
        assert!(Grace::begin(path, LONG).may_reclaim(b"a"));
    }

    #[test]
    fn who_does_not_reclaim_in_time_may_not_after_a_further_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("clients"));
        Grace::begin(path.clone(), LONG).add(b"a");
        let mut late = Grace::begin(path.clone(), Duration::ZERO);
        assert!(!late.is_on() && !late.may_reclaim(b"a"));
        assert!(!Grace::begin(path, LONG).is_on());
    }

    #[test]
    fn nothing_is_granted_while_a_loss_cannot_be_stored() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("below/clients"));
        std::fs::create_dir(folder.path().join("below")).unwrap();
        Grace::begin(path.clone(), LONG).add(b"a");
        let mut grace = Grace::begin(path, Duration::ZERO);
        std::fs::remove_dir_all(folder.path().join("below")).unwrap();
        assert!(grace.is_on());
        assert!(!grace.remove(&[b"none".to_vec()]) || grace.is_on());
    }

    #[test]
    fn other_bytes_in_the_file_name_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clients");
        std::fs::write(&path, "zz\n6\n\n61\n+1\n").unwrap();
        let mut grace = Grace::begin(Some(path), LONG);
        assert!(grace.may_reclaim(b"a"));
        grace.ended(b"a");
        grace.ended(&[1]);
        assert!(!grace.is_on());
    }
}
