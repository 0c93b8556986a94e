//! The block reference table: how often cloned blocks are referenced beyond the first time (feature
//! `block_cloning`).
//!
//! A top-level vdev with cloned blocks has an object in the MOS, named in the pool directory by
//! [`object_name`]. Its data are 16-bit counters, one per `range_bytes` of the vdev, of the cloned
//! blocks therein; its bonus has the sums; and a ZAP, `entries`, maps the offset of each cloned
//! block to its further references.

use crate::on_disk;
use crate::units::{AllocatedSize, ObjectId, VdevId};

on_disk! {
    /// Cloned blocks of one vdev.
    #[doc(alias = "brt_vdev_phys_t")]
    #[derive(Copy, Default)]
    pub struct ClonedBlocks [56 bytes] {
        /// The ZAP.
        0  => entries: ObjectId,
        /// How many counters there are.
        8  => counter_count: u64,
        /// The byte order of the counters: 0 little, 1 big.
        16 => counter_order: u64,
        /// The sum of the counters.
        24 => total_count: u64,
        32 => range_bytes: u64,
        /// What cloned blocks take.
        40 => used: AllocatedSize,
        /// What they would take beyond that without cloning.
        48 => saved: AllocatedSize,
    }
}

/// A counter counts the cloned blocks of so many bytes of a vdev. Even of the smallest blocks there
/// are fewer than a counter can count.
#[doc(alias = "BRT_RANGESIZE")]
pub const RANGE_BYTES: u64 = 16 << 20;

/// The block size of the object with the counters.
#[doc(alias = "BRT_BLOCKSIZE")]
pub const COUNTERS_BLOCK_BYTES: u64 = 32 << 10;

/// The size of blocks of the ZAP, and of its blocks of pointers, as a power of two.
#[doc(alias("brt_zap_default_bs", "brt_zap_default_ibs"))]
pub const ENTRIES_BLOCK_SHIFT: u8 = 12;

impl ClonedBlocks {
    /// The byte order of counters on machines that store the lowest byte first.
    #[doc(alias = "BRT_LITTLE_ENDIAN")]
    pub const LITTLE_ENDIAN: u64 = 0;
}

/// The name of a vdev's table in the pool directory.
#[doc(alias = "BRT_OBJECT_VDEV_PREFIX")]
pub fn object_name(vdev: VdevId) -> String {
    format!("com.fudosecurity:brt:vdev:{vdev}")
}
