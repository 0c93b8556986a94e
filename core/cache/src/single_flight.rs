//! One read, however many wait for it.
//!
//! # Mechanism
//! A flight is left where other readers find it before its read begins. It has one leader, the
//! thread that reads; other threads wait on its condition. A flight in the prefetch queue has no
//! leader yet; the first demand read becomes its leader.
//!
//! # Invariants
//! - A flight lands once. If its leader is gone without an answer, it lands as abandoned, and the
//!   waiting threads try again.

use crate::contents::Contents;
use crate::ranks;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tarn_block::ReadError;
use tarn_host::lock::{Condvar, Mutex};

/// A read under way, or about to be.
pub(crate) struct Flight {
    has_leader: AtomicBool,
    /// What it brings must not be kept: the block was freed or written meanwhile.
    is_stale: AtomicBool,
    landing: Mutex<Option<Landing>>,
    landed: Condvar,
    /// What the pointer said that began it.
    pub(crate) fingerprint: u64,
}

/// How a flight ended.
#[derive(Clone)]
pub(crate) enum Landing {
    /// With an answer.
    Answer(Result<Contents, ReadError>),
    /// Without one.
    Abandoned,
}

impl Flight {
    /// A flight without a leader.
    pub(crate) fn new(fingerprint: u64) -> Flight {
        Flight {
            has_leader: AtomicBool::new(false),
            is_stale: AtomicBool::new(false),
            landing: Mutex::new(ranks::FLIGHT, None),
            landed: Condvar::new(),
            fingerprint,
        }
    }

    /// Makes the caller the leader, if there is none.
    pub(crate) fn try_lead(&self) -> bool {
        !self.has_leader.swap(true, Ordering::AcqRel)
    }

    /// What it brings must not be kept.
    pub(crate) fn make_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    /// Gives its end to all waiting threads. Later ends change nothing.
    pub(crate) fn land(&self, landing: Landing) {
        self.landing.lock().get_or_insert(landing);
        self.landed.notify_all();
    }

    /// Waits for its end, at most so long. False if it has not come.
    pub(crate) fn has_landed_within(&self, most: Duration) -> bool {
        let mut landing = self.landing.lock();
        if landing.is_none() {
            let _ = self.landed.wait_timeout(&mut landing, most);
        }
        landing.is_some()
    }

    /// Waits for its end.
    pub(crate) fn wait(&self) -> Landing {
        let mut landing = self.landing.lock();
        loop {
            match &*landing {
                Some(landing) => return landing.clone(),
                None => self.landed.wait(&mut landing),
            }
        }
    }
}
