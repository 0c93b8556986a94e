//! Lists of block pointers: blocks that wait to be freed, or that a dataset no longer has.
//!
//! # Mechanism
//! The object's data are block pointers, one after the other. A list can take over others without
//! copying them: their object numbers are in a second object, `sublists`, as words. The totals in
//! the bonus include the sublists. Older versions of the bonus are shorter; what they lack is zero
//! and is never written into them.

use crate::declare::{ByteOrder, Corrupt, Stored};
use crate::on_disk;
use crate::units::{AllocatedSize, LogicalSize, ObjectId, PhysicalSize};

on_disk! {
    /// What a list of block pointers holds.
    #[doc(alias = "bpobj_phys_t")]
    #[derive(Copy, Default)]
    pub struct PointerListHead [56 bytes] {
        /// Pointers in this object itself.
        0  => count: u64,
        /// What they and all sublists add up to.
        8  => allocated: AllocatedSize,
        16 => compressed: PhysicalSize,
        24 => uncompressed: LogicalSize,
        /// The object that names the sublists.
        32 => sublists: ObjectId,
        40 => sublist_count: u64,
        /// How many of `count` are marked as freed: in livelists only.
        48 => freed_count: u64,
    }
}

/// How much of [`PointerListHead`] a bonus has, by its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PointerListVersion {
    /// 16 bytes: count and allocated size.
    Sizeless,
    /// 32 bytes: all sizes.
    Sized,
    /// 48 bytes: sublists.
    Nested,
    /// 56 bytes: freed blocks.
    Freed,
}

impl PointerListVersion {
    /// The version of a bonus of this many bytes; none when it is too small for any.
    pub fn of_size(bytes: usize) -> Option<PointerListVersion> {
        match bytes {
            0..16 => None,
            16..32 => Some(PointerListVersion::Sizeless),
            32..48 => Some(PointerListVersion::Sized),
            48..56 => Some(PointerListVersion::Nested),
            _ => Some(PointerListVersion::Freed),
        }
    }

    /// How many bytes a bonus of this version has.
    pub const fn size(self) -> usize {
        match self {
            PointerListVersion::Sizeless => 16,
            PointerListVersion::Sized => 32,
            PointerListVersion::Nested => 48,
            PointerListVersion::Freed => 56,
        }
    }
}

impl PointerListHead {
    /// Decodes a bonus of any version.
    pub fn from_bonus(
        bonus: &[u8],
        order: ByteOrder,
    ) -> Result<(PointerListHead, PointerListVersion), Corrupt> {
        let version = PointerListVersion::of_size(bonus.len()).ok_or(Corrupt::Truncated {
            what: Self::NAME,
            offset: 0,
            needed: 16,
            present: crate::declare::widen(bonus.len()),
        })?;
        let head = PointerListHead::from_short_bytes(&bonus[..version.size()], order)?;
        Ok((head, version))
    }

    /// Encodes a bonus of this version.
    pub fn to_bonus(&self, version: PointerListVersion) -> Vec<u8> {
        let mut bonus = self.to_bytes();
        bonus.truncate(version.size());
        bonus
    }

    /// True when nothing is in it, nor in a sublist.
    pub const fn is_empty(&self) -> bool {
        self.count == 0 && self.sublist_count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_reads_back_and_lacks_what_it_never_had() {
        let bytes: Vec<u8> = (1..=56).collect();
        for version in [
            PointerListVersion::Sizeless,
            PointerListVersion::Sized,
            PointerListVersion::Nested,
            PointerListVersion::Freed,
        ] {
            let bonus = &bytes[..version.size()];
            let (head, found) = PointerListHead::from_bonus(bonus, ByteOrder::Little).unwrap();
            assert_eq!(found, version);
            assert_eq!(head.to_bonus(version), bonus);
            assert_eq!(head.freed_count == 0, version != PointerListVersion::Freed);
        }
        assert!(PointerListHead::from_bonus(&bytes[..15], ByteOrder::Little).is_err());
    }
}
