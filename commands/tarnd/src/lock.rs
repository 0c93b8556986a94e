//! The lock that makes a daemon the only one of its instance.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use tarn_engine::instance::Instance;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct InstanceLock {
    _file: File,
}

/// Why this process cannot be the daemon.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another one is.
    #[error("tarnd runs already ({})", .path.display())]
    Taken {
        /// The lock file.
        path: std::path::PathBuf,
    },
    /// The file cannot be used.
    #[error("cannot use {path}: {cause}", path = .path.display())]
    File {
        /// The lock file.
        path: std::path::PathBuf,
        /// What the system said.
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
    for folder in [instance.run(), instance.state()] {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path);
    let mut file = options.map_err(failed)?;
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
