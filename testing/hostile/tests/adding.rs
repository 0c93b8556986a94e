//! Vdevs are added while applications write: whenever the power fails, the pool is found without
//! them or with all that belongs to them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tarn_administration::administration::Administration;
use tarn_administration::messages::Refusal;
use tarn_administration::messages::pool::{Add, VdevKind, VdevRole, VdevSpec};
use tarn_host::sim::{Fault, SimHost, SimOptions};
use tarn_host::{Action, Errno, Host};
use tarn_hostile::house::{DISKS, Files, House, call, noise};
use tarn_hostile::leaks::walk;

/// Larger than what goes into an intent log whole, so that blocks are allocated.
const SIZE: usize = 200_000;

const ALL: [&str; 4] = ["data", "b", "c", "log"];

fn path(disk: &str) -> String {
    format!("{DISKS}/{disk}")
}

fn machine(seed: u64) -> SimHost {
    let machine = SimHost::new(SimOptions::seed(seed));
    for disk in ALL {
        machine.add_disk(path(disk), 64 << 20);
    }
    machine
}

/// Adds two disks for data and one for logs, by one command.
fn add(house: &House) -> Result<(), Refusal> {
    let leaf = |disk: &str, role| VdevSpec {
        kind: VdevKind::Leaf,
        path: Some(path(disk)),
        children: Vec::new(),
        role,
    };
    let request = Add {
        name: "tank".to_string(),
        vdevs: vec![
            leaf("b", VdevRole::Data),
            leaf("c", VdevRole::Data),
            leaf("log", VdevRole::Log),
        ],
        ..Add::default()
    };
    house.administrator.pool_add(&call(), request).map(|_| ())
}

/// The disks that the pool consists of.
fn disks(house: &House) -> Vec<String> {
    let layout = house.status("tank").unwrap().layout.into_iter();
    let paths = layout.map(|vdev| vdev.path.unwrap());
    paths
        .map(|path| path.replace(&format!("{DISKS}/"), ""))
        .collect()
}

fn put(files: &Files, number: u64) {
    let file = files.make(&format!("file{number}")).unwrap();
    files.write(file, 0, &noise(number, SIZE)).unwrap();
}

fn check(house: &House, numbers: std::ops::Range<u64>) {
    let files = house.files("tank");
    for number in numbers {
        let file = files.find(&format!("file{number}")).unwrap();
        let read = files.read(file, 0, SIZE).unwrap();
        assert!(
            read == noise(number, SIZE),
            "file {number} reads as written"
        );
    }
}

/// Group after group is stored while `work` is done.
fn while_storing(host: &Host, house: &House, work: impl FnOnce()) {
    let done = Arc::new(AtomicBool::new(false));
    let files = Files::of(house.files("tank").system().clone());
    let (is_done, administrator) = (done.clone(), house.administrator.clone());
    let store = move || {
        let mut number = 1_000;
        while !is_done.load(Ordering::Relaxed) {
            put(&files, number);
            let request = tarn_administration::messages::pool::Sync::default();
            administrator.pool_sync(&call(), request).unwrap();
            number += 1;
        }
    };
    let thread = host.spawn("writer", store);
    work();
    done.store(true, Ordering::Relaxed);
    thread.join().unwrap_or_else(|panicked| panicked.resume());
}

/// Adds vdevs, and cuts the power at the given write after the beginning. Gives how many writes
/// there were.
fn cut_at(cut: Option<u64>) -> u64 {
    let machine = machine(41 + cut.unwrap_or(0));
    let writes = Mutex::new(0);
    let run = machine.run(|host| {
        let house = House::new(host);
        house
            .create("tank", VdevKind::Leaf, &["data"], &[])
            .unwrap();
        let files = house.files("tank");
        (0..6).for_each(|number| put(&files, number));
        house.sync().unwrap();
        let began = machine.device_writes();
        if let Some(cut) = cut {
            machine.cut_power_after_writes(began + cut);
        }
        while_storing(host, &house, || add(&house).unwrap());
        *writes.lock().unwrap() = machine.device_writes() - began;
        assert_eq!(disks(&house), ALL);
        machine.cut_power();
    });
    assert!(run.is_err(), "the power was cut");
    let machine = machine.reboot();
    let run = machine.run(|host| {
        let seen = walk(host, "tank");
        assert!(seen.is_ok(), "{seen:?} at {cut:?}");
        let house = House::new(host);
        house.import(Some("tank"), &[]).unwrap();
        let found = disks(&house);
        assert!(found == ALL || found == ALL[..1], "{found:?} at {cut:?}");
        check(&house, 0..6);
        // Every vdev that is there takes blocks, and they are found again.
        let files = house.files("tank");
        (10..60).for_each(|number| put(&files, number));
        drop(files);
        house.export("tank", false).unwrap();
        let seen = walk(host, "tank");
        assert!(seen.is_ok(), "{seen:?} at {cut:?}");
        let house = House::new(host);
        house.import(Some("tank"), &[]).unwrap();
        check(&house, 0..6);
        check(&house, 10..60);
        if found.len() == 1 {
            // Devices that were not part of the pool yet belong to no pool.
            add(&house).unwrap();
        }
        house.export("tank", false).unwrap();
        let seen = walk(host, "tank");
        assert!(seen.is_ok(), "{seen:?} at {cut:?}");
    });
    run.unwrap();
    *writes.lock().unwrap()
}

#[test]
fn power_may_fail_at_any_write_while_vdevs_are_added() {
    let writes = cut_at(None);
    assert!(writes > 20, "{writes}");
    let step = usize::try_from(writes / 60).unwrap().max(1);
    for cut in (1..=writes).step_by(step) {
        cut_at(Some(cut));
    }
}

#[test]
fn a_command_that_fails_at_its_last_device_leaves_the_pool_as_it_was() {
    let machine = machine(40);
    let run = machine.run(|host| {
        let house = House::new(host);
        house
            .create("tank", VdevKind::Leaf, &["data"], &[])
            .unwrap();
        let files = house.files("tank");
        (0..6).for_each(|number| put(&files, number));
        let broken = machine.disk(path("log")).unwrap();
        broken.inject(Fault::FailRange {
            action: Action::Write,
            range: 0..u64::MAX,
            errno: Errno::IO,
        });
        while_storing(host, &house, || assert!(add(&house).is_err()));
        assert_eq!(disks(&house), ALL[..1]);
        (10..30).for_each(|number| put(&files, number));
        drop(files);
        house.export("tank", false).unwrap();
        walk(host, "tank").unwrap();
        broken.clear_faults();
        let house = House::new(host);
        house.import(Some("tank"), &[]).unwrap();
        assert_eq!(disks(&house), ALL[..1]);
        add(&house).unwrap();
        assert_eq!(disks(&house), ALL);
        check(&house, 0..6);
        check(&house, 10..30);
        house.export("tank", false).unwrap();
        walk(host, "tank").unwrap();
    });
    run.unwrap();
}
