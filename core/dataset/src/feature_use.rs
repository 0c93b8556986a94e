//! Features that single datasets use: the feature that a setting needs, and the mark of its use.
//!
//! # Mechanism
//! A dataset that uses a feature has the feature's guid as a name in its own ZAP, and counts once
//! for the pool. The mark stays until the dataset is destroyed, since its blocks stay as they are.
//! A snapshot copies the marks of its head.

use crate::error::DatasetError;
use crate::task::{FeatureCounts, TaskContext};
use tarn_object::zap::ZapValue;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::ObjectId;

/// Blocks up to this size need no feature.
#[doc(alias = "SPA_OLD_MAXBLOCKSIZE")]
pub(crate) const OLD_BLOCK_BYTES_MAX: u64 = 128 << 10;

/// Which bits of a stored `compression` are the algorithm; the rest is its level.
#[doc(alias = "ZIO_COMPRESS_ALGO")]
const COMPRESSION_MASK: u64 = 0x7f;

/// Which bits of a stored `checksum` or `dedup` are the algorithm.
const CHECKSUM_MASK: u64 = 0xff;

/// The stored number of the algorithm lz4.
const LZ4: u64 = 15;
/// The stored number of the algorithm zstd.
const ZSTD: u64 = 16;

/// The feature that a dataset uses from the moment this compression is set.
#[doc(alias = "zio_compress_to_feature")]
pub(crate) fn of_compression(stored: u64) -> Option<Feature> {
    (stored & COMPRESSION_MASK == ZSTD).then_some(Feature::ZstdCompress)
}

/// The feature that blocks with this checksum use.
#[doc(alias = "zio_checksum_to_feature")]
pub(crate) fn of_checksum(stored: u64) -> Option<Feature> {
    match stored & CHECKSUM_MASK {
        11 => Some(Feature::Sha512),
        12 => Some(Feature::Skein),
        13 => Some(Feature::Edonr),
        14 => Some(Feature::Blake3),
        _ => None,
    }
}

/// The feature that a pool must have enabled before a property may get this number.
pub(crate) fn needed_by(property: &str, stored: u64) -> Option<Feature> {
    match property {
        "compression" if stored & COMPRESSION_MASK == LZ4 => Some(Feature::Lz4Compress),
        "compression" => of_compression(stored),
        "checksum" | "dedup" => of_checksum(stored),
        "recordsize" | "volblocksize" if stored > OLD_BLOCK_BYTES_MAX => Some(Feature::LargeBlocks),
        "dnodesize" if stored != 0 => Some(Feature::LargeDnode),
        "longname" if stored != 0 => Some(Feature::Longname),
        "filesystem_limit" | "snapshot_limit" if stored != u64::MAX => {
            Some(Feature::FilesystemLimits)
        }
        _ => None,
    }
}

/// Has a dataset use a feature, if it does not yet.
#[doc(alias = "dsl_dataset_activate_feature")]
pub(crate) fn activate(
    context: &TaskContext<'_>,
    dataset: ObjectId,
    feature: Feature,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let object = writing.reading().object(dataset)?;
    let is_used = crate::stored::is_zap(&object)
        && writing.reading().lookup(dataset, feature.guid())?.is_some();
    if is_used {
        return Ok(());
    }
    context.features.increment(feature)?;
    debug_assert!(
        context.features.is_active(feature),
        "while a dataset uses a feature, the feature is active"
    );
    writing.extend(dataset, context.features)?;
    writing.put(dataset, feature.guid(), &ZapValue::word(0))
}

/// Has a new snapshot use the features of its head.
pub(crate) fn take_over(
    context: &TaskContext<'_>,
    head: ObjectId,
    snapshot: ObjectId,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    if !crate::stored::is_zap(&*writing.reading().object(head)?) {
        return Ok(());
    }
    for feature in Feature::ALL
        .iter()
        .filter(|feature| feature.is_per_dataset())
    {
        if let Some(value) = writing.reading().lookup(head, feature.guid())? {
            context.features.increment(*feature)?;
            debug_assert!(
                context.features.is_active(*feature),
                "while a dataset uses a feature, the feature is active"
            );
            writing.extend(snapshot, context.features)?;
            writing.put(snapshot, feature.guid(), &value)?;
        }
    }
    Ok(())
}

/// Ends a dataset's use of all its features: it is being destroyed.
#[doc(alias = "dsl_dataset_deactivate_feature")]
pub(crate) fn deactivate_all(
    context: &TaskContext<'_>,
    dataset: ObjectId,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    if !crate::stored::is_zap(&*writing.reading().object(dataset)?) {
        return Ok(());
    }
    let per_dataset = Feature::ALL
        .iter()
        .filter(|feature| feature.is_per_dataset());
    for &feature in per_dataset {
        if writing.remove(dataset, feature.guid())? {
            context.features.decrement(feature)?;
        }
    }
    Ok(())
}

/// Refuses a value whose feature is not enabled.
pub(crate) fn check_enabled(
    property: &str,
    stored: u64,
    features: &dyn FeatureCounts,
) -> Result<(), crate::task::TaskRefusal> {
    match needed_by(property, stored) {
        Some(feature) if !features.is_enabled(feature) => {
            Err(crate::task::TaskRefusal::FeatureDisabled { feature })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_the_features_they_need() {
        assert_eq!(needed_by("compression", 400), Some(Feature::ZstdCompress));
        assert_eq!(needed_by("compression", 15), Some(Feature::Lz4Compress));
        assert_eq!(needed_by("compression", 10), None);
        assert_eq!(needed_by("checksum", 14), Some(Feature::Blake3));
        assert_eq!(needed_by("recordsize", 128 << 10), None);
        assert_eq!(needed_by("recordsize", 1 << 20), Some(Feature::LargeBlocks));
        assert_eq!(
            needed_by("snapshot_limit", 5),
            Some(Feature::FilesystemLimits)
        );
        assert_eq!(needed_by("snapshot_limit", u64::MAX), None);
    }
}
