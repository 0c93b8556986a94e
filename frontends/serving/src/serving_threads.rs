//! The threads: they wait together for all sources, begin when none is idle, and end when too many
//! are.

use crate::awake_processors::{AwakeProcessors, QUIET};
use crate::ownership;
use crate::pool_bounds::PoolBounds;
use crate::registered::Registered;
use crate::source::{AnySource, Source};
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tarn_engine::files::call_before_waits;

/// Most threads that serve requests. Waiting for disks takes threads, not processors; a guess: some
/// mounts of pools that do not answer leave enough for the others.
const THREADS_MAX: usize = 512;

/// About as many threads serve the sources of one pool at most: so one that does not answer leaves
/// as many to the others.
const THREADS_OF_POOL: usize = THREADS_MAX / 2;

/// Threads that stay when there is nothing to do.
const THREADS_MIN: usize = 2;

/// How long a thread beyond those waits before it ends.
const IDLE_MAX: rustix::time::Timespec = rustix::time::Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

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
    threads: AtomicUsize,
    idle: AtomicUsize,
    /// Threads that are held by abandoned sources.
    pub(crate) lost: AtomicUsize,
    stopping: AtomicBool,
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
    /// reach several pools gives a name of its own for all of them.
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
            ownership::watched_for(&registered),
        );
        if let Err(errno) = watched {
            self.sources().remove(&key);
            return Err(errno);
        }
        self.start_thread_if_none_is_idle();
        Ok(SourceKey(key))
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

    /// The life of a thread: wait, and serve what comes.
    fn run_thread(self: &Arc<Self>) {
        call_before_waits(ownership::release_before_wait);
        let mut places = RequestPlaces::default();
        while let Some(key) = self.wait() {
            let Some(registered) = self.find(key) else {
                continue;
            };
            // Not this thread's if threads that had replied were faster.
            if registered.own(self.owners_max_of(&registered)) {
                match registered.pool.is_full() {
                    true => self.release(&registered),
                    false => {
                        let request = places.of(&*registered.source);
                        self.serve_owned(&registered, request);
                    }
                }
            }
        }
        let before = self.threads.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "each serving thread is counted");
    }

    /// Waits for a source that has a request. None when this thread is not needed any more.
    fn wait(&self) -> Option<u64> {
        self.idle.fetch_add(1, Ordering::AcqRel);
        let woken = loop {
            if self.stopping.load(Ordering::Relaxed) {
                break None;
            }
            let mut events = [epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            }];
            let watches = self.processors.begin_watch();
            let limit = if watches { &QUIET } else { &IDLE_MAX };
            let waited = epoll::wait(&self.epoll, &mut events[..], Some(limit));
            if watches {
                if waited == Ok(0) {
                    self.processors.unless_used();
                }
                self.processors.end_watch();
            }
            match waited {
                Ok(0) if watches => {}
                Ok(0) if self.threads.load(Ordering::Acquire) > THREADS_MIN => break None,
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break Some(events[0].data.u64()),
                Err(_) => break None,
            }
        };
        self.idle.fetch_sub(1, Ordering::AcqRel);
        woken
    }
}

/// What a thread reads requests into: one place for each kind of source.
#[derive(Default)]
struct RequestPlaces {
    places: Vec<Box<dyn Any + Send>>,
}

impl RequestPlaces {
    fn of(&mut self, source: &dyn AnySource) -> &mut dyn Any {
        let is_it = |place: &Box<dyn Any + Send>| source.is_place_for_requests(&**place);
        let at = self.places.iter().position(is_it).unwrap_or_else(|| {
            self.places.push(source.new_request());
            self.places.len() - 1
        });
        &mut *self.places[at]
    }
}
