//! Destroying a file system with its dependents: all of them go, or none.

mod support;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use support::{Bench, call};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    DatasetKind, Describe, Destroy, Hold, MakeClone, Promote, Receive, Rollback, Send, Snapshot,
};
use tarn_administration::messages::{Refusal, Value};
use tarn_engine::files::{Credentials, Operation};
use tarn_host::Pipe;

const MIB: usize = 1 << 20;

fn snapshot(bench: &Bench, names: &[&str]) {
    for name in names {
        let request = Snapshot {
            names: vec![(*name).to_string()],
            ..Snapshot::default()
        };
        let taken = bench
            .administrator
            .dataset_snapshot(&call("zfs snapshot"), request);
        taken.unwrap();
    }
}

fn clone(bench: &Bench, origin: &str, name: &str) {
    let request = MakeClone {
        origin: origin.to_string(),
        name: name.to_string(),
        ..MakeClone::default()
    };
    bench
        .administrator
        .dataset_clone(&call("zfs clone"), request)
        .unwrap();
}

fn hold(name: &str) -> Hold {
    Hold {
        name: name.to_string(),
        tag: "k".to_string(),
        ..Hold::default()
    }
}

/// The destroyed datasets, in order.
fn destroy(bench: &Bench, options: &str, name: &str) -> Result<Vec<String>, Refusal> {
    let request = Destroy {
        name: name.to_string(),
        recursive: options.contains(['r', 'R']),
        dependents: options.contains('R'),
        ..Destroy::default()
    };
    let destroyed = bench
        .administrator
        .dataset_destroy(&call("zfs destroy"), request);
    destroyed.map(|destroyed| destroyed.names)
}

fn refusal(bench: &Bench, options: &str, name: &str) -> String {
    destroy(bench, options, name).unwrap_err().to_string()
}

/// Names of all datasets that users see, sorted.
fn names(bench: &Bench) -> Vec<String> {
    let describe = Describe {
        kinds: vec![
            DatasetKind::Filesystem,
            DatasetKind::Volume,
            DatasetKind::Snapshot,
        ],
        properties: vec!["name".to_string()],
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(&call(""), describe)
        .unwrap();
    let mut names: Vec<String> = described.datasets.into_iter().map(|one| one.name).collect();
    names.sort();
    names
}

fn has_entry(bench: &Bench, path: &str, name: &str) -> bool {
    let tree = bench.tree(path);
    let (files, operation) = (tree.files(), Operation::unmeasured());
    files
        .lookup(
            &Credentials::root(),
            files.root(),
            name.as_bytes(),
            &operation,
        )
        .is_ok()
}

fn call_with(end: impl Into<std::os::fd::OwnedFd>) -> (Call, UnixStream) {
    let (line, callers) = UnixStream::pair().unwrap();
    let call = Call {
        pipe: Some(Pipe::new(end.into(), line.into()).unwrap()),
        ..call("")
    };
    (call, callers)
}

fn stream(bench: &Bench, name: &str, from: Option<&str>) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    let (call, _line) = call_with(file.try_clone().unwrap());
    let request = Send {
        name: name.to_string(),
        from: from.map(str::to_string),
        ..Send::default()
    };
    bench.administrator.dataset_send(&call, request).unwrap();
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn into(target: &str) -> Receive {
    Receive {
        target: target.to_string(),
        ..Receive::default()
    }
}

fn receive(bench: &Bench, request: Receive, bytes: &[u8]) -> Result<(), Refusal> {
    let mut file: File = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    let (call, _line) = call_with(file);
    bench
        .administrator
        .dataset_receive(&call, request)
        .map(drop)
}

/// Receives the first half of a stream, which is kept.
fn receive_half(bench: &Bench, request: Receive, bytes: &[u8]) {
    let request = Receive {
        resumable: true,
        ..request
    };
    let refused = receive(bench, request, &bytes[..bytes.len() / 2]).unwrap_err();
    let is_kept = refused
        .reason
        .contains("Partially received snapshot is saved.");
    assert!(is_kept, "{refused}");
}

/// The resume token of a receive that was cut; none where none was.
fn token(bench: &Bench, name: &str) -> Option<Value> {
    let property = "receive_resume_token";
    let describe = Describe {
        names: vec![name.to_string()],
        depth: Some(0),
        kinds: vec![DatasetKind::Filesystem],
        properties: vec![property.to_string()],
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(&call(""), describe)
        .unwrap();
    let found = described.datasets[0].properties.get(property);
    found.map(|found| found.value.clone())
}

/// Calls `act` in the middle of a receive.
fn while_receiving(bench: &Bench, request: Receive, bytes: &[u8], act: impl FnOnce()) {
    received_while(bench, request, bytes, act).unwrap();
}

/// The same, with its outcome.
fn received_while(
    bench: &Bench,
    request: Receive,
    bytes: &[u8],
    act: impl FnOnce(),
) -> Result<(), Refusal> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (call, _line) = call_with(ours);
    thread::scope(|scope| {
        let receiver = scope.spawn(move || bench.administrator.dataset_receive(&call, request));
        // More bytes than the buffers on the way: once they are written, a part was received.
        let (first, rest) = bytes.split_at(bytes.len() - 100_000);
        assert!(first.len() > 3 * MIB);
        theirs.write_all(first).unwrap();
        act();
        theirs.write_all(rest).unwrap();
        drop(theirs);
        receiver.join().unwrap().map(drop)
    })
}

/// `tank/s` with the snapshots `one` and `two`, each of them 5 MiB; `tank/d/b` has received the
/// first.
fn bench_with_received() -> Bench {
    let bench = Bench::new();
    bench.create("tank/s", &[]).unwrap();
    bench.create("tank/d", &[]).unwrap();
    bench.write("/tank/s", "first", 5 * MIB).unwrap();
    snapshot(&bench, &["tank/s@one"]);
    bench.write("/tank/s", "second", 5 * MIB).unwrap();
    snapshot(&bench, &["tank/s@two"]);
    let full = stream(&bench, "tank/s@one", None);
    receive(&bench, into("tank/d/b"), &full).unwrap();
    bench
}

/// The same with more snapshots of `tank/d/b`, and with the partial state of a receive onto the
/// newest.
fn bench_with_remains() -> Bench {
    let bench = bench_with_received();
    snapshot(&bench, &["tank/d/b@x", "tank/d/b@y"]);
    let increment = stream(&bench, "tank/s@two", Some("tank/s@one"));
    receive_half(&bench, into("tank/d/b"), &increment);
    assert!(token(&bench, "tank/d/b").is_some());
    bench
}

const OF_SOURCE: [&str; 4] = ["tank", "tank/s", "tank/s@one", "tank/s@two"];

fn assert_only_source_is_left(bench: &Bench) {
    let mut left = names(bench);
    left.retain(|name| name != "tank/d");
    assert_eq!(left, OF_SOURCE);
}

#[test]
fn snapshots_go_with_their_file_system_or_all_of_them_stay() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    snapshot(&bench, &["tank/a@1", "tank/a@2", "tank/a@3"]);
    bench
        .administrator
        .dataset_hold(&call("zfs hold"), hold("tank/a@2"))
        .unwrap();
    let before = (names(&bench), bench.mounts());
    for options in ["-r", "-R"] {
        assert_eq!(
            refusal(&bench, options, "tank/a"),
            "cannot destroy snapshot tank/a@2: dataset is busy"
        );
        assert_eq!((names(&bench), bench.mounts()), before);
    }
    bench
        .administrator
        .dataset_release(&call("zfs release"), hold("tank/a@2"))
        .unwrap();
    assert_eq!(
        destroy(&bench, "-r", "tank/a").unwrap(),
        ["tank/a@1", "tank/a@2", "tank/a@3", "tank/a"]
    );
    assert_eq!(names(&bench), ["tank"]);
}

#[test]
fn one_dataset_that_cannot_be_destroyed_keeps_all_others() {
    let bench = Bench::new();
    for name in ["tank/a", "tank/a/b", "tank/a/c"] {
        bench.create(name, &[]).unwrap();
        snapshot(&bench, &[&format!("{name}@1"), &format!("{name}@2")]);
    }
    for name in ["tank/a/b@1", "tank/a/c@2"] {
        bench
            .administrator
            .dataset_hold(&call("zfs hold"), hold(name))
            .unwrap();
    }
    let before = (names(&bench), bench.mounts());
    for (options, name) in [("-r", "tank/a"), ("-R", "tank/a"), ("-r", "tank")] {
        assert_eq!(
            refusal(&bench, options, name),
            "cannot destroy snapshot tank/a/b@1: dataset is busy\n\
             cannot destroy snapshot tank/a/c@2: dataset is busy"
        );
        assert_eq!((names(&bench), bench.mounts()), before);
    }
}

#[test]
fn clones_stay_where_a_snapshot_that_they_were_made_of_cannot_go() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    snapshot(&bench, &["tank/a@0", "tank/a@1"]);
    clone(&bench, "tank/a@1", "tank/c");
    snapshot(&bench, &["tank/c@x"]);
    let held = |name: &str| {
        let request = hold(name);
        bench
            .administrator
            .dataset_hold(&call("zfs hold"), request)
            .unwrap();
    };
    held("tank/a@1");
    let before = (names(&bench), bench.mounts());
    for name in ["tank/a", "tank/a@1"] {
        assert_eq!(
            refusal(&bench, "-R", name),
            "cannot destroy snapshot tank/a@1: dataset is busy"
        );
        assert_eq!((names(&bench), bench.mounts()), before);
    }
    held("tank/c@x");
    let request = Rollback {
        name: "tank/a@0".to_string(),
        newer: true,
        clones: true,
        ..Rollback::default()
    };
    let rolled_back = bench
        .administrator
        .dataset_rollback(&call("zfs rollback"), request);
    assert_eq!(
        rolled_back.unwrap_err().to_string(),
        "cannot destroy snapshot tank/c@x: dataset is busy"
    );
    assert_eq!((names(&bench), bench.mounts()), before);
}

#[test]
fn a_clone_goes_before_its_origin_where_both_are_below() {
    let bench = Bench::new();
    for name in ["tank/a", "tank/a/b"] {
        bench.create(name, &[]).unwrap();
    }
    snapshot(&bench, &["tank/a/b@1"]);
    clone(&bench, "tank/a/b@1", "tank/a/c");
    snapshot(&bench, &["tank/a/c@2"]);
    assert_eq!(
        destroy(&bench, "-r", "tank/a").unwrap(),
        ["tank/a/c@2", "tank/a/c", "tank/a/b@1", "tank/a/b", "tank/a"]
    );
    assert_eq!(names(&bench), ["tank"]);
}

#[test]
fn destroying_all_of_a_pool_leaves_the_root() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    snapshot(&bench, &["tank@1", "tank/a@1", "tank@2"]);
    destroy(&bench, "-r", "tank").unwrap();
    assert_eq!(names(&bench), ["tank"]);
    assert_eq!(bench.mounted(), ["/tank"]);
    bench.write("/tank", "file", 100).unwrap();
    assert!(has_entry(&bench, "/tank", "file"));
}

#[test]
fn a_file_that_is_open_in_a_snapshot_of_the_root_keeps_all_of_a_pool() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    bench.write("/tank", "file", 100).unwrap();
    snapshot(&bench, &["tank@1", "tank/a@1", "tank@2"]);
    let (root, operation) = (Credentials::root(), Operation::unmeasured());
    let tree = bench.tree("/tank");
    let entered = tree.snapshot(b"1", &operation).unwrap();
    let entered = entered.files();
    let file = entered.lookup(&root, entered.root(), b"file", &operation);
    let file = file.unwrap().id;
    entered.opened(file, &operation).unwrap();
    let before = (names(&bench), bench.mounts());
    assert_eq!(
        refusal(&bench, "-r", "tank"),
        "cannot destroy snapshot tank@1: dataset is busy"
    );
    assert_eq!((names(&bench), bench.mounts()), before);
    assert!(!entered.is_ending());
    entered.closed(file, &operation).unwrap();
    destroy(&bench, "-r", "tank").unwrap();
    assert!(entered.is_ending());
    assert_eq!(names(&bench), ["tank"]);
}

#[test]
fn the_state_of_a_cut_receive_depends_on_its_file_system() {
    let bench = bench_with_remains();
    let before = names(&bench);
    assert_eq!(
        refusal(&bench, "", "tank/d/b"),
        "cannot destroy 'tank/d/b': filesystem has children\n\
         use '-r' to destroy the following datasets:\n\
         tank/d/b@one\ntank/d/b@x\ntank/d/b/%recv\ntank/d/b@y"
    );
    assert_eq!(names(&bench), before);
    assert_eq!(
        destroy(&bench, "-r", "tank/d/b").unwrap(),
        [
            "tank/d/b@one",
            "tank/d/b@x",
            "tank/d/b/%recv",
            "tank/d/b@y",
            "tank/d/b"
        ]
    );
    assert_only_source_is_left(&bench);
}

#[test]
fn the_state_of_a_cut_receive_is_destroyed_with_datasets_above() {
    for (options, name) in [("-R", "tank/d/b"), ("-r", "tank/d"), ("-R", "tank/d")] {
        let bench = bench_with_remains();
        destroy(&bench, options, name).unwrap();
        assert_only_source_is_left(&bench);
    }
}

#[test]
fn the_state_of_a_cut_receive_stays_where_a_snapshot_cannot_go() {
    let bench = bench_with_remains();
    bench
        .administrator
        .dataset_hold(&call("zfs hold"), hold("tank/d/b@one"))
        .unwrap();
    let before = (names(&bench), bench.mounts());
    let waits = token(&bench, "tank/d/b");
    assert!(waits.is_some());
    assert_eq!(
        refusal(&bench, "-r", "tank/d"),
        "cannot destroy snapshot tank/d/b@one: dataset is busy"
    );
    assert_eq!((names(&bench), bench.mounts()), before);
    assert_eq!(token(&bench, "tank/d/b"), waits);
}

#[test]
fn the_state_of_a_cut_increment_depends_on_its_base() {
    let bench = bench_with_remains();
    assert_eq!(
        refusal(&bench, "", "tank/d/b@y"),
        "cannot destroy 'tank/d/b@y': snapshot has dependent clones\n\
         use '-R' to destroy the following datasets:\ntank/d/b/%recv"
    );
    destroy(&bench, "-R", "tank/d/b@y").unwrap();
    assert!(!names(&bench).contains(&"tank/d/b@y".to_string()));
    assert_eq!(token(&bench, "tank/d/b"), None);
}

/// The partial state is no clone of a snapshot, and no listing shows it.
#[test]
fn the_state_of_a_cut_full_receive_is_destroyed_with_its_file_system() {
    for (options, name) in [("", "tank/d/b"), ("-r", "tank/d/b"), ("-r", "tank/d")] {
        let bench = bench_with_received();
        destroy(&bench, "", "tank/d/b@one").unwrap();
        let full = stream(&bench, "tank/s@one", None);
        let request = Receive {
            force: true,
            ..into("tank/d/b")
        };
        receive_half(&bench, request, &full);
        assert!(token(&bench, "tank/d/b").is_some());
        let gone = destroy(&bench, options, name).unwrap();
        assert_eq!(gone.first().unwrap(), "tank/d/b");
        assert_only_source_is_left(&bench);
    }
}

#[test]
fn a_partly_received_new_file_system_is_destroyed_by_its_name() {
    let bench = bench_with_received();
    let full = stream(&bench, "tank/s@one", None);
    receive_half(&bench, into("tank/d/new"), &full);
    destroy(&bench, "", "tank/d/new").unwrap();
    destroy(&bench, "-r", "tank/d/b").unwrap();
    assert_only_source_is_left(&bench);
}

#[test]
fn nothing_is_destroyed_while_an_increment_is_received() {
    let bench = bench_with_received();
    snapshot(&bench, &["tank/d/b@x"]);
    let increment = stream(&bench, "tank/s@two", Some("tank/s@one"));
    let before = (names(&bench), bench.mounts());
    while_receiving(&bench, into("tank/d/b"), &increment, || {
        for (options, name) in [("-r", "tank/d/b"), ("-R", "tank/d/b"), ("-r", "tank/d")] {
            assert_eq!(
                refusal(&bench, options, name),
                "cannot destroy 'tank/d/b/%recv': dataset is busy"
            );
        }
        assert_eq!(
            refusal(&bench, "-R", "tank/d/b@x"),
            "cannot destroy 'tank/d/b/%recv': dataset is busy"
        );
        assert_eq!((names(&bench), bench.mounts()), before);
    });
    assert!(has_entry(&bench, "/tank/d/b", "second"));
    destroy(&bench, "-r", "tank/d").unwrap();
    assert_only_source_is_left(&bench);
}

#[test]
fn nothing_is_destroyed_while_a_full_stream_replaces_a_file_system() {
    let bench = bench_with_received();
    destroy(&bench, "", "tank/d/b@one").unwrap();
    let full = stream(&bench, "tank/s@one", None);
    let request = Receive {
        force: true,
        ..into("tank/d/b")
    };
    let before = (names(&bench), bench.mounts());
    while_receiving(&bench, request, &full, || {
        for (options, name) in [("", "tank/d/b"), ("-r", "tank/d/b"), ("-r", "tank/d")] {
            assert_eq!(
                refusal(&bench, options, name),
                "cannot destroy 'tank/d/b': dataset is busy"
            );
        }
        assert_eq!((names(&bench), bench.mounts()), before);
    });
    destroy(&bench, "-r", "tank/d").unwrap();
    assert_only_source_is_left(&bench);
}

#[test]
fn nothing_is_destroyed_while_a_file_system_is_made_of_a_stream() {
    let bench = bench_with_received();
    snapshot(&bench, &["tank/d/b@x"]);
    let full = stream(&bench, "tank/s@two", None);
    while_receiving(&bench, into("tank/d/new"), &full, || {
        let before = (names(&bench), bench.mounts());
        for (options, name) in [("", "tank/d/new"), ("-r", "tank/d/new"), ("-r", "tank/d")] {
            assert_eq!(
                refusal(&bench, options, name),
                "cannot destroy 'tank/d/new': dataset is busy"
            );
        }
        assert_eq!((names(&bench), bench.mounts()), before);
    });
    assert!(has_entry(&bench, "/tank/d/new", "second"));
    destroy(&bench, "-r", "tank/d").unwrap();
    assert_only_source_is_left(&bench);
}

#[test]
fn a_clone_that_was_promoted_above_its_own_parent_is_a_child() {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    snapshot(&bench, &["tank/a@1"]);
    clone(&bench, "tank/a@1", "tank/a/b");
    let request = Promote {
        name: "tank/a/b".to_string(),
    };
    bench
        .administrator
        .dataset_promote(&call(""), request)
        .unwrap();
    assert_eq!(
        refusal(&bench, "", "tank/a"),
        "cannot destroy 'tank/a': filesystem has children\n\
         use '-r' to destroy the following datasets:\ntank/a/b@1\ntank/a/b"
    );
    assert_eq!(
        refusal(&bench, "", "tank/a/b"),
        "cannot destroy 'tank/a/b': filesystem has children\n\
         use '-r' to destroy the following datasets:\ntank/a/b@1"
    );
    let circle = "cannot determine dependent datasets: recursive dependency at 'tank/a'";
    assert_eq!(refusal(&bench, "-r", "tank/a"), circle);
}

/// Otherwise the stream would be received to its end before it could be refused.
#[test]
fn a_forced_receive_names_holds_and_clones_of_newer_snapshots_first() {
    let bench = bench_with_received();
    snapshot(&bench, &["tank/d/b@mine", "tank/d/b@held"]);
    clone(&bench, "tank/d/b@mine", "tank/c");
    bench
        .administrator
        .dataset_hold(&call("zfs hold"), hold("tank/d/b@held"))
        .unwrap();
    let increment = stream(&bench, "tank/s@two", Some("tank/s@one"));
    let request = || Receive {
        force: true,
        ..into("tank/d/b")
    };
    let before = names(&bench);
    let told = "cannot receive incremental stream: destination tank/d/b has snapshots that cannot be destroyed\n\
                'tank/d/b@mine' has the clone 'tank/c': destroy that ('zfs destroy -r tank/c'), or receive into another dataset\n\
                'tank/d/b@held' has the hold 'k': release that ('zfs release k tank/d/b@held')";
    let refused = receive(&bench, request(), &increment).unwrap_err();
    assert_eq!(refused.to_string(), told);
    // The first record is enough.
    let refused = receive(&bench, request(), &increment[..4096]).unwrap_err();
    assert_eq!(refused.to_string(), told);
    assert_eq!(names(&bench), before);
    destroy(&bench, "", "tank/c").unwrap();
    bench
        .administrator
        .dataset_release(&call("zfs release"), hold("tank/d/b@held"))
        .unwrap();
    receive(&bench, request(), &increment).unwrap();
    let mut left = names(&bench);
    left.retain(|name| name.starts_with("tank/d/b@"));
    assert_eq!(left, ["tank/d/b@one", "tank/d/b@two"]);
}

#[test]
fn a_clone_that_was_made_while_a_stream_came_is_named_at_its_end() {
    let bench = bench_with_received();
    snapshot(&bench, &["tank/d/b@mine"]);
    let increment = stream(&bench, "tank/s@two", Some("tank/s@one"));
    let request = Receive {
        force: true,
        ..into("tank/d/b")
    };
    let outcome = received_while(&bench, request, &increment, || {
        clone(&bench, "tank/d/b@mine", "tank/c");
    });
    assert_eq!(
        outcome.unwrap_err().to_string(),
        "cannot receive incremental stream: destination tank/d/b has snapshots that cannot be destroyed\n\
         'tank/d/b@mine' has the clone 'tank/c': destroy that ('zfs destroy -r tank/c'), or receive into another dataset"
    );
}
