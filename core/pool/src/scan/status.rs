//! What `zpool status` and `zpool wait` ask about the scan of a pool.

use super::progress::{Pass, is_paused, is_running};
use crate::pool::{Mode, Pool};
use tarn_ondisk::pool_directory::SCAN;
use tarn_ondisk::scan::{RESILVER, SCRUB, Scan};
use tarn_probe::{Operation, OperationKind};

/// The scan of a pool: the one that runs, or the last one.
#[doc(alias = "pool_scan_stat_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanStatus {
    /// As it is now, with what the workers have found.
    pub scan: Scan,
    /// Since it was begun or taken over by this import.
    pub pass: Pass,
}

impl ScanStatus {
    /// Whether it is a scrub.
    pub fn is_scrub(&self) -> bool {
        self.scan.function == SCRUB
    }

    /// Whether it is a resilver.
    pub fn is_resilver(&self) -> bool {
        self.scan.function == RESILVER
    }

    /// Whether it runs or is paused.
    pub fn is_running(&self) -> bool {
        is_running(&self.scan)
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        is_paused(&self.scan)
    }

    /// Bytes verified since the scan was begun.
    #[doc(alias = "pss_issued")]
    pub fn issued_bytes(&self) -> u64 {
        self.pass.issued_bytes + self.pass.examined_before_bytes
    }
}

impl Pool {
    /// The scan that runs, or the last one. None if there never was one, or the entry of a
    /// read-only pool cannot be read.
    #[doc(alias = "spa_scan_get_stats")]
    pub fn scan_status(&self) -> Option<ScanStatus> {
        if self.mode() == Mode::ReadOnly {
            let kind = OperationKind::Administration;
            let operation = Operation::internal(tarn_host::monotonic_ns, kind);
            let stored = self.directory(&operation).value(SCAN).ok()??;
            let scan = Scan::from_words(&stored.to_words())?;
            let pass = Pass::default();
            return Some(ScanStatus { scan, pass });
        }
        let progress = self.scans.progress.lock();
        let mut scan = progress.now?;
        scan.error_count += progress.found.errors;
        scan.processed_bytes += progress.found.repaired_bytes;
        Some(ScanStatus {
            scan,
            pass: progress.pass,
        })
    }
}
