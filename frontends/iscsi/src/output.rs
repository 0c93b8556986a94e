//! Sending PDUs over a connection, whole and in order of their status numbers.

use crate::protocol::pdu::{Digests, Pdu, padding, sum_of, trailer};
use crate::protocol::reply::{Piece, parts_in};
use crate::protocol::tasks::Tasks;
use crate::scsi::fields::put;
use crate::storage::Contents;
use rustix::fd::AsFd;
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tarn_serving::{Fill, Outbox, Part};

/// How long an initiator may take no bytes before its connection is closed.
const PATIENCE_S: i64 = 30;

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

/// Whether a PDU is sent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// It is.
    Now,
    /// The thread has more to send, or to do, first.
    Held,
}

/// The numbers of what is put in line next.
#[derive(Debug)]
struct State {
    status_number: u32,
    digests: Digests,
}

/// The sending side of a connection.
#[derive(Debug)]
pub struct Output {
    state: Mutex<State>,
    outbox: Outbox,
}

impl Default for Output {
    fn default() -> Output {
        Output {
            state: Mutex::new(State {
                status_number: 0,
                digests: Digests::default(),
            }),
            outbox: Outbox::new(PATIENCE_S),
        }
    }
}

/// The right to put PDUs in line. When it is dropped, they are sent.
pub struct Turn<'a> {
    /// Nothing when it is being dropped.
    state: Option<MutexGuard<'a, State>>,
    outbox: &'a Outbox,
    stream: &'a TcpStream,
    sending: Sending,
}

impl Output {
    /// The turn to put PDUs in line. `sending` says whether they may be held back.
    pub fn turn<'a>(&'a self, stream: &'a TcpStream, sending: Sending) -> Turn<'a> {
        // A thread that panicked in its turn may have put half of a reply there: the connection
        // ends.
        let state = self.state.lock().unwrap_or_else(|poisoned| {
            let _ = stream.shutdown(Shutdown::Both);
            PoisonError::into_inner(poisoned)
        });
        Turn {
            state: Some(state),
            outbox: &self.outbox,
            stream,
            sending,
        }
    }

    /// Whether PDUs are not sent.
    pub fn has_held(&self) -> bool {
        self.outbox.has_unsent()
    }

    /// Sends what is in line.
    pub fn send_held(&self, stream: &TcpStream) {
        close_if_failed(stream, self.outbox.send(stream.as_fd()));
    }

    /// Sends as much of it as the socket takes at once.
    pub fn send_held_at_once(&self, stream: &TcpStream) {
        close_if_failed(stream, self.outbox.send_at_once(stream.as_fd()));
    }

    /// Sends what is in line, before the connection is closed.
    pub fn send_last(&self, stream: &TcpStream) {
        close_if_failed(stream, self.outbox.send_last(stream.as_fd()));
    }
}

fn close_if_failed<E>(stream: &TcpStream, sent: Result<(), E>) {
    if sent.is_err() {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.state.take());
        if self.sending == Sending::Now {
            close_if_failed(self.stream, self.outbox.send(self.stream.as_fd()));
        }
    }
}

impl Turn<'_> {
    fn state(&mut self) -> &mut State {
        self.state.as_mut().expect("a turn has it until its end")
    }

    /// The full feature phase begins.
    pub fn begin_full_feature(&mut self, status_number: u32, digests: Digests) {
        *self.state() = State {
            status_number,
            digests,
        };
    }

    /// Sends a PDU of a login, which has its numbers and no digests.
    pub fn send_login(&mut self, pdu: &Pdu) {
        self.put([Part::Own(pdu.encode(Digests::default()))]);
    }

    /// Sends a PDU of a session.
    pub fn send(&mut self, mut pdu: Pdu, counts: Counts, tasks: &mut Tasks) {
        self.number(&mut pdu, counts, tasks);
        let encoded = pdu.encode(self.state().digests);
        self.put([Part::Own(encoded)]);
    }

    /// Sends data with its status.
    pub fn send_data(&mut self, pieces: Vec<Piece>, mut contents: Contents, tasks: &mut Tasks) {
        let digests = self.state().digests;
        let mut message = Vec::with_capacity(3 * pieces.len());
        for mut piece in pieces {
            let counts = match piece.is_last {
                true => Counts::Status,
                false => Counts::Not,
            };
            self.number(&mut piece.pdu, counts, tasks);
            let length = piece.range.len();
            let mut header = piece.pdu.encode_header(digests, length);
            let sum = digests.data.then(|| {
                let parts = contents.parts();
                sum_of(&parts_in(&parts, piece.range.clone()), padding(length))
            });
            match &mut contents {
                Contents::Cached(data) => {
                    let these = match piece.range == (0..data.len()) {
                        true => std::mem::take(data),
                        false => data.part(piece.range),
                    };
                    message.push(Part::Own(header));
                    message.push(Part::Blocks(these));
                }
                Contents::Bytes(bytes) => {
                    header.extend_from_slice(&bytes[piece.range]);
                    message.push(Part::Own(header));
                }
            }
            let trailer = trailer(length, sum);
            if !trailer.is_empty() {
                message.push(Part::Own(trailer));
            }
        }
        self.put(message);
    }

    fn number(&mut self, pdu: &mut Pdu, counts: Counts, tasks: &mut Tasks) {
        let (expected, most) = tasks.window();
        let state = self.state();
        if counts != Counts::Not {
            put(&mut pdu.header, 24, &state.status_number.to_be_bytes());
        }
        if counts == Counts::Status {
            state.status_number = state.status_number.wrapping_add(1);
        }
        put(&mut pdu.header, 28, &expected.to_be_bytes());
        put(&mut pdu.header, 32, &most.to_be_bytes());
    }

    fn put(&mut self, message: impl IntoIterator<Item = Part>) {
        if self.outbox.put(message) == Fill::Enough {
            self.sending = Sending::Now;
        }
    }
}
