//! Which blocks may enter the second level: the property `secondarycache`, by object set.

use crate::ranks::ELIGIBILITY;
use std::collections::BTreeMap;
use tarn_block::{BlockKind, BlockScope};
use tarn_host::lock::Mutex;
use tarn_ondisk::units::ObjectId;

/// The property `secondarycache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "zfs_cache_type_t")]
pub enum SecondLevelUse {
    /// Data and metadata.
    #[default]
    All,
    /// Metadata only.
    Metadata,
    /// Nothing.
    None,
}

/// Those of the object sets of a pool that have been opened.
pub(crate) struct Eligibilities(Mutex<BTreeMap<ObjectId, SecondLevelUse>>);

impl Eligibilities {
    pub(crate) fn new() -> Eligibilities {
        Eligibilities(Mutex::new(ELIGIBILITY, BTreeMap::new()))
    }

    /// Sets that of an object set. The default takes no memory.
    pub(crate) fn set(&self, objset: ObjectId, used: SecondLevelUse) {
        let mut all = self.0.lock();
        match used {
            SecondLevelUse::All => drop(all.remove(&objset)),
            other => drop(all.insert(objset, other)),
        }
    }

    /// Whether a block of this scope may enter.
    #[doc(alias = "dbuf_is_l2cacheable")]
    pub(crate) fn allow(&self, scope: &BlockScope) -> bool {
        let used = self.0.lock().get(&scope.mark.objset).copied();
        match (used.unwrap_or_default(), scope.kind) {
            (_, BlockKind::IntentLog) | (SecondLevelUse::None, _) => false,
            (SecondLevelUse::Metadata, kind) => kind == BlockKind::Metadata,
            (SecondLevelUse::All, _) => true,
        }
    }
}
