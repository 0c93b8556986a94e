//! Snapshots through the administration: taken, entered, rolled back to, cloned, held, destroyed.

mod support;

use std::sync::Arc;
use support::{Bench, call, owned};
use tarn_administration::administration::Administration;
use tarn_administration::messages::dataset::{
    DatasetKind, Describe, Destroy, Destroyed, Hold, ListHolds, MakeBookmark, MakeClone, Promote,
    Rename, Rollback, Snapshot,
};
use tarn_administration::messages::{Refusal, RefusalKind, pool};
use tarn_engine::files::{Credentials, FileSystem, Operation};

const MIB: usize = 1 << 20;

fn snapshot(bench: &Bench, names: &[&str], recursive: bool) -> Result<(), Refusal> {
    let request = Snapshot {
        names: names.iter().map(|name| (*name).to_string()).collect(),
        recursive,
        properties: owned(&[("com.example:by", "hand")]),
    };
    let done = bench
        .administrator
        .dataset_snapshot(&call("zfs snapshot"), request);
    done.map(|_| ())
}

fn destroy(bench: &Bench, name: &str, options: &str) -> Result<Destroyed, Refusal> {
    let request = Destroy {
        name: name.to_string(),
        recursive: options.contains(['r', 'R']),
        dependents: options.contains('R'),
        defer: options.contains('d'),
        dry_run: options.contains('n'),
        ..Destroy::default()
    };
    bench
        .administrator
        .dataset_destroy(&call("zfs destroy"), request)
}

fn roll_back(bench: &Bench, name: &str, options: &str) -> Result<(), Refusal> {
    let request = Rollback {
        name: name.to_string(),
        newer: options.contains(['r', 'R']),
        clones: options.contains('R'),
        force: false,
    };
    let done = bench
        .administrator
        .dataset_rollback(&call("zfs rollback"), request);
    done.map(|_| ())
}

fn snapshots(bench: &Bench) -> Vec<String> {
    let describe = Describe {
        kinds: vec![DatasetKind::Snapshot],
        properties: vec!["name".to_string()],
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(&call(""), describe)
        .unwrap();
    described.datasets.into_iter().map(|one| one.name).collect()
}

/// A file system by the path of its mount.
fn files(bench: &Bench, path: &str) -> Arc<FileSystem> {
    bench.tree(path).files().clone()
}

fn has_file(files: &FileSystem, name: &str) -> bool {
    let (root, operation) = (Credentials::root(), Operation::unmeasured());
    files
        .lookup(&root, files.root(), name.as_bytes(), &operation)
        .is_ok()
}

/// File systems mounted below another prevent its unmounting; they are unmounted and mounted again.
#[test]
fn a_file_system_is_rolled_back_though_others_are_mounted_on_it() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.create("tank/a/kid", &[]).unwrap();
    bench.create("tank/a/kid/of", &[]).unwrap();
    bench
        .create("tank/other", &[("mountpoint", "/tank/a/elsewhere")])
        .unwrap();
    snapshot(&bench, &["tank/a@one"], false).unwrap();
    bench.write("/tank/a", "later", 100).unwrap();
    let before = bench.mounts();
    roll_back(&bench, "tank/a@one", "").unwrap();
    assert_eq!(bench.mounts(), before);
    assert_eq!(before.len(), 5);
}

#[test]
fn snapshots_of_a_tree_are_taken_together_and_entered_at_once() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.create("tank/a/b", &[]).unwrap();
    bench.write("/tank/a", "old", MIB).unwrap();
    snapshot(&bench, &["tank/a@one"], true).unwrap();
    bench.write("/tank/a", "new", MIB).unwrap();
    assert_eq!(snapshots(&bench), ["tank/a@one", "tank/a/b@one"]);
    assert_eq!(bench.text("tank/a@one", "com.example:by"), "hand");
    let entered = bench
        .tree("/tank/a")
        .snapshot(b"one", &Operation::unmeasured())
        .unwrap();
    assert!(has_file(entered.files(), "old") && !has_file(entered.files(), "new"));
    assert!(has_file(&files(&bench, "/tank/a"), "new"));
}

#[test]
fn history_has_what_openzfs_is_called_with() {
    let bench = Bench::new();
    bench.create("tank/a", &[("atime", "off")]).unwrap();
    bench.create("tank/a/b", &[]).unwrap();
    snapshot(&bench, &["tank/a@one"], true).unwrap();
    destroy(&bench, "tank/a@one", "r").unwrap();
    // A parent that is created for another has no record of its own.
    bench
        .administrator
        .dataset_snapshot(
            &call(""),
            Snapshot {
                names: vec!["tank/a@two".to_string()],
                ..Snapshot::default()
            },
        )
        .unwrap();
    let request = pool::History {
        name: "tank".to_string(),
    };
    let history = bench
        .administrator
        .pool_history(&call(""), request)
        .unwrap();
    let calls = history.records.iter().filter_map(|record| {
        let input = record.input.clone().unwrap_or_default();
        record.elapsed_ns?;
        Some((record.ioctl.clone()?, input))
    });
    let calls: Vec<(String, String)> = calls.collect();
    let expected = [
        (
            "create",
            "        type: 2\n        props:\n            atime: 0\n",
        ),
        ("create", "        type: 2\n        props:\n"),
        (
            "snapshot",
            "        snaps:\n            tank/a@one\n            tank/a/b@one\n        props:\n            com.example:by: 'hand'\n",
        ),
        (
            "destroy_snaps",
            "        snaps:\n            tank/a@one\n            tank/a/b@one\n",
        ),
    ];
    let expected = expected.map(|(name, input)| (name.to_string(), input.to_string()));
    assert_eq!(calls, expected);
}

#[test]
fn refusals_to_snapshot_have_the_words_of_openzfs() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    snapshot(&bench, &["tank/a@one"], false).unwrap();
    let refused = |names: &[&str], recursive| {
        let refused = snapshot(&bench, names, recursive);
        refused.unwrap_err().to_string()
    };
    assert_eq!(
        refused(&["tank/a@one"], false),
        "cannot create snapshot 'tank/a@one': dataset already exists"
    );
    assert_eq!(
        refused(&["tank@one"], true),
        "cannot create snapshot 'tank/a@one': dataset already exists\nno snapshots were created"
    );
    assert_eq!(
        refused(&["tank/a@x", "tank/a@y"], false),
        "cannot create snapshots : multiple snapshots of same fs not allowed\nno snapshots were created"
    );
    assert_eq!(
        refused(&["tank/no@x"], false),
        "cannot open 'tank/no': dataset does not exist"
    );
    assert_eq!(
        refused(&["tank/a@x%"], false),
        "cannot create snapshot 'tank/a@x%': invalid character '%' in name"
    );
    assert_eq!(snapshots(&bench), ["tank/a@one"]);
}

#[test]
fn ranges_of_snapshots_go_together() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    for name in ["p", "q", "r", "s", "t"] {
        bench.write("/tank/a", name, MIB).unwrap();
        snapshot(&bench, &[&format!("tank/a@{name}")], false).unwrap();
    }
    let told = destroy(&bench, "tank/a@q%s,t", "n").unwrap();
    assert_eq!(told.names, ["tank/a@q", "tank/a@r", "tank/a@s", "tank/a@t"]);
    assert_eq!(snapshots(&bench).len(), 5);
    destroy(&bench, "tank/a@q%s,t", "").unwrap();
    assert_eq!(snapshots(&bench), ["tank/a@p"]);
    let refused = destroy(&bench, "tank/a@x,y%z", "").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "could not find any snapshots to destroy; check snapshot names."
    );
}

#[test]
fn a_snapshot_in_use_stays_and_a_destroyed_one_cannot_be_entered() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "file", MIB).unwrap();
    snapshot(&bench, &["tank/a@one"], false).unwrap();
    let (root, operation) = (Credentials::root(), Operation::unmeasured());
    let tree = bench.tree("/tank/a");
    let entered = tree.snapshot(b"one", &operation).unwrap();
    let entered = entered.files();
    let file = entered
        .lookup(&root, entered.root(), b"file", &operation)
        .unwrap();
    entered.opened(file.id, &operation).unwrap();
    let refused = destroy(&bench, "tank/a@one", "").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot destroy snapshot tank/a@one: dataset is busy"
    );
    assert!(!entered.is_ending());
    entered.closed(file.id, &operation).unwrap();
    destroy(&bench, "tank/a@one", "").unwrap();
    assert!(entered.is_ending());
    assert!(tree.snapshot(b"one", &operation).is_err());
}

#[test]
fn a_file_system_with_snapshots_is_destroyed_recursively() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    snapshot(&bench, &["tank/a@one"], false).unwrap();
    let refused = destroy(&bench, "tank/a", "").unwrap_err();
    assert_eq!(refused.reason, "filesystem has children");
    assert_eq!(refused.hints[1..], ["tank/a@one"]);
    let clone = MakeClone {
        origin: "tank/a@one".to_string(),
        name: "tank/c".to_string(),
        ..MakeClone::default()
    };
    bench
        .administrator
        .dataset_clone(&call("zfs clone"), clone)
        .unwrap();
    snapshot(&bench, &["tank/c@two"], false).unwrap();
    let refused = destroy(&bench, "tank/a", "r").unwrap_err();
    assert_eq!(refused.reason, "filesystem has dependent clones");
    let gone = destroy(&bench, "tank/a", "R").unwrap();
    assert_eq!(gone.names, ["tank/c@two", "tank/c", "tank/a@one", "tank/a"]);
    assert_eq!(bench.names(), ["tank"]);
}

/// A clone's parent descends from the clone, so there is no order of destruction.
#[test]
fn circular_dependents_are_not_destroyed() {
    let bench = Bench::new();
    let clone = |origin: &str, name: &str| {
        let request = MakeClone {
            origin: origin.to_string(),
            name: name.to_string(),
            ..MakeClone::default()
        };
        let made = bench
            .administrator
            .dataset_clone(&call("zfs clone"), request);
        made.unwrap();
    };
    bench.create("tank/y", &[]).unwrap();
    snapshot(&bench, &["tank/y@one"], false).unwrap();
    clone("tank/y@one", "tank/a");
    bench.create("tank/a/kid", &[]).unwrap();
    snapshot(&bench, &["tank/a/kid@one"], false).unwrap();
    clone("tank/a/kid@one", "tank/x");
    bench.rename("tank/y", "tank/x/y").unwrap();
    for name in ["tank/a", "tank/x"] {
        let refused = destroy(&bench, name, "R").unwrap_err();
        assert_eq!(refused.action, "cannot determine dependent datasets");
        assert_eq!(refused.reason, format!("recursive dependency at '{name}'"));
    }
    for (name, options, reason) in [
        ("tank/a", "", "filesystem has children"),
        ("tank/a", "r", "filesystem has dependent clones"),
        ("tank/x", "r", "filesystem has dependent clones"),
        ("tank/x/y@one", "", "snapshot has dependent clones"),
    ] {
        let refused = destroy(&bench, name, options).unwrap_err();
        assert_eq!(refused.reason, reason, "{name}");
    }
    let refused = destroy(&bench, "tank/x/y@one", "R").unwrap_err();
    assert_eq!(refused.action, "cannot determine dependent datasets");
    assert_eq!(bench.names().len(), 5);
}

#[test]
fn clones_are_mounted_and_keep_their_origin() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "file", MIB).unwrap();
    snapshot(&bench, &["tank/a@one"], false).unwrap();
    let clone = |origin: &str, name: &str, parents| MakeClone {
        origin: origin.to_string(),
        name: name.to_string(),
        parents,
        properties: owned(&[("compression", "off")]),
        ..MakeClone::default()
    };
    let make = |request| {
        bench
            .administrator
            .dataset_clone(&call("zfs clone"), request)
    };
    let made = make(clone("tank/a@one", "tank/x/c", true)).unwrap();
    assert_eq!(made.names, ["tank/x", "tank/x/c"]);
    assert!(made.warnings.is_empty());
    assert!(has_file(&files(&bench, "/tank/x/c"), "file"));
    assert_eq!(bench.text("tank/x/c", "origin"), "tank/a@one");
    assert_eq!(bench.text("tank/x/c", "compression"), "off");
    for (request, text) in [
        (
            clone("tank/a@one", "tank/x/c", false),
            "cannot create 'tank/x/c': dataset already exists",
        ),
        (
            clone("tank/a@no", "tank/d", false),
            "cannot open 'tank/a@no': dataset does not exist",
        ),
        (
            clone("tank/a", "tank/d", false),
            "cannot open 'tank/a': operation not applicable to datasets of this type",
        ),
        (
            clone("tank/a@one", "tank/no/d", false),
            "cannot create 'tank/no/d': parent does not exist",
        ),
    ] {
        assert_eq!(make(request).unwrap_err().to_string(), text);
    }
    let refused = destroy(&bench, "tank/a@one", "").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot destroy 'tank/a@one': snapshot has dependent clones\n\
         use '-R' to destroy the following datasets:\ntank/x/c"
    );
    destroy(&bench, "tank/a@one", "d").unwrap();
    assert_eq!(snapshots(&bench), ["tank/a@one"]);
    destroy(&bench, "tank/x/c", "").unwrap();
    assert_eq!(snapshots(&bench), Vec::<String>::new());
}

#[test]
fn a_rolled_back_file_system_is_mounted_again() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "old", MIB).unwrap();
    snapshot(&bench, &["tank/a@one"], false).unwrap();
    bench.write("/tank/a", "new", MIB).unwrap();
    snapshot(&bench, &["tank/a@two"], false).unwrap();
    bench.write("/tank/a", "newest", MIB).unwrap();
    let refused = roll_back(&bench, "tank/a@one", "").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot rollback to 'tank/a@one': more recent snapshots or bookmarks exist\n\
         use '-r' to force deletion of the following snapshots and bookmarks:\ntank/a@two"
    );
    roll_back(&bench, "tank/a@two", "").unwrap();
    let now = files(&bench, "/tank/a");
    assert!(has_file(&now, "new") && !has_file(&now, "newest"));
    drop(now);
    roll_back(&bench, "tank/a@one", "r").unwrap();
    let now = files(&bench, "/tank/a");
    assert!(has_file(&now, "old") && !has_file(&now, "new"));
    drop(now);
    bench.write("/tank/a", "after", MIB).unwrap();
    bench.sync();
    assert_eq!(snapshots(&bench), ["tank/a@one"]);
    bench.is_busy("/tank/a");
    assert_eq!(
        roll_back(&bench, "tank/a@one", "").unwrap_err().kind,
        RefusalKind::Busy
    );
    assert!(has_file(&files(&bench, "/tank/a"), "after"));
}

#[test]
fn holds_are_listed_with_their_tags() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    snapshot(&bench, &["tank@one"], true).unwrap();
    let request = |name: &str, tag: &str, recursive| Hold {
        name: name.to_string(),
        tag: tag.to_string(),
        recursive,
    };
    let hold = |request| bench.administrator.dataset_hold(&call("zfs hold"), request);
    let release = |request| {
        bench
            .administrator
            .dataset_release(&call("zfs release"), request)
    };
    hold(request("tank@one", "keep", true)).unwrap();
    assert_eq!(
        hold(request("tank/a@one", "keep", false))
            .unwrap_err()
            .to_string(),
        "cannot hold snapshot 'tank/a@one': tag already exists on this dataset"
    );
    assert_eq!(
        hold(request("tank/a@no", "keep", false))
            .unwrap_err()
            .to_string(),
        "cannot hold snapshot 'tank/a@no': dataset does not exist"
    );
    let list = ListHolds {
        name: "tank@one".to_string(),
        recursive: true,
    };
    let listed = bench
        .administrator
        .dataset_list_holds(&call(""), list)
        .unwrap();
    let listed: Vec<_> = listed
        .snapshots
        .iter()
        .map(|one| (one.name.as_str(), one.holds[0].0.as_str()))
        .collect();
    assert_eq!(listed, [("tank@one", "keep"), ("tank/a@one", "keep")]);
    assert_eq!(
        destroy(&bench, "tank/a@one", "").unwrap_err().to_string(),
        "cannot destroy snapshot tank/a@one: dataset is busy"
    );
    release(request("tank@one", "keep", true)).unwrap();
    assert_eq!(
        release(request("tank@one", "keep", false))
            .unwrap_err()
            .to_string(),
        "cannot release hold from snapshot 'tank@one': no such tag on this dataset"
    );
    destroy(&bench, "tank/a@one", "").unwrap();
}

#[test]
fn snapshots_are_renamed_by_a_short_name() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    snapshot(&bench, &["tank@one"], true).unwrap();
    let rename = |from: &str, to: &str, recursive| {
        let request = Rename {
            from: from.to_string(),
            to: to.to_string(),
            recursive,
            ..Rename::default()
        };
        let done = bench
            .administrator
            .dataset_rename(&call("zfs rename"), request);
        done.map(|_| ()).map_err(|refusal| refusal.to_string())
    };
    rename("tank@one", "@two", true).unwrap();
    assert_eq!(snapshots(&bench), ["tank@two", "tank/a@two"]);
    snapshot(&bench, &["tank/a@three"], false).unwrap();
    assert_eq!(
        rename("tank@two", "three", true).unwrap_err(),
        "cannot rename 'tank/a@two': a child dataset already has a snapshot with the new name"
    );
    assert_eq!(
        rename("tank/a@two", "@three", false).unwrap_err(),
        "cannot rename 'tank/a@two': dataset already exists"
    );
    rename("tank/a@two", "tank/a@four", false).unwrap();
    assert_eq!(
        snapshots(&bench),
        ["tank@two", "tank/a@four", "tank/a@three"]
    );
}

#[test]
fn a_snapshot_is_not_renamed_with_options_of_file_systems() {
    let bench = Bench::new();
    snapshot(&bench, &["tank@one"], false).unwrap();
    for (parents, no_mount) in [(true, false), (false, true)] {
        let request = Rename {
            from: "tank@one".to_string(),
            to: "tank@two".to_string(),
            parents,
            no_mount,
            ..Rename::default()
        };
        let refused = bench
            .administrator
            .dataset_rename(&call("zfs rename"), request);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "cannot open 'tank@one': snapshot delimiter '@' is not expected here"
        );
    }
    assert_eq!(snapshots(&bench), ["tank@one"]);
}

#[test]
fn a_promoted_clone_has_the_snapshots_and_its_parent_can_go() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank/a", "file", MIB).unwrap();
    snapshot(&bench, &["tank/a@one"], false).unwrap();
    let clone = MakeClone {
        origin: "tank/a@one".to_string(),
        name: "tank/c".to_string(),
        ..MakeClone::default()
    };
    bench
        .administrator
        .dataset_clone(&call("zfs clone"), clone)
        .unwrap();
    let promote = |name: &str| {
        let request = Promote {
            name: name.to_string(),
        };
        let done = bench
            .administrator
            .dataset_promote(&call("zfs promote"), request);
        done.map(|_| ()).map_err(|refusal| refusal.to_string())
    };
    for (name, text) in [
        (
            "tank/a@one",
            "cannot promote 'tank/a@one': snapshots can not be promoted",
        ),
        ("tank/a", "cannot promote 'tank/a': not a cloned filesystem"),
        ("tank/no", "cannot open 'tank/no': dataset does not exist"),
    ] {
        assert_eq!(promote(name).unwrap_err(), text);
    }
    promote("tank/c").unwrap();
    assert_eq!(snapshots(&bench), ["tank/c@one"]);
    assert_eq!(bench.text("tank/a", "origin"), "tank/c@one");
    destroy(&bench, "tank/a", "").unwrap();
    assert!(has_file(&files(&bench, "/tank/c"), "file"));
}

#[test]
fn bookmarks_are_made_and_destroyed_by_name() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    snapshot(&bench, &["tank@one"], true).unwrap();
    let make = |origin: &str, name: &str, recursive| {
        let request = MakeBookmark {
            origin: origin.to_string(),
            name: name.to_string(),
            recursive,
        };
        let done = bench
            .administrator
            .dataset_bookmark(&call("zfs bookmark"), request);
        done.map(|_| ()).map_err(|refusal| refusal.to_string())
    };
    make("tank@one", "tank#one", true).unwrap();
    for (origin, name, text) in [
        (
            "tank/a@one",
            "tank/a#one",
            "cannot create bookmark 'tank/a#one': bookmark exists",
        ),
        (
            "tank/a@one",
            "tank#two",
            "cannot create bookmark 'tank#two': source is not an ancestor of the new bookmark's dataset",
        ),
        (
            "tank/a@no",
            "tank/a#two",
            "cannot open 'tank/a@no': dataset does not exist",
        ),
        (
            "tank/a#no",
            "tank/a#two",
            "cannot create bookmark 'tank/a#two': dataset does not exist",
        ),
    ] {
        assert_eq!(make(origin, name, false).unwrap_err(), text);
    }
    let refused = destroy(&bench, "tank/a#no", "").unwrap_err();
    assert_eq!(refused.to_string(), "bookmark 'tank/a#no' does not exist.");
    destroy(&bench, "tank/a#one", "").unwrap();
    let listed = bench.administrator.dataset_describe(
        &call(""),
        Describe {
            kinds: vec![DatasetKind::Bookmark],
            properties: vec!["name".to_string()],
            ..Describe::default()
        },
    );
    let names: Vec<String> = listed
        .unwrap()
        .datasets
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, ["tank#one"]);
}
