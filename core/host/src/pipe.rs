//! Descriptors of commands, through which `zfs send` and `receive` move streams.
//!
//! # Problem
//! A stream of terabytes goes to, or comes from, a descriptor that a command has: a pipe, a file, a
//! socket. It is shared with other processes, so its mode must not change: it may block. The reader
//! at its other end may stop for a day; but when the command dies, or the pool must go, the waiting
//! thread must end at once.
//!
//! # Mechanism
//! Nothing is read or written before [`poll`] has said that the descriptor is ready. The same call
//! watches the caller's *line*, a socket that is hung up when the caller ends, and an event that a
//! [`PipeStopper`] raises. So that a call after that does not wait all the same, pipes are opened
//! anew, for this process alone, in a mode that does not block; sockets are told with each call. A
//! pipe that may not be opened anew is written a page at a time: as much room there is when it is
//! ready.
//!
//! # Invariants
//! - The mode of the caller's descriptor is not changed, and its offset moves as if the caller read
//!   or wrote.
//! - After the caller is gone, or a stopper was used, every call fails.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::lock::check_wait;

/// Size of a pipe, so that both ends can work at the same time: the kernel's limit for users
/// without privilege.
const PIPE_BYTES: usize = 1 << 20;

/// As much can be written to a pipe that is ready without waiting (`PIPE_BUF`).
const PAGE_BYTES: usize = 4096;

/// Why a pipe ended before its stream did; inside of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PipeEnd {
    /// The process that handed the descriptor over has ended, or closed its line.
    #[error("the caller is gone")]
    CallerGone,
    /// It was stopped from within.
    #[error("the stream was stopped")]
    Stopped,
}

impl PipeEnd {
    /// Why a pipe ended, where it was not the system's error.
    pub fn of(error: &Error) -> Option<PipeEnd> {
        error.get_ref()?.downcast_ref::<PipeEnd>().copied()
    }
}

impl From<PipeEnd> for Error {
    fn from(end: PipeEnd) -> Error {
        Error::new(ErrorKind::ConnectionAborted, end)
    }
}

/// A caller's descriptor. Clones are the same; it is closed with the last.
#[derive(Debug, Clone)]
pub struct Pipe {
    ends: Arc<Ends>,
}

#[derive(Debug)]
struct Ends {
    file: OwnedFd,
    way: Way,
    line: OwnedFd,
    stopper: PipeStopper,
}

/// How a call is kept from waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Nothing needs to: files do not wait for others, and what was opened anew does not block.
    Plain,
    /// Each call is told.
    Socket,
    /// No more is written than there is room for.
    InPages,
}

/// Ends a pipe from another thread.
#[derive(Debug, Clone)]
pub struct PipeStopper(Arc<OwnedFd>);

impl PipeStopper {
    /// Ends the waiting call of the pipe, and every later call fails.
    pub fn stop(&self) {
        // It can only fail when it was raised already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl Pipe {
    /// Takes a descriptor over. `line` is a socket whose other end the caller keeps open.
    ///
    /// # Errors
    /// When the system gives no more descriptors.
    pub fn new(file: OwnedFd, line: OwnedFd) -> Result<Pipe> {
        let stopper = PipeStopper(Arc::new(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?));
        let (file, way) = prepare(file)?;
        Ok(Pipe {
            ends: Arc::new(Ends {
                file,
                way,
                line,
                stopper,
            }),
        })
    }

    /// What ends it.
    pub fn stopper(&self) -> PipeStopper {
        self.ends.stopper.clone()
    }

    /// Fails when the caller is gone or the pipe was stopped; does not wait.
    ///
    /// # Errors
    /// A [`PipeEnd`], or what the system said.
    pub fn check(&self) -> Result<()> {
        self.ends.poll(PollFlags::empty(), Some(0)).map(|_| ())
    }
}

impl Ends {
    /// Waits until the descriptor is ready.
    fn wait_for(&self, ready: PollFlags) -> Result<()> {
        check_wait("a caller's pipe");
        while !self.poll(ready, None)? {}
        Ok(())
    }

    /// Whether the descriptor is ready. Without a time it waits until something is.
    fn poll(&self, ready: PollFlags, time_s: Option<i64>) -> Result<bool> {
        let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL;
        let mut watched = [
            PollFd::new(&self.file, ready),
            PollFd::new(&self.line, PollFlags::RDHUP),
            PollFd::new(&*self.stopper.0, PollFlags::IN),
        ];
        let time = time_s.map(|tv_sec| rustix::event::Timespec { tv_sec, tv_nsec: 0 });
        match poll(&mut watched, time.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        let [file, line, stopped] = watched.map(|one| one.revents());
        if !stopped.is_empty() {
            return Err(PipeEnd::Stopped.into());
        }
        if line.intersects(gone) {
            return Err(PipeEnd::CallerGone.into());
        }
        Ok(!file.is_empty())
    }
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let ends = &*self.ends;
        loop {
            ends.wait_for(PollFlags::IN)?;
            let read = match ends.way {
                Way::Socket => {
                    rustix::net::recv(&ends.file, &mut *bytes, RecvFlags::DONTWAIT).map(|(n, _)| n)
                }
                Way::Plain | Way::InPages => rustix::io::read(&ends.file, &mut *bytes),
            };
            match read {
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let ends = &*self.ends;
        loop {
            ends.wait_for(PollFlags::OUT)?;
            let written = match ends.way {
                Way::Socket => {
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    rustix::net::send(&ends.file, bytes, flags)
                }
                Way::Plain => rustix::io::write(&ends.file, bytes),
                Way::InPages => {
                    rustix::io::write(&ends.file, &bytes[..bytes.len().min(PAGE_BYTES)])
                }
            };
            match written {
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Finds out what a descriptor is, and opens it anew where that helps.
fn prepare(file: OwnedFd) -> Result<(OwnedFd, Way)> {
    let status = rustix::fs::fstat(&file)?;
    Ok(match FileType::from_raw_mode(status.st_mode) {
        FileType::Socket => (file, Way::Socket),
        FileType::RegularFile | FileType::BlockDevice | FileType::Directory => (file, Way::Plain),
        FileType::Fifo => {
            // What the kernel does not allow is not needed.
            let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE_BYTES);
            match open_anew(&file) {
                Ok(anew) => (anew, Way::Plain),
                Err(_) => (file, Way::InPages),
            }
        }
        _ => (file, Way::InPages),
    })
}

/// The same pipe, opened by this process for itself, in a mode that does not block.
fn open_anew(file: &OwnedFd) -> std::result::Result<OwnedFd, Errno> {
    let access = rustix::fs::fcntl_getfl(file)? & OFlags::ACCMODE;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::fs::File;
    use std::io::{Seek, SeekFrom};
    use std::thread;

    fn sockets() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    }

    /// Two ends of a pipe as a shell makes it: both block.
    fn pipe_ends() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
    }

    /// A pipe over a descriptor, and the caller's end of its line.
    fn handed_over(file: OwnedFd) -> (Pipe, OwnedFd) {
        let (ours, callers) = sockets();
        (Pipe::new(file, ours).unwrap(), callers)
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|n| u8::try_from(n % 251).unwrap()).collect()
    }

    /// More than any buffer holds goes through, whichever kind it is, and the caller's end still
    /// blocks.
    #[test]
    fn bytes_flow_both_ways_through_pipes_and_sockets() {
        let wanted = bytes(5 << 20);
        for (reads, writes) in [pipe_ends(), sockets()] {
            let beside = writes.try_clone().unwrap();
            let (mut ours, _line) = handed_over(writes);
            let (mut theirs, _line_of_reader) = handed_over(reads);
            thread::scope(|scope| {
                scope.spawn(|| ours.write_all(&wanted).unwrap());
                let mut got = vec![0; wanted.len()];
                theirs.read_exact(&mut got).unwrap();
                assert!(got == wanted);
            });
            let flags = rustix::fs::fcntl_getfl(&beside).unwrap();
            assert!(!flags.contains(OFlags::NONBLOCK));
            drop((ours, beside));
            assert_eq!(theirs.read(&mut [0; 8]).unwrap(), 0);
        }
    }

    #[test]
    fn a_pipe_that_cannot_be_opened_anew_is_written_in_pages() {
        let (reads, writes) = pipe_ends();
        let (ours, line) = handed_over(writes);
        let file = ours.ends.file.try_clone().unwrap();
        rustix::fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
        let mut paged = Pipe {
            ends: Arc::new(Ends {
                file,
                way: Way::InPages,
                line: ours.ends.line.try_clone().unwrap(),
                stopper: ours.stopper(),
            }),
        };
        // It has no reader: it fills up, and then waits where it can be stopped.
        let writer = thread::spawn(move || paged.write_all(&bytes(8 << 20)));
        let mut first = vec![0; 100_000];
        let mut reads = File::from(reads);
        reads.read_exact(&mut first).unwrap();
        assert!(first == bytes(100_000));
        drop(line);
        let error = writer.join().unwrap().unwrap_err();
        assert_eq!(PipeEnd::of(&error), Some(PipeEnd::CallerGone));
    }

    #[test]
    fn a_waiting_call_ends_when_the_caller_is_gone_or_it_is_stopped() {
        for is_stopped in [false, true] {
            let expected = match is_stopped {
                true => PipeEnd::Stopped,
                false => PipeEnd::CallerGone,
            };
            let ends = [pipe_ends(), sockets()];
            for (reads, writes) in ends {
                let (pipe, line) = handed_over(writes);
                let (reader, line_of_reader) = handed_over(reads);
                let stoppers = [pipe.stopper(), reader.stopper()];
                // The reader is not waited for: nothing was written. Nor is the writer, whose pipe
                // is full.
                let full = {
                    let mut pipe = pipe.clone();
                    thread::spawn(move || pipe.write_all(&bytes(16 << 20)))
                };
                let waiting = {
                    let (empty, held) = pipe_ends();
                    let (mut pipe, line) = handed_over(empty);
                    let stopper = pipe.stopper();
                    let thread = thread::spawn(move || pipe.read(&mut [0; 8]));
                    (thread, line, stopper, held)
                };
                match is_stopped {
                    true => {
                        stoppers.iter().for_each(PipeStopper::stop);
                        waiting.2.stop();
                    }
                    false => drop((line, line_of_reader, waiting.1)),
                }
                let failed = [
                    full.join().unwrap().unwrap_err(),
                    waiting.0.join().unwrap().unwrap_err(),
                    pipe.check().unwrap_err(),
                ];
                for error in failed {
                    assert_eq!(PipeEnd::of(&error), Some(expected));
                }
            }
        }
    }

    #[test]
    fn a_reader_that_is_gone_is_a_broken_pipe() {
        let (reads, writes) = pipe_ends();
        let (mut pipe, _line) = handed_over(writes);
        drop(reads);
        let error = pipe.write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        assert_eq!(PipeEnd::of(&error), None);
    }

    /// `{ zfs send a; zfs send b; } > file` and the same way back.
    #[test]
    fn the_offset_of_a_file_is_the_callers() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before ").unwrap();
        let (mut pipe, _line) = handed_over(file.try_clone().unwrap().into());
        pipe.write_all(b"by us ").unwrap();
        file.write_all(b"after").unwrap();
        file.seek(SeekFrom::Start(7)).unwrap();
        let mut ours = [0; 6];
        pipe.read_exact(&mut ours).unwrap();
        assert_eq!(&ours, b"by us ");
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "after");
    }
}
