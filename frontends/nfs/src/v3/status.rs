//! `nfsstat3`.

use crate::crossing::NotFound;
use crate::file_call::NotServed;
use tarn_engine::files::{ErrorCode, PosixError};

/// The status of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

#[expect(missing_docs, reason = "the names of RFC 1813")]
impl Status {
    pub const OK: Status = Status(0);
    pub const PERM: Status = Status(1);
    pub const NOENT: Status = Status(2);
    pub const IO: Status = Status(5);
    pub const NXIO: Status = Status(6);
    pub const ACCES: Status = Status(13);
    pub const EXIST: Status = Status(17);
    pub const XDEV: Status = Status(18);
    pub const NOTDIR: Status = Status(20);
    pub const ISDIR: Status = Status(21);
    pub const INVAL: Status = Status(22);
    pub const FBIG: Status = Status(27);
    pub const NOSPC: Status = Status(28);
    pub const ROFS: Status = Status(30);
    pub const MLINK: Status = Status(31);
    pub const NAMETOOLONG: Status = Status(63);
    pub const NOTEMPTY: Status = Status(66);
    pub const DQUOT: Status = Status(69);
    pub const STALE: Status = Status(70);
    pub const BADHANDLE: Status = Status(10001);
    pub const NOT_SYNC: Status = Status(10002);
    pub const BAD_COOKIE: Status = Status(10003);
    pub const NOTSUPP: Status = Status(10004);
    pub const TOOSMALL: Status = Status(10005);
    pub const BADTYPE: Status = Status(10007);
    pub const JUKEBOX: Status = Status(10008);
}

impl Status {
    /// As records have it.
    pub(crate) fn error(self) -> ErrorCode {
        ErrorCode::of_nfs_status(self.0)
    }
}

impl From<&PosixError> for Status {
    fn from(error: &PosixError) -> Status {
        match error {
            PosixError::NotFound => Status::NOENT,
            PosixError::Exists => Status::EXIST,
            PosixError::NotDirectory => Status::NOTDIR,
            PosixError::IsDirectory => Status::ISDIR,
            PosixError::NotEmpty => Status::NOTEMPTY,
            // Busy: a snapshot in use. The protocol has no status for it.
            PosixError::PermissionDenied | PosixError::Busy => Status::ACCES,
            PosixError::NotPermitted | PosixError::NotDelegated => Status::PERM,
            PosixError::ReadOnly => Status::ROFS,
            PosixError::NameTooLong => Status::NAMETOOLONG,
            PosixError::NotUtf8 | PosixError::BadName | PosixError::Invalid(_) => Status::INVAL,
            PosixError::AttributeTooLarge => Status::INVAL,
            PosixError::Stale => Status::STALE,
            PosixError::CrossDevice => Status::XDEV,
            PosixError::TooManyLinks => Status::MLINK,
            PosixError::NoSpace => Status::NOSPC,
            PosixError::QuotaExceeded => Status::DQUOT,
            PosixError::FileTooLarge => Status::FBIG,
            PosixError::NotSupported(_) => Status::NOTSUPP,
            PosixError::BeyondEnd => Status::NXIO,
            // The pool is suspended or being closed; or other requests were faster.
            PosixError::Contended | PosixError::Recalling | PosixError::Pool(_) => Status::JUKEBOX,
            _ => Status::IO,
        }
    }
}

impl From<PosixError> for Status {
    fn from(error: PosixError) -> Status {
        Status::from(&error)
    }
}

impl From<NotServed> for Status {
    fn from(why: NotServed) -> Status {
        match why {
            NotServed::BadHandle => Status::BADHANDLE,
            NotServed::Stale => Status::STALE,
            NotServed::NotAllowed | NotServed::WrongSecurity => Status::ACCES,
            NotServed::Suspended => Status::JUKEBOX,
            NotServed::Failed(error) => Status::from(error),
        }
    }
}

impl From<NotFound> for Status {
    fn from(why: NotFound) -> Status {
        match why {
            NotFound::Posix(error) => Status::from(error),
            NotFound::NotServed(why) => Status::from(why),
        }
    }
}

/// The status of an error of a request that names the file by its handle alone: a file that is not
/// found went away after the handle was looked at.
pub(crate) fn of_handle(error: PosixError) -> Status {
    match error {
        PosixError::NotFound => Status::STALE,
        error => Status::from(error),
    }
}
