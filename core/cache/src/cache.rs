//! The cache of a process: its first level, in memory.

use crate::adaptive::Use;
use crate::contents::Contents;
use crate::key::Key;
use crate::prefetch::Prefetcher;
use crate::pressure::MachineMemory;
use crate::probes::{Probes, Sizes};
use crate::ranks::LENT;
use crate::shard::{Origin, Shard};
use crate::single_flight::Flight;
use crate::workers::{Job, Workers};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_block::ReadError;
use tarn_host::Host;
use tarn_host::lock::Mutex;
use tarn_probe::Registry;

/// A shard has at least this budget, so that it holds several of the largest blocks.
const SHARD_BYTES_MIN: u64 = 64 << 20;
/// More shards than this gain nothing on machines we know.
const SHARDS_MAX: u64 = 64;

/// What stays to the cache of its budget, however much is lent: an eighth.
const KEPT_SHARE: u64 = 8;

/// How large the cache is, and how eager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// What kept blocks may take, with everything that keeping them costs.
    pub budget_bytes: u64,
    /// How far prefetch runs ahead of a reader; zero turns it off.
    pub prefetch_window_bytes: u64,
    /// How many threads read ahead.
    pub prefetch_workers: usize,
}

impl Default for CacheOptions {
    /// Half a GiB, and windows large enough for a disk that reads 300 MB/s with a latency of a few
    /// blocks.
    fn default() -> CacheOptions {
        CacheOptions {
            budget_bytes: 512 << 20,
            prefetch_window_bytes: 16 << 20,
            prefetch_workers: 4,
        }
    }
}

/// How a block is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    how: Use,
    /// The reader keeps the whole block itself.
    passes: bool,
}

impl Hint {
    /// A demand read: a caller waits for it.
    pub const DEMAND: Hint = Hint {
        how: Use::Demand,
        passes: false,
    };

    /// A reader waits for it, and will keep all of it itself: the block stays in the cache only if
    /// it was wanted before.
    pub const PASSING: Hint = Hint {
        how: Use::Demand,
        passes: true,
    };

    /// A reader may want it soon.
    pub(crate) const PREFETCH: Hint = Hint {
        how: Use::Prefetch,
        passes: false,
    };

    pub(crate) fn how(self) -> Use {
        self.how
    }

    /// Whether the reader keeps the block itself.
    pub(crate) fn passes(self) -> bool {
        self.passes
    }

    pub(crate) fn is_prefetch(self) -> bool {
        self.how == Use::Prefetch
    }
}

/// The cache of a process. Shared.
pub struct Cache {
    shards: Vec<Shard>,
    budget: AtomicU64,
    /// What others have of the budget for a while.
    lent: Mutex<u64>,
    pub(crate) probes: Probes,
    prefetcher: Prefetcher,
    workers: Workers,
}

impl Cache {
    /// An empty cache, which counts in `registry`.
    pub fn new(host: &Host, options: CacheOptions, registry: &Registry) -> Arc<Cache> {
        let budget = options.budget_bytes;
        let count = (budget / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let cache = Arc::new(Cache {
            shards: (0..count).map(|_| Shard::new(budget / count)).collect(),
            budget: AtomicU64::new(budget),
            lent: Mutex::new(LENT, 0),
            probes: Probes::new(registry),
            prefetcher: Prefetcher::new(options.prefetch_window_bytes),
            workers: Workers::new(host, options.prefetch_workers),
        });
        cache.publish_sizes();
        cache
    }

    /// The watcher of readers, which says what to prefetch.
    pub fn prefetcher(&self) -> &Prefetcher {
        &self.prefetcher
    }

    /// What the kept blocks may take.
    pub fn budget_bytes(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// What they take, and what keeping them costs.
    pub fn used_bytes(&self) -> u64 {
        self.sizes().all
    }

    /// What is left of the budget while some of it is lent.
    pub fn target_bytes(&self) -> u64 {
        self.target(*self.lent.lock())
    }

    fn target(&self, lent: u64) -> u64 {
        let budget = self.budget_bytes();
        budget.saturating_sub(lent).max(budget / KEPT_SHARE)
    }

    /// Changes the budget; what is over it is dropped.
    pub fn set_budget(&self, bytes: u64) {
        let lent = self.lent.lock();
        self.budget.store(bytes, Ordering::Relaxed);
        self.follow(*lent);
        drop(lent);
        self.publish_sizes();
    }

    /// Memory for other uses that counts in the budget for a while.
    pub fn lend(self: &Arc<Self>) -> Lent {
        Lent {
            cache: self.clone(),
            bytes: AtomicU64::new(0),
        }
    }

    fn follow(&self, lent: u64) {
        let target = self.target(lent);
        for shard in &self.shards {
            shard.set_budget(target / self.shard_count());
        }
    }

    /// Brings the gauges in the tree of statistics up to date. Called now and then by the holder
    /// that shows them.
    pub fn publish_sizes(&self) {
        let target = self.target_bytes();
        let budget = self.budget_bytes();
        self.probes.set_sizes(self.sizes(), target, budget);
    }

    /// Brings up to date what the statistics say of the machine's memory.
    pub(crate) fn publish_memory(
        &self,
        memory: MachineMemory,
        reserve: u64,
        missing: u64,
        no_grow: bool,
    ) {
        self.probes.set_memory(memory, reserve, missing, no_grow);
    }

    fn sizes(&self) -> Sizes {
        let mut sum = Sizes::default();
        for shard in &self.shards {
            let sizes = shard.sizes();
            sum.all += sizes.all;
            sum.recent += sizes.recent;
            sum.frequent += sizes.frequent;
            sum.ghost_recent += sizes.ghost_recent;
            sum.ghost_frequent += sizes.ghost_frequent;
            sum.recent_target += sizes.recent_target;
            sum.elements += sizes.elements;
            sum.evicted += sizes.evicted;
            sum.evicted_bytes += sizes.evicted_bytes;
        }
        sum
    }

    fn shard_count(&self) -> u64 {
        u64::try_from(self.shards.len()).expect("a few shards")
    }

    /// All shards.
    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Drops the jobs of a pool that were not begun, and forgets its blocks.
    pub(crate) fn forget_pool(&self, pool: u64) {
        self.workers.forget_pool(pool);
        for shard in &self.shards {
            shard.forget_pool(pool);
        }
    }

    /// Has the workers take a job.
    pub(crate) fn take(&self, job: Job) {
        self.workers.take(job);
    }

    /// Whether blocks were dropped to make room since the beginning.
    #[doc(alias = "arc_warm")]
    pub(crate) fn has_evicted(&self) -> bool {
        self.shards.iter().any(|shard| shard.sizes().evicted > 0)
    }

    pub(crate) fn shard(&self, key: &Key) -> &Shard {
        &self.shards[key.shard(self.shards.len())]
    }
}

/// Memory that counts in the budget of the cache and is used for something else. Given back when it
/// is dropped.
pub struct Lent {
    cache: Arc<Cache>,
    bytes: AtomicU64,
}

impl Lent {
    /// From now on it is as much as `wanted` says: asked while no other caller can change it, so
    /// that of several concurrent calls the last one is right.
    pub fn set(&self, wanted: impl FnOnce() -> u64) {
        let mut lent = self.cache.lent.lock();
        let bytes = wanted();
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        if bytes != before {
            *lent = *lent - before + bytes;
            self.cache.follow(*lent);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.set(|| 0);
    }
}

/// The duty to end a flight. Dropped without an answer, it is abandoned.
pub(crate) struct Leader<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) key: Key,
    pub(crate) flight: Arc<Flight>,
}

impl Leader<'_> {
    /// Ends it with what was read; `origin` is known of what may enter the second level.
    pub(crate) fn land(
        &self,
        answer: Result<Contents, ReadError>,
        origin: Option<Arc<Origin>>,
        use_: (Use, u64),
    ) {
        self.shard
            .land(&self.key, &self.flight, answer, origin, use_);
    }
}

impl Drop for Leader<'_> {
    /// After a landing this changes nothing.
    fn drop(&mut self) {
        self.shard.abandon(&self.key, &self.flight);
    }
}
