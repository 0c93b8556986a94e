//! Sequential rebuilds of mirrors.

mod support;

use std::time::Duration;
use support::files::{check_files, vdev, wait_for_scan, write_files};
use support::{create_of, import, machine, path};
use tarn_host::sim::{Fault, SimHost};
use tarn_host::{Action, Errno, Host};
use tarn_ondisk::label::DATA_START_BYTES;
use tarn_ondisk::rebuild::{ACTIVE, CANCELED, COMPLETE, Rebuild};
use tarn_ondisk::scan::{FINISHED, RESILVER, SCRUB};
use tarn_ondisk::units::Guid;
use tarn_pool::attach::{Joining, Newcomer};
use tarn_pool::{LeafScan, Leaving, Mode, Pool, ScanChange, ScanRefusal, VdevChangeError};
use tarn_probe::Operation;
use tarn_vdev::{OutOfUse, VdevKind};

const DISKS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The device on a disk.
fn leaf(pool: &Pool, disk: &str) -> Guid {
    let root = pool.vdevs().config();
    let leaves = root.leaves();
    let at = |leaf: &&&tarn_vdev::VdevConfig| {
        leaf.path.as_ref().and_then(|path| path.as_str()) == Some(&path(disk))
    };
    leaves.iter().find(at).expect("a device of the pool").guid
}

fn join(
    pool: &Pool,
    joining: Joining,
    disk: &str,
    is_sequential: bool,
    operation: &Operation,
) -> Result<(), VdevChangeError> {
    let new = Newcomer {
        path: &path(disk),
        spare: None,
        is_sequential,
    };
    pool.join(joining, new, operation)
}

fn rebuild(pool: &Pool) -> Rebuild {
    let status = pool.rebuild_status();
    status.first().expect("a rebuild was begun").rebuild
}

/// Gives the rebuild, unless a resilver has begun after it.
fn wait_for_rebuild(host: &Host, pool: &Pool) -> Option<Rebuild> {
    for _ in 0..20_000 {
        if !pool.is_rebuilding() {
            // What follows is in the same txg.
            pool.sync_all(&Operation::unmeasured()).unwrap();
            return pool.rebuild_status().first().map(|status| status.rebuild);
        }
        host.sleep(Duration::from_millis(10));
    }
    panic!("the rebuild does not end: {:?}", pool.rebuild_status());
}

fn is_feature_active(pool: &Pool) -> bool {
    let feature = tarn_ondisk::features::Feature::DeviceRebuild;
    pool.features().is_active(feature.guid())
}

fn slow(machine: &SimHost, disk: &str, factor: u32) {
    machine
        .disk(path(disk))
        .unwrap()
        .inject(Fault::Slow { factor });
}

/// Only these disks are used; all files are read from them.
fn check_alone(pool: &Pool, alone: &str, files: &[tarn_ondisk::units::ObjectId], op: &Operation) {
    let alone = leaf(pool, alone);
    for other in pool.vdevs().leaves() {
        if other.guid != alone {
            let out = OutOfUse::OfflineForNow;
            assert!(pool.vdevs().take_out_of_use(other.guid, out));
        }
    }
    pool.cache().forget_all();
    check_files(pool, files, op);
}

#[test]
fn an_attached_device_is_copied_and_then_scrubbed() {
    let machine = machine(&DISKS);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
        let files = write_files(&pool, 40, &operation);
        let beside = Joining::Beside(leaf(&pool, "a"));
        join(&pool, beside, "b", true, &operation).unwrap();
        let ended = wait_for_rebuild(host, &pool).unwrap();
        assert_eq!((ended.state, ended.error_count), (COMPLETE, 0));
        assert!(ended.rebuilt_bytes > (40 * 24 * 16) << 10, "{ended:?}");
        assert_eq!(ended.scanned_bytes, ended.issued_bytes);
        // It begins by itself.
        wait_for_scan(host, &pool);
        let scan = pool.scan_status().unwrap().scan;
        assert_eq!((scan.function, scan.state), (SCRUB, FINISHED));
        assert_eq!((scan.error_count, scan.processed_bytes), (0, 0));
        assert!(!is_feature_active(&pool));
        let new = pool.vdevs().leaf(leaf(&pool, "b")).unwrap();
        assert!(new.dtl().is_empty());
        check_alone(&pool, "b", &files, &operation);
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_replaced_device_leaves_after_the_rebuild() {
    let machine = machine(&DISKS);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let shape = vdev(VdevKind::Mirror, &["a", "b"]);
        let pool = create_of(host, vec![shape], &operation);
        let files = write_files(&pool, 20, &operation);
        let old = leaf(&pool, "a");
        join(&pool, Joining::InsteadOf(old), "c", true, &operation).unwrap();
        wait_for_rebuild(host, &pool);
        assert!(pool.vdevs().leaf(old).is_none(), "the old device stays");
        let root = pool.vdevs().config();
        let new = root.find(leaf(&pool, "c")).unwrap();
        assert_eq!((new.rebuild_txg(), new.resilver_txg()), (None, None));
        wait_for_scan(host, &pool);
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        assert_eq!(rebuild(&pool).state, COMPLETE);
        check_alone(&pool, "c", &files, &operation);
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}

/// Files are written while the device is filled, and the pool is exported in the middle.
#[test]
fn a_rebuild_that_exports_interrupt_goes_on_while_files_are_written() {
    for pause_ms in [0, 40, 200, 1_000, 4_000] {
        let machine = machine(&DISKS);
        let world = machine.clone();
        let run = machine.run(move |host| {
            let operation = Operation::unmeasured();
            let shape = vdev(VdevKind::Mirror, &["a", "b"]);
            let pool = create_of(host, vec![shape], &operation);
            let mut files = write_files(&pool, 60, &operation);
            slow(&world, "c", 50);
            let beside = Joining::Beside(leaf(&pool, "a"));
            join(&pool, beside, "c", true, &operation).unwrap();
            host.sleep(Duration::from_millis(pause_ms));
            pool.close(Leaving::Exported, &operation).unwrap();
            let pool = import(host, Mode::ReadWrite, &operation).unwrap();
            let more = write_files(&pool, 30, &operation);
            files.truncate(60);
            let ended = wait_for_rebuild(host, &pool).unwrap();
            assert_eq!((ended.state, ended.error_count), (COMPLETE, 0));
            wait_for_scan(host, &pool);
            let scan = pool.scan_status().unwrap().scan;
            assert_eq!((scan.function, scan.state), (SCRUB, FINISHED));
            assert_eq!(
                (scan.error_count, scan.processed_bytes),
                (0, 0),
                "{pause_ms} ms: it was not filled"
            );
            check_files(&pool, &more, &operation);
            check_alone(&pool, "c", &files, &operation);
            pool.close(Leaving::Kept, &operation).unwrap();
        });
        run.unwrap();
    }
}

#[test]
fn a_range_that_cannot_be_read_keeps_the_births_and_a_resilver_begins() {
    let machine = machine(&DISKS);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
        let _ = write_files(&pool, 20, &operation);
        let at = DATA_START_BYTES + (4 << 20);
        world.disk(path("a")).unwrap().inject(Fault::FailRange {
            action: Action::Read,
            range: at..at + 4096,
            errno: Errno::IO,
        });
        let beside = Joining::Beside(leaf(&pool, "a"));
        join(&pool, beside, "b", true, &operation).unwrap();
        assert_eq!(wait_for_rebuild(host, &pool), None);
        assert!(!is_feature_active(&pool));
        // All births are visited; only blocks of the sector cannot be read.
        let scan = pool.scan_status().unwrap().scan;
        assert_eq!(scan.function, RESILVER);
        wait_for_scan(host, &pool);
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn rebuilds_and_scans_exclude_each_other() {
    let machine = machine(&DISKS);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let operation = Operation::unmeasured();
        let shapes = vec![
            vdev(VdevKind::Mirror, &["a", "b"]),
            vdev(VdevKind::Raidz { parity: 1 }, &["d", "e", "f"]),
        ];
        let pool = create_of(host, shapes, &operation);
        let _ = write_files(&pool, 60, &operation);
        let of_raidz = Joining::InsteadOf(leaf(&pool, "d"));
        let refused = join(&pool, of_raidz, "c", true, &operation).unwrap_err();
        let only = "only mirror and dRAID vdevs support sequential reconstruction";
        assert_eq!(refused.to_string(), only);
        slow(&world, "c", 200);
        let beside = Joining::Beside(leaf(&pool, "a"));
        pool.change_scan(ScanChange::Scrub, &operation)
            .unwrap()
            .unwrap();
        join(&pool, beside, "c", true, &operation).unwrap();
        assert_eq!(rebuild(&pool).state, ACTIVE);
        assert!(is_feature_active(&pool));
        let scan = pool.scan_status().unwrap().scan;
        assert_ne!(scan.state, tarn_ondisk::scan::SCANNING, "the scrub goes on");
        let change = |change| pool.change_scan(change, &operation).unwrap();
        assert_eq!(change(ScanChange::Scrub), Err(ScanRefusal::Resilvering));
        assert_eq!(change(ScanChange::Resilver), Err(ScanRefusal::Rebuilding));
        let refused = join(&pool, beside, "x", false, &operation).unwrap_err();
        assert_eq!(refused.to_string(), "currently sequentially resilvering");
        wait_for_rebuild(host, &pool);
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}

/// The second device joins while the first one is filled: all begins anew, for both.
#[test]
fn another_device_that_joins_has_the_rebuild_begin_anew() {
    let machine = machine(&DISKS);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
        let files = write_files(&pool, 60, &operation);
        slow(&world, "b", 50);
        let beside = Joining::Beside(leaf(&pool, "a"));
        join(&pool, beside, "b", true, &operation).unwrap();
        host.sleep(Duration::from_millis(500));
        let mark = |disk| pool.scan_of_leaf(leaf(&pool, disk)).map(LeafScan::text);
        while mark("b") != Some("resilvering") {
            assert!(pool.is_rebuilding(), "it was never said to be resilvering");
            host.sleep(Duration::from_millis(10));
        }
        assert_eq!(mark("a"), None);
        join(&pool, beside, "c", true, &operation).unwrap();
        let ended = wait_for_rebuild(host, &pool).unwrap();
        assert_eq!((ended.state, ended.error_count), (COMPLETE, 0));
        assert!(!is_feature_active(&pool));
        wait_for_scan(host, &pool);
        let scan = pool.scan_status().unwrap().scan;
        assert_eq!((scan.function, scan.processed_bytes), (SCRUB, 0));
        check_alone(&pool, "c", &files, &operation);
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn detaching_the_new_device_cancels_the_rebuild() {
    let machine = machine(&DISKS);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
        let files = write_files(&pool, 20, &operation);
        let beside = Joining::Beside(leaf(&pool, "a"));
        join(&pool, beside, "b", true, &operation).unwrap();
        // Nothing is copied before the next two txgs are stored.
        pool.detach(leaf(&pool, "b"), &operation).unwrap();
        let ended = wait_for_rebuild(host, &pool).unwrap();
        assert_eq!((ended.state, ended.rebuilt_bytes), (CANCELED, 0));
        assert!(!is_feature_active(&pool));
        assert_eq!(pool.scan_status().map(|status| status.scan.state), None);
        let beside = Joining::Beside(leaf(&pool, "a"));
        join(&pool, beside, "c", true, &operation).unwrap();
        assert_eq!(wait_for_rebuild(host, &pool).unwrap().state, COMPLETE);
        wait_for_scan(host, &pool);
        check_alone(&pool, "c", &files, &operation);
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}
