//! The state of clients of version 4: their names, sessions, opens and locks.
//!
//! # Mechanism
//! A client introduces itself (`EXCHANGE_ID`), confirms that by its first session, and renews its
//! lease with each `SEQUENCE`; one of version 4.0 does so by other operations (`client_ids`). All
//! state of a client whose lease has run out ends ([`State::reap`]), which is looked for from time
//! to time.
//!
//! Opens and locks are those of `posix`: an open counts as one there and reserves what it denies; a
//! lock's owner has a number of its own. So mounts and clients exclude each other.
//!
//! # Invariants
//! - An open in the table is counted in its file system, until it is removed from the table.
//! - The state of a share ends with the share.
//! - The id of a state names the server's life and the client: while a client is there, no other
//!   state of it has the same id.
//!
//! # Bounds
//! [`CLIENTS_MAX`] clients and [`SESSIONS_MAX`] sessions of each; of each client [`OPENS_MAX`]
//! opens, as many owners of locks and as many owners of version 4.0, of all clients
//! [`ALL_OPENS_MAX`]; [`ALL_RANGES_MAX`] locked ranges and [`SLOTS_MAX`] slots of all sessions.

use super::callback_place::{Back4, Callback40};
use super::client_name::ClientName;
use super::delegation_table::DelegationTable;
use super::grace::Grace;
use super::held_ranges::HeldRanges;
use super::owners::{Owner, OwnerKey};
use super::status::Status;
use crate::file_call::FileCall;
use crate::share::SharedFiles;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tarn_engine::files::{
    LockOwner, LockRange, LockScope, ObjectId, Operation, Share as Reservation,
};

const CLIENTS_MAX: usize = 4096;
const SESSIONS_MAX: usize = 16;
const OPENS_MAX: usize = 16 << 10;
/// The name of an owner has at most 1 KiB, so opens and owners of locks have at most 256 MiB.
const ALL_OPENS_MAX: usize = 128 << 10;
/// About 50 bytes each, in the table of locks and here.
const ALL_RANGES_MAX: usize = 1 << 20;
/// A slot keeps a reply of at most 8 KiB, so all of them have at most 128 MiB.
const SLOTS_MAX: usize = 16 << 10;
/// Most slots of a session: as many calls of a connection are served at a time.
const SESSION_SLOTS_MAX: usize = 64;

pub(crate) use super::owners::StateKey;

/// The id of a session.
pub(crate) type SessionId = [u8; 16];

/// A client.
pub(crate) struct Client4 {
    pub(crate) name: ClientName,
    pub(crate) verifier: [u8; 8],
    /// The user that introduced it.
    pub(crate) principal: u32,
    pub(crate) is_confirmed: bool,
    pub(crate) has_reclaimed: bool,
    /// The number of the next `CREATE_SESSION`, and the result of the last one.
    pub(crate) sequence: u32,
    pub(crate) created: Option<Vec<u8>>,
    pub(crate) sessions: Vec<SessionId>,
    /// What confirmed a client of version 4.0, and what does so next.
    pub(crate) confirms: u64,
    pub(crate) confirms_next: Option<u64>,
    /// Where a client of version 4.0 takes calls, and where it does when it is confirmed.
    pub(crate) callback: Option<Callback40>,
    pub(crate) callback_next: Option<Callback40>,
    /// Whether it has answered there.
    pub(crate) is_probed: bool,
    /// The last call to it was not answered, and there is no other way to it.
    pub(crate) is_path_down: bool,
    /// A delegation of a client of version 4.0 was revoked, which it is not told yet.
    pub(crate) has_lost: bool,
    renewed: Instant,
    opens: usize,
    /// Owners of version 4.0.
    owners: usize,
    lock_owners: BTreeMap<Vec<u8>, u64>,
}

impl Client4 {
    /// Whether an owner of locks has some, or had some on a file that is open.
    pub(crate) fn has_lock_owner(&self, name: &[u8]) -> bool {
        self.lock_owners.contains_key(name)
    }
}

/// Bytes of the requests and replies of a session, and operations of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) request: usize,
    pub(crate) operations: u32,
    pub(crate) reply: usize,
    pub(crate) kept: usize,
}

/// A session: its slots.
pub(crate) struct Session4 {
    pub(crate) client: u64,
    pub(crate) limits: Limits,
    pub(crate) slots: Vec<Slot>,
    /// How the server calls the client.
    pub(crate) back: Option<Back4>,
}

/// A slot: one call after the other.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) sequence: u32,
    pub(crate) is_busy: bool,
    /// A hash of the last call.
    pub(crate) call: u64,
    /// The result of the last call.
    pub(crate) reply: Option<Vec<u8>>,
}

/// An open file.
pub(crate) struct Open4 {
    pub(crate) client: u64,
    pub(crate) owner: Vec<u8>,
    /// The user that opened it: others use it as far as the permissions of the file go.
    pub(crate) user: u32,
    pub(crate) shared: Arc<SharedFiles>,
    /// The number of the snapshot that the file is in. Files of snapshots are neither counted nor
    /// reserved.
    pub(crate) snapshot: Option<ObjectId>,
    pub(crate) file: ObjectId,
    pub(crate) sequence: u32,
    pub(crate) access: u32,
    pub(crate) deny: u32,
    /// The access and the denial of each `OPEN` of it, as sets: 2 to the power of what it asked
    /// for.
    pub(crate) accesses: u32,
    pub(crate) denials: u32,
    /// False while the owner has to show that the `OPEN` was no repetition (version 4.0).
    pub(crate) is_confirmed: bool,
    /// The states of locks on it.
    pub(crate) locks: Vec<StateKey>,
}

impl Open4 {
    /// Whether it is of this file.
    pub(crate) fn is_of(&self, file: &FileCall) -> bool {
        let realm = &file.realm;
        (self.snapshot, self.file) == (realm.snapshot, file.id)
            && Arc::ptr_eq(&self.shared, &realm.share.shared)
    }
}

/// The locks of an owner on an open file.
pub(crate) struct Locks4 {
    pub(crate) client: u64,
    pub(crate) open: StateKey,
    pub(crate) owner: LockOwner,
    pub(crate) sequence: u32,
    pub(crate) held: HeldRanges,
}

/// All state.
pub(crate) struct State {
    /// Tells the ids of this process from those of earlier ones.
    epoch: u32,
    /// When it began, in seconds since 1970.
    began: i64,
    last: u64,
    /// For how long a client keeps its state without a word.
    lease: Duration,
    pub(crate) grace: Grace,
    /// How many ranges of files are locked.
    ranges: usize,
    /// The opens of a client by the numbers of their files, in all file systems.
    opens_of: BTreeMap<(u64, ObjectId), Vec<StateKey>>,
    pub(crate) clients: BTreeMap<u64, Client4>,
    pub(crate) sessions: BTreeMap<SessionId, Session4>,
    pub(crate) opens: BTreeMap<StateKey, Open4>,
    pub(crate) locks: BTreeMap<StateKey, Locks4>,
    pub(crate) delegations: DelegationTable,
    /// Owners of locks by their numbers: the client, and its name for the owner.
    pub(crate) lock_owners: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Owners of version 4.0, and what the last operations of some of them closed.
    pub(crate) owners: BTreeMap<OwnerKey, Owner>,
    pub(crate) closed: BTreeMap<StateKey, OwnerKey>,
}

impl State {
    pub(crate) fn new(clients: Option<PathBuf>, lease: Duration) -> State {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let since = since.unwrap_or_default();
        let low = since.as_millis() & u128::from(u32::MAX);
        State {
            began: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            epoch: u32::try_from(low).unwrap_or_default(),
            last: 0,
            lease,
            grace: Grace::begin(clients, lease),
            ranges: 0,
            opens_of: BTreeMap::new(),
            clients: BTreeMap::new(),
            sessions: BTreeMap::new(),
            opens: BTreeMap::new(),
            locks: BTreeMap::new(),
            delegations: DelegationTable::default(),
            lock_owners: BTreeMap::new(),
            owners: BTreeMap::new(),
            closed: BTreeMap::new(),
        }
    }
}

/// `OPEN4_SHARE_ACCESS_*` and `OPEN4_SHARE_DENY_*` as `posix` has them.
pub(crate) fn reservation(access: u32, deny: u32) -> Reservation {
    Reservation {
        reads: access & 1 != 0,
        writes: access & 2 != 0,
        denies_reading: deny & 1 != 0,
        denies_writing: deny & 2 != 0,
    }
}

impl State {
    /// Tells this process from others.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// For how long a client keeps its state without a word.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// Whether a change of this time may have been made since this process began. A clock that is
    /// set back by less than a minute hides none.
    pub(crate) fn may_be_of_this_life(&self, seconds: i64) -> bool {
        seconds >= self.began.saturating_sub(60)
    }

    /// A number that was not given before.
    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The id of a new state of a client: the epoch, the low half of the client's number, and a
    /// number of its own.
    pub(crate) fn next_key(&mut self, client: u64) -> StateKey {
        loop {
            let mut key = [0; 12];
            key[..4].copy_from_slice(&self.epoch.to_be_bytes());
            key[4..8].copy_from_slice(&client.to_be_bytes()[4..]);
            key[8..].copy_from_slice(&self.next().to_be_bytes()[4..]);
            // After some billions of states, one of the first may be there still.
            let is_used = self.opens.contains_key(&key) || self.locks.contains_key(&key);
            let is_used = is_used || self.delegations.get(&key).is_some();
            if !is_used && !self.closed.contains_key(&key) {
                return key;
            }
        }
    }

    /// The number of the client in the id of a state of this server.
    pub(crate) fn client_in(&self, key: &StateKey) -> Option<u64> {
        let (epoch, rest) = key.split_first_chunk::<4>()?;
        let low = rest.first_chunk::<4>()?;
        let is_ours = u32::from_be_bytes(*epoch) == self.epoch;
        is_ours.then(|| u64::from(self.epoch) << 32 | u64::from(u32::from_be_bytes(*low)))
    }

    /// Whether a client of this server has or had this number.
    pub(crate) fn has_given(&self, client: u64) -> bool {
        let (epoch, low) = (client >> 32, client & u64::from(u32::MAX));
        epoch == u64::from(self.epoch) && low > 0 && low <= self.last
    }

    /// A client of this name.
    pub(crate) fn find_client(&self, name: &ClientName, is_confirmed: bool) -> Option<u64> {
        let mut clients = self.clients.iter();
        let is_it = |client: &Client4| client.is_confirmed == is_confirmed && client.name == *name;
        clients.find_map(|(id, client)| is_it(client).then_some(*id))
    }

    /// Ends what earlier lives of a client had.
    pub(crate) fn end_earlier(&mut self, id: u64, name: &ClientName) {
        let earlier = self.clients.iter();
        let earlier = earlier.filter(|(other, client)| **other != id && client.name == *name);
        let earlier: Vec<u64> = earlier.map(|(other, _)| *other).collect();
        (earlier.into_iter()).for_each(|other| self.remove_client(other));
    }

    /// Counts a new owner of version 4.0.
    ///
    /// # Errors
    /// `RESOURCE` when there are too many.
    pub(crate) fn count_owner(&mut self, client: u64) -> Result<(), Status> {
        let all = self.owners.len();
        let client = self.clients.get_mut(&client);
        let client = client.ok_or(Status::STALE_CLIENTID)?;
        if client.owners >= OPENS_MAX || all >= ALL_OPENS_MAX {
            return Err(Status::RESOURCE);
        }
        client.owners += 1;
        Ok(())
    }

    pub(crate) fn uncount_owner(&mut self, client: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            debug_assert!(client.owners > 0, "each owner is counted");
            client.owners -= 1;
        }
    }

    /// Adds a client that has introduced itself.
    ///
    /// # Errors
    /// `DELAY` when there are too many.
    pub(crate) fn add_client(
        &mut self,
        name: ClientName,
        verifier: [u8; 8],
        principal: u32,
    ) -> Result<u64, Status> {
        self.reap();
        if self.clients.len() >= CLIENTS_MAX {
            return Err(Status::DELAY);
        }
        let mut id = 0;
        // After some billions of states, one of the first clients may be there still.
        while id == 0 || self.clients.contains_key(&id) {
            id = u64::from(self.epoch) << 32 | (self.next() & u64::from(u32::MAX));
        }
        let client = Client4 {
            name,
            verifier,
            principal,
            is_confirmed: false,
            has_reclaimed: false,
            sequence: 1,
            created: None,
            sessions: Vec::new(),
            confirms: 0,
            confirms_next: None,
            callback: None,
            callback_next: None,
            is_probed: false,
            is_path_down: false,
            has_lost: false,
            renewed: Instant::now(),
            opens: 0,
            owners: 0,
            lock_owners: BTreeMap::new(),
        };
        self.clients.insert(id, client);
        Ok(id)
    }

    /// Adds a session of a client, with as many slots as there are for it.
    ///
    /// # Errors
    /// `DELAY` when there are too many.
    pub(crate) fn add_session(
        &mut self,
        client: u64,
        slots: u32,
        limits: Limits,
    ) -> Result<(SessionId, u32), Status> {
        let used: usize = self.sessions.values().map(|other| other.slots.len()).sum();
        debug_assert!(used <= SLOTS_MAX, "no session gets more than there are");
        // Each session leaves most of the rest to others.
        let free = (SLOTS_MAX - used).div_ceil(16).min(SESSION_SLOTS_MAX);
        let count = slots.clamp(1, u32::try_from(free).unwrap_or(1).max(1));
        if free == 0 {
            return Err(Status::DELAY);
        }
        let number = self.next();
        let known = self.clients.get_mut(&client);
        let known = known.ok_or(Status::STALE_CLIENTID)?;
        if known.sessions.len() >= SESSIONS_MAX {
            return Err(Status::DELAY);
        }
        let mut id = [0; 16];
        id[..8].copy_from_slice(&client.to_be_bytes());
        id[8..].copy_from_slice(&number.to_be_bytes());
        known.sessions.push(id);
        let slots = (0..count).map(|_| Slot::default()).collect();
        let session = Session4 {
            client,
            limits,
            slots,
            back: None,
        };
        self.sessions.insert(id, session);
        Ok((id, count))
    }

    /// A client has said something.
    pub(crate) fn renew(&mut self, client: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.renewed = Instant::now();
        }
    }

    /// Whether a state may be granted to a client now: one that it had before a restart of the
    /// server, or another one.
    pub(crate) fn check_grace(&mut self, client: u64, reclaims: bool) -> Result<(), Status> {
        let client = self.clients.get(&client).ok_or(Status::STALE_CLIENTID)?;
        let (name, has_reclaimed) = (client.name.clone(), client.has_reclaimed);
        match reclaims {
            true if has_reclaimed || !self.grace.may_reclaim(&name) => Err(Status::NO_GRACE),
            true => Ok(()),
            false if self.grace.is_on() => Err(Status::GRACE),
            false if !name.has_sessions => {
                self.grace.add(&name);
                Ok(())
            }
            false if !has_reclaimed => Err(Status::GRACE),
            false => Ok(()),
        }
    }

    /// Removes clients whose leases have run out.
    pub(crate) fn reap(&mut self) {
        let late = self.clients.iter();
        let late = late.filter(|(_, client)| client.renewed.elapsed() > self.lease);
        let late: Vec<(u64, ClientName)> = late
            .map(|(id, client)| (*id, client.name.clone()))
            .collect();
        let is_late = |id: &u64| late.iter().any(|(other, _)| other == id);
        let mut names: Vec<ClientName> = late.iter().map(|(_, name)| name.clone()).collect();
        for (_, client) in self.clients.iter().filter(|(id, _)| !is_late(id)) {
            // It has begun anew.
            names.retain(|name| *name != client.name);
        }
        // What is taken from a client must not be reclaimed after a restart.
        if !late.is_empty() && self.grace.remove(&names) {
            late.into_iter().for_each(|(id, _)| self.remove_client(id));
        }
        self.revoke_overdue();
        self.forget_idle_owners(self.lease);
    }

    /// Removes a client with all of its state.
    pub(crate) fn remove_client(&mut self, id: u64) {
        self.forget_owners_of(id);
        self.forget_delegations_of(id);
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        for session in &client.sessions {
            self.sessions.remove(session);
        }
        let opens = self.opens.iter().filter(|(_, open)| open.client == id);
        let opens: Vec<StateKey> = opens.map(|(key, _)| *key).collect();
        for key in opens {
            self.remove_open(key);
        }
        for number in client.lock_owners.values() {
            self.lock_owners.remove(number);
        }
    }

    /// Ends all state of a share.
    pub(crate) fn forget_share(&mut self, shared: &Arc<SharedFiles>) {
        self.revoke_share(shared);
        let opens = self.opens.iter();
        let opens = opens.filter(|(_, open)| Arc::ptr_eq(&open.shared, shared));
        let opens: Vec<StateKey> = opens.map(|(key, _)| *key).collect();
        for key in opens {
            self.remove_open(key);
        }
    }

    /// Adds an open, which is counted and reserved in its file system already.
    ///
    /// # Errors
    /// `DELAY` when the client has too many.
    pub(crate) fn add_open(&mut self, open: Open4) -> Result<StateKey, Status> {
        let client = self.clients.get_mut(&open.client);
        let client = client.ok_or(Status::STALE_CLIENTID)?;
        if client.opens >= OPENS_MAX || self.opens.len() >= ALL_OPENS_MAX {
            return Err(Status::DELAY);
        }
        client.opens += 1;
        let key = self.next_key(open.client);
        let of_file = (open.client, open.file);
        self.opens_of.entry(of_file).or_default().push(key);
        self.opens.insert(key, open);
        Ok(key)
    }

    /// Removes an open with its locks, and ends it in its file system.
    pub(crate) fn remove_open(&mut self, key: StateKey) {
        let Some(open) = self.opens.remove(&key) else {
            return;
        };
        if let Some(client) = self.clients.get_mut(&open.client) {
            debug_assert!(client.opens > 0, "each open is counted");
            client.opens -= 1;
        }
        let of_file = (open.client, open.file);
        if let Some(others) = self.opens_of.get_mut(&of_file) {
            others.retain(|other| *other != key);
            if others.is_empty() {
                self.opens_of.remove(&of_file);
            }
        }
        let (files, operation) = (open.shared.files(), Operation::unmeasured());
        for lock in &open.locks {
            if let Some(locks) = self.locks.remove(lock) {
                let whole = LockScope::Range(LockRange::WHOLE);
                files.release_locks(open.file, locks.owner, whole);
                self.ranges -= locks.held.len();
                self.forget_owner_without_locks(locks.owner.number);
            }
        }
        if open.snapshot.is_some() {
            return;
        }
        let holder = open.shared.holding.id();
        files.unshare(open.file, holder, reservation(open.access, open.deny));
        // A file without a name that cannot be freed now is freed at the next mount.
        let _ = files.closed(open.file, &operation);
    }

    /// The open of an owner on a file.
    pub(crate) fn find_open(
        &self,
        client: u64,
        owner: &[u8],
        shared: &Arc<SharedFiles>,
        (snapshot, file): (Option<ObjectId>, ObjectId),
    ) -> Option<StateKey> {
        let is_it = |open: &Open4| {
            open.owner == owner && open.snapshot == snapshot && Arc::ptr_eq(&open.shared, shared)
        };
        let mut keys = self.opens_of.get(&(client, file))?.iter().copied();
        keys.find(|key| self.opens.get(key).is_some_and(is_it))
    }

    /// The number of an owner of locks.
    ///
    /// # Errors
    /// `DELAY` when the client has too many.
    pub(crate) fn lock_owner(&mut self, client: u64, owner: &[u8]) -> Result<u64, Status> {
        let next = self.next();
        let known = self.clients.get_mut(&client);
        let known = known.ok_or(Status::STALE_CLIENTID)?;
        if let Some(number) = known.lock_owners.get(owner) {
            return Ok(*number);
        }
        if known.lock_owners.len() >= OPENS_MAX || self.lock_owners.len() >= ALL_OPENS_MAX {
            return Err(Status::DELAY);
        }
        known.lock_owners.insert(owner.to_vec(), next);
        self.lock_owners.insert(next, (client, owner.to_vec()));
        Ok(next)
    }

    /// Removes the state of an owner's locks on an open file.
    pub(crate) fn remove_locks(&mut self, key: StateKey) {
        let Some(locks) = self.locks.remove(&key) else {
            return;
        };
        self.ranges -= locks.held.len();
        if let Some(open) = self.opens.get_mut(&locks.open) {
            open.locks.retain(|other| *other != key);
        }
        self.forget_owner_without_locks(locks.owner.number);
    }

    /// Whether another range may be locked.
    pub(crate) fn has_room_for_locks(&self) -> bool {
        self.ranges < ALL_RANGES_MAX && self.locks.len() < ALL_OPENS_MAX
    }

    /// Notes that a range was locked or unlocked, and gives the new number of changes.
    pub(crate) fn note_range(
        &mut self,
        key: StateKey,
        range: LockRange,
        is_locked: bool,
    ) -> Result<u32, Status> {
        let locks = self.locks.get_mut(&key).ok_or(Status::SERVERFAULT)?;
        debug_assert!(locks.held.len() <= self.ranges, "each range is counted");
        self.ranges -= locks.held.len();
        match is_locked {
            true => locks.held.add(range),
            false => locks.held.remove(range),
        }
        self.ranges += locks.held.len();
        locks.sequence += 1;
        Ok(locks.sequence)
    }

    /// Forgets an owner of locks that has none.
    pub(crate) fn forget_owner_without_locks(&mut self, number: u64) {
        let known = self.lock_owners.get(&number).map(|(client, _)| *client);
        let has_locks = |locks: &Locks4| locks.owner.number == number;
        let Some(client) = known.filter(|_| !self.locks.values().any(has_locks)) else {
            return;
        };
        if let Some((_, owner)) = self.lock_owners.remove(&number)
            && let Some(client) = self.clients.get_mut(&client)
        {
            client.lock_owners.remove(&owner);
        }
    }

    /// Ends the states of an owner of locks.
    ///
    /// # Errors
    /// `LOCKS_HELD` when it has locked something.
    pub(crate) fn release_lock_owner(&mut self, client: u64, name: &[u8]) -> Result<(), Status> {
        let known = self.clients.get(&client);
        let Some(number) = known.and_then(|client| client.lock_owners.get(name).copied()) else {
            return Ok(());
        };
        let states = self.locks.iter();
        let states = states.filter(|(_, locks)| locks.owner.number == number);
        let states: Vec<(StateKey, usize)> = states
            .map(|(key, locks)| (*key, locks.held.len()))
            .collect();
        if states.iter().any(|(_, held)| *held > 0) {
            return Err(Status::LOCKS_HELD);
        }
        (states.into_iter()).for_each(|(key, _)| self.remove_locks(key));
        Ok(())
    }

    /// Adds the locks of an owner on an open file.
    pub(crate) fn add_locks(&mut self, locks: Locks4) -> StateKey {
        let key = self.next_key(locks.client);
        if let Some(open) = self.opens.get_mut(&locks.open) {
            open.locks.push(key);
        }
        self.locks.insert(key, locks);
        key
    }
}
