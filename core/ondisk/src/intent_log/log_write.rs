//! Records of writes: with their data, or with a pointer to the block that has it.

use super::change::number;
use super::encoding::Bytes;
use crate::block_pointer::BlockPointer;
use crate::declare::{Corrupt, Reader, Stored, narrow, widen};
use crate::units::ObjectId;

/// A write.
#[doc(alias = "lr_write_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedWrite {
    /// True when the data was stored by its txg before the log got to it: only its size may have
    /// to be set.
    pub is_stored_already: bool,
    /// The file or volume.
    pub object: ObjectId,
    /// Where in it.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Unused.
    pub block_offset: u64,
    /// The block that has the data, where the record has none.
    pub pointer: BlockPointer,
    /// The data, where the record has it. Then this has as many bytes as were written.
    pub data: Option<Vec<u8>>,
}

impl LoggedWrite {
    pub(super) fn decode(number: u64, reader: &mut Reader<'_>) -> Result<LoggedWrite, Corrupt> {
        let mut write = LoggedWrite {
            is_stored_already: number == number::WRITE2,
            object: reader.value()?,
            offset: reader.u64()?,
            length: reader.u64()?,
            block_offset: reader.u64()?,
            pointer: reader.value()?,
            data: None,
        };
        if !reader.is_at_end() {
            if write.length == 0 {
                // No write logs zero bytes, and without bytes the record would mean that its data
                // is in a block.
                return Err(reader.bad_value("length of a write", 144, write.length));
            }
            write.data = Some(reader.take(narrow(write.length))?.to_vec());
        }
        Ok(write)
    }

    pub(super) fn encode(&self, bytes: &mut Bytes) {
        bytes.u64(self.object.get());
        bytes.u64(self.offset);
        bytes.u64(self.length);
        bytes.u64(self.block_offset);
        bytes.0.extend(self.pointer.to_bytes());
        if let Some(data) = &self.data {
            assert_eq!(
                widen(data.len()),
                self.length,
                "a write has all its data or none"
            );
            bytes.0.extend(data);
        }
    }
}
