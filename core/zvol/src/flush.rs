//! Flushing: what was written before is durable.

use tarn_dataset::contents::VOLUME_DATA;
use tarn_probe::Operation;
use tarn_zil::SyncPolicy;

use crate::error::VolumeError;
use crate::volume::Volume;

impl Volume {
    /// Returns when all changes that were made before are durable. With `sync=disabled` nothing is
    /// waited for.
    ///
    /// # Errors
    /// `Suspended` and `Gone`: whether the changes will be stored is unknown.
    #[doc(alias = "zvol_flush")]
    pub fn flush(&self, operation: &Operation) -> Result<(), VolumeError> {
        match self.properties().sync {
            SyncPolicy::Disabled => Ok(()),
            SyncPolicy::Standard | SyncPolicy::Always => self.commit(operation),
        }
    }

    /// Commits the intent log.
    pub(crate) fn commit(&self, operation: &Operation) -> Result<(), VolumeError> {
        match &self.log {
            Some(log) => Ok(log.commit(Some(VOLUME_DATA), operation)?),
            None => Ok(()),
        }
    }
}
