//! Feature flags: which are enabled, which are active, and which access they allow.

use crate::directory::Directory;
use crate::error::{ImportError, PoolError};
use crate::mos_writer::MosWriter;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use tarn_dataset::error::DatasetError;
use tarn_dataset::task::FeatureCounts;
use tarn_object::zap::ZapValue;
use tarn_ondisk::features::{Access, Feature, access_of_guid};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory as name;

/// The features of a pool, by guid.
#[derive(Debug, Clone, Default)]
pub struct PoolFeatures {
    /// The use count of each enabled feature.
    counts: BTreeMap<String, u64>,
    /// Whether each of them is needed even to read.
    needed_to_read: BTreeMap<String, bool>,
}

impl PoolFeatures {
    /// Reads the features. Pools before version 5000 have none.
    pub fn read(directory: Directory<'_>) -> Result<Self, PoolError> {
        let mut features = PoolFeatures::default();
        for (zap, is_needed) in [
            (name::FEATURES_FOR_READ, true),
            (name::FEATURES_FOR_WRITE, false),
        ] {
            let Some(zap) = directory.find(zap)? else {
                continue;
            };
            for (guid, value) in directory.entries(zap)? {
                features
                    .counts
                    .insert(guid.clone(), value.as_word().unwrap_or(0));
                features.needed_to_read.insert(guid, is_needed);
            }
        }
        Ok(features)
    }

    /// The use count of a feature; none when it is not enabled.
    pub fn count(&self, guid: &str) -> Option<u64> {
        self.counts.get(guid).copied()
    }

    /// Whether a feature is enabled and in use.
    pub fn is_active(&self, guid: &str) -> bool {
        self.count(guid).is_some_and(|count| count > 0)
    }

    /// Enabled features with their use counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts
            .iter()
            .map(|(guid, count)| (guid.as_str(), *count))
    }

    /// Checks whether the features allow this access.
    ///
    /// # Errors
    /// With the names of the features that do not.
    pub fn check(&self, wanted: Access) -> Result<(), ImportError> {
        let active = self.counts.iter().filter(|(_, count)| **count > 0);
        let access: Vec<(&String, Access)> = active
            .map(|(guid, _)| (guid, access_of_guid(guid, self.needed_to_read[guid])))
            .collect();
        let below = |limit: Access| -> Vec<String> {
            let named = access.iter().filter(|(_, access)| *access < limit);
            named.map(|(guid, _)| (*guid).clone()).collect()
        };
        let unreadable = below(Access::ReadOnly);
        if !unreadable.is_empty() {
            return Err(ImportError::UnsupportedFeatures {
                features: unreadable,
            });
        }
        let unwritable = below(Access::ReadWrite);
        if wanted == Access::ReadWrite && !unwritable.is_empty() {
            return Err(ImportError::OnlyReadable {
                features: unwritable,
            });
        }
        Ok(())
    }
}

impl PoolFeatures {
    /// The features needed to read the MOS, as labels list them.
    pub fn label_list(&self) -> NvList {
        let mut list = NvList::new();
        for feature in Feature::ALL {
            if feature.is_needed_for_mos() && self.is_active(feature.guid()) {
                list.set_flag(feature.guid());
            }
        }
        list
    }

    fn set(&mut self, feature: Feature, count: u64) {
        let guid = feature.guid().to_string();
        self.needed_to_read
            .insert(guid.clone(), feature.is_needed_to_read());
        self.counts.insert(guid, count);
    }
}

/// The counts while a txg is stored: changes go to the MOS at once, and become the pool's when the
/// txg is stored.
pub(crate) struct SyncingFeatures<'a> {
    writer: MosWriter<'a>,
    counts: RefCell<PoolFeatures>,
    is_changed: Cell<bool>,
}

impl<'a> SyncingFeatures<'a> {
    /// Begins with the stored counts.
    pub(crate) fn new(writer: MosWriter<'a>, stored: PoolFeatures) -> Self {
        SyncingFeatures {
            writer,
            counts: RefCell::new(stored),
            is_changed: Cell::new(false),
        }
    }

    /// The present counts, and whether they have changed.
    pub(crate) fn finish(self) -> (PoolFeatures, bool) {
        (self.counts.into_inner(), self.is_changed.get())
    }

    /// The present counts.
    pub(crate) fn now(&self) -> PoolFeatures {
        self.counts.borrow().clone()
    }

    /// Creates the feature ZAPs of a new pool.
    #[doc(alias = "spa_feature_create_zap_objects")]
    pub(crate) fn create_zaps(&self) -> Result<(), PoolError> {
        for zap in [
            name::FEATURES_FOR_READ,
            name::FEATURES_FOR_WRITE,
            name::FEATURE_DESCRIPTIONS,
        ] {
            self.writer.zap_at(zap, ObjectType::ZapMetadata)?;
        }
        Ok(())
    }

    /// Enables a feature and its dependencies.
    #[doc(alias = "spa_feature_enable")]
    pub(crate) fn enable(&self, feature: Feature) -> Result<(), PoolError> {
        if self.counts.borrow().count(feature.guid()).is_some() {
            return Ok(());
        }
        for needed in feature.facts().depends_on {
            self.enable(*needed)?;
        }
        assert!(
            (feature.facts().depends_on.iter()).all(|needed| self
                .counts
                .borrow()
                .count(needed.guid())
                .is_some()),
            "what a feature depends on is enabled before it"
        );
        let writer = self.writer;
        let descriptions = writer.zap_at(name::FEATURE_DESCRIPTIONS, ObjectType::ZapMetadata)?;
        let description = ZapValue::text(feature.description());
        writer.put(descriptions, feature.guid(), &description)?;
        self.store(feature, u64::from(feature.is_activated_on_enable()))?;
        let enabled = self.counts.borrow().count(Feature::EnabledTxg.guid());
        if let Some(uses) = enabled {
            let zap = writer.zap_at(name::FEATURE_ENABLED_TXG, ObjectType::ZapMetadata)?;
            self.store(Feature::EnabledTxg, uses + 1)?;
            let txg = ZapValue::word(writer.tx.txg().get());
            writer.put(zap, feature.guid(), &txg)?;
        }
        Ok(())
    }

    /// Sets the use count of a feature, without checks.
    pub(crate) fn store(&self, feature: Feature, count: u64) -> Result<(), PoolError> {
        let zap = match feature.is_needed_to_read() {
            true => name::FEATURES_FOR_READ,
            false => name::FEATURES_FOR_WRITE,
        };
        let zap = self.writer.directory().require(zap)?;
        self.writer
            .put(zap, feature.guid(), &ZapValue::word(count))?;
        self.counts.borrow_mut().set(feature, count);
        debug_assert_eq!(
            self.writer
                .directory()
                .value_in(zap, feature.guid())
                .ok()
                .flatten()
                .and_then(|value| value.as_word()),
            self.counts.borrow().count(feature.guid()),
            "the MOS and the counts in memory agree"
        );
        self.is_changed.set(true);
        Ok(())
    }

    fn change(&self, feature: Feature, by: i64) -> Result<(), PoolError> {
        let count = self.counts.borrow().count(feature.guid());
        let count = count.ok_or(PoolError::FeatureDisabled { feature })?;
        let new = count
            .checked_add_signed(by)
            .ok_or(PoolError::FeatureUnused { feature })?;
        self.store(feature, new)
    }
}

impl FeatureCounts for SyncingFeatures<'_> {
    fn is_enabled(&self, feature: Feature) -> bool {
        self.counts.borrow().count(feature.guid()).is_some()
    }

    fn is_active(&self, feature: Feature) -> bool {
        self.counts.borrow().is_active(feature.guid())
    }

    fn increment(&self, feature: Feature) -> Result<(), DatasetError> {
        self.change(feature, 1).map_err(in_counts)
    }

    fn decrement(&self, feature: Feature) -> Result<(), DatasetError> {
        self.change(feature, -1).map_err(in_counts)
    }
}

/// The stored counts, for refusals outside of a sync.
impl FeatureCounts for PoolFeatures {
    fn is_enabled(&self, feature: Feature) -> bool {
        self.count(feature.guid()).is_some()
    }

    fn is_active(&self, feature: Feature) -> bool {
        PoolFeatures::is_active(self, feature.guid())
    }

    fn increment(&self, _: Feature) -> Result<(), DatasetError> {
        Err(in_counts(PoolError::NotSyncing))
    }

    fn decrement(&self, _: Feature) -> Result<(), DatasetError> {
        Err(in_counts(PoolError::NotSyncing))
    }
}

fn in_counts(cause: PoolError) -> DatasetError {
    DatasetError::Features {
        cause: Box::new(cause),
    }
}
