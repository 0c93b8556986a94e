//! What `zpool status` and `zpool wait` ask about rebuilds.

use crate::pool::Pool;
use std::sync::atomic::Ordering;
use tarn_ondisk::rebuild::{ACTIVE, Rebuild};
use tarn_ondisk::units::VdevId;

/// The rebuild of a top-level vdev: the one that is active, or the last one.
#[doc(alias = "vdev_rebuild_stat_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildStatus {
    /// The vdev.
    pub vdev: VdevId,
    /// As it is now.
    pub rebuild: Rebuild,
    /// How long it ran since it began or was taken over by this import.
    pub pass_ms: u64,
    /// Bytes that it came to since then.
    pub pass_scanned_bytes: u64,
    /// Bytes that were read since then.
    pub pass_issued_bytes: u64,
}

impl RebuildStatus {
    /// Whether it is active.
    pub fn is_active(&self) -> bool {
        self.rebuild.state == ACTIVE
    }

    /// How much is left to copy, about.
    pub fn left_bytes(&self) -> u64 {
        let rebuild = &self.rebuild;
        rebuild
            .estimated_bytes
            .saturating_sub(rebuild.scanned_bytes)
    }
}

impl Pool {
    /// The rebuilds of all vdevs that have or had one.
    #[doc(alias = "vdev_rebuild_get_stats")]
    pub fn rebuild_status(&self) -> Vec<RebuildStatus> {
        let rebuilds = self.rebuilds.0.lock();
        let status = rebuilds.iter().map(|(id, state)| RebuildStatus {
            vdev: *id,
            rebuild: state.now(),
            pass_ms: state.progress.pass_ms.load(Ordering::Acquire),
            pass_scanned_bytes: state.progress.pass_scanned_bytes.load(Ordering::Acquire),
            pass_issued_bytes: state.progress.pass_issued_bytes.load(Ordering::Acquire),
        });
        status.collect()
    }
}
