//! Labels: what a device says about the pool it belongs to.
//!
//! # Problem
//! A device is found before anything is known about its pool. Its label must name the pool, the
//! other devices, and the place of the pool's root; and a crash during an update must leave either
//! the old version or the new one whole.
//!
//! # Mechanism
//! Four equal labels, two at each end of the device, so that a program that overwrites one end
//! spares the other. An update writes labels 0 and 2, flushes, then 1 and 3.
//!
//! ```text
//!  0        256K     512K                 4M              end-512K  end-256K   end
//!  +--------+--------+--------------------+------ ~ ------+---------+---------+
//!  | label0 | label1 |  boot area, 3.5M   |     data      | label2  | label3  |
//!  +--------+--------+--------------------+------ ~ ------+---------+---------+
//!
//!  label:   0      8K      16K                      128K                     256K
//!           +------+-------+------------------------+-------------------------+
//!           | left | boot  |  configuration: an XDR |    ring of uberblocks   |
//!           | free | env.  |  name-value list       |                         |
//!           +------+-------+------------------------+-------------------------+
//! ```
//!
//! The end of a device counts from its size rounded down to 256 KiB. Boot environment,
//! configuration, and each slot of the ring end in an [`EmbeddedChecksum`], whose verifier is the
//! piece's own place on the device. A slot is as large as the device's sector, at least 1 KiB and
//! at most 8 KiB, so that writing one cannot tear another.
//!
//! # Invariants
//! - A block pointer's offset 0 is byte [`DATA_START_BYTES`] of the device.

use crate::checksum::{Checksum, EmbeddedChecksum};
use crate::declare::{ByteOrder, Corrupt, Stored, narrow, widen};
use crate::units::{AllocatedSize, Txg, VdevOffset};

/// The size of a label, in bytes.
#[doc(alias = "vdev_label_t")]
pub const LABEL_BYTES: u64 = 256 << 10;
/// How many labels a device has.
#[doc(alias = "VDEV_LABELS")]
pub const LABEL_COUNT: u64 = 4;
/// Where the boot environment is in a label.
pub const BOOT_ENVIRONMENT_OFFSET: u64 = 8 << 10;
/// The size of the boot environment, tail included.
#[doc(alias = "VDEV_PAD_SIZE")]
pub const BOOT_ENVIRONMENT_BYTES: u64 = 8 << 10;
/// Where the configuration is in a label.
pub const CONFIGURATION_OFFSET: u64 = 16 << 10;
/// The size of the configuration, tail included.
#[doc(alias = "VDEV_PHYS_SIZE")]
pub const CONFIGURATION_BYTES: u64 = 112 << 10;
/// Where the ring of uberblocks is in a label.
pub const RING_OFFSET: u64 = 128 << 10;
/// The size of the ring of uberblocks.
#[doc(alias = "VDEV_UBERBLOCK_RING")]
pub const RING_BYTES: u64 = 128 << 10;
/// Where data starts on a device: behind two labels and the boot area.
#[doc(alias = "VDEV_LABEL_START_SIZE")]
pub const DATA_START_BYTES: u64 = 4 << 20;
/// How much of a device's end is labels.
#[doc(alias = "VDEV_LABEL_END_SIZE")]
pub const DATA_END_BYTES: u64 = 2 * LABEL_BYTES;

/// The smallest slot is `2^10` bytes.
const SLOT_SHIFT_MIN: u32 = 10;
/// The largest slot is `2^13` bytes.
const SLOT_SHIFT_MAX: u32 = 13;

/// Where label `index` starts on a device, in bytes; none for a device too small to have it apart
/// from the others, or for a fifth label.
#[doc(alias = "vdev_label_offset")]
pub fn label_offset(device_bytes: u64, index: u64) -> Option<u64> {
    let usable = device_bytes - device_bytes % LABEL_BYTES;
    if usable < LABEL_COUNT * LABEL_BYTES {
        return None;
    }
    match index {
        0 | 1 => Some(index * LABEL_BYTES),
        2 | 3 => Some(usable - (LABEL_COUNT - index) * LABEL_BYTES),
        _ => None,
    }
}

/// How much room for data a device has, labels and boot area taken off; none for a device that is
/// all labels.
pub fn data_size(device_bytes: u64) -> Option<AllocatedSize> {
    let usable = device_bytes - device_bytes % LABEL_BYTES;
    usable
        .checked_sub(DATA_START_BYTES + DATA_END_BYTES)
        .map(AllocatedSize::from)
}

/// Where on the device a vdev offset of its only top-level vdev is; none past 64 bits.
pub fn device_offset(offset: VdevOffset) -> Option<u64> {
    offset.get().checked_add(DATA_START_BYTES)
}

/// The ring of uberblocks of a device with sectors of `2^ashift` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    slot_shift: u32,
}

impl Ring {
    /// The ring for this sector size.
    #[doc(alias = "VDEV_UBERBLOCK_SHIFT")]
    pub fn new(ashift: u32) -> Ring {
        Ring {
            slot_shift: ashift.clamp(SLOT_SHIFT_MIN, SLOT_SHIFT_MAX),
        }
    }

    /// The size of a slot, in bytes.
    pub const fn slot_bytes(self) -> u64 {
        1 << self.slot_shift
    }

    /// How many slots there are.
    pub const fn slot_count(self) -> u64 {
        RING_BYTES >> self.slot_shift
    }

    /// Where a slot starts in its label.
    ///
    /// # Panics
    /// When there is no such slot.
    pub const fn slot_offset(self, slot: u64) -> u64 {
        assert!(slot < self.slot_count(), "a slot is in its ring");
        RING_OFFSET + slot * self.slot_bytes()
    }

    /// The slot for the uberblock of a txg, in a pool of a single host.
    pub const fn slot_of(self, txg: Txg) -> u64 {
        txg.get() % self.slot_count()
    }

    /// The slot for the uberblock of a txg, in a pool with multihost on: the last slot is kept
    /// for the writes that show a host alive.
    pub const fn slot_of_multihost(self, txg: Txg) -> u64 {
        txg.get() % (self.slot_count() - 1)
    }
}

/// Packs a configuration, an XDR name-value list, into the area of a label; its checksum is still
/// to be computed. None when it is too large.
pub fn pack_configuration(list: &[u8]) -> Option<Vec<u8>> {
    let mut area = vec![0; narrow(CONFIGURATION_BYTES)];
    let room = area.len() - EmbeddedChecksum::SIZE;
    area[..room].get_mut(..list.len())?.copy_from_slice(list);
    EmbeddedChecksum::new(Checksum::ZERO).write_to_end_of(&mut area);
    Some(area)
}

/// The configuration of a label and its tail. The list is followed by zeros; it knows its own end.
/// The checksum is for the caller to verify.
pub fn unpack_configuration(area: &[u8]) -> Result<Unpacked<'_>, Corrupt> {
    unpack("label configuration", area, CONFIGURATION_BYTES)
}

/// Packs a boot environment: a version (big-endian on every machine) and its bytes, the checksum
/// still to be computed. None when it is too large.
pub fn pack_boot_environment(version: u64, contents: &[u8]) -> Option<Vec<u8>> {
    let mut area = vec![0; narrow(BOOT_ENVIRONMENT_BYTES)];
    let room = area.len() - EmbeddedChecksum::SIZE;
    area[..8].copy_from_slice(&version.to_be_bytes());
    area[8..room]
        .get_mut(..contents.len())?
        .copy_from_slice(contents);
    EmbeddedChecksum::new(Checksum::ZERO).write_to_end_of(&mut area);
    Some(area)
}

/// The boot environment of a label: its version, then its bytes with their tail.
pub fn unpack_boot_environment(area: &[u8]) -> Result<(u64, Unpacked<'_>), Corrupt> {
    let mut unpacked = unpack("boot environment", area, BOOT_ENVIRONMENT_BYTES)?;
    let version = u64::from_bytes(unpacked.contents, ByteOrder::Big)?;
    unpacked.contents = &unpacked.contents[8..];
    Ok((version, unpacked))
}

/// A piece of a label, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked<'a> {
    /// What it says, zeros behind it included.
    pub contents: &'a [u8],
    /// The checksum it carries.
    pub tail: EmbeddedChecksum,
    /// The byte order of the machine that wrote it.
    pub order: ByteOrder,
}

fn unpack<'a>(what: &'static str, area: &'a [u8], size: u64) -> Result<Unpacked<'a>, Corrupt> {
    let size = narrow(size);
    let area = area.get(..size).ok_or(Corrupt::Truncated {
        what,
        offset: 0,
        needed: widen(size),
        present: widen(area.len()),
    })?;
    let (tail, order) = EmbeddedChecksum::of_block(what, area)?;
    Ok(Unpacked {
        contents: &area[..size - EmbeddedChecksum::SIZE],
        tail,
        order,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_lie_at_both_ends_of_a_rounded_device() {
        let device = (64 << 20) + 12_345;
        let offsets: Vec<_> = (0..5).map(|index| label_offset(device, index)).collect();
        let end = 64 << 20;
        assert_eq!(
            offsets,
            [
                Some(0),
                Some(0x40000),
                Some(end - 0x80000),
                Some(end - 0x40000),
                None
            ]
        );
        assert_eq!(label_offset(1 << 19, 0), None);
        assert_eq!(data_size(device).unwrap().get(), end - 0x48_0000);
    }

    #[test]
    fn slots_are_as_large_as_sectors_within_limits() {
        let sizes = [9, 10, 12, 13, 16].map(|ashift| Ring::new(ashift).slot_bytes());
        assert_eq!(sizes, [1024, 1024, 4096, 8192, 8192]);
        let ring = Ring::new(12);
        assert_eq!(ring.slot_count(), 32);
        assert_eq!(ring.slot_offset(31), LABEL_BYTES - 4096);
        assert_eq!(ring.slot_of(Txg::from(33)), 1);
        assert_eq!(ring.slot_of_multihost(Txg::from(33)), 2);
    }

    #[test]
    fn a_configuration_comes_back_unless_it_is_too_large() {
        let area = pack_configuration(&[7; 100]).unwrap();
        let unpacked = unpack_configuration(&area).unwrap();
        assert_eq!(unpacked.contents[..101], [&[7; 100][..], &[0]].concat());
        assert_eq!(unpacked.order, ByteOrder::Little);
        assert_eq!(pack_configuration(&[7; 112 << 10]), None);
        assert!(unpack_configuration(&area[1..]).is_err());
    }

    #[test]
    fn a_boot_environment_comes_back_with_its_version() {
        let area = pack_boot_environment(1, b"grub").unwrap();
        let (version, unpacked) = unpack_boot_environment(&area).unwrap();
        assert_eq!((version, &unpacked.contents[..5]), (1, &b"grub\0"[..]));
    }
}
