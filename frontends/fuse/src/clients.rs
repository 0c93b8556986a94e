//! The users of mounts, as client numbers in operation records.
//!
//! The kernel names process and user of each request. Processes come and go by the thousand, so a
//! client is a user. The table of users is process-wide and as small as their number; the numbers
//! come from the table of clients of all front ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use tarn_engine::files::{ClientId, FrontEnd, client_number};

/// Most users that this table has; the numbers of later ones are asked for each time.
const CLIENTS_MAX: usize = 4096;

/// The client number of a user.
pub(crate) fn of(uid: u32) -> ClientId {
    static CLIENTS: OnceLock<Mutex<BTreeMap<u32, ClientId>>> = OnceLock::new();
    thread_local! {
        // Most threads serve the same user over and over.
        static LAST: std::cell::Cell<Option<(u32, ClientId)>> = const { std::cell::Cell::new(None) };
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
    fn a_user_keeps_its_number() {
        let first = of(1000);
        assert_ne!(first, of(1001));
        assert_eq!(first, of(1000));
    }
}
