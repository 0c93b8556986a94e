//! `zfs allow` and `zfs unallow`: stores and removes delegated permissions.
//!
//! `engine` decides which user may delegate what.

use crate::delegation;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::namespace::View;
use crate::task::{FeatureCounts, InternalEvent, SyncTask, TaskContext, TaskRefusal};
use tarn_ondisk::delegation::Key;
use tarn_ondisk::zap::can_hold_name;

/// Delegates permissions for a dataset.
#[doc(alias = "dsl_deleg_set")]
#[derive(Debug, Clone)]
pub struct Delegate {
    /// The full name of a file system or volume.
    pub name: String,
    /// The receiver, and the permissions.
    pub given: Vec<(Key, Vec<String>)>,
}

/// Takes delegated permissions back. Missing ones are skipped.
#[derive(Debug, Clone)]
pub struct Revoke {
    /// The full name of a file system or volume.
    pub name: String,
    /// The receiver, and the permissions; all of them where none are given.
    pub taken: Vec<(Key, Option<Vec<String>>)>,
    /// Everything below it as well.
    pub recursive: bool,
}

impl SyncTask for Delegate {
    type Output = ();

    fn check(&self, view: View<'_>, _: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let is_stored = |(key, names): &(Key, Vec<String>)| {
            can_hold_name(&key.to_name()) && names.iter().all(|name| can_hold_name(name))
        };
        if !self.given.iter().all(is_stored) {
            return Err(TaskRefusal::BadValue {
                property: "permission".to_string(),
                why: "invalid argument".to_string(),
            });
        }
        find(view, &self.name).map(drop)
    }

    #[doc(alias = "dsl_deleg_set_sync")]
    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        let directory = context.view().directory(&self.name)?;
        context.namespace.change(|| {
            for (key, names) in &self.given {
                delegation::add(context, directory.id(), key, names)?;
                for name in names {
                    let text = format!("{} {name}", key.to_name());
                    record(context, "permission update", &directory, text)?;
                }
            }
            Ok(())
        })
    }
}

impl SyncTask for Revoke {
    type Output = ();

    fn check(&self, view: View<'_>, _: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        find(view, &self.name).map(drop)
    }

    #[doc(alias = "dsl_deleg_unset_sync")]
    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        let top = context.view().directory(&self.name)?;
        context.namespace.change(|| {
            let mut waiting = vec![top];
            while let Some(directory) = waiting.pop() {
                self.take_from(context, &directory)?;
                if self.recursive {
                    waiting.extend(directory.children()?);
                }
            }
            Ok(())
        })
    }
}

impl Revoke {
    fn take_from(
        &self,
        context: &TaskContext<'_>,
        directory: &Directory<'_>,
    ) -> Result<(), DatasetError> {
        let table = directory.stored()?.permissions;
        if table.is_zero() {
            return Ok(());
        }
        for (key, names) in &self.taken {
            let is_there = context
                .view()
                .mos()
                .number(table, &key.to_name())?
                .is_some();
            delegation::remove(context, table, key, names.as_deref())?;
            match names {
                None => record(context, "permission who remove", directory, key.to_name())?,
                Some(names) if is_there => {
                    for name in names {
                        let text = format!("{} {name}", key.to_name());
                        record(context, "permission remove", directory, text)?;
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

fn find<'a>(view: View<'a>, name: &str) -> Result<Directory<'a>, TaskRefusal> {
    view.directory(name).map_err(|cause| match cause {
        DatasetError::NotFound { name } => TaskRefusal::NotFound { name },
        cause => TaskRefusal::Dataset(cause),
    })
}

#[doc(alias = "spa_history_log_internal_dd")]
fn record(
    context: &TaskContext<'_>,
    name: &'static str,
    directory: &Directory<'_>,
    text: String,
) -> Result<(), DatasetError> {
    let head = directory.stored()?.head_dataset;
    context.record(InternalEvent {
        name,
        dataset: Some((directory.name().to_string(), head)),
        text,
    });
    Ok(())
}
