//! Hot spares take the places of devices that fail.
//!
//! # Problem
//! A vdev whose device has failed has less redundancy until an administrator comes. OpenZFS leaves
//! the hot spare to another daemon, `zed`.
//!
//! # Mechanism
//! A thread follows the [events](tarn_pool::events) of all pools. When the state of a data device
//! becomes *faulted*, *removed*, *unavailable* or *degraded*, and when a pool is imported with such
//! devices, the hot spares of the pool are tried in their order: one that another pool uses, or
//! that cannot join, is passed over. The first that joins is below a `spare` vdev with the failed
//! device, and a resilver fills it.
//!
//! A hot spare that fails in its turn is replaced by another one. A device that an administrator
//! took out of use is left alone. How a hot spare is returned is in
//! [`replacing`](tarn_pool::Pool::finish_replacing).
//!
//! # Invariants
//! - A device has at most one hot spare at a time: the thread holds the turn of the pool while it
//!   looks and acts.
//! - The thread holds no lock while it waits for an event.

use crate::engine::{Engine, OpenPool};
use crate::turns;
use std::sync::Arc;
use std::time::Duration;
use tarn_ondisk::units::Guid;
use tarn_pool::attach::{Joining, Newcomer};
use tarn_pool::events::Event;
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::health::VdevState;
use tarn_vdev::{VdevConfig, VdevKind};

/// Most events that are taken at once.
const EVENTS_MAX: usize = 64;

/// How long the thread waits for the next event before it looks whether the engine is there.
const PATIENCE: Duration = Duration::from_secs(60);

impl Engine {
    /// Starts the thread, which ends when the engine stops.
    pub fn start_hot_spares(self: &Arc<Self>) {
        let (engine, events) = (Arc::downgrade(self), self.events.clone());
        // Before the thread runs: no import after this is missed.
        let mut seen = events.newest();
        let run = move || {
            while !events.is_closed() {
                let after = events.wait_after(seen, EVENTS_MAX, PATIENCE);
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                for event in &after.events {
                    seen = event.id;
                    engine.spare_after(event);
                }
            }
        };
        drop(self.host.spawn("tarn-spares", run));
    }

    /// Has hot spares stand in for what an event says has failed.
    #[doc(alias("zfs_retire_recv", "replace_with_spare"))]
    fn spare_after(&self, event: &Event) {
        let number = |name: &str| event.list.optional_u64(name).ok().flatten();
        let (Ok(class), Some(pool)) = (event.list.string("class"), number("pool_guid")) else {
            return;
        };
        let changed = match class {
            "resource.fs.zfs.statechange" | "resource.fs.zfs.removed" => number("vdev_guid"),
            "sysevent.fs.zfs.pool_import" => None,
            _ => return,
        };
        let changed = changed.map(Guid::from);
        let pools = self.pools();
        let is_it = |open: &&Arc<OpenPool>| open.pool.facts().guid == Guid::from(pool);
        let Some(open) = pools.iter().find(is_it) else {
            return;
        };
        if open.pool.vdevs().auxiliary().spares.is_empty() {
            return;
        }
        let Some(_turn) = turns::turn_of(open) else {
            return;
        };
        let root = open.pool.vdevs().config();
        let failed: Vec<Guid> = root
            .leaves()
            .into_iter()
            .map(|leaf| leaf.guid)
            .filter(|leaf| changed.is_none_or(|changed| changed == *leaf))
            .filter(|leaf| is_failed(open, *leaf))
            .collect();
        for leaf in failed {
            self.spare(open, leaf);
        }
    }

    /// Has the first hot spare that can stand in for a device.
    fn spare(&self, open: &OpenPool, leaf: Guid) {
        let root = open.pool.vdevs().config();
        if !wants_spare(&root, leaf) {
            return;
        }
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Scan);
        for spare in &open.pool.vdevs().auxiliary().spares {
            let path = spare.path.as_ref().and_then(|path| path.as_str());
            let Some(path) = path.filter(|_| self.pool_with_spare_in_use(spare.guid).is_none())
            else {
                continue;
            };
            let newcomer = Newcomer {
                path,
                spare: Some(spare),
                is_sequential: false,
            };
            let joined = open
                .pool
                .join(Joining::InsteadOf(leaf), newcomer, &operation);
            if joined.is_ok() {
                // Without the cache file the next import finds the device by its label.
                drop(self.remember_pools(&[]));
                break;
            }
        }
        operation.finish();
    }

    /// The open pool that has this hot spare in use.
    #[doc(alias("spa_spare_exists", "find_spare"))]
    pub fn pool_with_spare_in_use(&self, spare: Guid) -> Option<Arc<OpenPool>> {
        let uses_it = |open: &Arc<OpenPool>| {
            let root = open.pool.vdevs().config();
            root.find(spare).is_some_and(|vdev| vdev.is_spare)
        };
        self.pools().into_iter().find(uses_it)
    }
}

/// Whether a device has failed, other than by the will of an administrator.
fn is_failed(open: &OpenPool, leaf: Guid) -> bool {
    let leaf = open.pool.vdevs().leaf(leaf);
    leaf.is_some_and(|leaf| {
        matches!(
            leaf.standing().state,
            VdevState::Unavailable | VdevState::Faulted | VdevState::Removed | VdevState::Degraded
        )
    })
}

/// Whether a device may have a hot spare, and has none.
fn wants_spare(root: &VdevConfig, leaf: Guid) -> bool {
    let mut tops = root.children.iter();
    let Some(top) = tops.find(|top| top.find(leaf).is_some()) else {
        return false;
    };
    let is_log = top.top_level.as_ref().is_some_and(|top| top.is_log);
    let is_spare = top.find(leaf).is_some_and(|leaf| leaf.is_spare);
    match top.parent_kind(leaf) {
        _ if is_log => false,
        Some(VdevKind::Replacing) => false,
        Some(VdevKind::Spare) => is_spare && !has_later_spare(top, leaf),
        _ => true,
    }
}

/// Whether another hot spare stands in for this one already.
fn has_later_spare(vdev: &VdevConfig, leaf: Guid) -> bool {
    let at = vdev.children.iter().position(|child| child.guid == leaf);
    match at {
        Some(at) if vdev.kind == VdevKind::Spare => at + 1 < vdev.children.len(),
        _ => vdev
            .children
            .iter()
            .any(|child| has_later_spare(child, leaf)),
    }
}
