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
//! - Every command that changes or sends a dataset calls [`Engine::permit`] when it knows all
//!   datasets that it is about.

use crate::administration::Call;
use crate::engine::{Engine, OpenPool};
use crate::messages::{Caller, Refusal, RefusalKind};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::delegation::{self, User};
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::{DatasetName, NameKind};
use tarn_dataset::ops::on_behalf::{Growth, OnBehalf};
use tarn_dataset::properties::native::{self, Shown};
use tarn_dataset::properties::table;
use tarn_dataset::task::SyncTask;
use tarn_pool::TaskError;
use tarn_probe::Operation;

/// Names of permissions that are not properties.
#[doc(alias = "zfs_deleg_perm_tab")]
pub(crate) mod permission {
    pub(crate) const ALLOW: &str = "allow";
    pub(crate) const BOOKMARK: &str = "bookmark";
    pub(crate) const CLONE: &str = "clone";
    pub(crate) const CREATE: &str = "create";
    pub(crate) const DESTROY: &str = "destroy";
    pub(crate) const DIFF: &str = "diff";
    pub(crate) const HOLD: &str = "hold";
    pub(crate) const MOUNT: &str = "mount";
    pub(crate) const PROMOTE: &str = "promote";
    pub(crate) const RECEIVE: &str = "receive";
    pub(crate) const RECEIVE_APPEND: &str = "receive:append";
    pub(crate) const RELEASE: &str = "release";
    pub(crate) const RENAME: &str = "rename";
    pub(crate) const ROLLBACK: &str = "rollback";
    pub(crate) const SEND: &str = "send";
    pub(crate) const SNAPSHOT: &str = "snapshot";
    pub(crate) const USER_PROPERTY: &str = "userprop";

    /// All of them.
    pub(crate) const ALL: [&str; 32] = [
        ALLOW,
        BOOKMARK,
        CLONE,
        CREATE,
        DESTROY,
        DIFF,
        MOUNT,
        PROMOTE,
        RECEIVE,
        RECEIVE_APPEND,
        RENAME,
        ROLLBACK,
        SNAPSHOT,
        "share",
        SEND,
        USER_PROPERTY,
        "userquota",
        "groupquota",
        "userused",
        "groupused",
        "userobjquota",
        "groupobjquota",
        "userobjused",
        "groupobjused",
        HOLD,
        RELEASE,
        "load-key",
        "change-key",
        "projectused",
        "projectquota",
        "projectobjused",
        "projectobjquota",
    ];
}

/// Why a permission is missing.
#[derive(Debug)]
pub(crate) enum Denial {
    /// The permission is not delegated to the user.
    NotGranted,
    /// Delegation is off for the pool (`delegation=off`).
    Off,
    /// The dataset does not exist or cannot be read.
    Dataset(DatasetError),
}

impl From<DatasetError> for Denial {
    fn from(error: DatasetError) -> Denial {
        Denial::Dataset(error)
    }
}

impl Denial {
    /// The refusal in OpenZFS's words, with the command's action before them.
    pub(crate) fn refusal(self, action: impl Into<String>) -> Refusal {
        match self {
            Denial::NotGranted => Refusal::new(RefusalKind::Denied, action, "permission denied"),
            Denial::Off => {
                let reason = "delegated administration is disabled on pool";
                Refusal::new(RefusalKind::Denied, action, reason)
            }
            Denial::Dataset(DatasetError::NotFound { .. }) => {
                Refusal::new(RefusalKind::NotFound, action, "dataset does not exist")
            }
            Denial::Dataset(other) => Refusal::new(RefusalKind::Corrupt, action, other.to_string()),
        }
    }
}

/// Whether a user may do everything: root, and the daemon's own user.
pub(crate) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == tarn_host::effective_uid()
}

/// The caller as `tarn_dataset` describes users.
pub(crate) fn user_of(caller: &Caller) -> User {
    User {
        uid: caller.uid,
        gid: caller.gid,
        groups: caller.groups.clone(),
    }
}

/// Refuses a user without one of these permissions for a dataset.
#[doc(alias = "zfs_secpolicy_write_perms_ds")]
pub(crate) fn require(
    dataset: &Dataset<'_>,
    permissions: &[&str],
    user: &User,
) -> Result<(), Denial> {
    refuse_zoned(dataset)?;
    refuse_if_off(dataset)?;
    for permission in permissions {
        if !delegation::is_granted(dataset, permission, user)? {
            return Err(Denial::NotGranted);
        }
    }
    Ok(())
}

/// A dataset delegated to a zone is decided on by that zone's administrator; outside, only root
/// may.
#[doc(alias = "zfs_dozonecheck_impl")]
fn refuse_zoned(dataset: &Dataset<'_>) -> Result<(), Denial> {
    let Some(head) = dataset.directory().head()? else {
        return Err(Denial::NotGranted);
    };
    let zoned = native::of_dataset(&head, |row| row.name == "zoned")?;
    let on = Shown::Text("on".to_string());
    match zoned.first().is_some_and(|found| found.value == on) {
        true => Err(Denial::NotGranted),
        false => Ok(()),
    }
}

fn refuse_if_off(dataset: &Dataset<'_>) -> Result<(), Denial> {
    match delegation::is_on(dataset.directory().view())? {
        true => Ok(()),
        false => Err(Denial::Off),
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

impl Engine {
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
