//! The scan in each txg: it walks on, stores its progress, and ends.

use super::progress::{self, STORE_NS, free_queue, is_paused, is_running};
use super::schedule;
use crate::error::PoolError;
use crate::error_log;
use crate::events::class;
use crate::pool::Pool;
use crate::replacing;
use crate::sync_scope::SyncScope;
use tarn_dataset::task::{FeatureCounts, InternalEvent};
use tarn_object::zap::ZapValue;
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::pool_directory::{LAST_SCRUBBED_TXG, POOL_DIRECTORY};
use tarn_ondisk::scan::{CANCELED, FINISHED, RESILVER, SCRUB, Scan};
use tarn_ondisk::units::ObjectId;

/// How a scan ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// All blocks were visited.
    Complete,
    /// An administrator ends it.
    Canceled,
    /// Another one takes its place.
    Restarted,
}

/// The walk goes on when the queue has less than so many hundredths of its share of memory.
const RESUME_PERCENT: u64 = 75;

impl Pool {
    /// Lets the scan go on, in the first pass of a txg, after all changes of datasets.
    #[doc(alias = "dsl_scan_sync")]
    pub(crate) fn sync_scan(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        self.follow_datasets(scope)?;
        self.sync_error_scrub(scope)?;
        if self.scans.running().is_none() {
            return self.begin_deferred_resilver(scope);
        }
        let copies = self.io().scan_queue();
        let (is_paused, is_walked, is_draining) = {
            let mut progress = self.scans.progress.lock();
            progress.merge_found();
            let paused = progress.now.as_ref().is_some_and(is_paused);
            (paused, progress.is_walked(), progress.is_draining)
        };
        if is_paused {
            copies.open(false);
            return Ok(());
        }
        self.start_scan_workers();
        let memory_max = self.scan_memory_max();
        let is_gathering = !copies.is_open() || copies.is_done();
        let has_room = copies.memory_bytes() < memory_max / 100 * RESUME_PERCENT;
        if !is_walked && !is_draining && has_room && is_gathering {
            copies.open(false);
            self.walk_slice(scope)?;
        }
        let is_walked = self.scans.progress.lock().is_walked();
        let is_full = copies.memory_bytes() >= memory_max / 100 * RESUME_PERCENT;
        copies.open(is_walked || is_draining || is_full || copies.is_open());
        if copies.is_done() {
            self.scans.progress.lock().merge_found();
            if is_walked {
                return self.end_scan(scope, End::Complete);
            }
            copies.open(false);
            self.store_progress(scope)?;
        }
        let now_ns = self.host().monotonic_ns();
        let mut progress = self.scans.progress.lock();
        if now_ns.saturating_sub(progress.stored_ns) > STORE_NS {
            progress.is_draining = true;
        }
        let walks_on = !copies.is_open() && !progress.is_draining;
        drop(progress);
        if walks_on {
            self.txgs().kick();
        }
        Ok(())
    }

    /// Whether a txg has something to do for the scan, though nothing else was changed. While
    /// workers have copies to verify, a txg would only disturb them: the one that empties the queue
    /// asks for the next.
    pub(crate) fn has_scan_work(&self) -> bool {
        let progress = self.scans.progress.lock();
        let runs = progress
            .now
            .is_some_and(|now| is_running(&now) && !is_paused(&now));
        let is_deferred =
            progress.is_resilver_deferred && progress.now.is_none_or(|now| !is_running(&now));
        drop(progress);
        let copies = self.io().scan_queue();
        let walks = runs && (copies.is_done() || !copies.is_open());
        walks || is_deferred || self.has_error_scrub_work()
    }

    /// Stores how far the scan has come. Nothing is queued or with a worker.
    fn store_progress(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        assert!(
            self.io().scan_queue().is_done(),
            "a stored position has no unverified copy before it"
        );
        let (now, queue) = {
            let mut progress = self.scans.progress.lock();
            progress.is_draining = false;
            progress.stored_ns = self.host().monotonic_ns();
            let now = progress.now.filter(is_running).expect("the scan runs");
            if now.mark == progress.stored.mark {
                return Ok(());
            }
            (now, progress.queue.clone())
        };
        let stored = progress::store(scope.writer, now, &queue)?;
        let mut progress = self.scans.progress.lock();
        progress.now = Some(stored);
        progress.stored = stored;
        Ok(())
    }

    /// Ends the scan, if one runs.
    #[doc(alias = "dsl_scan_done")]
    pub(super) fn end_scan(&self, scope: &SyncScope<'_>, end: End) -> Result<(), PoolError> {
        let writer = scope.writer;
        // Workers have nothing of it any more.
        let hurried = self.vdevs().hurry_scrubs();
        self.io().scan_queue().clear();
        drop(hurried);
        assert!(
            self.io().scan_queue().is_done(),
            "no copy of a scan that ends is left"
        );
        let (scan, lacking, has_all) = {
            let mut progress = self.scans.progress.lock();
            progress.merge_found();
            let Some(mut scan) = progress.now.filter(is_running) else {
                return Ok(());
            };
            let old_queue = progress.stored.queue;
            scan.state = match end {
                End::Complete => FINISHED,
                End::Canceled | End::Restarted => CANCELED,
            };
            scan.flags &= !Scan::PAUSED;
            scan.end_time_s = scope.context.now_s;
            scan.queue = old_queue;
            progress.queue.clear();
            progress.is_draining = false;
            let lacking = std::mem::take(&mut progress.lacking);
            (scan, lacking, progress.is_complete_record)
        };
        free_queue(writer, scan.queue)?;
        let scan = Scan {
            queue: ObjectId::ZERO,
            ..scan
        };
        if end == End::Complete {
            // Faults of blocks that only the checkpoint has were not looked for.
            let has_checkpoint = scope
                .features
                .now()
                .is_active(Feature::ZpoolCheckpoint.guid());
            if !has_checkpoint && (scan.error_count == 0 || has_all) {
                self.vdevs()
                    .end_scan((scan.txg_min, scan.txg_max), &lacking);
            }
            if !has_checkpoint {
                self.post_scan(&scan, class::SCRUB_FINISH, class::RESILVER_FINISH);
            }
            if scan.function == SCRUB {
                let txg = ZapValue::word(scan.txg_max.get());
                writer.put(POOL_DIRECTORY, LAST_SCRUBBED_TXG, &txg)?;
            }
        }
        if scan.function == SCRUB {
            schedule::note_scrub(scope)?;
        }
        error_log::end_scan(scope, end == End::Complete)?;
        // The count is only text for the history, so a log that cannot be read does not fail the
        // txg.
        let is_by_head = scope.features.is_enabled(Feature::HeadErrlog);
        let errors = error_log::count(writer.directory(), is_by_head).unwrap_or(0);
        scope.context.record(InternalEvent {
            name: match end {
                End::Complete => "scan done",
                End::Canceled => "scan cancelled",
                End::Restarted => "scan aborted, restarting",
            },
            dataset: None,
            text: format!("errors={errors}"),
        });
        progress::put(writer, &scan)?;
        {
            let mut progress = self.scans.progress.lock();
            progress.now = Some(scan);
            progress.stored = scan;
        }
        assert!(
            self.scans.running().is_none(),
            "a scan that has ended does not run"
        );
        if end != End::Restarted {
            self.stop_scan_workers();
        }
        match end {
            End::Complete => self.after_scan(scope, &scan),
            End::Canceled => {
                self.post_event(class::SCRUB_ABORT, None, NvList::new());
                Ok(())
            }
            End::Restarted => Ok(()),
        }
    }

    /// Posts what is told of a scan: one event of a scrub, the other of a resilver.
    pub(super) fn post_scan(&self, scan: &Scan, of_scrub: &str, of_resilver: &str) {
        match scan.function {
            RESILVER => {
                let more = NvList::new().with("resilver_type", "healing");
                self.post_event(of_resilver, None, more);
            }
            _ => self.post_event(of_scrub, None, NvList::new()),
        }
    }

    /// The devices that came into use while the scan ran are resilvered next.
    fn after_scan(&self, scope: &SyncScope<'_>, scan: &Scan) -> Result<(), PoolError> {
        let left = self.vdevs().births_to_resilver();
        if left.is_some_and(|births| *births.end() >= scan.txg_max) {
            self.scans.progress.lock().is_resilver_deferred = true;
            self.txgs().kick();
        }
        replacing::finish(scope)
    }
}
