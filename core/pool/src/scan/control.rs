//! Begins, pauses, resumes and ends scans.

use super::end::End;
use super::progress::{self, Pass, Progress, create_queue, is_paused, is_running};
use crate::error::{PoolError, TaskError};
use crate::error_log;
use crate::events::class;
use crate::job_queue::{Answer, Waiting};
use crate::pool::{Mode, Pool};
use crate::rebuild::control as rebuild;
use crate::replacing;
use crate::sync_scope::SyncScope;
use std::sync::Arc;
use tarn_dataset::task::{FeatureCounts, InternalEvent};
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::pool_directory::LAST_SCRUBBED_TXG;
use tarn_ondisk::scan::{RESILVER, SCANNING, SCRUB, Scan};
use tarn_ondisk::units::{AllocatedSize, Txg};
use tarn_probe::Operation;

/// What an administrator asks of the scan of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanChange {
    /// `zpool scrub`: begins one, or resumes a paused one.
    Scrub,
    /// `zpool scrub -C`: begins one of the blocks born since the last scrub, or resumes a paused
    /// one.
    ScrubFromLast,
    /// `zpool scrub -S` and `-E`: begins one of the blocks born between these times, in seconds
    /// since 1970, or resumes a paused one. Zero for no bound.
    ScrubBetween {
        /// From when.
        start_s: u64,
        /// Until when.
        end_s: u64,
    },
    /// `zpool scrub -e`: begins one of the blocks of the error log, or resumes a paused one.
    ErrorScrub,
    /// `zpool scrub -p`.
    Pause,
    /// `zpool scrub -s`.
    Stop,
    /// `zpool resilver`: begins a resilver of all devices that need one, anew if one runs.
    Resilver,
}

/// Why a scan was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanRefusal {
    /// A scrub runs.
    #[error("currently scrubbing; use 'zpool scrub -s' to cancel scrub")]
    Scrubbing,
    /// The scrub is paused already.
    #[error("scrub is paused; use 'zpool scrub' to resume scrub")]
    Paused,
    /// A scrub of known errors was asked for, and a scrub is paused.
    #[error("scrub is paused; use 'zpool scrub' to resume or 'zpool scrub -s' to cancel scrub")]
    PausedToCancel,
    /// A scrub of known errors runs.
    #[error("currently error scrubbing; use 'zpool scrub -s' to cancel error scrub")]
    ErrorScrubbing,
    /// The scrub of known errors is paused.
    #[error("error scrub is paused; use 'zpool scrub -e' to resume error scrub")]
    ErrorScrubPaused,
    /// A resilver runs.
    #[error("currently resilvering")]
    Resilvering,
    /// No scan runs.
    #[error("there is no active scrub")]
    NoScan,
    /// A sequential rebuild runs.
    #[error("currently sequentially resilvering")]
    Rebuilding,
    /// `zpool resilver` needs the feature `resilver_defer`.
    #[error("this action requires the resilver_defer feature")]
    NoResilverDefer,
}

/// So many txgs may have changes that were begun before one that syncs is done: one that is closed,
/// and the open one. Blocks are cloned in them by what was known of devices before, so a walk that
/// begins later finds all clones of what a device misses.
const NEWER_TXGS: u64 = 2;

/// The blocks that a scrub visits: born after the first txg, and before the second, if there is
/// one, else before the txg in which it begins.
type Births = (Txg, Option<Txg>);

/// All blocks.
const ALL: Births = (Txg::ZERO, None);

impl Pool {
    /// Has the sync threads know the pool, and goes on with the scan that the last import left.
    pub(crate) fn begin_scans(self: &Arc<Self>) {
        let _ = self.this.set(Arc::downgrade(self));
    }

    /// Goes on with the scan that the last import left, and begins a resilver if usable devices
    /// miss blocks and none runs.
    pub(crate) fn resume_scan(&self, operation: &Operation) {
        let is_resilvering = self
            .scans
            .running()
            .is_some_and(|scan| scan.function == RESILVER);
        if !is_resilvering && self.vdevs().births_to_resilver().is_some() {
            // A pool that is suspended already is resilvered when it is imported again.
            drop(self.request_resilver(operation));
        }
        self.txgs().kick();
    }

    /// Changes the scan of the pool, and waits until that is stored.
    ///
    /// # Errors
    /// The pool is read-only, suspended or being closed.
    #[doc(alias = "spa_scan")]
    pub fn change_scan(
        &self,
        change: ScanChange,
        operation: &Operation,
    ) -> Result<Result<(), ScanRefusal>, TaskError> {
        self.run_in_sync(operation, move |scope| {
            let pool = scope.pool;
            Ok(Ok(match change {
                ScanChange::Scrub => pool.begin_scrub(scope, ALL)?,
                ScanChange::ScrubFromLast => {
                    let last = scope.writer.directory().value(LAST_SCRUBBED_TXG)?;
                    let last = last.and_then(|value| value.as_word()).unwrap_or(0);
                    pool.begin_scrub(scope, (Txg::new(last), None))?
                }
                ScanChange::ScrubBetween { start_s, end_s } => {
                    pool.begin_scrub(scope, pool.txgs_between(start_s, end_s))?
                }
                ScanChange::ErrorScrub => pool.ask_for_error_scrub(scope)?,
                ScanChange::Pause => pool.pause_scrub(scope)?,
                ScanChange::Stop => pool.stop_scrub(scope)?,
                ScanChange::Resilver => pool.ask_for_resilver(scope)?,
            }))
        })
    }

    /// Has a resilver begin soon if a usable device misses blocks. One that runs is begun anew, or,
    /// with the feature `resilver_defer`, followed by another. A scrub gives way. Does not wait.
    ///
    /// # Errors
    /// The pool is read-only, suspended or being closed.
    #[doc(alias = "SPA_ASYNC_RESILVER")]
    pub fn request_resilver(&self, _operation: &Operation) -> Result<(), TaskError> {
        if self.mode() == Mode::ReadOnly {
            return Err(TaskError::ReadOnly);
        }
        let work = move |scope: &SyncScope<'_>| scope.pool.resilver_or_defer(scope).map(Ok);
        let job = Waiting::new(Box::new(work), Answer::new());
        self.jobs.push(self.txgs().open_txg(), job)?;
        self.txgs().kick();
        Ok(())
    }

    fn begin_scrub(
        &self,
        scope: &SyncScope<'_>,
        births: Births,
    ) -> Result<Result<(), ScanRefusal>, PoolError> {
        if let Some(refusal) = self.busy_with_errors() {
            return Ok(Err(refusal));
        }
        match self.scans.running() {
            Some(scan) if is_paused(&scan) => self.resume_scrub(scope).map(Ok),
            Some(scan) => Ok(Err(busy(&scan))),
            // As OpenZFS, which tells the two kinds apart elsewhere.
            None if self.is_rebuilding() => Ok(Err(ScanRefusal::Resilvering)),
            None => self.begin_scan(scope, births).map(Ok),
        }
    }

    /// The refusal of another scrub while one of known errors runs or is paused.
    fn busy_with_errors(&self) -> Option<ScanRefusal> {
        let known = self.error_scrub().0;
        known.is_running().then(|| match known.is_paused() {
            true => ScanRefusal::ErrorScrubPaused,
            false => ScanRefusal::ErrorScrubbing,
        })
    }

    fn ask_for_error_scrub(
        &self,
        scope: &SyncScope<'_>,
    ) -> Result<Result<(), ScanRefusal>, PoolError> {
        match self.scans.running() {
            Some(scan) if is_paused(&scan) => return Ok(Err(ScanRefusal::PausedToCancel)),
            Some(scan) => return Ok(Err(busy(&scan))),
            None => {}
        }
        match self.busy_with_errors() {
            Some(ScanRefusal::ErrorScrubPaused) => self.pause_error_scrub(scope, false).map(Ok),
            Some(refusal) => Ok(Err(refusal)),
            None => self.begin_error_scrub(scope).map(Ok),
        }
    }

    fn pause_scrub(&self, scope: &SyncScope<'_>) -> Result<Result<(), ScanRefusal>, PoolError> {
        match self.busy_with_errors() {
            Some(ScanRefusal::ErrorScrubPaused) => return Ok(Err(ScanRefusal::ErrorScrubPaused)),
            Some(_) => return self.pause_error_scrub(scope, true).map(Ok),
            None => {}
        }
        match self.scans.running() {
            Some(scan) if is_paused(&scan) => return Ok(Err(ScanRefusal::Paused)),
            Some(scan) if scan.function == SCRUB => {}
            _ => return Ok(Err(ScanRefusal::NoScan)),
        }
        self.io().scan_queue().open(false);
        let stored = {
            let mut progress = self.scans.progress.lock();
            progress.set_paused(true);
            progress.pass.paused_since_s = scope.context.now_s;
            progress.stored
        };
        self.post_event(class::SCRUB_PAUSED, None, NvList::new());
        progress::put(scope.writer, &stored).map(Ok)
    }

    #[doc(alias = "dsl_scrub_pause_resume_sync")]
    fn resume_scrub(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        let stored = {
            let mut progress = self.scans.progress.lock();
            assert!(
                progress.now.as_ref().is_some_and(is_paused),
                "a scrub is resumed that is paused"
            );
            progress.set_paused(false);
            let paused_s = scope
                .context
                .now_s
                .saturating_sub(progress.pass.paused_since_s);
            progress.pass.spent_paused_s += paused_s;
            progress.pass.paused_since_s = 0;
            progress.stored
        };
        progress::put(scope.writer, &stored)?;
        self.post_event(class::SCRUB_RESUME, None, NvList::new());
        self.txgs().kick();
        Ok(())
    }

    fn stop_scrub(&self, scope: &SyncScope<'_>) -> Result<Result<(), ScanRefusal>, PoolError> {
        if self.busy_with_errors().is_some() {
            return self.end_error_scrub(scope, false).map(Ok);
        }
        match self.scans.running() {
            Some(scan) if scan.function == RESILVER => Ok(Err(ScanRefusal::Resilvering)),
            Some(_) => self.end_scan(scope, End::Canceled).map(Ok),
            None => Ok(Err(ScanRefusal::NoScan)),
        }
    }

    fn ask_for_resilver(
        &self,
        scope: &SyncScope<'_>,
    ) -> Result<Result<(), ScanRefusal>, PoolError> {
        if !scope.features.is_enabled(Feature::ResilverDefer) {
            return Ok(Err(ScanRefusal::NoResilverDefer));
        }
        match self.scans.running() {
            _ if self.is_rebuilding() => Ok(Err(ScanRefusal::Rebuilding)),
            _ if self.vdevs().births_to_resilver().is_none() => Ok(Ok(())),
            Some(scan) if scan.function == SCRUB => Ok(Err(busy(&scan))),
            Some(_) => self.restart(scope).map(Ok),
            None => self.begin_scan(scope, ALL).map(Ok),
        }
    }

    fn resilver_or_defer(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        // The end of a rebuild begins a resilver where one is needed.
        if self.is_rebuilding() {
            return Ok(());
        }
        if self.vdevs().births_to_resilver().is_none() {
            return match self.scans.running() {
                Some(_) => Ok(()),
                None => replacing::finish(scope),
            };
        }
        let defers = scope.features.is_enabled(Feature::ResilverDefer);
        match self.scans.running() {
            None => self.begin_scan(scope, ALL),
            Some(scan) if scan.function == RESILVER && defers => {
                self.scans.progress.lock().is_resilver_deferred = true;
                Ok(())
            }
            Some(_) => self.restart(scope),
        }
    }

    /// Begins the resilver that was deferred while another scan ran.
    pub(super) fn begin_deferred_resilver(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        let was_deferred = std::mem::take(&mut self.scans.progress.lock().is_resilver_deferred);
        if !was_deferred || self.is_rebuilding() || self.vdevs().births_to_resilver().is_none() {
            return Ok(());
        }
        let errors = error_log::count(
            scope.writer.directory(),
            scope.features.is_enabled(Feature::HeadErrlog),
        );
        scope.context.record(InternalEvent {
            name: "starting deferred resilver",
            dataset: None,
            text: format!("errors={}", errors.unwrap_or(0)),
        });
        self.begin_scan(scope, ALL)
    }

    /// Whether a resilver runs, or begins soon.
    #[doc(alias("dsl_scan_resilvering", "dsl_scan_resilver_scheduled"))]
    pub(crate) fn is_resilver_due(&self) -> bool {
        let progress = self.scans.progress.lock();
        let scan = progress.now.filter(is_running);
        progress.is_resilver_deferred || scan.is_some_and(|scan| scan.function == RESILVER)
    }

    /// Has a resilver begin in one of the next txgs, if a usable device misses blocks.
    pub(crate) fn defer_resilver(&self) {
        self.scans.progress.lock().is_resilver_deferred = true;
        self.txgs().kick();
    }

    /// A scrub gives way to a rebuild.
    pub(crate) fn end_scrub_for_rebuild(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        match self.scans.running() {
            Some(_) => self.end_scan(scope, End::Canceled),
            None => Ok(()),
        }
    }

    /// Begins the scrub that verifies what rebuilds have copied, or the resilver that fills what
    /// they could not, when the last of them has ended.
    #[doc(alias = "zfs_rebuild_scrub_enabled")]
    pub(crate) fn verify_rebuilt(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        match self.scans.running().is_some() || self.is_rebuilding() {
            true => Ok(()),
            false => self.begin_scan(scope, ALL),
        }
    }

    fn restart(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        self.end_scan(scope, End::Restarted)?;
        self.begin_scan(scope, ALL)
    }

    /// Begins a scan: a resilver if a usable device misses blocks, else a scrub of the blocks of
    /// these births.
    #[doc(alias = "dsl_scan_setup_sync")]
    fn begin_scan(&self, scope: &SyncScope<'_>, (from, until): Births) -> Result<(), PoolError> {
        assert!(self.scans.running().is_none(), "one scan runs at a time");
        let (function, txg_min, txg_max) = match self.vdevs().births_to_resilver() {
            Some(births) => {
                let before = Txg::new(births.start().get().saturating_sub(1));
                let end = births.end().get().min(scope.writer.tx.txg().get());
                (RESILVER, before, Txg::new(end).next())
            }
            None => (SCRUB, from, until.unwrap_or(scope.writer.tx.txg())),
        };
        if function == RESILVER {
            rebuild::forget_ended(scope)?;
        }
        // It gives way to a resilver; a scrub is refused beside it.
        self.end_error_scrub(scope, false)?;
        self.forget_error_scrub(scope)?;
        error_log::keep_left(scope)?;
        let leaves = self.vdevs().leaves();
        leaves.iter().for_each(|leaf| leaf.forget_scan_written());
        let groups = self.space().group_totals();
        let allocated = groups.iter().map(|group| group.totals.allocated);
        let allocated = allocated.fold(AllocatedSize::ZERO, AllocatedSize::saturating_add);
        let now_s = scope.context.now_s;
        let scan = Scan {
            function,
            state: SCANNING,
            queue: create_queue(scope.writer)?,
            txg_min,
            txg_max,
            start_time_s: now_s,
            to_examine_bytes: allocated.get(),
            // The dedup tables are done: their blocks are visited with the datasets.
            dedup_cursor: [1, 0, 0, 0],
            ..Scan::default()
        };
        *self.scans.progress.lock() = Progress {
            now: Some(scan),
            stored: scan,
            pass: Pass {
                start_time_s: now_s,
                ..Pass::default()
            },
            is_complete_record: true,
            walks_from: scope.writer.tx.txg().plus(NEWER_TXGS + 1),
            stored_ns: self.host().monotonic_ns(),
            ..Progress::default()
        };
        progress::put(scope.writer, &scan)?;
        self.post_scan(&scan, class::SCRUB_START, class::RESILVER_START);
        scope.context.record(InternalEvent {
            name: "scan setup",
            dataset: None,
            text: format!("func={function} mintxg={txg_min} maxtxg={txg_max}"),
        });
        self.txgs().kick();
        Ok(())
    }
}

impl Progress {
    fn set_paused(&mut self, is_paused: bool) {
        let set = |scan: &mut Scan| match is_paused {
            true => scan.flags |= Scan::PAUSED,
            false => scan.flags &= !Scan::PAUSED,
        };
        self.now.as_mut().map(set);
        if is_running(&self.stored) {
            set(&mut self.stored);
        }
        assert!(
            self.now
                .is_none_or(|now| !is_running(&now) || progress::is_paused(&now) == is_paused),
            "a scan that runs is as it was set"
        );
    }
}

fn busy(scan: &Scan) -> ScanRefusal {
    match scan.function {
        SCRUB => ScanRefusal::Scrubbing,
        _ => ScanRefusal::Resilvering,
    }
}
