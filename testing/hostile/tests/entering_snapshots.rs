//! Snapshots that are destroyed while they are entered through `.zfs/snapshot`.

use std::time::Duration;
use tarn_administration::administration::Administration;
use tarn_administration::messages::dataset::{Destroy, Snapshot};
use tarn_administration::messages::pool::VdevKind;
use tarn_host::sim::{SimHost, SimOptions};
use tarn_hostile::house::{DISKS, House, call, operation};

/// So many are destroyed, each somewhat later after entering began than the one before.
const COUNT: u64 = 40;

/// By so much later: many steps fit into the time in which a snapshot is opened.
const STEP: Duration = Duration::from_micros(20);

/// A snapshot that is destroyed while it is entered is not served.
///
/// The pool is imported anew each time, so that entering a snapshot waits for the disk.
#[test]
fn a_snapshot_that_is_destroyed_while_it_is_entered_is_not_served() {
    let machine = SimHost::new(SimOptions::seed(62));
    machine.add_disk(format!("{DISKS}/a"), 128 << 20);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        for number in 0..COUNT {
            house.files("tank").make(&format!("file{number}")).unwrap();
            let request = Snapshot {
                names: vec![format!("tank@s{number}")],
                ..Snapshot::default()
            };
            house
                .administrator
                .dataset_snapshot(&call(), request)
                .unwrap();
        }
        let (mut entered_count, mut refused_count) = (0, 0);
        for number in 0..COUNT {
            house.export("tank", false).unwrap();
            house.import(Some("tank"), &[]).unwrap();
            let (_, tree) = house.trees().remove(0);
            let name = format!("s{number}");
            let enter = move || tree.snapshot(name.as_bytes(), &operation());
            let enters = host.spawn("enters", enter);
            host.sleep(STEP * u32::try_from(number).unwrap());
            let request = Destroy {
                name: format!("tank@s{number}"),
                ..Destroy::default()
            };
            house
                .administrator
                .dataset_destroy(&call(), request)
                .unwrap();
            let entered = enters.join().unwrap_or_else(|panicked| panicked.resume());
            match entered {
                Ok(entered) => {
                    assert!(entered.files().is_ending(), "snapshot {number}");
                    entered_count += 1;
                }
                Err(_) => refused_count += 1,
            }
        }
        assert!(entered_count > 0 && refused_count > 0);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}
