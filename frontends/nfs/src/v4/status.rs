//! `nfsstat4`.

use crate::crossing::NotFound;
use crate::file_call::NotServed;
use crate::xdr::Malformed;
use tarn_engine::files::{ErrorCode, PosixError};

/// The status of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const OK: Status = Status(0);
    pub(crate) const PERM: Status = Status(1);
    pub(crate) const NOENT: Status = Status(2);
    pub(crate) const IO: Status = Status(5);
    pub(crate) const NXIO: Status = Status(6);
    pub(crate) const ACCESS: Status = Status(13);
    pub(crate) const EXIST: Status = Status(17);
    pub(crate) const XDEV: Status = Status(18);
    pub(crate) const NOTDIR: Status = Status(20);
    pub(crate) const ISDIR: Status = Status(21);
    pub(crate) const INVAL: Status = Status(22);
    pub(crate) const FBIG: Status = Status(27);
    pub(crate) const NOSPC: Status = Status(28);
    pub(crate) const ROFS: Status = Status(30);
    pub(crate) const MLINK: Status = Status(31);
    pub(crate) const NAMETOOLONG: Status = Status(63);
    pub(crate) const NOTEMPTY: Status = Status(66);
    pub(crate) const DQUOT: Status = Status(69);
    pub(crate) const STALE: Status = Status(70);
    pub(crate) const BADHANDLE: Status = Status(10001);
    pub(crate) const BAD_COOKIE: Status = Status(10003);
    pub(crate) const NOTSUPP: Status = Status(10004);
    pub(crate) const TOOSMALL: Status = Status(10005);
    pub(crate) const SERVERFAULT: Status = Status(10006);
    pub(crate) const BADTYPE: Status = Status(10007);
    pub(crate) const DELAY: Status = Status(10008);
    pub(crate) const SAME: Status = Status(10009);
    pub(crate) const DENIED: Status = Status(10010);
    pub(crate) const LOCKED: Status = Status(10012);
    pub(crate) const GRACE: Status = Status(10013);
    pub(crate) const EXPIRED: Status = Status(10011);
    pub(crate) const SHARE_DENIED: Status = Status(10015);
    pub(crate) const WRONGSEC: Status = Status(10016);
    pub(crate) const CLID_INUSE: Status = Status(10017);
    pub(crate) const RESOURCE: Status = Status(10018);
    pub(crate) const NOFILEHANDLE: Status = Status(10020);
    pub(crate) const MINOR_VERS_MISMATCH: Status = Status(10021);
    pub(crate) const STALE_CLIENTID: Status = Status(10022);
    pub(crate) const STALE_STATEID: Status = Status(10023);
    pub(crate) const OLD_STATEID: Status = Status(10024);
    pub(crate) const BAD_STATEID: Status = Status(10025);
    pub(crate) const BAD_SEQID: Status = Status(10026);
    pub(crate) const NOT_SAME: Status = Status(10027);
    pub(crate) const SYMLINK: Status = Status(10029);
    pub(crate) const RESTOREFH: Status = Status(10030);
    pub(crate) const ATTRNOTSUPP: Status = Status(10032);
    pub(crate) const NO_GRACE: Status = Status(10033);
    pub(crate) const RECLAIM_CONFLICT: Status = Status(10035);
    pub(crate) const BADXDR: Status = Status(10036);
    pub(crate) const LOCKS_HELD: Status = Status(10037);
    pub(crate) const OPENMODE: Status = Status(10038);
    pub(crate) const BADOWNER: Status = Status(10039);
    pub(crate) const BADCHAR: Status = Status(10040);
    pub(crate) const BADNAME: Status = Status(10041);
    pub(crate) const BAD_RANGE: Status = Status(10042);
    pub(crate) const OP_ILLEGAL: Status = Status(10044);
    pub(crate) const DEADLOCK: Status = Status(10045);
    pub(crate) const FILE_OPEN: Status = Status(10046);
    pub(crate) const CB_PATH_DOWN: Status = Status(10048);
    pub(crate) const BADSESSION: Status = Status(10052);
    pub(crate) const BADSLOT: Status = Status(10053);
    pub(crate) const COMPLETE_ALREADY: Status = Status(10054);
    pub(crate) const SEQ_MISORDERED: Status = Status(10063);
    pub(crate) const SEQUENCE_POS: Status = Status(10064);
    pub(crate) const REQ_TOO_BIG: Status = Status(10065);
    pub(crate) const REP_TOO_BIG: Status = Status(10066);
    pub(crate) const REP_TOO_BIG_TO_CACHE: Status = Status(10067);
    pub(crate) const RETRY_UNCACHED_REP: Status = Status(10068);
    pub(crate) const TOO_MANY_OPS: Status = Status(10070);
    pub(crate) const OP_NOT_IN_SESSION: Status = Status(10071);
    pub(crate) const CLIENTID_BUSY: Status = Status(10074);
    pub(crate) const SEQ_FALSE_RETRY: Status = Status(10076);
    pub(crate) const NOT_ONLY_OP: Status = Status(10081);
    pub(crate) const WRONG_TYPE: Status = Status(10083);
    pub(crate) const DELEG_REVOKED: Status = Status(10087);
    pub(crate) const UNION_NOTSUPP: Status = Status(10090);
    pub(crate) const NOXATTR: Status = Status(10095);
    pub(crate) const XATTR2BIG: Status = Status(10096);
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
            PosixError::PermissionDenied => Status::ACCESS,
            PosixError::Busy => Status::FILE_OPEN,
            PosixError::NotPermitted | PosixError::NotDelegated => Status::PERM,
            PosixError::ReadOnly => Status::ROFS,
            PosixError::NameTooLong => Status::NAMETOOLONG,
            PosixError::NotUtf8 => Status::BADCHAR,
            PosixError::BadName => Status::BADNAME,
            PosixError::Invalid(_) => Status::INVAL,
            PosixError::NoAttribute => Status::NOXATTR,
            PosixError::AttributeTooLarge => Status::XATTR2BIG,
            PosixError::Stale => Status::STALE,
            PosixError::CrossDevice => Status::XDEV,
            PosixError::TooManyLinks => Status::MLINK,
            PosixError::NoSpace => Status::NOSPC,
            PosixError::QuotaExceeded => Status::DQUOT,
            PosixError::FileTooLarge => Status::FBIG,
            PosixError::NotSupported(_) => Status::NOTSUPP,
            PosixError::BeyondEnd => Status::NXIO,
            PosixError::Contended | PosixError::Recalling | PosixError::Pool(_) => Status::DELAY,
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
            NotServed::NotAllowed => Status::ACCESS,
            NotServed::WrongSecurity => Status::WRONGSEC,
            NotServed::Suspended => Status::DELAY,
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

impl From<Malformed> for Status {
    fn from(_: Malformed) -> Status {
        Status::BADXDR
    }
}

/// The status of an error of an operation on the current file alone: a file that is not found went
/// away after its handle was looked at.
pub(crate) fn of_handle(error: PosixError) -> Status {
    match error {
        PosixError::NotFound => Status::STALE,
        error => Status::from(error),
    }
}
