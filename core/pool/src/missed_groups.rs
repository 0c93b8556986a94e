//! The groups that a device missed, as the MOS remembers them: its *dirty time log*.
//!
//! # Problem
//! A device that could not be written, or was not there, comes back with what it had. A pair of our own in its configuration says so
//! ([`VdevConfig::has_missed_writes`]), which other programs pass over. OpenZFS goes by the device's log alone: where that is empty it reads from the device, and has its siblings
//! detached.
//!
//! # Mechanism
//! The log is a space map of groups instead of places. In each group that is stored, and in each pass of it, a device for data that is out of date then gets a log that says
//! that it missed all groups up to this one. OpenZFS fills it when it imports the pool. Nobody keeps count of which groups it missed: a log that says too much costs time, one that says too little
//! costs data. It says nothing of groups that are not stored yet, for OpenZFS is not done with a device before it has filled all of them.
//!
//! A log that is not empty, whoever wrote it, makes its device out of date when the pool is opened. When a device has got what it missed its log is emptied.
//!
//! Devices of log vdevs go by rules of their own ([`log_devices`](crate::log_devices)): what they have is in memory, too.
//!
//! # After a crash
//! A device that fails behind the last pass of a group lacks something of it, and its log says so only in the next, which follows at once. The labels of that group say it, to us. If it fails when these are written, it has an older uberblock.

use crate::directory::Directory;
use crate::error::PoolError;
use crate::pool::{Mode, Pool};
use crate::space_maps::{create_map, head_of, set_head, version_of};
use crate::sync_scope::SyncScope;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tarn_object::Object;
use tarn_ondisk::declare::{Corrupt, widen};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::space_map::{Action, Region, SpaceMapEncoder, SpaceMapHead};
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg, VdevOffset};
use tarn_probe::Operation;
use tarn_vdev::VdevConfig;

/// The block size of a log.
#[doc(alias = "zfs_vdev_dtl_sm_blksz")]
const BLOCK_BYTES: u64 = 4096;

/// All groups, each of which is one unit.
const ALL_GROUPS: Region = Region {
    start: VdevOffset::ZERO,
    size: AllocatedSize::MAX,
    shift: 0,
};

impl Pool {
    /// Devices are out of date whose logs say that they missed something. To be done before anything is written that relies on them.
    ///
    /// # Errors
    /// A log cannot be read. Who only reads does not mind: he takes the device for out of date.
    #[doc(alias = "vdev_dtl_load")]
    pub(crate) fn heed_missed_groups(&self, operation: &Operation) -> Result<(), PoolError> {
        let root = self.vdevs().config();
        let mut seen = BTreeSet::new();
        for leaf in root.leaves() {
            // What is said of one device would be overwritten with what is said of the other.
            if let Some(log) = log_of(leaf)
                && !seen.insert(log)
            {
                return Err(bad_log(log, "two devices have the same one"));
            }
            let has_missed = match has_missed(self.directory(operation), leaf) {
                Err(_) if self.mode() == Mode::ReadOnly => true,
                other => other?,
            };
            if has_missed {
                self.vdevs().note_out_of_date(leaf.guid);
            }
        }
        Ok(())
    }
}

/// Brings the logs of all devices up to date, in each pass: devices fail while a group is stored.
#[doc(alias = "vdev_dtl_sync")]
pub(crate) fn store(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    let vdevs = scope.pool.vdevs();
    let root = vdevs.config();
    let mut new_logs: BTreeMap<Guid, ObjectId> = BTreeMap::new();
    for top in &root.children {
        let is_log = top.top_level.as_ref().is_some_and(|top| top.is_log);
        for leaf in top.leaves() {
            match (log_of(leaf), leaf.has_missed_writes()) {
                (None, false) => {}
                (Some(log), false) => empty(scope, log)?,
                (_, true) if is_log => {}
                (Some(log), true) => {
                    let object = scope.writer.directory().object(log)?;
                    renew(scope, &object)?;
                }
                (None, true) => {
                    let object = create_map(scope.writer, scope.features, BLOCK_BYTES)?;
                    renew(scope, &object)?;
                    new_logs.insert(leaf.guid, object.id());
                }
            }
        }
    }
    if !new_logs.is_empty() {
        vdevs.change_config(|root| {
            root.change_each(&mut |vdev| {
                if let Some(log) = new_logs.get(&vdev.guid) {
                    vdev.dirty_time = Some(*log);
                }
            });
        });
    }
    Ok(())
}

fn log_of(leaf: &VdevConfig) -> Option<ObjectId> {
    leaf.dirty_time.filter(|log| !log.is_zero())
}

/// Whether a device missed groups that it never got since, as its log says.
fn has_missed(directory: Directory<'_>, leaf: &VdevConfig) -> Result<bool, PoolError> {
    let Some(log) = log_of(leaf) else {
        return Ok(false);
    };
    let object = directory.object(log)?;
    // It may be written over later.
    if object.info().object_type != ObjectType::SpaceMap {
        return Err(bad_log(log, "it is no space map"));
    }
    Ok(head_of(&object)?.0.allocated != 0)
}

fn bad_log(log: ObjectId, why: &'static str) -> PoolError {
    let cause = Corrupt::Inconsistent {
        what: "dirty time log",
        offset: 0,
        why,
    };
    PoolError::Corrupt { object: log, cause }
}

/// The device has all that it ever missed.
fn empty(scope: &SyncScope<'_>, log: ObjectId) -> Result<(), PoolError> {
    let object = scope.writer.directory().object(log)?;
    match head_of(&object)?.0.allocated {
        0 => Ok(()),
        _ => replace(scope, &object, None),
    }
}

/// The device missed all groups up to the one that is stored.
fn renew(scope: &SyncScope<'_>, object: &Arc<Object>) -> Result<(), PoolError> {
    let end = scope.writer.tx.txg().next();
    let count = end.get() - Txg::INITIAL.get();
    // An earlier pass has said it already.
    let is_said = scope.writer.tx.pass() > 1
        && head_of(object)?.0.allocated == i64::try_from(count).unwrap_or(i64::MAX);
    match is_said {
        true => Ok(()),
        false => replace(scope, object, Some(count)),
    }
}

/// Writes a log anew: that so many groups were missed, from the first on, or none.
fn replace(
    scope: &SyncScope<'_>,
    object: &Arc<Object>,
    missed: Option<u64>,
) -> Result<(), PoolError> {
    let (writer, block) = (scope.writer, object.block_size().get());
    let version = version_of(scope.features.now().is_active(Feature::SpacemapV2.guid()));
    let mut encoder = SpaceMapEncoder::new(ALL_GROUPS, version, block, 0);
    if let Some(count) = missed {
        let start = VdevOffset::from(Txg::INITIAL.get());
        encoder.begin(Action::Allocate, writer.tx.txg(), writer.tx.pass());
        encoder.run(Action::Allocate, None, start, AllocatedSize::from(count));
    }
    let bytes = encoder.finish();
    let in_object = |cause| PoolError::Object {
        object: object.id(),
        cause,
    };
    object
        .free_range(writer.tx, block, tarn_object::TO_END, writer.operation)
        .map_err(in_object)?;
    writer.write(object, 0, &bytes)?;
    let head = SpaceMapHead {
        length: widen(bytes.len()),
        allocated: i64::try_from(missed.unwrap_or(0)).unwrap_or(i64::MAX),
        ..SpaceMapHead::new(object.id().get())
    };
    set_head(writer, object, &head)
}
