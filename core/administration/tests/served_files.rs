//! One file system for each object set, shared by all holds: mounts, front ends that do not mount,
//! commands, and entries of `.zfs/snapshot`.

mod support;

use std::sync::Arc;
use support::{Bench, call};
use tarn_administration::administration::Administration;
use tarn_administration::messages::Refusal;
use tarn_administration::messages::dataset::{Destroy, Mount, Rollback, Snapshot, Unmount};
use tarn_administration::messages::pool::Export;
use tarn_engine::files::{Credentials, Held, HoldPurpose, Operation, Tree};

/// `tank/a` with a file and a snapshot.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "file", 1000).unwrap();
    let request = Snapshot {
        names: vec!["tank/a@s".to_string()],
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), request)
        .unwrap();
    bench
}

fn hold(bench: &Bench, name: &str) -> Arc<Held> {
    let held = bench.engine.hold_files(name, &Operation::unmeasured());
    held.unwrap()
}

fn unmount(bench: &Bench) {
    let request = Unmount {
        name: Some("tank/a".to_string()),
        force: false,
    };
    bench
        .administrator
        .dataset_unmount(&call(""), request)
        .unwrap();
}

fn mount(bench: &Bench, options: &str) -> Result<(), Refusal> {
    let request = Mount {
        name: Some("tank/a".to_string()),
        options: vec![options.to_string()],
        ..Mount::default()
    };
    bench
        .administrator
        .dataset_mount(&call(""), request)
        .map(drop)
}

fn roll_back(bench: &Bench) -> Result<(), Refusal> {
    let request = Rollback {
        name: "tank/a@s".to_string(),
        ..Rollback::default()
    };
    bench
        .administrator
        .dataset_rollback(&call(""), request)
        .map(drop)
}

fn has_file(held: &dyn Tree, name: &[u8]) -> bool {
    let (files, operation) = (held.files(), Operation::unmeasured());
    let found = files.lookup(&Credentials::root(), files.root(), name, &operation);
    found.is_ok()
}

#[test]
fn a_mount_and_a_hold_share_one_file_system_whichever_comes_first() {
    let bench = bench();
    let held = hold(&bench, "tank/a");
    assert_eq!(held.purpose(), HoldPurpose::Export);
    assert!(Arc::ptr_eq(held.files(), bench.tree("/tank/a").files()));
    bench.write("/tank/a", "new", 10).unwrap();
    assert!(has_file(&*held, b"new"));
    unmount(&bench);
    assert_eq!(bench.text("tank/a", "mounted"), "no");
    assert!(has_file(&*held, b"new"));
    mount(&bench, "").unwrap();
    assert!(Arc::ptr_eq(held.files(), bench.tree("/tank/a").files()));
    bench.engine.release_files(&held).unwrap();
    unmount(&bench);
    // The last hold has left: the next opens it anew.
    let again = hold(&bench, "tank/a");
    assert!(!Arc::ptr_eq(held.files(), again.files()));
    assert!(has_file(&*again, b"new"));
}

#[test]
fn a_dropped_hold_does_not_prevent_a_mount_or_a_rollback() {
    let bench = bench();
    unmount(&bench);
    let held = hold(&bench, "tank/a");
    bench.set("tank/a", &[("atime", "off")]).unwrap();
    drop(held);
    roll_back(&bench).unwrap();
    mount(&bench, "").unwrap();
    bench.write("/tank/a", "new", 10).unwrap();
    let held = hold(&bench, "tank/a");
    unmount(&bench);
    drop(held);
    roll_back(&bench).unwrap();
    mount(&bench, "").unwrap();
    assert!(!has_file(&*bench.tree("/tank/a"), b"new"));
    assert!(has_file(&*bench.tree("/tank/a"), b"file"));
}

#[test]
fn an_exported_dataset_is_busy_for_rollback_receive_and_destroy() {
    let bench = bench();
    let held = hold(&bench, "tank/a");
    let busy = |refused: Result<(), Refusal>| {
        let refused = refused.unwrap_err();
        assert_eq!(refused.reason, "pool or dataset is busy");
        assert_eq!(refused.hints, ["'tank/a' is exported"]);
    };
    busy(roll_back(&bench));
    busy(bench.destroy("tank/a", true).map(drop));
    let request = || Export {
        name: "tank".to_string(),
        force: false,
    };
    let refused = bench
        .administrator
        .pool_export(&call(""), request())
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot export 'tank': pool is busy\n'tank/a' is exported"
    );
    assert_eq!(bench.mounted(), ["/tank", "/tank/a"]);
    // A move is possible.
    bench.rename("tank/a", "tank/b").unwrap();
    assert!(Arc::ptr_eq(held.files(), bench.tree("/tank/b").files()));
    bench.rename("tank/b", "tank/a").unwrap();
    bench.engine.release_files(&held).unwrap();
    roll_back(&bench).unwrap();
    bench
        .administrator
        .pool_export(&call(""), request())
        .unwrap();
}

#[test]
fn properties_quotas_and_names_reach_held_unmounted_file_systems() {
    let bench = bench();
    unmount(&bench);
    let held = hold(&bench, "tank/a");
    bench.set("tank", &[("readonly", "on")]).unwrap();
    assert!(held.files().properties().is_read_only);
    // Read-only or not is one state for all holds.
    let refused = mount(&bench, "rw").unwrap_err();
    assert_eq!(refused.reason, "mountpoint or dataset is busy");
    bench.set("tank", &[("readonly", "off")]).unwrap();
    assert!(!held.files().properties().is_read_only);
    bench.set("tank/a", &[("userquota@5", "1M")]).unwrap();
    assert_eq!(bench.text("tank/a", "mounted"), "no");
    assert_eq!(bench.number("tank/a", "userquota@5"), 1 << 20);
    bench.rename("tank/a", "tank/b").unwrap();
    bench.set("tank/b", &[("atime", "off")]).unwrap();
    let never = tarn_engine_access_times(&held);
    assert_eq!(never, "Never");
}

fn tarn_engine_access_times(held: &Held) -> String {
    format!("{:?}", held.files().properties().access_times)
}

#[test]
fn a_snapshot_has_one_file_system_for_all_holders() {
    let bench = bench();
    let tree = bench.tree("/tank/a");
    let enter = || tree.snapshot(b"s", &Operation::unmeasured()).unwrap();
    let together: Vec<Arc<dyn Tree>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(enter)).collect();
        let entered = threads.into_iter().map(|thread| thread.join().unwrap());
        entered.collect()
    });
    let held = hold(&bench, "tank/a@s");
    for entered in &together {
        assert!(Arc::ptr_eq(entered.files(), held.files()));
    }
    let destroy = || {
        let request = Destroy {
            name: "tank/a@s".to_string(),
            ..Destroy::default()
        };
        bench
            .administrator
            .dataset_destroy(&call(""), request)
            .map(drop)
    };
    assert_eq!(
        destroy().unwrap_err().to_string(),
        "cannot destroy snapshot tank/a@s: dataset is busy"
    );
    assert!(!held.files().is_ending());
    let first = Arc::downgrade(held.files());
    drop((together, held));
    assert_eq!(first.strong_count(), 0, "the last of them closes it");
    let entered = enter();
    destroy().unwrap();
    assert!(entered.files().is_ending());
    let missing = tree.snapshot(b"s", &Operation::unmeasured());
    assert!(missing.is_err());
}

#[test]
fn a_dataset_that_is_not_there_or_has_no_files_is_not_held() {
    let bench = bench();
    let held = |name: &str| {
        let held = bench.engine.hold_files(name, &Operation::unmeasured());
        held.unwrap_err().to_string()
    };
    assert_eq!(
        held("tank/x"),
        "cannot open 'tank/x': dataset does not exist"
    );
    assert_eq!(
        held("tank/a@x"),
        "cannot open 'tank/a@x': dataset does not exist"
    );
    assert_eq!(
        held("pond/a"),
        "cannot open 'pond/a': dataset does not exist"
    );
}
