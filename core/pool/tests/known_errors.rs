//! Scrubs of the blocks of the error log (`zpool scrub -e`).

mod support;

use std::time::Duration;
use support::files::{check_files, vdev, wait_for_scan, write_files};
use support::{create_of, import, machine, path};
use tarn_host::Host;
use tarn_host::sim::{Random, SimHost};
use tarn_ondisk::error_scrub::{CANCELED, FINISHED};
use tarn_ondisk::label::DATA_START_BYTES;
use tarn_pool::{Leaving, Mode, Pool, ScanChange, ScanRefusal, error_log_count};
use tarn_probe::Operation;
use tarn_vdev::VdevKind;

const DISKS: [&str; 2] = ["a", "b"];

/// Writes noise to places of a disk, and gives what was there.
fn damage(machine: &SimHost, disk: &str) -> Vec<(u64, Vec<u8>)> {
    let disk = machine.disk(path(disk)).unwrap();
    let mut random = Random::new(7);
    let mut before = Vec::new();
    for _ in 0..600 {
        let offset = DATA_START_BYTES + (2 << 20) + random.below(8 << 20) / 512 * 512;
        before.push((offset, disk.peek(offset, 512)));
        disk.poke(offset, &random.bytes(512));
    }
    before
}

fn heal(machine: &SimHost, disk: &str, before: &[(u64, Vec<u8>)]) {
    let disk = machine.disk(path(disk)).unwrap();
    for (offset, bytes) in before.iter().rev() {
        disk.poke(*offset, bytes);
    }
}

fn change(pool: &Pool, change: ScanChange) -> Result<(), ScanRefusal> {
    pool.change_scan(change, &Operation::unmeasured()).unwrap()
}

fn wait_for_errors(host: &Host, pool: &Pool) {
    for _ in 0..10_000 {
        if !pool.error_scrub().0.is_running() {
            pool.sync_all(&Operation::unmeasured()).unwrap();
            return;
        }
        host.sleep(Duration::from_millis(10));
    }
    panic!("it does not end: {:?}", pool.error_scrub());
}

#[test]
fn errors_that_are_gone_are_forgotten_and_others_stay() {
    let machine = machine(&DISKS);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
        let files = write_files(&pool, 20, &operation);
        // Nothing is known, so nothing begins.
        assert_eq!(change(&pool, ScanChange::ErrorScrub), Ok(()));
        assert_eq!(pool.error_scrub().0.function, 0);
        let before = damage(&world, "a");
        pool.cache().forget_all();
        assert_eq!(change(&pool, ScanChange::Scrub), Ok(()));
        wait_for_scan(host, &pool);
        let known = error_log_count(&pool, &operation).unwrap();
        assert!(known > 3, "{known} errors are known");
        // All are found again.
        assert_eq!(change(&pool, ScanChange::ErrorScrub), Ok(()));
        wait_for_errors(host, &pool);
        let ended = pool.error_scrub().0;
        assert_eq!((ended.state, ended.examined), (FINISHED, known));
        assert_eq!(ended.error_count, known);
        assert_eq!(error_log_count(&pool, &operation).unwrap(), known);
        // Half of them are gone.
        heal(&world, "a", &before[300..]);
        pool.cache().forget_all();
        assert_eq!(change(&pool, ScanChange::ErrorScrub), Ok(()));
        wait_for_errors(host, &pool);
        let left = error_log_count(&pool, &operation).unwrap();
        assert!(left < known, "{left} of {known} are left");
        heal(&world, "a", &before);
        pool.cache().forget_all();
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        assert_eq!(pool.error_scrub().0.state, FINISHED);
        assert_eq!(change(&pool, ScanChange::ErrorScrub), Ok(()));
        wait_for_errors(host, &pool);
        assert_eq!(error_log_count(&pool, &operation).unwrap(), 0);
        check_files(&pool, &files, &operation);
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn it_is_paused_over_an_import_resumed_and_stopped() {
    let machine = machine(&DISKS);
    let world = machine.clone();
    let run = machine.run(move |host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::File, &["a"])], &operation);
        let _ = write_files(&pool, 20, &operation);
        damage(&world, "a");
        assert_eq!(change(&pool, ScanChange::Scrub), Ok(()));
        wait_for_scan(host, &pool);
        let known = error_log_count(&pool, &operation).unwrap();
        world
            .disk(path("a"))
            .unwrap()
            .inject(tarn_host::sim::Fault::Slow { factor: 2_000 });
        assert_eq!(change(&pool, ScanChange::ErrorScrub), Ok(()));
        assert_eq!(
            change(&pool, ScanChange::Scrub),
            Err(ScanRefusal::ErrorScrubbing)
        );
        assert_eq!(change(&pool, ScanChange::Pause), Ok(()));
        let refused = Err(ScanRefusal::ErrorScrubPaused);
        assert_eq!(change(&pool, ScanChange::Pause), refused);
        assert_eq!(change(&pool, ScanChange::Scrub), refused);
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        assert!(pool.error_scrub().0.is_paused());
        assert_eq!(change(&pool, ScanChange::ErrorScrub), Ok(()));
        assert_eq!(change(&pool, ScanChange::Stop), Ok(()));
        assert_eq!(pool.error_scrub().0.state, CANCELED);
        assert_eq!(change(&pool, ScanChange::Stop), Err(ScanRefusal::NoScan));
        // What it had not come to is known still.
        assert_eq!(error_log_count(&pool, &operation).unwrap(), known);
        pool.close(Leaving::Kept, &operation).unwrap();
    });
    run.unwrap();
}
