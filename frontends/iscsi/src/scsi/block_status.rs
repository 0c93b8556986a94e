//! Sizes, and which blocks are mapped: READ CAPACITY, GET LBA STATUS.

use crate::scsi::block_commands::Extent;
use crate::scsi::fields::{low_u32, put, to_usize, u32_at, u64_at};
use crate::scsi::logical_unit::{Done, LogicalUnit, Outcome, refused_by};
use crate::scsi::sense::codes as asc;
use crate::scsi::{Cdb, SECTOR_BYTES, Sense};

/// How much of the unit one GET LBA STATUS looks at: 1 GiB. The initiator asks again from there.
const STATUS_BYTES_MAX: u64 = 1 << 30;

/// Most descriptors that it gives.
const STATUS_DESCRIPTORS_MAX: usize = 1024;

/// Bytes of a descriptor, and of the header before them.
const DESCRIPTOR_BYTES: usize = 16;
const HEADER_BYTES: usize = 8;

impl LogicalUnit {
    /// READ CAPACITY (10): the last block, or all ones where that does not fit.
    pub(crate) fn read_capacity_10(&self) -> Outcome {
        let last = self.blocks().saturating_sub(1);
        let last = u32::try_from(last).unwrap_or(u32::MAX);
        let mut bytes = vec![0; 8];
        put(&mut bytes, 0, &last.to_be_bytes());
        put(&mut bytes, 6, &sector_bytes_16());
        Ok(Done::with(bytes))
    }

    /// READ CAPACITY (16), with the exponent of physical blocks and thin provisioning.
    pub(crate) fn read_capacity_16(&self, cdb: &Cdb) -> Outcome {
        let mut bytes = vec![0; 32];
        let last = self.blocks().saturating_sub(1);
        put(&mut bytes, 0, &last.to_be_bytes());
        put(&mut bytes, 10, &sector_bytes_16());
        bytes[13] = self.physical_exponent();
        // LBPME: blocks can be unmapped. LBPRZ: they read as zeros then.
        bytes[14] = 0xc0;
        let room = to_usize(u64::from(u32_at(cdb, 10)));
        Ok(Done::cut(bytes, room))
    }

    /// The power of two of logical blocks in one block of the volume.
    pub(crate) fn physical_exponent(&self) -> u8 {
        let blocks = (self.storage.block_bytes() / SECTOR_BYTES).max(1);
        u8::try_from(blocks.ilog2().min(15)).expect("at most 15")
    }

    /// GET LBA STATUS.
    pub(crate) fn block_status(&self, cdb: &Cdb) -> Outcome {
        let lba = u64_at(cdb, 2);
        let room = to_usize(u64::from(u32_at(cdb, 10)));
        let rest = match self.blocks().checked_sub(lba) {
            None | Some(0) => return Err(Sense::illegal(asc::LBA_OUT_OF_RANGE).into()),
            Some(rest) => rest,
        };
        let blocks = rest.min(STATUS_BYTES_MAX / SECTOR_BYTES);
        let extent = Extent { lba, blocks };
        let runs = self.storage.allocated(extent.offset(), extent.bytes());
        let runs = runs.map_err(|error| refused_by(error, false))?;
        let fitting = room.saturating_sub(HEADER_BYTES) / DESCRIPTOR_BYTES;
        let count = fitting.clamp(1, STATUS_DESCRIPTORS_MAX);
        let mut bytes = vec![0; HEADER_BYTES];
        let mut at = lba;
        for (length, is_mapped) in runs.into_iter().take(count) {
            let blocks = length / SECTOR_BYTES;
            let mut descriptor = [0; DESCRIPTOR_BYTES];
            put(&mut descriptor, 0, &at.to_be_bytes());
            put(&mut descriptor, 8, &low_u32(to_usize(blocks)).to_be_bytes());
            descriptor[12] = u8::from(!is_mapped);
            bytes.extend_from_slice(&descriptor);
            at += blocks;
        }
        let told = low_u32(bytes.len() - 4).to_be_bytes();
        put(&mut bytes, 0, &told);
        Ok(Done::cut(bytes, room))
    }
}

fn sector_bytes_16() -> [u8; 2] {
    [2, 0]
}
