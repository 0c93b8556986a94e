//! Streams that are under way in a pool.
//!
//! # Problem
//! Sending and receiving take hours, and wait for somebody else's pipe most of the time. The pool must not be closed below them, and who gives it up
//! must not wait for that somebody.
//!
//! # Mechanism
//! Each stream is entered here with what stops its pipe, in the pool's turn; it does not keep the turn. Whoever closes the pool has the turn, so no stream begins
//! meanwhile. Without force a pool with streams is busy; by force their pipes are stopped, and they are waited for.

use crate::administration::Presence;
use crate::engine::OpenPool;
use crate::messages::{Refusal, RefusalKind};
use std::collections::BTreeMap;
use std::time::Duration;
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_host::{Pipe, PipeEnd, PipeStopper};

/// What is under way.
const STREAMS: Rank = Rank::new(tarn_host::ranks::ENGINE + 16, "streams");

/// How long streams that were stopped are waited for. They look up from their work after each block.
const PATIENCE: Duration = Duration::from_secs(1);

/// The streams of one pool.
pub(crate) struct Streams {
    running: Mutex<Running>,
    ended: Condvar,
}

#[derive(Default)]
struct Running {
    last: u64,
    stoppers: BTreeMap<u64, Stopper>,
}

/// What ends a stream, or a look at all that would be in one.
enum Stopper {
    Pipe(PipeStopper),
    Look(Presence),
}

impl Stopper {
    fn stop(&self) {
        match self {
            Stopper::Pipe(pipe) => pipe.stop(),
            Stopper::Look(presence) => presence.end(),
        }
    }
}

/// A look at all that would be in a stream. It takes as long as the stream would, and has no pipe.
pub(crate) struct Looking<'a> {
    _streaming: Streaming<'a>,
    caller: Presence,
    itself: Presence,
}

impl Looking<'_> {
    /// Why it is to end.
    pub(crate) fn check(&self) -> Result<(), PipeEnd> {
        if self.itself.has_ended() {
            return Err(PipeEnd::Stopped);
        }
        match self.caller.has_ended() {
            true => Err(PipeEnd::CallerGone),
            false => Ok(()),
        }
    }
}

impl Streams {
    pub(crate) fn new() -> Streams {
        Streams {
            running: Mutex::new(STREAMS, Running::default()),
            ended: Condvar::new(),
        }
    }

    /// A stream begins. Called in the pool's turn; the stream is under way until what is returned is dropped.
    pub(crate) fn begin(&self, pipe: &Pipe) -> Streaming<'_> {
        self.enter(Stopper::Pipe(pipe.stopper()))
    }

    /// The same for a look at what would be in a stream.
    pub(crate) fn begin_look(&self, caller: &Presence) -> Looking<'_> {
        let itself = Presence::default();
        Looking {
            _streaming: self.enter(Stopper::Look(itself.clone())),
            caller: caller.clone(),
            itself,
        }
    }

    fn enter(&self, stopper: Stopper) -> Streaming<'_> {
        let mut running = self.running.lock();
        running.last += 1;
        let number = running.last;
        running.stoppers.insert(number, stopper);
        Streaming {
            streams: self,
            number,
        }
    }

    /// Stops all streams, and waits a while until they have ended.
    pub(crate) fn stop(&self) {
        let mut running = self.running.lock();
        running.stoppers.values().for_each(Stopper::stop);
        while !running.stoppers.is_empty() {
            if self.ended.wait_timeout(&mut running, PATIENCE).timed_out() {
                return;
            }
        }
    }

    fn is_any(&self) -> bool {
        !self.running.lock().stoppers.is_empty()
    }
}

/// A stream that is under way.
pub(crate) struct Streaming<'a> {
    streams: &'a Streams,
    number: u64,
}

impl Drop for Streaming<'_> {
    fn drop(&mut self) {
        self.streams.running.lock().stoppers.remove(&self.number);
        self.streams.ended.notify_all();
    }
}

impl OpenPool {
    /// Makes sure that no stream is under way, for who closes the pool in its turn: by force they are stopped. `action` is `cannot export 'tank'`.
    pub(crate) fn end_streams(&self, force: bool, action: String) -> Result<(), Refusal> {
        if force {
            self.streams.stop();
        } else if self.streams.is_any() {
            return Err(Refusal::new(RefusalKind::Busy, action, "pool is busy"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    #[test]
    fn a_look_ends_with_its_caller_and_when_it_is_stopped() {
        let streams = Streams::new();
        let caller = Presence::default();
        let looking = streams.begin_look(&caller);
        assert_eq!(looking.check(), Ok(()));
        assert!(streams.is_any());
        caller.end();
        assert_eq!(looking.check(), Err(PipeEnd::CallerGone));
        drop(looking);
        assert!(!streams.is_any());
        let looking = streams.begin_look(&Presence::default());
        let stoppers = &streams.running.lock().stoppers;
        stoppers.values().for_each(Stopper::stop);
        assert_eq!(looking.check(), Err(PipeEnd::Stopped));
    }

    #[test]
    fn a_stream_that_is_stopped_lets_go_of_whoever_waits_for_it() {
        let streams = Arc::new(Streams::new());
        let (data, mut theirs) = UnixStream::pair().unwrap();
        let (line, _callers) = UnixStream::pair().unwrap();
        let mut pipe = Pipe::new(data.into(), line.into()).unwrap();
        theirs.write_all(b"x").unwrap();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let streams = streams.clone();
            move || {
                let _streaming = streams.begin(&pipe);
                pipe.read_exact(&mut [0]).unwrap();
                begun.send(()).unwrap();
                pipe.read_exact(&mut [0]).unwrap_err()
            }
        });
        has_begun.recv().unwrap();
        assert!(streams.is_any());
        streams.stop();
        assert!(!streams.is_any());
        let error = thread.join().unwrap();
        assert_eq!(error.to_string(), "the stream was stopped");
    }
}
