//! The rebuilds of a pool, as they are in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tarn_host::JoinHandle;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::rebuild::{ACTIVE, Rebuild};
use tarn_ondisk::units::VdevId;

/// The state of all rebuilds.
const REBUILDS: Rank = Rank::new(tarn_host::ranks::POOL + 19, "rebuilds");

/// The rebuilds of a pool, by top-level vdev: the one that is active, or the last one.
pub(crate) struct Rebuilds(pub(crate) Mutex<BTreeMap<VdevId, State>>);

impl Rebuilds {
    pub(crate) fn new() -> Rebuilds {
        Rebuilds(Mutex::new(REBUILDS, BTreeMap::new()))
    }
}

/// The rebuild of a vdev.
#[derive(Default)]
pub(crate) struct State {
    /// Numbers that the thread counts lag behind, while it is active.
    pub(crate) stored: Rebuild,
    pub(crate) progress: Arc<Progress>,
    pub(crate) thread: Option<JoinHandle<()>>,
}

impl State {
    pub(crate) fn of(stored: Rebuild) -> State {
        State {
            progress: Arc::new(Progress::of(&stored)),
            stored,
            thread: None,
        }
    }

    pub(crate) fn has_thread(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| !thread.is_finished())
    }

    /// With the numbers as they are now.
    pub(crate) fn now(&self) -> Rebuild {
        match self.stored.state {
            ACTIVE => self.progress.merged(&self.stored),
            _ => self.stored,
        }
    }
}

/// How far a thread has come. Another attach in the vdev begins anew with another one.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The thread is to end.
    pub(crate) stops: AtomicBool,
    pub(crate) last_offset: AtomicU64,
    pub(crate) scanned_bytes: AtomicU64,
    pub(crate) issued_bytes: AtomicU64,
    pub(crate) rebuilt_bytes: AtomicU64,
    pub(crate) estimated_bytes: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// How long it ran before, and in this import.
    pub(crate) before_ms: AtomicU64,
    pub(crate) pass_ms: AtomicU64,
    /// Of this import.
    pub(crate) pass_scanned_bytes: AtomicU64,
    pub(crate) pass_issued_bytes: AtomicU64,
}

impl Progress {
    pub(crate) fn of(stored: &Rebuild) -> Progress {
        Progress {
            last_offset: stored.last_offset.into(),
            scanned_bytes: stored.scanned_bytes.into(),
            issued_bytes: stored.issued_bytes.into(),
            rebuilt_bytes: stored.rebuilt_bytes.into(),
            estimated_bytes: stored.estimated_bytes.into(),
            errors: stored.error_count.into(),
            before_ms: stored.scan_time_ms.into(),
            ..Progress::default()
        }
    }

    pub(crate) fn merged(&self, stored: &Rebuild) -> Rebuild {
        let load = |number: &AtomicU64| number.load(Ordering::Acquire);
        assert_eq!(stored.state, ACTIVE, "only an active rebuild goes on");
        Rebuild {
            // First: what lies before it was counted.
            last_offset: load(&self.last_offset),
            scan_time_ms: load(&self.before_ms) + load(&self.pass_ms),
            scanned_bytes: load(&self.scanned_bytes),
            issued_bytes: load(&self.issued_bytes),
            rebuilt_bytes: load(&self.rebuilt_bytes),
            estimated_bytes: load(&self.estimated_bytes),
            error_count: load(&self.errors),
            ..*stored
        }
    }
}
