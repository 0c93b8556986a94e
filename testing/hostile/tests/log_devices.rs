//! Log devices come, go and break while applications are promised durability: whatever was promised
//! is there, at whatever write the power fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tarn_administration::administration::Administration;
use tarn_administration::messages::Refusal;
use tarn_administration::messages::dataset::Mount;
use tarn_administration::messages::pool::{
    Attach, Create, Detach, Import, Imported, Offline, Online, Remove, Switched, VdevKind,
    VdevRole, VdevSpec, VdevStatus,
};
use tarn_host::Host;
use tarn_host::sim::{Fault, SimHost, SimOptions};
use tarn_hostile::house::{DISKS, Files, House, call, noise, search};
use tarn_hostile::images::Image;

const SIZE: usize = 9_000;

fn machine(seed: u64, disks: &[&str]) -> SimHost {
    let machine = SimHost::new(SimOptions::seed(seed));
    for disk in disks {
        machine.add_disk(path(disk), 64 << 20);
    }
    machine
}

fn path(disk: &str) -> String {
    format!("{DISKS}/{disk}")
}

fn leaf(disk: &str, role: VdevRole) -> VdevSpec {
    VdevSpec {
        kind: VdevKind::Leaf,
        path: Some(path(disk)),
        children: Vec::new(),
        role,
    }
}

/// A log of these disks: a mirror when there are several.
fn log(disks: &[&str]) -> VdevSpec {
    match disks {
        [one] => leaf(one, VdevRole::Log),
        several => VdevSpec {
            kind: VdevKind::Mirror,
            path: None,
            children: several
                .iter()
                .map(|disk| leaf(disk, VdevRole::Log))
                .collect(),
            role: VdevRole::Log,
        },
    }
}

/// A pool of one disk and these logs.
fn create(house: &House, logs: &[&[&str]]) {
    let mut vdevs = vec![leaf("data", VdevRole::Data)];
    vdevs.extend(logs.iter().map(|disks| log(disks)));
    let request = Create {
        name: "tank".to_string(),
        vdevs,
        ..Create::default()
    };
    house.administrator.pool_create(&call(), request).unwrap();
}

fn import_with(house: &House, missing_log: bool) -> Result<Imported, Refusal> {
    let request = Import {
        search: search(),
        pool: Some("tank".to_string()),
        altroot: Some("/mounts".to_string()),
        force: true,
        missing_log,
        ..Import::default()
    };
    house.administrator.pool_import(&call(), request)
}

fn import_unmounted(house: &House) {
    let request = Import {
        search: search(),
        pool: Some("tank".to_string()),
        altroot: Some("/mounts".to_string()),
        force: true,
        no_mount: true,
        ..Import::default()
    };
    house.administrator.pool_import(&call(), request).unwrap();
}

/// Mounts the pool's root. Gives why not.
fn mount(house: &House, options: &[&str]) -> Vec<String> {
    let request = Mount {
        name: Some("tank".to_string()),
        options: options.iter().map(ToString::to_string).collect(),
        ..Mount::default()
    };
    match house.administrator.dataset_mount(&call(), request) {
        Ok(mounted) => mounted.refused.iter().map(ToString::to_string).collect(),
        Err(refusal) => vec![refusal.to_string()],
    }
}

fn import(house: &House) {
    let imported = import_with(house, false).unwrap();
    assert_eq!(imported.warnings, Vec::<String>::new());
}

fn remove(house: &House, devices: &[&str]) -> Vec<String> {
    let request = Remove {
        name: "tank".to_string(),
        devices: devices.iter().map(ToString::to_string).collect(),
        ..Remove::default()
    };
    let removed = house.administrator.pool_remove(&call(), request).unwrap();
    removed.refused.iter().map(ToString::to_string).collect()
}

fn join(house: &House, device: &str, new: &str, replaces: bool) -> Result<(), Refusal> {
    let request = Attach {
        name: "tank".to_string(),
        device: device.to_string(),
        new_device: path(new),
        replaces,
        ..Attach::default()
    };
    house
        .administrator
        .pool_attach(&call(), request)
        .map(|_| ())
}

fn attach(house: &House, device: &str, new: &str) {
    join(house, device, new, false).unwrap();
}

fn replace(house: &House, device: &str, new: &str) {
    join(house, device, new, true).unwrap();
}

fn detach(house: &House, device: &str) -> Result<(), Refusal> {
    let request = Detach {
        name: "tank".to_string(),
        device: device.to_string(),
    };
    house
        .administrator
        .pool_detach(&call(), request)
        .map(|_| ())
}

fn states(switched: Switched) -> Vec<String> {
    let devices = switched.devices.into_iter();
    let state = |device: tarn_administration::messages::pool::SwitchedDevice| match device.refusal {
        None => device.state,
        Some(refusal) => refusal.to_string(),
    };
    devices.map(state).collect()
}

fn offline(house: &House, device: &str, temporary: bool, fault: bool) -> Vec<String> {
    let request = Offline {
        name: "tank".to_string(),
        devices: vec![device.to_string()],
        temporary,
        fault,
    };
    states(house.administrator.pool_offline(&call(), request).unwrap())
}

fn online(house: &House, device: &str) -> Vec<String> {
    let request = Online {
        name: "tank".to_string(),
        devices: vec![device.to_string()],
        expand: false,
    };
    states(house.administrator.pool_online(&call(), request).unwrap())
}

/// The log vdevs.
fn logs(house: &House) -> Vec<VdevStatus> {
    let layout = house.status("tank").unwrap().layout;
    let logs = layout.into_iter();
    logs.filter(|vdev| vdev.role == VdevRole::Log).collect()
}

fn log_names(house: &House) -> Vec<String> {
    let name = |vdev: VdevStatus| vdev.name.replace(&format!("{DISKS}/"), "");
    logs(house).into_iter().map(name).collect()
}

/// What is on a disk between its labels.
fn contents(machine: &SimHost, disk: &str) -> Vec<u8> {
    machine.disk(path(disk)).unwrap().peek(4 << 20, 56 << 20)
}

/// How much of the log vdevs is in use.
fn log_bytes(house: &House) -> u64 {
    logs(house).iter().map(|vdev| vdev.allocated_bytes).sum()
}

/// What applications were promised: the numbers of files in a file system.
#[derive(Clone)]
struct Promises {
    dataset: &'static str,
    numbers: Arc<Mutex<Vec<u64>>>,
}

impl Default for Promises {
    fn default() -> Promises {
        Promises::of("tank")
    }
}

impl Promises {
    fn of(dataset: &'static str) -> Promises {
        Promises {
            dataset,
            numbers: Arc::default(),
        }
    }

    /// Writes a file, and notes it when `fsync` has returned.
    fn make(&self, files: &Files, number: u64) {
        let file = files.make(&format!("file{number}")).unwrap();
        files.write(file, 0, &noise(number, SIZE)).unwrap();
        if files.sync(file).is_ok() {
            self.numbers.lock().unwrap().push(number);
        }
    }

    /// All that was promised is there.
    fn check(&self, house: &House) {
        let files = house.files(self.dataset);
        // Not under the lock: the power may be cut here as well.
        let promised = self.numbers.lock().unwrap().clone();
        for number in promised {
            let file = files.find(&format!("file{number}"));
            let file = file.unwrap_or_else(|_| panic!("file {number} was promised"));
            let read = files.read(file, 0, SIZE).unwrap();
            assert!(
                read == noise(number, SIZE),
                "file {number} reads as written"
            );
        }
    }

    fn count(&self) -> usize {
        self.numbers.lock().unwrap().len()
    }
}

/// A thread in each file system calls `fsync` all the time while `work` is done.
fn while_promising(host: &Host, house: &House, all: &[Promises], work: impl FnOnce()) {
    let done = Arc::new(AtomicBool::new(false));
    let writer = |promises: &Promises| {
        let files = Files::of(house.files(promises.dataset).system().clone());
        let (promises, is_done) = (promises.clone(), done.clone());
        let write = move || {
            let mut number = 1_000;
            while !is_done.load(Ordering::Relaxed) {
                promises.make(&files, number);
                number += 1;
            }
        };
        host.spawn("writer", write)
    };
    let threads: Vec<_> = all.iter().map(writer).collect();
    work();
    done.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap_or_else(|panicked| panicked.resume());
    }
}

/// What is done to a pool, and how its logs are called before and after.
struct Case {
    disks: &'static [&'static str],
    logs: &'static [&'static [&'static str]],
    work: fn(&House),
    before: &'static [&'static str],
    after: &'static [&'static str],
}

/// Does it, and cuts the power at the given write after the beginning. Gives how many writes there
/// were.
fn cut_at(case: &Case, cut: Option<u64>) -> u64 {
    let machine = machine(31 + cut.unwrap_or(0), case.disks);
    let promises = [Promises::default(), Promises::of("tank/fs")];
    let writes = Mutex::new(0);
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, case.logs);
        house.create_dataset("tank/fs").unwrap();
        for promises in &promises {
            let files = house.files(promises.dataset);
            (0..6).for_each(|number| promises.make(&files, number));
        }
        let began = machine.device_writes();
        if let Some(cut) = cut {
            machine.cut_power_after_writes(began + cut);
        }
        while_promising(host, &house, &promises, || (case.work)(&house));
        *writes.lock().unwrap() = machine.device_writes() - began;
        assert_eq!(log_names(&house), case.after);
        machine.cut_power();
    });
    assert!(run.is_err(), "the power was cut");
    let run = machine.reboot().run(|host| {
        let house = House::new(host);
        import(&house);
        let names = log_names(&house);
        assert!(
            names == case.before || names == case.after,
            "{names:?} at {cut:?}"
        );
        for vdev in logs(&house) {
            assert_eq!(vdev.state, "ONLINE", "{vdev:?} at {cut:?}");
        }
        for promises in &promises {
            promises.check(&house);
            let count = promises.count();
            promises.make(&house.files(promises.dataset), 500);
            assert_eq!(promises.count(), count + 1);
        }
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        promises.iter().for_each(|promises| promises.check(&house));
        house.export("tank", false).unwrap();
    });
    run.unwrap();
    *writes.lock().unwrap()
}

/// Cuts the power at many of the writes.
fn cut_everywhere(case: &Case) {
    let writes = cut_at(case, None);
    assert!(writes > 20, "{writes}");
    let step = usize::try_from(writes / 40).unwrap().max(1);
    for cut in (1..=writes).step_by(step) {
        cut_at(case, Some(cut));
    }
}

#[test]
fn a_log_device_leaves_with_nothing_and_the_pool_goes_on() {
    let machine = machine(3, &["data", "log", "other"]);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, &[&["log"], &["other"]]);
        let files = house.files("tank");
        for number in 0..20 {
            promises.make(&files, number);
        }
        assert!(log_bytes(&house) > 0);
        assert_eq!(
            remove(&house, &["data", "nosuch", "log"]),
            [
                "cannot remove data: removing data vdevs is not supported by this version of tarn",
                "cannot remove nosuch: no such device in pool",
            ]
        );
        assert_eq!(log_names(&house), ["other"]);
        for number in 20..40 {
            promises.make(&files, number);
        }
        assert!(log_bytes(&house) > 0, "the other one is used");
        assert!(remove(&house, &["/disks/other"]).is_empty());
        assert_eq!(log_names(&house), Vec::<String>::new());
        for number in 40..60 {
            promises.make(&files, number);
        }
        assert_eq!(promises.count(), 60);
        drop(files);
        // Devices that have left belong to no pool.
        let request = Create {
            name: "second".to_string(),
            vdevs: vec![leaf("log", VdevRole::Data)],
            ..Create::default()
        };
        house.administrator.pool_create(&call(), request).unwrap();
        house.export("second", false).unwrap();
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        promises.check(&house);
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn power_may_fail_at_any_write_while_a_log_device_is_removed() {
    cut_everywhere(&Case {
        disks: &["data", "log"],
        logs: &[&["log"]],
        work: |house| assert!(remove(house, &["log"]).is_empty()),
        before: &["log"],
        after: &[],
    });
}

#[test]
fn power_may_fail_at_any_write_while_a_mirrored_log_is_removed() {
    cut_everywhere(&Case {
        disks: &["data", "a", "b", "other"],
        logs: &[&["a", "b"], &["other"]],
        work: |house| assert!(remove(house, &["mirror-1"]).is_empty()),
        before: &["mirror-1", "other"],
        after: &["other"],
    });
}

#[test]
fn devices_join_log_vdevs_take_the_place_of_others_and_leave() {
    let machine = machine(4, &["data", "a", "b", "c", "small", "d"]);
    for (disk, mebibytes) in [("small", 65), ("a", 70), ("b", 80), ("c", 80), ("d", 80)] {
        machine.add_disk(path(disk), mebibytes << 20);
    }
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, &[&["a"]]);
        let files = house.files("tank");
        let mut number = 0;
        let mut promise = |house: &House| {
            for _ in 0..8 {
                promises.make(&files, number);
                number += 1;
            }
            assert!(log_bytes(house) > 0, "the log device is used");
        };
        promise(&house);
        let refusal = join(&house, "a", "small", false).unwrap_err().to_string();
        assert!(
            refusal.contains("cannot attach /disks/small to a: device is too small"),
            "{refusal}"
        );
        attach(&house, "a", "b");
        assert_eq!(log_names(&house), ["mirror-1"]);
        promise(&house);
        attach(&house, "b", "c");
        let names = |house: &House| -> Vec<String> {
            let children = logs(house).remove(0).children;
            children.into_iter().map(|leaf| leaf.name).collect()
        };
        assert_eq!(names(&house), [path("a"), path("b"), path("c")]);
        replace(&house, "b", "d");
        assert_eq!(names(&house), [path("a"), path("d"), path("c")]);
        promise(&house);
        let refusal = join(&house, "a", "c", false).unwrap_err().to_string();
        assert!(
            refusal.contains("/disks/c is part of active pool 'tank'"),
            "{refusal}"
        );
        detach(&house, "/disks/d").unwrap();
        detach(&house, "a").unwrap();
        assert_eq!(log_names(&house), ["c"]);
        promise(&house);
        let refusal = detach(&house, "c").unwrap_err().to_string();
        assert_eq!(
            refusal,
            "cannot detach c: only applicable to mirror and replacing vdevs"
        );
        replace(&house, "c", "a");
        assert_eq!(log_names(&house), ["a"]);
        promise(&house);
        drop(files);
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        promises.check(&house);
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn power_may_fail_at_any_write_while_a_log_device_gets_a_copy() {
    cut_everywhere(&Case {
        disks: &["data", "log", "copy"],
        logs: &[&["log"]],
        work: |house| attach(house, "log", "copy"),
        before: &["log"],
        after: &["mirror-1"],
    });
}

#[test]
fn power_may_fail_at_any_write_while_a_log_device_is_replaced() {
    cut_everywhere(&Case {
        disks: &["data", "log", "new"],
        logs: &[&["log"]],
        work: |house| replace(house, "log", "new"),
        before: &["log"],
        after: &["new"],
    });
}

#[test]
fn power_may_fail_at_any_write_while_a_copy_leaves() {
    cut_everywhere(&Case {
        disks: &["data", "a", "b"],
        logs: &[&["a", "b"]],
        work: |house| detach(house, "a").unwrap(),
        before: &["mirror-1"],
        after: &["b"],
    });
}

#[test]
fn power_may_fail_at_any_write_while_a_log_device_goes_out_and_comes_back() {
    cut_everywhere(&Case {
        disks: &["data", "log"],
        logs: &[&["log"]],
        work: |house| {
            assert_eq!(offline(house, "log", true, false), ["OFFLINE"]);
            assert_eq!(online(house, "log"), ["ONLINE"]);
        },
        before: &["log"],
        after: &["log"],
    });
}

#[test]
fn logs_take_turns_on_log_vdevs_and_do_without_those_that_are_offline() {
    let machine = machine(6, &["data", "one", "two"]);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, &[&["one"], &["two"]]);
        // Which of them are written while promises are made.
        let used = |house: &House, first: u64| -> [bool; 2] {
            let look = || ["one", "two"].map(|disk| contents(&machine, disk));
            let before = look();
            let files = house.files("tank");
            (first..first + 200).for_each(|number| promises.make(&files, number));
            let after = look();
            [before[0] != after[0], before[1] != after[1]]
        };
        assert_eq!(used(&house, 0), [true, true]);
        assert_eq!(offline(&house, "one", false, false), ["OFFLINE"]);
        assert_eq!(used(&house, 200), [false, true]);
        assert_eq!(offline(&house, "two", false, false), ["OFFLINE"]);
        assert_eq!(house.status("tank").unwrap().state, "DEGRADED");
        assert_eq!(used(&house, 400), [false, false]);
        house.export("tank", false).unwrap();
        // `zpool offline` holds.
        let house = House::new(host);
        import(&house);
        let state = |house: &House| -> Vec<String> {
            logs(house).into_iter().map(|vdev| vdev.state).collect()
        };
        assert_eq!(state(&house), ["OFFLINE", "OFFLINE"]);
        assert_eq!(used(&house, 600), [false, false]);
        assert_eq!(online(&house, "one"), ["ONLINE"]);
        assert_eq!(online(&house, "two"), ["ONLINE"]);
        assert_eq!(used(&house, 800), [true, true]);
        assert_eq!(offline(&house, "two", true, true), ["FAULTED"]);
        let refusals = [
            offline(&house, "data", false, false),
            offline(&house, "nosuch", false, false),
        ];
        assert_eq!(
            refusals.concat(),
            [
                "cannot offline data: no valid replicas",
                "cannot offline nosuch: no such device in pool",
            ]
        );
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        assert_eq!(state(&house), ["ONLINE", "ONLINE"], "it was only for now");
        promises.check(&house);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_copy_that_was_offline_is_as_good_as_the_other_when_it_is_back() {
    let machine = machine(7, &["data", "a", "b"]);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, &[&["a", "b"]]);
        let files = house.files("tank");
        (0..5).for_each(|number| promises.make(&files, number));
        assert_eq!(offline(&house, "b", false, false), ["OFFLINE"]);
        (5..10).for_each(|number| promises.make(&files, number));
        assert_eq!(online(&house, "b"), ["ONLINE"]);
        (10..15).for_each(|number| promises.make(&files, number));
        machine.cut_power();
    });
    assert!(run.is_err());
    let machine = machine.reboot();
    machine.disk(path("a")).unwrap().inject(Fault::Vanish);
    let run = machine.run(|host| {
        let house = House::new(host);
        import(&house);
        promises.check(&house);
        assert_eq!(promises.count(), 15);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_pool_is_imported_without_a_log_device_that_held_nothing() {
    let machine = machine(8, &["data", "a", "b"]);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, &[&["a", "b"]]);
        let files = house.files("tank");
        (0..5).for_each(|number| promises.make(&files, number));
        drop(files);
        house.export("tank", false).unwrap();
        for disk in ["a", "b"] {
            machine.disk(path(disk)).unwrap().inject(Fault::Vanish);
        }
        let house = House::new(host);
        let refusal = import_with(&house, false).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "cannot import 'tank': one or more devices is currently unavailable\n\
             The devices below are missing or corrupted, use '-m' to import the pool anyway:\n\
             \t    mirror-1 [log]\n\
             \t      /disks/a\n\
             \t      /disks/b"
        );
        let imported = import_with(&house, true).unwrap();
        assert_eq!(imported.warnings, Vec::<String>::new());
        let status = house.status("tank").unwrap();
        assert_eq!(status.state, "DEGRADED");
        assert_eq!(logs(&house)[0].state, "UNAVAIL");
        let files = house.files("tank");
        (5..20).for_each(|number| promises.make(&files, number));
        drop(files);
        assert_eq!(promises.count(), 20);
        // What is not there can leave.
        assert!(remove(&house, &["mirror-1"]).is_empty());
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        promises.check(&house);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn records_on_a_lost_log_device_are_given_up_only_by_import_m_which_says_so() {
    let machine = machine(9, &["data", "log"]);
    let (stored, lost) = (Promises::default(), Promises::default());
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, &[&["log"]]);
        let files = house.files("tank");
        (0..5).for_each(|number| stored.make(&files, number));
        house.sync().unwrap();
        (5..10).for_each(|number| lost.make(&files, number));
        machine.cut_power();
    });
    assert!(run.is_err());
    let machine = machine.reboot();
    machine.disk(path("log")).unwrap().inject(Fault::Vanish);
    let run = machine.run(|host| {
        let house = House::new(host);
        let refusal = import_with(&house, false).unwrap_err().to_string();
        assert!(
            refusal.contains("use '-m' to import the pool anyway:\n\t    /disks/log [log]"),
            "{refusal}"
        );
        let imported = import_with(&house, true).unwrap();
        assert_eq!(imported.warnings.len(), 1, "{imported:?}");
        assert!(
            imported.warnings[0].contains("the intent log of 'tank' could not be read"),
            "{imported:?}"
        );
        stored.check(&house);
        let files = house.files("tank");
        assert!(files.find("file9").is_err());
        (20..25).for_each(|number| stored.make(&files, number));
        drop(files);
        house.export("tank", false).unwrap();
        // With the device again: what is on it is of no log any more.
        machine.disk(path("log")).unwrap().clear_faults();
        let house = House::new(host);
        import(&house);
        stored.check(&house);
        let files = house.files("tank");
        (30..35).for_each(|number| stored.make(&files, number));
        drop(files);
        assert!(remove(&house, &["log"]).is_empty());
        stored.check(&house);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// The log device fails while it is in use: promises are kept by groups, and the pool goes on.
#[test]
fn a_log_device_that_fails_under_load_is_done_without() {
    let machine = machine(10, &["data", "log"]);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, &[&["log"]]);
        let files = house.files("tank");
        (0..5).for_each(|number| promises.make(&files, number));
        machine.disk(path("log")).unwrap().inject(Fault::Vanish);
        (5..15).for_each(|number| promises.make(&files, number));
        assert_eq!(promises.count(), 15);
        house.sync().unwrap();
        let status = house.status("tank").unwrap();
        assert_eq!(status.state, "DEGRADED");
        assert_ne!(logs(&house)[0].state, "ONLINE");
        // It is back: nothing on it counts.
        machine.disk(path("log")).unwrap().clear_faults();
        assert_eq!(online(&house, "log"), ["ONLINE"]);
        (15..25).for_each(|number| promises.make(&files, number));
        assert!(log_bytes(&house) > 0);
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        machine.cut_power();
    });
    assert!(run.is_err());
    let run = machine.reboot().run(|host| {
        let house = House::new(host);
        import(&house);
        promises.check(&house);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// A log that was claimed and not replayed keeps its device in the pool, until its dataset is
/// mounted, or the log is given up.
#[test]
fn a_log_that_waits_for_its_dataset_keeps_its_device() {
    let machine = machine(11, &["data", "log"]);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, &[&["log"]]);
        let files = house.files("tank");
        (0..5).for_each(|number| promises.make(&files, number));
        machine.cut_power();
    });
    assert!(run.is_err());
    let run = machine.reboot().run(|host| {
        let house = House::new(host);
        import_unmounted(&house);
        assert_eq!(
            remove(&house, &["log"]),
            ["cannot remove log: log device has unplayed intent logs\nmount 'tank' to replay its log"]
        );
        assert_eq!(mount(&house, &[]), Vec::<String>::new());
        promises.check(&house);
        assert!(remove(&house, &["log"]).is_empty());
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// A log that was claimed and then damaged keeps its file system from being mounted, until what
/// cannot be read is given up.
#[test]
fn a_log_that_cannot_be_replayed_is_given_up_only_by_force() {
    let machine = machine(12, &["data", "log"]);
    let (stored, lost) = (Promises::default(), Promises::default());
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, &[&["log"]]);
        let files = house.files("tank");
        (0..5).for_each(|number| stored.make(&files, number));
        house.sync().unwrap();
        (5..10).for_each(|number| lost.make(&files, number));
        machine.cut_power();
    });
    assert!(run.is_err());
    let machine = machine.reboot();
    let run = machine.run(|host| {
        let house = House::new(host);
        import_unmounted(&house);
        house.export("tank", false).unwrap();
        // Between the labels.
        machine.disk(path("log")).unwrap().rot(4 << 20..63 << 20);
        let house = House::new(host);
        let imported = import_with(&house, false).unwrap();
        assert!(
            imported
                .warnings
                .iter()
                .any(|text| text.contains("cannot mount 'tank'")),
            "{imported:?}"
        );
        assert_eq!(mount(&house, &[]).len(), 1);
        assert_eq!(mount(&house, &["discardlog"]), Vec::<String>::new());
        stored.check(&house);
        let files = house.files("tank");
        (20..25).for_each(|number| stored.make(&files, number));
        drop(files);
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        stored.check(&house);
        assert!(remove(&house, &["log"]).is_empty());
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// A copy that was away while the other one was written is not taken for whole, however often the
/// pool is imported since.
#[test]
fn the_only_whole_copy_of_a_mirror_stays_until_another_is_filled() {
    let machine = machine(13, &["a", "b"]);
    let promises = Promises::default();
    let size_bytes = 64 << 20;
    let run = machine.run(|host| {
        let house = House::new(host);
        let mirror = VdevKind::Mirror;
        house.create("tank", mirror, &["a", "b"], &[]).unwrap();
        house.export("tank", false).unwrap();
        let image = Image::of_disk("b", &machine.disk(path("b")).unwrap(), size_bytes);
        host.remove_file(path("b").as_ref()).unwrap();
        let house = House::new(host);
        import(&house);
        for number in 0..5 {
            promises.make(&house.files("tank"), number);
            house.sync().unwrap();
        }
        house.export("tank", false).unwrap();
        image.insert(&machine);
        let house = House::new(host);
        import(&house);
        promises.make(&house.files("tank"), 100);
        // A resilver fills it; only then it can stand alone.
        while let Err(refusal) = detach(&house, "a") {
            let refusal = refusal.to_string();
            assert_eq!(refusal, "cannot detach a: no valid replicas");
            host.sleep(std::time::Duration::from_millis(20));
        }
        promises.check(&house);
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        promises.check(&house);
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}
