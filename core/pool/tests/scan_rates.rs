//! How fast scans are on disks with one arm, and what they cost applications.
//!
//! The disks take 8 ms for a seek and move 150 MB/s. All times are those of the simulated disks.
//! `TARN_RATE_FILES` is the number of files of the fragmented pool.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::files::{head, vdev};
use support::{create_of, path};
use tarn_host::Host;
use tarn_host::sim::{DiskModel, Random, SimHost, SimOptions};
use tarn_object::{NewObject, TxEstimate};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::scan::{FINISHED, RESILVER, SCRUB};
use tarn_ondisk::units::ObjectId;
use tarn_pool::attach::{Joining, Newcomer};
use tarn_pool::{Leaving, Pool, ScanChange};
use tarn_probe::Operation;
use tarn_vdev::VdevKind;

const PAGE_BYTES: u64 = 4096;

fn knob(name: &str, default: u64) -> u64 {
    let wanted = std::env::var(name).ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A machine whose disks are opened directly, so that their queues are limited.
fn direct_machine(disks: &[&str], disk_bytes: u64) -> SimHost {
    let machine = SimHost::new(SimOptions {
        is_direct: true,
        switch_one_in: 0,
        ..SimOptions::seed(11)
    });
    for disk in disks {
        machine.add_disk(path(disk), disk_bytes);
    }
    machine
}

fn give_arms(machine: &SimHost, disks: &[&str]) {
    for disk in disks {
        machine
            .disk(path(disk))
            .unwrap()
            .set_model(DiskModel::ROTATING);
    }
}

/// So many new files of one block of one to four pages, by the thousand in a txg.
fn add_files(
    pool: &Pool,
    count: u64,
    random: &mut Random,
    operation: &Operation,
) -> Vec<(ObjectId, u64)> {
    let set = head(pool, operation);
    let mut files = Vec::new();
    for number in 0..count {
        let tx = pool
            .txgs()
            .assign(&TxEstimate::default(), operation)
            .unwrap();
        let size = (1 + random.below(4)) * PAGE_BYTES;
        let new = NewObject::plain(ObjectType::PlainFile, size);
        let file = set.allocate(&tx, new, operation).unwrap();
        let bytes = random.bytes(narrow(size));
        file.write(&tx, 0, &bytes, operation).unwrap();
        files.push((file.id(), size));
        drop(tx);
        if number % 1_000 == 999 {
            pool.sync_all(operation).unwrap();
        }
    }
    pool.sync_all(operation).unwrap();
    files
}

fn delete(pool: &Pool, files: &[(ObjectId, u64)], operation: &Operation) {
    let set = head(pool, operation);
    for (number, (file, _)) in files.iter().enumerate() {
        let tx = pool
            .txgs()
            .assign(&TxEstimate::default(), operation)
            .unwrap();
        set.free_object(&tx, *file, operation).unwrap();
        drop(tx);
        if number % 1_000 == 999 {
            pool.sync_all(operation).unwrap();
        }
    }
    pool.sync_all(operation).unwrap();
}

fn mb_per_second(bytes: u64, took_ns: u64) -> u64 {
    bytes.saturating_mul(1_000) / took_ns.max(1)
}

/// What a disk reads in MB/s if its arm never moves.
fn disk_rate() -> u64 {
    DiskModel::ROTATING.bytes_per_second / 1_000_000
}

/// How fast a scan was, in MB/s.
struct Rates {
    /// From its beginning to its end, with the walk and the txgs that are stored.
    whole: u64,
    /// From the first to the last block that was verified or copied while no txg was stored:
    /// without the walk that finds them, and the txg in which that ended.
    at_work: u64,
    /// How often the arm of the first disk moved meanwhile.
    seeks: u64,
}

/// Whether a txg is being stored.
fn is_storing(pool: &Pool) -> bool {
    pool.txgs().open_txg() != pool.txgs().stored_txg().next()
}

/// Waits for a scan that was begun then, and measures it.
fn measure(host: &Host, pool: &Pool, world: &SimHost, (function, began_ns): (u64, u64)) -> Rates {
    let seeks = || world.disk(path("a")).unwrap().arm_use().seeks;
    let (mut first, mut last) = (None, (0, 0, 0));
    loop {
        host.sleep(Duration::from_millis(1));
        let now_ns = host.monotonic_ns();
        let status = pool.scan_status();
        let Some(status) = status.filter(|status| status.scan.function == function) else {
            continue;
        };
        let issued = status.pass.issued_bytes;
        if issued > last.0 {
            last = (issued, now_ns, seeks());
            if !is_storing(pool) {
                first.get_or_insert(last);
            }
        }
        if !status.is_running() {
            assert_eq!((status.scan.state, status.scan.error_count), (FINISHED, 0));
            let first = first.expect("it has verified blocks");
            return Rates {
                whole: mb_per_second(issued, now_ns - began_ns),
                at_work: mb_per_second(last.0 - first.0, last.1 - first.1),
                seeks: last.2 - first.2,
            };
        }
    }
}

/// Joins a device by a sequential rebuild (`zpool attach -s`): from its beginning to the end of the
/// txg in which it is whole, in MB/s of what it was given.
fn rebuild(host: &Host, pool: &Pool, operation: &Operation) -> u64 {
    let beside = Joining::Beside(pool.vdevs().leaves()[0].guid);
    let new = Newcomer {
        path: &path("c"),
        spare: None,
        is_sequential: true,
    };
    pool.join(beside, new, operation).unwrap();
    let began_ns = host.monotonic_ns();
    while pool.is_rebuilding() {
        host.sleep(Duration::from_millis(1));
    }
    let took_ns = host.monotonic_ns() - began_ns;
    let copied: Vec<_> = pool.rebuild_status();
    let copied = copied.iter().map(|status| status.pass_issued_bytes);
    mb_per_second(copied.sum(), took_ns)
}

/// Of a fragmented pool: files were made, half of them deleted, and as many made anew, on a disk
/// that is nearly full.
#[test]
fn a_resilver_and_a_scrub_of_a_fragmented_pool_have_four_fifths_of_the_rate_of_its_disks() {
    let count = knob("TARN_RATE_FILES", 150_000);
    let machine = direct_machine(&["a", "b", "c"], (24 << 20) + count * 11_776);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
        let mut random = Random::new(3);
        let mut files = add_files(&pool, count, &mut random, &operation);
        random.shuffle(&mut files);
        delete(&pool, &files.split_off(narrow(count / 2)), &operation);
        files.extend(add_files(&pool, count / 2, &mut random, &operation));
        files.sort();
        give_arms(&world, &["a", "b", "c"]);

        pool.cache().forget_all();
        let set = head(&pool, &operation);
        let (mut walked_bytes, began_ns) = (0, host.monotonic_ns());
        for (file, size) in files.iter().take(2_000) {
            let mut bytes = vec![0; narrow(*size)];
            let file = set.object(*file, &operation).unwrap();
            file.read(0, &mut bytes, &operation).unwrap();
            walked_bytes += size;
        }
        let logical = mb_per_second(walked_bytes, host.monotonic_ns() - began_ns);

        pool.cache().forget_all();
        let beside = Joining::Beside(pool.vdevs().leaves()[0].guid);
        let new = Newcomer {
            path: &path("b"),
            spare: None,
            is_sequential: false,
        };
        pool.join(beside, new, &operation).unwrap();
        let began_ns = host.monotonic_ns();
        let resilver = measure(host, &pool, &world, (RESILVER, began_ns));
        pool.sync_all(&operation).unwrap();
        pool.cache().forget_all();
        // The first slice of the walk is over when this returns.
        let began_ns = host.monotonic_ns();
        let begun = pool.change_scan(ScanChange::Scrub, &operation);
        begun.unwrap().unwrap();
        let scrub = measure(host, &pool, &world, (SCRUB, began_ns));
        let rebuilt = rebuild(host, &pool, &operation);
        pool.close(Leaving::Kept, &operation).unwrap();
        (logical, resilver, scrub, rebuilt)
    });
    let (logical, resilver, scrub, rebuilt) = run.unwrap();
    println!(
        "{count} files, disks of {} MB/s: {logical} MB/s in logical order",
        disk_rate()
    );
    for (name, rates) in [("resilver", &resilver), ("scrub", &scrub)] {
        println!(
            "{name}: {} MB/s with the walk, {} MB/s without, {} seeks",
            rates.whole, rates.at_work, rates.seeks
        );
    }
    println!("rebuild: {rebuilt} MB/s, which nothing is walked for");
    assert!(rebuilt * 100 >= disk_rate() * 80, "{rebuilt} MB/s");
    for rates in [resilver, scrub] {
        assert!(
            rates.at_work * 100 >= disk_rate() * 80,
            "{} MB/s",
            rates.at_work
        );
        // The walk sweeps over the disk, and takes less than the copying.
        assert!(rates.whole * 2 > disk_rate(), "{} MB/s", rates.whole);
        assert!(rates.whole > 10 * logical, "{} MB/s", rates.whole);
    }
}

/// Latencies of 4 KiB reads by so many threads at blocks of a file that are not cached, sorted.
/// Each thread waits up to twice `pause_ms` between two. Ends early when `is_over`.
fn latencies(
    host: &Host,
    pool: &Arc<Pool>,
    file: ObjectId,
    blocks: &[u64],
    (threads, pause_ms): (u64, u64),
    is_over: fn(&Pool) -> bool,
) -> Vec<u64> {
    let blocks: Arc<Vec<u64>> = Arc::new(blocks.to_vec());
    let next = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..threads)
        .map(|number| {
            let (pool, blocks, next) = (pool.clone(), blocks.clone(), next.clone());
            let mut random = Random::new(number);
            host.spawn("reads", move || {
                let operation = Operation::unmeasured();
                let file = head(&pool, &operation).object(file, &operation).unwrap();
                let mut took = Vec::new();
                let mut bytes = vec![0; narrow(PAGE_BYTES)];
                while let Some(block) = blocks.get(narrow(next.fetch_add(1, Ordering::Relaxed))) {
                    if is_over(&pool) {
                        break;
                    }
                    let began_ns = pool.host().monotonic_ns();
                    file.read(block * PAGE_BYTES, &mut bytes, &operation)
                        .unwrap();
                    took.push(pool.host().monotonic_ns() - began_ns);
                    if pause_ms > 0 {
                        let pause = random.below(2_000 * pause_ms);
                        pool.host().sleep(Duration::from_micros(pause));
                    }
                }
                took
            })
        })
        .collect();
    let mut all = Vec::new();
    for thread in threads {
        all.extend(thread.join().unwrap());
    }
    all.sort_unstable();
    all
}

fn issued(pool: &Pool) -> u64 {
    let status = pool.scan_status();
    let status = status.filter(|status| status.is_running());
    status.map_or(0, |status| status.pass.issued_bytes)
}

/// Writes so many blocks of random bytes to a new file.
fn write_blocks(
    pool: &Pool,
    count: u64,
    block_bytes: u64,
    random: &mut Random,
    operation: &Operation,
) -> ObjectId {
    let set = head(pool, operation);
    let assign = || pool.txgs().assign(&TxEstimate::default(), operation);
    let new = NewObject::plain(ObjectType::PlainFile, block_bytes);
    let file = set.allocate(&assign().unwrap(), new, operation).unwrap();
    let (bytes, at_once) = (count * block_bytes, 1 << 20);
    for start in (0..bytes).step_by(narrow(at_once)) {
        let data = random.bytes(narrow(at_once));
        file.write(&assign().unwrap(), start, &data, operation)
            .unwrap();
    }
    file.id()
}

#[test]
fn reads_beside_a_scrub_wait_at_most_twice_as_long() {
    const READS: usize = 600;
    const BLOCKS: u64 = 16_384;
    const SCRUBBED_BLOCK_BYTES: u64 = 128 << 10;
    const QUIET_NS: u64 = 100_000_000;
    let mut ratios = Vec::new();
    for readers in [(1, 0), (2, 0), (8, 0), (1, 20), (4, 50)] {
        let machine = direct_machine(&["a"], 512 << 20);
        let world = machine.clone();
        let run = machine.run(move |host| {
            let operation = Operation::unmeasured();
            let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
            let mut random = Random::new(3);
            let file = write_blocks(&pool, BLOCKS, PAGE_BYTES, &mut random, &operation);
            write_blocks(&pool, 1_536, SCRUBBED_BLOCK_BYTES, &mut random, &operation);
            pool.sync_all(&operation).unwrap();
            give_arms(&world, &["a"]);
            pool.cache().forget_all();
            let mut blocks: Vec<u64> = (0..BLOCKS).filter(|block| block % 256 != 0).collect();
            random.shuffle(&mut blocks);
            // Indirect blocks are cached, as in a working set.
            let warm: Vec<u64> = (0..BLOCKS / 256).map(|number| number * 256).collect();
            latencies(host, &pool, file, &warm, (1, 0), |_| false);
            let (before, after) = (&blocks[..READS], &blocks[READS..2 * READS]);
            let alone = latencies(host, &pool, file, before, readers, |_| false);

            let begun = pool.change_scan(ScanChange::Scrub, &operation);
            begun.unwrap().unwrap();
            // Txgs follow the beginning of a scan.
            let mut stored = (pool.txgs().stored_txg(), host.monotonic_ns());
            while issued(&pool) == 0 || host.monotonic_ns() - stored.1 < QUIET_NS {
                host.sleep(Duration::from_millis(1));
                if is_storing(&pool) || stored.0 != pool.txgs().stored_txg() {
                    stored = (pool.txgs().stored_txg(), host.monotonic_ns());
                }
            }
            let (began_ns, from) = (host.monotonic_ns(), issued(&pool));
            let is_over = |pool: &Pool| issued(pool) == 0;
            let beside = latencies(host, &pool, file, after, readers, is_over);
            let took_ns = host.monotonic_ns() - began_ns;
            let status = pool.scan_status().unwrap();
            let scrubbed = mb_per_second((status.pass.issued_bytes - from) * 1_000, took_ns);
            let _ = pool.change_scan(ScanChange::Stop, &operation).unwrap();
            pool.close(Leaving::Kept, &operation).unwrap();
            (alone, beside, scrubbed)
        });
        let (alone, beside, scrubbed) = run.unwrap();
        let at = |all: &[u64], percent: usize| all[all.len() * percent / 100] / 1_000;
        println!(
            "{readers:?}: alone 50 % {} us, 99 % {} us; beside a scrub of {scrubbed} kB/s {} reads, \
             50 % {} us, 99 % {} us",
            at(&alone, 50),
            at(&alone, 99),
            beside.len(),
            at(&beside, 50),
            at(&beside, 99)
        );
        ratios.push((readers, 2 * at(&alone, 99), at(&beside, 99)));
    }
    for (readers, most, beside) in ratios {
        assert!(
            beside <= most,
            "{readers:?}: 99 % of reads take {beside} us beside a scrub, and at most {most} would be well"
        );
    }
}
