//! `.zfs/snapshot`: mkdir(2), rmdir(2) and rename(2) there take, destroy and rename snapshots.
//!
//! # Mechanism
//! They need the permissions of `zfs snapshot`, `zfs destroy` and `zfs rename`. The history has the
//! internal event and no command. A snapshot in which a file is open is busy; one that is destroyed
//! ends for all that have entered it ([`served`](crate::served)).

use crate::files::{Credentials, ObjectId, PosixError};
use crate::policy::{self, Denial};
use crate::served::ServedFiles;
use crate::tree::internal;
use std::sync::Arc;
use tarn_dataset::delegation::User;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::{BadName, DatasetName};
use tarn_dataset::ops::on_behalf::{Growth, OnBehalf};
use tarn_dataset::ops::snapshot_of_head::{ChangeSnapshot, SnapshotChange};
use tarn_dataset::task::TaskRefusal;
use tarn_object::AssignError;
use tarn_ondisk::dataset_dir::SNAPSHOTS_CHANGED;
use tarn_pool::{Pool, TaskError};
use tarn_posix::control_directory::{ListedSnapshot, SnapshotDoor, SnapshotFacts, WhichSnapshot};
use tarn_posix::types::Timestamp;
use tarn_probe::Operation;

/// The snapshots of one head.
pub(crate) struct SnapshotDirectory {
    pub(crate) pool: Arc<Pool>,
    pub(crate) head: ObjectId,
    pub(crate) served: Arc<ServedFiles>,
    /// mkdir, rmdir and rename are refused.
    pub(crate) is_fixed: bool,
}

impl SnapshotDirectory {
    fn facts(&self, which: WhichSnapshot<'_>) -> Result<Option<SnapshotFacts>, DatasetError> {
        let operation = internal();
        let view = self.pool.namespace().view(&operation);
        let found = match which {
            WhichSnapshot::Named(name) => match std::str::from_utf8(name) {
                Ok(name) => view.dataset_without_name(self.head)?.snapshot(name)?,
                Err(_) => None,
            },
            WhichSnapshot::Numbered(id) => Some(view.dataset_without_name(id)?),
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let stored = found.stored()?;
        let is_own = found.directory().stored()?.head_dataset == self.head;
        let seconds = i64::try_from(stored.creation_time_s).unwrap_or(i64::MAX);
        Ok((is_own && stored.is_snapshot()).then_some(SnapshotFacts {
            dataset: found.id(),
            created: Timestamp {
                seconds,
                nanoseconds: 0,
            },
        }))
    }
}

impl SnapshotDoor for SnapshotDirectory {
    fn find(&self, which: WhichSnapshot<'_>) -> Option<SnapshotFacts> {
        self.facts(which).ok().flatten()
    }

    fn count(&self) -> u64 {
        let operation = internal();
        let head = self.pool.namespace().view(&operation);
        let head = head.dataset_without_name(self.head);
        head.and_then(|head| head.snapshot_count()).unwrap_or(0)
    }

    fn changed(&self) -> Timestamp {
        let operation = internal();
        let head = self.pool.namespace().view(&operation);
        let head = head.dataset_without_name(self.head);
        let noted = head.and_then(|head| head.directory().extension(SNAPSHOTS_CHANGED));
        let seconds = noted.ok().flatten().unwrap_or(0);
        Timestamp {
            seconds: i64::try_from(seconds).unwrap_or(0),
            nanoseconds: 0,
        }
    }

    fn list(&self, from: u64, count_max: usize) -> Vec<ListedSnapshot> {
        let operation = internal();
        let head = self.pool.namespace().view(&operation);
        let head = head.dataset_without_name(self.head);
        let found = head.and_then(|head| head.snapshot_names_from(from, count_max));
        let listed = |(name, dataset, next): (String, ObjectId, u64)| ListedSnapshot {
            name: name.into_bytes(),
            dataset,
            next,
        };
        let found = found.unwrap_or_default().into_iter();
        found.map(listed).collect()
    }

    fn change(&self, credentials: &Credentials, change: SnapshotChange) -> Result<(), PosixError> {
        match self.is_fixed {
            true => Err(PosixError::PermissionDenied),
            false => change_snapshot(&self.pool, self.head, &self.served, credentials, change),
        }
    }
}

fn change_snapshot(
    pool: &Pool,
    head: ObjectId,
    served: &ServedFiles,
    credentials: &Credentials,
    change: SnapshotChange,
) -> Result<(), PosixError> {
    let operation = internal();
    check_names(pool, head, &change, &operation)?;
    let user = User {
        uid: credentials.uid,
        gid: credentials.gid,
        groups: credentials.groups.clone(),
    };
    let is_bound = !policy::is_trusted(user.uid);
    if is_bound {
        let permitted = permit(pool, head, &change, &user, &operation);
        permitted.map_err(|denial| match denial {
            Denial::NotGranted => PosixError::NotPermitted,
            Denial::Off => PosixError::NotDelegated,
            Denial::Dataset(error) => of_dataset(&error),
        })?;
    }
    let going = match &change {
        SnapshotChange::Destroy(name) => Some(find(pool, head, name, &operation)?),
        SnapshotChange::Rename { from, to } if from == to => return Ok(()),
        _ => None,
    };
    if let Some(going) = going
        && !served.begin_ending(going)
    {
        served.go_on(going);
        return Err(PosixError::Busy);
    }
    let growth = match &change {
        SnapshotChange::Take(_) => vec![Growth::SnapshotOf(head)],
        _ => Vec::new(),
    };
    let task = OnBehalf {
        task: ChangeSnapshot { head, change },
        user,
        is_bound,
        growth,
        created: Vec::new(),
    };
    let outcome = pool.run(task, &operation);
    if let Some(going) = going {
        served.go_on(going);
    }
    outcome.map_err(|error| of_task(&error))
}

/// Refuses names that no snapshot can have.
#[doc(alias = "zfsctl_snapshot_name")]
fn check_names(
    pool: &Pool,
    head: ObjectId,
    change: &SnapshotChange,
    operation: &Operation,
) -> Result<(), PosixError> {
    let named = pool.namespace().view(operation).dataset_by_id(head);
    let head = named.map_err(|error| of_dataset(&error))?.name();
    let names = match change {
        SnapshotChange::Take(name) | SnapshotChange::Destroy(name) => vec![name],
        SnapshotChange::Rename { from, to } => vec![from, to],
    };
    names
        .into_iter()
        .try_for_each(|name| match DatasetName::parse(&format!("{head}@{name}")) {
            Ok(_) => Ok(()),
            Err(BadName::TooLong) => Err(PosixError::NameTooLong),
            Err(_) => Err(PosixError::BadName),
        })
}

/// Refuses a user without the permissions that the command of the same effect needs.
#[doc(alias(
    "zfs_secpolicy_snapshot_perms",
    "zfs_secpolicy_destroy_perms",
    "zfs_secpolicy_rename_perms"
))]
fn permit(
    pool: &Pool,
    head: ObjectId,
    change: &SnapshotChange,
    user: &User,
    operation: &Operation,
) -> Result<(), Denial> {
    use crate::policy::permission::{CREATE, DESTROY, MOUNT, RENAME, SNAPSHOT};
    let head = pool.namespace().view(operation).dataset_by_id(head)?;
    let snapshot = |name: &str| {
        let missing = || DatasetError::NotFound {
            name: name.to_string(),
        };
        head.snapshot(name)?.ok_or_else(missing)
    };
    match change {
        SnapshotChange::Take(_) => policy::require(&head, &[SNAPSHOT], user),
        SnapshotChange::Destroy(name) => policy::require(&snapshot(name)?, &[MOUNT, DESTROY], user),
        SnapshotChange::Rename { from, .. } => {
            policy::require(&snapshot(from)?, &[RENAME, MOUNT], user)?;
            policy::require(&head, &[CREATE, MOUNT], user)
        }
    }
}

fn find(
    pool: &Pool,
    head: ObjectId,
    name: &str,
    operation: &Operation,
) -> Result<ObjectId, PosixError> {
    let view = pool.namespace().view(operation);
    let found = view.dataset_without_name(head);
    let found = found.and_then(|head| head.snapshot(name));
    let found = found.map_err(|error| of_dataset(&error))?;
    found
        .map(|snapshot| snapshot.id())
        .ok_or(PosixError::NotFound)
}

fn of_dataset(error: &DatasetError) -> PosixError {
    match error {
        DatasetError::NotFound { .. } => PosixError::NotFound,
        _ => UNREADABLE,
    }
}

/// The tree of datasets cannot be read.
const UNREADABLE: PosixError = PosixError::Damaged {
    object: ObjectId::ZERO,
    why: "the tree of datasets cannot be read",
};

/// The errno that OpenZFS returns for a refused task.
fn of_task(error: &TaskError) -> PosixError {
    let refusal = match error {
        TaskError::Refused(refusal) => refusal,
        TaskError::ReadOnly => return PosixError::ReadOnly,
        _ => return PosixError::Pool(AssignError::Suspended),
    };
    match refusal {
        TaskRefusal::Exists { .. } | TaskRefusal::Cloned => PosixError::Exists,
        TaskRefusal::NotFound { .. } => PosixError::NotFound,
        TaskRefusal::Busy { .. } => PosixError::Busy,
        TaskRefusal::NoSpace { .. } => PosixError::NoSpace,
        TaskRefusal::LimitReached => PosixError::QuotaExceeded,
        TaskRefusal::NameTooLong { .. } => PosixError::NameTooLong,
        TaskRefusal::NotSupported { .. } => PosixError::NotSupported("of this dataset"),
        TaskRefusal::Dataset(error) => of_dataset(error),
        _ => PosixError::Invalid("the snapshot cannot be changed so"),
    }
}
