//! Replay: the records of a log are applied again after a crash.
//!
//! # Mechanism
//! When a file system is opened for writing, before it is served, the records of its log are
//! applied in order, each by the layer that knows what it means (the door [`Replay`]). A record is
//! applied by an ordinary transaction, and in the group of that transaction the head of the object
//! set says that it was: after a crash in the middle replay goes on behind what is stored.
//!
//! Records of groups that were stored are passed over, and those of files that are gone: what only
//! one file needs may be in the log though the removal of the file is in the pool.
//!
//! Numbers of objects that were freed can be used again only when that is stored. So a record that
//! fails is tried once more after everything before it is stored.
//!
//! # Invariants
//! - Records are applied in the order of their sequence, each at most once, and none behind one
//!   that could not be applied.
//! - A log that cannot be read as far as it was claimed is replayed up to there, and kept.
//!
//! # Knows nothing about
//! What records mean.

use std::error::Error;
use std::ops::ControlFlow;

use tarn_block::{Block, BlockScope};
use tarn_host::canary::{Canary, sings};
use tarn_object::{AssignError, ObjectError};
use tarn_ondisk::block_pointer::PointerKind;
use tarn_ondisk::intent_log::{LogRecord, LoggedChange, LoggedWrite};
use tarn_ondisk::objset::IntentLogHead;
use tarn_probe::{Operation, OperationKind};

use crate::chain::{ChainEnd, Found, walk};
use crate::log::IntentLog;

/// Largest block of a file.
const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// Why a record could not be applied.
pub type Refusal = Box<dyn Error + Send + Sync>;

/// Applies records. A door: the layers above know what records mean.
pub trait Replay {
    /// Applies a record again, in transactions of its own; in the last of them
    /// [`IntentLog::record`] or [`IntentLog::note_replayed`] is called.
    ///
    /// # Errors
    /// Why it cannot be applied; nothing has changed then, or trying again brings it to the end.
    fn replay(
        &self,
        record: &LogRecord,
        data: Option<&WrittenData>,
        operation: &Operation,
    ) -> Result<(), Refusal>;
}

/// The bytes of a write record, for the file.
#[derive(Debug)]
pub struct WrittenData {
    /// From where on.
    pub offset: u64,
    /// The bytes. Where they are a whole block, some of them can lie behind the end of the file.
    pub bytes: Block,
    /// The file reaches at least to here.
    pub end: u64,
}

/// The counts of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Records that were applied.
    pub applied: u64,
    /// Records that needed not be applied: stored already, or of files that are gone.
    pub passed_over: u64,
}

/// Why a log was not replayed to its end. The log is kept, and what was replayed is not replayed
/// again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A record cannot be applied.
    #[error("record {sequence} ({kind}) of the intent log cannot be replayed: {why}")]
    Record {
        /// Its place among the records.
        sequence: u64,
        /// Its type, as `zdb` calls it.
        kind: &'static str,
        /// Why not.
        why: Refusal,
    },
    /// The log cannot be read as far as it was claimed. Attaching missing devices cures it.
    #[error("the intent log cannot be read as far as it goes: {end}")]
    Log {
        /// Where and why it ends.
        end: ChainEnd,
    },
    /// The pool does not store changes.
    #[error("what is replayed is not stored: {0}")]
    NotStored(#[from] AssignError),
}

/// Whether a log has something to replay.
pub fn is_needed(head: &IntentLogHead) -> bool {
    !head.first.is_hole()
        && !head.claim_txg.is_zero()
        && head.flags & IntentLogHead::REPLAY_NEEDED != 0
}

/// Replays a claimed log. None when there was nothing to replay. Afterwards the log is to be
/// destroyed, and its head emptied.
///
/// # Errors
/// When not all of it could be replayed.
#[doc(alias = "zil_replay")]
pub fn replay(
    log: &IntentLog,
    by: &dyn Replay,
    operation: &Operation,
) -> Result<Option<ReplayCounts>, ReplayError> {
    let head = log.set().phys().intent_log;
    if !is_needed(&head) {
        return Ok(None);
    }
    let mut replayer = Replayer::begin(log, by, operation);
    let mut failure = None;
    let io = log.set().env().cache.io().clone();
    let end = walk(&io, &head, operation, &mut |found| match found {
        Found::Block(_) | Found::Written(_) => ControlFlow::Continue(()),
        Found::Record(record) => match replayer.apply(record) {
            Ok(()) => ControlFlow::Continue(()),
            Err(why) => {
                failure = Some(why);
                ControlFlow::Break(())
            }
        },
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    match end {
        ChainEnd::Claimed | ChainEnd::Hole => Ok(Some(replayer.counts)),
        // Logs that were claimed by old versions do not say which block is the last one.
        ChainEnd::NotWritten { block } if block >= head.claimed_block_sequence => {
            Ok(Some(replayer.counts))
        }
        end => Err(ReplayError::Log { end }),
    }
}

/// Applies the records of a log, one after the other, until it is dropped.
pub struct Replayer<'a> {
    log: &'a IntentLog,
    by: &'a dyn Replay,
    head: IntentLogHead,
    counts: ReplayCounts,
    operation: &'a Operation,
}

impl Drop for Replayer<'_> {
    fn drop(&mut self) {
        self.log.end_replay();
    }
}

impl<'a> Replayer<'a> {
    /// For a log whose head says how far it is replayed already.
    pub fn begin(log: &'a IntentLog, by: &'a dyn Replay, operation: &'a Operation) -> Self {
        Replayer {
            log,
            by,
            head: log.set().phys().intent_log,
            counts: ReplayCounts::default(),
            operation,
        }
    }

    /// Applies the next record, unless that is stored already or needs not be.
    ///
    /// # Errors
    /// When it cannot be applied: those behind it must not be.
    pub fn apply(&mut self, record: &LogRecord) -> Result<(), ReplayError> {
        let failed = |why| ReplayError::Record {
            sequence: record.sequence,
            kind: record.change.type_name(),
            why,
        };
        let is_stored =
            record.sequence <= self.head.replayed_sequence || record.txg < self.head.claim_txg;
        if is_stored && !sings(Canary::ReplayTwice)
            || self
                .is_of_gone_file(record)
                .map_err(|why| failed(why.into()))?
        {
            self.counts.passed_over += 1;
            return Ok(());
        }
        self.log.begin_replay(record.sequence);
        let data = self.data_of(record).map_err(failed)?;
        if self
            .by
            .replay(record, data.as_ref(), self.operation)
            .is_err()
        {
            let txgs = &self.log.set().env().txgs;
            txgs.wait_stored(txgs.open_txg(), self.operation)?;
            let again = self.by.replay(record, data.as_ref(), self.operation);
            again.map_err(failed)?;
        }
        self.counts.applied += 1;
        Ok(())
    }

    /// Whether the record's file was freed, so that the record is passed over.
    fn is_of_gone_file(&self, record: &LogRecord) -> Result<bool, ObjectError> {
        let Some(object) = record.change.only_object() else {
            return Ok(false);
        };
        match self.log.set().object(object, self.operation) {
            Ok(_) => Ok(false),
            Err(ObjectError::NoSuchObject { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The bytes of a write, from the record or from the block that it names.
    #[doc(alias = "zil_read_log_data")]
    fn data_of(&self, record: &LogRecord) -> Result<Option<WrittenData>, Refusal> {
        let LoggedChange::Write(write) = &record.change else {
            return Ok(None);
        };
        if write.is_stored_already {
            return Ok(None);
        }
        let Some(end) = write.offset.checked_add(write.length) else {
            return Err("it ends beyond what a file can be".into());
        };
        let (offset, bytes) = match &write.data {
            Some(data) => (write.offset, Block::from_slice(data)),
            None => self.block_of(write)?,
        };
        Ok(Some(WrittenData { offset, bytes, end }))
    }

    /// A record without data names a block that has them: a whole block of the file as it was after
    /// the write.
    fn block_of(&self, write: &LoggedWrite) -> Result<(u64, Block), Refusal> {
        let length = usize::try_from(write.length.min(BLOCK_BYTES_MAX)).unwrap_or(0);
        if write.length > BLOCK_BYTES_MAX {
            return Err("it is longer than a block".into());
        }
        if write.pointer.kind() == PointerKind::Hole {
            return zeros_of(write, length);
        }
        let search = Operation::internal(self.operation.clock(), OperationKind::Assembly);
        let (set, pointer) = (self.log.set(), &write.pointer);
        let scope = BlockScope::of_logged_write(set.id(), write.object, write.offset, pointer);
        let block = set.env().cache.io().read(pointer, scope, &search)?;
        let size = u64::try_from(block.len()).unwrap_or(u64::MAX);
        match length < block.len() {
            true => Ok((write.offset - write.offset % size.max(1), block)),
            false if length == block.len() => Ok((write.offset, block)),
            false => Err("its block is smaller than what was written".into()),
        }
    }
}

/// A block of zeros is stored as a hole, whose size is that of the block. All of it is zeros:
/// records of other writes to it in the same group may not say so again (`TX_WRITE2`).
fn zeros_of(write: &LoggedWrite, length: usize) -> Result<(u64, Block), Refusal> {
    let size = write.pointer.logical_size().get();
    if size > BLOCK_BYTES_MAX {
        return Err("its block is larger than blocks can be".into());
    }
    match write.length > 0 && write.length < size {
        true => Ok((
            write.offset - write.offset % size,
            Block::zeroed(usize::try_from(size)?),
        )),
        false => Ok((write.offset, Block::zeroed(length))),
    }
}
