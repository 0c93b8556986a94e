//! How large a pool is: what its devices offer to blocks, and what datasets may take of it.
//!
//! A device is cut into metaslabs of one size, and what does not fill one is not used. Space is
//! counted *deflated*: a raidz spends part of what is allocated on parity, and users are told what
//! is left, by a fixed ratio for each vdev. Some is kept back (`slop`), so that a full pool can
//! still be changed, for even freeing needs room.

use tarn_ondisk::units::AllocatedSize;
use tarn_space::slop_size;
use tarn_vdev::{AllocationBias, TopLevel};

/// A power of two: ratios count 512ths.
const RATIO_SHIFT: u32 = 9;

/// What a vdev offers to blocks, parity included.
pub fn usable_bytes(vdev: &TopLevel) -> u64 {
    match vdev.metaslab_shift {
        0 => 0,
        shift => vdev.asize.get() >> shift << shift,
    }
}

/// Allocated bytes of a vdev as users are told of them.
pub fn deflated(vdev: &TopLevel, allocated_bytes: u64) -> u64 {
    let deflated = (allocated_bytes >> RATIO_SHIFT).saturating_mul(vdev.deflate_ratio);
    debug_assert!(
        deflated <= allocated_bytes,
        "without its parity, space is not more"
    );
    deflated
}

/// What all devices for ordinary blocks offer, as users are told of it.
pub fn deflated_size(vdevs: &[TopLevel]) -> u64 {
    let ordinary = vdevs
        .iter()
        .filter(|vdev| !vdev.is_log && vdev.allocation_bias == AllocationBias::None);
    ordinary
        .map(|vdev| deflated(vdev, usable_bytes(vdev)))
        .fold(0, u64::saturating_add)
}

/// What all datasets together may take, and what is kept back. `embedded_log` is what metaslabs
/// kept for the intent log offer.
pub fn adjusted_size(vdevs: &[TopLevel], embedded_log: u64) -> (u64, u64) {
    let size = deflated_size(vdevs).saturating_sub(embedded_log);
    let slop = slop_size(AllocatedSize::from(size), AllocatedSize::from(embedded_log));
    let adjusted = size.saturating_sub(slop.get());
    assert!(adjusted <= size, "slop takes from the size");
    (adjusted, slop.get())
}

/// The `size` of `zpool list`: what devices offer, parity included, without those for the log.
pub fn listed_size(vdevs: &[TopLevel]) -> u64 {
    vdevs
        .iter()
        .filter(|vdev| !vdev.is_log)
        .map(usable_bytes)
        .fold(0, u64::saturating_add)
}
