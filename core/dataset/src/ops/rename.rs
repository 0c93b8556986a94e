//! `zfs rename`: renames a file system or volume, with everything below it.
//!
//! # Mechanism
//! A directory has its name in its parent, so a rename is a removal there and an insertion
//! elsewhere. When the parent changes, the used and reserved space of the directory is subtracted
//! from the old parent and charged to the new one, and so are the counts of file systems and
//! snapshots. Common ancestors of both parents do not change.
//!
//! A name below may become too long; all are checked before.

use super::receive::half_received::check_whole;
use crate::contents::{self, Contents};
use crate::crypto_key;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::filesystem_counts::{self, Counted};
use crate::names::{BadName, DatasetName, NAME_BYTES_MAX, NESTING_MAX};
use crate::namespace::View;
use crate::space_charge::{Part, SpaceChange, charge};
use crate::space_used::available_to_moved;
use crate::task::{FeatureCounts, InternalEvent, SyncTask, TaskContext, TaskRefusal};
use tarn_object::zap::ZapValue;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::ObjectId;

/// Renames a file system or volume.
#[derive(Debug, Clone)]
pub struct Rename {
    /// The full name it has.
    pub from: String,
    /// The full name it gets, in the same pool.
    pub to: String,
}

impl SyncTask for Rename {
    type Output = ();

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let from = found(view, &self.from)?;
        let to = DatasetName::parse_new_head(&self.to).map_err(refuse_name)?;
        let busy = |why: &str| TaskRefusal::Busy {
            why: why.to_string(),
        };
        if to.pool() != view.namespace().pool_name() || from.parent()?.is_none() {
            return Err(busy("datasets must be within same pool"));
        }
        if is_below(&self.from, &self.to) {
            return Err(busy(
                "New dataset name cannot be a descendant of current dataset name",
            ));
        }
        let (parent_name, component) = to.parent().ok_or_else(|| TaskRefusal::Exists {
            name: self.to.clone(),
        })?;
        let parent = found(view, parent_name).map_err(|_| TaskRefusal::NoParent {
            name: parent_name.to_string(),
        })?;
        if parent.child(component)?.is_some() {
            return Err(TaskRefusal::Exists {
                name: self.to.clone(),
            });
        }
        if !is_filesystem(&parent)? {
            return Err(TaskRefusal::ParentNotFilesystem {
                name: parent_name.to_string(),
            });
        }
        if let Some(head) = parent.head()? {
            check_whole(&head)?;
        }
        check_names(&from, &self.from, &self.to)?;
        check_key(&from, &parent)?;
        if from.stored()?.parent != parent.id() {
            check_room(&from, &parent)?;
        }
        Ok(())
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| self.apply_now(context))
    }
}

impl Rename {
    fn apply_now(&self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        assert!(
            !is_below(&self.from, &self.to),
            "a directory does not move below itself"
        );
        let writing = context.writing();
        let directory = context.view().directory(&self.from)?;
        let (parent_name, component) =
            self.to
                .rsplit_once('/')
                .ok_or_else(|| DatasetError::NotFound {
                    name: self.to.clone(),
                })?;
        let parent = context.view().directory(parent_name)?;
        let stored = directory.stored()?;
        let text = format!("-> {}", self.to);
        context.record(InternalEvent {
            name: "rename",
            dataset: Some((self.from.clone(), stored.head_dataset)),
            text,
        });
        if stored.parent != parent.id() {
            move_counts(context, &directory, stored.parent, &parent)?;
            move_space(context, &stored, parent.id())?;
        }
        let (_, old_component) = self.from.rsplit_once('/').unwrap_or_default();
        let old_parent: DatasetDirectory = writing.reading().bonus_of(stored.parent)?;
        writing.remove(old_parent.children, old_component)?;
        writing.change(directory.id(), |stored: &mut DatasetDirectory| {
            stored.parent = parent.id();
        })?;
        let value = ZapValue::word(directory.id().get());
        writing.put(parent.stored()?.children, component, &value)?;
        let renamed = context.view().directory(&self.to)?;
        context.namespace.policies_changed(renamed.id());
        Ok(())
    }
}

/// What is opened with the key of something above it stays below that.
#[doc(alias = "dsl_dir_rename_crypt_check")]
fn check_key(from: &Directory<'_>, parent: &Directory<'_>) -> Result<(), TaskRefusal> {
    let root = crypto_key::root_of(from)?;
    let stays = match root {
        None => true,
        Some(root) => root == from.id() || crypto_key::root_of(parent)? == Some(root),
    };
    match stays {
        true => Ok(()),
        false => Err(TaskRefusal::BadKey {
            why: "cannot move encrypted child outside of its encryption root".to_string(),
        }),
    }
}

fn found<'a>(view: View<'a>, name: &str) -> Result<Directory<'a>, TaskRefusal> {
    view.directory(name).map_err(|cause| match cause {
        DatasetError::NotFound { name } => TaskRefusal::NotFound { name },
        cause => TaskRefusal::Dataset(cause),
    })
}

fn refuse_name(bad: BadName) -> TaskRefusal {
    match bad {
        BadName::TooLong | BadName::TooDeep => TaskRefusal::NameTooLong {
            why: bad.to_string(),
        },
        _ => TaskRefusal::BadValue {
            property: "name".to_string(),
            why: bad.to_string(),
        },
    }
}

/// True when the second name is the first, or below it.
fn is_below(above: &str, name: &str) -> bool {
    name.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_filesystem(directory: &Directory<'_>) -> Result<bool, DatasetError> {
    match directory.head()? {
        Some(head) => Ok(!matches!(contents::read(&head)?, Contents::Volume(_))),
        None => Ok(false),
    }
}

/// Refuses a name that makes one below it too long or too deep.
fn check_names(directory: &Directory<'_>, from: &str, to: &str) -> Result<(), TaskRefusal> {
    let depth = |name: &str| name.matches('/').count();
    let grows = to.len() > from.len();
    let sinks = depth(to) > depth(from);
    if !grows && !sinks {
        return Ok(());
    }
    let mut waiting = vec![directory.clone()];
    while let Some(directory) = waiting.pop() {
        let below = &directory.name()[from.len()..];
        let longest = match directory.head()? {
            Some(head) => head.longest_snapshot_name()?.map_or(0, |bytes| bytes + 1),
            None => 0,
        };
        let is_too_long = to.len() + below.len() + longest > NAME_BYTES_MAX;
        let is_too_deep = sinks && depth(to) + depth(below) >= NESTING_MAX;
        if is_too_long || is_too_deep {
            return Err(TaskRefusal::NameTooLong {
                why: "dataset name is too long".to_string(),
            });
        }
        waiting.extend(directory.children()?);
    }
    Ok(())
}

/// Refuses a parent whose quotas have no room for what the directory uses and reserves.
fn check_room(directory: &Directory<'_>, parent: &Directory<'_>) -> Result<(), TaskRefusal> {
    let stored = directory.stored()?;
    let space = stored.used.max(stored.reservation).get();
    let left = match directory.parent()? {
        Some(from) => available_to_moved(parent, &from, space)?,
        None => 0,
    };
    if left < space {
        return Err(TaskRefusal::NoSpace {
            why: "out of space".to_string(),
        });
    }
    Ok(())
}

/// Takes the file systems and snapshots of a directory, and itself, off one parent and counts them
/// for the other.
fn move_counts(
    context: &TaskContext<'_>,
    directory: &Directory<'_>,
    from: ObjectId,
    to: &Directory<'_>,
) -> Result<(), DatasetError> {
    if !context.features.is_active(Feature::FilesystemLimits) {
        return Ok(());
    }
    let counts = filesystem_counts::count(context, directory)?;
    let moved = [
        (Counted::Filesystems, i128::from(counts.filesystems) + 1),
        (Counted::Snapshots, i128::from(counts.snapshots)),
    ];
    for (counted, count) in moved {
        filesystem_counts::adjust(context, from, counted, -count)?;
        filesystem_counts::adjust(context, to.id(), counted, count)?;
    }
    Ok(())
}

/// Takes what a directory uses and reserves off its parent, and charges it to another.
fn move_space(
    context: &TaskContext<'_>,
    stored: &DatasetDirectory,
    to: ObjectId,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let all = SpaceChange::all_of(stored);
    charge(writing, stored.parent, Part::Children, all.negated())?;
    charge(writing, to, Part::Children, all)?;
    let unused = stored.reservation.saturating_sub(stored.used).get();
    if unused > 0 {
        let reserved = SpaceChange::of_used(i128::from(unused));
        let part = Part::ChildReservations;
        charge(writing, stored.parent, part, reserved.negated())?;
        charge(writing, to, part, reserved)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn a_name_is_below_another_by_components() {
        assert!(is_below("tank/a", "tank/a/b"));
        assert!(is_below("tank/a", "tank/a"));
        assert!(!is_below("tank/a", "tank/ab"));
    }
}
