//! A device's own threads, for systems and files without io_uring.
//!
//! Jobs with a [`Pace`] (background writes) are carried out slowly, until a job comes that a thread
//! waits for, which is behind them in the queue.
//!
//! Threads are started when there is more to do than threads to do it, up to a bound, and end when
//! they had nothing to do for a while. Each device has its own, so that a slow disk delays no
//! other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::background::{self, Pace};
use crate::batch::Job;
use crate::file_device::Flow;
use crate::system;

/// Calls one device works on at once. A guess: enough to keep an SSD busy, few enough for a hundred
/// devices.
pub(crate) const THREADS_MAX: usize = 8;
/// After so long without work a thread ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// The threads of one device.
#[derive(Debug)]
pub(crate) struct DeviceThreads {
    shared: Arc<Shared>,
    flow: Arc<Flow>,
    threads_max: usize,
    gives_way: bool,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    /// The last thread has let the device go.
    gone: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that still hold the device, among them such as take no jobs any more.
    alive: usize,
    idle: usize,
    is_closed: bool,
    /// The pace of the last job that was begun.
    pace: Option<Arc<Pace>>,
}

impl Queue {
    /// A thread waits for a job behind those in the queue: they give up their pace.
    fn hurry(&self) {
        let paces = self.jobs.iter().filter_map(Job::pace);
        paces.chain(&self.pace).for_each(|pace| pace.hurry());
    }
}

impl DeviceThreads {
    /// At most so many threads, at most [`THREADS_MAX`].
    pub(crate) fn new(flow: &Arc<Flow>, threads_max: usize) -> DeviceThreads {
        DeviceThreads::with_threads(flow, threads_max.min(THREADS_MAX), false)
    }

    /// One thread, whose work can wait for some milliseconds.
    pub(crate) fn in_background(flow: &Arc<Flow>) -> DeviceThreads {
        DeviceThreads::with_threads(flow, 1, true)
    }

    fn with_threads(flow: &Arc<Flow>, threads_max: usize, gives_way: bool) -> DeviceThreads {
        let shared = Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            gone: Condvar::new(),
        };
        DeviceThreads {
            shared: Arc::new(shared),
            flow: flow.clone(),
            threads_max,
            gives_way,
        }
    }

    /// Takes jobs. If no thread can be started, the caller works.
    pub(crate) fn take(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut queue = self.shared.queue.lock();
        if self.gives_way && jobs.iter().any(|job| job.pace().is_none()) {
            queue.hurry();
        }
        let to_wake = jobs.len().min(queue.idle);
        queue.jobs.extend(jobs);
        let wanted = (queue.jobs.len() - to_wake).min(self.threads_max - queue.threads);
        queue.threads += wanted;
        queue.alive += wanted;
        drop(queue);
        for _ in 0..to_wake {
            self.shared.work.notify_one();
        }
        for _ in 0..wanted {
            self.start_thread();
        }
    }

    fn start_thread(&self) {
        let (shared, flow) = (self.shared.clone(), self.flow.clone());
        let gives_way = self.gives_way;
        let body = move || {
            if gives_way {
                background::give_way();
            }
            shared.work(&flow);
            drop(flow);
            shared.leave();
        };
        let started = std::thread::Builder::new()
            .name("tarn-device".to_owned())
            .spawn(body);
        if started.is_err() {
            // Out of threads: the work is done here, and this "thread" then ends.
            self.shared.work_until_empty(&self.flow);
            self.shared.leave();
        }
    }
}

impl Drop for DeviceThreads {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_closed = true;
        self.shared.work.notify_all();
        let is_held = |queue: &mut Queue| queue.alive > 0;
        let _ = self
            .shared
            .gone
            .wait_while_for(&mut queue, is_held, self.flow.close_max());
    }
}

impl Shared {
    /// The life of a thread.
    fn work(&self, flow: &Flow) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.pace = job.pace().cloned();
                drop(queue);
                background::keep_pace(job.pace().cloned());
                system::carry_out(job, flow);
                background::offer_turn();
                queue = self.queue.lock();
                continue;
            }
            if queue.is_closed {
                break;
            }
            queue.idle += 1;
            let timed_out = self.work.wait_for(&mut queue, IDLE_MAX).timed_out();
            queue.idle -= 1;
            if timed_out && queue.jobs.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }

    /// A thread has let the device go.
    fn leave(&self) {
        let mut queue = self.queue.lock();
        queue.alive -= 1;
        if queue.alive == 0 {
            self.gone.notify_all();
        }
    }

    fn work_until_empty(&self, flow: &Flow) {
        loop {
            let Some(job) = self.queue.lock().jobs.pop_front() else {
                break;
            };
            system::carry_out(job, flow);
        }
        self.queue.lock().threads -= 1;
    }
}
