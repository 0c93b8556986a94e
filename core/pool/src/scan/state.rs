//! The scan of a pool, as it is in memory.

use super::progress::{Progress, is_running};
use tarn_host::JoinHandle;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::scan::Scan;

/// The state of the scan.
const PROGRESS: Rank = Rank::new(tarn_host::ranks::POOL + 46, "scan progress");
/// The handles of the workers.
const WORKERS: Rank = Rank::new(tarn_host::ranks::POOL + 47, "scan workers");

/// The scan of a pool.
pub(crate) struct Scans {
    pub(crate) progress: Mutex<Progress>,
    pub(crate) workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Scans {
    pub(crate) fn new() -> Scans {
        Scans {
            progress: Mutex::new(PROGRESS, Progress::default()),
            workers: Mutex::new(WORKERS, Vec::new()),
        }
    }

    /// The scan as it is now, if one is running or paused.
    pub(crate) fn running(&self) -> Option<Scan> {
        let progress = self.progress.lock();
        progress.now.filter(is_running)
    }
}
