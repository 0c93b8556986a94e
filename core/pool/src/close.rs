//! Closing a pool: export, destroy, or just letting go.
//!
//! Everything is stored first. An exported or destroyed pool then has one more group, whose labels say so; nobody
//! has written since, so whoever imports it need not ask whose it is. A pool that is only let go stays *active* in its
//! labels, and belongs to this host.

use crate::jobs::{SyncScope, TaskError};
use crate::pool::{Mode, Pool};
use tarn_probe::Operation;
use tarn_vdev::{PoolFacts, PoolState};

/// How a pool is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// `zpool export`: any host may import it.
    Exported,
    /// `zpool destroy`: only `zpool import -D` finds it.
    Destroyed,
    /// The daemon ends: it is imported again when it starts.
    Kept,
}

impl SyncScope<'_> {
    /// Changes what labels say, in this group.
    pub(crate) fn change_facts(&self, change: impl FnOnce(&mut PoolFacts) + Send + 'static) {
        let mut changes = self.pool.changed_facts.lock();
        let before = changes.take();
        *changes = Some(Box::new(move |facts| {
            if let Some(before) = before {
                before(facts);
            }
            change(facts);
        }));
    }
}

impl Pool {
    /// Stores everything, stops the sync thread and lets the devices go. What is mounted must be unmounted before.
    ///
    /// # Errors
    /// When not everything could be stored. The devices are let go all the same: what is stored is whole.
    pub fn close(&self, leaving: Leaving, operation: &Operation) -> Result<(), TaskError> {
        let outcome = match (self.mode(), leaving) {
            (Mode::ReadOnly, _) => Ok(()),
            (Mode::ReadWrite, Leaving::Kept) => self.sync_all(operation),
            (Mode::ReadWrite, Leaving::Exported) => {
                self.store_state(PoolState::Exported, operation)
            }
            (Mode::ReadWrite, Leaving::Destroyed) => {
                self.store_state(PoolState::Destroyed, operation)
            }
        };
        self.txgs().stop();
        let threads = std::mem::take(&mut *self.sync_threads.lock());
        for thread in threads {
            thread.join().unwrap_or_else(|panicked| panicked.resume());
        }
        self.txgs().forget_dirty();
        self.cache().forget_all();
        self.vdevs().close();
        outcome
    }

    /// Lets go of a pool that was opened and not begun: nothing is stored.
    pub(crate) fn abandon(&self) {
        self.txgs().stop();
        self.txgs().forget_dirty();
        self.cache().forget_all();
        self.vdevs().close();
    }

    /// One more group, as of which labels have this state.
    fn store_state(&self, state: PoolState, operation: &Operation) -> Result<(), TaskError> {
        // What is dirty goes first: the last group changes labels only.
        self.sync_all(operation)?;
        self.run_in_sync(operation, move |scope| {
            scope.change_facts(move |facts| facts.state = state);
            Ok(Ok(()))
        })
    }
}
