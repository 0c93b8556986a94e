//! Commands that read and write in one step: COMPARE AND WRITE, ORWRITE.

use crate::scsi::block_commands::{Extent, compare_with, refuse_protection};
use crate::scsi::fields::{to_usize, u64_at};
use crate::scsi::logical_unit::{Done, LogicalUnit, Outcome, Request, refused_by};
use crate::scsi::{Sense, TRANSFER_BLOCKS_MAX};
use crate::storage::Durability;

/// Most blocks of COMPARE AND WRITE, whose CDB has one byte for their number.
pub const COMPARE_BLOCKS_MAX: u8 = 255;

impl LogicalUnit {
    /// COMPARE AND WRITE: the second half of the data is written if the first is what is there.
    pub(crate) fn compare_and_write(&self, request: &Request<'_>) -> Outcome {
        let cdb = request.cdb;
        refuse_protection(cdb)?;
        let extent = self.inside(Extent {
            lba: u64_at(cdb, 2),
            blocks: u64::from(cdb[13]),
        })?;
        request.refuse_other_length(13)?;
        self.refuse_read_only()?;
        if extent.blocks == 0 {
            return Ok(Done::nothing());
        }
        let (expected, new) = request.data.split_at(request.data.len() / 2);
        let _alone = self.exclude_writes();
        let there = self.read_extent(extent)?;
        compare_with(&there, expected, 0)?;
        let written = self.storage.write(extent.offset(), new, Durability::Later);
        written.map_err(|error| refused_by(error, true))?;
        Ok(Done::flushed(self.must_flush(cdb[1] & 0x08 != 0)))
    }

    /// ORWRITE: bits that are set in the data are set in the blocks.
    pub(crate) fn or_write(&self, request: &Request<'_>) -> Outcome {
        let cdb = request.cdb;
        refuse_protection(cdb)?;
        let extent = self.inside(Extent::of(cdb))?;
        if extent.blocks > TRANSFER_BLOCKS_MAX {
            return Err(Sense::in_cdb(10).into());
        }
        self.refuse_read_only()?;
        if extent.blocks == 0 {
            return Ok(Done::nothing());
        }
        if request.data.len() != to_usize(extent.bytes()) {
            return Err(Sense::in_cdb(10).into());
        }
        let _alone = self.exclude_writes();
        let mut bytes = self.read_extent(extent)?.to_vec();
        let pairs = bytes.iter_mut().zip(request.data);
        pairs.for_each(|(old, new)| *old |= new);
        let written = self
            .storage
            .write(extent.offset(), &bytes, Durability::Later);
        written.map_err(|error| refused_by(error, true))?;
        Ok(Done::flushed(self.must_flush(cdb[1] & 0x08 != 0)))
    }
}
