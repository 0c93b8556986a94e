//! Replies that are kept for calls which a client repeats.
//!
//! # Problem
//! A client whose connection broke sends its calls again. A `REMOVE` that was carried out and is
//! repeated fails, though the client's program has removed the file; a `WRITE` that is repeated
//! late overwrites what came after it.
//!
//! # Mechanism
//! Replies to calls that change something are kept by the client's address and port, number of the
//! call, procedure, and a hash of all arguments. A client that repeats calls connects from the port
//! that it had, as Linux's does. A repetition gets the reply that was kept; one of a call that is
//! still being carried out gets none, since the first one will be replied to.
//!
//! # Invariants
//! - A call that only looks like an earlier one is carried out: programs on one machine, and one
//!   program that is started again, number their calls from where they like, and write what they
//!   wrote before. So port and all bytes are compared, and a reply is given again for
//!   [`KEPT_FOR`] only.
//! - All replies together have at most [`BYTES_MAX`] bytes: the oldest are dropped for new ones.

use crate::client_numbers::Client;
use crate::rpc::call::CallHead;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// Most bytes that are kept. A guess: replies of a minute of some hundred changes a second.
pub const BYTES_MAX: usize = 4 << 20;
/// About as many bytes an entry takes beside its reply.
const ENTRY_BYTES: usize = 160;
/// A client repeats a call within this time, or not at all: Linux's after one minute.
#[doc(alias = "RC_EXPIRE")]
const KEPT_FOR: Duration = Duration::from_secs(120);

/// Which call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    client: IpAddr,
    port: u16,
    xid: u32,
    procedure: u32,
    arguments: u64,
}

impl CallKey {
    pub(crate) fn of(client: &Client, call: &CallHead<'_>) -> CallKey {
        CallKey {
            client: client.address,
            port: client.port,
            xid: call.xid,
            procedure: call.procedure,
            arguments: xxh3_64(call.arguments),
        }
    }
}

/// What is known of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It comes for the first time, and is noted as being carried out.
    New,
    /// It is being carried out.
    UnderWay,
    /// This was the reply.
    Replied(Vec<u8>),
}

/// The replies.
#[derive(Default)]
pub(crate) struct RepeatedCalls {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The reply to a call; none while it is being carried out.
    replies: HashMap<CallKey, Option<Vec<u8>>>,
    /// Those with replies, the oldest first, and when they were given.
    order: VecDeque<(CallKey, Instant)>,
    bytes: usize,
}

impl Kept {
    fn drop_oldest(&mut self) {
        let Some((oldest, _)) = self.order.pop_front() else {
            return;
        };
        let dropped = self.replies.remove(&oldest).flatten();
        let bytes = dropped.map_or(0, |reply| reply.len() + ENTRY_BYTES);
        assert!(bytes <= self.bytes, "what is kept was counted");
        self.bytes -= bytes;
    }

    /// Drops replies that were given before this time.
    fn drop_before(&mut self, time: Instant) {
        while self.order.front().is_some_and(|(_, given)| *given < time) {
            self.drop_oldest();
        }
    }
}

impl RepeatedCalls {
    /// Looks a call up, and notes one that is new.
    pub(crate) fn begin(&self, key: CallKey) -> Known {
        let mut kept = self.kept();
        if let Some(time) = Instant::now().checked_sub(KEPT_FOR) {
            kept.drop_before(time);
        }
        match kept.replies.get(&key) {
            Some(Some(reply)) => Known::Replied(reply.clone()),
            Some(None) => Known::UnderWay,
            None => {
                kept.replies.insert(key, None);
                Known::New
            }
        }
    }

    /// Keeps the reply to a call.
    pub(crate) fn replied(&self, key: CallKey, reply: &[u8]) {
        let mut kept = self.kept();
        kept.bytes += reply.len() + ENTRY_BYTES;
        kept.replies.insert(key, Some(reply.to_vec()));
        kept.order.push_back((key, Instant::now()));
        while kept.bytes > BYTES_MAX {
            kept.drop_oldest();
        }
    }

    /// A call has got no reply that is to be kept: it is carried out again if it comes again.
    pub(crate) fn forget(&self, key: CallKey) {
        self.kept().replies.remove(&key);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A thread that panicked under the lock was changing one entry; a reply too few is kept.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(xid: u32) -> CallKey {
        key_of("10.0.0.1:700", xid, &[1, 2, 3, 4])
    }

    fn key_of(client: &str, xid: u32, arguments: &[u8]) -> CallKey {
        let client = Client::at(client.parse().unwrap());
        CallKey::of(&client, &CallHead::decode_for_tests(xid, arguments))
    }

    #[test]
    fn a_call_from_another_port_or_with_other_bytes_at_its_end_is_another() {
        let calls = RepeatedCalls::default();
        let (client, mut written) = ("10.0.0.1:700", vec![7; 1 << 20]);
        let first = key_of(client, 5, &written);
        assert_eq!(calls.begin(first), Known::New);
        calls.replied(first, b"written");
        assert_eq!(calls.begin(key_of("10.0.0.1:701", 5, &written)), Known::New);
        *written.last_mut().unwrap() = 8;
        assert_eq!(calls.begin(key_of(client, 5, &written)), Known::New);
    }

    #[test]
    fn a_reply_is_not_kept_for_longer_than_clients_repeat_calls() {
        let calls = RepeatedCalls::default();
        assert_eq!(calls.begin(key(1)), Known::New);
        calls.replied(key(1), b"done");
        calls.kept().drop_before(Instant::now());
        assert_eq!(calls.begin(key(1)), Known::New);
        assert_eq!(calls.kept().bytes, 0);
    }

    #[test]
    fn a_repeated_call_gets_the_reply_of_the_first() {
        let calls = RepeatedCalls::default();
        assert_eq!(calls.begin(key(1)), Known::New);
        assert_eq!(calls.begin(key(1)), Known::UnderWay);
        calls.replied(key(1), b"done");
        assert_eq!(calls.begin(key(1)), Known::Replied(b"done".to_vec()));
        assert_eq!(calls.begin(key(2)), Known::New);
        calls.forget(key(2));
        assert_eq!(calls.begin(key(2)), Known::New);
    }

    #[test]
    fn the_oldest_replies_go_when_there_are_too_many_bytes() {
        let calls = RepeatedCalls::default();
        let reply = vec![0; BYTES_MAX / 4];
        for xid in 0..6 {
            assert_eq!(calls.begin(key(xid)), Known::New);
            calls.replied(key(xid), &reply);
        }
        assert!(calls.kept().bytes <= BYTES_MAX);
        assert_eq!(calls.begin(key(0)), Known::New, "it was dropped");
        assert!(matches!(calls.begin(key(5)), Known::Replied(_)));
    }
}
