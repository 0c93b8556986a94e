//! A logical unit: one volume as a disk, for all sessions of its target.
//!
//! # Mechanism
//! A command passes, in this order, what SAM-5 (5.3) and SPC-4 (5.12) ask for: a pending unit
//! attention of its nexus, reservations of others, then its own checks. State that commands share
//! (mode pages, reservations, attentions) is behind one short lock, which is not held while the
//! volume is read or written.
//!
//! Commands that read, compare and write in one step (COMPARE AND WRITE, ORWRITE) exclude other
//! writes of this unit meanwhile (`writes`). Writers of the volume by another way are not excluded.
//!
//! # The write cache
//! With WCE=1 a write is acknowledged when the volume has it in memory, and SYNCHRONIZE CACHE makes
//! it durable. With WCE=0, and with FUA, the acknowledgement waits until the intent log has it
//! ([`Done::must_flush`]), so that several writes share one log write.

use crate::scsi::copying::{Copies, OtherUnits};
use crate::scsi::modes::Modes;
use crate::scsi::persistent::Persistent;
use crate::scsi::sense::{Code, SenseFormat, codes as asc};
use crate::scsi::{Cdb, SECTOR_BYTES, Sense, SenseKey, codes};
use crate::storage::{Contents, SharedStorage, StorageError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Most unit attentions that wait for one nexus; further ones are dropped. A guess: a session that
/// sends no command learns no more than that something happened.
const ATTENTIONS_MAX: usize = 8;

/// An initiator port, as it names itself to the target's port: `NAME,i,0xISID` (RFC 7143, 4.4).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nexus(pub String);

/// What the unit is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of the target that it belongs to.
    pub target: String,
    /// The guid of the volume, from which its NAA name and its serial number are made.
    pub guid: u64,
}

/// A command with its data.
pub struct Request<'a> {
    /// Who sends it.
    pub nexus: &'a Nexus,
    /// The command.
    pub cdb: &'a Cdb,
    /// The data that came with it: at most what it takes, less where the initiator has less.
    pub data: &'a [u8],
    /// How much the initiator has for it, in bytes.
    pub announced_bytes: u64,
    /// What it may copy from and to.
    pub others: &'a dyn OtherUnits,
}

impl Request<'_> {
    /// Refuses a command whose data must be exactly what it takes.
    ///
    /// # Errors
    /// INVALID FIELD IN CDB.
    pub(crate) fn refuse_other_length(&self, field: u16) -> Result<(), Refused> {
        let taken = crate::scsi::data_out_bytes(self.cdb);
        match taken == self.announced_bytes && taken == low_u64(self.data.len()) {
            true => Ok(()),
            false => Err(Sense::in_cdb(field).into()),
        }
    }
}

fn low_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A command that was carried out: status GOOD.
pub struct Done {
    /// What the initiator gets.
    pub data: Contents,
    /// The status is sent when the volume was flushed.
    pub must_flush: bool,
    /// What others must hear of.
    pub events: Vec<UnitEvent>,
}

/// What one command means for the tasks of other sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitEvent {
    /// Its tasks end without a reply.
    Abort(Nexus),
}

impl Done {
    /// Nothing to send.
    pub fn nothing() -> Done {
        Done::with(Vec::new())
    }

    /// These bytes.
    pub fn with(bytes: Vec<u8>) -> Done {
        Done::contents(Contents::Bytes(bytes))
    }

    /// What was read.
    pub fn contents(data: Contents) -> Done {
        Done {
            data,
            must_flush: false,
            events: Vec::new(),
        }
    }

    /// These bytes, of which the initiator has room for so many.
    pub fn cut(mut bytes: Vec<u8>, room: usize) -> Done {
        bytes.truncate(room);
        Done::with(bytes)
    }

    /// Nothing, when the volume was flushed.
    pub fn flushed(must_flush: bool) -> Done {
        Done {
            must_flush,
            ..Done::nothing()
        }
    }
}

/// Why a command was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// CHECK CONDITION.
    Check(Sense),
    /// BUSY: to be sent again.
    Busy,
    /// RESERVATION CONFLICT.
    Conflict,
}

impl From<Sense> for Refused {
    fn from(sense: Sense) -> Refused {
        Refused::Check(sense)
    }
}

/// What it did, or why not.
pub type Outcome = Result<Done, Refused>;

/// What a volume cannot do, in the words of SCSI.
pub fn refused_by(error: StorageError, is_write: bool) -> Refused {
    let (key, code) = match error {
        StorageError::Suspended => return Refused::Busy,
        StorageError::Ended => (SenseKey::NotReady, asc::NOT_READY_CAUSE_NOT_REPORTABLE),
        StorageError::NoSpace => (SenseKey::DataProtect, asc::SPACE_ALLOCATION_FAILED),
        StorageError::ReadOnly => (SenseKey::DataProtect, asc::WRITE_PROTECTED),
        StorageError::OutOfRange => (SenseKey::IllegalRequest, asc::LBA_OUT_OF_RANGE),
        StorageError::Io if is_write => (SenseKey::MediumError, asc::WRITE_ERROR),
        StorageError::Io => (SenseKey::MediumError, asc::UNRECOVERED_READ_ERROR),
    };
    Refused::Check(Sense::new(key, code))
}

/// The state that commands share.
#[derive(Default)]
pub(crate) struct UnitState {
    pub modes: Modes,
    /// Those that a reset brings back.
    pub saved_modes: Modes,
    pub persistent: Persistent,
    /// RESERVE(6).
    pub reserved_by: Option<Nexus>,
    /// START STOP UNIT stopped it.
    pub is_stopped: bool,
    pub copies: Copies,
    /// The sessions, each with what it was not told yet.
    nexuses: BTreeMap<Nexus, VecDeque<Code>>,
}

impl UnitState {
    /// Has all sessions but one told of something.
    pub fn tell_others(&mut self, but: Option<&Nexus>, code: Code) {
        let others = self.nexuses.iter_mut();
        for (_, waiting) in others.filter(|(nexus, _)| Some(*nexus) != but) {
            tell(waiting, code);
        }
    }

    /// Has one session told.
    pub fn tell_one(&mut self, nexus: &Nexus, code: Code) {
        if let Some(waiting) = self.nexuses.get_mut(nexus) {
            tell(waiting, code);
        }
    }
}

fn tell(waiting: &mut VecDeque<Code>, code: Code) {
    if waiting.len() < ATTENTIONS_MAX && !waiting.contains(&code) {
        waiting.push_back(code);
    }
}

/// One volume as a disk.
pub struct LogicalUnit {
    pub(crate) storage: SharedStorage,
    pub(crate) identity: Identity,
    state: Mutex<UnitState>,
    writes: RwLock<()>,
    /// The size that initiators know.
    told_bytes: Mutex<u64>,
}

impl LogicalUnit {
    /// A unit without sessions. Reservations that were parked, or saved, are in force again, and
    /// the write cache is on or off as it was saved.
    ///
    /// # Errors
    /// When they cannot be read: without them a second node of a cluster could write.
    pub fn new(
        storage: SharedStorage,
        identity: Identity,
        parked: Option<Persistent>,
    ) -> Result<LogicalUnit, StorageError> {
        let persistent = match parked {
            Some(parked) => parked,
            None => {
                let saved = storage.saved_reservations()?;
                Persistent::from_saved(saved.as_deref(), identity.guid)
            }
        };
        let modes = Modes::with_write_cache(storage.saved_write_cache()?);
        let state = UnitState {
            persistent,
            saved_modes: modes.clone(),
            modes,
            ..UnitState::default()
        };
        let told_bytes = Mutex::new(storage.size_bytes());
        Ok(LogicalUnit {
            storage,
            identity,
            state: Mutex::new(state),
            writes: RwLock::default(),
            told_bytes,
        })
    }

    /// The volume.
    pub fn storage(&self) -> &SharedStorage {
        &self.storage
    }

    /// The guid of the volume.
    pub fn guid(&self) -> u64 {
        self.identity.guid
    }

    /// The persistent reservations, to be given to the next unit of this volume.
    pub fn park(&self) -> Persistent {
        self.state().persistent.clone()
    }

    /// How many logical blocks there are.
    pub fn blocks(&self) -> u64 {
        self.storage.size_bytes() / SECTOR_BYTES
    }

    /// A session begins. The first command learns that the unit may have lost volatile state.
    pub fn begin_nexus(&self, nexus: &Nexus) {
        let waiting = VecDeque::from([asc::POWER_ON_OR_RESET]);
        self.state().nexuses.insert(nexus.clone(), waiting);
    }

    /// A session ended: it loses what it reserved with RESERVE(6).
    pub fn end_nexus(&self, nexus: &Nexus) {
        let mut state = self.state();
        state.nexuses.remove(nexus);
        if state.reserved_by.as_ref() == Some(nexus) {
            state.reserved_by = None;
        }
    }

    /// LOGICAL UNIT RESET or a reset of the target: mode pages are as they were saved, and what was
    /// reserved with RESERVE(6) is free. The initiator that asked for it knows; others are told.
    pub fn reset(&self, by: &Nexus) {
        let mut state = self.state();
        state.modes = state.saved_modes.clone();
        state.reserved_by = None;
        state.is_stopped = false;
        state.tell_others(Some(by), asc::BUS_DEVICE_RESET);
    }

    /// The volume has another size: initiators are told once.
    pub fn size_changed(&self) {
        let size_bytes = self.storage.size_bytes();
        let mut told = self
            .told_bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *told != size_bytes {
            *told = size_bytes;
            self.state().tell_others(None, asc::CAPACITY_CHANGED);
        }
    }

    /// The format of sense data.
    pub fn sense_format(&self) -> SenseFormat {
        self.state().modes.sense_format()
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// The status that is not GOOD, with its sense data.
    pub fn execute(&self, request: &Request<'_>) -> Outcome {
        let code = request.cdb[0];
        {
            let mut state = self.state();
            if !matches!(
                code,
                codes::INQUIRY | codes::REPORT_LUNS | codes::REQUEST_SENSE
            ) && let Some(attention) = next_attention(&mut state, request.nexus)
            {
                return Err(attention.into());
            }
            if state.conflicts(request) {
                return Err(Refused::Conflict);
            }
            if state.is_stopped && crate::scsi::block_commands::uses_medium(code) {
                let code = asc::INITIALIZING_COMMAND_REQUIRED;
                return Err(Sense::new(SenseKey::NotReady, code).into());
            }
        }
        self.carry_out(request)
    }

    fn carry_out(&self, request: &Request<'_>) -> Outcome {
        use codes::*;
        match request.cdb[0] {
            TEST_UNIT_READY => self.test_unit_ready(),
            REQUEST_SENSE => self.request_sense(request),
            INQUIRY => self.inquiry(request.cdb),
            REPORT_LUNS => report_luns(request.cdb),
            READ_CAPACITY_10 => self.read_capacity_10(),
            SERVICE_ACTION_IN_16 => match request.cdb[1] & 0x1f {
                0x10 => self.read_capacity_16(request.cdb),
                0x12 => self.block_status(request.cdb),
                _ => Err(Sense::bit_in_cdb(1, 4).into()),
            },
            MODE_SENSE_6 | MODE_SENSE_10 => self.mode_sense(request.cdb),
            MODE_SELECT_6 | MODE_SELECT_10 => self.mode_select(request),
            START_STOP_UNIT => self.start_stop(request.cdb),
            PREVENT_ALLOW_MEDIUM_REMOVAL => Ok(Done::nothing()),
            READ_6 | READ_10 | READ_12 | READ_16 => self.read(request.cdb),
            WRITE_6 | WRITE_10 | WRITE_12 | WRITE_16 | WRITE_AND_VERIFY_10
            | WRITE_AND_VERIFY_12 | WRITE_AND_VERIFY_16 => self.write(request),
            VERIFY_10 | VERIFY_12 | VERIFY_16 => self.verify(request),
            COMPARE_AND_WRITE => self.compare_and_write(request),
            ORWRITE_16 => self.or_write(request),
            PRE_FETCH_10 | PRE_FETCH_16 => self.pre_fetch(request.cdb),
            SYNCHRONIZE_CACHE_10 | SYNCHRONIZE_CACHE_16 => self.synchronize_cache(request.cdb),
            WRITE_SAME_10 | WRITE_SAME_16 => self.write_same(request),
            UNMAP => self.unmap(request),
            RESERVE_6 => self.reserve_6(request),
            RELEASE_6 => self.release_6(request),
            PERSISTENT_RESERVE_IN => self.persistent_reserve_in(request.cdb),
            PERSISTENT_RESERVE_OUT => self.persistent_reserve_out(request),
            MAINTENANCE_IN => match request.cdb[1] & 0x1f {
                0x0a => Ok(self.report_target_port_groups(request.cdb)),
                0x0c => crate::scsi::opcodes::report(request.cdb),
                _ => Err(Sense::bit_in_cdb(1, 4).into()),
            },
            READ_DEFECT_DATA_10 | READ_DEFECT_DATA_12 => read_defect_data(request.cdb),
            EXTENDED_COPY => self.extended_copy(request),
            RECEIVE_COPY_RESULTS => self.receive_copy_results(request),
            _ => Err(Sense::illegal(asc::INVALID_COMMAND_OPERATION_CODE).into()),
        }
    }

    /// Writes of other commands may go on beside this one.
    pub(crate) fn begin_write(&self) -> RwLockReadGuard<'_, ()> {
        self.writes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// No other write of this unit goes on.
    pub(crate) fn exclude_writes(&self) -> RwLockWriteGuard<'_, ()> {
        self.writes.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, UnitState> {
        // A thread that panicked under the lock left each part whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn test_unit_ready(&self) -> Outcome {
        let state = self.state();
        match state.is_stopped {
            true => Err(Sense::new(SenseKey::NotReady, asc::INITIALIZING_COMMAND_REQUIRED).into()),
            false => Ok(Done::nothing()),
        }
    }

    fn request_sense(&self, request: &Request<'_>) -> Outcome {
        let mut state = self.state();
        let nothing = Sense::new(SenseKey::NoSense, asc::NONE);
        let sense = next_attention(&mut state, request.nexus).unwrap_or(nothing);
        let format = match request.cdb[1] & 1 {
            0 => SenseFormat::Fixed,
            _ => SenseFormat::Descriptors,
        };
        Ok(Done::cut(sense.bytes(format), usize::from(request.cdb[4])))
    }

    fn start_stop(&self, cdb: &Cdb) -> Outcome {
        if cdb[4] & 0x02 != 0 {
            // There is no medium to load or eject.
            return Err(Sense::bit_in_cdb(4, 1).into());
        }
        if cdb[4] >> 4 == 0 {
            let starts = cdb[4] & 1 != 0;
            self.state().is_stopped = !starts;
            if !starts {
                return Ok(Done::flushed(true));
            }
        }
        // Power conditions other than started and stopped are the same here.
        Ok(Done::nothing())
    }
}

/// What a session has to hear of before its next command.
fn next_attention(state: &mut UnitState, nexus: &Nexus) -> Option<Sense> {
    let code = state.nexuses.get_mut(nexus)?.pop_front()?;
    Some(Sense::new(SenseKey::UnitAttention, code))
}

/// REPORT LUNS: every target has the unit 0.
pub fn report_luns(cdb: &Cdb) -> Outcome {
    use crate::scsi::fields::{to_usize, u32_at};
    let room = u64::from(u32_at(cdb, 6));
    if room < 16 {
        return Err(Sense::in_cdb(6).into());
    }
    // Well-known units (1) there are none; all others (0, 2) are LUN 0.
    let mut bytes = vec![0; 8];
    match cdb[2] {
        0 | 2 => {
            bytes[3] = 8;
            bytes.resize(16, 0);
        }
        1 => {}
        _ => return Err(Sense::in_cdb(2).into()),
    }
    Ok(Done::cut(bytes, to_usize(room)))
}

/// READ DEFECT DATA: a volume has no list of defects.
fn read_defect_data(cdb: &Cdb) -> Outcome {
    use crate::scsi::fields::{to_usize, u16_at, u32_at};
    match cdb[0] {
        codes::READ_DEFECT_DATA_10 => {
            let bytes = vec![0, cdb[2] & 0x1f, 0, 0];
            Ok(Done::cut(bytes, usize::from(u16_at(cdb, 7))))
        }
        _ => {
            let bytes = vec![0, cdb[1] & 0x1f, 0, 0, 0, 0, 0, 0];
            Ok(Done::cut(bytes, to_usize(u64::from(u32_at(cdb, 6)))))
        }
    }
}
