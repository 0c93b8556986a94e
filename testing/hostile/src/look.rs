//! Looks at everything that can be reached, within bounds, whatever comes of it.
//!
//! Errors are answers here. What must not be is a panic or a wait without end, and those come out
//! of the machine.

use crate::house::{Files, House, call, operation, search};
use std::collections::BTreeSet;
use std::sync::Arc;
use tarn_administration::administration::Administration;
use tarn_administration::messages::{Refusal, dataset, pool, statistics};
use tarn_engine::files::{
    Attributes, Credentials, DirectoryEntry, FileKind, FileSystem, ObjectId, PosixError, Seek,
};

/// So many files of a file system are looked at.
const FILES_MAX: usize = 400;
/// So many entries of a directory are taken.
const ENTRIES_MAX: usize = 500;
/// So much of a file is read at its beginning, and at its end.
const READ_BYTES: usize = 300 << 10;
/// So many snapshots of a dataset are looked into.
const SNAPSHOTS_MAX: usize = 3;
/// So many datasets are destroyed.
const DESTROYED_MAX: usize = 4;
/// So many errors are kept.
const ERRORS_MAX: usize = 50;

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// File systems and snapshots that could be opened.
    pub filesystems: usize,
    /// Files.
    pub files: usize,
    /// Bytes read.
    pub bytes: u64,
    /// How many answers were errors.
    pub error_count: usize,
    /// The first of them.
    pub errors: Vec<String>,
}

impl Seen {
    /// Adds what another saw.
    pub fn add(&mut self, other: Seen) {
        self.filesystems += other.filesystems;
        self.files += other.files;
        self.bytes += other.bytes;
        self.error_count += other.error_count;
        self.errors.extend(other.errors);
        self.errors.truncate(2 * ERRORS_MAX);
    }

    fn error(&mut self, what: &str, error: &dyn std::fmt::Display) {
        let text = error.to_string();
        assert!(!text.trim().is_empty(), "{what}: an error says something");
        self.error_count += 1;
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(format!("{what}: {text}"));
        }
    }

    fn refusal<T>(&mut self, what: &str, outcome: Result<T, Refusal>) {
        if let Err(refusal) = outcome {
            self.error(what, &refusal);
        }
    }

    fn answer<T>(&mut self, what: &str, outcome: Result<T, PosixError>) -> Option<T> {
        outcome.map_err(|error| self.error(what, &error)).ok()
    }
}

/// Everything that commands ask, of all pools that are open.
pub fn commands(house: &House, seen: &mut Seen) {
    let administrator = &house.administrator;
    let found =
        administrator.pool_find_importable(&call(), pool::FindImportable { search: search() });
    seen.refusal("import", found);
    let describe = pool::Describe {
        names: Vec::new(),
        with_errors: true,
    };
    let pools = administrator.pool_describe(&call(), describe);
    let names: Vec<String> = pools
        .iter()
        .flat_map(|described| &described.pools)
        .map(|pool| pool.name.clone())
        .collect();
    seen.refusal("status", pools);
    for name in names {
        let history = administrator.pool_history(&call(), pool::History { name });
        seen.refusal("history", history);
    }
    use dataset::DatasetKind::{Bookmark, Filesystem, Snapshot, Volume};
    let request = dataset::Describe {
        kinds: vec![Filesystem, Snapshot, Volume, Bookmark],
        ..dataset::Describe::default()
    };
    match administrator.dataset_describe(&call(), request) {
        Ok(described) => {
            for refusal in described.refused {
                seen.error("list", &refusal);
            }
        }
        Err(refusal) => seen.error("list", &refusal),
    }
    let iostat = administrator.pool_iostat(&call(), statistics::IoSample::default());
    seen.refusal("iostat", iostat);
}

/// All files of all mounted file systems, and of some of their snapshots.
pub fn files(house: &House, seen: &mut Seen) {
    for (name, tree) in house.trees() {
        file_system(&name, tree.files(), seen);
        for snapshot in snapshots(tree.files(), seen) {
            let what = format!("{name}@{}", String::from_utf8_lossy(&snapshot));
            let opened = tree.snapshot(&snapshot, &operation());
            if let Some(tree) = seen.answer(&what, opened) {
                file_system(&what, tree.files(), seen);
            }
        }
    }
}

fn snapshots(files: &Arc<FileSystem>, seen: &mut Seen) -> Vec<Vec<u8>> {
    let folder = tarn_engine::files::ControlEntry::Snapshots.id();
    let mut names = Vec::new();
    let mut take = |entry: DirectoryEntry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name);
        }
        names.len() < SNAPSHOTS_MAX
    };
    let root = Credentials::root();
    let read = files.read_directory(&root, folder, 0, &mut take, &operation());
    seen.answer(".zfs/snapshot", read);
    names
}

fn file_system(name: &str, files: &Arc<FileSystem>, seen: &mut Seen) {
    seen.filesystems += 1;
    files.space();
    let mut known = BTreeSet::new();
    let mut waiting = vec![files.root()];
    while let Some(id) = waiting.pop() {
        if !known.insert(id) || known.len() > FILES_MAX {
            continue;
        }
        let what = format!("{name}:{id}");
        let attributes = files.attributes(id, &operation());
        if let Some(attributes) = seen.answer(&what, attributes) {
            one_file(&what, files, &attributes, &mut waiting, seen);
        }
    }
}

fn one_file(
    what: &str,
    files: &Arc<FileSystem>,
    attributes: &Attributes,
    waiting: &mut Vec<ObjectId>,
    seen: &mut Seen,
) {
    seen.files += 1;
    let (root, id) = (Credentials::root(), attributes.id);
    let names = seen.answer(what, files.list_xattr(&root, id, &operation()));
    for name in names.unwrap_or_default().iter().take(20) {
        seen.answer(what, files.get_xattr(&root, id, name, &operation()));
    }
    match attributes.kind {
        FileKind::Directory => directory(what, files, id, waiting, seen),
        FileKind::SymbolicLink => {
            seen.answer(what, files.read_link(&root, id, &operation()));
        }
        FileKind::Regular => contents(what, files, attributes, seen),
        _ => {}
    }
}

fn directory(
    what: &str,
    files: &Arc<FileSystem>,
    id: ObjectId,
    waiting: &mut Vec<ObjectId>,
    seen: &mut Seen,
) {
    let root = Credentials::root();
    let mut entries = Vec::new();
    let mut cookie = 0;
    // In several calls, as a kernel reads it.
    loop {
        let (before, from) = (entries.len(), cookie);
        let mut take = |entry: DirectoryEntry| {
            cookie = entry.cookie;
            entries.push(entry);
            entries.len() < before + 100
        };
        let read = files.read_directory(&root, id, from, &mut take, &operation());
        seen.answer(what, read);
        if entries.len() == before || entries.len() > ENTRIES_MAX {
            break;
        }
    }
    for entry in &entries {
        if entry.name == b"." || entry.name == b".." {
            continue;
        }
        waiting.push(entry.id);
        let found = files.lookup(&root, id, &entry.name, &operation());
        seen.answer(what, found);
    }
}

fn contents(what: &str, files: &Arc<FileSystem>, attributes: &Attributes, seen: &mut Seen) {
    let (root, id, size) = (Credentials::root(), attributes.id, attributes.size);
    let tail = size.saturating_sub(tarn_ondisk::declare::widen(READ_BYTES));
    for offset in BTreeSet::from([0, tail / 2, tail]) {
        let read = files.read(&root, id, offset, READ_BYTES, &operation());
        if let Some(data) = seen.answer(what, read) {
            seen.bytes += tarn_ondisk::declare::widen(data.to_vec().len());
        }
    }
    let mut at = 0;
    for _ in 0..20 {
        let Ok(data) = files.seek(id, at, Seek::Data, &operation()) else {
            break;
        };
        let Ok(hole) = files.seek(id, data, Seek::Hole, &operation()) else {
            break;
        };
        at = hole;
    }
}

/// Makes, changes and destroys datasets.
fn change_datasets(house: &House, seen: &mut Seen) {
    let administrator = &house.administrator;
    let pools: Vec<String> = administrator
        .pool_describe(&call(), pool::Describe::default())
        .map(|described| described.pools)
        .unwrap_or_default()
        .into_iter()
        .map(|pool| pool.name)
        .collect();
    for pool in pools {
        let guest = format!("{pool}/guest");
        let create = dataset::Create {
            name: guest.clone(),
            ..dataset::Create::default()
        };
        seen.refusal("create", administrator.dataset_create(&call(), create));
        let set = dataset::Set {
            name: pool.clone(),
            properties: vec![("compression".to_string(), "gzip".to_string())],
            no_mount: false,
        };
        seen.refusal("set", administrator.dataset_set(&call(), set));
        let rename = dataset::Rename {
            from: guest,
            to: format!("{pool}/moved"),
            ..dataset::Rename::default()
        };
        seen.refusal("rename", administrator.dataset_rename(&call(), rename));
        change_snapshots(house, &pool, seen);
        let children: Vec<String> = house
            .trees()
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| name.starts_with(&pool) && name.len() > pool.len())
            .take(DESTROYED_MAX)
            .collect();
        for name in children {
            let destroy = dataset::Destroy {
                name,
                recursive: true,
                dependents: true,
                force: true,
                ..dataset::Destroy::default()
            };
            seen.refusal("destroy", administrator.dataset_destroy(&call(), destroy));
        }
        // What is destroyed is freed in the background, group after group.
        for _ in 0..4 {
            seen.refusal("sync", house.sync());
        }
    }
}

/// Takes, clones, keeps and destroys snapshots; those that the pool came with go too.
fn change_snapshots(house: &House, pool: &str, seen: &mut Seen) {
    let administrator = &house.administrator;
    let (snapshot, clone) = (format!("{pool}@guest"), format!("{pool}/clone"));
    let take = dataset::Snapshot {
        names: vec![snapshot.clone()],
        recursive: true,
        ..dataset::Snapshot::default()
    };
    seen.refusal("snapshot", administrator.dataset_snapshot(&call(), take));
    let hold = dataset::Hold {
        name: snapshot.clone(),
        tag: "guest".to_string(),
        recursive: true,
    };
    seen.refusal("hold", administrator.dataset_hold(&call(), hold.clone()));
    seen.refusal("release", administrator.dataset_release(&call(), hold));
    let bookmark = dataset::MakeBookmark {
        origin: snapshot.clone(),
        name: format!("{pool}#guest"),
        recursive: true,
    };
    seen.refusal(
        "bookmark",
        administrator.dataset_bookmark(&call(), bookmark),
    );
    let make = dataset::MakeClone {
        origin: snapshot.clone(),
        name: clone.clone(),
        ..dataset::MakeClone::default()
    };
    seen.refusal("clone", administrator.dataset_clone(&call(), make));
    let promote = dataset::Promote {
        name: clone.clone(),
    };
    seen.refusal("promote", administrator.dataset_promote(&call(), promote));
    let promote = dataset::Promote {
        name: pool.to_string(),
    };
    seen.refusal("promote", administrator.dataset_promote(&call(), promote));
    let rename = dataset::Rename {
        from: snapshot.clone(),
        to: "@renamed".to_string(),
        recursive: true,
        ..dataset::Rename::default()
    };
    seen.refusal("rename", administrator.dataset_rename(&call(), rename));
    let roll_back = dataset::Rollback {
        name: format!("{pool}@renamed"),
        newer: true,
        clones: true,
        force: true,
    };
    seen.refusal(
        "rollback",
        administrator.dataset_rollback(&call(), roll_back),
    );
    for name in [clone, format!("{pool}@%")] {
        let destroy = dataset::Destroy {
            name,
            recursive: true,
            force: true,
            defer: false,
            ..dataset::Destroy::default()
        };
        seen.refusal("destroy", administrator.dataset_destroy(&call(), destroy));
    }
}

/// Changes a little of everything that is mounted: what fails, fails with an error.
pub fn change(house: &House, seen: &mut Seen) {
    for (name, tree) in house.trees() {
        let files = Files::of(tree.files().clone());
        let bytes = crate::house::noise(1, 200_000);
        let made = files.make("a hostile guest");
        if let Some(file) = seen.answer(&name, made) {
            seen.answer(&name, files.write(file, 0, &bytes));
            seen.answer(&name, files.write(file, 5 << 30, b"far away"));
            seen.answer(&name, files.set_xattr(file, "user.note", b"here"));
            seen.answer(&name, files.resize(file, 100_000));
        }
        let mut entries = Vec::new();
        let mut take = |entry: DirectoryEntry| {
            entries.push(entry);
            entries.len() < 40
        };
        let (root, id) = (Credentials::root(), tree.files().root());
        let read = tree
            .files()
            .read_directory(&root, id, 2, &mut take, &operation());
        seen.answer(&name, read);
        for (number, entry) in entries.iter().enumerate() {
            let Ok(text) = std::str::from_utf8(&entry.name) else {
                continue;
            };
            let changed = match number % 4 {
                0 => files.unlink(text),
                1 => files.resize(entry.id, 10),
                2 => files.write(entry.id, 1000, &bytes[..3000]).map(|_| ()),
                _ => files.set_xattr(entry.id, "user.other", &bytes[..500]),
            };
            seen.answer(&name, changed);
        }
    }
    seen.refusal("sync", house.sync());
    change_datasets(house, seen);
}
