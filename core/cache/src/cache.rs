//! The cache of a process, and the view that one pool has of it.

use crate::adaptive::Use;
use crate::contents::Contents;
use crate::key::{Key, fingerprint};
use crate::prefetch::Prefetcher;
use crate::pressure::MachineMemory;
use crate::probes::{Probes, Sizes};
use crate::ranks::LENT;
use crate::rewritten::Rewritten;
use crate::shard::{Answer, Shard};
use crate::single_flight::{Flight, Landing};
use crate::workers::{Job, Workers};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tarn_block::{Block, BlockIo, BlockScope, ReadError, ReadRequest};
use tarn_host::Host;
use tarn_host::lock::Mutex;
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::units::Txg;
use tarn_probe::{Operation, Outcome, Registry, Stage};

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

/// The cache, as one pool uses it. When the last copy is dropped, the pool's blocks are forgotten.
#[derive(Clone)]
pub struct PoolCache(Arc<PoolView>);

struct PoolView {
    cache: Arc<Cache>,
    pool: u64,
    io: Arc<BlockIo>,
    rewritten: Rewritten,
}

impl PoolCache {
    /// For a pool whose blocks are read by `io`.
    pub fn new(cache: Arc<Cache>, io: Arc<BlockIo>) -> PoolCache {
        /// Pools are numbered as they are opened: blocks of an earlier import are strangers.
        static POOLS: AtomicU64 = AtomicU64::new(1);
        let pool = POOLS.fetch_add(1, Ordering::Relaxed);
        PoolCache(Arc::new(PoolView {
            cache,
            pool,
            io,
            rewritten: Rewritten::new(),
        }))
    }

    /// The pool's number, for [`ObjectKey`](crate::ObjectKey).
    pub fn pool(&self) -> u64 {
        self.0.pool
    }

    /// The cache of the process.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.0.cache
    }

    /// What reads and writes the pool's blocks.
    pub fn io(&self) -> &Arc<BlockIo> {
        &self.0.io
    }

    /// The contents of a block, from memory or from its devices.
    ///
    /// # Errors
    /// As [`BlockIo::read`]; all threads that wait for the block get the same error.
    pub fn read(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        hint: Hint,
        operation: &Operation,
    ) -> Result<Block, ReadError> {
        self.read_contents(pointer, scope, hint, operation)
            .map(Contents::into_block)
    }

    /// The same in the form in which it is kept, for blocks of pointers: [`PoolCache::read`] has to
    /// unpack them each time.
    ///
    /// # Errors
    /// As [`PoolCache::read`].
    pub fn read_contents(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        hint: Hint,
        operation: &Operation,
    ) -> Result<Contents, ReadError> {
        if pointer.kind() != PointerKind::Stored {
            return self.read_unkept(pointer, scope, operation);
        }
        let key = Key::of(self.0.pool, pointer);
        let contents = self.obtain(pointer, scope, key, hint, operation)?;
        if hint.passes {
            self.0.cache.shard(&key).pass(&key);
        }
        Ok(contents)
    }

    /// A block that may be kept, from memory or from its devices.
    fn obtain(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        key: Key,
        hint: Hint,
        operation: &Operation,
    ) -> Result<Contents, ReadError> {
        let fingerprint = fingerprint(pointer);
        let shard = self.0.cache.shard(&key);
        let probes = &self.0.cache.probes;
        loop {
            let now_ns = operation.started_ns();
            let flight = match shard.find(&key, fingerprint, hint.how, now_ns) {
                Answer::Hit(contents, is_first_use) => {
                    probes.hit(scope.kind, hint, is_first_use);
                    operation.mark(Outcome::CacheHit);
                    return Ok(contents);
                }
                Answer::Join(flight) => {
                    probes.joined(scope.kind, hint);
                    flight
                }
                Answer::Lead(flight, memory) => {
                    probes.miss(scope.kind, hint, memory);
                    flight
                }
                Answer::Stranger => return self.read_unkept(pointer, scope, operation),
            };
            if flight.try_lead() {
                return self.lead(pointer, scope, key, flight, hint, operation);
            }
            operation.mark(Outcome::CacheInFlight);
            let _timer = operation.stage(Stage::Cache);
            if let Landing::Answer(answer) = flight.wait() {
                return answer;
            }
        }
    }

    /// Reads a block that is not kept.
    fn read_unkept(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        operation: &Operation,
    ) -> Result<Contents, ReadError> {
        if let Some(contents) = self.0.rewritten.find(pointer) {
            return Ok(contents);
        }
        match self.0.io.read(pointer, scope, operation) {
            Ok(block) => Ok(Contents::of(pointer, block)),
            // It may have been written in place meanwhile.
            Err(why) => self.0.rewritten.find(pointer).ok_or(why),
        }
    }

    /// Reads a block for all threads that wait for it.
    fn lead(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        key: Key,
        flight: Arc<Flight>,
        hint: Hint,
        operation: &Operation,
    ) -> Result<Contents, ReadError> {
        let leader = Leader {
            shard: self.0.cache.shard(&key),
            key,
            flight,
        };
        let answer = self.read_unkept(pointer, scope, operation);
        leader.land(answer.clone(), hint.how, operation.started_ns());
        answer
    }

    /// The contents of a block that is in memory. Does not count as a use: for callers that read
    /// everything once.
    pub fn peek(&self, pointer: &BlockPointer) -> Option<Block> {
        if pointer.kind() != PointerKind::Stored {
            return None;
        }
        let key = Key::of(self.0.pool, pointer);
        let found = self.0.cache.shard(&key).peek(&key, fingerprint(pointer));
        found.map(Contents::into_block)
    }

    /// Has blocks read that may be wanted soon. Returns at once; what is here or on its way already
    /// is left out, and when the workers have too much to do, so is the rest. The pointers were
    /// looked up by `operation`.
    pub fn prefetch(&self, wanted: &[(BlockPointer, BlockScope)], operation: &Operation) {
        let cache = &self.0.cache;
        let hint = Hint::PREFETCH;
        let (io, looked_up_ns) = (self.0.io.clone(), operation.looked_up_ns());
        let mut job = Job::new(cache.clone(), io, self.0.pool, looked_up_ns);
        for (pointer, scope) in wanted {
            if pointer.kind() != PointerKind::Stored {
                continue;
            }
            let key = Key::of(self.0.pool, pointer);
            let found = cache
                .shard(&key)
                .find(&key, fingerprint(pointer), hint.how, 0);
            match found {
                Answer::Hit(..) => cache.probes.hit(scope.kind, hint, false),
                Answer::Join(_) => cache.probes.joined(scope.kind, hint),
                Answer::Lead(flight, memory) => {
                    cache.probes.miss(scope.kind, hint, memory);
                    job.add(ReadRequest::plain(*pointer, *scope), key, flight);
                }
                Answer::Stranger => {}
            }
        }
        cache.workers.take(job);
    }

    /// Waits while a block is being prefetched, at most so long. False if it still is. A reader of
    /// many blocks that were prefetched in the order of their places lets them come in that order,
    /// where [`PoolCache::read`] would read the one that it wants first.
    pub fn has_come_within(&self, pointer: &BlockPointer, most: Duration) -> bool {
        if pointer.kind() != PointerKind::Stored {
            return true;
        }
        let key = Key::of(self.0.pool, pointer);
        let flight = self.0.cache.shard(&key).flight(&key, fingerprint(pointer));
        flight.is_none_or(|flight| flight.has_landed_within(most))
    }

    /// Keeps a block that was just written.
    pub fn insert(&self, pointer: &BlockPointer, block: Block, operation: &Operation) {
        if pointer.kind() != PointerKind::Stored {
            return;
        }
        let key = Key::of(self.0.pool, pointer);
        let now_ns = operation.started_ns();
        let shard = self.0.cache.shard(&key);
        let contents = Contents::of(pointer, block);
        shard.insert(key, fingerprint(pointer), contents, now_ns);
    }

    /// A block is about to be written in place. Readers with the earlier pointer still find it as
    /// it was, until [`groups_stored`](Self::groups_stored).
    pub fn keep_rewritten(&self, pointer: &BlockPointer, scope: BlockScope, operation: &Operation) {
        let key = Key::of(self.0.pool, pointer);
        let found = self.0.cache.shard(&key).peek(&key, fingerprint(pointer));
        // A reader that does not find it looks up the pointer once more.
        let contents = found.or_else(|| self.read_unkept(pointer, scope, operation).ok());
        if let Some(contents) = contents {
            self.0.rewritten.keep(pointer, contents);
        }
    }

    /// All groups up to this one are stored: what was written in place within earlier ones is
    /// forgotten as it was before. Readers of the newest one may still be on their
    /// way.
    pub fn groups_stored(&self, txg: Txg) {
        self.0.rewritten.forget_before(txg);
    }

    /// Forgets a block that was freed, or is about to be written in place.
    pub fn forget(&self, pointer: &BlockPointer) {
        if pointer.kind() == PointerKind::Stored {
            let key = Key::of(self.0.pool, pointer);
            self.0.cache.shard(&key).forget(&key);
        }
    }

    /// Forgets everything of this pool, and what was to be prefetched.
    pub fn forget_all(&self) {
        self.0.forget_all();
    }
}

impl PoolView {
    fn forget_all(&self) {
        self.cache.workers.forget_pool(self.pool);
        for shard in &self.cache.shards {
            shard.forget_pool(self.pool);
        }
    }
}

impl Drop for PoolView {
    fn drop(&mut self) {
        self.forget_all();
    }
}

impl std::fmt::Debug for PoolCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolCache({})", self.0.pool)
    }
}

/// The duty to end a flight. Dropped without an answer, it is abandoned.
pub(crate) struct Leader<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) key: Key,
    pub(crate) flight: Arc<Flight>,
}

impl Leader<'_> {
    pub(crate) fn land(&self, answer: Result<Contents, ReadError>, how: Use, now_ns: u64) {
        self.shard
            .land(&self.key, &self.flight, answer, how, now_ns);
    }
}

impl Drop for Leader<'_> {
    /// After a landing this changes nothing.
    fn drop(&mut self) {
        self.shard.abandon(&self.key, &self.flight);
    }
}
