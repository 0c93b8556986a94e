//! Starting a resilver after devices joined or came back.
//!
//! A resilver visits the blocks of stored txgs. The dirty time log of a device that just came into
//! use can have births of the two txgs behind that: of intent log blocks, and of what is being
//! synced. So the resilver starts when those are stored, and one resilver fills the device.

use crate::error::TaskError;
use crate::pool::Pool;
use tarn_ondisk::units::Txg;
use tarn_probe::Operation;

/// How many txgs can have blocks at once: open, quiescing, syncing.
#[doc(alias = "TXG_CONCURRENT_STATES")]
pub(crate) const TXGS_AT_ONCE: u64 = 3;

impl Pool {
    /// Starts a resilver if a usable device misses blocks, when all births that it misses are of
    /// stored txgs.
    ///
    /// # Errors
    /// The pool is read-only, suspended or being closed.
    #[doc(alias = "dsl_scan_restart_resilver")]
    pub(crate) fn fill_devices(&self, operation: &Operation) -> Result<(), TaskError> {
        for _ in 0..TXGS_AT_ONCE {
            let leaves = self.vdevs().leaves().into_iter();
            let missed = leaves.filter(|leaf| leaf.is_usable());
            let missed = missed.filter_map(|leaf| leaf.dtl().bounds());
            let newest = missed.map(|births| *births.end()).max();
            if newest.unwrap_or(Txg::ZERO) <= self.txgs().stored_txg() {
                break;
            }
            self.sync_all(operation)?;
        }
        self.request_resilver(operation)
    }
}
