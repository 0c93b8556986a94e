//! A pool of one file system, on a file, for the tests of files: what `dataset` and `pool` do
//! around a group, in a few lines, by a thread that stores groups whenever another thread waits for
//! one.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod files;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tarn_block::{
    BlockIo, BlockIoOptions, DatasetPolicy, Embedding, RedundantMetadata, RefTable, Release,
    Repair, WritePhase,
};
use tarn_cache::{Cache, CacheOptions, PoolCache};
use tarn_dataset::space_door::SpaceDoor;
use tarn_host::{Host, RealOptions};
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{
    BlockLedger, NewObject, NewObjectSet, ObjectEnv, ObjectSet, SetLedger, SetPolicy, SyncTx, Tx,
    TxEstimate, TxgLimits, Txgs, Wake, sync_objsets,
};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::label::data_size;
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, Txg, VdevId};
use tarn_ondisk::znode::{MASTER_NODE, master};
use tarn_posix::properties::MountProperties;
use tarn_posix::types::{Attributes, Credentials, DeviceNumber, DirectoryEntry, FileKind, NewFile};
use tarn_posix::{
    FileOwnership, FileSystem, FileSystemParts, NewFileSystem, PosixError, Unlinked,
    create_filesystem,
};
use tarn_probe::{Operation, Registry};
use tarn_space::{Class, Geometry, Space, SpaceOptions};
use tarn_transform::{ChecksumAlgorithm, CompressionAlgorithm, Salt};
use tarn_vdev::{OpenOptions, TopLevelConfig, VdevConfig, VdevKind, VdevTree};
use tarn_zil::{Durability, IntentLog};
use tempfile::TempDir;

const FILE_BYTES: u64 = 512 << 20;
const METASLAB_SHIFT: u32 = 24;
const ASHIFT: u32 = 12;
const SET: ObjectId = ObjectId::new(54);

const BLOCKS: DatasetPolicy = DatasetPolicy {
    checksum: ChecksumAlgorithm::Fletcher4,
    compression: CompressionAlgorithm::Lz4,
    metadata_compression: CompressionAlgorithm::Lz4,
    copies: 1,
    redundant_metadata: RedundantMetadata::All,
    special_small_blocks: 0,
    embedding: Embedding::Allowed,
};

#[derive(Default)]
struct Ledger {
    killed: Vec<BlockPointer>,
    born: Vec<BlockPointer>,
}

impl BlockLedger for Ledger {
    fn born(&mut self, pointer: &BlockPointer) {
        self.born.push(*pointer);
    }

    fn killed(&mut self, pointer: &BlockPointer) {
        self.killed.push(*pointer);
    }
}

/// Where a block is, when it was written, and since when the file system has it.
type Place = (u64, u64, u64, u64);

/// The references to blocks that were cloned, in memory.
#[derive(Default)]
struct References {
    added: Mutex<BTreeMap<Txg, Vec<BlockPointer>>>,
    counts: Mutex<BTreeMap<(u64, u64), u64>>,
}

impl References {
    fn enter(&self, txg: Txg) {
        let added = self.added.lock().unwrap().remove(&txg);
        for pointer in added.into_iter().flatten() {
            *self
                .counts
                .lock()
                .unwrap()
                .entry(name_of(&pointer))
                .or_default() += 1;
        }
    }
}

impl RefTable for References {
    fn is_enabled(&self) -> bool {
        true
    }

    fn add(&self, pointer: &BlockPointer, _: AllocatedSize, txg: Txg) {
        let mut added = self.added.lock().unwrap();
        added.entry(txg).or_default().push(*pointer);
    }

    fn release(
        &self,
        pointer: &BlockPointer,
        _: AllocatedSize,
        _: &Operation,
    ) -> Result<Release, Box<dyn std::error::Error + Send + Sync>> {
        let mut counts = self.counts.lock().unwrap();
        let name = name_of(pointer);
        let Some(count) = counts.get_mut(&name) else {
            return Ok(Release::Last);
        };
        *count -= 1;
        if *count == 0 {
            counts.remove(&name);
        }
        Ok(Release::Shared)
    }
}

fn name_of(pointer: &BlockPointer) -> (u64, u64) {
    let dva = pointer.dvas().next().unwrap();
    (dva.vdev().get(), dva.offset().get())
}

/// What stores groups.
struct Storage {
    host: Host,
    io: Arc<BlockIo>,
    space: Arc<Space>,
    txgs: Arc<Txgs>,
    /// All blocks the set has, as the ledger heard, and how often.
    alive: Mutex<BTreeMap<Place, u64>>,
    references: Arc<References>,
    cache: PoolCache,
    folder: TempDir,
}

impl Storage {
    fn store(&self, set: &Arc<ObjectSet>, tx: &mut SyncTx) {
        let operation = Operation::unmeasured();
        let mut ledger = Ledger::default();
        let mut sets = [SetLedger {
            set: set.clone(),
            ledger: &mut ledger,
        }];
        sync_objsets(&mut sets, tx, &self.io, &operation).unwrap();
        let phase = WritePhase {
            txg: tx.txg(),
            pass: tx.pass(),
        };
        let mut alive = self.alive.lock().unwrap();
        for pointer in ledger.born {
            if let Some(key) = key_of(&pointer) {
                let is_clone = pointer.physical_birth() != pointer.logical_birth;
                let count = alive.entry(key).or_default();
                *count += 1;
                assert!(*count == 1 || is_clone, "{pointer} is born once");
            }
        }
        for pointer in ledger.killed {
            if let Some(key) = key_of(&pointer) {
                let count = alive.get_mut(&key);
                let count = count.unwrap_or_else(|| panic!("{pointer} is killed once"));
                *count -= 1;
                if *count == 0 {
                    alive.remove(&key);
                }
                self.io.free(&pointer, phase, &operation).unwrap();
            }
        }
        tx.next_pass();
    }

    fn store_group(&self) {
        let txg = self.txgs.quiesce();
        let mut tx = self.txgs.begin_sync(txg);
        self.references.enter(txg);
        for set in self.txgs.dirty_sets(txg) {
            self.store(&set, &mut tx);
        }
        self.finish(tx);
    }

    fn finish(&self, tx: SyncTx) {
        let txg = tx.txg();
        for pointer in self.io.take_deferred_frees() {
            let phase = WritePhase { txg, pass: 1 };
            self.io
                .free(&pointer, phase, &Operation::unmeasured())
                .unwrap();
        }
        let _ = self.space.take_changes(txg);
        self.space.txg_stored(txg);
        self.txgs.finish_sync(tx);
    }
}

/// One file system in a pool of its own.
pub struct Mounted {
    pub files: Arc<FileSystem>,
    pub operation: Operation,
    storage: Arc<Storage>,
    thread: Option<JoinHandle<()>>,
}

impl Mounted {
    pub fn new() -> Mounted {
        Mounted::with(NewFileSystem::default(), MountProperties::default())
    }

    pub fn with(new: NewFileSystem, properties: MountProperties) -> Mounted {
        Mounted::with_space(new, properties, SpaceDoor::unlimited())
    }

    pub fn with_space(
        new: NewFileSystem,
        properties: MountProperties,
        space_door: SpaceDoor,
    ) -> Mounted {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::real(RealOptions::from_environment().unwrap());
        let space = Arc::new(Space::new(SpaceOptions::default()));
        let size = data_size(FILE_BYTES)
            .unwrap()
            .round_down(1 << METASLAB_SHIFT);
        let geometry = Geometry {
            size,
            metaslab_shift: METASLAB_SHIFT,
            ashift: ASHIFT,
            class: Class::Normal,
        };
        space.add_vdev(VdevId::new(0), geometry, Vec::new());
        let vdevs = open_vdevs(&host, &folder);
        let options = BlockIoOptions {
            repair: Repair::Rewrite,
            ..BlockIoOptions::default()
        };
        let references = Arc::new(References::default());
        let io = Arc::new(BlockIo::new(
            host.clone(),
            vdevs,
            space.clone(),
            Some(references.clone()),
            options,
        ));
        io.set_salt(Salt::new([7; 32]));
        let env = new_env(&host, &io, Txg::from(9));
        let storage = Arc::new(Storage {
            host,
            io,
            space,
            txgs: env.txgs.clone(),
            alive: Mutex::default(),
            references,
            cache: env.cache.clone(),
            folder,
        });
        let set = create_set(&storage, &env, &new);
        Mounted::open(storage, &set, properties, space_door)
    }

    fn open(
        storage: Arc<Storage>,
        set: &Arc<ObjectSet>,
        properties: MountProperties,
        space: SpaceDoor,
    ) -> Mounted {
        let storer = storage.clone();
        let thread = std::thread::spawn(move || {
            while storer.txgs.wait_for_work() != Wake::Stopped {
                storer.store_group();
            }
        });
        let operation = Operation::unmeasured();
        let parts = FileSystemParts {
            set: set.clone(),
            txgs: Some(storage.txgs.clone()),
            log: Some(IntentLog::new(set.clone(), Durability::ByGroup)),
            properties,
            host: storage.host.clone(),
            space,
            snapshots: None,
            unlinked: Unlinked::Freed,
        };
        let files = FileSystem::open(parts, &operation).unwrap();
        Mounted {
            files,
            operation,
            storage,
            thread: Some(thread),
        }
    }

    /// The same file system after everything was stored, as a mount finds it that has nothing in
    /// memory.
    pub fn remounted(mut self) -> Mounted {
        self.files.sync_all(&self.operation).unwrap();
        self.crashed()
    }

    /// The same file system as it was stored last.
    pub fn crashed(&mut self) -> Mounted {
        self.stop();
        let properties = *self.files.properties();
        let root = self.files.object_set().root_pointer();
        let old = &self.storage;
        let env = new_env(&old.host, &old.io, old.txgs.stored_txg());
        let storage = Arc::new(Storage {
            host: old.host.clone(),
            io: old.io.clone(),
            space: old.space.clone(),
            txgs: env.txgs.clone(),
            alive: Mutex::new(std::mem::take(&mut *old.alive.lock().unwrap())),
            references: old.references.clone(),
            cache: env.cache.clone(),
            folder: tempfile::tempdir().unwrap(),
        });
        let owner = Some(Arc::new(FileOwnership) as Arc<_>);
        let policy = SetPolicy::new(BLOCKS);
        let set = ObjectSet::open(env, SET, &root, policy, owner, &self.operation).unwrap();
        Mounted::open(storage, &set, properties, SpaceDoor::unlimited())
    }

    /// Forgets what was read: the next reads go to the disk.
    pub fn forget_cache(&self) {
        self.storage.cache.forget_all();
    }

    /// Changes what is stored by hand, in a transaction, as others may have left it.
    pub fn change(&self, change: impl FnOnce(&Arc<ObjectSet>, &Tx)) {
        let estimate = TxEstimate::writing(1 << 20);
        let tx = self
            .storage
            .txgs
            .assign(&estimate, &self.operation)
            .unwrap();
        change(self.files.object_set(), &tx);
    }

    /// The same file system raised to the newest version, as `zfs upgrade` does that.
    pub fn upgraded(self) -> Mounted {
        self.change(|set, tx| {
            let master = set.object(MASTER_NODE, &self.operation).unwrap();
            let zap = ObjectZap::of(&master, &self.operation);
            let version = ZapValue::word(NewFileSystem::default().version);
            zap.update(tx, master::VERSION, &version).unwrap();
            let (new, new_zap) = (
                NewObject::plain(ObjectType::SaMasterNode, 0),
                NewZap::micro(set),
            );
            let attributes = ObjectZap::allocate(set, tx, new, new_zap, &self.operation).unwrap();
            let attributes = ZapValue::word(attributes.object().id().get());
            zap.insert(tx, master::ATTRIBUTES, &attributes).unwrap();
        });
        self.remounted()
    }

    pub fn sync(&self) {
        self.files.sync_all(&self.operation).unwrap();
    }

    fn stop(&mut self) {
        self.storage.txgs.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub fn root(&self) -> ObjectId {
        self.files.root()
    }

    pub fn make(
        &self,
        who: &Credentials,
        parent: ObjectId,
        name: &str,
        kind: FileKind,
        permissions: u32,
    ) -> Result<Attributes, PosixError> {
        let new = NewFile {
            kind,
            permissions,
            umask: 0,
            device: DeviceNumber::default(),
            target: None,
        };
        self.files
            .create(who, parent, name.as_bytes(), &new, &self.operation)
    }

    /// The contents from an offset on.
    pub fn contents_end(&self, id: ObjectId, offset: u64) -> Vec<u8> {
        let read = self.files.read(
            &Credentials::root(),
            id,
            offset,
            usize::MAX,
            &self.operation,
        );
        read.unwrap().to_vec()
    }

    pub fn contents(&self, id: ObjectId) -> Vec<u8> {
        let read = self
            .files
            .read(&Credentials::root(), id, 0, usize::MAX, &self.operation);
        read.unwrap().to_vec()
    }
}

impl Mounted {
    /// The numbers of all objects that are stored.
    pub fn objects(&self) -> Vec<u64> {
        self.sync();
        let set = self.files.object_set();
        let mut found = Vec::new();
        let mut at = ObjectId::ZERO;
        while let Some(id) = set.next_object(at, &self.operation).unwrap() {
            found.push(id.get());
            at = id;
        }
        found
    }

    /// Damages each sector of the disk in which these bytes are, and forgets what was read. How
    /// many there were.
    pub fn damage(&self, bytes: &[u8]) -> usize {
        const SECTOR: usize = 1 << ASHIFT;
        let path = self.storage.folder.path().join("disk");
        let disk = File::options().read(true).write(true).open(path).unwrap();
        let (mut sector, mut count) = (vec![0; SECTOR], 0);
        for at in (0..FILE_BYTES).step_by(SECTOR) {
            disk.read_exact_at(&mut sector, at).unwrap();
            let is_empty = sector == [0; SECTOR];
            if !is_empty && sector.windows(bytes.len()).any(|window| window == bytes) {
                disk.write_all_at(&[0xdb; SECTOR], at).unwrap();
                count += 1;
            }
        }
        self.storage.cache.forget_all();
        count
    }

    /// How many blocks the file system has.
    pub fn block_count(&self) -> usize {
        self.sync();
        self.storage.alive.lock().unwrap().len()
    }

    /// How many bytes are allocated.
    pub fn allocated_bytes(&self) -> u64 {
        self.sync();
        self.storage
            .space
            .class_totals(Class::Normal)
            .allocated
            .get()
    }

    /// How many references to blocks there are beyond the first to each.
    pub fn further_references(&self) -> u64 {
        self.sync();
        self.storage
            .references
            .counts
            .lock()
            .unwrap()
            .values()
            .sum()
    }

    /// The names in a directory, sorted, without `.` and `..`.
    pub fn names(&self, id: ObjectId) -> Vec<(Vec<u8>, ObjectId, FileKind)> {
        let mut found = Vec::new();
        let mut take = |entry: DirectoryEntry| {
            if entry.name != b"." && entry.name != b".." {
                found.push((entry.name, entry.id, entry.kind));
            }
            true
        };
        let root = Credentials::root();
        self.files
            .read_directory(&root, id, 0, &mut take, &self.operation)
            .unwrap();
        found.sort();
        found
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A user that is not root, and in no group but the user's own.
pub fn someone(uid: u32) -> Credentials {
    Credentials::user(uid, uid, Vec::new())
}

fn create_set(storage: &Storage, env: &Arc<ObjectEnv>, new: &NewFileSystem) -> Arc<ObjectSet> {
    let txg = storage.txgs.quiesce();
    let mut tx = storage.txgs.begin_sync(txg);
    let new_set = NewObjectSet {
        objset_type: ObjsetType::Zfs,
        has_accounting: true,
        levels: 0,
    };
    let owner = Some(Arc::new(FileOwnership) as Arc<_>);
    let policy = SetPolicy::new(BLOCKS);
    let set = ObjectSet::create(env.clone(), SET, new_set, policy, owner, &tx);
    create_filesystem(&tx, &set, new, &Operation::unmeasured()).unwrap();
    storage.store(&set, &mut tx);
    storage.finish(tx);
    set
}

fn new_env(host: &Host, io: &Arc<BlockIo>, stored: Txg) -> Arc<ObjectEnv> {
    let options = CacheOptions {
        budget_bytes: 16 << 20,
        ..CacheOptions::default()
    };
    let cache = Cache::new(host, options, &Registry::default());
    let cache = PoolCache::new(cache, io.clone());
    ObjectEnv::new(host.clone(), cache, Txgs::new(stored, TxgLimits::default()))
}

fn key_of(pointer: &BlockPointer) -> Option<Place> {
    let dva = pointer.dvas().next()?;
    Some((
        dva.vdev().get(),
        dva.offset().get(),
        pointer.physical_birth().get(),
        pointer.logical_birth.get(),
    ))
}

fn open_vdevs(host: &Host, folder: &TempDir) -> Arc<VdevTree> {
    let mut root = VdevConfig::new(VdevKind::Root, Guid::new(4711));
    let path = folder.path().join("disk");
    File::create(&path).unwrap().set_len(FILE_BYTES).unwrap();
    let mut leaf = VdevConfig::new(VdevKind::File, Guid::new(100));
    leaf.path = Some(Text::from(path.to_str().unwrap()));
    leaf.top_level = Some(TopLevelConfig {
        metaslab_array: ObjectId::ZERO,
        metaslab_shift: METASLAB_SHIFT,
        ashift: ASHIFT,
        asize: data_size(FILE_BYTES).unwrap(),
        is_log: false,
        non_allocating: false,
        removing: false,
    });
    root.children.push(leaf);
    root.number_children();
    VdevTree::open(host, &root, &OpenOptions::new_pool()).unwrap()
}

/// Numbers that look random.
pub struct Dice(pub u64);

impl Dice {
    pub fn throw(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}
