//! Discarding: whole blocks are freed, and the rest of the range is zeroed.

use tarn_dataset::contents::VOLUME_DATA;
use tarn_dataset::space_door::SpaceUse;
use tarn_object::TxEstimate;
use tarn_ondisk::intent_log::LoggedChange;
use tarn_ondisk::units::BlockId;
use tarn_probe::Operation;
use tarn_zil::{Contents, IntentRecord};

use crate::error::VolumeError;
use crate::volume::{Durable, Volume};

/// How many blocks are freed in one transaction.
pub(crate) const BLOCKS_PER_TX: u64 = 1 << 16;
/// About how much a transaction that frees writes: block pointers, and the blocks at the edges.
const FREEING_BYTES: u64 = 64 << 10;

impl Volume {
    /// Frees the blocks of a range, and zeroes the parts of blocks at its edges: it reads as zeros
    /// afterwards.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NoSpace` of a pool with hardly any room, `Suspended`, `Gone`, or
    /// what could not be read to be changed in part.
    #[doc(alias = "zvol_discard")]
    pub fn discard(
        &self,
        offset: u64,
        length: u64,
        durable: Durable,
        operation: &Operation,
    ) -> Result<(), VolumeError> {
        self.check_writable()?;
        let end = self.check_range(offset, length)?;
        let block_size = self.block_size();
        let mut at = offset;
        // Holes cost nothing. Pieces end where blocks do, so that no block is zeroed twice.
        while at < end {
            let data = self
                .data
                .next_data(BlockId::from(at / block_size), operation)?;
            let Some(data) = data.map(BlockId::get) else {
                break;
            };
            at = at.max(data.saturating_mul(block_size));
            if at >= end {
                break;
            }
            let behind = data
                .saturating_add(BLOCKS_PER_TX)
                .saturating_mul(block_size);
            let stop = behind.min(end);
            assert!(at < stop, "each piece frees bytes");
            self.free_piece(at, stop - at, operation)?;
            at = stop;
        }
        self.after_change(durable, operation)
    }

    /// Frees a piece in a transaction of its own.
    fn free_piece(
        &self,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<(), VolumeError> {
        let _prepared = self.data.prepare_free(offset, length, operation)?;
        let worst = self.set.worst_of_metadata(FREEING_BYTES);
        let leave = (self.space.may_write)(worst, SpaceUse::Freeing)?;
        let change = self.changes.take_all();
        self.check_range(offset, length)?;
        let tx = self.begin(leave, TxEstimate::freeing(length), operation)?;
        let freed = self.data.free_range(&tx, offset, length, operation);
        if let Some(log) = &self.log {
            match &freed {
                Ok(()) => log.record(
                    &tx,
                    IntentRecord {
                        change: LoggedChange::Truncate {
                            object: VOLUME_DATA,
                            offset,
                            length,
                        },
                        object: Some(VOLUME_DATA),
                        contents: Contents::InRecord,
                    },
                ),
                Err(_) => log.note_unlogged(&tx),
            }
        }
        drop(tx);
        drop(change);
        Ok(freed?)
    }
}
