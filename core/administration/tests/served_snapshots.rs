//! Snapshots that are destroyed after they were entered below `.zfs`: their file systems end,
//! whichever command destroys them.

mod support;

use std::sync::Arc;
use support::{Bench, call};
use tarn_administration::administration::Administration;
use tarn_administration::messages::Refusal;
use tarn_administration::messages::dataset::{
    Destroy, Hold, MakeClone, Promote, Rollback, Snapshot,
};
use tarn_engine::files::{Credentials, Operation, Tree};

/// `tank/a` with a file and a snapshot.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "file", 1000).unwrap();
    snapshot(&bench, "tank/a@s");
    bench
}

fn snapshot(bench: &Bench, name: &str) {
    let request = Snapshot {
        names: vec![name.to_string()],
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), request)
        .unwrap();
}

fn clone(bench: &Bench, origin: &str) {
    let request = MakeClone {
        origin: origin.to_string(),
        name: "tank/c".to_string(),
        ..MakeClone::default()
    };
    bench
        .administrator
        .dataset_clone(&call(""), request)
        .unwrap();
}

fn hold() -> Hold {
    Hold {
        name: "tank/a@s".to_string(),
        tag: "kept".to_string(),
        recursive: false,
    }
}

fn destroy(bench: &Bench, name: &str, defer: bool) -> Result<(), Refusal> {
    let request = Destroy {
        name: name.to_string(),
        defer,
        ..Destroy::default()
    };
    bench
        .administrator
        .dataset_destroy(&call(""), request)
        .map(drop)
}

fn enter(bench: &Bench) -> Arc<dyn Tree> {
    let tree = bench.tree("/tank/a");
    tree.snapshot(b"s", &Operation::unmeasured()).unwrap()
}

/// Opens a file of it.
fn open(entered: &Arc<dyn Tree>) {
    let entered = entered.files();
    let operation = Operation::unmeasured();
    let found = entered.lookup(&Credentials::root(), entered.root(), b"file", &operation);
    entered.opened(found.unwrap().id, &operation).unwrap();
}

fn close(entered: &Arc<dyn Tree>) {
    let entered = entered.files();
    let operation = Operation::unmeasured();
    let found = entered.lookup(&Credentials::root(), entered.root(), b"file", &operation);
    entered.closed(found.unwrap().id, &operation).unwrap();
}

/// It was destroyed: its open files end, and it cannot be entered.
fn assert_ended(bench: &Bench, entered: &Arc<dyn Tree>) {
    assert!(entered.files().is_ending());
    let again = bench
        .tree("/tank/a")
        .snapshot(b"s", &Operation::unmeasured());
    assert!(again.is_err());
}

#[test]
fn a_snapshot_without_holds_is_destroyed_at_once_though_deferred() {
    let bench = bench();
    let entered = enter(&bench);
    open(&entered);
    assert_eq!(
        destroy(&bench, "tank/a@s", true).unwrap_err().to_string(),
        "cannot destroy snapshot tank/a@s: dataset is busy"
    );
    assert!(!entered.files().is_ending());
    close(&entered);
    destroy(&bench, "tank/a@s", true).unwrap();
    assert_ended(&bench, &entered);
}

#[test]
fn a_deferred_destroyed_snapshot_ends_with_its_last_hold() {
    let bench = bench();
    bench.administrator.dataset_hold(&call(""), hold()).unwrap();
    let entered = enter(&bench);
    destroy(&bench, "tank/a@s", true).unwrap();
    assert!(!entered.files().is_ending());
    // Entered once more, with a file open: both share one file system.
    let other = enter(&bench);
    assert!(Arc::ptr_eq(entered.files(), other.files()));
    open(&other);
    bench
        .administrator
        .dataset_release(&call(""), hold())
        .unwrap();
    assert_ended(&bench, &entered);
    assert!(other.files().is_ending());
}

#[test]
fn a_deferred_destroyed_snapshot_ends_with_its_last_clone() {
    let bench = bench();
    clone(&bench, "tank/a@s");
    destroy(&bench, "tank/a@s", true).unwrap();
    let entered = enter(&bench);
    open(&entered);
    bench.destroy("tank/c", false).unwrap();
    assert_ended(&bench, &entered);
}

/// A promotion moves all snapshots up to the origin, and the former parent needs only the origin.
#[test]
fn a_snapshot_moved_by_a_promotion_ends_where_it_was_entered() {
    let bench = bench();
    snapshot(&bench, "tank/a@t");
    let entered = enter(&bench);
    open(&entered);
    clone(&bench, "tank/a@t");
    let name = "tank/c".to_string();
    let request = Promote { name };
    bench
        .administrator
        .dataset_promote(&call(""), request)
        .unwrap();
    assert_eq!(
        destroy(&bench, "tank/c@s", false).unwrap_err().to_string(),
        "cannot destroy snapshot tank/c@s: dataset is busy"
    );
    assert!(!entered.files().is_ending());
    close(&entered);
    destroy(&bench, "tank/c@s", false).unwrap();
    assert_ended(&bench, &entered);
}

#[test]
fn a_newer_snapshot_ends_at_a_rollback() {
    let bench = bench();
    bench.write("/tank/a", "other", 1000).unwrap();
    snapshot(&bench, "tank/a@t");
    let tree = bench.tree("/tank/a");
    let operation = Operation::unmeasured();
    let entered = enter(&bench);
    let newer = tree.snapshot(b"t", &operation).unwrap();
    let request = Rollback {
        name: "tank/a@s".to_string(),
        newer: true,
        ..Rollback::default()
    };
    bench
        .administrator
        .dataset_rollback(&call(""), request)
        .unwrap();
    assert!(newer.files().is_ending());
    assert!(!entered.files().is_ending());
}
