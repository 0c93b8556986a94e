//! Delegations that are to be returned, and clients that are to be called for them.
//!
//! # Mechanism
//! An operation that finds a file delegated puts it here, in any thread and under any lock. One
//! thread takes what is here; others call clients, each client in one of them.
//!
//! # Bounds
//! Each file is here once, and each client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use tarn_engine::files::ObjectId;

/// What is asked for; of shares of a kind.
pub(crate) struct RecallQueue<S> {
    queue: Mutex<Asked<S>>,
    came: Condvar,
    callers: Mutex<Callers>,
}

/// What is taken at once.
pub(crate) struct Asked<S> {
    /// Files by the addresses of their shares.
    pub(crate) files: BTreeMap<(usize, ObjectId), Weak<S>>,
    /// Clients that are to be called for another reason: there is a new way to them.
    pub(crate) clients: BTreeSet<u64>,
    /// The server ends.
    is_over: bool,
}

/// Clients that are to be called, and those that are being called.
#[derive(Default)]
pub(crate) struct Callers {
    pub(crate) due: BTreeSet<u64>,
    pub(crate) running: BTreeSet<u64>,
}

impl<S> Default for Asked<S> {
    fn default() -> Asked<S> {
        Asked {
            files: BTreeMap::new(),
            clients: BTreeSet::new(),
            is_over: false,
        }
    }
}

impl<S> Default for RecallQueue<S> {
    fn default() -> RecallQueue<S> {
        RecallQueue {
            queue: Mutex::default(),
            came: Condvar::new(),
            callers: Mutex::default(),
        }
    }
}

impl<S> RecallQueue<S> {
    fn queue(&self) -> MutexGuard<'_, Asked<S>> {
        // A thread that panicked under the lock was adding or taking one entry.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clients that are being called.
    pub(crate) fn callers(&self) -> MutexGuard<'_, Callers> {
        // As above.
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A delegated file is to be returned.
    pub(crate) fn ask_for(&self, shared: Weak<S>, file: ObjectId) {
        let at = (shared.as_ptr().addr(), file);
        self.queue().files.insert(at, shared);
        self.came.notify_one();
    }

    /// There is a new way to a client.
    pub(crate) fn call(&self, client: u64) {
        self.queue().clients.insert(client);
        self.came.notify_one();
    }

    /// The server ends.
    pub(crate) fn end(&self) {
        self.queue().is_over = true;
        self.came.notify_all();
    }

    /// What is asked for, when something is. None at the end.
    pub(crate) fn next(&self) -> Option<Asked<S>> {
        let queue = self.queue();
        let is_idle = |queue: &mut Asked<S>| {
            queue.files.is_empty() && queue.clients.is_empty() && !queue.is_over
        };
        let queue = self.came.wait_while(queue, is_idle);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        match queue.is_over {
            true => None,
            false => Some(std::mem::take(&mut *queue)),
        }
    }
}

impl Callers {
    /// A client that is to be called and is not being called.
    pub(crate) fn take(&mut self) -> Option<u64> {
        let client = *self.due.difference(&self.running).next()?;
        self.due.remove(&client);
        self.running.insert(client);
        Some(client)
    }
}
