//! The sends and receives under way in a pool.
//!
//! # Problem
//! A send or receive takes hours, and mostly waits for the pipe of another program. The pool must
//! not be closed below it, and an export by force must not wait for that program.
//!
//! # Mechanism
//! Each stream enters here what stops its pipe, in the pool's turn, which it does not keep. A
//! command that closes the pool has the turn, so no stream begins meanwhile. Without force a pool
//! with streams is busy; by force their pipes are stopped and the streams waited for.

use crate::engine::OpenPool;
use crate::presence::Presence;
use crate::refusals::{Refusal, RefusalKind};
use std::collections::BTreeMap;
use std::time::Duration;
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_host::{Pipe, PipeEnd, PipeStopper};

/// The streams under way.
const STREAMS: Rank = Rank::new(tarn_host::ranks::ENGINE + 16, "streams");

/// How long a closing pool waits for stopped streams. A stream checks for the stop after each
/// block.
const PATIENCE: Duration = Duration::from_secs(1);

/// The streams of one pool.
pub struct Streams {
    running: Mutex<Running>,
    ended: Condvar,
}

#[derive(Default)]
struct Running {
    last: u64,
    stoppers: BTreeMap<u64, Stopper>,
}

/// What stops a stream, or the measuring of one.
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

/// The measuring of a stream (`zfs send -n`). It walks as long as the stream would, and has no
/// pipe.
pub struct Looking<'a> {
    _streaming: Streaming<'a>,
    caller: Presence,
    itself: Presence,
}

impl Looking<'_> {
    /// Fails when it is to stop, with the reason.
    pub fn check(&self) -> Result<(), PipeEnd> {
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

    /// Begins a stream, in the pool's turn. It is under way until the returned value is dropped.
    pub fn begin(&self, pipe: &Pipe) -> Streaming<'_> {
        self.enter(Stopper::Pipe(pipe.stopper()))
    }

    /// Begins the measuring of a stream.
    pub fn begin_look(&self, caller: &Presence) -> Looking<'_> {
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

    /// Stops all streams, and waits a while for their ends.
    pub fn stop(&self) {
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
pub struct Streaming<'a> {
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
    /// Makes sure that no stream is under way before the caller closes the pool in its turn;
    /// `force` stops them. `action` is `cannot export 'tank'`.
    pub fn end_streams(&self, force: bool, action: String) -> Result<(), Refusal> {
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
    fn measuring_ends_with_its_caller_and_when_it_is_stopped() {
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
    fn a_stopped_stream_ends_waits_on_its_pipe() {
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
