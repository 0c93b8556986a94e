//! Turns: commands change a pool one at a time, and none waits for a pool that does not answer.
//!
//! # Problem
//! Two commands that change mounts or datasets must not meet half-way. But a device may hang, and
//! with it the command that waits for it: commands on other pools, and commands that only read,
//! must not wait with it.
//!
//! # Mechanism
//! Each pool has a turn of its own; only commands that search for pools or create them exclude each
//! other across pools. A pool is *stuck* when it is suspended, or when one of its devices has
//! unanswered requests and has answered none for a second. A command that wants the turn of a stuck
//! pool is refused after a moment.
//!
//! A command that only reads runs in a thread of its own ([`Engine::look`]). Normally the caller
//! waits for it, however long it takes; when the pool is stuck the caller leaves the thread behind,
//! which ends when the device answers or the pool is given up.

use crate::engine::{Engine, OpenPool};
use crate::refusals::{Refusal, RefusalKind, SUSPENDED};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tarn_host::channel;
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_pool::Pool;
use tarn_probe::Operation;

/// The turn of a pool.
const TURN: Rank = Rank::new(tarn_host::ranks::ENGINE + 15, "turn");

/// A device with unanswered requests that has answered none for this long does not answer. All but
/// the slowest requests take less.
const SILENT_NS: u64 = 1_000_000_000;

/// After this long a device is not expected to answer any more, and a pool may be given up with
/// everything that was not made durable. Disks under load take seconds for a flush.
const HUNG_NS: u64 = 5_000_000_000;

/// How long an export by force waits for the turn: giving the pool up lets its present holder go.
const HURRY: Duration = Duration::from_millis(400);

/// How long a command waits for a pool that is stuck: answers from memory take less.
const MOMENT: Duration = Duration::from_millis(400);

/// How long a command waits before it asks whether the pool is stuck.
const PATIENCE: Duration = Duration::from_millis(1200);

/// Interval between checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How many reading threads may be left behind in one stuck pool. More would learn no more.
const LEFT_BEHIND_MAX: usize = 8;

/// Whether a pool is stuck, so that no command should wait for it.
pub fn is_stuck(pool: &Pool) -> bool {
    pool.failure().is_some() || pool.silent_ns() > SILENT_NS
}

/// The turn of one pool.
pub struct Turns {
    is_taken: Mutex<bool>,
    given_back: Condvar,
    looking: Arc<AtomicUsize>,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns {
            is_taken: Mutex::new(TURN, false),
            given_back: Condvar::new(),
            looking: Arc::new(AtomicUsize::new(0)),
        }
    }
}

/// The turn of a pool, held: no other command changes the pool.
pub struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.is_taken.lock() = false;
        self.0.given_back.notify_all();
    }
}

/// Counts one reading thread.
struct Looking(Arc<AtomicUsize>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The turn of a pool for background work of the daemon. None when the pool is stuck.
pub(crate) fn turn_of(open: &Arc<OpenPool>) -> Option<Turn<'_>> {
    take(open, PATIENCE)
}

/// The turn of a pool, unless a command has it.
pub(crate) fn turn_if_free(open: &Arc<OpenPool>) -> Option<Turn<'_>> {
    let mut is_taken = open.turns.is_taken.lock();
    if std::mem::replace(&mut *is_taken, true) {
        return None;
    }
    Some(Turn(&open.turns))
}

fn take(open: &Arc<OpenPool>, patience: Duration) -> Option<Turn<'_>> {
    let turns = &open.turns;
    let mut waited = Duration::ZERO;
    let mut is_taken = turns.is_taken.lock();
    while *is_taken {
        let late = turns.given_back.wait_timeout(&mut is_taken, LOOK_INTERVAL);
        if late.timed_out() && *is_taken {
            waited += LOOK_INTERVAL;
            drop(is_taken);
            if waited > patience && is_stuck(&open.pool) {
                return None;
            }
            is_taken = turns.is_taken.lock();
        }
    }
    *is_taken = true;
    drop(is_taken);
    Some(Turn(turns))
}

impl Engine {
    /// Waits for the turn of a pool.
    pub fn turn<'a>(&self, open: &'a Arc<OpenPool>) -> Result<Turn<'a>, Refusal> {
        self.turn_within(open, PATIENCE)
    }

    /// The turn for a command that has given the pool up; waits only a moment.
    pub(crate) fn last_turn<'a>(&self, open: &'a Arc<OpenPool>) -> Option<Turn<'a>> {
        self.turn_within(open, HURRY).ok()
    }

    fn turn_within<'a>(
        &self,
        open: &'a Arc<OpenPool>,
        patience: Duration,
    ) -> Result<Turn<'a>, Refusal> {
        let turn = take(open, patience).ok_or_else(|| stuck(open.pool.name()))?;
        // Another command may have exported the pool meanwhile.
        let name = open.pool.name();
        match self.find_pool(name) {
            Some(found) if Arc::ptr_eq(&found, open) => Ok(turn),
            _ => {
                let action = format!("cannot open '{name}'");
                Err(Refusal::new(RefusalKind::NotFound, action, "no such pool"))
            }
        }
    }

    /// Reads a pool in a thread of its own. None when the pool is stuck and the answer is not in
    /// memory.
    pub fn look<T: Send + 'static>(
        &self,
        open: &Arc<OpenPool>,
        look: impl FnOnce(&Arc<OpenPool>, &Operation) -> T + Send + 'static,
    ) -> Option<T> {
        let counter = open.turns.looking.clone();
        let is_stuck_now = is_stuck(&open.pool);
        if counter.fetch_add(1, Ordering::AcqRel) >= LEFT_BEHIND_MAX && is_stuck_now {
            counter.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let (tell, told) = channel::bounded(1);
        let (owned, looking) = (open.clone(), Looking(counter));
        let operation = self.operation(0);
        let run = move || {
            let seen = look(&owned, &operation);
            // Dropped before the answer is sent: the asking command may export the pool next.
            drop(owned);
            drop(looking);
            drop(tell.send(seen));
        };
        drop(self.host.spawn("tarn-look", run));
        let mut patience = match is_stuck_now {
            true => MOMENT,
            false => PATIENCE,
        };
        loop {
            match told.recv_timeout(patience) {
                Ok(seen) => return Some(seen),
                Err(channel::NoMessage::Closed) => return None,
                Err(_) if is_stuck(&open.pool) => return None,
                Err(_) => patience = LOOK_INTERVAL,
            }
        }
    }

    /// Gives a pool up that is suspended or hangs, and says whether it did. Waits only while that
    /// cannot be told.
    pub fn give_up_if_stuck(&self, pool: &Pool) -> bool {
        loop {
            if pool.failure().is_some() || pool.silent_ns() > HUNG_NS {
                pool.give_up();
                return true;
            }
            if pool.silent_ns() < SILENT_NS {
                return false;
            }
            self.host.sleep(LOOK_INTERVAL);
        }
    }
}

/// The refusal of a command that would wait for a stuck pool.
pub fn stuck(name: &str) -> Refusal {
    let action = format!("cannot open '{name}'");
    Refusal::new(RefusalKind::Suspended, action, SUSPENDED)
}
