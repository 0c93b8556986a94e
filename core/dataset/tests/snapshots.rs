//! What becomes of blocks when snapshots come and go: every block of every dataset is looked at after each change.

mod support;

use std::sync::Arc;
use support::{Filler, Pool};
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::create::{CreateFilesystem, NameRules};
use tarn_dataset::ops::destroy_snapshot::DestroySnapshots;
use tarn_dataset::ops::set::{SetProperties, Source};
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_dataset::properties::parse::{Checked, Moment, check};
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::task::{SyncTask, TaskRefusal};
use tarn_ondisk::dataset_dir::SNAPSHOT_COUNT;
use tarn_ondisk::features::Feature;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 128 << 10;

fn settings(kinds: Kinds, list: &[(&str, &str)]) -> Vec<Checked> {
    list.iter()
        .map(|(name, value)| check(name, value, kinds, Moment::Later).unwrap())
        .collect()
}

fn create(pool: &mut Pool, names: &[&str]) {
    for name in names {
        pool.run(CreateFilesystem {
            name: (*name).to_string(),
            settings: Vec::new(),
            rules: NameRules::default(),
            user: 0,
            group: 0,
            fill: Arc::new(Filler),
        })
        .unwrap();
    }
}

fn set(name: &str, property: &str, value: &str) -> SetProperties {
    SetProperties {
        name: name.to_string(),
        settings: settings(Kinds::FILESYSTEM, &[(property, value)]),
        source: Source::Local,
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

fn snapshot(list: &[&str]) -> TakeSnapshots {
    TakeSnapshots {
        names: names(list),
        settings: Vec::new(),
    }
}

fn destroy(list: &[&str]) -> DestroySnapshots {
    DestroySnapshots {
        names: names(list),
        defer: false,
    }
}

fn there_is(pool: &Pool, name: &str) -> bool {
    let view = pool.namespace.view(&pool.operation);
    view.dataset(&DatasetName::parse(name).unwrap()).is_ok()
}

fn several(refused: Result<(), TaskRefusal>) -> Vec<(String, TaskRefusal)> {
    match refused {
        Err(TaskRefusal::Several(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_snapshot_keeps_what_the_head_gives_up() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.take_events();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    assert_eq!(pool.take_events(), [("snapshot", " ".to_string())]);
    assert_eq!(pool.dataset("tank/a").unique.get(), 0);
    pool.judge();
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.judge();
    assert!(pool.directory("tank/a").used_by.snapshots.get() >= MIB);
    pool.run(destroy(&["tank/a@one"])).unwrap();
    assert_eq!(pool.take_events(), [("destroy", " ".to_string())]);
    pool.judge();
    assert_eq!(pool.directory("tank/a").used_by.snapshots.get(), 0);
    while pool.free_in_background(1000).more {}
    pool.judge();
    assert_eq!(pool.directory("tank/$FREE").used.get(), 0);
}

#[test]
fn snapshots_are_taken_of_all_or_of_none() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b"]);
    pool.run(snapshot(&["tank/b@x"])).unwrap();
    let refused = several(pool.run(snapshot(&["tank/a@x", "tank/b@x", "tank/c@x"])));
    assert!(matches!(&refused[0], (name, TaskRefusal::Exists { .. }) if name == "tank/b@x"));
    assert!(matches!(&refused[1], (name, TaskRefusal::NotFound { .. }) if name == "tank/c@x"));
    assert!(!there_is(&pool, "tank/a@x"));
    let refused = several(pool.run(snapshot(&["tank/a@x", "tank/a@y"])));
    assert!(matches!(refused[..], [(_, TaskRefusal::SameHead)]));
    pool.run(snapshot(&["tank/a@y", "tank/b@y"])).unwrap();
    pool.judge();
    let refused = pool.run(destroy(&["tank/a@no", "tank/b@no"]));
    assert!(matches!(refused, Err(TaskRefusal::NotFound { .. })));
    // One that is not there is no reason to keep the other.
    pool.run(destroy(&["tank/a@no", "tank/b@y"])).unwrap();
    assert!(!there_is(&pool, "tank/b@y"));
    pool.judge();
}

#[test]
fn a_head_has_one_snapshot_in_a_group() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    let mut refused = None;
    pool.sync_with(|context| {
        snapshot(&["tank/a@one"]).apply(context).unwrap();
        let task = snapshot(&["tank/a@two"]);
        refused = Some(task.check(context.view(), context.features));
    });
    assert!(matches!(refused, Some(Err(TaskRefusal::NotInThisGroup))));
    pool.run(snapshot(&["tank/a@two"])).unwrap();
    pool.judge();
}

#[test]
fn a_head_that_tasks_have_changed_waits_for_its_snapshot() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    let head = pool.head_id("tank/a");
    let mut refused = None;
    pool.sync_with(|context| {
        let set = context.namespace.head_set(head, context.operation).unwrap();
        set.change_head(context.tx, |objset| {
            objset.intent_log = tarn_ondisk::objset::IntentLogHead::default();
        });
        let task = snapshot(&["tank/a@one"]);
        refused = Some(task.check(context.view(), context.features));
    });
    assert!(matches!(refused, Some(Err(TaskRefusal::NotInThisGroup))));
}

#[test]
fn user_properties_go_with_each_snapshot_and_others_are_refused() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(TakeSnapshots {
        names: names(&["tank@one", "tank/a@one"]),
        settings: settings(Kinds::SNAPSHOT, &[("com.example:note", "kept")]),
    })
    .unwrap();
    let view = pool.namespace.view(&pool.operation);
    for name in ["tank@one", "tank/a@one"] {
        let dataset = view.dataset(&DatasetName::parse(name).unwrap()).unwrap();
        assert!(!dataset.stored().unwrap().snapshot_properties.is_zero());
    }
    pool.run(destroy(&["tank@one", "tank/a@one"])).unwrap();
    pool.judge();
}

#[test]
fn a_refreservation_is_set_aside_anew() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(set("tank/a", "refreservation", "4M")).unwrap();
    pool.write("tank/a", 0, 3 * MIB);
    pool.sync();
    pool.judge();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.judge();
    assert_eq!(
        pool.directory("tank/a").used_by.ref_reservation.get(),
        4 * MIB
    );
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.judge();
    // What is left of the pool does not suffice for another.
    let used = pool.directory("tank").used.get();
    pool.namespace.set_adjusted_bytes(used + MIB);
    let refused = several(pool.run(snapshot(&["tank/a@two"])));
    assert!(matches!(refused[..], [(_, TaskRefusal::NoSpace { .. })]));
    pool.namespace.set_adjusted_bytes(support::POOL_BYTES);
    pool.run(destroy(&["tank/a@one"])).unwrap();
    pool.judge();
    let directory = pool.directory("tank/a");
    let unique = pool.dataset("tank/a").unique.get();
    assert_eq!(
        directory.used_by.ref_reservation.get(),
        (4 * MIB).saturating_sub(unique)
    );
}

#[test]
fn snapshots_are_counted_where_a_limit_was_set() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    pool.run(snapshot(&["tank/a/b@before"])).unwrap();
    pool.run(set("tank/a", "snapshot_limit", "10")).unwrap();
    let count = |pool: &Pool| {
        let view = pool.namespace.view(&pool.operation);
        view.directory("tank/a")
            .unwrap()
            .extension(SNAPSHOT_COUNT)
            .unwrap()
    };
    assert_eq!(count(&pool), Some(1));
    pool.run(snapshot(&["tank/a@x", "tank/a/b@x"])).unwrap();
    assert_eq!(count(&pool), Some(3));
    pool.run(destroy(&["tank/a/b@before", "tank/a@x"])).unwrap();
    assert_eq!(count(&pool), Some(1));
    pool.judge();
}

#[test]
fn a_snapshot_uses_the_features_of_its_head() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(set("tank/a", "compression", "zstd")).unwrap();
    assert_eq!(pool.features.count(Feature::ZstdCompress), 1);
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    assert_eq!(pool.features.count(Feature::ZstdCompress), 2);
    pool.run(destroy(&["tank/a@one"])).unwrap();
    assert_eq!(pool.features.count(Feature::ZstdCompress), 1);
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Writes, takes and destroys snapshots at random; each block is looked at after each step.
fn wander(seed: u64, without: &[Feature]) {
    let mut pool = Pool::without(without);
    create(&mut pool, &["tank/a", "tank/b"]);
    pool.run(set("tank/b", "refreservation", "3M")).unwrap();
    let mut dice = Dice(seed | 1);
    let mut snapshots: Vec<String> = Vec::new();
    for step in 0..60 {
        let name = ["tank/a", "tank/b"][usize::try_from(dice.below(2)).unwrap()];
        match dice.below(10) {
            0..=4 => {
                let blocks = 1 + dice.below(6);
                pool.write(name, dice.below(20) * BLOCK, blocks * BLOCK);
                pool.sync();
            }
            5..=7 => {
                let taken = format!("{name}@{step}");
                pool.run(snapshot(&[&taken])).unwrap();
                snapshots.push(taken);
            }
            8 if !snapshots.is_empty() => {
                let gone = snapshots.swap_remove(
                    usize::try_from(dice.below(snapshots.len().try_into().unwrap())).unwrap(),
                );
                pool.run(destroy(&[&gone])).unwrap();
            }
            _ => {
                pool.free_in_background(20);
            }
        }
        pool.judge();
    }
    let left: Vec<&str> = snapshots.iter().map(String::as_str).collect();
    if !left.is_empty() {
        pool.run(destroy(&left)).unwrap();
    }
    while pool.free_in_background(1000).more {}
    pool.judge();
    for name in ["tank/a", "tank/b"] {
        assert_eq!(pool.directory(name).used_by.snapshots.get(), 0);
    }
}

#[test]
fn every_block_is_somebodys_whatever_comes_and_goes() {
    for seed in 1..=12 {
        wander(seed * 0x9e37_79b9, &[]);
    }
}

#[test]
fn deadlists_need_no_shared_empty_list() {
    wander(77, &[Feature::EmptyBpobj]);
}
