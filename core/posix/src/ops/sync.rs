//! Durability: what was answered, and asked to be durable, is stored.
//!
//! A change is durable when its transaction group is. There is no shorter way: whoever asks waits for
//! the newest group that changes the file, which is stored at once.

use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::properties::SyncPolicy;

impl FileSystem {
    /// Waits until all changes of a file are stored. Attributes are stored together with contents, so `data_only`
    /// spares nothing.
    ///
    /// # Errors
    /// When the pool is suspended or being closed: then nobody knows whether it will be stored.
    pub fn sync(
        &self,
        id: ObjectId,
        _data_only: bool,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if self.control_entry(id).is_some() || self.properties().sync == SyncPolicy::Disabled {
            return Ok(());
        }
        let node = self.node(id, operation)?;
        self.wait_stored(node.changed_in(), operation)
    }

    /// Waits until all changes of the file system are stored, access times included.
    ///
    /// # Errors
    /// When the pool is suspended or being closed.
    pub fn sync_all(&self, operation: &Operation) -> Result<(), PosixError> {
        self.store_access_times(operation)?;
        match &self.txgs {
            Some(txgs) => self.wait_stored(txgs.open_txg(), operation),
            None => Ok(()),
        }
    }

    /// Puts access times into the open group that so far are only in memory. Whoever waits for that group has all changes of the file
    /// system stored.
    pub fn store_access_times(&self, operation: &Operation) -> Result<(), PosixError> {
        if self.txgs.is_none() || self.properties().is_read_only {
            return Ok(());
        }
        for node in self.nodes.all() {
            self.store_access_time(&node, operation)?;
        }
        Ok(())
    }

    /// Waits until a group is stored.
    pub(crate) fn wait_stored(&self, txg: Txg, operation: &Operation) -> Result<(), PosixError> {
        match &self.txgs {
            Some(txgs) if txgs.stored_txg() < txg => Ok(txgs.wait_stored(txg, operation)?),
            _ => Ok(()),
        }
    }
}
