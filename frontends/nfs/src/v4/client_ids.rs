//! Version 4.0: clients and their leases: `SETCLIENTID`, `SETCLIENTID_CONFIRM`, `RENEW`,
//! `RELEASE_LOCKOWNER`.
//!
//! # Mechanism
//! A client introduces itself with its name and a verifier that is another one after each of its
//! restarts, and confirms the number that it gets. A new verifier makes a new client; what the
//! earlier one had ends when the new one is confirmed (RFC 7530, section 16.33.5). Any operation
//! with the number of a client, or with the id of a state that it has, renews its lease.
//!
//! The client says where it takes calls, which is where the server asks it to return delegations
//! (`callback_route`).

use super::callback_place::Callback40;
use super::client_name::ClientName;
use super::compound::{Compound, Done};
use super::owners::{Owned, OwnerKey};
use super::state::{State, StateKey};
use super::status::Status;
use crate::xdr::{Reader, Writer};

/// Most bytes of what a client or an owner calls itself.
const OWNER_BYTES_MAX: usize = 1024;
/// Most bytes of a network's name, or of an address in it.
const ADDRESS_BYTES_MAX: usize = 256;

impl State {
    /// Finds a client of version 4.0 by its number, and renews its lease.
    ///
    /// # Errors
    /// `STALE_CLIENTID` for a number that this server has not given or that is not confirmed,
    /// `EXPIRED` for one whose client is gone.
    pub(crate) fn client_numbered(&mut self, id: u64) -> Result<u64, Status> {
        let was_given = self.has_given(id);
        match self.clients.get(&id) {
            Some(client) if client.is_confirmed && !client.name.has_sessions => {}
            Some(_) => return Err(Status::STALE_CLIENTID),
            None if was_given => return Err(Status::EXPIRED),
            None => return Err(Status::STALE_CLIENTID),
        }
        self.renew(id);
        Ok(id)
    }

    /// Finds the client of version 4.0 that a state was given to, and renews its lease.
    ///
    /// # Errors
    /// `STALE_STATEID` for an id of an earlier server, `EXPIRED` for one whose client is gone,
    /// `BAD_STATEID` for what is no id.
    pub(crate) fn client_of_state(&mut self, key: &StateKey) -> Result<u64, Status> {
        if *key == [0; 12] || *key == [0xff; 12] {
            return Err(Status::BAD_STATEID);
        }
        let id = self.client_in(key).ok_or(Status::STALE_STATEID)?;
        match self.clients.get(&id) {
            Some(client) if client.is_confirmed && !client.name.has_sessions => {}
            None if self.has_given(id) => return Err(Status::EXPIRED),
            _ => return Err(Status::BAD_STATEID),
        }
        self.renew(id);
        Ok(id)
    }

    /// What a client that introduces itself gets: its number, and what confirms it.
    fn introduce(
        &mut self,
        name: &ClientName,
        verifier: [u8; 8],
        principal: u32,
    ) -> Result<(u64, u64), Status> {
        let (confirmed, unconfirmed) =
            (self.find_client(name, true), self.find_client(name, false));
        if let Some(id) = unconfirmed {
            self.remove_client(id);
        }
        let confirms = self.next();
        let known = confirmed.and_then(|id| self.clients.get_mut(&id));
        if let (Some(id), Some(client)) = (confirmed, known) {
            if client.principal == principal && client.verifier == verifier {
                client.confirms_next = Some(confirms);
                return Ok((id, confirms));
            }
            let is_other = client.principal != principal;
            if is_other && self.opens.values().any(|open| open.client == id) {
                return Err(Status::CLID_INUSE);
            }
        }
        let id = self.add_client(name.clone(), verifier, principal)?;
        if let Some(client) = self.clients.get_mut(&id) {
            client.confirms_next = Some(confirms);
        }
        Ok((id, confirms))
    }

    /// Confirms a client.
    fn confirm(&mut self, id: u64, confirms: u64, principal: u32) -> Done {
        let client = self.clients.get_mut(&id);
        let client = client.filter(|client| !client.name.has_sessions);
        let client = client.ok_or(Status::STALE_CLIENTID)?;
        let is_repeated = client.is_confirmed && client.confirms == confirms;
        if client.confirms_next != Some(confirms) && !is_repeated {
            return Err(Status::STALE_CLIENTID);
        }
        if client.principal != principal {
            return Err(Status::CLID_INUSE);
        }
        if !is_repeated {
            client.confirms_next = None;
            client.confirms = confirms;
            client.callback = client.callback_next.take();
            client.is_probed = false;
        }
        let is_new = !std::mem::replace(&mut client.is_confirmed, true);
        let name = client.name.clone();
        if is_new {
            self.end_earlier(id, &name);
        }
        self.renew(id);
        if !is_repeated {
            self.has_new_route(id);
        }
        Ok(())
    }
}

impl Compound<'_> {
    /// The client that a state was given to: that of the session, or in version 4.0 the one that
    /// the id names.
    pub(super) fn client_of(&self, state: &mut State, key: &StateKey) -> Result<u64, Status> {
        match self.minor {
            0 => state.client_of_state(key),
            _ => self.client(),
        }
    }

    /// The client of a request: that of the session, or in version 4.0 the one with this number.
    pub(super) fn client_or_numbered(&self, state: &mut State, id: u64) -> Result<u64, Status> {
        match self.minor {
            0 => state.client_numbered(id),
            _ => self.client(),
        }
    }

    pub(super) fn set_client_id(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let verifier: [u8; 8] = reader.fixed()?;
        let name = ClientName {
            has_sessions: false,
            owner: reader.opaque(OWNER_BYTES_MAX)?.to_vec(),
        };
        let program = reader.u32()?;
        let network = reader.opaque(ADDRESS_BYTES_MAX)?;
        let address = reader.opaque(ADDRESS_BYTES_MAX)?;
        let which = (program, reader.u32()?);
        if name.owner.is_empty() {
            return Err(Status::INVAL);
        }
        let callback = Callback40::parse(which, network, address, self.asker.client.address);
        let mut state = self.memory.state();
        let introduced = state.introduce(&name, verifier, self.principal());
        let (id, confirms) = introduced.inspect_err(|status| {
            if *status == Status::CLID_INUSE {
                // Where the other client is: that is not kept.
                out.opaque(b"").opaque(b"");
            }
        })?;
        if let Some(client) = state.clients.get_mut(&id) {
            client.callback_next = callback;
        }
        out.u64(id).u64(confirms);
        Ok(())
    }

    pub(super) fn confirm_client_id(&mut self, reader: &mut Reader<'_>) -> Done {
        let (id, confirms) = (reader.u64()?, reader.u64()?);
        let principal = self.principal();
        self.memory.state().confirm(id, confirms, principal)?;
        self.memory.recalls.call(id);
        Ok(())
    }

    pub(super) fn renew(&mut self, reader: &mut Reader<'_>) -> Done {
        let id = reader.u64()?;
        let mut state = self.memory.state();
        let client = state.client_numbered(id)?;
        state.check_path(client)
    }

    pub(super) fn release_lock_owner(&mut self, reader: &mut Reader<'_>) -> Done {
        let id = reader.u64()?;
        let name = reader.opaque(OWNER_BYTES_MAX)?.to_vec();
        let mut state = self.memory.state();
        let client = state.client_numbered(id)?;
        state.release_lock_owner(client, &name)?;
        state.forget_owner(&OwnerKey {
            client,
            owned: Owned::Locks,
            name,
        });
        Ok(())
    }
}
