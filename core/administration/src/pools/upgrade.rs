//! `zpool upgrade`: enables all features that this version writes and `compatibility` allows.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{Upgrade, Upgraded};
use crate::messages::{Refusal, RefusalKind};
use tarn_engine::engine::OpenPool;
use tarn_engine::importing::compatibility;
use tarn_engine::refusals::of_task;
use tarn_ondisk::features::Feature;
use tarn_pool::{Mode, PoolPropertyChange};
use tarn_probe::Operation;

/// The version of pools with features.
const VERSION_FEATURES: u64 = 5000;

impl Administrator {
    pub(crate) fn upgrade_pools(
        &self,
        call: &Call,
        request: &Upgrade,
        operation: &Operation,
    ) -> Result<Upgraded, Refusal> {
        let mut upgraded = Upgraded::default();
        for open in self.engine.named_pools(&request.names)? {
            let _turn = self.engine.turn(&open)?;
            let name = open.pool.name().to_string();
            let action = format!("cannot upgrade '{name}'");
            refuse_versions(&open, request, &action)?;
            let features = self.features_to_enable(&open, &action)?;
            if !features.is_empty() {
                let changes = features.iter().copied().map(PoolPropertyChange::Enable);
                let changed = open.pool.change_properties(changes.collect(), operation);
                changed.map_err(|error| of_task(action, &error))?;
                self.record_command(call, &name, operation);
            }
            let names = features.iter().map(|feature| feature.name().to_string());
            upgraded.pools.push((name, names.collect()));
        }
        Ok(upgraded)
    }

    /// Features to enable.
    fn features_to_enable(&self, open: &OpenPool, action: &str) -> Result<Vec<Feature>, Refusal> {
        let sets = open.pool.facts().compatibility.map(|sets| sets.to_string());
        let allowed = compatibility::allowed(&self.engine.host, sets.as_deref().unwrap_or("off"));
        let allowed =
            allowed.map_err(|reason| Refusal::new(RefusalKind::Invalid, action, reason))?;
        let known = open.pool.features();
        let is_missing = |feature: &Feature| {
            feature.is_enabled_by_default()
                && allowed.contains(feature)
                && known.count(feature.guid()).is_none()
        };
        Ok(Feature::ALL.iter().copied().filter(is_missing).collect())
    }
}

/// Refuses to change a pool's version, which is not built.
fn refuse_versions(open: &OpenPool, request: &Upgrade, action: &str) -> Result<(), Refusal> {
    if open.pool.mode() == Mode::ReadOnly {
        return Err(Refusal::new(
            RefusalKind::ReadOnly,
            action,
            "pool is read-only",
        ));
    }
    let is_old = open.pool.facts().version != VERSION_FEATURES;
    let is_other = request.version.is_some_and(|v| v != VERSION_FEATURES);
    if is_old || is_other {
        let reason = "changing the version of a pool is not supported by this version";
        return Err(Refusal::new(RefusalKind::Unsupported, action, reason));
    }
    Ok(())
}
