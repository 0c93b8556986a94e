//! Sending PDUs over a connection, whole and in order of their status numbers.

use crate::protocol::pdu::{Digests, Pdu, padding, sum_of, trailer};
use crate::protocol::reply::{Piece, parts_in};
use crate::protocol::tasks::Tasks;
use crate::scsi::fields::put;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{ErrorKind, IoSlice, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long an initiator may take no bytes before its connection is closed.
const PATIENCE: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

/// Most parts of one system call; the system's own limit is 1024.
const PARTS_MAX: usize = 256;

/// How a PDU counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// It has a status number of its own.
    Status,
    /// It tells the next status number, and takes none.
    Tells,
    /// It has none.
    Not,
}

/// What is sent next.
#[derive(Debug)]
struct State {
    status_number: u32,
    digests: Digests,
    has_failed: bool,
}

/// The sending side of a connection.
#[derive(Debug)]
pub struct Output {
    state: Mutex<State>,
}

impl Default for Output {
    fn default() -> Output {
        Output {
            state: Mutex::new(State {
                status_number: 0,
                digests: Digests::default(),
                has_failed: false,
            }),
        }
    }
}

/// Replies of other requests wait while this is held.
pub struct Turn<'a> {
    state: MutexGuard<'a, State>,
    stream: &'a TcpStream,
}

impl Output {
    /// The turn to send.
    pub fn turn<'a>(&'a self, stream: &'a TcpStream) -> Turn<'a> {
        // A thread that panicked in its turn may have sent half of a PDU: the connection ends.
        let state = self.state.lock().unwrap_or_else(|poisoned| {
            let _ = stream.shutdown(Shutdown::Both);
            PoisonError::into_inner(poisoned)
        });
        Turn { state, stream }
    }
}

impl Turn<'_> {
    /// The full feature phase begins.
    pub fn begin_full_feature(&mut self, status_number: u32, digests: Digests) {
        self.state.status_number = status_number;
        self.state.digests = digests;
    }

    /// Sends a PDU of a login, which has its numbers and no digests.
    pub fn send_login(&mut self, pdu: &Pdu) {
        self.write(&[&pdu.encode(Digests::default())]);
    }

    /// Sends a PDU of a session.
    pub fn send(&mut self, mut pdu: Pdu, counts: Counts, tasks: &mut Tasks) {
        self.number(&mut pdu, counts, tasks);
        self.write(&[&pdu.encode(self.state.digests)]);
    }

    /// Sends data with its status.
    pub fn send_data(&mut self, pieces: Vec<Piece>, parts: &[&[u8]], tasks: &mut Tasks) {
        let digests = self.state.digests;
        let mut frames = Vec::new();
        for mut piece in pieces {
            let counts = match piece.is_last {
                true => Counts::Status,
                false => Counts::Not,
            };
            self.number(&mut piece.pdu, counts, tasks);
            let length = piece.range.len();
            let header = piece.pdu.encode_header(digests, length);
            let parts = parts_in(parts, piece.range);
            let sum = digests.data.then(|| sum_of(&parts, padding(length)));
            frames.push((header, parts, trailer(length, sum)));
        }
        let mut all: Vec<&[u8]> = Vec::new();
        for (header, parts, trailer) in &frames {
            all.push(header);
            all.extend(parts);
            if !trailer.is_empty() {
                all.push(trailer);
            }
        }
        self.write(&all);
    }

    fn number(&mut self, pdu: &mut Pdu, counts: Counts, tasks: &mut Tasks) {
        let (expected, most) = tasks.window();
        if counts != Counts::Not {
            put(&mut pdu.header, 24, &self.state.status_number.to_be_bytes());
        }
        if counts == Counts::Status {
            self.state.status_number = self.state.status_number.wrapping_add(1);
        }
        put(&mut pdu.header, 28, &expected.to_be_bytes());
        put(&mut pdu.header, 32, &most.to_be_bytes());
    }

    /// Writes all parts, or closes the connection.
    fn write(&mut self, parts: &[&[u8]]) {
        if self.state.has_failed {
            return;
        }
        for parts in parts.chunks(PARTS_MAX) {
            if !self.write_some(parts) {
                self.state.has_failed = true;
                let _ = self.stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    fn write_some(&self, parts: &[&[u8]]) -> bool {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        let mut stream = self.stream;
        while !rest.is_empty() {
            match stream.write_vectored(rest) {
                Ok(0) => return false,
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut room = [PollFd::new(self.stream, PollFlags::OUT)];
                    match rustix::event::poll(&mut room, Some(&PATIENCE)) {
                        Ok(0) => return false,
                        Ok(_) | Err(rustix::io::Errno::INTR) => {}
                        Err(_) => return false,
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}
