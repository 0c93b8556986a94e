//! The thread that writes heartbeats, and extends the lease.

use super::settings::{self, Settings};
use crate::directory::Directory;
use crate::error::{ImportError, PoolError};
use crate::pool::Pool;
use std::sync::Arc;
use std::time::Duration;
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_host::{WriteLease, lease_clock_ns};
use tarn_ondisk::label::LABEL_COUNT;
use tarn_ondisk::uberblock::Uberblock;
use tarn_probe::Operation;

const STATE: Rank = Rank::new(tarn_host::ranks::POOL + 15, "multihost");

/// The heartbeats of a pool.
pub(crate) struct Heartbeats {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// None while `multihost` is off.
    settings: Option<Settings>,
    /// A thread writes heartbeats.
    is_running: bool,
    is_stopped: bool,
    /// The time and sequence number of the last heartbeat.
    last: (u64, u64),
    /// The uberblocks that were written last, or tried: the newest on the devices is one of these.
    own: Vec<Uberblock>,
}

/// So many of the uberblocks that were tried last are known.
const OWN_MAX: usize = 8;

impl Heartbeats {
    pub(crate) fn new() -> Heartbeats {
        Heartbeats {
            state: Mutex::new(STATE, State::default()),
            changed: Condvar::new(),
        }
    }

    /// How the pool shows itself; none while `multihost` is off.
    pub(crate) fn settings(&self) -> Option<Settings> {
        self.state.lock().settings
    }

    /// Sets how the pool shows itself.
    pub(crate) fn set(&self, settings: Option<Settings>) {
        self.state.lock().settings = settings;
        self.changed.notify_all();
    }

    /// Has the thread end.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Notes an uberblock that is about to be written.
    pub(crate) fn note_own(&self, uberblock: &Uberblock) {
        let mut state = self.state.lock();
        if state.settings.is_none() {
            return;
        }
        if state.own.len() == OWN_MAX {
            state.own.remove(0);
        }
        state.own.push(*uberblock);
    }

    /// Notes a claim: heartbeats count on from it.
    pub(crate) fn note_claim(&self, claim: &Uberblock) {
        let sequence = claim.multihost().and_then(|said| said.sequence);
        self.state.lock().last = (claim.timestamp_s, sequence.unwrap_or(0));
        self.note_own(claim);
    }

    /// Whether this pool has written or tried an uberblock lately.
    pub(crate) fn is_own(&self, uberblock: &Uberblock) -> bool {
        self.state.lock().own.contains(uberblock)
    }

    /// The next heartbeat with the contents of this uberblock.
    fn next(&self, stored: Uberblock, now_s: u64) -> Option<(Uberblock, Settings)> {
        let mut state = self.state.lock();
        let settings = state.settings?;
        let (last_s, sequence) = state.last;
        let now_s = now_s.max(stored.timestamp_s).max(last_s);
        let sequence = match now_s == last_s {
            true => sequence + 1,
            false => 1,
        };
        // A second with more heartbeats than the sequence number can count borrows from the next.
        state.last = match sequence > u64::from(u16::MAX) {
            true => (now_s + 1, 1),
            false => (now_s, sequence),
        };
        let mut uberblock = stored;
        uberblock.timestamp_s = state.last.0;
        let multihost = settings.to_multihost(state.last.1);
        uberblock.set_multihost(settings.interval_ns(), multihost);
        Some((uberblock, settings))
    }

    /// Extends the lease by a heartbeat that said these settings, if they are still those of the
    /// pool: an uberblock with other settings may lead others to a shorter watch.
    fn extend(&self, lease: &WriteLease, said: Settings, began_ns: u64) {
        let state = self.state.lock();
        if state.settings == Some(said) {
            lease.extend(began_ns + said.lease_ns());
        }
    }

    /// Waits until the next heartbeat is due. False if the thread is to end.
    fn wait(&self, interval: Duration, host: &tarn_host::Host) -> bool {
        let began_ns = host.monotonic_ns();
        let mut state = self.state.lock();
        loop {
            if state.is_stopped || state.settings.is_none() {
                state.is_running = false;
                return false;
            }
            let passed = Duration::from_nanos(host.monotonic_ns() - began_ns);
            let Some(left) = interval.checked_sub(passed).filter(|left| !left.is_zero()) else {
                return true;
            };
            let _ = self.changed.wait_timeout(&mut state, left);
        }
    }
}

impl Pool {
    /// Shows a new pool in use, if it has `multihost`.
    ///
    /// # Errors
    /// The properties cannot be read.
    pub(crate) fn follow_multihost(
        self: &Arc<Self>,
        operation: &Operation,
    ) -> Result<(), PoolError> {
        self.show_itself(settings::read(self.directory(operation))?);
        Ok(())
    }

    /// Stops showing a pool in use whose property was off when it was imported: from the next stored
    /// txg on it is not watched any more.
    ///
    /// # Errors
    /// The properties cannot be read, or the pool stores nothing.
    pub(crate) fn end_multihost_if_off(
        self: &Arc<Self>,
        operation: &Operation,
    ) -> Result<(), ImportError> {
        if self.heartbeats.settings().is_none() || settings::read(self.directory(operation))?.is_some()
        {
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

    /// Follows a change of properties in the txg that stores it: its uberblock has the new settings,
    /// and the lease ends no later than they say.
    pub(crate) fn prepare_multihost(&self, directory: Directory<'_>) -> Result<(), PoolError> {
        let settings = settings::read(directory)?;
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
        {
            let mut state = self.heartbeats.state.lock();
            if state.is_running || state.is_stopped {
                return;
            }
            state.is_running = true;
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
            let is_written =
                lease.is_valid() && self.vdevs().write_heartbeat(&uberblock, label);
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
