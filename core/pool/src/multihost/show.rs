//! Showing a pool in use: the thread that writes heartbeats, and what a change of properties means
//! to it.

use super::settings::Settings;
use crate::directory::Directory;
use crate::error::{ImportError, PoolError};
use crate::pool::Pool;
use crate::properties;
use std::sync::Arc;
use std::time::Duration;
use tarn_host::lease_clock_ns;
use tarn_ondisk::label::LABEL_COUNT;
use tarn_probe::Operation;

impl Pool {
    /// Shows a new pool in use, if it has `multihost`.
    ///
    /// # Errors
    /// The properties cannot be read.
    pub(crate) fn follow_multihost(
        self: &Arc<Self>,
        operation: &Operation,
    ) -> Result<(), PoolError> {
        self.show_itself(read(self.directory(operation))?);
        Ok(())
    }

    /// Stops showing a pool in use whose property was off when it was imported: from the next
    /// stored txg on it is not watched any more.
    ///
    /// # Errors
    /// The properties cannot be read, or the pool stores nothing.
    pub(crate) fn end_multihost_if_off(
        self: &Arc<Self>,
        operation: &Operation,
    ) -> Result<(), ImportError> {
        if self.heartbeats.settings().is_none() || read(self.directory(operation))?.is_some() {
            return Ok(());
        }
        self.run_in_sync(operation, |scope| {
            scope.pool.heartbeats.set(None);
            scope.pool.mark_configuration_stale();
            Ok(Ok(()))
        })?;
        self.settle_multihost();
        Ok(())
    }

    /// Follows a change of properties in the txg that stores it: its uberblock has the new
    /// settings, and the lease ends no later than they say.
    pub(crate) fn prepare_multihost(&self, directory: Directory<'_>) -> Result<(), PoolError> {
        let settings = read(directory)?;
        if self.heartbeats.settings() == settings {
            return Ok(());
        }
        self.heartbeats.set(settings);
        if let Some(settings) = settings {
            let until_ns = lease_clock_ns() + settings.lease_ns();
            self.vdevs().lease().shorten(until_ns);
        }
        // A txg without other changes would not be stored.
        self.mark_configuration_stale();
        Ok(())
    }

    /// Follows a change of properties that is stored.
    pub(crate) fn settle_multihost(self: &Arc<Self>) {
        match self.heartbeats.settings() {
            Some(settings) => self.show_itself(Some(settings)),
            None => self.vdevs().lease().lift(),
        }
    }

    /// Sets how the pool shows itself from now on, and starts the thread for that.
    pub(crate) fn show_itself(self: &Arc<Self>, settings: Option<Settings>) {
        self.heartbeats.set(settings);
        let Some(settings) = settings else { return };
        if !self.vdevs().lease().is_limited() {
            let until_ns = lease_clock_ns() + settings.lease_ns();
            self.vdevs().lease().begin(until_ns);
        }
        assert!(
            self.vdevs().lease().is_limited(),
            "a pool that is shown in use is written under a lease"
        );
        if !self.heartbeats.begin() {
            return;
        }
        let pool = self.clone();
        let name = format!("tarn-mmp-{}", self.name());
        let thread = self.host().spawn(&name, move || pool.write_heartbeats());
        self.sync_threads.lock().push(thread);
    }

    /// Writes a heartbeat each interval, until `multihost` is off or the pool is closed.
    #[doc(alias = "mmp_thread")]
    fn write_heartbeats(&self) {
        let mut label = 0;
        loop {
            let now_s = u64::try_from(self.host().unix_time().seconds).unwrap_or(0);
            let stored = self.uberblock();
            let Some((uberblock, settings)) = self.heartbeats.next(stored, now_s) else {
                // It was switched off; the wait below ends the thread.
                match self.heartbeats.wait(Duration::ZERO, self.host()) {
                    true => continue,
                    false => return,
                }
            };
            self.heartbeats.note_own(&uberblock);
            let began_ns = lease_clock_ns();
            let lease = self.vdevs().lease();
            let is_written = lease.is_valid() && self.vdevs().write_heartbeat(&uberblock, label);
            if is_written {
                self.heartbeats.extend(lease, settings, began_ns);
            }
            label = (label + 1) % LABEL_COUNT;
            if lease.has_expired() && !self.vdevs().wait_without_lease() {
                return;
            }
            let interval = Duration::from_nanos(settings.interval_ns());
            if !self.heartbeats.wait(interval, self.host()) {
                return;
            }
        }
    }
}

/// The settings of a pool; none while `multihost` is off.
pub(crate) fn read(directory: Directory<'_>) -> Result<Option<Settings>, PoolError> {
    Ok(Settings::of_properties(&properties::read(directory)?))
}
