//! What records of calls of NFS tell of them, asked for as `tarn analytics` does.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use support::Bench;
use support::client4::{Client4, Operations};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::analytics::{Query, When};
use tarn_engine::analytics::Analytics;
use tarn_engine::files::monotonic_ns;
use tarn_nfs::v3::procedure;
use tarn_nfs::xdr::Writer;

const NOENT: u32 = 2;
/// `OP_LOOKUP` of RFC 8881.
const LOOKUP: u32 = 15;
const OPTIONS: &str = "rw,no_root_squash,insecure";

/// The rings are those of the process: one test at a time drains them.
fn rings() -> MutexGuard<'static, ()> {
    static RINGS: Mutex<()> = Mutex::new(());
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server with the share `tank/a`, whose operations are kept.
fn bench() -> (Bench, Arc<Analytics>) {
    let bench = Bench::new();
    assert_eq!(bench.create("tank/a", &[("sharenfs", OPTIONS)]), [""; 0]);
    let analytics = Arc::new(Analytics::new(0));
    analytics.pass(monotonic_ns());
    bench.engine.answer_from(analytics.clone());
    (bench, analytics)
}

/// The operations of a statement by key.
fn counted(bench: &Bench, analytics: &Analytics, statement: &str) -> BTreeMap<String, u64> {
    analytics.pass(monotonic_ns());
    let when = When {
        last: Some(600.0),
        ..When::default()
    };
    let request = Query::of(statement, when);
    let answer = bench
        .administrator
        .analytics_query(&Call::default(), request);
    let answer = answer.unwrap();
    let groups = answer.groups.iter();
    groups
        .map(|group| (group.key.join(" "), group.sum))
        .collect()
}

#[test]
fn a_file_that_is_asked_for_and_not_there_is_known_by_its_path() {
    let _rings = rings();
    let (bench, analytics) = bench();
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    let home = client.make_directory(&root, "home", 0o755).unwrap();
    for _ in 0..3 {
        assert_eq!(client.lookup(&home, ".elinks"), Err(NOENT));
    }
    assert_eq!(client.remove(&home, "none"), Err(NOENT));
    // A rename to a name that is not there succeeds, and is about directories.
    client.create(&home, "old", 0o644).unwrap();
    client.rename((&home, "old"), (&home, "new")).unwrap();

    let mut newer = Client4::new(bench.client(), b"one");
    for _ in 0..2 {
        let looks_up = Operations::at(&home).with(LOOKUP, |out| {
            out.opaque(b".elinks");
        });
        assert_eq!(newer.status(&looks_up), NOENT);
    }

    let home = bench.path("tank/a/home");
    let missing = format!("{home}/.elinks (missing)");
    let by_file = counted(&bench, &analytics, "nfs.ops[op=lookup][file]");
    assert_eq!(by_file[&missing], 5);
    assert!(
        by_file.keys().all(|file| !file.contains("new")),
        "{by_file:?}"
    );
    let removed = counted(&bench, &analytics, "nfs.ops[op=remove][file]");
    let expected = (format!("{home}/none (missing)"), 1);
    assert_eq!(removed, BTreeMap::from([expected]));
    for file in [missing.clone(), format!("{home}/.elinks")] {
        let statement = format!("nfs.ops[file=\"{file}\"][version]");
        let by_version = counted(&bench, &analytics, &statement);
        let expected = [("nfs3".to_string(), 3), ("nfs4".to_string(), 2)];
        assert_eq!(by_version, BTreeMap::from(expected), "{file}");
    }

    // A file that has the name later is another one.
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    let folder = client.lookup(&root, "home").unwrap();
    let made = client.create(&folder, ".elinks", 0o644).unwrap();
    client.attributes(&made).unwrap();
    let of_file = format!("nfs.ops[file=\"{home}/.elinks\"][op]");
    let of_file = counted(&bench, &analytics, &of_file);
    assert_eq!(of_file, BTreeMap::from([("getattr".to_string(), 1)]));
    let of_missing = format!("nfs.ops[file=\"{missing}\"][op]");
    let of_missing = counted(&bench, &analytics, &of_missing);
    assert_eq!(of_missing, BTreeMap::from([("lookup".to_string(), 5)]));
}

/// A quoted value of a predicate, as the keys of answers are.
fn is(field: &str, key: &str) -> String {
    format!("[{field}=\"{key}\"]")
}

#[test]
fn four_questions_lead_from_a_busy_client_to_the_file_that_it_looks_for_in_vain() {
    let _rings = rings();
    let (bench, analytics) = bench();
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    let home = client.make_directory(&root, "home", 0o755).unwrap();
    for _ in 0..63 {
        assert_eq!(client.lookup(&home, ".elinks"), Err(NOENT));
    }
    // Each question is about the largest part of the answer before.
    let mut statement = "nfs.ops".to_owned();
    let mut found = Vec::new();
    for field in ["client", "op", "file"] {
        let question = format!("{statement}[{field}]");
        let by = counted(&bench, &analytics, &question);
        let (key, sum) = by.into_iter().max_by_key(|(_, sum)| *sum).unwrap();
        statement += &is(field, &key);
        found.push((key, sum));
    }
    let missing = format!("{}/home/.elinks (missing)", bench.path("tank/a"));
    // What it asks besides is less: its share was found, and a folder made.
    assert!((64..100).contains(&found[0].1), "{found:?}");
    assert_eq!(found[1].0, "lookup");
    assert_eq!(found[2], (missing, 63));
    // And how long each of them took.
    let when = When {
        last: Some(600.0),
        ..When::default()
    };
    let request = Query::of(&format!("{statement}:latency"), when);
    let answer = bench
        .administrator
        .analytics_query(&Call::default(), request);
    let cells = answer.unwrap().total.cells;
    assert_eq!(cells.chunks_exact(3).map(|cell| cell[2]).sum::<u64>(), 63);
}

#[test]
fn errors_are_told_by_name_for_both_versions() {
    let _rings = rings();
    let (bench, analytics) = bench();
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    let folder = client.make_directory(&root, "d", 0o755).unwrap();
    client.create(&folder, "f", 0o644).unwrap();
    client.create(&folder, "f", 0o644).unwrap_err();
    client.remove(&folder, "none").unwrap_err();
    client.lookup(&folder, &"x".repeat(256)).unwrap_err();
    let mut rmdir = Writer::new();
    rmdir.opaque(&root).opaque(b"d");
    client.ask(procedure::RMDIR, &rmdir).unwrap_err();
    let file = client.lookup(&folder, "f").unwrap();
    client.remove(&folder, "f").unwrap();
    client.attributes(&file).unwrap_err();

    let mut newer = Client4::new(bench.client(), b"one");
    let looks_up = |name: &[u8]| {
        Operations::at(&folder).with(LOOKUP, |out| {
            out.opaque(name);
        })
    };
    assert_eq!(newer.status(&looks_up(b"none")), NOENT);
    assert_ne!(newer.status(&looks_up(&[b'x'; 256])), 0);

    let errors = counted(&bench, &analytics, "nfs.ops[error!=none][version][error]");
    let expected = [
        ("nfs3 EEXIST", 1),
        ("nfs3 ENOENT", 1),
        ("nfs3 ENAMETOOLONG", 1),
        ("nfs3 ENOTEMPTY", 1),
        ("nfs3 ESTALE", 1),
        ("nfs4 ENOENT", 1),
        ("nfs4 ENAMETOOLONG", 1),
    ];
    let expected = expected.map(|(key, count)| (key.to_string(), count));
    assert_eq!(errors, BTreeMap::from(expected));
    // What answers a question is no failure.
    let failed = counted(&bench, &analytics, "nfs.ops[failed=yes][error]");
    assert!(!failed.contains_key("ENOENT") && !failed.contains_key("ESTALE"));
    assert_eq!(failed["ENOTEMPTY"], 1);
    let listed = counted(&bench, &analytics, "nfs.ops[status=EEXIST][op]");
    assert_eq!(listed, BTreeMap::from([("create".to_string(), 1)]));
}

#[test]
fn what_is_read_in_a_snapshot_is_counted_for_the_snapshot() {
    let _rings = rings();
    let (bench, analytics) = bench();
    bench.set("tank/a", "snapdir", "visible");
    let mut client = bench.client();
    let root = client.mount(&bench.path("tank/a")).unwrap();
    let file = client.create(&root, "f", 0o644).unwrap();
    client.write(&file, 0, b"contents", 2).unwrap();
    bench.snapshot("tank/a@s");
    let mut at = root;
    for name in [".zfs", "snapshot", "s", "f"] {
        at = client.lookup(&at, name).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(client.read(&at, 0, 8).unwrap().0, b"contents");
    }
    client.read(&file, 0, 8).unwrap();

    let read = counted(&bench, &analytics, "nfs.ops[op=read][dataset]");
    let expected = [("tank/a".to_string(), 1), ("tank/a@s".to_string(), 3)];
    assert_eq!(read, BTreeMap::from(expected));
    let path = |below: &str| format!("{}/{below}", bench.path("tank/a"));
    let by_file = counted(&bench, &analytics, "nfs.ops[op=read][file]");
    let expected = [(path("f"), 1), (path(".zfs/snapshot/s/f"), 3)];
    assert_eq!(by_file, BTreeMap::from(expected));
    let looked_up = counted(&bench, &analytics, "nfs.ops[op=lookup][file]");
    assert_eq!(
        (looked_up[&path(".zfs")], looked_up[&path(".zfs/snapshot")]),
        (1, 1)
    );
    let of_file = format!("nfs.ops[op=read][file=\"{}\"]", path(".zfs/snapshot/s/f"));
    let of_file = counted(&bench, &analytics, &(of_file + "[dataset]"));
    assert_eq!(of_file["tank/a@s"], 3);
}
