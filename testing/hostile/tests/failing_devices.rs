//! Devices that fail while a pool is written: redundancy covers it, or the pool is suspended;
//! commands answer either way.

use std::sync::{Arc, Mutex};
use tarn_administration::messages::RefusalKind;
use tarn_administration::messages::pool::{PoolDescription, VdevKind, VdevStatus};
use tarn_engine::files::PosixError;
use tarn_host::sim::{Fault, SimDisk, SimHost, SimOptions};
use tarn_host::{Action, Errno, Host};
use tarn_hostile::house::{DISKS, Files, House, noise};
use tarn_hostile::leaks;

const SIZE: usize = 300_000;

fn machine(seed: u64, disks: &[&str]) -> SimHost {
    let machine = SimHost::new(SimOptions::seed(seed));
    for disk in disks {
        machine.add_disk(format!("{DISKS}/{disk}"), 128 << 20);
    }
    machine
}

fn disk(machine: &SimHost, name: &str) -> SimDisk {
    machine.disk(format!("{DISKS}/{name}")).unwrap()
}

fn put(files: &Files, name: &str, seed: u64) -> Result<(), PosixError> {
    let file = files.make(name)?;
    files.write(file, 0, &noise(seed, SIZE))?;
    Ok(())
}

fn check(files: &Files, name: &str, seed: u64) {
    let file = files.find(name).unwrap();
    let read = files.read(file, 0, SIZE).unwrap();
    assert!(read == noise(seed, SIZE), "{name} reads as written");
}

fn leaves(pool: &PoolDescription) -> Vec<VdevStatus> {
    fn collect(vdev: &VdevStatus, found: &mut Vec<VdevStatus>) {
        match vdev.children.is_empty() {
            true => found.push(vdev.clone()),
            false => vdev.children.iter().for_each(|child| collect(child, found)),
        }
    }
    let mut found = Vec::new();
    pool.layout
        .iter()
        .for_each(|vdev| collect(vdev, &mut found));
    found
}

/// One flush fails: what the device holds then is unknown.
const NEXT_FLUSH: Fault = Fault::FailNth {
    action: Action::Flush,
    nth: 0,
    errno: Errno::IO,
};

fn everything(action: Action) -> Fault {
    let range = 0..u64::MAX;
    let errno = Errno::IO;
    Fault::FailRange {
        action,
        range,
        errno,
    }
}

/// A leaf that cannot be written any more is taken out of use, and the pool goes on, is exported,
/// and imported again with that leaf out of date.
fn survives(kind: VdevKind, disks: &[&str], broken: &[&str], fault: &Fault) {
    let machine = machine(11, disks);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", kind, disks, &[]).unwrap();
        let files = house.files("tank");
        for number in 0..20 {
            put(&files, &format!("before{number}"), number).unwrap();
        }
        house.sync().unwrap();
        for number in 0..20 {
            put(&files, &format!("amid{number}"), number).unwrap();
            if number == 10 {
                for name in broken {
                    disk(&machine, name).inject(fault.clone());
                }
            }
        }
        house.sync().unwrap();
        let status = house.status("tank").unwrap();
        assert_eq!(status.state, "DEGRADED");
        for leaf in leaves(&status) {
            let is_broken = broken
                .iter()
                .any(|name| leaf.path.as_deref().unwrap().ends_with(name));
            assert_eq!(leaf.state != "ONLINE", is_broken, "{leaf:?}");
            assert_eq!(leaf.write_errors > 0, is_broken, "{leaf:?}");
        }
        for number in 0..20 {
            put(&files, &format!("after{number}"), number).unwrap();
        }
        house.sync().unwrap();
        for number in 0..20 {
            for prefix in ["before", "amid", "after"] {
                check(&files, &format!("{prefix}{number}"), number);
            }
        }
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
    disks
        .iter()
        .for_each(|name| disk(&machine, name).clear_faults());
    let run = machine.run(|host| {
        let house = House::new(host);
        house.import(Some("tank"), &[]).unwrap();
        let files = house.files("tank");
        for number in 0..20 {
            for prefix in ["before", "amid", "after"] {
                check(&files, &format!("{prefix}{number}"), number);
            }
            put(&files, &format!("later{number}"), number).unwrap();
        }
        house.sync().unwrap();
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_mirror_goes_on_without_a_leaf_that_cannot_be_written() {
    survives(
        VdevKind::Mirror,
        &["a", "b"],
        &["b"],
        &everything(Action::Write),
    );
}

#[test]
fn a_mirror_goes_on_without_a_leaf_that_vanished() {
    survives(VdevKind::Mirror, &["a", "b"], &["a"], &Fault::Vanish);
}

#[test]
fn a_mirror_goes_on_without_a_leaf_that_cannot_be_flushed() {
    survives(VdevKind::Mirror, &["a", "b"], &["a"], &NEXT_FLUSH);
}

#[test]
fn a_raidz2_goes_on_without_two_leaves() {
    survives(
        VdevKind::Raidz2,
        &["a", "b", "c", "d", "e"],
        &["b", "e"],
        &everything(Action::Write),
    );
}

#[test]
fn a_raidz1_goes_on_without_a_leaf_that_is_full_below() {
    let fault = Fault::FailRange {
        action: Action::Write,
        range: 0..u64::MAX,
        errno: Errno(28),
    };
    survives(VdevKind::Raidz1, &["a", "b", "c"], &["c"], &fault);
}

/// A mirror whose one leaf cannot be read reads from the other, and counts.
#[test]
fn reads_that_fail_are_made_good_and_counted() {
    let machine = machine(13, &["a", "b"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house
            .create("tank", VdevKind::Mirror, &["a", "b"], &[])
            .unwrap();
        let files = house.files("tank");
        for number in 0..40 {
            put(&files, &format!("file{number}"), number).unwrap();
        }
        house.sync().unwrap();
        drop(files);
        house.export("tank", false).unwrap();
        house.import(Some("tank"), &[]).unwrap();
        let files = house.files("tank");
        disk(&machine, "a").inject(everything(Action::Read));
        for number in 0..40 {
            check(&files, &format!("file{number}"), number);
        }
        let status = house.status("tank").unwrap();
        let errors: Vec<u64> = leaves(&status)
            .iter()
            .map(|leaf| leaf.read_errors)
            .collect();
        assert!(errors[0] > 0 && errors[1] == 0, "{errors:?}");
        assert_eq!(status.error_count, 0);
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// Rot on one side of a mirror is repaired from the other.
#[test]
fn rot_is_repaired_and_counted() {
    let machine = machine(17, &["a", "b"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house
            .create("tank", VdevKind::Mirror, &["a", "b"], &[])
            .unwrap();
        let files = house.files("tank");
        for number in 0..40 {
            put(&files, &format!("file{number}"), number).unwrap();
        }
        house.sync().unwrap();
        drop(files);
        house.export("tank", false).unwrap();
        disk(&machine, "b").rot((4 << 20) + (512 << 10)..(100 << 20));
        house.import(Some("tank"), &[]).unwrap();
        let files = house.files("tank");
        for number in 0..40 {
            check(&files, &format!("file{number}"), number);
        }
        let status = house.status("tank").unwrap();
        assert!(leaves(&status)[1].checksum_errors > 0);
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// A pool whose only disk fails is suspended: commands answer, a reader of stored data gets an
/// error, export by force ends, and a later import finds what was stored before.
fn suspends(fault: &Fault, fail_mode: &str) {
    let machine = machine(19, &["a"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house
            .create("tank", VdevKind::Leaf, &["a"], &[("failmode", fail_mode)])
            .unwrap();
        let files = house.files("tank");
        for number in 0..10 {
            put(&files, &format!("before{number}"), number).unwrap();
        }
        house.sync().unwrap();
        disk(&machine, "a").inject(fault.clone());
        for number in 0..10 {
            put(&files, &format!("amid{number}"), number).unwrap();
        }
        let refusal = house.sync().unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Suspended, "{refusal}");
        let status = house.status("tank").unwrap();
        assert_eq!(status.state, "SUSPENDED");
        assert!(leaves(&status)[0].write_errors > 0);
        // What is in memory can be read.
        check(&files, "amid3", 3);
        if fail_mode == "continue" {
            let refused = put(&files, "later", 1).unwrap_err();
            assert_eq!(refused.errno(), 5, "{refused}");
            let file = files.find("amid3").unwrap();
            assert_eq!(files.sync(file).unwrap_err().errno(), 5);
        }
        drop(files);
        let refusal = house.export("tank", false).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Suspended, "{refusal}");
        house.export("tank", true).unwrap();
        disk(&machine, "a").clear_faults();
        // Nothing of it is left open here.
        house.import(Some("tank"), &[]).unwrap();
        let files = house.files("tank");
        for number in 0..10 {
            check(&files, &format!("before{number}"), number);
        }
        put(&files, "again", 5).unwrap();
        house.sync().unwrap();
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_pool_whose_disk_cannot_be_written_is_suspended_and_writers_fail() {
    suspends(&everything(Action::Write), "continue");
}

#[test]
fn a_pool_whose_disk_cannot_be_written_is_suspended_and_writers_wait() {
    suspends(&everything(Action::Write), "wait");
}

#[test]
fn a_pool_whose_disk_vanished_is_suspended() {
    suspends(&Fault::Vanish, "continue");
}

#[test]
fn a_pool_whose_disk_cannot_be_flushed_is_suspended() {
    suspends(&NEXT_FLUSH, "wait");
}

/// The file below the pool lies in a file system that is full.
#[test]
fn a_pool_on_a_full_disk_is_suspended() {
    let full = Fault::FailRange {
        action: Action::Write,
        range: 0..u64::MAX,
        errno: Errno(28),
    };
    suspends(&full, "wait");
}

/// Writers that wait for a suspended pool are let go when it is exported by force.
#[test]
fn writers_that_wait_are_let_go_by_export() {
    let machine = machine(23, &["a"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house
            .create("tank", VdevKind::Leaf, &["a"], &[("failmode", "wait")])
            .unwrap();
        let files = house.files("tank");
        put(&files, "before", 1).unwrap();
        house.sync().unwrap();
        disk(&machine, "a").inject(everything(Action::Write));
        put(&files, "amid", 2).unwrap();
        house.sync().unwrap_err();
        let writer = host.spawn("writer", move || put(&files, "later", 3));
        host.sleep(std::time::Duration::from_secs(60));
        assert_eq!(house.status("tank").unwrap().state, "SUSPENDED");
        house.export("tank", true).unwrap();
        let outcome = writer.join().unwrap_or_else(|panicked| panicked.resume());
        assert_eq!(outcome.unwrap_err().errno(), 5);
    });
    run.unwrap();
}

/// A pool that was given up leaves nothing behind in memory.
#[test]
fn a_pool_that_was_exported_is_gone_from_memory() {
    let machine = machine(29, &["a"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        let files = house.files("tank");
        put(&files, "file", 1).unwrap();
        house.sync().unwrap();
        let set = std::sync::Arc::downgrade(files.system().object_set());
        drop(files);
        house.export("tank", false).unwrap();
        assert!(set.upgrade().is_none());
        house.import(Some("tank"), &[]).unwrap();
        let files = house.files("tank");
        check(&files, "file", 1);
        let env = std::sync::Arc::downgrade(files.system().object_set().env());
        drop(files);
        house.export("tank", false).unwrap();
        assert_eq!(env.strong_count(), 0);
    });
    run.unwrap();
}

/// An import that fails because nothing can be written leaves no device open: it can be tried
/// again.
#[test]
fn an_import_that_fails_can_be_tried_again() {
    let machine = machine(31, &["a"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        put(&house.files("tank"), "file", 1).unwrap();
        house.export("tank", false).unwrap();
        disk(&machine, "a").inject(everything(Action::Write));
        house.import(Some("tank"), &[]).unwrap_err();
        assert!(house.status("tank").is_err());
        disk(&machine, "a").clear_faults();
        house.import(Some("tank"), &[]).unwrap();
        check(&house.files("tank"), "file", 1);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// A device fails at the last flush of a group, and the power right after that group. Only its
/// labels know that the device lacks it. The import begins a resilver: the other device may fail
/// before that has ended, or after.
#[test]
fn a_device_that_lacks_the_last_group_is_not_relied_on_after_a_power_cut() {
    for (failing, expected) in [("a", &["Suspended", "DEGRADED"][..]), ("b", &["DEGRADED"])] {
        let disks = ["a", "b"];
        let machine = machine(51, &disks);
        let lacking = disk(&machine, "b");
        let before = Mutex::new(None);
        let run = machine.run(|host| {
            let house = House::new(host);
            house.create("tank", VdevKind::Mirror, &disks, &[]).unwrap();
            house.sync().unwrap();
            put(&house.files("tank"), "file", 1).unwrap();
            *before.lock().unwrap() = Some(lacking.keep());
            lacking.inject(NEXT_FLUSH);
            house.sync().unwrap();
            machine.cut_power();
        });
        assert!(run.is_err(), "the power was cut");
        let before = before.lock().unwrap().take().unwrap();
        lacking.put_back(&before);
        let machine = machine.reboot();
        let run = machine.run(|host| {
            let house = House::new(host);
            house.import(Some("tank"), &[]).unwrap();
            disk(&machine, failing).inject(NEXT_FLUSH);
            put(&house.files("tank"), "later", 2).unwrap();
            let state = match house.sync() {
                Ok(()) => house.status("tank").unwrap().state,
                Err(refusal) => format!("{:?}", refusal.kind),
            };
            assert!(expected.contains(&&*state), "{failing} has failed: {state}");
            check(&house.files("tank"), "file", 1);
            house.export("tank", true).unwrap();
        });
        run.unwrap();
    }
}

/// A pool is imported while a device is away, and the power is cut after the given flush of the
/// other one. Gives whether it came so far.
fn lacks_what_was_stored_without_it(nth: u64) -> bool {
    let disks = ["a", "b"];
    let machine = machine(71 + nth, &disks);
    machine
        .run(|host| {
            let house = House::new(host);
            house.create("tank", VdevKind::Mirror, &disks, &[]).unwrap();
            put(&house.files("tank"), "file", 1).unwrap();
            house.export("tank", false).unwrap();
        })
        .unwrap();
    let machine = machine.reboot();
    disk(&machine, "b").inject(Fault::Vanish);
    disk(&machine, "a").inject(Fault::CutAfterFlush { nth });
    let run = machine.run(|host| {
        let house = House::new(host);
        house.import(Some("tank"), &[]).unwrap();
        for number in 0..3 {
            put(&house.files("tank"), &format!("later{number}"), number).unwrap();
            house.sync().unwrap();
        }
    });
    let is_cut = run.is_err();
    let machine = machine.reboot();
    let [a, b] = disks.map(|name| disk(&machine, name));
    a.clear_faults();
    b.clear_faults();
    let uberblocks = |disk: &SimDisk| disk.peek(128 << 10, 128 << 10);
    let lacks_nothing = uberblocks(&a) == uberblocks(&b);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.import(Some("tank"), &[]).unwrap();
        check(&house.files("tank"), "file", 1);
        a.inject(NEXT_FLUSH);
        put(&house.files("tank"), "then", 2).unwrap();
        let is_relied_on = house.sync().is_ok();
        assert!(
            !is_relied_on || lacks_nothing,
            "flush {nth}: b lacks a group"
        );
        house.export("tank", true).unwrap();
    });
    run.unwrap();
    is_cut
}

#[test]
fn a_device_that_was_away_for_one_group_is_not_relied_on() {
    let is_done = |nth: &u64| !lacks_what_was_stored_without_it(*nth);
    let tried = (0..200).find(is_done);
    assert!(tried.is_some_and(|tried| tried > 4), "{tried:?}");
}

/// The power fails while the end of a log, whose `fsync` did not return yet, is on all disks but
/// one; and then one of those fails, at the given write while the pool is imported. Gives whether
/// it was written so often.
fn loses_the_disk_with_the_end_of_a_log(kind: VdevKind, disks: &[&str], nth: u64) -> bool {
    let machine = machine(41 + nth, disks);
    let before = Mutex::new(None);
    let names: Vec<String> = (0..8).map(|number| format!("file{number}")).collect();
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", kind, disks, &[]).unwrap();
        let files = house.files("tank");
        house.sync().unwrap();
        let promise = |number: u64| {
            let file = files
                .make(&names[usize::try_from(number).unwrap()])
                .unwrap();
            files.write(file, 0, &noise(number, SIZE)).unwrap();
            files.sync(file).unwrap();
        };
        (0..4).for_each(promise);
        *before.lock().unwrap() = Some(disk(&machine, disks[1]).keep());
        (4..8).for_each(promise);
        machine.cut_power();
    });
    assert!(run.is_err(), "the power was cut");
    let before = before.lock().unwrap().take().unwrap();
    disk(&machine, disks[1]).put_back(&before);
    let machine = machine.reboot();
    let failing = disk(&machine, disks[0]);
    let (_, writes, _) = failing.requests();
    failing.inject(Fault::FailNth {
        action: Action::Write,
        nth,
        errno: Errno::IO,
    });
    let run = machine.run(|host| {
        let house = House::new(host);
        let imported = house.import(Some("tank"), &[]).unwrap();
        let said: Vec<_> = imported.notes.iter().chain(&imported.warnings).collect();
        assert!(said.is_empty(), "write {nth}: {said:?}");
        for (name, number) in names.iter().zip(0..4) {
            check(&house.files("tank"), name, number);
        }
        house.export("tank", false).unwrap();
    });
    run.unwrap();
    failing.requests().1 - writes > nth
}

#[test]
fn a_log_whose_end_is_on_one_side_of_a_mirror_outlives_that_side() {
    let is_done =
        |nth: &u64| !loses_the_disk_with_the_end_of_a_log(VdevKind::Mirror, &["a", "b"], *nth);
    let tried = (0..2000).step_by(7).find(is_done);
    assert!(tried.is_some_and(|tried| tried > 200), "{tried:?}");
}

#[test]
fn a_log_whose_end_lacks_a_column_outlives_another() {
    let disks = ["a", "b", "c"];
    let is_done = |nth: &u64| !loses_the_disk_with_the_end_of_a_log(VdevKind::Raidz1, &disks, *nth);
    let tried = (0..2000).step_by(7).find(is_done);
    assert!(tried.is_some_and(|tried| tried > 200), "{tried:?}");
}

const SECOND: u64 = 1_000_000_000;

/// Runs something, and gives the time it took with what it gave.
fn timed<T>(host: &Host, run: impl FnOnce() -> T) -> (T, u64) {
    let began_ns = host.monotonic_ns();
    let outcome = run();
    (outcome, host.monotonic_ns() - began_ns)
}

/// A suspended pool goes on where it was when its disks are back, whatever they have lost that was
/// not flushed; no error was reported.
fn goes_on(kind: VdevKind, disks: &[&str], fault: &Fault, loses: bool) {
    let machine = machine(37, disks);
    let run = machine.run(|host| {
        let house = House::new(host);
        house
            .create("tank", kind, disks, &[("failmode", "wait")])
            .unwrap();
        let files = house.files("tank");
        for number in 0..10 {
            put(&files, &format!("before{number}"), number).unwrap();
        }
        house.sync().unwrap();
        for number in 0..10 {
            put(&files, &format!("amid{number}"), number).unwrap();
        }
        for name in disks {
            disk(&machine, name).inject(fault.clone());
        }
        house.sync().unwrap_err();
        assert_eq!(house.status("tank").unwrap().state, "SUSPENDED");
        let writers: Vec<_> = (0..4)
            .map(|number| {
                let files = house.files("tank");
                let write = move || {
                    put(&files, &format!("later{number}"), number)?;
                    let file = files.find(&format!("later{number}"))?;
                    files.sync(file)
                };
                host.spawn("writer", write)
            })
            .collect();
        host.sleep(std::time::Duration::from_secs(20));
        if *fault != NEXT_FLUSH {
            let refusal = house.clear("tank").unwrap_err();
            assert_eq!(refusal.kind, RefusalKind::Device, "{refusal}");
        }
        assert_eq!(house.status("tank").unwrap().state, "SUSPENDED");
        for name in disks {
            let disk = disk(&machine, name);
            disk.clear_faults();
            if loses {
                disk.lose_unflushed();
            }
        }
        house.clear("tank").unwrap();
        for writer in writers {
            let outcome = writer.join().unwrap_or_else(|panicked| panicked.resume());
            outcome.unwrap();
        }
        house.sync().unwrap();
        let status = house.status("tank").unwrap();
        assert_eq!(status.state, "ONLINE", "{status:?}");
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
    let run = machine.run(|host| {
        let house = House::new(host);
        house.import(Some("tank"), &[]).unwrap();
        let files = house.files("tank");
        for number in 0..10 {
            check(&files, &format!("before{number}"), number);
            check(&files, &format!("amid{number}"), number);
        }
        (0..4).for_each(|number| check(&files, &format!("later{number}"), number));
        let status = house.status("tank").unwrap();
        assert_eq!((status.state.as_str(), status.error_count), ("ONLINE", 0));
        let errors = leaves(&status)
            .iter()
            .map(|leaf| leaf.checksum_errors)
            .sum::<u64>();
        assert_eq!(errors, 0, "each side has everything");
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_pool_goes_on_when_its_disk_can_be_written_again() {
    goes_on(VdevKind::Leaf, &["a"], &everything(Action::Write), false);
}

#[test]
fn a_pool_goes_on_when_its_disk_is_back_without_what_was_in_its_cache() {
    goes_on(VdevKind::Leaf, &["a"], &Fault::Vanish, true);
}

#[test]
fn a_pool_goes_on_when_a_flush_failed_and_nothing_was_stored() {
    goes_on(VdevKind::Leaf, &["a"], &NEXT_FLUSH, true);
}

#[test]
fn a_mirror_goes_on_when_both_sides_are_back() {
    goes_on(VdevKind::Mirror, &["a", "b"], &Fault::Vanish, true);
}

#[test]
fn a_raidz_goes_on_when_all_columns_are_back() {
    goes_on(VdevKind::Raidz1, &["a", "b", "c"], &Fault::Vanish, true);
}

fn put_and_sync(files: &Files, name: &str, seed: u64) -> Result<(), PosixError> {
    put(files, name, seed)?;
    files.sync(files.find(name)?)
}

/// The system ends mounts without asking us, also while their pool is suspended. Their logs are
/// closed with the pool.
#[test]
fn an_exported_pool_has_no_logs_whoever_ended_its_mounts() {
    for is_suspended in [false, true] {
        let machine = machine(44, &["a"]);
        let run = machine.run(|host| {
            let house = House::new(host);
            let properties = [("failmode", "continue")];
            house
                .create("tank", VdevKind::Leaf, &["a"], &properties)
                .unwrap();
            let files = house.files("tank");
            house.sync().unwrap();
            for number in 0..4 {
                put_and_sync(&files, &format!("file{number}"), number).unwrap();
            }
            drop(files);
            if is_suspended {
                disk(&machine, "a").inject(everything(Action::Write));
                house.sync().unwrap_err();
            }
            house.end_mounts();
            disk(&machine, "a").clear_faults();
            if is_suspended {
                house.clear("tank").unwrap();
            }
            house.export("tank", false).unwrap();
            assert_eq!(leaks::walk(host, "tank").unwrap().log_blocks, 0);
            house.import(Some("tank"), &[]).unwrap();
            for number in 0..4 {
                check(&house.files("tank"), &format!("file{number}"), number);
            }
            house.export("tank", false).unwrap();
        });
        run.unwrap();
    }
}

/// What cannot be closed does not keep a pool from being let go: its log is replayed.
#[test]
fn a_log_that_hangs_with_its_disk_holds_up_no_export_by_force() {
    let machine = machine(45, &["a"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        let files = house.files("tank");
        house.sync().unwrap();
        put_and_sync(&files, "before", 1).unwrap();
        put_and_sync(&files, "promised", 2).unwrap();
        disk(&machine, "a").inject(Fault::Hang);
        let writer = host.spawn("writer", move || put_and_sync(&files, "amid", 3));
        host.sleep(std::time::Duration::from_secs(6));
        house.end_mounts();
        let (left, took_ns) = timed(host, || house.export("tank", true));
        left.unwrap();
        assert!(took_ns < 2 * SECOND, "{took_ns}");
        let outcome = writer.join().unwrap_or_else(|panicked| panicked.resume());
        assert_eq!(outcome.unwrap_err().errno(), 5);
        disk(&machine, "a").clear_faults();
        house.import(Some("tank"), &[]).unwrap();
        check(&house.files("tank"), "before", 1);
        check(&house.files("tank"), "promised", 2);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// A disk that comes back as it was some groups ago is not taken.
#[test]
fn an_old_copy_of_a_disk_is_not_taken_back() {
    let machine = machine(41, &["a"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        let files = house.files("tank");
        put(&files, "before", 1).unwrap();
        house.sync().unwrap();
        let disk = disk(&machine, "a");
        let labels = [
            0,
            256 << 10,
            (128 << 20) - (512 << 10),
            (128 << 20) - (256 << 10),
        ];
        let old = labels.map(|label| disk.peek(label, 256 << 10));
        put(&files, "then", 2).unwrap();
        house.sync().unwrap();
        disk.inject(Fault::Vanish);
        put(&files, "amid", 3).unwrap();
        house.sync().unwrap_err();
        disk.clear_faults();
        let new = labels.map(|label| disk.peek(label, 256 << 10));
        labels
            .iter()
            .zip(&old)
            .for_each(|(label, bytes)| disk.poke(*label, bytes));
        let refusal = house.clear("tank").unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Device, "{refusal}");
        labels
            .iter()
            .zip(&new)
            .for_each(|(label, bytes)| disk.poke(*label, bytes));
        house.clear("tank").unwrap();
        house.sync().unwrap();
        check(&files, "amid", 3);
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

/// A disk that neither answers nor fails holds up requests to its pool, and no others; export
/// by force lets go.
#[test]
fn a_disk_that_does_not_answer_holds_up_its_own_pool_only() {
    let machine = machine(43, &["a", "b"]);
    let run = machine.run(|host| {
        let house = Arc::new(House::new(host));
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        house.create("other", VdevKind::Leaf, &["b"], &[]).unwrap();
        let files = house.files("tank");
        put(&files, "before", 1).unwrap();
        house.sync().unwrap();
        disk(&machine, "a").inject(Fault::Hang);
        put(&files, "amid", 2).unwrap();
        let writer = host.spawn("writer", move || {
            let file = files.find("amid").unwrap();
            files.sync(file)
        });
        let admin = house.clone();
        let admin = host.spawn("administrator", move || admin.create_dataset("tank/new"));
        host.sleep(std::time::Duration::from_secs(6));
        for _ in 0..3 {
            let (status, took_ns) = timed(host, || house.status("tank").unwrap());
            assert_eq!(status.name, "tank");
            assert!(took_ns < 2 * SECOND, "{took_ns}");
            let (listed, took_ns) = timed(host, || house.list().unwrap());
            assert!(
                listed
                    .datasets
                    .iter()
                    .any(|dataset| dataset.name == "other")
            );
            assert!(took_ns < 2 * SECOND, "{took_ns}");
        }
        let (made, took_ns) = timed(host, || house.create_dataset("other/new"));
        made.unwrap();
        assert!(took_ns < 2 * SECOND, "{took_ns}");
        let others = house.files("other");
        put(&others, "amid", 4).unwrap();
        let file = others.find("amid").unwrap();
        let (stored, took_ns) = timed(host, || others.sync(file));
        stored.unwrap();
        assert!(took_ns < SECOND, "{took_ns}");
        let (left, took_ns) = timed(host, || house.export("tank", true));
        left.unwrap();
        assert!(took_ns < 2 * SECOND, "{took_ns}");
        let outcome = writer.join().unwrap_or_else(|panicked| panicked.resume());
        assert_eq!(outcome.unwrap_err().errno(), 5);
        let refused = admin.join().unwrap_or_else(|panicked| panicked.resume());
        refused.unwrap_err();
        assert!(house.status("tank").is_err());
        disk(&machine, "a").clear_faults();
        house.import(Some("tank"), &[]).unwrap();
        check(&house.files("tank"), "before", 1);
        drop(others);
        house.export("tank", false).unwrap();
        house.export("other", false).unwrap();
    });
    run.unwrap();
}

/// A pool whose disk is slow is no pool whose disk hangs.
#[test]
fn a_slow_disk_is_waited_for() {
    let machine = machine(47, &["a"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        disk(&machine, "a").inject(Fault::Slow { factor: 200 });
        let files = house.files("tank");
        for number in 0..5 {
            put(&files, &format!("file{number}"), number).unwrap();
        }
        house.create_dataset("tank/new").unwrap();
        drop(files);
        house.export("tank", true).unwrap();
        disk(&machine, "a").clear_faults();
        house.import(Some("tank"), &[]).unwrap();
        let files = house.files("tank");
        (0..5).for_each(|number| check(&files, &format!("file{number}"), number));
        drop(files);
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}
