//! The intent logs of datasets that are mounted, and those that changed in groups that are not
//! stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_host::lock::{Mutex, Rank};
use tarn_object::ObjectSet;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_zil::{Durability, IntentLog};

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

    /// The log of a dataset: a new one, unless that of this object set is open.
    pub(crate) fn open(&self, set: &Arc<ObjectSet>, durability: Durability) -> Arc<IntentLog> {
        let mut state = self.state.lock();
        match state.open.get(&set.id()) {
            Some(log) if Arc::ptr_eq(log.set(), set) && !log.is_closed() => log.clone(),
            _ => {
                let log = IntentLog::new(set.clone(), durability);
                state.open.insert(set.id(), log.clone());
                log
            }
        }
    }

    /// The log of a dataset.
    pub(crate) fn find(&self, head: ObjectId) -> Option<Arc<IntentLog>> {
        let found = self.state.lock().open.get(&head).cloned();
        debug_assert!(
            found.as_ref().is_none_or(|log| log.set().id() == head),
            "an intent log is in the table by its head"
        );
        found
    }

    /// All logs.
    pub(crate) fn all(&self) -> Vec<Arc<IntentLog>> {
        self.state.lock().open.values().cloned().collect()
    }

    /// Keeps the log of a dataset no longer.
    pub(crate) fn forget(&self, head: ObjectId) {
        let forgotten = self.state.lock().open.remove(&head);
        // What it has is dropped without the lock.
        drop(forgotten);
    }

    /// The dataset of a log changed in the group that is being stored.
    pub(crate) fn note_changed(&self, txg: Txg, log: Arc<IntentLog>) {
        self.state.lock().changed.entry(txg).or_default().push(log);
    }

    /// Takes the logs that changed in this group and before.
    pub(crate) fn take_changed(&self, txg: Txg) -> Vec<Arc<IntentLog>> {
        let mut state = self.state.lock();
        let later = state.changed.split_off(&txg.next());
        let stored = std::mem::replace(&mut state.changed, later);
        debug_assert!(stored.keys().all(|stored| *stored <= txg));
        stored.into_values().flatten().collect()
    }
}
