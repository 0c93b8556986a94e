//! The property `autotrim`: what was freed is discarded by and by.
//!
//! # Mechanism
//! Metaslabs keep the ranges that became free. With each stored txg one group of metaslabs is gone
//! over, every thirty-second of each vdev, so that a range waits for some txgs in which its
//! neighbours may be freed as well, and one long range is discarded instead of many short ones.
//! Ranges of less than 32 KiB are left to `zpool trim`.
//!
//! Devices that are being replaced, and hot spares that stand in, are left out, and so are devices
//! where `zpool trim` goes on.

use super::kicks::{KickState, Kicks};
use super::thread::{DISCARD_BYTES_MAX, DISCARD_BYTES_MIN, pieces};
use super::{FreeSpaceWork, WorkState, zap_of};
use crate::pool::{Mode, Pool};
use std::sync::{Arc, Weak};
use tarn_ondisk::units::VdevId;
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::{Leaf, VdevConfig};

/// A metaslab is gone over at most once in so many stored txgs.
#[doc(alias = "zfs_trim_txg_batch")]
const GROUPS: u64 = 32;

impl Kicks {
    /// Waits for the next stored txg. False when it is off.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        self.changed
            .wait_while(&mut state, |state| state.is_on && state.stored == 0);
        state.stored = 0;
        state.is_on
    }

    fn is_on(&self) -> bool {
        self.state.lock().is_on
    }
}

impl Pool {
    /// Turns the discarding of what is freed on or off: the property `autotrim`.
    #[doc(alias("vdev_autotrim", "vdev_autotrim_stop_all"))]
    pub fn set_autotrim(self: &Arc<Self>, is_on: bool) {
        if !is_on || self.mode() == Mode::ReadOnly {
            return self.end_autotrim();
        }
        let mut thread = self.autotrim.thread.lock();
        if thread.is_some() || self.is_closing() {
            return;
        }
        *self.autotrim.kicks.state.lock() = KickState {
            is_on: true,
            stored: 0,
        };
        let (pool, kicks) = (Arc::downgrade(self), self.autotrim.kicks.clone());
        let name = format!("tarn-autotrim-{}", self.name());
        let run = move || run(&pool, &kicks);
        *thread = Some(self.host().spawn_background(&name, run));
    }

    /// Ends the thread, and waits for its end.
    pub(crate) fn end_autotrim(&self) {
        self.autotrim.kicks.state.lock().is_on = false;
        self.autotrim.kicks.changed.notify_all();
        let thread = self.autotrim.thread.lock().take();
        if let Some(thread) = thread {
            thread.join().unwrap_or_else(|panicked| panicked.resume());
            for top in self.vdevs().top_levels() {
                self.space().keep_freed(top.id, false);
            }
        }
    }
}

fn run(pool: &Weak<Pool>, kicks: &Kicks) {
    let mut group = 0;
    while kicks.wait() {
        let Some(pool) = pool.upgrade() else { return };
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Scan);
        for top in pool.vdevs().top_levels() {
            // Vdevs may have joined.
            pool.space().keep_freed(top.id, true);
            let count = pool.space().metaslab_count(top.id);
            let mut indices = (0..count).filter(|index| index % GROUPS == group);
            indices
                .by_ref()
                .take_while(|_| kicks.is_on())
                .for_each(|index| {
                    pool.trim_freed(top.id, index, kicks, &operation);
                });
        }
        operation.finish();
        group = (group + 1) % GROUPS;
    }
}

impl Pool {
    /// Discards what was freed in one metaslab.
    #[doc(alias = "vdev_autotrim_thread")]
    fn trim_freed(&self, vdev: VdevId, index: u64, kicks: &Kicks, operation: &Operation) {
        if !self.space().has_freed(vdev, index) {
            return;
        }
        let Some(hold) = self.space().hold_metaslab(vdev, index) else {
            return;
        };
        let freed = hold.take_freed();
        for leaf in self.autotrimmed(vdev) {
            for range in freed.iter() {
                let range = self
                    .vdevs()
                    .range_on_leaf(vdev, leaf.guid, range.start, range.size);
                let Some(range) = range else { return };
                if range.end.saturating_sub(range.start) < DISCARD_BYTES_MIN {
                    continue;
                }
                for piece in pieces(range, DISCARD_BYTES_MAX) {
                    // What is left out now is left to `zpool trim`.
                    if !kicks.is_on() || hold.is_wanted() {
                        return;
                    }
                    // A failure changes nothing: the range is free.
                    drop(leaf.discard(piece, operation));
                }
            }
        }
    }

    /// The devices of a vdev where what is freed is discarded.
    fn autotrimmed(&self, vdev: VdevId) -> Vec<Arc<Leaf>> {
        let root = self.vdevs().config();
        let top = root.children.get(vdev.index());
        let Some(top) = top else {
            return Vec::new();
        };
        let configs: Vec<&VdevConfig> = match top.kind.is_leaf() {
            true => vec![top],
            // Below a child that is no device, a device is being replaced.
            false => top
                .children
                .iter()
                .filter(|child| child.kind.is_leaf())
                .collect(),
        };
        let works = self.works.0.lock();
        let is_trimmed = |config: &&VdevConfig| {
            let key = zap_of(config).map(|zap| (zap, FreeSpaceWork::Trim));
            let work = key.and_then(|key| works.get(&key));
            work.is_some_and(|work| work.stored.state == WorkState::Active)
        };
        let configs: Vec<&VdevConfig> = configs
            .into_iter()
            .filter(|config| !is_trimmed(config))
            .collect();
        drop(works);
        let leaves = configs
            .into_iter()
            .filter_map(|config| self.vdevs().leaf(config.guid));
        leaves
            .filter(|leaf| leaf.is_usable() && leaf.can_discard())
            .collect()
    }
}
