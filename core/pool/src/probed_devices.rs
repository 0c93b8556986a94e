//! Which devices are probed at the moment.

use std::collections::BTreeSet;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::Guid;

/// The devices that are probed.
const PROBED: Rank = Rank::new(tarn_host::ranks::POOL + 16, "probed devices");

/// The devices that are probed: one thread for each.
pub(crate) struct Probed(Mutex<BTreeSet<Guid>>);

impl Probed {
    pub(crate) fn new() -> Probed {
        Probed(Mutex::new(PROBED, BTreeSet::new()))
    }

    /// Begins a probe. False if the device is probed already.
    pub(crate) fn begin(&self, vdev: Guid) -> bool {
        self.0.lock().insert(vdev)
    }

    pub(crate) fn end(&self, vdev: Guid) {
        let was_probed = self.0.lock().remove(&vdev);
        assert!(was_probed, "a probe that ends was begun");
    }
}
