//! The users of mounts, as client numbers in operation records.
//!
//! The kernel names process and user of each request. Processes come and go by the thousand, so a
//! client is a user. The table of users is process-wide and as small as their number; the numbers
//! come from the table of clients of all front ends.
//!
//! A kernel with idmapped mounts names the user only where something is made; else the user is
//! that of the process, which is looked up once a second.

use crate::protocol::UNKNOWN_USER;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use tarn_engine::files::{ClientId, FrontEnd, actor_of_process, client_number, monotonic_ns};

/// Most users that this table has; the numbers of later ones are asked for each time.
const CLIENTS_MAX: usize = 4096;
/// Most processes that are known at once; beyond it all are looked up anew.
const PROCESSES_MAX: usize = 4096;
/// How long a process is taken to be the same user's: records tell a change that much later.
const SAME_USER_NS: u64 = 1_000_000_000;

/// A process, its user, and when that was looked up.
#[derive(Clone, Copy)]
struct Known {
    process: u32,
    user: u32,
    seen_ns: u64,
}

/// The user of a request, for its record: the one that the kernel names, or that of the process.
/// Requests of the kernel itself, such as those that write its cache back, have none.
pub(crate) fn user(named: u32, process: u32) -> u32 {
    thread_local! {
        static LAST: Cell<Option<Known>> = const { Cell::new(None) };
    }
    if named != UNKNOWN_USER || process == 0 {
        return named;
    }
    let now_ns = monotonic_ns();
    let is_it = |known: &Known| {
        known.process == process && now_ns.saturating_sub(known.seen_ns) < SAME_USER_NS
    };
    let known = LAST.get().filter(is_it);
    let known = known.unwrap_or_else(|| user_of_process(process, now_ns, is_it));
    LAST.set(Some(known));
    known.user
}

fn user_of_process(process: u32, now_ns: u64, is_it: impl Fn(&Known) -> bool) -> Known {
    static PROCESSES: Mutex<BTreeMap<u32, Known>> = Mutex::new(BTreeMap::new());
    let processes = || PROCESSES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = processes().get(&process).copied().filter(is_it) {
        return known;
    }
    // Without the lock: a file of /proc is read.
    let known = Known {
        process,
        user: actor_of_process(process).map_or(UNKNOWN_USER, |actor| actor.uid),
        seen_ns: now_ns,
    };
    let mut processes = processes();
    if processes.len() >= PROCESSES_MAX {
        processes.clear();
    }
    processes.insert(process, known);
    known
}

/// The client number of a user.
pub(crate) fn of(uid: u32) -> ClientId {
    static CLIENTS: OnceLock<Mutex<BTreeMap<u32, ClientId>>> = OnceLock::new();
    thread_local! {
        // Most threads serve the same user over and over.
        static LAST: Cell<Option<(u32, ClientId)>> = const { Cell::new(None) };
    }
    if let Some((last, client)) = LAST.get()
        && last == uid
    {
        return client;
    }
    let clients = CLIENTS.get_or_init(Mutex::default);
    let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
    let known = clients.get(&uid).copied();
    let client = known.unwrap_or_else(|| client_number(FrontEnd::Fuse, &uid.to_string()));
    if clients.len() < CLIENTS_MAX {
        clients.insert(uid, client);
    }
    LAST.set(Some((uid, client)));
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_that_of_the_process_where_the_kernel_names_none() {
        let own = std::process::id();
        let seen = actor_of_process(own).unwrap().uid;
        assert_eq!(user(UNKNOWN_USER, own), seen);
        assert_eq!(user(UNKNOWN_USER, own), seen);
        assert_eq!(user(seen + 1, own), seen + 1);
        // The kernel itself, and a process that has ended: no process has so high a number.
        assert_eq!(user(UNKNOWN_USER, 0), UNKNOWN_USER);
        assert_eq!(user(UNKNOWN_USER, 1 << 30), UNKNOWN_USER);
    }

    #[test]
    fn a_user_keeps_its_number() {
        let first = of(1000);
        assert_ne!(first, of(1001));
        assert_eq!(first, of(1000));
    }
}
