//! A socket that is plain first, and may become TLS.

use crate::certificates::TlsServer;
use crate::handshakes::Handshake;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustls::server::ServerConnection;
use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tarn_serving::Wire;

/// How many bytes are received at once: four of the largest records.
const RECEIVED_BYTES: usize = 64 << 10;
/// How many bytes are encrypted at once, likewise.
const ENCRYPTED_TOGETHER: usize = 64 << 10;

/// The other end of a channel, as far as it has shown itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// It speaks in plain.
    Plain,
    /// It speaks TLS, and has shown no certificate.
    Encrypted,
    /// It speaks TLS, and has shown a certificate of an authority that the server trusts.
    Verified,
}

/// A connection: its socket, and the session of TLS if one was begun. The socket does not block.
pub struct Channel {
    socket: Arc<OwnedFd>,
    tls: OnceLock<Tls>,
}

struct Tls {
    server: Arc<TlsServer>,
    session: Mutex<Box<Session>>,
    /// Held while what is encrypted is written: before `session`.
    outgoing: Mutex<Outgoing>,
    /// Set when the handshake is done.
    peer: OnceLock<Peer>,
    /// Received bytes wait that the socket does not announce.
    has_more: AtomicBool,
}

struct Session {
    tls: ServerConnection,
    /// Bytes of the socket; those from `at` on were not given to `tls`.
    received: Vec<u8>,
    at: usize,
    /// How many plain bytes `tls` has.
    plain_bytes: usize,
    handshake: Option<Handshake>,
}

/// What was encrypted and not written yet.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// How many plain bytes it stands for.
    plain_bytes: usize,
}

impl Channel {
    /// A plain one.
    pub fn new(socket: OwnedFd) -> Channel {
        Channel {
            socket: Arc::new(socket),
            tls: OnceLock::new(),
        }
    }

    /// The socket.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// What is known of the other end. `Plain` until a handshake is done.
    pub fn peer(&self) -> Peer {
        let tls = self.tls.get();
        let peer = tls.and_then(|tls| tls.peer.get());
        peer.copied().unwrap_or(Peer::Plain)
    }

    /// Whether TLS was begun.
    pub fn is_tls(&self) -> bool {
        self.tls.get().is_some()
    }

    /// What comes from now on is TLS. The caller has read nothing that came after the message by
    /// which the client asked for it, and no other thread reads or writes meanwhile.
    ///
    /// # Errors
    /// `ALREADY` when TLS was begun before, `PROTO` when rustls refuses its configuration.
    pub fn begin_tls(&self, server: &Arc<TlsServer>) -> Result<(), Errno> {
        let connection = ServerConnection::new(server.config());
        let mut connection = connection.map_err(|_| Errno::PROTO)?;
        // What is encrypted is taken at once, and its amount bounded here.
        connection.set_buffer_limit(None);
        let session = Box::new(Session {
            tls: connection,
            received: Vec::new(),
            at: 0,
            plain_bytes: 0,
            handshake: Some(server.handshakes.begin(&self.socket)),
        });
        let tls = Tls {
            server: server.clone(),
            session: Mutex::new(session),
            outgoing: Mutex::default(),
            peer: OnceLock::new(),
            has_more: AtomicBool::new(false),
        };
        self.tls.set(tls).map_err(|_| Errno::ALREADY)
    }

    /// Whether received bytes wait to be read that epoll does not announce. True too often by one
    /// read at most.
    pub fn has_more(&self) -> bool {
        let tls = self.tls.get();
        tls.is_some_and(|tls| tls.has_more.load(Ordering::SeqCst))
    }

    /// Reads plain bytes, without waiting; 0 when the other end has ended.
    ///
    /// # Errors
    /// The system's; `AGAIN` when there is nothing; `PROTO` when what comes is no TLS, or the
    /// client is refused, which it was told.
    pub fn read(&self, place: &mut [u8]) -> Result<usize, Errno> {
        match self.tls.get() {
            None => rustix::io::read(&self.socket, place),
            Some(tls) => tls.read(&self.socket, place),
        }
    }

    /// Reads plain bytes into the spare capacity of a vector, as [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn append(&self, bytes: &mut Vec<u8>) -> Result<usize, Errno> {
        let Some(tls) = self.tls.get() else {
            return rustix::io::read(&self.socket, rustix::buffer::spare_capacity(bytes));
        };
        let filled = bytes.len();
        bytes.resize(bytes.capacity(), 0);
        let count = tls.read(&self.socket, &mut bytes[filled..]);
        bytes.truncate(filled + count.unwrap_or(0));
        count
    }

    /// Ends the connection, and tells the other end where that is possible at once.
    pub fn close(&self) {
        if let Some(tls) = self.tls.get() {
            tls.say_goodbye(&self.socket);
        }
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Wire for Channel {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match self.tls.get() {
            None => rustix::io::writev(&self.socket, parts),
            Some(tls) => tls.write(&self.socket, parts),
        }
    }
}

impl Tls {
    fn session(&self) -> MutexGuard<'_, Box<Session>> {
        // A thread that panicked in rustls has ended with the process.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, socket: &OwnedFd, place: &mut [u8]) -> Result<usize, Errno> {
        let mut session = self.session();
        loop {
            match session.tls.reader().read(place) {
                Ok(count) => {
                    session.plain_bytes = session.plain_bytes.saturating_sub(count);
                    self.has_more.store(session.has_more(), Ordering::SeqCst);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The other end has ended without a word of TLS: its messages have lengths.
                Err(_) => return Ok(0),
            }
            let received = session.receive(socket);
            if received == Err(Errno::AGAIN) {
                self.has_more.store(false, Ordering::SeqCst);
            }
            received?;
            let understood = session.understand();
            if self.peer.get().is_none() {
                self.go_on_with_handshake(&mut session, socket, understood.as_ref().err())?;
            }
            understood.map_err(|_| Errno::PROTO)?;
        }
    }

    /// Sends what the handshake has to say, and notes when it is done.
    fn go_on_with_handshake(
        &self,
        session: &mut Session,
        socket: &OwnedFd,
        failure: Option<&rustls::Error>,
    ) -> Result<(), Errno> {
        let mut bytes = Vec::new();
        session.take_encrypted(&mut bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // Nothing else was written for a while: a socket without room is that of a client that
            // does not read.
            match rustix::io::write(socket, rest) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
                Err(errno) => return Err(errno),
            }
        }
        if let Some(why) = failure {
            self.server.tell_failure(&name_of(socket), &why.to_string());
        } else if !session.tls.is_handshaking() {
            let has_certificate = session.tls.peer_certificates().is_some();
            let peer = match has_certificate {
                true => Peer::Verified,
                false => Peer::Encrypted,
            };
            session.handshake = None;
            let is_first = self.peer.set(peer).is_ok();
            assert!(is_first, "a handshake is done once");
        }
        Ok(())
    }

    /// Encrypts the first bytes, and writes them; with the same parts again after `AGAIN`.
    fn write(&self, socket: &OwnedFd, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if self.peer.get().is_none() {
            return Err(Errno::PIPE);
        }
        let mut outgoing = self.outgoing();
        if outgoing.plain_bytes == 0 {
            let mut session = self.session();
            outgoing.plain_bytes = session.encrypt(parts)?;
            session.take_encrypted(&mut outgoing.bytes);
        }
        outgoing.write(socket)?;
        Ok(std::mem::take(&mut outgoing.plain_bytes))
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        // A thread that panicked with it has ended with the process.
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say_goodbye(&self, socket: &OwnedFd) {
        // A thread that holds one of them is about to find the socket closed.
        let (Ok(mut outgoing), Ok(mut session)) =
            (self.outgoing.try_lock(), self.session.try_lock())
        else {
            return;
        };
        if outgoing.plain_bytes == 0 {
            session.tls.send_close_notify();
            session.take_encrypted(&mut outgoing.bytes);
            let _ = outgoing.write(socket);
        }
    }
}

impl Session {
    fn has_more(&self) -> bool {
        self.plain_bytes > 0 || self.at < self.received.len()
    }

    /// Receives bytes, unless some are left.
    fn receive(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        assert!(
            self.at <= self.received.len(),
            "what was given was received"
        );
        if self.at < self.received.len() {
            return Ok(());
        }
        self.at = 0;
        self.received.resize(RECEIVED_BYTES, 0);
        let count = rustix::io::read(socket, &mut self.received);
        match count {
            Ok(count) => self.received.truncate(count),
            // A client that sends nothing takes no memory.
            Err(_) => self.received = Vec::new(),
        }
        count.map(drop)
    }

    /// Gives what was received to rustls, until that has plain bytes.
    fn understand(&mut self) -> Result<(), rustls::Error> {
        loop {
            let mut rest = &self.received[self.at..];
            // Of memory: it fails only where rustls has plain bytes, which are taken before.
            let count = self.tls.read_tls(&mut rest).unwrap_or(0);
            self.at += count;
            let state = self.tls.process_new_packets()?;
            self.plain_bytes = state.plaintext_bytes_to_read();
            if count == 0 || self.plain_bytes > 0 || self.at == self.received.len() {
                return Ok(());
            }
        }
    }

    fn encrypt(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut done = 0;
        for part in parts {
            let count = part.len().min(ENCRYPTED_TOGETHER - done);
            let written = self.tls.writer().write_all(&part[..count]);
            written.map_err(|_| Errno::PIPE)?;
            done += count;
            if done == ENCRYPTED_TOGETHER {
                break;
            }
        }
        Ok(done)
    }

    fn take_encrypted(&mut self, bytes: &mut Vec<u8>) {
        while self.tls.wants_write() {
            let taken = self.tls.write_tls(bytes);
            assert!(taken.is_ok_and(|count| count > 0), "memory takes all bytes");
        }
    }
}

impl Outgoing {
    fn write(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        while self.sent < self.bytes.len() {
            match rustix::io::write(socket, &self.bytes[self.sent..]) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }
}

/// The address of the other end, for people.
fn name_of(socket: &OwnedFd) -> String {
    let address = rustix::net::getpeername(socket).ok().flatten();
    let address = address.and_then(|address| std::net::SocketAddr::try_from(address).ok());
    address.map_or("a local client".to_string(), |address| address.to_string())
}
