//! The life of a serving thread: it waits for any source, serves what comes, and ends when it was
//! idle for long.

use crate::awake_processors::QUIET;
use crate::ownership::release_before_wait;
use crate::serving_threads::ServingThreads;
use crate::source::AnySource;
use rustix::event::epoll;
use rustix::io::Errno;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tarn_engine::files::call_before_waits;

/// Threads that stay when there is nothing to do.
const THREADS_MIN: usize = 2;

/// How long a thread beyond those waits before it ends.
const IDLE_MAX: rustix::time::Timespec = rustix::time::Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

impl ServingThreads {
    /// The life of a thread: wait, and serve what comes.
    pub(crate) fn run_thread(self: &Arc<Self>) {
        call_before_waits(release_before_wait);
        let mut places = RequestPlaces::default();
        while let Some(key) = self.wait() {
            let Some(registered) = self.find(key) else {
                continue;
            };
            // Not this thread's if threads that had replied were faster.
            if registered.own(self.owners_max_of(&registered)) {
                match registered.pool().is_full() {
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
