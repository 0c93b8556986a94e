//! The server: all devices, one bounded set of threads.
//!
//! # Problem
//! A program that asks one thing after the other waits for each answer, and waking a thread takes longer than most
//! requests. But a request that waits for a disk must not keep others waiting, and thousands of mounts must not have threads
//! of their own.
//!
//! # Mechanism
//! Idle threads wait together at one epoll. A device that has a request wakes one of them, which then owns the device: the
//! epoll does not watch it (one shot). The owner reads a request and serves it, from beginning to end. It lets the device go,
//! so that it is watched again and another thread serves what comes, as soon as
//! - it is about to wait, for whatever it be: [`call_before_waits`] tells;
//! - the request moves many bytes: others can use more processors.
//!
//! After the reply it takes the device back, if nobody else has taken it, and looks for the next request for [`LINGER_MAX`] before it
//! lets go. Devices on which that finds nothing are let alone for a while.
//!
//! Where several requests in a row were waiting already, several programs ask, and one thread is not enough. Handing each request to another thread would cost more than
//! serving it, so the owner invites another to own the device with it: each reads and serves on its own, up to half of the processors (those who ask need the rest), and
//! leaves as soon as it finds nothing.
//!
//! Threads that find nothing to do for a while end, down to a few.
//!
//! A request that has to be durable is carried out, and its answer is promised ([`Promise`]). While more such requests are there the owner goes on
//! with them, up to [`PROMISES_MAX`], and keeps all promises at once: one write to the log for all of them. If it is about to wait meanwhile, another thread
//! keeps what it has promised so far.
//!
//! # Invariants
//! - A device is watched, or at least one thread owns it, which will let it go; or it is not watched until fewer requests of its mount, or of its pool,
//!   are being served.
//! - When a device is let go there is an idle thread, or the bound is reached: then requests queue in the kernel.
//! - A promise is kept before its thread waits for requests or carries out one that makes none.
//! - Of a mount that was removed no request is read. It has gone when no thread holds a request of it, carries one out or keeps a promise of it:
//!   before that nobody may take the file system for his own. Then its device is closed, and whoever waits for an answer gets an error.
//! - One mount has at most [`THREADS_OF_MOUNT`] threads that wait, and all of a pool have about [`THREADS_OF_POOL`] (`pools`); beyond that
//!   requests queue in the kernel. So a pool that does not answer leaves threads to the others. Those that are still held when its mounts are abandoned count no more.

pub mod write_back;

use rustix::event::{self, PollFd, PollFlags, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tarn_engine::files::call_before_waits;

use crate::awake::{AwakeProcessors, QUIET};
use crate::device::Device;
use crate::inbox::Request;
use crate::pools::{Pool, Pools};

/// Most threads that serve requests. Waiting for disks takes threads, not processors; a guess: some mounts of pools that do not answer
/// leave enough for the others.
const THREADS_MAX: usize = 512;

/// Most threads that serve one mount. A guess, above the queue depth of most pools.
const THREADS_OF_MOUNT: usize = 64;

/// About as many threads serve the mounts of one pool at most: so one that does not answer leaves as many to the others.
const THREADS_OF_POOL: usize = THREADS_MAX / 2;

/// Threads that stay when there is nothing to do.
const THREADS_MIN: usize = 2;

/// How long a thread beyond those waits before it ends.
const IDLE_MAX: rustix::time::Timespec = rustix::time::Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// How long a thread that has replied looks for the next request. As long as it takes to put a thread to sleep and wake it
/// again, on the machines this was measured on: so looking in vain costs at most twice.
const LINGER_MAX: Duration = Duration::from_micros(50);

/// Pauses between two looks: some microsecond, so that looking keeps neither the kernel's queue from those who send requests nor the
/// processor from a sibling thread.
const SPINS: u32 = 20;

/// After looking in vain so often in a row, a thread looks again only after one reply in [`PATIENCE`].
const PATIENCE: u32 = 8;

/// So many requests in a row that need not be waited for show that several programs ask.
const CROWD: u32 = 8;

/// Most requests that are carried out before what they promised is kept. A guess: each makes the others wait for some ten microseconds.
const PROMISES_MAX: usize = 32;

/// How often is looked whether a mount that was removed has gone. A guess: longer than a thread lingers, and not felt by who unmounts.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// What its handler knows of a request that was carried out, and is answered when what it did is durable.
pub type Promise = Box<dyn Any + Send>;

/// What serves the requests of one mount.
pub trait Handler: Send + Sync {
    /// Whether serving this request takes long, though it wait for nothing.
    fn is_long(&self, request: &Request) -> bool;

    /// Whether somebody waits for the answer to this request before he asks for more.
    fn is_waited_for(&self, request: &Request) -> bool;

    /// Whether serving this request may leave a promise.
    fn may_promise(&self, request: &Request) -> bool;

    /// Serves one request, and replies to it or promises to.
    fn serve(&self, request: &mut Request, device: &Device) -> Option<Promise>;

    /// Waits for what these promises of its own are about, and replies.
    fn keep(&self, promises: Vec<Promise>, device: &Device);

    /// The kernel has ended the mount.
    fn ended(&self);

    /// Nodes of the files that programs may have mapped, to store into them.
    fn mapped_nodes(&self) -> Vec<u64>;

    /// How many requests so far were the kernel's own, to write back what programs stored into
    /// mapped files.
    fn pages_written(&self) -> u64;

    /// Why the last of those that was refused since this was asked before was; none where none was.
    fn take_refusal(&self) -> Option<Errno>;

    /// Has the kernel forget what it keeps and follows from properties of the file system.
    fn properties_changed(&self, device: &Device);

    /// Has the kernel forget what was not stored when it was told, and is now.
    fn group_stored(&self, device: &Device);
}

/// A mount that is served.
struct Served {
    key: u64,
    device: Device,
    handler: Arc<dyn Handler>,
    pool: Arc<Pool>,
    /// Threads that own the device.
    owners: AtomicUsize,
    /// Threads that serve requests, or keep promises.
    busy: AtomicUsize,
    /// Promises of a thread that waits, until another has them.
    given_up: Mutex<Vec<Promise>>,
    /// Nobody watches the device: too many are being served.
    is_choked: AtomicBool,
    /// Threads that read its requests, or have one that they read.
    at_hand: AtomicUsize,
    /// No request of it is to be read any more. Whoever reads has counted himself in `at_hand` before he looks here, and who waits until nobody
    /// is there has set this before: one of them sees the other.
    is_removed: AtomicBool,
    /// Nobody waits any more for those who serve it.
    is_abandoned: AtomicBool,
    /// How often in a row nothing came while a thread lingered.
    in_vain: AtomicU32,
    /// How many requests in a row were there at once.
    at_once: AtomicU32,
    /// The handler is to be told when it has gone.
    is_to_tell: AtomicBool,
}

impl Served {
    /// Takes the device, unless so many others have it.
    fn own(&self, most: usize) -> bool {
        let more = |owners| (owners < most).then_some(owners + 1);
        let taken = self
            .owners
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.is_ok()
    }

    /// Leaves the device to the others who own it. False when there are none.
    fn leave_to_others(&self) -> bool {
        let fewer = |owners| (owners > 1).then(|| owners - 1);
        let left = self
            .owners
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
        left.is_ok()
    }

    /// Reads the next request, unless the mount was removed.
    fn read(&self, request: &mut Request) -> Result<(), Errno> {
        match self.is_removed.load(Ordering::SeqCst) {
            true => Err(Errno::NODEV),
            false => request.read(&self.device.descriptor),
        }
    }

    /// One more request is being served, or promises are being kept.
    fn begin_one(&self) {
        self.busy.fetch_add(1, Ordering::SeqCst);
        self.pool.begin();
    }

    /// Whether there is something to read.
    fn has_request(&self) -> bool {
        let mut device = [PollFd::new(&self.device.descriptor, PollFlags::IN)];
        event::poll(&mut device, Some(&rustix::time::Timespec::default())) == Ok(1)
    }

    /// Whether nothing of it is under way. `at_hand` first: a promise is counted as busy before the thread that gives it up is done.
    fn is_quiet(&self) -> bool {
        self.at_hand.load(Ordering::SeqCst) == 0 && self.busy.load(Ordering::SeqCst) == 0
    }

    /// Whether the kernel still has the other end.
    fn is_connected(&self) -> bool {
        let mut device = [PollFd::new(&self.device.descriptor, PollFlags::IN)];
        let polled = event::poll(&mut device, Some(&rustix::time::Timespec::default()));
        polled.is_ok() && !device[0].revents().contains(PollFlags::ERR)
    }

    /// Whether it is worth looking for the next request.
    fn has_patience(&self) -> bool {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain < PATIENCE {
            return true;
        }
        let next = in_vain.wrapping_add(1).max(PATIENCE);
        self.in_vain.store(next, Ordering::Relaxed);
        in_vain.is_multiple_of(PATIENCE)
    }

    /// A request was there at once: whether several programs ask. What nobody waits for tells nothing: whoever caused it goes on asking. Counts that
    /// several threads change at the same time may be off, which does no harm.
    fn is_crowded(&self, is_waited_for: bool) -> bool {
        let in_a_row = match is_waited_for {
            true => self.at_once.load(Ordering::Relaxed) + 1,
            false => 0,
        };
        let is_crowded = in_a_row >= CROWD;
        let kept = if is_crowded { 0 } else { in_a_row };
        self.at_once.store(kept, Ordering::Relaxed);
        is_crowded
    }

    fn given_up_promises(&self) -> std::sync::MutexGuard<'_, Vec<Promise>> {
        // A thread that panicked while it held them was adding some.
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_given_up(&self) -> Vec<Promise> {
        std::mem::take(&mut *self.given_up_promises())
    }

    /// Looks for the next request for a while.
    fn linger(&self, request: &mut Request) -> Result<(), Errno> {
        let began = Instant::now();
        let mut read = self.read(request);
        while read == Err(Errno::AGAIN) {
            if began.elapsed() > LINGER_MAX {
                let in_vain = self.in_vain.load(Ordering::Relaxed);
                self.in_vain
                    .store(in_vain.saturating_add(1), Ordering::Relaxed);
                return read;
            }
            for _ in 0..SPINS {
                std::hint::spin_loop();
            }
            read = self.read(request);
        }
        self.in_vain.store(0, Ordering::Relaxed);
        read
    }
}

/// A thread that reads requests of a mount, and serves them.
struct AtHand<'a> {
    server: &'a Server,
    served: &'a Served,
}

impl<'a> AtHand<'a> {
    fn new(server: &'a Server, served: &'a Served) -> AtHand<'a> {
        served.at_hand.fetch_add(1, Ordering::SeqCst);
        AtHand { server, served }
    }
}

impl Drop for AtHand<'_> {
    fn drop(&mut self) {
        self.served.at_hand.fetch_sub(1, Ordering::SeqCst);
        self.server.tell_if_gone(self.served);
    }
}

/// The device that a thread owns while it serves a request.
struct Owned {
    server: Arc<Server>,
    served: Arc<Served>,
    /// What it has promised before.
    promises: Vec<Promise>,
}

thread_local! {
    static OWNED: RefCell<Option<Owned>> = const { RefCell::new(None) };
}

/// This thread lets the device go that it owns, if it does.
fn let_go() {
    let owned = OWNED.with_borrow_mut(Option::take);
    if let Some(owned) = owned {
        if !owned.promises.is_empty() {
            owned.server.give_up(&owned.served, owned.promises);
        }
        owned.server.watch(&owned.served);
        owned.server.start_thread_if_none_is_idle();
    }
}

/// Serves all mounts of a daemon.
pub struct Server {
    epoll: OwnedFd,
    served: Mutex<BTreeMap<u64, Arc<Served>>>,
    /// Those that were removed and have not gone yet.
    leaving: Mutex<BTreeMap<u64, Arc<Served>>>,
    next_key: AtomicU64,
    threads: AtomicUsize,
    idle: AtomicUsize,
    /// Threads that are held by abandoned mounts.
    lost: AtomicUsize,
    stopping: AtomicBool,
    /// There is a second processor for those who send requests.
    can_linger: bool,
    /// Most threads that own a device together.
    owners_max: usize,
    pools: Pools,
    processors: AwakeProcessors,
    itself: Weak<Server>,
}

impl Server {
    /// A server without mounts.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new(processors: AwakeProcessors) -> Result<Arc<Server>, Errno> {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Server::with_processors(processors, count)
    }

    /// A server on a machine with so many processors.
    fn with_processors(processors: AwakeProcessors, count: usize) -> Result<Arc<Server>, Errno> {
        Server::with_bound(processors, count, THREADS_OF_POOL)
    }

    /// The same, where a pool has so many threads.
    fn with_bound(
        processors: AwakeProcessors,
        count: usize,
        threads_of_pool: usize,
    ) -> Result<Arc<Server>, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Arc::new_cyclic(|itself| Server {
            epoll,
            served: Mutex::new(BTreeMap::new()),
            leaving: Mutex::new(BTreeMap::new()),
            next_key: AtomicU64::new(1),
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            can_linger: count > 1,
            owners_max: (count / 2).max(1),
            pools: Pools::new(threads_of_pool),
            processors,
            itself: itself.clone(),
        }))
    }

    /// Serves a mount of a pool from now on. The key removes it.
    ///
    /// # Errors
    /// When the system cannot watch one more descriptor.
    pub fn add(
        &self,
        descriptor: OwnedFd,
        pool: &str,
        handler: Arc<dyn Handler>,
    ) -> Result<u64, Errno> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let served = Arc::new(Served {
            key,
            device: Device { descriptor },
            handler,
            pool: self.pools.find(pool),
            owners: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            given_up: Mutex::new(Vec::new()),
            is_choked: AtomicBool::new(false),
            at_hand: AtomicUsize::new(0),
            is_removed: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            in_vain: AtomicU32::new(0),
            at_once: AtomicU32::new(0),
            is_to_tell: AtomicBool::new(false),
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

    /// Serves a mount no longer, and waits until it has gone: requests being served are finished, others get an error. When that takes longer than
    /// `patience`, its handler is told later, as if the kernel had ended the mount.
    ///
    /// # Errors
    /// [`StillServed`] when it took too long. To be asked again.
    pub fn remove(&self, key: u64, patience: Duration) -> Result<(), StillServed> {
        self.begin_removing(key);
        let Some(served) = self.leaving().get(&key).cloned() else {
            return Ok(());
        };
        if wait_until_quiet(std::slice::from_ref(&served), patience) {
            served.is_to_tell.store(false, Ordering::SeqCst);
            self.leaving().remove(&key);
            return Ok(());
        }
        let is_connected = served.is_connected();
        served.is_to_tell.store(true, Ordering::SeqCst);
        self.tell_if_gone(&served);
        Err(StillServed { is_connected })
    }

    /// Has no more requests of a mount read.
    fn begin_removing(&self, key: u64) {
        // Both tables at once: a mount that was not found in either would be taken for one that has gone.
        let mut table = self.table();
        let Some(served) = table.remove(&key) else {
            return;
        };
        served.is_removed.store(true, Ordering::SeqCst);
        let _ = epoll::delete(&self.epoll, &served.device.descriptor);
        self.leaving().insert(key, served.clone());
        drop(table);
        // It may have been its turn.
        self.watch_next(&served.pool);
    }

    /// Tells the handler of a mount that has gone, if it is to be told and was not.
    fn tell_if_gone(&self, served: &Served) {
        if served.is_to_tell.load(Ordering::SeqCst)
            && served.is_quiet()
            && served.is_to_tell.swap(false, Ordering::SeqCst)
        {
            self.leaving().remove(&served.key);
            served.handler.ended();
        }
    }

    /// Whether the kernel still has the file system of a mount that is served: mounted in some folder of some namespace, or with open files.
    pub fn is_connected(&self, key: u64) -> bool {
        let served = self.table().get(&key).cloned();
        served.is_some_and(|served| served.is_connected())
    }

    /// Whether a mount is served, or was removed and has not gone yet.
    pub fn has(&self, key: u64) -> bool {
        self.table().contains_key(&key) || self.leaving().contains_key(&key)
    }

    /// Does something with the device of a mount that is served.
    pub fn with_device<T>(&self, key: u64, then: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let served = self.table().get(&key).cloned()?;
        Some(then(served.device.descriptor.as_fd()))
    }

    /// Lets threads end when they are idle next.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Served>>> {
        // A thread that panicked while it held the table was inserting or removing one entry.
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Taken when nothing else is held, or the table.
    fn leaving(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Served>>> {
        // As with the table.
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread_if_none_is_idle(&self) {
        if self.idle.load(Ordering::Acquire) > 0 {
            return;
        }
        let count = self.threads.fetch_add(1, Ordering::AcqRel);
        if count >= THREADS_MAX + self.lost.load(Ordering::Acquire) {
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

    /// The life of a thread: wait, and serve what comes.
    fn run_thread(self: &Arc<Self>) {
        call_before_waits(let_go);
        let mut request = Request::room();
        while let Some(key) = self.wait() {
            let served = self.table().get(&key).cloned();
            // Not ours if threads that had replied were faster.
            if let Some(served) = served.filter(|served| served.own(self.owners_max)) {
                match served.pool.is_full() {
                    true => self.watch(&served),
                    false => self.serve_owned(served, &mut request),
                }
            }
        }
        self.threads.fetch_sub(1, Ordering::AcqRel);
    }

    /// Serves an owned device until it is quiet, or other threads'.
    fn serve_owned(self: &Arc<Self>, served: Arc<Served>, request: &mut Request) {
        let _at_hand = AtHand::new(self, &served);
        let mut promises = Vec::new();
        let mut read = served.read(request);
        loop {
            match read {
                Ok(()) => {}
                // None came, or it was taken back before it was read.
                Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => return self.watch(&served),
                Err(_) => {
                    // Of one that was removed nobody needs to be told. What other threads have in hand is done before the handler is told.
                    if !served.is_removed.load(Ordering::SeqCst) {
                        served.is_to_tell.store(true, Ordering::SeqCst);
                        self.begin_removing(served.key);
                    }
                    return;
                }
            }
            let Some(promised) = self.serve(&served, request, promises) else {
                return;
            };
            promises = promised;
            read = served.read(request);
            if !promises.is_empty() && (read.is_err() || promises.len() >= PROMISES_MAX) {
                let is_ours = self.keep(&served, std::mem::take(&mut promises));
                match read {
                    Ok(()) if is_ours => {}
                    // It was read, so it is served, whoever owns the device.
                    Ok(()) => return self.serve_not_owned(&served, request),
                    Err(Errno::AGAIN) if is_ours => {
                        read = served.read(request);
                    }
                    Err(_) if is_ours => {}
                    Err(_) => return,
                }
            }
            if read.is_ok() {
                self.processors.answered();
                let is_waited_for = served.handler.is_waited_for(request);
                if served.is_crowded(is_waited_for) {
                    self.invite(&served);
                }
                continue;
            }
            if read != Err(Errno::AGAIN) {
                // Whatever it is, it may be said only once.
                continue;
            }
            served.at_once.store(0, Ordering::Relaxed);
            if served.leave_to_others() {
                return;
            }
            if !self.can_linger || !served.has_patience() {
                return self.watch(&served);
            }
            read = served.linger(request);
            if read.is_ok() {
                self.processors.answered();
            }
        }
    }

    /// Serves a request of a device that this thread owns. Gives what has been promised and not kept; `None` when the device is not
    /// ours any more, and nothing is left to do.
    fn serve(
        self: &Arc<Self>,
        served: &Arc<Served>,
        request: &mut Request,
        promises: Vec<Promise>,
    ) -> Option<Vec<Promise>> {
        let makes_none = !served.handler.may_promise(request) || served.handler.is_long(request);
        let promises = match promises.is_empty() || !makes_none {
            true => promises,
            false if self.keep(served, promises) => Vec::new(),
            false => {
                self.serve_not_owned(served, request);
                return None;
            }
        };
        if promises.is_empty() {
            served.begin_one();
        }
        self.set_owned(served, promises);
        if served.handler.is_long(request) {
            self.processors.moves_much();
            let_go();
        }
        let promise = served.handler.serve(request, &served.device);
        match OWNED.take() {
            Some(mut owned) => {
                owned.promises.extend(promise);
                if owned.promises.is_empty() {
                    self.served_one(served);
                }
                Some(owned.promises)
            }
            None => {
                let mut promises = served.take_given_up();
                promises.extend(promise);
                if !promises.is_empty() {
                    served.handler.keep(promises, &served.device);
                }
                self.served_one(served);
                self.take_back(served).then(Vec::new)
            }
        }
    }

    /// Serves a request that was read when the device was ours.
    fn serve_not_owned(&self, served: &Served, request: &mut Request) {
        served.begin_one();
        let promise = served.handler.serve(request, &served.device);
        if let Some(promise) = promise {
            served.handler.keep(vec![promise], &served.device);
        }
        self.served_one(served);
    }

    fn set_owned(self: &Arc<Self>, served: &Arc<Served>, promises: Vec<Promise>) {
        OWNED.set(Some(Owned {
            server: self.clone(),
            served: served.clone(),
            promises,
        }));
    }

    /// Keeps the promises of a thread that owns the device. False when it does not own it any more.
    fn keep(self: &Arc<Self>, served: &Arc<Served>, promises: Vec<Promise>) -> bool {
        self.set_owned(served, Vec::new());
        served.handler.keep(promises, &served.device);
        self.served_one(served);
        OWNED.take().is_some() || self.take_back(served)
    }

    /// This thread is about to wait with promises that are not kept, maybe for long: another keeps them.
    fn give_up(self: &Arc<Self>, served: &Arc<Served>, promises: Vec<Promise>) {
        served.given_up_promises().extend(promises);
        served.begin_one();
        let (server, its) = (self.clone(), served.clone());
        let started = std::thread::Builder::new()
            .name("fuse-keeper".to_string())
            .spawn(move || {
                let promises = its.take_given_up();
                if !promises.is_empty() {
                    its.handler.keep(promises, &its.device);
                }
                server.served_one(&its);
            });
        if started.is_err() {
            // This thread keeps them, late, when it has waited.
            self.served_one(served);
        }
    }

    /// Lets another thread own the device as well, which is owned.
    fn invite(&self, served: &Served) {
        if served.owners.load(Ordering::Relaxed) < self.owners_max {
            self.change_watch(served, epoll::EventFlags::IN | epoll::EventFlags::ONESHOT);
            self.start_thread_if_none_is_idle();
        }
    }

    /// A request was served: another may be read.
    fn served_one(&self, served: &Served) {
        served.busy.fetch_sub(1, Ordering::SeqCst);
        served.pool.end();
        if served.is_abandoned.load(Ordering::Acquire) {
            let less = |lost: usize| lost.checked_sub(1);
            let _ = self
                .lost
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
        match served.is_choked.swap(false, Ordering::AcqRel) {
            true => self.watch_if_room(served),
            false => self.watch_next(&served.pool),
        }
        self.tell_if_gone(served);
    }

    /// Serves mounts no longer, and waits a moment for requests that are being served. Those that are not done then are left alone. Gives the
    /// mounts that the kernel still knows.
    pub fn abandon(&self, keys: &[u64], patience: Duration) -> Vec<u64> {
        keys.iter().for_each(|key| self.begin_removing(*key));
        let removed: Vec<Arc<Served>> = keys
            .iter()
            .filter_map(|key| self.leaving().remove(key))
            .collect();
        wait_until_quiet(&removed, patience);
        for served in &removed {
            served.is_to_tell.store(false, Ordering::SeqCst);
            served.is_abandoned.store(true, Ordering::Release);
            self.pools.forget(&served.pool);
            let held = served.busy.load(Ordering::SeqCst);
            self.lost.fetch_add(held, Ordering::AcqRel);
        }
        let known = removed.iter().filter(|served| served.is_connected());
        known.map(|served| served.key).collect()
    }

    /// Takes a device back that was let go, if nobody has taken it and it is worth it.
    fn take_back(&self, served: &Served) -> bool {
        let wants = self.can_linger && served.in_vain.load(Ordering::Relaxed) < PATIENCE;
        let is_ours = wants && served.own(1);
        if is_ours {
            // Who was woken meanwhile finds it owned.
            self.change_watch(served, epoll::EventFlags::ONESHOT);
        }
        is_ours
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

    /// Lets go of an owned device: it is watched again, unless others own it.
    fn watch(&self, served: &Served) {
        if served.owners.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if served.busy.load(Ordering::Acquire) >= THREADS_OF_MOUNT {
            served.is_choked.store(true, Ordering::Release);
            // Unless all of them ended in between: then nobody would see the mark.
            let is_choked = served.busy.load(Ordering::Acquire) >= THREADS_OF_MOUNT
                || !served.is_choked.swap(false, Ordering::AcqRel);
            if is_choked {
                return;
            }
        }
        self.watch_if_room(served);
    }

    /// Watches a device that nobody owns; or has it in line, where too many requests of its pool are being served.
    fn watch_if_room(&self, served: &Served) {
        match served.pool.is_full() {
            true => served.pool.get_in_line(served.key),
            false => self.watch_now(served),
        }
        self.watch_next(&served.pool);
    }

    /// Watches the first device in line that has a request, if there is room for it.
    fn watch_next(&self, pool: &Pool) {
        while let Some(key) = pool.next_in_line() {
            let next = self.table().get(&key).cloned();
            let Some(next) = next else { continue };
            let has_request = next.has_request();
            self.watch_now(&next);
            if has_request {
                return;
            }
        }
    }

    fn watch_now(&self, served: &Served) {
        self.change_watch(served, epoll::EventFlags::IN | epoll::EventFlags::ONESHOT);
    }

    fn change_watch(&self, served: &Served, flags: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(served.key);
        // A device that was removed is watched no more.
        let _ = epoll::modify(&self.epoll, &served.device.descriptor, data, flags);
    }
}

/// A mount is removed and requests of it are still being served.
#[derive(Debug)]
pub struct StillServed {
    /// The kernel still knows it.
    pub is_connected: bool,
}

/// Waits until nothing of these mounts, which were removed, is under way. False when that takes longer.
fn wait_until_quiet(removed: &[Arc<Served>], patience: Duration) -> bool {
    let began = Instant::now();
    let is_quiet = || removed.iter().all(|served| served.is_quiet());
    while !is_quiet() {
        if began.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    true
}

#[cfg(test)]
mod tests;
