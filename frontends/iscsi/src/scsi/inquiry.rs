//! INQUIRY: what the unit is, and its stable names; REPORT TARGET PORT GROUPS.
//!
//! # Names
//! The unit's name is an NAA identifier of the locally assigned kind (type 3), made of the guid of
//! the volume's dataset, of which it has the lower 60 bits. A guid stays with the volume when it is
//! renamed, when its pool is exported and imported, and on another machine; a clone or a received
//! copy has another.

use crate::scsi::fields::{low_u16, put, to_usize, u16_at, u32_at};
use crate::scsi::logical_unit::{Done, LogicalUnit, Outcome};
use crate::scsi::provisioning::{UNMAP_BLOCKS_MAX, UNMAP_DESCRIPTORS_MAX, WRITE_SAME_BLOCKS_MAX};
use crate::scsi::{Cdb, SECTOR_BYTES, Sense, TRANSFER_BLOCKS_MAX};

const VENDOR: &[u8; 8] = b"Tarn    ";
const PRODUCT: &[u8; 16] = b"Volume          ";
const REVISION: &[u8; 4] = b"0001";

/// The one target port and its group.
const PORT: u16 = 1;

/// Standards that the unit follows, as version descriptors (SPC-4, table 142): SAM-5, iSCSI, SPC-4,
/// SBC-3.
const VERSIONS: [u16; 4] = [0x00a0, 0x0960, 0x0460, 0x04c0];

/// The pages of vital product data.
const PAGES: [u8; 8] = [0x00, 0x80, 0x83, 0x86, 0x8f, 0xb0, 0xb1, 0xb2];

impl LogicalUnit {
    /// INQUIRY.
    pub(crate) fn inquiry(&self, cdb: &Cdb) -> Outcome {
        let room = usize::from(u16_at(cdb, 3));
        if cdb[1] & 2 != 0 {
            return Err(Sense::bit_in_cdb(1, 1).into());
        }
        if cdb[1] & 1 == 0 {
            return match cdb[2] {
                0 => Ok(Done::cut(standard(), room)),
                _ => Err(Sense::in_cdb(2).into()),
            };
        }
        let body = match cdb[2] {
            0x00 => PAGES.to_vec(),
            0x80 => self.serial().into_bytes(),
            0x83 => self.names(),
            0x86 => extended(),
            0x8f => super::copying::third_party_copy(),
            0xb0 => self.limits(),
            0xb1 => {
                // Not a rotating medium.
                let mut bytes = vec![0; 60];
                bytes[1] = 1;
                bytes
            }
            // LBPU, LBPWS, LBPWS10; LBPRZ; thin.
            0xb2 => vec![0, 0xe4, 0x02, 0],
            _ => return Err(Sense::in_cdb(2).into()),
        };
        let mut page = vec![0, cdb[2], 0, 0];
        put(&mut page, 2, &low_u16(body.len()).to_be_bytes());
        page.extend_from_slice(&body);
        Ok(Done::cut(page, room))
    }

    /// The serial number: the guid in hexadecimal digits.
    fn serial(&self) -> String {
        format!("{:016x}", self.identity.guid)
    }

    /// The name of the unit: NAA 3, and the lower bits of the guid.
    pub(crate) fn naa(&self) -> u64 {
        naa_of(self.identity.guid)
    }

    /// The page of device identification: names of the unit and of the port.
    fn names(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Binary, of the unit, NAA.
        add_name(&mut bytes, 0x01, 0x03, &self.naa().to_be_bytes());
        // ASCII, of the unit, T10 vendor.
        let vendor = [&VENDOR[..], self.serial().as_bytes()].concat();
        add_name(&mut bytes, 0x02, 0x01, &vendor);
        // Of the port: its number, its group, and its name with the protocol iSCSI.
        let [high, low] = PORT.to_be_bytes();
        add_name(&mut bytes, 0x51, 0x94, &[0, 0, high, low]);
        add_name(&mut bytes, 0x51, 0x95, &[0, 0, high, low]);
        let port = format!("{},t,0x{PORT:04x}", self.identity.target);
        add_name(&mut bytes, 0x53, 0x98, &scsi_name(&port));
        add_name(&mut bytes, 0x53, 0xa8, &scsi_name(&self.identity.target));
        bytes
    }

    /// The page of block limits.
    fn limits(&self) -> Vec<u8> {
        let mut bytes = vec![0; 60];
        let granularity = u32::try_from(self.storage.block_bytes() / SECTOR_BYTES).unwrap_or(1);
        let most = u32::try_from(TRANSFER_BLOCKS_MAX).expect("8 MiB in blocks");
        // WSNZ: WRITE SAME of no blocks is refused.
        bytes[0] = 1;
        bytes[1] = super::compare::COMPARE_BLOCKS_MAX;
        put(
            &mut bytes,
            2,
            &u16::try_from(granularity).unwrap_or(u16::MAX).to_be_bytes(),
        );
        put(&mut bytes, 4, &most.to_be_bytes());
        put(&mut bytes, 8, &granularity.max(256).to_be_bytes());
        put(&mut bytes, 16, &UNMAP_BLOCKS_MAX.to_be_bytes());
        put(
            &mut bytes,
            20,
            &u32::from(UNMAP_DESCRIPTORS_MAX).to_be_bytes(),
        );
        put(&mut bytes, 24, &granularity.to_be_bytes());
        // UGAVALID: blocks of the volume begin at the first block.
        put(&mut bytes, 28, &0x8000_0000_u32.to_be_bytes());
        put(
            &mut bytes,
            32,
            &u64::from(WRITE_SAME_BLOCKS_MAX).to_be_bytes(),
        );
        bytes
    }

    /// REPORT TARGET PORT GROUPS: one group, active and optimized.
    pub(crate) fn report_target_port_groups(&self, cdb: &Cdb) -> Done {
        let mut group = vec![0; 12];
        // Supported: active/optimized.
        group[1] = 0x01;
        put(&mut group, 2, &PORT.to_be_bytes());
        group[7] = 1;
        put(&mut group, 10, &PORT.to_be_bytes());
        let is_extended = cdb[1] >> 5 == 1;
        let mut bytes = vec![0, 0, 0, if is_extended { 16 } else { 12 }];
        if is_extended {
            bytes.extend_from_slice(&[0x10, 0, 0, 0]);
        }
        bytes.extend_from_slice(&group);
        Done::cut(bytes, to_usize(u64::from(u32_at(cdb, 6))))
    }
}

/// The NAA name of the unit of a volume with this guid.
pub(crate) fn naa_of(guid: u64) -> u64 {
    (3 << 60) | (guid & 0x0fff_ffff_ffff_ffff)
}

/// Standard INQUIRY data.
fn standard() -> Vec<u8> {
    let mut bytes = vec![0; 96];
    // SPC-4; response data format 2, HISUP.
    bytes[2] = 6;
    bytes[3] = 0x12;
    bytes[4] = 96 - 5;
    // TPGS: implicit; 3PC: EXTENDED COPY.
    bytes[5] = 0x18;
    // CMDQUE.
    bytes[7] = 0x02;
    put(&mut bytes, 8, VENDOR);
    put(&mut bytes, 16, PRODUCT);
    put(&mut bytes, 32, REVISION);
    for (index, version) in VERSIONS.iter().enumerate() {
        put(&mut bytes, 58 + 2 * index, &version.to_be_bytes());
    }
    bytes
}

/// What a path that leads to no unit answers to INQUIRY: no device is there.
pub fn absent(cdb: &Cdb) -> Outcome {
    if cdb[1] & 3 != 0 || cdb[2] != 0 {
        return Err(Sense::in_cdb(2).into());
    }
    let mut bytes = standard();
    bytes[0] = 0x7f;
    Ok(Done::cut(bytes, usize::from(u16_at(cdb, 3))))
}

/// The page of extended INQUIRY data.
fn extended() -> Vec<u8> {
    let mut bytes = vec![0; 60];
    // SIMPSUP: commands are carried out side by side.
    bytes[1] = 0x01;
    // V_SUP: a volatile cache.
    bytes[2] = 0x01;
    // LUICLR.
    bytes[3] = 0x01;
    bytes
}

/// A SCSI name string: zero-terminated, padded to four bytes.
fn scsi_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn add_name(bytes: &mut Vec<u8>, code_set: u8, kind: u8, name: &[u8]) {
    let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
    bytes.extend_from_slice(&[code_set, kind, 0, length]);
    bytes.extend_from_slice(&name[..usize::from(length)]);
}
