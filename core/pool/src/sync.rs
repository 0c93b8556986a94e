//! The txg threads: one quiesces the open txg, one stores it and writes its uberblock.
//!
//! # Mechanism
//! The order, why it ends, and the state after a power cut are in `docs/theory/txg_sync.md`. One
//! thread of a pool closes the open txg and waits for its transactions; another stores it, pass
//! after pass, until a pass changes nothing. Then devices are flushed, and the uberblock is
//! written.
//!
//! # After a failure
//! If devices are lost, the thread waits in the middle of the txg until they are back: see
//! [`suspend`](crate::suspend). If another error keeps a txg from being stored, the uberblock is
//! not written: the disk still has the txg before. A part of the dirty data is stored and a part is
//! not, so nothing more is stored in this run; the pool is suspended, which commands show, and
//! writers wait or fail as `failmode` says. The next import opens the last stored txg.

use crate::checkpoint;
use crate::checkpoint::state::CheckpointState;
use crate::config;
use crate::deferred;
use crate::dirty_time_logs;
use crate::error::{PoolError, TaskError};
use crate::error_log;
use crate::events::class;
use crate::features::SyncingFeatures;
use crate::history_write;
use crate::job_queue::{Closed, Taken};
use crate::jobs::PATIENCE_NS;
use crate::log_space_maps;
use crate::mos_writer::MosWriter;
use crate::multihost;
use crate::note_times;
use crate::pool::{Mode, Pool, StoredState};
use crate::space_maps::{self, Storing};
use crate::sync_scope::SyncScope;
use std::cell::RefCell;
use std::sync::Arc;
use tarn_dataset::free_in_background::FreeBudget;
use tarn_dataset::ledger::MosLedger;
use tarn_dataset::task::{InternalEvent, Room, TaskContext};
use tarn_host::background;
use tarn_host::canary::{Canary, sings};
use tarn_host::channel;
use tarn_object::{AssignError, SetLedger, SyncTx, Unreadable, Wake, sync_objsets};
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::Txg;
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::{LabelUpdate, PoolFacts};

/// More passes than a txg can take: see the theory. Reaching it is a bug.
const SYNC_PASSES_MAX: u32 = 40;

/// How much of destroyed datasets one txg frees. OpenZFS spends at least half a second on it.
const BACKGROUND_BUDGET: FreeBudget = FreeBudget {
    blocks_max: 100_000,
    time_ns_max: 500_000_000,
    unreadable: Unreadable::Wait,
};

/// This many txgs without changes exist in memory only. Then one is stored all the same: a log has
/// the txg in which its last block was made, and an import refuses a log that is far ahead of the
/// stored txgs.
const IDLE_GROUPS_MAX: u64 = 1 << 16;

/// The software version in uberblocks, as OpenZFS's.
const SOFTWARE_VERSION: u64 = 5000;

impl Pool {
    /// Starts the threads: one quiesces txgs, one stores them, so that a txg can be open, one
    /// quiescing, and one syncing.
    pub(crate) fn start_sync(self: &Arc<Self>) {
        self.begin_suspension();
        self.begin_scans();
        let (closed, to_store) = channel::bounded(1);
        let pool = self.clone();
        let quiesce = move || {
            pool.probes.opened(pool.txgs().open_txg());
            while pool.txgs().wait_for_work() != Wake::Stopped {
                pool.probes.closing(pool.txgs().open_txg());
                let txg = pool.txgs().quiesce();
                pool.probes.closed(txg);
                if closed.send(txg).is_err() {
                    return;
                }
            }
        };
        let pool = self.clone();
        let store = move || pool.store_groups(&to_store);
        let host = self.host();
        let threads = vec![
            host.spawn(&format!("tarn-quiesce-{}", self.name()), quiesce),
            host.spawn_background(&format!("tarn-sync-{}", self.name()), store),
        ];
        self.sync_threads.lock().extend(threads);
    }

    /// Stores one txg after the other, until the pool is closed or cannot be written.
    fn store_groups(&self, to_store: &channel::Receiver<Txg>) {
        background::keep_pace(Some(self.txgs().pace().clone()));
        while let Some(txg) = to_store.recv() {
            if self.txgs().is_stopped() {
                break;
            }
            let mut tx = self.txgs().begin_sync(txg);
            assert_eq!(
                (tx.txg(), tx.pass()),
                (txg, 1),
                "a group that is quiesced is stored from the first pass on"
            );
            self.probes.syncing(txg);
            let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::TxgSync);
            let mut jobs = self.jobs.take(txg);
            match self.sync_group(&mut tx, &mut jobs, &operation) {
                Ok(()) => {
                    self.txgs().finish_sync(tx);
                    assert_eq!(self.txgs().stored_txg(), txg, "groups are stored in order");
                    self.namespace().logs_stored(txg);
                    self.probes.stored(txg);
                    jobs.stored();
                    operation.finish();
                }
                Err(error) => return self.suspend_for_good(&error, jobs),
            }
        }
        self.jobs.close(&Closed::Stopped);
    }

    /// Stores one txg.
    pub(crate) fn sync_group(
        &self,
        tx: &mut SyncTx,
        jobs: &mut Taken,
        operation: &Operation,
    ) -> Result<(), PoolError> {
        // Devices may have come and gone.
        self.log_holds.admit();
        let stored = self.stored.lock().clone();
        assert!(
            tx.txg() > stored.uberblock.txg,
            "txgs are stored once, in their order"
        );
        let is_near = tx.txg().get() - stored.uberblock.txg.get() < IDLE_GROUPS_MAX;
        let is_idle = is_near
            && jobs.is_empty()
            && self.txgs().dirty_sets(tx.txg()).is_empty()
            && !self.clones.has_added(tx.txg())
            && !self.has_housekeeping(tx, operation)?;
        if is_idle {
            self.group_stored(tx.txg());
            return Ok(());
        }
        let (features, facts) = self.run_passes(tx, jobs, stored.clone(), operation)?;
        assert!(
            self.txgs().dirty_sets(tx.txg()).is_empty(),
            "a stored txg leaves nothing dirty"
        );
        let uberblock = self.uberblock_of(tx, &stored.uberblock);
        debug_assert!(
            !uberblock.root.is_hole(),
            "an uberblock leads to the MOS of its group"
        );
        assert_eq!(uberblock.txg, tx.txg(), "an uberblock is that of its txg");
        if sings(Canary::EarlyUberblock) {
            self.write_labels(&uberblock, &facts, operation)?;
            self.vdevs().flush(operation)?;
        } else {
            if !sings(Canary::SkipFlush) {
                self.vdevs().flush(operation)?;
            }
            self.write_labels(&uberblock, &facts, operation)?;
        }
        self.group_stored(tx.txg());
        self.open_joined();
        self.clear_departed();
        *self.stored.lock() = StoredState {
            uberblock,
            features,
            facts,
        };
        self.publish_facts();
        if self.is_configuration_changed() {
            // A device has failed after the last pass. Until the next txg at most the labels say
            // so.
            self.txgs().kick();
        }
        Ok(())
    }

    /// No rewind goes behind this txg any more.
    fn group_stored(&self, txg: Txg) {
        self.io().note_stored(txg);
        // No worker of a scan has a block any more whose space is released now.
        let scanned = self.io().scan_queue();
        let hurried = scanned.has_older(txg).then(|| self.vdevs().hurry_scrubs());
        scanned.wait_for_older(txg);
        drop(hurried);
        self.space().txg_stored(txg);
        self.cache().groups_stored(txg);
        self.autotrim.kick();
    }

    /// Whether there is work without any change. Deferred frees wait for a txg that is stored
    /// anyway: freeing them would defer the list's own block, and so on for ever.
    fn has_housekeeping(&self, tx: &SyncTx, operation: &Operation) -> Result<bool, PoolError> {
        let writer = self.writer(tx, operation);
        Ok(self.is_configuration_changed()
            || self.has_scan_work()
            || self.is_discarding_checkpoint()
            || self.has_found_errors()
            || self.namespace().has_more_to_free(operation)?
            || log_space_maps::exist(writer.directory())?)
    }

    fn writer<'a>(&'a self, tx: &'a SyncTx, operation: &'a Operation) -> MosWriter<'a> {
        MosWriter {
            mos: self.mos(),
            tx,
            operation,
        }
    }

    /// Runs all passes of a txg. Returns the feature counts and the facts for the labels.
    fn run_passes(
        &self,
        tx: &mut SyncTx,
        jobs: &mut Taken,
        stored: StoredState,
        operation: &Operation,
    ) -> Result<(crate::features::PoolFeatures, PoolFacts), PoolError> {
        let now_s = u64::try_from(self.host().unix_time().seconds).unwrap_or(0);
        let mut features = stored.features;
        let mut facts = stored.facts;
        let mut ledger = self.namespace().mos_ledger(self.io(), tx, operation);
        loop {
            assert!(
                tx.pass() <= SYNC_PASSES_MAX,
                "a sync without end is given up"
            );
            ledger.begin_pass(tx);
            let events = RefCell::new(Vec::new());
            let writer = self.writer(tx, operation);
            let counts = SyncingFeatures::new(writer, features);
            let context = TaskContext {
                namespace: self.namespace(),
                tx,
                io: self.io(),
                features: &counts,
                now_s,
                operation,
                events: &events,
            };
            let scope = SyncScope {
                pool: self,
                writer,
                features: &counts,
                context: &context,
            };
            if tx.pass() == 1 {
                jobs.run_early(&scope)?;
                self.clones.enter(tx.txg(), operation)?;
                deferred::free_all(writer, self.io())?;
                self.clear_log_space_maps(&scope)?;
            }
            self.namespace().sync_datasets(&context)?;
            if tx.pass() == 1 {
                let generation = self.namespace().property_generation();
                jobs.run(&scope)?;
                if self.namespace().property_generation() != generation {
                    self.namespace().refresh_policies(operation)?;
                }
                if !self.is_too_full_to_free(operation) {
                    let freed = self
                        .namespace()
                        .free_in_background(&context, BACKGROUND_BUDGET)?;
                    if freed.more {
                        self.txgs().kick();
                    }
                }
                checkpoint::discard::step(&scope)?;
                self.sync_scan(&scope)?;
                error_log::store(&scope)?;
                note_times::note(&scope)?;
                self.record_events(&scope, &events)?;
            }
            dirty_time_logs::store(&scope)?;
            config::update(&scope, &mut facts)?;
            self.store_space(&scope, &mut ledger)?;
            features = counts.finish().0;
            if self.txgs().dirty_sets(tx.txg()).is_empty() {
                self.probes.converged(tx.pass());
                return Ok((features, facts));
            }
            if self.mos().is_dirty(tx.txg()) {
                let mut sets = [SetLedger {
                    set: self.mos().clone(),
                    ledger: &mut ledger,
                }];
                sync_objsets(&mut sets, tx, self.io(), operation)?;
                ledger.check()?;
            }
            if tx.pass() >= SYNC_PASSES_MAX {
                return Err(PoolError::Endless {
                    txg: tx.txg(),
                    pass: tx.pass(),
                });
            }
            tx.next_pass();
        }
    }

    /// Stores this pass's changes of space in the MOS: references to clones, deferred frees, the
    /// MOS's own use, space maps.
    fn store_space(
        &self,
        scope: &SyncScope<'_>,
        ledger: &mut MosLedger<'_>,
    ) -> Result<(), PoolError> {
        self.clones.store(scope.writer, scope.features)?;
        self.namespace().charge_mos(scope.context, ledger)?;
        let late = self.io().take_deferred_frees();
        if !late.is_empty() {
            deferred::put(scope.writer, &late)?;
        }
        let changes = self.space().take_changes(scope.writer.tx.txg());
        let storing = self.storing(scope);
        checkpoint::maps::store(self, &storing, &changes)?;
        space_maps::store(&storing, &changes)
    }

    /// Whether what was destroyed waits, because freeing it makes no room while there is a
    /// checkpoint, and what it takes would fill the pool.
    #[doc(alias = "spa_suspend_async_destroy")]
    fn is_too_full_to_free(&self, operation: &Operation) -> bool {
        self.checkpoint.state() == Some(CheckpointState::Exists)
            && self
                .namespace()
                .check_room(Room::freeing(), operation)
                .is_err()
    }

    fn storing<'a>(&'a self, scope: &SyncScope<'a>) -> Storing<'a> {
        let features = scope.features.now();
        Storing {
            writer: scope.writer,
            arrays: &self.arrays,
            space: self.space(),
            version: space_maps::version_of(features.is_active(Feature::SpacemapV2.guid())),
            features: scope.features,
        }
    }

    /// Flushes the log space maps of an imported pool to the metaslabs' own.
    fn clear_log_space_maps(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        if !log_space_maps::exist(scope.writer.directory())? {
            return Ok(());
        }
        let (root, vdevs) = (self.vdevs().config(), self.vdevs().top_levels());
        log_space_maps::clear(&self.storing(scope), &self.unflushed, &root, &vdevs)?;
        scope.features.store(Feature::LogSpacemap, 0)
    }

    fn record_events(
        &self,
        scope: &SyncScope<'_>,
        events: &RefCell<Vec<InternalEvent>>,
    ) -> Result<(), PoolError> {
        let context = scope.context;
        let records: Vec<_> = events
            .take()
            .iter()
            .map(|event| {
                let txg = context.tx.txg();
                history_write::of_event(event, txg, context.now_s, &self.owner.host_name)
            })
            .collect();
        let bytes = crate::size::deflated_size(&self.vdevs().top_levels());
        history_write::append(scope.writer, &records, bytes)?;
        records.iter().for_each(|record| self.post_history(record));
        Ok(())
    }

    /// The uberblock of the txg.
    fn uberblock_of(&self, tx: &SyncTx, before: &Uberblock) -> Uberblock {
        let mut uberblock = Uberblock {
            magic: Uberblock::MAGIC,
            txg: tx.txg(),
            guid_sum: self.vdevs().config().guid_sum(),
            timestamp_s: u64::try_from(self.host().unix_time().seconds).unwrap_or(0),
            root: self.mos().root_pointer(),
            software_version: SOFTWARE_VERSION,
            multihost_magic: Uberblock::MULTIHOST_MAGIC,
            multihost_delay_ns: 0,
            multihost_config: 0,
            checkpoint_txg: Txg::ZERO,
            ..*before
        };
        if let Some(settings) = self.heartbeats.settings() {
            uberblock.set_multihost(settings.interval_ns(), settings.to_multihost(0));
        }
        uberblock
    }

    /// Writes the uberblock, with labels where their facts have changed.
    fn write_labels(
        &self,
        uberblock: &Uberblock,
        facts: &PoolFacts,
        operation: &Operation,
    ) -> Result<(), PoolError> {
        let facts = PoolFacts {
            txg: uberblock.txg,
            ..facts.clone()
        };
        let is_changed = self.is_configuration_changed();
        let compose = |root: &tarn_vdev::VdevConfig, top: usize, leaf: &tarn_vdev::VdevConfig| {
            facts.label_of(root, top, leaf)
        };
        let update = LabelUpdate {
            uberblock,
            is_multihost: multihost::settings::shows_itself(uberblock),
            configuration: if is_changed { Some(&compose) } else { None },
        };
        self.heartbeats.note_own(uberblock);
        self.vdevs().write_labels(update, operation)?;
        if is_changed {
            let mut written = self.configuration.lock();
            written.changes = written.in_mos;
            written.is_stale = false;
            drop(written);
            self.post_event(class::CONFIG_SYNC, None, NvList::new());
        }
        Ok(())
    }

    /// The most passes of a txg since the pool was opened.
    pub fn passes_max(&self) -> u64 {
        self.probes.passes_max()
    }

    /// Waits until all earlier changes are stored.
    ///
    /// # Errors
    /// The pool is suspended or being closed.
    pub fn sync_all(&self, operation: &Operation) -> Result<(), TaskError> {
        if self.mode() == Mode::ReadOnly {
            return Ok(());
        }
        if let Some(why) = self.failure() {
            return Err(TaskError::Suspended { why });
        }
        let is_silent = || self.vdevs().silent_ns() > PATIENCE_NS;
        self.wait_stored_unless(&is_silent, operation)
    }

    /// As [`sync_all`](Self::sync_all), and fails when the pool is suspended meanwhile: no command
    /// could resume a pool that is still being imported.
    ///
    /// # Errors
    /// The pool is suspended or being closed.
    pub(crate) fn sync_imported(&self, operation: &Operation) -> Result<(), TaskError> {
        let is_suspended = || self.failure().is_some();
        self.wait_stored_unless(&is_suspended, operation)
    }

    /// Waits until all earlier changes are stored, or `gives_up` says so.
    fn wait_stored_unless(
        &self,
        gives_up: &dyn Fn() -> bool,
        operation: &Operation,
    ) -> Result<(), TaskError> {
        // All changes so far are in the open txg, or in an earlier one.
        let txgs = self.txgs();
        let stored = txgs.wait_stored_unless(txgs.open_txg(), gives_up, operation);
        stored.map_err(|error| match error {
            AssignError::Suspended => self.suspended(),
            AssignError::Stopped => TaskError::Stopped,
        })
    }

    /// Stores a txg and writes the labels of all devices, whether or not anything was changed.
    ///
    /// # Errors
    /// The pool is read-only, suspended or being closed.
    #[doc(alias = "spa_sync_pool")]
    pub fn store_labels(&self, operation: &Operation) -> Result<(), TaskError> {
        self.run_in_sync(operation, |scope| {
            scope.pool.mark_configuration_stale();
            Ok(Ok(()))
        })
    }

    /// The error of callers while nothing is stored.
    pub(crate) fn suspended(&self) -> TaskError {
        TaskError::Suspended {
            why: self.failure().unwrap_or_default(),
        }
    }
}
