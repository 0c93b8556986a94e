//! Locks of files: one process at a time has a folder of its own.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::error::{Errno, FileError};

/// A lock of `flock` on a file; it ends when this is dropped, and with the process.
#[derive(Debug)]
pub struct FileLock {
    /// None on a simulated machine, which has one process.
    _file: Option<OwnedFd>,
}

impl FileLock {
    /// What a simulated machine gives.
    pub(crate) const SIMULATED: FileLock = FileLock { _file: None };
}

/// Locks a file, which is made if it is not there; refuses at once with `EWOULDBLOCK` while another
/// opener has it locked.
pub(crate) fn lock(path: &Path) -> Result<FileLock, FileError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let locked = || -> rustix::io::Result<OwnedFd> {
        let file = rustix::fs::open(path, flags | OFlags::NONBLOCK, mode)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    };
    match locked() {
        Ok(file) => Ok(FileLock { _file: Some(file) }),
        Err(errno) => Err(FileError::new("lock", path, Errno(errno.raw_os_error()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_refused_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = lock(&path).unwrap();
        let refused = lock(&path).unwrap_err();
        assert!(refused.is_locked(), "{refused}");
        drop(first);
        lock(&path).unwrap();
        let nowhere = lock(&folder.path().join("a/lock")).unwrap_err();
        assert!(nowhere.is_not_found() && !nowhere.is_locked());
    }
}
