//! The open intent logs of datasets, and their part in each txg.
//!
//! A log lives longer than the mount of its dataset: its blocks are freed with a later txg. So the
//! table of open logs keeps it until it is closed ([`Namespace::close_log`]) and removed
//! ([`Namespace::forget_log`]). The kernel may end a mount without a request: its log stays open
//! until the dataset is mounted and unmounted again, or the pool is closed
//! ([`Namespace::close_logs`]). Commands that destroy or replace a dataset close its log first,
//! mounted or not: later records are lost with the dataset.

use crate::error::DatasetError;
use crate::feature_use;
use crate::namespace::Namespace;
use crate::task::TaskContext;
use std::sync::Arc;
use tarn_object::{AssignError, ObjectSet};
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;
use tarn_zil::{Durability, IntentLog, LogClosing};

impl Namespace {
    /// The log of a dataset that is mounted for writing: a new one, unless it is open.
    pub fn open_log(&self, set: &Arc<ObjectSet>, durability: Durability) -> Arc<IntentLog> {
        self.open().logs.open(set, durability)
    }

    /// Closes the log of an unmounted dataset. Once the present open txg is stored, the log has no
    /// blocks on disk, and [`forget_log`](Self::forget_log) is to be called.
    ///
    /// # Errors
    /// When the pool is suspended or being closed. What the log has is replayed when the pool is
    /// imported again.
    pub fn close_log(
        &self,
        head: ObjectId,
        operation: &Operation,
    ) -> Result<LogClosing, AssignError> {
        let log = self.open().logs.find(head);
        log.map_or(Ok(LogClosing::Done), |log| log.close(operation))
    }

    /// Closes all open logs, when nothing is mounted any more. Once the present open txg is stored,
    /// no log has blocks on disk.
    ///
    /// # Errors
    /// When the pool is suspended or being closed. What logs have is replayed when the pool is
    /// imported again.
    pub fn close_logs(&self, operation: &Operation) -> Result<(), AssignError> {
        for log in self.open().logs.all() {
            log.close(operation)?;
        }
        Ok(())
    }

    /// Ends all logs' present chains: their blocks are freed when the present open txg is stored.
    ///
    /// # Errors
    /// When the pool is suspended or being closed.
    pub fn vacate_logs(&self, operation: &Operation) -> Result<(), AssignError> {
        for log in self.open().logs.all() {
            log.vacate(operation)?;
        }
        Ok(())
    }

    /// The log of a dataset was closed, and the group after that is stored; or nothing is stored
    /// any more.
    pub fn forget_log(&self, head: ObjectId) {
        self.open().logs.forget(head);
    }

    /// After a group was stored: what logs keep of it in memory is dropped.
    pub fn logs_stored(&self, txg: Txg) {
        for log in self.open().logs.take_changed(txg) {
            log.stored(txg);
        }
    }

    /// Brings the heads of logs up to the group that is being stored, before the sets themselves
    /// are stored.
    pub(crate) fn sync_logs(
        &self,
        sets: &[Arc<ObjectSet>],
        context: &TaskContext<'_>,
    ) -> Result<(), DatasetError> {
        for set in sets {
            let log = self.open().logs.find(set.id());
            let Some(log) = log.filter(|log| Arc::ptr_eq(log.set(), set)) else {
                continue;
            };
            let had_blocks = !set.phys().intent_log.first.is_hole();
            log.sync(context.tx, context.operation)
                .map_err(|cause| DatasetError::Free { cause })?;
            let has_blocks = !set.phys().intent_log.first.is_hole();
            if has_blocks && !had_blocks && log.takes_xattrs() {
                feature_use::activate(context, set.id(), Feature::Zilsaxattr)?;
            }
            self.open().logs.note_changed(context.tx.txg(), log);
        }
        Ok(())
    }
}
