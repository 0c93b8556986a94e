//! A pool of one object set with an intent log, on simulated disks: what `dataset` and `pool` do
//! around a group, in a few lines. What the uberblock and space maps would say is kept beside, so
//! that it survives a power cut as they do.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use tarn_block::{
    BlockIo, BlockIoOptions, BlockScope, DatasetPolicy, Embedding, RedundantMetadata, Repair,
    WritePhase,
};
use tarn_cache::{Cache, CacheOptions, PoolCache};
use tarn_host::{Host, OpenMode, SimHost, SimOptions};
use tarn_object::{
    BlockLedger, NewObjectSet, ObjectEnv, ObjectError, ObjectSet, OpenTx, SetLedger, SetPolicy,
    SyncTx, Tx, TxEstimate, TxgLimits, Txgs, Wake, read_head, sync_objsets,
};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::intent_log::{LogBlock, LogForm, LogRecord, LoggedChange, LoggedWrite};
use tarn_ondisk::label::data_size;
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::{Guid, ObjectId, Txg, VdevId};
use tarn_probe::{Operation, Registry};
use tarn_space::{Class, Geometry, Space, SpaceOptions};
use tarn_transform::{ChecksumAlgorithm, CompressionAlgorithm, Salt};
use tarn_vdev::{OpenOptions, TopLevelConfig, VdevConfig, VdevKind, VdevTree};
use tarn_zil::{
    Contents, Durability, Fetched, IntentLog, IntentRecord, LogSource, PlacedWrites, WholeBlocks,
};

const DISK_BYTES: u64 = 256 << 20;
const METASLAB_SHIFT: u32 = 24;
const ASHIFT: u32 = 12;
/// As the locks of files are.
const MARKS: tarn_host::Rank = tarn_host::Rank::new(tarn_host::ranks::POSIX, "marks");
pub const SET: ObjectId = ObjectId::new(54);

const BLOCKS: DatasetPolicy = DatasetPolicy {
    checksum: ChecksumAlgorithm::Fletcher4,
    compression: CompressionAlgorithm::Lz4,
    metadata_compression: CompressionAlgorithm::Lz4,
    copies: 1,
    redundant_metadata: RedundantMetadata::All,
    special_small_blocks: 0,
    embedding: Embedding::Allowed,
};

/// What a disk has of a pool's bookkeeping, as of the newest stored group.
#[derive(Clone)]
pub struct Durable {
    pub stored: Txg,
    pub root: BlockPointer,
    /// Places that space maps call allocated.
    pub allocated: BTreeSet<(u64, u64)>,
    /// Places of the object set's own blocks.
    pub alive: BTreeSet<(u64, u64)>,
}

/// What clients were told.
#[derive(Default)]
pub struct Told {
    pub durable: Option<Durable>,
    /// Records by their mark: the group, and the file whose they are.
    pub made: BTreeMap<u64, (Txg, Option<ObjectId>)>,
    /// Marks that were acknowledged as durable.
    pub acknowledged: BTreeSet<u64>,
}

/// Survives power cuts.
pub type Memory = Arc<Mutex<Told>>;

pub fn told(memory: &Memory) -> MutexGuard<'_, Told> {
    memory
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A machine with so many disks, which will be one mirror.
pub fn machine(seed: u64, disks: u64) -> SimHost {
    let machine = SimHost::new(SimOptions::seed(seed));
    for number in 0..disks {
        machine.add_disk(path(number), DISK_BYTES);
    }
    machine
}

pub fn path(number: u64) -> String {
    format!("/disks/{number}")
}

fn config(disks: u64) -> VdevConfig {
    let leaves = (0..disks).map(|number| {
        let mut leaf = VdevConfig::new(VdevKind::File, Guid::from(100 + number));
        leaf.path = Some(Text::from(path(number)));
        leaf
    });
    let mut leaves: Vec<VdevConfig> = leaves.collect();
    let mut top = if disks == 1 {
        leaves.remove(0)
    } else {
        let mut mirror = VdevConfig::new(VdevKind::Mirror, Guid::new(1000));
        mirror.children = leaves;
        mirror
    };
    top.top_level = Some(TopLevelConfig {
        metaslab_array: ObjectId::ZERO,
        metaslab_shift: METASLAB_SHIFT,
        ashift: ASHIFT,
        asize: data_size(DISK_BYTES).unwrap(),
        is_log: false,
        non_allocating: false,
        removing: false,
    });
    let mut root = VdevConfig::new(VdevKind::Root, Guid::new(4711));
    root.children.push(top);
    root.number_children();
    root
}

fn block_io(host: &Host, disks: u64, space: &Arc<Space>, mode: OpenMode) -> Arc<BlockIo> {
    let open = OpenOptions {
        mode,
        ..OpenOptions::new_pool()
    };
    let vdevs = VdevTree::open(host, &config(disks), &open).unwrap();
    let options = BlockIoOptions {
        repair: Repair::Leave,
        ..BlockIoOptions::default()
    };
    let io = BlockIo::new(host.clone(), vdevs, space.clone(), None, options);
    io.set_salt(Salt::new([7; 32]));
    Arc::new(io)
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

/// All sectors of a block.
pub fn sectors_of(pointer: &BlockPointer) -> impl Iterator<Item = (u64, u64)> {
    let dvas: Vec<_> = pointer.dvas().collect();
    dvas.into_iter().flat_map(|dva| {
        let sectors = (0..dva.allocated_size().get()).step_by(1 << ASHIFT);
        sectors.map(move |at| (dva.vdev().get(), dva.offset().get() + at))
    })
}

/// An open pool.
pub struct World {
    pub host: Host,
    pub io: Arc<BlockIo>,
    pub space: Arc<Space>,
    pub env: Arc<ObjectEnv>,
    pub set: Arc<ObjectSet>,
    pub log: Arc<IntentLog>,
    pub memory: Memory,
    next_mark: tarn_host::Mutex<u64>,
    alive: Mutex<BTreeSet<(u64, u64)>>,
    allocated: Mutex<BTreeSet<(u64, u64)>>,
}

impl World {
    /// Makes a pool, and stores its first group.
    pub fn create(host: &Host, disks: u64, memory: &Memory) -> Arc<World> {
        let space = Arc::new(Space::new(SpaceOptions::default()));
        let size = data_size(DISK_BYTES)
            .unwrap()
            .round_down(1 << METASLAB_SHIFT);
        let geometry = Geometry {
            size,
            metaslab_shift: METASLAB_SHIFT,
            ashift: ASHIFT,
            class: Class::Normal,
        };
        space.add_vdev(VdevId::new(0), geometry, Vec::new());
        let io = block_io(host, disks, &space, OpenMode::ReadWriteExclusive);
        let env = new_env(host, &io, Txg::from(9));
        let txg = env.txgs.quiesce();
        let mut tx = env.txgs.begin_sync(txg);
        let new = NewObjectSet {
            objset_type: ObjsetType::Zfs,
            has_accounting: true,
            levels: 0,
        };
        let policy = SetPolicy::new(BLOCKS);
        let set = ObjectSet::create(env.clone(), SET, new, policy, None, &tx);
        let log = IntentLog::new(set.clone(), Durability::ByLog);
        let world = Arc::new(World {
            host: host.clone(),
            io,
            space,
            env,
            set,
            log,
            memory: memory.clone(),
            next_mark: tarn_host::Mutex::new(MARKS, 0),
            alive: Mutex::default(),
            allocated: Mutex::default(),
        });
        world.store(&mut tx);
        world.finish(tx);
        world
    }

    /// Stores groups whenever a caller waits for one, in a thread of its own.
    pub fn spawn_storer(self: &Arc<World>) -> tarn_host::JoinHandle<()> {
        let world = self.clone();
        self.host.spawn("storer", move || {
            while world.env.txgs.wait_for_work() != Wake::Stopped {
                world.store_group();
            }
        })
    }

    pub fn store_group(&self) {
        let txg = self.env.txgs.quiesce();
        let mut tx = self.env.txgs.begin_sync(txg);
        if self.set.is_dirty(txg) {
            self.log.sync(&tx, &Operation::unmeasured()).unwrap();
            self.store(&mut tx);
        }
        self.finish(tx);
        self.log.stored(txg);
    }

    fn store(&self, tx: &mut SyncTx) {
        let operation = Operation::unmeasured();
        let mut ledger = Ledger::default();
        let mut sets = [SetLedger {
            set: self.set.clone(),
            ledger: &mut ledger,
        }];
        sync_objsets(&mut sets, tx, &self.io, &operation).unwrap();
        let phase = WritePhase {
            txg: tx.txg(),
            pass: tx.pass(),
        };
        self.alive
            .lock()
            .unwrap()
            .extend(ledger.born.iter().flat_map(sectors_of));
        for pointer in &ledger.killed {
            for sector in sectors_of(pointer) {
                assert!(self.alive.lock().unwrap().remove(&sector));
            }
            self.io.free(pointer, phase, &operation).unwrap();
        }
    }

    fn finish(&self, tx: SyncTx) {
        let operation = Operation::unmeasured();
        let txg = tx.txg();
        assert!(self.io.take_deferred_frees().is_empty());
        let step = 1 << ASHIFT;
        for changes in self.space.take_changes(txg) {
            let sectors = |range: &tarn_space::range_tree::Range| {
                let (start, size) = (range.start.get(), range.size.get());
                (start..start + size).step_by(step)
            };
            let vdev = changes.vdev.get();
            let mut allocated = self.allocated.lock().unwrap();
            for sector in changes.allocated.iter().flat_map(sectors) {
                assert!(allocated.insert((vdev, sector)), "handed out twice");
            }
            for sector in changes.freed.iter().flat_map(sectors) {
                assert!(allocated.remove(&(vdev, sector)), "freed twice");
            }
        }
        self.io.vdevs().flush(&operation).unwrap();
        // From here on this group is the pool.
        told(&self.memory).durable = Some(Durable {
            stored: txg,
            root: self.set.root_pointer(),
            allocated: self.allocated.lock().unwrap().clone(),
            alive: self.alive.lock().unwrap().clone(),
        });
        self.space.txg_stored(txg);
        self.env.txgs.finish_sync(tx);
    }

    pub fn tx(&self) -> OpenTx {
        let estimate = TxEstimate::default();
        self.env
            .txgs
            .assign(&estimate, &Operation::unmeasured())
            .unwrap()
    }

    /// Makes a change, and gives back the mark by which it is known. Marks are in the order of
    /// changes.
    pub fn change(&self, object: Option<ObjectId>) -> u64 {
        let tx = self.tx();
        let mut next = self.next_mark.lock();
        *next += 1;
        let mark = *next;
        told(&self.memory).made.insert(mark, (tx.txg(), object));
        let change = match object {
            Some(object) => LoggedChange::Truncate {
                object,
                offset: mark,
                length: 0,
            },
            None => LoggedChange::Remove {
                directory: ObjectId::new(34),
                name: Text::from(mark.to_string()),
            },
        };
        let record = IntentRecord {
            change,
            object,
            contents: Contents::InRecord,
        };
        self.log.record(&tx, record);
        mark
    }

    /// Makes this change of a file, and gives back its group.
    pub fn change_as(&self, object: ObjectId, change: LoggedChange) -> Txg {
        let tx = self.tx();
        let record = IntentRecord {
            change,
            object: Some(object),
            contents: Contents::InRecord,
        };
        self.log.record(&tx, record);
        tx.txg()
    }

    /// Makes a write whose bytes are fetched later.
    pub fn write(&self, object: ObjectId, offset: u64, length: u64) {
        self.write_record(&self.tx(), object, offset, length);
    }

    /// The record of a write whose bytes are fetched later.
    pub fn write_record(&self, tx: &Tx, object: ObjectId, offset: u64, length: u64) {
        let write = LoggedWrite {
            is_stored_already: false,
            object,
            offset,
            length,
            block_offset: 0,
            pointer: BlockPointer::HOLE,
            data: None,
        };
        let record = IntentRecord {
            change: LoggedChange::Write(Box::new(write)),
            object: Some(object),
            contents: Contents::Fetch { generation: 0 },
        };
        self.log.record(tx, record);
    }

    pub fn commit(&self, object: Option<ObjectId>) {
        self.log.commit(object, &Operation::unmeasured()).unwrap();
    }
}

/// The bytes that each file has at an offset.
pub fn byte_at(object: ObjectId, offset: u64) -> u8 {
    u8::try_from((object.get().wrapping_mul(31) + offset / 7) % 251).unwrap()
}

/// Files that have bytes by a rule, and one that is gone.
pub struct Files;

pub const GONE: ObjectId = ObjectId::new(999);

/// A file that ends at [`SHORTENED_BYTES`] now, and was longer when it was written.
pub const SHORTENED: ObjectId = ObjectId::new(998);
/// Where [`SHORTENED`] ends.
pub const SHORTENED_BYTES: u64 = 1000;

impl LogSource for Files {
    fn contents(
        &self,
        write: &LoggedWrite,
        _: u64,
        _operation: &Operation,
    ) -> Result<Fetched, ObjectError> {
        if write.object == GONE {
            return Ok(Fetched::Gone);
        }
        let range = write.offset..write.offset + write.length;
        let bytes = range.map(|at| byte_at(write.object, at)).collect();
        Ok(match write.object == SHORTENED {
            true => Fetched::Shortened {
                bytes,
                size_bytes: SHORTENED_BYTES,
            },
            false => Fetched::Bytes(bytes),
        })
    }

    fn place(
        &self,
        _: &LoggedWrite,
        _: u64,
        _: WholeBlocks,
        _: &Tx,
        _: &Operation,
    ) -> Option<PlacedWrites> {
        None
    }
}

/// What the disk has of a log: its records, and the places of its blocks; as it is found with
/// nothing in memory.
pub struct Found {
    pub records: Vec<LogRecord>,
    pub blocks: Vec<BlockPointer>,
    /// In which of the blocks each record is.
    pub block_of: Vec<usize>,
}

/// A file as the stored set has it, with the writes that the log adds. Gives, too, how many blocks
/// these lead to.
pub fn replayed_file(host: &Host, memory: &Memory, file: ObjectId) -> (Vec<u8>, usize) {
    let durable = told(memory).durable.clone().unwrap();
    let found = read_log(host, 1, &durable);
    let space = Arc::new(Space::new(SpaceOptions::default()));
    let io = block_io(host, 1, &space, OpenMode::ReadOnly);
    let env = new_env(host, &io, durable.stored);
    let operation = Operation::unmeasured();
    let set = ObjectSet::open(
        env,
        SET,
        &durable.root,
        SetPolicy::new(BLOCKS),
        None,
        &operation,
    );
    let mut contents = Vec::new();
    if let Ok(object) = set.unwrap().object(file, &operation) {
        let blocks = object.max_block().get() + 1;
        let size = blocks * object.block_size().get();
        contents.resize(usize::try_from(size).unwrap(), 0);
        object.read(0, &mut contents, &operation).unwrap();
    }
    let mut led_to = 0;
    for record in found.records {
        let LoggedChange::Write(write) = record.change else {
            continue;
        };
        if record.txg <= durable.stored {
            continue;
        }
        let (offset, bytes) = match &write.data {
            Some(data) => (write.offset, data.clone()),
            None => {
                // A block of the log can be on the disk before one that it leads to: no `fsync`
                // returned for it, and the log ends there.
                let (object, offset) = (write.object, write.offset);
                let scope = BlockScope::of_logged_write(SET, object, offset, &write.pointer);
                let Ok(block) = io.read(&write.pointer, scope, &operation) else {
                    break;
                };
                led_to += 1;
                let size = u64::try_from(block.len()).unwrap();
                (write.offset - write.offset % size, block.to_vec())
            }
        };
        let start = usize::try_from(offset).unwrap();
        let end = start + bytes.len();
        contents.resize(contents.len().max(end), 0);
        contents[start..end].copy_from_slice(&bytes);
    }
    (contents, led_to)
}

/// Walks the log of the stored set.
pub fn read_log(host: &Host, disks: u64, durable: &Durable) -> Found {
    let space = Arc::new(Space::new(SpaceOptions::default()));
    let io = block_io(host, disks, &space, OpenMode::ReadOnly);
    let env = new_env(host, &io, durable.stored);
    let operation = Operation::unmeasured();
    let head = read_head(&env.cache, SET, &durable.root, &operation).unwrap();
    let mut found = Found {
        records: Vec::new(),
        blocks: Vec::new(),
        block_of: Vec::new(),
    };
    let mut next = head.intent_log.first;
    while !next.is_hole() {
        found.blocks.push(next);
        let Ok(contents) = io.read(&next, BlockScope::of_log_block(&next), &operation) else {
            break;
        };
        let block = LogBlock::decode(&contents, LogForm::Zilog2).unwrap();
        for record in block.records() {
            found.records.push(record.unwrap());
            found.block_of.push(found.blocks.len() - 1);
        }
        next = block.chain.next;
    }
    found
}

/// The mark of a change made by [`World::change`].
pub fn mark_of(record: &LogRecord) -> Option<u64> {
    match &record.change {
        LoggedChange::Truncate { offset, .. } => Some(*offset),
        LoggedChange::Remove { name, .. } => {
            Some(String::from_utf8_lossy(name.as_bytes()).parse().unwrap())
        }
        _ => None,
    }
}

/// Checks what must hold whenever power is cut: what was acknowledged is there, in order and
/// without gaps, and no space is lost.
pub fn check(host: &Host, disks: u64, memory: &Memory) {
    let told = told(memory);
    let durable = told.durable.as_ref().expect("a group was stored");
    let found = read_log(host, disks, durable);
    let records: Vec<&LogRecord> = found.records.iter().collect();
    let mut last = 0;
    for record in &records {
        assert!(record.sequence > last, "records are in order");
        last = record.sequence;
    }
    let live: Vec<u64> = records
        .iter()
        .filter(|record| record.txg > durable.stored)
        .filter_map(|record| mark_of(record))
        .collect();
    let there: BTreeSet<u64> = live.iter().copied().collect();
    assert_eq!(there.len(), live.len(), "a record is stored once");
    for mark in &told.acknowledged {
        let (txg, _) = told.made[mark];
        assert!(
            txg <= durable.stored || there.contains(mark),
            "change {mark} of group {txg} was acknowledged; stored is {}",
            durable.stored
        );
    }
    // What a record builds on is there: everything that all commits need, and what is its file's
    // own.
    for &mark in &there {
        let (_, object) = told.made[&mark];
        for (&earlier, &(txg, of)) in told.made.range(..mark) {
            let is_needed = of.is_none() || of == object;
            assert!(
                !is_needed || txg <= durable.stored || there.contains(&earlier),
                "{mark} is there, and {earlier} is not"
            );
        }
    }
    // All that is allocated is in use, and the other way round.
    let mut expected = durable.alive.clone();
    for block in &found.blocks {
        for sector in sectors_of(block) {
            if block.birth() <= durable.stored {
                assert!(expected.insert(sector), "{block} is where another is");
            } else {
                assert!(
                    !durable.allocated.contains(&sector),
                    "{block} is free to be claimed"
                );
            }
        }
    }
    let leaked: Vec<_> = durable.allocated.difference(&expected).collect();
    let lost: Vec<_> = expected.difference(&durable.allocated).collect();
    assert!(leaked.is_empty(), "leaked: {leaked:?}");
    assert!(lost.is_empty(), "in use and free: {lost:?}");
}
