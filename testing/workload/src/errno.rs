//! Error numbers by the names manual pages use, as manifests carry them (`"read_error": "EIO"`).

/// The names of the errors that reading a file can end in; others are shown by number.
const NAMES: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::EINTR, "EINTR"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::EBADF, "EBADF"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::ENODEV, "ENODEV"),
    (libc::EINVAL, "EINVAL"),
    (libc::ENFILE, "ENFILE"),
    (libc::EMFILE, "EMFILE"),
    (libc::ETXTBSY, "ETXTBSY"),
    (libc::EFBIG, "EFBIG"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::EROFS, "EROFS"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::EBADMSG, "EBADMSG"),
    (libc::EOVERFLOW, "EOVERFLOW"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::ESTALE, "ESTALE"),
    (libc::ENOTCONN, "ENOTCONN"),
    (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::EKEYREJECTED, "EKEYREJECTED"),
];

/// The name of an error, or `errno N` for one that has none here.
pub fn errno_name(error: &std::io::Error) -> String {
    let Some(number) = error.raw_os_error() else {
        return format!("{:?}", error.kind());
    };
    match NAMES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => (*name).to_string(),
        None => format!("errno {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_named_as_manual_pages_name_it() {
        assert_eq!(
            errno_name(&std::io::Error::from_raw_os_error(libc::EIO)),
            "EIO"
        );
        assert_eq!(
            errno_name(&std::io::Error::from_raw_os_error(9999)),
            "errno 9999"
        );
    }
}
