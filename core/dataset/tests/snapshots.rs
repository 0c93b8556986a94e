//! What becomes of blocks when snapshots come and go: every block of every dataset is looked at
//! after each change.

mod support;

use std::sync::Arc;
use support::snapshots::{
    MIB, clone, create, destroy, names, set, settings, several, snapshot, there_is,
};
use support::tasks::{begin_receive, finish_receive};
use support::{Filler, Pool};
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::bookmark::{DestroyBookmarks, MakeBookmarks};
use tarn_dataset::ops::create::{CreateFilesystem, NameRules};
use tarn_dataset::ops::destroy::Destroy;
use tarn_dataset::ops::destroy_snapshot::DestroySnapshots;
use tarn_dataset::ops::hold::{HoldSnapshots, ReleaseHolds};
use tarn_dataset::ops::promote::Promote;
use tarn_dataset::ops::receive::{AbandonReceive, FinishReceive, Receiver};
use tarn_dataset::ops::rename::Rename;
use tarn_dataset::ops::rename_snapshot::RenameSnapshots;
use tarn_dataset::ops::rollback::Rollback;
use tarn_dataset::ops::snapshot::TakeSnapshots;
use tarn_dataset::ops::temporary_snapshot::{ReleaseTemporaryHolds, TakeTemporarySnapshot};
use tarn_dataset::properties::value::Kinds;
use tarn_dataset::task::{SyncTask, TaskRefusal};
use tarn_object::TxEstimate;
use tarn_ondisk::dataset_dir::{DatasetDirectory, SNAPSHOT_COUNT};
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::features::Feature;

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
    let refused = pool.run(snapshot(&["tank/a@x", "tank/a@y"]));
    assert!(matches!(refused, Err(TaskRefusal::SameHead)));
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

/// `tank/a` with two snapshots, and room made for an increment from the first.
fn being_received() -> (Pool, Receiver, FinishReceive) {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 4 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@two"])).unwrap();
    let one = DatasetName::parse("tank/a@one").unwrap();
    let view = pool.namespace.view(&pool.operation);
    let guid = view.dataset(&one).unwrap().stored().unwrap().guid.get();
    let begun = pool.run(begin_receive("tank/a", guid)).unwrap();
    let finish = finish_receive("tank/a", begun.receiver);
    (pool, begun.receiver, finish)
}

#[test]
fn an_increment_does_not_go_into_what_its_base_was_taken_from_meanwhile() {
    for origin in ["tank/a@one", "tank/a@two"] {
        let (mut pool, receiver, finish) = being_received();
        pool.run(clone(origin, "tank/c")).unwrap();
        let promote = Promote {
            name: "tank/c".to_string(),
        };
        pool.run(promote).unwrap();
        let refused = pool.run(finish);
        assert!(matches!(refused, Err(TaskRefusal::NoBase)), "{refused:?}");
        let head = receiver.head;
        pool.run(AbandonReceive { head }).unwrap();
        while pool.free_in_background(1000).more {}
        pool.judge();
    }
}

#[test]
fn a_base_that_is_marked_meanwhile_goes_when_the_increment_is_there() {
    let (mut pool, _, finish) = being_received();
    let task = DestroySnapshots {
        names: names(&["tank/a@one"]),
        defer: true,
    };
    pool.run(task).unwrap();
    assert!(there_is(&pool, "tank/a@one"), "it is cloned");
    pool.run(finish).unwrap();
    assert!(!there_is(&pool, "tank/a@one"));
    assert!(there_is(&pool, "tank/a@three"));
    while pool.free_in_background(1000).more {}
    pool.judge();
}

#[test]
fn what_is_half_received_is_left_alone() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/x"]);
    let begun = pool.run(begin_receive("tank/new", 0)).unwrap();
    let below = CreateFilesystem {
        name: "tank/new/kid".to_string(),
        settings: Vec::new(),
        rules: NameRules::default(),
        user: 0,
        group: 0,
        fill: Arc::new(Filler),
    };
    let refused = pool.run(below);
    assert!(
        matches!(refused, Err(TaskRefusal::Busy { .. })),
        "{refused:?}"
    );
    let moved = Rename {
        from: "tank/x".to_string(),
        to: "tank/new/x".to_string(),
    };
    let refused = pool.run(moved);
    assert!(
        matches!(refused, Err(TaskRefusal::Busy { .. })),
        "{refused:?}"
    );
    let refused = pool.run(begin_receive("tank/new", 0));
    assert!(
        matches!(refused, Err(TaskRefusal::Busy { .. })),
        "{refused:?}"
    );
    let head = begun.receiver.head;
    pool.run(AbandonReceive { head }).unwrap();
    while pool.free_in_background(1000).more {}
    pool.judge();
}

#[test]
fn a_clone_begins_as_its_origin_and_goes_its_own_way() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(set("tank/a", "compression", "zstd")).unwrap();
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.take_events();
    let mut task = clone("tank/a@one", "tank/c");
    task.settings = settings(Kinds::FILESYSTEM, &[("quota", "8M")]);
    pool.run(task).unwrap();
    let event = &pool.take_events()[0];
    assert_eq!(event.0, "clone");
    assert!(event.1.starts_with("origin=tank/a@one ("), "{}", event.1);
    pool.judge();
    assert_eq!(pool.directory("tank/c").quota.get(), 8 * MIB);
    assert_eq!(pool.features.count(Feature::ZstdCompress), 3);
    assert!(pool.dataset("tank/c").referenced.get() >= 2 * MIB);
    assert!(pool.directory("tank/c").used.get() < 100_000);
    pool.write("tank/c", 0, MIB);
    pool.write("tank/a", MIB, MIB);
    pool.sync();
    pool.judge();
    let refused = several(pool.run(destroy(&["tank/a@one"])));
    assert!(matches!(refused[..], [(_, TaskRefusal::Cloned)]));
    // Marked, it goes with its clone.
    let task = DestroySnapshots {
        names: names(&["tank/a@one"]),
        defer: true,
    };
    pool.run(task).unwrap();
    assert!(there_is(&pool, "tank/a@one"));
    pool.run(Destroy {
        name: "tank/c".to_string(),
    })
    .unwrap();
    assert!(!there_is(&pool, "tank/a@one"));
    while pool.free_in_background(1000).more {}
    pool.judge();
}

#[test]
fn what_cannot_be_cloned_is_refused() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    let mut refused = |origin, name| pool.run(clone(origin, name)).unwrap_err();
    assert!(matches!(
        refused("tank/a", "tank/c"),
        TaskRefusal::BadValue { .. }
    ));
    assert!(matches!(
        refused("tank/a@no", "tank/c"),
        TaskRefusal::NotFound { .. }
    ));
    assert!(matches!(
        refused("tank/a@one", "tank/a"),
        TaskRefusal::Exists { .. }
    ));
    assert!(matches!(
        refused("tank/a@one", "tank/x/y"),
        TaskRefusal::NoParent { .. }
    ));
    let mut checked = None;
    pool.sync_with(|context| {
        snapshot(&["tank/a@two"]).apply(context).unwrap();
        let task = clone("tank/a@two", "tank/c");
        checked = Some(task.check(context.view(), context.features));
    });
    assert!(matches!(checked, Some(Err(TaskRefusal::NotInThisGroup))));
}

#[test]
fn a_head_goes_back_to_its_newest_snapshot_only() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    let before = pool.dataset("tank/a");
    pool.write("tank/a", MIB, 3 * MIB);
    pool.sync();
    let to = |name: &str| Rollback {
        snapshot: name.to_string(),
        newer: Vec::new(),
    };
    pool.run(to("tank/a@one")).unwrap();
    pool.judge();
    let after = pool.dataset("tank/a");
    assert_eq!(after.root, before.root);
    assert_eq!(after.referenced, before.referenced);
    // It can be written again, and is what it was.
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.judge();
    pool.run(snapshot(&["tank/a@two"])).unwrap();
    let refused = pool.run(to("tank/a@one")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "there is a snapshot or bookmark more recent than 'tank/a@one'"
    );
    assert!(matches!(
        pool.run(to("tank/a")),
        Err(TaskRefusal::BadValue { .. })
    ));
    assert!(matches!(
        pool.run(to("tank/a@no")),
        Err(TaskRefusal::NotFound { .. })
    ));
}

#[test]
fn going_back_needs_room_for_what_is_reserved_and_referenced() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 4 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    let file = pool.head_set("tank/a");
    let tx = pool
        .env
        .txgs
        .assign(&TxEstimate::freeing(4 * MIB), &pool.operation)
        .unwrap();
    let object = file.object(support::FILE, &pool.operation).unwrap();
    object
        .free_range(&tx, 0, tarn_object::TO_END, &pool.operation)
        .unwrap();
    drop(tx);
    pool.sync();
    pool.run(set("tank/a", "refquota", "2M")).unwrap();
    let to = Rollback {
        snapshot: "tank/a@one".to_string(),
        newer: Vec::new(),
    };
    assert!(matches!(
        pool.run(to.clone()),
        Err(TaskRefusal::NoSpace { .. })
    ));
    pool.run(set("tank/a", "refquota", "none")).unwrap();
    pool.run(to).unwrap();
    pool.judge();
}

#[test]
fn a_hold_keeps_a_snapshot() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b"]);
    pool.run(snapshot(&["tank/a@one", "tank/b@one"])).unwrap();
    pool.take_events();
    let hold = |list: &[&str], tag: &str| HoldSnapshots {
        names: names(list),
        tag: tag.to_string(),
    };
    let release = |list: &[&str], tag: &str| ReleaseHolds {
        names: names(list),
        tag: tag.to_string(),
    };
    pool.run(hold(&["tank/a@one"], "x")).unwrap();
    assert_eq!(
        pool.take_events(),
        [("hold", "tag=x temp=0 refs=1".to_string())]
    );
    let refused = several(pool.run(hold(&["tank/a@one", "tank/b@one"], "x")));
    assert!(matches!(refused[..], [(_, TaskRefusal::TagExists)]));
    let refused = several(pool.run(hold(&["tank/a@one"], &"x".repeat(256))));
    assert!(matches!(refused[..], [(_, TaskRefusal::TagTooLong)]));
    let refused = several(pool.run(destroy(&["tank/a@one", "tank/b@one"])));
    assert_eq!(refused[0].1.to_string(), "dataset is busy");
    assert!(there_is(&pool, "tank/b@one"));
    let refused = pool.run(release(&["tank/b@one"], "x"));
    assert!(matches!(refused, Err(TaskRefusal::NoSuchTag)));
    // Marked, it goes with its hold.
    let task = DestroySnapshots {
        names: names(&["tank/a@one"]),
        defer: true,
    };
    pool.run(task).unwrap();
    assert!(there_is(&pool, "tank/a@one"));
    pool.run(release(&["tank/a@one", "tank/b@one"], "x"))
        .unwrap();
    assert!(!there_is(&pool, "tank/a@one"));
    pool.judge();
}

/// It goes with its hold; or, if the hold is not released, with the next import.
#[test]
fn a_temporary_snapshot_leaves_nothing_behind() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, MIB);
    let take = |name: &str| TakeTemporarySnapshot {
        name: name.to_string(),
        tag: "%looking".to_string(),
    };
    pool.run(take("tank/a@one")).unwrap();
    pool.take_events();
    assert!(there_is(&pool, "tank/a@one"));
    assert!(pool.run(take("tank/a@one")).is_err());
    pool.write("tank/a", 0, MIB);
    pool.run(ReleaseHolds {
        names: names(&["tank/a@one"]),
        tag: "%looking".to_string(),
    })
    .unwrap();
    let told: Vec<&str> = pool
        .take_events()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(told, ["release", "destroy"]);
    assert!(!there_is(&pool, "tank/a@one"));
    pool.judge();
    pool.run(take("tank/a@two")).unwrap();
    pool.run(take("tank/a@three")).unwrap();
    let told: Vec<&str> = pool
        .take_events()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let each = ["snapshot", "hold", "defer_destroy"];
    assert_eq!(told, [each, each].concat());
    // A hold that was released by other means does not matter.
    pool.run(ReleaseHolds {
        names: names(&["tank/a@two"]),
        tag: "%looking".to_string(),
    })
    .unwrap();
    pool.run(ReleaseTemporaryHolds).unwrap();
    assert!(!there_is(&pool, "tank/a@three"));
    pool.judge();
    pool.run(ReleaseTemporaryHolds).unwrap();
}

#[test]
fn snapshots_of_a_tree_are_renamed_together() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/a/b"]);
    pool.run(snapshot(&["tank/a@x", "tank/a/b@x"])).unwrap();
    let rename = |to: &str, recursive| RenameSnapshots {
        head: "tank/a".to_string(),
        from: "x".to_string(),
        to: to.to_string(),
        recursive,
    };
    pool.run(rename("y", true)).unwrap();
    assert!(there_is(&pool, "tank/a/b@y") && !there_is(&pool, "tank/a@x"));
    pool.run(snapshot(&["tank/a@x", "tank/a/b@x"])).unwrap();
    let refused = several(pool.run(rename("y", true)));
    assert!(matches!(refused[..], [(_, TaskRefusal::Exists { .. })]));
    pool.run(rename("z", false)).unwrap();
    assert!(there_is(&pool, "tank/a@z") && there_is(&pool, "tank/a/b@x"));
    assert!(matches!(
        pool.run(rename("q", false)),
        Err(TaskRefusal::NotFound { .. })
    ));
    pool.judge();
}

#[test]
fn a_promoted_clone_and_its_parent_change_places() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 2 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@two"])).unwrap();
    pool.run(clone("tank/a@one", "tank/c")).unwrap();
    pool.write("tank/c", MIB, MIB);
    pool.sync();
    let promote = |name: &str| Promote {
        name: name.to_string(),
    };
    pool.take_events();
    pool.run(promote("tank/c")).unwrap();
    assert_eq!(pool.take_events(), [("promote", " ".to_string())]);
    pool.judge();
    assert!(there_is(&pool, "tank/c@one") && !there_is(&pool, "tank/a@one"));
    assert!(there_is(&pool, "tank/a@two"));
    assert!(matches!(
        pool.run(promote("tank/c")),
        Err(TaskRefusal::BadValue { .. })
    ));
    // And back.
    pool.run(promote("tank/a")).unwrap();
    pool.judge();
    assert!(there_is(&pool, "tank/a@one") && there_is(&pool, "tank/a@two"));
    pool.run(snapshot(&["tank/c@one"])).unwrap();
    assert_eq!(
        pool.run(promote("tank/c")).unwrap_err().to_string(),
        "conflicting snapshot 'one' from parent 'tank/a@one'"
    );
    pool.run(set("tank/c", "quota", "2M")).unwrap();
    pool.run(destroy(&["tank/c@one"])).unwrap();
    assert!(matches!(
        pool.run(promote("tank/c")),
        Err(TaskRefusal::NoSpace { .. })
    ));
}

/// The origin of a clone is on the disk, and may be damaged.
#[test]
fn promoting_a_clone_of_an_impossible_origin_is_an_error() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.sync();
    pool.run(clone("tank/a@one", "tank/c")).unwrap();
    let (parent, origin) = (pool.dataset("tank/a"), pool.dataset("tank/c"));
    pool.sync_with(|context| {
        // The file system of the snapshot has the same origin as its clone.
        let directory = context.mos().object(parent.directory, context.operation);
        let (directory, order) = (directory.unwrap(), ByteOrder::Little);
        let mut stored = DatasetDirectory::from_short_bytes(&directory.bonus(), order).unwrap();
        stored.origin = origin.previous_snapshot;
        directory.set_bonus(context.tx, &stored.to_bytes()).unwrap();
    });
    let promotion = Promote {
        name: "tank/c".to_string(),
    };
    let refused = pool.run(promotion);
    assert!(
        matches!(
            refused,
            Err(TaskRefusal::Dataset(DatasetError::Inconsistent { .. }))
        ),
        "{refused:?}"
    );
}

#[test]
fn bookmarks_are_made_of_the_past_of_their_dataset() {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a", "tank/b"]);
    pool.run(snapshot(&["tank/a@one", "tank/b@one"])).unwrap();
    let bookmark = |name: &str, origin: &str| MakeBookmarks {
        bookmarks: vec![(name.to_string(), origin.to_string())],
    };
    pool.take_events();
    pool.run(bookmark("tank/a#one", "tank/a@one")).unwrap();
    let (event, text) = pool.take_events().remove(0);
    assert_eq!(event, "bookmark");
    assert!(text.starts_with("name=one creation_txg="), "{text}");
    assert!(text.ends_with(" redact_obj=0"), "{text}");
    assert_eq!(pool.features.count(Feature::BookmarkWritten), 1);
    // Of a bookmark; the snapshot may be gone.
    pool.run(destroy(&["tank/a@one"])).unwrap();
    pool.run(bookmark("tank/a#two", "tank/a#one")).unwrap();
    let refused = several(pool.run(bookmark("tank/a#two", "tank/a#one")));
    assert!(matches!(refused[..], [(_, TaskRefusal::Exists { .. })]));
    let refused = several(pool.run(bookmark("tank/a#x", "tank/b@one")));
    assert!(matches!(refused[..], [(_, TaskRefusal::NotAnAncestor)]));
    let refused = several(pool.run(bookmark("tank/a#x", "tank/a@no")));
    assert!(matches!(refused[..], [(_, TaskRefusal::NotFound { .. })]));
    let gone = DestroyBookmarks {
        names: names(&["tank/a#one", "tank/a#two", "tank/a#no"]),
    };
    pool.run(gone).unwrap();
    assert_eq!(pool.features.count(Feature::BookmarkWritten), 0);
    pool.judge();
}
