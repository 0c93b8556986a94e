//! io_uring: a direct device's requests go to the kernel many at a time, without a thread for each.
//!
//! # Mechanism
//! One thread owns the ring of a device. It takes jobs from an inbox, submits as many as the ring
//! holds, and waits for whichever ends first. Among the requests in the ring is always a read of an
//! event counter, which callers increase when they put jobs into an empty inbox; so there is one
//! place to wait.
//!
//! Submitting from the callers' threads would save one wake-up, and cost two: the kernel completes
//! a request in the context of the thread that submitted it, and cancels it when that thread ends.
//!
//! # Invariants
//! - What a request in the ring points to (the vector of segments, the memory of the batch) lives
//!   in `in_flight` until its completion was seen.
//! - The thread ends when its device is dropped, after the last completion.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;

use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;

use crate::batch::{Failure, Job, Segment, Times};
use crate::clock;
use crate::error::{Action, Errno};
use crate::file_device::Flow;
use crate::system;

/// Requests in a ring. A guess: deeper queues than 128 only make a disk's answers later.
const ENTRIES: u32 = 128;
/// What marks the completion of the read of the event counter.
const WAKE: u64 = u64::MAX;

/// The ring of one device, as callers see it.
#[derive(Debug)]
pub(crate) struct Ring {
    shared: Arc<Shared>,
    flow: Arc<Flow>,
    /// Its other end is dropped when the thread has let the device go.
    gone: Mutex<mpsc::Receiver<bool>>,
}

#[derive(Debug)]
struct Shared {
    inbox: Mutex<Inbox>,
    event: OwnedFd,
}

#[derive(Debug, Default)]
struct Inbox {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

impl Ring {
    /// Starts the thread; nothing if the kernel has no io_uring for us.
    pub(crate) fn start(flow: &Arc<Flow>) -> Option<Ring> {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()?;
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            event,
        });
        let (started, has_started) = mpsc::channel();
        let (own, owned_flow) = (shared.clone(), flow.clone());
        // The ring is made in its thread, because only the thread that made it may use it.
        let body = move || match make_ring() {
            Ok(ring) => {
                let _ = started.send(true);
                RingThread::new(ring, own, owned_flow).run();
            }
            Err(_) => _ = started.send(false),
        };
        std::thread::Builder::new()
            .name("tarn-ring".to_owned())
            .spawn(body)
            .ok()?;
        let is_running = has_started.recv().unwrap_or(false);
        let gone = Mutex::new(has_started);
        let flow = flow.clone();
        is_running.then_some(Ring { shared, flow, gone })
    }

    /// Takes jobs: reads, writes and flushes.
    pub(crate) fn take(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut inbox = self.shared.inbox.lock();
        let was_empty = inbox.jobs.is_empty();
        inbox.jobs.extend(jobs);
        drop(inbox);
        if was_empty {
            self.shared.wake();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.inbox.lock().is_closed = true;
        self.shared.wake();
        let _ = self.gone.lock().recv_timeout(self.flow.close_max());
    }
}

impl Shared {
    fn wake(&self) {
        let written =
            rustix::io::retry_on_intr(|| rustix::io::write(&self.event, &1_u64.to_ne_bytes()));
        written.expect("an event counter takes 2^64 - 2 wake-ups");
    }
}

fn make_ring() -> io::Result<IoUring> {
    let mut best = IoUring::builder();
    best.dontfork().setup_single_issuer().setup_defer_taskrun();
    // Kernels before 6.1 do not know these flags.
    best.build(ENTRIES)
        .or_else(|_| IoUring::builder().dontfork().build(ENTRIES))
}

/// The thread that owns a ring.
struct RingThread {
    ring: IoUring,
    shared: Arc<Shared>,
    flow: Arc<Flow>,
    waiting: VecDeque<Job>,
    in_flight: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// What the event counter is read into.
    event_value: Box<u64>,
    is_listening: bool,
}

/// A job in the ring.
struct InFlight {
    job: Job,
    /// What is left to be moved, and from where.
    left: Vec<Segment>,
    offset: u64,
    /// `left` as the kernel reads it.
    vector: Vec<libc::iovec>,
    queue_ns: u64,
    started_ns: u64,
}

impl RingThread {
    fn new(ring: IoUring, shared: Arc<Shared>, flow: Arc<Flow>) -> RingThread {
        let slots = usize::try_from(ENTRIES).expect("a small number") - 1;
        RingThread {
            ring,
            shared,
            flow,
            waiting: VecDeque::new(),
            in_flight: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            event_value: Box::new(0),
            is_listening: false,
        }
    }

    fn run(mut self) {
        loop {
            let is_closed = self.take_inbox();
            self.start_waiting();
            let is_idle = self.free.len() == self.in_flight.len() && self.waiting.is_empty();
            if is_closed && is_idle && !self.is_listening {
                return;
            }
            if !is_closed {
                self.listen();
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_temporary(&error) => {}
                Err(error) => panic!("io_uring_enter failed on a ring of ours: {error}"),
            }
            self.reap();
        }
    }

    /// Takes new jobs; says whether the device was dropped.
    fn take_inbox(&mut self) -> bool {
        let mut inbox = self.shared.inbox.lock();
        self.waiting.append(&mut inbox.jobs);
        inbox.is_closed
    }

    /// Keeps a read of the event counter in the ring.
    fn listen(&mut self) {
        if self.is_listening {
            return;
        }
        let event = types::Fd(self.shared.event.as_raw_fd());
        let value = (&raw mut *self.event_value).cast();
        let entry = opcode::Read::new(event, value, 8).build().user_data(WAKE);
        self.push(&entry);
        self.is_listening = true;
    }

    fn start_waiting(&mut self) {
        while !self.free.is_empty()
            && let Some(job) = self.waiting.pop_front()
        {
            let started_ns = clock::real_monotonic_ns();
            let in_flight = InFlight {
                left: job.segments.clone(),
                offset: job.offset,
                vector: Vec::new(),
                queue_ns: started_ns.saturating_sub(job.submitted_ns()),
                started_ns,
                job,
            };
            let slot = self.free.pop().expect("checked above");
            self.flow.asked(started_ns);
            self.submit(slot, in_flight);
        }
    }

    /// Puts what is left of a job into the ring.
    fn submit(&mut self, slot: usize, mut in_flight: InFlight) {
        let as_vector = |s: &Segment| libc::iovec {
            iov_base: s.pointer.cast(),
            iov_len: s.length,
        };
        in_flight.vector = in_flight.left.iter().map(as_vector).collect();
        let file = types::Fd(self.flow.file().as_raw_fd());
        let (vector, offset) = (in_flight.vector.as_ptr(), in_flight.offset);
        let count = u32::try_from(in_flight.vector.len()).expect("at most 256 segments");
        let entry = match in_flight.job.action {
            Action::Read => opcode::Readv::new(file, vector, count)
                .offset(offset)
                .build(),
            Action::Write => opcode::Writev::new(file, vector, count)
                .offset(offset)
                .build(),
            _ => opcode::Fsync::new(file)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        };
        self.in_flight[slot] = Some(in_flight);
        self.push(&entry.user_data(u64::try_from(slot).expect("a small number")));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to lives in `in_flight` or `event_value`, neither of which
        // is touched until the completion was seen.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("there are as many slots as entries");
    }

    fn reap(&mut self) {
        let completions: Vec<(u64, i32)> = self
            .ring
            .completion()
            .map(|entry| (entry.user_data(), entry.result()))
            .collect();
        for (data, result) in completions {
            if data == WAKE {
                self.is_listening = false;
                continue;
            }
            let slot = usize::try_from(data).expect("a slot of ours");
            let in_flight = self.in_flight[slot]
                .take()
                .expect("a completion comes once");
            self.completed(slot, in_flight, result);
        }
    }

    /// Ends a job, or submits the rest of it.
    fn completed(&mut self, slot: usize, mut in_flight: InFlight, result: i32) {
        let is_transfer = in_flight.job.action != Action::Flush;
        let failure = match usize::try_from(result) {
            Err(_) => {
                let errno = Errno(result.saturating_neg());
                if [libc::EINTR, libc::EAGAIN, libc::ECANCELED].contains(&errno.0) {
                    return self.submit(slot, in_flight);
                }
                Some(Failure::Errno(errno))
            }
            Ok(0) if is_transfer => Some(Failure::Ended {
                at: in_flight.offset,
            }),
            Ok(count) => {
                system::advance(&mut in_flight.left, count);
                in_flight.offset += u64::try_from(count).expect("less than 2^64");
                if is_transfer && !in_flight.left.is_empty() {
                    return self.submit(slot, in_flight);
                }
                None
            }
        };
        self.free.push(slot);
        let ended_ns = clock::real_monotonic_ns();
        self.flow.answered(ended_ns);
        let service_ns = ended_ns.saturating_sub(in_flight.started_ns);
        let times = Times {
            queue_ns: in_flight.queue_ns,
            service_ns,
        };
        system::end(in_flight.job, &self.flow, times, failure);
    }
}

fn is_temporary(error: &io::Error) -> bool {
    let temporary = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ETIME];
    error
        .raw_os_error()
        .is_some_and(|errno| temporary.contains(&errno))
}
