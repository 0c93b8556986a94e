//! Log space maps: OpenZFS's logs of all metaslabs' changes, one for each txg.
//!
//! # Mechanism
//! With the feature `log_spacemap`, OpenZFS writes one log for all metaslabs in each txg, and
//! flushes a few metaslabs in each txg, instead of appending to hundreds of space maps. Each vdev
//! has an array with the txg, for each metaslab, from which on the logs have its changes. When Tarn
//! becomes the writer of a pool, the logs are read once ([`read`]) and flushed to the metaslabs'
//! own space maps in the first txg ([`clear`]). After that there are no logs, the array is gone,
//! and the feature is not active.
//!
//! # Invariants
//! - No metaslab names a txg without a log: OpenZFS refuses such a pool. So arrays and logs go in
//!   one txg.

use crate::directory::{Directory, TOP_ZAP};
use crate::error::PoolError;
use crate::space_maps::{Arrays, Changes, MetaslabId, Storing, Unflushed, flush, read_log};
use crate::vdev_objects::free_space_map;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use tarn_ondisk::declare::{Corrupt, narrow};
use tarn_ondisk::pool_directory::{LOG_SPACE_MAPS, POOL_DIRECTORY, VDEV_UNFLUSHED_TXGS};
use tarn_ondisk::space_map::SpaceMapDecoder;
use tarn_ondisk::units::{ObjectId, Txg, VdevId};
use tarn_space::Range;
use tarn_vdev::{TopLevel, VdevConfig};

const WORD_BYTES: usize = 8;

/// The changes in the logs that the metaslabs' own space maps lack.
pub(crate) fn read(
    directory: Directory<'_>,
    root: &VdevConfig,
    vdevs: &[TopLevel],
    arrays: &Arrays,
) -> Result<BTreeMap<MetaslabId, Changes>, PoolError> {
    let mut changes = BTreeMap::new();
    let logs = logs(directory)?;
    if logs.is_empty() {
        return Ok(changes);
    }
    let since = unflushed_txgs(directory, root, vdevs)?;
    let counts: BTreeMap<VdevId, u64> = vdevs
        .iter()
        .map(|vdev| {
            let count = tarn_vdev::sizes::metaslab_count(vdev.asize, vdev.metaslab_shift);
            (vdev.id, count)
        })
        .collect();
    for (txg, log) in logs {
        let object = directory.object(log)?;
        let mut is_impossible = false;
        read_log(
            &object,
            SpaceMapDecoder::of_log(),
            directory.operation(),
            |entry| {
                let vdev = entry.vdev.unwrap_or(VdevId::new(0));
                // A vdev without space maps was removed, or is about to be.
                let Some(metaslab) = arrays.metaslab_of(vdev, entry.start) else {
                    return ControlFlow::Continue(());
                };
                // Older entries are in the metaslab's own space map.
                if since.get(&metaslab).is_some_and(|since| txg < *since) {
                    return ControlFlow::Continue(());
                }
                let Ok(region) = arrays.region(metaslab.0, metaslab.1) else {
                    return ControlFlow::Continue(());
                };
                let is_there = counts.get(&vdev).is_some_and(|count| metaslab.1 < *count);
                if !is_there || !region.holds(entry.start, entry.size) {
                    is_impossible = true;
                    return ControlFlow::Break(());
                }
                let range = Range::new(entry.start, entry.size);
                let changes: &mut Changes = changes.entry(metaslab).or_default();
                changes.apply(entry.action, range);
                ControlFlow::Continue(())
            },
        )?;
        if is_impossible {
            let cause = Corrupt::Inconsistent {
                what: "log space map",
                offset: 0,
                why: "a run is not of whole units within one metaslab",
            };
            return Err(PoolError::Corrupt { object: log, cause });
        }
    }
    Ok(changes)
}

/// The logs by txg, the oldest first.
fn logs(directory: Directory<'_>) -> Result<BTreeMap<Txg, ObjectId>, PoolError> {
    let Some(zap) = directory.find(LOG_SPACE_MAPS)? else {
        return Ok(BTreeMap::new());
    };
    let entries = directory.entries(zap)?.into_iter();
    let parsed = entries.filter_map(|(name, value)| {
        let txg = u64::from_str_radix(&name, 16).ok()?;
        Some((Txg::from(txg), ObjectId::new(value.as_word()?)))
    });
    Ok(parsed.collect())
}

/// For each metaslab, the txg from which on its changes are in the logs.
fn unflushed_txgs(
    directory: Directory<'_>,
    root: &VdevConfig,
    vdevs: &[TopLevel],
) -> Result<BTreeMap<MetaslabId, Txg>, PoolError> {
    let mut since = BTreeMap::new();
    for vdev in vdevs {
        let Some(array) = array_of(directory, root, vdev.id)? else {
            continue;
        };
        let count = tarn_vdev::sizes::metaslab_count(vdev.asize, vdev.metaslab_shift);
        let mut bytes = vec![0; narrow(count) * WORD_BYTES];
        directory
            .object(array)?
            .read(0, &mut bytes, directory.operation())
            .map_err(|cause| PoolError::Object {
                object: array,
                cause,
            })?;
        for (index, word) in (0..).zip(bytes.chunks_exact(WORD_BYTES)) {
            let word = u64::from_le_bytes(word.try_into().expect("chunks are whole words"));
            since.insert((vdev.id, index), Txg::from(word));
        }
    }
    Ok(since)
}

/// The ZAP of a top-level vdev.
pub(crate) fn top_zap(root: &VdevConfig, vdev: VdevId) -> Option<ObjectId> {
    let config = root.children.get(vdev.index())?;
    config.other_object(TOP_ZAP).filter(|zap| !zap.is_zero())
}

/// The array of a vdev with the unflushed txg of each metaslab.
fn array_of(
    directory: Directory<'_>,
    root: &VdevConfig,
    vdev: VdevId,
) -> Result<Option<ObjectId>, PoolError> {
    let Some(zap) = top_zap(root, vdev) else {
        return Ok(None);
    };
    let value = directory.value_in(zap, VDEV_UNFLUSHED_TXGS)?;
    Ok(value.and_then(|value| value.as_word()).map(ObjectId::new))
}

/// Whether the pool has log space maps.
pub(crate) fn exist(directory: Directory<'_>) -> Result<bool, PoolError> {
    Ok(directory.find(LOG_SPACE_MAPS)?.is_some())
}

/// Flushes all metaslabs, and removes the logs. Called in the first txg after an import.
pub(crate) fn clear(
    storing: &Storing<'_>,
    unflushed: &Unflushed,
    root: &VdevConfig,
    vdevs: &[TopLevel],
) -> Result<(), PoolError> {
    let writer = storing.writer;
    let mut table = unflushed.write();
    for (metaslab, changes) in table.iter() {
        flush(storing, *metaslab, changes)?;
    }
    table.clear();
    drop(table);
    remove_logs(storing)?;
    debug_assert!(
        exist(writer.directory()).is_ok_and(|exist| !exist),
        "changes that are flushed are in no log"
    );
    for vdev in vdevs {
        if let Some(array) = array_of(writer.directory(), root, vdev.id)? {
            let zap = top_zap(root, vdev.id).expect("the array was found through it");
            writer.remove(zap, VDEV_UNFLUSHED_TXGS)?;
            writer.free(array)?;
        }
    }
    Ok(())
}

fn remove_logs(storing: &Storing<'_>) -> Result<(), PoolError> {
    let writer = storing.writer;
    let Some(zap) = writer.directory().find(LOG_SPACE_MAPS)? else {
        return Ok(());
    };
    for log in logs(writer.directory())?.into_values() {
        free_space_map(writer, storing.features, log)?;
    }
    writer.free(zap)?;
    writer.remove(POOL_DIRECTORY, LOG_SPACE_MAPS)
}
