//! Why a pool could not be opened or changed.

use tarn_dataset::error::DatasetError;
use tarn_object::ObjectError;
use tarn_object::zap::ZapError;
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::units::ObjectId;
use tarn_vdev::{ConfigError, LabelError, OpenError};
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
    /// The tree of datasets could not be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

/// Why a pool was not imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Devices are missing, or cannot be used.
    #[error("{0}")]
    Devices(#[from] OpenError),
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
    /// The pool's own structures could not be read.
    #[error("{0}")]
    Pool(#[from] PoolError),
}
