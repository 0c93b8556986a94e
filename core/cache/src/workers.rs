//! The prefetch threads.
//!
//! # Mechanism
//! A job is a batch of blocks, each with its flight already in its shard. Workers take jobs in
//! order and read those blocks that no caller has begun to read meanwhile, as one batch of the
//! devices. Blocks that were freed while they waited are left out.
//!
//! # Invariants
//! - The queue is bounded in blocks. What does not fit is abandoned, which costs only its reader.
//! - Every flight of a job ends, whatever becomes of the job.

use crate::adaptive::Use;
use crate::cache::{Cache, Leader};
use crate::contents::Contents;
use crate::key::Key;
use crate::ranks;
use crate::shard::Origin;
use crate::single_flight::Flight;
use std::collections::VecDeque;
use std::sync::Arc;
use tarn_block::{BlockIo, ReadRequest};
use tarn_host::Host;
use tarn_host::lock::{Condvar, Mutex};
use tarn_probe::{DatasetId, Operation, OperationKind, What, Who};

/// How many blocks may wait: as many as a walk over all metadata prefetches at a time, and some
/// windows of readers.
const QUEUE_BLOCKS_MAX: usize = PREFETCH_BLOCKS_MAX + 4096;
/// A caller prefetches no more blocks at a time.
pub const PREFETCH_BLOCKS_MAX: usize = 32 << 10;
/// How many bytes one batch reads.
const BATCH_BYTES: u64 = 8 << 20;

/// Blocks of one pool to be read.
pub(crate) struct Job {
    cache: Arc<Cache>,
    io: Arc<BlockIo>,
    pool: u64,
    /// When its blocks were looked up, in nanoseconds of the host's clock.
    looked_up_ns: u64,
    blocks: VecDeque<Wanted>,
}

/// A block to be read: what for, its flight, and its origin if it may enter the second level.
type Wanted = (ReadRequest, Key, Arc<Flight>, Option<Arc<Origin>>);

impl Job {
    pub(crate) fn new(cache: Arc<Cache>, io: Arc<BlockIo>, pool: u64, looked_up_ns: u64) -> Job {
        Job {
            cache,
            io,
            pool,
            looked_up_ns,
            blocks: VecDeque::new(),
        }
    }

    pub(crate) fn add(
        &mut self,
        request: ReadRequest,
        key: Key,
        flight: Arc<Flight>,
        origin: Option<Arc<Origin>>,
    ) {
        self.blocks.push_back((request, key, flight, origin));
    }

    /// Reads everything that has no leader yet.
    fn run(mut self, clock: tarn_probe::Clock) {
        let what = What::plain(OperationKind::Prefetch, DatasetId::NONE, 0);
        let operation = Operation::begun_at(clock, self.looked_up_ns, Who::INTERNAL, what);
        while !self.blocks.is_empty() {
            let batch = self.take_batch();
            let cache = self.cache.clone();
            let led: Vec<(ReadRequest, Leader<'_>, Option<Arc<Origin>>)> = batch
                .into_iter()
                .filter(|(_, _, flight, _)| flight.try_lead())
                .filter(|(_, key, flight, _)| {
                    let is_wanted = !flight.is_stale();
                    if !is_wanted {
                        cache.shard(key).abandon(key, flight);
                    }
                    is_wanted
                })
                .map(|(request, key, flight, origin)| {
                    let shard = cache.shard(&key);
                    (request, Leader { shard, key, flight }, origin)
                })
                .collect();
            let requests: Vec<ReadRequest> = led.iter().map(|(request, ..)| *request).collect();
            let answers = self.io.read_many(&requests, &operation);
            for ((request, leader, origin), answer) in led.into_iter().zip(answers) {
                let contents = answer.map(|block| Contents::of(&request.pointer, block));
                leader.land(contents, origin, (Use::Prefetch, operation.started_ns()));
            }
        }
    }

    fn take_batch(&mut self) -> Vec<Wanted> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES
            && let Some(block) = self.blocks.pop_front()
        {
            bytes += block.0.pointer.logical_size().get();
            batch.push(block);
        }
        assert!(!batch.is_empty(), "a job that has blocks reads some");
        batch
    }
}

impl Drop for Job {
    /// What was not read has no leader, or another one.
    fn drop(&mut self) {
        for (_, key, flight, _) in self.blocks.drain(..) {
            if flight.try_lead() {
                self.cache.shard(&key).abandon(&key, &flight);
            }
        }
    }
}

/// See the module. Threads are started with the first job.
pub(crate) struct Workers {
    host: Host,
    threads_max: usize,
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    blocks: usize,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl Workers {
    pub(crate) fn new(host: &Host, threads_max: usize) -> Workers {
        Workers {
            host: host.clone(),
            threads_max,
            shared: Arc::new(Shared {
                queue: Mutex::new(ranks::QUEUE, Queue::default()),
                work: Condvar::new(),
            }),
        }
    }

    /// Takes a job, unless there is too much to do.
    pub(crate) fn take(&self, job: Job) {
        let count = job.blocks.len();
        if count == 0 {
            return;
        }
        let mut queue = self.shared.queue.lock();
        if self.threads_max == 0 || queue.blocks + count > QUEUE_BLOCKS_MAX {
            drop(queue);
            let dropped = u64::try_from(count).expect("a count fits 64 bits");
            job.cache.probes.prefetch_dropped.add(dropped);
            return;
        }
        queue.blocks += count;
        queue.jobs.push_back(job);
        let needs_thread = queue.jobs.len() > queue.idle && queue.threads < self.threads_max;
        queue.threads += usize::from(needs_thread);
        drop(queue);
        self.shared.work.notify_one();
        if needs_thread {
            let shared = self.shared.clone();
            let clock = tarn_host::monotonic_ns;
            self.host.spawn("tarn-prefetch", move || shared.work(clock));
        }
    }

    /// Drops the jobs of a pool that were not begun.
    pub(crate) fn forget_pool(&self, pool: u64) {
        let mut queue = self.shared.queue.lock();
        let (dropped, kept): (VecDeque<Job>, VecDeque<Job>) =
            queue.jobs.drain(..).partition(|job| job.pool == pool);
        queue.jobs = kept;
        queue.blocks -= dropped.iter().map(|job| job.blocks.len()).sum::<usize>();
        drop(queue);
        drop(dropped);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_closed = true;
        drop(queue);
        self.shared.work.notify_all();
    }
}

impl Shared {
    /// The life of a thread.
    fn work(&self, clock: tarn_probe::Clock) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.blocks -= job.blocks.len();
                drop(queue);
                job.run(clock);
                queue = self.queue.lock();
                continue;
            }
            if queue.is_closed {
                return;
            }
            queue.idle += 1;
            self.work.wait(&mut queue);
            queue.idle -= 1;
        }
    }
}
