//! Read delegations of clients: [`delegating`](super::delegating) has the theory.
//!
//! # Bounds
//! [`CLIENT_MAX`] delegations of a client and [`ALL_MAX`] of all, revoked ones included: some
//! 300 bytes each. [`LATELY_MAX`] files that were recalled lately.

use super::owners::StateKey;
use crate::share::SharedFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tarn_engine::files::{LockOwner, ObjectId};

const CLIENT_MAX: usize = 4096;
const ALL_MAX: usize = 64 << 10;
const LATELY_MAX: usize = 4096;
/// How long a file that was recalled is not delegated again. A guess: what is changed and read in
/// turn by several clients is not worth the calls.
const HELD_OFF: Duration = Duration::from_secs(30);

/// The file that a delegation is of.
#[derive(Clone)]
pub(crate) struct Delegated {
    pub(crate) shared: Arc<SharedFiles>,
    pub(crate) file: ObjectId,
}

impl Delegated {
    pub(crate) fn is(&self, shared: &Arc<SharedFiles>, file: ObjectId) -> bool {
        self.file == file && Arc::ptr_eq(&self.shared, shared)
    }

    /// A client, as `posix` knows it.
    pub(crate) fn owner(&self, client: u64) -> LockOwner {
        LockOwner {
            holder: self.shared.holding.id(),
            number: client,
        }
    }

    /// Lets operations of others go on.
    fn end(&self, client: u64) {
        let owner = self.owner(client);
        self.shared.files().undelegate(self.file, owner);
    }
}

/// A read delegation. Its id has the number of changes 1.
pub(crate) struct Delegation4 {
    pub(crate) client: u64,
    /// The user that opened the file.
    pub(crate) user: u32,
    /// The handle, as the client knows it.
    pub(crate) handle: Vec<u8>,
    /// None when it is revoked.
    pub(crate) of: Option<Delegated>,
    pub(crate) recalled: Option<Instant>,
    /// The client has said that it will return it, or is told no more.
    pub(crate) is_told: bool,
    /// How often the client was told and did not take it.
    pub(crate) tries: u32,
}

/// What a client has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) all: usize,
    pub(crate) revoked: usize,
}

/// What happens to a delegation that its client has not returned in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revoked {
    /// It is kept until the client frees its id.
    Kept,
    /// The client has no way to free it.
    Forgotten,
}

/// All delegations.
#[derive(Default)]
pub(crate) struct DelegationTable {
    all: BTreeMap<StateKey, Delegation4>,
    /// Those that are not revoked, by the numbers of their files, in all file systems.
    of_file: BTreeMap<ObjectId, Vec<StateKey>>,
    counts: BTreeMap<u64, Counts>,
    /// Files by the addresses of their shares, and when they were recalled.
    lately: BTreeMap<(usize, ObjectId), Instant>,
}

impl DelegationTable {
    pub(crate) fn get(&self, key: &StateKey) -> Option<&Delegation4> {
        self.all.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &StateKey) -> Option<&mut Delegation4> {
        self.all.get_mut(key)
    }

    pub(crate) fn counts(&self, client: u64) -> Counts {
        self.counts.get(&client).copied().unwrap_or_default()
    }

    /// Whether another one may be given to a client.
    pub(crate) fn has_room(&self, client: u64) -> bool {
        self.counts(client).all < CLIENT_MAX && self.all.len() < ALL_MAX
    }

    /// Whether a file was recalled so lately that it is not delegated.
    pub(crate) fn is_held_off(&self, shared: &Arc<SharedFiles>, file: ObjectId) -> bool {
        let recalled = self.lately.get(&(place_of(shared), file));
        recalled.is_some_and(|recalled| recalled.elapsed() < HELD_OFF)
    }

    /// The delegations of a file.
    pub(crate) fn of_file(&self, shared: &Arc<SharedFiles>, file: ObjectId) -> Vec<StateKey> {
        let keys = self.of_file.get(&file).into_iter().flatten().copied();
        keys.filter(|key| {
            let of = self.all.get(key).and_then(|known| known.of.as_ref());
            of.is_some_and(|of| of.is(shared, file))
        })
        .collect()
    }

    /// The delegations of a client.
    pub(crate) fn of_client(&self, client: u64) -> Vec<StateKey> {
        if !self.counts.contains_key(&client) {
            return Vec::new();
        }
        let own = self.all.iter().filter(|(_, known)| known.client == client);
        own.map(|(key, _)| *key).collect()
    }

    /// The keys of all that are not revoked.
    pub(crate) fn of_share(&self, shared: &Arc<SharedFiles>) -> Vec<StateKey> {
        let is_of = |known: &Delegation4| {
            let of = known.of.as_ref();
            of.is_some_and(|of| Arc::ptr_eq(&of.shared, shared))
        };
        let own = self.all.iter().filter(|(_, known)| is_of(known));
        own.map(|(key, _)| *key).collect()
    }

    /// Those that are to be returned for longer than this.
    pub(crate) fn overdue(&self, patience: Duration) -> Vec<(StateKey, u64)> {
        let is_late = |known: &Delegation4| {
            let recalled = known.recalled.filter(|_| known.of.is_some());
            recalled.is_some_and(|recalled| recalled.elapsed() > patience)
        };
        let late = self.all.iter().filter(|(_, known)| is_late(known));
        late.map(|(key, known)| (*key, known.client)).collect()
    }

    /// Adds one that is not revoked.
    pub(crate) fn add(&mut self, key: StateKey, delegation: Delegation4) {
        let of = delegation.of.as_ref();
        let file = of.expect("it is of a file").file;
        self.of_file.entry(file).or_default().push(key);
        self.counts.entry(delegation.client).or_default().all += 1;
        let before = self.all.insert(key, delegation);
        debug_assert!(before.is_none(), "the id is new");
    }

    /// Notes that a file is recalled. Gives the clients that are to be told.
    pub(crate) fn recall(&mut self, shared: &Arc<SharedFiles>, file: ObjectId) -> Vec<u64> {
        let mut clients = Vec::new();
        for key in self.of_file(shared, file) {
            let Some(known) = self.all.get_mut(&key) else {
                continue;
            };
            if known.recalled.is_none() {
                known.recalled = Some(Instant::now());
                clients.push(known.client);
            }
        }
        if !clients.is_empty() {
            if self.lately.len() >= LATELY_MAX {
                self.lately
                    .retain(|_, recalled| recalled.elapsed() < HELD_OFF);
            }
            if self.lately.len() < LATELY_MAX {
                let place = (place_of(shared), file);
                self.lately.insert(place, Instant::now());
            }
        }
        clients
    }

    /// Notes that all files of a share are recalled. Gives the clients that are to be told.
    pub(crate) fn recall_share(&mut self, shared: &Arc<SharedFiles>) -> Vec<u64> {
        let keys = self.of_share(shared).into_iter();
        let files = keys.filter_map(|key| Some(self.all.get(&key)?.of.as_ref()?.file));
        let files: BTreeSet<ObjectId> = files.collect();
        let asked = files.into_iter().flat_map(|file| self.recall(shared, file));
        asked.collect()
    }

    /// A client is told all again that it has not taken: it can be called another way.
    pub(crate) fn tell_again(&mut self, client: u64) {
        for key in self.of_client(client) {
            if let Some(known) = self.all.get_mut(&key) {
                known.is_told = false;
                known.tries = 0;
            }
        }
    }

    /// Removes one: it was returned, or freed, or its client is gone.
    pub(crate) fn remove(&mut self, key: &StateKey) {
        self.revoke(key, Revoked::Forgotten);
    }

    /// Ends one, so that operations of others go on.
    pub(crate) fn revoke(&mut self, key: &StateKey, what: Revoked) {
        let Some(known) = self.all.get_mut(key) else {
            return;
        };
        let client = known.client;
        let counts = self.counts.entry(client).or_default();
        match known.of.take() {
            Some(of) => {
                of.end(client);
                counts.revoked += 1;
                if let Some(keys) = self.of_file.get_mut(&of.file) {
                    keys.retain(|other| other != key);
                    if keys.is_empty() {
                        self.of_file.remove(&of.file);
                    }
                }
            }
            None => debug_assert!(counts.revoked > 0, "each revoked one is counted"),
        }
        if what == Revoked::Forgotten {
            counts.all -= 1;
            counts.revoked -= 1;
            if counts.all == 0 {
                self.counts.remove(&client);
            }
            self.all.remove(key);
        }
    }
}

/// The address of a share tells it from others while it is there; one that takes its place is held
/// off for no reason, for a moment.
fn place_of(shared: &Arc<SharedFiles>) -> usize {
    Arc::as_ptr(shared).addr()
}
