//! Questions about operations, from front end to answer: an engine whose file systems are mounted
//! nowhere, and the operations of the control interface.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use support::{Bench, call};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::analytics::{
    Answer, Catalogue, Events, Instrument, List, Live, Operations, Order, Query, Remove, State,
    When,
};
use tarn_administration::messages::{Caller, Refusal, RefusalKind};
use tarn_engine::analytics::Analytics;
use tarn_engine::files::{
    ClientId, Credentials, FrontEnd, HolderId, ObjectId, Operation, OperationKind, Protocol, Tree,
    Who, add_client_alias, client_number, monotonic_ns,
};
use tarn_probe::{DatasetId, OperationRecord, What};

/// The rings are those of the process: one test at a time drains them.
fn rings() -> MutexGuard<'static, ()> {
    static RINGS: Mutex<()> = Mutex::new(());
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `tank/a` with files, and analytics whose passes a test makes.
fn bench(files: &[&str]) -> (Bench, Arc<Analytics>) {
    let bench = Bench::new();
    bench.create("tank/a", &[]).unwrap();
    for file in files {
        bench.write("/tank/a", file, 10_000).unwrap();
    }
    let analytics = Arc::new(Analytics::new(0));
    analytics.pass(monotonic_ns());
    bench.engine.answer_from(analytics.clone());
    (bench, analytics)
}

fn who(client: ClientId) -> Who {
    Who {
        client,
        protocol: Protocol::Nfs3,
        user: 4_000_123,
        holder: HolderId::NONE,
    }
}

fn id_of(tree: &dyn Tree, name: &str) -> ObjectId {
    let (files, operation) = (tree.files(), Operation::unmeasured());
    let found = files.lookup(
        &Credentials::root(),
        files.root(),
        name.as_bytes(),
        &operation,
    );
    found.unwrap().id
}

/// Reads a file as a front end does, so many times.
fn read(tree: &dyn Tree, client: ClientId, name: &str, times: u64) {
    let id = id_of(tree, name);
    for _ in 0..times {
        let operation = tree.begin(who(client), OperationKind::Read, id, (4096, 1000));
        let read = tree
            .files()
            .read(&Credentials::root(), id, 4096, 1000, &operation);
        assert_eq!(read.unwrap().len(), 1000);
        tree.finish(operation);
    }
}

fn recent() -> When {
    When {
        last: Some(600.0),
        ..When::default()
    }
}

fn query(bench: &Bench, statement: &str) -> Result<Answer, Refusal> {
    let request = Query::of(statement, recent());
    bench.administrator.analytics_query(&call(""), request)
}

/// The sums by key; they and the rest are the total, column by column.
fn sums(answer: &Answer) -> BTreeMap<String, u64> {
    for column in 0..answer.total.sums.len() {
        let groups = answer.groups.iter().map(|group| &group.series);
        let parts = groups.chain([&answer.other]);
        let sum: u64 = parts.map(|series| series.sums[column]).sum();
        assert_eq!(sum, answer.total.sums[column]);
    }
    let group = |group: &tarn_administration::messages::analytics::Group| {
        assert_eq!(group.series.sums.iter().sum::<u64>(), group.sum);
        (group.key.join(" "), group.sum)
    };
    answer.groups.iter().map(group).collect()
}

#[test]
fn operations_are_found_by_client_file_and_latency_and_their_sums_are_what_was_done() {
    let _rings = rings();
    let (bench, analytics) = bench(&["busy", "idle", "a b"]);
    let tree = bench.tree("/tank/a");
    let kiowa = client_number(FrontEnd::Nfs, "192.0.2.1");
    let other = client_number(FrontEnd::Nfs, "192.0.2.2");
    add_client_alias(kiowa, "kiowa");
    read(&*tree, kiowa, "busy", 40);
    read(&*tree, kiowa, "idle", 2);
    read(&*tree, other, "a b", 5);
    analytics.pass(monotonic_ns());

    let path = |name: &str| format!("{}/tank/a/{name}", bench.root());
    let by_file = query(&bench, "nfs.ops[op=read][file]:latency").unwrap();
    let expected = [("busy", 40), ("idle", 2), ("a b", 5)];
    let expected = expected.map(|(name, count)| (path(name), count));
    assert_eq!(sums(&by_file), BTreeMap::from(expected));
    let cells = by_file.total.cells.chunks(3).map(|cell| cell[2]);
    assert_eq!(cells.sum::<u64>(), 47);
    assert_eq!(
        by_file.title,
        "NFS operations per second, reads, by file, by latency"
    );

    let by_client = query(&bench, "nfs.bytes[client]").unwrap();
    let expected = [("192.0.2.2", 5000), ("kiowa (192.0.2.1)", 42_000)];
    let expected = expected.map(|(name, bytes)| (name.to_string(), bytes));
    assert_eq!(sums(&by_client), BTreeMap::from(expected));
    for client in [
        "kiowa",
        "192.0.2.1",
        "\"kiowa (192.0.2.1)\"",
        &format!("#{}", kiowa.0),
    ] {
        let of_client = query(&bench, &format!("nfs.ops[client={client}]")).unwrap();
        assert_eq!(of_client.total.sums.iter().sum::<u64>(), 42, "{client}");
    }

    // Found by its path before it was ever shown, by the path of another dataset's notation, too.
    for file in [path("a b"), "tank/a:/a b".to_string()] {
        let of_file = query(&bench, &format!("nfs.ops[file=\"{file}\"]"));
        assert_eq!(of_file.unwrap().total.sums.iter().sum::<u64>(), 5);
    }
    assert_eq!(
        sums(&query(&bench, "nfs.ops[dataset]").unwrap())["tank/a"],
        47
    );
    let none = query(&bench, "nfs.ops[latency>1h]");
    assert!(none.is_err(), "hours are no unit of predicates");
    let slow = query(&bench, "nfs.ops[latency>100s]").unwrap();
    assert_eq!(slow.total.sums.iter().sum::<u64>(), 0);
}

#[test]
fn files_that_are_renamed_or_gone_are_found_by_the_names_that_they_have() {
    let _rings = rings();
    let (bench, analytics) = bench(&["old", "gone", "unseen"]);
    let tree = bench.tree("/tank/a");
    let client = client_number(FrontEnd::Nfs, "192.0.2.3");
    ["old", "gone", "unseen"]
        .iter()
        .for_each(|name| read(&*tree, client, name, 3));
    let unseen = id_of(&*tree, "unseen");
    analytics.pass(monotonic_ns());
    let path = |name: &str| format!("{}/tank/a/{name}", bench.root());
    let shown = query(
        &bench,
        &format!("nfs.ops[client=192.0.2.3][file=\"{}\"][file]", path("gone")),
    );
    assert_eq!(sums(&shown.unwrap())[&path("gone")], 3);

    let (files, root, operation) = (tree.files(), Credentials::root(), Operation::unmeasured());
    for name in ["gone", "unseen"] {
        files
            .unlink(&root, files.root(), name.as_bytes(), &operation)
            .unwrap();
    }
    let mode = tarn_engine::files::RenameMode::Replace;
    let folder = files.root();
    files
        .rename(&root, folder, b"old", folder, b"new", mode, &operation)
        .unwrap();

    let now = sums(&query(&bench, "nfs.ops[client=192.0.2.3][file]").unwrap());
    let gone = path("gone") + " (deleted)";
    assert_eq!((now[&path("new")], now[&gone]), (3, 3));
    let number = now.keys().find(|name| name.starts_with('#')).unwrap();
    assert!(number.ends_with(&format!(":{}", unseen.get())), "{number}");
    for name in [gone.as_str(), number, &path("new")] {
        let of_file = query(&bench, &format!("nfs.ops[file=\"{name}\"]")).unwrap();
        assert_eq!(of_file.total.sums.iter().sum::<u64>(), 3, "{name}");
    }
}

#[test]
fn operations_are_listed_with_a_story_that_adds_up() {
    let _rings = rings();
    let (bench, analytics) = bench(&["file"]);
    let tree = bench.tree("/tank/a");
    let client = client_number(FrontEnd::Nfs, "192.0.2.4");
    read(&*tree, client, "file", 7);
    analytics.pass(monotonic_ns());
    let request = Operations {
        statement: "nfs.ops[client=192.0.2.4]".to_string(),
        filter: Some(serde_json::json!({ "eq": ["op", "read"] })),
        when: When::default(),
        order: Order::Slowest,
        limit: 3,
        with_stages: false,
    };
    let list = bench
        .administrator
        .analytics_operations(&call(""), request.clone());
    let list = list.unwrap();
    assert_eq!((&list.stages_ns, list.unaccounted_ns), (&None, None));
    // The sums of all seven are those that are told one by one.
    let all = Operations {
        limit: 7,
        with_stages: true,
        ..request
    };
    let all = bench
        .administrator
        .analytics_operations(&call(""), all)
        .unwrap();
    let mut stages_ns = BTreeMap::<String, u64>::new();
    for (stage, time_ns) in all.operations.iter().flat_map(|told| &told.stages) {
        *stages_ns.entry(stage.clone()).or_default() += time_ns;
    }
    let unaccounted_ns = all.operations.iter().map(|told| told.unaccounted_ns).sum();
    assert_eq!(
        (all.stages_ns, all.unaccounted_ns),
        (Some(stages_ns), Some(unaccounted_ns))
    );
    assert!(all.wait_ns > 0);
    assert_eq!((list.count, list.operations.len()), (7, 3));
    assert!(
        list.operations
            .is_sorted_by(|a, b| a.latency_ns >= b.latency_ns)
    );
    assert_eq!(list.percentiles.max, list.operations[0].latency_ns);
    for told in &list.operations {
        let stages: u64 = told.stages.values().sum();
        assert!(stages + told.unaccounted_ns >= told.latency_ns);
        assert_eq!(
            (told.protocol.as_str(), told.operation.as_str()),
            ("nfs3", "read")
        );
        assert_eq!((told.offset, told.size), (4096, 1000));
        assert_eq!(
            (told.client.as_str(), told.user.as_str()),
            ("192.0.2.4", "4000123")
        );
        assert_eq!(told.dataset, "tank/a");
        let path = format!("{}/tank/a/file", bench.root());
        assert_eq!(told.file.as_deref(), Some(path.as_str()));
    }
    let now = bench.engine.host.unix_time();
    let ended_s = list.operations[0].ended_ms / 1000.0;
    assert!((ended_s - now.seconds as f64).abs() < 600.0);
}

#[test]
fn instrumentations_count_what_comes_after_them() {
    let _rings = rings();
    let (bench, analytics) = bench(&["file"]);
    let tree = bench.tree("/tank/a");
    let client = client_number(FrontEnd::Nfs, "192.0.2.5");
    read(&*tree, client, "file", 3);
    analytics.pass(monotonic_ns());
    let administrator = &bench.administrator;
    let request = Instrument {
        statement: "nfs.ops[client=192.0.2.5][file]:size".to_string(),
        filter: None,
        keys: 5,
    };
    let id = administrator
        .analytics_instrument(&call(""), request)
        .unwrap()
        .id;
    read(&*tree, client, "file", 4);
    analytics.pass(monotonic_ns());
    let live = Live { id, from: None };
    let counted = administrator.analytics_live(&call(""), live).unwrap();
    let path = format!("{}/tank/a/file", bench.root());
    assert_eq!(sums(&counted), BTreeMap::from([(path, 4)]));
    assert_eq!(counted.buckets.len(), 1);
    assert!(counted.buckets[0][0] <= 1000 && counted.buckets[0][1] > 1000);
    // The open second may become more, or was not looked at yet.
    assert_ne!(counted.states.last(), Some(&2));
    let listed = administrator.analytics_list(&call(""), List {}).unwrap();
    assert_eq!(listed.live[0].statement, counted.statement);
    administrator
        .analytics_remove(&call(""), Remove { id })
        .unwrap();
    let gone = administrator.analytics_live(&call(""), live).unwrap_err();
    assert_eq!(gone.kind, RefusalKind::NotFound);
}

#[test]
fn what_cannot_be_answered_is_refused_with_place_and_cure() {
    let _rings = rings();
    let (bench, _) = bench(&[]);
    for (statement, why) in [
        ("nfs.ops[colour]", "at byte 8: no field is called"),
        ("smb.ops", "no statistic is called"),
        ("nfs.ops[file=/nowhere]", "file has no value"),
        ("cpu.utilization[cpu]", "started with --archive off"),
        ("cpu.utilization[wheel]", "no field is called"),
    ] {
        let refused = query(&bench, statement).unwrap_err().to_string();
        assert!(refused.contains(why), "{statement}: {refused}");
    }
    let mut request = Query::of("all.ops", recent());
    request.filter = Some(serde_json::json!({ "eq": ["colour", "red"] }));
    let refused = bench.administrator.analytics_query(&call(""), request);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("no field is called")
    );
    let mut request = Query::of("all.ops[client]", recent());
    request.column_ms = 1;
    let refused = bench.administrator.analytics_query(&call(""), request);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("take wider columns")
    );
}

/// A column of the picture is a column of the heat map, a row is one of its buckets.
const PICTURE: [&str; 7] = [
    "#####..###..####..#...#",
    "..#...#...#.#...#.##..#",
    "..#...#...#.#...#.##..#",
    "..#...#####.####..#.#.#",
    "..#...#...#.#.#...#..##",
    "..#...#...#.#..#..#..##",
    "..#...#...#.#...#.#...#",
];

/// Operations that draw a known picture come out as that picture, as the control interface and what
/// is exported from it have it: cells by buckets, in columns of the time of day.
#[test]
fn a_known_bitmap_comes_out_as_that_picture() {
    const FIRST_S: u64 = 50;
    let _rings = rings();
    let (bench, analytics) = bench(&[]);
    let painter = client_number(FrontEnd::Nfs, "192.0.2.77");
    let host = &bench.engine.host;
    let unix_s = u64::try_from(host.unix_time().seconds).unwrap();
    let first_s = unix_s - FIRST_S;
    // The rows are an octave apart, from 64 us on.
    let latency_ns = |row: usize| (64 << (6 - row)) * 1024;
    let ahead_s = unix_s - host.monotonic_ns() / 1_000_000_000;
    let mut records = Vec::new();
    for (column, _) in PICTURE[0].bytes().enumerate() {
        let drawn = (0..7).filter(|row| PICTURE[*row].as_bytes()[column] == b'#');
        for row in drawn {
            let second = first_s + u64::try_from(column).unwrap() - ahead_s;
            let what = What::plain(OperationKind::Read, DatasetId::NONE, 0);
            let ended_ns = second * 1_000_000_000;
            let started_ns = ended_ns - latency_ns(row);
            let latency_ns = latency_ns(row);
            let who = who(painter);
            records.push(OperationRecord::new(
                started_ns, latency_ns, &who, &what, 0, &[0; 9],
            ));
        }
    }
    analytics.take(&records);
    let when = When {
        from: Some(Duration::from_secs(first_s - 2).as_secs_f64()),
        until: Some(Duration::from_secs(first_s + 25).as_secs_f64()),
        last: None,
    };
    let request = Query::of("nfs.ops[client=192.0.2.77]:latency", when);
    let answer = bench
        .administrator
        .analytics_query(&call(""), request)
        .unwrap();
    assert_eq!((answer.columns, answer.buckets.len()), (27, 7));
    let mut drawn = vec![vec![b'.'; 27]; 7];
    for cell in answer.total.cells.chunks(3) {
        let [column, bucket] = [cell[0], cell[1]].map(|at| usize::try_from(at).unwrap());
        assert_eq!(cell[2], 1);
        assert!(answer.buckets[bucket][0] <= latency_ns(6 - bucket));
        assert!(answer.buckets[bucket][1] > latency_ns(6 - bucket));
        drawn[6 - bucket][column] = b'#';
    }
    let drawn: Vec<String> = drawn
        .into_iter()
        .map(|row| String::from_utf8(row).unwrap())
        .collect();
    // The clocks are not at the beginning of a second together: a column more or less on the left.
    let left = drawn[0].find('#').unwrap();
    assert!((1..=3).contains(&left), "{drawn:?}");
    for (row, picture) in drawn.iter().zip(PICTURE) {
        assert_eq!(&row[left..left + picture.len()], picture);
    }
}

#[test]
fn what_happened_to_a_pool_is_told_with_its_time() {
    let _rings = rings();
    let (bench, _) = bench(&["file"]);
    let snapshot = tarn_administration::messages::dataset::Snapshot {
        names: vec!["tank/a@s".to_string()],
        ..Default::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), snapshot)
        .unwrap();
    let events = Events { when: recent() };
    let happened = bench
        .administrator
        .analytics_events(&call(""), events)
        .unwrap()
        .events;
    let of = |kind: &str| -> Vec<_> {
        let of_kind = happened
            .iter()
            .filter(|event| event.kind == kind && event.pool == "tank");
        of_kind.collect()
    };
    assert!(
        of("snapshot").iter().any(|event| event.text == "tank/a@s"),
        "{happened:?}"
    );
    assert!(
        of("import").iter().any(|event| event.text == "created"),
        "{happened:?}"
    );
    let txgs = of("txg");
    assert!(!txgs.is_empty());
    assert!(txgs.iter().all(|event| event.until_ms >= Some(event.at_ms)));
    assert!(happened.is_sorted_by_key(|event| event.at_ms));
    let before = Events {
        when: When {
            from: Some(1.0),
            until: Some(2.0),
            last: None,
        },
    };
    let none = bench
        .administrator
        .analytics_events(&call(""), before)
        .unwrap();
    assert!(none.events.is_empty());
}

#[test]
fn names_are_for_root_and_the_daemons_user_and_the_state_is_for_all() {
    let _rings = rings();
    let (bench, _) = bench(&[]);
    let stranger = Call {
        caller: Caller {
            uid: 4_000_999,
            ..Caller::default()
        },
        ..Call::default()
    };
    let administrator = &bench.administrator;
    let refused = administrator.analytics_query(&stranger, Query::of("all.ops", recent()));
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Denied);
    assert!(
        refused.to_string().contains("they name clients"),
        "{refused}"
    );
    assert!(administrator.analytics_list(&stranger, List {}).is_err());
    let state = administrator.analytics_state(&stranger, State {}).unwrap();
    assert!(state.is_on && state.budget_bytes > 0);
    let known = administrator
        .analytics_catalogue(&stranger, Catalogue {})
        .unwrap();
    let nfs = known
        .statistics
        .iter()
        .find(|one| one.name == "nfs.ops")
        .unwrap();
    assert!(nfs.fields.contains(&"client".to_string()));

    let off = Bench::new();
    let state = off
        .administrator
        .analytics_state(&stranger, State {})
        .unwrap();
    assert!(!state.is_on);
    let refused = query(&off, "all.ops").unwrap_err();
    assert!(refused.to_string().contains("--analytics off"), "{refused}");
}
