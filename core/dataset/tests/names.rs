//! Names of snapshots and bookmarks that differ in case only: two names for most datasets, one for
//! those that do not tell cases apart. They are in ZAPs that hash both alike.

mod support;

use support::Pool;
use support::tasks::{
    begin_receive, bookmark, clone, create, create_with_case, destroy_bookmark, destroy_snapshots,
    finish_receive, promote, refusal, rename_snapshot, snapshot, there_is, with_dataset,
};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::ops::snapshot_of_head::{ChangeSnapshot, SnapshotChange};
use tarn_dataset::task::TaskRefusal;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::ObjectId;

const MIB: u64 = 1 << 20;

/// The stored numbers of `casesensitivity`.
const INSENSITIVE: u64 = 1;
const MIXED: u64 = 2;

fn id(pool: &Pool, name: &str) -> ObjectId {
    with_dataset(pool, name, |dataset| dataset.id())
}

/// Short names of snapshots, and what they lead to.
fn snapshots(pool: &Pool, head: &str) -> Vec<(String, ObjectId)> {
    with_dataset(pool, head, |head| {
        let all = head.snapshots().unwrap().into_iter();
        let named = |one: Dataset<'_>| (one.snapshot_name().unwrap().to_string(), one.id());
        all.map(named).collect()
    })
}

fn bookmarks(pool: &Pool, head: &str) -> Vec<String> {
    with_dataset(pool, head, |head| {
        let all = head.bookmarks().unwrap().into_iter();
        all.map(|one| one.name).collect()
    })
}

/// A file system with something in it.
fn filled(pool: &mut Pool, name: &str) {
    pool.run(create(name)).unwrap();
    pool.write(name, 0, MIB);
    pool.sync();
}

#[test]
fn snapshots_of_names_that_differ_in_case_are_two() {
    let mut pool = Pool::new();
    filled(&mut pool, "tank/a");
    pool.run(snapshot("tank/a@x")).unwrap();
    let small = id(&pool, "tank/a@x");
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.run(snapshot("tank/a@X")).unwrap();
    let large = id(&pool, "tank/a@X");
    assert_eq!(
        snapshots(&pool, "tank/a"),
        [("x".to_string(), small), ("X".to_string(), large)]
    );
    assert_eq!(id(&pool, "tank/a@x"), small);
    pool.judge();
    pool.run(destroy_snapshots(&["tank/a@x"])).unwrap();
    assert!(!there_is(&pool, "tank/a@x"));
    assert_eq!(id(&pool, "tank/a@X"), large);
    pool.judge();
    // By the head's number, as mkdir(2) in `.zfs/snapshot` takes snapshots.
    let change = SnapshotChange::Take("x".to_string());
    let head = id(&pool, "tank/a");
    pool.run(ChangeSnapshot { head, change }).unwrap();
    assert_ne!(id(&pool, "tank/a@x"), large);
    pool.run(destroy_snapshots(&["tank/a@x", "tank/a@X"]))
        .unwrap();
    assert_eq!(snapshots(&pool, "tank/a"), []);
    pool.judge();
}

#[test]
fn a_snapshot_gets_a_name_that_differs_from_another_in_case() {
    let mut pool = Pool::new();
    filled(&mut pool, "tank/a");
    for name in ["tank/a@x", "tank/a@y"] {
        pool.run(snapshot(name)).unwrap();
    }
    let (x, y) = (id(&pool, "tank/a@x"), id(&pool, "tank/a@y"));
    pool.run(rename_snapshot("tank/a", "y", "X")).unwrap();
    assert_eq!(
        snapshots(&pool, "tank/a"),
        [("x".to_string(), x), ("X".to_string(), y)]
    );
    // To the same in another case, where that is free.
    pool.run(rename_snapshot("tank/a", "x", "q")).unwrap();
    pool.run(rename_snapshot("tank/a", "X", "x")).unwrap();
    assert_eq!(
        snapshots(&pool, "tank/a"),
        [("q".to_string(), x), ("x".to_string(), y)]
    );
    pool.judge();
}

#[test]
fn a_promotion_keeps_names_apart_that_differ_in_case() {
    let mut pool = Pool::new();
    filled(&mut pool, "tank/a");
    pool.run(snapshot("tank/a@X")).unwrap();
    pool.run(bookmark("tank/a#M", "tank/a@X")).unwrap();
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.run(snapshot("tank/a@origin")).unwrap();
    pool.run(clone("tank/a@origin", "tank/c")).unwrap();
    pool.write("tank/c", MIB, MIB);
    pool.sync();
    pool.run(snapshot("tank/c@x")).unwrap();
    pool.run(bookmark("tank/c#m", "tank/c@x")).unwrap();
    let ids = ["tank/a@X", "tank/a@origin", "tank/c@x"].map(|name| id(&pool, name));
    pool.run(promote("tank/c")).unwrap();
    let found = ["tank/c@X", "tank/c@origin", "tank/c@x"].map(|name| id(&pool, name));
    assert_eq!(found, ids);
    assert_eq!(bookmarks(&pool, "tank/c"), ["M", "m"]);
    assert_eq!(pool.features.count(Feature::BookmarkWritten), 2);
    pool.judge();
}

#[test]
fn bookmarks_of_names_that_differ_in_case_are_two_and_counted_as_two() {
    let mut pool = Pool::new();
    filled(&mut pool, "tank/a");
    pool.run(snapshot("tank/a@x")).unwrap();
    pool.run(bookmark("tank/a#m", "tank/a@x")).unwrap();
    pool.run(bookmark("tank/a#M", "tank/a@x")).unwrap();
    assert_eq!(bookmarks(&pool, "tank/a"), ["M", "m"]);
    assert_eq!(pool.features.count(Feature::BookmarkWritten), 2);
    pool.run(destroy_bookmark("tank/a#m")).unwrap();
    assert_eq!(bookmarks(&pool, "tank/a"), ["M"]);
    assert_eq!(pool.features.count(Feature::BookmarkWritten), 1);
    pool.run(destroy_bookmark("tank/a#M")).unwrap();
    assert_eq!(pool.features.count(Feature::BookmarkWritten), 0);
    pool.judge();
}

#[test]
fn a_received_snapshot_gets_its_name_beside_one_that_differs_in_case() {
    let mut pool = Pool::new();
    filled(&mut pool, "tank/a");
    for name in ["tank/a@one", "tank/a@THREE"] {
        pool.run(snapshot(name)).unwrap();
    }
    let there = id(&pool, "tank/a@THREE");
    let guid = with_dataset(&pool, "tank/a@THREE", |base| base.stored().unwrap().guid);
    let begun = pool.run(begin_receive("tank/a", guid.get())).unwrap();
    pool.run(finish_receive("tank/a", begun.receiver)).unwrap();
    assert_eq!(id(&pool, "tank/a@THREE"), there);
    assert_ne!(id(&pool, "tank/a@three"), there);
    while pool.free_in_background(1000).more {}
    pool.judge();
}

/// Those of a file system that does not tell cases apart do not either: OpenZFS refuses the second.
#[test]
fn where_case_does_not_matter_it_does_not_for_snapshots_and_bookmarks() {
    let mut pool = Pool::new();
    pool.run(create_with_case("tank/a", INSENSITIVE)).unwrap();
    pool.run(snapshot("tank/a@x")).unwrap();
    pool.run(bookmark("tank/a#m", "tank/a@x")).unwrap();
    let exists =
        |refusal: TaskRefusal| assert!(matches!(refusal, TaskRefusal::Exists { .. }), "{refusal}");
    exists(refusal(pool.run(snapshot("tank/a@X"))));
    exists(refusal(pool.run(bookmark("tank/a#M", "tank/a@X"))));
    pool.run(snapshot("tank/a@y")).unwrap();
    exists(refusal(pool.run(rename_snapshot("tank/a", "y", "X"))));
    exists(refusal(pool.run(rename_snapshot("tank/a", "x", "X"))));
    let first = pool.run(begin_receive("tank/a", 0)).unwrap();
    let mut finish = finish_receive("tank/a", first.receiver);
    finish.snapshot = "Y".to_string();
    exists(refusal(pool.run(finish)));
    // Found in any case, and gone under the name it has.
    pool.run(clone("tank/a@X", "tank/c")).unwrap();
    pool.run(snapshot("tank/c@X")).unwrap();
    pool.run(bookmark("tank/c#M", "tank/c@x")).unwrap();
    let conflict = refusal(pool.run(promote("tank/c")));
    assert!(
        matches!(conflict, TaskRefusal::Conflict { .. }),
        "{conflict}"
    );
    pool.run(destroy_bookmark("tank/a#M")).unwrap();
    assert_eq!(bookmarks(&pool, "tank/a"), Vec::<String>::new());
    assert_eq!(pool.features.count(Feature::BookmarkWritten), 1);
    pool.run(destroy_snapshots(&["tank/a@Y"])).unwrap();
    assert_eq!(snapshots(&pool, "tank/a").len(), 1);
}

/// A mixed file system tells cases apart for us.
#[test]
fn snapshots_of_a_mixed_file_system_are_told_apart() {
    let mut pool = Pool::new();
    pool.run(create_with_case("tank/a", MIXED)).unwrap();
    for name in ["tank/a@x", "tank/a@X"] {
        pool.run(snapshot(name)).unwrap();
    }
    assert_eq!(snapshots(&pool, "tank/a").len(), 2);
    assert!(!there_is(&pool, "tank/a@y"));
}
