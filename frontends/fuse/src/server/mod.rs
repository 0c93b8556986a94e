//! Served mounts: each is a source of requests for the serving threads.
//!
//! # Mechanism
//! The kernel queues the requests of a mount at its device, from which several threads may read in
//! parallel: each read gives one whole request. [`ServedMount`] has the device and the [`Session`]
//! that answers; [`Server`] finds a mount by its key of the serving threads, for notices to the
//! kernel and for further mounts of the same file system.

pub mod write_back;

use crate::device::Device;
use crate::inbox::Request;
use crate::session::{DelayedReply, Session};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tarn_serving::{Next, ServingThreads, Source, SourceKey, StillServed};

/// A mount: its device and its session.
pub struct ServedMount {
    device: Arc<Device>,
    session: Arc<Session>,
}

impl Source for ServedMount {
    type Request = Request;
    type DelayedReply = DelayedReply;

    fn new_request() -> Request {
        Request::room()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.device.descriptor.as_fd()
    }

    fn take_request(&self, request: &mut Request) -> Next {
        match request.read(&self.device.descriptor) {
            Ok(()) => Next::Request(self.session.traits_of(request)),
            // No request came, or its program was interrupted before it was read.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => Next::Nothing,
            Err(_) => Next::Ended,
        }
    }

    fn serve(&self, request: &mut Request) -> Option<DelayedReply> {
        self.session.serve(request, &self.device)
    }

    fn reply_when_durable(&self, delayed: Vec<DelayedReply>) {
        self.session.reply_when_durable(delayed, &self.device);
    }

    fn gone(&self) {
        self.session.ended();
    }
}

/// The mounts of a daemon, by their keys of the serving threads.
pub struct Server {
    threads: Arc<ServingThreads>,
    mounts: Mutex<Mounts>,
}

/// Mounts by their keys, also some that have gone.
#[derive(Default)]
struct Mounts {
    by_key: BTreeMap<u64, Weak<ServedMount>>,
    /// From so many on, those that have gone are removed: each look takes time for all.
    count_next_look: usize,
}

impl Mounts {
    fn insert(&mut self, key: u64, mount: &Arc<ServedMount>) {
        if self.by_key.len() >= self.count_next_look {
            self.by_key.retain(|_, other| other.strong_count() > 0);
            self.count_next_look = 2 * self.by_key.len() + 16;
        }
        self.by_key.insert(key, Arc::downgrade(mount));
    }

    fn find(&self, key: u64) -> Option<Arc<ServedMount>> {
        self.by_key.get(&key).and_then(Weak::upgrade)
    }
}

impl Server {
    /// A server without mounts, for these serving threads.
    pub fn new(threads: Arc<ServingThreads>) -> Server {
        Server {
            threads,
            mounts: Mutex::default(),
        }
    }

    /// Serves a mount of a pool. The key removes it.
    ///
    /// # Errors
    /// The system cannot watch one more descriptor.
    pub fn add(
        &self,
        descriptor: OwnedFd,
        pool: &str,
        session: Arc<Session>,
    ) -> Result<u64, Errno> {
        let device = Arc::new(Device { descriptor });
        session.begin_notices(&device);
        let mount = Arc::new(ServedMount { device, session });
        let SourceKey(key) = self.threads.add(mount.clone(), pool)?;
        self.mounts().insert(key, &mount);
        Ok(key)
    }

    /// Stops serving a mount, and waits until it has gone: requests under way are finished, others
    /// get an error. If that takes longer than `patience`, its session is told later, as if the
    /// kernel had ended the mount.
    ///
    /// # Errors
    /// [`StillServed`] when it took too long. The caller tries again.
    pub fn remove(&self, key: u64, patience: Duration) -> Result<(), StillServed> {
        self.threads.remove(SourceKey(key), patience)
    }

    /// Stops serving mounts, and waits a moment for requests under way, which are left alone after
    /// that. Returns the mounts that the kernel still has.
    pub fn abandon(&self, keys: &[u64], patience: Duration) -> Vec<u64> {
        let keys: Vec<SourceKey> = keys.iter().copied().map(SourceKey).collect();
        let connected = self.threads.abandon(&keys, patience);
        connected.into_iter().map(|SourceKey(key)| key).collect()
    }

    /// Whether the kernel still has the file system of a served mount: mounted in any namespace, or
    /// with open files.
    pub fn is_connected(&self, key: u64) -> bool {
        self.threads.is_connected(SourceKey(key))
    }

    /// Whether a mount is served, or was removed and has not gone yet.
    pub fn has(&self, key: u64) -> bool {
        self.threads.has(SourceKey(key))
    }

    /// Calls `then` with the device of a served mount.
    pub fn with_device<T>(&self, key: u64, then: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let mount = self.find(key)?;
        Some(then(mount.device.descriptor.as_fd()))
    }

    /// A served mount.
    fn find(&self, key: u64) -> Option<Arc<ServedMount>> {
        let mount = self.mounts().find(key);
        mount.filter(|_| self.threads.is_served(SourceKey(key)))
    }

    fn mounts(&self) -> MutexGuard<'_, Mounts> {
        // A thread that panicked under the lock was adding a mount.
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
