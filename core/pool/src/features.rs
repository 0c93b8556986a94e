//! Features: which are enabled, which are active, and what that allows.

use crate::directory::Directory;
use crate::error::{ImportError, PoolError};
use std::collections::BTreeMap;
use tarn_ondisk::features::{Access, access_of_guid};
use tarn_ondisk::pool_directory as name;

/// The features of a pool, by guid.
#[derive(Debug, Clone, Default)]
pub struct PoolFeatures {
    /// How often each enabled feature is in use.
    counts: BTreeMap<String, u64>,
    /// Which of them even readers must know.
    needed_to_read: BTreeMap<String, bool>,
}

impl PoolFeatures {
    /// Reads them. Pools before version 5000 have none.
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

    /// How often a feature is in use; none when it is not enabled.
    pub fn count(&self, guid: &str) -> Option<u64> {
        self.counts.get(guid).copied()
    }

    /// True when a feature is enabled and in use.
    pub fn is_active(&self, guid: &str) -> bool {
        self.count(guid).is_some_and(|count| count > 0)
    }

    /// Enabled features and how often each is in use.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts
            .iter()
            .map(|(guid, count)| (guid.as_str(), *count))
    }

    /// How the pool may be opened, as far as features are concerned.
    ///
    /// # Errors
    /// With the names of the features that stand against it.
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
