//! Key inheritance of received datasets. A raw stream of a tree makes each dataset its own
//! encryption root, since it comes alone; in the end the tree has the sender's encryption roots.
//!
//! # Mechanism
//! Wrapping keys are not known here, and not needed: at the sender the master keys are wrapped with
//! the root's key, and so they came. So only the encryption root is stored, for the dataset and for
//! those that have it as their root.

use super::set::find;
use crate::crypto_key;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::names::DatasetName;
use crate::namespace::View;
use crate::properties::set::{Entry, store};
use crate::task::{FeatureCounts, SyncTask, TaskContext, TaskRefusal};
use tarn_ondisk::units::ObjectId;

/// Makes a file system or volume inherit its key, so that it is no encryption root any more.
#[derive(Debug, Clone)]
pub struct InheritKey {
    /// Its full name.
    pub name: String,
}

fn bad(why: &str) -> TaskRefusal {
    TaskRefusal::BadKey {
        why: why.to_string(),
    }
}

impl SyncTask for InheritKey {
    type Output = ();

    #[doc(alias = "DCP_CMD_FORCE_INHERIT")]
    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let head = find(view, &self.name)?;
        let directory = head.directory();
        if head.is_snapshot() || !crypto_key::is_root(directory)? {
            return Err(bad("it is not an encryption root"));
        }
        let parent = directory.parent()?;
        let above = match &parent {
            Some(parent) => crypto_key::root_of(parent)?,
            None => None,
        };
        match above {
            Some(_) => Ok(()),
            None => Err(bad("its parent is not encrypted")),
        }
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            let not_found = || DatasetError::NotFound {
                name: self.name.clone(),
            };
            let name = DatasetName::parse(&self.name).map_err(|_| not_found())?;
            let head = context.view().dataset(&name)?;
            let directory = head.directory();
            let parent = directory.parent()?.ok_or_else(not_found)?;
            let root = crypto_key::root_of(&parent)?.ok_or_else(not_found)?;
            store(context, &head, "keylocation", &Entry::Cleared)?;
            let (before, id) = (directory.id(), directory.id());
            change_root(context, id, before, root)
        })
    }
}

/// Changes the root of a directory and of those below it that have the same. Clones have their
/// origin's key.
#[doc(alias = "spa_keystore_change_key_sync_impl")]
fn change_root(
    context: &TaskContext<'_>,
    top: ObjectId,
    before: ObjectId,
    root: ObjectId,
) -> Result<(), DatasetError> {
    let mut waiting = vec![top];
    while let Some(id) = waiting.pop() {
        let directory = Directory::open(context.view(), id, String::new())?;
        if crypto_key::root_of(&directory)? != Some(before) {
            continue;
        }
        crypto_key::set_root(context, &directory, root)?;
        let children = directory.child_ids()?;
        let shown = children
            .into_iter()
            .filter(|(component, _)| !component.starts_with(['$', '%']));
        waiting.extend(shown.map(|(_, id)| id));
    }
    Ok(())
}
