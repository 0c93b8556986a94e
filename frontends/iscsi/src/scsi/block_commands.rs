//! Commands that read and write ranges of blocks: READ, WRITE, VERIFY, SYNCHRONIZE CACHE.

use crate::scsi::fields::{to_usize, u16_at, u24_at, u32_at, u64_at};
use crate::scsi::logical_unit::{Done, LogicalUnit, Outcome, Refused, Request, refused_by};
use crate::scsi::sense::codes as asc;
use crate::scsi::{Cdb, SECTOR_BYTES, Sense, SenseKey, TRANSFER_BLOCKS_MAX, codes};
use crate::storage::{Contents, Durability};

/// Most bytes that PRE-FETCH reads; what lies beyond is read when it is asked for.
const PRE_FETCH_BYTES_MAX: u64 = 1 << 20;

/// Whether a command needs the medium, so that a stopped unit refuses it.
pub fn uses_medium(code: u8) -> bool {
    use codes::*;
    matches!(
        code,
        READ_6
            | READ_10
            | READ_12
            | READ_16
            | WRITE_6
            | WRITE_10
            | WRITE_12
            | WRITE_16
            | WRITE_AND_VERIFY_10
            | WRITE_AND_VERIFY_12
            | WRITE_AND_VERIFY_16
            | VERIFY_10
            | VERIFY_12
            | VERIFY_16
            | COMPARE_AND_WRITE
            | ORWRITE_16
            | PRE_FETCH_10
            | PRE_FETCH_16
            | WRITE_SAME_10
            | WRITE_SAME_16
            | UNMAP
            | EXTENDED_COPY
    )
}

/// The range of blocks that a command names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first block.
    pub lba: u64,
    /// How many.
    pub blocks: u64,
}

impl Extent {
    /// That of a command, by the length of its CDB.
    pub fn of(cdb: &Cdb) -> Extent {
        match cdb[0] >> 5 {
            0 => Extent {
                lba: u64::from(u24_at(cdb, 1) & 0x1f_ffff),
                // Zero means 256 in the oldest form.
                blocks: match cdb[4] {
                    0 => 256,
                    count => u64::from(count),
                },
            },
            1 | 2 => Extent {
                lba: u64::from(u32_at(cdb, 2)),
                blocks: u64::from(u16_at(cdb, 7)),
            },
            4 => Extent {
                lba: u64_at(cdb, 2),
                blocks: u64::from(u32_at(cdb, 10)),
            },
            _ => Extent {
                lba: u64::from(u32_at(cdb, 2)),
                blocks: u64::from(u32_at(cdb, 6)),
            },
        }
    }

    /// Where it begins, in bytes.
    pub fn offset(self) -> u64 {
        self.lba * SECTOR_BYTES
    }

    /// How long it is, in bytes.
    pub fn bytes(self) -> u64 {
        self.blocks * SECTOR_BYTES
    }
}

impl LogicalUnit {
    /// A range that lies in the unit.
    pub(crate) fn inside(&self, extent: Extent) -> Result<Extent, Refused> {
        let end = extent.lba.checked_add(extent.blocks);
        let capacity = self.blocks();
        match end {
            // A range of no blocks may begin at the end of the unit, not beyond it.
            Some(end) if end <= capacity => Ok(extent),
            _ => Err(Sense::illegal(asc::LBA_OUT_OF_RANGE).into()),
        }
    }

    /// A range that lies in the unit, of at most so many blocks as one transfer may have.
    fn transfer(&self, cdb: &Cdb) -> Result<Extent, Refused> {
        let extent = self.inside(Extent::of(cdb))?;
        match extent.blocks > TRANSFER_BLOCKS_MAX {
            true => Err(Sense::in_cdb(count_field(cdb)).into()),
            false => Ok(extent),
        }
    }

    /// Nothing may be written: the volume is read-only, or an initiator set SWP.
    pub(crate) fn refuse_read_only(&self) -> Result<(), Refused> {
        let code = if self.storage.is_read_only() {
            asc::WRITE_PROTECTED
        } else if self.state().modes.is_write_protected() {
            asc::SOFTWARE_WRITE_PROTECTED
        } else {
            return Ok(());
        };
        Err(Sense::new(SenseKey::DataProtect, code).into())
    }

    /// Whether the status of a write waits for the intent log.
    pub(crate) fn must_flush(&self, is_forced: bool) -> bool {
        is_forced || !self.state().modes.is_write_cache_on()
    }

    /// READ.
    pub(crate) fn read(&self, cdb: &Cdb) -> Outcome {
        refuse_protection(cdb)?;
        let extent = self.transfer(cdb)?;
        // FUA: what a read gives is what a later read would give, cached or not. SBC-3 asks that
        // it be on the medium as well.
        if has_fua(cdb) {
            let flushed = self.storage.flush();
            flushed.map_err(|error| refused_by(error, true))?;
        }
        Ok(Done::contents(self.read_extent(extent)?))
    }

    pub(crate) fn read_extent(&self, extent: Extent) -> Result<Contents, Refused> {
        if extent.blocks == 0 {
            return Ok(Contents::Bytes(Vec::new()));
        }
        let read = self.storage.read(extent.offset(), extent.bytes());
        read.map_err(|error| refused_by(error, false))
    }

    /// WRITE, and WRITE AND VERIFY, which is durable before it is verified.
    pub(crate) fn write(&self, request: &Request<'_>) -> Outcome {
        let cdb = request.cdb;
        refuse_protection(cdb)?;
        let verifies = matches!(
            cdb[0],
            codes::WRITE_AND_VERIFY_10 | codes::WRITE_AND_VERIFY_12 | codes::WRITE_AND_VERIFY_16
        );
        if verifies && (cdb[1] >> 1) & 3 > 1 {
            return Err(Sense::bit_in_cdb(1, 2).into());
        }
        let extent = self.transfer(cdb)?;
        self.refuse_read_only()?;
        let bytes = whole_blocks(request.data, extent);
        if !bytes.is_empty() {
            let _beside = self.begin_write();
            let written = self
                .storage
                .write(extent.offset(), bytes, Durability::Later);
            written.map_err(|error| refused_by(error, true))?;
        }
        let is_forced = verifies || has_fua(cdb);
        if verifies && !bytes.is_empty() {
            self.verify_written(extent, bytes)?;
        }
        Ok(Done::flushed(
            !bytes.is_empty() && self.must_flush(is_forced),
        ))
    }

    /// Reads back what WRITE AND VERIFY wrote. Another write may have come in between, so bytes
    /// that differ are no error; blocks that cannot be read are.
    fn verify_written(&self, extent: Extent, bytes: &[u8]) -> Result<(), Refused> {
        let flushed = self.storage.flush();
        flushed.map_err(|error| refused_by(error, true))?;
        let blocks = u64::try_from(bytes.len()).unwrap_or(0) / SECTOR_BYTES;
        self.read_extent(Extent { blocks, ..extent }).map(drop)
    }

    /// VERIFY: blocks can be read (BYTCHK 0), are these (1), or each is this one (3).
    pub(crate) fn verify(&self, request: &Request<'_>) -> Outcome {
        let cdb = request.cdb;
        refuse_protection(cdb)?;
        let check = (cdb[1] >> 1) & 3;
        if check == 2 {
            return Err(Sense::bit_in_cdb(1, 2).into());
        }
        let extent = self.inside(Extent::of(cdb))?;
        if check == 1 && extent.blocks > TRANSFER_BLOCKS_MAX {
            return Err(Sense::in_cdb(count_field(cdb)).into());
        }
        // In pieces: blocks that are only read need not fit in one transfer.
        let mut done = 0;
        while done < extent.blocks {
            let piece = Extent {
                lba: extent.lba + done,
                blocks: (extent.blocks - done).min(TRANSFER_BLOCKS_MAX),
            };
            let contents = self.read_extent(piece)?;
            let at = to_usize(done * SECTOR_BYTES);
            match check {
                1 => compare_with(&contents, &request.data[at.min(request.data.len())..], at)?,
                3 => {
                    let repeated = request.data.repeat(to_usize(piece.blocks));
                    compare_with(&contents, &repeated, at)?;
                }
                _ => {}
            }
            done += piece.blocks;
        }
        Ok(Done::nothing())
    }

    /// PRE-FETCH: GOOD means that not all of it need be in the cache.
    pub(crate) fn pre_fetch(&self, cdb: &Cdb) -> Outcome {
        let extent = self.inside(Extent::of(cdb))?;
        let blocks = match extent.blocks {
            0 => self.blocks() - extent.lba,
            blocks => blocks,
        };
        let blocks = blocks.min(PRE_FETCH_BYTES_MAX / SECTOR_BYTES);
        self.read_extent(Extent { blocks, ..extent })?;
        Ok(Done::nothing())
    }

    /// SYNCHRONIZE CACHE: the intent log has all writes, those of other ranges as well.
    pub(crate) fn synchronize_cache(&self, cdb: &Cdb) -> Outcome {
        self.inside(Extent::of(cdb))?;
        Ok(Done::flushed(true))
    }
}

/// The whole blocks of a write that came.
fn whole_blocks(data: &[u8], extent: Extent) -> &[u8] {
    let sector = to_usize(SECTOR_BYTES);
    let count = (data.len() / sector * sector).min(to_usize(extent.bytes()));
    &data[..count]
}

/// FUA of commands of 10, 12 and 16 bytes.
fn has_fua(cdb: &Cdb) -> bool {
    cdb[0] >> 5 != 0 && cdb[1] & 0x08 != 0
}

/// The byte of a CDB where the number of blocks begins.
pub(crate) fn count_field(cdb: &Cdb) -> u16 {
    match cdb[0] >> 5 {
        0 => 4,
        1 | 2 => 7,
        4 => 10,
        _ => 6,
    }
}

/// RDPROTECT, WRPROTECT, VRPROTECT: there is no protection information.
pub(crate) fn refuse_protection(cdb: &Cdb) -> Result<(), Refused> {
    match cdb[0] >> 5 != 0 && cdb[1] & 0xe0 != 0 {
        true => Err(Sense::bit_in_cdb(1, 7).into()),
        false => Ok(()),
    }
}

/// MISCOMPARE, with the place of the first byte that differs, counted from `base`.
pub(crate) fn compare_with(
    contents: &Contents,
    expected: &[u8],
    base: usize,
) -> Result<(), Refused> {
    let mut at = 0;
    for part in contents.parts() {
        let rest = expected.get(at..).unwrap_or(&[]);
        let other = &rest[..rest.len().min(part.len())];
        if part != other {
            let differs = part.iter().zip(other).take_while(|(a, b)| a == b).count();
            let sense = Sense::new(SenseKey::Miscompare, asc::MISCOMPARE_DURING_VERIFY);
            return Err(sense.with_information(base + at + differs).into());
        }
        at += part.len();
    }
    Ok(())
}
