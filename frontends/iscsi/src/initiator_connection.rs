//! A connection of an initiator, as a source of requests.
//!
//! # Mechanism
//! One thread at a time takes PDUs ([`Connection::take_work`]) and does what needs no waiting: it
//! checks command numbers, gathers data, finds out what is to be done. That becomes a [`Work`],
//! which the thread does while others may take what comes next. So commands run side by side, and
//! a PDU is never seen before those that were sent before it.
//!
//! # Locks
//! `incoming`, or the turn to send; then the tasks of the session. Only the turn to send is held
//! while the socket is waited for.

use crate::output::{Counts, Output, Sending};
use crate::portal::Shared;
use crate::protocol::input::{Input, InputError, Read};
use crate::protocol::login::Login;
use crate::protocol::parameters::RECEIVED_BYTES_MAX;
use crate::protocol::pdu::{NO_TAG, Pdu, replies, requests};
use crate::protocol::tasks::{Command, Taken, TaskError};
use crate::scsi::codes;
use crate::session::Session;
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{ErrorKind, Read as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tarn_serving::{Next, RequestTraits, Source, takes_next};

/// A command that moves at least so many bytes lets other threads serve the connection meanwhile:
/// measured, below it another thread takes longer to come to the next command.
const LONG_BYTES: u32 = 1 << 20;

/// Why a PDU is rejected (RFC 7143, 11.17.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// It breaks the rules of the protocol.
    Protocol = 0x04,
    /// The operation is not known.
    NotSupported = 0x05,
    /// A task of its tag is under way.
    InProgress = 0x07,
}

/// What a thread does next for a connection.
pub enum Work {
    /// A request of a login.
    Login(Pdu),
    /// A command that has its data.
    Command(Command),
    /// An R2T.
    Ask(Pdu),
    /// NOP-Out.
    Ping(Pdu),
    /// A task management function.
    Management(Pdu),
    /// A text request.
    Text(Pdu),
    /// Logout.
    Logout(Pdu),
    /// A PDU that is rejected.
    Reject(Pdu, Rejection),
}

/// How far the connection is.
pub(crate) enum Phase {
    /// Login, unless a request of it is being answered.
    Login(Option<Box<Login>>),
    /// The full feature phase.
    Full,
}

pub(crate) struct Incoming {
    pub input: Input,
    pub phase: Phase,
}

/// A connection.
pub struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) local: SocketAddr,
    /// Where the initiator is.
    pub peer: SocketAddr,
    pub(crate) output: Output,
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: OnceLock<Arc<Session>>,
    incoming: Mutex<Incoming>,
    /// The next PDU is in memory.
    has_next: AtomicBool,
    /// Text of a request in several PDUs, and what is left of a reply.
    pub(crate) text: Mutex<(Vec<u8>, Vec<u8>)>,
    is_closed: AtomicBool,
    has_gone: AtomicBool,
    itself: std::sync::Weak<Connection>,
}

impl Connection {
    /// A connection that was accepted.
    pub fn new(
        stream: TcpStream,
        addresses: (SocketAddr, SocketAddr),
        shared: Arc<Shared>,
    ) -> Arc<Connection> {
        let (local, peer) = addresses;
        let data_bytes_max = usize::try_from(RECEIVED_BYTES_MAX).unwrap_or(usize::MAX);
        Arc::new_cyclic(|itself| Connection {
            stream,
            local,
            peer,
            output: Output::default(),
            shared,
            session: OnceLock::new(),
            incoming: Mutex::new(Incoming {
                input: Input::new(data_bytes_max),
                phase: Phase::Login(Some(Box::default())),
            }),
            has_next: AtomicBool::new(false),
            text: Mutex::default(),
            is_closed: AtomicBool::new(false),
            has_gone: AtomicBool::new(false),
            itself: itself.clone(),
        })
    }

    /// Itself, shared.
    pub(crate) fn itself(&self) -> Option<Arc<Connection>> {
        self.itself.upgrade()
    }

    /// Whether it has not come to the full feature phase.
    pub fn is_in_login(&self) -> bool {
        self.session.get().is_none()
    }

    /// Ends the connection: no PDU is taken or sent any more.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub(crate) fn incoming(&self) -> MutexGuard<'_, Incoming> {
        // A thread that panicked under the lock may have lost bytes: the connection ends.
        self.incoming.lock().unwrap_or_else(|poisoned| {
            self.close();
            PoisonError::into_inner(poisoned)
        })
    }

    /// Whether PDUs may be held back: this thread will look for the next request, and that is in
    /// memory, so that one call of the system sends both replies.
    pub(crate) fn sending(&self) -> Sending {
        match takes_next() && self.has_next.load(Ordering::SeqCst) {
            true => Sending::Held,
            false => Sending::Now,
        }
    }

    /// Sends a PDU of the session.
    pub(crate) fn send(&self, pdu: Pdu, counts: Counts) {
        if let Some(session) = self.session.get() {
            let mut turn = self.output.turn(&self.stream, self.sending());
            turn.send(pdu, counts, &mut session.tasks());
        }
    }

    /// Takes PDUs until there is something to do. None when no more are there now.
    fn take_work(&self) -> Result<Option<Work>, String> {
        let mut incoming = self.incoming();
        let taken = self.take_from(&mut incoming);
        let has_next = incoming.input.has_whole();
        self.has_next.store(has_next, Ordering::SeqCst);
        taken
    }

    fn take_from(&self, incoming: &mut Incoming) -> Result<Option<Work>, String> {
        loop {
            if self.is_closed.load(Ordering::Acquire) {
                return Err(InputError::Closed.to_string());
            }
            let mut stream = &self.stream;
            let read = |into: &mut [u8]| match stream.read(into) {
                Ok(count) => Read::Bytes(count),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => Read::Nothing,
                    _ => Read::Failed,
                },
            };
            let taken = incoming.input.take(read);
            let Some(pdu) = taken.map_err(|error| error.to_string())? else {
                return Ok(None);
            };
            if let Phase::Login(login) = &incoming.phase {
                return match login {
                    Some(_) => Ok(Some(Work::Login(pdu))),
                    None => Err("a login request comes before the reply to the last".to_string()),
                };
            }
            if let Some(work) = self.receive(pdu)? {
                return Ok(Some(work));
            }
        }
    }

    /// Takes a PDU of the full feature phase.
    fn receive(&self, pdu: Pdu) -> Result<Option<Work>, String> {
        let Some(session) = self.session.get() else {
            return Err("the session has not begun".to_string());
        };
        let mut tasks = session.tasks();
        let opcode = pdu.opcode();
        let taken = match opcode {
            requests::SCSI_COMMAND if session.target.is_some() => {
                let header = Pdu {
                    data: Vec::new(),
                    additional: Vec::new(),
                    ..pdu
                };
                let command = Pdu {
                    data: pdu.data,
                    ..header.clone()
                };
                match tasks.take_command(command, &session.agreed) {
                    Err(TaskError::InProgress) => {
                        return Ok(Some(Work::Reject(header, Rejection::InProgress)));
                    }
                    taken => taken,
                }
            }
            requests::DATA_OUT if session.target.is_some() => tasks.take_data(pdu, &session.agreed),
            requests::NOP_OUT | requests::TASK_MANAGEMENT | requests::TEXT | requests::LOGOUT => {
                match tasks.take_number(&pdu) {
                    Ok(()) => return Ok(work_of(pdu)),
                    Err(error) => Err(error),
                }
            }
            requests::LOGIN => Err(TaskError::Protocol),
            _ => return Ok(Some(Work::Reject(pdu, Rejection::NotSupported))),
        };
        match taken {
            Ok(Taken::Ready(command)) => Ok(Some(Work::Command(command))),
            Ok(Taken::Ask(pdu)) => Ok(Some(Work::Ask(pdu))),
            Ok(Taken::Nothing) | Err(TaskError::Ignored) => Ok(None),
            Err(error) => Err(format!(
                "{error:?} error in a PDU of operation {opcode:#04x}"
            )),
        }
    }

    /// What the threads must know of some work.
    fn traits_of(&self, work: &Work) -> RequestTraits {
        let (is_long, may_delay_reply) = match work {
            Work::Command(command) => (
                command.expected_bytes >= LONG_BYTES || command.cdb[0] == codes::EXTENDED_COPY,
                self.may_wait_for_log(command),
            ),
            // It waits for other commands.
            Work::Management(_) | Work::Login(_) => (true, false),
            _ => (false, false),
        };
        RequestTraits {
            is_long,
            is_waited_for: matches!(work, Work::Command(_)),
            may_delay_reply,
        }
    }

    /// Whether the status of a command may wait for the intent log.
    fn may_wait_for_log(&self, command: &Command) -> bool {
        use codes::*;
        let session = self.session.get();
        let Some(target) = session.and_then(|session| session.target.as_ref()) else {
            return false;
        };
        match command.cdb[0] {
            SYNCHRONIZE_CACHE_10 | SYNCHRONIZE_CACHE_16 => true,
            WRITE_10 | WRITE_12 | WRITE_16 => target.unit.must_flush(command.cdb[1] & 0x08 != 0),
            WRITE_6 | UNMAP | WRITE_SAME_10 | WRITE_SAME_16 | COMPARE_AND_WRITE => {
                target.unit.must_flush(false)
            }
            _ => false,
        }
    }
}

/// What is to be done for a PDU that is no command.
fn work_of(pdu: Pdu) -> Option<Work> {
    match pdu.opcode() {
        // The answer to a NOP-In.
        requests::NOP_OUT if pdu.task_tag() == NO_TAG => None,
        requests::NOP_OUT => Some(Work::Ping(pdu)),
        requests::TASK_MANAGEMENT => Some(Work::Management(pdu)),
        requests::TEXT => Some(Work::Text(pdu)),
        _ => Some(Work::Logout(pdu)),
    }
}

/// REJECT of a PDU.
pub(crate) fn reject(pdu: &Pdu, rejection: Rejection) -> Pdu {
    Pdu::new(replies::REJECT)
        .with_u8(2, rejection as u8)
        .with_u32(16, NO_TAG)
        .with_data(pdu.header.to_vec())
}

impl Source for Connection {
    type Request = Option<Work>;
    type DelayedReply = Command;

    fn new_request() -> Option<Work> {
        None
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn take_request(&self, request: &mut Option<Work>) -> Next {
        match self.take_work() {
            Ok(Some(work)) => {
                let traits = self.traits_of(&work);
                *request = Some(work);
                Next::Request(traits)
            }
            Ok(None) => Next::Nothing,
            Err(why) => {
                let is_told = !self.is_in_login() && why != InputError::Closed.to_string();
                if is_told {
                    self.shared
                        .targets
                        .log(&format!("iscsi: {} is disconnected: {why}", self.peer));
                }
                Next::Ended
            }
        }
    }

    fn has_request_in_memory(&self) -> bool {
        self.has_next.load(Ordering::SeqCst) || self.output.has_held()
    }

    fn may_have_owners(&self) -> bool {
        false
    }

    fn serve(&self, request: &mut Option<Work>) -> Option<Command> {
        self.do_work(request.take()?)
    }

    fn reply_when_durable(&self, delayed: Vec<Command>) {
        self.flush_and_reply(&delayed);
    }

    fn send_held(&self) {
        self.output.send_held(&self.stream);
    }

    fn send_held_at_once(&self) {
        self.output.send_held_at_once(&self.stream);
    }

    /// A portal that closes calls it as well, maybe beside the threads.
    fn gone(&self) {
        self.close();
        if self.has_gone.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(session) = self.session.get() {
            session.tasks().abort_all();
            self.shared.sessions.end(session);
            if let Some(target) = &session.target {
                self.shared.targets.release(target.clone());
            }
        }
        self.shared.forget(self);
    }
}
