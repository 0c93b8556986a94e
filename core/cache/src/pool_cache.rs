//! The cache as one pool uses it: both levels, and the pool behind them.

use crate::cache::{Cache, Hint, Leader};
use crate::contents::Contents;
use crate::key::{Key, fingerprint};
use crate::ranks::FEEDER;
use crate::rewritten::Rewritten;
use crate::second_level::{Feeder, Fresh, SecondLevel, SecondLevelUse};
use crate::shard::Answer;
use crate::single_flight::{Flight, Landing};
use crate::workers::Job;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tarn_block::{Block, BlockIo, BlockScope, ReadError, ReadRequest};
use tarn_host::Host;
use tarn_host::lock::Mutex;
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::units::{Guid, ObjectId, Txg};
use tarn_probe::{Operation, Outcome, Stage};
use tarn_vdev::CacheDevice;

/// The cache, as one pool uses it. When the last copy is dropped, the pool's blocks are forgotten.
#[derive(Clone)]
pub struct PoolCache(Arc<PoolView>);

struct PoolView {
    cache: Arc<Cache>,
    pool: u64,
    io: Arc<BlockIo>,
    rewritten: Rewritten,
    second: Arc<SecondLevel>,
    feeder: Mutex<Option<Feeder>>,
}

impl PoolCache {
    /// For a pool whose blocks are read by `io`.
    pub fn new(cache: Arc<Cache>, io: Arc<BlockIo>) -> PoolCache {
        /// Pools are numbered as they are opened: blocks of an earlier import are strangers.
        static POOLS: AtomicU64 = AtomicU64::new(1);
        let pool = POOLS.fetch_add(1, Ordering::Relaxed);
        let second = Arc::new(SecondLevel::new(pool, &cache, &io));
        PoolCache(Arc::new(PoolView {
            cache,
            pool,
            io,
            rewritten: Rewritten::new(),
            second,
            feeder: Mutex::new(FEEDER, None),
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
        if hint.passes()
            && let Some(block) = self.0.cache.shard(&key).pass(&key)
        {
            self.0.second.offer(block);
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
            let flight = match shard.find(&key, fingerprint, hint.how(), now_ns) {
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

    /// Reads a block that the first level does not have.
    fn read_missed(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        operation: &Operation,
    ) -> Result<Contents, ReadError> {
        match self.0.second.read(pointer, scope, operation) {
            Some(block) => Ok(Contents::of(pointer, block)),
            None => self.read_unkept(pointer, scope, operation),
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
        let answer = self.read_missed(pointer, scope, operation);
        let origin = self.0.second.origin_of(pointer, scope);
        leader.land(answer.clone(), origin, (hint.how(), operation.started_ns()));
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
                .find(&key, fingerprint(pointer), hint.how(), 0);
            match found {
                Answer::Hit(..) => cache.probes.hit(scope.kind, hint, false),
                Answer::Join(_) => cache.probes.joined(scope.kind, hint),
                Answer::Lead(flight, memory) => {
                    cache.probes.miss(scope.kind, hint, memory);
                    let origin = self.0.second.origin_of(pointer, *scope);
                    job.add(ReadRequest::plain(*pointer, *scope), key, flight, origin);
                }
                Answer::Stranger => {}
            }
        }
        cache.take(job);
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
    pub fn insert(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        block: Block,
        operation: &Operation,
    ) {
        if pointer.kind() != PointerKind::Stored {
            return;
        }
        let key = Key::of(self.0.pool, pointer);
        let now_ns = operation.started_ns();
        let shard = self.0.cache.shard(&key);
        let contents = Contents::of(pointer, block);
        let origin = self.0.second.origin_of(pointer, scope);
        shard.insert(key, fingerprint(pointer), contents, origin, now_ns);
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
        self.0.second.note_stored(txg);
    }

    /// Forgets a block that was freed, or is about to be written in place.
    pub fn forget(&self, pointer: &BlockPointer) {
        if pointer.kind() == PointerKind::Stored {
            let key = Key::of(self.0.pool, pointer);
            self.0.cache.shard(&key).forget(&key);
            self.0.second.forget(&key);
        }
    }

    /// Sets which blocks of an object set may enter the second level.
    pub fn use_second_level(&self, objset: ObjectId, used: SecondLevelUse) {
        self.0.second.eligibilities().set(objset, used);
    }

    /// The guid of the pool, which cache devices name. Known before they join.
    pub fn set_pool_guid(&self, guid: Guid) {
        self.0.second.set_pool_guid(guid);
    }

    /// Takes a cache device in. Unless it is new, its contents are found by a thread; those of
    /// later txgs than the newest stored one are not. A device that is not open is passed over.
    #[doc(alias = "l2arc_add_vdev")]
    pub fn add_cache_device(
        &self,
        host: &Host,
        device: &Arc<CacheDevice>,
        is_new: bool,
        operation: &Operation,
    ) {
        let fresh = match is_new {
            true => Fresh::Empty,
            false => Fresh::Stored,
        };
        self.0.second.join(device, fresh, operation);
        let feeds = self.0.io.vdevs().is_writable();
        let mut feeder = self.0.feeder.lock();
        let feeder =
            feeder.get_or_insert_with(|| Feeder::start(host, self.0.second.clone(), feeds));
        feeder.wake();
    }

    /// Forgets what is on a cache device, after what is being written to it.
    #[doc(alias = "l2arc_remove_vdev")]
    pub fn remove_cache_device(&self, guid: Guid) {
        self.0.second.leave(guid);
    }

    /// Writes one round to a cache device, as the thread does time and again. Gives how many bytes.
    pub fn feed(&self, operation: &Operation) -> u64 {
        self.0.second.feed(operation).written
    }

    /// Finds the contents of cache devices that were added and are not new, as the thread does.
    #[doc(alias = "l2arc_rebuild")]
    pub fn rebuild(&self, operation: &Operation) {
        self.0.second.rebuild_waiting(operation);
    }

    /// Ends the thread that writes to cache devices, after what it is writing.
    #[doc(alias = "l2arc_stop")]
    pub fn stop_feeding(&self) {
        drop(self.0.feeder.lock().take());
    }

    /// Forgets everything of this pool, and what was to be prefetched.
    pub fn forget_all(&self) {
        self.0.forget_all();
    }
}

impl PoolView {
    fn forget_all(&self) {
        if self.second.is_used() {
            self.second.leave_all();
        }
        self.cache.forget_pool(self.pool);
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
