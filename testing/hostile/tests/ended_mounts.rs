//! File systems whose mounts the system has ended without asking: what is done to them afterwards
//! loses no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tarn_administration::administration::Administration;
use tarn_administration::messages::dataset::{Destroy, Rollback, Snapshot};
use tarn_administration::messages::pool::VdevKind;
use tarn_host::sim::{SimHost, SimOptions};
use tarn_hostile::house::{DISKS, House, call, noise};
use tarn_hostile::leaks;

/// Records of so many bytes are in the log itself.
const SIZE: usize = 9_000;

/// So long a program writes before the mount ends, and goes on after all was done.
const WHILE: Duration = Duration::from_millis(30);

/// The system ends the mount of `tank/fs` while calls are still served in it, each of which waits
/// until the log has what it changed, and something is done to the file system. No block is left
/// afterwards that no process holds.
fn leaves_nothing_behind(work: fn(&House)) {
    let machine = SimHost::new(SimOptions::seed(61));
    machine.add_disk(format!("{DISKS}/a"), 128 << 20);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        house.create_dataset("tank/fs").unwrap();
        let request = Snapshot {
            names: vec!["tank/fs@before".to_string()],
            ..Snapshot::default()
        };
        house
            .administrator
            .dataset_snapshot(&call(), request)
            .unwrap();
        let (files, done) = (house.files("tank/fs"), Arc::new(AtomicBool::new(false)));
        let is_done = done.clone();
        let writer = host.spawn("writer", move || {
            for number in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let file = files.make(&format!("file{number}")).unwrap();
                files.write(file, 0, &noise(number, SIZE)).unwrap();
                files.sync(file).unwrap();
            }
        });
        host.sleep(WHILE);
        house.end_mounts();
        work(&house);
        host.sleep(WHILE);
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap_or_else(|panicked| panicked.resume());
        // What was freed is held back for some groups.
        for _ in 0..6 {
            house.sync().unwrap();
        }
        assert_eq!(leaks::walk(host, "tank").unwrap().log_blocks, 0);
        house.export("tank", false).unwrap();
        assert_eq!(leaks::walk(host, "tank").unwrap().log_blocks, 0);
    });
    run.unwrap();
}

#[test]
fn one_that_is_destroyed_takes_its_log_along() {
    leaves_nothing_behind(|house| {
        let request = Destroy {
            name: "tank/fs".to_string(),
            recursive: true,
            ..Destroy::default()
        };
        house
            .administrator
            .dataset_destroy(&call(), request)
            .unwrap();
    });
}

#[test]
fn one_that_goes_back_leaves_no_log() {
    leaves_nothing_behind(|house| {
        let request = Rollback {
            name: "tank/fs@before".to_string(),
            ..Rollback::default()
        };
        house
            .administrator
            .dataset_rollback(&call(), request)
            .unwrap();
    });
}
