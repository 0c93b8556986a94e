//! Permissions: which users may run which commands on which datasets.
//!
//! # Mechanism
//! Root and the daemon's own user may do everything. Other users may read, and do with
//! datasets what `zfs allow` delegates to them: each command says which permissions it needs for
//! which datasets, before it changes anything. The permissions, their order and the refusals are
//! those of OpenZFS's `zfs_secpolicy_*` functions.
//!
//! Commands on pools cannot be delegated; the control interface passes them only for privileged
//! users.
//!
//! # Invariants
//! - Every command that changes or sends a dataset calls [`Administrator::permit`] when it knows
//!   all datasets that it is about.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::{Caller, Refusal};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::delegation::{self, User};
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::ops::on_behalf::{Growth, OnBehalf};
use tarn_dataset::properties::table;
use tarn_dataset::task::SyncTask;
use tarn_engine::engine::OpenPool;
pub(crate) use tarn_engine::policy::{Denial, is_trusted, permission, require};
use tarn_pool::TaskError;
use tarn_probe::Operation;

/// The caller as `tarn_dataset` describes users.
pub(crate) fn user_of(caller: &Caller) -> User {
    User {
        uid: caller.uid,
        gid: caller.gid,
        groups: caller.groups.clone(),
    }
}

/// A dataset, and the permissions that a command needs for it.
pub(crate) struct Need<'n> {
    /// Full name of a file system, volume or snapshot.
    pub(crate) dataset: String,
    /// Names of permissions; all of them are needed.
    pub(crate) permissions: Vec<&'n str>,
}

/// Permissions for a dataset.
pub(crate) fn need<'n>(dataset: impl Into<String>, permissions: &[&'n str]) -> Need<'n> {
    Need {
        dataset: dataset.into(),
        permissions: permissions.to_vec(),
    }
}

/// The name of a dataset's parent; for snapshots and bookmarks, of their dataset.
#[doc(alias = "zfs_get_parent")]
pub(crate) fn parent_of(name: &str) -> Result<&str, Denial> {
    let cut = match name.find(['@', '#']) {
        Some(at) => Some(&name[..at]),
        None => name.rsplit_once('/').map(|(parent, _)| parent),
    };
    cut.ok_or_else(|| {
        Denial::Dataset(DatasetError::NotFound {
            name: name.to_string(),
        })
    })
}

/// The permission that a property needs.
pub(crate) fn of_property(name: &str) -> &str {
    let of_owners = [
        "userquota",
        "groupquota",
        "userobjquota",
        "groupobjquota",
        "projectquota",
        "projectobjquota",
    ];
    match name.split_once('@') {
        Some((prefix, _)) => of_owners
            .into_iter()
            .find(|permission| *permission == prefix)
            .unwrap_or(name),
        None if tarn_dataset::names::is_user_property(name) => permission::USER_PROPERTY,
        None => table::find(name).map_or(name, |row| row.name),
    }
}

impl Administrator {
    /// Whether a caller may do and see everything.
    pub(crate) fn trusts(&self, caller: &Caller) -> bool {
        is_trusted(caller.uid)
    }

    /// Refuses a caller without one of the permissions. `action` begins the refusal.
    #[doc(alias = "zfs_secpolicy_write_perms")]
    pub(crate) fn permit(
        &self,
        call: &Call,
        open: &OpenPool,
        action: impl Into<String>,
        needs: &[Need<'_>],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if self.trusts(&call.caller) {
            return Ok(());
        }
        let user = user_of(&call.caller);
        let checked = needs.iter().try_for_each(|need| {
            let dataset = find(open, &need.dataset, operation)?;
            require(&dataset, &need.permissions, &user)
        });
        checked.map_err(|denial| denial.refusal(action))
    }

    /// Whether a caller has these permissions.
    pub(crate) fn may(
        &self,
        call: &Call,
        open: &OpenPool,
        need: &Need<'_>,
        operation: &Operation,
    ) -> bool {
        let needs = std::slice::from_ref(need);
        self.permit(call, open, "", needs, operation).is_ok()
    }

    /// Refuses a caller without one of these permissions for a new dataset below
    /// `above`.
    #[doc(alias = "zfs_set_prop_nvlist")]
    pub(crate) fn permit_new(
        &self,
        call: &Call,
        open: &OpenPool,
        action: impl Into<String>,
        above: &str,
        permissions: &[&str],
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if self.trusts(&call.caller) || permissions.is_empty() {
            return Ok(());
        }
        let user = user_of(&call.caller);
        let check = || -> Result<(), Denial> {
            let view = open.pool.namespace().view(operation);
            let above = view.directory(above)?;
            for permission in permissions {
                if !delegation::would_be_granted(&above, permission, &user)? {
                    return Err(Denial::NotGranted);
                }
            }
            Ok(())
        };
        check().map_err(|denial| denial.refusal(action))
    }

    /// A task on behalf of a caller. Limits bind it unless the caller may do everything.
    pub(crate) fn on_behalf<T>(
        &self,
        call: &Call,
        task: T,
        growth: Vec<Growth>,
        created: Vec<String>,
    ) -> OnBehalf<T> {
        OnBehalf {
            task,
            user: user_of(&call.caller),
            is_bound: !self.trusts(&call.caller),
            growth,
            created,
        }
    }

    /// Runs a task for a command.
    pub(crate) fn run_on_behalf<T: SyncTask>(
        &self,
        call: &Call,
        open: &OpenPool,
        task: OnBehalf<T>,
        operation: &Operation,
    ) -> Result<T::Output, TaskError> {
        let command = self.command_record(call);
        open.pool.run_command(task, command, operation)
    }
}

fn find<'a>(
    open: &'a OpenPool,
    name: &str,
    operation: &'a Operation,
) -> Result<Dataset<'a>, DatasetError> {
    let missing = || DatasetError::NotFound {
        name: name.to_string(),
    };
    let parsed = DatasetName::parse(name).map_err(|_| missing())?;
    let view = open.pool.namespace().view(operation);
    match parsed.kind() {
        NameKind::Bookmark => Err(missing()),
        _ => view.dataset(&parsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_property_has_its_permission() {
        assert_eq!(of_property("compression"), "compression");
        assert_eq!(of_property("com.example:a"), "userprop");
        assert_eq!(of_property("userquota@ann"), "userquota");
        assert_eq!(of_property("projectobjquota@7"), "projectobjquota");
        // These cannot be set, so there is no permission for them.
        assert_eq!(of_property("userused@ann"), "userused@ann");
    }

    #[test]
    fn the_parent_of_a_name_is_found() {
        assert_eq!(parent_of("tank/a/b").unwrap(), "tank/a");
        assert_eq!(parent_of("tank/a@s").unwrap(), "tank/a");
        assert_eq!(parent_of("tank/a#b").unwrap(), "tank/a");
        assert!(parent_of("tank").is_err());
    }
}
