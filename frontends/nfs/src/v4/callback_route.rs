//! How the server calls a client: in a connection that is bound to one of its sessions, or in
//! version 4.0 at the address that the client has named.

use super::callback_place::Callback40;
use super::state::{Client4, Session4, SessionId, State};
use crate::rpc::asking::ask_as;
use crate::rpc::back_channel::{BackChannel, Credential};
use crate::xdr::{Reader, Writer};
use std::sync::Arc;

/// The version of the callback program.
const VERSION: u32 = 1;
const NULL: u32 = 0;
const COMPOUND: u32 = 1;
const CB_SEQUENCE: u32 = 11;

/// The way to a client, as it is now.
pub(crate) enum Route {
    Session {
        id: SessionId,
        minor: u32,
        program: u32,
        credential: Credential,
        channel: Arc<BackChannel>,
        sequence: u32,
    },
    Address(Callback40),
}

/// What a call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Called {
    /// The status of the operation.
    Answered(u32),
    /// The call was not answered.
    Failed,
}

impl Session4 {
    fn channel(&self) -> Option<Arc<BackChannel>> {
        self.back.as_ref()?.channel()
    }
}

impl State {
    /// The sessions of a client.
    fn sessions_of<'a>(&'a self, client: &'a Client4) -> impl Iterator<Item = &'a Session4> {
        let ids = client.sessions.iter();
        ids.filter_map(|id| self.sessions.get(id))
    }

    /// Whether a client can be called, as far as is known.
    pub(crate) fn has_route(&self, client: u64) -> bool {
        let Some(client) = self.clients.get(&client) else {
            return false;
        };
        if client.is_path_down {
            return false;
        }
        match client.name.has_sessions {
            true => self
                .sessions_of(client)
                .any(|session| session.channel().is_some()),
            false => client.callback.is_some() && client.is_probed,
        }
    }

    /// The way to a client, for one call.
    pub(crate) fn route_to(&mut self, client: u64) -> Option<Route> {
        let client = self.clients.get(&client)?;
        if client.is_path_down {
            return None;
        }
        if !client.name.has_sessions {
            return client.callback.map(Route::Address);
        }
        let sessions = &self.sessions;
        let can_call = |id: &&SessionId| {
            let session = sessions.get(*id);
            session.is_some_and(|session| session.channel().is_some())
        };
        let id = *client.sessions.iter().rev().find(can_call)?;
        let back = self.sessions.get_mut(&id)?.back.as_mut()?;
        let channel = back.channel()?;
        back.sequence = back.sequence.wrapping_add(1);
        Some(Route::Session {
            id,
            minor: back.minor,
            program: back.program,
            credential: back.credential.clone()?,
            channel,
            sequence: back.sequence,
        })
    }

    /// A call was not answered: the connection is called no more.
    pub(crate) fn route_failed(&mut self, client: u64, route: &Route) {
        if let Route::Session {
            id,
            channel,
            sequence,
            ..
        } = route
            && let Some(session) = self.sessions.get_mut(id)
            && let Some(back) = &mut session.back
        {
            back.unbind(channel);
            // The next call is the same one, and a repetition where the client has it.
            back.sequence = sequence.wrapping_sub(1);
        }
        let has_other = self.clients.get(&client).is_some_and(|known| {
            let mut sessions = self.sessions_of(known);
            sessions.any(|session| session.channel().is_some())
        });
        if let Some(client) = self.clients.get_mut(&client) {
            client.is_path_down = !has_other;
        }
    }
}

impl Route {
    /// Asks whether the client is there.
    pub(crate) fn probe(&self) -> Called {
        let Route::Address(callback) = self else {
            return Called::Answered(0);
        };
        let which = (callback.program, VERSION, NULL);
        match ask_as(&Credential::NONE, callback.at, which, &Writer::new()) {
            Ok(_) => Called::Answered(0),
            Err(_) => Called::Failed,
        }
    }

    /// Has the client carry out an operation.
    pub(crate) fn run(&self, operation: u32, put: impl Fn(&mut Writer)) -> Called {
        let mut arguments = Writer::new();
        arguments.opaque(b"");
        let result = match self {
            Route::Address(callback) => {
                arguments.u32(0).u32(callback.identifier).u32(1);
                arguments.u32(operation);
                put(&mut arguments);
                let which = (callback.program, VERSION, COMPOUND);
                ask_as(&Credential::root(), callback.at, which, &arguments)
            }
            Route::Session {
                id,
                minor,
                program,
                credential,
                channel,
                sequence,
            } => {
                arguments.u32(*minor).u32(0).u32(2);
                arguments.u32(CB_SEQUENCE).fixed(id).u32(*sequence);
                // The first slot, the highest one, no copy kept, no calls that it refers to.
                arguments.u32(0).u32(0).bool(false).u32(0);
                arguments.u32(operation);
                put(&mut arguments);
                channel.ask((*program, VERSION, COMPOUND), credential, &arguments)
            }
        };
        let skipped = matches!(self, Route::Session { .. });
        let answered = result.ok();
        let status = answered.and_then(|result| status_of(&result, operation, skipped));
        status.map_or(Called::Failed, Called::Answered)
    }
}

/// The status of an operation in the result of a compound. None where it was not reached.
fn status_of(result: &[u8], operation: u32, behind_sequence: bool) -> Option<u32> {
    const TAG_BYTES_MAX: usize = 1024;
    let mut reader = Reader::new(result);
    let _status = reader.u32().ok()?;
    reader.opaque(TAG_BYTES_MAX).ok()?;
    let _count = reader.u32().ok()?;
    if behind_sequence {
        let is_it = reader.u32() == Ok(CB_SEQUENCE) && reader.u32() == Ok(0);
        let _id: [u8; 16] = reader.fixed().ok()?;
        let numbers: [u8; 16] = reader.fixed().ok()?;
        debug_assert_eq!(numbers.len(), 16);
        is_it.then_some(())?;
    }
    (reader.u32() == Ok(operation)).then_some(())?;
    reader.u32().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_that_of_the_operation_and_none_where_it_was_not_reached() {
        let mut result = Writer::new();
        result.u32(10025).opaque(b"t").u32(2);
        result
            .u32(CB_SEQUENCE)
            .u32(0)
            .fixed(&[7; 16])
            .fixed(&[0; 16]);
        let whole = result.clone().u32(4).u32(10025).as_slice().to_vec();
        assert_eq!(status_of(&whole, 4, true), Some(10025));
        assert_eq!(status_of(result.as_slice(), 4, true), None);
        let mut refused = Writer::new();
        refused
            .u32(10052)
            .opaque(b"")
            .u32(1)
            .u32(CB_SEQUENCE)
            .u32(10052);
        assert_eq!(status_of(refused.as_slice(), 4, true), None);
        assert_eq!(status_of(&[0; 3], 4, false), None);
    }
}
