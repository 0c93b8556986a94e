//! A scrub or a resilver that OpenZFS began and did not finish: it is canceled when the pool is
//! imported for writing.
//!
//! # Problem
//! A scan keeps in the MOS where it is and which datasets are still to come, and OpenZFS amends
//! that with each dataset that is destroyed, snapshotted or put in another's place. It goes on from
//! there at its next import. Where it comes to a dataset that is not there any more, its kernel
//! stops, at that import and each that follows; a snapshot that it was not told of is passed over,
//! and when a resilver has ended like that, the device counts as whole.
//!
//! # Mechanism
//! We have no scans, so what is written about one would not be true any more after our first
//! change. The first group after an import for writing ends it as `zpool scrub -s` does: it is
//! canceled as of now, its queue is freed, and the history says so. Nothing is forgotten by that.
//! What a leaf has missed is written with the leaf, and by it OpenZFS begins a resilver anew when
//! it imports the pool; a scrub has to be asked for again. The errors that the scan has found stay
//! where they are, beside those that were known before.
//!
//! A scrub of known errors only ([`ERROR_SCRUB`](tarn_ondisk::pool_directory::ERROR_SCRUB)) walks
//! the error log, and stands it that entries go; and those of versions before the entry `scan`
//! begin anew by themselves. Both stay as they are.

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
    /// Asks for a scan that runs to be canceled in the first group. To be called before that is
    /// begun.
    ///
    /// # Errors
    /// When it cannot be read whether there is one.
    pub(crate) fn cancel_left_scan(&self, operation: &Operation) -> Result<(), ImportError> {
        let stored = self.directory(operation).value(SCAN)?;
        let scan = stored.and_then(|stored| Scan::from_words(&stored.to_words()));
        match scan.filter(|scan| scan.state == SCANNING) {
            Some(scan) => Ok(self.leave_for_sync(move |scope| cancel(scope, scan))?),
            None => Ok(()),
        }
    }
}

/// Ends a scan, in the group that is being stored.
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
    // Only for people to read: a log that cannot be read keeps nothing from being stored.
    let errors = error_log::count(scope.writer.directory(), is_by_head).unwrap_or(0);
    scope.context.record(InternalEvent {
        name: "scan cancelled",
        dataset: None,
        text: format!("errors={errors}"),
    });
    Ok(())
}

/// Frees the list of datasets that were still to come. An object of another type is not such a
/// list, whatever the disk says.
fn free_queue(scope: &SyncScope<'_>, queue: ObjectId) -> Result<(), PoolError> {
    if queue.is_zero() {
        return Ok(());
    }
    let found = scope.writer.directory().object(queue);
    let is_queue = found.is_ok_and(|object| {
        let object_type = object.object_type();
        // Pools before version 11 had no type of their own for it.
        matches!(object_type, ObjectType::ScanQueue | ObjectType::OtherZap)
    });
    match is_queue {
        true => scope.writer.free(queue),
        false => Ok(()),
    }
}
