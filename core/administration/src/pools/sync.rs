//! `zpool sync`: stores dirty data now.

use crate::administrator::Administrator;
use crate::messages::pool::Sync;
use crate::messages::{Done, Refusal};
use tarn_engine::refusals::of_task;
use tarn_pool::Mode;
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn sync(&self, request: &Sync, operation: &Operation) -> Result<Done, Refusal> {
        for open in self.engine.named_pools(&request.names)? {
            if open.pool.mode() == Mode::ReadOnly {
                continue;
            }
            let action = format!("sync '{}' failed", open.pool.name());
            let stored = match request.force {
                true => open.pool.store_labels(operation),
                false => open.pool.sync_all(operation),
            };
            stored.map_err(|error| of_task(action, &error))?;
            let mounts = open.mounts.lock();
            let keys: Vec<_> = mounts.iter().map(|(_, mounted)| mounted.key).collect();
            drop(mounts);
            // From here on stat(2) shows the allocated sizes of files.
            keys.into_iter()
                .for_each(|key| self.engine.mounter.group_stored(key));
        }
        Ok(Done {})
    }
}
