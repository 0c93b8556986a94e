//! What goes on in the free space of devices, as it is in memory.

use super::stored::{FreeSpaceWork, Stored, WorkState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tarn_host::JoinHandle;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::ObjectId;

/// The state of what goes on in free space.
const WORKS: Rank = Rank::new(tarn_host::ranks::POOL + 16, "initialize and trim");

/// A device and what is done with its free space. The device is named by its ZAP, which it keeps
/// when its mirror becomes a single device and its guid changes.
pub(crate) type Key = (ObjectId, FreeSpaceWork);

/// What goes on in the free space of a pool's devices, or did.
pub(crate) struct Works(pub(crate) Mutex<BTreeMap<Key, Work>>);

#[derive(Default)]
pub(crate) struct Work {
    pub(crate) stored: Stored,
    pub(crate) progress: Arc<Progress>,
    pub(crate) running: Option<Running>,
}

pub(crate) struct Running {
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) thread: JoinHandle<()>,
}

/// How far a thread has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) next_offset: AtomicU64,
    pub(crate) done_bytes: AtomicU64,
    pub(crate) estimated_bytes: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// How far it is with a device, as `zpool status -i` and `-t` show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkStatus {
    /// Whether it goes on.
    pub state: WorkState,
    /// When the state changed, in seconds since 1970.
    pub action_time_s: u64,
    /// What was done.
    pub done_bytes: u64,
    /// How much there is to do in all, about.
    pub estimated_bytes: u64,
    /// How many requests failed.
    pub errors: u64,
}

impl Works {
    pub(crate) fn new() -> Works {
        Works(Mutex::new(WORKS, BTreeMap::new()))
    }
}

impl Work {
    pub(crate) fn of(stored: Stored) -> Work {
        let progress = Progress::default();
        progress
            .next_offset
            .store(stored.next_offset, Ordering::Relaxed);
        Work {
            stored,
            progress: Arc::new(progress),
            running: None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| !running.thread.is_finished())
    }

    pub(crate) fn status(&self) -> WorkStatus {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let estimated_bytes = load(&self.progress.estimated_bytes);
        WorkStatus {
            state: self.stored.state,
            action_time_s: self.stored.action_time_s,
            // Space may have been freed meanwhile.
            done_bytes: load(&self.progress.done_bytes).min(estimated_bytes),
            estimated_bytes,
            errors: load(&self.progress.errors),
        }
    }
}
