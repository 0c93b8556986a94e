//! `zpool offline` and `zpool online` of log devices.
//!
//! A log vdev is emptied first ([`log_devices`](crate::log_devices)), so that a device misses
//! nothing when it comes back. When none of its devices is in use, logs take blocks elsewhere. A
//! data device would have to be resilvered when it comes back, which is not built.

use crate::error::VdevChangeError;
use crate::pool::Pool;
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;
use tarn_vdev::{OutOfUse, Standing};

impl Pool {
    /// Takes a log device offline, and waits until that is stored.
    ///
    /// # Errors
    /// A log that is not replayed has a block on it, or the pool stores nothing: it stays online.
    ///
    /// # Panics
    /// It is not in a log vdev.
    #[doc(alias("vdev_offline", "vdev_fault"))]
    pub fn take_log_out(
        &self,
        guid: Guid,
        how: OutOfUse,
        operation: &Operation,
    ) -> Result<(), VdevChangeError> {
        let _hold = self.empty_log(self.log_with(guid), operation)?;
        self.vdevs().take_out_of_use(guid, how);
        Ok(self.sync_all(operation)?)
    }

    /// Brings a log device online, and waits until that is stored. Returns its state.
    ///
    /// # Errors
    /// A log that is not replayed has a block on the vdev, or the pool stores nothing.
    ///
    /// # Panics
    /// It is not in a log vdev.
    #[doc(alias = "vdev_online")]
    pub fn bring_log_back(
        &self,
        guid: Guid,
        operation: &Operation,
    ) -> Result<Standing, VdevChangeError> {
        let _hold = self.empty_log(self.log_with(guid), operation)?;
        let standing = self.vdevs().bring_back_empty(guid);
        // Until the labels have the new state, an import does not look for log blocks there.
        self.sync_all(operation)?;
        Ok(standing)
    }

    /// The log vdev of a device.
    fn log_with(&self, guid: Guid) -> tarn_ondisk::units::VdevId {
        let id = self.vdevs().top_of(guid);
        let tops = self.vdevs().top_levels();
        let is_log = |top: &&tarn_vdev::TopLevel| Some(top.id) == id && top.is_log;
        let top = tops.iter().find(is_log);
        top.expect("only devices of log vdevs miss nothing").id
    }
}
