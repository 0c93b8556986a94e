//! Datasets that go with all that depends on them, in one group.

mod support;

use std::sync::Arc;
use support::{Filler, Pool};
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::clone::CloneSnapshot;
use tarn_dataset::ops::create::{CreateFilesystem, NameRules};
use tarn_dataset::ops::destroy::Destroy;
use tarn_dataset::ops::destroy_snapshot::DestroySnapshots;
use tarn_dataset::ops::destroy_together::DestroyTogether;
use tarn_dataset::ops::hold::HoldSnapshots;
use tarn_dataset::ops::receive::{
    AbandonReceive, BeginReceive, ReceiveSettings, Receiver, StreamFacts,
};
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_dataset::task::TaskRefusal;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::StreamFeatures;

const MIB: u64 = 1 << 20;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

fn create(pool: &mut Pool, names: &[&str]) {
    for name in names {
        let task = CreateFilesystem {
            name: (*name).to_string(),
            settings: Vec::new(),
            rules: NameRules::default(),
            user: 0,
            group: 0,
            fill: Arc::new(Filler),
        };
        pool.run(task).unwrap();
        pool.write(name, 0, MIB);
        pool.sync();
    }
}

fn snapshot(pool: &mut Pool, list: &[&str]) {
    for name in list {
        let task = TakeSnapshots {
            names: names(&[name]),
            settings: Vec::new(),
        };
        pool.run(task).unwrap();
    }
}

fn clone(pool: &mut Pool, origin: &str, name: &str) {
    let task = CloneSnapshot {
        origin: origin.to_string(),
        name: name.to_string(),
        settings: Vec::new(),
    };
    pool.run(task).unwrap();
    pool.write(name, MIB, MIB);
    pool.sync();
}

fn destroy(name: &str) -> Destroy {
    Destroy {
        name: name.to_string(),
    }
}

fn together(list: &[&str]) -> DestroyTogether {
    DestroyTogether { names: names(list) }
}

/// Where a stream goes that replaces a file system, or, with the guid of a snapshot, goes on from
/// there.
fn begin(pool: &mut Pool, target: &str, from_guid: u64) -> Receiver {
    let task = BeginReceive {
        target: target.to_string(),
        snapshot: "x".to_string(),
        origin: None,
        stream: StreamFacts {
            to_guid: 7,
            from_guid,
            to_name: "far/away@x".to_string(),
            creation_time_s: 1_000_000_000,
            objset_type: ObjsetType::Zfs,
            is_clone: false,
            has_free_records: true,
            is_case_insensitive: false,
            features: StreamFeatures::SPILL,
        },
        force: true,
        resumable: false,
        settings: ReceiveSettings::default(),
        key: None,
    };
    pool.run(task).unwrap().receiver
}

fn there_is(pool: &Pool, name: &str) -> bool {
    let view = pool.namespace.view(&pool.operation);
    view.dataset(&DatasetName::parse(name).unwrap()).is_ok()
}

fn refusal(refused: Result<(), TaskRefusal>) -> String {
    match refused.unwrap_err() {
        TaskRefusal::Several(refused) => {
            let told = |(name, why): &(String, TaskRefusal)| format!("{name}: {why}");
            refused.iter().map(told).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

#[test]
fn what_depends_on_a_file_system_goes_with_it_in_one_group() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    snapshot(&mut pool, &["tank/a@1", "tank/a/b@1"]);
    clone(&mut pool, "tank/a/b@1", "tank/c");
    snapshot(&mut pool, &["tank/c@1"]);
    let all = [
        "tank/c@1",
        "tank/c",
        "tank/a/b@1",
        "tank/a/b",
        "tank/a@1",
        "tank/a",
    ];
    pool.run(together(&all)).unwrap();
    assert!(all.iter().all(|name| !there_is(&pool, name)));
    while pool.free_in_background(1000).more {}
    pool.judge();
}

#[test]
fn what_is_in_the_way_of_one_keeps_all_of_them() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    snapshot(&mut pool, &["tank/a@1", "tank/a@2", "tank/a/b@1"]);
    clone(&mut pool, "tank/a/b@1", "tank/c");
    let hold = HoldSnapshots {
        names: names(&["tank/a@2"]),
        tag: "k".to_string(),
    };
    pool.run(hold).unwrap();
    let all = ["tank/a/b@1", "tank/a/b", "tank/a@1", "tank/a@2", "tank/a"];
    assert_eq!(
        refusal(pool.run(together(&all))),
        "tank/a/b@1: snapshot is cloned, tank/a@2: dataset is busy"
    );
    // In the wrong order, and without something that is in the way.
    for (list, why) in [
        (&["tank/a", "tank/a@1"][..], "tank/a: dataset is busy"),
        (&["tank/a@1", "tank/a"][..], "tank/a: dataset is busy"),
        (
            &["tank/a/b@1", "tank/c"][..],
            "tank/a/b@1: snapshot is cloned",
        ),
        (
            &["tank/c", "tank"][..],
            "tank: operation does not apply to pools",
        ),
    ] {
        assert_eq!(refusal(pool.run(together(list))), why);
    }
    assert!(all.iter().all(|name| there_is(&pool, name)));
    assert!(there_is(&pool, "tank/c"));
    pool.judge();
}

#[test]
fn a_parent_goes_only_after_all_its_children() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b", "tank/a/c"]);
    let refused = pool.run(together(&["tank/a/b", "tank/a"]));
    assert_eq!(refusal(refused), "tank/a: dataset already exists");
    assert!(there_is(&pool, "tank/a/b"));
    pool.run(together(&["tank/a/b", "tank/a/c", "tank/a"]))
        .unwrap();
    pool.judge();
}

#[test]
fn a_marked_snapshot_that_goes_with_its_last_clone_is_passed_over() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    snapshot(&mut pool, &["tank/a@1"]);
    clone(&mut pool, "tank/a@1", "tank/c");
    let mark = DestroySnapshots {
        names: names(&["tank/a@1"]),
        defer: true,
    };
    pool.run(mark).unwrap();
    pool.run(together(&["tank/c", "tank/a@1", "tank/a"]))
        .unwrap();
    assert!(!there_is(&pool, "tank/a"));
    pool.judge();
}

#[test]
fn what_a_receive_left_goes_with_its_file_system() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    begin(&mut pool, "tank/a", 0);
    assert!(there_is(&pool, "tank/a/%recv"));
    pool.run(destroy("tank/a")).unwrap();
    assert!(!there_is(&pool, "tank/a"));
    pool.judge();
    create(&mut pool, &["tank/b"]);
    snapshot(&mut pool, &["tank/b@1"]);
    pool.sync();
    let from = {
        let view = pool.namespace.view(&pool.operation);
        let snapshot = view.dataset(&DatasetName::parse("tank/b@1").unwrap());
        snapshot.unwrap().stored().unwrap().guid.get()
    };
    begin(&mut pool, "tank/b", from);
    let alone = refusal(pool.run(together(&["tank/b@1", "tank/b"])));
    assert_eq!(alone, "tank/b@1: snapshot is cloned");
    pool.run(together(&["tank/b/%recv", "tank/b@1", "tank/b"]))
        .unwrap();
    assert!(!there_is(&pool, "tank/b"));
    pool.judge();
}

#[test]
fn what_is_being_received_into_goes_only_by_giving_that_up() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    let receiver = begin(&mut pool, "tank/a", 0);
    let claim = pool.namespace.claim_receive(receiver.head).unwrap();
    for name in ["tank/a/%recv", "tank/a"] {
        assert_eq!(refusal(pool.run(destroy(name))), "dataset is busy");
        let refused = refusal(pool.run(together(&[name])));
        assert_eq!(refused, format!("{name}: dataset is busy"));
    }
    let head = receiver.head;
    pool.run(AbandonReceive { head }).unwrap();
    drop(claim);
    assert!(!there_is(&pool, "tank/a/%recv"));
    pool.run(destroy("tank/a")).unwrap();
    pool.judge();
}
