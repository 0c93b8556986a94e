//! What the system's resolver calls a client, and the netgroups that it is in.
//!
//! Both are remembered for a while and for a bounded number of clients, since they are asked for
//! with each call, and the resolver may ask a server.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tarn_engine::{is_in_netgroup, machine_name};

/// How long an answer is taken for known. A guess: a client waits for the resolver once a minute at
/// most.
const KNOWN: Duration = Duration::from_secs(60);

/// Most clients that are remembered in one place. A guess: as many as have connections.
const CLIENTS_MAX: usize = 4096;

/// What was found out of clients.
#[derive(Debug)]
struct Remembered<T> {
    clients: Mutex<BTreeMap<IpAddr, (Instant, T)>>,
}

impl<T: Clone> Remembered<T> {
    const fn new() -> Remembered<T> {
        Remembered {
            clients: Mutex::new(BTreeMap::new()),
        }
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<IpAddr, (Instant, T)>> {
        // A thread that panicked under the lock was inserting or removing one entry.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a client, or what `find` finds: without the lock, since it may wait.
    fn of(&self, client: IpAddr, find: impl FnOnce() -> T) -> T {
        if let Some((since, known)) = self.clients().get(&client)
            && since.elapsed() < KNOWN
        {
            return known.clone();
        }
        let found = find();
        let mut clients = self.clients();
        if clients.len() >= CLIENTS_MAX {
            clients.retain(|_, (since, _)| since.elapsed() < KNOWN);
        }
        if clients.len() >= CLIENTS_MAX {
            clients.pop_first();
        }
        clients.insert(client, (Instant::now(), found.clone()));
        found
    }
}

/// The name of a client, and its first part; nothing where the resolver has no name with this
/// address.
pub(crate) fn names_of(client: IpAddr) -> Arc<Vec<String>> {
    static NAMES: Remembered<Arc<Vec<String>>> = Remembered::new();
    NAMES.of(client, || {
        let has_address = |name: &String| {
            let addresses = (name.as_str(), 0).to_socket_addrs();
            let mut addresses = addresses.into_iter().flatten();
            addresses.any(|one| one.ip().to_canonical() == client)
        };
        Arc::new(with_first_part(machine_name(client).filter(has_address)))
    })
}

fn with_first_part(name: Option<String>) -> Vec<String> {
    let Some(name) = name else { return Vec::new() };
    let first = name.split_once('.').map(|(first, _)| first.to_string());
    std::iter::once(name).chain(first).collect()
}

/// A group of machines, which the system knows by its name (netgroup(5)).
#[derive(Debug, Clone)]
pub(crate) struct Netgroup {
    name: String,
    members: Arc<Remembered<bool>>,
}

impl PartialEq for Netgroup {
    fn eq(&self, other: &Netgroup) -> bool {
        self.name == other.name
    }
}

impl Eq for Netgroup {}

impl Netgroup {
    pub(crate) fn new(name: &str) -> Netgroup {
        Netgroup {
            name: name.to_string(),
            members: Arc::new(Remembered::new()),
        }
    }

    /// Whether a client is in it, by one of its names or by its address.
    pub(crate) fn has(&self, client: IpAddr) -> bool {
        self.members.of(client, || {
            let names = names_of(client);
            self.has_machine(client, &names, is_in_netgroup)
        })
    }

    fn has_machine(
        &self,
        client: IpAddr,
        names: &[String],
        is_in: impl Fn(&str, &str) -> bool,
    ) -> bool {
        let is_member = |machine: &str| is_in(&self.name, machine);
        names.iter().any(|name| is_member(name)) || is_member(&client.to_string())
    }
}

/// Whether a name matches a pattern, whatever its case: `*` is for any letters, dots too, `?` for
/// one (exports(5)); a pattern that begins with a dot is for all names that end with it (illumos).
pub(crate) fn matches_name(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    if pattern.first() == Some(&b'.') && !pattern.contains(&b'*') && !pattern.contains(&b'?') {
        let from = name.len().checked_sub(pattern.len());
        return from.is_some_and(|from| from > 0 && name[from..].eq_ignore_ascii_case(pattern));
    }
    // Where the last star stands, and how many letters it has taken.
    let (mut at, mut of_name, mut star) = (0, 0, None);
    while of_name < name.len() {
        let letter = pattern.get(at).copied();
        if letter == Some(b'*') {
            star = Some((at, of_name));
            at += 1;
        } else if letter
            .is_some_and(|letter| letter == b'?' || letter.eq_ignore_ascii_case(&name[of_name]))
        {
            at += 1;
            of_name += 1;
        } else if let Some((star_at, taken)) = star {
            at = star_at + 1;
            of_name = taken + 1;
            star = Some((star_at, taken + 1));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_for_whole_names_whatever_their_case() {
        for (pattern, name, expected) in [
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "a.b.EXAMPLE.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "a.example.org.net", false),
            (".example.org", "a.example.org", true),
            (".example.org", ".example.org", false),
            ("node?", "node7", true),
            ("node?", "node", false),
            ("node?", "node77", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*", "", true),
            ("**", "x", true),
        ] {
            assert_eq!(matches_name(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_group_has_a_client_by_its_name_its_first_part_or_its_address() {
        let group = Netgroup::new("staff");
        let client = "10.0.0.7".parse().unwrap();
        let names = with_first_part(Some("node7.example.org".to_string()));
        for member in ["node7.example.org", "node7", "10.0.0.7"] {
            let is_in = |group: &str, machine: &str| group == "staff" && machine == member;
            assert!(group.has_machine(client, &names, is_in), "{member}");
        }
        let is_in = |_: &str, machine: &str| machine == "node8";
        assert!(!group.has_machine(client, &names, is_in));
        assert!(with_first_part(None).is_empty());
    }

    #[test]
    fn answers_are_remembered_for_a_bounded_number_of_clients() {
        let remembered = Remembered::new();
        let client = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..5000 {
            assert_eq!(remembered.of(client(number), || number), number);
        }
        assert_eq!(remembered.of(client(4999), || 0), 4999);
        assert_eq!(remembered.clients().len(), CLIENTS_MAX);
    }
}
