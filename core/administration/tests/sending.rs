//! Sending snapshots through the administration: sent, received, sent again; held against
//! destruction meanwhile, and released when the pool is exported by force.

mod support;

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use support::{Bench, call, owned};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    DatasetKind, Describe, Destroy, Inherit, MakeBookmark, MakeClone, Mount, ReadToken, Receive,
    Received, Rollback, Send, SendPlan, Series, Snapshot, Unmount, Upgrade,
};
use tarn_administration::messages::pool::Export;
use tarn_administration::messages::{Refusal, RefusalKind};
use tarn_engine::Pipe;
use tarn_engine::files::{Credentials, Operation};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::stream::Record;
use tarn_stream::reading::StreamReader;

const MIB: usize = 1 << 20;

fn snapshot(bench: &Bench, name: &str) {
    let request = Snapshot {
        names: vec![name.to_string()],
        properties: owned(&[("com.example:by", "hand")]),
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call("zfs snapshot"), request)
        .unwrap();
}

/// A call with a descriptor, and the caller's end of its line.
fn call_with(file: impl Into<std::os::fd::OwnedFd>) -> (Call, UnixStream) {
    let (line, callers) = UnixStream::pair().unwrap();
    let call = Call {
        pipe: Some(Pipe::new(file.into(), line.into()).unwrap()),
        ..call("")
    };
    (call, callers)
}

/// The stream of a request, through a file.
fn sent(bench: &Bench, request: &Send) -> Result<File, Refusal> {
    let mut file = tempfile::tempfile().unwrap();
    let (call, _line) = call_with(file.try_clone().unwrap());
    bench.administrator.dataset_send(&call, request.clone())?;
    file.rewind().unwrap();
    Ok(file)
}

fn receive(bench: &Bench, file: &File, target: &str) {
    let mut file = file.try_clone().unwrap();
    file.rewind().unwrap();
    let (call, _line) = call_with(file);
    let request = Receive {
        target: target.to_string(),
        no_mount: true,
        ..Receive::default()
    };
    bench.administrator.dataset_receive(&call, request).unwrap();
}

fn bytes_of(file: &File) -> Vec<u8> {
    let mut file = file.try_clone().unwrap();
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn of(name: &str, from: Option<&str>) -> Send {
    Send {
        name: name.to_string(),
        from: from.map(str::to_string),
        ..Send::default()
    }
}

fn plan(bench: &Bench, request: &Send) -> Result<SendPlan, Refusal> {
    bench
        .administrator
        .dataset_plan_send(&call(""), request.clone())
}

/// `tank/a` with two snapshots and a bookmark of the first.
fn bench_with_snapshots() -> Bench {
    let bench = Bench::new();
    bench
        .create("tank/a", &[("compression", "lz4"), ("recordsize", "1M")])
        .unwrap();
    bench.write("/tank/a", "large", 5 * MIB + 17).unwrap();
    bench.write("/tank/a", "small", 100).unwrap();
    snapshot(&bench, "tank/a@one");
    let mark = MakeBookmark {
        origin: "tank/a@one".to_string(),
        name: "tank/a#one".to_string(),
        ..MakeBookmark::default()
    };
    bench
        .administrator
        .dataset_bookmark(&call(""), mark)
        .unwrap();
    bench.write("/tank/a", "another", 3 * MIB).unwrap();
    snapshot(&bench, "tank/a@two");
    bench
}

/// The first object that has contents at this offset.
fn object_with(stream: &[u8], offset: u64) -> u64 {
    let mut reader = StreamReader::new(stream);
    reader.begin().unwrap().unwrap();
    loop {
        match reader.next().unwrap().record {
            Record::Write(write) if write.offset == offset => return write.object,
            Record::End(_) => panic!("nothing is at {offset}"),
            _ => {}
        }
    }
}

/// A stream after the name of its snapshot, without checksums, which cover that name.
fn without_name(bytes: &[u8]) -> Vec<u8> {
    const NAME: std::ops::Range<usize> = 56..312;
    let mut bytes = bytes.to_vec();
    bytes[NAME].fill(0);
    bytes
}

#[test]
fn an_increment_comes_though_others_are_mounted_on_its_target() {
    let bench = bench_with_snapshots();
    receive(
        &bench,
        &sent(&bench, &of("tank/a@one", None)).unwrap(),
        "tank/b",
    );
    let mount = Mount {
        name: Some("tank/b".to_string()),
        ..Mount::default()
    };
    bench.administrator.dataset_mount(&call(""), mount).unwrap();
    bench.create("tank/b/kid", &[]).unwrap();
    let before = bench.mounts();
    let increment = of("tank/a@two", Some("tank/a@one"));
    let stream = sent(&bench, &increment).unwrap();
    receive(&bench, &stream, "tank/b");
    assert_eq!(bench.mounts(), before);
    assert!(bench.mounted().contains(&"/tank/b/kid".to_string()));
}

#[test]
fn a_received_snapshot_is_sent_as_it_came() {
    let bench = bench_with_snapshots();
    let full = Send {
        compressed: true,
        large_blocks: true,
        embedded: true,
        ..of("tank/a@one", None)
    };
    let increment = Send {
        compressed: true,
        large_blocks: true,
        ..of("tank/a@two", Some("tank/a@one"))
    };
    let first = sent(&bench, &full).unwrap();
    receive(&bench, &first, "tank/b");
    receive(&bench, &sent(&bench, &increment).unwrap(), "tank/b");
    let again = Send {
        name: "tank/b@one".to_string(),
        ..full
    };
    let (first, again) = (bytes_of(&first), bytes_of(&sent(&bench, &again).unwrap()));
    assert_eq!(first.len(), again.len());
    // The second stream has the same contents in the same order; only the name and the checksums
    // after it differ.
    let (first, again) = (without_name(&first), without_name(&again));
    let same = first.iter().zip(&again).filter(|(one, other)| one == other);
    assert!(same.count() > first.len() - first.len() / 50);
}

#[test]
fn an_increment_from_a_bookmark_is_that_from_its_snapshot() {
    let bench = bench_with_snapshots();
    let from_snapshot = sent(&bench, &of("tank/a@two", Some("tank/a@one"))).unwrap();
    let from_bookmark = sent(&bench, &of("tank/a@two", Some("tank/a#one"))).unwrap();
    assert!(bytes_of(&from_snapshot) == bytes_of(&from_bookmark));
    let full = sent(&bench, &of("tank/a@two", None)).unwrap();
    assert!(bytes_of(&full).len() > bytes_of(&from_snapshot).len() + 5 * MIB);
}

/// A whole stream, and one resumed in its middle: from there on the records are the same.
#[test]
fn a_stream_goes_on_where_it_broke_off() {
    use tarn_administration::messages::dataset::ResumePoint;
    let bench = bench_with_snapshots();
    let whole = bytes_of(&sent(&bench, &of("tank/a@one", None)).unwrap());
    let offset = 3 * (1 << 20);
    let object = object_with(&whole, offset);
    let resumed = Send {
        resume: Some(ResumePoint {
            object,
            offset,
            bytes: offset,
        }),
        ..of("tank/a@one", None)
    };
    let rest = bytes_of(&sent(&bench, &resumed).unwrap());
    assert_eq!(object_with(&rest, offset), object);
    assert!(
        rest.len() < whole.len() - 2 * MIB,
        "{} of {}",
        rest.len(),
        whole.len()
    );
    let nowhere = Send {
        resume: Some(ResumePoint {
            object: 1 << 40,
            ..ResumePoint::default()
        }),
        ..of("tank/a@one", None)
    };
    assert!(sent(&bench, &nowhere).is_err());
}

#[test]
fn a_series_sends_parents_before_children() {
    let bench = bench_with_snapshots();
    bench.create("tank/a/b", &[]).unwrap();
    bench.create("tank/a/b/c", &[]).unwrap();
    let all = Snapshot {
        names: vec!["tank/a@three".to_string()],
        recursive: true,
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), all)
        .unwrap();
    let request = Send {
        series: Some(Series {
            replicate: true,
            all_between: true,
            ..Series::default()
        }),
        ..of("tank/a@three", None)
    };
    let planned = plan(&bench, &request).unwrap();
    let steps: Vec<(&str, Option<&str>)> = planned
        .steps
        .iter()
        .map(|step| (step.name.as_str(), step.from.as_deref()))
        .collect();
    assert_eq!(
        steps,
        [
            ("tank/a@one", None),
            ("tank/a@two", Some("one")),
            ("tank/a@three", Some("two")),
            ("tank/a/b@three", None),
            ("tank/a/b/c@three", None),
        ]
    );
    assert!(!planned.is_incomplete);
    let stream = sent(&bench, &request).unwrap();
    receive(&bench, &stream, "tank/copy");
    let names = bench.names();
    assert!(names.contains(&"tank/copy/b/c".to_string()), "{names:?}");
}

/// The clone waits for its origin, and the origin for its parent.
#[test]
fn a_clone_above_its_own_origin_is_sent() {
    let bench = Bench::new();
    let all_at = |name: &str| {
        let request = Snapshot {
            names: vec![name.to_string()],
            recursive: true,
            ..Snapshot::default()
        };
        bench
            .administrator
            .dataset_snapshot(&call(""), request)
            .unwrap();
    };
    for name in ["tank/t", "tank/t/a"] {
        bench.create(name, &[]).unwrap();
    }
    snapshot(&bench, "tank/t/a@x");
    let clone = MakeClone {
        origin: "tank/t/a@x".to_string(),
        name: "tank/t/c".to_string(),
        ..MakeClone::default()
    };
    bench.administrator.dataset_clone(&call(""), clone).unwrap();
    all_at("tank/t@one");
    bench.rename("tank/t/a", "tank/t/c/a").unwrap();
    all_at("tank/t@two");
    let request = |from| Send {
        series: Some(Series {
            replicate: true,
            all_between: true,
            ..Series::default()
        }),
        ..of("tank/t@two", from)
    };
    let increment = plan(&bench, &request(Some("tank/t@one"))).unwrap();
    let names: Vec<&str> = increment
        .steps
        .iter()
        .map(|step| step.name.as_str())
        .collect();
    assert_eq!(names, ["tank/t@two", "tank/t/c@two", "tank/t/c/a@two"]);
    assert!(!increment.is_incomplete);
    // A full stream cannot be created before the other is there.
    let whole = plan(&bench, &request(None)).unwrap();
    assert!(whole.is_incomplete);
    assert_eq!(
        whole.warnings,
        ["WARNING: could not send tank/t/c@two and what is below it: it is a clone of that"]
    );
}

#[test]
fn refusals_to_send_have_the_words_of_openzfs() {
    let bench = bench_with_snapshots();
    bench.create("tank/c", &[]).unwrap();
    snapshot(&bench, "tank/c@x");
    let said = |request: &Send| match sent(&bench, request) {
        Ok(_) => panic!("{request:?} is sent"),
        Err(refusal) => refusal.to_string(),
    };
    let not_earlier = "not an earlier snapshot from the same fs";
    for (name, from, expected) in [
        (
            "tank/a@no",
            None,
            "cannot open 'tank/a@no': dataset does not exist".to_string(),
        ),
        (
            "tank/a",
            None,
            "warning: cannot send 'tank/a': target is busy; if a filesystem, it must not be mounted"
                .to_string(),
        ),
        (
            "tank/a@one",
            Some("tank/a@two"),
            format!("warning: cannot send 'tank/a@one': {not_earlier}"),
        ),
        (
            "tank/a@two",
            Some("tank/c@x"),
            format!("warning: cannot send 'tank/a@two': {not_earlier}"),
        ),
        (
            "tank/a@two",
            Some("tank/a#no"),
            "warning: cannot send 'tank/a@two': incremental source (tank/a#no) does not exist"
                .to_string(),
        ),
    ] {
        assert_eq!(said(&of(name, from)), expected);
    }
    let no_pipe = bench
        .administrator
        .dataset_send(&call(""), of("tank/a@one", None))
        .unwrap_err();
    assert_eq!(no_pipe.kind, RefusalKind::Invalid);
}

/// The reader does not read: the sender waits at its pipe all the time.
#[test]
fn a_snapshot_is_busy_while_it_is_sent_until_a_forced_export() {
    let bench = bench_with_snapshots();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (call_of_sender, _line) = call_with(ours);
    let export = |force| {
        let request = Export {
            name: "tank".to_string(),
            force,
        };
        bench
            .administrator
            .pool_export(&call("zpool export"), request)
    };
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let request = of("tank/a@one", None);
            bench.administrator.dataset_send(&call_of_sender, request)
        });
        theirs.read_exact(&mut [0; 312]).unwrap();
        let destroy = Destroy {
            name: "tank/a@one".to_string(),
            ..Destroy::default()
        };
        let kept = bench
            .administrator
            .dataset_destroy(&call(""), destroy)
            .unwrap_err();
        assert_eq!(
            kept.to_string(),
            "cannot destroy snapshot tank/a@one: dataset is busy"
        );
        let busy = export(false).unwrap_err();
        assert_eq!(busy.to_string(), "cannot export 'tank': pool is busy");
        export(true).unwrap();
        let ended = sender.join().unwrap().unwrap_err();
        assert_eq!(ended.kind, RefusalKind::Busy);
    });
}

#[test]
fn a_file_system_is_not_upgraded_while_it_is_sent() {
    let bench = Bench::new();
    bench.create("tank/old", &[("version", "4")]).unwrap();
    bench.write("/tank/old", "large", 5 * MIB).unwrap();
    let unmount = Unmount {
        name: Some("tank/old".to_string()),
        ..Unmount::default()
    };
    bench
        .administrator
        .dataset_unmount(&call(""), unmount)
        .unwrap();
    let upgrade = || {
        let request = Upgrade {
            names: vec!["tank/old".to_string()],
            ..Upgrade::default()
        };
        let mut upgraded = bench
            .administrator
            .dataset_upgrade(&call(""), request)
            .unwrap();
        upgraded.refused.pop().map(|refusal| refusal.to_string())
    };
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (call_of_sender, line) = call_with(ours);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let request = of("tank/old", None);
            bench.administrator.dataset_send(&call_of_sender, request)
        });
        theirs.read_exact(&mut [0; 312]).unwrap();
        let busy = "cannot set property for 'tank/old': dataset is busy";
        assert_eq!(upgrade().as_deref(), Some(busy));
        let refused = bench.set("tank/old", &[("version", "5")]).unwrap_err();
        assert_eq!(refused.to_string(), busy);
        drop(line);
        assert!(sender.join().unwrap().is_err());
    });
    assert_eq!(upgrade(), None);
}

#[test]
fn a_file_system_stays_as_it_is_while_it_is_sent() {
    let bench = bench_with_snapshots();
    let unmount = Unmount {
        name: Some("tank/a".to_string()),
        ..Unmount::default()
    };
    bench
        .administrator
        .dataset_unmount(&call(""), unmount)
        .unwrap();
    let mount = || {
        let mount = Mount {
            name: Some("tank/a".to_string()),
            ..Mount::default()
        };
        bench.administrator.dataset_mount(&call(""), mount)
    };
    let roll_back = || {
        let request = Rollback {
            name: "tank/a@two".to_string(),
            ..Rollback::default()
        };
        bench.administrator.dataset_rollback(&call(""), request)
    };
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (call_of_sender, line) = call_with(ours);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            bench
                .administrator
                .dataset_send(&call_of_sender, of("tank/a", None))
        });
        theirs.read_exact(&mut [0; 312]).unwrap();
        let busy = mount().unwrap_err();
        assert_eq!(
            busy.to_string(),
            "cannot mount 'tank/a': mountpoint or dataset is busy"
        );
        let busy = roll_back().unwrap_err();
        assert_eq!(
            busy.to_string(),
            "cannot rollback 'tank/a': dataset is busy"
        );
        drop(line);
        assert!(sender.join().unwrap().is_err());
    });
    roll_back().unwrap();
    mount().unwrap();
}

#[test]
fn a_size_estimate_ends_with_its_caller() {
    let bench = bench_with_snapshots();
    let request = of("tank/a@two", Some("tank/a#one"));
    let call = call("");
    let sent = bytes_of(&sent(&bench, &request).unwrap()).len();
    let ask = || {
        bench
            .administrator
            .dataset_plan_send(&call, request.clone())
    };
    let told = ask().unwrap().steps[0].estimated_bytes.unwrap();
    assert!(told.abs_diff(u64::try_from(sent).unwrap()) < 64 << 10);
    call.presence.end();
    let refused = ask().unwrap_err().to_string();
    assert_eq!(
        refused,
        "warning: cannot send 'tank/a@two': the caller is gone"
    );
    bench.destroy("tank/a@two", false).unwrap();
}

/// A second thread asks for the size again and again.
#[test]
fn a_size_estimate_does_not_make_snapshots_busy() {
    let bench = bench_with_snapshots();
    bench.create("tank/b", &[]).unwrap();
    for number in 0..50 {
        snapshot(&bench, &format!("tank/b@{number}"));
    }
    let request = Send {
        series: Some(Series {
            all_between: true,
            ..Series::default()
        }),
        ..of("tank/b@x", Some("@0"))
    };
    let done = AtomicBool::new(false);
    let ask = || {
        while !done.load(Ordering::Relaxed) {
            if let Err(refused) = plan(&bench, &request) {
                assert_ne!(refused.reason, "dataset is busy");
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(ask);
        let outcomes: Vec<_> = (0..20)
            .map(|_| {
                snapshot(&bench, "tank/b@x");
                let planned = plan(&bench, &request);
                planned.and_then(|_| bench.destroy("tank/b@x", false))
            })
            .take_while(Result::is_ok)
            .collect();
        done.store(true, Ordering::Relaxed);
        assert_eq!(outcomes.len(), 20, "one was busy");
    });
}

#[test]
fn sending_ends_with_its_caller() {
    let bench = bench_with_snapshots();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (call_of_sender, line) = call_with(ours);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let request = of("tank/a@one", None);
            bench.administrator.dataset_send(&call_of_sender, request)
        });
        theirs.read_exact(&mut [0; 312]).unwrap();
        drop(line);
        assert!(sender.join().unwrap().is_err());
    });
    // The snapshot is not in use any more.
    assert_eq!(bench.destroy("tank/a@one", false).unwrap(), ["tank/a@one"]);
}

/// Sends a snapshot with its properties, and receives it with this request.
fn copied(bench: &Bench, snapshot: &str, request: Receive) -> Result<Received, Refusal> {
    let with_properties = Send {
        properties: true,
        ..of(snapshot, None)
    };
    let (call, _line) = call_with(sent(bench, &with_properties)?);
    bench.administrator.dataset_receive(&call, request)
}

fn into(target: &str) -> Receive {
    Receive {
        target: target.to_string(),
        no_mount: true,
        ..Receive::default()
    }
}

#[test]
fn excluded_properties_stay_received_and_are_inherited() {
    let bench = bench_with_snapshots();
    bench.set("tank/a", &[("compression", "gzip")]).unwrap();
    let request = Receive {
        excluded: vec!["compression".to_string()],
        properties: owned(&[("recordsize", "64K")]),
        ..into("tank/b")
    };
    copied(&bench, "tank/a@one", request).unwrap();
    assert_ne!(bench.text("tank/b", "compression"), "gzip");
    assert_eq!(bench.number("tank/b", "recordsize"), 64 << 10);
    // The received values are kept for `zfs inherit -S`, and are shown.
    let received = |property: &str| {
        let describe = Describe {
            names: vec!["tank/b".to_string()],
            depth: Some(0),
            kinds: vec![DatasetKind::Filesystem],
            properties: vec![property.to_string()],
            ..Describe::default()
        };
        let described = bench
            .administrator
            .dataset_describe(&call(""), describe)
            .unwrap();
        described.datasets[0].properties[property].received.clone()
    };
    assert_eq!(received("compression").as_deref(), Some("gzip"));
    assert_eq!(received("recordsize").as_deref(), Some("1048576"));
    assert_eq!(received("atime"), None);
    let back = |property: &str| {
        let request = Inherit {
            name: "tank/b".to_string(),
            property: property.to_string(),
            received: true,
            ..Inherit::default()
        };
        bench
            .administrator
            .dataset_inherit(&call(""), request)
            .unwrap();
    };
    back("compression");
    back("recordsize");
    assert_eq!(bench.text("tank/b", "compression"), "gzip");
    assert_eq!(bench.number("tank/b", "recordsize"), 1 << 20);
}

#[test]
fn a_snapshot_that_is_larger_than_a_later_refquota_is_received() {
    let bench = bench_with_snapshots();
    bench.set("tank/a", &[("refquota", "64M")]).unwrap();
    copied(&bench, "tank/a@two", into("tank/b")).unwrap();
    assert_eq!(bench.number("tank/b", "refquota"), 64 << 20);
    // The receiver's value is possible by now, and the snapshot's is not.
    bench.set("tank/a", &[("refquota", "none")]).unwrap();
    bench.unlink("/tank/a", "large");
    bench.unlink("/tank/a", "another");
    bench.sync();
    bench.sync();
    bench.set("tank/a", &[("refquota", "1M")]).unwrap();
    let received = copied(&bench, "tank/a@two", into("tank/c")).unwrap();
    let told = "cannot receive refquota property on tank/c: size is less than current used or reserved space";
    assert_eq!(received.warnings, [told]);
    assert_eq!(bench.number("tank/c", "refquota"), 0);
}

#[test]
fn a_received_reservation_that_does_not_fit_is_left_out_and_told() {
    let bench = bench_with_snapshots();
    bench.create("tank/small", &[("quota", "20M")]).unwrap();
    bench.set("tank/a", &[("reservation", "30M")]).unwrap();
    let received = copied(&bench, "tank/a@one", into("tank/small/b")).unwrap();
    let told =
        "cannot receive reservation property on tank/small/b: size is greater than available space";
    assert_eq!(received.warnings, [told]);
    assert_eq!(bench.number("tank/small/b", "reservation"), 0);
}

#[test]
fn a_token_that_says_too_much_is_refused() {
    let bench = Bench::new();
    // Some KiB in zlib; as text, with the name at each of its lists, 2 GiB.
    let list = NvList::new().with("n".repeat(256 << 10), vec![NvList::new(); 8 << 10]);
    let token = tarn_stream::token::encode(&list);
    let refused = bench
        .administrator
        .dataset_read_token(&call("zfs send -t"), ReadToken { token })
        .unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid);
    assert_eq!(
        refused.reason,
        "resume token is corrupt (its contents are too long)"
    );
}

/// A stream of the present state of a file system, not of a snapshot.
#[test]
fn a_cut_stream_of_a_head_goes_on_with_its_token() {
    let bench = bench_with_snapshots();
    let unmount = Unmount {
        name: Some("tank/a".to_string()),
        force: false,
    };
    bench
        .administrator
        .dataset_unmount(&call(""), unmount)
        .unwrap();
    let mut cut = sent(&bench, &of("tank/a", None)).unwrap();
    cut.set_len(cut.metadata().unwrap().len() / 2).unwrap();
    cut.rewind().unwrap();
    let request = Receive {
        resumable: true,
        ..into("tank/b")
    };
    let (call_of_half, _line) = call_with(cut);
    let refused = bench.administrator.dataset_receive(&call_of_half, request);
    let refused = refused.unwrap_err().to_string();
    let token = refused.rsplit("zfs send -t ").next().unwrap();
    let read = || {
        let token = token.to_string();
        let read = bench
            .administrator
            .dataset_read_token(&call(""), ReadToken { token });
        read.unwrap()
    };
    let rest = read().send.unwrap();
    assert_eq!(rest.name, "tank/a");
    receive(&bench, &sent(&bench, &rest).unwrap(), "tank/b");
    let mount = |name: &str| {
        let request = Mount {
            name: Some(name.to_string()),
            ..Mount::default()
        };
        bench
            .administrator
            .dataset_mount(&call(""), request)
            .unwrap();
    };
    mount("tank/a");
    // A mounted file system may change.
    let refused = sent(&bench, &rest).unwrap_err();
    assert!(refused.reason.contains("must not be mounted"), "{refused}");
    mount("tank/b");
    let size = |path: &str| {
        let tree = bench.tree(path);
        let (files, operation) = (tree.files(), Operation::unmeasured());
        let found = files.lookup(&Credentials::root(), files.root(), b"large", &operation);
        found.unwrap().size
    };
    assert_eq!(size("/tank/b"), size("/tank/a"));
}

#[test]
fn a_word_that_older_programs_do_not_know_is_sent_as_it_is() {
    let bench = bench_with_snapshots();
    bench.set("tank/a", &[("snapdir", "disabled")]).unwrap();
    bench
        .set("tank/a", &[("redundant_metadata", "none")])
        .unwrap();
    copied(&bench, "tank/a@one", into("tank/b")).unwrap();
    assert_eq!(bench.text("tank/b", "snapdir"), "disabled");
    assert_eq!(bench.text("tank/b", "redundant_metadata"), "none");
}
