//! Clients and sessions: `EXCHANGE_ID`, `CREATE_SESSION`, `SEQUENCE` and their kin.
//!
//! # Mechanism
//! A session has slots, and a call in a slot is carried out once: a repetition gets the reply that
//! the slot keeps. A reply is kept when the client asks for it, and when it is small. A call with
//! the number of the last one that is another call is refused, as the reply would belong to
//! neither.

use super::callback_place::{Back4, decode_credential};
use super::client_name::ClientName;
use super::compound::{Compound, Done};
use super::state::{Client4, Limits, SessionId, Slot, State};
use super::status::Status;
use crate::rpc::authentication::Caller;
use crate::rpc::record::RECORD_BYTES_MAX;
use crate::xdr::{Malformed, Reader, Writer};

/// Most slots of a session: as many calls of a connection are served at a time.
const SLOTS_MAX: u32 = 64;
/// Most bytes of a reply that a slot keeps.
const KEPT_BYTES_MAX: usize = 8 << 10;
/// Replies up to this size are kept unasked.
const SMALL_BYTES: usize = 1 << 10;
/// Bytes of the smallest message that a channel is good for: `SEQUENCE` and an operation without
/// arguments.
const SMALLEST: u32 = 128;
/// Most bytes of what a client calls itself.
const OWNER_BYTES_MAX: usize = 1024;

/// A slot of a call that is being carried out.
pub(crate) struct Sequenced {
    pub(crate) client: u64,
    session: SessionId,
    slot: usize,
    keeps: bool,
    /// Most bytes of a reply, and of one that is kept.
    limits: Limits,
}

impl Sequenced {
    /// Whether a reply of so many bytes may be sent, and kept if the client wants that.
    pub(crate) fn check_room(&self, bytes: usize) -> Done {
        if bytes > self.limits.reply {
            return Err(Status::REP_TOO_BIG);
        }
        match self.keeps && bytes > self.limits.kept {
            true => Err(Status::REP_TOO_BIG_TO_CACHE),
            false => Ok(()),
        }
    }
}

/// The result of an earlier call, to be sent again.
pub(crate) struct Replay(pub(crate) Vec<u8>);

/// The attributes of a channel.
struct Channel {
    request: u32,
    response: u32,
    kept: u32,
    operations: u32,
    requests: u32,
}

impl Channel {
    fn decode(reader: &mut Reader<'_>) -> Result<Channel, Malformed> {
        let _padding = reader.u32()?;
        let channel = Channel {
            request: reader.u32()?,
            response: reader.u32()?,
            kept: reader.u32()?,
            operations: reader.u32()?,
            requests: reader.u32()?,
        };
        // Attributes of RDMA.
        skip_optional(reader, |reader| reader.u32().map(drop))?;
        Ok(channel)
    }

    fn put(&self, out: &mut Writer) {
        out.u32(0).u32(self.request).u32(self.response);
        out.u32(self.kept).u32(self.operations).u32(self.requests);
        out.u32(0);
    }

    /// What is granted of it.
    fn granted(&self) -> Channel {
        let record = u32::try_from(RECORD_BYTES_MAX).expect("a record has some MiB");
        let kept = u32::try_from(KEPT_BYTES_MAX).expect("it is some KiB");
        Channel {
            request: self.request.min(record),
            response: self.response.min(record),
            kept: self.kept.min(kept),
            operations: self.operations.min(super::compound::OPERATIONS_MAX),
            requests: self.requests.clamp(1, SLOTS_MAX),
        }
    }
}

/// An array of at most one element.
fn skip_optional<'a>(
    reader: &mut Reader<'a>,
    skip: impl FnOnce(&mut Reader<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    match reader.u32()? {
        0 => Ok(()),
        1 => skip(reader),
        _ => Err(Malformed),
    }
}

/// The name of the client's implementation, and when it was made (`nfs_impl_id4`).
fn skip_implementation(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    reader.opaque(OWNER_BYTES_MAX)?;
    reader.opaque(OWNER_BYTES_MAX)?;
    reader.u64()?;
    reader.u32()?;
    Ok(())
}

/// A client that has sessions.
fn known(state: &State, id: u64) -> Result<&Client4, Status> {
    let client = state.clients.get(&id);
    let client = client.filter(|client| client.name.has_sessions);
    client.ok_or(Status::STALE_CLIENTID)
}

impl Compound<'_> {
    /// The session of the request.
    pub(super) fn session_id(&self) -> Result<SessionId, Status> {
        let sequenced = self.sequenced.as_ref();
        sequenced
            .map(|sequenced| sequenced.session)
            .ok_or(Status::OP_NOT_IN_SESSION)
    }

    /// The user that asks.
    pub(super) fn principal(&self) -> u32 {
        match self.asker.caller {
            Caller::System(user) => user.uid,
            Caller::Nobody => u32::MAX,
        }
    }

    pub(super) fn exchange_id(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        const UPDATES: u32 = 0x4000_0000;
        const CONFIRMED: u32 = 0x8000_0000;
        const NO_PNFS: u32 = 0x0001_0000;
        /// Flags that a client may send; that about fences came with version 4.2.
        const KNOWN: u32 = 0x4007_0103;
        const FENCES: u32 = 0x4;
        let verifier: [u8; 8] = reader.fixed()?;
        let owner = reader.opaque(OWNER_BYTES_MAX)?;
        let (flags, protection) = (reader.u32()?, reader.u32()?);
        let known = if self.minor < 2 {
            KNOWN
        } else {
            KNOWN | FENCES
        };
        if flags & !known != 0 {
            return Err(Status::INVAL);
        }
        if protection != 0 {
            return Err(Status::NOTSUPP);
        }
        skip_optional(reader, skip_implementation)?;
        let updates = flags & UPDATES != 0;
        let principal = self.principal();
        let mut state = self.memory.state();
        let name = ClientName {
            has_sessions: true,
            owner: owner.to_vec(),
        };
        let same = |confirmed: bool| {
            let id = state.find_client(&name, confirmed)?;
            let client = state.clients.get(&id)?;
            Some((id, client.verifier, client.principal))
        };
        let (confirmed, unconfirmed) = (same(true), same(false));
        let id = match (updates, confirmed) {
            (true, None) => return Err(Status::NOENT),
            (true, Some((_, known, _))) if known != verifier => return Err(Status::NOT_SAME),
            (true, Some((_, _, user))) if user != principal => return Err(Status::PERM),
            (true, Some((id, ..))) => id,
            (false, Some((id, known, user))) if known == verifier && user == principal => id,
            (false, Some((id, _, user))) if user != principal => {
                let has_state = state.opens.values().any(|open| open.client == id);
                if has_state {
                    return Err(Status::CLID_INUSE);
                }
                state.remove_client(id);
                state.add_client(name, verifier, principal)?
            }
            // The client has begun anew, or for the first time. The state of its earlier life ends
            // when this one is confirmed.
            (false, _) => {
                if let Some((id, ..)) = unconfirmed {
                    state.remove_client(id);
                }
                state.add_client(name, verifier, principal)?
            }
        };
        state.renew(id);
        let client = state.clients.get(&id).ok_or(Status::SERVERFAULT)?;
        let confirmed = if client.is_confirmed { CONFIRMED } else { 0 };
        out.u64(id).u32(client.sequence).u32(NO_PNFS | confirmed);
        // No protection of state; the server's name, by which connections to one process are known
        // to lead to it; and its scope, in which handles and states mean something.
        out.u32(0);
        let name = format!("tarn {:x}", state.epoch());
        let scope = rustix::system::uname();
        out.u64(0).opaque(name.as_bytes());
        out.opaque(scope.nodename().to_bytes());
        out.u32(0);
        Ok(())
    }

    pub(super) fn create_session(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let (id, sequence, flags) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let (fore, back) = (Channel::decode(reader)?, Channel::decode(reader)?);
        let program = reader.u32()?;
        let credential = decode_credential(reader)?;
        /// `CREATE_SESSION4_FLAG_*`.
        const KNOWN: u32 = 0x7;
        if flags & !KNOWN != 0 {
            return Err(Status::INVAL);
        }
        let principal = self.principal();
        let mut state = self.memory.state();
        let client = known(&state, id)?;
        if client.principal != principal && !client.is_confirmed {
            return Err(Status::CLID_INUSE);
        }
        match &client.created {
            Some(created) if sequence == client.sequence.wrapping_sub(1) => {
                out.fixed(created);
                return Ok(());
            }
            _ if sequence != client.sequence => return Err(Status::SEQ_MISORDERED),
            _ => {}
        }
        let is_too_small = |channel: &Channel| {
            channel.request < SMALLEST || channel.response < SMALLEST || channel.operations < 2
        };
        if is_too_small(&fore) || is_too_small(&back) {
            return Err(Status::TOOSMALL);
        }
        let (name, is_new) = (client.name.clone(), !client.is_confirmed);
        let mut granted = fore.granted();
        let limits = Limits {
            request: usize::try_from(granted.request).unwrap_or(usize::MAX),
            operations: granted.operations,
            reply: usize::try_from(granted.response).unwrap_or(usize::MAX),
            kept: usize::try_from(granted.kept).unwrap_or(usize::MAX),
        };
        let (session, slots) = state.add_session(id, granted.requests, limits)?;
        granted.requests = slots;
        if is_new {
            // What the client's earlier life had ends now.
            state.end_earlier(id, &name);
        }
        if let Some(session) = state.sessions.get_mut(&session) {
            session.back = Some(Back4::new(self.minor, program, credential));
        }
        let mut result = Writer::new();
        /// Of the flags, no persistence and no RDMA is granted.
        const BACK_CHANNEL: u32 = 2;
        let wants_back = flags & BACK_CHANNEL != 0;
        let has_back = wants_back
            && self
                .back
                .is_some_and(|back| state.bind_back(&session, back));
        let granted_flags = if has_back { BACK_CHANNEL } else { 0 };
        result.fixed(&session).u32(sequence).u32(granted_flags);
        granted.put(&mut result);
        back.granted().put(&mut result);
        out.fixed(result.as_slice());
        let client = state.clients.get_mut(&id).ok_or(Status::SERVERFAULT)?;
        client.is_confirmed = true;
        client.sequence = sequence.wrapping_add(1);
        client.created = Some(result.into_bytes());
        state.renew(id);
        Ok(())
    }

    pub(super) fn destroy_session(&mut self, reader: &mut Reader<'_>) -> Done {
        let id: SessionId = reader.fixed()?;
        let mut state = self.memory.state();
        let session = state.sessions.get(&id).ok_or(Status::BADSESSION)?;
        let own = self.sequenced.as_ref();
        let own = own.filter(|own| own.session == id).map(|own| own.slot);
        let is_busy = |(at, slot): (usize, &Slot)| slot.is_busy && Some(at) != own;
        if session.slots.iter().enumerate().any(is_busy) {
            return Err(Status::DELAY);
        }
        let client = session.client;
        state.sessions.remove(&id);
        if let Some(client) = state.clients.get_mut(&client) {
            client.sessions.retain(|other| *other != id);
        }
        Ok(())
    }

    pub(super) fn destroy_client(&mut self, reader: &mut Reader<'_>) -> Done {
        let id = reader.u64()?;
        let mut state = self.memory.state();
        let client = known(&state, id)?;
        let has_opens = state.opens.values().any(|open| open.client == id);
        let has_delegations = state.delegations.counts(id).all > 0;
        if !client.sessions.is_empty() || has_opens || has_delegations {
            return Err(Status::CLIENTID_BUSY);
        }
        if let Some(client) = state.clients.get(&id) {
            // It has nothing; where that cannot be stored, a restart waits for it in vain.
            let name = client.name.clone();
            state.grace.remove(&[name]);
        }
        state.remove_client(id);
        Ok(())
    }

    pub(super) fn reclaim_complete(&mut self, reader: &mut Reader<'_>) -> Done {
        let is_of_one_file_system = reader.bool()?;
        if is_of_one_file_system {
            return Ok(());
        }
        let id = self.client()?;
        let mut state = self.memory.state();
        let client = state.clients.get_mut(&id).ok_or(Status::STALE_CLIENTID)?;
        if std::mem::replace(&mut client.has_reclaimed, true) {
            return Err(Status::COMPLETE_ALREADY);
        }
        let name = client.name.clone();
        state.grace.ended(&name);
        state.grace.add(&name);
        Ok(())
    }

    pub(super) fn sequence(
        &mut self,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Result<Done, Replay> {
        let asked = (|| -> Result<(SessionId, u32, u32, bool), Malformed> {
            let (session, sequence, slot) = (reader.fixed()?, reader.u32()?, reader.u32()?);
            let _highest = reader.u32()?;
            Ok((session, sequence, slot, reader.bool()?))
        })();
        let Ok((id, sequence, slot_number, keeps)) = asked else {
            return Ok(Err(Status::BADXDR));
        };
        let mut state = self.memory.state();
        let Some(session) = state.sessions.get_mut(&id) else {
            return Ok(Err(Status::BADSESSION));
        };
        let highest = u32::try_from(session.slots.len() - 1).expect("there are few slots");
        let client = session.client;
        let at = usize::try_from(slot_number).unwrap_or(usize::MAX);
        let limits = session.limits;
        if self.count > limits.operations {
            return Ok(Err(Status::TOO_MANY_OPS));
        }
        if self.request_bytes > limits.request {
            return Ok(Err(Status::REQ_TOO_BIG));
        }
        let Some(slot) = session.slots.get_mut(at) else {
            return Ok(Err(Status::BADSLOT));
        };
        match sequence.wrapping_sub(slot.sequence) {
            1 if slot.is_busy => return Ok(Err(Status::DELAY)),
            1 => {}
            0 if slot.is_busy => return Ok(Err(Status::DELAY)),
            // Nothing was carried out in it yet.
            0 if sequence == 0 => return Ok(Err(Status::SEQ_MISORDERED)),
            0 if slot.call != self.call => return Ok(Err(Status::SEQ_FALSE_RETRY)),
            0 => {
                return match &slot.reply {
                    Some(reply) => Err(Replay(reply.clone())),
                    None => Ok(Err(Status::RETRY_UNCACHED_REP)),
                };
            }
            _ => return Ok(Err(Status::SEQ_MISORDERED)),
        }
        slot.is_busy = true;
        slot.sequence = sequence;
        slot.call = self.call;
        slot.reply = None;
        state.renew(client);
        let flags = state.flags_of(client);
        drop(state);
        self.sequenced = Some(Sequenced {
            client,
            session: id,
            slot: at,
            keeps,
            limits,
        });
        out.fixed(&id).u32(sequence).u32(slot_number);
        out.u32(highest).u32(highest).u32(flags);
        Ok(Ok(()))
    }

    /// The end of a compound: its slot is free, and keeps the result.
    pub(crate) fn finish(&mut self, begun: usize, reply: &Writer) {
        let Some(sequenced) = &self.sequenced else {
            return;
        };
        let result = &reply.as_slice()[begun..];
        let most = match sequenced.keeps {
            true => sequenced.limits.kept,
            false => SMALL_BYTES,
        };
        let is_kept = self.data.is_empty() && result.len() <= most;
        let mut state = self.memory.state();
        let Some(session) = state.sessions.get_mut(&sequenced.session) else {
            return;
        };
        let slot = &mut session.slots[sequenced.slot];
        slot.is_busy = false;
        slot.reply = is_kept.then(|| result.to_vec());
    }
}
