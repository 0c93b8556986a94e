//! `zpool set`: one property of a pool.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{Changed, Set};
use crate::messages::{Refusal, RefusalKind};
use std::sync::Arc;
use tarn_engine::engine::OpenPool;
use tarn_engine::importing::apply_settings::{changes_of, remembered};
use tarn_engine::importing::compatibility;
use tarn_engine::importing::settings::{Occasion, PoolSettings};
use tarn_engine::refusals::of_task;
use tarn_ondisk::features::Feature;
use tarn_pool::Mode;
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn set_pool(
        &self,
        call: &Call,
        request: &Set,
        operation: &Operation,
    ) -> Result<Changed, Refusal> {
        let open = self.engine.require_pool(&request.name)?;
        let _turn = self.engine.turn(&open)?;
        let action = format!("cannot set property for '{}'", request.name);
        let invalid = |reason| Refusal::new(RefusalKind::Invalid, action.clone(), reason);
        let given = [(request.property.clone(), request.value.clone())];
        let settings =
            PoolSettings::parse(&self.engine.host, &given, Occasion::Set).map_err(invalid)?;
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
        if request.property == "autotrim" {
            open.pool.set_autotrim(request.value == "on");
        }
        self.record_command(call, &request.name, operation);
        Ok(Changed { notes })
    }

    /// Notes on a new compatibility set: enabled features may be outside of it.
    fn notes_on_compatibility(&self, open: &OpenPool, settings: &PoolSettings) -> Vec<String> {
        let sets = settings.compatibility.as_deref();
        let Some(Ok(allowed)) = sets.map(|sets| compatibility::allowed(&self.engine.host, sets))
        else {
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
        let allowed = compatibility::allowed(&self.engine.host, sets.as_deref().unwrap_or("off"));
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
        let left: Vec<_> = self.engine.cache_file_of(open).into_iter().collect();
        *open.remembered.lock() = remembered(settings, false);
        self.engine.remember_pools(&left)?;
        Ok(Changed::default())
    }
}
