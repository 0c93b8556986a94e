//! The intent logs of volumes are replayed when the pool is imported.
//!
//! Mounting a file system replays its intent log. A volume is not mounted, so the import replays
//! its log.

use super::open::open_head;
use crate::engine::OpenPool;
use crate::tree::TreeError;
use std::sync::Arc;
use tarn_dataset::contents::{self, Contents, VolumeFacts};
use tarn_dataset::error::DatasetError;
use tarn_dataset::intent_log::ForgetLog;
use tarn_dataset::namespace::View;
use tarn_ondisk::units::ObjectId;
use tarn_pool::{Mode, Pool};
use tarn_probe::Operation;
use tarn_zvol::VolumeProperties;

/// A volume with a claimed intent log.
struct Logged {
    name: String,
    head: ObjectId,
    facts: VolumeFacts,
}

/// Replays the intent logs of a pool's volumes. A log that cannot be replayed to its end is kept,
/// or discarded where the caller says so. Returns the failures as text.
#[doc(alias = "zvol_create_minors")]
pub(crate) fn replay_logs(
    open: &OpenPool,
    discards_logs: bool,
    operation: &Operation,
) -> Vec<String> {
    let pool = &open.pool;
    if pool.mode() == Mode::ReadOnly {
        return Vec::new();
    }
    let logged = match logged_volumes(pool, operation) {
        Ok(logged) => logged,
        Err(error) => return vec![format!("cannot look for logs of volumes: {error}")],
    };
    let replayed = logged.into_iter().filter_map(|volume| {
        let head = volume.head;
        let mut replayed = replay(pool, &volume, operation);
        if replayed.as_ref().is_err_and(|error| error.is_log) && discards_logs {
            replayed = pool
                .run(ForgetLog { head }, operation)
                .map_err(TreeError::from);
        }
        pool.namespace().forget_log(head);
        let why = replayed.err()?.why;
        Some(format!("cannot replay the log of '{}': {why}", volume.name))
    });
    replayed.collect()
}

/// The volumes among the datasets whose logs are claimed.
fn logged_volumes(pool: &Pool, operation: &Operation) -> Result<Vec<Logged>, DatasetError> {
    let mut logged = Vec::new();
    for name in pool.claimed_logs() {
        let namespace = pool.namespace();
        match namespace.consistently(|| logged_volume(namespace.view(operation), &name)) {
            // It was destroyed.
            Err(DatasetError::NotFound { .. }) => {}
            found => logged.extend(found?),
        }
    }
    Ok(logged)
}

/// A dataset, if it is a volume whose log is claimed.
fn logged_volume(view: View<'_>, name: &str) -> Result<Option<Logged>, DatasetError> {
    let Some(head) = view.directory(name)?.head()? else {
        return Ok(None);
    };
    if !matches!(contents::outline(&head)?, Contents::Volume(_)) {
        return Ok(None);
    }
    let log = contents::objset(&head)?.phys().intent_log;
    Ok(match (log.claim_txg.is_zero(), contents::read(&head)?) {
        (false, Contents::Volume(facts)) => Some(Logged {
            name: head.name(),
            head: head.id(),
            facts,
        }),
        _ => None,
    })
}

fn replay(pool: &Arc<Pool>, volume: &Logged, operation: &Operation) -> Result<(), TreeError> {
    let properties = VolumeProperties::default();
    open_head(pool, volume.head, volume.facts, properties, operation).map(drop)
}
