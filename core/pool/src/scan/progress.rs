//! How far a scan has come: in memory, and as it is stored.
//!
//! # Mechanism
//! The walk is ahead of the workers. So the position in the MOS is that of the last moment at which
//! the queue of copies was empty. That comes by itself at the end of the walk and when memory was
//! full; besides, the walk waits for it every ten minutes.
//!
//! The queue of datasets in the MOS belongs to the stored position. When that is stored, the queue
//! is written anew.

use crate::directory::Directory;
use crate::error::PoolError;
use crate::mos_writer::MosWriter;
use std::collections::BTreeMap;
use tarn_object::zap::ZapValue;
use tarn_ondisk::declare::widen;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{POOL_DIRECTORY, SCAN};
use tarn_ondisk::scan::{NO_DATASET, SCANNING, Scan};
use tarn_ondisk::units::{Guid, ObjectId, Txg};
use tarn_vdev::Dtl;

/// At least so often the walk waits until progress can be stored. A guess: shorter than the time
/// for which people would mind to scan again, and long enough for long runs.
pub(super) const STORE_NS: u64 = 600_000_000_000;

/// Most datasets of a plausible queue.
const QUEUE_MAX: u64 = 1 << 24;

/// The state of the scan of a pool.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// As it is now. None if no scan was ever begun.
    pub(super) now: Option<Scan>,
    /// As it is in the MOS.
    pub(super) stored: Scan,
    /// Datasets that the walk comes to, each with the birth after which its blocks are visited.
    pub(super) queue: BTreeMap<ObjectId, Txg>,
    /// What workers have found, and the walk has not taken over.
    pub(super) found: Found,
    /// Since the scan was begun or taken over by this import.
    pub(super) pass: Pass,
    /// Births that devices lack all the same.
    pub(super) lacking: BTreeMap<Guid, Dtl>,
    /// The scan was begun since the pool was imported, so `lacking` has everything.
    pub(super) is_complete_record: bool,
    /// The walk waits until the queue of copies is empty.
    pub(super) is_draining: bool,
    /// The walk begins in this txg, or goes on from the start of an import.
    pub(super) walks_from: Txg,
    /// How many slices of the walk came no further, one after the other.
    pub(super) fruitless_slices: u32,
    /// When the position was stored, on the monotonic clock.
    pub(super) stored_ns: u64,
    /// A resilver is to be begun when this scan ends.
    pub(super) is_resilver_deferred: bool,
}

/// Sums of the workers.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) errors: u64,
    pub(super) repaired_bytes: u64,
}

/// What `zpool status` shows of the rate: since the scan was begun, resumed, or taken over.
#[doc(alias = "spa_scan_pass_start")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// Seconds since 1970, UTC.
    pub start_time_s: u64,
    /// Since when it is paused, in seconds since 1970; zero if it is not.
    pub paused_since_s: u64,
    /// How long it was paused before, in seconds.
    pub spent_paused_s: u64,
    /// Bytes that the walk came to.
    pub examined_bytes: u64,
    /// Bytes that workers verified.
    pub issued_bytes: u64,
    /// Bytes that had been examined before.
    pub examined_before_bytes: u64,
}

/// Whether a scan runs or is paused.
pub(super) fn is_running(scan: &Scan) -> bool {
    scan.state == SCANNING
}

/// Whether a scan is paused.
pub(super) fn is_paused(scan: &Scan) -> bool {
    is_running(scan) && scan.flags & Scan::PAUSED != 0
}

impl Progress {
    /// Whether the walk is at its end.
    pub(super) fn is_walked(&self) -> bool {
        let now = self.now.filter(is_running);
        now.is_some_and(|now| now.mark.objset == NO_DATASET) && self.queue.is_empty()
    }

    /// Takes over what the workers have found.
    pub(super) fn merge_found(&mut self) {
        let found = std::mem::take(&mut self.found);
        if let Some(now) = &mut self.now {
            now.error_count += found.errors;
            now.processed_bytes += found.repaired_bytes;
        }
    }
}

/// The datasets of a stored queue. None if it is no queue.
pub(super) fn read_queue(
    directory: Directory<'_>,
    queue: ObjectId,
) -> Option<BTreeMap<ObjectId, Txg>> {
    if !is_queue(directory, queue) {
        return None;
    }
    let count = directory.zap(queue).ok()?.count().ok()?;
    if count > QUEUE_MAX {
        return None;
    }
    let mut datasets = BTreeMap::new();
    for (name, value) in directory.entries(queue).ok()? {
        let dataset = u64::from_str_radix(&name, 16).ok()?;
        datasets.insert(ObjectId::new(dataset), Txg::new(value.as_word()?));
    }
    Some(datasets)
}

/// Whether an object is a queue of datasets, whatever the scan says.
fn is_queue(directory: Directory<'_>, queue: ObjectId) -> bool {
    if queue.is_zero() {
        return false;
    }
    let found = directory.object(queue);
    found.is_ok_and(|object| {
        // Pools before version 11 have no type of their own for it.
        let object_type = object.object_type();
        matches!(object_type, ObjectType::ScanQueue | ObjectType::OtherZap)
    })
}

/// Creates the queue of a new scan.
pub(super) fn create_queue(writer: MosWriter<'_>) -> Result<ObjectId, PoolError> {
    writer.create_zap(ObjectType::ScanQueue)
}

/// Frees the queue of a scan that ends.
pub(super) fn free_queue(writer: MosWriter<'_>, queue: ObjectId) -> Result<(), PoolError> {
    match is_queue(writer.directory(), queue) {
        true => writer.free(queue),
        false => Ok(()),
    }
}

/// Changes one entry of the stored queue.
pub(super) fn change_queue(
    writer: MosWriter<'_>,
    queue: ObjectId,
    (from, to): (ObjectId, Option<ObjectId>),
) -> Result<(), PoolError> {
    if !is_queue(writer.directory(), queue) {
        return Ok(());
    }
    let name = |dataset: ObjectId| format!("{:x}", dataset.get());
    let Some(value) = writer.directory().value_in(queue, &name(from))? else {
        return Ok(());
    };
    writer.remove(queue, &name(from))?;
    match to {
        Some(to) => writer.put(queue, &name(to), &value),
        None => Ok(()),
    }
}

/// Whether the stored queue has a dataset.
pub(super) fn has_queued(
    writer: MosWriter<'_>,
    queue: ObjectId,
    dataset: ObjectId,
) -> Result<bool, PoolError> {
    if !is_queue(writer.directory(), queue) {
        return Ok(false);
    }
    let name = format!("{:x}", dataset.get());
    Ok(writer.directory().value_in(queue, &name)?.is_some())
}

/// Stores a running scan as it is in memory, with its queue. Gives it as it is stored.
#[doc(alias = "dsl_scan_sync_state")]
pub(super) fn store(
    writer: MosWriter<'_>,
    now: Scan,
    queue: &BTreeMap<ObjectId, Txg>,
) -> Result<Scan, PoolError> {
    free_queue(writer, now.queue)?;
    let stored = Scan {
        queue: create_queue(writer)?,
        ..now
    };
    for (dataset, txg) in queue {
        let value = ZapValue::word(txg.get());
        writer.put(stored.queue, &format!("{:x}", dataset.get()), &value)?;
    }
    debug_assert_eq!(
        writer.directory().zap(stored.queue)?.count().ok(),
        Some(widen(queue.len())),
        "the stored queue has all datasets"
    );
    put(writer, &stored)?;
    Ok(stored)
}

/// Stores a scan without its queue.
pub(super) fn put(writer: MosWriter<'_>, scan: &Scan) -> Result<(), PoolError> {
    let words = ZapValue::Words(scan.to_words());
    writer.put(POOL_DIRECTORY, SCAN, &words)
}
