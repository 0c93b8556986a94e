//! The lock that makes a daemon the only one of its instance.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use tarn_engine::instance::Instance;

/// Only the daemon's user can open the file: another user could lock it, and keep the daemon from
/// starting.
const MODE: u32 = 0o600;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct InstanceLock {
    _file: File,
}

/// Why this process cannot be the daemon.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process is.
    #[error("tarnd runs already ({})", .path.display())]
    Taken {
        /// The lock file.
        path: std::path::PathBuf,
    },
    /// The file cannot be used.
    #[error("cannot use {}: {}", .path.display(), tarn_engine::words_of(.cause))]
    File {
        /// The lock file.
        path: std::path::PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
}

/// Takes the lock, and writes this process's id into its file.
pub fn take(instance: &Instance) -> Result<InstanceLock, LockError> {
    let path = instance.lock();
    let failed = |cause| LockError::File {
        path: path.clone(),
        cause,
    };
    instance.make_folders().map_err(failed)?;
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .open(&path);
    let mut file = options.map_err(failed)?;
    // An existing file may be from a version that let others read it.
    file.set_permissions(Permissions::from_mode(MODE))
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(LockError::Taken { path }),
        Err(TryLockError::Error(cause)) => return Err(failed(cause)),
    }
    file.set_len(0).map_err(failed)?;
    writeln!(file, "{}", std::process::id()).map_err(failed)?;
    file.sync_data().map_err(failed)?;
    Ok(InstanceLock { _file: file })
}
