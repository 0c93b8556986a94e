//! Calls of the server in a connection that a client has made: the back channel of sessions.
//!
//! # Mechanism
//! The record of a call is sent between replies. The client's reply comes among its calls, is told
//! from them by its head, and goes by its number to the thread that waits for it.

use super::call::RPC_VERSION;
use super::record::LAST_FRAGMENT;
use super::reply::result_of;
use crate::xdr::{Malformed, Writer};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a client may take to reply. A guess: it only notes what it is told, but a busy one took
/// more than five seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of a reply.
const REPLY_BYTES_MAX: usize = 4096;
/// The kind of a message that is a reply.
const REPLY: u32 = 1;

/// As which user the server calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credential {
    flavor: u32,
    body: Vec<u8>,
}

impl Credential {
    pub(crate) const NONE: Credential = Credential {
        flavor: 0,
        body: Vec::new(),
    };

    /// The body of `AUTH_SYS`.
    pub(crate) fn system(body: Vec<u8>) -> Credential {
        Credential { flavor: 1, body }
    }

    /// Root of this machine.
    pub(crate) fn root() -> Credential {
        let mut body = Writer::new();
        body.u32(0).opaque(b"tarn").u32(0).u32(0).u32(0);
        Credential::system(body.into_bytes())
    }
}

/// A call, with the mark of its record.
pub(crate) fn call(
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    credential: &Credential,
    arguments: &Writer,
) -> Result<Writer, Error> {
    let mut call = Writer::new();
    call.u32(0).u32(xid).u32(0).u32(RPC_VERSION);
    call.u32(program).u32(version).u32(procedure);
    call.u32(credential.flavor).opaque(&credential.body);
    // No verifier.
    call.u32(0).u32(0);
    call.fixed(arguments.as_slice());
    let length = u32::try_from(call.len() - 4).map_err(|_| ErrorKind::InvalidInput)?;
    call.put_u32(0, LAST_FRAGMENT | length);
    Ok(call)
}

/// A connection, as far as it sends calls.
pub(crate) trait SendsCalls: Send + Sync {
    /// Sends a record. False where the connection has ended.
    fn send_call(&self, record: &[u8]) -> bool;
}

/// The way from the server to the client of a connection.
pub(crate) struct BackChannel {
    connection: Weak<dyn SendsCalls>,
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    last: u32,
    /// Calls without a reply, and replies that were not taken yet.
    replies: BTreeMap<u32, Option<Vec<u8>>>,
}

impl BackChannel {
    pub(crate) fn new(connection: Weak<dyn SendsCalls>) -> BackChannel {
        BackChannel {
            connection,
            waiting: Mutex::default(),
            came: Condvar::new(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A thread that panicked under the lock has ended with the process.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the client, and gives the result.
    ///
    /// # Errors
    /// The connection has ended, or the call is not answered, or refused.
    pub(crate) fn ask(
        &self,
        which: (u32, u32, u32),
        credential: &Credential,
        arguments: &Writer,
    ) -> Result<Vec<u8>, Error> {
        let connection = self.connection.upgrade().ok_or(ErrorKind::NotConnected)?;
        let mut waiting = self.waiting();
        waiting.last = waiting.last.wrapping_add(1);
        let xid = waiting.last;
        waiting.replies.insert(xid, None);
        drop(waiting);
        let sent = call(xid, which, credential, arguments)
            .map(|record| connection.send_call(record.as_slice()));
        drop(connection);
        let reply = match sent {
            Ok(true) => self.wait(xid),
            Ok(false) => Err(Error::from(ErrorKind::NotConnected)),
            Err(error) => Err(error),
        };
        self.waiting().replies.remove(&xid);
        let result = result_of(&reply?, xid);
        result.map_err(|Malformed| Error::from(ErrorKind::InvalidData))
    }

    fn wait(&self, xid: u32) -> Result<Vec<u8>, Error> {
        let end = Instant::now() + PATIENCE;
        let mut waiting = self.waiting();
        loop {
            if let Some(reply) = waiting.replies.get_mut(&xid).and_then(Option::take) {
                return Ok(reply);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::from(ErrorKind::TimedOut));
            }
            let woken = self.came.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a record of a client is a reply.
    pub(crate) fn is_reply(record: &[u8]) -> bool {
        record.get(4..8) == Some(&REPLY.to_be_bytes()[..])
    }

    /// A reply has come. One that no thread waits for is dropped.
    pub(crate) fn replied(&self, record: &[u8]) {
        let Some(xid) = record.first_chunk() else {
            return;
        };
        let xid = u32::from_be_bytes(*xid);
        if record.len() > REPLY_BYTES_MAX {
            return;
        }
        if let Some(reply) = self.waiting().replies.get_mut(&xid) {
            *reply = Some(record.to_vec());
            self.came.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Replies in another thread to what it is sent.
    struct Echo {
        channel: Mutex<Weak<BackChannel>>,
        status: u32,
    }

    impl SendsCalls for Echo {
        fn send_call(&self, record: &[u8]) -> bool {
            let channel = self.channel.lock().unwrap().upgrade().unwrap();
            let (xid, status) = (record[4..8].to_vec(), self.status);
            std::thread::spawn(move || {
                // A reply that none waits for, one that is too long, and the right one.
                channel.replied(&[9; 12]);
                let mut reply = xid;
                for word in [1, 0, 0, 0, status, 77] {
                    reply.extend_from_slice(&u32::to_be_bytes(word));
                }
                let long = [&reply[..], &[0; REPLY_BYTES_MAX][..]].concat();
                channel.replied(&long);
                assert!(BackChannel::is_reply(&reply));
                channel.replied(&reply);
            });
            true
        }
    }

    #[test]
    fn results_find_the_thread_that_waits_and_refusals_are_told() {
        for (status, is_good) in [(0, true), (5, false)] {
            let echo = Arc::new(Echo {
                channel: Mutex::new(Weak::new()),
                status,
            });
            let connection: Weak<Echo> = Arc::downgrade(&echo);
            let channel = Arc::new(BackChannel::new(connection));
            *echo.channel.lock().unwrap() = Arc::downgrade(&channel);
            let result = channel.ask((5, 1, 1), &Credential::root(), &Writer::new());
            assert_eq!(result.ok(), is_good.then(|| vec![0, 0, 0, 77]));
            drop(echo);
            let gone = channel.ask((5, 1, 1), &Credential::NONE, &Writer::new());
            assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotConnected);
        }
    }
}
