//! A pool that fills up says so to writers, takes deletes, gives the room back, and imports again.

use tarn_engine::files::PosixError;
use tarn_engine::messages::pool::VdevKind;
use tarn_host::sim::{Random, SimHost, SimOptions};
use tarn_hostile::house::{DISKS, Files, House, noise};

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

/// Several writers change a pool that is nearly full: whatever they are told, the pool goes on storing.
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
