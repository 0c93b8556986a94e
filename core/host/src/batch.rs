//! Batches under way: their requests, their results, and the thread that waits for them.
//!
//! A batch owns the memory of its requests until the last piece of work on them is done. Pieces
//! ([`Job`]s) hold raw pointers into that memory, for the system to fill, and keep the batch alive.
//!
//! A thread that waits for a device which is given up ([`Device::give_up`](crate::Device::give_up))
//! gets errors; the batch keeps the memory until the system is done with it, if that ever happens.
#![allow(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::background::{self, Pace};
use crate::buffer::Buffer;
use crate::clock;
use crate::device::{Request, WriteData};
use crate::error::{Action, DeviceError, Errno};
use crate::lock::check_wait;
use crate::sim::SimulatedBatch;
use crate::waiting::about_to_wait;

/// How often a waiting thread checks whether the device was given up: rarely, since few requests
/// take so long.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What became of one request.
#[derive(Debug)]
pub struct Completion {
    /// A read gives its buffer back, filled.
    pub result: Result<Option<Buffer>, DeviceError>,
    /// How long it waited before it was given to the system.
    pub queue_ns: u64,
    /// How long the system took.
    pub service_ns: u64,
}

/// Requests under way.
#[derive(Debug)]
#[must_use = "errors are known only to those who wait"]
pub struct Batch(Kind);

#[derive(Debug)]
enum Kind {
    UnderWay(Arc<BatchState>),
    Simulated(SimulatedBatch),
    /// None of the requests was handed to the device.
    Refused(Vec<DeviceError>),
}

impl Batch {
    pub(crate) fn under_way(state: Arc<BatchState>) -> Batch {
        Batch(Kind::UnderWay(state))
    }

    pub(crate) fn simulated(batch: SimulatedBatch) -> Batch {
        Batch(Kind::Simulated(batch))
    }

    /// Requests that were not handed to a device, with the error of each.
    pub(crate) fn refused(errors: Vec<DeviceError>) -> Batch {
        Batch(Kind::Refused(errors))
    }

    /// Waits until all is done. One completion a request, in their order.
    pub fn wait(self) -> Vec<Completion> {
        self.wait_calling(Lateness::NEVER, &mut |_| {})
    }

    /// The same. While the batch is late, `late` is called with how long the thread has waited, in
    /// nanoseconds.
    pub fn wait_calling(self, lateness: Lateness, late: &mut dyn FnMut(u64)) -> Vec<Completion> {
        check_wait("a device");
        match self.0 {
            Kind::UnderWay(state) => state.wait(lateness, late),
            Kind::Simulated(batch) => batch.wait(lateness, late),
            Kind::Refused(errors) => {
                let refused = |error| Completion {
                    result: Err(error),
                    queue_ns: 0,
                    service_ns: 0,
                };
                errors.into_iter().map(refused).collect()
            }
        }
    }
}

/// When a batch is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// After so long, in nanoseconds,
    pub first_ns: u64,
    /// and again each time when so much more has passed.
    pub again_ns: u64,
}

impl Lateness {
    /// No batch is late.
    pub const NEVER: Lateness = Lateness {
        first_ns: u64::MAX,
        again_ns: u64::MAX,
    };

    /// How long a thread waits until its batch is late once more, if it has waited so long.
    pub(crate) fn next_ns(self, waited_ns: u64) -> u64 {
        match waited_ns.checked_sub(self.first_ns) {
            None => self.first_ns,
            Some(more_ns) => {
                let times = more_ns / self.again_ns.max(1) + 1;
                (self.again_ns.max(1).saturating_mul(times)).saturating_add(self.first_ns)
            }
        }
    }
}

/// What the waiting thread and the working threads share.
#[derive(Debug)]
pub(crate) struct BatchState {
    path: Arc<Path>,
    submitted_ns: u64,
    given_up: Arc<AtomicBool>,
    /// The pace of the thread that submitted it.
    pace: Option<Arc<Pace>>,
    work: Mutex<Work>,
    done: Condvar,
}

#[derive(Debug)]
struct Work {
    slots: Vec<Slot>,
    jobs_left: usize,
}

#[derive(Debug)]
struct Slot {
    memory: Memory,
    action: Action,
    offset: u64,
    length: u64,
    error: Option<DeviceError>,
    queue_ns: u64,
    service_ns: u64,
}

/// What a request keeps alive.
#[derive(Debug)]
enum Memory {
    Read(Buffer),
    /// Held for the pointers into it.
    Write(#[allow(dead_code)] WriteData),
    None,
}

impl BatchState {
    /// Takes the requests over. Jobs must be counted with [`BatchState::expect_jobs`] before any of
    /// them is started.
    pub(crate) fn new(
        path: &Arc<Path>,
        given_up: &Arc<AtomicBool>,
        now_ns: u64,
        requests: Vec<Request>,
    ) -> Arc<BatchState> {
        let work = Work {
            slots: requests.into_iter().map(Slot::new).collect(),
            jobs_left: 0,
        };
        let (path, work) = (path.clone(), Mutex::new(work));
        Arc::new(BatchState {
            path,
            submitted_ns: now_ns,
            given_up: given_up.clone(),
            pace: background::pace(),
            work,
            done: Condvar::new(),
        })
    }

    /// What each request wants: action, offset, and its bytes.
    pub(crate) fn wishes(&self) -> Vec<Wish> {
        let work = self.work.lock();
        work.slots
            .iter()
            .enumerate()
            .map(|(request, slot)| slot.wish(request))
            .collect()
    }

    pub(crate) fn expect_jobs(&self, count: usize) {
        self.work.lock().jobs_left += count;
    }

    /// A request failed before any job was made for it.
    pub(crate) fn refuse(&self, request: usize, error: DeviceError) {
        self.work.lock().slots[request].error = Some(error);
    }

    pub(crate) fn submitted_ns(&self) -> u64 {
        self.submitted_ns
    }

    /// A job has ended, well or not.
    fn job_done(&self, segments: &[Segment], times: Times, failure: Option<&Failure>) {
        let mut work = self.work.lock();
        for segment in segments {
            let slot = &mut work.slots[segment.request];
            slot.queue_ns = slot.queue_ns.max(times.queue_ns);
            slot.service_ns = slot.service_ns.max(times.service_ns);
        }
        if let Some(failure) = failure {
            for segment in segments {
                let slot = &mut work.slots[segment.request];
                let error = slot.describe(&self.path, failure);
                slot.error.get_or_insert(error);
            }
        }
        work.jobs_left -= 1;
        if work.jobs_left == 0 {
            self.done.notify_all();
        }
    }

    /// One request of a job that goes on has failed.
    fn segment_failed(&self, segment: &Segment, failure: &Failure) {
        let mut work = self.work.lock();
        let slot = &mut work.slots[segment.request];
        let error = slot.describe(&self.path, failure);
        slot.error.get_or_insert(error);
    }

    fn wait(&self, lateness: Lateness, late: &mut dyn FnMut(u64)) -> Vec<Completion> {
        let mut work = self.work.lock();
        if work.jobs_left > 0 {
            about_to_wait();
        }
        let mut late_ns = lateness.first_ns;
        while work.jobs_left > 0 {
            let has_looked = self.done.wait_for(&mut work, LOOK_INTERVAL).timed_out();
            if !has_looked || work.jobs_left == 0 {
                continue;
            }
            let waited_ns = clock::real_monotonic_ns().saturating_sub(self.submitted_ns);
            if waited_ns >= late_ns {
                late_ns = lateness.next_ns(waited_ns);
                MutexGuard::unlocked(&mut work, || late(waited_ns));
            } else if self.given_up.load(Ordering::Acquire) {
                // The memory stays: jobs lead into it.
                let given_up = |slot: &Slot| Completion {
                    result: Err(slot.given_up(&self.path)),
                    queue_ns: slot.queue_ns,
                    service_ns: slot.service_ns,
                };
                return work.slots.iter().map(given_up).collect();
            }
        }
        std::mem::take(&mut work.slots)
            .into_iter()
            .map(Slot::complete)
            .collect()
    }
}

impl Slot {
    fn new(request: Request) -> Slot {
        let long = |length: usize| u64::try_from(length).expect("memory is less than 2^64");
        let (memory, action, offset, length) = match request {
            Request::Read { offset, buffer } => {
                let length = long(buffer.len());
                (Memory::Read(buffer), Action::Read, offset, length)
            }
            Request::Write { offset, data } => {
                let length = long(data.len());
                (Memory::Write(data), Action::Write, offset, length)
            }
            Request::Flush => (Memory::None, Action::Flush, 0, 0),
            Request::Discard { offset, length } => (Memory::None, Action::Discard, offset, length),
            Request::WriteZeroes { offset, length } => {
                (Memory::None, Action::WriteZeroes, offset, length)
            }
        };
        Slot {
            memory,
            action,
            offset,
            length,
            error: None,
            queue_ns: 0,
            service_ns: 0,
        }
    }

    fn wish(&self, request: usize) -> Wish {
        let (pointer, bytes) = match &self.memory {
            Memory::Read(buffer) => (buffer.raw().as_ptr(), buffer.len()),
            Memory::Write(data) => (data.as_ptr().cast_mut(), data.len()),
            Memory::None => (std::ptr::null_mut(), 0),
        };
        let segment = Segment {
            request,
            pointer,
            length: bytes,
        };
        Wish {
            action: self.action,
            offset: self.offset,
            length: self.length,
            segment,
        }
    }

    fn given_up(&self, path: &Arc<Path>) -> DeviceError {
        let (path, action) = (path.clone(), self.action);
        DeviceError::GivenUp { path, action }
    }

    fn describe(&self, path: &Arc<Path>, failure: &Failure) -> DeviceError {
        let (path, action) = (path.clone(), self.action);
        let (offset, length) = (self.offset, self.length);
        match *failure {
            Failure::Errno(errno) => DeviceError::Io {
                path,
                action,
                offset,
                length,
                errno,
            },
            Failure::Ended { at } => {
                let done = at.saturating_sub(offset).min(length);
                DeviceError::Short {
                    path,
                    action,
                    offset,
                    length,
                    done,
                }
            }
            Failure::Unsupported => DeviceError::Unsupported { path, action },
        }
    }

    fn complete(self) -> Completion {
        let result = match (self.error, self.memory) {
            (Some(error), _) => Err(error),
            (None, Memory::Read(buffer)) => Ok(Some(buffer)),
            (None, _) => Ok(None),
        };
        Completion {
            result,
            queue_ns: self.queue_ns,
            service_ns: self.service_ns,
        }
    }
}

/// What a request wants, before it is made into jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) action: Action,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) segment: Segment,
}

/// A piece of a request's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) request: usize,
    pub(crate) pointer: *mut u8,
    pub(crate) length: usize,
}

/// Why a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Errno(Errno),
    /// The device ended at this offset.
    Ended {
        at: u64,
    },
    Unsupported,
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Failure {
        Failure::Errno(errno.into())
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) queue_ns: u64,
    pub(crate) service_ns: u64,
}

/// One call to the system: neighbouring segments, or an action without bytes.
#[derive(Debug)]
pub(crate) struct Job {
    batch: Arc<BatchState>,
    pub(crate) action: Action,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) segments: Vec<Segment>,
}

// SAFETY: the pointers lead into memory that the batch owns and keeps until the job has ended, and
// no two jobs share any of it.
unsafe impl Send for Job {}
// SAFETY: a shared job gives its pointers out only to the system.
unsafe impl Sync for Job {}

impl Job {
    pub(crate) fn new(
        batch: &Arc<BatchState>,
        action: Action,
        (offset, length): (u64, u64),
        segments: Vec<Segment>,
    ) -> Job {
        Job {
            batch: batch.clone(),
            action,
            offset,
            length,
            segments,
        }
    }

    pub(crate) fn submitted_ns(&self) -> u64 {
        self.batch.submitted_ns()
    }

    /// The pace of the thread that submitted it.
    pub(crate) fn pace(&self) -> Option<&Arc<Pace>> {
        self.batch.pace.as_ref()
    }

    /// One of several requests has failed; the others are still to be tried.
    pub(crate) fn segment_failed(&self, segment: &Segment, failure: &Failure) {
        self.batch.segment_failed(segment, failure);
    }

    /// The job has ended; its memory is no longer touched.
    pub(crate) fn end(self, times: Times, failure: Option<Failure>) {
        self.batch.job_done(&self.segments, times, failure.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_late_once_and_then_at_each_interval() {
        let lateness = Lateness {
            first_ns: 300,
            again_ns: 60,
        };
        let next = |waited_ns| lateness.next_ns(waited_ns);
        assert_eq!([next(0), next(299)], [300, 300]);
        assert_eq!([next(300), next(359), next(360)], [360, 360, 420]);
        assert_eq!(Lateness::NEVER.next_ns(u64::MAX - 1), u64::MAX);
    }
}
