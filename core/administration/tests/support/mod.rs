//! An engine with one pool on a file; mounts are only noted.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    Create, DatasetKind, Describe, Destroy, Inherit, Rename, Set,
};
use tarn_administration::messages::pool::{self, VdevKind, VdevRole, VdevSpec};
use tarn_administration::messages::{Refusal, Source, Value};
use tarn_engine::engine::{Engine, EngineOptions};
use tarn_engine::files::{Credentials, DeviceNumber, FileKind, NewFile, Operation, WriteAt};
use tarn_engine::instance::Instance;
use tarn_engine::mounts::{
    Ended, Ending, Found, Left, MountKey, MountOptions, MountRefusal, MountRequest, Mounter,
    Standing,
};
use tarn_engine::{Host, RealOptions, files::Tree};
use tempfile::TempDir;

/// A requested mount.
pub struct Noted {
    pub key: MountKey,
    pub source: String,
    pub options: MountOptions,
    pub tree: Arc<dyn Tree>,
}

/// A mounter that only notes mounts.
#[derive(Default)]
pub struct Notebook {
    pub mounts: Mutex<BTreeMap<PathBuf, Noted>>,
    busy: Mutex<BTreeSet<PathBuf>>,
    /// Mounts that other namespaces have copies of: unmounting here leaves them in use.
    pub copied: Mutex<BTreeSet<PathBuf>>,
    /// File systems that are only in use elsewhere.
    pub elsewhere: Mutex<BTreeMap<MountKey, Noted>>,
    last_key: AtomicU64,
    /// The owner of the roots of mounts.
    pub owner: Mutex<Option<u32>>,
    /// The folders on which dead mounts were searched for.
    pub cleared: Mutex<BTreeSet<PathBuf>>,
    /// Called at the next unmount.
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The callback for the end of each mount, in the order of mounting.
    pub ends: Mutex<Vec<Ended>>,
}

impl Notebook {
    /// Gives a folder the owner of the file system that is mounted on it.
    fn show_mounted(&self, path: &Path) {
        if let Some(owner) = *self.owner.lock().unwrap() {
            std::os::unix::fs::lchown(path, Some(owner), None).unwrap();
        }
    }

    fn show_unmounted(&self, path: &Path) {
        if self.owner.lock().unwrap().is_some() {
            std::os::unix::fs::lchown(path, Some(0), None).unwrap();
        }
    }

    /// At the next unmount, replaces this folder by a link.
    pub fn then_links_to(&self, path: &Path, target: &Path) {
        let (path, target) = (path.to_path_buf(), target.to_path_buf());
        *self.then.lock().unwrap() = Some(Box::new(move || {
            std::fs::remove_dir(&path).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        }));
    }

    /// At the next unmount, lets all users write to this folder.
    pub fn then_is_open_to_all(&self, path: &Path) {
        let path = path.to_path_buf();
        *self.then.lock().unwrap() = Some(Box::new(move || {
            std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }));
    }
}

impl Mounter for Notebook {
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal> {
        let key = MountKey(self.last_key.fetch_add(1, Ordering::Relaxed) + 1);
        let noted = Noted {
            key,
            source: request.source.to_string(),
            options: request.options,
            tree: request.tree,
        };
        self.ends.lock().unwrap().push(request.ended);
        let path = request.path.to_path_buf();
        self.show_mounted(&path);
        self.mounts.lock().unwrap().insert(path, noted);
        Ok(key)
    }

    fn attach(
        &self,
        key: MountKey,
        _: &str,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal> {
        let mut elsewhere = self.elsewhere.lock().unwrap();
        let mut noted = elsewhere.remove(&key).ok_or(MountRefusal::Ended)?;
        noted.options = options;
        self.mounts
            .lock()
            .unwrap()
            .insert(path.to_path_buf(), noted);
        Ok(())
    }

    fn standing(&self, key: MountKey, _: &Path) -> Standing {
        let is_it = |noted: &Noted| noted.key == key;
        match self.mounts.lock().unwrap().values().any(is_it) {
            true => Standing::Mounted,
            false if self.elsewhere.lock().unwrap().contains_key(&key) => Standing::Elsewhere,
            false => Standing::Ended,
        }
    }

    fn places(&self) -> Vec<(MountKey, PathBuf)> {
        let mounts = self.mounts.lock().unwrap();
        let place = |(path, noted): (&PathBuf, &Noted)| (noted.key, path.clone());
        mounts.iter().map(place).collect()
    }

    fn mount_number(&self, _: &Path) -> Option<u64> {
        None
    }

    fn find(&self, path: &Path) -> Found {
        let Ok(path) = path.canonicalize() else {
            return Found::Missing("No such file or directory".to_string());
        };
        let mounts = self.mounts.lock().unwrap();
        let above = mounts
            .iter()
            .rev()
            .find(|(place, _)| path.starts_with(place));
        match above {
            Some((place, noted)) => Found::Mount(noted.key, Some(place.clone())),
            None => Found::Foreign,
        }
    }

    fn unmount(&self, key: MountKey, path: &Path, ending: Ending) -> Result<Left, MountRefusal> {
        let force = ending == Ending::Everywhere;
        if force {
            self.elsewhere.lock().unwrap().remove(&key);
        }
        if !force && self.busy.lock().unwrap().contains(path) {
            return Err(MountRefusal::Busy);
        }
        let mut mounts = self.mounts.lock().unwrap();
        // The system refuses that, and by force unmounts the mounts on it as well.
        let is_under_another = mounts
            .keys()
            .any(|other| other != path && other.starts_with(path));
        if is_under_another && !force {
            return Err(MountRefusal::Busy);
        }
        let stays_in_use = !force && self.copied.lock().unwrap().contains(path);
        if let Some(noted) = mounts.remove(path)
            && stays_in_use
        {
            self.elsewhere.lock().unwrap().insert(key, noted);
        }
        mounts.retain(|other, _| !other.starts_with(path));
        self.show_unmounted(path);
        if let Some(then) = self.then.lock().unwrap().take() {
            then();
        }
        match stays_in_use {
            true => Ok(Left::InUse),
            false => Ok(Left::Nothing),
        }
    }

    fn abandon(&self, mounts: &[(MountKey, &Path)]) {
        for (key, path) in mounts {
            let _ = self.unmount(*key, path, Ending::Everywhere);
        }
    }

    fn change_options(
        &self,
        _: MountKey,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal> {
        if let Some(noted) = self.mounts.lock().unwrap().get_mut(path) {
            noted.options = options;
        }
        Ok(())
    }

    fn clear_remains(&self, path: &Path) -> bool {
        self.cleared.lock().unwrap().insert(path.to_path_buf());
        false
    }
}

/// An engine with one pool.
pub struct Bench {
    pub engine: Arc<Engine>,
    pub administrator: Arc<Administrator>,
    pub notebook: Arc<Notebook>,
    folder: TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with_root(&[]).unwrap()
    }

    /// With a pool whose root file system has these properties.
    pub fn with_root(properties: &[(&str, &str)]) -> Result<Bench, Refusal> {
        Bench::of(pool::Create {
            dataset_properties: owned(properties),
            ..pool::Create::default()
        })
    }

    /// With a pool without features, as one of an older program.
    pub fn without_features() -> Bench {
        Bench::of(pool::Create {
            no_features: true,
            ..pool::Create::default()
        })
        .unwrap()
    }

    /// With a pool like this one, but for its name and device.
    fn of(like: pool::Create) -> Result<Bench, Refusal> {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        std::fs::File::create(&disk)
            .unwrap()
            .set_len(128 << 20)
            .unwrap();
        let notebook = Arc::new(Notebook::default());
        let engine = Engine::new(
            Host::real(RealOptions::default()),
            Instance::at(folder.path()),
            notebook.clone(),
            EngineOptions {
                cache_bytes: Some(64 << 20),
                ..EngineOptions::default()
            },
        );
        let bench = Bench {
            administrator: Administrator::new(engine.clone()),
            engine,
            notebook,
            folder,
        };
        let create = pool::Create {
            name: "tank".to_string(),
            altroot: Some(bench.root()),
            vdevs: vec![VdevSpec {
                kind: VdevKind::Leaf,
                path: Some(disk.display().to_string()),
                children: Vec::new(),
                role: VdevRole::Data,
            }],
            ..like
        };
        bench
            .administrator
            .pool_create(&call("zpool create"), create)?;
        Ok(bench)
    }

    pub fn root(&self) -> String {
        self.folder.path().join("mnt").display().to_string()
    }

    /// A path below the alternate root.
    pub fn path(&self, below: &str) -> PathBuf {
        PathBuf::from(format!("{}{below}", self.root()))
    }

    pub fn create(&self, name: &str, properties: &[(&str, &str)]) -> Result<(), Refusal> {
        let create = Create {
            name: name.to_string(),
            properties: owned(properties),
            ..Create::default()
        };
        let created = self
            .administrator
            .dataset_create(&call("zfs create"), create)?;
        assert_eq!(created.warnings, Vec::<String>::new());
        Ok(())
    }

    pub fn set(&self, name: &str, properties: &[(&str, &str)]) -> Result<(), Refusal> {
        let set = Set {
            name: name.to_string(),
            properties: owned(properties),
            no_mount: false,
        };
        self.administrator
            .dataset_set(&call("zfs set"), set)
            .map(|_| ())
    }

    pub fn inherit(&self, name: &str, property: &str, recursive: bool) -> Result<(), Refusal> {
        let inherit = Inherit {
            name: name.to_string(),
            property: property.to_string(),
            recursive,
            received: false,
        };
        let done = self
            .administrator
            .dataset_inherit(&call("zfs inherit"), inherit);
        done.map(|_| ())
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<(), Refusal> {
        let rename = Rename {
            from: from.to_string(),
            to: to.to_string(),
            ..Rename::default()
        };
        let done = self
            .administrator
            .dataset_rename(&call("zfs rename"), rename);
        done.map(|_| ())
    }

    pub fn destroy(&self, name: &str, recursive: bool) -> Result<Vec<String>, Refusal> {
        let destroy = Destroy {
            name: name.to_string(),
            recursive,
            ..Destroy::default()
        };
        let done = self
            .administrator
            .dataset_destroy(&call("zfs destroy"), destroy);
        done.map(|destroyed| destroyed.names)
    }

    /// A property, with where it comes from.
    pub fn get(&self, name: &str, property: &str) -> (Value, Source) {
        let describe = Describe {
            names: vec![name.to_string()],
            depth: Some(0),
            kinds: vec![DatasetKind::Filesystem],
            properties: vec![property.to_string()],
            ..Describe::default()
        };
        let described = self
            .administrator
            .dataset_describe(&call(""), describe)
            .unwrap();
        let found = &described.datasets[0].properties[property];
        (found.value.clone(), found.source.clone())
    }

    pub fn text(&self, name: &str, property: &str) -> String {
        match self.get(name, property).0 {
            Value::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    pub fn number(&self, name: &str, property: &str) -> u64 {
        match self.get(name, property).0 {
            Value::Number(number) => number,
            other => panic!("{other:?}"),
        }
    }

    pub fn names(&self) -> Vec<String> {
        let describe = Describe {
            kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume],
            properties: vec!["name".to_string()],
            ..Describe::default()
        };
        let described = self
            .administrator
            .dataset_describe(&call(""), describe)
            .unwrap();
        described.datasets.into_iter().map(|one| one.name).collect()
    }

    /// The mounts, by path below the alternate root.
    pub fn mounts(&self) -> Vec<(String, String)> {
        let root = self.root();
        let mounts = self.notebook.mounts.lock().unwrap();
        let shown = |(path, noted): (&PathBuf, &Noted)| {
            let below = path.display().to_string()[root.len()..].to_string();
            (below, noted.source.clone())
        };
        mounts.iter().map(shown).collect()
    }

    pub fn mounted(&self) -> Vec<String> {
        self.mounts().into_iter().map(|(path, _)| path).collect()
    }

    pub fn is_busy(&self, path: &str) {
        let path = self.path(path);
        self.notebook.busy.lock().unwrap().insert(path);
    }

    pub fn tree(&self, path: &str) -> Arc<dyn Tree> {
        let mounts = self.notebook.mounts.lock().unwrap();
        mounts[&self.path(path)].tree.clone()
    }

    /// Writes a file of this many incompressible bytes, and returns the errno.
    pub fn write(&self, path: &str, name: &str, bytes: usize) -> Result<(), i32> {
        let tree = self.tree(path);
        let files = tree.files();
        let operation = Operation::unmeasured();
        let root = Credentials::root();
        let new = NewFile {
            kind: FileKind::Regular,
            permissions: 0o644,
            umask: 0,
            device: DeviceNumber::default(),
            target: None,
        };
        let made = files.create(&root, files.root(), name.as_bytes(), &new, &operation);
        let id = made.map_err(|error| error.errno())?.id;
        let mut state = 1_u64;
        let mut noise = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_le_bytes()[7]
        };
        let part: Vec<u8> = (0..64 << 10).map(|_| noise()).collect();
        let mut at = 0;
        while at < bytes {
            let now = part.len().min(bytes - at);
            let offset = WriteAt::Offset(u64::try_from(at).unwrap());
            let written = files.write(&root, id, offset, &part[..now], &operation);
            at += written.map_err(|error| error.errno())?;
        }
        Ok(())
    }

    /// Unlinks a file.
    pub fn unlink(&self, path: &str, name: &str) {
        let tree = self.tree(path);
        let files = tree.files();
        let (root, operation) = (Credentials::root(), Operation::unmeasured());
        let unlinked = files.unlink(&root, files.root(), name.as_bytes(), &operation);
        unlinked.unwrap();
    }

    pub fn sync(&self) {
        let sync = pool::Sync::default();
        self.administrator.pool_sync(&call(""), sync).unwrap();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

pub fn call(command: &str) -> Call {
    Call {
        command: command.to_string(),
        ..Call::default()
    }
}

pub fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    pairs.iter().map(own).collect()
}
