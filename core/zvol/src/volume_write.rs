//! Writing, and writing zeros.

use std::borrow::Cow;

use tarn_dataset::contents::VOLUME_DATA;
use tarn_dataset::space_door::{SpaceLeave, SpaceUse};
use tarn_object::{Caching, NewContents, TxEstimate};
use tarn_ondisk::declare::{narrow, widen};
use tarn_probe::Operation;
use tarn_zil::{Contents, IntentRecord};

use crate::error::VolumeError;
use crate::volume::{Durable, Volume};
use crate::volume_intent::{GENERATION, unfetched};

/// How much is written in one transaction. A guess: small beside what may be dirty.
const PART_BYTES: usize = 4 << 20;
/// About how much is written beside the contents.
const OVERHEAD_BYTES: u64 = 16 << 10;
/// How many zeros are at hand at once.
const ZEROS_BYTES: usize = 1 << 20;

impl Volume {
    /// Writes bytes. When it fails, a part of them may be written, as on a disk.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NoSpace`, `QuotaExceeded`, `Suspended`, `Gone`, or what could not
    /// be read to be changed in part.
    #[doc(alias = "zvol_write")]
    pub fn write(
        &self,
        offset: u64,
        contents: NewContents<'_>,
        durable: Durable,
        operation: &Operation,
    ) -> Result<(), VolumeError> {
        self.check_writable()?;
        self.check_range(offset, widen(contents.len()))?;
        if contents.is_empty() {
            return self.after_change(durable, operation);
        }
        let parts = match contents {
            NewContents::Bytes(bytes) => Cow::Borrowed(bytes),
            whole if whole.len() <= PART_BYTES => {
                self.write_part(offset, whole, operation)?;
                return self.after_change(durable, operation);
            }
            buffers => Cow::Owned(buffers.into_bytes()),
        };
        let mut at = offset;
        for part in parts.chunks(PART_BYTES) {
            self.write_part(at, NewContents::Bytes(part), operation)?;
            at += widen(part.len());
        }
        self.after_change(durable, operation)
    }

    /// Makes a range read as zeros. Where `may_free`, its blocks are freed; otherwise zeros are
    /// written, so that later writes there need no more space unless the dataset compresses them
    /// away or has snapshots.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn write_zeros(
        &self,
        offset: u64,
        length: u64,
        may_free: bool,
        durable: Durable,
        operation: &Operation,
    ) -> Result<(), VolumeError> {
        if may_free {
            return self.discard(offset, length, durable, operation);
        }
        self.check_writable()?;
        let end = self.check_range(offset, length)?;
        let zeros = vec![0; ZEROS_BYTES.min(narrow(length.min(widen(ZEROS_BYTES))))];
        let mut at = offset;
        while at < end {
            let count = widen(zeros.len()).min(end - at);
            let part = NewContents::Bytes(&zeros[..narrow(count)]);
            self.write_part(at, part, operation)?;
            at += count;
        }
        self.after_change(durable, operation)
    }

    /// Writes one part in a transaction of its own.
    fn write_part(
        &self,
        offset: u64,
        contents: NewContents<'_>,
        operation: &Operation,
    ) -> Result<(), VolumeError> {
        let length = widen(contents.len());
        let _prepared = self.data.prepare_write(offset, length, operation)?;
        let leave = self.leave_to_write(offset, length)?;
        let change = self.change(offset, length);
        // It may have shrunk while other changes were waited for.
        self.check_range(offset, length)?;
        let tx = self.begin(leave, TxEstimate::writing(length), operation)?;
        let data = &self.data;
        let written = data.write_contents(&tx, offset, contents, Caching::Ours, operation);
        if let Some(log) = &self.log {
            match &written {
                Ok(()) => log.record(
                    &tx,
                    IntentRecord {
                        change: unfetched(offset, length),
                        object: Some(VOLUME_DATA),
                        contents: Contents::Fetch {
                            generation: GENERATION,
                        },
                    },
                ),
                // Some of its blocks may be changed, and no record has them.
                Err(_) => log.note_unlogged(&tx),
            }
        }
        drop(tx);
        drop(change);
        Ok(written?)
    }

    /// Asks for space to write these bytes.
    fn leave_to_write(&self, offset: u64, length: u64) -> Result<SpaceLeave, VolumeError> {
        let block_size = self.block_size();
        let blocks = (offset + length).div_ceil(block_size) - offset / block_size;
        let contents = self.set.worst_of_contents(blocks, block_size);
        let beside = self.set.worst_of_metadata(OVERHEAD_BYTES);
        let bytes = contents.saturating_add(beside);
        Ok((self.space.may_write)(bytes, SpaceUse::Whole)?)
    }
}
