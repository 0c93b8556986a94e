//! Opening volumes, and the properties with which they are open.

use crate::tree::{TreeError, space_of};
use std::sync::Arc;
use tarn_dataset::contents::{self, VolumeFacts};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::intent_log::ForgetLog;
use tarn_dataset::properties::native::{self, Shown};
use tarn_dataset::space_door::SpaceDoor;
use tarn_ondisk::units::ObjectId;
use tarn_pool::{Mode, Pool};
use tarn_probe::Operation;
use tarn_zil::{Durability, LogBias, SyncPolicy};
use tarn_zvol::{Volume, VolumeParts, VolumeProperties};

/// The properties of a volume that matter to serving it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServingProperties {
    pub(super) open: VolumeProperties,
    /// `volmode=none`: it is not served.
    pub(super) is_hidden: bool,
    /// `volmode=dev`: its block device shows no partitions.
    pub(super) hides_partitions: bool,
    /// `snapdev=visible`: its snapshots are served.
    pub(super) shows_snapshots: bool,
}

impl ServingProperties {
    const NAMES: [&'static str; 5] = ["readonly", "sync", "logbias", "volmode", "snapdev"];

    /// Reads those of a head.
    pub(super) fn read(head: &Dataset<'_>) -> Result<ServingProperties, DatasetError> {
        let mut properties = ServingProperties::default();
        let is_wanted = |name: &str| ServingProperties::NAMES.contains(&name);
        for native in native::of_dataset(head, |row| is_wanted(row.name))? {
            let Shown::Text(word) = &native.value else {
                continue;
            };
            match (native.property.name, word.as_str()) {
                ("readonly", word) => properties.open.is_read_only = word == "on",
                ("sync", "always") => properties.open.sync = SyncPolicy::Always,
                ("sync", "disabled") => properties.open.sync = SyncPolicy::Disabled,
                ("logbias", "throughput") => properties.open.log_bias = LogBias::Throughput,
                ("volmode", word) => {
                    properties.is_hidden = word == "none";
                    properties.hides_partitions = word == "dev";
                }
                ("snapdev", word) => properties.shows_snapshots = word == "visible",
                _ => {}
            }
        }
        Ok(properties)
    }
}

/// Opens the volume of a head in a pool that is open for writing, and replays its intent log where
/// that was claimed.
///
/// # Errors
/// Why it cannot be opened, as text. Its log is not open then.
pub(super) fn open_head(
    pool: &Arc<Pool>,
    head: ObjectId,
    facts: VolumeFacts,
    properties: VolumeProperties,
    operation: &Operation,
) -> Result<Arc<Volume>, TreeError> {
    let opened = open_and_replay(pool, head, facts, properties, operation);
    if opened.is_err() {
        pool.namespace().forget_log(head);
    }
    opened
}

fn open_and_replay(
    pool: &Arc<Pool>,
    head: ObjectId,
    facts: VolumeFacts,
    properties: VolumeProperties,
    operation: &Operation,
) -> Result<Arc<Volume>, TreeError> {
    let set = pool.namespace().head_set(head, operation)?;
    let log = pool.namespace().open_log(&set, Durability::ByLog);
    let is_claimed = !set.phys().intent_log.claim_txg.is_zero();
    let parts = VolumeParts {
        set,
        txgs: Some(pool.txgs().clone()),
        log: Some(log.clone()),
        size_bytes: facts.size_bytes,
        properties,
        space: space_of(pool, head, |_| {}),
    };
    let volume = Volume::open(parts, operation)?;
    if is_claimed {
        tarn_zil::replay(&log, &*volume, operation).map_err(|error| TreeError {
            why: error.to_string(),
            is_log: true,
        })?;
        pool.run(ForgetLog { head }, operation)?;
    }
    Ok(volume)
}

/// Opens a volume or snapshot, for writing where that can be.
///
/// # Errors
/// Why it cannot be opened, as text.
pub(super) fn open_dataset(
    pool: &Arc<Pool>,
    dataset: &Dataset<'_>,
    facts: VolumeFacts,
    properties: VolumeProperties,
    operation: &Operation,
) -> Result<Arc<Volume>, TreeError> {
    if pool.mode() == Mode::ReadWrite && !dataset.is_snapshot() {
        return open_head(pool, dataset.id(), facts, properties, operation);
    }
    let parts = VolumeParts {
        set: contents::objset(dataset)?,
        txgs: None,
        log: None,
        size_bytes: facts.size_bytes,
        properties,
        space: SpaceDoor::unlimited(),
    };
    Ok(Volume::open(parts, operation)?)
}
