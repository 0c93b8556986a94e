//! Replies that are kept for calls which a client repeats.
//!
//! # Problem
//! A client whose connection broke sends its calls again. A `REMOVE` that was carried out and is
//! repeated fails, though the client's program has removed the file; a `WRITE` that is repeated
//! late overwrites what came after it.
//!
//! # Mechanism
//! Replies to calls that change something are kept by client, number of the call, procedure, and a
//! hash of the arguments (numbers of calls begin anew when a client restarts). A repetition gets
//! the reply that was kept; one of a call that is still being carried out gets none, since the
//! first one will be replied to.
//!
//! # Invariants
//! - All replies together have at most [`BYTES_MAX`] bytes: the oldest are dropped for new ones.

use crate::client_numbers::Client;
use crate::rpc::call::CallHead;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes that are kept. A guess: replies of a minute of some hundred changes a second.
pub const BYTES_MAX: usize = 4 << 20;
/// About as many bytes an entry takes beside its reply.
const ENTRY_BYTES: usize = 160;
/// As much of the arguments is hashed: data of a long write is not read once more.
const HASHED_BYTES_MAX: usize = 512;

/// Which call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    client: IpAddr,
    xid: u32,
    procedure: u32,
    arguments: u64,
}

impl CallKey {
    pub(crate) fn of(client: &Client, call: &CallHead<'_>) -> CallKey {
        let mut hasher = DefaultHasher::new();
        let hashed = call.arguments.len().min(HASHED_BYTES_MAX);
        call.arguments[..hashed].hash(&mut hasher);
        call.arguments.len().hash(&mut hasher);
        CallKey {
            client: client.address,
            xid: call.xid,
            procedure: call.procedure,
            arguments: hasher.finish(),
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
    /// Those with replies, the oldest first.
    order: VecDeque<CallKey>,
    bytes: usize,
}

impl RepeatedCalls {
    /// Looks a call up, and notes one that is new.
    pub(crate) fn begin(&self, key: CallKey) -> Known {
        let mut kept = self.kept();
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
        kept.order.push_back(key);
        while kept.bytes > BYTES_MAX
            && let Some(oldest) = kept.order.pop_front()
        {
            let dropped = kept.replies.remove(&oldest).flatten();
            let bytes = dropped.map_or(0, |reply| reply.len() + ENTRY_BYTES);
            kept.bytes = kept.bytes.saturating_sub(bytes);
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
        let client = Client::at("10.0.0.1:700".parse().unwrap());
        let call = CallHead::decode_for_tests(xid, &[1, 2, 3, 4]);
        CallKey::of(&client, &call)
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
