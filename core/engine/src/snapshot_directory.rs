//! `.zfs/snapshot`: what becomes of snapshots when names in it change.
//!
//! # Mechanism
//! Who makes a directory there takes a snapshot, who removes one destroys it, and a rename renames: if he might do so by a command. That it was no command shows in
//! the history, which has no more of it than what happened. Snapshots that somebody has entered are known here: one in which
//! a file is open is busy, and one that was destroyed ends for all who have entered it or are about to ([`SnapshotsServed`]).

use crate::files::{Credentials, FileSystem, ObjectId, PosixError};
use crate::policy::{self, Denial};
use crate::tree::internal;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tarn_dataset::delegation::User;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::{BadName, DatasetName};
use tarn_dataset::ops::on_behalf::{Growth, OnBehalf};
use tarn_dataset::ops::snapshot_of_head::{ChangeSnapshot, SnapshotChange};
use tarn_dataset::snapshots_served::SnapshotsServed;
use tarn_dataset::task::TaskRefusal;
use tarn_host::lock::{Mutex, Rank};
use tarn_object::AssignError;
use tarn_ondisk::dataset_dir::SNAPSHOTS_CHANGED;
use tarn_pool::{Pool, TaskError};
use tarn_posix::control_directory::{ListedSnapshot, SnapshotDoor, SnapshotFacts, WhichSnapshot};
use tarn_posix::types::Timestamp;
use tarn_probe::Operation;

/// Those who enter snapshots, and who destroys them.
const ENTERED: Rank = Rank::new(tarn_host::ranks::ENGINE + 40, "entered snapshots");

/// Snapshots of a pool that somebody has entered, in whatever mount and by whatever name.
pub(crate) struct Entered(Mutex<Table>);

#[derive(Default)]
struct Table {
    files: Vec<(ObjectId, Weak<FileSystem>)>,
    /// For each that is being entered, what was destroyed since that began.
    entering: BTreeMap<u64, Vec<ObjectId>>,
    last: u64,
}

impl Table {
    /// The file systems of a snapshot end, or go on.
    fn set_ending(&self, snapshot: ObjectId, is_ending: bool) -> Vec<Arc<FileSystem>> {
        let of = self.files.iter().filter(|(id, _)| *id == snapshot);
        let of: Vec<_> = of.filter_map(|(_, files)| files.upgrade()).collect();
        of.iter().for_each(|files| files.set_ending(is_ending));
        of
    }
}

impl Entered {
    pub(crate) fn nothing() -> Arc<Entered> {
        Arc::new(Entered(Mutex::new(ENTERED, Table::default())))
    }

    /// Somebody is about to enter a snapshot. He says so before he looks for it, and so is told if it is destroyed from then on.
    pub(crate) fn begin(&self) -> Entering<'_> {
        let mut table = self.0.lock();
        table.last += 1;
        let number = table.last;
        table.entering.insert(number, Vec::new());
        Entering {
            entered: self,
            number,
        }
    }

    /// Lets nobody in any more. Says whether nobody has a file of it open.
    pub(crate) fn end(&self, snapshot: ObjectId) -> bool {
        let ending = self.0.lock().set_ending(snapshot, true);
        !ending.iter().any(|files| files.is_in_use())
    }

    /// It was not destroyed after all. Where it was, nobody has it here any more.
    pub(crate) fn go_on(&self, snapshot: ObjectId) {
        let going_on = self.0.lock().set_ending(snapshot, false);
        drop(going_on);
    }
}

impl SnapshotsServed for Entered {
    /// Files that are open end, too: what they read would be somebody else's.
    fn destroyed(&self, snapshot: ObjectId) {
        let mut table = self.0.lock();
        let ended = table.set_ending(snapshot, true);
        // They never go on, and another snapshot can get the number.
        table.files.retain(|(id, _)| *id != snapshot);
        for gone in table.entering.values_mut() {
            gone.push(snapshot);
        }
        drop(table);
        drop(ended);
    }
}

/// Somebody who enters a snapshot.
#[must_use]
pub(crate) struct Entering<'a> {
    entered: &'a Entered,
    number: u64,
}

impl Entering<'_> {
    /// These are its files. False if the snapshot was destroyed meanwhile: then nobody gets in.
    pub(crate) fn enter(self, snapshot: ObjectId, files: &Arc<FileSystem>) -> bool {
        let mut table = self.entered.0.lock();
        let gone = table.entering.get(&self.number);
        let is_there = gone.is_some_and(|gone| !gone.contains(&snapshot));
        if is_there {
            table.files.retain(|(_, files)| files.strong_count() > 0);
            table.files.push((snapshot, Arc::downgrade(files)));
        }
        is_there
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        self.entered.0.lock().entering.remove(&self.number);
    }
}

/// The snapshots of one mounted head.
pub(crate) struct SnapshotDirectory {
    pub(crate) pool: Arc<Pool>,
    pub(crate) head: ObjectId,
    pub(crate) entered: Arc<Entered>,
    /// Nobody can change names in it.
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
            false => change_snapshot(&self.pool, self.head, &self.entered, credentials, change),
        }
    }
}

fn change_snapshot(
    pool: &Pool,
    head: ObjectId,
    entered: &Entered,
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
        && !entered.end(going)
    {
        entered.go_on(going);
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
        entered.go_on(going);
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

/// Refuses a user who might not do the same by a command.
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

/// What cannot be read of the tree of datasets.
const UNREADABLE: PosixError = PosixError::Damaged {
    object: ObjectId::ZERO,
    why: "the tree of datasets cannot be read",
};

/// The system's errors for what OpenZFS has them for.
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
