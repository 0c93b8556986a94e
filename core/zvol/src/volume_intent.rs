//! The contents of records of the intent log: implements the door [`LogSource`].

use tarn_dataset::contents::VOLUME_DATA;
use tarn_object::{ObjectError, Tx};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::intent_log::{LoggedChange, LoggedWrite};
use tarn_probe::Operation;
use tarn_zil::{Fetched, LogSource, PlacedWrites, WholeBlocks};

use crate::volume::Volume;

/// The data object has its number as long as there is the volume.
pub(crate) const GENERATION: u64 = 0;

/// The record of written bytes, which the log fetches when it stores the record.
#[doc(alias = "zvol_log_write")]
pub(crate) fn unfetched(offset: u64, length: u64) -> LoggedChange {
    LoggedChange::Write(Box::new(LoggedWrite {
        is_stored_already: false,
        object: VOLUME_DATA,
        offset,
        length,
        block_offset: 0,
        pointer: BlockPointer::HOLE,
        data: None,
    }))
}

impl LogSource for Volume {
    /// What lies beyond the end, because the volume has shrunk, is zeros, and replay passes over
    /// it.
    #[doc(alias = "zvol_get_data")]
    fn contents(
        &self,
        write: &LoggedWrite,
        _generation: u64,
        operation: &Operation,
    ) -> Result<Fetched, ObjectError> {
        let mut bytes = vec![0; narrow(write.length)];
        self.data.read(write.offset, &mut bytes, operation)?;
        Ok(Fetched::Bytes(bytes))
    }

    /// A replay writes the whole block that a record leads to. So only blocks that the write
    /// reaches the end of are led to, and the rest carries its bytes.
    fn place(
        &self,
        write: &LoggedWrite,
        _generation: u64,
        whole_blocks: WholeBlocks,
        tx: &Tx,
        operation: &Operation,
    ) -> Option<PlacedWrites> {
        let end = write.offset.checked_add(write.length)?;
        let block_size = self.block_size();
        let is_whole = write.offset.is_multiple_of(block_size) && end.is_multiple_of(block_size);
        if end > self.size_bytes() || (whole_blocks == WholeBlocks::Needed && !is_whole) {
            return None;
        }
        PlacedWrites::of(write, &self.data, tx, operation)
    }
}
