//! Dedup tables: blocks with equal contents, stored once.
//!
//! # Mechanism
//! There is a table per checksum function, of up to three ZAPs by *class*: blocks with one
//! reference, with several, and (from before 2014) with extra copies. A ZAP maps a [`DedupKey`] (40
//! bytes, as five words) to the places of the block, compressed behind one byte that says how
//! ([`split_value`]). The *legacy* value has four sets of places, one per number of copies; the
//! *flat* one (feature `fast_dedup`) has one. With the latter, changes go through two logs first.

use crate::block_pointer::{BlockPointer, Dva};
use crate::checksum::{Checksum, ChecksumKind};
use crate::compression::Compression;
use crate::declare::{ByteOrder, Corrupt, bit, bits, with_bits};
use crate::on_disk;
use crate::units::{AllocatedSize, LogicalSize, PhysicalSize, Txg};

on_disk! {
    /// What names a block in a dedup table: everything that is the same for equal contents.
    #[doc(alias = "ddt_key_t")]
    #[derive(Copy, Hash, PartialOrd, Ord, Default)]
    pub struct DedupKey [40 bytes] {
        0  => checksum: Checksum,
        /// See the methods.
        32 => properties: u64,
    }
}

/// ```text
///   63          40 39 38         32 31        16 15         0
///  +--------------+--+-------------+------------+------------+
///  |      0       | X| compression |  physical  |  logical   |
///  +--------------+--+-------------+------------+------------+
/// ```
///
/// `X`: encrypted. Sizes in sectors, less one.
impl DedupKey {
    /// What names the block of a pointer.
    #[doc(alias = "ddt_key_fill")]
    pub fn of_pointer(pointer: &BlockPointer) -> DedupKey {
        let sectors = |bytes: u64| (bytes / 512).saturating_sub(1);
        let mut properties = with_bits(0, 0, 16, sectors(pointer.logical_size().get()));
        properties = with_bits(properties, 16, 16, sectors(pointer.physical_size().get()));
        properties = with_bits(properties, 32, 7, u64::from(pointer.compression().code()));
        properties = with_bits(properties, 39, 1, u64::from(pointer.uses_encryption()));
        DedupKey {
            checksum: pointer.checksum(),
            properties,
        }
    }

    /// The size of the block before compression.
    pub const fn logical_size(&self) -> LogicalSize {
        LogicalSize::new((bits(self.properties, 0, 16) + 1) * 512)
    }

    /// The size of the block after compression.
    pub const fn physical_size(&self) -> PhysicalSize {
        PhysicalSize::new((bits(self.properties, 16, 16) + 1) * 512)
    }

    /// How the block was compressed.
    pub const fn compression(&self) -> Compression {
        Compression::from_code(crate::block_pointer::low_byte(bits(self.properties, 32, 7)))
    }

    /// True where the block is encrypted.
    pub const fn is_encrypted(&self) -> bool {
        bit(self.properties, 39)
    }
}

on_disk! {
    /// One set of places in a legacy value.
    #[doc(alias = "ddt_phys_t")]
    #[derive(Copy, Default)]
    pub struct DedupPlaces [64 bytes] {
        0  => dvas: [Dva; 3],
        48 => reference_count: u64,
        /// Zero for a set that is not used.
        56 => physical_birth: Txg,
    }
}

on_disk! {
    /// A legacy value: sets of places for extra, one, two and three copies.
    #[doc(alias = "ddt_univ_phys_t")]
    #[derive(Copy, Default)]
    pub struct LegacyDedupValue [256 bytes] {
        0 => places: [DedupPlaces; 4],
    }
}

on_disk! {
    /// A flat value (feature `fast_dedup`).
    #[derive(Copy, Default)]
    pub struct FlatDedupValue [72 bytes] {
        0  => dvas: [Dva; 3],
        48 => reference_count: u64,
        56 => physical_birth: Txg,
        /// Seconds since 1970, UTC: since when it has been in its class.
        64 => class_start_s: u64,
    }
}

on_disk! {
    /// Sums over the blocks of one power of two of references.
    #[doc(alias = "ddt_stat_t")]
    #[derive(Copy, Default)]
    pub struct DedupStatistics [64 bytes] {
        0  => blocks: u64,
        8  => logical: LogicalSize,
        16 => physical: PhysicalSize,
        24 => allocated: AllocatedSize,
        32 => referenced_blocks: u64,
        40 => referenced_logical: LogicalSize,
        48 => referenced_physical: PhysicalSize,
        56 => referenced_allocated: AllocatedSize,
    }
}

on_disk! {
    /// Sums by references: bucket `i` is for `2^i` and more.
    #[doc(alias = "ddt_histogram_t")]
    #[derive(Copy)]
    pub struct DedupHistogram [4096 bytes] {
        0 => buckets: [DedupStatistics; 64],
    }
}

on_disk! {
    /// The bonus of a dedup log (feature `fast_dedup`).
    #[doc(alias = "ddt_log_header_t")]
    #[derive(Copy)]
    pub struct DedupLogHead [64 bytes] {
        /// Version in bits 0 to 7, flags in 8 to 15.
        0  => version_and_flags: u64,
        8  => length: u64,
        16 => first_txg: Txg,
        24 => checkpoint: DedupKey,
    }
}

/// What the name of a class is in the names of objects.
#[doc(alias = "ddt_class_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DedupClass {
    /// Blocks with extra copies. Not made any more.
    Ditto,
    /// Blocks with several references.
    Duplicate,
    /// Blocks with one reference.
    Unique,
}

impl DedupClass {
    /// All, in the order in which a block is looked up.
    pub const ALL: [DedupClass; 3] = [DedupClass::Ditto, DedupClass::Duplicate, DedupClass::Unique];

    /// The name in names of objects.
    pub const fn name(self) -> &'static str {
        match self {
            DedupClass::Ditto => "ditto",
            DedupClass::Duplicate => "duplicate",
            DedupClass::Unique => "unique",
        }
    }
}

/// The name of a table's ZAP in its directory (the pool directory, for legacy tables).
#[doc(alias = "DMU_POOL_DDT")]
pub fn table_name(checksum: ChecksumKind, class: DedupClass) -> String {
    format!("DDT-{checksum}-zap-{}", class.name())
}

/// The name of a table's directory in the pool directory (feature `fast_dedup`).
#[doc(alias = "DMU_POOL_DDT_DIR")]
pub fn directory_name(checksum: ChecksumKind) -> String {
    format!("DDT-{checksum}")
}

/// The name of one of a table's two logs in its directory.
#[doc(alias = "DMU_POOL_DDT_LOG")]
pub fn log_name(checksum: ChecksumKind, index: u8) -> String {
    format!("DDT-log-{checksum}-{index}")
}

/// In a table's directory: its version.
#[doc(alias = "DDT_DIR_VERSION")]
pub const DIRECTORY_VERSION: &str = "version";
/// In a table's directory: flags, 1 for flat values and 2 for logs.
#[doc(alias = "DDT_DIR_FLAGS")]
pub const DIRECTORY_FLAGS: &str = "flags";

/// A value as a ZAP stores it: how it is compressed, in which byte order its words are, and the
/// bytes.
///
/// ```text
///    7      6           0
///  +---+----------------+-----------
///  | L |  compression   | bytes...
///  +---+----------------+-----------
/// ```
///
/// `L`: little-endian.
pub fn split_value(stored: &[u8]) -> Result<(Compression, ByteOrder, &[u8]), Corrupt> {
    let (&how, bytes) = stored.split_first().ok_or(Corrupt::Truncated {
        what: "dedup value",
        offset: 0,
        needed: 1,
        present: 0,
    })?;
    let order = if how & 0x80 != 0 {
        ByteOrder::Little
    } else {
        ByteOrder::Big
    };
    Ok((Compression::from_code(how & 0x7f), order, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_as_administrators_see_them() {
        let name = table_name(ChecksumKind::Sha256, DedupClass::Unique);
        assert_eq!(name, "DDT-sha256-zap-unique");
        assert_eq!(log_name(ChecksumKind::Blake3, 1), "DDT-log-blake3-1");
        assert_eq!(directory_name(ChecksumKind::Sha512), "DDT-sha512");
    }

    #[test]
    fn a_value_says_how_it_is_stored() {
        let (compression, order, bytes) = split_value(&[0x80 | 14, 1, 2]).unwrap();
        assert_eq!(
            (compression, order, bytes),
            (Compression::Zle, ByteOrder::Little, &[1, 2][..])
        );
        assert!(split_value(&[]).is_err());
    }
}
