//! Counts the uses of each dataset, and has those that the sync thread has decided to destroy or to
//! change.
//!
//! # Invariants
//! - A dataset in use is not decided on, and one that is decided on is not taken into use: both are
//!   one step in one table.

use std::collections::{BTreeMap, BTreeSet};
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::ObjectId;

/// Taken for a moment.
const USES: Rank = Rank::new(tarn_host::ranks::DATASET + 13, "datasets in use");

/// What is in use, and what is going.
pub(crate) struct Uses(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// How often each dataset is in use.
    uses: BTreeMap<ObjectId, usize>,
    /// What the task that runs now destroys or changes.
    decided: BTreeSet<ObjectId>,
}

impl Table {
    /// Whether no dataset is in use and decided on.
    fn is_consistent(&self) -> bool {
        let mut decided = self.decided.iter();
        decided.all(|dataset| !self.uses.contains_key(dataset))
    }
}

impl Uses {
    /// None is.
    pub(crate) fn new() -> Uses {
        Uses(Mutex::new(USES, Table::default()))
    }

    /// One use more. False when a task is destroying or changing the dataset just now.
    pub(crate) fn begin(&self, dataset: ObjectId) -> bool {
        let mut table = self.0.lock();
        if table.decided.contains(&dataset) {
            return false;
        }
        *table.uses.entry(dataset).or_insert(0) += 1;
        debug_assert!(table.is_consistent(), "no dataset is in use and decided on");
        true
    }

    /// One use less.
    pub(crate) fn end(&self, dataset: ObjectId) {
        let mut table = self.0.lock();
        let count = table.uses.get_mut(&dataset);
        let count = count.expect("a use that ends was begun");
        assert!(*count > 0, "a dataset in the table is in use");
        *count -= 1;
        if *count == 0 {
            table.uses.remove(&dataset);
        }
    }

    /// How many there are.
    pub(crate) fn count(&self, dataset: ObjectId) -> usize {
        self.0.lock().uses.get(&dataset).copied().unwrap_or(0)
    }

    /// Whether there is any.
    pub(crate) fn has(&self, dataset: ObjectId) -> bool {
        self.0.lock().uses.contains_key(&dataset)
    }

    /// Decides on a dataset, and says whether that can be: it cannot where it is in use.
    pub(crate) fn decide_on(&self, dataset: ObjectId) -> bool {
        let mut table = self.0.lock();
        let is_unused = !table.uses.contains_key(&dataset);
        if is_unused {
            table.decided.insert(dataset);
        }
        debug_assert!(table.is_consistent(), "no dataset is in use and decided on");
        is_unused
    }

    /// The task is over.
    pub(crate) fn end_decisions(&self) {
        self.0.lock().decided.clear();
    }
}
