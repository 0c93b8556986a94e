//! Telling clients that they have a lock that they have waited for (`GRANTED`).
//!
//! # Mechanism
//! The thread that releases a lock puts the number of the request that gets it into a queue; a
//! thread of the lock manager calls the client's lock manager, which it finds by the client's
//! rpcbind. A client that is not reached is called again some times. It then has the lock all the
//! same, and learns of it when it asks again, as clients do that wait (Linux: every 30 s).
//!
//! A client that answers the first call with `DENIED` does not wait any more, and the lock is
//! released. After a call whose answer was lost it answers so as well, and may have the lock: it
//! keeps it, and gives it back by `CANCEL` or `UNLOCK`.

use super::client_locks::ClientLocks;
use super::lock_status::LockStatus;
use super::{LockManager, PROGRAM, VERSION, procedure};
use crate::rpc::asking::ask_host;
use crate::xdr::{Reader, Writer};
use std::net::IpAddr;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tarn_engine::files::{LockKind, LockScope};

/// How long until a client that was not reached is called again. A guess.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How often a client is called. A guess: two minutes.
const TRIES_MAX: u32 = 12;
/// Most bytes of the cookie in a result.
const COOKIE_BYTES_MAX: usize = 1024;

/// Tells clients as long as the lock manager is there.
pub(super) fn tell_clients(manager: &Weak<LockManager>, granted: &Receiver<u64>) {
    let mut again = Instant::now() + AGAIN_AFTER;
    loop {
        let patience = again.saturating_duration_since(Instant::now());
        let next = granted.recv_timeout(patience);
        let Some(manager) = manager.upgrade() else {
            return;
        };
        match next {
            Ok(number) => manager.tell(number, FirstTry::Yes),
            Err(RecvTimeoutError::Timeout) => {
                let untold = manager.state().untold();
                for number in untold {
                    manager.tell(number, FirstTry::No);
                }
                again = Instant::now() + AGAIN_AFTER;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstTry {
    Yes,
    No,
}

impl LockManager {
    /// Tells a client that a request of it was granted.
    fn tell(&self, number: u64, try_is_first: FirstTry) {
        let Some((client, arguments)) = note_granted(&mut self.state(), number, try_is_first)
        else {
            return;
        };
        let which = (PROGRAM, VERSION, procedure::GRANTED);
        let rpcbind = self.rpcbind_of_clients();
        let answered = ask_host(client, rpcbind, which, &arguments);
        let status = answered.ok().and_then(|result| {
            let mut result = Reader::new(&result);
            result.opaque(COOKIE_BYTES_MAX).ok()?;
            result.u32().ok()
        });
        let mut state = self.state();
        match status {
            // Linux answers so in its grace period; it is asked again.
            None => {}
            Some(status) if status == LockStatus::GRACE.0 => {}
            Some(status) => {
                let told = state.remove_waiting(number);
                let is_refused = status == LockStatus::DENIED.0;
                if let Some(told) = told
                    && is_refused
                    && try_is_first == FirstTry::Yes
                    && told.tries == 1
                {
                    give_back(&mut state, &told);
                }
            }
        }
    }
}

/// Notes that a request has its lock. Gives the client and what it is told; none when the request
/// is gone, or its client was told often enough.
fn note_granted(
    state: &mut ClientLocks,
    number: u64,
    try_is_first: FirstTry,
) -> Option<(IpAddr, Writer)> {
    let waiting = state.waiting(number)?;
    if try_is_first == FirstTry::Yes {
        waiting.is_granted = true;
        waiting.wait = None;
    }
    waiting.tries += 1;
    let is_enough = waiting.tries > TRIES_MAX;
    let (owner, file, request) = (waiting.owner, waiting.file.clone(), waiting.request);
    let mut arguments = Writer::new();
    arguments.opaque(&number.to_be_bytes());
    arguments.bool(request.kind == LockKind::Exclusive);
    waiting.lock.put(&mut arguments);
    let client = waiting.host.address;
    if let LockScope::Range(range) = request.scope
        && try_is_first == FirstTry::Yes
    {
        state.note_locked(owner, &file, range);
    }
    if is_enough {
        state.remove_waiting(number);
        return None;
    }
    Some((client, arguments))
}

/// Releases a lock that its client does not want.
pub(super) fn give_back(state: &mut ClientLocks, told: &super::client_locks::Waiting) {
    let LockScope::Range(range) = told.request.scope else {
        return;
    };
    if let Some(shared) = told.file.shared.upgrade() {
        let (file, owner) = (told.file.file, told.request.owner);
        // The range was locked, so it is one.
        let _ = shared.files().unlock(file, owner, told.request.scope);
    }
    state.note_unlocked(told.owner, &told.file, range);
}
