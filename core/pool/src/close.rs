//! Closing a pool: export, destroy, or close without either.
//!
//! Everything is stored first, and open intent logs are closed: the system may have ended their
//! mounts. For an export or destroy one more txg follows, whose labels have the new state. After
//! that the pool is not written, so the next import need not ask which host used it. A pool that is
//! only closed stays *active* in its labels, and belongs to this host.

use crate::error::TaskError;
use crate::events::class;
use crate::pool::{Mode, Pool};
use crate::sync_scope::SyncScope;
use std::time::Duration;
use tarn_ondisk::nvlist::NvList;
use tarn_probe::Operation;
use tarn_vdev::{PoolFacts, PoolState};

/// How long closing waits for the threads of a pool that was given up.
const CLOSE_NS_MAX: u64 = 500_000_000;

/// Interval at which it checks for their ends.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How a pool is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// `zpool export`: any host may import it.
    Exported,
    /// `zpool destroy`: only `zpool import -D` finds it.
    Destroyed,
    /// The daemon stops: the pool is imported again when it starts.
    Kept,
}

impl SyncScope<'_> {
    /// Changes the facts in the labels, in this txg.
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
    /// Stores everything, stops the sync threads and closes the devices. File systems must be
    /// unmounted before.
    ///
    /// # Errors
    /// Not everything could be stored. The devices are closed all the same: the stored txg is
    /// complete.
    pub fn close(&self, leaving: Leaving, operation: &Operation) -> Result<(), TaskError> {
        self.note_closing();
        self.end_works();
        self.end_rebuilds();
        if self.mode() == Mode::ReadWrite && self.failure().is_none() {
            // An error that keeps a log open keeps the txg from being stored, which reports it.
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
        match leaving {
            Leaving::Exported => self.post_event(class::POOL_EXPORT, None, NvList::new()),
            Leaving::Destroyed => self.post_event(class::POOL_DESTROY, None, NvList::new()),
            Leaving::Kept => {}
        }
        // The sync thread may wait for lost devices, and would for ever.
        if self.failure().is_some() {
            self.give_up();
        }
        self.heartbeats.stop();
        self.cache().stop_feeding();
        self.txgs().stop();
        self.end_scan_workers();
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
                // These are in system calls. They end when their device answers, or never.
                threads.retain(|thread| thread.is_finished());
                break;
            }
            self.host().sleep(LOOK_INTERVAL);
        }
        for thread in threads {
            thread.join().unwrap_or_else(|panicked| panicked.resume());
        }
    }

    /// Closes a pool that was opened and never stored a txg.
    pub(crate) fn abandon(&self) {
        self.heartbeats.stop();
        self.vdevs().give_up();
        self.cache().stop_feeding();
        self.end_sync();
        self.txgs().stop();
        self.txgs().forget_dirty();
        self.cache().forget_all();
        self.vdevs().close();
    }

    /// Stores one more txg, with this state in the labels.
    fn store_state(&self, state: PoolState, operation: &Operation) -> Result<(), TaskError> {
        // Dirty data goes first: the last txg changes labels only.
        self.sync_all(operation)?;
        self.run_in_sync(operation, move |scope| {
            scope.change_facts(move |facts| facts.state = state);
            Ok(Ok(()))
        })?;
        self.store_all(operation)
    }

    /// Stores everything, with the changes of devices' states in the last txg.
    fn store_all(&self, operation: &Operation) -> Result<(), TaskError> {
        self.sync_all(operation)?;
        // Each of these txgs has lost one device more, so there is a last one.
        while self.is_configuration_changed() {
            self.sync_all(operation)?;
        }
        Ok(())
    }
}
