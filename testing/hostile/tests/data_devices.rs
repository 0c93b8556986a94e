//! Data devices join, leave, are replaced and go out of use while files are written: whatever was
//! promised is there, at whatever write the power fails, and no device is relied on for blocks that
//! it missed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tarn_administration::administration::Administration;
use tarn_administration::messages::Refusal;
use tarn_administration::messages::pool::{
    Add, Attach, Clear, Create, Detach, Import, Offline, Online, Remove, Set, Split, Switched,
    VdevKind, VdevRole, VdevSpec, VdevStatus,
};
use tarn_host::sim::{Fault, Random, SimHost, SimOptions};
use tarn_host::{Action, Errno, Host};
use tarn_hostile::house::{DISKS, Files, House, call, noise, search};

const SIZE: usize = 9_000;
const DISK_NAMES: &[&str] = &["a", "b", "c", "d", "new", "spare"];

fn machine(seed: u64) -> SimHost {
    let machine = SimHost::new(SimOptions::seed(seed));
    for disk in DISK_NAMES {
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

fn vdev(kind: VdevKind, disks: &[&str]) -> VdevSpec {
    if kind == VdevKind::Leaf {
        return leaf(disks[0], VdevRole::Data);
    }
    let children = disks.iter().map(|disk| leaf(disk, VdevRole::Data));
    VdevSpec {
        kind,
        path: None,
        children: children.collect(),
        role: VdevRole::Data,
    }
}

fn create(house: &House, vdevs: Vec<VdevSpec>) {
    let request = Create {
        name: "tank".to_string(),
        vdevs,
        ..Create::default()
    };
    house.administrator.pool_create(&call(), request).unwrap();
}

fn import(house: &House) {
    let request = Import {
        search: search(),
        pool: Some("tank".to_string()),
        altroot: Some("/mounts".to_string()),
        force: true,
        ..Import::default()
    };
    let imported = house.administrator.pool_import(&call(), request).unwrap();
    assert_eq!(imported.warnings, Vec::<String>::new());
}

fn join(house: &House, device: &str, new: &str, replaces: bool) -> Result<(), Refusal> {
    let request = Attach {
        name: "tank".to_string(),
        device: device.to_string(),
        new_device: path(new),
        replaces,
        ..Attach::default()
    };
    let joined = house.administrator.pool_attach(&call(), request);
    joined.map(|_| ())
}

fn detach(house: &House, device: &str) -> Result<(), Refusal> {
    let request = Detach {
        name: "tank".to_string(),
        device: device.to_string(),
    };
    let left = house.administrator.pool_detach(&call(), request);
    left.map(|_| ())
}

fn states(switched: Switched) -> Vec<String> {
    let devices = switched.devices.into_iter();
    let state = |device: tarn_administration::messages::pool::SwitchedDevice| match device.refusal {
        None => device.state,
        Some(refusal) => refusal.to_string(),
    };
    devices.map(state).collect()
}

fn offline(house: &House, device: &str) -> Vec<String> {
    let request = Offline {
        name: "tank".to_string(),
        devices: vec![device.to_string()],
        ..Offline::default()
    };
    states(house.administrator.pool_offline(&call(), request).unwrap())
}

fn fault(house: &House, device: &str) -> Vec<String> {
    let request = Offline {
        name: "tank".to_string(),
        devices: vec![device.to_string()],
        fault: true,
        ..Offline::default()
    };
    states(house.administrator.pool_offline(&call(), request).unwrap())
}

fn online(house: &House, device: &str, expand: bool) -> Vec<String> {
    let request = Online {
        name: "tank".to_string(),
        devices: vec![device.to_string()],
        expand,
    };
    states(house.administrator.pool_online(&call(), request).unwrap())
}

/// The vdevs as one text: `mirror-0(a replacing-1(b new))`.
fn shape(house: &House) -> String {
    fn one(vdev: &VdevStatus) -> String {
        let name = vdev.name.replace(&format!("{DISKS}/"), "");
        let children: Vec<String> = vdev.children.iter().map(one).collect();
        match children.is_empty() {
            true => name,
            false => format!("{name}({})", children.join(" ")),
        }
    }
    let layout = house.status("tank").unwrap().layout;
    let tops: Vec<String> = layout.iter().map(one).collect();
    tops.join(" ")
}

/// Waits until no device is being filled.
fn settle(host: &Host, house: &House) {
    while shape(house).contains("replacing") {
        host.sleep(std::time::Duration::from_millis(50));
    }
}

/// Waits until no resilver runs.
fn finish_resilver(host: &Host, house: &House) {
    let is_running = || {
        let scan = house.status("tank").unwrap().scan_stats;
        scan.is_some_and(|scan| scan.state == "SCANNING")
    };
    // It was asked for, and begins when the next group is stored.
    house.sync().unwrap();
    while is_running() {
        host.sleep(std::time::Duration::from_millis(50));
    }
}

/// What applications were promised: the numbers of files.
#[derive(Clone, Default)]
struct Promises(Arc<Mutex<Vec<u64>>>);

impl Promises {
    /// Writes a file, and notes it when `fsync` has returned.
    fn make(&self, files: &Files, number: u64) {
        let file = files.make(&format!("file{number}")).unwrap();
        files.write(file, 0, &noise(number, SIZE)).unwrap();
        if files.sync(file).is_ok() {
            self.0.lock().unwrap().push(number);
        }
    }

    /// All that was promised is there.
    fn check(&self, house: &House) {
        let files = house.files("tank");
        // Not under the lock: the power may be cut here as well.
        let promised = self.0.lock().unwrap().clone();
        for number in promised {
            let file = files.find(&format!("file{number}"));
            let file = file.unwrap_or_else(|_| panic!("file {number} was promised"));
            let read = files.read(file, 0, SIZE).unwrap();
            assert!(read == noise(number, SIZE), "file {number}");
        }
    }
}

/// A thread calls `fsync` all the time while `work` is done.
fn while_promising(host: &Host, house: &House, promises: &Promises, work: impl FnOnce()) {
    while_promising_from(1_000, host, house, promises, work);
}

/// As [`while_promising`], with files from this number on.
fn while_promising_from(
    first: u64,
    host: &Host,
    house: &House,
    promises: &Promises,
    work: impl FnOnce(),
) {
    let done = Arc::new(AtomicBool::new(false));
    let files = Files::of(house.files("tank").system().clone());
    let (promises, is_done) = (promises.clone(), done.clone());
    let writer = host.spawn("writer", move || {
        let mut number = first;
        while !is_done.load(Ordering::Relaxed) {
            promises.make(&files, number);
            number += 1;
        }
    });
    work();
    done.store(true, Ordering::Relaxed);
    writer.join().unwrap_or_else(|panicked| panicked.resume());
}

/// What is done to a pool, and its vdevs before and after.
struct Case {
    vdev: (VdevKind, &'static [&'static str]),
    work: fn(&Host, &House),
    /// The shapes in which the pool may be found after a power cut; the last is that after the
    /// work.
    shapes: &'static [&'static str],
}

/// Does it, and cuts the power at the given write after the beginning. Gives how many writes there
/// were.
fn cut_at(case: &Case, cut: Option<u64>) -> u64 {
    let machine = machine(41 + cut.unwrap_or(0));
    let promises = Promises::default();
    let writes = Mutex::new(0);
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, vec![vdev(case.vdev.0, case.vdev.1)]);
        let files = house.files("tank");
        (0..6).for_each(|number| promises.make(&files, number));
        let began = machine.device_writes();
        if let Some(cut) = cut {
            machine.cut_power_after_writes(began + cut);
        }
        while_promising(host, &house, &promises, || (case.work)(host, &house));
        *writes.lock().unwrap() = machine.device_writes() - began;
        assert_eq!(Some(&*shape(&house)), case.shapes.last().copied());
        promises.check(&house);
        machine.cut_power();
    });
    assert!(run.is_err(), "the power was cut");
    let run = machine.reboot().run(|host| {
        let house = House::new(host);
        import(&house);
        let found = shape(&house);
        assert!(case.shapes.contains(&&*found), "{found} at {cut:?}");
        promises.check(&house);
        promises.make(&house.files("tank"), 500);
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        promises.check(&house);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
    *writes.lock().unwrap()
}

/// Cuts the power at many of the writes.
fn cut_everywhere(case: &Case) {
    let writes = cut_at(case, None);
    assert!(writes > 20, "{writes}");
    let step = usize::try_from(writes / 25).unwrap().max(1);
    for cut in (1..=writes).step_by(step) {
        cut_at(case, Some(cut));
    }
}

#[test]
fn power_may_fail_at_any_write_while_a_device_is_attached() {
    cut_everywhere(&Case {
        vdev: (VdevKind::Leaf, &["a"]),
        work: |_, house| join(house, "a", "new", false).unwrap(),
        shapes: &["a", "mirror-0(a new)"],
    });
}

#[test]
fn power_may_fail_at_any_write_while_a_device_of_a_raidz_is_replaced() {
    cut_everywhere(&Case {
        vdev: (VdevKind::Raidz1, &["a", "b", "c"]),
        work: |host, house| {
            join(house, "b", "new", true).unwrap();
            settle(host, house);
        },
        shapes: &[
            "raidz1-0(a b c)",
            "raidz1-0(a replacing-1(b new) c)",
            "raidz1-0(a new c)",
        ],
    });
}

#[test]
fn power_may_fail_at_any_write_while_the_only_device_is_replaced() {
    cut_everywhere(&Case {
        vdev: (VdevKind::Leaf, &["a"]),
        work: |host, house| {
            join(house, "a", "new", true).unwrap();
            settle(host, house);
        },
        shapes: &["a", "replacing-0(a new)", "new"],
    });
}

#[test]
fn power_may_fail_at_any_write_while_a_device_leaves_a_mirror() {
    cut_everywhere(&Case {
        vdev: (VdevKind::Mirror, &["a", "b"]),
        work: |_, house| detach(house, "a").unwrap(),
        shapes: &["mirror-0(a b)", "b"],
    });
}

#[test]
fn a_device_that_is_needed_is_degraded_instead_of_faulted() {
    let machine = machine(6);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, vec![vdev(VdevKind::Raidz2, &["a", "b", "c", "d"])]);
        promises.make(&house.files("tank"), 0);
        join(&house, "d", "new", true).unwrap();
        assert_eq!(offline(&house, "new"), ["OFFLINE"]);
        assert_eq!(shape(&house), "raidz2-0(a b c replacing-3(d new))");
        // The device that is replaced counts as one that may err.
        assert_eq!(fault(&house, "a"), ["FAULTED"]);
        assert_eq!(fault(&house, "b"), ["DEGRADED"]);
        promises.make(&house.files("tank"), 1);
        promises.check(&house);
        house.clear("tank").unwrap();
        finish_resilver(host, &house);
        assert_eq!(fault(&house, "b"), ["FAULTED"]);
        detach(&house, "new").unwrap();
        assert_eq!(fault(&house, "a"), ["FAULTED"]);
        assert_eq!(fault(&house, "c"), ["DEGRADED"]);
        promises.make(&house.files("tank"), 2);
        promises.check(&house);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_device_leaves_or_goes_out_only_while_others_have_its_blocks() {
    let machine = machine(5);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, vec![vdev(VdevKind::Mirror, &["a", "b"])]);
        let files = house.files("tank");
        promises.make(&files, 0);
        assert_eq!(offline(&house, "b"), ["OFFLINE"]);
        promises.make(&files, 1);
        assert_eq!(
            offline(&house, "a"),
            ["cannot offline a: no valid replicas"]
        );
        let refusal = detach(&house, "a").unwrap_err().to_string();
        assert_eq!(refusal, "cannot detach a: no valid replicas");
        assert_eq!(house.status("tank").unwrap().state, "DEGRADED");
        // Back online it still lacks a file, until it is resilvered.
        assert_eq!(online(&house, "b", false), ["ONLINE"]);
        promises.make(&files, 2);
        promises.check(&house);
        let refusal = join(&house, "nosuch", "new", true).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            format!(
                "cannot replace nosuch with {}: no such device in pool",
                path("new")
            )
        );
        let refusal = join(&house, "a", "b", true).unwrap_err().to_string();
        let reason = format!("{} is part of active pool 'tank'", path("b"));
        assert!(refusal.contains(&reason), "{refusal}");
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn detaching_the_new_device_cancels_a_replacement() {
    let machine = machine(6);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, vec![vdev(VdevKind::Raidz1, &["a", "b", "c"])]);
        let files = house.files("tank");
        promises.make(&files, 0);
        assert_eq!(offline(&house, "b"), ["OFFLINE"]);
        // Blocks cannot be written to it, labels can: the resilver does not fill it.
        machine.disk(path("new")).unwrap().inject(Fault::FailRange {
            action: Action::Write,
            range: 4 << 20..63 << 20,
            errno: Errno::IO,
        });
        join(&house, "b", "new", true).unwrap();
        assert!(shape(&house).contains("replacing"), "{}", shape(&house));
        let refusal = join(&house, "raidz1-0", "d", true).unwrap_err().to_string();
        assert!(
            refusal.contains("already in replacing/spare config"),
            "{refusal}"
        );
        detach(&house, "new").unwrap();
        assert_eq!(shape(&house), "raidz1-0(a b c)");
        promises.check(&house);
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_vdev_uses_what_its_devices_have_gained() {
    let machine = machine(7);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, vec![vdev(VdevKind::Mirror, &["a", "b"])]);
        let size = |house: &House| house.status("tank").unwrap().layout[0].size_bytes;
        let before = size(&house);
        promises.make(&house.files("tank"), 0);
        machine.disk(path("a")).unwrap().grow(256 << 20);
        assert_eq!(online(&house, "a", true), ["ONLINE"]);
        assert_eq!(size(&house), before, "the other device has the old size");
        machine.disk(path("b")).unwrap().grow(256 << 20);
        assert_eq!(online(&house, "b", true), ["ONLINE"]);
        let after = size(&house);
        assert!(after > 3 * before, "{before} and {after}");
        // More than there was room for.
        let files = house.files("tank");
        let file = files.make("large").unwrap();
        for piece in 0..100 {
            let bytes = noise(piece, 1 << 20);
            files.write(file, piece << 20, &bytes).unwrap();
        }
        files.sync(file).unwrap();
        drop(files);
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        assert_eq!(size(&house), after);
        promises.check(&house);
        let files = house.files("tank");
        let file = files.find("large").unwrap();
        for piece in 0..100 {
            let read = files.read(file, piece << 20, 1 << 20).unwrap();
            assert!(read == noise(piece, 1 << 20), "MiB {piece}");
        }
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

fn add_spare(house: &House, pool: &str, disk: &str) -> Result<(), Refusal> {
    let request = Add {
        name: pool.to_string(),
        vdevs: vec![leaf(disk, VdevRole::Spare)],
        ..Add::default()
    };
    house.administrator.pool_add(&call(), request).map(|_| ())
}

/// The state of the hot spare, with its remark.
fn spare_state(house: &House, pool: &str) -> Option<String> {
    let layout = house.status(pool).unwrap().layout;
    let spare = layout.iter().find(|vdev| vdev.role == VdevRole::Spare)?;
    let remark = spare.remark.as_deref().unwrap_or_default();
    Some(format!("{} {remark}", spare.state).trim().to_string())
}

#[test]
fn a_hot_spare_stands_in_is_returned_and_becomes_a_member() {
    let machine = machine(8);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, vec![vdev(VdevKind::Raidz1, &["a", "b", "c"])]);
        let second = Create {
            name: "second".to_string(),
            vdevs: vec![leaf("d", VdevRole::Data)],
            ..Create::default()
        };
        house.administrator.pool_create(&call(), second).unwrap();
        let files = house.files("tank");
        promises.make(&files, 0);
        add_spare(&house, "tank", "spare").unwrap();
        add_spare(&house, "second", "spare").unwrap();
        assert_eq!(spare_state(&house, "tank").as_deref(), Some("AVAIL"));
        let refusal = join(&house, "spare", "new", true).unwrap_err().to_string();
        assert!(
            refusal.contains("device is reserved as a hot spare"),
            "{refusal}"
        );
        assert_eq!(offline(&house, "b"), ["OFFLINE"]);
        join(&house, "b", "spare", true).unwrap();
        let shape_of_tank = |house: &House| shape(house).replace(" spare)", ")");
        assert!(
            shape(&house).starts_with("raidz1-0(a spare-1(b spare) c)"),
            "{}",
            shape(&house)
        );
        assert_eq!(
            spare_state(&house, "tank").as_deref(),
            Some("INUSE currently in use")
        );
        let elsewhere = spare_state(&house, "second");
        assert_eq!(elsewhere.as_deref(), Some("INUSE in use by pool 'tank'"));
        promises.make(&files, 1);
        let removed = house.administrator.pool_remove(
            &call(),
            Remove {
                name: "tank".to_string(),
                devices: vec!["spare".to_string()],
                ..Remove::default()
            },
        );
        assert_eq!(removed.unwrap().refused.len(), 1, "it is in use");
        detach(&house, "spare").unwrap();
        assert!(shape_of_tank(&house).starts_with("raidz1-0(a b c)"));
        assert_eq!(spare_state(&house, "tank").as_deref(), Some("AVAIL"));
        join(&house, "b", "spare", true).unwrap();
        drop(files);
        house.export("tank", false).unwrap();
        import(&house);
        assert!(
            shape(&house).starts_with("raidz1-0(a spare-1(b spare) c)"),
            "{}",
            shape(&house)
        );
        assert_eq!(
            spare_state(&house, "tank").as_deref(),
            Some("INUSE currently in use")
        );
        promises.check(&house);
        detach(&house, "b").unwrap();
        assert_eq!(shape(&house), "raidz1-0(a spare c)");
        assert_eq!(spare_state(&house, "tank"), None);
        assert_eq!(spare_state(&house, "second"), None);
        promises.check(&house);
        house.export("tank", false).unwrap();
        house.export("second", false).unwrap();
        let house = House::new(host);
        import(&house);
        assert_eq!(shape(&house), "raidz1-0(a spare c)");
        promises.check(&house);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// Waits for a shape of the vdevs.
fn wait_for_shape(host: &Host, house: &House, wanted: &str) {
    for _ in 0..4_000 {
        if shape(house) == wanted {
            return;
        }
        host.sleep(std::time::Duration::from_millis(50));
    }
    panic!("{} instead of {wanted}", shape(house));
}

#[test]
fn hot_spares_stand_in_for_devices_that_fail_and_are_returned() {
    let machine = machine(12);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        house.engine.start_fault_manager();
        house.engine.start_hot_spares();
        create(&house, vec![vdev(VdevKind::Raidz1, &["a", "b", "c"])]);
        for disk in ["d", "spare"] {
            add_spare(&house, "tank", disk).unwrap();
        }
        let files = house.files("tank");
        // The first hot spare is bad itself.
        machine.disk(path("d")).unwrap().inject(Fault::Vanish);
        while_promising(host, &house, &promises, || {
            machine.disk(path("b")).unwrap().inject(Fault::Vanish);
            wait_for_shape(host, &house, "raidz1-0(a spare-1(b spare) c) d spare");
        });
        // When the hot spare is filled, another device is not needed.
        while offline(&house, "c") != ["OFFLINE"] {
            host.sleep(std::time::Duration::from_millis(50));
        }
        promises.make(&files, 1);
        promises.check(&house);
        assert_eq!(online(&house, "c", false), ["ONLINE"]);
        // No hot spare stands in for what an administrator took out of use; the device comes back.
        machine.disk(path("b")).unwrap().clear_faults();
        while_promising_from(5_000, host, &house, &promises, || {
            let request = Clear {
                name: "tank".to_string(),
                ..Clear::default()
            };
            house.administrator.pool_clear(&call(), request).unwrap();
            wait_for_shape(host, &house, "raidz1-0(a b c) d spare");
        });
        assert_eq!(spare_state(&house, "tank").as_deref(), Some("AVAIL"));
        promises.check(&house);
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// Whether the second device of the first vdev is gone.
fn is_second_gone(house: &House) -> bool {
    let layout = house.status("tank").unwrap().layout;
    ["REMOVED", "UNAVAIL"].contains(&&*layout[0].children[1].state)
}

#[test]
fn with_autoreplace_a_blank_device_at_the_path_of_one_that_is_gone_replaces_it() {
    let machine = machine(13);
    let promises = Promises::default();
    let minute = std::time::Duration::from_secs(60);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.engine.start_autoreplace();
        create(&house, vec![vdev(VdevKind::Raidz1, &["a", "b", "c"])]);
        let files = house.files("tank");
        (0..20).for_each(|number| promises.make(&files, number));
        machine.disk(path("b")).unwrap().inject(Fault::Vanish);
        promises.make(&files, 20);
        host.sleep(minute);
        assert!(is_second_gone(&house), "{}", shape(&house));
        // Without the property nothing happens.
        machine.add_disk(path("b"), 64 << 20);
        host.sleep(minute);
        assert!(is_second_gone(&house), "{}", shape(&house));
        // With it nothing happens to devices that are not blank, nor to one that is too small.
        let size: u64 = 64 << 20;
        let written = |offset: u64| machine.add_disk(path("b"), size).poke(offset, &[1]);
        written(size - 512);
        let request = Set {
            name: "tank".to_string(),
            property: "autoreplace".to_string(),
            value: "on".to_string(),
        };
        house.administrator.pool_set(&call(), request).unwrap();
        for not_blank in [None, Some(1024), Some(size - 512)] {
            not_blank.map(&written);
            host.sleep(minute);
            assert!(is_second_gone(&house), "{not_blank:?}: {}", shape(&house));
        }
        machine.add_disk(path("b"), 32 << 20);
        host.sleep(minute);
        assert!(is_second_gone(&house), "{}", shape(&house));
        machine.add_disk(path("b"), size);
        while_promising_from(100, host, &house, &promises, || {
            for _ in 0..4_000 {
                if !is_second_gone(&house) && shape(&house) == "raidz1-0(a b c)" {
                    return;
                }
                host.sleep(std::time::Duration::from_millis(50));
            }
            panic!("{} was not replaced", shape(&house));
        });
        // The new device has all that was written.
        for _ in 0..4_000 {
            if offline(&house, "c") == ["OFFLINE"] {
                break;
            }
            host.sleep(std::time::Duration::from_millis(50));
        }
        promises.check(&house);
        // A device that an administrator took offline is left alone.
        machine.add_disk(path("c"), size);
        host.sleep(minute);
        let third = house.status("tank").unwrap().layout[0].children[2].clone();
        assert_eq!((&*third.state, third.children.len()), ("OFFLINE", 0));
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

fn split(house: &House, devices: &[&str]) -> Result<(), Refusal> {
    let request = Split {
        name: "tank".to_string(),
        new_name: "half".to_string(),
        devices: devices.iter().map(ToString::to_string).collect(),
        ..Split::default()
    };
    house.administrator.pool_split(&call(), request).map(|_| ())
}

fn import_half(house: &House) -> bool {
    let request = Import {
        search: search(),
        pool: Some("half".to_string()),
        altroot: Some("/half".to_string()),
        ..Import::default()
    };
    house.administrator.pool_import(&call(), request).is_ok()
}

#[test]
fn a_pool_of_mirrors_is_split_in_two() {
    let machine = machine(9);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        let mirrors = vec![
            vdev(VdevKind::Mirror, &["a", "b"]),
            vdev(VdevKind::Mirror, &["c", "d"]),
        ];
        create(&house, mirrors);
        add_spare(&house, "tank", "spare").unwrap();
        let files = house.files("tank");
        (0..20).for_each(|number| promises.make(&files, number));
        let refusal = split(&house, &["a", "b"]).unwrap_err().to_string();
        assert_eq!(
            refusal,
            "Unable to split tank: Device list must include at most one disk from each mirror"
        );
        split(&house, &["c"]).unwrap();
        assert!(shape(&house).starts_with("a d"), "{}", shape(&house));
        (20..30).for_each(|number| promises.make(&files, number));
        promises.check(&house);
        drop(files);
        assert!(import_half(&house));
        let half = house.status("half").unwrap();
        assert_eq!((&*half.state, half.layout.len()), ("ONLINE", 2));
        assert_eq!(half.layout[0].name, path("b"));
        let files = house.files("half");
        for number in 0..20 {
            let file = files.find(&format!("file{number}")).unwrap();
            assert!(files.read(file, 0, SIZE).unwrap() == noise(number, SIZE));
        }
        assert!(files.find("file25").is_err());
        let file = files.make("own").unwrap();
        files.write(file, 0, &noise(77, SIZE)).unwrap();
        files.sync(file).unwrap();
        drop(files);
        house.export("half", false).unwrap();
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        assert!(import_half(&house));
        promises.check(&house);
        house.export("tank", false).unwrap();
        house.export("half", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn power_may_fail_at_any_write_while_a_pool_is_split() {
    cut_everywhere(&Case {
        vdev: (VdevKind::Mirror, &["a", "b"]),
        work: |_, house| split(house, &[]).unwrap(),
        shapes: &["mirror-0(a b)", "a"],
    });
}

#[test]
fn a_second_device_fails_while_one_is_replaced_and_both_are_replaced() {
    let machine = machine(10);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, vec![vdev(VdevKind::Raidz2, &["a", "b", "c", "d"])]);
        let files = house.files("tank");
        (0..40).for_each(|number| promises.make(&files, number));
        machine.disk(path("b")).unwrap().inject(Fault::Vanish);
        while_promising(host, &house, &promises, || {
            join(&house, "b", "new", true).unwrap();
            machine.disk(path("c")).unwrap().inject(Fault::Vanish);
            join(&house, "c", "spare", true).unwrap();
            settle(host, &house);
        });
        assert_eq!(shape(&house), "raidz2-0(a new spare d)");
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        promises.check(&house);
        // Any two of the devices may fail now.
        machine.disk(path("a")).unwrap().inject(Fault::Vanish);
        machine.disk(path("d")).unwrap().inject(Fault::Vanish);
        promises.make(&files, 500);
        promises.check(&house);
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_device_that_was_away_gets_what_it_missed() {
    let machine = machine(11);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, vec![vdev(VdevKind::Mirror, &["a", "b"])]);
        let files = house.files("tank");
        promises.make(&files, 0);
        assert_eq!(offline(&house, "b"), ["OFFLINE"]);
        (1..30).for_each(|number| promises.make(&files, number));
        assert_eq!(online(&house, "b", false), ["ONLINE"]);
        // It can stand alone when it is filled.
        while offline(&house, "a") != ["OFFLINE"] {
            host.sleep(std::time::Duration::from_millis(50));
        }
        promises.check(&house);
        promises.make(&files, 30);
        drop(files);
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        promises.check(&house);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// A resilver goes on where blocks are found that were there when it began; one that a device
/// missed may be led to by a later clone alone.
#[test]
fn a_clone_of_blocks_that_a_device_missed_is_there_when_their_file_is_gone() {
    let machine = machine(13);
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, vec![vdev(VdevKind::Mirror, &["a", "b"])]);
        let files = house.files("tank");
        assert_eq!(offline(&house, "b"), ["OFFLINE"]);
        for number in 0..20 {
            let missed = files.make(&format!("missed{number}")).unwrap();
            files.write(missed, 0, &noise(number, SIZE)).unwrap();
        }
        house.sync().unwrap();
        assert_eq!(online(&house, "b", false), ["ONLINE"]);
        for number in 0..20 {
            let missed = files.find(&format!("missed{number}")).unwrap();
            let clone = files.make(&format!("clone{number}")).unwrap();
            let length = u64::try_from(SIZE).unwrap();
            assert_eq!(files.copy(missed, clone, length).unwrap(), length);
            files.unlink(&format!("missed{number}")).unwrap();
        }
        house.sync().unwrap();
        // It can stand alone when it is filled.
        while offline(&house, "a") != ["OFFLINE"] {
            host.sleep(std::time::Duration::from_millis(50));
        }
        drop(files);
        house.export("tank", false).unwrap();
        let house = House::new(host);
        import(&house);
        let files = house.files("tank");
        for number in 0..20 {
            let clone = files.find(&format!("clone{number}")).unwrap();
            assert!(files.read(clone, 0, SIZE).unwrap() == noise(number, SIZE));
        }
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// The devices at the leaves of the data vdevs, by the last parts of their paths.
fn members(house: &House) -> Vec<String> {
    fn leaves(vdev: &VdevStatus, found: &mut Vec<String>) {
        if vdev.children.is_empty() {
            let path = vdev.path.clone().unwrap_or_default();
            found.extend(path.strip_prefix(&format!("{DISKS}/")).map(str::to_string));
        }
        vdev.children.iter().for_each(|child| leaves(child, found));
    }
    let mut found = Vec::new();
    let layout = house.status("tank").unwrap().layout;
    let tops = layout.iter().filter(|vdev| vdev.role == VdevRole::Data);
    tops.for_each(|top| leaves(top, &mut found));
    found
}

/// One change of a random device; it may be refused.
fn change(house: &House, random: &mut Random) {
    let members = members(house);
    let member = members[random.index(members.len())].clone();
    let free: Vec<&str> = DISK_NAMES
        .iter()
        .copied()
        .filter(|disk| !members.iter().any(|member| member == disk))
        .collect();
    let new = (!free.is_empty()).then(|| free[random.index(free.len())]);
    match (random.below(6), new) {
        (0, Some(new)) => drop(join(house, &member, new, false)),
        (1 | 2, Some(new)) => drop(join(house, &member, new, true)),
        (3, _) => drop(detach(house, &member)),
        (4, _) => drop(offline(house, &member)),
        _ => drop(online(house, &member, false)),
    }
}

/// Changes devices at random and cuts the power, again and again on the same disks: what was
/// promised is there each time.
#[test]
fn any_changes_of_devices_and_power_cuts_keep_what_was_promised() {
    let shapes: [(VdevKind, &[&str]); 3] = [
        (VdevKind::Mirror, &["a", "b"]),
        (VdevKind::Raidz1, &["a", "b", "c"]),
        (VdevKind::Raidz2, &["a", "b", "c", "d"]),
    ];
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut machine = machine(100 + seed);
        let promises = Promises::default();
        let (kind, disks) = shapes[usize::try_from(seed).unwrap() % shapes.len()];
        for life in 0..6 {
            let cut = random.below(400) + 20;
            let run = machine.run(|host| {
                let house = House::new(host);
                match life {
                    0 => create(&house, vec![vdev(kind, disks)]),
                    _ => import(&house),
                }
                promises.check(&house);
                machine.cut_power_after_writes(machine.device_writes() + cut);
                let mut random = Random::new(1_000 * seed + life);
                let first = 10_000 * (life + 1);
                while_promising_from(first, host, &house, &promises, || {
                    loop {
                        change(&house, &mut random);
                    }
                });
            });
            assert!(run.is_err(), "the power was cut");
            machine = machine.reboot();
        }
        let run = machine.run(|host| {
            let house = House::new(host);
            import(&house);
            promises.check(&house);
            for member in members(&house) {
                online(&house, &member, false);
            }
            settle(host, &house);
            promises.check(&house);
            house.export("tank", false).unwrap();
            let house = House::new(host);
            import(&house);
            promises.check(&house);
            house.export("tank", false).unwrap();
        });
        run.unwrap();
    }
}

#[test]
fn a_device_that_lost_its_labels_is_replaced_by_itself() {
    let machine = machine(12);
    let promises = Promises::default();
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, vec![vdev(VdevKind::Mirror, &["a", "b"])]);
        let files = house.files("tank");
        (0..10).for_each(|number| promises.make(&files, number));
        let refusal = join(&house, "b", "b", true).unwrap_err().to_string();
        let reason = format!("{} is part of active pool 'tank'", path("b"));
        assert!(refusal.contains(&reason), "{refusal}");
        // The disk was overwritten with zeros while it was in use.
        let disk = machine.disk(path("b")).unwrap();
        disk.poke(0, &vec![0; 4 << 20]);
        disk.poke(60 << 20, &vec![0; 4 << 20]);
        join(&house, "b", "b", true).unwrap();
        settle(host, &house);
        assert_eq!(shape(&house), "mirror-0(a b)");
        machine.disk(path("a")).unwrap().inject(Fault::Vanish);
        promises.make(&files, 10);
        promises.check(&house);
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}
