//! Log devices come, go and break while applications are promised durability: whatever was promised is there, at whatever write the power fails.

use std::sync::{Arc, Mutex};
use tarn_engine::administration::Administration;
use tarn_engine::messages::Refusal;
use tarn_engine::messages::pool::{
    Create, Import, Imported, Remove, VdevKind, VdevRole, VdevSpec, VdevStatus,
};
use tarn_host::Host;
use tarn_host::sim::{SimHost, SimOptions};
use tarn_hostile::house::{DISKS, Files, House, call, noise, search};

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
            children: several.iter().map(|disk| leaf(disk, VdevRole::Log)).collect(),
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
    house.engine.pool_create(&call(), request).unwrap();
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
    house.engine.pool_import(&call(), request)
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
    let removed = house.engine.pool_remove(&call(), request).unwrap();
    removed.refused.iter().map(ToString::to_string).collect()
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

/// How much of the log vdevs is in use.
fn log_bytes(house: &House) -> u64 {
    logs(house).iter().map(|vdev| vdev.allocated_bytes).sum()
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
        for number in self.0.lock().unwrap().iter() {
            let file = files.find(&format!("file{number}"));
            let file = file.unwrap_or_else(|_| panic!("file {number} was promised"));
            let read = files.read(file, 0, SIZE).unwrap();
            assert!(read == noise(*number, SIZE), "file {number} reads as written");
        }
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Somebody who makes promises all the time while `work` is done.
fn while_promising(host: &Host, house: &House, promises: &Promises, work: impl FnOnce()) {
    let files = Files::of(house.files("tank").system().clone());
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (writing, is_done) = (promises.clone(), done.clone());
    let first = 1_000;
    let write = move || {
        let mut number = first;
        while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
            writing.make(&files, number);
            number += 1;
        }
    };
    let thread = host.spawn("writer", write);
    work();
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    thread.join().unwrap_or_else(|panicked| panicked.resume());
}

/// What is done to a pool, and how its logs are called before and after.
struct Case {
    disks: &'static [&'static str],
    logs: &'static [&'static [&'static str]],
    work: fn(&House),
    before: &'static [&'static str],
    after: &'static [&'static str],
}

/// Does it, and cuts the power at the given write after the beginning. Gives how many writes there were.
fn cut_at(case: &Case, cut: Option<u64>) -> u64 {
    let machine = machine(31, case.disks);
    let promises = Promises::default();
    let writes = Mutex::new(0);
    let run = machine.run(|host| {
        let house = House::new(host);
        create(&house, case.logs);
        let files = house.files("tank");
        for number in 0..6 {
            promises.make(&files, number);
        }
        drop(files);
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
    let count = promises.count();
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
        promises.check(&house);
        let files = house.files("tank");
        promises.make(&files, 500);
        drop(files);
        assert_eq!(promises.count(), count + 1);
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
        // Devices that have left are nobody's.
        let request = Create {
            name: "second".to_string(),
            vdevs: vec![leaf("log", VdevRole::Data)],
            ..Create::default()
        };
        house.engine.pool_create(&call(), request).unwrap();
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
