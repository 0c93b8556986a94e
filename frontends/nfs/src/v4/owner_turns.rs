//! Version 4.0: the order of an owner's operations, each of which is carried out once.
//!
//! # Problem
//! Version 4.0 has no sessions. A client repeats an `OPEN` or a `LOCK` whose reply was lost, and
//! the repetition must neither open a file twice nor be taken for a new request.
//!
//! # Mechanism
//! Each owner of opens and each owner of locks counts its operations that change state. The server
//! keeps the number of the last one and its result: the next number is carried out, the last one
//! gets the same result again, any other fails (RFC 7530, section 9.1.7). An owner of opens that
//! the server does not know proves with `OPEN_CONFIRM` that its first `OPEN` was no repetition of
//! one that is long done; until then its open is good for nothing else.
//!
//! # Invariants
//! - One operation of an owner is carried out at a time.
//! - An owner is kept for the time of a lease after its last operation, and as long as it has
//!   state.

use super::compound::{Compound, Done};
use super::operation;
use super::owners::{Kept, Owned, Owner, OwnerKey, StateKey, Turn};
use super::state::State;
use super::status::Status;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tarn_engine::files::OperationKind;

/// Whether an operation with this status counts.
fn counts(status: Status) -> bool {
    !matches!(
        status,
        Status::STALE_CLIENTID
            | Status::STALE_STATEID
            | Status::BAD_STATEID
            | Status::BAD_SEQID
            | Status::BADXDR
            | Status::RESOURCE
            | Status::NOFILEHANDLE
    )
}

impl State {
    /// Finds an owner, or adds it.
    fn owner(&mut self, key: &OwnerKey) -> Result<&mut Owner, Status> {
        if !self.owners.contains_key(key) {
            self.count_owner(key.client)?;
            self.owners.insert(key.clone(), Owner::new());
        }
        self.owners.get_mut(key).ok_or(Status::SERVERFAULT)
    }

    /// The owner of an open: of one that its last operation closed, too.
    pub(crate) fn owner_of_open(&self, client: u64, key: &StateKey) -> Result<OwnerKey, Status> {
        let name = match self.opens.get(key) {
            Some(open) if open.client == client => open.owner.clone(),
            Some(_) => return Err(Status::BAD_STATEID),
            None => {
                let owner = self.closed.get(key);
                let owner = owner.filter(|owner| owner.client == client);
                return owner.cloned().ok_or(Status::BAD_STATEID);
            }
        };
        Ok(OwnerKey {
            client,
            owned: Owned::Opens,
            name,
        })
    }

    /// The owner of the locks of this state.
    pub(crate) fn owner_of_locks(&self, client: u64, key: &StateKey) -> Result<OwnerKey, Status> {
        let locks = self.locks.get(key);
        let locks = locks.filter(|locks| locks.client == client);
        let locks = locks.ok_or(Status::BAD_STATEID)?;
        let known = self.lock_owners.get(&locks.owner.number);
        let (_, name) = known.ok_or(Status::SERVERFAULT)?;
        Ok(OwnerKey {
            client,
            owned: Owned::Locks,
            name: name.clone(),
        })
    }

    /// Forgets an owner.
    pub(crate) fn forget_owner(&mut self, key: &OwnerKey) {
        if let Some(owner) = self.owners.remove(key) {
            self.uncount_owner(key.client);
            if let Some(closed) = owner.closed {
                self.closed.remove(&closed);
            }
        }
    }

    /// Forgets owners of this client.
    pub(crate) fn forget_owners_of(&mut self, client: u64) {
        let first = OwnerKey {
            client,
            owned: Owned::Opens,
            name: Vec::new(),
        };
        let owners = self.owners.range(first..);
        let owners = owners.take_while(|(key, _)| key.client == client);
        let owners: Vec<OwnerKey> = owners.map(|(key, _)| key.clone()).collect();
        owners.iter().for_each(|key| self.forget_owner(key));
    }

    /// Forgets owners without state that have asked nothing for so long.
    pub(crate) fn forget_idle_owners(&mut self, idle: Duration) {
        let late = self.owners.iter();
        let late = late.filter(|(_, owner)| !owner.is_busy && owner.used.elapsed() > idle);
        let late: Vec<OwnerKey> = late.map(|(key, _)| key.clone()).collect();
        if late.is_empty() {
            return;
        }
        let opens = self.opens.values();
        let opens: BTreeSet<(u64, &[u8])> =
            opens.map(|open| (open.client, &open.owner[..])).collect();
        let has_state = |key: &OwnerKey| match key.owned {
            Owned::Opens => opens.contains(&(key.client, &key.name[..])),
            Owned::Locks => {
                let client = self.clients.get(&key.client);
                client.is_some_and(|client| client.has_lock_owner(&key.name))
            }
        };
        let gone = late.into_iter().filter(|key| !has_state(key));
        let gone: Vec<OwnerKey> = gone.collect();
        gone.iter().for_each(|key| self.forget_owner(key));
    }

    /// Ends the opens of an owner that has not confirmed them. True when it is confirmed.
    fn begin_open(&mut self, key: &OwnerKey) -> bool {
        let Some(owner) = self.owners.get(key) else {
            return false;
        };
        if owner.is_confirmed || owner.sequence.is_none() {
            return owner.is_confirmed;
        }
        let opens = self.opens.iter();
        let opens = opens.filter(|(_, open)| open.client == key.client && open.owner == key.name);
        let opens: Vec<StateKey> = opens.map(|(key, _)| *key).collect();
        opens.into_iter().for_each(|key| self.remove_open(key));
        false
    }

    /// An owner of opens has shown that its operations are no repetitions.
    pub(crate) fn confirm_owner(&mut self, key: &OwnerKey) {
        if let Some(owner) = self.owners.get_mut(key) {
            owner.is_confirmed = true;
        }
    }

    /// The end of an operation.
    fn end_turn(&mut self, turn: Turn, kept: &Kept, closed: Option<StateKey>) {
        let Some(owner) = self.owners.get_mut(&turn.owner) else {
            return;
        };
        debug_assert!(owner.is_busy, "one operation at a time");
        owner.is_busy = false;
        if !counts(kept.status) {
            if owner.sequence.is_none() {
                self.forget_owner(&turn.owner);
            }
            return;
        }
        owner.sequence = Some(turn.sequence);
        owner.last = Some(kept.clone());
        owner.used = Instant::now();
        let before = std::mem::replace(&mut owner.closed, closed);
        if let Some(before) = before {
            self.closed.remove(&before);
        }
        if let Some(closed) = closed {
            self.closed.insert(closed, turn.owner);
        }
    }
}

impl Compound<'_> {
    /// Begins an operation of an owner. An error with [`Compound::replayed`] is the result of the
    /// same operation.
    pub(super) fn begin_turn(
        &mut self,
        state: &mut State,
        owner: OwnerKey,
        number: u32,
        sequence: u32,
    ) -> Done {
        match state.owner(&owner)?.begin(owner.owned, number, sequence)? {
            None => {
                self.turns.push(Turn { owner, sequence });
                Ok(())
            }
            Some(kept) => {
                let status = kept.status;
                self.replayed = Some(kept);
                Err(status)
            }
        }
    }

    /// Begins an `OPEN`. True when its owner is confirmed.
    pub(super) fn begin_open_turn(
        &mut self,
        state: &mut State,
        owner: OwnerKey,
        sequence: u32,
    ) -> Result<bool, Status> {
        self.begin_turn(state, owner.clone(), operation::OPEN, sequence)?;
        Ok(state.begin_open(&owner))
    }

    /// Ends what an operation with this result has begun.
    pub(super) fn end_turns(&mut self, operation: u32, status: Status, result: &[u8]) {
        let ending = std::mem::take(&mut self.ending);
        if self.turns.is_empty() {
            return;
        }
        let kept = Kept {
            operation,
            status,
            result: result.to_vec(),
            handle: ending.handle,
        };
        let memory = self.memory;
        let mut state = memory.state();
        for turn in self.turns.drain(..) {
            let closes = turn.owner.owned == Owned::Opens;
            let closed = ending.closed.filter(|_| closes && status == Status::OK);
            state.end_turn(turn, &kept, closed);
        }
    }

    /// Makes the file of a repeated `OPEN` the current one.
    pub(super) fn enter_replayed(&mut self, kept: &Kept) -> Done {
        let Some(handle) = &kept.handle else {
            return Ok(());
        };
        let call = self.asker.call(handle, OperationKind::Lookup, (0, 0))?;
        self.set_file(call.realm.clone(), call.id);
        Ok(())
    }
}
