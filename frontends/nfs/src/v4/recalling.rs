//! Having clients return delegations: a thread takes what is asked for, others call the clients.
//!
//! # Mechanism
//! An operation that finds a file delegated puts it into the `recall_queue`. A thread notes when it
//! was, and has each client called by a thread of its own, so that a client
//! that does not answer delays no other. A client of version 4.0 is called once before it gets its
//! first delegation (`CB_NULL`). A client that answers that it does not know the delegation may not
//! have its reply yet: it is told again some times.
//!
//! A delegation that is not returned for the time of a lease is revoked, whether the client was
//! reached or not (`State::reap`).
//!
//! # Bounds
//! [`CALLERS_MAX`] threads.

use super::callback_route::{Called, Route};
use super::compound::{Memory, StateId};
use super::owners::StateKey;
use super::state::State;
use super::status::Status;
use crate::share::SharedFiles;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Most clients that are called at a time. A guess.
const CALLERS_MAX: usize = 32;
const CB_RECALL: u32 = 4;
/// How often a client that does not take a call is told, and how long until the second time; each
/// further time takes twice as long.
const TRIES_MAX: u32 = 5;
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How often is looked whether all was returned. A guess: too short to be noticed.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a client is called for.
enum Call {
    Probe,
    Recall { key: StateKey, handle: Vec<u8> },
}

/// Has clients called, in threads of their own, as long as the server is there.
///
/// # Errors
/// There can be no more threads.
pub(crate) fn begin(memory: &Arc<Memory>) -> std::io::Result<()> {
    let (recalls, memory) = (memory.recalls.clone(), Arc::downgrade(memory));
    let named = std::thread::Builder::new().name("nfs-recalls".to_string());
    let take = move || {
        while let Some(asked) = recalls.next() {
            let Some(memory) = memory.upgrade() else {
                return;
            };
            let mut due = asked.clients;
            let mut state = memory.state();
            for ((_, file), shared) in asked.files {
                if let Some(shared) = shared.upgrade() {
                    due.extend(state.delegations.recall(&shared, file));
                }
            }
            drop(state);
            call_clients(&memory, due);
        }
    };
    named.spawn(take).map(drop)
}

/// Has clients return all that they have of a share which is about to end. Waits for that, but not
/// for long: what is not returned is revoked with the share.
pub(crate) fn have_returned(memory: &Arc<Memory>, shared: &Arc<SharedFiles>, patience: Duration) {
    let clients = memory.state().delegations.recall_share(shared);
    call_clients(memory, clients.into_iter().collect());
    let began = Instant::now();
    while began.elapsed() < patience && !memory.state().delegations.of_share(shared).is_empty() {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Has these clients called.
fn call_clients(memory: &Arc<Memory>, due: BTreeSet<u64>) {
    let mut callers = memory.recalls.callers();
    callers.due.extend(due);
    while callers.running.len() < CALLERS_MAX
        && let Some(client) = callers.take()
    {
        let known = Arc::downgrade(memory);
        let named = std::thread::Builder::new().name("nfs-callback".to_string());
        if named.spawn(move || call_in_turn(&known, client)).is_err() {
            // It is called with the next one.
            callers.running.remove(&client);
            callers.due.insert(client);
            return;
        }
    }
}

/// Calls a client until it is told all, and then others that wait.
fn call_in_turn(memory: &Weak<Memory>, client: u64) {
    let mut next = Some(client);
    while let (Some(client), Some(memory)) = (next, memory.upgrade()) {
        tell_all(&memory, client);
        let mut callers = memory.recalls.callers();
        callers.running.remove(&client);
        next = callers.take();
    }
}

/// Tells a client all that it is to be told, as far as it can be reached.
fn tell_all(memory: &Memory, client: u64) {
    loop {
        let Some((route, call)) = memory.state().next_call(client) else {
            return;
        };
        let called = match &call {
            Call::Probe => route.probe(),
            Call::Recall { key, handle } => route.run(CB_RECALL, |out| {
                let id = StateId {
                    sequence: 1,
                    key: *key,
                };
                id.put(out);
                // All of the file is not about to be truncated.
                out.bool(false).opaque(handle);
            }),
        };
        let again = memory.state().called(client, &route, &call, called);
        if let Some(pause) = again {
            std::thread::sleep(pause);
        }
    }
}

impl State {
    /// What a client is to be told next, and how.
    fn next_call(&mut self, client: u64) -> Option<(Route, Call)> {
        let known = self.clients.get(&client)?;
        let is_new = known.callback.is_some() && !known.is_probed;
        let untold = self.delegations.of_client(client).into_iter().find(|key| {
            let known = self.delegations.get(key);
            known.is_some_and(|known| {
                known.recalled.is_some() && !known.is_told && known.of.is_some()
            })
        });
        let call = match untold {
            _ if is_new => Call::Probe,
            Some(key) => Call::Recall {
                key,
                handle: self.delegations.get(&key)?.handle.clone(),
            },
            None => return None,
        };
        self.route_to(client).map(|route| (route, call))
    }

    /// Notes what a call came to. Gives how long the next one waits.
    fn called(
        &mut self,
        client: u64,
        route: &Route,
        call: &Call,
        called: Called,
    ) -> Option<Duration> {
        if called == Called::Failed {
            self.route_failed(client, route);
            return None;
        }
        match call {
            Call::Probe => {
                let known = self.clients.get_mut(&client)?;
                let is_it = |callback| matches!(route, Route::Address(it) if *it == callback);
                known.is_probed = known.callback.is_some_and(is_it);
                None
            }
            Call::Recall { key, .. } => {
                let known = self.delegations.get_mut(key)?;
                known.tries += 1;
                let is_taken = called == Called::Answered(Status::OK.0);
                known.is_told = is_taken || known.tries >= TRIES_MAX;
                let pause = AGAIN_AFTER * (1 << known.tries.min(TRIES_MAX));
                (!known.is_told).then_some(pause)
            }
        }
    }
}
