//! Datasets in use: snapshots that are read, and heads that must not change.
//!
//! # Problem
//! Sending takes hours. A snapshot that is being sent is not destroyed meanwhile: the command that
//! would destroy it is refused as busy. And no reader begins with a dataset that is about to be
//! destroyed: its blocks are freed and reused, and the reader would get other data.
//!
//! # Mechanism
//! A table counts the uses of each dataset, and has those that the sync thread has decided to
//! destroy or to change. A task decides when it checks for the second time, and from then to the
//! end of its turn its datasets cannot be taken into use. Nothing of this is stored.
//!
//! # Invariants
//! - A dataset in use is not decided on, and one that is decided on is not taken into use: both are
//!   one step in one table.
//! - A reader that takes a dataset into use and then looks it up finds one that stays.

use crate::error::DatasetError;
use crate::namespace::Namespace;
use tarn_ondisk::units::ObjectId;

/// So often is looked for what is to be taken into use, while the tree changes. More than a change
/// in each look would need.
const LOOKS_MAX: usize = 20;

/// Keeps a dataset from being destroyed until this is dropped.
#[must_use]
pub struct Use<'a> {
    namespace: &'a Namespace,
    dataset: ObjectId,
}

/// A task of the sync thread, from its check to its end: what it has decided on is not taken into
/// use.
#[must_use]
pub struct Deciding<'a>(&'a Namespace);

impl Namespace {
    /// Keeps this dataset from being destroyed. The caller checks afterwards that it still exists.
    /// None when a task is destroying or changing it.
    #[doc(alias = "dsl_dataset_long_hold")]
    pub fn use_dataset(&self, dataset: ObjectId) -> Option<Use<'_>> {
        let is_begun = self.open().uses.begin(dataset);
        is_begun.then(|| Use {
            namespace: self,
            dataset,
        })
    }

    /// Finds datasets, and takes them into use as they were found. `which` says them. None when
    /// some of them are being destroyed or changed just now.
    ///
    /// # Errors
    /// Those of `find`.
    pub fn use_found<T>(
        &self,
        find: impl Fn() -> Result<T, DatasetError>,
        which: impl Fn(&T) -> Vec<ObjectId>,
    ) -> Result<Option<(T, Vec<Use<'_>>)>, DatasetError> {
        let mut version = self.version();
        let mut found = self.consistently(&find)?;
        for _ in 0..LOOKS_MAX {
            let ids = which(&found);
            let uses: Option<Vec<Use<'_>>> = ids.iter().map(|id| self.use_dataset(*id)).collect();
            let Some(uses) = uses else {
                return Ok(None);
            };
            assert_eq!(uses.len(), ids.len(), "each dataset found is in use");
            if version.is_multiple_of(2) && self.version() == version {
                return Ok(Some((found, uses)));
            }
            // They may have gone before they were in use, and others may have their numbers. What
            // is found now stays, if it is in use.
            version = self.version();
            found = self.consistently(&find)?;
            if which(&found) == ids {
                return Ok(Some((found, uses)));
            }
        }
        Ok(None)
    }

    /// As [`use_dataset`](Self::use_dataset), until [`end_use`](Self::end_use) is called, once.
    /// False when a task is destroying or changing the dataset.
    pub fn begin_use(&self, dataset: ObjectId) -> bool {
        self.open().uses.begin(dataset)
    }

    /// Ends a use that [`begin_use`](Self::begin_use) began.
    pub fn end_use(&self, dataset: ObjectId) {
        self.open().uses.end(dataset);
    }

    /// How often it is in use.
    pub fn use_count(&self, dataset: ObjectId) -> usize {
        self.open().uses.count(dataset)
    }

    /// Whether it is in use.
    #[doc(alias = "dsl_dataset_long_held")]
    pub fn is_in_use(&self, dataset: ObjectId) -> bool {
        self.open().uses.has(dataset)
    }

    /// Decides on a dataset, and says whether that can be: it cannot where it is in use.
    pub(crate) fn decide_on(&self, dataset: ObjectId) -> bool {
        self.open().uses.decide_on(dataset)
    }

    /// A task runs in the sync thread until what is returned is dropped.
    pub fn deciding(&self) -> Deciding<'_> {
        Deciding(self)
    }
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        self.0.open().uses.end_decisions();
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        self.namespace.open().uses.end(self.dataset);
    }
}
