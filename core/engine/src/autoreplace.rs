//! `autoreplace=on`: a blank device at the path of a device that is gone replaces it.
//!
//! # Problem
//! A failed disk is pulled, and a new one put in its slot. OpenZFS leaves the `zpool replace` that
//! follows to another daemon, `zed`, and to udev.
//!
//! # Mechanism
//! A thread looks after each [event](tarn_pool::events), and every few seconds, whether a pool with
//! `autoreplace=on` has devices that are *unavailable*, *removed* or *faulted*, and opens their
//! paths. A device whose first and last [MiB](ENDS_BYTES) are all zero replaces the one that is
//! gone, as `zpool replace POOL DEVICE` does, and a resilver fills it. One that cannot join (it is
//! too small) is looked at again with the next event.
//!
//! A device that an administrator took offline is left alone.
//!
//! # Invariants
//! - A device with labels, a partition table or a file system is never written: all of them have a
//!   byte that is not zero in the part that is looked at.
//! - The thread holds the turn of the pool while it acts, and nothing while it waits for an event
//!   or reads a device.

use crate::engine::{Engine, OpenPool};
use crate::turns;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tarn_host::OpenMode;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::units::Guid;
use tarn_pool::attach::{Joining, Newcomer};
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::health::VdevState;
use tarn_vdev::{VdevKind, open_window};

/// How much at each end of a device must be zero, in bytes: more than two labels, and the
/// superblocks of other file systems.
const ENDS_BYTES: u64 = 1 << 20;

/// Most events that are taken at once.
const EVENTS_MAX: usize = 64;

/// How long the thread waits for an event before it looks all the same: nothing tells that a path
/// leads to a device again.
const PATIENCE: Duration = Duration::from_secs(5);

/// A device that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Absent {
    leaf: Guid,
    path: String,
}

impl Engine {
    /// Starts the thread, which ends when the engine stops.
    pub fn start_autoreplace(self: &Arc<Self>) {
        let (engine, events) = (Arc::downgrade(self), self.events.clone());
        let run = move || {
            let mut seen = events.newest();
            while !events.is_closed() {
                let after = events.wait_after(seen, EVENTS_MAX, PATIENCE);
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                seen = after.events.last().map_or(seen, |event| event.id);
                for open in engine.pools() {
                    engine.replace_absent(&open);
                }
            }
        };
        drop(self.host.spawn("tarn-autoreplace", run));
    }

    /// Replaces devices of a pool that are gone by blank ones at their paths.
    #[doc(alias("zfs_process_add", "zfs_deliver_add"))]
    fn replace_absent(&self, open: &Arc<OpenPool>) {
        // A pool that stores nothing takes no device.
        let absent = absent(open);
        if absent.is_empty() || turns::is_stuck(&open.pool) {
            return;
        }
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Scan);
        for gone in absent {
            if open.pool.is_autoreplace(&operation) && self.is_blank(Path::new(&gone.path)) {
                self.replace(open, &gone, &operation);
            }
        }
        operation.finish();
    }

    fn replace(&self, open: &Arc<OpenPool>, gone: &Absent, operation: &Operation) {
        let Some(_turn) = turns::turn_of(open) else {
            return;
        };
        // A command may have changed the vdevs before the turn.
        if !absent(open).contains(gone) {
            return;
        }
        let newcomer = Newcomer {
            path: &gone.path,
            spare: None,
            is_sequential: false,
        };
        let joining = Joining::InsteadOf(gone.leaf);
        if open.pool.join(joining, newcomer, operation).is_ok() {
            // Without the cache file the next import finds the device by its label.
            drop(self.remember_pools(&[]));
        }
    }

    /// Whether both ends of the device at a path can be read and are zero.
    fn is_blank(&self, path: &Path) -> bool {
        let Ok(window) = open_window(&self.host, path, OpenMode::ReadOnly) else {
            return false;
        };
        // Reads of block devices begin at whole sectors.
        let sector = u64::from(window.info().logical_sector_bytes).max(1);
        let end = window.size_bytes() / sector * sector;
        let Some(last) = end.checked_sub(ENDS_BYTES) else {
            return false;
        };
        let is_zero = |offset: u64| {
            let read = window.device().read_at(offset, narrow(ENDS_BYTES));
            read.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
        };
        // The window of a disk with partitions is one of them.
        window.device_offset(0) == 0 && is_zero(0) && is_zero(last)
    }
}

/// The devices of a pool that are gone, other than those that are being replaced already.
fn absent(open: &OpenPool) -> Vec<Absent> {
    let vdevs = open.pool.vdevs();
    let root = vdevs.config();
    let is_gone = |leaf: Guid| {
        let state = vdevs.leaf(leaf).map(|leaf| leaf.standing().state);
        matches!(
            state,
            Some(VdevState::Unavailable | VdevState::Removed | VdevState::Faulted)
        )
    };
    let mut absent = Vec::new();
    for top in &root.children {
        let leaves = top.leaves().into_iter();
        let gone = leaves.filter(|leaf| is_gone(leaf.guid) && !leaf.is_spare);
        let alone = gone.filter(|leaf| top.parent_kind(leaf.guid) != Some(VdevKind::Replacing));
        absent.extend(alone.filter_map(|leaf| {
            let path = leaf.path.as_ref()?.as_str()?.to_string();
            let leaf = leaf.guid;
            Some(Absent { leaf, path })
        }));
    }
    absent
}
