//! `zpool import` without a name: lists importable pools, with the obstacles of each.
//!
//! Each found pool is opened read-only for a moment, as far as possible: which features it uses is
//! only in the MOS.

use super::condition::{Evidence, ImportEvidence, Requested, Scanned, Unsupported, find};
use super::vdev_status::{layout_of_candidate, state_word};
use crate::administrator::Administrator;
use crate::messages::Refusal;
use crate::messages::condition::Condition;
use crate::messages::pool::{FindImportable, Importable, ImportablePool};
use tarn_engine::importing::import::close_trial;
use tarn_engine::importing::import_refusal::{OPENZFS_CAN, described, is_of_devices, remedy_for};
use tarn_ondisk::features::{Access, access_of_guid};
use tarn_ondisk::pool_directory as name;
use tarn_pool::features::PoolFeatures;
use tarn_pool::{ImportError, Pool};
use tarn_probe::Operation;
use tarn_vdev::import_search::CandidatePool;
use tarn_vdev::tree::refuse_unbuilt;
use tarn_vdev::{AuxiliaryDevices, OpenError, PoolState, VdevHealth, VdevKind};

use tarn_engine::importing::search::Found;

/// The result of opening a pool for a moment.
#[derive(Default)]
struct Trial {
    health: Option<VdevHealth>,
    features: Option<PoolFeatures>,
    evidence: ImportEvidence,
    unsupported: Vec<String>,
    auxiliary: AuxiliaryDevices,
    /// An unsupported part of the pool, where no feature names it.
    unbuilt: Option<String>,
    /// The `action:` text, where no condition has it.
    cure: Option<String>,
}

impl Trial {
    /// Records the unsupported part.
    fn set_unbuilt(&mut self, error: &OpenError) {
        if let OpenError::Unsupported { name, what } = error {
            let status = "The pool has a vdev that is not supported by this version of tarn:";
            self.unbuilt = Some(format!("{status}\n\t{name} ({what})"));
            self.cure = Some(cannot_import(OPENZFS_CAN));
        }
    }
}

/// The `action:` text of a pool that cannot be imported here.
fn cannot_import(why_not: &str) -> String {
    format!("The pool cannot be imported.  {why_not}")
}

impl Administrator {
    pub(crate) fn find_importable(
        &self,
        request: &FindImportable,
        operation: &Operation,
    ) -> Result<Importable, Refusal> {
        let found = self.engine.look_for_pools(&request.search)?;
        let pools = found.candidates.iter();
        let pools = pools.map(|candidate| self.importable(candidate, &found, operation));
        Ok(Importable {
            pools: pools.flatten().collect(),
        })
    }

    fn importable(
        &self,
        candidate: &CandidatePool,
        found: &Found,
        operation: &Operation,
    ) -> Option<ImportablePool> {
        let health = candidate.health(&self.engine.host)?;
        let mut trial = self.try_import(candidate, found, &health, operation);
        trial.evidence.host_id = u64::from(self.engine.host.identity().hostid);
        // The configuration in the MOS is complete; that of labels may lack a whole vdev.
        let health = trial.health.take().unwrap_or(health);
        let facts = &candidate.facts;
        let condition = find(&Evidence {
            health: &health,
            facts,
            scanned: Scanned::default(),
            features: trial.features.as_ref(),
            // As OpenZFS, which ignores `compatibility` of pools that are not open.
            requested: Requested::All,
            import: Some(trial.evidence),
            error_count: 0,
            suspended: None,
        });
        let (mut state, mut remark) = state_of(&health, condition);
        let (mut status, mut condition) = (None, condition);
        if let Some(unbuilt) = trial.unbuilt {
            (state, remark) = ("UNAVAIL".to_string(), Some("not supported".to_string()));
            (status, condition) = (Some(unbuilt), None);
        }
        Some(ImportablePool {
            name: facts.name.to_string(),
            guid: facts.guid.get(),
            state,
            condition,
            status,
            action: trial.cure.unwrap_or_default(),
            unsupported_features: trial.unsupported,
            destroyed: facts.state == PoolState::Destroyed,
            remark,
            comment: facts.comment.as_ref().map(ToString::to_string),
            layout: layout_of_candidate(&self.engine.host, &health, &trial.auxiliary),
            remarks: remarks_of(&health),
            ..ImportablePool::default()
        })
    }

    /// Opens a pool for a moment.
    fn try_import(
        &self,
        candidate: &CandidatePool,
        found: &Found,
        health: &VdevHealth,
        operation: &Operation,
    ) -> Trial {
        let mut trial = Trial::default();
        if let Err(unbuilt) = refuse_unbuilt(&candidate.root) {
            trial.set_unbuilt(&unbuilt);
            return trial;
        }
        let is_named = !candidate.facts.features_for_read.is_empty();
        if !health.standing.state.is_usable() && !is_named {
            return trial;
        }
        let request = self.engine.trial_request(candidate, &found.paths);
        match Pool::import(&self.engine.host, &self.engine.cache, &request, operation) {
            Ok(pool) => {
                let features = pool.features();
                if features.check(Access::ReadWrite).is_err() {
                    trial.evidence.unsupported = Some(Unsupported::ToWrite);
                    trial.unsupported = described_by(&pool, &features, operation);
                }
                trial.health = Some(pool.vdevs().health());
                trial.features = Some(features);
                // If spares and caches cannot be read, the pool is shown without them.
                drop(pool.load_auxiliary(&found.paths, operation));
                trial.auxiliary = pool.vdevs().auxiliary();
                close_trial(&pool);
            }
            Err(ImportError::UnsupportedFeatures { features }) => {
                trial.evidence.unsupported = Some(Unsupported::ToRead);
                trial.cure = Some(cannot_import(remedy_for(&features)));
                trial.unsupported = features.iter().map(|guid| described(guid)).collect();
            }
            Err(ImportError::Version { .. }) => trial.evidence.is_newer = true,
            // The health from the labels shows it.
            Err(ImportError::Devices(OpenError::Unavailable { .. })) => {}
            Err(ImportError::Devices(unbuilt @ OpenError::Unsupported { .. })) => {
                trial.set_unbuilt(&unbuilt);
            }
            Err(ImportError::Pool(error)) if is_of_devices(&error) => {
                trial.evidence.is_corrupt = true;
                let cure = "A device reports errors: make sure that all are\n\tconnected and work.";
                trial.cure = Some(format!("The pool cannot be imported.  {cure}"));
            }
            Err(_) => trial.evidence.is_corrupt = true,
        }
        trial
    }
}

/// Active features that allow only reading, as `guid (description)`.
fn described_by(pool: &Pool, features: &PoolFeatures, operation: &Operation) -> Vec<String> {
    let directory = pool.directory(operation);
    let descriptions = directory.find(name::FEATURE_DESCRIPTIONS).ok().flatten();
    let active = features
        .iter()
        .filter(|(guid, count)| *count > 0 && access_of_guid(guid, false) < Access::ReadWrite);
    active
        .map(|(guid, _)| {
            let stored = descriptions.and_then(|zap| directory.value_in(zap, guid).ok().flatten());
            let text = stored.as_ref().and_then(|value| value.as_text());
            match text {
                Some(text) => format!("{guid} ({})", String::from_utf8_lossy(text)),
                None => guid.to_string(),
            }
        })
        .collect()
}

/// The pool's state, and the reason of a bad one.
fn state_of(health: &VdevHealth, condition: Option<Condition>) -> (String, Option<String>) {
    let of_vdevs = || {
        let reason = health.standing.reason;
        let remark = reason.map(|reason| reason.text().to_string());
        (state_word(health.standing).to_string(), remark)
    };
    let because = |state: &str, remark: &str| (state.to_string(), Some(remark.to_string()));
    match condition {
        Some(Condition::UnsupportedFeatureRead | Condition::UnsupportedFeatureWrite) => {
            because("UNAVAIL", "unsupported feature(s)")
        }
        Some(Condition::VersionNewer) => because("UNAVAIL", "newer version"),
        Some(Condition::CorruptPool) => because("FAULTED", "corrupted data"),
        Some(Condition::BadGuidSum) => because("UNAVAIL", "missing device"),
        _ => of_vdevs(),
    }
}

/// The lines below the configuration.
fn remarks_of(health: &VdevHealth) -> Vec<String> {
    let misses = health
        .children
        .iter()
        .any(|top| top.kind == VdevKind::Missing);
    match misses {
        true => vec![
            "Additional devices are known to be part of this pool, though their".to_string(),
            "exact configuration cannot be determined.".to_string(),
        ],
        false => Vec::new(),
    }
}
