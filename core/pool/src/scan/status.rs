//! What `zpool status` and `zpool wait` ask about the scan of a pool.

use super::progress::{Pass, is_paused, is_running};
use crate::pool::{Mode, Pool};
use tarn_ondisk::pool_directory::SCAN;
use tarn_ondisk::scan::{RESILVER, SCRUB, Scan};
use tarn_ondisk::units::{Guid, Txg};
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::VdevState;

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

/// What a scan or rebuild that runs does to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafScan {
    /// It gets what it missed.
    Resilvering,
    /// It got what a scrub found bad.
    Repairing,
    /// It gets what it missed when the resilver that runs is done.
    #[doc(alias = "vs_resilver_deferred")]
    AwaitingResilver,
}

impl LeafScan {
    /// What the scan that runs does to a device that is online.
    fn of(scan: &Scan, written_bytes: u64, is_deferred: bool) -> Option<LeafScan> {
        match (written_bytes > 0, scan.function) {
            (true, RESILVER) => Some(LeafScan::Resilvering),
            (true, _) => Some(LeafScan::Repairing),
            (false, _) => is_deferred.then_some(LeafScan::AwaitingResilver),
        }
    }

    /// The words of `zpool status`.
    pub const fn text(self) -> &'static str {
        match self {
            LeafScan::Resilvering => "resilvering",
            LeafScan::Repairing => "repairing",
            LeafScan::AwaitingResilver => "awaiting resilver",
        }
    }
}

impl Pool {
    /// What a scan or rebuild that runs does to a device; none where it has written nothing to it.
    pub fn scan_of_leaf(&self, device: Guid) -> Option<LeafScan> {
        let leaf = self.vdevs().leaf(device)?;
        if leaf.standing().state != VdevState::Online {
            return None;
        }
        let top = self.vdevs().top_of(device)?;
        if leaf.rebuild_written_bytes() > 0 && self.is_rebuilding_vdev(top) {
            return Some(LeafScan::Resilvering);
        }
        let scan = self.scans.running()?;
        let is_deferred = self.is_resilver_deferred(device);
        LeafScan::of(&scan, leaf.scan_written_bytes(), is_deferred)
    }

    /// Whether a device came into use while a resilver ran that does not give it all that it
    /// missed, and the next resilver does.
    #[doc(alias("vdev_resilver_deferred", "vs_resilver_deferred"))]
    pub fn is_resilver_deferred(&self, device: Guid) -> bool {
        let (is_deferred, now) = {
            let progress = self.scans.progress.lock();
            (progress.is_resilver_deferred, progress.now)
        };
        let missed = self
            .vdevs()
            .leaf(device)
            .and_then(|leaf| leaf.dtl().bounds());
        let runs_for = now.filter(is_running).map(|scan| scan.txg_max);
        let is_later = |birth: &Txg| runs_for.is_none_or(|end| *birth >= end);
        is_deferred && missed.is_some_and(|births| is_later(births.end()))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_awaits_a_resilver_until_the_one_that_runs_writes_to_it() {
        let scan = |function| Scan {
            function,
            ..Scan::default()
        };
        let of = |function, written_bytes, is_deferred| {
            LeafScan::of(&scan(function), written_bytes, is_deferred).map(LeafScan::text)
        };
        assert_eq!(of(RESILVER, 0, true), Some("awaiting resilver"));
        assert_eq!(of(RESILVER, 512, true), Some("resilvering"));
        assert_eq!(of(RESILVER, 0, false), None);
        assert_eq!(of(SCRUB, 512, false), Some("repairing"));
    }
}
