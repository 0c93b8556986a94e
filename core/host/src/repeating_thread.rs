//! Threads that do something again and again until they are told to end.

use std::sync::Arc;
use std::time::Duration;

use crate::host::Host;
use crate::lock::{Condvar, Mutex, Rank};
use crate::ranks::LEAF;
use crate::threads::JoinHandle;

/// Whether a thread is to end. Nothing is called while it is held.
const END: Rank = Rank::new(LEAF + 49, "end of a thread");

/// A thread that goes on until this is dropped.
#[derive(Debug)]
pub struct RepeatingThread {
    end: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

/// What tells a thread to end.
#[derive(Debug)]
pub struct End {
    is_asked: Mutex<bool>,
    asked: Condvar,
}

/// Which other threads run before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPlace {
    /// Those that were woken before.
    Plain,
    /// All that are woken: [`Host::spawn_background`].
    Background,
}

impl RepeatingThread {
    /// Starts a thread; `body` returns when [`End::comes_within`] says so.
    ///
    /// # Panics
    /// As [`Host::spawn`].
    pub fn start(
        host: &Host,
        name: &str,
        place: ThreadPlace,
        body: impl FnOnce(&End) + Send + 'static,
    ) -> RepeatingThread {
        let end = Arc::new(End {
            is_asked: Mutex::new(END, false),
            asked: Condvar::new(),
        });
        let of_thread = end.clone();
        let body = move || body(&of_thread);
        let thread = match place {
            ThreadPlace::Plain => host.spawn(name, body),
            ThreadPlace::Background => host.spawn_background(name, body),
        };
        RepeatingThread {
            end,
            thread: Some(thread),
        }
    }

    /// Ends the thread, and waits until it has ended.
    ///
    /// # Panics
    /// If the thread did.
    pub fn stop(mut self) {
        self.end.ask();
        if let Some(thread) = self.thread.take()
            && let Err(panicked) = thread.join()
        {
            panicked.resume();
        }
    }
}

impl Drop for RepeatingThread {
    fn drop(&mut self) {
        self.end.ask();
    }
}

impl End {
    /// Waits for that time, or until the end is asked for; says whether it is. After a wake without
    /// cause it is back early.
    pub fn comes_within(&self, time: Duration) -> bool {
        let mut is_asked = self.is_asked.lock();
        if !*is_asked {
            let _ = self.asked.wait_timeout(&mut is_asked, time);
        }
        *is_asked
    }

    fn ask(&self) {
        *self.is_asked.lock() = true;
        self.asked.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::RealOptions;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// An hour of waiting ends when the end is asked for, by stopping and by dropping.
    #[test]
    fn a_thread_ends_when_it_is_told() {
        let host = Host::real(RealOptions::default());
        for place in [ThreadPlace::Plain, ThreadPlace::Background] {
            let has_ended = Arc::new(AtomicBool::new(false));
            let told = has_ended.clone();
            let (last, is_last) = std::sync::mpsc::channel();
            let thread = RepeatingThread::start(&host, "again", place, move |end| {
                while !end.comes_within(Duration::from_secs(3600)) {}
                told.store(true, Ordering::Relaxed);
                last.send(()).expect("the test waits for it");
            });
            match place {
                ThreadPlace::Plain => thread.stop(),
                ThreadPlace::Background => drop(thread),
            }
            is_last.recv().unwrap();
            assert!(has_ended.load(Ordering::Relaxed));
        }
    }

    #[test]
    #[should_panic(expected = "in the thread")]
    fn a_panic_of_the_thread_goes_on_where_it_is_stopped() {
        let host = Host::real(RealOptions::default());
        let body = |_: &End| panic!("in the thread");
        RepeatingThread::start(&host, "panics", ThreadPlace::Plain, body).stop();
    }
}
