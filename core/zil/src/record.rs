//! Records while they are in memory.

use tarn_object::ObjectError;
use tarn_ondisk::intent_log::{LoggedChange, LoggedWrite};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// One change for the log, kept in memory until its group is stored or somebody asks for it.
#[derive(Debug, Clone)]
pub struct IntentRecord {
    /// What has changed.
    pub change: LoggedChange,
    /// The file whose commits need it. `None`: every commit stores it, in order, for others build on it (names).
    pub object: Option<ObjectId>,
    /// Whether the bytes of a write are in the record.
    pub contents: Contents,
}

/// Where the bytes of a record are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// The record has all it needs.
    #[doc(alias = "WR_COPIED")]
    InRecord,
    /// It is a [`LoggedChange::Write`] without data. The [`LogSource`] is asked for them when the record is stored.
    #[doc(alias = "WR_NEED_COPY")]
    Fetch,
}

/// Knows what is in files, for records that do not say it. Asked by the thread that commits, which holds no
/// transaction and no lock of the log.
pub trait LogSource: Send + Sync {
    /// Exactly `length` bytes from `offset`, as far as the file has them, for this write; they may be newer than it. `None` when the file is
    /// gone or ends before `offset`: then the record is dropped.
    ///
    /// # Errors
    /// When they cannot be read. The commit then waits for the group.
    fn contents(
        &self,
        write: &LoggedWrite,
        operation: &Operation,
    ) -> Result<Option<Vec<u8>>, ObjectError>;
}
