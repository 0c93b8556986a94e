//! Why a pool could not be opened or changed.

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

/// Why something of the pool could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// An object of the MOS could not be read.
    #[error("object {object} of the MOS: {cause}")]
    Object {
        /// Its number.
        object: ObjectId,
        /// Why.
        cause: ObjectError,
    },
    /// A ZAP of the MOS could not be read.
    #[error("object {object} of the MOS: {cause}")]
    Zap {
        /// Its number.
        object: ObjectId,
        /// Why.
        cause: ZapError,
    },
    /// An object of the MOS is not what it should be.
    #[error("object {object} of the MOS is damaged: {cause}")]
    Corrupt {
        /// Its number.
        object: ObjectId,
        /// What is wrong.
        cause: Corrupt,
    },
    /// A packed list of the MOS is not what it should be.
    #[error("object {object} of the MOS is damaged: {cause}")]
    List {
        /// Its number.
        object: ObjectId,
        /// What is wrong.
        cause: Corrupt,
    },
    /// Something that every pool has is not there.
    #[error("the pool's directory has no {name}")]
    Missing {
        /// Its name there.
        name: &'static str,
    },
    /// A feature that is not enabled was to be used. The caller must have checked.
    #[error("feature {} is not enabled", .feature.guid())]
    FeatureDisabled {
        /// The feature.
        feature: Feature,
    },
    /// A feature was given up more often than it was used.
    #[error("feature {} is not in use", .feature.guid())]
    FeatureUnused {
        /// The feature.
        feature: Feature,
    },
    /// The pool was closed while something of it was to be read.
    #[error("the pool is closed")]
    Closed,
    /// Features are counted while a txg is stored only.
    #[error("features are counted only while a transaction group is stored")]
    NotSyncing,
    /// Objects could not be stored.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// A block that the pool gave up could not be freed.
    #[error(transparent)]
    Free(#[from] BlockFreeError),
    /// How often cloned blocks are referenced is not known for certain. Freeing a block may free
    /// what is in use.
    #[error("the table of cloned blocks of vdev {vdev} (object {object} of the MOS): {why}")]
    ClonedBlocks {
        /// The dataset that has the blocks.
        vdev: VdevId,
        /// The table.
        object: ObjectId,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A vdev has no array of space maps, so nothing may be placed on it.
    #[error("vdev {vdev} has no array of space maps")]
    NoSpaceMaps {
        /// Which.
        vdev: VdevId,
    },
    /// Devices could not be written.
    #[error(transparent)]
    Write(#[from] VdevWriteError),
    /// Storing does not come to an end: this is a mistake of ours, and nothing of the group counts.
    #[error("transaction group {txg} is still changing in pass {pass}")]
    Endless {
        /// The group.
        txg: Txg,
        /// How often it went round.
        pass: u32,
    },
    /// The tree of datasets could not be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

impl PoolError {
    /// What is wrong with a name or value that a job was given, where that is what failed and not
    /// the pool.
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
    /// What labels or the MOS say about the devices makes no sense.
    #[error("the pool's configuration is damaged: {0}")]
    Configuration(#[from] ConfigError),
    /// Labels could not be read.
    #[error("labels: {0}")]
    Labels(#[from] LabelError),
    /// There is no uberblock that verifies.
    #[error("no uberblock of any device verifies")]
    NoUberblock,
    /// The version is none we know.
    #[error("pool version {version} is not supported")]
    Version {
        /// The version.
        version: u64,
    },
    /// The number of the newest group is none that a pool has.
    #[error("the uberblock is of transaction group {txg}, which no pool has")]
    Txg {
        /// The group.
        txg: Txg,
    },
    /// Features are in use that we do not have; the pool cannot be opened at all.
    #[error("unsupported features are in use: {}", .features.join(", "))]
    UnsupportedFeatures {
        /// Their guids.
        features: Vec<String>,
    },
    /// Features are in use that we can only read.
    #[error("features are in use that can only be read: {}", .features.join(", "))]
    OnlyReadable {
        /// Their guids.
        features: Vec<String>,
    },
    /// There are deduplicated blocks. How often they are referenced is in tables that we do not
    /// write, so none of them can be freed.
    #[error(
        "the pool has deduplicated blocks (table {table}), which can be read and not be freed; import it with '-o readonly=on'"
    )]
    Deduplicated {
        /// One of the tables, as the pool's directory names it.
        table: String,
    },
    /// An earlier run left an intent log that cannot be replayed here. Writing the pool without
    /// replaying it loses what it holds.
    #[error(
        "dataset {dataset}: {why}; import the pool read-only, or with OpenZFS, which may be able to replay the log, or give it up with 'zpool import -o discardlog'"
    )]
    IntentLog {
        /// The dataset that has it.
        dataset: String,
        /// Why it cannot be.
        why: String,
    },
    /// Other hosts expect to see that the pool is in use, and we do not show it.
    #[error("pool has the multihost property on, which is not supported by this version")]
    Multihost,
    /// Another host began to write the pool while it was being opened.
    #[error("pool is being written by another host")]
    WrittenElsewhere,
    /// A vdev has no array of space maps: its addition was cut short by an earlier version, or the
    /// configuration is damaged. Taking it for empty may overwrite what is there.
    #[error("vdev {vdev} has no array of space maps, so what is free on it is not known")]
    NoSpaceMaps {
        /// Its name.
        vdev: String,
    },
    /// Devices have sectors that are larger than the format knows.
    #[error("a device has sectors that are too large")]
    SectorsTooLarge,
    /// The first transaction group could not be stored.
    #[error("{0}")]
    Sync(#[from] TaskError),
    /// The pool's own structures could not be read.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

/// Why the devices of a pool were not changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VdevChangeError {
    /// Intent logs that were not replayed yet are on the device. Mounting their datasets cures it.
    #[error("log device has unplayed intent logs")]
    UnplayedLogs {
        /// The dataset that has them.
        datasets: Vec<String>,
    },
    /// Nothing else has what is on the device.
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
    /// The vdev is not of a kind that can be changed so.
    #[error("{why}")]
    WrongKind {
        /// What is possible.
        why: &'static str,
    },
    /// A device cannot be used.
    #[error(transparent)]
    Device(#[from] ImportError),
    /// The pool could not be changed.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The pool's own structures could not be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Why a change of the pool did not happen.
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
    /// The pool is suspended: devices could not be written. What was asked for may or may not have
    /// happened when the pool is imported again.
    #[error("the pool is suspended: {why}")]
    Suspended {
        /// What failed.
        why: String,
    },
}
