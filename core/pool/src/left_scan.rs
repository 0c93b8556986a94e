//! Cancels a scrub or resilver that OpenZFS did not finish, when the pool is imported for writing.
//!
//! # Problem
//! A scan keeps its position and the queue of datasets in the MOS, and OpenZFS updates these with
//! each dataset that is destroyed, snapshotted or swapped. Its next import goes on from there. If a
//! queued dataset does not exist any more, its kernel panics, at that import and each that follows;
//! a snapshot that is not in the queue is skipped, and when such a resilver ends, the device counts
//! as complete.
//!
//! # Mechanism
//! Tarn has no scans, so the stored state of a scan would become wrong with the first change. The
//! first txg after an import for writing ends it as `zpool scrub -s` does: it is canceled as of
//! now, its queue is freed, and the history records that. No repair is forgotten by that: the dirty
//! time log of a leaf is stored with the leaf, and by it OpenZFS begins a resilver anew when it
//! imports the pool; a scrub has to be requested again. The errors that the scan has found stay,
//! beside those known before.
//!
//! A scrub of known errors only ([`ERROR_SCRUB`](tarn_ondisk::pool_directory::ERROR_SCRUB)) walks
//! the error log, and tolerates that entries go; and scans of versions before the entry `scan`
//! begin anew by themselves. Both stay.

use crate::error::{ImportError, PoolError};
use crate::error_log;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use tarn_dataset::task::{FeatureCounts, InternalEvent};
use tarn_object::zap::ZapValue;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{POOL_DIRECTORY, SCAN};
use tarn_ondisk::scan::{CANCELED, SCANNING, Scan};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

impl Pool {
    /// Cancels a running scan in the first txg. Called before that begins.
    ///
    /// # Errors
    /// The scan's state cannot be read.
    pub(crate) fn cancel_left_scan(&self, operation: &Operation) -> Result<(), ImportError> {
        let stored = self.directory(operation).value(SCAN)?;
        let scan = stored.and_then(|stored| Scan::from_words(&stored.to_words()));
        match scan.filter(|scan| scan.state == SCANNING) {
            Some(scan) => Ok(self.leave_for_sync(move |scope| cancel(scope, scan))?),
            None => Ok(()),
        }
    }
}

/// Ends a scan, in the syncing txg.
#[doc(alias = "dsl_scan_cancel_sync")]
fn cancel(scope: &SyncScope<'_>, mut scan: Scan) -> Result<(), PoolError> {
    free_queue(scope, scan.queue)?;
    scan.state = CANCELED;
    scan.queue = ObjectId::ZERO;
    scan.end_time_s = scope.context.now_s;
    scan.flags &= !Scan::PAUSED;
    let words = ZapValue::Words(scan.to_words());
    scope.writer.put(POOL_DIRECTORY, SCAN, &words)?;
    let is_by_head = scope.features.is_enabled(Feature::HeadErrlog);
    // The count is only text for the history, so a log that cannot be read does not fail the txg.
    let errors = error_log::count(scope.writer.directory(), is_by_head).unwrap_or(0);
    scope.context.record(InternalEvent {
        name: "scan cancelled",
        dataset: None,
        text: format!("errors={errors}"),
    });
    Ok(())
}

/// Frees the queue of datasets. An object of another type is not such a queue, whatever the scan
/// says.
fn free_queue(scope: &SyncScope<'_>, queue: ObjectId) -> Result<(), PoolError> {
    if queue.is_zero() {
        return Ok(());
    }
    let found = scope.writer.directory().object(queue);
    let is_queue = found.is_ok_and(|object| {
        let object_type = object.object_type();
        // Pools before version 11 have no type of their own for it.
        matches!(object_type, ObjectType::ScanQueue | ObjectType::OtherZap)
    });
    match is_queue {
        true => scope.writer.free(queue),
        false => Ok(()),
    }
}
