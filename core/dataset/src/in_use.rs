//! Snapshots that somebody reads, and heads that must stay as they are.
//!
//! Sending takes hours. A snapshot that is being sent is not destroyed meanwhile: whoever would destroy it is told that it is busy. Nothing of this is stored.

use crate::namespace::Namespace;
use std::collections::BTreeMap;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::ObjectId;

/// Taken for a moment.
const IN_USE: Rank = Rank::new(tarn_host::ranks::DATASET + 13, "datasets in use");

/// How often each dataset is in use.
pub(crate) struct InUse(Mutex<BTreeMap<ObjectId, usize>>);

impl InUse {
    /// None is.
    pub(crate) fn new() -> InUse {
        InUse(Mutex::new(IN_USE, BTreeMap::new()))
    }
}

/// A dataset is not destroyed as long as this is there.
#[must_use]
pub struct Use<'a> {
    namespace: &'a Namespace,
    dataset: ObjectId,
}

impl Namespace {
    /// From now on this dataset is not destroyed. Whoever asks looks afterwards whether it still is there.
    #[doc(alias = "dsl_dataset_long_hold")]
    pub fn use_dataset(&self, dataset: ObjectId) -> Use<'_> {
        *self.in_use().0.lock().entry(dataset).or_insert(0) += 1;
        Use {
            namespace: self,
            dataset,
        }
    }

    /// Whether somebody uses it.
    #[doc(alias = "dsl_dataset_long_held")]
    pub fn is_in_use(&self, dataset: ObjectId) -> bool {
        self.in_use().0.lock().contains_key(&dataset)
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        let mut in_use = self.namespace.in_use().0.lock();
        if let Some(count) = in_use.get_mut(&self.dataset) {
            *count -= 1;
            if *count == 0 {
                in_use.remove(&self.dataset);
            }
        }
    }
}
