//! Names of the clients, users, datasets and files that operation records have by number.

use crate::engine::Engine;
use std::collections::{BTreeMap, BTreeSet};
use tarn_analytics::{Field, Operator, Predicate, ValueNames};
use tarn_host::AccountKind;
use tarn_probe::{
    ClientId, DatasetId, FrontEnd, NamedClient, Operation, named_clients, named_datasets,
    named_devices,
};

/// The user of requests that name none: calls of NFS without credentials, and requests that the
/// kernel makes to mounts by itself.
const NO_USER: u32 = u32::MAX;
const NO_USER_NAME: &str = "unknown";

/// Names of users that are kept; beyond it all are looked up anew.
pub(crate) const USERS_MAX: usize = 4096;

impl Engine {
    /// The names that a predicate needs to become numbers: those of all clients and datasets, and
    /// of the users and files that it speaks of.
    pub fn names_for(&self, predicate: &Predicate, operation: &Operation) -> ValueNames {
        let mut names = ValueNames::new();
        for dataset in named_datasets() {
            names.add_dataset(dataset.id, &dataset.name);
        }
        for (device, path) in named_devices() {
            names.add_device(device, &path);
        }
        names.add_client(ClientId::INTERNAL, "internal");
        names.add_client(ClientId::ADMINISTRATION, "administration");
        let clients = named_clients();
        for client in &clients {
            client
                .aliases
                .iter()
                .for_each(|alias| names.add_client(client.id, alias));
            names.add_client(client.id, &client.name);
            if let [alias, ..] = client.aliases.as_slice() {
                names.add_client(client.id, &format!("{alias} ({})", client.name));
            }
        }
        let mut spoken = BTreeSet::new();
        predicate.each_comparison(&mut |comparison| {
            for value in &comparison.values {
                spoken.insert((
                    comparison.field,
                    comparison.operator == Operator::Prefix,
                    value,
                ));
            }
        });
        for (field, is_prefix, value) in spoken {
            match (field, is_prefix) {
                (Field::File, false) => add_files(&mut names, self.files_at(value, operation)),
                (Field::File, true) => add_files(&mut names, self.known_files_below(value)),
                (Field::User | Field::Client, false) => {
                    self.add_account(&mut names, &clients, value);
                }
                _ => {}
            }
        }
        names
    }

    /// A user's name may be that of a client of mounts, too.
    fn add_account(&self, names: &mut ValueNames, clients: &[NamedClient], name: &str) {
        let found = match name {
            NO_USER_NAME => Some(NO_USER),
            name => self.host.find_account(AccountKind::User, name),
        };
        let Some(uid) = found else { return };
        names.add_user(uid, name);
        let number = uid.to_string();
        let of_mounts = clients
            .iter()
            .find(|client| client.front_end == FrontEnd::Fuse && client.name == number);
        if let Some(client) = of_mounts {
            names.add_client(client.id, name);
        }
    }

    /// Adds the names of values that are shown.
    pub fn add_shown_names(&self, names: &mut ValueNames, shown: &BTreeSet<(Field, u128)>) {
        let low = |key: u128| u32::try_from(key).ok();
        let of = |wanted: Field| {
            let keys = shown.iter().filter(move |(field, _)| *field == wanted);
            keys.map(|(_, key)| *key)
        };
        for uid in of(Field::User).filter_map(low) {
            if let Some(name) = self.user_name(uid) {
                names.add_user(uid, &name);
            }
        }
        let clients: BTreeSet<ClientId> = of(Field::Client).filter_map(low).map(ClientId).collect();
        for client in named_clients() {
            if client.front_end == FrontEnd::Fuse
                && clients.contains(&client.id)
                && let Ok(uid) = client.name.parse()
                && let Some(name) = self.user_name(uid)
            {
                names.add_client(client.id, &name);
            }
        }
        let files = of(Field::File).filter_map(|key| {
            let object = u64::try_from(key & u128::from(u64::MAX)).ok()?;
            Some((DatasetId(low(key >> 64)?), object))
        });
        add_files(names, self.file_paths(&files.collect()));
    }

    /// The name of a user of this machine. Asks the system once.
    fn user_name(&self, uid: u32) -> Option<String> {
        if uid == NO_USER {
            return Some(NO_USER_NAME.to_owned());
        }
        if let Some(known) = self.known_users.lock().get(&uid) {
            return known.clone();
        }
        // Without the lock: the system may ask a server.
        let name = self.host.account_name(AccountKind::User, uid);
        let mut known = self.known_users.lock();
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(uid, name.clone());
        name
    }
}

fn add_files(names: &mut ValueNames, files: BTreeMap<(DatasetId, u64), String>) {
    for ((dataset, object), path) in files {
        names.add_file(dataset, object, &path);
    }
}
