//! The heartbeats of a pool: their settings, their times and sequence numbers, and the lease that
//! they extend.

use super::settings::Settings;
use std::time::Duration;
use tarn_host::WriteLease;
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_ondisk::uberblock::Uberblock;

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

    /// Whether the caller is to start the thread that writes heartbeats.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        let begins = !state.is_running && !state.is_stopped && state.settings.is_some();
        state.is_running |= begins;
        begins
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
        assert!(
            state.own.len() <= OWN_MAX,
            "no more uberblocks are known than were tried last"
        );
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
    pub(crate) fn next(&self, stored: Uberblock, now_s: u64) -> Option<(Uberblock, Settings)> {
        let mut state = self.state.lock();
        let settings = state.settings?;
        let (last_s, before) = state.last;
        let now_s = now_s.max(stored.timestamp_s).max(last_s);
        let sequence = match now_s == last_s {
            true => before + 1,
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
        assert!(
            (last_s, before) < state.last,
            "a heartbeat is newer than the one before"
        );
        assert!(
            uberblock.txg == stored.txg && uberblock.root == stored.root,
            "a heartbeat leads to what is stored"
        );
        Some((uberblock, settings))
    }

    /// Extends the lease by a heartbeat that said these settings, if they are still those of the
    /// pool: an uberblock with other settings may lead others to a shorter watch.
    pub(crate) fn extend(&self, lease: &WriteLease, said: Settings, began_ns: u64) {
        let state = self.state.lock();
        if state.settings == Some(said) {
            lease.extend(began_ns + said.lease_ns());
        }
    }

    /// Waits until the next heartbeat is due. False if the thread is to end.
    pub(crate) fn wait(&self, interval: Duration, host: &tarn_host::Host) -> bool {
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
