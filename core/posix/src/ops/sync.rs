//! Durability: `fsync`, and syncing a whole file system.
//!
//! A change is durable when its transaction group is stored. `fsync` makes it durable sooner,
//! through the intent log; without a log it waits for the newest txg that changes the file, which
//! is then stored at once. Syncing a whole file system always waits for the txg, since many changes
//! are better stored once.

use std::sync::Arc;

use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;
use tarn_zil::IntentLog;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use tarn_zil::SyncPolicy;

/// A file with changes that only its intent log can make durable now.
#[derive(Debug, Clone, Copy)]
pub struct Unsynced(ObjectId);

impl FileSystem {
    /// Waits until all changes of a file are stored. Attributes are stored together with contents,
    /// so `data_only` spares nothing.
    ///
    /// # Errors
    /// When the pool is suspended or being closed: whether the changes will be stored is unknown.
    pub fn sync(
        &self,
        id: ObjectId,
        _data_only: bool,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        match self.sync_later(id, operation)? {
            Some(unsynced) => self.sync_together(&[unsynced], operation),
            None => Ok(()),
        }
    }

    /// The part of [`FileSystem::sync`] that needs no commit of the intent log. Gives the file if
    /// its changes need one, for [`FileSystem::sync_together`], and `None` when all changes are
    /// stored.
    ///
    /// # Errors
    /// As there.
    pub fn sync_later(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Option<Unsynced>, PosixError> {
        if self.control_entry(id).is_some() || self.properties().sync == SyncPolicy::Disabled {
            return Ok(None);
        }
        let node = self.node(id, operation)?;
        match self.wanted_log() {
            Some(log) if log.is_durable(id) => Ok(None),
            Some(_) => Ok(Some(Unsynced(id))),
            None => {
                self.wait_stored(node.changed_in(), operation)?;
                Ok(None)
            }
        }
    }

    /// Waits until all changes of these files are stored: of all of them together, which takes
    /// little longer than of one.
    ///
    /// # Errors
    /// As [`FileSystem::sync`]: which of the changes will be stored is unknown.
    pub fn sync_together(
        &self,
        unsynced: &[Unsynced],
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let log = self.log.as_ref().expect("a file waits for its log");
        let files: Vec<Option<ObjectId>> = unsynced.iter().map(|file| Some(file.0)).collect();
        Ok(log.commit_together(&files, operation)?)
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

    /// Stores access times that are only in memory, in the open txg. When that txg is stored, all
    /// changes of the file system are.
    pub fn store_access_times(&self, operation: &Operation) -> Result<(), PosixError> {
        if self.txgs.is_none() || self.properties().is_read_only {
            return Ok(());
        }
        for node in self.nodes.all() {
            self.store_access_time(&node, operation)?;
        }
        Ok(())
    }

    /// The intent log, if durability comes from it.
    pub(crate) fn wanted_log(&self) -> Option<&Arc<IntentLog>> {
        self.log.as_ref().filter(|log| log.is_wanted())
    }

    /// Waits until a group is stored.
    pub(crate) fn wait_stored(&self, txg: Txg, operation: &Operation) -> Result<(), PosixError> {
        match &self.txgs {
            Some(txgs) if txgs.stored_txg() < txg => Ok(txgs.wait_stored(txg, operation)?),
            _ => Ok(()),
        }
    }
}
