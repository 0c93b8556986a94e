//! `zfs inherit`: clears a property, so that a dataset inherits it or its received value counts
//! again.

use super::set::{check_limit, check_user_name, find, store_with_limits};
use crate::contents;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::heads::decides_writing;
use crate::names::{DatasetName, is_user_property};
use crate::namespace::View;
use crate::properties::inherit::{Found, INHERIT_SUFFIX, RECEIVED_SUFFIX, find_by_name};
use crate::properties::native::kind;
use crate::properties::set::{Entry, marks_inheriting};
use crate::properties::table;
use crate::properties::value::{Change, Property};
use crate::task::{FeatureCounts, SyncTask, TaskContext, TaskRefusal};

/// The value that counts after the local one was cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackTo {
    /// The parent's value, even if a value was received.
    Parent,
    /// The received value; where there is none, the parent's.
    Received,
}

/// Clears a property of a file system, volume or snapshot.
#[derive(Debug, Clone)]
pub struct InheritProperty {
    /// The full name.
    pub name: String,
    /// The property.
    pub property: String,
    /// What to go back to.
    pub back_to: BackTo,
}

impl SyncTask for InheritProperty {
    type Output = ();

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let dataset = find(view, &self.name)?;
        let bad = |why: &str| TaskRefusal::BadValue {
            property: self.property.clone(),
            why: why.to_string(),
        };
        let Some(property) = table::find(&self.property) else {
            if !is_user_property(&self.property) {
                return Err(bad("invalid property"));
            }
            let is_marked = self.back_to == BackTo::Parent && marks_inheriting(&dataset)?;
            return check_user_name(&self.property, if is_marked { INHERIT_SUFFIX } else { "" });
        };
        let is_fixed = matches!(
            property.change,
            Change::ReadOnly | Change::Once | Change::OnceDefault
        );
        if is_fixed {
            return Err(bad("read-only property"));
        }
        let is_kept_elsewhere = matches!(property.name, "volsize" | "version");
        let goes_to_parent = self.back_to == BackTo::Parent;
        if is_kept_elsewhere || (goes_to_parent && !property.is_inheritable()) {
            return Err(bad("property cannot be inherited"));
        }
        let kinds = kind(&contents::read(&dataset)?, &dataset);
        if !property.kinds.meets(kinds) {
            return Err(bad("property doesn't apply to datasets of this type"));
        }
        if dataset.is_snapshot() {
            return Err(bad("this property can not be modified for snapshots"));
        }
        check_limit(&dataset, property.name, received(&dataset, property)?)
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        let name = DatasetName::parse(&self.name).map_err(|_| DatasetError::NotFound {
            name: self.name.clone(),
        })?;
        let dataset = context.view().dataset(&name)?;
        let property = table::find(&self.property).map_or(&*self.property, |row| row.name);
        let entry = match self.back_to {
            BackTo::Parent => Entry::Inherited,
            BackTo::Received => Entry::Reverted,
        };
        store_with_limits(context, &dataset, property, &entry)?;
        if !dataset.is_snapshot() && decides_writing(property) {
            context.namespace.policies_changed(dataset.directory().id());
        }
        Ok(())
    }
}

/// The number that came with a stream; zero where none did.
fn received(dataset: &Dataset<'_>, property: &Property) -> Result<u64, DatasetError> {
    let name = format!("{}{RECEIVED_SUFFIX}", property.name);
    Ok(match find_by_name(dataset, &name, false, false)? {
        Some((Found::Number(number), _)) => number,
        _ => 0,
    })
}
