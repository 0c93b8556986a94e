//! Loads the scan that the MOS has.

use super::progress::{Pass, is_paused, is_running, read_queue};
use crate::error::PoolError;
use crate::pool::Pool;
use tarn_ondisk::pool_directory::SCAN;
use tarn_ondisk::scan::Scan;
use tarn_probe::Operation;

impl Pool {
    /// Loads the stored scan, before the first txg. A queue that makes no sense has the scan begin
    /// from the start.
    ///
    /// # Errors
    /// The entry cannot be read.
    #[doc(alias = "dsl_scan_init")]
    pub(crate) fn load_scan(&self, operation: &Operation) -> Result<(), PoolError> {
        self.load_error_scrub(operation)?;
        self.load_txg_times(operation)?;
        let directory = self.directory(operation);
        let stored = directory.value(SCAN)?;
        let Some(stored) = stored.and_then(|stored| Scan::from_words(&stored.to_words())) else {
            return Ok(());
        };
        let mut progress = self.scans.progress.lock();
        progress.now = Some(stored);
        progress.stored = stored;
        if !is_running(&stored) {
            return Ok(());
        }
        drop(progress);
        let queue = read_queue(directory, stored.queue);
        let now_s = u64::try_from(self.host().unix_time().seconds).unwrap_or(0);
        let mut progress = self.scans.progress.lock();
        progress.pass = Pass {
            start_time_s: now_s,
            paused_since_s: match is_paused(&stored) {
                true => now_s,
                false => 0,
            },
            examined_before_bytes: stored.examined_bytes,
            ..Pass::default()
        };
        match queue {
            Some(queue) => progress.queue = queue,
            None => {
                let mark = tarn_ondisk::bookmark::TraversalMark::default();
                progress.now = Some(Scan {
                    mark,
                    examined_bytes: 0,
                    skipped_bytes: 0,
                    ..stored
                });
            }
        }
        Ok(())
    }
}
