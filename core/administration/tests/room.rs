//! Reserved space through the administration and files: limits of a new pool, `fallocate`, a full
//! pool.

mod support;

use support::{Bench, call, owned};
use tarn_administration::administration::Administration;
use tarn_administration::messages::RefusalKind;
use tarn_administration::messages::dataset::{Destroy, Rollback, Set, Snapshot};
use tarn_engine::files::{Allocate, Credentials, Operation, SetAttributes};

const MIB: u64 = 1 << 20;
const ENOSPC: i32 = 28;

#[test]
fn limits_of_the_root_take_effect_when_its_pool_is_made() {
    let bench = Bench::with_root(&[
        ("quota", "20M"),
        ("reservation", "10M"),
        ("refquota", "15M"),
        ("refreservation", "5M"),
        ("compression", "zstd"),
    ]);
    let bench = bench.unwrap();
    for (property, bytes) in [
        ("quota", 20 * MIB),
        ("reservation", 10 * MIB),
        ("refquota", 15 * MIB),
        ("refreservation", 5 * MIB),
    ] {
        assert_eq!(bench.number("tank", property), bytes, "{property}");
    }
    assert_eq!(bench.text("tank", "compression"), "zstd");
    assert!(bench.number("tank", "usedbyrefreservation") > 4 * MIB);
    assert!(bench.number("tank", "available") <= 15 * MIB);
    bench.create("tank/a", &[]).unwrap();
    assert!(bench.write("/tank/a", "f", 30 << 20).is_err());
}

#[test]
fn a_pool_that_cannot_have_its_limits_is_not_made() {
    for limit in [("reservation", "10G"), ("quota", "1K")] {
        let refused = Bench::with_root(&[limit]).err().expect("there is no room");
        assert_eq!(refused.kind, RefusalKind::NoSpace);
        assert_eq!(
            refused.to_string(),
            "cannot create 'tank': one or more devices is out of space"
        );
    }
}

/// Allocates a range of a file, and returns the errno.
fn allocate(bench: &Bench, path: &str, what: Allocate, length: u64) -> Result<(), i32> {
    let tree = bench.tree(path);
    let (files, root, operation) = (tree.files(), Credentials::root(), Operation::unmeasured());
    let found = files.lookup(&root, files.root(), b"f", &operation);
    let id = found.unwrap().id;
    let done = files.allocate(&root, id, what, 0, length, &operation);
    done.map_err(|error| error.errno())
}

#[test]
fn a_range_is_allocated_where_there_is_room_for_a_tenth_more() {
    let bench = Bench::new();
    let available = bench.number("tank", "available");
    bench.write("/tank", "f", 1 << 20).unwrap();
    for what in [Allocate::Extend, Allocate::KeepSize] {
        assert_eq!(allocate(&bench, "/tank", what, available), Err(ENOSPC));
        assert_eq!(allocate(&bench, "/tank", what, 1 << 40), Err(ENOSPC));
        assert_eq!(allocate(&bench, "/tank", what, 10 * MIB), Ok(()));
    }
    for (limit, name) in [("quota", "tank/q"), ("refquota", "tank/r")] {
        bench.create(name, &[(limit, "10M")]).unwrap();
        let path = format!("/{name}");
        bench.write(&path, "f", 1 << 10).unwrap();
        for what in [Allocate::Extend, Allocate::KeepSize] {
            assert_eq!(allocate(&bench, &path, what, 10 * MIB), Err(ENOSPC));
            assert_eq!(allocate(&bench, &path, what, 8 * MIB), Ok(()));
        }
    }
    let tree = bench.tree("/tank/q");
    let files = tree.files();
    let found = files.lookup(
        &Credentials::root(),
        files.root(),
        b"f",
        &Operation::unmeasured(),
    );
    let attributes = found.unwrap();
    assert_eq!(attributes.size, 8 * MIB);
    assert!(attributes.blocks_512 < 100, "it is a hole");
}

/// Fills the file system with files until there is no room. Returns their number.
fn fill(bench: &Bench, path: &str) -> usize {
    for number in 0..1000 {
        if let Err(error) = bench.write(path, &format!("f{number}"), 4 << 20) {
            assert_eq!(error, ENOSPC);
            return number;
        }
    }
    panic!("it never fills up");
}

#[test]
fn a_full_pool_frees_space_and_refuses_to_take_more() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "kept", 8 << 20).unwrap();
    let snapshot = |name: &str| {
        let request = Snapshot {
            names: vec![name.to_string()],
            ..Snapshot::default()
        };
        bench
            .administrator
            .dataset_snapshot(&call("zfs snapshot"), request)
    };
    snapshot("tank/a@before").unwrap();
    let filled = fill(&bench, "/tank/a");
    assert!(filled > 3, "{filled}");
    bench.sync();
    bench.sync();
    bench.sync();
    assert_eq!(bench.number("tank", "available"), 0);
    for refused in [
        snapshot("tank/a@full").map(drop),
        bench.create("tank/b", &[]),
    ] {
        let refused = refused.expect_err("the pool is full");
        assert!(refused.to_string().ends_with("out of space"), "{refused}");
    }
    bench
        .set("tank/a", &[("compression", "off"), ("a:b", "c")])
        .unwrap();
    bench.set("tank/a", &[("quota", "1G")]).unwrap();
    bench.rename("tank/a", "tank/c").unwrap();
    let tree = bench.tree("/tank/c");
    let (files, root, operation) = (tree.files(), Credentials::root(), Operation::unmeasured());
    let found = files
        .lookup(&root, files.root(), b"f0", &operation)
        .unwrap();
    let shorter = SetAttributes {
        size: Some(100),
        ..SetAttributes::default()
    };
    files
        .set_attributes(&root, found.id, &shorter, &operation)
        .unwrap();
    bench.unlink("/tank/c", "f1");
    // Freed space comes back; a writer waits for it.
    bench.write("/tank/c", "again", 4 << 20).unwrap();
    fill_rest(&bench);
    let back = Rollback {
        name: "tank/c@before".to_string(),
        ..Rollback::default()
    };
    drop(tree);
    bench
        .administrator
        .dataset_rollback(&call("zfs rollback"), back)
        .unwrap();
    let destroy = Destroy {
        name: "tank/c@before".to_string(),
        ..Destroy::default()
    };
    bench
        .administrator
        .dataset_destroy(&call("zfs destroy"), destroy)
        .unwrap();
    assert!(fill(&bench, "/tank/c") + 2 > filled, "all is back");
    let set = Set {
        name: "tank/c".to_string(),
        properties: owned(&[("reservation", "none")]),
        ..Set::default()
    };
    bench
        .administrator
        .dataset_set(&call("zfs set"), set)
        .unwrap();
}

/// Fills the remaining space.
fn fill_rest(bench: &Bench) {
    let mut number = 0;
    while bench
        .write("/tank/c", &format!("rest{number}"), 1 << 20)
        .is_ok()
    {
        number += 1;
    }
}

#[test]
fn statfs_of_a_snapshot_shows_its_referenced_and_its_file_systems_free_space() {
    let bench = Bench::new();
    bench
        .create("tank/a", &[("quota", "50M"), ("refquota", "9M")])
        .unwrap();
    bench.write("/tank/a", "f", 5 << 20).unwrap();
    bench.sync();
    let request = Snapshot {
        names: vec!["tank/a@s".to_string()],
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call("zfs snapshot"), request)
        .unwrap();
    let tree = bench.tree("/tank/a");
    let files = tree.snapshot(b"s", &Operation::unmeasured()).unwrap();
    let space = files.files().space();
    let used = space.total_bytes - space.available_bytes;
    assert!((5 * MIB..6 * MIB).contains(&used), "{used}");
    assert!(
        (44 * MIB..45 * MIB).contains(&space.available_bytes),
        "{}",
        space.available_bytes
    );
}

#[test]
fn a_write_that_does_not_fit_is_done_as_far_as_there_is_room() {
    let bench = Bench::new();
    bench
        .create("tank/a", &[("quota", "3M"), ("compression", "off")])
        .unwrap();
    let tree = bench.tree("/tank/a");
    let (files, root, operation) = (tree.files(), Credentials::root(), Operation::unmeasured());
    bench.write("/tank/a", "f", 0).unwrap();
    let id = files
        .lookup(&root, files.root(), b"f", &operation)
        .unwrap()
        .id;
    let contents = vec![7; 4 << 20];
    let offset = tarn_engine::files::WriteAt::Offset(0);
    let written = files
        .write(&root, id, offset, &contents, &operation)
        .unwrap();
    assert!((2 << 20..=3 << 20).contains(&written), "{written}");
    let read = files.read(&root, id, 0, 4 << 20, &operation).unwrap();
    assert_eq!(read.to_vec(), contents[..written]);
    bench.sync();
    assert!(bench.number("tank/a", "used") <= 3 * MIB + (256 << 10));
}
