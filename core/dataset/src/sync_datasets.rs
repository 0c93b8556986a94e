//! Storing the datasets that a group has changed.

use crate::error::DatasetError;
use crate::ledger::HeadLedger;
use crate::namespace::Namespace;
use crate::task::TaskContext;
use std::sync::Arc;
use tarn_object::{MOS_ID, ObjectSet, SetLedger, sync_objsets};

impl Namespace {
    /// Stores all datasets with changes of this group, together, and puts their new roots into the MOS. Says whether
    /// there were any.
    ///
    /// # Errors
    /// When something could not be stored: the pool stops.
    #[doc(alias = "dsl_pool_sync")]
    pub fn sync_datasets(&self, context: &TaskContext<'_>) -> Result<bool, DatasetError> {
        let mut sets = self.mos().env().txgs.dirty_sets(context.tx.txg());
        sets.retain(|set| set.id() != MOS_ID);
        if sets.is_empty() {
            return Ok(false);
        }
        let opened: Result<Vec<HeadLedger<'_>>, DatasetError> = sets
            .iter()
            .map(|set: &Arc<ObjectSet>| HeadLedger::open(context, set.id()))
            .collect();
        let mut ledgers = opened?;
        let mut pairs: Vec<SetLedger<'_>> = sets
            .iter()
            .zip(&mut ledgers)
            .map(|(set, ledger)| SetLedger {
                set: set.clone(),
                ledger,
            })
            .collect();
        let roots = sync_objsets(&mut pairs, context.tx, context.io, context.operation)
            .map_err(|cause| DatasetError::Sync { cause })?;
        drop(pairs);
        // The sets are held until their roots are in the MOS: see `heads`.
        for (ledger, root) in ledgers.into_iter().zip(&roots) {
            ledger.close(context, root)?;
        }
        drop(sets);
        Ok(true)
    }
}
