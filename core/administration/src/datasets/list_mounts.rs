//! `zfs mount` without arguments: lists the mounts.

use crate::administrator::Administrator;
use crate::messages::dataset::{MountEntry, Mounted};

impl Administrator {
    pub(crate) fn list_mounts(&self) -> Mounted {
        let mut mounts = Vec::new();
        for open in self.engine.pools() {
            open.look_for_mounts();
            let mut mounted = open.all_served();
            mounted.retain(|(_, served)| open.is_mounted(served));
            mounts.extend(mounted.into_iter().map(|(dataset, mounted)| MountEntry {
                path: mounted.path.display().to_string(),
                dataset,
            }));
        }
        Mounted {
            mounts,
            refused: Vec::new(),
        }
    }
}
