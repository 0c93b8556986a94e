//! Packages of trees: what came is mounted when all of it is in.

mod support;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixStream;
use support::{Bench, call};
use tarn_engine::Pipe;
use tarn_engine::administration::{Administration, Call};
use tarn_engine::files::{Credentials, DeviceNumber, FileKind, NewFile, Operation};
use tarn_engine::messages::dataset::{
    DatasetKind, Describe, Receive, Received, Send, Series, Snapshot,
};
use tarn_engine::messages::{Refusal, Value};

/// Who calls; part of names that are only to be out of the way.
const PID: u32 = 77;

trait Commands {
    fn snapshot(&self, name: &str);
}

impl Commands for Bench {
    /// Of everything below, too.
    fn snapshot(&self, name: &str) {
        let request = Snapshot {
            names: vec![name.to_string()],
            recursive: true,
            ..Snapshot::default()
        };
        self.engine.dataset_snapshot(&call(""), request).unwrap();
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
    let sent = bench.engine.dataset_send(&call, request).unwrap();
    file.rewind().unwrap();
    (file, !sent.is_incomplete)
}

fn receive_as(bench: &Bench, file: File, request: Receive) -> Result<Received, Refusal> {
    let (call, _line) = call_with(file);
    bench.engine.dataset_receive(&call, request)
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

/// File systems by name, with the guid of each snapshot by its name, and the guid of what it is a clone of.
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
    let described = bench.engine.dataset_describe(&call(""), describe).unwrap();
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

/// The tree at the receiver is the one at the sender.
fn check(bench: &Bench) {
    assert_eq!(tree(bench, "tank/d"), tree(bench, "tank/s"));
}

/// `tank/s` with file systems below it, snapshot `1` of all, and that in `tank/d`.
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

/// A file that is open when its last name goes, and is so in every snapshot from then on.
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
fn a_package_mounts_what_it_makes_when_all_of_it_is_in() {
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
    // Where that goes was said by the sender, and not by who receives.
    for name in ["tank/d/off", "tank/d/own"] {
        assert!(!mounted.contains(&name.to_string()), "{mounted:?}");
    }
}

#[test]
fn increments_come_one_after_the_other_into_what_is_mounted() {
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
fn an_increment_of_a_tree_mounts_what_is_not() {
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
fn a_package_that_is_cut_leaves_what_it_made_unmounted() {
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
