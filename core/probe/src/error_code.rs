//! The errors that operations failed with, by the names that people search for.
//!
//! A code is a byte of a record: the number of an error of Linux, or, from [`NFS_FIRST`] on, a
//! status that only NFS has.

/// The code of `NFSERR_BADHANDLE`, 10001 of RFC 1813 and RFC 8881; the next ones follow.
const NFS_FIRST: u8 = 140;
/// The status of NFS that [`NFS_FIRST`] is.
const NFS_FIRST_STATUS: u32 = 10_001;
/// It failed, and with what is not known.
const UNKNOWN: u8 = 255;

/// What an operation failed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ErrorCode(u8);

impl ErrorCode {
    /// It did not fail.
    pub const NONE: ErrorCode = ErrorCode(0);
    /// Something was read or written wrong, `EIO`.
    pub const IO: ErrorCode = ErrorCode(5);
    /// It failed, and with what is not known.
    pub const UNKNOWN: ErrorCode = ErrorCode(UNKNOWN);

    /// The code of an error number of Linux: `2` is `ENOENT`, 0 none.
    pub fn of_errno(errno: i32) -> ErrorCode {
        let known = u8::try_from(errno)
            .ok()
            .filter(|number| *number < NFS_FIRST);
        let known = known.filter(|number| *number == 0 || name_of(*number).is_some());
        known.map_or(ErrorCode::UNKNOWN, ErrorCode)
    }

    /// The code of a status of NFS, version 3 or 4.
    pub fn of_nfs_status(status: u32) -> ErrorCode {
        match status {
            0..=62 => ErrorCode::of_errno(i32::try_from(status).expect("it is small")),
            63 => ErrorCode::of_errno(36),
            66 => ErrorCode::of_errno(39),
            69 => ErrorCode::of_errno(122),
            70 => ErrorCode::of_errno(116),
            71 => ErrorCode::of_errno(66),
            _ => {
                let above = status.checked_sub(NFS_FIRST_STATUS);
                let code = above.and_then(|above| u8::try_from(above).ok());
                let code = code.and_then(|above| above.checked_add(NFS_FIRST));
                let known = code.filter(|code| name_of(*code).is_some());
                known.map_or(ErrorCode::UNKNOWN, ErrorCode)
            }
        }
    }

    /// The code of a number that a record or an archive has.
    pub const fn from_number(number: u8) -> ErrorCode {
        ErrorCode(number)
    }

    /// The number that a record has; 0 for no error.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// `ENOENT`, `NFSERR_DELAY`; `none` where it did not fail.
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "none",
            number => name_of(number).unwrap_or("unknown"),
        }
    }

    /// Whether it answers a question about a name or a file: no failure.
    pub fn is_an_answer(self) -> bool {
        /// `ENOENT`, `ENXIO`, `ERANGE`, `ENOSYS`, `ENODATA`, `ESTALE`; `NFSERR_SAME`,
        /// `NFSERR_NOT_SAME` and `NFSERR_NOXATTR`.
        const ANSWERS: [u8; 9] = [2, 6, 34, 38, 61, 116, 148, 166, 234];
        ANSWERS.contains(&self.0)
    }

    /// All codes that have a name, `none` first.
    pub fn all() -> impl Iterator<Item = ErrorCode> {
        let named = (0..=UNKNOWN).filter(|number| *number == 0 || name_of(*number).is_some());
        named.map(ErrorCode)
    }
}

fn name_of(number: u8) -> Option<&'static str> {
    let found = NAMES.binary_search_by_key(&number, |(known, _)| *known);
    found.ok().map(|place| NAMES[place].1)
}

/// Names by code: those of Linux (`errno-base.h`, `errno.h`), then those of RFC 8881 and RFC 8276
/// without the version.
const NAMES: [(u8, &str); 226] = [
    (1, "EPERM"),
    (2, "ENOENT"),
    (3, "ESRCH"),
    (4, "EINTR"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (8, "ENOEXEC"),
    (9, "EBADF"),
    (10, "ECHILD"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (15, "ENOTBLK"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (18, "EXDEV"),
    (19, "ENODEV"),
    (20, "ENOTDIR"),
    (21, "EISDIR"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (25, "ENOTTY"),
    (26, "ETXTBSY"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (29, "ESPIPE"),
    (30, "EROFS"),
    (31, "EMLINK"),
    (32, "EPIPE"),
    (33, "EDOM"),
    (34, "ERANGE"),
    (35, "EDEADLK"),
    (36, "ENAMETOOLONG"),
    (37, "ENOLCK"),
    (38, "ENOSYS"),
    (39, "ENOTEMPTY"),
    (40, "ELOOP"),
    (42, "ENOMSG"),
    (43, "EIDRM"),
    (44, "ECHRNG"),
    (45, "EL2NSYNC"),
    (46, "EL3HLT"),
    (47, "EL3RST"),
    (48, "ELNRNG"),
    (49, "EUNATCH"),
    (50, "ENOCSI"),
    (51, "EL2HLT"),
    (52, "EBADE"),
    (53, "EBADR"),
    (54, "EXFULL"),
    (55, "ENOANO"),
    (56, "EBADRQC"),
    (57, "EBADSLT"),
    (59, "EBFONT"),
    (60, "ENOSTR"),
    (61, "ENODATA"),
    (62, "ETIME"),
    (63, "ENOSR"),
    (64, "ENONET"),
    (65, "ENOPKG"),
    (66, "EREMOTE"),
    (67, "ENOLINK"),
    (68, "EADV"),
    (69, "ESRMNT"),
    (70, "ECOMM"),
    (71, "EPROTO"),
    (72, "EMULTIHOP"),
    (73, "EDOTDOT"),
    (74, "EBADMSG"),
    (75, "EOVERFLOW"),
    (76, "ENOTUNIQ"),
    (77, "EBADFD"),
    (78, "EREMCHG"),
    (79, "ELIBACC"),
    (80, "ELIBBAD"),
    (81, "ELIBSCN"),
    (82, "ELIBMAX"),
    (83, "ELIBEXEC"),
    (84, "EILSEQ"),
    (85, "ERESTART"),
    (86, "ESTRPIPE"),
    (87, "EUSERS"),
    (88, "ENOTSOCK"),
    (89, "EDESTADDRREQ"),
    (90, "EMSGSIZE"),
    (91, "EPROTOTYPE"),
    (92, "ENOPROTOOPT"),
    (93, "EPROTONOSUPPORT"),
    (94, "ESOCKTNOSUPPORT"),
    (95, "EOPNOTSUPP"),
    (96, "EPFNOSUPPORT"),
    (97, "EAFNOSUPPORT"),
    (98, "EADDRINUSE"),
    (99, "EADDRNOTAVAIL"),
    (100, "ENETDOWN"),
    (101, "ENETUNREACH"),
    (102, "ENETRESET"),
    (103, "ECONNABORTED"),
    (104, "ECONNRESET"),
    (105, "ENOBUFS"),
    (106, "EISCONN"),
    (107, "ENOTCONN"),
    (108, "ESHUTDOWN"),
    (109, "ETOOMANYREFS"),
    (110, "ETIMEDOUT"),
    (111, "ECONNREFUSED"),
    (112, "EHOSTDOWN"),
    (113, "EHOSTUNREACH"),
    (114, "EALREADY"),
    (115, "EINPROGRESS"),
    (116, "ESTALE"),
    (117, "EUCLEAN"),
    (118, "ENOTNAM"),
    (119, "ENAVAIL"),
    (120, "EISNAM"),
    (121, "EREMOTEIO"),
    (122, "EDQUOT"),
    (123, "ENOMEDIUM"),
    (124, "EMEDIUMTYPE"),
    (125, "ECANCELED"),
    (126, "ENOKEY"),
    (127, "EKEYEXPIRED"),
    (128, "EKEYREVOKED"),
    (129, "EKEYREJECTED"),
    (130, "EOWNERDEAD"),
    (131, "ENOTRECOVERABLE"),
    (132, "ERFKILL"),
    (140, "NFSERR_BADHANDLE"),
    (141, "NFSERR_NOT_SYNC"),
    (142, "NFSERR_BAD_COOKIE"),
    (143, "NFSERR_NOTSUPP"),
    (144, "NFSERR_TOOSMALL"),
    (145, "NFSERR_SERVERFAULT"),
    (146, "NFSERR_BADTYPE"),
    (147, "NFSERR_DELAY"),
    (148, "NFSERR_SAME"),
    (149, "NFSERR_DENIED"),
    (150, "NFSERR_EXPIRED"),
    (151, "NFSERR_LOCKED"),
    (152, "NFSERR_GRACE"),
    (153, "NFSERR_FHEXPIRED"),
    (154, "NFSERR_SHARE_DENIED"),
    (155, "NFSERR_WRONGSEC"),
    (156, "NFSERR_CLID_INUSE"),
    (157, "NFSERR_RESOURCE"),
    (158, "NFSERR_MOVED"),
    (159, "NFSERR_NOFILEHANDLE"),
    (160, "NFSERR_MINOR_VERS_MISMATCH"),
    (161, "NFSERR_STALE_CLIENTID"),
    (162, "NFSERR_STALE_STATEID"),
    (163, "NFSERR_OLD_STATEID"),
    (164, "NFSERR_BAD_STATEID"),
    (165, "NFSERR_BAD_SEQID"),
    (166, "NFSERR_NOT_SAME"),
    (167, "NFSERR_LOCK_RANGE"),
    (168, "NFSERR_SYMLINK"),
    (169, "NFSERR_RESTOREFH"),
    (170, "NFSERR_LEASE_MOVED"),
    (171, "NFSERR_ATTRNOTSUPP"),
    (172, "NFSERR_NO_GRACE"),
    (173, "NFSERR_RECLAIM_BAD"),
    (174, "NFSERR_RECLAIM_CONFLICT"),
    (175, "NFSERR_BADXDR"),
    (176, "NFSERR_LOCKS_HELD"),
    (177, "NFSERR_OPENMODE"),
    (178, "NFSERR_BADOWNER"),
    (179, "NFSERR_BADCHAR"),
    (180, "NFSERR_BADNAME"),
    (181, "NFSERR_BAD_RANGE"),
    (182, "NFSERR_LOCK_NOTSUPP"),
    (183, "NFSERR_OP_ILLEGAL"),
    (184, "NFSERR_DEADLOCK"),
    (185, "NFSERR_FILE_OPEN"),
    (186, "NFSERR_ADMIN_REVOKED"),
    (187, "NFSERR_CB_PATH_DOWN"),
    (188, "NFSERR_BADIOMODE"),
    (189, "NFSERR_BADLAYOUT"),
    (190, "NFSERR_BAD_SESSION_DIGEST"),
    (191, "NFSERR_BADSESSION"),
    (192, "NFSERR_BADSLOT"),
    (193, "NFSERR_COMPLETE_ALREADY"),
    (194, "NFSERR_CONN_NOT_BOUND_TO_SESSION"),
    (195, "NFSERR_DELEG_ALREADY_WANTED"),
    (196, "NFSERR_BACK_CHAN_BUSY"),
    (197, "NFSERR_LAYOUTTRYLATER"),
    (198, "NFSERR_LAYOUTUNAVAILABLE"),
    (199, "NFSERR_NOMATCHING_LAYOUT"),
    (200, "NFSERR_RECALLCONFLICT"),
    (201, "NFSERR_UNKNOWN_LAYOUTTYPE"),
    (202, "NFSERR_SEQ_MISORDERED"),
    (203, "NFSERR_SEQUENCE_POS"),
    (204, "NFSERR_REQ_TOO_BIG"),
    (205, "NFSERR_REP_TOO_BIG"),
    (206, "NFSERR_REP_TOO_BIG_TO_CACHE"),
    (207, "NFSERR_RETRY_UNCACHED_REP"),
    (208, "NFSERR_UNSAFE_COMPOUND"),
    (209, "NFSERR_TOO_MANY_OPS"),
    (210, "NFSERR_OP_NOT_IN_SESSION"),
    (211, "NFSERR_HASH_ALG_UNSUPP"),
    (213, "NFSERR_CLIENTID_BUSY"),
    (214, "NFSERR_PNFS_IO_HOLE"),
    (215, "NFSERR_SEQ_FALSE_RETRY"),
    (216, "NFSERR_BAD_HIGH_SLOT"),
    (217, "NFSERR_DEADSESSION"),
    (218, "NFSERR_ENCR_ALG_UNSUPP"),
    (219, "NFSERR_PNFS_NO_LAYOUT"),
    (220, "NFSERR_NOT_ONLY_OP"),
    (221, "NFSERR_WRONG_CRED"),
    (222, "NFSERR_WRONG_TYPE"),
    (223, "NFSERR_DIRDELEG_UNAVAIL"),
    (224, "NFSERR_REJECT_DELEG"),
    (225, "NFSERR_RETURNCONFLICT"),
    (226, "NFSERR_DELEG_REVOKED"),
    (227, "NFSERR_PARTNER_NOTSUPP"),
    (228, "NFSERR_PARTNER_NO_AUTH"),
    (229, "NFSERR_UNION_NOTSUPP"),
    (230, "NFSERR_OFFLOAD_DENIED"),
    (231, "NFSERR_WRONG_LFS"),
    (232, "NFSERR_BADLABEL"),
    (233, "NFSERR_OFFLOAD_NO_REQS"),
    (234, "NFSERR_NOXATTR"),
    (235, "NFSERR_XATTR2BIG"),
    (UNKNOWN, "unknown"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_have_the_names_of_linux_and_nfs() {
        for (code, name) in [
            (ErrorCode::of_errno(2), "ENOENT"),
            (ErrorCode::of_errno(13), "EACCES"),
            (ErrorCode::of_errno(122), "EDQUOT"),
            (ErrorCode::of_errno(-2), "unknown"),
            (ErrorCode::of_errno(139), "unknown"),
            (ErrorCode::of_errno(140), "unknown"),
            (ErrorCode::of_nfs_status(0), "none"),
            (ErrorCode::of_nfs_status(2), "ENOENT"),
            (ErrorCode::of_nfs_status(63), "ENAMETOOLONG"),
            (ErrorCode::of_nfs_status(66), "ENOTEMPTY"),
            (ErrorCode::of_nfs_status(69), "EDQUOT"),
            (ErrorCode::of_nfs_status(70), "ESTALE"),
            (ErrorCode::of_nfs_status(10_001), "NFSERR_BADHANDLE"),
            (ErrorCode::of_nfs_status(10_008), "NFSERR_DELAY"),
            (ErrorCode::of_nfs_status(10_027), "NFSERR_NOT_SAME"),
            (ErrorCode::of_nfs_status(10_096), "NFSERR_XATTR2BIG"),
            (ErrorCode::of_nfs_status(10_097), "unknown"),
            (ErrorCode::of_nfs_status(u32::MAX), "unknown"),
        ] {
            assert_eq!(code.name(), name);
            assert_eq!(ErrorCode::from_number(code.number()), code);
        }
        for status in [2, 6, 70, 10_009, 10_027, 10_095] {
            assert!(ErrorCode::of_nfs_status(status).is_an_answer(), "{status}");
        }
        assert!(!ErrorCode::of_errno(13).is_an_answer() && !ErrorCode::NONE.is_an_answer());
    }

    #[test]
    fn no_two_codes_share_a_name() {
        assert!(NAMES.is_sorted_by(|one, other| one.0 < other.0));
        let names: BTreeSet<&str> = ErrorCode::all().map(ErrorCode::name).collect();
        assert_eq!(names.len(), ErrorCode::all().count());
        assert_eq!(names.len(), NAMES.len() + 1);
    }
}
