//! Errors of devices, files and threads.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// An error number of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Input/output error.
    pub const IO: Errno = Errno(libc::EIO);
    /// No such device or address: it is gone.
    pub const NO_DEVICE: Errno = Errno(libc::ENXIO);

    pub(crate) fn of(error: &io::Error) -> Errno {
        error.raw_os_error().map_or(Errno::IO, Errno)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno(errno.raw_os_error())
    }
}

impl std::fmt::Display for Errno {
    /// The system's words, without the number that the standard library puts behind them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&words_of(&io::Error::from_raw_os_error(self.0)))
    }
}

/// What the system says of an error, without the number that Rust's library adds:
/// `Permission denied`.
pub fn words_of(error: &io::Error) -> String {
    let text = error.to_string();
    let number = error.raw_os_error();
    let added = number.map(|number| format!(" (os error {number})"));
    match added.and_then(|added| text.strip_suffix(&added).map(str::to_string)) {
        Some(words) => words,
        None => text,
    }
}

/// What a device was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Give up a range.
    Discard,
    /// Write zeroes.
    WriteZeroes,
    /// Find out its size.
    Measure,
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Action::Read => "read",
            Action::Write => "write",
            Action::Flush => "flush",
            Action::Discard => "discard",
            Action::WriteZeroes => "write zeroes",
            Action::Measure => "find the size of",
        })
    }
}

/// Why a request to a device failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The system reported an error.
    #[error("cannot {action} {}: offset {offset}, {length} bytes: {errno}", path.display())]
    Io {
        /// The device.
        path: Arc<Path>,
        /// What was asked for.
        action: Action,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// The system's error.
        errno: Errno,
    },
    /// The device ended before the range did, though it was larger before: it was truncated.
    #[error("cannot {action} {}: offset {offset}, {length} bytes: it ends after {done} of them", path.display())]
    Short {
        /// The device.
        path: Arc<Path>,
        /// What was asked for.
        action: Action,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// How many bytes were moved.
        done: u64,
    },
    /// The range is not in the device.
    #[error("cannot {action} {}: offset {offset}, {length} bytes: it has only {size_bytes}", path.display())]
    OutOfRange {
        /// The device.
        path: Arc<Path>,
        /// What was asked for.
        action: Action,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// How large the device is.
        size_bytes: u64,
    },
    /// It was opened for reading only.
    #[error("cannot {action} {}: it is open for reading only", path.display())]
    ReadOnly {
        /// The device.
        path: Arc<Path>,
        /// What was asked for.
        action: Action,
    },
    /// A flush failed earlier, so what the device holds is unknown. Only opening it again,
    /// after its contents were checked, cures this.
    #[error("cannot {action} {}: it is retired since a flush failed ({errno})", path.display())]
    Retired {
        /// The device.
        path: Arc<Path>,
        /// What was asked for.
        action: Action,
        /// The error of that flush.
        errno: Errno,
    },
    /// It did not answer, and its user has given it up.
    #[error("cannot {action} {}: it was given up while it did not answer", path.display())]
    GivenUp {
        /// The device.
        path: Arc<Path>,
        /// What was asked for.
        action: Action,
    },
    /// The lease of this host has expired, so another host may use the device. Nothing is wrong
    /// with it.
    #[error("cannot {action} {}: another host may use it", path.display())]
    LeaseExpired {
        /// The device.
        path: Arc<Path>,
        /// What was asked for.
        action: Action,
    },
    /// The device cannot do this at all. Nothing is wrong with it.
    #[error("{} cannot {action}", path.display())]
    Unsupported {
        /// The device.
        path: Arc<Path>,
        /// What was asked for.
        action: Action,
    },
}

impl DeviceError {
    /// Whether the device has vanished, as when a disk is pulled.
    pub fn is_gone(&self) -> bool {
        let gone = [libc::ENXIO, libc::ENODEV, libc::ENOMEDIUM];
        matches!(self, DeviceError::Io { errno, .. } if gone.contains(&errno.0))
    }

    /// The system's error number, where there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            DeviceError::Io { errno, .. } | DeviceError::Retired { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

/// Why a device could not be opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Nothing is there.
    #[error("{}: no such file or device", path.display())]
    NotFound {
        /// Where we looked.
        path: PathBuf,
    },
    /// We may not.
    #[error("{}: permission denied", path.display())]
    PermissionDenied {
        /// The device.
        path: PathBuf,
    },
    /// It is in use: mounted, or used by another pool or process.
    #[error("{}: in use by another process or file system", path.display())]
    Busy {
        /// The device.
        path: PathBuf,
    },
    /// It is on read-only media, and writing was asked for.
    #[error("{}: read-only", path.display())]
    ReadOnly {
        /// The device.
        path: PathBuf,
    },
    /// It is neither a block device nor a plain file.
    #[error("{}: neither a block device nor a regular file", path.display())]
    WrongKind {
        /// What is there.
        path: PathBuf,
    },
    /// The system reported another error.
    #[error("{}: {errno}", path.display())]
    Io {
        /// The device.
        path: PathBuf,
        /// The system's error.
        errno: Errno,
    },
}

impl OpenError {
    /// Which device could not be opened.
    pub fn path(&self) -> &Path {
        match self {
            OpenError::NotFound { path }
            | OpenError::PermissionDenied { path }
            | OpenError::Busy { path }
            | OpenError::ReadOnly { path }
            | OpenError::WrongKind { path }
            | OpenError::Io { path, .. } => path,
        }
    }

    pub(crate) fn from_errno(path: &Path, errno: rustix::io::Errno) -> OpenError {
        use rustix::io::Errno as E;
        let path = path.to_owned();
        match errno {
            E::NOENT | E::NOTDIR | E::NXIO | E::NODEV | E::NOMEDIUM => OpenError::NotFound { path },
            E::ACCESS | E::PERM => OpenError::PermissionDenied { path },
            E::BUSY | E::AGAIN | E::TXTBSY => OpenError::Busy { path },
            E::ROFS => OpenError::ReadOnly { path },
            E::ISDIR => OpenError::WrongKind { path },
            errno => OpenError::Io {
                path,
                errno: errno.into(),
            },
        }
    }
}

/// Why a file of ours could not be read or written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("cannot {doing} {}: {errno}", path.display())]
pub struct FileError {
    /// The file or directory.
    pub path: PathBuf,
    /// What was tried.
    pub doing: &'static str,
    /// The system's error.
    pub errno: Errno,
}

impl FileError {
    pub(crate) fn new(doing: &'static str, path: &Path, errno: Errno) -> FileError {
        FileError {
            path: path.to_owned(),
            doing,
            errno,
        }
    }

    /// Whether there is no such file.
    pub fn is_not_found(&self) -> bool {
        self.errno.0 == libc::ENOENT
    }

    /// Whether another process has the file locked.
    pub fn is_locked(&self) -> bool {
        self.errno.0 == libc::EWOULDBLOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_system_have_no_number_of_rust() {
        assert_eq!(Errno(libc::EACCES).to_string(), "Permission denied");
        assert_eq!(words_of(&io::Error::other("odd")), "odd");
        assert_eq!(words_of(&io::ErrorKind::TimedOut.into()), "timed out");
    }
}
