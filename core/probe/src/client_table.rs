//! The clients of all front ends: their numbers in operation records, and their names.
//!
//! # Mechanism
//! A front end asks for the number of a client by the name by which it knows it: the address of a
//! machine, the name of an initiator, a user of mounts. One table gives the numbers, so no two
//! clients of any front ends have the same. A client may get further names, such as the name that
//! a machine gives of itself.
//!
//! # Invariants
//! - A client keeps its number as long as the process lives: records name it.
//! - A front end has [`OF_FRONT_END_MAX`] numbers at most. Its later clients share one number,
//!   whose name says so, and take none of another front end's.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::client_id::ClientId;

/// Most clients of one front end with a number of their own.
const OF_FRONT_END_MAX: u32 = 4096;
/// Further names of one client that are kept.
const ALIASES_MAX: usize = 4;
/// Bytes of a name that are kept: clients choose some of them.
const NAME_BYTES_MAX: usize = 128;

/// What clients of different front ends are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontEnd {
    /// Users of mounts.
    Fuse,
    /// Machines.
    Nfs,
    /// Initiators.
    Iscsi,
    /// The other ends of connections.
    Nbd,
}

impl FrontEnd {
    fn others(self) -> &'static str {
        match self {
            FrontEnd::Fuse => "other users of mounts",
            FrontEnd::Nfs => "other clients of NFS",
            FrontEnd::Iscsi => "other initiators",
            FrontEnd::Nbd => "other clients of NBD",
        }
    }
}

/// A client as people know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedClient {
    /// Its number in records.
    pub id: ClientId,
    /// Whose client it is.
    pub front_end: FrontEnd,
    /// What the front end knows it by; of a user of mounts the numeric id.
    pub name: String,
    /// What it calls itself, and other names.
    pub aliases: Vec<String>,
}

#[derive(Debug, Default)]
struct Table {
    numbers: BTreeMap<(FrontEnd, String), ClientId>,
    /// The number that later clients of a front end share, and how many have their own.
    counts: BTreeMap<FrontEnd, (u32, Option<ClientId>)>,
    /// Each at its number, from [`ClientId::FIRST_FREE`] on.
    clients: Vec<NamedClient>,
}

/// The number of the client that a front end knows by this name.
pub fn client_number(front_end: FrontEnd, name: &str) -> ClientId {
    table().number(front_end, cut(name))
}

/// A client has another name besides: both mean it.
pub fn add_client_alias(client: ClientId, alias: &str) {
    table().add_alias(client, cut(alias));
}

/// All clients that have a number.
pub fn named_clients() -> Vec<NamedClient> {
    table().clients.clone()
}

impl Table {
    fn number(&mut self, front_end: FrontEnd, name: &str) -> ClientId {
        let key = (front_end, name.to_owned());
        if let Some(known) = self.numbers.get(&key) {
            return *known;
        }
        let (count, shared) = self.counts.get(&front_end).copied().unwrap_or_default();
        if count < OF_FRONT_END_MAX {
            let number = self.push(front_end, name);
            self.numbers.insert(key, number);
            self.counts.insert(front_end, (count + 1, shared));
            return number;
        }
        shared.unwrap_or_else(|| {
            let number = self.push(front_end, front_end.others());
            self.counts.insert(front_end, (count, Some(number)));
            number
        })
    }

    fn push(&mut self, front_end: FrontEnd, name: &str) -> ClientId {
        let count = u32::try_from(self.clients.len()).expect("front ends have few numbers");
        let id = ClientId(ClientId::FIRST_FREE.0 + count);
        assert!(id != ClientId::INTERNAL, "numbers are not given twice");
        self.clients.push(NamedClient {
            id,
            front_end,
            name: name.to_owned(),
            aliases: Vec::new(),
        });
        id
    }

    fn add_alias(&mut self, client: ClientId, alias: &str) {
        let place = client.0.checked_sub(ClientId::FIRST_FREE.0);
        let place = place.and_then(|place| usize::try_from(place).ok());
        let Some(client) = place.and_then(|place| self.clients.get_mut(place)) else {
            return;
        };
        let is_new = client.name != alias && !client.aliases.iter().any(|known| known == alias);
        if is_new && client.aliases.len() < ALIASES_MAX {
            client.aliases.push(alias.to_owned());
        }
    }
}

/// The beginning of a name that is kept.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    let table = TABLE.get_or_init(Mutex::default);
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_client_keeps_its_number_and_no_two_front_ends_share_one() {
        let mut table = Table::default();
        let front_ends = [
            FrontEnd::Fuse,
            FrontEnd::Nfs,
            FrontEnd::Iscsi,
            FrontEnd::Nbd,
        ];
        let numbers = |table: &mut Table| -> Vec<ClientId> {
            let of = |front_end: &FrontEnd| {
                let names = ["a", "b"].into_iter();
                let numbers = names.map(|name| table.number(*front_end, name));
                numbers.collect::<Vec<_>>()
            };
            front_ends.iter().flat_map(of).collect()
        };
        let first = numbers(&mut table);
        assert_eq!(first, numbers(&mut table));
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 8);
        assert_eq!(table.clients[3].id, first[3]);
    }

    #[test]
    fn too_many_clients_share_a_number_and_leave_room_for_other_front_ends() {
        let mut table = Table::default();
        for client in 0..OF_FRONT_END_MAX {
            table.number(FrontEnd::Nbd, &client.to_string());
        }
        let shared = table.number(FrontEnd::Nbd, "late");
        assert_eq!(table.number(FrontEnd::Nbd, "later"), shared);
        assert_eq!(table.clients.last().unwrap().name, "other clients of NBD");
        assert_ne!(table.number(FrontEnd::Nbd, "7"), shared);
        assert_ne!(table.number(FrontEnd::Nfs, "late"), shared);
    }

    #[test]
    fn further_names_are_kept_once_and_bounded() {
        let mut table = Table::default();
        let client = table.number(FrontEnd::Nfs, "10.0.0.1");
        table.add_alias(client, "10.0.0.1");
        for alias in ["kiowa", "kiowa", "a", "b", "c", "d"] {
            table.add_alias(client, alias);
        }
        table.add_alias(ClientId(9999), "nothing");
        table.add_alias(ClientId::INTERNAL, "nothing");
        assert_eq!(table.clients[0].aliases, ["kiowa", "a", "b", "c"]);
        assert_eq!(cut(&"é".repeat(100)).len(), 128);
    }
}
