//! What is done for each kind of PDU.

use crate::initiator_connection::{Connection, Phase, Rejection, Work, reject};
use crate::output::{Counts, Sending};
use crate::protocol::login::{
    Admission, Gatekeeper, LoggedIn, LoginRefusal, PORTAL_GROUP, Step, set_session,
};
use crate::protocol::pdu::{FINAL, NO_TAG, Pdu, replies};
use crate::protocol::reply::{Residual, pieces, response, status};
use crate::protocol::tasks::{Abort, Command};
use crate::protocol::text::{Keys, TEXT_BYTES_MAX};
use crate::scsi::copying::OtherUnits;
use crate::scsi::fields::{put, u16_at};
use crate::scsi::logical_unit::refused_by;
use crate::scsi::logical_unit::{LogicalUnit, Outcome, report_luns};
use crate::scsi::sense::codes as asc;
use crate::scsi::{Refused, Request, Sense, SenseKey, UnitEvent, codes, inquiry};
use crate::served_volume::on_behalf_of;
use crate::session::Session;
use crate::storage::Contents;
use crate::target::{Target, Targets};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Functions of task management (RFC 7143, 11.5.1).
mod functions {
    pub const ABORT_TASK: u8 = 1;
    pub const ABORT_TASK_SET: u8 = 2;
    pub const CLEAR_TASK_SET: u8 = 4;
    pub const LOGICAL_UNIT_RESET: u8 = 5;
    pub const TARGET_WARM_RESET: u8 = 6;
    pub const TARGET_COLD_RESET: u8 = 7;
    pub const TASK_REASSIGN: u8 = 8;
}

/// Responses of task management (RFC 7143, 11.6.1).
mod responses {
    pub const COMPLETE: u8 = 0;
    pub const NO_TASK: u8 = 1;
    pub const NO_UNIT: u8 = 2;
    pub const NO_REASSIGNMENT: u8 = 4;
    pub const NOT_SUPPORTED: u8 = 5;
    pub const REJECTED: u8 = 255;
}

/// Asks the targets who may log in.
struct Gate<'a>(&'a dyn Targets);

impl Gatekeeper for Gate<'_> {
    fn admit(&self, initiator: &str, target: Option<&str>) -> Admission {
        self.0.admit(initiator, target)
    }

    fn random(&self, bytes: &mut [u8]) {
        self.0.random(bytes);
    }
}

impl Connection {
    /// Does it. Gives a command whose status waits for the intent log.
    pub(crate) fn do_work(&self, work: Work) -> Option<Command> {
        match work {
            Work::Login(pdu) => self.log_in(&pdu),
            Work::Command(command) => return self.carry_out(command),
            Work::Ask(pdu) => self.send(pdu, Counts::Tells),
            Work::Ping(pdu) => self.answer_ping(pdu),
            Work::Management(pdu) => self.manage(&pdu),
            Work::Text(pdu) => self.answer_text(&pdu),
            Work::Logout(pdu) => self.log_out(&pdu),
            Work::Reject(pdu, why) => self.send(reject(&pdu, why), Counts::Status),
        }
        None
    }

    fn log_in(&self, request: &Pdu) {
        let login = match &mut self.incoming().phase {
            Phase::Login(login) => login.take(),
            Phase::Full => None,
        };
        let Some(mut login) = login else {
            return self.close();
        };
        let targets = &*self.shared.targets;
        match login.step(request, &Gate(targets)) {
            Step::More(reply) => {
                self.incoming().phase = Phase::Login(Some(login));
                self.output
                    .turn(&self.stream, Sending::Now)
                    .send_login(&reply);
            }
            Step::Done(logged_in, mut reply) => match self.begin_session(&logged_in) {
                Ok(session) => {
                    set_session(&mut reply, session.number);
                    let digests = logged_in.parameters.digests;
                    let mut turn = self.output.turn(&self.stream, Sending::Now);
                    let mut incoming = self.incoming();
                    incoming.input.digests = digests;
                    incoming.phase = Phase::Full;
                    drop(incoming);
                    turn.begin_full_feature(logged_in.status_number, digests);
                    turn.send_login(&reply);
                }
                Err(refusal) => {
                    let reply = login.refuse(request, refusal);
                    self.fail_login(&reply);
                }
            },
            Step::Failed(reply) => self.fail_login(&reply),
        }
    }

    fn fail_login(&self, reply: &Pdu) {
        self.output
            .turn(&self.stream, Sending::Held)
            .send_login(reply);
        self.output.send_last(&self.stream);
        self.close();
    }

    fn begin_session(&self, logged_in: &LoggedIn) -> Result<Arc<Session>, LoginRefusal> {
        let targets = &self.shared.targets;
        let target = match &logged_in.target {
            Some(name) => Some(targets.open(name)?),
            None => None,
        };
        let itself = self.itself().ok_or(LoginRefusal::Unavailable)?;
        let begun = self
            .shared
            .sessions
            .begin(logged_in, target.clone(), &itself);
        match begun {
            Some(session) => {
                let _ = self.session.set(session.clone());
                if let Some(target) = &target {
                    self.shared.count_for(self, &target.pool);
                }
                Ok(session)
            }
            None => {
                if let Some(target) = target {
                    targets.release(target);
                }
                Err(LoginRefusal::NoResources)
            }
        }
    }

    /// Carries out a command, and replies unless its status waits for the intent log.
    fn carry_out(&self, command: Command) -> Option<Command> {
        let session = self.session.get()?;
        let target = session.target.as_ref()?;
        if command.is_aborted.load(Ordering::Acquire) {
            self.end(session, &command);
            return None;
        }
        let outcome = execute(&*self.shared.targets, session, target, &command);
        if let Ok(done) = &outcome {
            for event in &done.events {
                let UnitEvent::Abort(nexus) = event;
                for other in self.shared.sessions.of(&target.name, Some(nexus)) {
                    other.tasks().abort_all();
                }
            }
            if done.must_flush {
                return Some(command);
            }
        }
        self.reply(session, target, &command, outcome, self.sending());
        None
    }

    /// Makes durable what commands did, by one flush, and replies to them.
    pub(crate) fn flush_and_reply(&self, delayed: &[Command]) {
        let Some(session) = self.session.get() else {
            return;
        };
        let Some(target) = &session.target else {
            return;
        };
        let flushed = target.unit.storage().flush();
        for command in delayed {
            let outcome = match flushed {
                Ok(()) => Ok(crate::scsi::Done::nothing()),
                Err(error) => Err(refused_by(error, true)),
            };
            self.reply(session, target, command, outcome, Sending::Held);
        }
        self.output.send_held(&self.stream);
    }

    fn reply(
        &self,
        session: &Session,
        target: &Target,
        command: &Command,
        outcome: Outcome,
        sending: Sending,
    ) {
        let mut turn = self.output.turn(&self.stream, sending);
        let mut tasks = session.tasks();
        let ask = tasks.end(command.tag, &session.agreed);
        if !command.is_aborted.load(Ordering::Acquire) {
            match outcome {
                Ok(done) => {
                    let given = match command.reads {
                        true => done.data,
                        false => Contents::Bytes(Vec::new()),
                    };
                    let found = pieces(command, given.len(), &session.agreed);
                    match found.is_empty() {
                        true => {
                            let residual = Residual::of_command(command, given.len());
                            let pdu = response(command, status::GOOD, residual, &[]);
                            turn.send(pdu, Counts::Status, &mut tasks);
                        }
                        false => turn.send_data(found, given, &mut tasks),
                    }
                }
                Err(refused) => {
                    let (code, sense) = match refused {
                        Refused::Check(sense) => {
                            let bytes = sense.bytes(target.unit.sense_format());
                            (status::CHECK_CONDITION, bytes)
                        }
                        Refused::Busy => (status::BUSY, Vec::new()),
                        Refused::Conflict => (status::RESERVATION_CONFLICT, Vec::new()),
                    };
                    let residual = Residual::of(command.expected_bytes, 0);
                    let pdu = response(command, code, residual, &sense);
                    turn.send(pdu, Counts::Status, &mut tasks);
                }
            }
        }
        if let Some(ask) = ask {
            turn.send(ask, Counts::Tells, &mut tasks);
        }
        drop(tasks);
        session.tell_ended();
    }

    /// A command ended without a reply.
    fn end(&self, session: &Session, command: &Command) {
        let mut turn = self.output.turn(&self.stream, self.sending());
        let mut tasks = session.tasks();
        if let Some(ask) = tasks.end(command.tag, &session.agreed) {
            turn.send(ask, Counts::Tells, &mut tasks);
        }
        drop(tasks);
        session.tell_ended();
    }

    fn answer_ping(&self, pdu: Pdu) {
        let Some(session) = self.session.get() else {
            return;
        };
        let mut data = pdu.data.clone();
        data.truncate(session.agreed.sent_bytes_max);
        let mut reply = Pdu::reply(replies::NOP_IN, pdu.task_tag())
            .with_u32(20, NO_TAG)
            .with_data(data);
        put(&mut reply.header, 8, &pdu.lun());
        self.send(reply, Counts::Status);
    }

    fn manage(&self, pdu: &Pdu) {
        let code = match (self.session.get(), pdu.header[1] & 0x7f) {
            (Some(session), function) => match &session.target {
                Some(target) => self.manage_tasks(session, target, pdu, function),
                None => responses::REJECTED,
            },
            _ => responses::REJECTED,
        };
        let reply = Pdu::reply(replies::TASK_MANAGEMENT, pdu.task_tag()).with_u8(2, code);
        self.send(reply, Counts::Status);
        let is_cold = pdu.header[1] & 0x7f == functions::TARGET_COLD_RESET;
        if let (true, Some(session)) = (is_cold, self.session.get())
            && let Some(target) = &session.target
        {
            for other in self.shared.sessions.of(&target.name, None) {
                if let Some(connection) = other.connection() {
                    connection.close();
                }
            }
        }
    }

    fn manage_tasks(&self, session: &Session, target: &Target, pdu: &Pdu, function: u8) -> u8 {
        let is_of_unit = !matches!(
            function,
            functions::TARGET_WARM_RESET | functions::TARGET_COLD_RESET
        );
        if is_of_unit && !is_unit_0(pdu.lun()) {
            return responses::NO_UNIT;
        }
        match function {
            functions::ABORT_TASK => {
                let tag = pdu.transfer_tag();
                // A reply that is being put in line is sent before this one.
                drop(self.output.turn(&self.stream, Sending::Held));
                let aborted = session.tasks().abort(tag);
                match aborted {
                    Abort::Unknown => responses::NO_TASK,
                    Abort::Dropped => responses::COMPLETE,
                    Abort::Running if session.wait_for(tag) => responses::COMPLETE,
                    Abort::Running => responses::REJECTED,
                }
            }
            functions::ABORT_TASK_SET => {
                session.tasks().abort_all();
                complete_if(session.wait_for_aborted())
            }
            functions::CLEAR_TASK_SET => complete_if(self.abort_all_of(target)),
            functions::LOGICAL_UNIT_RESET
            | functions::TARGET_WARM_RESET
            | functions::TARGET_COLD_RESET => {
                let is_done = self.abort_all_of(target);
                target.unit.reset(&session.nexus);
                complete_if(is_done)
            }
            functions::TASK_REASSIGN => responses::NO_REASSIGNMENT,
            _ => responses::NOT_SUPPORTED,
        }
    }

    /// Aborts the commands of all sessions of a target. False when some do not end.
    fn abort_all_of(&self, target: &Target) -> bool {
        let sessions = self.shared.sessions.of(&target.name, None);
        sessions.iter().for_each(|one| one.tasks().abort_all());
        sessions.iter().all(|one| one.wait_for_aborted())
    }

    fn answer_text(&self, pdu: &Pdu) {
        let Some(session) = self.session.get() else {
            return;
        };
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let (asked, left) = &mut *text;
        if pdu.transfer_tag() == NO_TAG || left.is_empty() {
            left.clear();
            if asked.len() + pdu.data.len() > TEXT_BYTES_MAX {
                asked.clear();
                return self.send(reject(pdu, Rejection::Protocol), Counts::Status);
            }
            asked.extend_from_slice(&pdu.data);
            let continues = pdu.header[1] & 0x40 != 0;
            if continues {
                return self.send(text_reply(pdu, 0, Vec::new(), 1), Counts::Status);
            }
            match Keys::parse(&std::mem::take(asked)) {
                Ok(keys) => *left = self.answers(session, &keys).encode(),
                Err(_) => return self.send(reject(pdu, Rejection::Protocol), Counts::Status),
            }
        }
        let rest = left.split_off(left.len().min(session.agreed.sent_bytes_max));
        let these = std::mem::replace(left, rest);
        let reply = match left.is_empty() {
            true => text_reply(pdu, FINAL, these, NO_TAG),
            false => text_reply(pdu, 0x40, these, 1),
        };
        self.send(reply, Counts::Status);
    }

    /// The answers to text keys: SendTargets.
    fn answers(&self, session: &Session, asked: &Keys) -> Keys {
        let mut answers = Keys::default();
        for (key, value) in asked.iter() {
            if key != "SendTargets" {
                answers.add(key, "NotUnderstood");
                continue;
            }
            let own = session.target.as_ref().map(|target| target.name.clone());
            let names = match (&own, value) {
                (None, "All") => self.shared.targets.names(&session.initiator),
                (Some(own), "") => vec![own.clone()],
                (_, name) => {
                    let mut names = self.shared.targets.names(&session.initiator);
                    names.retain(|known| known == name);
                    names
                }
            };
            for name in names {
                answers.add("TargetName", name);
                answers.add("TargetAddress", format!("{},{PORTAL_GROUP}", self.local));
            }
        }
        answers
    }

    fn log_out(&self, pdu: &Pdu) {
        let Some(session) = self.session.get() else {
            return;
        };
        let is_own = u16_at(&pdu.header, 20) == session.connection_number;
        let code = match pdu.header[1] & 0x7f {
            0 => 0,
            1 if is_own => 0,
            1 => 1,
            _ => 2,
        };
        let reply = Pdu::reply(replies::LOGOUT, pdu.task_tag())
            .with_u8(2, code)
            .with_u32(20, 0);
        if code == 0 {
            session.tasks().abort_all();
            self.output.send_held(&self.stream);
            session.wait_for_aborted();
        }
        self.send(reply, Counts::Status);
        if code == 0 {
            self.output.send_last(&self.stream);
            self.close();
        }
    }
}

fn complete_if(is_done: bool) -> u8 {
    match is_done {
        true => responses::COMPLETE,
        false => responses::REJECTED,
    }
}

fn text_reply(pdu: &Pdu, flags: u8, text: Vec<u8>, tag: u32) -> Pdu {
    Pdu::reply(replies::TEXT, pdu.task_tag())
        .with_u8(1, flags)
        .with_u32(20, tag)
        .with_data(text)
}

/// Whether a LUN names unit 0, by the peripheral or the flat method.
fn is_unit_0(lun: [u8; 8]) -> bool {
    let is_number_0 = matches!(lun[..2], [0x00 | 0x40, 0]);
    is_number_0 && lun[2..] == [0; 6]
}

/// The units of other targets that an initiator may use.
struct UnitsOf<'a> {
    targets: &'a dyn Targets,
    initiator: &'a str,
}

/// A target that is in use for a copy.
struct Borrowed<'a> {
    targets: &'a dyn Targets,
    target: Arc<Target>,
}

impl AsRef<LogicalUnit> for Borrowed<'_> {
    fn as_ref(&self) -> &LogicalUnit {
        &self.target.unit
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.targets.release(self.target.clone());
    }
}

impl OtherUnits for UnitsOf<'_> {
    fn find(&self, naa: u64) -> Option<Box<dyn AsRef<LogicalUnit> + '_>> {
        let target = self.targets.open_unit(naa, self.initiator)?;
        Some(Box::new(Borrowed {
            targets: self.targets,
            target,
        }))
    }
}

/// Carries out a command of a session.
fn execute(
    targets: &dyn Targets,
    session: &Session,
    target: &Target,
    command: &Command,
) -> Outcome {
    if command.is_garbled {
        return Err(Sense::new(SenseKey::AbortedCommand, asc::DATA_PHASE_ERROR).into());
    }
    if !is_unit_0(command.lun) {
        return match command.cdb[0] {
            codes::INQUIRY => inquiry::absent(&command.cdb),
            codes::REPORT_LUNS => report_luns(&command.cdb),
            _ => Err(Sense::illegal(asc::LOGICAL_UNIT_NOT_SUPPORTED).into()),
        };
    }
    let request = Request {
        nexus: &session.nexus,
        cdb: &command.cdb,
        data: &command.data,
        announced_bytes: match command.writes {
            true => u64::from(command.expected_bytes),
            false => 0,
        },
        others: &UnitsOf {
            targets,
            initiator: &session.initiator,
        },
    };
    on_behalf_of(session.client, || target.unit.execute(&request))
}
