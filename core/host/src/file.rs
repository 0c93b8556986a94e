//! The few files of our own: the pool cache file, ids, key files; and folders to be searched for
//! devices.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
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

/// Files of our own are far smaller; a cache file has some kilobytes for each pool. A guess, which
/// bounds what a wrong path costs.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Reads a plain file. Refuses devices and pipes before anything is read, since reading them may
/// have effects or never end, and files that are too large.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let read = || -> io::Result<Vec<u8>> {
        // Opening must not wait for the other end of a pipe.
        let waits_for_nobody = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | waits_for_nobody;
        // Some devices do something when they are opened, so it is looked at before; and again, for
        // it may be another by then.
        let is_plain = std::fs::metadata(path)?.is_file();
        let file = match is_plain {
            true => File::from(rustix::fs::open(path, flags, Mode::empty())?),
            false => return Err(rustix::io::Errno::INVAL.into()),
        };
        let found = file.metadata()?;
        if !found.is_file() || found.len() > READ_BYTES_MAX {
            return Err(rustix::io::Errno::INVAL.into());
        }
        let mut contents = Vec::new();
        file.take(READ_BYTES_MAX).read_to_end(&mut contents)?;
        Ok(contents)
    };
    read().map_err(|error| failure("read", path, &error))
}

/// Bytes of a plain file from a place on: fewer where it ends before.
pub(crate) fn read_part(path: &Path, offset: u64, length: usize) -> Result<Vec<u8>, FileError> {
    use std::os::unix::fs::FileExt;
    let read = || -> io::Result<Vec<u8>> {
        let is_plain = std::fs::metadata(path)?.is_file();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match is_plain {
            true => File::from(rustix::fs::open(path, flags, Mode::empty())?),
            false => return Err(rustix::io::Errno::INVAL.into()),
        };
        let size = file.metadata()?.len();
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut contents = vec![0; length.min(left)];
        file.read_exact_at(&mut contents, offset)?;
        Ok(contents)
    };
    read().map_err(|error| failure("read", path, &error))
}

/// How long a plain file is.
pub(crate) fn size_bytes(path: &Path) -> Result<u64, FileError> {
    let size = || -> io::Result<u64> {
        let found = std::fs::metadata(path)?;
        match found.is_file() {
            true => Ok(found.len()),
            false => Err(rustix::io::Errno::INVAL.into()),
        }
    };
    size().map_err(|error| failure("read", path, &error))
}

/// Appends to a file, which is made if it is not there. After a crash it ends within what was
/// appended last, if it does not have all of it.
pub(crate) fn append(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    let append = || -> io::Result<()> {
        let is_new = std::fs::symlink_metadata(path).is_err();
        let mut file = File::options().append(true).create(true).open(path)?;
        file.write_all(contents)?;
        file.sync_data()?;
        match is_new {
            true => sync_folder_of(path),
            false => Ok(()),
        }
    };
    append().map_err(|error| failure("append to", path, &error))
}

/// Replaces a file by a new one in one step. After a crash there is the old file or the new one,
/// whole.
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

/// Where a path leads, all links on it followed as far as it goes; what is not there has its name.
/// None where a link leads nowhere.
pub(crate) fn leads_to(path: &Path) -> Option<PathBuf> {
    for there in path.ancestors() {
        if std::fs::symlink_metadata(there).is_err() {
            continue;
        }
        let found = std::fs::canonicalize(there).ok()?;
        let rest = path.strip_prefix(there).ok()?;
        // What is above a folder that is not there is unknown.
        let is_plain = rest
            .components()
            .all(|one| matches!(one, std::path::Component::Normal(_)));
        return is_plain.then(|| found.components().chain(rest.components()).collect());
    }
    None
}

/// What a link says; none where there is no link.
pub(crate) fn link_target(path: &Path) -> Option<PathBuf> {
    match is_link(path) {
        true => std::fs::read_link(path).ok(),
        false => None,
    }
}

/// Whether only these users can have made this link.
pub(crate) fn is_guarded_link(path: &Path, users: &[u32]) -> bool {
    let is_theirs =
        || std::fs::symlink_metadata(path).is_ok_and(|found| users.contains(&found.uid()));
    let Some(folder) = path.parent() else {
        return false;
    };
    let Ok(found) = std::fs::symlink_metadata(folder) else {
        return false;
    };
    let is_put_by_them = match (found.mode() & OTHERS_WRITE, found.mode() & STICKY) {
        (0, _) => true,
        (_, 0) => false,
        _ => is_theirs(),
    };
    is_put_by_them && is_guarded(folder, users)
}

/// Whether a name is a link.
pub(crate) fn is_link(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// What others may do to a folder.
const OTHERS_WRITE: u32 = 0o022;
/// Users may not remove the entries of other users.
const STICKY: u32 = 0o1000;

/// Whether only these users can replace the folder that a path names once the file system on it is
/// unmounted. The owner of the mounted root does not matter.
pub(crate) fn is_guarded_above(path: &Path, users: &[u32]) -> bool {
    let Some(folder) = path.parent() else {
        return path.is_absolute();
    };
    let keeps_names =
        |found: std::fs::Metadata| found.mode() & OTHERS_WRITE == 0 || found.mode() & STICKY != 0;
    is_guarded(folder, users) && std::fs::symlink_metadata(folder).is_ok_and(keeps_names)
}

/// Whether only these users can make a path name another folder: each folder on the way, and what
/// it leads to if that is there, is a folder of theirs and no link, and others cannot write to it.
/// Where they can, but may not remove what others have made, what comes next must be there.
pub(crate) fn is_guarded(path: &Path, users: &[u32]) -> bool {
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
    fn a_path_is_guarded_where_no_other_user_can_lead_it_elsewhere() {
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
        // What is mounted there need not be theirs, or a folder.
        symlink(path("a"), path("a/mounted")).unwrap();
        assert!(is_guarded_above(&path("a/mounted"), &users));
        assert!(!is_guarded_above(&path("link/b"), &users));
        assert!(!is_guarded_above(&path("new/mounted"), &users));
        mode("a", 0o777);
        assert!(!is_guarded(&path("a/b"), &users));
        assert!(!is_guarded_above(&path("a/mounted"), &users));
        mode("a", 0o1777);
        assert!(is_guarded(&path("a/b"), &users));
        assert!(!is_guarded(&path("a/new"), &users));
        assert!(is_guarded_above(&path("a/mounted"), &users));
    }

    #[test]
    fn a_link_is_guarded_where_no_other_user_can_have_put_it() {
        let folder = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let path = |name: &str| folder.path().join(name);
        let mode = |mode| {
            std::fs::set_permissions(path("a"), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir(path("a")).unwrap();
        symlink("../b", path("a/link")).unwrap();
        assert_eq!(link_target(&path("a/link")), Some(PathBuf::from("../b")));
        assert_eq!(link_target(&path("a")), None);
        let is_guarded = |users: &[u32]| is_guarded_link(&path("a/link"), users);
        assert!(is_guarded(&[0, own]));
        for open in [0o777, 0o775, 0o2775] {
            mode(open);
            assert!(!is_guarded(&[0, own]), "{open:o}");
        }
        mode(0o1777);
        assert!(is_guarded(&[0, own]));
        if own == 0 {
            std::os::unix::fs::lchown(path("a/link"), Some(4_000_001), None).unwrap();
            assert!(!is_guarded(&[0]));
            mode(0o755);
            assert!(is_guarded(&[0]), "root has let it be there");
        }
    }

    #[test]
    fn a_path_leads_through_links_as_far_as_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = std::fs::canonicalize(folder.path()).unwrap();
        let path = |name: &str| folder.join(name);
        std::fs::create_dir_all(path("a/b")).unwrap();
        symlink(path("a"), path("link")).unwrap();
        symlink(path("gone"), path("a/nowhere")).unwrap();
        assert_eq!(leads_to(&path("a/b")), Some(path("a/b")));
        assert_eq!(leads_to(&path("link")), Some(path("a")));
        assert_eq!(leads_to(&path("link/b/new/er")), Some(path("a/b/new/er")));
        assert_eq!(leads_to(&path("a/new/../../x")), None);
        assert_eq!(leads_to(&path("link/nowhere")), None);
        assert_eq!(leads_to(&path("link/nowhere/x")), None);
        assert!(is_link(&path("link")) && !is_link(&path("link/b")));
    }

    #[test]
    fn what_is_appended_is_at_the_end_and_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        append(&path, b"first ").unwrap();
        append(&path, b"second").unwrap();
        assert_eq!(read(&path).unwrap(), b"first second");
        assert_eq!(size_bytes(&path).unwrap(), 12);
        assert_eq!(read_part(&path, 6, 3).unwrap(), b"sec");
        assert_eq!(read_part(&path, 9, 100).unwrap(), b"ond");
        assert_eq!(read_part(&path, 100, 1).unwrap(), b"");
        assert!(read_part(folder.path(), 0, 1).is_err());
        assert!(size_bytes(folder.path()).is_err());
    }

    #[test]
    fn only_plain_files_of_a_bounded_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("small"), b"words").unwrap();
        assert_eq!(read(&path("small")).unwrap(), b"words");
        let large = File::create(path("large")).unwrap();
        large.set_len(READ_BYTES_MAX).unwrap();
        assert!(read(&path("large")).is_ok());
        large.set_len(READ_BYTES_MAX + 1).unwrap();
        assert!(read(&path("large")).is_err());
        // No process writes into it: reading it would wait for ever.
        let status = std::process::Command::new("mkfifo")
            .arg(path("fifo"))
            .status();
        assert!(status.unwrap().success());
        for other in [path("fifo"), folder.path().into(), "/dev/zero".into()] {
            assert!(read(&other).is_err(), "{}", other.display());
        }
    }
}
