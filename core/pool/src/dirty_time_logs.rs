//! Dirty time logs in the MOS: which txgs each device misses.
//!
//! # Problem
//! A device that could not be written, or was absent, comes back with old contents. Its [dirty time
//! log](tarn_vdev::dtl) has the txgs that it misses. The next import must know them, and so must
//! OpenZFS: if the log is empty it reads from the device, and allows its siblings to be detached.
//!
//! # Mechanism
//! A log is a space map of txgs instead of offsets, in the object that the device's configuration
//! names `DTL`. Each sync pass rewrites it if it differs from the device's log in memory, up to the
//! txg that is stored: OpenZFS would never finish with a device whose log has txgs that do not
//! come. It is loaded when the pool is opened.
//!
//! Devices of log vdevs have no log in the MOS ([`log_devices`](crate::log_devices)): their
//! contents are in memory, too, and their configuration has the txg since which they missed writes.
//!
//! # After a crash
//! A device that fails after the last pass of a txg misses a part of it, and its log has that only
//! in the next txg, which follows at once. Until then the labels have it
//! ([`VdevConfig::unsaved_dtl`]). If it fails when these are written, it has an older uberblock.
//!
//! # Invariants
//! - The log of a device in the MOS equals its log in memory up to that txg.

use crate::directory::Directory;
use crate::error::PoolError;
use crate::pool::{Mode, Pool};
use crate::space_maps::{create_map, head_of, read_log, set_head, version_of};
use crate::sync_scope::SyncScope;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use tarn_object::Object;
use tarn_ondisk::declare::{Corrupt, widen};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::space_map::{Action, Region, SpaceMapDecoder, SpaceMapEncoder, SpaceMapHead};
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg, VdevOffset};
use tarn_probe::Operation;
use tarn_vdev::{Dtl, Leaf, VdevConfig};

/// The block size of a log.
#[doc(alias = "zfs_vdev_dtl_sm_blksz")]
const BLOCK_BYTES: u64 = 4096;

/// Most entries of a plausible log: a device was not taken out of use more often.
const ENTRIES_MAX: u64 = 1 << 20;

/// All txgs, each of which is one unit.
const ALL_TXGS: Region = Region {
    start: VdevOffset::ZERO,
    size: AllocatedSize::MAX,
    shift: 0,
};

impl Pool {
    /// Loads the dirty time logs of all devices. Called before any write that relies on devices.
    ///
    /// # Errors
    /// A log cannot be read. A pool that is open read-only goes on, and takes the device for one
    /// that misses all.
    #[doc(alias = "vdev_dtl_load")]
    pub(crate) fn load_dtls(&self, operation: &Operation) -> Result<(), PoolError> {
        let root = self.vdevs().config();
        let newest = self.uberblock().txg;
        let (mut seen, mut saved) = (BTreeSet::new(), BTreeMap::new());
        for leaf in root.leaves() {
            let Some(log) = log_of(leaf) else {
                continue;
            };
            // Two devices with one log would overwrite each other's.
            if !seen.insert(log) {
                return Err(bad_log(log, "two devices have the same one"));
            }
            let stored = match read(self.directory(operation), log, newest, operation) {
                Err(_) if self.mode() == Mode::ReadOnly => all_until(newest),
                other => other?,
            };
            self.vdevs().load_dtl(leaf.guid, &stored);
            saved.insert(leaf.guid, stored);
        }
        *self.saved_dtls.lock() = saved;
        Ok(())
    }
}

/// Updates the logs of all devices, in each pass: devices fail while a txg is stored.
#[doc(alias = "vdev_dtl_sync")]
pub(crate) fn store(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    let (vdevs, txg) = (scope.pool.vdevs(), scope.writer.tx.txg());
    let root = vdevs.config();
    let leaves = vdevs.leaves().into_iter();
    let leaves: BTreeMap<Guid, Arc<Leaf>> = leaves.map(|leaf| (leaf.guid, leaf)).collect();
    let mut new_logs: BTreeMap<Guid, ObjectId> = BTreeMap::new();
    for top in &root.children {
        let is_log = top.top_level.as_ref().is_some_and(|top| top.is_log);
        for leaf in top.leaves() {
            let Some(device) = leaves.get(&leaf.guid) else {
                continue;
            };
            let dtl = device.dtl().until(txg);
            if is_log && !dtl.is_empty() {
                continue;
            }
            let object = match log_of(leaf) {
                None if dtl.is_empty() => None,
                None => {
                    let object = create_map(scope.writer, scope.features, BLOCK_BYTES)?;
                    new_logs.insert(leaf.guid, object.id());
                    Some(object)
                }
                Some(_) if scope.pool.saved_dtls.lock().get(&leaf.guid) == Some(&dtl) => None,
                Some(log) => Some(scope.writer.directory().object(log)?),
            };
            assert!(
                dtl.bounds().is_none_or(|births| *births.end() <= txg),
                "a log that is stored has no later birth than its group"
            );
            if let Some(object) = object {
                replace(scope, &object, &dtl)?;
                debug_assert_eq!(
                    read(
                        scope.writer.directory(),
                        object.id(),
                        txg,
                        scope.writer.operation
                    )
                    .ok()
                    .as_ref(),
                    Some(&dtl),
                    "the space map has the births of the log"
                );
                let mut saved = scope.pool.saved_dtls.lock();
                saved.insert(leaf.guid, dtl.clone());
            }
            device.note_saved_dtl(&dtl);
        }
    }
    if !new_logs.is_empty() {
        vdevs.change_config(|root| {
            root.change_each(&mut |vdev| {
                if let Some(log) = new_logs.get(&vdev.guid) {
                    vdev.dtl = Some(*log);
                }
            });
        });
    }
    Ok(())
}

fn log_of(leaf: &VdevConfig) -> Option<ObjectId> {
    leaf.dtl.filter(|log| !log.is_zero())
}

/// All txgs that the pool has stored.
fn all_until(newest: Txg) -> Dtl {
    let mut all = Dtl::new();
    all.add(Txg::INITIAL..=newest.max(Txg::INITIAL));
    all
}

/// The txgs that a device misses, from its log.
fn read(
    directory: Directory<'_>,
    log: ObjectId,
    newest: Txg,
    operation: &Operation,
) -> Result<Dtl, PoolError> {
    let object = directory.object(log)?;
    // The object will be overwritten, so its type is checked.
    if object.info().object_type != ObjectType::SpaceMap {
        return Err(bad_log(log, "it is no space map"));
    }
    let (head, _) = head_of(&object)?;
    let (mut dtl, mut count) = (Dtl::new(), 0);
    read_log(
        &object,
        SpaceMapDecoder::new(ALL_TXGS),
        operation,
        |entry| {
            let first = entry.start.get();
            let last = first.saturating_add(entry.size.get() - 1);
            let births = Txg::new(first)..=Txg::new(last);
            match entry.action {
                Action::Allocate => _ = dtl.add(births),
                Action::Free => dtl.remove(births),
            }
            count += 1;
            match count < ENTRIES_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        },
    )?;
    // If the header contradicts the entries, or there are too many, the device is taken to miss
    // all.
    match i64::try_from(dtl.count()) == Ok(head.allocated) && count < ENTRIES_MAX {
        true => Ok(dtl),
        false => {
            dtl.merge(&all_until(newest));
            Ok(dtl)
        }
    }
}

fn bad_log(log: ObjectId, why: &'static str) -> PoolError {
    let cause = Corrupt::Inconsistent {
        what: "dirty time log",
        offset: 0,
        why,
    };
    PoolError::Corrupt { object: log, cause }
}

/// Rewrites a log.
fn replace(scope: &SyncScope<'_>, object: &Arc<Object>, dtl: &Dtl) -> Result<(), PoolError> {
    let (writer, block) = (scope.writer, object.block_size().get());
    let version = version_of(scope.features.now().is_active(Feature::SpacemapV2.guid()));
    let mut encoder = SpaceMapEncoder::new(ALL_TXGS, version, block, 0);
    if !dtl.is_empty() {
        encoder.begin(Action::Allocate, writer.tx.txg(), writer.tx.pass());
    }
    for births in dtl.ranges() {
        let (first, last) = (births.start().get(), births.end().get());
        let (start, size) = (
            VdevOffset::from(first),
            AllocatedSize::from(last - first + 1),
        );
        encoder.run(Action::Allocate, None, start, size);
    }
    let bytes = encoder.finish();
    let length = widen(bytes.len());
    let in_object = |cause| PoolError::Object {
        object: object.id(),
        cause,
    };
    let kept = length.next_multiple_of(block).max(block);
    object
        .free_range(writer.tx, kept, tarn_object::TO_END, writer.operation)
        .map_err(in_object)?;
    writer.write(object, 0, &bytes)?;
    let head = SpaceMapHead {
        length,
        allocated: i64::try_from(dtl.count()).unwrap_or(i64::MAX),
        ..SpaceMapHead::new(object.id().get())
    };
    set_head(writer, object, &head)
}
