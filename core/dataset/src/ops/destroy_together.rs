//! Destroys a dataset with its dependents.
//!
//! # Mechanism
//! The list has the datasets in an order of destruction: a clone before its origin, snapshots and
//! children before their head. Each is checked as if those before it were destroyed already. When
//! all checks pass, all are destroyed, in one txg; when one fails, none is, and the refusal names
//! each obstacle.
//!
//! Readers of the tree meanwhile may see some destroyed and others not yet. What is stored has all
//! of them or none.

use super::destroy::{check_head, destroy_with_remains};
use super::destroy_snapshot::{check_snapshot, destroy_or_mark};
use super::going::Gone;
use super::set::find;
use crate::error::DatasetError;
use crate::names::DatasetName;
use crate::namespace::View;
use crate::task::{FeatureCounts, Room, SyncTask, TaskContext, TaskRefusal};

/// Destroys heads and snapshots: all of them in one txg, or none. Missing ones are skipped.
#[derive(Debug, Clone)]
pub struct DestroyTogether {
    /// Full names, of one pool; each after what depends on it.
    pub names: Vec<String>,
}

impl SyncTask for DestroyTogether {
    type Output = ();

    fn room(&self) -> Room {
        Room::freeing()
    }

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let mut gone = Gone::default();
        let mut refusals = Vec::new();
        for name in &self.names {
            let dataset = match find(view, name) {
                Ok(dataset) => dataset,
                Err(TaskRefusal::NotFound { .. }) => continue,
                Err(refusal) => return Err(refusal),
            };
            let checked = match dataset.is_snapshot() {
                true => check_snapshot(view, &dataset, false, &gone),
                false => check_head(view, &dataset, &gone),
            };
            if let Err(refusal) = checked {
                refusals.push((name.clone(), refusal));
            }
            // What would be in the way only because of one that is refused is not told as well.
            gone.add(&dataset)?;
        }
        TaskRefusal::of_several(refusals)
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        for name in &self.names {
            let not_found = |_| DatasetError::NotFound { name: name.clone() };
            let parsed = DatasetName::parse(name).map_err(not_found)?;
            let dataset = match context.view().dataset(&parsed) {
                Ok(dataset) => dataset,
                Err(DatasetError::NotFound { .. }) => continue,
                Err(cause) => return Err(cause),
            };
            context.namespace.change(|| match dataset.is_snapshot() {
                true => destroy_or_mark(context, &dataset, false),
                false => destroy_with_remains(context, &dataset),
            })?;
        }
        Ok(())
    }
}
