//! The few files of our own: the pool cache file, ids, key files; and folders to be searched for devices.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{Errno, FileError};

/// What a name in a folder leads to, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A plain file.
    File,
    /// A folder.
    Directory,
    /// A block device.
    BlockDevice,
    /// Anything else, or a link that leads nowhere.
    Other,
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The whole path.
    pub path: PathBuf,
    /// What it leads to.
    pub kind: FileKind,
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    std::fs::read(path).map_err(|error| failure("read", path, &error))
}

/// Replaces a file by a new one in one step. After a crash there is the old file or the new one, whole.
pub(crate) fn write_atomically(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let write = || -> io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        sync_folder_of(path)
    };
    write().map_err(|error| failure("write", path, &error))
}

/// Removes a file; that it is not there is no error.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path).and_then(|()| sync_folder_of(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failure("remove", path, &error))
        }
        _ => Ok(()),
    }
}

pub(crate) fn create_directories(path: &Path) -> Result<(), FileError> {
    std::fs::create_dir_all(path).map_err(|error| failure("create", path, &error))
}

/// Removes a folder with nothing in it; that it is not there is no error.
pub(crate) fn remove_directory(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failure("remove", path, &error))
        }
        _ => Ok(()),
    }
}

/// Makes a file of that size with nothing in it; one that exists is refused.
pub(crate) fn create_sparse(path: &Path, size_bytes: u64) -> Result<(), FileError> {
    let create = || {
        File::options()
            .write(true)
            .create_new(true)
            .open(path)?
            .set_len(size_bytes)
    };
    create().map_err(|error| failure("create", path, &error))
}

/// The names in a folder, in their order.
pub(crate) fn list_directory(path: &Path) -> Result<Vec<DirectoryEntry>, FileError> {
    let list = || -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let path = entry?.path();
            entries.push(DirectoryEntry {
                kind: kind_of(&path),
                path,
            });
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    };
    list().map_err(|error| failure("list", path, &error))
}

/// What a path leads to.
pub(crate) fn kind_of(path: &Path) -> FileKind {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::metadata(path).map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_file() => FileKind::File,
        Ok(kind) if kind.is_dir() => FileKind::Directory,
        Ok(kind) if kind.is_block_device() => FileKind::BlockDevice,
        _ => FileKind::Other,
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn failure(doing: &'static str, path: &Path, error: &io::Error) -> FileError {
    FileError::new(doing, path, Errno::of(error))
}
