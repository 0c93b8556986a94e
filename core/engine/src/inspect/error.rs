//! Why a look into a pool failed.

use std::path::PathBuf;
use tarn_block::{CopyFailureReason, ReadError};
use tarn_dataset::error::DatasetError;
use tarn_host::OpenError;
use tarn_object::ObjectError;
use tarn_object::zap::ZapError;
use tarn_ondisk::units::ObjectId;
use tarn_pool::{ImportError, PoolError};
use tarn_vdev::VdevReadError;

/// `EIO`: a device failed.
pub const DEVICE_ERROR: i32 = 5;
/// `ENXIO`: there is no such place.
pub const NO_SUCH_PLACE: i32 = 6;
/// `EBADE`, as which OpenZFS counts checksums that do not hold on Linux.
#[doc(alias = "ECKSUM")]
pub const BAD_CHECKSUM: i32 = 52;

/// Why a look into a pool failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// No device of such a pool is where it was looked for.
    #[error("can't open '{name}': No such file or directory")]
    NoSuchPool {
        /// The pool that was wanted.
        name: String,
    },
    /// Several pools have this name; their guids are unambiguous.
    #[error("can't open '{name}': more than one pool has this name; give its guid")]
    Ambiguous {
        /// The name.
        name: String,
    },
    /// The pool has no such dataset.
    #[error("can't open '{name}': No such file or directory")]
    NoSuchDataset {
        /// The dataset that was wanted.
        name: String,
    },
    /// The cache file is there and cannot be used.
    #[error("cannot read cache file '{}': {why}", path.display())]
    CacheFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The pool was found and cannot be opened.
    #[error("can't open '{name}': {cause}")]
    Import {
        /// The pool.
        name: String,
        /// What is in the way.
        cause: Box<ImportError>,
    },
    /// The device cannot be opened.
    #[error("cannot open '{}': {}", path.display(), in_system_words(cause))]
    Device {
        /// The device.
        path: PathBuf,
        /// Why not.
        cause: OpenError,
    },
    /// Something in the MOS cannot be read, or makes no sense.
    #[error("{0}")]
    Pool(#[from] PoolError),
    /// Something of the tree of datasets cannot be read, or makes no sense.
    #[error("{0}")]
    Dataset(#[from] DatasetError),
    /// An object cannot be read, or makes no sense.
    #[error("object {object}: {cause}")]
    Object {
        /// The object.
        object: ObjectId,
        /// What happened.
        cause: ObjectError,
    },
    /// A ZAP cannot be read, or makes no sense.
    #[error("object {object}: {cause}")]
    Zap {
        /// The object.
        object: ObjectId,
        /// What happened.
        cause: ZapError,
    },
}

/// What the system's own programs say of it.
fn in_system_words(cause: &OpenError) -> String {
    match cause {
        OpenError::NotFound { .. } => "No such file or directory".to_string(),
        OpenError::PermissionDenied { .. } => "Permission denied".to_string(),
        OpenError::Busy { .. } => "Device or resource busy".to_string(),
        other => other.to_string(),
    }
}

/// The number under which OpenZFS counts a block that cannot be read.
pub fn errno_of(error: &ReadError) -> i32 {
    let ReadError::Unreadable { copies, .. } = error else {
        return BAD_CHECKSUM;
    };
    let numbers = copies.iter().map(|copy| match &copy.why {
        CopyFailureReason::Vdev(VdevReadError::Checksum { .. }) => BAD_CHECKSUM,
        CopyFailureReason::Vdev(VdevReadError::Unreadable { .. }) => DEVICE_ERROR,
        _ => NO_SUCH_PLACE,
    });
    numbers.max().unwrap_or(NO_SUCH_PLACE)
}
