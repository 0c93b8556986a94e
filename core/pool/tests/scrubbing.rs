//! Scrubs and resilvers of pools whose disks were damaged, or were away.

mod support;

use std::time::Duration;
use support::files::{check_files, contents, head, ours, vdev, wait_for_scan, write_files};
use support::{create_of, import, machine, path};
use tarn_dataset::ops::destroy_snapshot::DestroySnapshots;
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_host::Host;
use tarn_host::sim::{Fault, Random, SimHost};
use tarn_object::TxEstimate;
use tarn_ondisk::declare::widen;
use tarn_ondisk::label::DATA_START_BYTES;
use tarn_ondisk::scan::{CANCELED, FINISHED, RESILVER, SCANNING, SCRUB};

use tarn_pool::{LeafScan, Leaving, Mode, Pool, ScanChange, ScanRefusal};
use tarn_probe::Operation;

use tarn_vdev::{ExpectedLabels, OutOfUse, VdevKind};

fn scrub(host: &Host, pool: &Pool, operation: &Operation) {
    pool.change_scan(ScanChange::Scrub, operation)
        .unwrap()
        .unwrap();
    wait_for_scan(host, pool);
}

/// Damages so many places behind the front labels of a disk.
fn damage(machine: &SimHost, disk: &str, count: usize, random: &mut Random) {
    let disk = machine.disk(path(disk)).unwrap();
    // Most of the disk is empty: places near its start are more likely in use.
    for _ in 0..count {
        let offset = DATA_START_BYTES + random.below(24 << 20) / 512 * 512;
        let bytes = random.bytes(512);
        disk.poke(offset, &bytes);
    }
}

/// Shapes, each with how many disks may be damaged.
const SHAPES: [(VdevKind, usize, usize); 5] = [
    (VdevKind::Mirror, 2, 1),
    (VdevKind::Mirror, 3, 2),
    (VdevKind::Raidz { parity: 1 }, 4, 1),
    (VdevKind::Raidz { parity: 2 }, 5, 2),
    (VdevKind::Raidz { parity: 3 }, 6, 3),
];

const DISKS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn faults() -> usize {
    let wanted = std::env::var("TARN_SCRUB_FAULTS").ok();
    wanted.and_then(|count| count.parse().ok()).unwrap_or(400)
}

/// The first scrub repairs; the second reads the same places and finds nothing to repair.
#[test]
fn a_scrub_repairs_what_redundancy_covers_and_the_next_finds_nothing() {
    for (kind, width, damaged) in SHAPES {
        let machine = machine(&DISKS);
        let world = machine.clone();
        let run = machine.run(move |host| {
            let operation = Operation::unmeasured();
            let disks = &DISKS[..width];
            let pool = create_of(host, vec![vdev(kind, disks)], &operation);
            let files = write_files(&pool, 12, &operation);
            let mut random = Random::new(7);
            for disk in &disks[..damaged] {
                damage(&world, disk, faults() / damaged, &mut random);
            }
            scrub(host, &pool, &operation);
            let first = pool.scan_status().unwrap();
            assert_eq!((first.scan.function, first.scan.state), (SCRUB, FINISHED));
            assert_eq!(first.scan.error_count, 0, "{kind:?}: {:?}", first.scan);
            assert!(first.scan.processed_bytes > 0, "{kind:?} repaired nothing");
            scrub(host, &pool, &operation);
            let second = pool.scan_status().unwrap();
            assert_eq!(second.scan.error_count, 0);
            assert_eq!(second.scan.processed_bytes, 0, "{kind:?} repaired twice");
            pool.cache().forget_all();
            check_files(&pool, &files, &operation);
            pool.close(Leaving::Exported, &operation).unwrap();
        });
        run.unwrap();
    }
}

/// The disk was offline while files were written: it is resilvered, its dirty time log is empty
/// then, and the files are read from it alone.
#[test]
fn a_resilver_gives_a_disk_what_it_missed_and_empties_its_dirty_time_log() {
    for (kind, width, _) in SHAPES {
        let machine = machine(&DISKS);
        let run = machine.run(move |host| {
            let operation = Operation::unmeasured();
            let pool = create_of(host, vec![vdev(kind, &DISKS[..width])], &operation);
            let leaf = pool.vdevs().leaves()[0].clone();
            assert!(
                pool.vdevs()
                    .take_out_of_use(leaf.guid, OutOfUse::OfflineForNow)
            );
            let files = write_files(&pool, 12, &operation);
            let labels = ExpectedLabels::OfPool(pool.facts().guid);
            pool.vdevs().bring_online(leaf.guid, labels);
            assert!(!leaf.dtl().is_empty(), "it missed the files");
            pool.request_resilver(&operation).unwrap();
            pool.sync_all(&operation).unwrap();
            wait_for_scan(host, &pool);
            let status = pool.scan_status().unwrap();
            assert_eq!(
                (status.scan.function, status.scan.state),
                (RESILVER, FINISHED)
            );
            assert_eq!(status.scan.error_count, 0);
            assert!(status.scan.processed_bytes > 0);
            assert!(leaf.dtl().is_empty(), "{kind:?}: {:?}", leaf.dtl());
            scrub(host, &pool, &operation);
            let status = pool.scan_status().unwrap();
            assert_eq!(status.scan.function, SCRUB);
            assert_eq!(status.scan.processed_bytes, 0, "{kind:?} was not filled");
            if kind == VdevKind::Mirror {
                for other in &pool.vdevs().leaves()[1..] {
                    assert!(
                        pool.vdevs()
                            .take_out_of_use(other.guid, OutOfUse::OfflineForNow)
                    );
                }
                pool.cache().forget_all();
                check_files(&pool, &files, &operation);
            }
            pool.close(Leaving::Kept, &operation).unwrap();
        });
        run.unwrap();
    }
}

/// The pool is closed while the resilver runs, a little later each time. The next import goes on
/// with it, and the disk has everything in the end.
#[test]
fn a_resilver_that_an_export_interrupts_goes_on_at_the_next_import() {
    for pause_ms in [0, 3, 10, 30, 90] {
        let machine = machine(&DISKS);
        let run = machine.run(move |host| {
            let operation = Operation::unmeasured();
            let shape = vdev(VdevKind::Mirror, &["a", "b"]);
            let pool = create_of(host, vec![shape], &operation);
            let leaf = pool.vdevs().leaves()[0].clone();
            assert!(
                pool.vdevs()
                    .take_out_of_use(leaf.guid, OutOfUse::OfflineForNow)
            );
            let files = write_files(&pool, 40, &operation);
            pool.vdevs().bring_online(leaf.guid, ours(&pool));
            pool.request_resilver(&operation).unwrap();
            host.sleep(Duration::from_millis(pause_ms));
            pool.close(Leaving::Exported, &operation).unwrap();
            let pool = import(host, Mode::ReadWrite, &operation).unwrap();
            pool.sync_all(&operation).unwrap();
            wait_for_scan(host, &pool);
            let leaf = pool.vdevs().leaf(leaf.guid).unwrap();
            assert!(leaf.dtl().is_empty(), "{pause_ms} ms: {:?}", leaf.dtl());
            scrub(host, &pool, &operation);
            let status = pool.scan_status().unwrap();
            assert_eq!(
                status.scan.processed_bytes, 0,
                "{pause_ms} ms: it was not filled"
            );
            check_files(&pool, &files, &operation);
            pool.close(Leaving::Exported, &operation).unwrap();
        });
        run.unwrap();
    }
}

#[test]
fn damage_beyond_redundancy_is_logged_until_a_scrub_does_not_find_it() {
    let machine = machine(&DISKS);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
        let files = write_files(&pool, 4, &operation);
        let copy = world.disk(path("a")).unwrap().keep();
        damage(&world, "a", 3_000, &mut Random::new(3));
        scrub(host, &pool, &operation);
        let status = pool.scan_status().unwrap();
        assert!(status.scan.error_count > 0, "no damage was found");
        let known = tarn_pool::error_log_count(&pool, &operation).unwrap();
        assert!(known > 0, "no damage is known");
        drop(copy);
        let set = head(&pool, &operation);
        for file in &files {
            let tx = pool
                .txgs()
                .assign(&TxEstimate::default(), &operation)
                .unwrap();
            let _ = set.free_object(&tx, *file, &operation);
        }
        pool.sync_all(&operation).unwrap();
        scrub(host, &pool, &operation);
        let errors = pool.scan_status().unwrap().scan.error_count;
        let left = tarn_pool::error_log_count(&pool, &operation).unwrap();
        assert!(left <= errors, "errors of freed blocks are still known");
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_scrub_is_paused_resumed_after_an_import_and_stopped() {
    let machine = machine(&DISKS);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let change = |pool: &Pool, change| pool.change_scan(change, &operation).unwrap();
        let pool = create_of(host, vec![vdev(VdevKind::Mirror, &["a", "b"])], &operation);
        let files = write_files(&pool, 96, &operation);
        assert_eq!(change(&pool, ScanChange::Pause), Err(ScanRefusal::NoScan));
        assert_eq!(change(&pool, ScanChange::Stop), Err(ScanRefusal::NoScan));
        assert_eq!(change(&pool, ScanChange::Scrub), Ok(()));
        assert_eq!(change(&pool, ScanChange::Pause), Ok(()));
        assert_eq!(change(&pool, ScanChange::Pause), Err(ScanRefusal::Paused));
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        let status = pool.scan_status().unwrap();
        assert!(status.is_paused(), "{status:?}");
        assert_eq!(status.scan.state, SCANNING);
        assert_eq!(change(&pool, ScanChange::Scrub), Ok(()));
        wait_for_scan(host, &pool);
        let status = pool.scan_status().unwrap();
        assert_eq!((status.scan.state, status.scan.error_count), (FINISHED, 0));
        assert!(status.scan.examined_bytes > 0);
        assert_eq!(change(&pool, ScanChange::Scrub), Ok(()));
        assert_eq!(change(&pool, ScanChange::Pause), Ok(()));
        assert_eq!(change(&pool, ScanChange::Stop), Ok(()));
        assert_eq!(pool.scan_status().unwrap().scan.state, CANCELED);
        check_files(&pool, &files, &operation);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

/// Snapshots come and go while files are overwritten and a scrub runs: it ends, finds no errors,
/// and repairs nothing.
#[test]
fn a_scrub_beside_snapshots_and_writes_ends_without_errors() {
    let machine = machine(&DISKS);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let shape = vdev(VdevKind::Raidz { parity: 1 }, &["a", "b", "c"]);
        let pool = create_of(host, vec![shape], &operation);
        let files = write_files(&pool, 12, &operation);
        let set = head(&pool, &operation);
        for round in 0..12u64 {
            let _ = pool.change_scan(ScanChange::Scrub, &operation).unwrap();
            let snapshots = TakeSnapshots {
                names: vec![format!("tank@{round}")],
                settings: Vec::new(),
            };
            pool.run(snapshots, &operation).unwrap();
            for (number, file) in files.iter().enumerate() {
                let tx = pool
                    .txgs()
                    .assign(&TxEstimate::default(), &operation)
                    .unwrap();
                let file = set.object(*file, &operation).unwrap();
                let bytes = contents(widen(number), round + 1);
                file.write(&tx, 0, &bytes, &operation).unwrap();
            }
            if round > 2 {
                let destroy = DestroySnapshots {
                    names: vec![format!("tank@{}", round - 2)],
                    defer: false,
                };
                pool.run(destroy, &operation).unwrap();
            }
        }
        wait_for_scan(host, &pool);
        let status = pool.scan_status().unwrap();
        assert_eq!((status.scan.state, status.scan.error_count), (FINISHED, 0));
        assert_eq!(status.scan.processed_bytes, 0);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

/// What a scan does to the device on a disk.
fn mark(pool: &Pool, disk: &str) -> Option<LeafScan> {
    let leaves = pool.vdevs().leaves();
    let root = pool.vdevs().config();
    let is_it = |guid| {
        let leaf = root.find(guid).expect("a leaf of the tree");
        leaf.path.as_ref().and_then(|path| path.as_str()) == Some(&path(disk))
    };
    let leaf = leaves.iter().find(|leaf| is_it(leaf.guid)).unwrap();
    pool.scan_of_leaf(leaf.guid)
}

fn wait_for_mark(host: &Host, pool: &Pool, disk: &str, wanted: LeafScan) {
    for _ in 0..20_000 {
        if mark(pool, disk) == Some(wanted) {
            return;
        }
        host.sleep(Duration::from_millis(1));
    }
    panic!("{disk} was never {}", wanted.text());
}

fn slow(machine: &SimHost, disk: &str, factor: u32) {
    let disk = machine.disk(path(disk)).unwrap();
    disk.inject(Fault::Slow { factor });
}

#[test]
fn a_device_is_resilvering_or_repairing_while_a_scan_writes_to_it() {
    let machine = machine(&DISKS);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let operation = Operation::unmeasured();
        let shape = vdev(VdevKind::Mirror, &["a", "b"]);
        let pool = create_of(host, vec![shape], &operation);
        let (first, second) = (pool.vdevs().leaves()[0].guid, pool.vdevs().leaves()[1].guid);
        let take_out = |leaf, how| assert!(pool.vdevs().take_out_of_use(leaf, how));
        take_out(second, OutOfUse::OfflineForNow);
        write_files(&pool, 60, &operation);
        slow(&world, "b", 100);
        pool.vdevs().bring_online(second, ours(&pool));
        pool.request_resilver(&operation).unwrap();
        wait_for_mark(host, &pool, "b", LeafScan::Resilvering);
        assert_eq!(mark(&pool, "a"), None);
        slow(&world, "b", 1);
        wait_for_scan(host, &pool);
        assert_eq!(mark(&pool, "b"), None);
        damage(&world, "a", 400, &mut Random::new(11));
        slow(&world, "a", 50);
        let begun = pool.change_scan(ScanChange::Scrub, &operation).unwrap();
        begun.unwrap();
        wait_for_mark(host, &pool, "a", LeafScan::Repairing);
        assert_eq!(mark(&pool, "b"), None);
        // A device that is faulted is not said to be repaired.
        take_out(first, OutOfUse::FaultedForNow);
        assert_eq!(mark(&pool, "a"), None);
        slow(&world, "a", 1);
        wait_for_scan(host, &pool);
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}
