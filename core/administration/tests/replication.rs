//! Replication of trees: promotions, renames, moves and destructions at the sender are repeated
//! here, nothing is destroyed that the sender has, and received file systems are mounted after the
//! last stream.

mod support;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixStream;
use support::{Bench, call};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    DatasetKind, Describe, Destroy, Hold, MakeClone, Promote, Receive, ReceiveEvent, ReceiveLine,
    ReceiveProgress, Received, Rename, Send, Series, Snapshot, Unmount, WatchReceive,
};
use tarn_administration::messages::{Refusal, Source, Value};
use tarn_engine::Pipe;
use tarn_engine::files::{Credentials, DeviceNumber, FileKind, NewFile, Operation};
use tarn_host::sim::Random;

/// The process id of the caller, a part of temporary names.
const PID: u32 = 77;

trait Commands {
    fn snapshot(&self, name: &str);
    fn clone_of(&self, origin: &str, name: &str);
    fn promote(&self, name: &str);
    fn destroy_snapshot(&self, name: &str);
    fn rename_snapshot(&self, from: &str, to: &str);
    fn unmount(&self, name: &str);
}

impl Commands for Bench {
    /// Of all datasets below, too.
    fn snapshot(&self, name: &str) {
        let request = Snapshot {
            names: vec![name.to_string()],
            recursive: true,
            ..Snapshot::default()
        };
        self.administrator
            .dataset_snapshot(&call(""), request)
            .unwrap();
    }

    fn clone_of(&self, origin: &str, name: &str) {
        let request = MakeClone {
            origin: origin.to_string(),
            name: name.to_string(),
            ..MakeClone::default()
        };
        self.administrator
            .dataset_clone(&call(""), request)
            .unwrap();
    }

    fn promote(&self, name: &str) {
        let name = name.to_string();
        let request = Promote { name };
        self.administrator
            .dataset_promote(&call(""), request)
            .unwrap();
    }

    fn destroy_snapshot(&self, name: &str) {
        let request = Destroy {
            name: name.to_string(),
            ..Destroy::default()
        };
        self.administrator
            .dataset_destroy(&call(""), request)
            .unwrap();
    }

    fn rename_snapshot(&self, from: &str, to: &str) {
        let request = Rename {
            from: from.to_string(),
            to: to.to_string(),
            ..Rename::default()
        };
        self.administrator
            .dataset_rename(&call(""), request)
            .unwrap();
    }

    fn unmount(&self, name: &str) {
        let request = Unmount {
            name: Some(name.to_string()),
            force: false,
        };
        self.administrator
            .dataset_unmount(&call(""), request)
            .unwrap();
    }
}

/// A call with a descriptor, and the caller's end of its line.
fn call_with(file: File) -> (Call, UnixStream) {
    let (line, callers) = UnixStream::pair().unwrap();
    let mut call = Call {
        pipe: Some(Pipe::new(file.into(), line.into()).unwrap()),
        ..call("")
    };
    call.caller.pid = PID;
    (call, callers)
}

/// `zfs send -R`, with `-I` where it goes on from a snapshot.
fn sent(bench: &Bench, name: &str, from: Option<&str>) -> File {
    let (stream, is_whole) = sent_in_part(bench, name, from);
    assert!(is_whole);
    stream
}

/// The same, and whether everything could be sent.
fn sent_in_part(bench: &Bench, name: &str, from: Option<&str>) -> (File, bool) {
    let mut file = tempfile::tempfile().unwrap();
    let (call, _line) = call_with(file.try_clone().unwrap());
    let head = name.split('@').next().unwrap();
    let request = Send {
        name: name.to_string(),
        from: from.map(|from| format!("{head}@{from}")),
        series: Some(Series {
            replicate: true,
            all_between: true,
            ..Series::default()
        }),
        ..Send::default()
    };
    let sent = bench.administrator.dataset_send(&call, request).unwrap();
    file.rewind().unwrap();
    (file, !sent.is_incomplete)
}

fn receive_as(bench: &Bench, file: File, request: Receive) -> Result<Received, Refusal> {
    let (call, _line) = call_with(file);
    bench.administrator.dataset_receive(&call, request)
}

/// What is to be received into `tank/d`.
fn into_d(force: bool) -> Receive {
    Receive {
        target: "tank/d".to_string(),
        force,
        ..Receive::default()
    }
}

/// `zfs send -R -I @FROM tank/s@TO | zfs receive [-F] tank/d`.
fn replicate(bench: &Bench, from: Option<&str>, to: &str, force: bool) -> Received {
    let stream = sent(bench, &format!("tank/s@{to}"), from);
    receive_as(bench, stream, into_d(force)).unwrap()
}

/// File systems by name, with the guid of each snapshot by its name, and the guid of the origin.
type Listing = BTreeMap<String, (BTreeMap<String, u64>, Option<u64>)>;

/// A file system and all below it, by their names there.
fn tree(bench: &Bench, top: &str) -> Listing {
    let describe = Describe {
        names: vec![top.to_string()],
        depth: None,
        kinds: vec![
            DatasetKind::Filesystem,
            DatasetKind::Volume,
            DatasetKind::Snapshot,
        ],
        properties: vec!["guid".to_string(), "origin".to_string()],
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(&call(""), describe)
        .unwrap();
    let mut guids = BTreeMap::new();
    let mut origins = BTreeMap::new();
    for one in &described.datasets {
        let value = |name: &str| one.properties.get(name).map(|found| found.value.clone());
        if let Some(Value::Number(guid)) = value("guid") {
            guids.insert(one.name.clone(), guid);
        }
        if let Some(Value::Text(origin)) = value("origin") {
            origins.insert(one.name.clone(), origin);
        }
    }
    let mut tree = Listing::new();
    for (name, guid) in &guids {
        let (head, short) = match name.split_once('@') {
            Some((head, short)) => (head, Some(short)),
            None => (name.as_str(), None),
        };
        let below = head[top.len()..].to_string();
        let (snapshots, origin) = tree.entry(below).or_default();
        match short {
            Some(short) => drop(snapshots.insert(short.to_string(), *guid)),
            None => {
                *origin = origins
                    .get(name)
                    .and_then(|origin| guids.get(origin).copied())
            }
        }
    }
    tree
}

/// The receiver's tree is like the sender's.
fn check(bench: &Bench) {
    assert_eq!(tree(bench, "tank/d"), tree(bench, "tank/s"));
}

fn names_below(bench: &Bench, top: &str) -> Vec<String> {
    tree(bench, top).into_keys().collect()
}

/// `tank/s` with file systems below it, snapshot `1` of all, and a copy in `tank/d`.
fn bench_with(below: &[&str]) -> Bench {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    for name in below {
        bench.create(&format!("tank/s/{name}"), &[]).unwrap();
    }
    bench.snapshot("tank/s@1");
    replicate(&bench, None, "1", false);
    check(&bench);
    bench
}

/// The steps to follow the sender, as `zfs receive -v` shows them.
fn followed(received: &Received) -> Vec<String> {
    let shown = |event: &ReceiveEvent| match event {
        ReceiveEvent::Promoting { name } => Some(format!("promote {name}")),
        ReceiveEvent::Destroying { name } => Some(format!("destroy {name}")),
        ReceiveEvent::Renaming { from, to } => Some(format!("rename {from} {to}")),
        ReceiveEvent::RenamingAside { from, to } => Some(format!("aside {from} {to}")),
        ReceiveEvent::WithoutFirst { name, .. } => Some(format!("without first {name}")),
        ReceiveEvent::WithoutParent { name } => Some(format!("without parent {name}")),
        ReceiveEvent::Failed { .. } => Some("failed".to_string()),
        _ => None,
    };
    received.events.iter().filter_map(shown).collect()
}

#[test]
fn a_promotion_at_the_sender_is_made_here_and_destroys_nothing() {
    for force in [false, true] {
        let bench = Bench::new();
        bench.create("tank/s", &[]).unwrap();
        bench.create("tank/s/a", &[]).unwrap();
        bench.snapshot("tank/s/a@0");
        bench.clone_of("tank/s/a@0", "tank/s/b");
        bench.snapshot("tank/s@1");
        replicate(&bench, None, "1", false);
        check(&bench);
        bench.promote("tank/s/b");
        bench.snapshot("tank/s@2");
        let received = replicate(&bench, Some("1"), "2", force);
        assert_eq!(followed(&received), ["promote tank/d/b"]);
        assert!(received.events.contains(&ReceiveEvent::AnotherPass));
        assert!(!received.is_incomplete && received.warnings.is_empty());
        check(&bench);
    }
}

#[test]
fn promotions_of_clones_of_clones_follow() {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    bench.create("tank/s/a", &[]).unwrap();
    bench.snapshot("tank/s/a@0");
    bench.clone_of("tank/s/a@0", "tank/s/b");
    bench.snapshot("tank/s/b@x");
    bench.clone_of("tank/s/b@x", "tank/s/c");
    bench.snapshot("tank/s@1");
    replicate(&bench, None, "1", false);
    check(&bench);
    bench.promote("tank/s/c");
    bench.snapshot("tank/s@2");
    replicate(&bench, Some("1"), "2", true);
    check(&bench);
    bench.promote("tank/s/c");
    bench.snapshot("tank/s@3");
    replicate(&bench, Some("2"), "3", true);
    check(&bench);
}

/// The clone's origin is destroyed at the sender, and the origin's dataset too: only the receiver
/// has them.
#[test]
fn a_surviving_clone_is_promoted_before_its_origin_is_destroyed() {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    bench.create("tank/s/a", &[]).unwrap();
    bench.snapshot("tank/s/a@0");
    bench.clone_of("tank/s/a@0", "tank/s/b");
    bench.snapshot("tank/s@1");
    replicate(&bench, None, "1", false);
    bench.promote("tank/s/b");
    bench.destroy("tank/s/a", true).unwrap();
    bench.destroy_snapshot("tank/s/b@0");
    bench.snapshot("tank/s@2");
    let received = replicate(&bench, Some("1"), "2", true);
    assert_eq!(names_below(&bench, "tank/d"), ["", "/b"]);
    check(&bench);
    assert!(received.warnings.is_empty(), "{received:?}");
}

#[test]
fn a_dataset_moved_at_the_sender_moves_here_with_its_children() {
    for force in [false, true] {
        let bench = bench_with(&["a", "a/kid", "b", "c"]);
        bench.rename("tank/s/a", "tank/s/b/other").unwrap();
        bench.rename("tank/s/c", "tank/s/a").unwrap();
        bench.snapshot("tank/s@2");
        let received = replicate(&bench, Some("1"), "2", force);
        assert_eq!(
            followed(&received),
            ["rename tank/d/a tank/d/b/other", "rename tank/d/c tank/d/a"]
        );
        assert!(!received.is_incomplete);
        check(&bench);
    }
}

#[test]
fn names_that_were_exchanged_are_exchanged() {
    let bench = bench_with(&["a", "b"]);
    bench.rename("tank/s/a", "tank/s/x").unwrap();
    bench.rename("tank/s/b", "tank/s/a").unwrap();
    bench.rename("tank/s/x", "tank/s/b").unwrap();
    bench.snapshot("tank/s@2");
    let received = replicate(&bench, Some("1"), "2", false);
    assert_eq!(
        followed(&received),
        [
            "rename tank/d/a tank/d/b",
            "aside tank/d/a tank/d/recv-77-1",
            "rename tank/d/b tank/d/a",
            "rename tank/d/recv-77-1 tank/d/b",
        ]
    );
    check(&bench);
}

#[test]
fn a_child_that_became_its_parents_parent_does_so_here() {
    let bench = bench_with(&["a", "a/b"]);
    bench.rename("tank/s/a/b", "tank/s/b").unwrap();
    bench.rename("tank/s/a", "tank/s/b/a").unwrap();
    bench.snapshot("tank/s@2");
    replicate(&bench, Some("1"), "2", false);
    check(&bench);
}

/// The old name is needed before the new parent is there.
#[test]
fn a_dataset_gets_a_temporary_name_until_its_new_parent_is_received() {
    let bench = bench_with(&["a", "a/kid"]);
    bench.rename("tank/s/a", "tank/s/old").unwrap();
    bench.create("tank/s/a", &[]).unwrap();
    bench.rename("tank/s/old", "tank/s/a/old").unwrap();
    bench.create("tank/s/a/old/new", &[]).unwrap();
    bench.snapshot("tank/s@2");
    let before = bench.mounted().len();
    let received = replicate(&bench, Some("1"), "2", false);
    assert_eq!(
        followed(&received),
        [
            "without parent tank/d/a",
            "rename tank/d/a ",
            "aside tank/d/a tank/d/recv-77-1",
            "without first tank/d/a",
            "without first tank/d/recv-77-1/new",
            "rename tank/d/recv-77-1 tank/d/a/old",
        ]
    );
    check(&bench);
    assert_eq!(bench.mounted().len(), before + 2);
}

/// Parents that are destroyed at the sender had children that are not.
#[test]
fn destroying_a_parent_keeps_children_that_the_sender_has() {
    let bench = bench_with(&["a", "a/kid", "a/gone", "b", "b/kid"]);
    bench.write("/tank/s/a/kid", "file", 1000).unwrap();
    bench.rename("tank/s/a/kid", "tank/s/kid").unwrap();
    bench.destroy("tank/s/a", true).unwrap();
    bench.rename("tank/s/b/kid", "tank/s/x").unwrap();
    bench.destroy("tank/s/b", true).unwrap();
    bench.rename("tank/s/x", "tank/s/b").unwrap();
    bench.snapshot("tank/s@2");
    let received = replicate(&bench, Some("1"), "2", true);
    assert!(!received.is_incomplete, "{received:?}");
    assert!(received.warnings.is_empty(), "{received:?}");
    check(&bench);
}

#[test]
fn nothing_is_destroyed_unless_that_is_asked_for() {
    let bench = bench_with(&["a", "a/kid", "b"]);
    bench.snapshot("tank/s/b@x");
    bench.rename("tank/s/a/kid", "tank/s/kid").unwrap();
    bench.destroy("tank/s/a", true).unwrap();
    bench.snapshot("tank/s@2");
    replicate(&bench, Some("1"), "2", false);
    bench.destroy_snapshot("tank/s/b@x");
    bench.snapshot("tank/s@3");
    let received = replicate(&bench, Some("2"), "3", false);
    assert!(!received.is_incomplete, "{received:?}");
    assert_eq!(names_below(&bench, "tank/d"), ["", "/a", "/b", "/kid"]);
    assert!(tree(&bench, "tank/d")["/b"].0.contains_key("x"));
}

#[test]
fn datasets_that_never_came_from_the_sender_stay() {
    let bench = bench_with(&["a"]);
    bench.create("tank/d/mine", &[]).unwrap();
    bench.create("tank/d/a/mine", &[]).unwrap();
    bench.snapshot("tank/d/mine@own");
    bench.destroy("tank/s/a", true).unwrap();
    bench.snapshot("tank/s@2");
    let received = replicate(&bench, Some("1"), "2", true);
    assert!(received.is_incomplete);
    assert!(
        received.warnings[0].starts_with("cannot destroy 'tank/d/a': filesystem has children"),
        "{received:?}"
    );
    let below = names_below(&bench, "tank/d");
    assert_eq!(below, ["", "/a", "/a/mine", "/mine"]);
}

/// A tree without any snapshot of the package has snapshots of the same names.
#[test]
fn a_package_for_another_tree_destroys_nothing() {
    let bench = bench_with(&["a"]);
    bench.create("tank/e", &[]).unwrap();
    bench.create("tank/e/f", &[]).unwrap();
    bench.snapshot("tank/e@1");
    let before = tree(&bench, "tank/e");
    bench.snapshot("tank/s@2");
    let request = Receive {
        target: "tank/e".to_string(),
        force: true,
        ..Receive::default()
    };
    let refused = receive_as(&bench, sent(&bench, "tank/s@2", Some("1")), request);
    assert!(refused.is_err());
    assert_eq!(tree(&bench, "tank/e"), before);
}

#[test]
fn snapshots_that_were_renamed_exchanged_and_destroyed_follow() {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    for name in ["x", "y", "z", "1"] {
        bench.snapshot(&format!("tank/s@{name}"));
    }
    replicate(&bench, None, "1", false);
    check(&bench);
    bench.rename_snapshot("tank/s@x", "tank/s@w");
    bench.rename_snapshot("tank/s@y", "tank/s@x");
    bench.rename_snapshot("tank/s@w", "tank/s@y");
    bench.destroy_snapshot("tank/s@z");
    bench.snapshot("tank/s@2");
    let received = replicate(&bench, Some("1"), "2", true);
    assert_eq!(
        followed(&received),
        [
            "destroy tank/d@z",
            "rename tank/d@x tank/d@y",
            "aside tank/d@x tank/d@recv-77-1",
            "rename tank/d@y tank/d@x",
            "rename tank/d@recv-77-1 tank/d@y",
        ]
    );
    check(&bench);
}

/// A held snapshot is destroyed later, and gets a temporary name if its name is needed.
#[test]
fn snapshots_that_are_here_get_the_properties_that_they_have_at_the_sender() {
    let bench = bench_with(&["a"]);
    let note = |name: &str| bench.get(name, "x:note");
    let received = |value: &str| (Value::Text(value.to_string()), Source::Received);
    let properties = |name: &str| {
        let request = Describe {
            names: vec![name.to_string()],
            depth: Some(0),
            kinds: vec![DatasetKind::Snapshot],
            ..Describe::default()
        };
        let described = bench
            .administrator
            .dataset_describe(&call(""), request)
            .unwrap();
        described.datasets[0].properties.clone()
    };
    let given = [("x:note", "one"), ("x:more", "yes")];
    bench.set("tank/s@1", &given).unwrap();
    bench.snapshot("tank/s@2");
    replicate(&bench, Some("1"), "2", false);
    assert_eq!(note("tank/d@1"), received("one"));
    assert!(properties("tank/d@1").contains_key("x:more"));
    assert!(!properties("tank/d/a@1").contains_key("x:note"));
    bench.set("tank/s@1", &[("x:note", "two")]).unwrap();
    bench.inherit("tank/s@1", "x:more", false).unwrap();
    bench.rename_snapshot("tank/s@1", "tank/s@first");
    bench.snapshot("tank/s@3");
    replicate(&bench, Some("2"), "3", false);
    assert_eq!(note("tank/d@first"), received("two"));
    assert!(!properties("tank/d@first").contains_key("x:more"));
}

#[test]
fn excluded_properties_are_shown_as_received() {
    let bench = bench_with(&[]);
    bench.set("tank/s", &[("x:note", "new")]).unwrap();
    bench.snapshot("tank/s@2");
    let stream = sent(&bench, "tank/s@2", Some("1"));
    let request = Receive {
        excluded: vec!["x:note".to_string()],
        ..into_d(true)
    };
    receive_as(&bench, stream, request).unwrap();
    let describe = |properties: Vec<String>| {
        let request = Describe {
            names: vec!["tank/d".to_string()],
            depth: Some(0),
            kinds: vec![DatasetKind::Filesystem],
            properties,
            ..Describe::default()
        };
        let described = bench
            .administrator
            .dataset_describe(&call(""), request)
            .unwrap();
        described.datasets[0].properties.get("x:note").cloned()
    };
    let note = describe(vec!["x:note".to_string()]).unwrap();
    assert_eq!((note.value, note.source), (Value::Absent, Source::None));
    assert_eq!(note.received.as_deref(), Some("new"));
    assert_eq!(describe(Vec::new()), None);
}

#[test]
fn a_held_snapshot_gets_a_temporary_name() {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    bench.snapshot("tank/s@x");
    bench.snapshot("tank/s@1");
    replicate(&bench, None, "1", false);
    let hold = Hold {
        name: "tank/d@x".to_string(),
        tag: "mine".to_string(),
        recursive: false,
    };
    bench
        .administrator
        .dataset_hold(&call(""), hold.clone())
        .unwrap();
    bench.destroy_snapshot("tank/s@x");
    bench.snapshot("tank/s@x");
    bench.snapshot("tank/s@2");
    let received = replicate(&bench, Some("1"), "2", true);
    assert_eq!(
        followed(&received)[..2],
        ["destroy tank/d@x", "aside tank/d@x tank/d@recv-77-1"]
    );
    assert!(received.is_incomplete);
    let (snapshots, _) = &tree(&bench, "tank/d")[""];
    let names: Vec<&str> = snapshots.keys().map(String::as_str).collect();
    assert_eq!(names, ["1", "2", "recv-77-1", "x"]);
    let hold = Hold {
        name: "tank/d@recv-77-1".to_string(),
        ..hold
    };
    bench
        .administrator
        .dataset_release(&call(""), hold)
        .unwrap();
    check(&bench);
}

#[test]
fn a_copy_of_a_file_system_is_left_alone() {
    let bench = bench_with(&["a"]);
    let stream = sent(&bench, "tank/d/a@1", None);
    let request = Receive {
        target: "tank/d/copy".to_string(),
        ..Receive::default()
    };
    receive_as(&bench, stream, request).unwrap();
    bench.snapshot("tank/s@2");
    let received = replicate(&bench, Some("1"), "2", true);
    assert_eq!(followed(&received), [""; 0]);
    assert_eq!(names_below(&bench, "tank/d"), ["", "/a", "/copy"]);
}

#[test]
fn a_file_system_whose_first_snapshot_was_destroyed_here_is_not_renamed() {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    bench.create("tank/s/a", &[]).unwrap();
    bench.snapshot("tank/s@0");
    bench.snapshot("tank/s@1");
    replicate(&bench, None, "1", false);
    bench.destroy_snapshot("tank/d/a@1");
    bench.rename("tank/s/a", "tank/s/b").unwrap();
    bench.snapshot("tank/s@2");
    let stream = sent(&bench, "tank/s@2", Some("1"));
    let received = receive_as(&bench, stream, into_d(true)).unwrap();
    let without = "without first tank/d/a".to_string();
    assert!(followed(&received).contains(&without), "{received:?}");
    assert_eq!(names_below(&bench, "tank/d"), ["", "/a"]);
}

/// Makes a random change to the tree at the sender, if possible. Clones created since the last
/// package are not promoted: those are sent in full.
fn change(bench: &Bench, random: &mut Random, from: &str, number: usize) {
    let all = tree(bench, "tank/s");
    let names: Vec<String> = all.keys().map(|below| format!("tank/s{below}")).collect();
    let one = names[random.index(names.len())].clone();
    let other = names[random.index(names.len())].clone();
    let (snapshots, origin) = &all[&one["tank/s".len()..]];
    let is_known = snapshots.contains_key(from);
    let snapshots: Vec<&String> = snapshots.keys().collect();
    let short = match snapshots.is_empty() {
        true => None,
        false => Some(snapshots[random.index(snapshots.len())].clone()),
    };
    let is_top = one == "tank/s";
    // Packages go on from the others.
    let is_own = |name: &String| name.starts_with('x');
    // A change that is not possible is skipped.
    match random.index(9) {
        0 => drop(bench.create(&format!("{other}/n{number}"), &[])),
        1 | 2 if origin.is_some() && is_known => {
            let request = Promote { name: one };
            drop(bench.administrator.dataset_promote(&call(""), request));
        }
        1 | 2 => {
            if let Some(short) = short {
                bench.clone_of(&format!("{one}@{short}"), &format!("{other}/c{number}"));
            }
        }
        3 | 4 if !is_top => drop(bench.rename(&one, &format!("{other}/m{}", random.index(4)))),
        5 => {
            if let Some(short) = short.filter(is_own) {
                let to = format!("{one}@x{}", random.index(3));
                let request = Rename {
                    from: format!("{one}@{short}"),
                    to,
                    ..Rename::default()
                };
                drop(bench.administrator.dataset_rename(&call(""), request));
            }
        }
        6 => {
            if let Some(short) = short.filter(is_own) {
                drop(bench.destroy(&format!("{one}@{short}"), false));
            }
        }
        7 if !is_top && !has_clones(&all, &one["tank/s".len()..]) => {
            bench.destroy(&one, true).unwrap();
        }
        _ => {
            let request = Snapshot {
                names: vec![format!("{one}@x{}", random.index(3))],
                ..Snapshot::default()
            };
            drop(bench.administrator.dataset_snapshot(&call(""), request));
        }
    }
}

/// Whether a dataset is a clone of a snapshot of a file system or of one below it.
fn has_clones(all: &Listing, name: &str) -> bool {
    let below = format!("{name}/");
    let inside = |one: &String| one == name || one.starts_with(&below);
    let inside = all.iter().filter(|(one, _)| inside(one));
    let guids: Vec<u64> = inside
        .flat_map(|(_, (snapshots, _))| snapshots.values().copied())
        .collect();
    let mut origins = all.values().filter_map(|(_, origin)| *origin);
    origins.any(|origin| guids.contains(&origin))
}

/// After each package the receiver's tree is like the sender's.
#[test]
fn a_tree_follows_random_changes_at_the_sender() {
    for seed in 1..=6 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let bench = bench_with(&["a", "a/b", "c"]);
        for round in 1..=6 {
            let (from, to) = match round {
                1 => ("1".to_string(), "r1".to_string()),
                round => (format!("r{}", round - 1), format!("r{round}")),
            };
            for number in 0..6 {
                change(&bench, &mut random, &from, round * 10 + number);
            }
            bench.snapshot(&format!("tank/s@{to}"));
            let sent = sent_in_part(&bench, &format!("tank/s@{to}"), Some(&from));
            let (stream, true) = sent else {
                // A clone above its own origin cannot be sent.
                break;
            };
            let received = receive_as(&bench, stream, into_d(true)).unwrap();
            assert_eq!(
                tree(&bench, "tank/d"),
                tree(&bench, "tank/s"),
                "seed {seed}, round {round}: {received:#?}"
            );
            assert!(
                !received.is_incomplete,
                "seed {seed}, round {round}: {received:#?}"
            );
        }
    }
}

/// An unlinked file that stays open, so that every later snapshot has it.
fn leave_unlinked(bench: &Bench, path: &str, name: &str) {
    let tree = bench.tree(path);
    let files = tree.files();
    let (root, operation) = (Credentials::root(), Operation::unmeasured());
    let new = NewFile {
        kind: FileKind::Regular,
        permissions: 0o644,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    let made = files.create(&root, files.root(), name.as_bytes(), &new, &operation);
    let id = made.unwrap().id;
    files.opened(id, &operation).unwrap();
    files
        .unlink(&root, files.root(), name.as_bytes(), &operation)
        .unwrap();
}

#[test]
fn a_package_mounts_new_file_systems_after_the_last_stream() {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    bench.create("tank/s/a", &[]).unwrap();
    bench.create("tank/s/off", &[("canmount", "off")]).unwrap();
    bench.create("tank/s/off/below", &[]).unwrap();
    bench
        .create("tank/s/own", &[("mountpoint", "/own")])
        .unwrap();
    leave_unlinked(&bench, "/tank/s", "gone");
    leave_unlinked(&bench, "/tank/s/a", "gone");
    bench.snapshot("tank/s@1");
    bench.snapshot("tank/s@2");
    replicate(&bench, None, "2", false);
    check(&bench);
    let mounted: Vec<String> = bench.mounts().into_iter().map(|(_, name)| name).collect();
    for name in ["tank/d", "tank/d/a", "tank/d/off/below"] {
        assert!(mounted.contains(&name.to_string()), "{mounted:?}");
    }
    // The sender's properties decide where these are mounted.
    for name in ["tank/d/off", "tank/d/own"] {
        assert!(!mounted.contains(&name.to_string()), "{mounted:?}");
    }
}

#[test]
fn increments_are_received_into_mounted_file_systems() {
    let bench = bench_with(&["a"]);
    assert!(bench.mounted().contains(&"/tank/d/a".to_string()));
    leave_unlinked(&bench, "/tank/s/a", "gone");
    bench.snapshot("tank/s@2");
    bench.snapshot("tank/s@3");
    replicate(&bench, Some("1"), "3", false);
    check(&bench);
    assert!(bench.mounted().contains(&"/tank/d/a".to_string()));
}

#[test]
fn an_increment_of_a_tree_mounts_unmounted_file_systems() {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    bench.create("tank/s/a", &[]).unwrap();
    bench
        .create("tank/s/auto", &[("canmount", "noauto")])
        .unwrap();
    bench.snapshot("tank/s@1");
    let request = Receive {
        no_mount: true,
        ..into_d(false)
    };
    receive_as(&bench, sent(&bench, "tank/s@1", None), request.clone()).unwrap();
    let is_mounted = |path: &str| bench.mounted().contains(&path.to_string());
    assert!(!is_mounted("/tank/d") && !is_mounted("/tank/d/a"));
    bench.snapshot("tank/s@2");
    receive_as(&bench, sent(&bench, "tank/s@2", Some("1")), request).unwrap();
    assert!(!is_mounted("/tank/d") && !is_mounted("/tank/d/a"));
    bench.snapshot("tank/s@3");
    replicate(&bench, Some("2"), "3", false);
    assert!(is_mounted("/tank/d") && is_mounted("/tank/d/a") && !is_mounted("/tank/d/auto"));
}

#[test]
fn a_moved_file_system_is_mounted_though_its_increment_fails() {
    let bench = bench_with(&["a", "b"]);
    leave_unlinked(&bench, "/tank/s/a", "gone");
    bench.rename("tank/s/a", "tank/s/x").unwrap();
    bench.snapshot("tank/s@2");
    bench.snapshot("tank/s@3");
    let mut stream = sent(&bench, "tank/s@3", Some("1"));
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let mut cut = tempfile::tempfile().unwrap();
    cut.write_all(&bytes[..bytes.len() / 2]).unwrap();
    cut.rewind().unwrap();
    let request = Receive {
        no_mount: true,
        ..into_d(false)
    };
    assert!(receive_as(&bench, cut, request.clone()).is_err());
    let is_mounted = |path: &str| bench.mounted().contains(&path.to_string());
    assert!(is_mounted("/tank/d/x") && !is_mounted("/tank/d/a"));
    bench.unmount("tank/d/x");
}

#[test]
fn a_cut_package_leaves_new_file_systems_unmounted() {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    bench.snapshot("tank/s@1");
    bench.write("/tank/s", "file", 1 << 20).unwrap();
    bench.snapshot("tank/s@2");
    let mut bytes = Vec::new();
    sent(&bench, "tank/s@2", None)
        .read_to_end(&mut bytes)
        .unwrap();
    let mut cut = tempfile::tempfile().unwrap();
    cut.write_all(&bytes[..bytes.len() / 2]).unwrap();
    cut.rewind().unwrap();
    assert!(receive_as(&bench, cut, into_d(false)).is_err());
    let (snapshots, _) = &tree(&bench, "tank/d")[""];
    assert_eq!(snapshots.len(), 1);
    assert!(!bench.mounted().contains(&"/tank/d".to_string()));
}

/// The events of a receive after the first `seen`.
fn ask(bench: &Bench, uid: u32, seen: usize) -> ReceiveProgress {
    let mut call = call("");
    call.caller.uid = uid;
    let request = WatchReceive {
        watch: "mine".to_string(),
        seen: u64::try_from(seen).unwrap(),
    };
    bench
        .administrator
        .dataset_watch_receive(&call, request)
        .unwrap()
}

/// Asks until there are events, or the receive has ended.
fn wait_for(bench: &Bench, seen: usize) -> ReceiveProgress {
    loop {
        let progress = ask(bench, 0, seen);
        if progress.is_over || !progress.lines.is_empty() {
            return progress;
        }
    }
}

/// The second half of the stream is written only after the events of the first were read.
#[test]
fn progress_of_a_receive_is_told_while_it_runs() {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    bench.write("/tank/s", "file", 1 << 20).unwrap();
    bench.snapshot("tank/s@1");
    let mut bytes = Vec::new();
    sent(&bench, "tank/s@1", None)
        .read_to_end(&mut bytes)
        .unwrap();
    let (half, rest) = bytes.split_at(bytes.len() / 2);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (line, _callers) = UnixStream::pair().unwrap();
    let receiver = Call {
        pipe: Some(Pipe::new(ours.into(), line.into()).unwrap()),
        ..call("")
    };
    let request = Receive {
        watch: Some("mine".to_string()),
        ..into_d(false)
    };
    assert!(!ask(&bench, 0, 0).is_known);
    let received = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| bench.administrator.dataset_receive(&receiver, request));
        theirs.write_all(half).unwrap();
        let begun = wait_for(&bench, 0);
        assert!(
            matches!(
                &begun.lines[..],
                [ReceiveLine::Event(ReceiveEvent::Receiving { snapshot, .. })] if snapshot == "tank/d@1"
            ),
            "{begun:?}"
        );
        assert!(begun.is_coming && !begun.is_over);
        // Other users get no events.
        assert!(!ask(&bench, 12345, 0).is_known);
        theirs.write_all(rest).unwrap();
        drop(theirs);
        receiving.join().unwrap().unwrap()
    });
    let ended = wait_for(&bench, 1);
    let event = received.events[1].clone();
    assert_eq!(ended.lines, [ReceiveLine::Event(event)]);
    assert!(ended.is_over && !ended.is_coming);
    assert!(!ask(&bench, 0, 2).is_known);
}

#[test]
fn progress_before_a_failure_is_told() {
    let bench = bench_with(&["a"]);
    bench.create("tank/d/a/mine", &[]).unwrap();
    bench.destroy("tank/s/a", true).unwrap();
    bench.snapshot("tank/s@2");
    bench.write("/tank/s", "file", 1 << 20).unwrap();
    bench.snapshot("tank/s@3");
    let mut bytes = Vec::new();
    sent(&bench, "tank/s@3", Some("1"))
        .read_to_end(&mut bytes)
        .unwrap();
    let mut cut = tempfile::tempfile().unwrap();
    cut.write_all(&bytes[..bytes.len() / 2]).unwrap();
    cut.rewind().unwrap();
    let request = Receive {
        watch: Some("mine".to_string()),
        ..into_d(true)
    };
    let refused = receive_as(&bench, cut, request).unwrap_err();
    assert!(refused.reason.starts_with("incomplete stream"), "{refused}");
    let told = ask(&bench, 0, 0);
    assert!(told.is_over);
    let shown: Vec<String> = told.lines.iter().map(|line| format!("{line:?}")).collect();
    let at = |text: &str| {
        let found = shown.iter().position(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("{text}: {shown:?}"))
    };
    assert!(at("Warning(\"cannot destroy 'tank/d/a'") < at("snapshot: \"tank/d@2\""));
    assert!(at("Received") < at("snapshot: \"tank/d@3\""));
}
