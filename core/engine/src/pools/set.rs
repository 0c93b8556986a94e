//! `zpool set`: one property of a pool.

use super::create::remembered;
use crate::administration::Call;
use crate::create::compatibility;
use crate::create::settings::{Occasion, PoolSettings};
use crate::engine::{Engine, OpenPool};
use crate::messages::pool::{Changed, Set};
use crate::messages::{Refusal, RefusalKind};
use crate::refusals::of_task;
use std::sync::Arc;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::is_user_property;
use tarn_object::zap::ZapValue;
use tarn_ondisk::features::Feature;
use tarn_pool::{Mode, PoolPropertyChange};
use tarn_probe::Operation;

impl Engine {
    pub(crate) fn set_pool(
        &self,
        call: &Call,
        request: &Set,
        operation: &Operation,
    ) -> Result<Changed, Refusal> {
        let open = self.require_pool(&request.name)?;
        let _turn = self.turn(&open)?;
        let action = format!("cannot set property for '{}'", request.name);
        let invalid = |reason| Refusal::new(RefusalKind::Invalid, action.clone(), reason);
        let given = [(request.property.clone(), request.value.clone())];
        let settings = PoolSettings::parse(&self.host, &given, Occasion::Set).map_err(invalid)?;
        if settings.version.is_some() {
            let reason = "zpool set version is not supported by this version: pools keep the version they have";
            return Err(Refusal::new(RefusalKind::Unsupported, action, reason));
        }
        if settings.cache_file.is_some() {
            return self.move_cache_entry(&open, &settings);
        }
        if open.pool.mode() == Mode::ReadOnly {
            return Err(Refusal::new(
                RefusalKind::ReadOnly,
                action,
                "pool is read-only",
            ));
        }
        self.refuse_incompatible(&open, &settings)?;
        let notes = self.notes_on_compatibility(&open, &settings);
        let changes = changes_of(&open, settings, operation)
            .map_err(|reason| Refusal::new(RefusalKind::Invalid, action.clone(), reason))?;
        let changed = open.pool.change_properties(changes, operation);
        changed.map_err(|error| of_task(action, &error))?;
        if request.property == "failmode" {
            open.pool.set_fails_writers(request.value == "continue");
        }
        self.record_command(call, &request.name, operation);
        Ok(Changed { notes })
    }

    /// Notes on a new compatibility set: enabled features may be outside of it.
    fn notes_on_compatibility(&self, open: &OpenPool, settings: &PoolSettings) -> Vec<String> {
        let sets = settings.compatibility.as_deref();
        let Some(Ok(allowed)) = sets.map(|sets| compatibility::allowed(&self.host, sets)) else {
            return Vec::new();
        };
        let known = open.pool.features();
        let is_outside =
            |feature: &Feature| known.count(feature.guid()).is_some() && !allowed.contains(feature);
        match Feature::ALL.iter().any(is_outside) {
            true => vec![format!(
                "Warning: one or more features already enabled on pool '{}'\n\
                 are not present in this compatibility set.",
                open.pool.name()
            )],
            false => Vec::new(),
        }
    }

    /// Refuses features that are not in the pool's compatibility set.
    fn refuse_incompatible(&self, open: &OpenPool, settings: &PoolSettings) -> Result<(), Refusal> {
        let sets = open.pool.facts().compatibility.map(|sets| sets.to_string());
        let allowed = compatibility::allowed(&self.host, sets.as_deref().unwrap_or("off"));
        let wanted = settings
            .features
            .iter()
            .filter(|(_, is_wanted)| **is_wanted);
        for (feature, _) in wanted {
            let why = match &allowed {
                Ok(allowed) if allowed.contains(feature) => continue,
                Ok(_) => {
                    "as it is not specified in this pool's current compatibility set.\n\
                     Consider setting 'compatibility' to a less restrictive set, or to 'off'."
                }
                Err(_) => "because the pool's 'compatibility' property cannot be parsed.",
            };
            let reason = format!(
                "Error: cannot enable feature '{}' on pool '{}'",
                feature.name(),
                open.pool.name()
            );
            return Err(Refusal::new(RefusalKind::Invalid, "", reason).with_hint(why));
        }
        Ok(())
    }

    /// Moves the pool to another cache file.
    fn move_cache_entry(
        &self,
        open: &Arc<OpenPool>,
        settings: &PoolSettings,
    ) -> Result<Changed, Refusal> {
        let left: Vec<_> = self.cache_file_of(open).into_iter().collect();
        *open.remembered.lock() = remembered(settings, false);
        self.remember_pools(&left)?;
        Ok(Changed::default())
    }
}

/// The changes to make in the pool.
pub(super) fn changes_of(
    open: &OpenPool,
    settings: PoolSettings,
    operation: &Operation,
) -> Result<Vec<PoolPropertyChange>, String> {
    let mut changes = Vec::new();
    if let Some(comment) = settings.comment {
        let comment = Some(comment).filter(|comment| !comment.is_empty());
        changes.push(PoolPropertyChange::Comment(comment));
    }
    if let Some(sets) = settings.compatibility {
        let sets = Some(sets).filter(|sets| sets != "off" && !sets.is_empty());
        changes.push(PoolPropertyChange::Compatibility(sets));
    }
    for (feature, is_wanted) in settings.features {
        if is_wanted {
            changes.push(PoolPropertyChange::Enable(feature));
        }
    }
    for (name, value, shown) in settings.stored {
        if is_user_property(&name) && shown.is_empty() {
            changes.push(PoolPropertyChange::Clear(name));
            continue;
        }
        let value = match name.as_str() {
            "bootfs" => boot_dataset(open, &shown, operation)?,
            _ => value,
        };
        changes.push(PoolPropertyChange::Stored(name, value, shown));
    }
    Ok(changes)
}

/// The object number of the dataset that `bootfs` names.
fn boot_dataset(open: &OpenPool, name: &str, operation: &Operation) -> Result<ZapValue, String> {
    if name.is_empty() {
        return Ok(ZapValue::word(0));
    }
    let view = open.pool.namespace().view(operation);
    let head = view.directory(name).and_then(|directory| directory.head());
    match head {
        Ok(Some(head)) => Ok(ZapValue::word(head.id().get())),
        Ok(None) | Err(DatasetError::NotFound { .. }) => {
            Err(format!("'{name}' is an invalid name"))
        }
        Err(error) => Err(error.to_string()),
    }
}
