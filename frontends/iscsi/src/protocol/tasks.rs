//! The commands of a session: their numbers, and data that initiators send for them.
//!
//! # Mechanism
//! A command that has all of its data is *running*; before that it *waits*. Data comes with the
//! command, unsolicited after it, or when this target asks for it (R2T), one burst at a time. What
//! all commands may have asked for together is bounded ([`ASKED_BYTES_MAX`]); others are asked for
//! when some have ended.
//!
//! The window tells the initiator how many commands it may send (MaxCmdSN). It shrinks with those
//! that have not ended, and never goes back.

use crate::protocol::parameters::Parameters;
use crate::protocol::pdu::{FINAL, NO_TAG, Pdu, replies};
use crate::scsi::fields::{low_u32, put};
use crate::scsi::{Cdb, data_out_bytes};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Commands that one session may have under way.
const DEPTH: u32 = 128;
const DEPTH_COUNT: usize = 128;

/// Most bytes of data that commands of one session may have been asked for together: a guess,
/// several of the largest transfers.
const ASKED_BYTES_MAX: usize = 64 << 20;

/// A command that has its data.
#[derive(Debug, Clone)]
pub struct Command {
    /// Its task tag.
    pub tag: u32,
    /// Its unit.
    pub lun: [u8; 8],
    /// What is to be done.
    pub cdb: Cdb,
    /// The data for it.
    pub data: Vec<u8>,
    /// ExpectedDataTransferLength, in bytes.
    pub expected_bytes: u32,
    /// Its data came out of order: it must not be carried out.
    pub is_garbled: bool,
    /// The initiator reads.
    pub reads: bool,
    /// The initiator writes.
    pub writes: bool,
    /// It was aborted: it ends without a reply.
    pub is_aborted: Arc<AtomicBool>,
}

impl Command {
    /// Of a PDU.
    fn of(pdu: &Pdu) -> Command {
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&pdu.header[32..48]);
        Command {
            tag: pdu.task_tag(),
            lun: pdu.lun(),
            cdb,
            data: Vec::new(),
            expected_bytes: pdu.u32(20),
            is_garbled: false,
            reads: pdu.header[1] & 0x40 != 0,
            writes: pdu.header[1] & 0x20 != 0,
            is_aborted: Arc::default(),
        }
    }

    /// How many bytes it takes from the initiator, which may have less.
    fn taken_bytes(&self) -> usize {
        if !self.writes {
            return 0;
        }
        let taken = data_out_bytes(&self.cdb).min(u64::from(self.expected_bytes));
        usize::try_from(taken).expect("a transfer is bounded")
    }
}

/// Where the data comes from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Burst {
    /// It was not asked for.
    Unsolicited,
    /// It was asked for by this transfer tag, up to this place.
    Solicited { tag: u32, end: usize },
    /// It will be asked for when others have ended.
    Postponed,
}

/// A command whose data is coming.
#[derive(Debug)]
struct Waiting {
    command: Command,
    taken: usize,
    /// The place of the next byte. Beyond `taken` data is not kept.
    position: usize,
    burst: Burst,
    data_number: u32,
    r2t_number: u32,
    is_counted: bool,
}

/// Why a PDU is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskError {
    /// Its number is out of the window: it is ignored.
    Ignored,
    /// A task of this tag is under way: REJECT.
    InProgress,
    /// It breaks the rules of the protocol: the connection ends.
    Protocol,
}

/// What taking a PDU led to.
#[derive(Debug)]
pub enum Taken {
    /// A command has its data.
    Ready(Command),
    /// This R2T is to be sent, when its numbers are filled in.
    Ask(Pdu),
    /// More data comes.
    Nothing,
}

/// What became of a task that is to be aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abort {
    /// It had not begun.
    Dropped,
    /// It will end without a reply.
    Running,
    /// There is none.
    Unknown,
}

/// The commands of a session.
#[derive(Debug)]
pub struct Tasks {
    expected: u32,
    most: u32,
    waiting: BTreeMap<u32, Waiting>,
    running: BTreeMap<u32, Running>,
    postponed: VecDeque<u32>,
    asked_bytes: usize,
    next_tag: u32,
}

#[derive(Debug)]
struct Running {
    is_aborted: Arc<AtomicBool>,
    asked_bytes: usize,
}

impl Tasks {
    /// None; the first command has this number.
    pub fn new(first: u32) -> Tasks {
        Tasks {
            expected: first,
            most: first.wrapping_add(DEPTH - 1),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            postponed: VecDeque::new(),
            asked_bytes: 0,
            next_tag: 1,
        }
    }

    /// ExpCmdSN and MaxCmdSN, as they are told now.
    pub fn window(&mut self) -> (u32, u32) {
        let under_way = low_u32(self.waiting.len() + self.running.len());
        let room = DEPTH.saturating_sub(under_way);
        let most = self.expected.wrapping_add(room).wrapping_sub(1);
        if is_after(most, self.most) {
            self.most = most;
        }
        (self.expected, self.most)
    }

    /// Takes the number of a request that is not a command, or of a command.
    ///
    /// # Errors
    /// [`TaskError::Ignored`] out of the window; [`TaskError::Protocol`] where a number is skipped,
    /// which cannot happen on one connection.
    pub fn take_number(&mut self, pdu: &Pdu) -> Result<(), TaskError> {
        let number = pdu.command_number();
        if pdu.is_immediate() {
            let is_flood = self.waiting.len() + self.running.len() >= 2 * DEPTH_COUNT;
            return match is_flood {
                true => Err(TaskError::Protocol),
                false => Ok(()),
            };
        }
        if is_after(self.expected, number) || is_after(number, self.most) {
            return Err(TaskError::Ignored);
        }
        if number != self.expected {
            return Err(TaskError::Protocol);
        }
        self.expected = self.expected.wrapping_add(1);
        Ok(())
    }

    /// Takes a SCSI command.
    ///
    /// # Errors
    /// See [`TaskError`].
    pub fn take_command(&mut self, pdu: Pdu, agreed: &Parameters) -> Result<Taken, TaskError> {
        self.take_number(&pdu)?;
        let mut command = Command::of(&pdu);
        if self.waiting.contains_key(&command.tag) || self.running.contains_key(&command.tag) {
            return Err(TaskError::InProgress);
        }
        let first = usize::try_from(agreed.first_burst_bytes_max).unwrap_or(usize::MAX);
        let (is_final, sent) = (pdu.is_final(), pdu.data.len());
        let is_allowed = match sent {
            0 => true,
            _ => command.writes && agreed.immediate_data && sent <= first,
        };
        let may_follow = is_final || (command.writes && !agreed.initial_r2t);
        if !is_allowed || !may_follow || command.tag == NO_TAG {
            return Err(TaskError::Protocol);
        }
        let taken = command.taken_bytes();
        command.data = pdu.data;
        command.data.truncate(taken);
        let waiting = Waiting {
            command,
            taken,
            position: sent,
            burst: Burst::Unsolicited,
            data_number: 0,
            r2t_number: 0,
            is_counted: false,
        };
        Ok(match is_final {
            true => self.go_on(waiting, agreed),
            false => {
                self.waiting.insert(waiting.command.tag, waiting);
                Taken::Nothing
            }
        })
    }

    /// Takes data for a command. Data for one that has ended is dropped.
    ///
    /// # Errors
    /// See [`TaskError`].
    pub fn take_data(&mut self, pdu: Pdu, agreed: &Parameters) -> Result<Taken, TaskError> {
        let Some(mut waiting) = self.waiting.remove(&pdu.task_tag()) else {
            return Ok(Taken::Nothing);
        };
        let offset = usize::try_from(pdu.u32(40)).unwrap_or(usize::MAX);
        let first = usize::try_from(agreed.first_burst_bytes_max).unwrap_or(usize::MAX);
        let (tag, end) = match waiting.burst {
            Burst::Unsolicited => (NO_TAG, first),
            Burst::Solicited { tag, end } => (tag, end),
            Burst::Postponed => return Err(TaskError::Protocol),
        };
        let is_in_order = offset == waiting.position && pdu.u32(36) == waiting.data_number;
        let next = waiting.position + pdu.data.len();
        if pdu.transfer_tag() != tag || next > end {
            return Err(TaskError::Protocol);
        }
        if !is_in_order {
            // It ends with an error; what still comes for it is dropped.
            waiting.command.is_garbled = true;
            waiting.position = waiting.position.max(waiting.taken);
            return Ok(self.go_on(waiting, agreed));
        }
        let kept = waiting.taken.saturating_sub(waiting.position);
        let kept = &pdu.data[..pdu.data.len().min(kept)];
        waiting.command.data.extend_from_slice(kept);
        waiting.position = next;
        waiting.data_number = waiting.data_number.wrapping_add(1);
        if !pdu.is_final() {
            self.waiting.insert(waiting.command.tag, waiting);
            return Ok(Taken::Nothing);
        }
        if matches!(waiting.burst, Burst::Solicited { .. }) && next != end {
            return Err(TaskError::Protocol);
        }
        Ok(self.go_on(waiting, agreed))
    }

    /// A burst has ended: runs the command or asks for the next.
    fn go_on(&mut self, mut waiting: Waiting, agreed: &Parameters) -> Taken {
        if waiting.position >= waiting.taken {
            let command = waiting.command;
            let running = Running {
                is_aborted: command.is_aborted.clone(),
                asked_bytes: if waiting.is_counted { waiting.taken } else { 0 },
            };
            self.running.insert(command.tag, running);
            return Taken::Ready(command);
        }
        let tag = waiting.command.tag;
        if !waiting.is_counted {
            let is_alone = self.asked_bytes == 0;
            if !is_alone && self.asked_bytes + waiting.taken > ASKED_BYTES_MAX {
                waiting.burst = Burst::Postponed;
                self.waiting.insert(tag, waiting);
                self.postponed.push_back(tag);
                return Taken::Nothing;
            }
            waiting.is_counted = true;
            self.asked_bytes += waiting.taken;
            let missing = waiting.taken - waiting.command.data.len();
            waiting.command.data.reserve_exact(missing);
        }
        Taken::Ask(self.ask(waiting, agreed))
    }

    /// The R2T for the next burst of a command.
    fn ask(&mut self, mut waiting: Waiting, agreed: &Parameters) -> Pdu {
        let burst = usize::try_from(agreed.burst_bytes_max).unwrap_or(usize::MAX);
        let length = (waiting.taken - waiting.position).min(burst);
        let transfer = self.next_tag;
        self.next_tag = match self.next_tag.wrapping_add(1) {
            NO_TAG => 1,
            tag => tag,
        };
        let mut pdu = Pdu::reply(replies::READY_TO_TRANSFER, waiting.command.tag)
            .with_u8(1, FINAL)
            .with_u32(20, transfer)
            .with_u32(36, waiting.r2t_number)
            .with_u32(40, low_u32(waiting.position))
            .with_u32(44, low_u32(length));
        put(&mut pdu.header, 8, &waiting.command.lun);
        waiting.burst = Burst::Solicited {
            tag: transfer,
            end: waiting.position + length,
        };
        waiting.data_number = 0;
        waiting.r2t_number = waiting.r2t_number.wrapping_add(1);
        self.waiting.insert(waiting.command.tag, waiting);
        pdu
    }

    /// A command has ended. Gives an R2T of one that waited for that.
    pub fn end(&mut self, tag: u32, agreed: &Parameters) -> Option<Pdu> {
        if let Some(running) = self.running.remove(&tag) {
            self.asked_bytes -= running.asked_bytes;
        }
        self.ask_postponed(agreed)
    }

    fn ask_postponed(&mut self, agreed: &Parameters) -> Option<Pdu> {
        while let Some(tag) = self.postponed.pop_front() {
            let Some(waiting) = self.waiting.remove(&tag) else {
                continue;
            };
            return match self.go_on(waiting, agreed) {
                Taken::Ask(pdu) => Some(pdu),
                _ => None,
            };
        }
        None
    }

    /// Aborts a task.
    pub fn abort(&mut self, tag: u32) -> Abort {
        if let Some(waiting) = self.waiting.remove(&tag) {
            if waiting.is_counted {
                self.asked_bytes -= waiting.taken;
            }
            return Abort::Dropped;
        }
        match self.running.get(&tag) {
            Some(running) => {
                running.is_aborted.store(true, Ordering::Release);
                Abort::Running
            }
            None => Abort::Unknown,
        }
    }

    /// Aborts all of them.
    pub fn abort_all(&mut self) {
        let waiting: Vec<u32> = self.waiting.keys().copied().collect();
        for tag in waiting {
            self.abort(tag);
        }
        for running in self.running.values() {
            running.is_aborted.store(true, Ordering::Release);
        }
    }

    /// Whether a task runs.
    pub fn is_running(&self, tag: u32) -> bool {
        self.running.contains_key(&tag)
    }

    /// Whether an aborted task still runs.
    pub fn has_aborted(&self) -> bool {
        let mut running = self.running.values();
        running.any(|one| one.is_aborted.load(Ordering::Acquire))
    }
}

/// Whether a number comes after another (RFC 1982).
fn is_after(a: u32, b: u32) -> bool {
    let distance = a.wrapping_sub(b);
    distance != 0 && distance < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed() -> Parameters {
        Parameters {
            initial_r2t: false,
            burst_bytes_max: 1024,
            first_burst_bytes_max: 512,
            ..Parameters::default()
        }
    }

    /// WRITE (10) of some blocks.
    fn write(tag: u32, number: u32, blocks: u8, data: &[u8], is_final: bool) -> Pdu {
        let mut pdu = Pdu::new(1)
            .with_u8(1, 0x20 | if is_final { FINAL } else { 0 })
            .with_u32(16, tag)
            .with_u32(20, u32::from(blocks) * 512)
            .with_u32(24, number)
            .with_data(data.to_vec());
        pdu.header[32] = 0x2a;
        pdu.header[40] = blocks;
        pdu
    }

    fn data(tag: u32, transfer: u32, number: u32, offset: u32, bytes: &[u8]) -> Pdu {
        Pdu::new(5)
            .with_u32(16, tag)
            .with_u32(20, transfer)
            .with_u32(36, number)
            .with_u32(40, offset)
            .with_data(bytes.to_vec())
    }

    #[test]
    fn data_comes_with_the_command_and_in_bursts_that_are_asked_for() {
        let mut tasks = Tasks::new(1);
        let taken = tasks.take_command(write(7, 1, 4, &[1; 512], true), &agreed());
        let Ok(Taken::Ask(r2t)) = taken else {
            panic!("{taken:?}")
        };
        assert_eq!((r2t.u32(40), r2t.u32(44)), (512, 1024));
        let first = data(7, r2t.transfer_tag(), 0, 512, &[2; 1024]);
        let Ok(Taken::Ask(r2t)) = tasks.take_data(first, &agreed()) else {
            panic!("a second burst")
        };
        assert_eq!((r2t.u32(40), r2t.u32(44)), (1536, 512));
        let second = data(7, r2t.transfer_tag(), 0, 1536, &[3; 512]);
        let Ok(Taken::Ready(command)) = tasks.take_data(second, &agreed()) else {
            panic!("all data is there")
        };
        assert_eq!(command.data.len(), 2048);
        assert!(tasks.is_running(7));
        tasks.end(7, &agreed());
        assert_eq!(tasks.asked_bytes, 0);
        assert_eq!(tasks.window(), (2, 129));
    }

    #[test]
    fn data_that_was_not_asked_for_ends_the_connection() {
        for wrong in [
            data(7, 99, 0, 512, &[2; 1024]),
            data(7, 1, 0, 512, &[2; 1025]),
            data(7, 1, 0, 512, &[2; 10]),
        ] {
            let mut tasks = Tasks::new(1);
            let taken = tasks.take_command(write(7, 1, 4, &[1; 512], true), &agreed());
            assert!(matches!(taken, Ok(Taken::Ask(_))));
            let taken = tasks.take_data(wrong, &agreed());
            assert!(matches!(taken, Err(TaskError::Protocol)), "{taken:?}");
        }
    }

    #[test]
    fn a_command_whose_data_is_out_of_order_is_garbled() {
        for wrong in [data(7, 1, 1, 512, &[2; 512]), data(7, 1, 0, 0, &[2; 512])] {
            let mut tasks = Tasks::new(1);
            let taken = tasks.take_command(write(7, 1, 4, &[1; 512], true), &agreed());
            assert!(matches!(taken, Ok(Taken::Ask(_))));
            let taken = tasks.take_data(wrong, &agreed());
            assert!(matches!(taken, Ok(Taken::Ready(command)) if command.is_garbled));
            let late = tasks.take_data(data(7, 1, 1, 1024, &[2; 512]), &agreed());
            assert!(matches!(late, Ok(Taken::Nothing)));
        }
    }

    #[test]
    fn numbers_out_of_the_window_are_ignored() {
        let mut tasks = Tasks::new(u32::MAX);
        for number in [u32::MAX - 1, 127, 5000] {
            let taken = tasks.take_command(write(1, number, 0, &[], true), &agreed());
            assert!(matches!(taken, Err(TaskError::Ignored)), "{number}");
        }
        let skipped = tasks.take_command(write(1, 3, 0, &[], true), &agreed());
        assert!(matches!(skipped, Err(TaskError::Protocol)));
        let taken = tasks.take_command(write(1, u32::MAX, 0, &[], true), &agreed());
        assert!(matches!(taken, Ok(Taken::Ready(_))));
        let taken = tasks.take_command(write(1, 0, 0, &[], true), &agreed());
        assert!(matches!(taken, Err(TaskError::InProgress)));
        assert_eq!(tasks.window().0, 1);
    }

    #[test]
    fn what_is_asked_for_together_is_bounded() {
        let mut tasks = Tasks::new(0);
        let mut asked = 0;
        for number in 0..100 {
            let mut pdu = write(number, number, 0, &[], true).with_u32(20, 8 << 20);
            put(&mut pdu.header, 39, &0x4000_u16.to_be_bytes());
            match tasks.take_command(pdu, &agreed()) {
                Ok(Taken::Ask(_)) => asked += 1,
                Ok(Taken::Nothing) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(asked, 8);
        assert_eq!(tasks.abort(0), Abort::Dropped);
        assert!(
            tasks.end(0, &agreed()).is_some(),
            "one that waited is asked for"
        );
        tasks.abort_all();
        assert_eq!(tasks.asked_bytes, 0);
        assert_eq!(tasks.abort(5), Abort::Unknown);
    }
}
