//! The intent logs of datasets that are mounted, and what becomes of them with each group.
//!
//! A log must live longer than the mount of its dataset: its blocks are freed with a later group.
//! So the table keeps it until it is closed ([`Namespace::close_log`]) and forgotten
//! ([`Namespace::forget_log`]). The system may end a mount without asking us: its log stays open
//! until the dataset is mounted and unmounted again, or the pool is closed
//! ([`Namespace::close_logs`]). Destroying or replacing the dataset closes it first, mounted or
//! not: what is put into it afterwards is lost.

use crate::error::DatasetError;
use crate::feature_use;
use crate::namespace::Namespace;
use crate::task::TaskContext;
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_host::lock::{Mutex, Rank};
use tarn_object::{AssignError, ObjectSet};
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;
use tarn_zil::{Durability, IntentLog, LogClosing};

/// The table; taken for a moment.
const LOGS: Rank = Rank::new(tarn_host::ranks::DATASET + 13, "open intent logs");

/// The logs of a pool.
pub(crate) struct OpenLogs {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<ObjectId, Arc<IntentLog>>,
    /// Logs of datasets that changed in a group, which is not stored yet.
    changed: BTreeMap<Txg, Vec<Arc<IntentLog>>>,
}

impl OpenLogs {
    /// None.
    pub(crate) fn new() -> OpenLogs {
        OpenLogs {
            state: Mutex::new(LOGS, State::default()),
        }
    }
}

impl Namespace {
    /// The log of a dataset that is mounted for writing: a new one, unless it is open.
    pub fn open_log(&self, set: &Arc<ObjectSet>, durability: Durability) -> Arc<IntentLog> {
        let mut state = self.logs().state.lock();
        match state.open.get(&set.id()) {
            Some(log) if Arc::ptr_eq(log.set(), set) && !log.is_closed() => log.clone(),
            _ => {
                let log = IntentLog::new(set.clone(), durability);
                state.open.insert(set.id(), log.clone());
                log
            }
        }
    }

    /// A dataset is not mounted any more. Once the group that is open now is stored, its log has
    /// nothing on the disk, and [`forget_log`](Self::forget_log) is to be called.
    ///
    /// # Errors
    /// When the pool is suspended or being closed. What the log has is replayed when the pool is
    /// imported again.
    pub fn close_log(
        &self,
        head: ObjectId,
        operation: &Operation,
    ) -> Result<LogClosing, AssignError> {
        let log = self.logs().state.lock().open.get(&head).cloned();
        log.map_or(Ok(LogClosing::Done), |log| log.close(operation))
    }

    /// Nothing is mounted any more: closes what was left open. Once the group that is open now is
    /// stored, no log has anything on the disk.
    ///
    /// # Errors
    /// When the pool is suspended or being closed. What logs have is replayed when the pool is
    /// imported again.
    pub fn close_logs(&self, operation: &Operation) -> Result<(), AssignError> {
        for log in self.all_open() {
            log.close(operation)?;
        }
        Ok(())
    }

    /// Every log leaves the blocks it has: when the group that is open now is stored they are free.
    ///
    /// # Errors
    /// When the pool is suspended or being closed.
    pub fn vacate_logs(&self, operation: &Operation) -> Result<(), AssignError> {
        for log in self.all_open() {
            log.vacate(operation)?;
        }
        Ok(())
    }

    fn all_open(&self) -> Vec<Arc<IntentLog>> {
        self.logs().state.lock().open.values().cloned().collect()
    }

    /// The log of a dataset was closed, and the group after that is stored; or nothing is stored
    /// any more.
    pub fn forget_log(&self, head: ObjectId) {
        let forgotten = self.logs().state.lock().open.remove(&head);
        drop(forgotten);
    }

    /// After a group was stored: what logs keep of it in memory is dropped.
    pub fn logs_stored(&self, txg: Txg) {
        let stored = {
            let mut state = self.logs().state.lock();
            let later = state.changed.split_off(&txg.next());
            std::mem::replace(&mut state.changed, later)
        };
        for log in stored.into_values().flatten() {
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
            let log = self.logs().state.lock().open.get(&set.id()).cloned();
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
            let mut state = self.logs().state.lock();
            state.changed.entry(context.tx.txg()).or_default().push(log);
        }
        Ok(())
    }
}
