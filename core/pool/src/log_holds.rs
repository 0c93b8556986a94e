//! Which vdevs take new blocks: log devices that are being emptied, and those that are gone, take
//! none.
//!
//! # Invariants
//! - While a [`LogHold`] of a vdev is kept, nothing is placed on the vdev.

use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::VdevId;
use tarn_space::{Admission, Space};
use tarn_vdev::{TopLevel, VdevTree};

/// The vdevs that are held.
const HOLDS: Rank = Rank::new(tarn_host::ranks::POOL + 45, "held log devices");

/// Which vdevs take blocks.
pub(crate) struct LogHolds {
    /// How often each is held.
    held: Mutex<BTreeMap<VdevId, u32>>,
    space: Arc<Space>,
    vdevs: Arc<VdevTree>,
}

/// Nothing is placed on a vdev while there is one of these for it.
pub(crate) struct LogHold {
    holds: Arc<LogHolds>,
    vdev: VdevId,
}

impl LogHolds {
    /// None is held.
    pub(crate) fn new(space: Arc<Space>, vdevs: Arc<VdevTree>) -> Arc<LogHolds> {
        Arc::new(LogHolds {
            held: Mutex::new(HOLDS, BTreeMap::new()),
            space,
            vdevs,
        })
    }

    /// Says of each vdev whether blocks may be placed on it, as it is now.
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

    /// Nothing is placed on this vdev from now on, until the hold is dropped.
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

/// Of a vdev for data that is gone the pool is suspended; without a log device it goes on.
fn may_be_used(vdev: &TopLevel) -> bool {
    let is_lost = vdev.is_log && !vdev.standing.state.is_usable();
    !is_lost && !vdev.is_non_allocating
}
