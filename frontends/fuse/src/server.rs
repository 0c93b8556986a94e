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
//! # Invariants
//! - A device is watched, or at least one thread owns it, which will let it go.
//! - When a device is let go there is an idle thread, or the bound is reached: then requests queue in the kernel.
//! - A device is closed when its session is removed and the requests being served are done.
//! - One mount has at most [`THREADS_OF_MOUNT`] threads that wait; beyond that its requests queue in the kernel. So a pool that does not answer
//!   leaves threads to the others. Those that are still held when its mounts are abandoned count no more.

use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tarn_engine::files::call_before_waits;

use crate::awake::{AwakeProcessors, QUIET};
use crate::protocol::{Answer, NOTIFY_FORGET_NODE, REQUEST_BYTES_MAX, notice_head, reply_head};

/// Most threads that serve requests. Waiting for disks takes threads, not processors; a guess: some mounts of pools that do not answer
/// leave enough for the others.
const THREADS_MAX: usize = 512;

/// Most threads that serve one mount. A guess, above the queue depth of most pools.
const THREADS_OF_MOUNT: usize = 64;

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

/// What serves the requests of one mount.
pub trait Handler: Send + Sync {
    /// Whether serving this request takes long, though it wait for nothing.
    fn is_long(&self, request: &[u8]) -> bool;

    /// Whether somebody waits for the answer to this request before he asks for more.
    fn is_waited_for(&self, request: &[u8]) -> bool;

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
    key: u64,
    device: Device,
    handler: Arc<dyn Handler>,
    /// Threads that own the device.
    owners: AtomicUsize,
    /// Requests that are being served.
    busy: AtomicUsize,
    /// Nobody watches the device: too many are being served.
    is_choked: AtomicBool,
    /// Nobody waits any more for those who serve it.
    is_abandoned: AtomicBool,
    /// How often in a row nothing came while a thread lingered.
    in_vain: AtomicU32,
    /// How many requests in a row were there at once.
    at_once: AtomicU32,
    /// The handler was told that the mount has ended.
    has_ended: AtomicBool,
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

    /// Looks for the next request for a while.
    fn linger(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let began = Instant::now();
        let mut read = rustix::io::read(&self.device.descriptor, &mut *buffer);
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
            read = rustix::io::read(&self.device.descriptor, &mut *buffer);
        }
        self.in_vain.store(0, Ordering::Relaxed);
        read
    }
}

/// The device that a thread owns while it serves a request.
struct Owned {
    server: Arc<Server>,
    served: Arc<Served>,
}

thread_local! {
    static OWNED: RefCell<Option<Owned>> = const { RefCell::new(None) };
}

/// This thread lets the device go that it owns, if it does.
fn let_go() {
    let owned = OWNED.with_borrow_mut(Option::take);
    if let Some(owned) = owned {
        owned.server.watch(&owned.served);
        owned.server.start_thread_if_none_is_idle();
    }
}

/// Serves all mounts of a daemon.
pub struct Server {
    epoll: OwnedFd,
    served: Mutex<BTreeMap<u64, Arc<Served>>>,
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
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Arc::new_cyclic(|itself| Server {
            epoll,
            served: Mutex::new(BTreeMap::new()),
            next_key: AtomicU64::new(1),
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            can_linger: count > 1,
            owners_max: (count / 2).max(1),
            processors,
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
            key,
            device: Device { descriptor },
            handler,
            owners: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            is_choked: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            in_vain: AtomicU32::new(0),
            at_once: AtomicU32::new(0),
            has_ended: AtomicBool::new(false),
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
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        while let Some(key) = self.wait() {
            let served = self.table().get(&key).cloned();
            // Not ours if threads that had replied were faster.
            if let Some(served) = served.filter(|served| served.own(self.owners_max)) {
                self.serve_owned(served, &mut buffer);
            }
        }
        self.threads.fetch_sub(1, Ordering::AcqRel);
    }

    /// Serves an owned device until it is quiet, or other threads'.
    fn serve_owned(self: &Arc<Self>, mut served: Arc<Served>, buffer: &mut [u8]) {
        let mut read = rustix::io::read(&served.device.descriptor, &mut *buffer);
        loop {
            let request = match read {
                Ok(length) => &buffer[..length],
                // None came, or it was taken back before it was read.
                Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => return self.watch(&served),
                Err(_) => {
                    self.remove(served.key);
                    if !served.has_ended.swap(true, Ordering::Relaxed) {
                        served.handler.ended();
                    }
                    return;
                }
            };
            OWNED.set(Some(Owned {
                server: self.clone(),
                served: served.clone(),
            }));
            if served.handler.is_long(request) {
                let_go();
            }
            served.busy.fetch_add(1, Ordering::AcqRel);
            served.handler.serve(request, &served.device);
            self.served_one(&served);
            let is_ours = match OWNED.take() {
                Some(owned) => {
                    served = owned.served;
                    true
                }
                None => self.take_back(&served),
            };
            if !is_ours {
                return;
            }
            read = rustix::io::read(&served.device.descriptor, &mut *buffer);
            if let Ok(length) = read {
                self.processors.answered();
                let is_waited_for = served.handler.is_waited_for(&buffer[..length]);
                if served.is_crowded(is_waited_for) {
                    self.invite(&served);
                }
                continue;
            }
            served.at_once.store(0, Ordering::Relaxed);
            if served.leave_to_others() {
                return;
            }
            if !self.can_linger || !served.has_patience() {
                return self.watch(&served);
            }
            read = served.linger(buffer);
            if read.is_ok() {
                self.processors.answered();
            }
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
        served.busy.fetch_sub(1, Ordering::AcqRel);
        if served.is_abandoned.load(Ordering::Acquire) {
            let less = |lost: usize| lost.checked_sub(1);
            let _ = self
                .lost
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
        if served.is_choked.swap(false, Ordering::AcqRel) {
            self.watch_now(served);
        }
    }

    /// Serves mounts no longer, and waits a moment for requests that are being served. Those that are not done then are left alone.
    pub fn abandon(&self, keys: &[u64], patience: Duration) {
        let removed: Vec<Arc<Served>> = keys
            .iter()
            .filter_map(|key| self.table().remove(key))
            .collect();
        for served in &removed {
            let _ = epoll::delete(&self.epoll, &served.device.descriptor);
        }
        let began = Instant::now();
        let is_busy = |served: &Arc<Served>| served.busy.load(Ordering::Acquire) > 0;
        while removed.iter().any(is_busy) && began.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        for served in &removed {
            served.is_abandoned.store(true, Ordering::Release);
            let held = served.busy.load(Ordering::Acquire);
            self.lost.fetch_add(held, Ordering::AcqRel);
        }
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
        self.watch_now(served);
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use tarn_host::lock::{Condvar, Mutex, Rank};

    /// Each request of `w` waits until one of `g` was served; echoes all.
    struct Gate {
        let_in: Mutex<u32>,
        opened: Condvar,
        long: &'static [u8],
    }

    impl Handler for Gate {
        fn is_long(&self, request: &[u8]) -> bool {
            request == self.long
        }

        fn is_waited_for(&self, _: &[u8]) -> bool {
            true
        }

        fn serve(&self, request: &[u8], device: &Device) {
            match request {
                b"w" => {
                    let mut let_in = self.let_in.lock();
                    self.opened.wait_while(&mut let_in, |let_in| *let_in == 0);
                    *let_in -= 1;
                }
                b"g" => {
                    *self.let_in.lock() += 1;
                    self.opened.notify_all();
                }
                _ => {}
            }
            rustix::io::write(&device.descriptor, request).unwrap();
        }

        fn ended(&self) {}
    }

    fn served(long: &'static [u8], processors: usize) -> (Arc<Server>, OwnedFd) {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        let server = Server::with_processors(AwakeProcessors::new(true), processors).unwrap();
        let gate = Gate {
            let_in: Mutex::new(Rank::new(1, "gate"), 0),
            opened: Condvar::new(),
            long,
        };
        server.add(ours, Arc::new(gate)).unwrap();
        (server, theirs)
    }

    fn ask(socket: &OwnedFd, request: &[u8]) {
        rustix::io::write(socket, request).unwrap();
    }

    fn answer(socket: &OwnedFd) -> Vec<u8> {
        let mut bytes = [0; 16];
        let length = rustix::io::read(socket, &mut bytes[..]).unwrap();
        bytes[..length].to_vec()
    }

    #[test]
    fn a_request_that_waits_keeps_no_other_from_being_served() {
        let (server, socket) = served(b"", 2);
        for _ in 0..3 {
            ask(&socket, b"a");
            assert_eq!(answer(&socket), b"a");
        }
        ask(&socket, b"w");
        ask(&socket, b"g");
        let mut answers = [answer(&socket), answer(&socket)];
        answers.sort();
        assert_eq!(answers, [b"g", b"w"]);
        server.stop();
    }

    #[test]
    fn requests_one_after_the_other_and_many_at_once_are_all_answered() {
        for processors in [1, 2, 8] {
            let (server, socket) = served(b"long", processors);
            for round in 0..2000_u32 {
                let many = if round % 100 == 0 { 50 } else { 1 };
                let request: &[u8] = if round % 7 == 0 { b"long" } else { b"x" };
                (0..many).for_each(|_| ask(&socket, request));
                (0..many).for_each(|_| assert_eq!(answer(&socket), request));
            }
            server.stop();
        }
    }

    #[test]
    fn a_crowd_is_served_by_threads_that_own_the_device_together() {
        let (server, socket) = served(b"", 8);
        // Each that asks waits for its answer, so all threads that own it must leave it for another to be served.
        for round in 0..200_u32 {
            let waiting = round % 4;
            (0..waiting).for_each(|_| ask(&socket, b"w"));
            (0..CROWD * 3).for_each(|_| ask(&socket, b"x"));
            (0..waiting).for_each(|_| ask(&socket, b"g"));
            let answers: Vec<_> = (0..waiting * 2 + CROWD * 3)
                .map(|_| answer(&socket))
                .collect();
            assert_eq!(answers.iter().filter(|answer| *answer == b"x").count(), 24);
        }
        let owners = |server: &Server| {
            let table = server.table();
            table
                .values()
                .map(|served| served.owners.load(Ordering::Relaxed))
                .sum::<usize>()
        };
        assert!(owners(&server) <= 4);
        server.stop();
    }
}
