//! The cache over real blocks on disks in memory.

#[path = "../../block/tests/support/mod.rs"]
mod support;

use std::time::Duration;
use support::*;
use tarn_block::{Block, BlockKind, BlockScope, ForceGanging, ReadError};
use tarn_cache::pressure::{Governor, MachineMemory};
use tarn_cache::{Cache, CacheOptions, Hint, ObjectKey, PoolCache};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::units::{PhysicalSize, Txg};
use tarn_probe::{Operation, OperationKind, Outcome, Registry, Value};

struct Fixture {
    pool: Pool,
    cache: PoolCache,
    registry: Registry,
}

impl Fixture {
    fn new(budget_bytes: u64) -> Fixture {
        let pool = Pool::new(1, 9, options());
        let registry = Registry::new();
        let cache_options = CacheOptions {
            budget_bytes,
            ..CacheOptions::default()
        };
        let cache = Cache::new(pool.host(), cache_options, &registry);
        let cache = PoolCache::new(cache, pool.io.clone());
        Fixture {
            pool,
            cache,
            registry,
        }
    }

    fn read(&self, pointer: &BlockPointer) -> Result<Block, ReadError> {
        let operation = Operation::unmeasured();
        self.cache.read(pointer, SCOPE, Hint::DEMAND, &operation)
    }

    fn counted(&self, name: &str) -> u64 {
        let snapshot = self.registry.snapshot("");
        match snapshot.value("zfs", 0, "arcstats", name) {
            Some(Value::Counter(count)) => *count,
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_block_is_read_from_its_device_once() {
    let fixture = Fixture::new(64 << 20);
    let data = noise(4096, 1);
    let pointer = fixture.pool.write_one(&data, file_policy());
    let operation = Operation::unmeasured();
    let read = |operation: &Operation| {
        let cache = &fixture.cache;
        cache
            .read(&pointer, SCOPE, Hint::DEMAND, operation)
            .unwrap()
    };
    let first = read(&operation);
    assert!(operation.is_marked(Outcome::Disk) && !operation.is_marked(Outcome::CacheHit));
    assert_eq!(&*first, &data[..]);
    let operation = Operation::unmeasured();
    let second = read(&operation);
    assert!(operation.is_marked(Outcome::CacheHit) && !operation.is_marked(Outcome::Disk));
    assert!(first.is_same(&second), "no byte is copied");
    assert_eq!(fixture.counted("demand_data_misses"), 1);
    assert_eq!(fixture.counted("demand_data_hits"), 1);
    assert_eq!(fixture.counted("misses"), 1);
    assert_eq!(fixture.counted("hits"), 1);
}

#[test]
fn what_was_written_is_there_and_what_was_freed_is_not() {
    let fixture = Fixture::new(64 << 20);
    let data = noise(4096, 1);
    let pointer = fixture.pool.write_one(&data, file_policy());
    let block = Block::from_slice(&data);
    fixture
        .cache
        .insert(&pointer, SCOPE, block.clone(), &Operation::unmeasured());
    fixture.pool.damage(pointer.dva_words[0], 5);
    assert!(fixture.read(&pointer).unwrap().is_same(&block));
    fixture.cache.forget(&pointer);
    assert!(fixture.read(&pointer).is_err(), "the device is asked again");
}

#[test]
fn a_block_that_is_written_in_place_stays_readable_by_its_earlier_pointer() {
    let fixture = Fixture::new(64 << 20);
    let operation = Operation::unmeasured();
    let (old, new) = (noise(4096, 1), noise(4096, 2));
    for (is_cached, is_gang) in [(false, false), (true, false), (false, true), (true, true)] {
        if is_gang {
            fixture.pool.io.force_ganging(ForceGanging {
                from: PhysicalSize::new(1024),
                percent: 100,
                seed: 1,
            });
        }
        let before = fixture.pool.write_one(&old, file_policy());
        assert_eq!(before.is_gang(), is_gang);
        if is_cached {
            let block = Block::from_slice(&old);
            fixture.cache.insert(&before, SCOPE, block, &operation);
        }
        fixture.cache.keep_rewritten(&before, SCOPE, &operation);
        let mut again = request(&new, file_policy());
        again.previous = before;
        assert!(again.may_rewrite(phase(2)));
        let after = fixture.pool.write(vec![again], 2)[0];
        assert!(after.is_same_block(&before), "it is in place");
        fixture.cache.forget(&before);
        assert_eq!(&*fixture.read(&before).unwrap(), &old[..]);
        let block = Block::from_slice(&new);
        fixture.cache.insert(&after, SCOPE, block, &operation);
        assert_eq!(&*fixture.read(&before).unwrap(), &old[..]);
        assert_eq!(&*fixture.read(&after).unwrap(), &new[..]);
        // A reader may hold the pointer when the txg is stored.
        fixture.cache.groups_stored(TXG);
        assert_eq!(&*fixture.read(&before).unwrap(), &old[..]);
        fixture.cache.groups_stored(Txg::new(TXG.get() + 1));
        assert!(fixture.read(&before).is_err());
        assert_eq!(&*fixture.read(&after).unwrap(), &new[..]);
        fixture.pool.free(&after);
    }
}

#[test]
fn all_threads_that_wait_for_a_block_get_the_same_answer() {
    let fixture = Fixture::new(64 << 20);
    let good = fixture.pool.write_one(&noise(131072, 1), file_policy());
    let bad = fixture.pool.write_one(&noise(131072, 2), file_policy());
    fixture.pool.damage(bad.dva_words[0], 5);
    for _ in 0..50 {
        fixture.cache.forget_all();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert_eq!(&*fixture.read(&good).unwrap(), &noise(131072, 1)[..]);
                    assert!(matches!(
                        fixture.read(&bad),
                        Err(ReadError::Unreadable { .. })
                    ));
                });
            }
        });
    }
    let joined = fixture.counted("demand_data_iohits");
    let hits = fixture.counted("demand_data_hits");
    let misses = fixture.counted("demand_data_misses");
    assert_eq!(joined + hits + misses, 50 * 4 * 2);
}

#[test]
fn prefetched_blocks_are_there_when_their_reader_comes() {
    let fixture = Fixture::new(64 << 20);
    let requests: Vec<_> = (0..40)
        .map(|seed| request(&noise(65536, seed), file_policy()))
        .collect();
    let pointers = fixture.pool.write(requests, 1);
    let operation = Operation::unmeasured();
    let wanted: Vec<_> = pointers.iter().map(|pointer| (*pointer, SCOPE)).collect();
    fixture.cache.prefetch(&wanted, &operation);
    for (seed, pointer) in (0..).zip(&pointers) {
        let block = fixture.read(pointer).unwrap();
        assert_eq!(&*block, &noise(65536, seed)[..]);
    }
    assert_eq!(fixture.counted("prefetch_data_misses"), 40);
    assert_eq!(
        fixture.counted("demand_data_misses"),
        0,
        "none was read twice"
    );
    assert_eq!(
        fixture.counted("demand_data_hits") + fixture.counted("demand_data_iohits"),
        40
    );
}

#[test]
fn the_budget_is_kept_and_memory_is_given_back_when_asked() {
    let fixture = Fixture::new(1 << 20);
    let requests: Vec<_> = (0..200)
        .map(|seed| request(&noise(16384, seed), file_policy()))
        .collect();
    let pointers = fixture.pool.write(requests, 1);
    for pointer in &pointers {
        fixture.read(pointer).unwrap();
        assert!(fixture.cache.cache().used_bytes() <= 1 << 20);
    }
    let used = fixture.cache.cache().used_bytes();
    assert!(used > 900 << 10, "{used}");
    let cache = fixture.cache.cache();
    let (some, more) = (cache.lend(), cache.lend());
    some.set(|| 256 << 10);
    more.set(|| 256 << 10);
    assert_eq!(cache.target_bytes(), 512 << 10);
    assert!(cache.used_bytes() <= 512 << 10, "dropped at once");
    more.set(|| 64 << 20);
    assert_eq!(cache.target_bytes(), 128 << 10, "an eighth stays");
    drop(more);
    assert_eq!(cache.target_bytes(), 768 << 10);
    drop(some);
    assert_eq!(cache.target_bytes(), 1 << 20);
    fixture.read(&pointers[0]).unwrap();
    fixture.cache.cache().set_budget(0);
    assert_eq!(fixture.cache.cache().used_bytes(), 0);
    fixture.read(&pointers[0]).unwrap();
    assert_eq!(fixture.cache.cache().used_bytes(), 0);
}

#[test]
fn a_pool_that_is_closed_leaves_nothing_behind() {
    let fixture = Fixture::new(64 << 20);
    let pointer = fixture.pool.write_one(&noise(16384, 1), file_policy());
    fixture.read(&pointer).unwrap();
    let cache = fixture.cache.cache().clone();
    assert!(cache.used_bytes() > 0);
    drop(fixture.cache);
    assert_eq!(cache.used_bytes(), 0);
}

/// A damaged pool may have two pointers to one place that disagree on what is there.
#[test]
fn a_pointer_that_disagrees_is_not_given_the_kept_block() {
    let fixture = Fixture::new(64 << 20);
    let pointer = fixture.pool.write_one(&text(16384, 1), file_policy());
    fixture.read(&pointer).unwrap();
    let mut liar = pointer;
    liar.set_logical_size(tarn_ondisk::units::LogicalSize::new(32768));
    assert!(fixture.read(&liar).is_err());
    let mut liar = pointer;
    liar.set_checksum(pointer.checksum_kind(), Default::default());
    assert!(fixture.read(&liar).is_err());
    fixture.read(&pointer).unwrap();
}

/// A scan of a large file must not cost the directory its blocks.
#[test]
fn metadata_in_use_survives_a_scan() {
    fn clock() -> u64 {
        static NOW: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        NOW.fetch_add(100_000_000, std::sync::atomic::Ordering::Relaxed)
    }
    let fixture = Fixture::new(2 << 20);
    let write = |count, first| -> Vec<BlockPointer> {
        let requests =
            (first..first + count).map(|seed| request(&noise(16384, seed), file_policy()));
        fixture.pool.write(requests.collect(), 1)
    };
    let (hot, cold) = (write(20, 0), write(400, 1000));
    let read = |pointer: &BlockPointer, kind| {
        let operation = Operation::internal(clock, OperationKind::Read);
        fixture
            .cache
            .read(
                pointer,
                BlockScope { kind, ..SCOPE },
                Hint::DEMAND,
                &operation,
            )
            .unwrap();
        operation.is_marked(Outcome::CacheHit)
    };
    for _ in 0..3 {
        hot.iter()
            .for_each(|pointer| _ = read(pointer, BlockKind::Metadata));
    }
    cold.iter()
        .for_each(|pointer| _ = read(pointer, BlockKind::Data));
    let hits = hot
        .iter()
        .filter(|pointer| read(pointer, BlockKind::Metadata))
        .count();
    assert_eq!(hits, 20);
}

#[test]
fn readers_in_order_are_noticed() {
    let fixture = Fixture::new(64 << 20);
    let prefetcher = fixture.cache.cache().prefetcher();
    let key = ObjectKey {
        pool: fixture.cache.pool(),
        objset: 54,
        object: 2,
    };
    assert_eq!(prefetcher.observe(key, 0..1, 131072), None);
    assert_eq!(prefetcher.observe(key, 1..2, 131072), Some(2..4));
}

/// A machine with 64 MiB of memory, of which others should have 2 MiB.
#[test]
fn the_cache_gives_way_while_memory_is_short_and_grows_again_when_it_is_calm() {
    let fixture = Fixture::new(4 << 20);
    let cache = fixture.cache.cache();
    let requests: Vec<_> = (0..200)
        .map(|seed| request(&noise(16384, seed), file_policy()))
        .collect();
    for pointer in &fixture.pool.write(requests, 1) {
        fixture.read(pointer).unwrap();
    }
    let used = cache.used_bytes();
    assert!(used > 3 << 20, "{used}");
    let mut governor = Governor::new(cache);
    let mut look = |available_bytes, second: u64| {
        let total_bytes = 64 << 20;
        let memory = MachineMemory {
            total_bytes,
            available_bytes,
        };
        governor.look(memory, second * 1_000_000_000)
    };
    let soon = look(3 << 20, 1);
    assert_eq!(cache.target_bytes(), 4 << 20, "there is enough");
    assert_eq!(look(60 << 30, 2), Duration::from_secs(2));
    assert_eq!(soon, Duration::from_millis(100), "it could soon be short");

    // One MiB of the reserve is missing.
    look(1 << 20, 3);
    assert!(cache.target_bytes() < used - (1 << 20));
    assert!(cache.used_bytes() < used - (1 << 20), "dropped at once");
    let after = cache.target_bytes();
    look(32 << 20, 7);
    assert_eq!(cache.target_bytes(), after, "not calm yet");
    // Of one MiB to spare, half.
    look(3 << 20, 8);
    assert_eq!(cache.target_bytes(), after + (512 << 10));
    look(32 << 20, 9);
    assert_eq!(cache.target_bytes(), 4 << 20);

    look(0, 10);
    look(0, 11);
    look(0, 12);
    look(0, 13);
    assert_eq!(cache.target_bytes(), 512 << 10, "an eighth stays");
    drop(governor);
    assert_eq!(cache.target_bytes(), 4 << 20);
}
