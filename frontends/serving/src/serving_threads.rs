//! The threads of a daemon and the sources that they serve: registering sources, and starting a
//! thread when none is idle.

use crate::awake_processors::AwakeProcessors;
use crate::pool_bounds::PoolBounds;
use crate::registered::Registered;
use crate::source::Source;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Most threads that serve requests. Waiting for disks takes threads, not processors; a guess: some
/// mounts of pools that do not answer leave enough for the others.
const THREADS_MAX: usize = 512;

/// About as many threads serve the sources of one pool at most: so one that does not answer leaves
/// as many to the others.
const THREADS_OF_POOL: usize = THREADS_MAX / 2;

/// Sources by their keys.
pub(crate) type Sources = BTreeMap<u64, Arc<Registered>>;

/// The number of a source, which no other source of the same threads had or will have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(pub u64);

/// The threads that serve all sources of a daemon.
pub struct ServingThreads {
    pub(crate) epoll: OwnedFd,
    sources: Mutex<Sources>,
    /// Those that were removed and have not gone yet.
    leaving: Mutex<Sources>,
    next_key: AtomicU64,
    pub(crate) threads: AtomicUsize,
    pub(crate) idle: AtomicUsize,
    /// Threads that are held by abandoned sources.
    pub(crate) lost: AtomicUsize,
    pub(crate) stopping: AtomicBool,
    /// There is a second processor for clients.
    pub(crate) can_linger: bool,
    /// Most threads that own a source together.
    pub(crate) owners_max: usize,
    pub(crate) pools: PoolBounds,
    pub(crate) processors: AwakeProcessors,
    itself: Weak<ServingThreads>,
}

impl ServingThreads {
    /// Threads without sources.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new(processors: AwakeProcessors) -> Result<Arc<ServingThreads>, Errno> {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        ServingThreads::with_processors(processors, count)
    }

    /// Threads on a machine with so many processors.
    pub(crate) fn with_processors(
        processors: AwakeProcessors,
        count: usize,
    ) -> Result<Arc<ServingThreads>, Errno> {
        ServingThreads::with_bound(processors, count, THREADS_OF_POOL)
    }

    /// The same, where a pool has so many threads.
    pub(crate) fn with_bound(
        processors: AwakeProcessors,
        count: usize,
        threads_of_pool: usize,
    ) -> Result<Arc<ServingThreads>, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Arc::new_cyclic(|itself| ServingThreads {
            epoll,
            sources: Mutex::default(),
            leaving: Mutex::default(),
            next_key: AtomicU64::new(1),
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            can_linger: count > 1,
            owners_max: (count / 2).max(1),
            pools: PoolBounds::new(threads_of_pool),
            processors,
            itself: itself.clone(),
        }))
    }

    /// Serves a source from now on. Its requests count for this pool; a front end whose connections
    /// reach several pools gives a name of its own for all of them, until it knows the pool of one
    /// ([`count_for`](Self::count_for)).
    ///
    /// # Errors
    /// When the system cannot watch one more descriptor.
    pub fn add<S: Source>(&self, source: Arc<S>, pool: &str) -> Result<SourceKey, Errno> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let registered = Arc::new(Registered::new(key, source, self.pools.find(pool)));
        self.sources().insert(key, registered.clone());
        let watched = epoll::add(
            &self.epoll,
            registered.source.descriptor(),
            epoll::EventData::new_u64(key),
            registered.announcements(),
        );
        if let Err(errno) = watched {
            self.sources().remove(&key);
            return Err(errno);
        }
        self.start_thread_if_none_is_idle();
        Ok(SourceKey(key))
    }

    /// Has the requests of a source count for another pool.
    pub fn count_for(&self, key: SourceKey, pool: &str) {
        let Some(registered) = self.find(key.0) else {
            return;
        };
        let before = registered.pool();
        registered.count_for(self.pools.find(pool));
        // There may be room now for others.
        self.watch_next(&before);
    }

    /// Whether a source is served and its other end still there.
    pub fn is_connected(&self, key: SourceKey) -> bool {
        let registered = self.find(key.0);
        registered.is_some_and(|registered| registered.is_connected())
    }

    /// Whether a source is served: it was not removed.
    pub fn is_served(&self, key: SourceKey) -> bool {
        self.sources().contains_key(&key.0)
    }

    /// Whether a source is served, or was removed and has not gone yet.
    pub fn has(&self, key: SourceKey) -> bool {
        self.is_served(key) || self.leaving().contains_key(&key.0)
    }

    /// Lets threads end when they are idle next.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// A source that is served.
    pub(crate) fn find(&self, key: u64) -> Option<Arc<Registered>> {
        self.sources().get(&key).cloned()
    }

    pub(crate) fn sources(&self) -> MutexGuard<'_, Sources> {
        // A thread that panicked while it held the table was inserting or removing one entry.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Taken when nothing else is held, or the table of sources.
    pub(crate) fn leaving(&self) -> MutexGuard<'_, Sources> {
        // As with the table.
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn start_thread_if_none_is_idle(&self) {
        if self.idle.load(Ordering::Acquire) > 0 {
            return;
        }
        let count = self.threads.fetch_add(1, Ordering::AcqRel);
        if count >= THREADS_MAX + self.lost.load(Ordering::Acquire) {
            self.threads.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let Some(threads) = self.itself.upgrade() else {
            self.threads.fetch_sub(1, Ordering::AcqRel);
            return;
        };
        let started = std::thread::Builder::new()
            .name("serving".to_string())
            .spawn(move || threads.run_thread());
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
