//! Why datasets could not be read or changed.

use tarn_object::ObjectError;
use tarn_object::zap::ZapError;
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::units::ObjectId;
use thiserror::Error;

/// Why something in the tree of datasets could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// Nothing has this name.
    #[error("dataset does not exist")]
    NotFound {
        /// The name that was looked for.
        name: String,
    },
    /// An object of the MOS could not be read.
    #[error("cannot read object {object} of the pool's directory: {cause}")]
    Object {
        /// Its number in the MOS.
        object: ObjectId,
        /// Why.
        cause: ObjectError,
    },
    /// A ZAP of the MOS could not be read.
    #[error("cannot read object {object} of the pool's directory: {cause}")]
    Zap {
        /// Its number in the MOS.
        object: ObjectId,
        /// Why.
        cause: ZapError,
    },
    /// An object of the MOS is not what it should be.
    #[error("object {object} of the pool's directory is damaged: {cause}")]
    Corrupt {
        /// Its number in the MOS.
        object: ObjectId,
        /// What is wrong.
        cause: Corrupt,
    },
    /// Objects of the MOS contradict each other.
    #[error("object {object} of the pool's directory is damaged: {why}")]
    Inconsistent {
        /// The object where it was seen.
        object: ObjectId,
        /// The rule that is broken.
        why: &'static str,
    },
    /// Children and clones of a dataset lead back to it. Renames can do that in a sound pool, where
    /// a clone's parent descends from the clone; else the disk lies.
    #[error("recursive dependency at '{name}'")]
    Recursive {
        /// The dataset that was met again.
        name: String,
    },
    /// A block could not be given back.
    #[error("cannot free a block: {cause}")]
    Free {
        /// Why.
        cause: tarn_block::BlockFreeError,
    },
    /// The counts of features could not be changed.
    #[error("feature counts: {cause}")]
    Features {
        /// Why.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A dataset could not be stored.
    #[error(transparent)]
    Sync {
        /// Why.
        cause: tarn_object::SyncError,
    },
    /// A new file system could not be filled.
    #[error("a new file system could not be made: {cause}")]
    Fill {
        /// Why.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl DatasetError {
    /// What is wrong with a name or value that a task was given, where that is what failed and not
    /// the pool: nothing has this name, or no ZAP can hold it.
    pub fn of_argument(&self) -> Option<String> {
        match self {
            DatasetError::NotFound { .. } => Some(self.to_string()),
            DatasetError::Zap { cause, .. } => of_argument(cause),
            _ => None,
        }
    }
}

/// What is wrong with a name or value that no ZAP can hold.
pub fn of_argument(cause: &ZapError) -> Option<String> {
    match cause {
        ZapError::BadName | ZapError::ValueTooLarge { .. } => Some(cause.to_string()),
        _ => None,
    }
}
