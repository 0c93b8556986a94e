//! Thin provisioning: UNMAP and WRITE SAME.

use crate::scsi::block_commands::{Extent, count_field, refuse_protection};
use crate::scsi::fields::{to_usize, u16_at, u32_at, u64_at};
use crate::scsi::logical_unit::{Done, LogicalUnit, Outcome, Refused, Request, refused_by};
use crate::scsi::sense::codes as asc;
use crate::scsi::{SECTOR_BYTES, Sense, codes};
use crate::storage::Durability;

/// Most blocks that all descriptors of one UNMAP may name together: 512 MiB, which
/// iscsi-test-cu takes for the most that is sane; initiators split what is longer.
pub const UNMAP_BLOCKS_MAX: u32 = 1 << 20;

/// Most descriptors of one UNMAP.
pub const UNMAP_DESCRIPTORS_MAX: u16 = 256;

/// Most blocks of one WRITE SAME, as of one transfer: a pattern that is no zero is written out.
pub const WRITE_SAME_BLOCKS_MAX: u32 = 1 << 14;

/// How much of a pattern is written at a time.
const PATTERN_BYTES: u64 = 1 << 20;

/// What WRITE SAME writes without data.
const ZERO_SECTOR: [u8; 512] = [0; 512];

/// Length of a descriptor of UNMAP, and of the header before them.
const DESCRIPTOR_BYTES: usize = 16;
const HEADER_BYTES: usize = 8;

impl LogicalUnit {
    /// UNMAP: all ranges are checked before the first is freed.
    pub(crate) fn unmap(&self, request: &Request<'_>) -> Outcome {
        if request.cdb[1] & 1 != 0 {
            // ANCHOR: no space is kept for blocks that are not mapped.
            return Err(Sense::bit_in_cdb(1, 0).into());
        }
        let extents = self.unmapped(request)?;
        self.refuse_read_only()?;
        let _beside = self.begin_write();
        for extent in extents.iter().filter(|extent| extent.blocks > 0) {
            let (offset, length) = (extent.offset(), extent.bytes());
            let freed = self.storage.discard(offset, length, Durability::Later);
            freed.map_err(|error| refused_by(error, true))?;
        }
        Ok(Done::flushed(!extents.is_empty() && self.must_flush(false)))
    }

    /// The ranges of UNMAP's parameter list.
    fn unmapped(&self, request: &Request<'_>) -> Result<Vec<Extent>, Refused> {
        let length = usize::from(u16_at(request.cdb, 7));
        if length == 0 {
            return Ok(Vec::new());
        }
        if length < HEADER_BYTES || request.data.len() < HEADER_BYTES {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR).into());
        }
        let told = usize::from(u16_at(request.data, 2));
        let list = &request.data[HEADER_BYTES..];
        let list = &list[..told.min(list.len())];
        let descriptors = list.chunks_exact(DESCRIPTOR_BYTES);
        if descriptors.len() > usize::from(UNMAP_DESCRIPTORS_MAX) {
            return Err(Sense::in_parameters(2).into());
        }
        let mut total = 0;
        descriptors
            .map(|descriptor| {
                let extent = self.inside(Extent {
                    lba: u64_at(descriptor, 0),
                    blocks: u64::from(u32_at(descriptor, 8)),
                })?;
                total += extent.blocks;
                match total > u64::from(UNMAP_BLOCKS_MAX) {
                    true => Err(Sense::in_parameters(HEADER_BYTES + 8).into()),
                    false => Ok(extent),
                }
            })
            .collect()
    }

    /// WRITE SAME: one block, many times. Zeros are freed with UNMAP.
    pub(crate) fn write_same(&self, request: &Request<'_>) -> Outcome {
        let cdb = request.cdb;
        refuse_protection(cdb)?;
        let (anchors, unmaps) = (cdb[1] & 0x10 != 0, cdb[1] & 0x08 != 0);
        if anchors {
            return Err(Sense::bit_in_cdb(1, 4).into());
        }
        let has_data = cdb[0] == codes::WRITE_SAME_10 || cdb[1] & 1 == 0;
        // LBDATA and PBDATA of WRITE SAME (10) are obsolete.
        if cdb[0] == codes::WRITE_SAME_10 && cdb[1] & 0x06 != 0 {
            return Err(Sense::bit_in_cdb(1, 2).into());
        }
        request.refuse_other_length(count_field(cdb))?;
        let extent = self.inside(Extent::of(cdb))?;
        if extent.blocks == 0 || extent.blocks > u64::from(WRITE_SAME_BLOCKS_MAX) {
            return Err(Sense::in_cdb(count_field(cdb)).into());
        }
        self.refuse_read_only()?;
        let pattern = match has_data {
            true => request.data,
            false => &ZERO_SECTOR,
        };
        let _beside = self.begin_write();
        let (offset, length) = (extent.offset(), extent.bytes());
        let is_zero = pattern.iter().all(|byte| *byte == 0);
        let written = match (is_zero, unmaps) {
            (true, true) => self.storage.discard(offset, length, Durability::Later),
            (true, false) => self.storage.write_zeros(offset, length, Durability::Later),
            (false, _) => self.write_pattern(pattern, extent),
        };
        written.map_err(|error| refused_by(error, true))?;
        Ok(Done::flushed(self.must_flush(false)))
    }

    fn write_pattern(
        &self,
        pattern: &[u8],
        extent: Extent,
    ) -> Result<(), crate::storage::StorageError> {
        let piece = pattern.repeat(to_usize(extent.bytes().min(PATTERN_BYTES) / SECTOR_BYTES));
        let mut rest = to_usize(extent.bytes());
        let mut offset = extent.offset();
        while rest > 0 {
            let these = &piece[..piece.len().min(rest)];
            self.storage.write(offset, these, Durability::Later)?;
            offset += u64::try_from(these.len()).expect("at most a MiB");
            rest -= these.len();
        }
        Ok(())
    }
}
