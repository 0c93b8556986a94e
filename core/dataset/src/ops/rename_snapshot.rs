//! Renames snapshots: of one dataset, or of all datasets below it too.

use super::set::find;
use crate::dataset::Dataset;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::names::{BadName, DatasetName, NAME_BYTES_MAX};
use crate::namespace::View;
use crate::snapshot_names;
use crate::task::{FeatureCounts, InternalEvent, SyncTask, TaskContext, TaskRefusal};

/// Renames the snapshots of one name: all of them in one group, or none.
#[derive(Debug, Clone)]
pub struct RenameSnapshots {
    /// The full name of the head.
    pub head: String,
    /// The short name that they have.
    pub from: String,
    /// The short name that they get.
    pub to: String,
    /// Also those of everything below the head.
    pub recursive: bool,
}

impl SyncTask for RenameSnapshots {
    type Output = ();

    #[doc(alias = "dsl_dataset_rename_snapshot_check_impl")]
    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let named = find(view, &self.head)?;
        check_short_name(&self.head, &self.to)?;
        if named.snapshot(&self.from)?.is_none() && !self.recursive {
            let name = format!("{}@{}", self.head, self.from);
            return Err(TaskRefusal::NotFound { name });
        }
        for snapshot in self.found(named.directory())? {
            let name = snapshot.name();
            let head = snapshot.directory().head()?;
            let is_taken = match head {
                Some(head) => head.snapshot(&self.to)?.is_some(),
                None => false,
            };
            let refusal = if is_taken {
                TaskRefusal::Exists { name: name.clone() }
            } else if snapshot.directory().name().len() + 1 + self.to.len() > NAME_BYTES_MAX {
                TaskRefusal::NameTooLong {
                    why: "dataset name is too long".to_string(),
                }
            } else {
                continue;
            };
            return Err(TaskRefusal::Several(vec![(name, refusal)]));
        }
        Ok(())
    }

    #[doc(alias = "dsl_dataset_rename_snapshot_sync_impl")]
    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            let directory = context.view().directory(&self.head)?;
            for snapshot in self.found(&directory)? {
                context.record(InternalEvent {
                    name: "rename",
                    dataset: Some((snapshot.name(), snapshot.id())),
                    text: format!("-> @{}", self.to),
                });
                if let Some(head) = snapshot.directory().head()? {
                    let from = snapshot.snapshot_name().unwrap_or_default();
                    snapshot_names::rename(context, &head, from, &self.to, snapshot.id())?;
                }
            }
            Ok(())
        })
    }
}

/// Refuses what is no name of a snapshot of this head.
fn check_short_name(head: &str, short: &str) -> Result<(), TaskRefusal> {
    let why = match DatasetName::parse(&format!("{head}@{short}")) {
        Ok(parsed) if parsed.tail() == Some(short) => return Ok(()),
        Ok(_) => BadName::MultipleDelimiters,
        Err(BadName::TooLong) => {
            return Err(TaskRefusal::NameTooLong {
                why: "dataset name is too long".to_string(),
            });
        }
        Err(bad) => bad,
    };
    Err(TaskRefusal::BadValue {
        property: "name".to_string(),
        why: why.to_string(),
    })
}

impl RenameSnapshots {
    /// The snapshots that there are.
    fn found<'a>(&self, directory: &Directory<'a>) -> Result<Vec<Dataset<'a>>, DatasetError> {
        let mut found = Vec::new();
        let mut waiting = vec![directory.clone()];
        while let Some(directory) = waiting.pop() {
            if let Some(head) = directory.head()? {
                found.extend(head.snapshot(&self.from)?);
            }
            if self.recursive {
                waiting.extend(directory.children()?);
            }
        }
        Ok(found)
    }
}
