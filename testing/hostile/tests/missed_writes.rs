//! Devices that missed writes: the pool says so to the next import, and does not rely on
//! them.

use std::sync::atomic::{AtomicU64, Ordering};
use tarn_administration::administration::Administration;
use tarn_administration::messages::RefusalKind;
use tarn_administration::messages::pool::{Create, VdevKind, VdevRole, VdevSpec};
use tarn_engine::inspect::{Inspection, Source};
use tarn_host::sim::{Fault, SimDisk, SimHost, SimOptions};
use tarn_host::{Action, Errno, Host};
use tarn_hostile::house::{DISKS, House, call, noise};
use tarn_hostile::images::Image;
use tarn_hostile::leaks;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::features::Feature;
use tarn_ondisk::space_map::{Action as Kind, Region, SpaceMapDecoder, SpaceMapHead};
use tarn_ondisk::units::{AllocatedSize, Txg, VdevOffset};

const DISK_BYTES: u64 = 64 << 20;
const SIZE: usize = 100_000;

fn machine(seed: u64, disks: &[&str]) -> SimHost {
    let machine = SimHost::new(SimOptions::seed(seed));
    for disk in disks {
        machine.add_disk(path(disk), DISK_BYTES);
    }
    machine
}

fn path(disk: &str) -> String {
    format!("{DISKS}/{disk}")
}

fn disk(machine: &SimHost, name: &str) -> SimDisk {
    machine.disk(path(name)).unwrap()
}

/// Takes a disk out. Gives what is on it.
fn pull(machine: &SimHost, name: &str) -> Image {
    let image = Image::of_disk(name, &disk(machine, name), DISK_BYTES);
    machine.host().remove_file(path(name).as_ref()).unwrap();
    image
}

fn fails(action: Action) -> Fault {
    let (range, errno) = (0..u64::MAX, Errno::IO);
    Fault::FailRange {
        action,
        range,
        errno,
    }
}

fn put(house: &House, name: &str) {
    let files = house.files("tank");
    let file = files.make(name).unwrap();
    files.write(file, 0, &noise(1, SIZE)).unwrap();
}

fn check(house: &House, name: &str) {
    let files = house.files("tank");
    let file = files.find(name).unwrap();
    assert!(files.read(file, 0, SIZE).unwrap() == noise(1, SIZE));
}

/// What the stored pool says that a device missed.
#[derive(Debug, PartialEq, Eq)]
enum Missed {
    Nothing,
    /// Blocks born from this txg on.
    Since(Txg),
}

/// What each device missed by the logs that other programs go by. Walks the pool, too.
fn missed(host: &Host) -> Vec<(String, Missed)> {
    leaks::walk(host, "tank").unwrap();
    let source = Source::Places(vec![DISKS.into()]);
    let inspection = Inspection::open(host, &source, "tank").unwrap();
    let configuration = inspection.configuration().unwrap();
    let tree = configuration.list("vdev_tree").unwrap();
    let root = tarn_vdev::VdevConfig::parse(tree).unwrap();
    let stored = inspection.pool().uberblock().txg;
    let leaves = root.leaves().into_iter();
    let found = leaves.map(|leaf| {
        let name = leaf.path.as_ref().unwrap().to_string();
        let name = name.rsplit('/').next().unwrap().to_string();
        assert_eq!(leaf.unsaved_dtl(), None, "the log has it");
        let Some(log) = leaf.dtl else {
            return (name, Missed::Nothing);
        };
        let object = inspection.directory().object(log).unwrap();
        let (head, has_histogram) =
            SpaceMapHead::from_bonus(&object.bonus(), ByteOrder::Little).unwrap();
        assert!(has_histogram, "as the pool's features have it");
        let mut bytes = vec![0; usize::try_from(head.length).unwrap()];
        let read = object.read(0, &mut bytes, inspection.operation());
        read.unwrap();
        let mut decoder = SpaceMapDecoder::new(Region {
            start: VdevOffset::ZERO,
            size: AllocatedSize::MAX,
            shift: 0,
        });
        let entries = decoder.entries(&bytes, ByteOrder::Little);
        let runs: Vec<_> = entries.map(Result::unwrap).collect();
        let sizes = runs.iter().map(|run| run.size.get());
        let count: u64 = sizes.sum();
        assert_eq!(u64::try_from(head.allocated).unwrap(), count);
        for run in &runs {
            assert_eq!(run.action, Kind::Allocate, "{runs:?}");
            let end = run.start.get() + run.size.get();
            assert!(
                end <= stored.get() + 1,
                "it says nothing of what is not stored"
            );
        }
        match runs.first() {
            None => (name, Missed::Nothing),
            Some(run) => (name, Missed::Since(Txg::new(run.start.get()))),
        }
    });
    let found: Vec<_> = found.collect();
    let logs = root
        .leaves()
        .iter()
        .filter(|leaf| leaf.dtl.is_some())
        .count();
    let features = inspection.pool().features();
    let uses = features.count(Feature::SpacemapHistogram.guid());
    assert!(uses.unwrap() > u64::try_from(logs).unwrap());
    found
}

fn says(found: &[(String, Missed)], which: &[&str]) {
    for (name, missed) in found {
        let is_meant = which.contains(&name.as_str());
        assert_eq!(*missed != Missed::Nothing, is_meant, "{found:?}");
    }
}

#[test]
fn a_device_that_could_not_be_written_says_what_it_missed_in_openzfs_s_way() {
    let machine = machine(3, &["a", "b"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house
            .create("tank", VdevKind::Mirror, &["a", "b"], &[])
            .unwrap();
        put(&house, "before");
        house.sync().unwrap();
        disk(&machine, "b").inject(fails(Action::Write));
        for number in 0..4 {
            put(&house, &format!("amid{number}"));
            house.sync().unwrap();
        }
        house.export("tank", false).unwrap();
        let found = missed(host);
        says(&found, &["b"]);
        // It has what was stored before.
        assert!(
            matches!(found[1].1, Missed::Since(first) if first > Txg::INITIAL),
            "{found:?}"
        );
    });
    run.unwrap();
}

/// At whatever write of a group a device fails, that group says so; but for the writes of labels,
/// which come last.
#[test]
fn a_group_says_it_of_a_device_that_fails_while_it_is_stored() {
    const LABEL_WRITES: u32 = 8;
    let mut too_late = 0;
    for nth in 0.. {
        let machine = machine(5, &["a", "b"]);
        let written = AtomicU64::new(0);
        let run = machine.run(|host| {
            let house = House::new(host);
            let disks = ["a", "b"];
            house.create("tank", VdevKind::Mirror, &disks, &[]).unwrap();
            put(&house, "before");
            house.sync().unwrap();
            let (action, errno) = (Action::Write, Errno::IO);
            disk(&machine, "b").inject(Fault::FailNth { action, nth, errno });
            let before = disk(&machine, "b").requests().1;
            put(&house, "amid");
            house.sync().unwrap();
            let after = disk(&machine, "b").requests().1;
            written.store(after - before, Ordering::Relaxed);
            // What comes next does not help.
            machine.cut_power();
        });
        assert!(run.is_err());
        if written.load(Ordering::Relaxed) <= nth {
            assert!(nth > 20, "a group is written in more pieces");
            break;
        }
        let machine = machine.reboot();
        let run = machine.run(|host| missed(host)[1].1 == Missed::Nothing);
        too_late += u32::from(run.unwrap());
    }
    assert!(too_late <= LABEL_WRITES, "{too_late}");
}

#[test]
fn a_device_that_fails_in_any_flush_of_an_export_says_so() {
    for nth in 0.. {
        let machine = machine(7, &["a", "b"]);
        let run = machine.run(|host| {
            let house = House::new(host);
            let disks = ["a", "b"];
            house.create("tank", VdevKind::Mirror, &disks, &[]).unwrap();
            put(&house, "before");
            house.sync().unwrap();
            let (action, errno) = (Action::Flush, Errno::IO);
            disk(&machine, "b").inject(Fault::FailNth { action, nth, errno });
            let flushes = || disk(&machine, "b").requests().2;
            let before = flushes();
            house.export("tank", false).unwrap();
            let has_failed = flushes() - before > nth;
            says(&missed(host), if has_failed { &["b"] } else { &[] });
            has_failed
        });
        if !run.unwrap() {
            assert!(nth > 4, "an export flushes more often");
            return;
        }
    }
}

/// Makes a pool of mirrors of two.
fn mirrors(house: &House, pairs: &[[&str; 2]]) {
    let leaf = |disk: &&str| VdevSpec {
        kind: VdevKind::Leaf,
        path: Some(path(disk)),
        children: Vec::new(),
        role: VdevRole::Data,
    };
    let vdevs = pairs.iter().map(|pair| VdevSpec {
        kind: VdevKind::Mirror,
        path: None,
        children: pair.iter().map(leaf).collect(),
        role: VdevRole::Data,
    });
    let request = Create {
        name: "tank".to_string(),
        vdevs: vdevs.collect(),
        ..Create::default()
    };
    house.administrator.pool_create(&call(), request).unwrap();
}

/// A device is out of date: when it alone is left of its mirror, the pool waits.
fn is_not_relied_on(machine: &SimHost, house: &House, sibling: &str) {
    disk(machine, sibling).inject(fails(Action::Write));
    put(house, "alone");
    let refusal = house.sync().unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Suspended, "{refusal}");
}

#[test]
fn a_device_that_was_absent_for_two_groups_of_a_wide_pool_is_out_of_date() {
    let pairs = [["a", "A"], ["b", "B"], ["c", "C"], ["d", "D"], ["e", "E"]];
    let names = pairs.concat();
    let machine = machine(9, &names);
    let run = machine.run(|host| {
        let house = House::new(host);
        mirrors(&house, &pairs);
        house.export("tank", false).unwrap();
        for pair in pairs {
            let pulled = pull(&machine, pair[1]);
            house.import(Some("tank"), &[]).unwrap();
            house.export("tank", false).unwrap();
            pulled.insert(&machine);
            let says_so = missed(host);
            let says_so = says_so.iter().find(|(name, _)| name == pair[1]);
            assert_ne!(says_so.unwrap().1, Missed::Nothing);
        }
        house.import(Some("tank"), &[]).unwrap();
        is_not_relied_on(&machine, &house, "c");
    });
    run.unwrap();
}

/// As OpenZFS leaves a device that it has begun to fill: the log is all that tells.
#[test]
fn a_device_with_a_log_of_missed_groups_is_filled_when_it_is_back() {
    let machine = machine(11, &["a", "b"]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house
            .create("tank", VdevKind::Mirror, &["a", "b"], &[])
            .unwrap();
        house.export("tank", false).unwrap();
        let pulled = pull(&machine, "b");
        house.import(Some("tank"), &[]).unwrap();
        put(&house, "without b");
        house.export("tank", false).unwrap();
        pulled.insert(&machine);
        // From now on it is written, and its uberblocks are as new as the other's.
        for name in ["with b", "again with b"] {
            house.import(Some("tank"), &[]).unwrap();
            put(&house, name);
            house.export("tank", false).unwrap();
        }
    });
    run.unwrap();
    let run = machine.run(|host| {
        says(&missed(host), &[]);
        let pulled = pull(&machine, "a");
        let house = House::new(host);
        house.import(Some("tank"), &[]).unwrap();
        for name in ["without b", "with b", "again with b"] {
            check(&house, name);
        }
        house.export("tank", false).unwrap();
        pulled.insert(&machine);
    });
    run.unwrap();
}
