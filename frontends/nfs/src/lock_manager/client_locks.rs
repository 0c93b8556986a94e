//! What clients of version 3 have: owners of locks, locked ranges, requests that wait, and share
//! reservations.
//!
//! # Invariants
//! - Locks and reservations are those of `posix`; this table says which client has them, so that
//!   they end with the client.
//! - A request in `waiting` that was not granted waits in `posix`.
//!
//! # Bounds
//! [`OWNERS_MAX`] owners, [`RANGES_MAX`] locked ranges, [`WAITING_MAX`] requests that wait, and as
//! many reservations.

use super::lock_arguments::ClientLock;
use super::monitored_hosts::{HostKey, MonitoredHosts};
use crate::share::SharedFiles;
use crate::v4::{HeldRanges, reservation};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tarn_engine::files::{
    LockOwner, LockRange, LockRequest, LockScope, LockWait, ObjectId, Operation,
};

/// An owner has at most 3 KiB of names, so all of them at most 96 MiB.
const OWNERS_MAX: usize = 32 << 10;
/// About 50 bytes each, in the table of locks and here.
const RANGES_MAX: usize = 256 << 10;
/// A request that waits has at most 4 KiB.
const WAITING_MAX: usize = 8 << 10;

/// Numbers of owners differ from those of version 4 in this bit.
const NUMBERS: u64 = 1 << 63;

/// A client stays in the file so long after its last lock is gone: a program that locks and
/// unlocks does not change the file each time. A guess.
const LINGER: Duration = Duration::from_secs(60);

/// An owner as its client knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnerKey {
    pub(crate) host: HostKey,
    pub(crate) process: u32,
    pub(crate) name: Vec<u8>,
}

/// A file of a share.
#[derive(Clone)]
pub(crate) struct FileKey {
    pub(crate) shared: Weak<SharedFiles>,
    pub(crate) guid: u64,
    pub(crate) file: ObjectId,
}

impl FileKey {
    fn is_of(&self, other: &FileKey) -> bool {
        (self.guid, self.file) == (other.guid, other.file)
    }
}

struct Held {
    shared: Weak<SharedFiles>,
    ranges: HeldRanges,
}

/// A request that waits, or was granted and whose client does not know yet.
pub(crate) struct Waiting {
    pub(crate) owner: u64,
    pub(crate) file: FileKey,
    pub(crate) request: LockRequest,
    pub(crate) lock: ClientLock,
    pub(crate) host: HostKey,
    /// Its number in `posix`, until it is granted.
    pub(crate) wait: Option<LockWait>,
    pub(crate) is_granted: bool,
    /// How often its client was told.
    pub(crate) tries: u32,
}

struct Reservation3 {
    file: FileKey,
    access: u32,
    denies: u32,
}

#[derive(Debug, Clone, Copy)]
struct HostState {
    /// The number of the client's life; 0 where it has not said it.
    state: u32,
    seen: Instant,
}

/// All of it.
pub(crate) struct ClientLocks {
    pub(crate) monitored: MonitoredHosts,
    hosts: BTreeMap<HostKey, HostState>,
    owners: BTreeMap<OwnerKey, u64>,
    names: BTreeMap<u64, OwnerKey>,
    held: BTreeMap<(u64, u64, ObjectId), Held>,
    ranges: usize,
    waiting: BTreeMap<u64, Waiting>,
    reservations: BTreeMap<(OwnerKey, u64, ObjectId), Reservation3>,
    last: u64,
}

impl ClientLocks {
    pub(crate) fn new(monitored: MonitoredHosts) -> ClientLocks {
        ClientLocks {
            monitored,
            hosts: BTreeMap::new(),
            owners: BTreeMap::new(),
            names: BTreeMap::new(),
            held: BTreeMap::new(),
            ranges: 0,
            waiting: BTreeMap::new(),
            reservations: BTreeMap::new(),
            last: 0,
        }
    }

    /// A client that has asked for something has said which life of it this is: what an earlier
    /// life had is released.
    pub(crate) fn note_state(&mut self, host: &HostKey, state: u32) {
        let known = self.hosts.get(host).map_or(0, |known| known.state);
        if state != 0 && known != 0 && state > known {
            self.release_hosts(|other| other == host);
        }
        let state = state.max(known);
        let seen = Instant::now();
        self.hosts.insert(host.clone(), HostState { state, seen });
    }

    /// The owner's number. None when there are too many.
    pub(crate) fn owner(&mut self, key: &OwnerKey) -> Option<u64> {
        if let Some(number) = self.owners.get(key) {
            return Some(*number);
        }
        if self.owners.len() >= OWNERS_MAX {
            return None;
        }
        self.last += 1;
        let number = NUMBERS | self.last;
        debug_assert!(!self.names.contains_key(&number), "numbers are given once");
        self.owners.insert(key.clone(), number);
        self.names.insert(number, key.clone());
        Some(number)
    }

    /// The owner's number, if it has one.
    pub(crate) fn find_owner(&self, key: &OwnerKey) -> Option<u64> {
        self.owners.get(key).copied()
    }

    /// The client's owner with this number.
    pub(crate) fn name_of(&self, number: u64) -> Option<&OwnerKey> {
        self.names.get(&number)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.ranges < RANGES_MAX && self.waiting.len() < WAITING_MAX
    }

    /// A range was locked.
    pub(crate) fn note_locked(&mut self, owner: u64, file: &FileKey, range: LockRange) {
        let key = (owner, file.guid, file.file);
        let held = self.held.entry(key).or_insert_with(|| Held {
            shared: file.shared.clone(),
            ranges: HeldRanges::default(),
        });
        debug_assert!(held.ranges.len() <= self.ranges, "each range is counted");
        self.ranges -= held.ranges.len();
        held.ranges.add(range);
        self.ranges += held.ranges.len();
    }

    /// A range was unlocked.
    pub(crate) fn note_unlocked(&mut self, owner: u64, file: &FileKey, range: LockRange) {
        let key = (owner, file.guid, file.file);
        if let Some(held) = self.held.get_mut(&key) {
            self.ranges -= held.ranges.len();
            held.ranges.remove(range);
            self.ranges += held.ranges.len();
            if held.ranges.len() == 0 {
                self.held.remove(&key);
            }
        }
        self.forget_idle_owner(owner);
    }

    /// Forgets an owner that has nothing.
    pub(crate) fn forget_idle_owner(&mut self, owner: u64) {
        let has_locks = self.files_of(owner).next().is_some();
        let waits = self.waiting.values().any(|waiting| waiting.owner == owner);
        if !has_locks
            && !waits
            && let Some(key) = self.names.remove(&owner)
        {
            self.owners.remove(&key);
        }
    }

    /// Where an owner has locks.
    fn files_of(&self, owner: u64) -> impl Iterator<Item = (u64, u64, ObjectId)> {
        let from = self.held.range((owner, 0, ObjectId::ZERO)..);
        from.map(|(key, _)| *key)
            .take_while(move |(other, ..)| *other == owner)
    }

    /// Adds a request that is about to wait.
    pub(crate) fn add_waiting(&mut self, waiting: Waiting) -> u64 {
        debug_assert!(self.names.contains_key(&waiting.owner), "an owner waits");
        self.last += 1;
        self.waiting.insert(self.last, waiting);
        self.last
    }

    pub(crate) fn waiting(&mut self, number: u64) -> Option<&mut Waiting> {
        self.waiting.get_mut(&number)
    }

    pub(crate) fn remove_waiting(&mut self, number: u64) -> Option<Waiting> {
        self.waiting.remove(&number)
    }

    /// The request of this owner that waits for this range.
    pub(crate) fn find_waiting(
        &self,
        owner: u64,
        file: &FileKey,
        request: &LockRequest,
    ) -> Option<u64> {
        let is_it = |waiting: &Waiting| {
            waiting.owner == owner && waiting.file.is_of(file) && waiting.request == *request
        };
        let mut all = self.waiting.iter();
        all.find_map(|(number, waiting)| is_it(waiting).then_some(*number))
    }

    /// Numbers of requests that were granted and whose clients do not know yet.
    pub(crate) fn untold(&self) -> Vec<u64> {
        let granted = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.is_granted);
        granted.map(|(number, _)| *number).collect()
    }

    /// Adds a reservation, in place of the one that the owner has on the file. False when an open
    /// of another denies it, or there are too many.
    pub(crate) fn reserve(
        &mut self,
        owner: &OwnerKey,
        file: &FileKey,
        (access, denies): (u32, u32),
    ) -> bool {
        let Some(shared) = file.shared.upgrade() else {
            return false;
        };
        let (files, holder) = (shared.files(), shared.holding.id());
        let key = (owner.clone(), file.guid, file.file);
        let before = self.reservations.get(&key);
        let before = before.map(|known| reservation(known.access, known.denies));
        if before.is_none() && self.reservations.len() >= WAITING_MAX {
            return false;
        }
        if let Some(before) = before {
            files.unshare(file.file, holder, before);
        } else if files.opened(file.file, &Operation::unmeasured()).is_err() {
            return false;
        }
        if files
            .share(file.file, holder, reservation(access, denies))
            .is_err()
        {
            match before {
                // No other has asked meanwhile for what it had: it has it again.
                Some(before) => drop(files.share(file.file, holder, before)),
                None => drop(files.closed(file.file, &Operation::unmeasured())),
            }
            return false;
        }
        let kept = Reservation3 {
            file: file.clone(),
            access,
            denies,
        };
        self.reservations.insert(key, kept);
        true
    }

    /// Removes the reservation of an owner on a file.
    pub(crate) fn unreserve(&mut self, owner: &OwnerKey, file: &FileKey) {
        let key = (owner.clone(), file.guid, file.file);
        if let Some(gone) = self.reservations.remove(&key) {
            end_reservation(&gone);
        }
    }

    /// Releases all that these clients have.
    pub(crate) fn release_hosts(&mut self, goes: impl Fn(&HostKey) -> bool) {
        let owners: Vec<u64> = self
            .names
            .iter()
            .filter(|(_, key)| goes(&key.host))
            .map(|(number, _)| *number)
            .collect();
        let gone = |waiting: &Waiting| owners.contains(&waiting.owner);
        let waiting = self.waiting.extract_if(.., |_, waiting| gone(waiting));
        // Ends the wait, or releases what was granted.
        waiting.for_each(|(_, gone)| release(&gone.file.shared, gone.file.file, gone.owner));
        for owner in owners {
            let keys: Vec<_> = self.files_of(owner).collect();
            for key in keys {
                if let Some(held) = self.held.remove(&key) {
                    self.ranges -= held.ranges.len();
                    release(&held.shared, key.2, owner);
                }
            }
            self.forget_idle_owner(owner);
        }
        let gone = self
            .reservations
            .extract_if(.., |(owner, ..), _| goes(&owner.host));
        gone.for_each(|(_, gone)| end_reservation(&gone));
    }

    /// Ends all of a share, whose file system ends its locks itself.
    pub(crate) fn forget_share(&mut self, shared: &Arc<SharedFiles>) {
        let is_it = |weak: &Weak<SharedFiles>| std::ptr::eq(weak.as_ptr(), Arc::as_ptr(shared));
        let waiting = self
            .waiting
            .extract_if(.., |_, waiting| is_it(&waiting.file.shared));
        for (_, waiting) in waiting {
            if let Some(wait) = waiting.wait {
                shared.files().cancel_lock_wait(waiting.file.file, wait);
            }
        }
        let held: Vec<_> = self
            .held
            .extract_if(.., |_, held| is_it(&held.shared))
            .collect();
        for ((owner, _, file), held) in held {
            self.ranges -= held.ranges.len();
            release(&held.shared, file, owner);
            self.forget_idle_owner(owner);
        }
        let gone = self
            .reservations
            .extract_if(.., |_, kept| is_it(&kept.file.shared));
        gone.for_each(|(_, gone)| end_reservation(&gone));
    }

    /// Forgets clients that have had no locks for a while.
    pub(crate) fn forget_idle_hosts(&mut self) {
        let (names, reservations) = (&self.names, &self.reservations);
        let is_used = |host: &HostKey| {
            names.values().any(|owner| owner.host == *host)
                || reservations.keys().any(|(owner, ..)| owner.host == *host)
        };
        self.hosts.retain(|host, known| {
            let stays = known.seen.elapsed() < LINGER || is_used(host);
            if stays && is_used(host) {
                known.seen = Instant::now();
            }
            stays
        });
        let hosts = &self.hosts;
        self.monitored.retain(|host| hosts.contains_key(host));
    }
}

fn release(shared: &Weak<SharedFiles>, file: ObjectId, number: u64) {
    if let Some(shared) = shared.upgrade() {
        let owner = LockOwner {
            holder: shared.holding.id(),
            number,
        };
        let whole = LockScope::Range(LockRange::WHOLE);
        shared.files().release_locks(file, owner, whole);
    }
}

fn end_reservation(gone: &Reservation3) {
    if let Some(shared) = gone.file.shared.upgrade() {
        let (files, id) = (shared.files(), gone.file.file);
        files.unshare(
            id,
            shared.holding.id(),
            reservation(gone.access, gone.denies),
        );
        // A file without a name that cannot be freed now is freed at the next mount.
        let _ = files.closed(id, &Operation::unmeasured());
    }
}
