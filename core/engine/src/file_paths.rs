//! Paths of the files that operation records name, and files by their paths.
//!
//! # Mechanism
//! A record has the numbers of a dataset and of an object. The parents that files have as
//! attributes lead to the root, as for `zpool status -v` and `zfs diff`, so a path is found right
//! after a restart. It begins with the mount point, or with `DATASET:` where that is not mounted; a
//! volume has the name of its dataset. Only what is shown is looked up. A file that is gone keeps
//! the path under which it was shown last, with ` (deleted)`.
//!
//! # Invariants
//! - A pool that does not answer is not waited for: its files have the paths that are known.

use crate::engine::{Engine, OpenPool};
use crate::files::{Credentials, FileSystem, ObjectId, Tree};
use crate::known_paths::FileKey;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use tarn_dataset::contents;
use tarn_object::ObjectSet;
use tarn_posix::MountError;
use tarn_posix::diff::paths_of;
use tarn_probe::{DatasetId, NamedDataset, Operation, dataset_number, named_dataset};

/// What follows the path of a file that is gone.
const DELETED: &str = " (deleted)";
/// The object of a volume that has its contents.
const VOLUME_OBJECT: u64 = 1;

/// What the files of a dataset are called, as far as it can be read now.
struct Paths {
    /// What each path begins with.
    prefix: String,
    /// The paths of files; none for a file that is gone.
    paths: Vec<Option<Vec<u8>>>,
}

impl Engine {
    /// The paths of files that records name. Those that are neither found nor known are missing.
    pub fn file_paths(&self, files: &BTreeSet<FileKey>) -> BTreeMap<FileKey, String> {
        let mut by_dataset: BTreeMap<DatasetId, Vec<u64>> = BTreeMap::new();
        for (dataset, object) in files {
            by_dataset.entry(*dataset).or_default().push(*object);
        }
        let mut found = BTreeMap::new();
        for (id, objects) in by_dataset {
            let Some(dataset) = named_dataset(id) else {
                continue;
            };
            let read = self.read_paths(&dataset, &objects);
            let mut known = self.known_paths.lock();
            for (place, object) in objects.iter().enumerate() {
                let file = (id, *object);
                let path = match &read {
                    Some(read) => match &read.paths[place] {
                        Some(path) => {
                            let path = joined(&read.prefix, path);
                            known.keep(file, &path);
                            Some(path)
                        }
                        None => known.find(file).map(|path| format!("{path}{DELETED}")),
                    },
                    None => known.find(file).map(str::to_owned),
                };
                found.extend(path.map(|path| (file, path)));
            }
        }
        found
    }

    /// Reads the paths of objects of a dataset; `None` where it cannot be read.
    fn read_paths(&self, dataset: &NamedDataset, objects: &[u64]) -> Option<Paths> {
        let open = self.find_pool(&dataset.place.pool)?;
        if open.pool.facts().guid.get() != dataset.place.pool_guid {
            return None;
        }
        let prefix = match open.mount_of(&dataset.name) {
            Some(mounted) => text_of(mounted.path.as_os_str().as_bytes()),
            None => format!("{}:", dataset.name),
        };
        let ids: Vec<ObjectId> = objects.iter().copied().map(ObjectId::new).collect();
        let (count, of_set) = (ids.len(), dataset.clone());
        let read = self.look(&open, move |open, operation| {
            let set = object_set(open, &of_set, operation)?;
            Some(paths_of(&set, &ids, operation))
        });
        match read?? {
            Ok(paths) => Some(Paths { prefix, paths }),
            Err(MountError::NotFileSystem) => Some(Paths {
                prefix: String::new(),
                paths: vec![Some(dataset.name.clone().into_bytes()); count],
            }),
            Err(_) => None,
        }
    }

    /// The files that a path means: the one that has it now, and those that had it when they were
    /// shown.
    pub fn files_at(&self, path: &str, operation: &Operation) -> BTreeMap<FileKey, String> {
        let text = path.strip_suffix(DELETED).unwrap_or(path);
        let known: BTreeSet<FileKey> = {
            let known = self.known_paths.lock();
            let files = known.files(|known| known == text);
            files.map(|(file, _)| file).collect()
        };
        let now = self.file_at(text, operation).into_iter();
        let files = known.into_iter().chain(now);
        files.map(|file| (file, path.to_owned())).collect()
    }

    /// The files whose paths are known and begin so.
    pub fn known_files_below(&self, prefix: &str) -> BTreeMap<FileKey, String> {
        let known = self.known_paths.lock();
        let files = known.files(|path| path.starts_with(prefix));
        files.map(|(file, path)| (file, path.to_owned())).collect()
    }

    /// The file that has a path now.
    fn file_at(&self, path: &str, operation: &Operation) -> Option<FileKey> {
        if path.starts_with('/') {
            return self.file_below_mount(Path::new(path), operation);
        }
        let (name, below) = match path.split_once(":/") {
            Some((name, below)) => (name, Some(below)),
            None => (path, None),
        };
        let open = self.require_pool_of(name).ok()?;
        if open.pool.txgs().is_suspended() {
            return None;
        }
        let view = open.pool.namespace().view(operation);
        let head = view.directory(name).ok()?.head().ok()??;
        let guid = head.stored().ok()?.guid.get();
        let dataset = dataset_number(open.pool.facts().guid.get(), guid)?;
        match below {
            None => Some((dataset, VOLUME_OBJECT)),
            Some(below) => {
                let tree = open.served_files.peek(head.id())?;
                let object = walk(tree.files(), Path::new(below), operation)?;
                Some((dataset, object))
            }
        }
    }

    fn file_below_mount(&self, path: &Path, operation: &Operation) -> Option<FileKey> {
        let pools = self.pools();
        let mounts = pools.iter().flat_map(|open| {
            let mounts = open.all_served().into_iter();
            mounts.map(move |(_, mounted)| (open, mounted))
        });
        let holds = mounts.filter(|(_, mounted)| path.starts_with(&mounted.path));
        let (open, mounted) = holds.max_by_key(|(_, mounted)| mounted.path.as_os_str().len())?;
        if open.pool.txgs().is_suspended() {
            return None;
        }
        let dataset = dataset_number(open.pool.facts().guid.get(), mounted.held.guid())?;
        let below = path.strip_prefix(&mounted.path).ok()?;
        Some((dataset, walk(mounted.held.files(), below, operation)?))
    }
}

/// The object set of a dataset: the one that is open, or as it is stored.
fn object_set(
    open: &OpenPool,
    dataset: &NamedDataset,
    operation: &Operation,
) -> Option<Arc<ObjectSet>> {
    let id = ObjectId::new(dataset.place.object);
    if let Some(tree) = open.served_files.peek(id) {
        return Some(tree.files().object_set().clone());
    }
    let view = open.pool.namespace().view(operation);
    let found = view.dataset_by_id(id).ok()?;
    let is_same = found.stored().ok()?.guid.get() == dataset.place.guid;
    match is_same {
        true => contents::objset(&found).ok(),
        false => None,
    }
}

/// The object that a path below the root leads to.
fn walk(files: &FileSystem, below: &Path, operation: &Operation) -> Option<u64> {
    let root = Credentials::root();
    let mut at = files.root();
    for component in below.components() {
        if let Component::Normal(name) = component {
            let found = files.lookup(&root, at, name.as_bytes(), operation);
            at = found.ok()?.id;
        }
    }
    Some(at.get())
}

/// A mount point and a path in the file system, which begins with a slash, as one.
fn joined(prefix: &str, path: &[u8]) -> String {
    let path = text_of(path);
    match (prefix.trim_end_matches('/'), path.as_str()) {
        ("", path) => path.to_owned(),
        (prefix, "/") if !prefix.ends_with(':') => prefix.to_owned(),
        (prefix, path) => format!("{prefix}{path}"),
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_with_the_mount_point_or_the_dataset() {
        assert_eq!(joined("/tank/home", b"/a/b"), "/tank/home/a/b");
        assert_eq!(joined("/tank/home", b"/"), "/tank/home");
        assert_eq!(joined("/", b"/a"), "/a");
        assert_eq!(joined("/", b"/"), "/");
        assert_eq!(joined("tank/home:", b"/a"), "tank/home:/a");
        assert_eq!(joined("tank/home:", b"/"), "tank/home:/");
        assert_eq!(joined("", b"tank/volume"), "tank/volume");
    }
}
