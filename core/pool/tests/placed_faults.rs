//! Faults at random places of disks, over data, metadata and labels: bits that flip, sectors that
//! are lost, writes that are lost, and writes that go elsewhere. A scrub repairs them where other
//! disks or copies have the blocks, and names them where not; nothing wrong is ever read.
//!
//! `TARN_FAULTS` is how many faults there are in all, `TARN_FAULTS_SEED` where they are.

mod support;

use std::sync::{Arc, Mutex};
use support::files::{check_files, contents, head, vdev, wait_for_scan, write_files};
use support::{create_of, create_with_copies, import, machine, path};
use tarn_host::sim::{Fault, Random, SimHost};
use tarn_host::{Action, Errno, Host};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::scan::FINISHED;
use tarn_ondisk::units::ObjectId;
use tarn_pool::{Leaving, Mode, Pool, ScanChange, error_log_count};
use tarn_probe::Operation;
use tarn_vdev::{OutOfUse, VdevKind};

const DISKS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const DISK_BYTES: u64 = 128 << 20;
const SECTOR_BYTES: u64 = 4096;

/// A vdev, and how many of its disks may have faults or be lost.
#[derive(Debug, Clone, Copy)]
struct Shape {
    kind: VdevKind,
    width: usize,
    redundancy: usize,
}

const fn shape(kind: VdevKind, width: usize, redundancy: usize) -> Shape {
    Shape {
        kind,
        width,
        redundancy,
    }
}

const SHAPES: [Shape; 6] = [
    shape(VdevKind::Mirror, 2, 1),
    shape(VdevKind::Mirror, 3, 2),
    shape(VdevKind::Raidz { parity: 1 }, 4, 1),
    shape(VdevKind::Raidz { parity: 2 }, 5, 2),
    shape(VdevKind::Raidz { parity: 3 }, 6, 3),
    // One disk, whose files have two copies. The redundancy is that of the copies.
    shape(VdevKind::File, 1, 0),
];

/// Faults of each kind in one round.
const WRITES_LOST: usize = 8;
const WRITES_ELSEWHERE: usize = 8;
const BITS: usize = 20;
const SECTORS_LOST: usize = 14;
const FAULTS_OF_ROUND: usize = WRITES_LOST + WRITES_ELSEWHERE + BITS + SECTORS_LOST;

fn knob(name: &str, default: u64) -> u64 {
    let wanted = std::env::var(name).ok();
    wanted
        .and_then(|wanted| wanted.parse().ok())
        .unwrap_or(default)
}

/// What a round found.
#[derive(Debug, Default, Clone, Copy)]
struct Found {
    repaired_bytes: u64,
    errors: u64,
    blocks_lost: u64,
}

#[test]
fn faults_at_random_places_are_repaired_or_named_and_never_served() {
    let faults = knob("TARN_FAULTS", 300);
    let seed = knob("TARN_FAULTS_SEED", 1);
    let rounds = faults.div_ceil(widen(FAULTS_OF_ROUND * SHAPES.len()));
    let mut placed = 0;
    for shape in SHAPES {
        let mut all = Found::default();
        for round in 0..rounds {
            let found = one_round(shape, seed * 100_000 + round);
            all.repaired_bytes += found.repaired_bytes;
            all.errors += found.errors;
            all.blocks_lost += found.blocks_lost;
            placed += FAULTS_OF_ROUND;
        }
        println!(
            "{:?} of {}, {rounds} rounds: {} bytes repaired, {} errors named, {} blocks lost",
            shape.kind, shape.width, all.repaired_bytes, all.errors, all.blocks_lost
        );
    }
    println!("{placed} faults, seed {seed}");
}

fn one_round(shape: Shape, seed: u64) -> Found {
    let machine = machine(&DISKS[..shape.width]);
    let (world, found) = (machine.clone(), Arc::new(Mutex::new(Found::default())));
    let answer = found.clone();
    let run = machine.run(move |host| {
        *answer.lock().unwrap() = damage_and_scrub(&world, host, shape, seed);
    });
    if let Err(error) = run {
        panic!("{shape:?}, round {seed}: {error:?}");
    }
    let found = found.lock().unwrap();
    *found
}

fn damage_and_scrub(world: &SimHost, host: &Host, shape: Shape, seed: u64) -> Found {
    let operation = Operation::unmeasured();
    let mut random = Random::new(seed);
    let vdevs = vec![vdev(shape.kind, &DISKS[..shape.width])];
    let is_redundant = shape.redundancy > 0;
    let pool = match is_redundant {
        true => create_of(host, vdevs, &operation),
        false => create_with_copies(host, vdevs, 2, &operation),
    };
    let mut disks = DISKS[..shape.width].to_vec();
    random.shuffle(&mut disks);
    disks.truncate(shape.redundancy.max(1));
    let pick = |random: &mut Random| {
        let name = disks[random.index(disks.len())];
        world.disk(path(name)).unwrap()
    };
    let mut files = write_files(&pool, 8, &operation);
    for fault in 0..WRITES_LOST + WRITES_ELSEWHERE {
        // Each of these is one of the next writes of a txg.
        let nth = random.below(3);
        pick(&mut random).inject(match fault < WRITES_LOST {
            true => Fault::LoseWrite { nth },
            false => Fault::MisdirectWrite {
                nth,
                to: random.below(DISK_BYTES / SECTOR_BYTES) * SECTOR_BYTES,
            },
        });
        let number = widen(files.len());
        files.push(write_one(&pool, number, &operation));
    }
    disks
        .iter()
        .for_each(|name| world.disk(path(name)).unwrap().clear_faults());
    for fault in 0..BITS + SECTORS_LOST {
        let disk = pick(&mut random);
        let mut used = Vec::new();
        disk.for_each_page(|offset, _| used.push(offset));
        let page = used[random.index(used.len())];
        match fault < BITS {
            true => {
                let offset = page + random.below(SECTOR_BYTES.min(512));
                let byte = disk.peek(offset, 1)[0] ^ (1 << random.below(8));
                disk.poke(offset, &[byte]);
            }
            false => disk.inject(Fault::FailRange {
                action: Action::Read,
                range: page..page + 512,
                errno: Errno::IO,
            }),
        }
    }
    let first = scrub(host, &pool, &operation);
    // A disk has other sectors for those that were written again.
    disks
        .iter()
        .for_each(|name| world.disk(path(name)).unwrap().clear_faults());
    let second = scrub(host, &pool, &operation);
    // Where a block of metadata was lost, the second scrub may find more: its sectors are readable
    // again.
    if first.errors == 0 {
        let again = (second.repaired_bytes, second.errors);
        assert_eq!(again, (0, 0), "round {seed}: repaired and found again");
    }
    let mut found = first;
    found.blocks_lost = blocks_lost(&pool, &files, &operation);
    if is_redundant {
        assert_eq!((first.errors, found.blocks_lost), (0, 0));
    }
    if found.blocks_lost > 0 {
        let known = error_log_count(&pool, &operation).unwrap();
        assert!(first.errors > 0 && known > 0, "what is lost is named");
    }
    pool.close(Leaving::Exported, &operation).unwrap();
    let pool = import(host, Mode::ReadWrite, &operation).unwrap();
    assert_eq!(blocks_lost(&pool, &files, &operation), found.blocks_lost);
    pool.close(Leaving::Exported, &operation).unwrap();
    found
}

fn write_one(pool: &Pool, number: u64, operation: &Operation) -> ObjectId {
    use tarn_object::{NewObject, TxEstimate};
    use tarn_ondisk::object_type::ObjectType;
    let set = head(pool, operation);
    let tx = pool.txgs().assign(&TxEstimate::default(), operation);
    let tx = tx.unwrap();
    let new = NewObject::plain(ObjectType::PlainFile, support::files::BLOCK_BYTES);
    let file = set.allocate(&tx, new, operation).unwrap();
    file.write(&tx, 0, &contents(number, 0), operation).unwrap();
    let id = file.id();
    drop(tx);
    pool.sync_all(operation).unwrap();
    id
}

fn scrub(host: &Host, pool: &Pool, operation: &Operation) -> Found {
    let begun = pool.change_scan(ScanChange::Scrub, operation);
    begun.unwrap().unwrap();
    wait_for_scan(host, pool);
    let status = pool.scan_status().unwrap();
    assert_eq!(status.scan.state, FINISHED);
    Found {
        repaired_bytes: status.scan.processed_bytes,
        errors: status.scan.error_count,
        blocks_lost: 0,
    }
}

/// How many blocks of files cannot be read. The others are as they were written.
fn blocks_lost(pool: &Pool, files: &[ObjectId], operation: &Operation) -> u64 {
    pool.cache().forget_all();
    let set = head(pool, operation);
    let block_bytes = narrow(support::files::BLOCK_BYTES);
    let mut lost = 0;
    for (number, id) in files.iter().enumerate() {
        let Ok(file) = set.object(*id, operation) else {
            lost += support::files::FILE_BLOCKS;
            continue;
        };
        let expected = contents(widen(number), 0);
        for (block, expected) in expected.chunks(block_bytes).enumerate() {
            let mut found = vec![0; expected.len()];
            match file.read(widen(block * block_bytes), &mut found, operation) {
                Ok(_) => assert!(found == expected, "file {number}, block {block} is wrong"),
                Err(_) => lost += 1,
            }
        }
    }
    lost
}

/// Every combination of as many lost disks as the redundancy covers leaves every file readable.
#[test]
fn any_combination_of_lost_disks_up_to_the_redundancy_reads_everything() {
    for shape in SHAPES.into_iter().filter(|shape| shape.redundancy > 0) {
        let machine = machine(&DISKS[..shape.width]);
        let run = machine.run(move |host| {
            let operation = Operation::unmeasured();
            let vdevs = vec![vdev(shape.kind, &DISKS[..shape.width])];
            let pool = create_of(host, vdevs, &operation);
            let files = write_files(&pool, 6, &operation);
            pool.close(Leaving::Exported, &operation).unwrap();
            for lost in 0..1_u32 << shape.width {
                if widen(shape.redundancy) < u64::from(lost.count_ones()) {
                    continue;
                }
                let pool = import(host, Mode::ReadOnly, &operation).unwrap();
                for (index, leaf) in pool.vdevs().leaves().iter().enumerate() {
                    if lost & (1 << index) != 0 {
                        let is_out = pool
                            .vdevs()
                            .take_out_of_use(leaf.guid, OutOfUse::OfflineForNow);
                        assert!(is_out, "{shape:?}, {lost:b}");
                    }
                }
                pool.cache().forget_all();
                check_files(&pool, &files, &operation);
                pool.close(Leaving::Kept, &operation).unwrap();
            }
        });
        run.unwrap();
    }
}
