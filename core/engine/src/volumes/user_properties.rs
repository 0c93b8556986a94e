//! User properties of volumes, for front ends: whether a volume is shared, and what a front end
//! keeps with it.

use super::list::volumes_at;
use super::{HeldVolume, ListedVolume};
use crate::engine::{Engine, OpenPool};
use crate::mounting::cannot_open;
use crate::refusals::{Refusal, of_task};
use std::sync::Arc;
use tarn_dataset::look_through::Look;
use tarn_dataset::ops::inherit::{BackTo, InheritProperty};
use tarn_dataset::ops::set::{SetProperties, Source};
use tarn_dataset::properties::inherit::{Place, user_properties};
use tarn_dataset::properties::parse::{Checked, Setting};
use tarn_pool::Mode;
use tarn_probe::Operation;

impl Engine {
    /// The volumes of [`list_volumes`](Engine::list_volumes) that have or inherit a user property,
    /// each with its value. Snapshots are left out. A pool that cannot be read now is left out as
    /// well.
    pub fn volumes_with_property(
        &self,
        property: &str,
        operation: &Operation,
    ) -> Vec<(ListedVolume, String)> {
        let pools = self.pools().into_iter();
        let found = pools.filter_map(|open| in_pool(&open, property, operation));
        found.flatten().collect()
    }

    /// The value of a user property that was set on a held volume itself.
    ///
    /// # Errors
    /// The dataset cannot be read.
    pub fn volume_property(
        &self,
        held: &HeldVolume,
        property: &str,
        operation: &Operation,
    ) -> Result<Option<String>, Refusal> {
        let name = held.name();
        let view = held.pool().namespace().view(operation);
        let dataset = view.dataset_without_name(held.id());
        let found = dataset.and_then(|dataset| user_properties(&dataset));
        let mut found = found.map_err(|error| cannot_open(&name, &error))?;
        let value = found.remove(property);
        Ok(value
            .filter(|(_, place)| matches!(place, Place::Local))
            .map(|(text, _)| text))
    }

    /// Sets a user property of a held volume, or removes it, and waits until that is stored.
    ///
    /// # Errors
    /// The pool is read-only or full, or cannot be written.
    pub fn set_volume_property(
        &self,
        held: &HeldVolume,
        property: &str,
        value: Option<&str>,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let name = held.name();
        let action = format!("cannot set '{property}' of '{name}'");
        let pool = held.pool();
        let changed = match value {
            Some(value) => pool.run(
                SetProperties {
                    name,
                    settings: vec![Checked {
                        name: property.to_string(),
                        property: None,
                        setting: Setting::Text(value.to_string()),
                    }],
                    source: Source::Local,
                },
                operation,
            ),
            None => pool.run(
                InheritProperty {
                    name,
                    property: property.to_string(),
                    back_to: BackTo::Parent,
                },
                operation,
            ),
        };
        changed.map_err(|error| of_task(action, &error))
    }
}

fn in_pool(
    open: &Arc<OpenPool>,
    property: &str,
    operation: &Operation,
) -> Option<Vec<(ListedVolume, String)>> {
    let is_pool_read_only = open.pool.mode() == Mode::ReadOnly;
    let namespace = open.pool.namespace();
    let found = namespace.look_through(open.pool.name(), None, operation, |directory| {
        let volume = volumes_at(directory, is_pool_read_only)?.into_iter().next();
        let head = directory.head()?;
        let mut found = Vec::new();
        if let (Some(volume), Some(head)) = (volume, head)
            && let Some((value, _)) = user_properties(&head)?.remove(property)
        {
            found.push((volume, value));
        }
        Ok(Look {
            goes_on: true,
            found,
        })
    });
    found.ok()
}
