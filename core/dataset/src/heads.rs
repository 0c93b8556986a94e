//! Opens the object sets of heads for writing, and sets how their blocks are written.
//!
//! # Mechanism
//! All mounts of a dataset, and the sync thread, change the same object set: a table has those that
//! are open. A set is opened as the MOS says it is stored; that is right because the sync thread
//! holds each changed set until its new root is in the MOS.
//!
//! The write policy follows from properties ([`policy_of`]); when properties change, open sets get
//! the new one.

use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::namespace::Namespace;
use crate::properties::inherit::{Found, Lineage};
use crate::properties::table;
use crate::properties::value::{Default as DefaultValue, Property};
use std::sync::Arc;
use tarn_block::{DatasetPolicy, Embedding, HoleBirth, RedundantMetadata};
use tarn_object::{ObjectSet, Ownership, SecondLevelUse, SetPolicy, read_head};
use tarn_ondisk::objset::{Objset, ObjsetFlags, ObjsetType};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;
use tarn_transform::{ChecksumAlgorithm, CompressionAlgorithm, ZstdLevel};

/// Properties that say how blocks are written, to the pool and to cache devices.
const POLICY: [&str; 6] = [
    "checksum",
    "compression",
    "copies",
    "redundant_metadata",
    "special_small_blocks",
    "secondarycache",
];

/// Whether a property says how blocks are written.
pub(crate) fn decides_writing(property: &str) -> bool {
    POLICY.contains(&property)
}

impl Namespace {
    /// Sets the door that tells owners of files apart. Once, before datasets are opened for
    /// writing.
    pub fn set_ownership(&self, ownership: Arc<dyn Ownership>) {
        self.open().heads.set_ownership(ownership);
    }

    /// The object set of a head, for writing: the one that all users share.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn head_set(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<ObjectSet>, DatasetError> {
        let open = || self.open_head(id, operation);
        self.open().heads.find_or_open(id, open)
    }

    /// The object set of a head as the MOS says it is stored.
    fn open_head(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<ObjectSet>, DatasetError> {
        let dataset = Dataset::open_unnamed(self.view(operation), id)?;
        let root = dataset.stored()?.root;
        let in_set = |cause| DatasetError::Object { object: id, cause };
        let env = self.mos().env();
        let head = read_head(&env.cache, id, &root, operation).map_err(in_set)?;
        let policy = policy_of(&dataset, Some(&head))?;
        let owner = match head.objset_type {
            ObjsetType::Zfs => self.open().heads.ownership(),
            _ => None,
        };
        env.cache.use_second_level(id, policy.second_level);
        let set = ObjectSet::open(env.clone(), id, &root, policy, owner, operation);
        set.map_err(in_set)
    }

    /// Updates the write policies of open heads whose properties may have changed since the last
    /// call.
    ///
    /// # Errors
    /// When properties cannot be read.
    pub fn refresh_policies(&self, operation: &Operation) -> Result<(), DatasetError> {
        let changed = self.open().heads.take_changed();
        // One that is being opened may have read what was set before.
        for set in self.open().heads.all_when_opened() {
            let dataset = Dataset::open_unnamed(self.view(operation), set.id())?;
            let above = dataset.directory().lineage()?;
            if !above.iter().any(|step| changed.contains(&step.id())) {
                continue;
            }
            let before = set.policy();
            let policy = policy_of(&dataset, None)?;
            set.set_policy(SetPolicy {
                counts_objects: before.counts_objects,
                counts_projects: before.counts_projects,
                ..policy
            });
        }
        Ok(())
    }
}

/// A property's number: as set or inherited, or the default.
fn number(lineage: &Lineage<'_>, property: &Property) -> Result<u64, DatasetError> {
    Ok(match (lineage.find(property)?, property.default) {
        (Some((Found::Number(number), _)), _) => number,
        (_, DefaultValue::Number(number)) => number,
        _ => 0,
    })
}

/// How the blocks of a head are written, by its properties. Objects are counted for owners where
/// its head says that they always were.
pub(crate) fn policy_of(
    dataset: &Dataset<'_>,
    head: Option<&Objset>,
) -> Result<SetPolicy, DatasetError> {
    let lineage = Lineage::read(dataset)?;
    let get = |name: &str| {
        let property = table::find(name).expect("the property is in the table");
        number(&lineage, property)
    };
    let has_flag = |flag| head.is_some_and(|head| head.flags.contains(flag));
    let mos = dataset.directory().view().namespace().mos().policy();
    let metadata_compression = mos.blocks.metadata_compression;
    let blocks = DatasetPolicy {
        checksum: checksum_of(get("checksum")?),
        compression: compression_of(get("compression")?, metadata_compression),
        metadata_compression,
        copies: usize::try_from(get("copies")?.clamp(1, 3)).unwrap_or(1),
        redundant_metadata: match get("redundant_metadata")? {
            1 => RedundantMetadata::Most,
            2 => RedundantMetadata::Some,
            3 => RedundantMetadata::None,
            _ => RedundantMetadata::All,
        },
        special_small_blocks: get("special_small_blocks")?,
        embedding: match mos.blocks.embedding {
            Embedding::Allowed => Embedding::Allowed,
            Embedding::Forbidden => Embedding::Forbidden,
        },
    };
    assert!(
        (1..=3).contains(&blocks.copies),
        "a block pointer has one to three copies"
    );
    assert!(
        !blocks.checksum.is_embedded(),
        "a block's checksum is in its pointer"
    );
    Ok(SetPolicy {
        blocks,
        holes: match mos.holes {
            HoleBirth::Recorded => HoleBirth::Recorded,
            HoleBirth::Unrecorded => HoleBirth::Unrecorded,
        },
        counts_objects: has_flag(ObjsetFlags::OBJECT_ACCOUNTING_COMPLETE),
        counts_projects: has_flag(ObjsetFlags::PROJECT_QUOTA_COMPLETE),
        second_level: match get("secondarycache")? {
            0 => SecondLevelUse::None,
            1 => SecondLevelUse::Metadata,
            _ => SecondLevelUse::All,
        },
    })
}

/// A stored `checksum`. What cannot be meant, and `on`, is the default.
fn checksum_of(stored: u64) -> ChecksumAlgorithm {
    let code = u8::try_from(stored & 0xff).unwrap_or(1);
    match ChecksumAlgorithm::from_code(code) {
        Ok(algorithm) if !algorithm.is_embedded() => algorithm,
        _ => ChecksumAlgorithm::Fletcher4,
    }
}

/// A stored `compression`: the algorithm in the low seven bits, its level above. `on` is what
/// metadata have.
fn compression_of(stored: u64, on: CompressionAlgorithm) -> CompressionAlgorithm {
    let code = u8::try_from(stored & 0x7f).unwrap_or(1);
    let level = u8::try_from(stored >> 7).unwrap_or(0);
    match CompressionAlgorithm::from_code(code) {
        Ok(CompressionAlgorithm::Zstd(_)) => {
            let level = ZstdLevel::from_code(level).unwrap_or(ZstdLevel::DEFAULT);
            CompressionAlgorithm::Zstd(level)
        }
        Ok(CompressionAlgorithm::Empty) | Err(_) => on,
        Ok(algorithm) => algorithm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_compressions_name_an_algorithm_and_its_level() {
        let on = CompressionAlgorithm::Lz4;
        assert_eq!(compression_of(1, on), CompressionAlgorithm::Lz4);
        assert_eq!(compression_of(2, on), CompressionAlgorithm::Off);
        let zstd = |number| CompressionAlgorithm::Zstd(ZstdLevel::new(number).unwrap());
        assert_eq!(compression_of(16, on), zstd(3));
        assert_eq!(compression_of(400, on), zstd(3));
        assert_eq!(compression_of(2448, on), zstd(19));
        let fast = CompressionAlgorithm::Zstd(ZstdLevel::fast(1).unwrap());
        assert_eq!(compression_of(13200, on), fast);
    }

    #[test]
    fn stored_checksums_name_an_algorithm() {
        assert_eq!(checksum_of(1), ChecksumAlgorithm::Fletcher4);
        assert_eq!(checksum_of(2), ChecksumAlgorithm::Off);
        assert_eq!(checksum_of(14), ChecksumAlgorithm::Blake3);
        assert_eq!(checksum_of(3), ChecksumAlgorithm::Fletcher4);
    }
}
