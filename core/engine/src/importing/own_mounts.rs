//! Devices that lie on file systems of this daemon.

use crate::engine::Engine;
use crate::mounts::MountKey;
use crate::refusals::{Refusal, RefusalKind};
use std::path::Path;

impl Engine {
    /// The dataset of this daemon on whose mount a file or device is stored, through any number of
    /// loop devices.
    pub fn own_mount_below(&self, path: &Path) -> Option<String> {
        let devices = self.host.devices_below(path).into_iter();
        let keys: Vec<MountKey> = devices
            .filter_map(|device| self.mounter.mount_of(device))
            .collect();
        let pools = self.pools();
        pools.iter().find_map(|open| {
            let mounts = open.mounts.lock();
            keys.iter().find_map(|key| mounts.dataset_of(*key).cloned())
        })
    }
}

/// Refuses a device that lies on a mount of this daemon: each of the two pools would wait for the
/// other to be stored, and at the stop the lower one closes first.
pub fn lies_on_own_mount(action: impl Into<String>, path: &str, dataset: &str) -> Refusal {
    let reason = format!("'{path}' lies on '{dataset}', a file system of this tarnd");
    let cure = "A pool cannot be stored on another pool of the same tarnd; one with another TARN_DIR can use it.";
    Refusal::new(RefusalKind::Invalid, action, reason).with_hint(cure)
}
