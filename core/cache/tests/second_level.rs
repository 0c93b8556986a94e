//! The second level of the cache, on a device that is a file.

#[path = "../../block/tests/support/mod.rs"]
mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use support::*;
use tarn_block::{Block, BlockKind, BlockScope, ReadError, WritePolicy};
use tarn_cache::{Cache, CacheOptions, Hint, PoolCache, SecondLevelUse};
use tarn_host::OpenMode;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::label::DATA_START_BYTES;
use tarn_ondisk::units::{Guid, Txg};
use tarn_probe::{Operation, Registry, Value};
use tarn_transform::CompressionAlgorithm;
use tarn_vdev::label_config::cache_label;
use tarn_vdev::labels::create_labels;
use tarn_vdev::{AuxiliaryDevices, CacheDevice, VdevConfig, VdevKind, open_window};
use tempfile::TempDir;

/// As small as a device with log blocks may be, but for its labels.
const LOGGED_BYTES: u64 = (1 << 30) + (8 << 20);
/// Where the room of a device with sectors of 512 bytes begins.
const ROOM_START: u64 = DATA_START_BYTES + 512;
const BLOCK_BYTES: usize = 32 << 10;

struct Fixture {
    pool: Pool,
    folder: TempDir,
    registry: Registry,
}

/// One import of the pool.
struct Session {
    cache: PoolCache,
    device: Arc<CacheDevice>,
}

impl Fixture {
    fn new(device_bytes: u64) -> Fixture {
        let fixture = Fixture {
            pool: Pool::new(1, 9, options()),
            folder: tempfile::tempdir().unwrap(),
            registry: Registry::new(),
        };
        let file = File::create(fixture.path()).unwrap();
        file.set_len(device_bytes).unwrap();
        let window = open_window(
            fixture.pool.host(),
            &fixture.path(),
            OpenMode::ReadWriteExclusive,
        );
        create_labels(&window.unwrap(), &cache_label(5000, &fixture.config())).unwrap();
        fixture
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn config(&self) -> VdevConfig {
        let mut config = VdevConfig::new(VdevKind::File, Guid::from(77));
        config.path = Some(self.path().to_str().unwrap().into());
        config.cache_ashift = Some(9);
        config
    }

    /// Opens the device and a cache of almost nothing, so that blocks leave memory at once.
    fn open(&self, is_new: bool, stored: Txg) -> Session {
        let vdevs = self.pool.io.vdevs();
        vdevs.set_auxiliary(AuxiliaryDevices {
            caches: vec![self.config()],
            ..AuxiliaryDevices::default()
        });
        let device = vdevs.open_cache_device(&self.config());
        assert!(device.is_usable(), "{:?}", device.standing());
        vdevs.join_cache_device(device.clone());
        let options = CacheOptions {
            budget_bytes: 3 << 20,
            ..CacheOptions::default()
        };
        let cache = Cache::new(self.pool.host(), options, &self.registry);
        let cache = PoolCache::new(cache, self.pool.io.clone());
        let operation = Operation::unmeasured();
        cache.set_pool_guid(Guid::from(5));
        cache.groups_stored(stored);
        cache.add_cache_device(self.pool.host(), &device, is_new, &operation);
        cache.rebuild(&operation);
        // From here on the test feeds.
        cache.stop_feeding();
        Session { cache, device }
    }

    fn counted(&self, name: &str) -> i64 {
        let snapshot = self.registry.snapshot("");
        match snapshot.value("zfs", 0, "arcstats", name) {
            Some(Value::Counter(count)) => i64::try_from(*count).unwrap(),
            Some(Value::Gauge(value)) => *value,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Writes over the device.
    fn scribble(&self, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.path()).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    /// Blocks of the pool, with their contents.
    fn blocks(&self, count: u64, policy: WritePolicy) -> Vec<(BlockPointer, Vec<u8>)> {
        let one = |seed| {
            let data = text(BLOCK_BYTES, seed);
            (self.pool.write_one(&data, policy), data)
        };
        (0..count).map(one).collect()
    }

    /// Makes the pool's own copies of blocks unreadable.
    fn damage(&self, blocks: &[(BlockPointer, Vec<u8>)]) {
        for (pointer, _) in blocks {
            self.pool.damage(pointer.dva_words[0], 100);
        }
    }
}

impl Session {
    fn read(&self, pointer: &BlockPointer) -> Result<Block, ReadError> {
        let operation = Operation::unmeasured();
        self.cache.read(pointer, SCOPE, Hint::DEMAND, &operation)
    }

    /// Reads all blocks, and feeds what is in memory to the device on the way.
    fn fill(&self, blocks: &[(BlockPointer, Vec<u8>)]) {
        for some in blocks.chunks(16) {
            for (pointer, data) in some {
                assert_eq!(&*self.read(pointer).unwrap(), &data[..]);
            }
            while self.cache.feed(&Operation::unmeasured()) > 0 {}
        }
    }

    /// Has memory forget all blocks.
    fn forget_memory(&self) {
        self.cache.cache().set_budget(0);
        self.cache.cache().set_budget(3 << 20);
    }

    fn close(self) {
        let guid = self.device.guid();
        let vdevs = self.cache.io().vdevs().clone();
        vdevs.remove_auxiliary(tarn_vdev::AuxiliaryKind::Cache, guid);
    }
}

fn compressed_policy() -> WritePolicy {
    WritePolicy {
        compression: CompressionAlgorithm::Lz4,
        ..file_policy()
    }
}

#[test]
fn blocks_that_left_memory_are_read_from_the_device() {
    for policy in [file_policy(), compressed_policy()] {
        let fixture = Fixture::new(64 << 20);
        let session = fixture.open(true, TXG);
        let blocks = fixture.blocks(40, policy);
        session.fill(&blocks);
        session.forget_memory();
        fixture.damage(&blocks);
        for (pointer, data) in &blocks {
            assert_eq!(&*session.read(pointer).unwrap(), &data[..]);
        }
        assert_eq!(fixture.counted("l2_hits"), 40);
        assert_eq!(fixture.counted("l2_cksum_bad"), 0);
        let sizes: u64 = blocks
            .iter()
            .map(|(pointer, _)| pointer.physical_size().get())
            .sum();
        assert_eq!(fixture.counted("l2_asize"), i64::try_from(sizes).unwrap());
        assert_eq!(session.device.allocated_bytes(), sizes);
    }
}

#[test]
fn a_device_that_lies_costs_reads_and_is_never_believed() {
    let fixture = Fixture::new(64 << 20);
    let session = fixture.open(true, TXG);
    let blocks = fixture.blocks(20, file_policy());
    session.fill(&blocks);
    session.forget_memory();
    fixture.scribble(ROOM_START, &noise(40 * BLOCK_BYTES, 9));
    for (pointer, data) in &blocks {
        assert_eq!(&*session.read(pointer).unwrap(), &data[..]);
    }
    assert_eq!(fixture.counted("l2_cksum_bad"), 20);
    assert_eq!(fixture.counted("l2_hits"), 0);
    let health = session.device.health(&fixture.config());
    assert_eq!(health.errors.checksum, 20);
    session.forget_memory();
    for (pointer, data) in &blocks {
        assert_eq!(&*session.read(pointer).unwrap(), &data[..]);
    }
    let bad = fixture.counted("l2_cksum_bad");
    assert_eq!(bad, 20, "what does not verify is forgotten");
}

#[test]
fn freed_blocks_blocks_of_unstored_groups_and_ineligible_ones_are_not_there() {
    let fixture = Fixture::new(64 << 20);
    let session = fixture.open(true, Txg::new(TXG.get() - 1));
    let blocks = fixture.blocks(8, file_policy());
    session.fill(&blocks);
    assert_eq!(fixture.counted("l2_size"), 0, "their group is not stored");
    session.cache.groups_stored(TXG);
    let set = SCOPE.mark.objset;
    session
        .cache
        .use_second_level(set, SecondLevelUse::Metadata);
    session.forget_memory();
    session.fill(&blocks);
    assert_eq!(fixture.counted("l2_size"), 0, "they are data");
    let scope = BlockScope {
        kind: BlockKind::Metadata,
        ..SCOPE
    };
    session.forget_memory();
    let operation = Operation::unmeasured();
    let read = session
        .cache
        .read(&blocks[0].0, scope, Hint::DEMAND, &operation);
    assert_eq!(&*read.unwrap(), &blocks[0].1[..]);
    session.fill(&[]);
    while session.cache.feed(&operation) > 0 {}
    assert!(fixture.counted("l2_bufc_metadata_asize") > 0);
    session.cache.forget(&blocks[0].0);
    session.cache.use_second_level(set, SecondLevelUse::All);
    session.forget_memory();
    session.fill(&blocks);
    session.cache.forget(&blocks[3].0);
    session.forget_memory();
    fixture.damage(&blocks);
    assert!(session.read(&blocks[3].0).is_err());
    assert_eq!(&*session.read(&blocks[4].0).unwrap(), &blocks[4].1[..]);
}

#[test]
fn what_a_reader_keeps_itself_is_fed_as_well() {
    let fixture = Fixture::new(64 << 20);
    let session = fixture.open(true, TXG);
    let blocks = fixture.blocks(8, file_policy());
    let operation = Operation::unmeasured();
    for (pointer, _) in &blocks {
        let read = session
            .cache
            .read(pointer, SCOPE, Hint::PASSING, &operation);
        assert!(read.is_ok());
    }
    while session.cache.feed(&operation) > 0 {}
    fixture.damage(&blocks);
    for (pointer, data) in &blocks {
        assert_eq!(&*session.read(pointer).unwrap(), &data[..]);
    }
    assert_eq!(fixture.counted("l2_hits"), 8);
}

#[test]
fn after_an_import_the_device_has_what_its_log_blocks_list() {
    let fixture = Fixture::new(LOGGED_BYTES);
    let session = fixture.open(true, TXG);
    // A log block has 64 entries on a device of this size.
    let blocks = fixture.blocks(140, compressed_policy());
    session.fill(&blocks);
    assert_eq!(fixture.counted("l2_log_blk_writes"), 2);
    session.close();
    let session = fixture.open(false, TXG);
    assert_eq!(fixture.counted("l2_rebuild_success"), 1);
    assert_eq!(fixture.counted("l2_rebuild_bufs"), 128);
    fixture.damage(&blocks);
    let read = blocks.iter().filter(|(pointer, data)| {
        let read = session.read(pointer);
        read.is_ok_and(|block| *block == data[..])
    });
    assert_eq!(read.count(), 128);
    assert_eq!(fixture.counted("l2_cksum_bad"), 0);
}

#[test]
fn entries_of_groups_that_the_pool_does_not_have_are_passed_over() {
    let fixture = Fixture::new(LOGGED_BYTES);
    let session = fixture.open(true, TXG);
    let blocks = fixture.blocks(64, compressed_policy());
    session.fill(&blocks);
    session.close();
    let session = fixture.open(false, Txg::new(TXG.get() - 1));
    assert_eq!(fixture.counted("l2_size"), 0);
    for (pointer, data) in &blocks {
        assert_eq!(&*session.read(pointer).unwrap(), &data[..]);
    }
    assert_eq!(fixture.counted("l2_hits"), 0);
}

#[test]
fn a_log_block_or_header_that_is_damaged_ends_what_is_found() {
    let fixture = Fixture::new(LOGGED_BYTES);
    let session = fixture.open(true, TXG);
    let blocks = fixture.blocks(140, compressed_policy());
    session.fill(&blocks);
    session.close();
    let header = |offset: u64| {
        let mut bytes = [0; 8];
        let file = File::open(fixture.path()).unwrap();
        file.read_exact_at(&mut bytes, DATA_START_BYTES + offset)
            .unwrap();
        u64::from_le_bytes(bytes)
    };
    assert_eq!(header(208), 2, "there are two log blocks");
    // The older of the two log blocks.
    fixture.scribble(header(136) + 1000, &[0xee; 16]);
    let session = fixture.open(false, TXG);
    assert_eq!(fixture.counted("l2_rebuild_cksum_lb_errors"), 1);
    assert_eq!(fixture.counted("l2_rebuild_bufs"), 64);
    session.close();
    fixture.scribble(DATA_START_BYTES + 16, &[0xee; 8]);
    let session = fixture.open(false, TXG);
    assert_eq!(fixture.counted("l2_rebuild_unsupported"), 1);
    assert_eq!(fixture.counted("l2_size"), 0);
    for (pointer, data) in &blocks {
        assert_eq!(&*session.read(pointer).unwrap(), &data[..]);
    }
    assert_eq!(fixture.counted("l2_cksum_bad"), 0);
}
