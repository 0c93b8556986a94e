//! Which vdevs take new blocks: log devices that are being emptied, and absent ones, take none.
//!
//! # Invariants
//! - While a [`LogHold`] of a vdev exists, nothing is allocated on the vdev.

use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::VdevId;
use tarn_space::{Admission, Space};
use tarn_vdev::{TopLevel, VdevTree};

/// The held vdevs.
const HOLDS: Rank = Rank::new(tarn_host::ranks::POOL + 45, "held log devices");

/// The vdevs that take no blocks.
pub(crate) struct LogHolds {
    /// The number of holds of each.
    held: Mutex<BTreeMap<VdevId, u32>>,
    space: Arc<Space>,
    vdevs: Arc<VdevTree>,
}

/// Keeps blocks from being allocated on a vdev.
pub(crate) struct LogHold {
    holds: Arc<LogHolds>,
    vdev: VdevId,
}

impl LogHolds {
    /// Without holds.
    pub(crate) fn new(space: Arc<Space>, vdevs: Arc<VdevTree>) -> Arc<LogHolds> {
        Arc::new(LogHolds {
            held: Mutex::new(HOLDS, BTreeMap::new()),
            space,
            vdevs,
        })
    }

    /// Tells `space` of each vdev whether blocks may be allocated on it now.
    pub(crate) fn admit(&self) {
        let held = self.held.lock();
        for vdev in self.vdevs.top_levels() {
            let is_open = may_be_used(&vdev) && !held.contains_key(&vdev.id);
            let admission = match is_open {
                true => Admission::Open,
                false => Admission::Closed,
            };
            self.space.set_admission(vdev.id, admission);
        }
    }

    /// Keeps blocks from being allocated on this vdev until the hold is dropped.
    pub(crate) fn hold(self: &Arc<Self>, vdev: VdevId) -> LogHold {
        *self.held.lock().entry(vdev).or_default() += 1;
        self.admit();
        LogHold {
            holds: self.clone(),
            vdev,
        }
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        {
            let mut held = self.holds.held.lock();
            let count = held.get_mut(&self.vdev);
            let count = count.expect("a vdev is held while there is a hold");
            assert!(*count > 0, "a vdev in the table is held");
            *count -= 1;
            held.retain(|_, count| *count > 0);
        }
        self.holds.admit();
    }
}

/// The loss of a data vdev suspends the pool; that of a log vdev does not.
fn may_be_used(vdev: &TopLevel) -> bool {
    let is_lost = vdev.is_log && !vdev.standing.state.is_usable();
    !is_lost && !vdev.is_non_allocating
}
