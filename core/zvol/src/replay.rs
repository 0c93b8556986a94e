//! Replay of the intent log of a volume: implements the door [`Replay`].
//!
//! # Mechanism
//! A volume has one object with data, and two kinds of records: a write, and a freed (discarded)
//! range. A range beyond the end of the volume, which may have shrunk since, is cut off there.
//!
//! A record may have been written by any OpenZFS, and the disk may lie: an impossible record is
//! refused, and nothing has changed then.
//!
//! # Invariants
//! - A record is applied in several transactions only if it can be applied again after each of them
//!   but the last.
//! - The last transaction notes the record's sequence.

use tarn_dataset::contents::VOLUME_DATA;
use tarn_object::{AssignError, ObjectError, OpenTx, TxEstimate};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::intent_log::{LogRecord, LoggedChange, LoggedWrite};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;
use tarn_zil::{Refusal, Replay, WrittenData};

use crate::discard::BLOCKS_PER_TX;
use crate::volume::Volume;

/// About what is written beside the data.
const OVERHEAD_BYTES: u64 = 16 << 10;

/// Why a record cannot be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The data cannot be read or changed.
    #[error("the volume's data: {0}")]
    Data(#[from] ObjectError),
    /// No transaction could be opened.
    #[error("{0}")]
    NotStored(#[from] AssignError),
    /// The record is invalid.
    #[error("it makes no sense: {0}")]
    Nonsense(&'static str),
}

impl Volume {
    fn begin_replay(
        &self,
        estimate: TxEstimate,
        operation: &Operation,
    ) -> Result<OpenTx, RecordError> {
        Ok(self.set.env().txgs.assign(&estimate, operation)?)
    }

    /// The record that is being replayed is applied by this transaction.
    fn note_replayed(&self, tx: &OpenTx) {
        let log = self.log.as_ref();
        let is_noted = log.is_some_and(|log| log.note_replayed(tx));
        debug_assert!(is_noted, "a volume without a log has nothing to replay");
    }

    #[doc(alias = "zvol_replay_write")]
    fn replay_write(
        &self,
        write: &LoggedWrite,
        data: Option<&WrittenData>,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        check(write.object, write.offset, write.length)?;
        let (offset, bytes) = data.map_or((0, &[][..]), |data| (data.offset, &data.bytes[..]));
        let room = self.size_bytes().saturating_sub(offset);
        let bytes = &bytes[..bytes.len().min(narrow(room))];
        let estimate = TxEstimate::writing(widen(bytes.len()) + OVERHEAD_BYTES);
        let length = widen(bytes.len());
        let _prepared = self.data.prepare_write(offset, length, operation)?;
        let tx = self.begin_replay(estimate, operation)?;
        if !bytes.is_empty() {
            self.data.write(&tx, offset, bytes, operation)?;
        }
        self.note_replayed(&tx);
        Ok(())
    }

    /// Frees a range; in pieces, from its beginning on, where it is long.
    #[doc(alias = "zvol_replay_truncate")]
    fn replay_truncate(
        &self,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let end = offset.saturating_add(length).min(self.size_bytes());
        let piece = BLOCKS_PER_TX.saturating_mul(self.data.block_size().get());
        let mut at = offset.min(end);
        loop {
            let part = piece.min(end - at);
            let _prepared = self.data.prepare_free(at, part, operation)?;
            let tx = self.begin_replay(TxEstimate::freeing(part), operation)?;
            self.data.free_range(&tx, at, part, operation)?;
            at += part;
            if at == end {
                self.note_replayed(&tx);
                return Ok(());
            }
        }
    }
}

impl Replay for Volume {
    #[doc(alias = "zvol_replay_vector")]
    fn replay(
        &self,
        record: &LogRecord,
        data: Option<&WrittenData>,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        match &record.change {
            LoggedChange::Write(write) => self.replay_write(write, data, operation)?,
            LoggedChange::Truncate {
                object,
                offset,
                length,
            } => {
                check(*object, *offset, *length)?;
                self.replay_truncate(*offset, *length, operation)?;
            }
            _ => return Err(RecordError::Nonsense("volumes have no files").into()),
        }
        Ok(())
    }
}

/// Refuses a record of another object than the data, and a range beyond the largest offset.
fn check(object: ObjectId, offset: u64, length: u64) -> Result<(), RecordError> {
    if object != VOLUME_DATA {
        return Err(RecordError::Nonsense("it is not about the volume's data"));
    }
    match offset.checked_add(length) {
        Some(_) => Ok(()),
        None => Err(RecordError::Nonsense("no volume reaches so far")),
    }
}
