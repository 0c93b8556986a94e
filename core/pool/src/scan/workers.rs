//! The threads that verify what the walk has found.
//!
//! # Mechanism
//! While a scan runs a few threads take runs of neighbours from the queue of copies, and read them
//! with the I/O class of scrubs: so a device has few of their requests at once, and those of
//! applications find room beside them. A scrub waits for gaps between these besides, unless the
//! sync thread waits for it ([`tarn_vdev::VdevTree::hurry_scrubs`]). Threads end with the scan, or
//! with the pool.
//!
//! While devices are absent beyond what redundancy covers, nothing can be judged: a run that failed
//! for that reason waits, and is tried again when the pool is resumed.

use super::progress::is_running;
use crate::error_log::place_of;
use crate::pool::Pool;
use std::sync::Arc;
use std::time::Duration;
use tarn_block::{
    ScanOutcome,
    scan_copies::queue::{RUNS_MAX, Run},
};
use tarn_host::background;
use tarn_ondisk::scan::RESILVER;
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::ScanPurpose;

/// Most threads of a pool. A guess: more than devices of most pools keep busy.
const THREADS_MAX: usize = 12;

/// How long a run waits before it is tried again while devices are absent.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How often a run is tried again while the pool is not suspended: the next txg notices that
/// devices are absent, and suspends it.
const RETRIES_MAX: usize = 50;

impl Pool {
    /// Starts the threads of a scan, unless they run, or [have ended](Pool::end_scan_workers).
    pub(super) fn start_scan_workers(&self) {
        let pool = self.this.get().and_then(std::sync::Weak::upgrade);
        let Some(pool) = pool else {
            return;
        };
        let mut workers = self.scans.workers.lock();
        let is_running = workers.threads.iter().any(|worker| !worker.is_finished());
        if workers.have_ended || is_running {
            return;
        }
        self.io().scan_queue().reopen();
        let tops = self.vdevs().top_levels().len();
        let count = (RUNS_MAX * tops).min(self.host().processors().max(RUNS_MAX));
        for number in 0..count.clamp(RUNS_MAX, THREADS_MAX) {
            let pool = pool.clone();
            let name = format!("tarn-scan-{number}-{}", self.name());
            let work = move || verify_runs(&pool);
            workers
                .threads
                .push(self.host().spawn_background(&name, work));
        }
    }

    /// Ends the threads of a scan. They are joined when the pool is closed.
    pub(crate) fn stop_scan_workers(&self) {
        let mut workers = self.scans.workers.lock();
        self.io().scan_queue().close();
        let threads = std::mem::take(&mut workers.threads);
        drop(workers);
        self.sync_threads.lock().extend(threads);
    }

    /// Ends the threads of a scan for good: the last txgs of a pool that is closed start none,
    /// which would never be told to end.
    pub(crate) fn end_scan_workers(&self) {
        self.scans.workers.lock().have_ended = true;
        self.stop_scan_workers();
    }

    /// Adds the outcomes of a run to the scan.
    fn note_scanned(&self, run: &Run, outcomes: &[ScanOutcome], operation: &Operation) {
        let counts = self.io().scan_queue().counting(run);
        assert!(
            counts.len() == run.items.len() && outcomes.len() == run.items.len(),
            "each copy of a run has one outcome"
        );
        let mut errors = Vec::new();
        {
            let mut progress = self.scans.progress.lock();
            for ((item, outcome), counts) in run.items.iter().zip(outcomes).zip(counts) {
                progress.pass.issued_bytes += item.allocated_bytes();
                progress.found.repaired_bytes += outcome.repaired_bytes;
                for (guid, birth) in &outcome.lacking {
                    let lacking = progress.lacking.entry(*guid).or_default();
                    lacking.add(*birth..=*birth);
                }
                if let Some(error) = outcome.error.as_ref().filter(|_| counts) {
                    progress.found.errors += 1;
                    errors.push((item, error.errno()));
                }
            }
        }
        for (item, errno) in errors {
            self.log_error(place_of(&item.mark), item.pointer.logical_birth);
            self.vdevs().report_unreadable(item.mark, errno, operation);
        }
    }
}

fn verify_runs(pool: &Arc<Pool>) {
    // It has its own rate: the sync thread's does not count.
    background::keep_pace(None);
    let queue = pool.io().scan_queue();
    while let Some(run) = queue.take() {
        let scan = pool.scans.running();
        let purpose = match scan.filter(is_running).map(|scan| scan.function) {
            Some(RESILVER) => ScanPurpose::Resilver,
            _ => ScanPurpose::Scrub,
        };
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Scan);
        let outcomes = scan_patiently(pool, &run, purpose, &operation);
        match outcomes {
            Some(outcomes) => {
                pool.note_scanned(&run, &outcomes, &operation);
                queue.done(&run);
            }
            None => queue.put_back(&run),
        }
        operation.finish();
        if queue.is_done() || !queue.is_open() {
            pool.txgs().kick();
        }
    }
}

/// Scans a run; while devices are absent it is tried again. None if the scan ended or was
/// paused meanwhile.
fn scan_patiently(
    pool: &Pool,
    run: &Run,
    purpose: ScanPurpose,
    operation: &Operation,
) -> Option<Vec<ScanOutcome>> {
    let mut tries = 0;
    loop {
        let outcomes = pool.io().scan(&run.items, purpose, operation);
        let is_absent = |outcome: &ScanOutcome| {
            let error = outcome.error.as_ref();
            error.is_some_and(|error| !error.is_mismatch())
        };
        if !outcomes.iter().any(is_absent) || pool.vdevs().health().standing.state.is_usable() {
            return Some(outcomes);
        }
        if !pool.io().scan_queue().is_open() {
            return None;
        }
        if pool.failure().is_none() {
            tries += 1;
            pool.txgs().kick();
        }
        if tries > RETRIES_MAX {
            return Some(outcomes);
        }
        pool.host().sleep(RETRY_INTERVAL);
    }
}
