//! The back channel of a session: `BIND_CONN_TO_SESSION`, `BACKCHANNEL_CTL`, and what
//! `CREATE_SESSION` says of it. `callback_route` calls clients in it.

use super::callback_place::{Back4, decode_credential};
use super::compound::{Compound, Done};
use super::state::{SessionId, State};
use super::status::Status;
use crate::rpc::back_channel::BackChannel;
use crate::xdr::{Reader, Writer};
use std::sync::Arc;

impl State {
    /// Binds a connection for calls of the server. False where that is not possible.
    pub(super) fn bind_back(&mut self, id: &SessionId, channel: &Arc<BackChannel>) -> bool {
        let Some(session) = self.sessions.get_mut(id) else {
            return false;
        };
        let client = session.client;
        let back = session.back.as_mut();
        let back = back.filter(|back| back.credential.is_some());
        let is_bound = back.is_some_and(|back| back.bind(channel));
        if is_bound {
            self.has_new_route(client);
        }
        is_bound
    }

    /// A client can be called another way: it is told what it has not heard.
    pub(super) fn has_new_route(&mut self, client: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.is_path_down = false;
        }
        self.delegations.tell_again(client);
    }
}

impl Compound<'_> {
    pub(super) fn bind_connection(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        /// Calls of the client, of the server, of both.
        const FORE: u32 = 1;
        const BACK: u32 = 2;
        const BOTH: u32 = 3;
        const FORE_OR_BOTH: u32 = 3;
        const BACK_OR_BOTH: u32 = 7;
        let id: SessionId = reader.fixed()?;
        let (asked, _rdma) = (reader.u32()?, reader.bool()?);
        let mut state = self.memory.state();
        let session = state.sessions.get(&id).ok_or(Status::BADSESSION)?;
        let client = session.client;
        let wants_back = matches!(asked, BACK | FORE_OR_BOTH | BACK_OR_BOTH);
        let has_back = wants_back && self.back.is_some_and(|back| state.bind_back(&id, back));
        let granted = match asked {
            FORE => FORE,
            BACK if has_back => BACK,
            BACK => return Err(Status::INVAL),
            FORE_OR_BOTH | BACK_OR_BOTH if has_back => BOTH,
            FORE_OR_BOTH | BACK_OR_BOTH => FORE,
            _ => return Err(Status::BADXDR),
        };
        drop(state);
        if has_back {
            self.memory.recalls.call(client);
        }
        out.fixed(&id).u32(granted).bool(false);
        Ok(())
    }

    /// `BACKCHANNEL_CTL`: as which user, and with which program, the server is to call.
    pub(super) fn control_back(&mut self, reader: &mut Reader<'_>) -> Done {
        let program = reader.u32()?;
        let credential = decode_credential(reader)?;
        let client = self.client()?;
        let id = self.session_id()?;
        let mut state = self.memory.state();
        let session = state.sessions.get_mut(&id).ok_or(Status::BADSESSION)?;
        match &mut session.back {
            Some(back) => (back.program, back.credential) = (program, credential),
            none => *none = Some(Back4::new(self.minor, program, credential)),
        }
        state.has_new_route(client);
        drop(state);
        self.memory.recalls.call(client);
        Ok(())
    }
}
