//! A pool of one object set, on files, for the tests of objects: what `dataset` and `pool` do around a group, in a
//! few lines.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tarn_block::{
    BlockIo, BlockIoOptions, DatasetPolicy, Embedding, RedundantMetadata, Repair, WritePhase,
};
use tarn_cache::{Cache, CacheOptions, PoolCache};
use tarn_host::{Host, RealOptions};
use tarn_object::{
    BlockLedger, NewObjectSet, ObjectEnv, ObjectSet, Ownership, SetLedger, SetPolicy, SyncTx,
    TxEstimate, TxgLimits, Txgs, sync_objsets,
};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::label::{DATA_START_BYTES, data_size};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::{Guid, ObjectId, Txg, VdevId};
use tarn_probe::{Operation, Registry};
use tarn_space::{Class, Geometry, Space, SpaceOptions};
use tarn_transform::{ChecksumAlgorithm, CompressionAlgorithm, Salt};
use tarn_vdev::{OpenOptions, TopLevelConfig, VdevConfig, VdevKind, VdevTree};
use tempfile::TempDir;

const FILE_BYTES: u64 = 256 << 20;
const METASLAB_SHIFT: u32 = 24;
const ASHIFT: u32 = 12;

pub const SET: ObjectId = ObjectId::new(54);

pub const BLOCKS: DatasetPolicy = DatasetPolicy {
    checksum: ChecksumAlgorithm::Fletcher4,
    compression: CompressionAlgorithm::Lz4,
    metadata_compression: CompressionAlgorithm::Lz4,
    copies: 1,
    redundant_metadata: RedundantMetadata::All,
    special_small_blocks: 0,
    embedding: Embedding::Allowed,
};

/// What the ledger heard, and what it makes of it: everything killed is freed.
#[derive(Default)]
pub struct Ledger {
    pub killed: Vec<BlockPointer>,
    pub born: Vec<BlockPointer>,
}

impl BlockLedger for Ledger {
    fn born(&mut self, pointer: &BlockPointer) {
        self.born.push(*pointer);
    }

    fn killed(&mut self, pointer: &BlockPointer) {
        self.killed.push(*pointer);
    }
}

pub struct Pool {
    pub host: Host,
    pub io: Arc<BlockIo>,
    pub space: Arc<Space>,
    pub env: Arc<ObjectEnv>,
    pub operation: Operation,
    /// All pointers the set has, as the ledger knows: by place and birth.
    pub alive: BTreeMap<(u64, u64, u64), BlockPointer>,
    /// Bytes the set has, as the ledger counts.
    pub used: u64,
    folder: TempDir,
}

impl Pool {
    pub fn new() -> Pool {
        Pool::with_limits(TxgLimits::default())
    }

    pub fn with_limits(limits: TxgLimits) -> Pool {
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
        let io = Arc::new(BlockIo::new(
            host.clone(),
            vdevs,
            space.clone(),
            None,
            options,
        ));
        io.set_salt(Salt::new([7; 32]));
        let env = new_env(&host, &io, Txg::from(9), limits);
        Pool {
            host,
            io,
            space,
            env,
            operation: Operation::unmeasured(),
            alive: BTreeMap::new(),
            used: 0,
            folder,
        }
    }

    pub fn policy() -> SetPolicy {
        SetPolicy::new(BLOCKS)
    }

    /// Makes an empty file system, and stores it.
    pub fn create_set(&mut self, owner: Option<Arc<dyn Ownership>>) -> Arc<ObjectSet> {
        let new = NewObjectSet {
            objset_type: ObjsetType::Zfs,
            has_accounting: true,
            levels: 0,
        };
        self.create(new, owner)
    }

    pub fn create(
        &mut self,
        new: NewObjectSet,
        owner: Option<Arc<dyn Ownership>>,
    ) -> Arc<ObjectSet> {
        let mut tx = self.begin();
        let set = ObjectSet::create(self.env.clone(), SET, new, Pool::policy(), owner, &tx);
        self.store(&set, &mut tx);
        self.finish(tx);
        set
    }

    /// Closes the open group.
    pub fn begin(&self) -> SyncTx {
        let txg = self.env.txgs.quiesce();
        self.env.txgs.begin_sync(txg)
    }

    /// Closes the open group, to be stored later.
    pub fn begin_only(&self) -> Txg {
        self.env.txgs.quiesce()
    }

    /// One pass.
    pub fn store(&mut self, set: &Arc<ObjectSet>, tx: &mut SyncTx) {
        let mut ledger = Ledger::default();
        let mut sets = [SetLedger {
            set: set.clone(),
            ledger: &mut ledger,
        }];
        let roots = sync_objsets(&mut sets, tx, &self.io, &self.operation).unwrap();
        assert_eq!(roots, [set.root_pointer()]);
        let phase = WritePhase {
            txg: tx.txg(),
            pass: tx.pass(),
        };
        for pointer in ledger.born {
            self.used += self.io.deflated_size(&pointer).get();
            if let Some(key) = key_of(&pointer) {
                assert!(
                    self.alive.insert(key, pointer).is_none(),
                    "{pointer} is born once"
                );
            }
        }
        for pointer in ledger.killed {
            self.used -= self.io.deflated_size(&pointer).get();
            if let Some(key) = key_of(&pointer) {
                assert!(
                    self.alive.remove(&key).is_some(),
                    "{pointer} is killed once"
                );
                self.io.free(&pointer, phase, &self.operation).unwrap();
            }
        }
        tx.next_pass();
    }

    pub fn finish(&mut self, tx: SyncTx) {
        let txg = tx.txg();
        for pointer in self.io.take_deferred_frees() {
            let phase = WritePhase { txg, pass: 1 };
            self.io.free(&pointer, phase, &self.operation).unwrap();
        }
        let _ = self.space.take_changes(txg);
        self.space.txg_stored(txg);
        self.env.txgs.finish_sync(tx);
    }

    /// Stores what is open.
    pub fn sync(&mut self, set: &Arc<ObjectSet>) {
        let mut tx = self.begin();
        if set.is_dirty(tx.txg()) {
            self.store(set, &mut tx);
        }
        assert!(!set.is_dirty(tx.txg()), "one pass stores all");
        self.finish(tx);
    }

    pub fn tx(&self) -> tarn_object::OpenTx {
        self.env
            .txgs
            .assign(&TxEstimate::default(), &self.operation)
            .unwrap()
    }

    /// Who has nothing of the pool in memory.
    pub fn forgetful(&self) -> Arc<ObjectEnv> {
        let stored = self.env.txgs.stored_txg();
        new_env(&self.host, &self.io, stored, TxgLimits::default())
    }

    /// Turns the first bits of all copies of a block around, or back.
    pub fn flip(&self, pointer: &BlockPointer) {
        let path = self.folder.path().join("disk");
        let disk = File::options().read(true).write(true).open(path).unwrap();
        for dva in pointer.dvas() {
            let at = DATA_START_BYTES + dva.offset().get();
            let mut bytes = [0; 8];
            disk.read_exact_at(&mut bytes, at).unwrap();
            disk.write_all_at(&bytes.map(|byte| !byte), at).unwrap();
        }
    }

    /// The set as somebody finds it who has nothing in memory.
    pub fn reopen(&self, set: &ObjectSet, owner: Option<Arc<dyn Ownership>>) -> Arc<ObjectSet> {
        let root = set.root_pointer();
        ObjectSet::open(
            self.forgetful(),
            SET,
            &root,
            Pool::policy(),
            owner,
            &self.operation,
        )
        .unwrap()
    }
}

fn new_env(host: &Host, io: &Arc<BlockIo>, stored: Txg, limits: TxgLimits) -> Arc<ObjectEnv> {
    let options = CacheOptions {
        budget_bytes: 16 << 20,
        ..CacheOptions::default()
    };
    let cache = Cache::new(host, options, &Registry::default());
    let cache = PoolCache::new(cache, io.clone());
    ObjectEnv::new(host.clone(), cache, Txgs::new(stored, limits))
}

fn key_of(pointer: &BlockPointer) -> Option<(u64, u64, u64)> {
    let dva = pointer.dvas().next()?;
    Some((
        dva.vdev().get(),
        dva.offset().get(),
        pointer.physical_birth().get(),
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

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let seed = self.throw(256);
        match self.throw(3) {
            0 => vec![u8::try_from(seed).unwrap(); count],
            1 => vec![0; count],
            _ => (0..count)
                .map(|_| u8::try_from(self.throw(256)).unwrap())
                .collect(),
        }
    }
}
