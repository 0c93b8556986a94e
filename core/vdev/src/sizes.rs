//! Sizes: how large sectors (ashift), vdevs (asize) and metaslabs are, from the sizes of devices.
//!
//! # Mechanism
//! These numbers are chosen once, when a vdev joins the pool, and stored. The format allows any;
//! this module chooses as OpenZFS does, so that both make the same pool of the same devices.
//!
//! A metaslab is `2^n` bytes, with `n` such that there are about [`METASLAB_COUNT`] of them, none
//! is smaller than 512 MiB or larger than 16 GiB, but with at least [`METASLAB_COUNT_MIN`] on a
//! small vdev, and at most [`METASLAB_COUNT_MAX`] on a huge one.

use crate::config::{ASHIFT_MAX, ASHIFT_MIN, VdevKind};
use tarn_ondisk::units::AllocatedSize;

/// A device must have this many bytes to become part of a pool.
#[doc(alias = "SPA_MINDEVSIZE")]
pub const DEVICE_BYTES_MIN: u64 = 64 << 20;

/// How many metaslabs a vdev has, if it is neither small nor huge.
#[doc(alias = "zfs_vdev_default_ms_count")]
pub const METASLAB_COUNT: u64 = 200;
/// How many metaslabs a small vdev has.
#[doc(alias = "zfs_vdev_min_ms_count")]
pub const METASLAB_COUNT_MIN: u64 = 16;
/// How many metaslabs a huge vdev has at most when it is made.
#[doc(alias = "zfs_vdev_ms_count_limit")]
pub const METASLAB_COUNT_MAX: u64 = 1 << 17;

/// 512 MiB: the metaslab of a vdev that is neither small nor huge.
#[doc(alias = "zfs_vdev_default_ms_shift")]
const METASLAB_SHIFT: u32 = 29;
/// 16 MiB, the largest block: a metaslab holds at least one.
#[doc(alias = "SPA_MAXBLOCKSHIFT")]
const METASLAB_SHIFT_MIN: u32 = 24;
/// 16 GiB.
#[doc(alias = "zfs_vdev_max_ms_shift")]
const METASLAB_SHIFT_MAX: u32 = 34;

/// A sector size that we choose ourselves is not larger than this, whatever the device says.
#[doc(alias = "zfs_vdev_max_auto_ashift")]
const ASHIFT_CHOSEN_MAX: u32 = 14;

/// The size of the block by which a vdev's overhead is measured.
const DEFLATE_BLOCK_BYTES: u64 = 1 << 17;

/// How large the metaslabs of a new vdev are, as a power of two.
#[doc(alias = "vdev_metaslab_set_size")]
pub fn metaslab_shift(asize: AllocatedSize) -> u32 {
    let asize = asize.get();
    let count = asize >> METASLAB_SHIFT;
    let shift = if count < METASLAB_COUNT_MIN {
        bit_length(asize / METASLAB_COUNT_MIN)
    } else if count > METASLAB_COUNT {
        bit_length(asize / METASLAB_COUNT)
    } else {
        METASLAB_SHIFT
    };
    let shift = shift.clamp(METASLAB_SHIFT_MIN, METASLAB_SHIFT_MAX);
    if shift == METASLAB_SHIFT_MAX && asize >> shift > METASLAB_COUNT_MAX {
        return bit_length(asize / METASLAB_COUNT_MAX);
    }
    shift
}

/// How many bits it takes to write a number. A power of two needs one more than its exponent, and
/// gets it: a vdev of exactly sixteen times `2^n` has eight metaslabs.
fn bit_length(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// How many whole metaslabs a vdev has; a rest at its end is not used.
pub fn metaslab_count(asize: AllocatedSize, metaslab_shift: u32) -> u64 {
    asize.get().checked_shr(metaslab_shift).unwrap_or(0)
}

/// What devices say about their sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectorShifts {
    /// The smallest sector that the device can write.
    pub logical: u32,
    /// The smallest sector that the device can write without reading first.
    pub physical: u32,
}

impl SectorShifts {
    /// Of a file, which has no sectors.
    pub const FILE: SectorShifts = SectorShifts {
        logical: ASHIFT_MIN,
        physical: ASHIFT_MIN,
    };

    /// From sizes in bytes, as a device says them.
    pub fn from_bytes(logical_bytes: u64, physical_bytes: u64) -> SectorShifts {
        let shift = |bytes: u64| bytes.max(1).ilog2().max(ASHIFT_MIN);
        let logical = shift(logical_bytes);
        SectorShifts {
            logical,
            physical: shift(physical_bytes).max(logical),
        }
    }
}

/// The sector size of a new vdev on these devices, unless an administrator asked for another.
/// None where a device cannot write sectors as small as the format's largest.
#[doc(alias = "vdev_ashift_optimize")]
pub fn choose_ashift(devices: &[SectorShifts]) -> Option<u32> {
    let logical = devices
        .iter()
        .map(|device| device.logical)
        .max()
        .unwrap_or(ASHIFT_MIN);
    if logical > ASHIFT_MAX {
        return None;
    }
    let usable = |shift: &u32| *shift <= ASHIFT_CHOSEN_MAX.max(logical);
    let physical = devices
        .iter()
        .map(|device| device.physical)
        .filter(usable)
        .max();
    let ashift = logical.max(physical.unwrap_or(logical)).max(ASHIFT_MIN);
    assert!(
        (ASHIFT_MIN..=ASHIFT_MAX).contains(&ashift),
        "a chosen ashift is one that the format allows"
    );
    Some(ashift)
}

/// The size (asize) of a vdev whose children have these sizes.
#[doc(alias = "vdev_asize")]
pub fn top_level_size(kind: VdevKind, children: &[AllocatedSize]) -> AllocatedSize {
    let smallest = children
        .iter()
        .copied()
        .min()
        .unwrap_or(AllocatedSize::ZERO);
    match kind {
        VdevKind::Raidz { .. } => children.iter().map(|_| smallest).sum(),
        _ => smallest,
    }
}

/// The least size of a child in a vdev of this size.
#[doc(alias = "vdev_get_min_asize")]
pub fn child_size_min(kind: VdevKind, asize: AllocatedSize, child_count: u64) -> AllocatedSize {
    match kind {
        VdevKind::Raidz { .. } => AllocatedSize::from(asize.div_ceil(child_count)),
        _ => asize,
    }
}

/// How much of allocated space is data, in 512ths: `zfs list` shows space multiplied by this, as if
/// there were no parity. `allocated_size` is of a block of 128 KiB on this vdev.
#[doc(alias = "vdev_set_deflate_ratio")]
pub fn deflate_ratio(allocated_size: impl Fn(u64) -> AllocatedSize) -> u64 {
    let ratio = DEFLATE_BLOCK_BYTES / allocated_size(DEFLATE_BLOCK_BYTES).sectors().max(1);
    assert!(ratio <= 512, "a block takes at least its own size");
    ratio
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shift(asize: u64) -> u32 {
        metaslab_shift(AllocatedSize::from(asize))
    }

    /// The first three are what OpenZFS stored for vdevs of files of 96 MiB.
    #[test]
    fn metaslabs_are_as_large_as_openzfs_makes_them() {
        assert_eq!(shift(95_944_704), 24);
        assert_eq!(shift(4 * 95_944_704), 25);
        assert_eq!(shift(8 * 95_944_704), 26);
        assert_eq!(shift(8 << 30), 29);
        assert_eq!(shift(100 << 30), 29);
        assert_eq!(shift(200 << 30), 31);
        assert_eq!(shift(1 << 40), 33);
        assert_eq!(shift(100 << 40), 34);
        assert_eq!(shift(4 << 50), 36);
    }

    #[test]
    fn the_sector_is_the_largest_that_a_device_likes_within_reason() {
        let disk = SectorShifts::from_bytes;
        assert_eq!(choose_ashift(&[SectorShifts::FILE]), Some(9));
        assert_eq!(choose_ashift(&[disk(512, 4096), disk(512, 512)]), Some(12));
        assert_eq!(choose_ashift(&[disk(512, 65536)]), Some(9));
        assert_eq!(choose_ashift(&[disk(65536, 65536)]), Some(16));
        assert_eq!(choose_ashift(&[disk(1 << 17, 1 << 17)]), None);
    }

    #[test]
    fn the_smallest_child_rules() {
        let children = [300, 200, 400].map(AllocatedSize::from);
        assert_eq!(top_level_size(VdevKind::Mirror, &children).get(), 200);
        assert_eq!(
            top_level_size(VdevKind::Raidz { parity: 1 }, &children).get(),
            600
        );
        let size = AllocatedSize::from(601);
        assert_eq!(
            child_size_min(VdevKind::Raidz { parity: 1 }, size, 3).get(),
            201
        );
    }
}
