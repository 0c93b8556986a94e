//! Why `zdb` could not read something of a pool.

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
/// `ENXIO`: there is no such vdev or offset.
pub const NO_SUCH_PLACE: i32 = 6;
/// `EBADE`, OpenZFS's `ECKSUM` on Linux.
#[doc(alias = "ECKSUM")]
pub const BAD_CHECKSUM: i32 = 52;

/// Why something of a pool could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// No device of such a pool was found.
    #[error("can't open '{name}': No such file or directory")]
    NoSuchPool {
        /// The name or guid that was asked for.
        name: String,
    },
    /// Several pools have this name; a guid names one.
    #[error("can't open '{name}': more than one pool has this name; give its guid")]
    Ambiguous {
        /// The name.
        name: String,
    },
    /// The pool has no such dataset.
    #[error("can't open '{name}': No such file or directory")]
    NoSuchDataset {
        /// The dataset that was asked for.
        name: String,
    },
    /// The cache file exists and cannot be used.
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
        /// The reason.
        cause: Box<ImportError>,
    },
    /// The device cannot be opened.
    #[error("cannot open '{}': {}", path.display(), in_system_words(cause))]
    Device {
        /// The device.
        path: PathBuf,
        /// The reason.
        cause: OpenError,
    },
    /// An object of the MOS cannot be read or decoded.
    #[error("{0}")]
    Pool(#[from] PoolError),
    /// The tree of datasets cannot be read or decoded.
    #[error("{0}")]
    Dataset(#[from] DatasetError),
    /// An object cannot be read or decoded.
    #[error("object {object}: {cause}")]
    Object {
        /// The object.
        object: ObjectId,
        /// The error.
        cause: ObjectError,
    },
    /// A ZAP cannot be read or decoded.
    #[error("object {object}: {cause}")]
    Zap {
        /// The object.
        object: ObjectId,
        /// The error.
        cause: ZapError,
    },
}

/// The system's text for an error.
fn in_system_words(cause: &OpenError) -> String {
    match cause {
        OpenError::NotFound { .. } => "No such file or directory".to_string(),
        OpenError::PermissionDenied { .. } => "Permission denied".to_string(),
        OpenError::Busy { .. } => "Device or resource busy".to_string(),
        other => other.to_string(),
    }
}

/// The errno under which OpenZFS counts an unreadable block.
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
