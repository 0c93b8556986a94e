//! Paths of the files that operation records name, and files by their paths.
//!
//! # Mechanism
//! A record has the numbers of a dataset and of an object. The parents that files have as
//! attributes lead to the root, as for `zpool status -v` and `zfs diff`, so a path is found right
//! after a restart. It begins with the mount point, or with `DATASET:` where that is not mounted; a
//! volume has the name of its dataset. Only what is shown is looked up. A file that is gone keeps
//! the path under which it was shown last, with ` (deleted)`. A name that was looked for in vain
//! has the path of its directory and ` (missing)` behind it.
//!
//! # Invariants
//! - A pool that does not answer is not waited for: its files have the paths that are known.

use crate::engine::{Engine, OpenPool};
use crate::files::{ControlEntry, Credentials, FileSystem, ObjectId, Tree};
use crate::known_paths::FileKey;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use tarn_dataset::contents;
use tarn_object::ObjectSet;
use tarn_posix::MountError;
use tarn_posix::diff::paths_of;
use tarn_probe::{
    DatasetId, MISSING_NAME, MissingName, NamedDataset, Operation, dataset_number, missing_name,
    missing_number, named_dataset,
};

/// Where snapshots are in a mounted file system.
const SNAPSHOTS: &str = ".zfs/snapshot";
/// What follows the path of a file that is gone.
const DELETED: &str = " (deleted)";
/// What follows the path of a name that was looked for in vain.
const MISSING: &str = " (missing)";
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
    /// The paths of files, and of names that were looked for in vain, that records name. Those that
    /// are neither found nor known are left out.
    pub fn file_paths(&self, files: &BTreeSet<FileKey>) -> BTreeMap<FileKey, String> {
        let (names, mut files): (BTreeSet<FileKey>, BTreeSet<FileKey>) = (files.iter())
            .copied()
            .partition(|(_, object)| object & MISSING_NAME != 0);
        let names: Vec<_> = (names.into_iter())
            .filter_map(|key| Some((key, missing_name(key.1)?)))
            .collect();
        let directory = |name: &MissingName| (name.dataset, name.directory);
        files.extend(names.iter().map(|(_, name)| directory(name)));
        let mut found = self.paths_of_files(&files);
        for (key, name) in names {
            if let Some(above) = found.get(&directory(&name)) {
                let path = below(above, &text_of(&name.name));
                self.known_paths.lock().keep(key, &path);
                found.insert(key, path + MISSING);
            }
        }
        found
    }

    fn paths_of_files(&self, files: &BTreeSet<FileKey>) -> BTreeMap<FileKey, String> {
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
                    Some(read) => match read.paths[place].as_deref().or(control_path(*object)) {
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
        let (head, snapshot) = match dataset.name.split_once('@') {
            Some((head, snapshot)) => (head, format!("/{SNAPSHOTS}/{snapshot}")),
            None => (dataset.name.as_str(), String::new()),
        };
        let prefix = match open.mount_of(head) {
            Some(mounted) => joined(
                &text_of(mounted.path.as_os_str().as_bytes()),
                snapshot.as_bytes(),
            ),
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
    /// shown. With ` (missing)`, and where there is no file, the lookups of it in vain.
    pub fn files_at(&self, path: &str, operation: &Operation) -> BTreeMap<FileKey, String> {
        let mut files = match path.strip_suffix(MISSING) {
            Some(text) => self.lookups_in_vain(text, operation),
            None => BTreeSet::new(),
        };
        let text = path.strip_suffix(DELETED).unwrap_or(path);
        files.extend(self.known_files_at(text, |object| object & MISSING_NAME == 0));
        files.extend(self.file_at(text, operation));
        if files.is_empty() {
            files = self.lookups_in_vain(text, operation);
        }
        files
            .into_iter()
            .map(|file| (file, path.to_owned()))
            .collect()
    }

    /// The keys of lookups that found nothing at this path.
    fn lookups_in_vain(&self, path: &str, operation: &Operation) -> BTreeSet<FileKey> {
        let mut found: BTreeSet<FileKey> =
            self.known_files_at(path, |object| object & MISSING_NAME != 0);
        let Some((above, name)) = path.rsplit_once('/') else {
            return found;
        };
        // The root of a file system that is not mounted is `DATASET:/`.
        let above = match above {
            "" => "/".to_owned(),
            above if above.ends_with(':') => format!("{above}/"),
            above => above.to_owned(),
        };
        let mut directories = self.known_files_at(&above, |object| object & MISSING_NAME == 0);
        directories.extend(self.file_at(&above, operation));
        for (dataset, directory) in directories {
            let number = missing_number(dataset, directory, name.as_bytes());
            found.extend(number.map(|number| (dataset, number)));
        }
        found
    }

    /// The files that were shown with this path, of those whose object is wanted.
    fn known_files_at(&self, path: &str, is_wanted: impl Fn(u64) -> bool) -> BTreeSet<FileKey> {
        let known = self.known_paths.lock();
        let files = known.files(|known| known == path).map(|(file, _)| file);
        files.filter(|(_, object)| is_wanted(*object)).collect()
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
        let number = |tree: &dyn Tree| dataset_number(open.pool.facts().guid.get(), tree.guid());
        let below = path.strip_prefix(&mounted.path).ok()?;
        let mut in_snapshots = below.strip_prefix(SNAPSHOTS).ok().map(Path::components);
        match in_snapshots.as_mut().and_then(Iterator::next) {
            Some(Component::Normal(name)) => {
                let tree = mounted.held.snapshot(name.as_bytes(), operation).ok()?;
                let below = in_snapshots?.as_path().to_owned();
                Some((number(&*tree)?, walk(tree.files(), &below, operation)?))
            }
            _ => {
                let object = walk(mounted.held.files(), below, operation)?;
                Some((number(&*mounted.held)?, object))
            }
        }
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

/// The path of a directory that is not stored.
fn control_path(object: u64) -> Option<&'static [u8]> {
    match ControlEntry::of(ObjectId::new(object))? {
        ControlEntry::Root => Some(b"/.zfs"),
        ControlEntry::Snapshots => Some(b"/.zfs/snapshot"),
        // Its root has the path, in its own file system.
        ControlEntry::Snapshot(_) => None,
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

/// The path of a name in a directory.
fn below(directory: &str, name: &str) -> String {
    let directory = directory.strip_suffix(DELETED).unwrap_or(directory);
    match directory.ends_with('/') {
        true => format!("{directory}{name}"),
        false => format!("{directory}/{name}"),
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
        assert_eq!(
            joined("/tank", b"/.zfs/snapshot/a"),
            "/tank/.zfs/snapshot/a"
        );
        assert_eq!(joined("/", b"/.zfs/snapshot/a"), "/.zfs/snapshot/a");
        assert_eq!(joined("/tank", b""), "/tank");
        assert_eq!(below("tank/home:/", "a"), "tank/home:/a");
        assert_eq!(below("/tank/home (deleted)", "a"), "/tank/home/a");
    }
}
