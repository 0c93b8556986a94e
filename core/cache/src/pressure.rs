//! Giving memory back while other programs on the machine need it.
//!
//! # Problem
//! The budget says what the cache may take, not what the machine has left: programs beside us grow,
//! and what is kept here can be read again, while what they have cannot. The kernel reclaims its
//! own caches; it knows nothing of ours.
//!
//! # Mechanism
//! A thread looks at how much memory is available to programs. Below a reserve ([`reserve_bytes`])
//! the cache does with less at once: less than it *uses* by what is missing and a little more, as
//! if the rest of its budget were lent ([`Lent`]). When there has been enough for [`CALM`], it gets
//! back half of what there is to spare at every look. How soon the thread looks again depends on
//! how soon memory could be short, as fast as programs can fill it.
//!
//! The rules follow OpenZFS on Linux (`arc_sys_free`, `zfs_arc_shrink_shift`,
//! `zfs_arc_grow_retry`).
//!
//! # Invariants
//! - An eighth of the budget stays, as with everything that is lent.
//! - In a simulation there is no such thread: its memory never runs short.

use crate::cache::{Cache, Lent};
use std::sync::Arc;
use std::time::Duration;
use tarn_host::channel::{self, NoMessage, Sender};
use tarn_host::{Host, JoinHandle};

/// How long there must be enough before the cache grows again, as OpenZFS has it.
const CALM: Duration = Duration::from_secs(5);

/// What the cache gives up at least each time, of what it uses: 1/128, as OpenZFS has it.
const SHRINK_SHIFT: u32 = 7;

/// How fast programs may fill memory, in bytes a second. A guess: two processors that touch new
/// pages.
const FILL_RATE: u64 = 4 << 30;

/// How soon the thread looks again at least, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What the machine, or our control group of it, has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineMemory {
    /// All of it, in bytes.
    pub total_bytes: u64,
    /// What could be had without making others swap, in bytes.
    pub available_bytes: u64,
}

/// What should be left to others, of so much memory in bytes: 1/32, as on Linux.
#[doc(alias = "arc_sys_free")]
pub fn reserve_bytes(total_bytes: u64) -> u64 {
    total_bytes / 32
}

/// Decides how much of the budget the cache does without.
pub struct Governor {
    cache: Arc<Cache>,
    withheld: Lent,
    withheld_bytes: u64,
    /// When memory was short last.
    short_ns: Option<u64>,
}

impl Governor {
    /// For a cache that has all of its budget.
    pub fn new(cache: &Arc<Cache>) -> Governor {
        Governor {
            cache: cache.clone(),
            withheld: cache.lend(),
            withheld_bytes: 0,
            short_ns: None,
        }
    }

    /// Follows what there is at `now_ns` of a clock that never goes back. Says after what time to
    /// look again.
    pub fn look(&mut self, memory: MachineMemory, now_ns: u64) -> Duration {
        let reserve = reserve_bytes(memory.total_bytes);
        let missing = reserve.saturating_sub(memory.available_bytes);
        let spare = memory.available_bytes.saturating_sub(reserve);
        if missing > 0 {
            let used = self.cache.used_bytes();
            let target = used.saturating_sub(missing + (used >> SHRINK_SHIFT));
            let above = self.cache.budget_bytes().saturating_sub(target);
            self.withheld_bytes = self.withheld_bytes.max(above);
            self.short_ns = Some(now_ns);
        } else if self.is_calm(now_ns) {
            self.withheld_bytes = self.withheld_bytes.saturating_sub(spare / 2);
        }
        self.withheld.set(|| self.withheld_bytes);
        let no_grow = self.withheld_bytes > 0;
        self.cache.publish_memory(memory, reserve, missing, no_grow);
        Duration::from_millis(spare.saturating_mul(1000) / FILL_RATE).clamp(PAUSE_MIN, PAUSE_MAX)
    }

    fn is_calm(&self, now_ns: u64) -> bool {
        let since = |short| Duration::from_nanos(now_ns.saturating_sub(short));
        self.short_ns.is_none_or(|short| since(short) >= CALM)
    }
}

/// The thread that looks. It ends when this is dropped.
pub struct MemoryWatch {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Makes a cache follow the memory of the machine. None in a simulation.
    pub fn start(cache: &Arc<Cache>, host: &Host) -> Option<MemoryWatch> {
        if host.is_simulated() {
            return None;
        }
        let (stop, stopped) = channel::bounded(1);
        let mut governor = Governor::new(cache);
        let clock = host.clone();
        let thread = host.spawn("tarn-memory", move || {
            let look = |governor: &mut Governor| {
                let memory = MachineMemory {
                    total_bytes: clock.memory_total_bytes(),
                    available_bytes: clock.memory_available_bytes(),
                };
                governor.look(memory, clock.monotonic_ns())
            };
            let mut pause = look(&mut governor);
            while stopped.recv_timeout(pause) == Err(NoMessage::NotYet) {
                pause = look(&mut governor);
            }
        });
        let thread = Some(thread);
        Some(MemoryWatch { stop, thread })
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop.close();
        if let Some(thread) = self.thread.take() {
            // A panic in it was told when it happened.
            let _ = thread.join();
        }
    }
}
