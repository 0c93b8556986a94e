//! Threads: only for state with an owner.

use std::any::Any;
use std::fmt;

use crate::lock::check_wait;
use crate::sim::baton::Joiner;

/// A thread that can be waited for. Dropping it lets the thread go on.
#[derive(Debug)]
pub struct JoinHandle<T> {
    name: String,
    kind: Kind<T>,
}

pub(crate) enum Kind<T> {
    Real(std::thread::JoinHandle<T>),
    Simulated(Joiner<T>),
}

impl<T> fmt::Debug for Kind<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("thread")
    }
}

impl<T> JoinHandle<T> {
    pub(crate) fn new(name: &str, kind: Kind<T>) -> JoinHandle<T> {
        JoinHandle {
            name: name.to_owned(),
            kind,
        }
    }

    /// Waits until the thread has ended, and gives what it returned.
    pub fn join(self) -> Result<T, ThreadPanicked> {
        check_wait("the end of a thread");
        let ended = match self.kind {
            Kind::Real(handle) => handle.join(),
            Kind::Simulated(joiner) => joiner.join(),
        };
        ended.map_err(|payload| ThreadPanicked {
            name: self.name,
            payload,
        })
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.kind {
            Kind::Real(handle) => handle.is_finished(),
            Kind::Simulated(joiner) => joiner.poll_finished(),
        }
    }
}

/// A thread did not return but panicked.
pub struct ThreadPanicked {
    name: String,
    payload: Box<dyn Any + Send>,
}

impl ThreadPanicked {
    /// Goes on with the same panic in the calling thread.
    pub fn resume(self) -> ! {
        std::panic::resume_unwind(self.payload)
    }

    fn message(&self) -> &str {
        let text = self.payload.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| self.payload.downcast_ref::<&str>().copied())
            .unwrap_or("no message")
    }
}

impl fmt::Debug for ThreadPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ThreadPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} panicked: {}", self.name, self.message())
    }
}

impl std::error::Error for ThreadPanicked {}
