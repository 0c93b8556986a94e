//! How a command hands a descriptor of its own over to the daemon.
//!
//! # Problem
//! The bytes of a send stream belong between the descriptor that the user gave to the command (a
//! pipe to `ssh`, a file) and the pool. Through HTTP, and a process in between, they would be
//! copied four times.
//!
//! # Mechanism
//! Beside the control socket is a second one. The command connects, and sends a *ticket* of sixteen
//! random bytes with one descriptor (`SCM_RIGHTS`). The daemon answers with one byte when it has
//! noted both; then the command makes its call on the control socket and names the ticket in the
//! [`Envelope`](tarn_administration::messages::Envelope). The connection is the caller's *line*: it
//! stays open until the command ends, however it ends. A descriptor that no call redeemed is closed
//! with its line.
//!
//! # Invariants
//! - A ticket is redeemed once, and only by the user that brought it.
//! - Connections are bounded ([`admission`](crate::admission)); one that does not bring what it
//!   must is closed, with all that it brought.

use crate::admission::{Admission, Bounds, Room};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::collections::HashMap;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tarn_engine::{Pipe, PipeStopper};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

/// The size of a ticket.
const TICKET_BYTES: usize = 16;

/// What the daemon answers when it has noted a ticket.
const NOTED: u8 = b'+';

/// How long a connection may be open without a ticket. A command sends it at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes that name a descriptor.
type Ticket = [u8; TICKET_BYTES];

/// The command's end: alive as long as the daemon may use the descriptor.
#[derive(Debug)]
pub struct Line {
    /// Held open; the kernel closes it when the command is killed.
    _stream: BlockingStream,
    ticket: Ticket,
}

impl Line {
    /// Hands a descriptor over to the daemon that listens at `socket`.
    ///
    /// # Errors
    /// When no daemon listens there, or it does not take the descriptor.
    pub fn open(socket: &Path, file: BorrowedFd<'_>) -> std::io::Result<Line> {
        let mut stream = BlockingStream::connect(socket)?;
        let mut ticket = [0; TICKET_BYTES];
        rustix::rand::getrandom(&mut ticket, rustix::rand::GetRandomFlags::empty())?;
        hand_over(stream.as_fd(), &ticket, &[file])?;
        let mut answer = [0];
        match stream.read(&mut answer)? {
            1 if answer[0] == NOTED => Ok(Line {
                _stream: stream,
                ticket,
            }),
            _ => {
                let why = "it takes no more descriptors at the moment";
                Err(Error::new(ErrorKind::ConnectionRefused, why))
            }
        }
    }

    /// What the call names it by.
    pub fn ticket(&self) -> String {
        text_of(&self.ticket)
    }
}

/// Sends a ticket and descriptors, at once.
fn hand_over(
    stream: BorrowedFd<'_>,
    ticket: &[u8],
    files: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Error::new(ErrorKind::InvalidInput, "too many descriptors"));
    }
    let flags = SendFlags::NOSIGNAL;
    match sendmsg(stream, &[IoSlice::new(ticket)], &mut control, flags)? {
        count if count == ticket.len() => Ok(()),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}

fn text_of(ticket: &Ticket) -> String {
    ticket.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Descriptors that were handed over, by their tickets.
#[derive(Debug)]
pub struct Handovers {
    noted: Mutex<Noted>,
    admission: Arc<Admission>,
}

#[derive(Debug, Default)]
struct Noted {
    waiting: HashMap<String, Waiting>,
    /// What was redeemed, as long as its line is open.
    redeemed: HashMap<String, PipeStopper>,
    is_closed: bool,
}

/// A descriptor that was not asked for yet.
#[derive(Debug)]
struct Waiting {
    uid: u32,
    file: OwnedFd,
    line: OwnedFd,
}

/// Why a ticket leads to no descriptor.
#[derive(Debug, thiserror::Error)]
pub enum NoPipe {
    /// It was not brought, or its connection is gone, or it was redeemed.
    #[error("no descriptor was handed over with this ticket")]
    Unknown,
    /// Another user brought it.
    #[error("this ticket is another user's")]
    NotYours,
    /// The daemon ends.
    #[error("the daemon is about to end")]
    Closed,
    /// The system has no more descriptors.
    #[error("the descriptor cannot be used: {}", tarn_engine::words_of(.0))]
    System(#[from] Error),
}

impl Handovers {
    /// Lines are bounded like this.
    pub fn new(bounds: Bounds) -> Arc<Handovers> {
        Arc::new(Handovers {
            noted: Mutex::default(),
            admission: Admission::new(bounds),
        })
    }

    /// The descriptor that a user handed over with this ticket.
    ///
    /// # Errors
    /// When there is none that is his.
    pub fn redeem(&self, ticket: &str, uid: u32) -> Result<Pipe, NoPipe> {
        let mut noted = self.noted();
        if noted.is_closed {
            return Err(NoPipe::Closed);
        }
        let found = noted.waiting.get(ticket).ok_or(NoPipe::Unknown)?;
        if found.uid != uid {
            return Err(NoPipe::NotYours);
        }
        let found = noted.waiting.remove(ticket).ok_or(NoPipe::Unknown)?;
        let pipe = Pipe::new(found.file, found.line)?;
        noted.redeemed.insert(ticket.to_string(), pipe.stopper());
        Ok(pipe)
    }

    /// Stops all streams and takes no more.
    pub fn close(&self) {
        let mut noted = self.noted();
        noted.is_closed = true;
        noted.waiting.clear();
        noted.redeemed.values().for_each(PipeStopper::stop);
    }

    /// Takes connections until it is dropped.
    ///
    /// # Errors
    /// When the listener fails for good.
    pub async fn listen(self: Arc<Self>, listener: UnixListener) -> std::io::Result<()> {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                // Without descriptors nothing can be accepted; there will be some again.
                Err(error) if is_passing(&error) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Ok(credentials) = stream.peer_cred() else {
                continue;
            };
            if let Some(room) = self.admission.admit(credentials.uid()) {
                tokio::spawn(serve(self.clone(), room, stream));
            }
        }
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        // No thread panics while it holds it.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether what kept a connection from being accepted goes by.
pub(crate) fn is_passing(error: &Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(
            Errno::MFILE
                | Errno::NFILE
                | Errno::NOBUFS
                | Errno::NOMEM
                | Errno::INTR
                | Errno::CONNABORTED
        )
    )
}

/// A ticket that was noted, as long as its line is open.
struct Note<'a> {
    handovers: &'a Handovers,
    ticket: String,
}

impl<'a> Note<'a> {
    fn make(handovers: &'a Handovers, ticket: &Ticket, waiting: Waiting) -> Option<Note<'a>> {
        let ticket = text_of(ticket);
        let mut noted = handovers.noted();
        let is_taken = noted.waiting.contains_key(&ticket) || noted.redeemed.contains_key(&ticket);
        if noted.is_closed || is_taken {
            return None;
        }
        noted.waiting.insert(ticket.clone(), waiting);
        drop(noted);
        Some(Note { handovers, ticket })
    }
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        let mut noted = self.handovers.noted();
        noted.waiting.remove(&self.ticket);
        noted.redeemed.remove(&self.ticket);
    }
}

/// One connection, from its ticket to its end. Whatever goes wrong closes it.
async fn serve(handovers: Arc<Handovers>, room: Room, stream: UnixStream) {
    let brought = tokio::time::timeout(PATIENCE, receive(&stream)).await;
    let Ok(Ok((ticket, file))) = brought else {
        return;
    };
    let Ok(line) = stream.as_fd().try_clone_to_owned() else {
        return;
    };
    let uid = room.uid();
    let Some(_note) = Note::make(&handovers, &ticket, Waiting { uid, file, line }) else {
        return;
    };
    if stream.try_write(&[NOTED]).is_err() {
        return;
    }
    // Nothing is said on the line any more: that it can be read means that it is hung up, or that
    // the caller does not keep to the rules.
    let read = || rustix::net::recv(&stream, &mut [0], RecvFlags::DONTWAIT).map_err(Error::from);
    let _ = stream.async_io(Interest::READABLE, read).await;
}

/// What a caller sends first.
async fn receive(stream: &UnixStream) -> std::io::Result<(Ticket, OwnedFd)> {
    let interest = Interest::READABLE;
    stream.async_io(interest, || receive_now(stream)).await
}

fn receive_now(stream: &UnixStream) -> std::io::Result<(Ticket, OwnedFd)> {
    let wrong = |why| Error::new(ErrorKind::InvalidData, why);
    let mut ticket = [0; TICKET_BYTES];
    // Room for more than one, so that more are found out and closed.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut ticket)],
        &mut control,
        flags,
    )?;
    let mut files: Vec<OwnedFd> = control
        .drain()
        .filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten()
        .collect();
    if message.bytes != TICKET_BYTES || message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(wrong("not a ticket"));
    }
    match (files.pop(), files.is_empty()) {
        (Some(file), true) => Ok((ticket, file)),
        _ => Err(wrong("not one descriptor")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;

    /// Serves a socket in a folder of its own while `run` asks.
    fn with_server(run: impl FnOnce(&Path, &Handovers)) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("streams");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let handovers = Handovers::new(Bounds::new(own_uid(), 1 << 16));
        let listener = {
            let _context = runtime.enter();
            UnixListener::bind(&socket).unwrap()
        };
        runtime.spawn(handovers.clone().listen(listener));
        run(&socket, &handovers);
    }

    fn own_uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// Connects and sends this; says whether it was taken.
    fn is_taken(socket: &Path, ticket: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        let mut stream = BlockingStream::connect(socket).unwrap();
        hand_over(stream.as_fd(), ticket, files).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // One that is closed with something unread is reset.
        matches!(stream.read(&mut [0]), Ok(1))
    }

    #[test]
    fn a_descriptor_arrives_and_is_redeemed_once_by_whom_it_belongs_to() {
        with_server(|socket, handovers| {
            let (reads, writes) = std::io::pipe().unwrap();
            let line = Line::open(socket, writes.as_fd()).unwrap();
            let ticket = line.ticket();
            let other = handovers.redeem(&ticket, own_uid() + 1);
            assert!(matches!(other, Err(NoPipe::NotYours)));
            let mut pipe = handovers.redeem(&ticket, own_uid()).unwrap();
            assert!(matches!(
                handovers.redeem(&ticket, own_uid()),
                Err(NoPipe::Unknown)
            ));
            pipe.write_all(b"through").unwrap();
            let mut got = [0; 7];
            (&reads).read_exact(&mut got).unwrap();
            assert_eq!(&got, b"through");
            drop(line);
            let gone = loop {
                if let Err(error) = pipe.write_all(&[0; 4096]) {
                    break error;
                }
                (&reads).read_exact(&mut [0; 4096]).unwrap();
            };
            assert_eq!(gone.to_string(), "the caller is gone");
        });
    }

    #[test]
    fn a_file_can_be_handed_over() {
        with_server(|socket, handovers| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"stream").unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            let line = Line::open(socket, file.as_fd()).unwrap();
            let mut pipe = handovers.redeem(&line.ticket(), own_uid()).unwrap();
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            assert_eq!(text, "stream");
        });
    }

    #[test]
    fn a_connection_without_a_ticket_and_one_descriptor_is_closed() {
        with_server(|socket, handovers| {
            let null = File::open("/dev/null").unwrap();
            let one = null.as_fd();
            assert!(!is_taken(socket, &[1; 16], &[]));
            assert!(!is_taken(socket, &[2; 16], &[one, one]));
            assert!(!is_taken(socket, &[3; 16], &[one; 8]));
            assert!(!is_taken(socket, &[4; 15], &[one]));
            // A client that says nothing and goes.
            drop(BlockingStream::connect(socket).unwrap());
            assert!(handovers.noted().waiting.is_empty());
            assert!(is_taken(socket, &[5; 16], &[one]));
        });
    }

    #[test]
    fn a_ticket_ends_with_its_connection() {
        with_server(|socket, handovers| {
            let null = File::open("/dev/null").unwrap();
            let line = Line::open(socket, null.as_fd()).unwrap();
            let ticket = line.ticket();
            drop(line);
            // The daemon finds out in its own time; lines are counted until then.
            while handovers.admission.count() > 0 {
                std::thread::yield_now();
            }
            assert!(matches!(
                handovers.redeem(&ticket, own_uid()),
                Err(NoPipe::Unknown)
            ));
        });
    }

    #[test]
    fn streams_end_when_the_daemon_does() {
        with_server(|socket, handovers| {
            let (reads, _writes) = std::io::pipe().unwrap();
            let line = Line::open(socket, reads.as_fd()).unwrap();
            let mut pipe = handovers.redeem(&line.ticket(), own_uid()).unwrap();
            let waiting = std::thread::spawn(move || pipe.read(&mut [0]));
            handovers.close();
            let error = waiting.join().unwrap().unwrap_err();
            assert_eq!(error.to_string(), "the stream was stopped");
            assert!(Line::open(socket, reads.as_fd()).is_err());
        });
    }
}
