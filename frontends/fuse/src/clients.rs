//! The users of mounts, as client numbers in operation records.
//!
//! The kernel names process and user of each request. Processes come and go by the thousand, so a
//! client is a user; the table of users is process-wide and as small as their number.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use tarn_engine::files::ClientId;

/// Most users with a number of their own; later ones share the last number.
const CLIENTS_MAX: u32 = 4096;

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
    let count = u32::try_from(clients.len()).unwrap_or(CLIENTS_MAX);
    let next = ClientId(ClientId::FIRST_FREE.0 + count.min(CLIENTS_MAX));
    let client = match count < CLIENTS_MAX {
        true => *clients.entry(uid).or_insert(next),
        false => clients.get(&uid).copied().unwrap_or(next),
    };
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
