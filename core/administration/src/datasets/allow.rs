//! `zfs allow` and `zfs unallow`.
//!
//! Privileged users may delegate everything. Other users need the permission `allow`,
//! may delegate the permissions that they have except `allow`, and may take back only their own.

use super::bad_name;
use super::cannot_open;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{need, permission};
use crate::messages::delegation::{Allow, Allowed, AllowedAt, Grant, Holder, ListAllowed, Unallow};
use crate::messages::{Done, Refusal, RefusalKind};
use tarn_dataset::delegation::{self, Delegated};
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::ops::delegate::{Delegate, Revoke};
use tarn_dataset::properties::table;
use tarn_dataset::properties::value::{Change, Property};
use tarn_engine::engine::OpenPool;
use tarn_engine::refusals::of_task;
use tarn_ondisk::delegation as stored;
use tarn_ondisk::delegation::{Key, Listed, SET_NAME_BYTES_MAX, Scope};
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn allow(
        &self,
        call: &Call,
        request: &Allow,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let (name, action) = (&request.name, cannot_set(&request.name));
        let open = self.pool_with_head(name, operation)?;
        let _turn = self.engine.turn(&open)?;
        let invalid = || Refusal::new(RefusalKind::Invalid, &action, WRONG);
        let given = request.grants.iter().map(|grant| {
            let given = keys_of(grant)?;
            let is_something = !grant.permissions.is_empty();
            (is_something
                && given
                    .iter()
                    .all(|(_, names)| names.iter().all(|name| is_permission(name))))
            .then_some(given)
        });
        let given: Option<Vec<_>> = given.collect();
        let given: Vec<_> = given.ok_or_else(invalid)?.into_iter().flatten().collect();
        if given.is_empty() {
            return Err(invalid());
        }
        self.permit_giving(call, &open, name, &given, operation)?;
        let given = given.into_iter().map(|(key, names)| {
            let canonical = |name: String| match table::find(&name) {
                Some(row) => row.name.to_string(),
                None => name,
            };
            (key, names.into_iter().map(canonical).collect())
        });
        let task = Delegate {
            name: name.clone(),
            given: given.collect(),
        };
        let command = self.command_record(call);
        let done = open.pool.run_command(task, command, operation);
        done.map(|()| Done {})
            .map_err(|error| of_task(action, &error))
    }

    pub(crate) fn unallow(
        &self,
        call: &Call,
        request: &Unallow,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let (name, action) = (&request.name, cannot_set(&request.name));
        let open = self.pool_with_head(name, operation)?;
        let _turn = self.engine.turn(&open)?;
        let invalid = || Refusal::new(RefusalKind::Invalid, &action, WRONG);
        let mut taken = Vec::new();
        for grant in &request.grants {
            let keys = keys_of(grant).ok_or_else(invalid)?;
            if grant.permissions.is_empty() {
                taken.extend(keys.into_iter().map(|(key, _)| (key, None)));
                continue;
            }
            if !keys
                .iter()
                .all(|(_, names)| names.iter().all(|name| is_permission(name)))
            {
                return Err(invalid());
            }
            taken.extend(keys.into_iter().map(|(key, names)| (key, Some(names))));
        }
        if taken.is_empty() {
            return Err(invalid());
        }
        self.permit_taking(call, &open, name, &taken, operation)?;
        let task = Revoke {
            name: name.clone(),
            taken,
            recursive: request.recursive,
        };
        let command = self.command_record(call);
        let done = open.pool.run_command(task, command, operation);
        done.map(|()| Done {})
            .map_err(|error| of_task(action, &error))
    }

    pub(crate) fn list_allowed(
        &self,
        request: &ListAllowed,
        operation: &Operation,
    ) -> Result<Allowed, Refusal> {
        let open = self.pool_with_head(&request.name, operation)?;
        let namespace = open.pool.namespace();
        let listed = namespace.consistently(|| {
            let directory = namespace.view(operation).directory(&request.name)?;
            delegation::list(&directory)
        });
        let listed = listed.map_err(|error| {
            let action = format!("cannot get permissions on '{}'", request.name);
            Refusal::new(RefusalKind::Corrupt, action, error.to_string())
        })?;
        let place = |(dataset, delegated): (String, Vec<Delegated>)| AllowedAt {
            dataset,
            grants: delegated.into_iter().map(grant_of).collect(),
        };
        Ok(Allowed {
            places: listed.into_iter().map(place).collect(),
        })
    }

    /// The pool of a file system or volume that is there.
    fn pool_with_head(
        &self,
        name: &str,
        operation: &Operation,
    ) -> Result<std::sync::Arc<OpenPool>, Refusal> {
        let parsed = DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
        if parsed.kind() != NameKind::Head {
            let delimiter = name.chars().find(|letter| "@#".contains(*letter));
            let bad = tarn_dataset::names::BadName::Delimiter(delimiter.unwrap_or('@'));
            return Err(bad_name(name, bad));
        }
        let open = self.engine.require_pool_of(name)?;
        let there = open
            .pool
            .namespace()
            .view(operation)
            .directory(name)
            .map(drop);
        there.map_err(|error| cannot_open(name, &error))?;
        Ok(open)
    }

    /// Refuses to delegate permissions that the caller lacks, and any without `allow`.
    #[doc(alias = "dsl_deleg_can_allow")]
    fn permit_giving(
        &self,
        call: &Call,
        open: &OpenPool,
        name: &str,
        given: &[(Key, Vec<String>)],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if self.trusts(&call.caller) {
            return Ok(());
        }
        let names = given.iter().flat_map(|(_, names)| names);
        let mut needed = vec![permission::ALLOW];
        for given in names {
            if given == permission::ALLOW {
                let action = cannot_set(name);
                let reason = "permission denied";
                return Err(Refusal::new(RefusalKind::Denied, action, reason));
            }
            needed.push(given);
        }
        let needs = [need(name, &needed)];
        self.permit(call, open, cannot_set(name), &needs, operation)
    }

    /// Refuses to take permissions from other users.
    #[doc(alias = "dsl_deleg_can_unallow")]
    fn permit_taking(
        &self,
        call: &Call,
        open: &OpenPool,
        name: &str,
        taken: &[(Key, Option<Vec<String>>)],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if self.trusts(&call.caller) {
            return Ok(());
        }
        let needs = [need(name, &[permission::ALLOW])];
        self.permit(call, open, cannot_set(name), &needs, operation)?;
        let own = stored::Holder::User(call.caller.uid);
        match taken.iter().all(|(key, _)| key.holder == own) {
            true => Ok(()),
            false => Err(Refusal::new(
                RefusalKind::Denied,
                cannot_set(name),
                "permission denied",
            )),
        }
    }
}

fn cannot_set(name: &str) -> String {
    format!("cannot set permissions on '{name}'")
}

/// The reason for a permission or set that does not exist.
const WRONG: &str = "operation not applicable to datasets of this type";

/// Whether a permission exists, or a name of a set is well-formed.
#[doc(alias = "zfs_valid_permission_name")]
fn is_permission(name: &str) -> bool {
    let is_own = permission::ALL.contains(&name);
    let is_property = table::find(name).is_some_and(is_delegatable);
    is_own || is_property || is_set(name)
}

#[doc(alias = "zfs_prop_delegatable")]
fn is_delegatable(row: &Property) -> bool {
    row.change != Change::ReadOnly && row.name != "mlslabel"
}

#[doc(alias = "permset_namecheck")]
fn is_set(name: &str) -> bool {
    let Some(component) = name.strip_prefix('@') else {
        return false;
    };
    let is_component = DatasetName::parse(&format!("p/{component}")).is_ok_and(|parsed| {
        parsed.kind() == NameKind::Head && parsed.parent() == Some(("p", component))
    });
    name.len() < SET_NAME_BYTES_MAX && is_component
}

/// The keys of a grant in the delegation ZAP, each with the names stored under it. Without names,
/// all keys that there can be. None for a malformed name of a set.
#[doc(alias = "store_allow_perm")]
fn keys_of(grant: &Grant) -> Option<Vec<(Key, Vec<String>)>> {
    let holder = match &grant.holder {
        Holder::Set(name) if !is_set(name) => return None,
        Holder::Set(name) => stored::Holder::Set(name.clone()),
        Holder::Creator => stored::Holder::Creator,
        Holder::User(uid) => stored::Holder::User(*uid),
        Holder::Group(gid) => stored::Holder::Group(*gid),
        Holder::Everyone => stored::Holder::Everyone,
    };
    let scopes = match &grant.holder {
        Holder::Set(_) | Holder::Creator => vec![Scope::Unsaid],
        _ => [
            (grant.local, Scope::Local),
            (grant.descendent, Scope::Descendent),
        ]
        .into_iter()
        .filter_map(|(is_meant, scope)| is_meant.then_some(scope))
        .collect(),
    };
    let (sets, permissions): (Vec<String>, Vec<String>) = grant
        .permissions
        .iter()
        .cloned()
        .partition(|name| name.starts_with('@'));
    let is_all = grant.permissions.is_empty();
    let mut keys = Vec::new();
    for scope in scopes {
        for (listed, names) in [(Listed::Permissions, &permissions), (Listed::Sets, &sets)] {
            if is_all || !names.is_empty() {
                let key = Key {
                    holder: holder.clone(),
                    scope,
                    listed,
                };
                keys.push((key, names.clone()));
            }
        }
    }
    Some(keys)
}

fn grant_of(delegated: Delegated) -> Grant {
    let Delegated { key, names } = delegated;
    Grant {
        holder: match key.holder {
            stored::Holder::Set(name) => Holder::Set(name),
            stored::Holder::Creator => Holder::Creator,
            stored::Holder::User(uid) => Holder::User(uid),
            stored::Holder::Group(gid) => Holder::Group(gid),
            stored::Holder::Everyone => Holder::Everyone,
        },
        local: key.scope == Scope::Local,
        descendent: key.scope == Scope::Descendent,
        permissions: names,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_those_of_openzfs_and_properties_that_can_be_set() {
        for name in [
            "snapshot",
            "receive:append",
            "userprop",
            "compression",
            "@a",
            "quota",
        ] {
            assert!(is_permission(name), "{name}");
        }
        let long = format!("@{}", "a".repeat(64));
        for name in [
            "used",
            "nothing",
            "@",
            "@a/b",
            "@a@b",
            "@a%",
            "",
            long.as_str(),
        ] {
            assert!(!is_permission(name), "{name}");
        }
    }

    #[test]
    fn a_grant_has_a_key_for_each_scope_and_what_is_listed() {
        let grant = Grant {
            holder: Holder::User(7),
            local: true,
            descendent: true,
            permissions: vec!["send".to_string(), "@a".to_string()],
        };
        let names = |grant: &Grant| -> Vec<String> {
            let keys = keys_of(grant).unwrap().into_iter();
            keys.map(|(key, names)| format!("{} {}", key.to_name(), names.join(",")))
                .collect()
        };
        assert_eq!(
            names(&grant),
            ["ul$7 send", "Ul$7 @a", "ud$7 send", "Ud$7 @a"]
        );
        let all = Grant {
            holder: Holder::Creator,
            permissions: Vec::new(),
            ..grant
        };
        assert_eq!(names(&all), ["c-$ ", "C-$ "]);
    }
}
