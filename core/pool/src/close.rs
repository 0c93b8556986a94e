//! Closing a pool: export, destroy, or just letting go.
//!
//! Everything is stored first, and intent logs are closed that are still open: the system may have
//! ended their mounts. An exported or destroyed pool then has one more txg, whose labels say so;
//! the pool was not written since, so the next import need not ask which host used it. A pool that
//! is only closed stays *active* in its labels, and belongs to this host.

use crate::error::TaskError;
use crate::pool::{Mode, Pool};
use crate::sync_scope::SyncScope;
use std::time::Duration;
use tarn_probe::Operation;
use tarn_vdev::{PoolFacts, PoolState};

/// How long the threads of a pool that was given up are waited for.
const CLOSE_NS_MAX: u64 = 500_000_000;

/// How often it is looked whether they have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

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
    /// Stores everything, stops the sync thread and lets the devices go. What is mounted must be
    /// unmounted before.
    ///
    /// # Errors
    /// When not everything could be stored. The devices are let go all the same: what is stored is
    /// whole.
    pub fn close(&self, leaving: Leaving, operation: &Operation) -> Result<(), TaskError> {
        if self.mode() == Mode::ReadWrite && self.failure().is_none() {
            // What keeps a log from being closed keeps the group from being stored, which says why.
            let _ = self.namespace().close_logs(operation);
        }
        let outcome = match (self.mode(), leaving) {
            (Mode::ReadOnly, _) => Ok(()),
            (Mode::ReadWrite, Leaving::Kept) => self.store_all(operation),
            (Mode::ReadWrite, Leaving::Exported) => {
                self.store_state(PoolState::Exported, operation)
            }
            (Mode::ReadWrite, Leaving::Destroyed) => {
                self.store_state(PoolState::Destroyed, operation)
            }
        };
        // The sync thread may wait for devices that are gone, and would for ever.
        if self.failure().is_some() {
            self.give_up();
        }
        self.txgs().stop();
        self.end_sync();
        self.txgs().forget_dirty();
        self.cache().forget_all();
        self.vdevs().close();
        outcome
    }

    /// Waits for the txg threads, unless they wait for a device that does not answer.
    fn end_sync(&self) {
        let mut threads = std::mem::take(&mut *self.sync_threads.lock());
        let began_ns = self.host().monotonic_ns();
        while self.is_given_up() && threads.iter().any(|thread| !thread.is_finished()) {
            if self.host().monotonic_ns() - began_ns > CLOSE_NS_MAX {
                // In the system's hands. They end when their device answers, or never.
                threads.retain(|thread| thread.is_finished());
                break;
            }
            self.host().sleep(LOOK_INTERVAL);
        }
        for thread in threads {
            thread.join().unwrap_or_else(|panicked| panicked.resume());
        }
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
        })?;
        self.store_all(operation)
    }

    /// Stores everything, also what happened to devices while the last txg was stored.
    fn store_all(&self, operation: &Operation) -> Result<(), TaskError> {
        self.sync_all(operation)?;
        // Each of these groups has lost one device more, so there is a last one.
        while self.is_configuration_changed() {
            self.sync_all(operation)?;
        }
        Ok(())
    }
}
