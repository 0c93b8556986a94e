//! `nlm4_stats`.

use crate::file_call::NotServed;
use tarn_engine::files::{LockRefusal, PosixError};

/// The status of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockStatus(pub(crate) u32);

impl LockStatus {
    pub(crate) const GRANTED: LockStatus = LockStatus(0);
    pub(crate) const DENIED: LockStatus = LockStatus(1);
    pub(crate) const NO_LOCKS: LockStatus = LockStatus(2);
    pub(crate) const BLOCKED: LockStatus = LockStatus(3);
    /// Clients ask again.
    pub(crate) const GRACE: LockStatus = LockStatus(4);
    pub(crate) const DEADLOCK: LockStatus = LockStatus(5);
    pub(crate) const READ_ONLY: LockStatus = LockStatus(6);
    pub(crate) const STALE: LockStatus = LockStatus(7);
    pub(crate) const FAILED: LockStatus = LockStatus(9);
}

impl From<NotServed> for LockStatus {
    fn from(why: NotServed) -> LockStatus {
        match why {
            NotServed::Suspended | NotServed::Failed(PosixError::Pool(_)) => LockStatus::GRACE,
            NotServed::BadHandle | NotServed::Stale => LockStatus::STALE,
            NotServed::NotAllowed | NotServed::WrongSecurity | NotServed::Failed(_) => {
                LockStatus::FAILED
            }
        }
    }
}

impl From<LockRefusal> for LockStatus {
    fn from(why: LockRefusal) -> LockStatus {
        match why {
            LockRefusal::Conflict => LockStatus::DENIED,
            LockRefusal::Deadlock => LockStatus::DEADLOCK,
            _ => LockStatus::FAILED,
        }
    }
}
