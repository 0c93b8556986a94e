//! `zpool offline` and `zpool online`.
//!
//! A device of a data vdev goes offline only while the other devices have all its blocks. Its dirty
//! time log grows meanwhile, and a resilver fills it when it is back.
//!
//! A log vdev is emptied first ([`log_devices`](crate::log_devices)), so that a device misses
//! nothing when it comes back. When none of its devices is in use, logs take blocks elsewhere.

use crate::error::VdevChangeError;
use crate::events::class;
use crate::pool::Pool;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;
use tarn_vdev::{ExpectedLabels, OutOfUse, Standing};

impl Pool {
    /// Takes a device out of use, and waits until that is stored. A device that is to be faulted
    /// and is needed becomes degraded instead.
    ///
    /// # Errors
    /// The other devices do not have all its blocks, a log that is not replayed has a block on it,
    /// or the pool stores nothing: it stays online.
    #[doc(alias("vdev_offline", "vdev_fault"))]
    pub fn take_out_of_use(
        &self,
        guid: Guid,
        how: OutOfUse,
        operation: &Operation,
    ) -> Result<(), VdevChangeError> {
        self.require_writable()?;
        if self.take_cache_out(guid, how, operation)? {
            return Ok(());
        }
        let log = self.log_with(guid);
        let _hold = match log {
            Some(log) => Some(self.empty_log(log, operation)?),
            None => None,
        };
        let is_fault = matches!(how, OutOfUse::Faulted | OutOfUse::FaultedForNow);
        let is_out = self.vdevs().take_out_of_use(guid, how);
        let is_done = is_out || (is_fault && self.vdevs().degrade_by_hand(guid));
        if !is_done {
            return Err(VdevChangeError::NoReplicas);
        }
        if is_fault && is_out {
            self.cancel_works_of(guid);
        }
        Ok(self.sync_all(operation)?)
    }

    /// Brings a device online, waits until that is stored, and starts a resilver of what it missed.
    /// Returns its state.
    ///
    /// # Errors
    /// A log that is not replayed has a block on the vdev, or the pool stores nothing.
    #[doc(alias = "vdev_online")]
    pub fn bring_online(
        &self,
        guid: Guid,
        operation: &Operation,
    ) -> Result<Standing, VdevChangeError> {
        self.require_writable()?;
        if let Some(standing) = self.bring_cache_back(guid, operation)? {
            return Ok(standing);
        }
        let Some(log) = self.log_with(guid) else {
            let labels = ExpectedLabels::OfPool(self.facts().guid);
            let standing = self.vdevs().bring_online(guid, labels);
            if standing.is_some_and(|standing| standing.state.is_usable()) {
                self.post_event(class::VDEV_ONLINE, Some(guid), NvList::new());
            }
            self.sync_all(operation)?;
            self.fill_devices(operation)?;
            return Ok(standing.unwrap_or(Standing::ONLINE));
        };
        let _hold = self.empty_log(log, operation)?;
        let standing = self.vdevs().bring_back_empty(guid);
        if standing.state.is_usable() {
            self.post_event(class::VDEV_ONLINE, Some(guid), NvList::new());
        }
        // Until the labels have the new state, an import does not look for log blocks there.
        self.sync_all(operation)?;
        Ok(standing)
    }

    /// Opens the devices again that were not there, and takes those out of use that are gone:
    /// `zpool reopen`. A resilver of what was missed starts, if `resilvers`.
    ///
    /// # Errors
    /// The pool stores nothing.
    #[doc(alias = "spa_vdev_state_enter")]
    pub fn reopen_devices(
        &self,
        resilvers: bool,
        operation: &Operation,
    ) -> Result<(), VdevChangeError> {
        self.require_writable()?;
        let back = self.vdevs().reopen_all();
        self.sync_all(operation)?;
        if resilvers && !back.is_empty() {
            self.fill_devices(operation)?;
        }
        Ok(())
    }

    /// The log vdev of a device, if it is in one.
    fn log_with(&self, guid: Guid) -> Option<tarn_ondisk::units::VdevId> {
        let id = self.vdevs().top_of(guid);
        let tops = self.vdevs().top_levels();
        let is_log = |top: &&tarn_vdev::TopLevel| Some(top.id) == id && top.is_log;
        tops.iter().find(is_log).map(|top| top.id)
    }
}
