//! Bookmarks: the txg of a snapshot that may be gone, so that a send can start from there; and
//! marks of how far a traversal has come.
//!
//! A dataset's ZAP of bookmarks has each as an array of words. Older ones are shorter: what they
//! lack is not known.

use crate::declare::{ByteOrder, Corrupt, Stored};
use crate::on_disk;
use crate::units::{AllocatedSize, Guid, LogicalSize, ObjectId, PhysicalSize, Txg};

/// The level of the head of an object set in a [`TraversalMark`].
#[doc(alias = "ZB_ROOT_LEVEL")]
pub const HEAD_LEVEL: i64 = -1;
/// The level of a block of an intent log in a [`TraversalMark`].
#[doc(alias = "ZB_ZIL_LEVEL")]
pub const INTENT_LOG_LEVEL: i64 = -2;
/// The block number of a spill block in a [`TraversalMark`].
#[doc(alias = "DMU_SPILL_BLKID")]
pub const SPILL_BLOCK: u64 = u64::MAX - 1;

on_disk! {
    /// A place in the traversal of a pool: a block, by its object set, object, level and index.
    #[doc(alias = "zbookmark_phys_t")]
    #[derive(Copy, Default, Hash, PartialOrd, Ord)]
    pub struct TraversalMark [32 bytes] {
        0  => objset: ObjectId,
        8  => object: ObjectId,
        /// [`HEAD_LEVEL`] for the head of the object set, [`INTENT_LOG_LEVEL`] for a log block.
        16 => level: i64,
        24 => block: u64,
    }
}

on_disk! {
    /// What is kept of a snapshot.
    #[doc(alias = "zfs_bookmark_phys_t")]
    #[derive(Copy, Default)]
    pub struct Bookmark [96 bytes] {
        /// The guid of the snapshot.
        0  => guid: Guid,
        8  => creation_txg: Txg,
        /// Seconds since 1970, UTC.
        16 => creation_time_s: u64,
        /// The list of blocks a redacted send leaves out; zero for none.
        24 => redaction: ObjectId,
        /// See [`Bookmark::HAS_FREED_BEFORE_NEXT`].
        32 => flags: u64,
        40 => referenced: AllocatedSize,
        48 => compressed: PhysicalSize,
        56 => uncompressed: LogicalSize,
        64 => referenced_freed_before_next: AllocatedSize,
        72 => compressed_freed_before_next: PhysicalSize,
        80 => uncompressed_freed_before_next: LogicalSize,
        /// Which set of IVs the snapshot used; zero for none.
        88 => ivset_guid: Guid,
    }
}

/// How much of [`Bookmark`] is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookmarkVersion {
    /// 24 bytes: guid and creation.
    V1,
    /// 96 bytes: everything (feature `bookmark_v2`).
    V2,
}

impl BookmarkVersion {
    /// How many bytes it takes.
    pub const fn size(self) -> usize {
        match self {
            BookmarkVersion::V1 => 24,
            BookmarkVersion::V2 => 96,
        }
    }
}

impl Bookmark {
    /// The three sizes freed before the next snapshot are valid.
    #[doc(alias = "ZBM_FLAG_HAS_FBN")]
    pub const HAS_FREED_BEFORE_NEXT: u64 = 1;
    /// The snapshot was there when the flags were written.
    #[doc(alias = "ZBM_FLAG_SNAPSHOT_EXISTS")]
    pub const SNAPSHOT_EXISTS: u64 = 2;

    /// Decodes a bookmark of any size from V1 to V2; what is missing is zero.
    pub fn from_stored(bytes: &[u8], order: ByteOrder) -> Result<Bookmark, Corrupt> {
        if bytes.len() < BookmarkVersion::V1.size() {
            return Err(Corrupt::Truncated {
                what: Self::NAME,
                offset: 0,
                needed: 24,
                present: crate::declare::widen(bytes.len()),
            });
        }
        Bookmark::from_short_bytes(bytes, order)
    }

    /// The smallest version that holds all of it.
    pub fn version(&self) -> BookmarkVersion {
        let kept = Bookmark {
            guid: self.guid,
            creation_txg: self.creation_txg,
            creation_time_s: self.creation_time_s,
            ..Bookmark::default()
        };
        if kept == *self {
            BookmarkVersion::V1
        } else {
            BookmarkVersion::V2
        }
    }

    /// Encodes this version.
    pub fn to_stored(&self, version: BookmarkVersion) -> Vec<u8> {
        let mut bytes = self.to_bytes();
        bytes.truncate(version.size());
        bytes
    }
}

on_disk! {
    /// One run of blocks that a redacted send leaves out.
    #[doc(alias = "redact_block_phys_t")]
    #[derive(Copy, Default)]
    pub struct RedactedRun [32 bytes] {
        0  => object: ObjectId,
        8  => block: u64,
        /// High 16 bits: the size of a block in sectors. Low 48 bits: how many blocks.
        16 => size_and_count: u64,
        24 => reserved: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_bookmark_lacks_the_rest() {
        let bytes: Vec<u8> = (1..=96).collect();
        let old = Bookmark::from_stored(&bytes[..24], ByteOrder::Little).unwrap();
        assert_eq!(old.version(), BookmarkVersion::V1);
        assert_eq!(old.to_stored(old.version()), &bytes[..24]);
        let new = Bookmark::from_stored(&bytes, ByteOrder::Little).unwrap();
        assert_eq!(new.to_stored(new.version()), bytes);
        assert!(Bookmark::from_stored(&bytes[..16], ByteOrder::Little).is_err());
    }
}
