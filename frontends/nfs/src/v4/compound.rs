//! `COMPOUND`: operations one after the other, until one fails.

use super::attributes::{Facts, has_acls};
use super::owner_names::OwnerNames;
use super::owners::{Ending, Kept, Turn};
use super::pseudo::PseudoFolder;
use super::sessions::{Replay, Sequenced};
use super::state::{State, StateKey};
use super::status::Status;
use crate::ended_operations;
use crate::file_call::{Asker, FileCall, Realm};
use crate::recall_queue::RecallQueue;
use crate::rpc::back_channel::BackChannel;
use crate::rpc::record::RECORD_BYTES_MAX;
use crate::share::SharedFiles;
use crate::share_table::Shares;
use crate::xdr::{Malformed, Reader, Writer};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tarn_engine::files::{ErrorCode, ObjectId, OperationKind, ReadData};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Most operations of a compound.
pub(crate) const OPERATIONS_MAX: u32 = 64;
/// Most bytes of the result of an operation that changes something.
const CHANGE_BYTES: usize = 192;
/// Most bytes of a tag.
const TAG_BYTES_MAX: usize = 1024;

/// A hash by which a call is told from another one with the same number: of its length and its
/// beginning, so that data of a long write are not read once more.
fn hash_of(arguments: &[u8]) -> u64 {
    const HASHED_BYTES_MAX: usize = 512;
    let hashed = arguments.len().min(HASHED_BYTES_MAX);
    let length = u64::try_from(arguments.len()).unwrap_or_default();
    xxh3_64_with_seed(&arguments[..hashed], length)
}

/// What version 4 knows beside files.
pub(crate) struct Memory {
    state: Mutex<State>,
    /// Delegations that are to be returned.
    pub(crate) recalls: Arc<RecallQueue<SharedFiles>>,
    /// For how long a client keeps its state without a word.
    pub(crate) lease: Duration,
    pub(crate) names: OwnerNames,
}

impl Memory {
    /// With a file that lists the clients: those of an earlier server may reclaim what they had.
    pub(crate) fn new(clients: Option<PathBuf>, lease: Duration, domain: Option<String>) -> Memory {
        Memory {
            state: Mutex::new(State::new(clients, lease)),
            recalls: Arc::default(),
            lease,
            names: OwnerNames::new(domain),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked under the lock has ended with the process.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.recalls.end();
    }
}

/// A file or a folder above shares, as the current or the saved one.
#[derive(Clone)]
pub(crate) enum Current {
    Folder(PseudoFolder),
    File { realm: Realm, id: ObjectId },
}

/// The id of a state, as a client sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StateId {
    pub(crate) sequence: u32,
    pub(crate) key: StateKey,
}

/// A compound that is being carried out.
pub(crate) struct Compound<'a> {
    pub(crate) asker: &'a Asker<'a>,
    pub(crate) memory: &'a Memory,
    /// The way to call the client of the connection.
    pub(crate) back: Option<&'a Arc<BackChannel>>,
    pub(crate) shares: Arc<Shares>,
    pub(crate) minor: u32,
    pub(crate) current: Option<Current>,
    saved: Option<Current>,
    pub(crate) current_state: Option<StateId>,
    saved_state: Option<StateId>,
    pub(crate) sequenced: Option<Sequenced>,
    /// Contents of files, and where in the reply they belong.
    pub(crate) data: Vec<(usize, ReadData)>,
    /// How many operations there are, and which one this is.
    pub(crate) count: u32,
    pub(crate) position: u32,
    /// Bytes of the call, with its head.
    pub(crate) request_bytes: usize,
    /// A hash of it.
    pub(crate) call: u64,
    /// What owners of version 4.0 do in this operation, and what was to be done and is done.
    pub(crate) turns: Vec<Turn>,
    pub(crate) ending: Ending,
    pub(crate) replayed: Option<Kept>,
    /// An operation that may have changed something was carried out.
    may_have_changed: bool,
}

/// Carries out a compound of a call with so many bytes, and appends its result. The contents of
/// files belong to places of the reply.
///
/// # Errors
/// The head of the arguments cannot be decoded.
pub(crate) fn run(
    asker: &Asker<'_>,
    memory: &Memory,
    back: Option<&Arc<BackChannel>>,
    (request_bytes, arguments): (usize, &[u8]),
    reply: &mut Writer,
) -> Result<Ran, Malformed> {
    let mut reader = Reader::new(arguments);
    let tag = reader.opaque(TAG_BYTES_MAX)?;
    let (minor, count) = (reader.u32()?, reader.u32()?);
    let begun = reply.len();
    reply.u32(0).opaque(tag);
    let count_at = reply.len();
    reply.u32(0);
    let refused = match (minor, count) {
        (3.., _) => Some(Status::MINOR_VERS_MISMATCH),
        (0, count) if count > OPERATIONS_MAX => Some(Status::RESOURCE),
        (_, count) if count > OPERATIONS_MAX => Some(Status::TOO_MANY_OPS),
        _ => None,
    };
    if let Some(status) = refused {
        reply.put_u32(begun, status.0);
        return Ok(Ran::default());
    }
    let mut compound = Compound {
        asker,
        memory,
        back,
        shares: asker.table.now(),
        minor,
        current: None,
        saved: None,
        current_state: None,
        saved_state: None,
        sequenced: None,
        data: Vec::new(),
        count,
        position: 0,
        request_bytes,
        call: hash_of(arguments),
        turns: Vec::new(),
        ending: Ending::default(),
        replayed: None,
        may_have_changed: false,
    };
    let (mut status, mut done) = (Status::OK, 0);
    while done < count && status == Status::OK {
        compound.position = done;
        let ran = ended_operations::with_status(
            || compound.operation(&mut reader, reply),
            |ran| {
                ran.as_ref()
                    .map_or(ErrorCode::NONE, |status| status.error())
            },
        );
        status = match ran {
            Ok(status) => status,
            Err(Replay(kept)) => {
                reply.truncate(begun);
                reply.fixed(&kept);
                return Ok(Ran::default());
            }
        };
        done += 1;
    }
    reply.put_u32(begun, status.0);
    reply.put_u32(count_at, done);
    compound.finish(begun, reply);
    let is_later = matches!(status, Status::DELAY | Status::GRACE | Status::RESOURCE);
    let is_kept = minor == 0 && compound.may_have_changed && !is_later;
    Ok(Ran {
        is_kept: is_kept && compound.data.is_empty(),
        data: compound.data,
    })
}

/// What a compound has come to, beside the reply.
#[derive(Default)]
pub(crate) struct Ran {
    /// Contents of files, and where in the reply they belong.
    pub(crate) data: Vec<(usize, ReadData)>,
    /// The reply is kept for a repetition of the call, which sessions do by themselves.
    pub(crate) is_kept: bool,
}

/// The minor version of a compound, if it can be decoded.
pub(crate) fn minor_of(arguments: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(arguments);
    reader.opaque(TAG_BYTES_MAX).ok()?;
    reader.u32().ok()
}

/// What an operation gives.
pub(crate) type Done = Result<(), Status>;

impl Compound<'_> {
    /// Carries out the next operation, and appends its result.
    fn operation(&mut self, reader: &mut Reader<'_>, reply: &mut Writer) -> Result<Status, Replay> {
        let Ok(number) = reader.u32() else {
            reply.u32(super::operation::ILLEGAL).u32(Status::BADXDR.0);
            return Ok(Status::BADXDR);
        };
        let begun = reply.len();
        let is_known = self.is_known(number);
        reply.u32(match is_known {
            true => number,
            false => super::operation::ILLEGAL,
        });
        let status_at = reply.len();
        reply.u32(0);
        let (data, body) = (self.data.len(), reply.len());
        self.may_have_changed |= !super::operation::READ_ONLY.contains(&number);
        let _acting = self.act_in_session();
        let done = match self.may_run(number) {
            Ok(()) if is_known => match self.check_room(reply.len() + CHANGE_BYTES) {
                Ok(()) => self.run(number, reader, reply)?,
                Err(status) => Err(status),
            },
            Ok(()) => Err(Status::OP_ILLEGAL),
            Err(status) => Err(status),
        };
        if let Some(kept) = self.replayed.take() {
            debug_assert!(self.turns.is_empty(), "nothing was begun");
            let status = match self.enter_replayed(&kept) {
                Ok(()) => kept.status,
                Err(status) => status,
            };
            reply.truncate(status_at);
            match status == kept.status {
                true => reply.fixed(&kept.result),
                false => reply.u32(status.0),
            };
            return Ok(status);
        }
        // What changes something has a small result, for which there was room.
        let done = done.and_then(|()| self.check_room(reply.len()));
        let status = match done {
            Ok(()) => Status::OK,
            Err(status) => {
                // Of failures, those of locks and attributes have something to say.
                if !super::has_failure_body(number, status) {
                    reply.truncate(body);
                }
                if number == super::operation::SETATTR && reply.len() == body {
                    reply.u32(0);
                }
                self.data.truncate(data);
                status
            }
        };
        debug_assert!(begun < status_at);
        reply.put_u32(status_at, status.0);
        self.end_turns(number, status, &reply.as_slice()[status_at..]);
        Ok(status)
    }

    /// Whether a result that ends at this place of the reply, with the contents of files, is no
    /// larger than the session permits.
    fn check_room(&self, end: usize) -> Done {
        let data: usize = self.data.iter().map(|(_, data)| data.len()).sum();
        match &self.sequenced {
            Some(sequenced) => sequenced.check_room(end + data),
            None if end + data > RECORD_BYTES_MAX => Err(Status::RESOURCE),
            None => Ok(()),
        }
    }

    /// Whether this version has an operation.
    fn is_known(&self, number: u32) -> bool {
        match self.minor {
            0 => super::operation::OF_0.contains(&number),
            _ => super::operation::ALL.contains(&number),
        }
    }

    /// Whether an operation may come at this place.
    fn may_run(&self, number: u32) -> Done {
        use super::operation::*;
        let alone = [
            EXCHANGE_ID,
            CREATE_SESSION,
            DESTROY_SESSION,
            BIND_CONN_TO_SESSION,
            DESTROY_CLIENTID,
        ];
        if self.minor == 0 {
            return Ok(());
        }
        match (self.position, number) {
            (0, SEQUENCE) => Ok(()),
            (0, number) if alone.contains(&number) => match self.count {
                1 => Ok(()),
                _ => Err(Status::NOT_ONLY_OP),
            },
            (0, number) if !self.is_known(number) => Ok(()),
            (0, _) => Err(Status::OP_NOT_IN_SESSION),
            (_, SEQUENCE) => Err(Status::SEQUENCE_POS),
            _ => Ok(()),
        }
    }

    /// What attributes say of the server.
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            names: &self.memory.names,
            minor: self.minor,
            lease_s: u32::try_from(self.memory.lease.as_secs()).unwrap_or(u32::MAX),
            has_acls: match &self.current {
                Some(Current::File { realm, .. }) => has_acls(realm),
                _ => false,
            },
        }
    }

    /// The current file, for an operation on it.
    pub(crate) fn file(&self, kind: OperationKind, range: (u64, u64)) -> Result<FileCall, Status> {
        match self.current.as_ref().ok_or(Status::NOFILEHANDLE)? {
            Current::File { realm, id } => Ok(self.asker.call_in(realm.clone(), *id, kind, range)),
            Current::Folder(_) => Err(Status::ROFS),
        }
    }

    /// The saved file.
    pub(crate) fn saved_file(&self, kind: OperationKind) -> Result<FileCall, Status> {
        match self.saved.as_ref().ok_or(Status::NOFILEHANDLE)? {
            Current::File { realm, id } => Ok(self.asker.call_in(realm.clone(), *id, kind, (0, 0))),
            Current::Folder(_) => Err(Status::XDEV),
        }
    }

    pub(crate) fn set_file(&mut self, realm: Realm, id: ObjectId) {
        self.current = Some(Current::File { realm, id });
        self.current_state = None;
    }

    pub(crate) fn save(&mut self) -> Done {
        self.saved = Some(self.current.clone().ok_or(Status::NOFILEHANDLE)?);
        self.saved_state = self.current_state;
        Ok(())
    }

    pub(crate) fn restore(&mut self) -> Done {
        let missing = match self.minor {
            0 => Status::RESTOREFH,
            _ => Status::NOFILEHANDLE,
        };
        self.current = Some(self.saved.clone().ok_or(missing)?);
        self.current_state = self.saved_state;
        Ok(())
    }

    /// The client of the session.
    pub(crate) fn client(&self) -> Result<u64, Status> {
        let sequenced = self.sequenced.as_ref();
        sequenced
            .map(|sequenced| sequenced.client)
            .ok_or(Status::OP_NOT_IN_SESSION)
    }
}

impl StateId {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<StateId, Malformed> {
        Ok(StateId {
            sequence: reader.u32()?,
            key: reader.fixed()?,
        })
    }

    pub(crate) fn put(&self, out: &mut Writer) {
        out.u32(self.sequence).fixed(&self.key);
    }

    /// Of no open: all bits are zero, or all are one.
    pub(crate) fn is_anonymous(&self) -> bool {
        let zeros = self.sequence == 0 && self.key == [0; 12];
        zeros || (self.sequence == u32::MAX && self.key == [0xff; 12])
    }

    /// The one that the last operation gave.
    pub(crate) fn is_current(&self) -> bool {
        self.sequence == 1 && self.key == [0; 12]
    }
}

/// Compares the number of changes of a state with that which a client knows; 0 is any.
pub(crate) fn check_sequence(id: StateId, present: u32) -> Result<(), Status> {
    match id.sequence {
        0 => Ok(()),
        known if known == present => Ok(()),
        known if known < present => Err(Status::OLD_STATEID),
        _ => Err(Status::BAD_STATEID),
    }
}
