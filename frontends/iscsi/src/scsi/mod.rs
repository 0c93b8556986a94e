//! SCSI: the commands of a disk (SPC-4, SBC-3), without the transport.
//!
//! A [`LogicalUnit`] carries out one [`Request`] at a time in the calling thread. What it sends
//! back is data and GOOD ([`Done`]), or why not ([`Refused`]). One file has one group of commands.

pub mod block_commands;
pub mod block_status;
pub mod compare;
pub mod copying;
pub mod fields;
pub mod inquiry;
pub mod logical_unit;
pub mod modes;
pub mod opcodes;
pub mod persistent;
pub mod provisioning;
pub mod registrations;
pub mod reservations;
pub mod sense;
pub mod transport_ids;

pub use logical_unit::{Done, Identity, LogicalUnit, Nexus, Refused, Request, UnitEvent};
pub use sense::{Sense, SenseFormat, SenseKey};

/// Bytes of a logical block. Every initiator can use 512; the size of the volume's blocks is told
/// as the physical block.
pub const SECTOR_BYTES: u64 = 512;

/// Most blocks of one transfer, which bounds the memory that a command takes: 8 MiB.
pub const TRANSFER_BLOCKS_MAX: u64 = (8 << 20) / SECTOR_BYTES;

/// A command, as it is in the PDU. All that are known have at most 16 bytes.
pub type Cdb = [u8; 16];

/// The operation codes that this target knows.
#[allow(missing_docs)] // Each is named as in SPC-4 and SBC-3.
pub mod codes {
    pub const TEST_UNIT_READY: u8 = 0x00;
    pub const REQUEST_SENSE: u8 = 0x03;
    pub const READ_6: u8 = 0x08;
    pub const WRITE_6: u8 = 0x0a;
    pub const INQUIRY: u8 = 0x12;
    pub const MODE_SELECT_6: u8 = 0x15;
    pub const RESERVE_6: u8 = 0x16;
    pub const RELEASE_6: u8 = 0x17;
    pub const MODE_SENSE_6: u8 = 0x1a;
    pub const START_STOP_UNIT: u8 = 0x1b;
    pub const PREVENT_ALLOW_MEDIUM_REMOVAL: u8 = 0x1e;
    pub const READ_CAPACITY_10: u8 = 0x25;
    pub const READ_10: u8 = 0x28;
    pub const WRITE_10: u8 = 0x2a;
    pub const WRITE_AND_VERIFY_10: u8 = 0x2e;
    pub const VERIFY_10: u8 = 0x2f;
    pub const PRE_FETCH_10: u8 = 0x34;
    pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    pub const READ_DEFECT_DATA_10: u8 = 0x37;
    pub const WRITE_SAME_10: u8 = 0x41;
    pub const UNMAP: u8 = 0x42;
    pub const MODE_SELECT_10: u8 = 0x55;
    pub const MODE_SENSE_10: u8 = 0x5a;
    pub const PERSISTENT_RESERVE_IN: u8 = 0x5e;
    pub const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
    pub const EXTENDED_COPY: u8 = 0x83;
    pub const RECEIVE_COPY_RESULTS: u8 = 0x84;
    pub const READ_16: u8 = 0x88;
    pub const COMPARE_AND_WRITE: u8 = 0x89;
    pub const WRITE_16: u8 = 0x8a;
    pub const ORWRITE_16: u8 = 0x8b;
    pub const WRITE_AND_VERIFY_16: u8 = 0x8e;
    pub const VERIFY_16: u8 = 0x8f;
    pub const PRE_FETCH_16: u8 = 0x90;
    pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    pub const WRITE_SAME_16: u8 = 0x93;
    pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
    pub const REPORT_LUNS: u8 = 0xa0;
    pub const MAINTENANCE_IN: u8 = 0xa3;
    pub const READ_12: u8 = 0xa8;
    pub const WRITE_12: u8 = 0xaa;
    pub const WRITE_AND_VERIFY_12: u8 = 0xae;
    pub const VERIFY_12: u8 = 0xaf;
    pub const READ_DEFECT_DATA_12: u8 = 0xb7;
}

/// How many bytes of data a command takes from the initiator. Zero for those that take none, and
/// for those that will be refused.
pub fn data_out_bytes(cdb: &Cdb) -> u64 {
    use codes::*;
    use fields::{u16_at, u32_at};
    let bytes = match cdb[0] {
        WRITE_6 | WRITE_10 | WRITE_12 | WRITE_16 | WRITE_AND_VERIFY_10 | WRITE_AND_VERIFY_12
        | WRITE_AND_VERIFY_16 | ORWRITE_16 => block_commands::Extent::of(cdb).blocks * SECTOR_BYTES,
        VERIFY_10 | VERIFY_12 | VERIFY_16 => match (cdb[1] >> 1) & 3 {
            0 => 0,
            1 => block_commands::Extent::of(cdb).blocks * SECTOR_BYTES,
            _ => SECTOR_BYTES,
        },
        COMPARE_AND_WRITE => 2 * u64::from(cdb[13]) * SECTOR_BYTES,
        WRITE_SAME_16 if cdb[1] & 1 != 0 => 0,
        WRITE_SAME_10 | WRITE_SAME_16 => SECTOR_BYTES,
        UNMAP | MODE_SELECT_10 => u64::from(u16_at(cdb, 7)),
        MODE_SELECT_6 => u64::from(cdb[4]),
        PERSISTENT_RESERVE_OUT => u64::from(u32_at(cdb, 5)),
        EXTENDED_COPY => u64::from(u32_at(cdb, 10)),
        _ => 0,
    };
    match bytes <= TRANSFER_BLOCKS_MAX * SECTOR_BYTES {
        true => bytes,
        false => 0,
    }
}
