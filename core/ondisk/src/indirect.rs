//! Where the blocks of a removed vdev went (feature `device_removal`).
//!
//! A removed vdev stays in the config as *indirect*. Its mapping object is a list of moved runs,
//! sorted by their old place; its births object says up to which old place was moved in which txg.

use crate::block_pointer::Dva;
use crate::declare::{ByteOrder, Corrupt, Stored, bits, widen};
use crate::on_disk;
use crate::units::{ObjectId, Txg, VdevOffset};

on_disk! {
    /// The bonus of a mapping object. Without the feature `obsolete_counts`, only the first 24
    /// bytes.
    #[doc(alias = "vdev_indirect_mapping_phys_t")]
    #[derive(Copy, Default)]
    pub struct MappingHead [32 bytes] {
        0  => offset_max: VdevOffset,
        8  => mapped_bytes: u64,
        16 => count: u64,
        /// A 32-bit counter per run: how much of it is not used any more.
        24 => obsolete_counts: ObjectId,
    }
}

impl MappingHead {
    /// Decodes a bonus of either size.
    pub fn from_bonus(bonus: &[u8], order: ByteOrder) -> Result<MappingHead, Corrupt> {
        if bonus.len() < 24 {
            return Err(Corrupt::Truncated {
                what: Self::NAME,
                offset: 0,
                needed: 24,
                present: widen(bonus.len()),
            });
        }
        MappingHead::from_short_bytes(bonus, order)
    }
}

on_disk! {
    /// One moved run.
    #[doc(alias = "vdev_indirect_mapping_entry_phys_t")]
    #[derive(Copy, Default)]
    pub struct MovedRun [24 bytes] {
        /// Bits 0 to 62: where it was, in sectors.
        0 => source_word: u64,
        /// Where it is, and how long.
        8 => destination: Dva,
    }
}

impl MovedRun {
    /// Where the run was.
    pub const fn source(&self) -> VdevOffset {
        VdevOffset::new(bits(self.source_word, 0, 63).saturating_mul(512))
    }
}

on_disk! {
    /// The bonus of a births object.
    #[doc(alias = "vdev_indirect_birth_phys_t")]
    #[derive(Copy, Default)]
    pub struct BirthsHead [8 bytes] {
        0 => count: u64,
    }
}

on_disk! {
    /// Everything before `offset`, and behind the entry before, was moved in `birth`.
    #[doc(alias = "vdev_indirect_birth_entry_phys_t")]
    #[derive(Copy, Default)]
    pub struct BirthEntry [16 bytes] {
        0 => offset: VdevOffset,
        8 => birth: Txg,
    }
}
