//! Why a pool could not be opened or changed.

use crate::checkpoint::state::CheckpointRefusal;
use tarn_block::BlockFreeError;
use tarn_dataset::error::DatasetError;
use tarn_dataset::task::TaskRefusal;
use tarn_object::zap::ZapError;
use tarn_object::{ObjectError, SyncError};
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::{ObjectId, Txg, VdevId};
use tarn_vdev::{ConfigError, LabelError, OpenError, VdevWriteError};
use thiserror::Error;

/// Why a part of the pool could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// An object of the MOS could not be read.
    #[error("object {object} of the MOS: {cause}")]
    Object {
        /// Its number.
        object: ObjectId,
        /// The reason.
        cause: ObjectError,
    },
    /// A ZAP of the MOS could not be read.
    #[error("object {object} of the MOS: {cause}")]
    Zap {
        /// Its number.
        object: ObjectId,
        /// The reason.
        cause: ZapError,
    },
    /// An object of the MOS is malformed.
    #[error("object {object} of the MOS is damaged: {cause}")]
    Corrupt {
        /// Its number.
        object: ObjectId,
        /// The fault.
        cause: Corrupt,
    },
    /// A packed list of the MOS is malformed.
    #[error("object {object} of the MOS is damaged: {cause}")]
    List {
        /// Its number.
        object: ObjectId,
        /// The fault.
        cause: Corrupt,
    },
    /// An object that every pool has is missing.
    #[error("the pool's directory has no {name}")]
    Missing {
        /// Its name in the directory.
        name: &'static str,
    },
    /// A feature that is not enabled was to be used: the caller must check before.
    #[error("feature {} is not enabled", .feature.guid())]
    FeatureDisabled {
        /// The feature.
        feature: Feature,
    },
    /// A feature's count was decreased below zero.
    #[error("feature {} is not in use", .feature.guid())]
    FeatureUnused {
        /// The feature.
        feature: Feature,
    },
    /// The pool was closed during the read.
    #[error("the pool is closed")]
    Closed,
    /// Feature counts change only while a txg is stored.
    #[error("features are counted only while a transaction group is stored")]
    NotSyncing,
    /// Objects could not be stored.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// A freed block of the pool could not be freed.
    #[error(transparent)]
    Free(#[from] BlockFreeError),
    /// The reference count of a cloned block is uncertain. Freeing the block may free one in use.
    #[error("the table of cloned blocks of vdev {vdev} (object {object} of the MOS): {why}")]
    ClonedBlocks {
        /// The vdev of the block.
        vdev: VdevId,
        /// The table.
        object: ObjectId,
        /// The fault.
        why: &'static str,
    },
    /// A vdev has no array of space maps, so no block may be allocated on it.
    #[error("vdev {vdev} has no array of space maps")]
    NoSpaceMaps {
        /// The vdev.
        vdev: VdevId,
    },
    /// Devices could not be written.
    #[error(transparent)]
    Write(#[from] VdevWriteError),
    /// The passes of a txg do not converge: a bug in Tarn. The txg is not stored.
    #[error("transaction group {txg} is still changing in pass {pass}")]
    Endless {
        /// The txg.
        txg: Txg,
        /// The number of passes.
        pass: u32,
    },
    /// The tree of datasets could not be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

impl PoolError {
    /// The text of the fault in a name or value that a job was given, if that is what failed and
    /// not the pool.
    pub(crate) fn of_argument(&self) -> Option<String> {
        match self {
            PoolError::Dataset(cause) => cause.of_argument(),
            PoolError::Zap { cause, .. } => tarn_dataset::error::of_argument(cause),
            _ => None,
        }
    }
}

/// Why a pool was not imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Devices are missing, or cannot be used.
    #[error("{0}")]
    Devices(#[from] OpenError),
    /// A device cannot be opened.
    #[error("{0}")]
    Open(#[from] tarn_host::OpenError),
    /// The configuration in labels or the MOS is malformed.
    #[error("the pool's configuration is damaged: {0}")]
    Configuration(#[from] ConfigError),
    /// Labels could not be read.
    #[error("labels: {0}")]
    Labels(#[from] LabelError),
    /// No uberblock verifies.
    #[error("no uberblock of any device verifies")]
    NoUberblock,
    /// The version is unknown.
    #[error("pool version {version} is not supported")]
    Version {
        /// The version.
        version: u64,
    },
    /// The txg of the newest uberblock is implausible.
    #[error("the uberblock is of transaction group {txg}, which no pool has")]
    Txg {
        /// The txg.
        txg: Txg,
    },
    /// Unknown features are active; the pool cannot be opened at all.
    #[error("unsupported features are in use: {}", .features.join(", "))]
    UnsupportedFeatures {
        /// Their guids.
        features: Vec<String>,
    },
    /// Features are active that allow only reading.
    #[error("features are in use that can only be read: {}", .features.join(", "))]
    OnlyReadable {
        /// Their guids.
        features: Vec<String>,
    },
    /// The pool has deduplicated blocks. Their reference counts are in tables that Tarn does not
    /// write, so none of them can be freed.
    #[error(
        "the pool has deduplicated blocks (table {table}), which can be read and not be freed; import it with '-o readonly=on'"
    )]
    Deduplicated {
        /// One of the tables, as the pool's directory names it.
        table: String,
    },
    /// An intent log cannot be replayed here. Writing the pool without replaying it loses its
    /// records.
    #[error(
        "dataset {dataset}: {why}; import the pool read-only, or with OpenZFS, which may be able to replay the log, or give it up with 'zpool import -o discardlog'"
    )]
    IntentLog {
        /// The dataset of the log.
        dataset: String,
        /// The reason.
        why: String,
    },
    /// The pool has `multihost`, and another host uses it.
    #[error("pool is imported on another host")]
    InUseElsewhere,
    /// The pool has `multihost`, and this host has no id to write into its labels.
    #[error("pool has the multihost property on and the system's hostid is not set")]
    NoHostId,
    /// The pool has no checkpoint to rewind to.
    #[error("checkpoint does not exist")]
    NoCheckpoint,
    /// The caller did not wait until it was known that no other host uses the pool.
    #[error("the caller is gone")]
    CallerGone,
    /// Another host began to write the pool while it was being opened.
    #[error("pool is being written by another host")]
    WrittenElsewhere,
    /// A vdev has no array of space maps: an earlier version was interrupted in adding it, or the
    /// configuration is damaged. Taking it for empty may overwrite data.
    #[error("vdev {vdev} has no array of space maps, so what is free on it is not known")]
    NoSpaceMaps {
        /// Its name.
        vdev: String,
    },
    /// Devices have larger sectors than the format allows.
    #[error("a device has sectors that are too large")]
    SectorsTooLarge,
    /// The first txg could not be stored.
    #[error("{0}")]
    Sync(#[from] TaskError),
    /// The MOS could not be read.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

/// Why the devices of a pool were not changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VdevChangeError {
    /// Intent logs that are not replayed have blocks on the device. Mounting their datasets replays
    /// them.
    #[error("log device has unplayed intent logs")]
    UnplayedLogs {
        /// The datasets of the logs.
        datasets: Vec<String>,
    },
    /// No other device has the device's data.
    #[error("no valid replicas")]
    NoReplicas,
    /// A new device is smaller than the vdev needs.
    #[error("device is too small")]
    TooSmall,
    /// A new device has larger sectors than the vdev.
    #[error(
        "new device has a different optimal sector size; use the option '-o ashift=N' to override the optimal size"
    )]
    LargerSectors,
    /// The vdev is not of a kind that can be changed like this.
    #[error("{why}")]
    WrongKind {
        /// The kind that is needed.
        why: &'static str,
    },
    /// A resilver runs: no sequential rebuild begins beside it.
    #[error("currently resilvering")]
    Resilvering,
    /// A sequential rebuild runs: no resilver begins beside it.
    #[error("currently sequentially resilvering")]
    Rebuilding,
    /// The feature `device_rebuild` is not enabled.
    #[error("device_rebuild feature must be enabled in order to use sequential reconstruction")]
    NoDeviceRebuild,
    /// The devices are needed for a checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointRefusal),
    /// A device cannot be used.
    #[error(transparent)]
    Device(#[from] ImportError),
    /// The pool could not be changed.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The MOS could not be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Why a change of the pool was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// It was refused.
    #[error(transparent)]
    Refused(#[from] TaskRefusal),
    /// The pool is open read-only.
    #[error("pool is read-only")]
    ReadOnly,
    /// The pool is being closed.
    #[error("the pool is being closed")]
    Stopped,
    /// The pool is suspended: devices could not be written. The next import shows whether the
    /// change was stored.
    #[error("the pool is suspended: {why}")]
    Suspended {
        /// The error.
        why: String,
    },
}
