//! Read delegations: granting them with `OPEN`, `DELEGRETURN`, `DELEGPURGE`, and what becomes of
//! those that are not returned.
//!
//! # Mechanism
//! A client that opens a regular file for reading alone gets a read delegation where the server can
//! call it (`callback_route`), where no open for writing is there, and where the file was not
//! recalled a moment ago. `posix` then lets no other change the file ([`FileSystem::delegate`]): it
//! asks for the delegation, refuses operations of NFS clients (`DELAY`, `JUKEBOX`) and has others
//! wait, until the client has returned it or it is revoked (`recalling`).
//!
//! After a restart a client reclaims delegations with its opens (`CLAIM_PREVIOUS`). A file may have
//! been changed since by programs of this machine or clients of version 3, which do not wait for
//! the grace period: its delegation is granted as one that is recalled at once.
//!
//! # Invariants
//! - A delegation in the table that is not revoked is one of `posix`, or about to be.
//!
//! # Not built
//! Write delegations, delegations of directories, `WANT_DELEGATION`, and delegations that outlive
//! a restart of the client (`CLAIM_DELEGATE_PREV`, `DELEGPURGE`): a client that has restarted has
//! cached nothing.
//!
//! [`FileSystem::delegate`]: tarn_engine::files::FileSystem::delegate

use super::compound::{Compound, Current, Done, StateId, check_sequence};
use super::delegation_table::{Delegated, Delegation4, Revoked};
use super::state::{State, StateKey};
use super::status::Status;
use crate::file_call::{FileCall, Realm};
use crate::share::SharedFiles;
use crate::xdr::{Reader, Writer};
use std::sync::Arc;
use std::time::Instant;
use tarn_engine::files::{Acting, Attributes, LockOwner, ObjectId, OperationKind, act_for};

/// `OPEN4_SHARE_ACCESS_WANT_*`.
const WANTS_WRITE: u32 = 0x200;
const WANTS_ANY: u32 = 0x300;
const WANTS_NONE: u32 = 0x400;
const CANCELS: u32 = 0x500;
/// The number of changes of a delegation's id.
const SEQUENCE: u32 = 1;

/// Why no delegation is given (`why_no_delegation4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    NotWanted,
    /// The file is open for writing, or was recalled lately.
    Contention,
    /// There is no way to call the client, or it has too many.
    Resource,
    /// What has no delegations.
    NotSupported,
    NoWriteDelegations,
    Cancelled,
}

impl Why {
    fn put(self, out: &mut Writer) {
        // The first two have whether the client will be told when there is one.
        match self {
            Why::NotWanted => out.u32(0),
            Why::Contention => out.u32(1).bool(false),
            Why::Resource => out.u32(2).bool(false),
            Why::NotSupported => out.u32(3),
            Why::NoWriteDelegations => out.u32(4),
            Why::Cancelled => out.u32(7),
        };
    }
}

/// What an `OPEN` says of delegations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    Given {
        id: StateId,
        is_recalled: bool,
    },
    None,
    /// To a client that has said what it wants.
    NoneSince(Why),
}

impl Offer {
    pub(crate) fn put(self, out: &mut Writer) {
        const NONE: u32 = 0;
        const READ: u32 = 1;
        const NONE_AND_WHY: u32 = 3;
        match self {
            Offer::None => drop(out.u32(NONE)),
            Offer::NoneSince(why) => {
                out.u32(NONE_AND_WHY);
                why.put(out);
            }
            Offer::Given { id, is_recalled } => {
                out.u32(READ);
                id.put(out);
                // No users that the client may let in without asking (`ACCESS`).
                out.bool(is_recalled).u32(0).u32(0).u32(0).opaque(b"");
            }
        }
    }
}

/// An `OPEN` that was granted.
pub(crate) struct Grounds<'a> {
    pub(crate) client: u64,
    pub(crate) file: &'a FileCall,
    pub(crate) attributes: &'a Attributes,
    pub(crate) access: u32,
    /// `OPEN4_SHARE_ACCESS_WANT_*`.
    pub(crate) wanted: u32,
    /// The client says it had a delegation before the server restarted.
    pub(crate) reclaims: bool,
}

impl Compound<'_> {
    /// Gives a delegation with an `OPEN`, or says why not.
    pub(super) fn offer(&self, grounds: &Grounds<'_>) -> Offer {
        const READ: u32 = 1;
        let wanted = grounds.wanted;
        let given = match wanted {
            WANTS_NONE => Err(Why::NotWanted),
            CANCELS => Err(Why::Cancelled),
            WANTS_WRITE | WANTS_ANY if grounds.access != READ => Err(Why::NoWriteDelegations),
            WANTS_WRITE => Err(Why::NoWriteDelegations),
            _ if grounds.access != READ => Err(Why::Contention),
            _ => self.give(grounds),
        };
        match given {
            Ok((id, is_recalled)) => Offer::Given { id, is_recalled },
            Err(_) if wanted == 0 => Offer::None,
            Err(why) => Offer::NoneSince(why),
        }
    }

    fn give(&self, grounds: &Grounds<'_>) -> Result<(StateId, bool), Why> {
        let (realm, client) = (&grounds.file.realm, grounds.client);
        let (shared, id) = (&realm.share.shared, grounds.attributes.id);
        if realm.snapshot.is_some() {
            return Err(Why::NotSupported);
        }
        let mut state = self.memory.state();
        if !state.has_route(client) || !state.delegations.has_room(client) {
            return Err(Why::Resource);
        }
        let mut others = state.delegations.of_file(shared, id).into_iter();
        let has_it = others.any(|key| {
            let known = state.delegations.get(&key);
            known.is_some_and(|known| known.client == client)
        });
        if has_it || (!grounds.reclaims && state.delegations.is_held_off(shared, id)) {
            return Err(Why::Contention);
        }
        let changed = grounds.attributes.changed;
        let is_recalled = grounds.reclaims && state.may_be_of_this_life(changed.seconds);
        let of = Delegated {
            shared: shared.clone(),
            file: id,
        };
        let owner = of.owner(client);
        let key = state.next_key(client);
        let added = Delegation4 {
            client,
            user: self.principal(),
            handle: realm.handle(grounds.attributes).encode(),
            of: Some(of),
            recalled: is_recalled.then(Instant::now),
            is_told: is_recalled,
            tries: 0,
        };
        // Before `posix` has it: what asks for it from then on finds it.
        state.delegations.add(key, added);
        drop(state);
        let files = shared.files();
        if files.delegate(id, owner, grounds.file.operation()).is_err() {
            self.memory.state().delegations.remove(&key);
            return Err(Why::Contention);
        }
        let sequence = SEQUENCE;
        Ok((StateId { sequence, key }, is_recalled))
    }

    /// What this thread does now is done for a client: its own delegations do not exclude it.
    pub(super) fn act(client: u64, realm: &Realm) -> Acting {
        act_for(LockOwner {
            holder: realm.share.shared.holding.id(),
            number: client,
        })
    }

    /// As [`act`](Self::act), for the client of the session, on the current file.
    pub(super) fn act_in_session(&self) -> Option<Acting> {
        let Some(Current::File { realm, .. }) = &self.current else {
            return None;
        };
        let client = self.client().ok()?;
        Some(Compound::act(client, realm))
    }

    /// As [`act`](Self::act), in version 4.0 for the client that has a state.
    pub(super) fn act_with_state(&self, realm: &Realm, id: StateId) -> Option<Acting> {
        if self.minor > 0 || id.is_anonymous() {
            return None;
        }
        let client = self.memory.state().client_in(&id.key)?;
        Some(Compound::act(client, realm))
    }

    pub(super) fn return_delegation(&mut self, reader: &mut Reader<'_>) -> Done {
        let id = self.decode_state(reader)?;
        let file = self.file(OperationKind::Close, (0, 0))?;
        let mut state = self.memory.state();
        let client = self.client_of(&mut state, &id.key)?;
        state.check_delegation(client, id)?;
        let of = state.delegations.get(&id.key);
        let of = of.and_then(|known| known.of.as_ref());
        if !of.is_some_and(|of| of.is(&file.realm.share.shared, file.id)) {
            return Err(Status::BAD_STATEID);
        }
        state.delegations.remove(&id.key);
        Ok(())
    }

    /// Whether a client that opens a file by a delegation has one of it.
    pub(super) fn check_claim(
        &self,
        client: u64,
        id: StateId,
        (realm, file): (&Realm, ObjectId),
    ) -> Done {
        let state = self.memory.state();
        state.check_delegation(client, id)?;
        let of = state.delegations.get(&id.key);
        let of = of.and_then(|known| known.of.as_ref());
        match of.is_some_and(|of| of.is(&realm.share.shared, file)) {
            true => Ok(()),
            false => Err(Status::BAD_STATEID),
        }
    }

    /// Checks that a delegation permits to read or write (1 or 2) the current file. None where the
    /// id is that of no delegation. False for other users, as for opens.
    pub(super) fn check_delegated(
        &self,
        state: &State,
        (client, id): (u64, StateId),
        access: u32,
    ) -> Result<Option<bool>, Status> {
        if state.delegations.get(&id.key).is_none() {
            return Ok(None);
        }
        let (user, of) = state.check_delegation(client, id)?;
        match &self.current {
            Some(Current::File { realm, id })
                if realm.snapshot.is_none() && of.is(&realm.share.shared, *id) => {}
            _ => return Err(Status::BAD_STATEID),
        }
        match access {
            1 => Ok(Some(user == self.principal())),
            _ => Err(Status::OPENMODE),
        }
    }
}

impl State {
    /// A delegation that a client has: the user that opened the file, and the file.
    ///
    /// # Errors
    /// `BAD_STATEID`, `OLD_STATEID`, and `DELEG_REVOKED` for one that was revoked.
    pub(crate) fn check_delegation(
        &self,
        client: u64,
        id: StateId,
    ) -> Result<(u32, &Delegated), Status> {
        let known = self.delegations.get(&id.key);
        let known = known.filter(|known| known.client == client);
        let known = known.ok_or(Status::BAD_STATEID)?;
        check_sequence(id, SEQUENCE)?;
        let of = known.of.as_ref().ok_or(Status::DELEG_REVOKED)?;
        Ok((known.user, of))
    }

    /// Frees the id of a delegation that was revoked. False where it is that of no delegation.
    ///
    /// # Errors
    /// `LOCKS_HELD` for one that is not revoked: it is returned.
    pub(crate) fn free_delegation(&mut self, client: u64, id: StateId) -> Result<bool, Status> {
        if self.delegations.get(&id.key).is_none() {
            return Ok(false);
        }
        match self.check_delegation(client, id) {
            Ok(_) => Err(Status::LOCKS_HELD),
            Err(Status::DELEG_REVOKED) => {
                self.delegations.remove(&id.key);
                Ok(true)
            }
            Err(status) => Err(status),
        }
    }

    /// Revokes delegations that were not returned for the time of a lease.
    pub(crate) fn revoke_overdue(&mut self) {
        for (key, client) in self.delegations.overdue(self.lease()) {
            self.revoke(&key, client);
        }
    }

    /// Revokes all delegations of a share, which ends.
    pub(crate) fn revoke_share(&mut self, shared: &Arc<SharedFiles>) {
        for key in self.delegations.of_share(shared) {
            if let Some(client) = self.delegations.get(&key).map(|known| known.client) {
                self.revoke(&key, client);
            }
        }
    }

    fn revoke(&mut self, key: &StateKey, client: u64) {
        let Some(known) = self.clients.get_mut(&client) else {
            self.delegations.remove(key);
            return;
        };
        match known.name.has_sessions {
            true => self.delegations.revoke(key, Revoked::Kept),
            false => {
                // `RENEW` says that something is wrong with its delegations.
                known.has_lost = true;
                self.delegations.remove(key);
            }
        }
    }

    /// Removes the delegations of a client that is gone.
    pub(crate) fn forget_delegations_of(&mut self, client: u64) {
        for key in self.delegations.of_client(client) {
            self.delegations.remove(&key);
        }
    }

    /// What `SEQUENCE` tells a client of its state (`SEQ4_STATUS_*`).
    pub(crate) fn flags_of(&self, client: u64) -> u32 {
        const PATH_IS_DOWN: u32 = 0x1;
        const RECALLABLE_IS_REVOKED: u32 = 0x40;
        let counts = self.delegations.counts(client);
        let mut flags = 0;
        if counts.revoked > 0 {
            flags |= RECALLABLE_IS_REVOKED;
        }
        if counts.all > counts.revoked && !self.has_route(client) {
            flags |= PATH_IS_DOWN;
        }
        flags
    }

    /// What `RENEW` tells a client of version 4.0.
    ///
    /// # Errors
    /// `CB_PATH_DOWN` when it has delegations and cannot be called, or has lost some.
    pub(crate) fn check_path(&mut self, client: u64) -> Done {
        let has_route = self.has_route(client);
        let counts = self.delegations.counts(client);
        let known = self.clients.get_mut(&client);
        let has_lost = known.is_some_and(|known| std::mem::take(&mut known.has_lost));
        match has_lost || (counts.all > 0 && !has_route) {
            true => Err(Status::CB_PATH_DOWN),
            false => Ok(()),
        }
    }
}
