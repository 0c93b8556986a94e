//! Stores the dirty datasets of a txg.
//!
//! A user that had a dataset open when it was destroyed may still change its object set, in memory.
//! Such changes are dropped: the dataset's number may be that of another one by now.

use crate::error::DatasetError;
use crate::ledger::HeadLedger;
use crate::namespace::Namespace;
use crate::task::TaskContext;
use std::sync::Arc;
use tarn_object::{MOS_ID, ObjectSet, SetLedger, discard_changes, sync_objsets};

impl Namespace {
    /// Stores all datasets with changes of this group, together, and puts their new roots into the
    /// MOS. Says whether there were any.
    ///
    /// # Errors
    /// When something could not be stored: the pool stops.
    #[doc(alias = "dsl_pool_sync")]
    pub fn sync_datasets(&self, context: &TaskContext<'_>) -> Result<bool, DatasetError> {
        let mut sets = self.mos().env().txgs.dirty_sets(context.tx.txg());
        sets.retain(|set| set.id() != MOS_ID);
        let (sets, gone): (Vec<_>, Vec<_>) =
            sets.into_iter().partition(|set| self.is_open_head(set));
        for set in gone {
            discard_changes(&set, context.tx, context.io, context.operation)
                .map_err(|cause| DatasetError::Sync { cause })?;
        }
        if sets.is_empty() {
            return Ok(false);
        }
        if context.tx.pass() == 1 {
            self.sync_logs(&sets, context)?;
            for set in &sets {
                self.store_resume_point(set.id(), context)?;
            }
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
        for ((ledger, set), root) in ledgers.into_iter().zip(&sets).zip(&roots) {
            ledger.close(set, root)?;
        }
        drop(sets);
        Ok(true)
    }
}
