//! Numbers of operations, and which version has which.

pub(crate) const ACCESS: u32 = 3;
pub(crate) const CLOSE: u32 = 4;
pub(crate) const COMMIT: u32 = 5;
pub(crate) const CREATE: u32 = 6;
pub(crate) const DELEGPURGE: u32 = 7;
pub(crate) const DELEGRETURN: u32 = 8;
pub(crate) const GETATTR: u32 = 9;
pub(crate) const GETFH: u32 = 10;
pub(crate) const LINK: u32 = 11;
pub(crate) const LOCK: u32 = 12;
pub(crate) const LOCKT: u32 = 13;
pub(crate) const LOCKU: u32 = 14;
pub(crate) const LOOKUP: u32 = 15;
pub(crate) const LOOKUPP: u32 = 16;
pub(crate) const NVERIFY: u32 = 17;
pub(crate) const OPEN: u32 = 18;
pub(crate) const OPEN_CONFIRM: u32 = 20;
pub(crate) const OPEN_DOWNGRADE: u32 = 21;
pub(crate) const PUTFH: u32 = 22;
pub(crate) const PUTPUBFH: u32 = 23;
pub(crate) const PUTROOTFH: u32 = 24;
pub(crate) const READ: u32 = 25;
pub(crate) const READDIR: u32 = 26;
pub(crate) const READLINK: u32 = 27;
pub(crate) const REMOVE: u32 = 28;
pub(crate) const RENAME: u32 = 29;
pub(crate) const RENEW: u32 = 30;
pub(crate) const RESTOREFH: u32 = 31;
pub(crate) const SAVEFH: u32 = 32;
pub(crate) const SECINFO: u32 = 33;
pub(crate) const SETATTR: u32 = 34;
pub(crate) const SETCLIENTID: u32 = 35;
pub(crate) const SETCLIENTID_CONFIRM: u32 = 36;
pub(crate) const VERIFY: u32 = 37;
pub(crate) const WRITE: u32 = 38;
pub(crate) const RELEASE_LOCKOWNER: u32 = 39;
pub(crate) const BACKCHANNEL_CTL: u32 = 40;
pub(crate) const BIND_CONN_TO_SESSION: u32 = 41;
pub(crate) const EXCHANGE_ID: u32 = 42;
pub(crate) const CREATE_SESSION: u32 = 43;
pub(crate) const DESTROY_SESSION: u32 = 44;
pub(crate) const FREE_STATEID: u32 = 45;
pub(crate) const SECINFO_NO_NAME: u32 = 52;
pub(crate) const SEQUENCE: u32 = 53;
pub(crate) const TEST_STATEID: u32 = 55;
pub(crate) const DESTROY_CLIENTID: u32 = 57;
pub(crate) const RECLAIM_COMPLETE: u32 = 58;
pub(crate) const ALLOCATE: u32 = 59;
pub(crate) const COPY: u32 = 60;
pub(crate) const DEALLOCATE: u32 = 62;
pub(crate) const READ_PLUS: u32 = 68;
pub(crate) const SEEK: u32 = 69;
pub(crate) const CLONE: u32 = 71;
pub(crate) const GETXATTR: u32 = 72;
pub(crate) const SETXATTR: u32 = 73;
pub(crate) const LISTXATTRS: u32 = 74;
pub(crate) const REMOVEXATTR: u32 = 75;
pub(crate) const ILLEGAL: u32 = 10044;
/// The operations of all versions, of version 4.0, and the first of version 4.2.
pub(crate) const ALL: std::ops::RangeInclusive<u32> = ACCESS..=REMOVEXATTR;
pub(crate) const OF_0: std::ops::RangeInclusive<u32> = ACCESS..=RELEASE_LOCKOWNER;
pub(crate) const FIRST_OF_2: u32 = ALLOCATE;
/// Operations that only version 4.0 has.
pub(crate) const ONLY_OF_0: [u32; 5] = [
    OPEN_CONFIRM,
    RENEW,
    SETCLIENTID,
    SETCLIENTID_CONFIRM,
    RELEASE_LOCKOWNER,
];
/// Operations that change nothing: a repeated call may carry them out again.
pub(crate) const READ_ONLY: [u32; 17] = [
    ACCESS, COMMIT, GETATTR, GETFH, LOCKT, LOOKUP, LOOKUPP, NVERIFY, PUTFH, PUTPUBFH, PUTROOTFH,
    READ, READDIR, READLINK, RESTOREFH, SAVEFH, VERIFY,
];
