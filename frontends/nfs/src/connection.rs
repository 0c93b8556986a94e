//! The connection of a client: a source of calls for the serving threads.
//!
//! # Mechanism
//! Calls are cut out of the byte stream by one thread at a time, and served by as many as wait;
//! each is replied to when it is done, in any order. Contents of files go from the cache to the
//! socket by `writev`.
//!
//! # Bounds
//! A record is bounded; of one connection at most 64 calls are served at a time. While a client
//! does not read its replies, no more of its calls are taken than a few threads have; when it reads
//! none for [`PATIENCE`], it loses its connection. All connections together put together at most
//! [`PARTIAL_BYTES_MAX`] of records.

use crate::calls::{Calls, Pending, Served};
use crate::client_numbers::Client;
use crate::rpc::back_channel::{BackChannel, SendsCalls};
use crate::rpc::call::CallHead;
use crate::rpc::record::{DATA_BYTES_MAX, RecordStream, Taken};
use crate::rpc::reply::Reply;
use crate::v3;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tarn_serving::{Next, RequestTraits, Source, Wire};
use tarn_tls::{Channel, TlsServer};

/// How long a client may read none of its replies.
const PATIENCE: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

/// Most bytes of records that are not whole yet. A guess; a connection that would need more ends.
pub(crate) const PARTIAL_BYTES_MAX: usize = 256 << 20;
/// Records below this size do not count.
const SMALL_BYTES: usize = 64 << 10;

/// Calls that move more bytes than this take long. A guess: some ten microseconds of copying.
const LONG_BYTES: usize = 64 << 10;

/// As many calls of a connection that move many bytes are served at a time. A guess: enough for all
/// processors, though some wait for a disk.
const LONG_CALLS_MAX: usize = 8;

/// `writev` takes at most so many parts (`UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;

/// What all connections share.
#[derive(Default)]
pub(crate) struct Connections {
    /// How many there are.
    pub(crate) count: AtomicUsize,
    /// Bytes of records that are not whole yet.
    partial_bytes: AtomicUsize,
}

/// One connection.
pub(crate) struct Connection {
    channel: Arc<Channel>,
    client: Client,
    calls: Arc<Calls>,
    all: Arc<Connections>,
    input: Mutex<Input>,
    /// Held while a reply is sent: replies are whole.
    output: Mutex<()>,
    /// The client reads slowly: a reply waits for room.
    is_stalled: AtomicBool,
    /// Calls that are being served.
    under_way: AtomicUsize,
    /// Calls of the server.
    back: Arc<BackChannel>,
}

#[derive(Default)]
struct Input {
    records: RecordStream,
    /// Bytes of the record being put together, as they are counted for all connections.
    counted: usize,
}

impl Connection {
    pub(crate) fn new(
        socket: OwnedFd,
        client: Client,
        calls: Arc<Calls>,
        all: Arc<Connections>,
    ) -> Arc<Connection> {
        all.count.fetch_add(1, Ordering::SeqCst);
        Arc::new_cyclic(|itself: &Weak<Connection>| Connection {
            channel: Arc::new(Channel::new(socket)),
            client,
            calls,
            all,
            input: Mutex::default(),
            output: Mutex::default(),
            is_stalled: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            back: Arc::new(BackChannel::new(itself.clone())),
        })
    }

    fn input(&self) -> MutexGuard<'_, Input> {
        // A thread that panicked while it cut a record has ended with the process.
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a reply. The connection ends where that is not possible.
    fn send(&self, reply: &Reply) {
        let _whole = self.output();
        let sent = send_parts(&self.channel, &reply.parts(), || {
            self.is_stalled.store(true, Ordering::SeqCst);
        });
        self.is_stalled.store(false, Ordering::SeqCst);
        if sent.is_err() {
            self.end();
        }
    }

    fn output(&self) -> MutexGuard<'_, ()> {
        // A thread that panicked while it sent a reply has ended with the process.
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replies in plain, and takes what comes behind that for TLS.
    fn begin_tls(&self, reply: &Reply, server: &Arc<TlsServer>) {
        // What was sent in plain behind the call must not be taken for what was encrypted; a reply
        // to another call would come in the middle of the handshake.
        let input = self.input();
        let is_alone = self.under_way.load(Ordering::SeqCst) == 1;
        if !is_alone || !input.records.is_drained() {
            return self.end();
        }
        let _whole = self.output();
        let begun = send_parts(&self.channel, &reply.parts(), || {});
        if begun.and_then(|()| self.channel.begin_tls(server)).is_err() {
            self.end();
        }
    }

    /// Ends the connection: the client opens another.
    pub(crate) fn end(&self) {
        self.channel.close();
    }
}

impl SendsCalls for Connection {
    fn send_call(&self, record: &[u8]) -> bool {
        let _whole = self.output();
        let sent = send_parts(&self.channel, &[record], || {});
        if sent.is_err() {
            self.end();
        }
        sent.is_ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let counted = self.input().counted;
        self.all.partial_bytes.fetch_sub(counted, Ordering::SeqCst);
        self.all.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Input {
    /// Counts the record that is being put together. False when all of them are too large.
    fn count(&mut self, all: &Connections) -> bool {
        let bytes = match self.records.partial_bytes() {
            bytes if bytes <= SMALL_BYTES => 0,
            bytes => bytes,
        };
        let sum = all.partial_bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        all.partial_bytes.fetch_sub(self.counted, Ordering::SeqCst);
        self.counted = bytes;
        sum <= PARTIAL_BYTES_MAX
    }
}

/// Writes all parts, and waits where the client reads slowly: `stalls` is called before that.
fn send_parts(channel: &Channel, parts: &[&[u8]], stalls: impl Fn()) -> Result<(), Errno> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let count = rest.len().min(PARTS_MAX);
        match channel.write(&rest[..count]) {
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                stalls();
                let mut room = [PollFd::new(channel, PollFlags::OUT)];
                if rustix::event::poll(&mut room, Some(&PATIENCE))? == 0 {
                    return Err(Errno::TIMEDOUT);
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// What the threads have to know of a call.
fn traits_of(record: &[u8]) -> RequestTraits {
    let head = CallHead::decode(record).ok().and_then(Result::ok);
    let head = head.filter(|head| head.program == v3::PROGRAM && head.version == v3::VERSION);
    let read = head.map_or(0, |head| v3::bytes_to_read(head.procedure, head.arguments));
    RequestTraits {
        is_long: record.len() > LONG_BYTES || read.min(DATA_BYTES_MAX) > LONG_BYTES,
        is_waited_for: true,
        may_delay_reply: head.is_some_and(|head| v3::changes(head.procedure)),
    }
}

impl Source for Connection {
    type Request = Vec<u8>;
    type DelayedReply = Pending;

    fn new_request() -> Vec<u8> {
        Vec::new()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn take_request(&self, request: &mut Vec<u8>) -> Next {
        let mut input = self.input();
        let taken = input.records.take(&self.channel, request);
        if !input.count(&self.all) {
            return Next::Ended;
        }
        match taken {
            Taken::Record => {
                let traits = traits_of(request);
                // Where many move much already, their replies wait for each other: the owner serves
                // this one, so no further call is taken before.
                let is_busy = self.under_way.load(Ordering::SeqCst) >= LONG_CALLS_MAX;
                let is_long = traits.is_long && !is_busy;
                Next::Request(RequestTraits { is_long, ..traits })
            }
            Taken::Nothing => Next::Nothing,
            Taken::Ended => Next::Ended,
        }
    }

    fn has_request_in_memory(&self) -> bool {
        self.input().records.has_whole() || self.channel.has_more()
    }

    fn may_have_owners(&self) -> bool {
        false
    }

    fn serve(&self, request: &mut Vec<u8>) -> Option<Pending> {
        if self.is_stalled.load(Ordering::SeqCst) {
            // The owner waits, so no other thread takes calls of this connection meanwhile.
            drop(self.output());
        }
        if BackChannel::is_reply(request) {
            self.back.replied(request);
            return None;
        }
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let mut delayed = None;
        let from = (self.channel.peer(), Some(&self.back));
        match self.calls.serve(&self.client, from, request) {
            Served::Reply(reply) => self.send(&reply),
            Served::WhenDurable(pending) => delayed = Some(pending),
            Served::BeginTls(reply, server) => self.begin_tls(&reply, &server),
            Served::Nothing => {}
            Served::NoCall => self.end(),
        }
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        delayed
    }

    fn reply_when_durable(&self, delayed: Vec<Pending>) {
        self.calls.make_durable(delayed, |reply| self.send(&reply));
    }

    fn gone(&self) {}
}
