//! Errors of operations on volumes.

use tarn_dataset::space_door::SpaceRefusal;
use tarn_object::{AssignError, ObjectError};
use tarn_probe::ErrorCode;
use tarn_zil::CommitError;

/// Why an operation on a volume failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The range reaches beyond the end of the volume.
    #[error("{length} bytes at offset {offset} reach beyond the volume's {size_bytes} bytes")]
    OutOfRange {
        /// Where the range begins, in bytes.
        offset: u64,
        /// How many bytes it has.
        length: u64,
        /// The volume's size.
        size_bytes: u64,
    },
    /// The volume is a snapshot, is held read-only, has `readonly=on`, or is in a read-only pool.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The pool has no space left.
    #[error("no space left in the pool")]
    NoSpace,
    /// A quota of a dataset above the volume is used up.
    #[error("a quota above the volume is used up")]
    QuotaExceeded,
    /// The pool is suspended, and has `failmode=continue`.
    #[error("the pool is suspended after too many device errors; run 'zpool clear'")]
    Suspended,
    /// The volume is not served any more: its pool was exported.
    #[error("the volume's pool was exported")]
    Gone,
    /// A block cannot be read or changed.
    #[error("{0}")]
    Io(ObjectError),
}

impl VolumeError {
    /// As records have it.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::of_errno(match self {
            VolumeError::OutOfRange { .. } => 22,
            VolumeError::ReadOnly => 30,
            VolumeError::NoSpace => 28,
            VolumeError::QuotaExceeded => 122,
            VolumeError::Gone => 19,
            VolumeError::Suspended | VolumeError::Io(_) => 5,
        })
    }
}

impl From<ObjectError> for VolumeError {
    fn from(error: ObjectError) -> VolumeError {
        VolumeError::Io(error)
    }
}

impl From<SpaceRefusal> for VolumeError {
    fn from(refusal: SpaceRefusal) -> VolumeError {
        match refusal {
            SpaceRefusal::NoSpace => VolumeError::NoSpace,
            SpaceRefusal::QuotaExceeded => VolumeError::QuotaExceeded,
        }
    }
}

impl From<AssignError> for VolumeError {
    fn from(error: AssignError) -> VolumeError {
        match error {
            AssignError::Suspended => VolumeError::Suspended,
            AssignError::Stopped => VolumeError::Gone,
        }
    }
}

impl From<CommitError> for VolumeError {
    fn from(error: CommitError) -> VolumeError {
        match error {
            CommitError::NotStored { cause } => cause.into(),
            _ => VolumeError::Suspended,
        }
    }
}
