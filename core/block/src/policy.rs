//! How a block is to be written: what its dataset asks for, and what its place in the tree demands.
//!
//! # Mechanism
//! A dataset has settings; a block has a type and a level. Metadata is always compressed and always
//! checksummed with something that can be relied on, whatever the settings say, and has one copy
//! more than data, because losing it loses everything below. The rules are OpenZFS's, so that a
//! pool looks as if OpenZFS had written it.

use tarn_ondisk as ondisk;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::Level;
use tarn_space::Class;
use tarn_transform::{ChecksumAlgorithm, CompressionAlgorithm};

/// From this level on, `redundant_metadata=most` keeps one more copy. Like OpenZFS.
#[doc(alias = "zfs_redundant_metadata_most_ditto_level")]
const MOST_REDUNDANT_LEVEL: u8 = 2;

/// How many copies an encrypted block has at most.
const SEALED_COPIES_MAX: usize = ondisk::block_pointer::DVA_COUNT - 1;

/// Everything decided about one block before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePolicy {
    /// What its object is for.
    pub object_type: ObjectType,
    /// Its height in the tree of its object.
    pub level: Level,
    /// How it is checksummed.
    pub checksum: ChecksumAlgorithm,
    /// How it is compressed; with `Off`, zeros are stored as zeros.
    pub compression: CompressionAlgorithm,
    /// In how many places it is stored.
    pub copies: usize,
    /// In how many places its gang headers are stored, if it is split. At least `copies`.
    pub gang_copies: usize,
    /// Where it should be stored.
    pub class: Class,
    /// Whether it may live in its pointer (feature `embedded_data`).
    pub embedding: Embedding,
    /// How many allocated things are below it.
    pub fill: u64,
}

impl WritePolicy {
    /// Whether a block may stay where it is if it is written anew with the contents it has (nop
    /// write). As in OpenZFS only contents of files and volumes may, and only compressed ones.
    pub fn may_stay(&self) -> bool {
        self.level.is_data()
            && !self.object_type.is_metadata()
            && self.compression != CompressionAlgorithm::Off
            && self.checksum.allows_skipped_write()
    }

    /// The same in an encrypted dataset: an encrypted block uses the third place of its pointer for
    /// salt and initialization vector, nothing lives in its pointer, and heads and dnodes are not
    /// compressed.
    pub fn sealed(self) -> WritePolicy {
        let (mut policy, is_data) = (self, self.level.is_data());
        policy.embedding = Embedding::Forbidden;
        if is_data && self.object_type.is_encrypted() {
            policy.copies = self.copies.min(SEALED_COPIES_MAX);
            policy.gang_copies = self.gang_copies.min(SEALED_COPIES_MAX);
        }
        if is_data && matches!(self.object_type, ObjectType::Dnode | ObjectType::Objset) {
            policy.compression = CompressionAlgorithm::Off;
        }
        policy
    }
}

/// Whether a block may live in its pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Embedding {
    /// If it is small enough.
    Allowed,
    /// Never.
    Forbidden,
}

/// What metadata gets more copies than data: the property `redundant_metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedundantMetadata {
    /// All of it.
    #[default]
    All,
    /// All but the lowest blocks of pointers of files.
    Most,
    /// What many files depend on.
    Some,
    /// None.
    None,
}

/// What a dataset asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetPolicy {
    /// The property `checksum`, resolved.
    pub checksum: ChecksumAlgorithm,
    /// The property `compression`, resolved.
    pub compression: CompressionAlgorithm,
    /// What metadata is compressed with: LZ4, or LZJB in pools without the feature.
    pub metadata_compression: CompressionAlgorithm,
    /// The property `copies`.
    pub copies: usize,
    /// The property `redundant_metadata`.
    pub redundant_metadata: RedundantMetadata,
    /// Data blocks up to this many bytes go to the special class: `special_small_blocks`.
    pub special_small_blocks: u64,
    /// Whether the pool has the feature `embedded_data`.
    pub embedding: Embedding,
}

impl DatasetPolicy {
    /// The policy of the MOS: everything in as many copies as a pointer can name.
    pub const fn of_mos(
        metadata_compression: CompressionAlgorithm,
        embedding: Embedding,
    ) -> DatasetPolicy {
        DatasetPolicy {
            checksum: ChecksumAlgorithm::Fletcher4,
            compression: metadata_compression,
            metadata_compression,
            copies: ondisk::block_pointer::DVA_COUNT,
            redundant_metadata: RedundantMetadata::All,
            special_small_blocks: 0,
            embedding,
        }
    }

    /// The policy of one block of `logical_size` bytes.
    #[doc(alias = "dmu_write_policy")]
    pub fn for_block(
        &self,
        object_type: ObjectType,
        level: Level,
        role: BlockRole,
        logical_size: u64,
        fill: u64,
    ) -> WritePolicy {
        let is_metadata = !level.is_data() || object_type.is_metadata() || role == BlockRole::Spill;
        let (copies, gang_copies) = self.copies_of(object_type, level, role, is_metadata);
        WritePolicy {
            object_type,
            level,
            checksum: self.checksum_of(is_metadata),
            compression: if is_metadata {
                self.metadata_compression
            } else {
                self.compression
            },
            copies,
            gang_copies,
            class: self.class_of(object_type, level, logical_size),
            embedding: self.embedding,
            fill,
        }
    }

    fn checksum_of(&self, is_metadata: bool) -> ChecksumAlgorithm {
        let is_fit = self.checksum.guards_metadata() && !self.checksum.is_embedded();
        if is_metadata && !is_fit {
            ChecksumAlgorithm::Fletcher4
        } else {
            self.checksum
        }
    }

    /// How many copies of a block, and of its gang headers.
    fn copies_of(
        &self,
        object_type: ObjectType,
        level: Level,
        role: BlockRole,
        is_metadata: bool,
    ) -> (usize, usize) {
        let is_inner = object_type.is_metadata() || role == BlockRole::Spill;
        let is_high = level.get() >= MOST_REDUNDANT_LEVEL;
        let is_below_high = level.get() + 1 >= MOST_REDUNDANT_LEVEL;
        let (block_extra, gang_extra) = match (is_metadata, self.redundant_metadata) {
            (true, RedundantMetadata::All) => (true, true),
            (true, RedundantMetadata::Most) => (is_high || is_inner, is_below_high || is_inner),
            (true, RedundantMetadata::Some) if is_critical(object_type, level) => (true, true),
            (true, RedundantMetadata::Some) => (false, object_type.is_metadata()),
            (false, RedundantMetadata::All) => (false, true),
            (_, _) => (false, false),
        };
        let capped = |extra| (self.copies + usize::from(extra)).min(tarn_space::COPIES_MAX);
        (capped(block_extra), capped(gang_extra))
    }

    fn class_of(&self, object_type: ObjectType, level: Level, logical_size: u64) -> Class {
        if object_type == ObjectType::DedupZap {
            return Class::Dedup;
        }
        let is_small = logical_size <= self.special_small_blocks;
        if object_type.is_metadata() || !level.is_data() || is_small {
            Class::Special
        } else {
            Class::Normal
        }
    }
}

/// What a block is to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockRole {
    /// Contents, or pointers to contents.
    Tree,
    /// Attributes that found no room in the dnode.
    Spill,
}

/// True for metadata whose loss takes more than a file with it.
#[doc(alias = "DMU_OT_IS_CRITICAL")]
fn is_critical(object_type: ObjectType, level: Level) -> bool {
    let is_lowest_dnodes = object_type == ObjectType::Dnode && level.is_data();
    let is_of_files = matches!(
        object_type,
        ObjectType::Directory | ObjectType::SystemAttributes
    );
    object_type.is_metadata() && !is_lowest_dnodes && !is_of_files
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATASET: DatasetPolicy = DatasetPolicy {
        checksum: ChecksumAlgorithm::Off,
        compression: CompressionAlgorithm::Off,
        metadata_compression: CompressionAlgorithm::Lz4,
        copies: 1,
        redundant_metadata: RedundantMetadata::All,
        special_small_blocks: 0,
        embedding: Embedding::Allowed,
    };

    fn policy(dataset: DatasetPolicy, object_type: ObjectType, level: u8) -> WritePolicy {
        dataset.for_block(object_type, Level::new(level), BlockRole::Tree, 131072, 1)
    }

    #[test]
    fn metadata_is_always_checksummed_compressed_and_doubled() {
        let data = policy(DATASET, ObjectType::PlainFile, 0);
        assert_eq!(data.checksum, ChecksumAlgorithm::Off);
        assert_eq!(data.compression, CompressionAlgorithm::Off);
        assert_eq!((data.copies, data.gang_copies), (1, 2));
        assert_eq!(data.class, Class::Normal);
        for metadata in [
            policy(DATASET, ObjectType::PlainFile, 1),
            policy(DATASET, ObjectType::Dnode, 0),
        ] {
            assert_eq!(metadata.checksum, ChecksumAlgorithm::Fletcher4);
            assert_eq!(metadata.compression, CompressionAlgorithm::Lz4);
            assert_eq!((metadata.copies, metadata.gang_copies), (2, 2));
            assert_eq!(metadata.class, Class::Special);
        }
    }

    #[test]
    fn no_block_has_more_than_three_copies() {
        let mos = DatasetPolicy::of_mos(CompressionAlgorithm::Lz4, Embedding::Allowed);
        let block = policy(mos, ObjectType::SpaceMap, 0);
        assert_eq!((block.copies, block.gang_copies), (3, 3));
    }

    #[test]
    fn most_redundant_metadata_leaves_out_the_lowest_pointers_of_files() {
        let dataset = DatasetPolicy {
            redundant_metadata: RedundantMetadata::Most,
            ..DATASET
        };
        let copies = |object_type, level| policy(dataset, object_type, level).copies;
        assert_eq!(copies(ObjectType::PlainFile, 1), 1);
        assert_eq!(copies(ObjectType::PlainFile, 2), 2);
        assert_eq!(copies(ObjectType::Directory, 0), 2);
    }

    #[test]
    fn some_redundant_metadata_keeps_what_many_files_need() {
        let dataset = DatasetPolicy {
            redundant_metadata: RedundantMetadata::Some,
            ..DATASET
        };
        let copies = |object_type, level| policy(dataset, object_type, level).copies;
        assert_eq!(copies(ObjectType::PlainFile, 3), 1);
        assert_eq!(copies(ObjectType::Directory, 1), 1);
        assert_eq!(copies(ObjectType::Dnode, 0), 1);
        assert_eq!(copies(ObjectType::Dnode, 1), 2);
        assert_eq!(copies(ObjectType::Objset, 0), 2);
    }
}
