//! Sending replies: each whole, one after the other.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// How long a client may leave its replies unread. A guess: longer than a network is away for a
/// moment.
const PATIENCE: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// How many parts one call of the system takes.
const PARTS_MAX: usize = 1024;

/// The writing end of a connection.
pub(crate) struct Sender {
    socket: OwnedFd,
    turn: Mutex<()>,
    is_closing: AtomicBool,
}

impl Sender {
    pub(crate) fn new(socket: OwnedFd) -> Sender {
        Sender {
            socket,
            turn: Mutex::new(()),
            is_closing: AtomicBool::new(false),
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether no more messages are to be taken.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Ends the connection: the client finds it closed, and the threads that serve it as well.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Sends these parts as one message. A client that is gone, or reads nothing for too long, is
    /// given up.
    pub(crate) fn send(&self, parts: &[&[u8]]) {
        // A thread that panicked in here has left a part of a message behind.
        let turn = self.turn.lock();
        let is_broken = turn.is_err();
        let _turn = turn.unwrap_or_else(PoisonError::into_inner);
        if is_broken || self.is_closing() || self.send_all(parts).is_err() {
            self.close();
        }
    }

    fn send_all(&self, parts: &[&[u8]]) -> Result<(), Errno> {
        let (mut first, mut sent) = (0, 0);
        while first < parts.len() {
            if parts[first].len() == sent {
                (first, sent) = (first + 1, 0);
                continue;
            }
            let rest = parts[first + 1..].iter().map(|part| IoSlice::new(part));
            let slices: Vec<IoSlice<'_>> = std::iter::once(IoSlice::new(&parts[first][sent..]))
                .chain(rest)
                .take(PARTS_MAX)
                .collect();
            let mut count = match rustix::io::writev(&self.socket, &slices) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(count) => count,
                Err(Errno::AGAIN) => {
                    self.wait_until_writable()?;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            while count > 0 {
                let left = parts[first].len() - sent;
                if count < left {
                    sent += count;
                    break;
                }
                count -= left;
                (first, sent) = (first + 1, 0);
            }
        }
        Ok(())
    }

    fn wait_until_writable(&self) -> Result<(), Errno> {
        let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
        match poll(&mut polled, Some(&PATIENCE)) {
            Ok(0) => Err(Errno::TIMEDOUT),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn messages_of_many_parts_come_whole_through_a_narrow_socket() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let sender = Sender::new(server.into());
        let parts: Vec<Vec<u8>> = (0..3000_usize)
            .map(|number| vec![number.to_le_bytes()[0]; number % 700])
            .collect();
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let expected = parts.concat();
        let mut received = vec![0; 2 * expected.len()];
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| sender.send(&slices));
            }
            client.read_exact(&mut received).unwrap();
        });
        assert!(received == [expected.clone(), expected].concat());
        drop(client);
        sender.send(&slices);
        assert!(sender.is_closing());
    }
}
