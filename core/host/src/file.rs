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

/// Whether nobody but these users can lead a path elsewhere: each folder on the way, and what it leads to if that is there, is a folder of theirs and no link,
/// and others cannot write to it. Where they can, but may not remove what others have made, what comes next must be there.
pub(crate) fn is_guarded(path: &Path, users: &[u32]) -> bool {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let mut above: Vec<&Path> = path.ancestors().collect();
    above.reverse();
    let mut must_be_there = true;
    for (index, folder) in above.iter().enumerate() {
        let is_last = index + 1 == above.len();
        let Ok(found) = std::fs::symlink_metadata(folder) else {
            return is_last && !must_be_there;
        };
        if !found.is_dir() || !users.contains(&found.uid()) {
            return false;
        }
        let others_write = found.mode() & OTHERS_WRITE != 0;
        if others_write && !is_last && found.mode() & STICKY == 0 {
            return false;
        }
        must_be_there = others_write;
    }
    path.is_absolute()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_path_is_guarded_where_nobody_else_can_lead_it_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let users = [0, own];
        let path = |name: &str| folder.path().join(name);
        let mode = |name: &str, mode| {
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir_all(path("a/b")).unwrap();
        assert!(is_guarded(&path("a/b"), &users));
        assert!(is_guarded(&path("a/new"), &users));
        assert!(!is_guarded(&path("a/new/newer"), &users));
        assert!(!is_guarded(&path("a/b"), &[own + 1]));
        symlink(path("a"), path("link")).unwrap();
        assert!(!is_guarded(&path("link/b"), &users));
        assert!(!is_guarded(&path("link"), &users));
        mode("a", 0o777);
        assert!(!is_guarded(&path("a/b"), &users));
        mode("a", 0o1777);
        assert!(is_guarded(&path("a/b"), &users));
        assert!(!is_guarded(&path("a/new"), &users));
    }
}
