//! The scan of a pool, as it is in memory.

use super::progress::{Progress, is_running};
use std::collections::VecDeque;
use tarn_host::JoinHandle;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::error_log::HeadErrorPlace;
use tarn_ondisk::error_scrub::ErrorScrub;
use tarn_ondisk::scan::Scan;
use tarn_ondisk::units::ObjectId;

/// The state of the scan.
const PROGRESS: Rank = Rank::new(tarn_host::ranks::POOL + 46, "scan progress");
/// The workers.
const WORKERS: Rank = Rank::new(tarn_host::ranks::POOL + 47, "scan workers");

/// The scrub of known errors.
const KNOWN_ERRORS: Rank = Rank::new(tarn_host::ranks::POOL + 49, "scrub of known errors");

/// The scrub of known errors, as it is in memory.
#[derive(Debug, Default)]
pub(crate) struct KnownErrors {
    pub(crate) now: ErrorScrub,
    /// What is left; none before the log was read.
    pub(crate) left: Option<VecDeque<(ObjectId, HeadErrorPlace)>>,
    /// Since when it is paused, in seconds since 1970.
    pub(crate) paused_since_s: u64,
}

/// The threads that verify what the walk has found.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    pub(crate) threads: Vec<JoinHandle<()>>,
    /// The pool is closed: none is started any more.
    pub(crate) have_ended: bool,
}

/// The scan of a pool.
pub(crate) struct Scans {
    pub(crate) progress: Mutex<Progress>,
    pub(crate) workers: Mutex<Workers>,
    pub(crate) known_errors: Mutex<KnownErrors>,
}

impl Scans {
    pub(crate) fn new() -> Scans {
        Scans {
            progress: Mutex::new(PROGRESS, Progress::default()),
            workers: Mutex::new(WORKERS, Workers::default()),
            known_errors: Mutex::new(KNOWN_ERRORS, KnownErrors::default()),
        }
    }

    /// The scan as it is now, if one is running or paused.
    pub(crate) fn running(&self) -> Option<Scan> {
        let progress = self.progress.lock();
        progress.now.filter(is_running)
    }
}
