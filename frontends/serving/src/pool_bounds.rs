//! How many threads the sources of one pool hold together.
//!
//! # Problem
//! A pool that does not answer holds every thread that serves a request of it. If many of its
//! mounts are in use it takes all threads there are, and pools that work get none.
//!
//! # Mechanism
//! The sources of a pool count together which of their requests are being served. While these are
//! too many, no other request of the pool is taken: a source that has one gets in line, and epoll
//! does not watch it. A thread that has served a request or releases a source has the first source
//! in line watched again that has a request. Those before it have none any more, and are watched as
//! well.
//!
//! # Invariants
//! - A thread that puts a source in line looks afterwards whether the pool is still full, and a
//!   thread that has served a request counts that before it looks at the line: one of them sees the
//!   other.
//! - The bound is not exact: a thread that is about to take a request is not counted yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The requests of one pool.
#[derive(Debug)]
pub(crate) struct PoolBound {
    threads_max: usize,
    /// Threads that serve them, or send delayed replies.
    busy: AtomicUsize,
    /// Sources that are not watched, each once.
    line: Mutex<VecDeque<u64>>,
    /// How many these are.
    in_line: AtomicUsize,
}

impl PoolBound {
    /// One more request is being served.
    pub fn begin(&self) {
        self.busy.fetch_add(1, Ordering::SeqCst);
    }

    /// One is not any more.
    pub fn end(&self) {
        let before = self.busy.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "each request of a pool that ends was begun");
    }

    /// Whether no other request is to be taken.
    pub fn is_full(&self) -> bool {
        self.busy.load(Ordering::SeqCst) >= self.threads_max
    }

    /// A source gets in line.
    pub fn get_in_line(&self, key: u64) {
        let mut line = self.line();
        if !line.contains(&key) {
            line.push_back(key);
            self.in_line.store(line.len(), Ordering::SeqCst);
        }
    }

    /// Takes the first source out of the line, if there is room for a request of it.
    pub fn next_in_line(&self) -> Option<u64> {
        if self.in_line.load(Ordering::SeqCst) == 0 || self.is_full() {
            return None;
        }
        let mut line = self.line();
        let first = line.pop_front();
        self.in_line.store(line.len(), Ordering::SeqCst);
        first
    }

    fn line(&self) -> MutexGuard<'_, VecDeque<u64>> {
        // A thread that panicked while it held it was adding or taking one.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pools that have sources.
#[derive(Debug)]
pub(crate) struct PoolBounds {
    threads_max: usize,
    known: Mutex<BTreeMap<String, Weak<PoolBound>>>,
}

impl PoolBounds {
    /// None, each of which will have at most about so many threads.
    pub fn new(threads_max: usize) -> PoolBounds {
        assert!(threads_max > 0, "each pool has a thread");
        PoolBounds {
            threads_max,
            known: Mutex::default(),
        }
    }

    /// The pool of this name.
    pub fn find(&self, name: &str) -> Arc<PoolBound> {
        let mut known = self.known();
        if let Some(found) = known.get(name).and_then(Weak::upgrade) {
            return found;
        }
        let pool = Arc::new(PoolBound {
            threads_max: self.threads_max,
            busy: AtomicUsize::new(0),
            line: Mutex::default(),
            in_line: AtomicUsize::new(0),
        });
        known.retain(|_, pool| pool.strong_count() > 0);
        known.insert(name.to_string(), Arc::downgrade(&pool));
        pool
    }

    /// Its sources were abandoned. If it is imported again, the threads that they hold do not
    /// count.
    pub fn forget(&self, pool: &Arc<PoolBound>) {
        let is_it = |other: &Weak<PoolBound>| std::ptr::eq(other.as_ptr(), Arc::as_ptr(pool));
        self.known().retain(|_, other| !is_it(other));
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Weak<PoolBound>>> {
        // A thread that panicked while it held it was adding or removing some.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
