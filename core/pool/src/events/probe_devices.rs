//! Probes of devices that gave an error.

use crate::pool::Pool;
use std::sync::Arc;
use tarn_ondisk::units::Guid;
use tarn_vdev::Probe;

impl Pool {
    /// Probes a device in a thread of its own. A device that cannot be read or written at all is
    /// faulted, or degraded where the other devices of its vdev do not have all its blocks.
    #[doc(alias("vdev_probe", "spa_async_fault_vdev"))]
    pub(super) fn probe_device(self: &Arc<Self>, vdev: Guid) {
        let is_in_use = self.vdevs().leaf(vdev).is_some_and(|leaf| leaf.is_usable());
        if !is_in_use || self.is_closing() || !self.probed.begin(vdev) {
            return;
        }
        let pool = self.clone();
        let run = move || {
            let vdevs = pool.vdevs();
            let is_changed = match vdevs.probe(vdev) {
                Probe::Failed => vdevs.fault(vdev) || vdevs.degrade(vdev),
                Probe::Gone => true,
                Probe::Passed | Probe::NotAsked => false,
            };
            pool.probed.end(vdev);
            if is_changed {
                // The labels and the MOS get the new state with the next txg.
                pool.txgs().kick();
            }
        };
        let name = format!("tarn-probe-{}", self.name());
        let thread = self.host().spawn(&name, run);
        let mut threads = self.sync_threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }
}
