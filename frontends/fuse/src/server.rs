//! The server: all devices, one bounded set of threads.
//!
//! # Mechanism
//! Idle threads wait together at one epoll. A device that has a request wakes one of them, and is not watched until that
//! one has read the request (one shot): so no two threads read for nothing. The thread then watches the device again, and
//! if no other thread is idle and the bound allows, starts one; only then it serves the request, from beginning to end.
//! A request that waits for a disk thus costs a thread and nobody else. Threads that find nothing to do for a while end, down to
//! a few.
//!
//! # Invariants
//! - There is always an idle thread, or the bound is reached: then requests queue in the kernel.
//! - A device is closed when its session is removed and the requests being served are done.

use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::protocol::{Answer, NOTIFY_FORGET_NODE, REQUEST_BYTES_MAX, notice_head, reply_head};

/// Most threads that serve requests. Waiting for disks takes threads, not processors; a guess, above the queue
/// depth of most pools.
const THREADS_MAX: usize = 64;

/// Threads that stay when there is nothing to do.
const THREADS_MIN: usize = 2;

/// How long a thread beyond those waits before it ends.
const IDLE_MAX: rustix::time::Timespec = rustix::time::Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// What serves the requests of one mount.
pub trait Handler: Send + Sync {
    /// Serves one request, and replies to it.
    fn serve(&self, request: &[u8], device: &Device);

    /// The kernel has ended the mount.
    fn ended(&self);
}

/// The device of one mount.
#[derive(Debug)]
pub struct Device {
    descriptor: OwnedFd,
}

impl Device {
    /// Replies with these parts. An error of the write means that the caller is gone, or the mount is, and nobody
    /// is left to tell.
    pub fn reply(&self, unique: u64, parts: &[&[u8]]) {
        let body = parts.iter().map(|part| part.len()).sum();
        let head = reply_head(unique, None, body);
        let mut slices = Vec::with_capacity(parts.len() + 1);
        slices.push(IoSlice::new(&head));
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        let _ = rustix::io::writev(&self.descriptor, &slices);
    }

    /// Tells the kernel that the attributes of a node are others than it has cached. Its contents stay.
    pub fn forget_attributes(&self, node: u64) {
        let mut body = Answer::new();
        // An offset below zero: no contents.
        body.u64(node).u64(u64::MAX).u64(0);
        let head = notice_head(NOTIFY_FORGET_NODE, body.len());
        let slices = [IoSlice::new(&head), IoSlice::new(body.as_slice())];
        // A node that the kernel does not know any more is an error, and as good.
        let _ = rustix::io::writev(&self.descriptor, &slices);
    }

    /// Refuses.
    pub fn refuse(&self, unique: u64, errno: Errno) {
        let head = reply_head(unique, Some(errno), 0);
        let _ = rustix::io::write(&self.descriptor, &head);
    }
}

/// A mount that is served.
struct Served {
    device: Device,
    handler: Arc<dyn Handler>,
}

/// Serves all mounts of a daemon.
pub struct Server {
    epoll: OwnedFd,
    served: Mutex<BTreeMap<u64, Arc<Served>>>,
    next_key: AtomicU64,
    threads: AtomicUsize,
    idle: AtomicUsize,
    stopping: AtomicBool,
    itself: Weak<Server>,
}

impl Server {
    /// A server without mounts.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new() -> Result<Arc<Server>, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Arc::new_cyclic(|itself| Server {
            epoll,
            served: Mutex::new(BTreeMap::new()),
            next_key: AtomicU64::new(1),
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            itself: itself.clone(),
        }))
    }

    /// Serves a mount from now on. The key removes it.
    ///
    /// # Errors
    /// When the system cannot watch one more descriptor.
    pub fn add(&self, descriptor: OwnedFd, handler: Arc<dyn Handler>) -> Result<u64, Errno> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let served = Arc::new(Served {
            device: Device { descriptor },
            handler,
        });
        self.table().insert(key, served.clone());
        let watched = epoll::add(
            &self.epoll,
            &served.device.descriptor,
            epoll::EventData::new_u64(key),
            epoll::EventFlags::IN | epoll::EventFlags::ONESHOT,
        );
        if let Err(errno) = watched {
            self.table().remove(&key);
            return Err(errno);
        }
        self.start_thread_if_none_is_idle();
        Ok(key)
    }

    /// Serves a mount no longer. Requests being served are finished.
    pub fn remove(&self, key: u64) {
        let removed = self.table().remove(&key);
        if let Some(served) = removed {
            let _ = epoll::delete(&self.epoll, &served.device.descriptor);
        }
    }

    /// Lets threads end when they are idle next.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Served>>> {
        // A thread that panicked while it held the table was inserting or removing one entry.
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread_if_none_is_idle(&self) {
        if self.idle.load(Ordering::Acquire) > 0 {
            return;
        }
        let count = self.threads.fetch_add(1, Ordering::AcqRel);
        if count >= THREADS_MAX {
            self.threads.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let Some(server) = self.itself.upgrade() else {
            return;
        };
        let started = std::thread::Builder::new()
            .name("fuse".to_string())
            .spawn(move || server.run_thread());
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The life of a thread: wait, read, watch again, serve.
    fn run_thread(&self) {
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        while let Some(key) = self.wait() {
            let Some(served) = self.table().get(&key).cloned() else {
                continue;
            };
            match rustix::io::read(&served.device.descriptor, &mut buffer[..]) {
                Ok(length) => {
                    self.watch(key, &served);
                    self.start_thread_if_none_is_idle();
                    served.handler.serve(&buffer[..length], &served.device);
                }
                // The request was taken back before it was read.
                Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => self.watch(key, &served),
                Err(_) => {
                    self.remove(key);
                    served.handler.ended();
                }
            }
        }
        self.threads.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits for a device that has a request. None when this thread is not needed any more.
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
            match epoll::wait(&self.epoll, &mut events[..], Some(&IDLE_MAX)) {
                Ok(0) if self.threads.load(Ordering::Acquire) > THREADS_MIN => break None,
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break Some(events[0].data.u64()),
                Err(_) => break None,
            }
        };
        self.idle.fetch_sub(1, Ordering::AcqRel);
        woken
    }

    /// Watches a device again.
    fn watch(&self, key: u64, served: &Served) {
        let _ = epoll::modify(
            &self.epoll,
            &served.device.descriptor,
            epoll::EventData::new_u64(key),
            epoll::EventFlags::IN | epoll::EventFlags::ONESHOT,
        );
    }
}
