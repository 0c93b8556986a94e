//! A pool that fills up says so to writers, takes deletes, gives the room back, and imports again.

use tarn_administration::administration::Administration;
use tarn_administration::messages::dataset;
use tarn_administration::messages::pool::{Create, VdevKind, VdevRole, VdevSpec};
use tarn_engine::files::PosixError;
use tarn_host::sim::{Random, SimHost, SimOptions};
use tarn_hostile::house::{DISKS, Files, House, call, noise};

const MIB: usize = 1 << 20;

fn machine(seed: u64, disks: &[(&str, u64)]) -> SimHost {
    let machine = SimHost::new(SimOptions::seed(seed));
    for (disk, mebibytes) in disks {
        machine.add_disk(format!("{DISKS}/{disk}"), mebibytes << 20);
    }
    machine
}

/// Writes files of a mebibyte until there is no room. Gives back how many are whole.
fn fill(files: &Files, prefix: &str) -> usize {
    for number in 0..10_000 {
        let file = match files.make(&format!("{prefix}{number}")) {
            Ok(file) => file,
            Err(PosixError::NoSpace) => return number,
            Err(error) => panic!("{error}"),
        };
        let seed = u64::try_from(number).unwrap();
        for (index, part) in noise(seed, MIB).chunks(131_072).enumerate() {
            let offset = u64::try_from(index * 131_072).unwrap();
            match files.write(file, offset, part) {
                Ok(written) => assert_eq!(written, part.len()),
                Err(PosixError::NoSpace) => return number,
                Err(error) => panic!("{error}"),
            }
        }
    }
    panic!("the pool never fills up");
}

fn check(files: &Files, prefix: &str, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        let file = files.find(&format!("{prefix}{number}")).unwrap();
        let seed = u64::try_from(number).unwrap();
        let read = files.read(file, 0, MIB).unwrap();
        assert!(
            read == noise(seed, MIB),
            "{prefix}{number} reads as written"
        );
    }
}

fn fills_and_empties(kind: VdevKind, disks: &[(&str, u64)]) {
    let machine = machine(7, disks);
    let names: Vec<&str> = disks.iter().map(|(name, _)| *name).collect();
    let whole = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", kind, &names, &[]).unwrap();
        let files = house.files("tank");
        let first = fill(&files, "a");
        house.sync().unwrap();
        let after_sync = fill(&files, "b");
        house.sync().unwrap();
        check(&files, "a", 0..first);
        for number in (0..first).filter(|number| number % 2 == 0) {
            files.unlink(&format!("a{number}")).unwrap();
        }
        // What was freed may be used again two groups later; a writer waits for it.
        let again = fill(&files, "c");
        assert!(
            again * 3 >= first,
            "{again} of {first} fit again; {after_sync} more had fit"
        );
        house.sync().unwrap();
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        drop(files);
        house.export("tank", false).unwrap();
        (first, again)
    });
    let (first, again) = whole.unwrap();
    let rerun = machine.run(|host| {
        let house = House::new(host);
        house.import(Some("tank"), &[]).unwrap();
        let files = house.files("tank");
        check(&files, "a", (0..first).filter(|number| number % 2 == 1));
        check(&files, "c", 0..again);
        for number in (0..first).filter(|number| number % 2 == 1) {
            files.unlink(&format!("a{number}")).unwrap();
        }
        for number in 0..again {
            files.unlink(&format!("c{number}")).unwrap();
        }
        house.sync().unwrap();
        assert!(fill(&files, "d") > first / 2);
        drop(files);
        house.export("tank", false).unwrap();
    });
    rerun.unwrap();
}

#[test]
fn a_full_pool_of_one_disk_refuses_writers_and_recovers() {
    fills_and_empties(VdevKind::Leaf, &[("a", 64)]);
}

#[test]
fn a_full_mirror_refuses_writers_and_recovers() {
    fills_and_empties(VdevKind::Mirror, &[("a", 64), ("b", 64)]);
}

#[test]
fn a_full_raidz_refuses_writers_and_recovers() {
    fills_and_empties(
        VdevKind::Raidz2,
        &[("a", 64), ("b", 64), ("c", 64), ("d", 64)],
    );
}

/// Several writers change a pool that is nearly full: whatever they are told, the pool goes on
/// storing.
fn churn(seed: u64, kind: VdevKind, disks: &[(&str, u64)]) {
    let machine = machine(seed, disks);
    let names: Vec<&str> = disks.iter().map(|(name, _)| *name).collect();
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", kind, &names, &[]).unwrap();
        let files = house.files("tank");
        let whole = fill(&files, "a");
        let writer = |number: u64| {
            let files = house.files("tank");
            let body = move || {
                let mut random = Random::new(seed * 100 + number);
                let mut refused = 0;
                for step in 0..60 {
                    let outcome = change(&files, number, step, whole, &mut random);
                    match outcome {
                        Ok(()) | Err(PosixError::NotFound | PosixError::Exists) => {}
                        Err(PosixError::NoSpace) => refused += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                refused
            };
            host.spawn("writer", body)
        };
        let writers: Vec<_> = (0..4).map(writer).collect();
        for writer in writers {
            writer.join().unwrap_or_else(|panicked| panicked.resume());
        }
        house.sync().unwrap();
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        drop(files);
        house.export("tank", false).unwrap();
        house.import(Some("tank"), &[]).unwrap();
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

fn change(
    files: &Files,
    writer: u64,
    step: u64,
    whole: usize,
    random: &mut Random,
) -> Result<(), PosixError> {
    match random.index(8) {
        0 => files.unlink(&format!("a{}", random.index(whole))),
        1 | 2 => {
            // Overwritten data needs room before it gives room.
            let file = files.find(&format!("a{}", random.index(whole)))?;
            let offset = u64::try_from(random.index(MIB)).unwrap();
            files.write(file, offset, &noise(step, 1 + random.index(200_000)))?;
            Ok(())
        }
        3 => {
            let file = files.find(&format!("a{}", random.index(whole)))?;
            files.resize(file, u64::try_from(random.index(2 * MIB)).unwrap())
        }
        4 => {
            let file = files.make(&format!("w{writer}-{step}"))?;
            files.write(file, 0, &noise(step, 1 + random.index(MIB)))?;
            Ok(())
        }
        5 => {
            for number in 0..20 {
                files.make(&format!("empty{writer}-{step}-{number}"))?;
            }
            Ok(())
        }
        6 => {
            let file = files.find(&format!("a{}", random.index(whole)))?;
            // Far behind the end: blocks of pointers for little data.
            let offset = 1_u64 << (20 + random.index(30));
            files.write(file, offset, &noise(step, 700))?;
            Ok(())
        }
        _ => files.unlink(&format!("w{writer}-{}", random.index(60))),
    }
}

#[test]
fn changes_of_a_full_pool_of_one_disk_never_suspend_it() {
    for seed in 1..3 {
        churn(seed, VdevKind::Leaf, &[("a", 64)]);
    }
}

#[test]
fn changes_of_a_full_raidz_never_suspend_it() {
    for seed in 1..3 {
        churn(seed, VdevKind::Raidz1, &[("a", 64), ("b", 64), ("c", 64)]);
    }
}

/// How many files without contents are made at most.
const EMPTY_FILES_MAX: usize = 1000;

/// Files without contents take room, too.
#[test]
fn empty_files_fill_a_pool_and_are_removed_again() {
    let machine = machine(3, &[("a", 64)]);
    let run = machine.run(|host| {
        let house = House::new(host);
        house.create("tank", VdevKind::Leaf, &["a"], &[]).unwrap();
        let files = house.files("tank");
        // Most of the pool first, so that it does not take so many.
        let large = fill(&files, "a");
        files.unlink("a0").unwrap();
        // All of it takes thousands; near the end every few wait for a group.
        let mut made = 0;
        while made < EMPTY_FILES_MAX {
            match files.make(&format!("empty{made}")) {
                Ok(_) => made += 1,
                Err(PosixError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        for number in 0..made {
            files.unlink(&format!("empty{number}")).unwrap();
        }
        for number in 1..large {
            files.unlink(&format!("a{number}")).unwrap();
        }
        house.sync().unwrap();
        assert!(fill(&files, "b") * 10 > large * 8);
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
    });
    run.unwrap();
}

/// Writes one file until there is no room, in pieces that are no multiple of anything. Gives back
/// how long it is.
fn fill_file(files: &Files, name: &str) -> u64 {
    let file = match files.make(name) {
        Ok(file) => file,
        Err(PosixError::NoSpace) => return 0,
        Err(error) => panic!("{error}"),
    };
    let part = noise(1, 300_000);
    let mut length = 0;
    loop {
        match files.write(file, length, &part) {
            Ok(written) => length += u64::try_from(written).unwrap(),
            Err(PosixError::NoSpace) => return length,
            Err(error) => panic!("{error}"),
        }
    }
}

/// How a pool is laid out, and how small its records are.
struct Small {
    kind: VdevKind,
    disks: &'static [(&'static str, u64)],
    ashift: &'static str,
    record_bytes: &'static str,
    copies: &'static str,
}

/// Records much smaller than what they take: a byte written takes up to 64, and its pointers as
/// much again.
fn small_records_fill_a_pool(small: &Small) {
    let machine = machine(11, small.disks);
    let names: Vec<&str> = small.disks.iter().map(|(name, _)| *name).collect();
    let run = machine.run(|host| {
        let house = House::new(host);
        let of_root = [
            ("recordsize", small.record_bytes),
            ("copies", small.copies),
            ("compression", "off"),
        ];
        let of_pool = [("ashift", small.ashift)];
        house
            .create_with("tank", small.kind, &names, &of_pool, &of_root)
            .unwrap();
        let files = house.files("tank");
        let first = fill_file(&files, "a");
        assert!(first > 100_000, "{first}");
        house.sync().unwrap();
        let more = fill_file(&files, "b");
        house.sync().unwrap();
        assert!(more < first, "{more} more fit after {first}");
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        // Overwritten records need room before they give room.
        let file = files.find("a").unwrap();
        for step in 0..200 {
            let offset = step * 7919 % first;
            match files.write(file, offset, &noise(step, 3000)) {
                Ok(_) | Err(PosixError::NoSpace) => {}
                Err(error) => panic!("{error}"),
            }
        }
        house.sync().unwrap();
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        files.resize(file, first / 2).unwrap();
        match files.unlink("b") {
            // A pool that is full makes no file.
            Ok(()) | Err(PosixError::NotFound) => {}
            Err(error) => panic!("{error}"),
        }
        let again = fill_file(&files, "c");
        assert!(again > first / 4, "{again} fit again");
        house.sync().unwrap();
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        drop(files);
        house.export("tank", false).unwrap();
        house.import(Some("tank"), &[]).unwrap();
        house.export("tank", false).unwrap();
    });
    run.unwrap();
}

const ONE: &[(&str, u64)] = &[("a", 128)];

#[test]
fn small_records_in_three_copies_never_suspend_a_pool() {
    for (ashift, record_bytes, copies) in [
        ("12", "512", "3"),
        ("13", "512", "1"),
        ("16", "4K", "2"),
        ("9", "512", "3"),
    ] {
        small_records_fill_a_pool(&Small {
            kind: VdevKind::Leaf,
            disks: ONE,
            ashift,
            record_bytes,
            copies,
        });
    }
}

#[test]
fn small_records_never_suspend_a_raidz() {
    small_records_fill_a_pool(&Small {
        kind: VdevKind::Raidz2,
        disks: &[("a", 64), ("b", 64), ("c", 64), ("d", 64), ("e", 64)],
        ashift: "12",
        record_bytes: "512",
        copies: "1",
    });
    small_records_fill_a_pool(&Small {
        kind: VdevKind::Raidz1,
        disks: &[("a", 64), ("b", 64), ("c", 64)],
        ashift: "9",
        record_bytes: "1K",
        copies: "2",
    });
}

/// Free space that is cut to pieces: blocks become gangs, which take more than twice as much.
#[test]
fn a_pool_of_holes_takes_large_records_until_it_is_full() {
    let machine = machine(5, ONE);
    let run = machine.run(|host| {
        let house = House::new(host);
        let of_root = [("recordsize", "4K"), ("compression", "off")];
        let of_pool = [("ashift", "12")];
        house
            .create_with("tank", VdevKind::Leaf, &["a"], &of_pool, &of_root)
            .unwrap();
        let files = house.files("tank");
        let first = fill_file(&files, "a");
        house.sync().unwrap();
        let file = files.find("a").unwrap();
        // Every other record goes.
        for record in (0..first / 4096).step_by(2) {
            files.punch(file, record * 4096, 4096).unwrap();
        }
        house.sync().unwrap();
        let set = dataset::Set {
            name: "tank".to_string(),
            properties: vec![("recordsize".to_string(), "128K".to_string())],
            ..dataset::Set::default()
        };
        house.administrator.dataset_set(&call(), set).unwrap();
        let second = fill_file(&files, "b");
        house.sync().unwrap();
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        assert!(second > first / 10, "{second} of {first}");
    });
    run.unwrap();
}

/// Disks of unequal size fill up together, and blocks of three copies go where there is room.
#[test]
fn disks_of_unequal_size_fill_up_without_suspending_their_pool() {
    let machine = machine(6, &[("a", 64), ("b", 256)]);
    let run = machine.run(|host| {
        let house = House::new(host);
        let leaf = |disk: &str| VdevSpec {
            kind: VdevKind::Leaf,
            path: Some(format!("{DISKS}/{disk}")),
            children: Vec::new(),
            role: VdevRole::Data,
        };
        let request = Create {
            name: "tank".to_string(),
            vdevs: vec![leaf("a"), leaf("b")],
            properties: vec![("ashift".to_string(), "12".to_string())],
            dataset_properties: vec![
                ("copies".to_string(), "3".to_string()),
                ("recordsize".to_string(), "8K".to_string()),
            ],
            ..Create::default()
        };
        house.administrator.pool_create(&call(), request).unwrap();
        let files = house.files("tank");
        let first = fill_file(&files, "a");
        assert!(first > 20 << 20, "{first}");
        house.sync().unwrap();
        fill_file(&files, "b");
        house.sync().unwrap();
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        files.unlink("a").unwrap();
        assert!(fill_file(&files, "c") > first / 2);
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
    });
    run.unwrap();
}

/// Metadata fill a pool as data do: attributes in blocks of their own, directories, lists of what
/// snapshots keep.
#[test]
fn attributes_and_snapshots_fill_a_pool_and_do_not_suspend_it() {
    let machine = machine(8, &[("a", 64)]);
    let run = machine.run(|host| {
        let house = House::new(host);
        let of_root = [("xattr", "sa"), ("copies", "3"), ("recordsize", "4K")];
        house
            .create_with(
                "tank",
                VdevKind::Leaf,
                &["a"],
                &[("ashift", "12")],
                &of_root,
            )
            .unwrap();
        let files = house.files("tank");
        let large = fill_file(&files, "large");
        files.unlink("large").unwrap();
        let large = fill_part(&files, "large", large * 7 / 8);
        let file = files.find("large").unwrap();
        let mut refused = 0;
        for number in 0..600 {
            if number % 100 == 0 {
                let request = dataset::Snapshot {
                    names: vec![format!("tank@{number}")],
                    ..dataset::Snapshot::default()
                };
                let _ = house.administrator.dataset_snapshot(&call(), request);
            }
            let outcome = files.make(&format!("x{number}")).and_then(|made| {
                files.set_xattr(made, "user.a", &noise(number, 12_000))?;
                files.write(file, number * 40_503 % large, &noise(number, 9000))?;
                Ok(())
            });
            match outcome {
                Ok(()) => {}
                Err(PosixError::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0, "it fills up");
        house.sync().unwrap();
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
        for number in (0..600).step_by(100) {
            let request = dataset::Destroy {
                name: format!("tank@{number}"),
                ..dataset::Destroy::default()
            };
            let _ = house.administrator.dataset_destroy(&call(), request);
        }
        for number in 0..600 {
            match files.unlink(&format!("x{number}")) {
                Ok(()) | Err(PosixError::NotFound) => {}
                Err(error) => panic!("{error}"),
            }
        }
        files.unlink("large").unwrap();
        house.sync().unwrap();
        assert!(fill_file(&files, "after") > large / 2);
        assert_eq!(house.status("tank").unwrap().state, "ONLINE");
    });
    run.unwrap();
}

/// Writes one file of about this length.
fn fill_part(files: &Files, name: &str, wanted: u64) -> u64 {
    let file = files.make(name).unwrap();
    let part = noise(2, 65_536);
    let mut length = 0;
    while length < wanted {
        match files.write(file, length, &part) {
            Ok(written) => length += u64::try_from(written).unwrap(),
            Err(PosixError::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    length
}
