//! Seats: the hosts that share the disks of a simulated machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::baton::{self, Scheduler};
use crate::identity::HostIdentity;

/// One host.
pub(crate) struct Seat {
    scheduler: Arc<Scheduler>,
    number: u64,
    identity: HostIdentity,
    /// Until when it is paused, in virtual time.
    paused_until_ns: AtomicU64,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seat({})", self.number)
    }
}

impl Seat {
    pub(super) fn new(scheduler: &Arc<Scheduler>, number: u64, identity: HostIdentity) -> Seat {
        Seat {
            scheduler: scheduler.clone(),
            number,
            identity,
            paused_until_ns: AtomicU64::new(0),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn identity(&self) -> &HostIdentity {
        &self.identity
    }

    pub(super) fn pause_until(&self, until_ns: u64) {
        self.paused_until_ns.fetch_max(until_ns, Ordering::Relaxed);
    }

    /// Returns when the host is not paused, and in the same moment of virtual time.
    pub(crate) fn wait_while_paused(&self) {
        loop {
            let until_ns = self.paused_until_ns.load(Ordering::Relaxed);
            if self.scheduler.now_ns() >= until_ns {
                return;
            }
            let Some(me) = baton::current().filter(|me| me.is_of(&self.scheduler)) else {
                return;
            };
            me.sleep_until(until_ns, "its host to go on");
        }
    }
}
