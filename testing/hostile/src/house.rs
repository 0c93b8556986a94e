//! An engine on a simulated machine, whose mounts stay in memory.
//!
//! A [`House`] stands for the daemon: pools are made, imported, described and exported in it by the
//! requests that commands send, and files are reached by the trees that a front end would serve.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::{Refusal, dataset, pool};
use tarn_engine::files::{
    Allocate, Credentials, DeviceNumber, FileKind, FileSystem, NewFile, ObjectId, Operation,
    PosixError, RenameMode, SetAttributes, Tree, WriteAt, XattrMode,
};
use tarn_engine::instance::Instance;
use tarn_engine::mounts::{
    Ended, Ending, Found, Left, MountKey, MountOptions, MountRefusal, MountRequest, Mounter,
    Standing,
};
use tarn_engine::{Engine, EngineOptions, Host};

/// The folder of all simulated disks.
pub const DISKS: &str = "/disks";

/// How much memory the cache of a house may take.
const CACHE_BYTES: u64 = 64 << 20;

/// A mounter that keeps what it is given.
#[derive(Default)]
struct Shelf {
    trees: Mutex<Mounted>,
}

/// A mount.
struct OnShelf {
    source: String,
    tree: Arc<dyn Tree>,
    ended: Ended,
}

#[derive(Default)]
struct Mounted {
    last: u64,
    by_key: BTreeMap<u64, OnShelf>,
}

impl Mounter for Shelf {
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal> {
        let mut mounted = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        mounted.last += 1;
        let key = mounted.last;
        let entry = OnShelf {
            source: request.source.to_string(),
            tree: request.tree,
            ended: request.ended,
        };
        mounted.by_key.insert(key, entry);
        Ok(MountKey(key))
    }

    fn attach(&self, _: MountKey, _: &str, _: &Path, _: MountOptions) -> Result<(), MountRefusal> {
        Err(MountRefusal::Busy)
    }

    fn standing(&self, _: MountKey, _: &Path) -> Standing {
        Standing::Mounted
    }

    fn places(&self) -> Vec<(MountKey, PathBuf)> {
        Vec::new()
    }

    fn mount_number(&self, _: &Path) -> Option<u64> {
        None
    }

    fn find(&self, _: &Path) -> Found {
        Found::Foreign
    }

    fn unmount(&self, key: MountKey, _: &Path, _: Ending) -> Result<Left, MountRefusal> {
        let mut mounted = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        let tree = mounted.by_key.remove(&key.0);
        drop(mounted);
        drop(tree);
        Ok(Left::Nothing)
    }

    fn abandon(&self, mounts: &[(MountKey, &Path)]) {
        for (key, path) in mounts {
            let _ = self.unmount(*key, path, Ending::Everywhere);
        }
    }

    fn change_options(&self, _: MountKey, _: &Path, _: MountOptions) -> Result<(), MountRefusal> {
        Ok(())
    }

    fn clear_remains(&self, _: &Path) -> bool {
        false
    }
}

/// An engine, and what it has mounted.
pub struct House {
    /// The engine.
    pub engine: Arc<Engine>,
    /// What carries out commands on its pools.
    pub administrator: Arc<Administrator>,
    shelf: Arc<Shelf>,
}

impl House {
    /// An engine without pools on this machine.
    pub fn new(host: &Host) -> House {
        let shelf = Arc::new(Shelf::default());
        let options = EngineOptions {
            cache_bytes: Some(CACHE_BYTES),
            ..EngineOptions::default()
        };
        let instance = Instance::at(Path::new("/instance"));
        let engine = Engine::new(host.clone(), instance, shelf.clone(), options);
        House {
            administrator: Administrator::new(engine.clone()),
            engine,
            shelf,
        }
    }

    /// Makes a pool and mounts it.
    ///
    /// # Errors
    /// The refusal of `zpool create`.
    pub fn create(
        &self,
        name: &str,
        kind: pool::VdevKind,
        disks: &[&str],
        properties: &[(&str, &str)],
    ) -> Result<pool::Created, Refusal> {
        self.create_with(name, kind, disks, properties, &[])
    }

    /// The same, with properties of the root file system.
    ///
    /// # Errors
    /// The refusal of `zpool create`.
    pub fn create_with(
        &self,
        name: &str,
        kind: pool::VdevKind,
        disks: &[&str],
        properties: &[(&str, &str)],
        dataset_properties: &[(&str, &str)],
    ) -> Result<pool::Created, Refusal> {
        let leaf = |disk: &&str| pool::VdevSpec {
            kind: pool::VdevKind::Leaf,
            path: Some(format!("{DISKS}/{disk}")),
            children: Vec::new(),
            role: pool::VdevRole::Data,
        };
        let leaves: Vec<_> = disks.iter().map(leaf).collect();
        let vdevs = match kind {
            pool::VdevKind::Leaf => leaves,
            kind => vec![pool::VdevSpec {
                kind,
                path: None,
                children: leaves,
                role: pool::VdevRole::Data,
            }],
        };
        let pairs = |properties: &[(&str, &str)]| {
            let pairs = properties.iter();
            pairs
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect()
        };
        let request = pool::Create {
            name: name.to_string(),
            vdevs,
            properties: pairs(properties),
            dataset_properties: pairs(dataset_properties),
            ..pool::Create::default()
        };
        self.administrator.pool_create(&call(), request)
    }

    /// Imports a pool from the simulated disks.
    ///
    /// # Errors
    /// The refusal of `zpool import`.
    pub fn import(
        &self,
        name: Option<&str>,
        properties: &[(&str, &str)],
    ) -> Result<pool::Imported, Refusal> {
        let pairs = properties
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        let request = pool::Import {
            search: search(),
            pool: name.map(str::to_string),
            properties: pairs.collect(),
            altroot: Some("/mounts".to_string()),
            force: true,
            ..pool::Import::default()
        };
        self.administrator.pool_import(&call(), request)
    }

    /// Imports a pool as its checkpoint has it.
    ///
    /// # Errors
    /// The refusal of `zpool import --rewind-to-checkpoint`.
    pub fn import_rewound(&self, name: &str) -> Result<pool::Imported, Refusal> {
        let request = pool::Import {
            search: search(),
            pool: Some(name.to_string()),
            altroot: Some("/mounts".to_string()),
            force: true,
            rewinds_to_checkpoint: true,
            ..pool::Import::default()
        };
        self.administrator.pool_import(&call(), request)
    }

    /// Exports a pool.
    ///
    /// # Errors
    /// The refusal of `zpool export`.
    pub fn export(&self, name: &str, force: bool) -> Result<(), Refusal> {
        let name = name.to_string();
        let request = pool::Export { name, force };
        self.administrator.pool_export(&call(), request).map(|_| ())
    }

    /// Clears errors of a pool, and has it go on.
    ///
    /// # Errors
    /// The refusal of `zpool clear`.
    pub fn clear(&self, name: &str) -> Result<(), Refusal> {
        let name = name.to_string();
        let request = pool::Clear { name, device: None };
        self.administrator.pool_clear(&call(), request).map(|_| ())
    }

    /// Makes a file system.
    ///
    /// # Errors
    /// The refusal of `zfs create`.
    pub fn create_dataset(&self, name: &str) -> Result<(), Refusal> {
        let request = dataset::Create {
            name: name.to_string(),
            ..dataset::Create::default()
        };
        self.administrator
            .dataset_create(&call(), request)
            .map(|_| ())
    }

    /// What `zfs list` shows, and what it cannot show.
    ///
    /// # Errors
    /// The refusal of `zfs list`.
    pub fn list(&self) -> Result<dataset::Described, Refusal> {
        let request = dataset::Describe {
            kinds: vec![dataset::DatasetKind::Filesystem],
            ..dataset::Describe::default()
        };
        self.administrator.dataset_describe(&call(), request)
    }

    /// Stores all that was changed.
    ///
    /// # Errors
    /// The refusal of `zpool sync`.
    pub fn sync(&self) -> Result<(), Refusal> {
        let request = pool::Sync::default();
        self.administrator.pool_sync(&call(), request).map(|_| ())
    }

    /// What `zpool status` shows of a pool.
    ///
    /// # Errors
    /// The refusal of `zpool status`.
    pub fn status(&self, name: &str) -> Result<pool::PoolDescription, Refusal> {
        let request = pool::Describe {
            names: vec![name.to_string()],
            with_errors: true,
        };
        let mut described = self.administrator.pool_describe(&call(), request)?;
        Ok(described.pools.remove(0))
    }

    /// What is mounted, by dataset.
    pub fn trees(&self) -> Vec<(String, Arc<dyn Tree>)> {
        let mounted = self
            .shelf
            .trees
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let all = mounted.by_key.values();
        all.map(|one| (one.source.clone(), one.tree.clone()))
            .collect()
    }

    /// Ends all mounts as the system does it (`umount`), without asking the engine.
    pub fn end_mounts(&self) {
        let ended = {
            let mut mounted = self
                .shelf
                .trees
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut mounted.by_key)
        };
        for mount in ended.into_values() {
            (mount.ended)();
        }
    }

    /// The files of a mounted dataset.
    ///
    /// # Panics
    /// When it is not mounted.
    pub fn files(&self, dataset: &str) -> Files {
        let found = self.trees().into_iter().find(|(name, _)| name == dataset);
        let (_, tree) = found.expect("the dataset is mounted");
        Files::of(tree.files().clone())
    }
}

/// The user of all requests here: root.
pub fn call() -> Call {
    Call {
        command: "hostile".to_string(),
        ..Call::default()
    }
}

/// Where pools are looked for.
pub fn search() -> pool::Search {
    pool::Search {
        places: vec![DISKS.to_string()],
        ..pool::Search::default()
    }
}

/// The files of one dataset, for root.
pub struct Files {
    files: Arc<FileSystem>,
    root: Credentials,
}

impl Files {
    /// Those of this file system.
    pub fn of(files: Arc<FileSystem>) -> Files {
        let root = Credentials::root();
        Files { files, root }
    }

    /// The file system itself.
    pub fn system(&self) -> &Arc<FileSystem> {
        &self.files
    }

    /// Makes an empty file in the root directory.
    ///
    /// # Errors
    /// Why not.
    pub fn make(&self, name: &str) -> Result<ObjectId, PosixError> {
        let new = NewFile {
            kind: FileKind::Regular,
            permissions: 0o644,
            umask: 0,
            device: DeviceNumber::default(),
            target: None,
        };
        let parent = self.files.root();
        let made = self
            .files
            .create(&self.root, parent, name.as_bytes(), &new, &operation())?;
        Ok(made.id)
    }

    /// Writes at an offset.
    ///
    /// # Errors
    /// Why not.
    pub fn write(&self, file: ObjectId, offset: u64, bytes: &[u8]) -> Result<usize, PosixError> {
        let at = WriteAt::Offset(offset);
        self.files.write(&self.root, file, at, bytes, &operation())
    }

    /// Reads from an offset.
    ///
    /// # Errors
    /// Why not.
    pub fn read(&self, file: ObjectId, offset: u64, size: usize) -> Result<Vec<u8>, PosixError> {
        let data = self
            .files
            .read(&self.root, file, offset, size, &operation())?;
        Ok(data.to_vec())
    }

    /// The number of a file in the root directory.
    ///
    /// # Errors
    /// Why not.
    pub fn find(&self, name: &str) -> Result<ObjectId, PosixError> {
        let parent = self.files.root();
        let found = self
            .files
            .lookup(&self.root, parent, name.as_bytes(), &operation())?;
        Ok(found.id)
    }

    /// Removes a file from the root directory.
    ///
    /// # Errors
    /// Why not.
    pub fn unlink(&self, name: &str) -> Result<(), PosixError> {
        let parent = self.files.root();
        self.files
            .unlink(&self.root, parent, name.as_bytes(), &operation())
    }

    /// Gives a file of the root directory another name.
    ///
    /// # Errors
    /// Why not.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), PosixError> {
        let parent = self.files.root();
        let (from, to, mode) = (from.as_bytes(), to.as_bytes(), RenameMode::Replace);
        self.files
            .rename(&self.root, parent, from, parent, to, mode, &operation())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Why not.
    pub fn set_xattr(&self, file: ObjectId, name: &str, value: &[u8]) -> Result<(), PosixError> {
        let mode = XattrMode::Any;
        self.files
            .set_xattr(&self.root, file, name.as_bytes(), value, mode, &operation())
    }

    /// Cuts a file off, or extends it.
    ///
    /// # Errors
    /// Why not.
    pub fn resize(&self, file: ObjectId, size: u64) -> Result<(), PosixError> {
        let changes = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        let changed = self
            .files
            .set_attributes(&self.root, file, &changes, &operation());
        changed.map(|_| ())
    }

    /// Copies bytes from the start of a file to that of another, by references to its blocks where
    /// that is possible. Gives how many.
    ///
    /// # Errors
    /// Why not.
    pub fn copy(&self, from: ObjectId, to: ObjectId, length: u64) -> Result<u64, PosixError> {
        let (from, to) = ((from, 0), (to, 0));
        self.files
            .copy_range(&self.root, from, to, length, &operation())
    }

    /// Makes a range of a file a hole.
    ///
    /// # Errors
    /// Why not.
    pub fn punch(&self, file: ObjectId, offset: u64, length: u64) -> Result<(), PosixError> {
        let what = Allocate::PunchHole;
        self.files
            .allocate(&self.root, file, what, offset, length, &operation())
    }

    /// Waits until a file is stored.
    ///
    /// # Errors
    /// Why it is not.
    pub fn sync(&self, file: ObjectId) -> Result<(), PosixError> {
        self.files.sync(file, false, &operation())
    }
}

/// An operation that is not measured.
pub fn operation() -> Operation {
    Operation::unmeasured()
}

/// Bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = tarn_host::sim::Random::new(seed);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}
