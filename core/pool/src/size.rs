//! The size of a pool: what its devices offer to blocks, and what datasets may use.
//!
//! A device is cut into metaslabs of one size, and a remainder is not used. Space is counted
//! *deflated*: a raidz spends part of its allocations on parity, and users see the rest, by a fixed
//! ratio for each vdev. Some is kept back (`slop`), so that a full pool can still be changed, since
//! even freeing needs space.

use tarn_ondisk::units::AllocatedSize;
use tarn_space::slop_size;
use tarn_vdev::{AllocationBias, TopLevel};

/// A power of two: ratios count 512ths.
const RATIO_SHIFT: u32 = 9;

/// Bytes of a vdev for blocks, parity included.
pub fn usable_bytes(vdev: &TopLevel) -> u64 {
    match vdev.metaslab_shift {
        0 => 0,
        shift => vdev.asize.get() >> shift << shift,
    }
}

/// Allocated bytes of a vdev, deflated.
pub fn deflated(vdev: &TopLevel, allocated_bytes: u64) -> u64 {
    let deflated = (allocated_bytes >> RATIO_SHIFT).saturating_mul(vdev.deflate_ratio);
    debug_assert!(
        deflated <= allocated_bytes,
        "without its parity, space is not more"
    );
    deflated
}

/// Bytes of all devices for ordinary blocks, deflated.
pub fn deflated_size(vdevs: &[TopLevel]) -> u64 {
    let ordinary = vdevs
        .iter()
        .filter(|vdev| !vdev.is_log && vdev.allocation_bias == AllocationBias::None);
    ordinary
        .map(|vdev| deflated(vdev, usable_bytes(vdev)))
        .fold(0, u64::saturating_add)
}

/// Bytes for all datasets together, and the slop. `embedded_log` is the size of the metaslabs kept
/// for the intent log.
pub fn adjusted_size(vdevs: &[TopLevel], embedded_log: u64) -> (u64, u64) {
    let size = deflated_size(vdevs).saturating_sub(embedded_log);
    let slop = slop_size(AllocatedSize::from(size), AllocatedSize::from(embedded_log));
    let adjusted = size.saturating_sub(slop.get());
    assert!(adjusted <= size, "slop takes from the size");
    (adjusted, slop.get())
}

/// The `size` of `zpool list`: bytes of devices, parity included, without log devices.
pub fn listed_size(vdevs: &[TopLevel]) -> u64 {
    vdevs
        .iter()
        .filter(|vdev| !vdev.is_log)
        .map(usable_bytes)
        .fold(0, u64::saturating_add)
}
