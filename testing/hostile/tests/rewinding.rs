//! Pools whose newest group is damaged: an import says what would help, and helps when it is asked
//! to.

use tarn_administration::administration::Administration;
use tarn_administration::messages::Refusal;
use tarn_administration::messages::pool::{Import, Imported, VdevKind};
use tarn_host::Host;
use tarn_host::sim::{SimDisk, SimHost, SimOptions};
use tarn_hostile::house::{DISKS, Files, House, call, noise, search};
use tarn_hostile::leaks;
use tarn_ondisk::uberblock::Uberblock;

const SIZE: usize = 100_000;
const RING_OFFSET: u64 = 128 << 10;
const LABEL_BYTES: u64 = 256 << 10;
const SLOT_BYTES: u64 = 1 << 10;
/// Two labels and the boot area are in front of data.
const DATA_OFFSET: u64 = 4 << 20;

/// The uberblocks of the first label, the newest last.
fn uberblocks(disk: &SimDisk) -> Vec<Uberblock> {
    let slots = (RING_OFFSET..LABEL_BYTES).step_by(usize::try_from(SLOT_BYTES).unwrap());
    let read = |offset| Uberblock::from_slot(&disk.peek(offset, 1 << 10)).ok();
    let mut found: Vec<Uberblock> = slots.filter_map(read).map(|(found, _)| found).collect();
    found.sort_by_key(|uberblock| uberblock.txg);
    found
}

/// Damages what an uberblock leads to: all copies.
fn damage(disk: &SimDisk, uberblock: &Uberblock) {
    for place in uberblock.root.dvas() {
        let start = place.offset().get() + DATA_OFFSET;
        disk.rot(start..start + 512);
    }
}

/// A pool with a file for each group, closed without an end.
fn prepare(machine: &SimHost) -> SimDisk {
    let disk = machine.add_disk(format!("{DISKS}/a"), 128 << 20);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        let files = house.files("tank");
        for number in 0..6 {
            let file = files.make(&format!("file{number}")).unwrap();
            files.write(file, 0, &noise(number, SIZE)).unwrap();
            house.sync().unwrap();
            host.sleep(std::time::Duration::from_secs(7));
        }
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
    disk
}

fn import(house: &House, change: impl FnOnce(&mut Import)) -> Result<Imported, Refusal> {
    let mut request = Import {
        search: search(),
        pool: Some("tank".to_string()),
        altroot: Some("/mounts".to_string()),
        force: true,
        ..Import::default()
    };
    change(&mut request);
    house.administrator.pool_import(&call(), request)
}

fn rewind(request: &mut Import) {
    request.rewind = true;
}

fn expect_files(house: &House, numbers: std::ops::Range<u64>) {
    let files = house.files("tank");
    for number in numbers {
        let file = files.find(&format!("file{number}")).unwrap();
        assert!(files.read(file, 0, SIZE).unwrap() == noise(number, SIZE));
    }
}

/// What was rewound goes on: it is written, exported, and imported as it is.
fn expect_goes_on(host: &Host, house: &House) {
    let files = house.files("tank");
    let file = files.make("after").unwrap();
    files.write(file, 0, &noise(99, SIZE)).unwrap();
    house.sync().unwrap();
    drop(files);
    house.export("tank", false).unwrap();
    let house = House::new(host);
    let imported = import(&house, |_| {}).unwrap();
    assert!(imported.notes.is_empty(), "{imported:?}");
    let files = house.files("tank");
    let file = files.find("after").unwrap();
    assert!(files.read(file, 0, SIZE).unwrap() == noise(99, SIZE));
    assert_eq!(house.status("tank").unwrap().error_count, 0);
    drop(files);
    house.export("tank", false).unwrap();
}

#[test]
fn an_import_goes_back_when_it_is_asked_to() {
    let machine = SimHost::new(SimOptions::seed(5));
    let disk = prepare(&machine);
    let newest = *uberblocks(&disk).last().unwrap();
    damage(&disk, &newest);
    let run = machine.run(|host| {
        let house = House::new(host);
        let refusal = import(&house, |_| {}).unwrap_err();
        let text = refusal.to_string() + &refusal.hints.join("\n");
        assert!(
            text.contains("Recovery is possible, but will result in some data loss."),
            "{text}"
        );
        assert!(
            text.contains("by executing 'zpool import -F tank'."),
            "{text}"
        );
        let tried = import(&house, |request| {
            rewind(request);
            request.dry_run = true;
        });
        let tried = tried.unwrap();
        assert!(tried.pools.is_empty() && tried.is_trial_failed, "{tried:?}");
        assert!(tried.notes[0].starts_with("Would be able to return tank to its state as of "));
        let imported = import(&house, rewind).unwrap();
        assert!(imported.notes[0].starts_with("Pool tank returned to its state as of "));
        expect_files(&house, 0..6);
        expect_goes_on(host, &house);
    });
    run.unwrap();
    assert!(uberblocks(&disk).last().unwrap().txg > newest.txg);
}

#[test]
fn far_back_it_goes_only_when_that_is_asked_for() {
    let machine = SimHost::new(SimOptions::seed(6));
    let disk = prepare(&machine);
    let all = uberblocks(&disk);
    let newest = all.last().unwrap().txg.get();
    let recent = all
        .iter()
        .filter(|uberblock| uberblock.txg.get() + 2 >= newest);
    recent.for_each(|uberblock| damage(&disk, uberblock));
    let run = machine.run(|host| {
        let house = House::new(host);
        import(&house, rewind).unwrap_err();
        let imported = import(&house, |request| {
            rewind(request);
            request.extreme = true;
        });
        let notes = imported.unwrap().notes;
        assert!(
            notes[0].starts_with("Pool tank returned to its state as of "),
            "{notes:?}"
        );
        expect_files(&house, 0..3);
        expect_goes_on(host, &house);
    });
    run.unwrap();
}

#[test]
fn a_group_can_be_named() {
    let machine = SimHost::new(SimOptions::seed(7));
    let disk = prepare(&machine);
    let all = uberblocks(&disk);
    let newest_s = all.last().unwrap().timestamp_s;
    let older = all.iter().rev().find(|older| older.timestamp_s < newest_s);
    let wanted = older.unwrap().txg;
    let run = machine.run(|host| {
        let house = House::new(host);
        let imported = import(&house, |request| request.txg = Some(wanted.get())).unwrap();
        assert!(
            imported.notes[1].starts_with("Discarded approximately "),
            "{imported:?}"
        );
        assert!(house.status("tank").unwrap().txg >= wanted.get());
        expect_files(&house, 0..3);
        expect_goes_on(host, &house);
    });
    run.unwrap();
}

/// A pool that is whole is imported as ever, and not at all when it is only tried.
#[test]
fn what_is_whole_is_not_rewound() {
    let machine = SimHost::new(SimOptions::seed(8));
    prepare(&machine);
    let run = machine.run(|host| {
        let house = House::new(host);
        let tried = import(&house, |request| {
            rewind(request);
            request.dry_run = true;
        });
        let tried = tried.unwrap();
        assert!(tried.pools.is_empty() && tried.notes.is_empty() && !tried.is_trial_failed);
        let imported = import(&house, rewind).unwrap();
        assert!(imported.notes.is_empty());
        expect_files(&house, 0..6);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

fn put(files: &Files, name: &str, seed: u64) {
    let file = files.make(name).unwrap();
    files.write(file, 0, &noise(seed, SIZE)).unwrap();
}

fn put_and_sync(files: &Files, name: &str, seed: u64) {
    put(files, name, seed);
    files.sync(files.find(name).unwrap()).unwrap();
}

fn has(files: &Files, name: &str, seed: u64) -> bool {
    let file = files.find(name).unwrap();
    files.read(file, 0, SIZE).unwrap() == noise(seed, SIZE)
}

/// The log says that a file is removed, and does not say that another one got its name before: that
/// is in a group that is given up.
#[test]
fn going_back_gives_up_logs_that_build_on_what_is_given_up() {
    let machine = SimHost::new(SimOptions::seed(9));
    let disk = machine.add_disk(format!("{DISKS}/a"), 128 << 20);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        let files = house.files("tank");
        put(&files, "precious", 1);
        put_and_sync(&files, "other", 2);
        house.sync().unwrap();
        // So that the log has blocks which the space maps of the group gone back to know.
        (0..8).for_each(|number| put_and_sync(&files, &format!("some{number}"), 3));
        house.sync().unwrap();
        files.rename("precious", "precious.bak").unwrap();
        put(&files, "precious", 4);
        house.sync().unwrap();
        files.unlink("precious").unwrap();
        put_and_sync(&files, "other2", 5);
        machine.cut_power();
    });
    assert!(run.is_err(), "the power was cut");
    damage(&disk, uberblocks(&disk).last().unwrap());
    let run = machine.reboot().run(|host| {
        let house = House::new(host);
        let imported = import(&house, rewind).unwrap();
        assert!(imported.notes[0].starts_with("Pool tank returned to its state as of "));
        let files = house.files("tank");
        assert!(has(&files, "precious", 1) && has(&files, "other", 2));
        assert!(files.find("other2").is_err());
        drop(files);
        expect_goes_on(host, &house);
        leaks::walk(host, "tank").unwrap();
    });
    run.unwrap();
}

/// A log that waits for its dataset is part of all groups since it was claimed.
#[test]
fn going_back_keeps_logs_that_were_claimed_before() {
    let machine = SimHost::new(SimOptions::seed(10));
    machine.add_disk(format!("{DISKS}/a"), 128 << 20);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        let files = house.files("tank");
        house.sync().unwrap();
        (0..4).for_each(|number| put_and_sync(&files, &format!("some{number}"), number));
        machine.cut_power();
    });
    assert!(run.is_err(), "the power was cut");
    let machine = machine.reboot();
    let run = machine.run(|host| {
        let house = House::new(host);
        import(&house, |request| request.no_mount = true).unwrap();
        house.create_dataset("tank/more").unwrap();
        house.sync().unwrap();
        house.export("tank", false).unwrap();
    });
    run.unwrap();
    let disk = machine.disk(format!("{DISKS}/a")).unwrap();
    damage(&disk, uberblocks(&disk).last().unwrap());
    let run = machine.run(|host| {
        let house = House::new(host);
        let imported = import(&house, rewind).unwrap();
        assert!(imported.notes[0].starts_with("Pool tank returned to its state as of "));
        let files = house.files("tank");
        (0..4).for_each(|number| assert!(has(&files, &format!("some{number}"), number)));
        drop(files);
        expect_goes_on(host, &house);
        leaks::walk(host, "tank").unwrap();
    });
    run.unwrap();
}
