//! Changes on behalf of a user: limits, and the creator's permissions.
//!
//! # Mechanism
//! Any task can be wrapped. Before it runs, the limits on the numbers of file systems and snapshots
//! are checked, up to the root. They bind users without privilege: a user with the permission to
//! change a limit of a dataset is not bound by that one, but by those above it. After it ran, the
//! creator of a dataset gets the permissions of create time (`zfs allow -c`).

use super::promote::moved_by_promotion;
use super::set::find;
use crate::delegation::{self, User};
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::filesystem_counts::counts_of;
use crate::namespace::View;
use crate::properties::inherit::local_number;
use crate::task::{FeatureCounts, Room, SyncTask, TaskContext, TaskRefusal};
use std::collections::BTreeMap;
use tarn_ondisk::units::ObjectId;

/// A task with the user that asked for it.
#[derive(Debug, Clone)]
pub struct OnBehalf<T> {
    /// What is made.
    pub task: T,
    /// The user.
    pub user: User,
    /// Whether limits bind him.
    pub is_bound: bool,
    /// What a task adds to limited counts.
    pub growth: Vec<Growth>,
    /// Full names of the datasets that are made.
    pub created: Vec<String>,
}

/// What a task adds to limited counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Growth {
    /// One file system or volume, below this one.
    Filesystem(String),
    /// One snapshot, of this dataset.
    Snapshot(String),
    /// One snapshot, of this head.
    SnapshotOf(ObjectId),
    /// `from` and all datasets below it, with their snapshots, move below `to`.
    Moved {
        /// The full name of what is moved.
        from: String,
        /// The full name of its new parent.
        to: String,
    },
    /// The snapshots that this clone gets when it is promoted.
    Promoted(String),
}

/// The limit on how many there may be below a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Filesystems,
    Snapshots,
}

impl Limit {
    fn property(self) -> &'static str {
        match self {
            Limit::Filesystems => "filesystem_limit",
            Limit::Snapshots => "snapshot_limit",
        }
    }
}

impl<T: SyncTask> SyncTask for OnBehalf<T> {
    type Output = T::Output;

    fn room(&self) -> Room {
        self.task.room()
    }

    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        self.task.check(view, features)?;
        match self.is_bound {
            true => check_limits(view, &self.user, &self.growth),
            false => Ok(()),
        }
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<T::Output, DatasetError> {
        context.namespace.change(|| {
            let output = self.task.apply(context)?;
            for name in &self.created {
                let directory = context.view().directory(name)?;
                delegation::give_to_creator(context, &directory, self.user.uid)?;
            }
            Ok(output)
        })
    }
}

/// Refuses what a limit does not allow.
#[doc(alias = "dsl_fs_ss_limit_check")]
fn check_limits(view: View<'_>, user: &User, growth: &[Growth]) -> Result<(), TaskRefusal> {
    let mut more = More::default();
    for growth in growth {
        match growth {
            Growth::Filesystem(parent) => {
                more.add(&view.directory(parent)?, Limit::Filesystems, 1, None)?;
            }
            Growth::Snapshot(head) => {
                more.add(&view.directory(head)?, Limit::Snapshots, 1, None)?;
            }
            Growth::SnapshotOf(head) => {
                let head = view.dataset_without_name(*head)?;
                more.add(head.directory(), Limit::Snapshots, 1, None)?;
            }
            Growth::Moved { from, to } => {
                let (from, to) = (view.directory(from)?, view.directory(to)?);
                let counts = counts_of(&from)?.unwrap_or_default();
                let filesystems = counts.filesystems.saturating_add(1);
                let above = from.lineage()?;
                let old: Vec<ObjectId> = above.iter().skip(1).map(Directory::id).collect();
                more.add(&to, Limit::Filesystems, filesystems, Some(&old))?;
                more.add(&to, Limit::Snapshots, counts.snapshots, Some(&old))?;
            }
            Growth::Promoted(clone) => {
                let clone = find(view, clone)?;
                if let Some((from, snapshots)) = moved_by_promotion(&clone)? {
                    let old: Vec<ObjectId> = from.lineage()?.iter().map(Directory::id).collect();
                    let to = clone.directory();
                    more.add(to, Limit::Snapshots, snapshots, Some(&old))?;
                }
            }
        }
    }
    for (directory, limit, more) in more.0.into_values() {
        check_limit(&directory, limit, more, user)?;
    }
    Ok(())
}

/// How many more there will be below each directory.
#[derive(Default)]
struct More<'a>(BTreeMap<(ObjectId, &'static str), (Directory<'a>, Limit, u64)>);

impl<'a> More<'a> {
    /// So many more below this directory and all above it, as far as those do not have them
    /// already.
    fn add(
        &mut self,
        directory: &Directory<'a>,
        limit: Limit,
        count: u64,
        had: Option<&[ObjectId]>,
    ) -> Result<(), DatasetError> {
        for above in directory.lineage()? {
            if had.is_some_and(|had| had.contains(&above.id())) {
                return Ok(());
            }
            let place = self.0.entry((above.id(), limit.property()));
            let (_, _, more) = place.or_insert((above, limit, 0));
            *more = more.saturating_add(count);
        }
        Ok(())
    }
}

fn check_limit(
    directory: &Directory<'_>,
    limit: Limit,
    more: u64,
    user: &User,
) -> Result<(), TaskRefusal> {
    // Where nothing was counted there was never a limit.
    let Some(counts) = counts_of(directory)? else {
        return Ok(());
    };
    let count = match limit {
        Limit::Filesystems => counts.filesystems,
        Limit::Snapshots => counts.snapshots,
    };
    let allowed = local_number(directory, limit.property())?.unwrap_or(u64::MAX);
    if more == 0 || count.saturating_add(more) <= allowed || may_change(directory, limit, user)? {
        return Ok(());
    }
    Err(TaskRefusal::LimitReached)
}

/// Whether a user may set a limit higher, so that it does not keep him.
#[doc(alias = "dsl_enforce_ds_ss_limits")]
fn may_change(directory: &Directory<'_>, limit: Limit, user: &User) -> Result<bool, DatasetError> {
    let Some(head) = directory.head()? else {
        return Ok(false);
    };
    Ok(delegation::is_on(directory.view())?
        && delegation::is_granted(&head, limit.property(), user)?)
}
