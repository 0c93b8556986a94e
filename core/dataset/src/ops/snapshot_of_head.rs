//! Takes, destroys or renames a snapshot of a dataset given by its object number.
//!
//! # Problem
//! A caller of `mkdir` in `.zfs/snapshot` is in a mounted file system. That may be renamed at any
//! moment, and another dataset get its name: a snapshot must not be taken of that one, or worse,
//! destroyed.
//!
//! # Mechanism
//! The sync thread, where nothing else changes, finds the name by the number of the head. The rest
//! is the same as with a name.

use super::destroy_snapshot::DestroySnapshots;
use super::rename_snapshot::RenameSnapshots;
use super::snapshot::TakeSnapshots;
use crate::error::DatasetError;
use crate::namespace::View;
use crate::task::{FeatureCounts, SyncTask, TaskContext, TaskRefusal};
use tarn_ondisk::units::ObjectId;

/// A change of a snapshot, with its short names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotChange {
    /// It is taken.
    Take(String),
    /// It is destroyed.
    Destroy(String),
    /// It gets another name.
    Rename {
        /// The one it has.
        from: String,
        /// The one it gets.
        to: String,
    },
}

/// Changes a snapshot of this head.
#[derive(Debug, Clone)]
pub struct ChangeSnapshot {
    /// The head.
    pub head: ObjectId,
    /// What becomes of its snapshot.
    pub change: SnapshotChange,
}

/// The task it comes to.
enum Named {
    Take(TakeSnapshots),
    Destroy(DestroySnapshots),
    Rename(RenameSnapshots),
}

impl ChangeSnapshot {
    fn named(&self, view: View<'_>) -> Result<Named, DatasetError> {
        let head = view.dataset_by_id(self.head)?.name();
        Ok(match &self.change {
            SnapshotChange::Take(name) => Named::Take(TakeSnapshots {
                names: vec![format!("{head}@{name}")],
                settings: Vec::new(),
            }),
            SnapshotChange::Destroy(name) => Named::Destroy(DestroySnapshots {
                names: vec![format!("{head}@{name}")],
                defer: false,
            }),
            SnapshotChange::Rename { from, to } => Named::Rename(RenameSnapshots {
                head,
                from: from.clone(),
                to: to.clone(),
                recursive: false,
            }),
        })
    }
}

impl SyncTask for ChangeSnapshot {
    type Output = ();

    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let checked = match self.named(view)? {
            Named::Take(task) => task.check(view, features),
            Named::Destroy(task) => task.check(view, features),
            Named::Rename(task) => task.check(view, features),
        };
        match checked {
            // There is only the one.
            Err(TaskRefusal::Several(mut refused)) if refused.len() == 1 => {
                Err(refused.remove(0).1)
            }
            checked => checked,
        }
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        match self.named(context.view())? {
            Named::Take(task) => task.apply(context),
            Named::Destroy(task) => task.apply(context),
            Named::Rename(task) => task.apply(context),
        }
    }
}
