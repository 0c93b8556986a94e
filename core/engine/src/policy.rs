//! Which permissions of `zfs allow` a user has for a dataset.
//!
//! Root and the daemon's own user may do everything. For other users the grants of the dataset and
//! of those above it decide; the checks, their order and the refusals are those of OpenZFS's
//! `zfs_secpolicy_*` functions.

use crate::refusals::{Refusal, RefusalKind};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::delegation::{self, User};
use tarn_dataset::error::DatasetError;
use tarn_dataset::properties::native::{self, Shown};

/// Names of permissions that are not properties.
#[doc(alias = "zfs_deleg_perm_tab")]
pub mod permission {
    /// Delegating what one has: `zfs allow`.
    pub const ALLOW: &str = "allow";
    /// `zfs bookmark`.
    pub const BOOKMARK: &str = "bookmark";
    /// `zfs clone`, from its origin.
    pub const CLONE: &str = "clone";
    /// Making datasets below.
    pub const CREATE: &str = "create";
    /// `zfs destroy`.
    pub const DESTROY: &str = "destroy";
    /// `zfs diff`.
    pub const DIFF: &str = "diff";
    /// `zfs hold`.
    pub const HOLD: &str = "hold";
    /// Mounting and unmounting, which other changes need too.
    pub const MOUNT: &str = "mount";
    /// `zfs promote`.
    pub const PROMOTE: &str = "promote";
    /// `zfs receive`, with `-F` too.
    pub const RECEIVE: &str = "receive";
    /// `zfs receive` without `-F`.
    pub const RECEIVE_APPEND: &str = "receive:append";
    /// `zfs release`.
    pub const RELEASE: &str = "release";
    /// `zfs rename`.
    pub const RENAME: &str = "rename";
    /// `zfs rollback`.
    pub const ROLLBACK: &str = "rollback";
    /// `zfs send`.
    pub const SEND: &str = "send";
    /// `zfs snapshot`.
    pub const SNAPSHOT: &str = "snapshot";
    /// Setting any user property.
    pub const USER_PROPERTY: &str = "userprop";

    /// All of them.
    pub const ALL: [&str; 32] = [
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
pub enum Denial {
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
    pub fn refusal(self, action: impl Into<String>) -> Refusal {
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
pub fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == tarn_host::effective_uid()
}

/// Refuses a user without one of these permissions for a dataset.
///
/// # Errors
/// Which of the reasons it is.
#[doc(alias = "zfs_secpolicy_write_perms_ds")]
pub fn require(dataset: &Dataset<'_>, permissions: &[&str], user: &User) -> Result<(), Denial> {
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
