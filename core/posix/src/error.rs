//! Errors of operations on files.
//!
//! [`PosixError::errno`] has the `errno` of each variant. A device that cannot be read and damaged
//! contents are `EIO` for the caller, and keep their cause for the log.

use tarn_dataset::space_door::SpaceRefusal;
use tarn_object::zap::ZapError;
use tarn_object::{AssignError, ObjectError};
use tarn_ondisk::attributes::CannotEncode;
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::units::ObjectId;
use tarn_zil::CommitError;

/// Why an operation on a file failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PosixError {
    /// There is no such name, or no such file any more.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name exists")]
    Exists,
    /// It is not a directory, and should be.
    #[error("not a directory")]
    NotDirectory,
    /// It is a directory, and should not be.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The mode or the access control list does not allow it.
    #[error("permission denied")]
    PermissionDenied,
    /// Only the owner or a privileged user may do this, or no user: the file is immutable or
    /// append-only.
    #[error("operation not permitted")]
    NotPermitted,
    /// The file system is mounted read-only, or is a snapshot.
    #[error("the file system is read-only")]
    ReadOnly,
    /// The name has more bytes than names may have.
    #[error("the name is too long")]
    NameTooLong,
    /// The dataset has `utf8only=on`, and the name is not UTF-8.
    #[error("the name is not UTF-8, and the dataset takes only names that are (utf8only=on)")]
    NotUtf8,
    /// The name of a snapshot cannot be.
    #[error("the name cannot be that of a snapshot")]
    BadName,
    /// It is in use.
    #[error("it is in use")]
    Busy,
    /// A client has the file delegated, and is asked to return it. Trying again cures it.
    #[error("a client is asked to return the file")]
    Recalling,
    /// A file handle names a file that is not there any more, or one of another dataset.
    #[error("stale file handle")]
    Stale,
    /// The pool has `delegation=off`: permissions of `zfs allow` do not count.
    #[error("the pool delegates nothing")]
    NotDelegated,
    /// The request is invalid.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The two files are in different file systems, or belong to different projects.
    #[error("cannot be linked or moved across this boundary")]
    CrossDevice,
    /// The file has as many names as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// The pool or the dataset has no space left.
    #[error("no space left")]
    NoSpace,
    /// A quota does not allow more.
    #[error("quota exceeded")]
    QuotaExceeded,
    /// The file would be larger than files can be.
    #[error("the file would be too large")]
    FileTooLarge,
    /// The file has no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The extended attribute is larger than allowed.
    #[error("the attribute is too large")]
    AttributeTooLarge,
    /// The dataset's properties, or the way it is stored, exclude it.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// There is no data or no hole from there on.
    #[error("no data or hole beyond this offset")]
    BeyondEnd,
    /// Other operations changed the same names so often that this one gave up. Trying again cures
    /// it.
    #[error("the names involved change too often")]
    Contended,
    /// An object could not be read or changed.
    #[error("{0}")]
    Object(ObjectError),
    /// A directory, or another table of names, could not be read or changed.
    #[error("object {object}: {why}")]
    Table {
        /// The object.
        object: ObjectId,
        /// What is wrong.
        why: ZapError,
    },
    /// The attributes of a file are damaged.
    #[error("the attributes of object {object} are damaged: {what}")]
    Attributes {
        /// The object.
        object: ObjectId,
        /// What is wrong.
        what: Corrupt,
    },
    /// An object is not of the kind that its entry says.
    #[error("object {object} is damaged: {why}")]
    Damaged {
        /// The object.
        object: ObjectId,
        /// What is wrong.
        why: &'static str,
    },
    /// The attributes of a file cannot be stored.
    #[error("the attributes of object {object} cannot be stored: {why}")]
    CannotStore {
        /// The object.
        object: ObjectId,
        /// Why not.
        why: CannotEncode,
    },
    /// The pool does not take changes.
    #[error("{0}")]
    Pool(#[from] AssignError),
}

impl From<CommitError> for PosixError {
    fn from(error: CommitError) -> PosixError {
        match error {
            CommitError::NotStored { cause } => PosixError::Pool(cause),
            _ => PosixError::Pool(AssignError::Suspended),
        }
    }
}

impl PosixError {
    /// Linux' number for it.
    pub fn errno(&self) -> i32 {
        match self {
            PosixError::NotPermitted => 1,
            PosixError::NotFound => 2,
            PosixError::BeyondEnd => 6,
            PosixError::AttributeTooLarge => 7,
            PosixError::Contended | PosixError::Recalling => 11,
            PosixError::PermissionDenied => 13,
            PosixError::Busy => 16,
            PosixError::Exists => 17,
            PosixError::CrossDevice => 18,
            PosixError::NotDirectory => 20,
            PosixError::IsDirectory => 21,
            PosixError::Invalid(_) => 22,
            PosixError::FileTooLarge => 27,
            PosixError::NoSpace => 28,
            PosixError::ReadOnly => 30,
            PosixError::TooManyLinks => 31,
            PosixError::NameTooLong => 36,
            PosixError::NotEmpty => 39,
            PosixError::NoAttribute => 61,
            PosixError::NotUtf8 | PosixError::BadName => 84,
            PosixError::NotSupported(_) => 95,
            PosixError::Stale => 116,
            PosixError::QuotaExceeded => 122,
            PosixError::NotDelegated => 125,
            PosixError::CannotStore {
                why: CannotEncode::TooLarge,
                ..
            } => 7,
            PosixError::Object(_)
            | PosixError::Table { .. }
            | PosixError::Attributes { .. }
            | PosixError::Damaged { .. }
            | PosixError::CannotStore { .. }
            | PosixError::Pool(_) => 5,
        }
    }

    /// True for failures (`EIO`), which are logged, and not for invalid or refused requests.
    pub fn is_failure(&self) -> bool {
        self.errno() == 5
    }
}

impl From<ObjectError> for PosixError {
    fn from(error: ObjectError) -> PosixError {
        match error {
            ObjectError::NoSuchObject { .. } => PosixError::NotFound,
            ObjectError::TooLarge { .. } => PosixError::FileTooLarge,
            other => PosixError::Object(other),
        }
    }
}

/// The error of an operation on a ZAP. A name that exists, or does not, is an answer and no
/// failure.
pub(crate) fn table_error(object: ObjectId) -> impl Fn(ZapError) -> PosixError {
    move |why| match why {
        ZapError::Exists => PosixError::Exists,
        ZapError::NotFound => PosixError::NotFound,
        ZapError::BadName => PosixError::Invalid("no table can hold this name"),
        // Too many names with the same hash, such as names that differ only by case where the hash
        // ignores case.
        ZapError::Full => PosixError::NoSpace,
        why => PosixError::Table { object, why },
    }
}

impl From<tarn_zil::ReplayError> for MountError {
    fn from(error: tarn_zil::ReplayError) -> MountError {
        MountError::Replay(std::sync::Arc::new(error))
    }
}

/// Why a dataset could not be mounted.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The dataset is not a file system.
    #[error("the dataset is not a file system")]
    NotFileSystem,
    /// The version of the file system is newer than this program knows.
    #[error("the file system has version {version}, and versions up to 5 are known")]
    Version {
        /// Its version.
        version: u64,
    },
    /// An object or value that every file system has is missing.
    #[error("the master node has no {name}")]
    Missing {
        /// Its name in the master node.
        name: &'static str,
    },
    /// Something could not be read.
    #[error("{0}")]
    Unreadable(#[from] PosixError),
    /// The intent log that a crash has left cannot be replayed to its end. The log is kept.
    #[error("{0}")]
    Replay(std::sync::Arc<tarn_zil::ReplayError>),
}

impl From<SpaceRefusal> for PosixError {
    fn from(refusal: SpaceRefusal) -> PosixError {
        match refusal {
            SpaceRefusal::NoSpace => PosixError::NoSpace,
            SpaceRefusal::QuotaExceeded => PosixError::QuotaExceeded,
        }
    }
}
