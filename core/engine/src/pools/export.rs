//! `zpool export`: gives a pool up, in order.

use super::find_importable::close;
use crate::administration::Call;
use crate::engine::Engine;
use crate::messages::pool::Export;
use crate::messages::{Done, Refusal};

impl Engine {
    pub(crate) fn export(&self, _call: &Call, request: &Export) -> Result<Done, Refusal> {
        let _changes = self.changes.lock();
        let open = self.require_pool(&request.name)?;
        self.unmount_pool(&open, request.force)?;
        let left: Vec<_> = self.cache_file_of(&open).into_iter().collect();
        close(&open.pool);
        self.remove_pool(&request.name);
        self.remember_pools(&left)?;
        Ok(Done {})
    }
}
