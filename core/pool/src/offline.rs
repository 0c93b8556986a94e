//! Devices of log vdevs out of use for a while, and back.
//!
//! A log vdev is emptied first ([`log_devices`](crate::log_devices)), so that a device that comes
//! back has missed nothing. When none of its devices is in use, logs go elsewhere. A device for
//! data that comes back has to be filled again, which is not built.

use crate::error::VdevChangeError;
use crate::pool::Pool;
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;
use tarn_vdev::{OutOfUse, Standing};

impl Pool {
    /// Takes a device of a log vdev out of use, and waits until that is stored.
    ///
    /// # Errors
    /// A log that was not replayed yet has a block on it, or nothing can be stored: it stays.
    ///
    /// # Panics
    /// When it is of no log vdev.
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

    /// Takes a device of a log vdev into use again, and waits until that is stored. Gives how it
    /// is.
    ///
    /// # Errors
    /// A log that was not replayed yet has a block on the vdev, or nothing can be stored.
    ///
    /// # Panics
    /// When it is of no log vdev.
    #[doc(alias = "vdev_online")]
    pub fn bring_log_back(
        &self,
        guid: Guid,
        operation: &Operation,
    ) -> Result<Standing, VdevChangeError> {
        let _hold = self.empty_log(self.log_with(guid), operation)?;
        let standing = self.vdevs().bring_back_empty(guid);
        // Until labels say so, an import does not look for blocks there.
        self.sync_all(operation)?;
        Ok(standing)
    }

    /// The log vdev that a device is of.
    fn log_with(&self, guid: Guid) -> tarn_ondisk::units::VdevId {
        let id = self.vdevs().top_of(guid);
        let tops = self.vdevs().top_levels();
        let is_log = |top: &&tarn_vdev::TopLevel| Some(top.id) == id && top.is_log;
        let top = tops.iter().find(is_log);
        top.expect("only devices of log vdevs miss nothing").id
    }
}
