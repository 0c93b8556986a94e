//! Messages to one client: each whole, in the order in which they were put here.
//!
//! # Problem
//! Several threads reply to requests of one connection. A call of the system for each reply costs
//! more than many of the requests, and a client that reads slowly must neither hold every thread
//! that replies to it nor have replies pile up.
//!
//! # Mechanism
//! A thread puts its message in *line* and then sends the line: one thread at a time has the *turn*
//! to write, many messages by one call. A thread that finds the turn taken leaves its message to
//! the one that has it, which looks at the line again before and after it gives the turn back.
//! Where so much is in line that the client must be slow, threads wait for the turn.
//!
//! A thread that will look for the next request at once may hold its message back: it sends the
//! line when no other request is there ([`Source::send_held`](crate::Source::send_held)), or before
//! it waits, by what the socket takes at once
//! ([`Source::send_held_at_once`](crate::Source::send_held_at_once)).
//!
//! # Alignment
//! For each call a Unix socket fills pages of its own from their beginning. A header before much
//! data would have each of these copies, and those of the client, begin and end within a word,
//! which takes about a tenth longer; so on a Unix socket much data begins a call of its own. On TCP
//! all bytes follow each other in the same pages, and one call sends all.
//!
//! # Invariants
//! - What is in line is being sent by the thread that has the turn, or will be sent by one that
//!   holds it back; or the socket is full, and epoll watches for room.
//! - Blocks of the cache are kept by the line, and given to the system uncopied.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use tarn_engine::files::ReadData;

/// So many messages are held back at most. A guess: the first of them waits for the others, and the
/// client can work on them meanwhile.
const HELD_MAX: usize = 8;
/// So many bytes are held back at most.
const HELD_BYTES_MAX: usize = 64 << 10;
/// With so many bytes in line threads wait for their turn. A guess: more than sockets take.
const LINE_BYTES_MAX: usize = 1 << 20;
/// How many parts one call of the system takes; the system's own limit is 1024.
const PARTS_MAX: usize = 512;

/// From this size on data begins a call of its own on a Unix socket: measured, for 128 KiB that
/// saves more than the call takes; so much fills one piece of the socket's memory.
const ALONE_BYTES_MIN: usize = 32 << 10;

/// What messages are written to: a socket, or what encrypts for one.
pub trait Wire {
    /// The socket, which is writable when there is room.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Writes the first bytes of these parts without waiting, and says how many. After `AGAIN` it
    /// is called with the same parts again.
    ///
    /// # Errors
    /// The system's; `AGAIN` when there is no room.
    fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno>;
}

impl Wire for BorrowedFd<'_> {
    fn socket(&self) -> BorrowedFd<'_> {
        *self
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        rustix::io::writev(self, parts)
    }
}

impl<W: Wire> Wire for &W {
    fn socket(&self) -> BorrowedFd<'_> {
        (**self).socket()
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        (**self).write(parts)
    }
}

/// A part of a message.
#[derive(Debug)]
pub enum Part {
    /// Bytes of its own.
    Own(Vec<u8>),
    /// Blocks of the cache.
    Blocks(ReadData),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Part::Own(bytes) => bytes.len(),
            Part::Blocks(data) => data.len(),
        }
    }
}

/// Whether more than the messages that are in line may be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// They may be held back.
    Little,
    /// They are to be sent.
    Enough,
}

#[derive(Debug, Default)]
struct Line {
    parts: Vec<Part>,
    messages: usize,
    bytes: usize,
}

/// What is being written.
#[derive(Debug, Default)]
struct Turn {
    parts: Vec<Part>,
    messages: usize,
    /// How many bytes of it were written.
    sent: usize,
}

/// What is sent over one socket.
#[derive(Debug)]
pub struct Outbox {
    line: Mutex<Line>,
    turn: Mutex<Turn>,
    /// How many messages were put here and are not sent.
    unsent: AtomicUsize,
    is_broken: AtomicBool,
    /// Much data begins a call of the system.
    has_data_alone: bool,
    /// How long a client may take no bytes.
    patience: Timespec,
}

impl Outbox {
    /// An empty one, for a client that may take no bytes for so many seconds.
    pub fn new(patience_s: i64) -> Outbox {
        Outbox {
            line: Mutex::default(),
            turn: Mutex::default(),
            unsent: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
            has_data_alone: false,
            patience: Timespec {
                tv_sec: patience_s,
                tv_nsec: 0,
            },
        }
    }

    /// The same for this socket: on a Unix socket much data begins a call of its own.
    pub fn of_socket(socket: BorrowedFd<'_>, patience_s: i64) -> Outbox {
        let family = rustix::net::sockopt::socket_domain(socket);
        Outbox {
            has_data_alone: family == Ok(AddressFamily::UNIX),
            ..Outbox::new(patience_s)
        }
    }

    /// Whether messages wait to be sent.
    pub fn has_unsent(&self) -> bool {
        self.unsent.load(Ordering::SeqCst) > 0 && !self.is_broken.load(Ordering::SeqCst)
    }

    /// Puts a message in line, and says whether the line is to be sent now. The caller sends it, or
    /// knows that it will.
    pub fn put(&self, message: impl IntoIterator<Item = Part>) -> Fill {
        let mut line = self.line();
        for part in message {
            line.bytes += part.len();
            line.parts.push(part);
        }
        assert!(line.bytes > 0, "each message has bytes");
        line.messages += 1;
        self.unsent.fetch_add(1, Ordering::SeqCst);
        match line.messages >= HELD_MAX || line.bytes >= HELD_BYTES_MAX {
            true => Fill::Enough,
            false => Fill::Little,
        }
    }

    /// Sends what is in line, unless a thread that has the turn will.
    ///
    /// # Errors
    /// The system's, and `TIMEDOUT` when the client took no bytes for too long: the connection is
    /// to be closed. What is put in line later is dropped.
    pub fn send(&self, wire: impl Wire) -> Result<(), Errno> {
        while self.has_unsent() {
            let is_slow = self.line().bytes > LINE_BYTES_MAX;
            let turn = match is_slow {
                true => Some(self.turn()?),
                false => self.turn_if_free()?,
            };
            let Some(mut turn) = turn else { return Ok(()) };
            self.note(self.write_all(&mut turn, &wire, Waiting::UntilSent))?;
        }
        Ok(())
    }

    /// Sends what is in line, and waits where another thread has the turn: the connection is about
    /// to be closed.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_last(&self, wire: impl Wire) -> Result<(), Errno> {
        let mut turn = self.turn()?;
        self.note(self.write_all(&mut turn, &wire, Waiting::UntilSent))
    }

    /// Sends as much as the socket takes without waiting.
    ///
    /// # Errors
    /// The system's.
    pub fn send_at_once(&self, wire: impl Wire) -> Result<(), Errno> {
        while self.has_unsent() {
            let Some(mut turn) = self.turn_if_free()? else {
                return Ok(());
            };
            match self.write_all(&mut turn, &wire, Waiting::Never) {
                Err(Errno::AGAIN) => return Ok(()),
                written => self.note(written)?,
            }
        }
        Ok(())
    }

    fn note(&self, written: Result<(), Errno>) -> Result<(), Errno> {
        if written.is_err() {
            self.is_broken.store(true, Ordering::SeqCst);
        }
        written
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // A thread that panicked with it was adding parts: what comes is no message any more.
        self.line.lock().unwrap_or_else(|poisoned| {
            self.is_broken.store(true, Ordering::SeqCst);
            PoisonError::into_inner(poisoned)
        })
    }

    fn turn(&self) -> Result<MutexGuard<'_, Turn>, Errno> {
        // A thread that panicked with it has left a part of a message behind.
        match self.turn.lock() {
            Ok(turn) => Ok(turn),
            Err(_) => self.note(Err(Errno::PIPE)).and(Err(Errno::PIPE)),
        }
    }

    fn turn_if_free(&self) -> Result<Option<MutexGuard<'_, Turn>>, Errno> {
        match self.turn.try_lock() {
            Ok(turn) => Ok(Some(turn)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => {
                self.note(Err(Errno::PIPE))?;
                Ok(None)
            }
        }
    }

    /// Writes until nothing is in line.
    fn write_all(&self, turn: &mut Turn, wire: &impl Wire, waiting: Waiting) -> Result<(), Errno> {
        loop {
            if turn.messages == 0 {
                let line = std::mem::take(&mut *self.line());
                if line.messages == 0 {
                    return Ok(());
                }
                *turn = Turn {
                    parts: line.parts,
                    messages: line.messages,
                    sent: 0,
                };
            }
            let written = self.write(turn, wire, waiting);
            if written != Err(Errno::AGAIN) {
                let before = self.unsent.fetch_sub(turn.messages, Ordering::SeqCst);
                assert!(before >= turn.messages, "each message is sent once");
                *turn = Turn::default();
            }
            written?;
        }
    }

    fn write(&self, turn: &mut Turn, wire: &impl Wire, waiting: Waiting) -> Result<(), Errno> {
        let (mut all, mut begins) = (Vec::with_capacity(turn.parts.len()), Vec::new());
        for part in &turn.parts {
            if self.has_data_alone && part.len() >= ALONE_BYTES_MIN && !all.is_empty() {
                begins.push(all.len());
            }
            match part {
                Part::Own(bytes) => all.push(IoSlice::new(bytes)),
                Part::Blocks(data) => all.extend(data.parts().map(IoSlice::new)),
            }
        }
        let bytes: usize = all.iter().map(|part| part.len()).sum();
        assert!(turn.sent < bytes, "a turn ends when all is sent");
        let count = all.len();
        let mut rest = &mut all[..];
        IoSlice::advance_slices(&mut rest, turn.sent);
        while !rest.is_empty() {
            let at = count - rest.len();
            let end = begins.iter().find(|begin| **begin > at);
            let together = end.map_or(rest.len(), |end| end - at).min(PARTS_MAX);
            match wire.write(&rest[..together]) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(count) => {
                    turn.sent += count;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(Errno::AGAIN) if waiting == Waiting::UntilSent => {
                    self.wait_until_writable(wire.socket())?;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn wait_until_writable(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
        match poll(&mut polled, Some(&self.patience)) {
            Ok(0) => Err(Errno::TIMEDOUT),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// Whether a full socket is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    UntilSent,
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn message(number: usize) -> Vec<u8> {
        vec![number.to_le_bytes()[0]; 1 + number % 700]
    }

    #[test]
    fn messages_of_many_threads_come_whole_through_a_narrow_socket() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let outbox = Outbox::new(60);
        let mut received = Vec::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_usize)
                .map(|thread| {
                    let (outbox, server) = (&outbox, &server);
                    scope.spawn(move || {
                        for number in (thread..4000).step_by(4) {
                            let bytes = message(number);
                            let parts = bytes.chunks(300).map(|part| Part::Own(part.to_vec()));
                            let length = u32::try_from(bytes.len()).unwrap();
                            let head = Part::Own(length.to_le_bytes().to_vec());
                            let fill = outbox.put(std::iter::once(head).chain(parts));
                            match (fill, number % 3) {
                                (Fill::Little, 0) => {}
                                (_, 1) => outbox.send_at_once(server.as_fd()).unwrap(),
                                _ => outbox.send(server.as_fd()).unwrap(),
                            }
                        }
                        outbox.send(server.as_fd()).unwrap();
                    })
                })
                .collect();
            let (server, outbox) = (&server, &outbox);
            scope.spawn(move || {
                threads.into_iter().for_each(|one| one.join().unwrap());
                outbox.send_last(server.as_fd()).unwrap();
                assert!(!outbox.has_unsent());
                server.shutdown(std::net::Shutdown::Write).unwrap();
            });
            client.read_to_end(&mut received).unwrap();
        });
        let (mut found, mut rest) = (Vec::new(), &received[..]);
        while let Some((head, behind)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_le_bytes(*head)).unwrap();
            found.push(behind[..length].to_vec());
            rest = &behind[length..];
        }
        let mut expected: Vec<_> = (0..4000).map(message).collect();
        found.sort();
        expected.sort();
        assert!(found == expected);
    }

    /// Each call of the system is a packet here.
    #[test]
    fn much_data_begins_a_call_of_its_own_on_a_unix_socket() {
        use rustix::net::{SocketFlags, SocketType, socketpair};
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (client, server) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let packets = |outbox: &Outbox| {
            for data in [ALONE_BYTES_MIN, ALONE_BYTES_MIN - 1, ALONE_BYTES_MIN] {
                outbox.put([Part::Own(vec![1; 16]), Part::Own(vec![2; data])]);
            }
            outbox.send(server.as_fd()).unwrap();
            let (mut found, mut bytes) = (Vec::new(), vec![0; 8 * ALONE_BYTES_MIN]);
            while found.iter().sum::<usize>() < 48 + 3 * ALONE_BYTES_MIN - 1 {
                found.push(rustix::io::read(&client, &mut bytes[..]).unwrap());
            }
            found
        };
        let alone = Outbox::of_socket(server.as_fd(), 60);
        let expected = [16, 2 * ALONE_BYTES_MIN + 31, ALONE_BYTES_MIN];
        assert_eq!(packets(&alone), expected);
        let all = 3 * ALONE_BYTES_MIN + 47;
        assert_eq!(packets(&Outbox::new(60)), [all]);
    }

    #[test]
    fn little_is_held_back_until_it_is_enough_and_what_a_full_socket_left_is_sent_later() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let outbox = Outbox::new(60);
        for _ in 1..HELD_MAX {
            assert_eq!(outbox.put([Part::Own(vec![1])]), Fill::Little);
        }
        assert_eq!(outbox.put([Part::Own(vec![1])]), Fill::Enough);
        outbox.send_at_once(server.as_fd()).unwrap();
        assert!(!outbox.has_unsent());
        let mut few = [0; HELD_MAX];
        client.read_exact(&mut few).unwrap();
        assert_eq!(few, [1; HELD_MAX]);
        let much = vec![2; 4 << 20];
        assert_eq!(outbox.put([Part::Own(much.clone())]), Fill::Enough);
        outbox.send_at_once(server.as_fd()).unwrap();
        assert!(outbox.has_unsent(), "a socket does not take so much");
        let mut received = vec![0; much.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| outbox.send(server.as_fd()).unwrap());
            client.read_exact(&mut received).unwrap();
        });
        assert!(received == much && !outbox.has_unsent());
        drop(client);
        outbox.put([Part::Own(vec![3])]);
        assert!(outbox.send(server.as_fd()).is_err());
        assert!(!outbox.has_unsent(), "a broken one keeps no thread busy");
    }
}
