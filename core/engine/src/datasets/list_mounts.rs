//! `zfs mount` without arguments: what is mounted.

use crate::engine::Engine;
use crate::messages::dataset::{MountEntry, Mounted};

impl Engine {
    pub(crate) fn list_mounts(&self) -> Mounted {
        let mut mounts = Vec::new();
        for open in self.pools() {
            let mounted = open.mounts.lock();
            mounts.extend(mounted.iter().map(|(dataset, mounted)| MountEntry {
                dataset: dataset.clone(),
                path: mounted.path.display().to_string(),
            }));
        }
        Mounted {
            mounts,
            refused: Vec::new(),
        }
    }
}
