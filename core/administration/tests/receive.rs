//! Receiving streams that are made up here: correct ones are received, others are refused and
//! change nothing.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use support::{Bench, call, owned};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    AbortReceive, DatasetKind, Describe, Receive, ReceiveEvent, ReceiveNames, Received, Send,
    Snapshot,
};
use tarn_administration::messages::{Refusal, RefusalKind};
use tarn_host::Pipe;
use tarn_ondisk::stream::{
    Begin, FreeObjects, FreeRecord, MAGIC, ObjectRecord, RECORD_BYTES, Record, SpillRecord,
    StreamFeatures, StreamKind, StreamName, WriteEmbedded, WriteRecord,
};
use tarn_stream::writing::StreamWriter;

/// Stored codes of object types.
const VOLUME_DATA: u32 = 23;
const VOLUME_PROPERTIES: u32 = 24;

const BLOCK: u32 = 8192;
const BLOCKS: u64 = 64;

/// How a stream differs from the usual.
#[derive(Clone)]
struct Stream {
    to: &'static str,
    guid: u64,
    from: u64,
    features: StreamFeatures,
    records: Vec<(Record, Vec<u8>)>,
}

/// A volume with contents that begin with this byte.
fn volume(to: &'static str, guid: u64, from: u64, first: u8) -> Stream {
    let mut records = vec![
        object(1, VOLUME_DATA, BLOCK),
        object(2, VOLUME_PROPERTIES, 512),
    ];
    let blocks = if from == 0 { BLOCKS } else { BLOCKS / 4 };
    records.insert(1, free(1, BLOCKS * u64::from(BLOCK)));
    let contents = |block: u64| {
        let byte = first.wrapping_add(u8::try_from(block).unwrap());
        vec![byte; usize::try_from(BLOCK).unwrap()]
    };
    for block in 0..blocks {
        let at = usize::try_from(block).unwrap() + 2;
        records.insert(at, write(1, block * u64::from(BLOCK), contents(block)));
    }
    records.push(write(2, 0, properties()));
    Stream {
        to,
        guid,
        from,
        features: StreamFeatures::SPILL,
        records,
    }
}

/// A micro ZAP with the size of the volume.
fn properties() -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..8].copy_from_slice(&0x8000_0000_0000_0003_u64.to_le_bytes());
    bytes[8..16].copy_from_slice(&0x1234_5679_u64.to_le_bytes());
    bytes[64..72].copy_from_slice(&(BLOCKS * u64::from(BLOCK)).to_le_bytes());
    bytes[78..82].copy_from_slice(b"size");
    bytes
}

fn object(object: u64, object_type: u32, block_size: u32) -> (Record, Vec<u8>) {
    let record = ObjectRecord {
        object,
        object_type,
        block_size,
        slots: 1,
        ..ObjectRecord::default()
    };
    (Record::Object(record), Vec::new())
}

fn write(object: u64, offset: u64, contents: Vec<u8>) -> (Record, Vec<u8>) {
    let record = WriteRecord {
        object,
        object_type: if object == 1 {
            VOLUME_DATA
        } else {
            VOLUME_PROPERTIES
        },
        offset,
        logical_size: u64::try_from(contents.len()).unwrap(),
        ..WriteRecord::default()
    };
    (Record::Write(record), contents)
}

fn free(object: u64, offset: u64) -> (Record, Vec<u8>) {
    let record = FreeRecord {
        object,
        offset,
        length: u64::MAX,
        ..FreeRecord::default()
    };
    (Record::Free(record), Vec::new())
}

impl Stream {
    fn bytes(&self) -> Vec<u8> {
        let begin = Begin {
            magic: MAGIC,
            version: Begin::version_of(StreamKind::Single, self.features),
            creation_time_s: 1_700_000_000,
            objset_type: 3,
            flags: 0xc,
            to_guid: self.guid,
            from_guid: self.from,
            to_name: StreamName::new(self.to).unwrap(),
        };
        let mut writer = StreamWriter::new(Vec::new());
        let begin = Record::Begin {
            begin: Box::new(begin),
            payload_bytes: 0,
        };
        writer.write(&begin, &[]).unwrap();
        for (record, payload) in &self.records {
            writer.write(record, payload).unwrap();
        }
        writer.finish(self.guid).unwrap()
    }

    /// With one more record, before the last.
    fn with(&self, record: (Record, Vec<u8>)) -> Stream {
        let mut changed = self.clone();
        let at = changed.records.len() - 1;
        changed.records.insert(at, record);
        changed
    }
}

/// A call whose descriptor gives these bytes.
fn giving(bytes: Vec<u8>) -> (Call, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (line, kept) = UnixStream::pair().unwrap();
    let pipe = Pipe::new(ours.into(), line.into()).unwrap();
    std::thread::spawn(move || {
        // A refused stream is not read to its end.
        let _ = theirs.write_all(&bytes);
    });
    let call = Call {
        pipe: Some(pipe),
        ..call("zfs receive")
    };
    (call, kept)
}

fn receive_as(bench: &Bench, request: Receive, bytes: Vec<u8>) -> Result<Received, Refusal> {
    let (call, _line) = giving(bytes);
    bench.administrator.dataset_receive(&call, request)
}

fn receive(bench: &Bench, target: &str, stream: &Stream) -> Result<Received, Refusal> {
    let request = Receive {
        target: target.to_string(),
        ..Receive::default()
    };
    receive_as(bench, request, stream.bytes())
}

fn refusal(bench: &Bench, target: &str, stream: &Stream) -> String {
    receive(bench, target, stream).unwrap_err().to_string()
}

/// Names and guids of all datasets.
fn listing(bench: &Bench) -> Vec<String> {
    let describe = Describe {
        kinds: vec![
            DatasetKind::Filesystem,
            DatasetKind::Volume,
            DatasetKind::Snapshot,
        ],
        properties: vec!["guid".to_string(), "volsize".to_string()],
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(&call(""), describe)
        .unwrap();
    let mut all: Vec<String> = described
        .datasets
        .iter()
        .map(|one| format!("{} {:?}", one.name, one.properties))
        .collect();
    all.sort();
    all
}

fn names(bench: &Bench) -> Vec<String> {
    let of = |line: String| line.split(' ').next().unwrap().to_string();
    listing(bench).into_iter().map(of).collect()
}

#[test]
fn a_full_stream_makes_a_volume_and_an_increment_its_next_snapshot() {
    let bench = Bench::new();
    let full = volume("far/v@one", 1, 0, 0);
    let received = receive(&bench, "tank/v", &full).unwrap();
    let after_first_record = u64::try_from(full.bytes().len() - RECORD_BYTES).unwrap();
    assert!(matches!(
        &received.events[..],
        [ReceiveEvent::Receiving { sent, snapshot, incremental: false, .. }, ReceiveEvent::Received { bytes, .. }]
            if sent == "far/v@one" && snapshot == "tank/v@one"
                && *bytes == after_first_record
    ));
    receive(&bench, "tank/v", &volume("far/v@two", 2, 1, 100)).unwrap();
    assert_eq!(
        names(&bench),
        ["tank", "tank/v", "tank/v@one", "tank/v@two"]
    );
}

#[test]
fn an_increment_needs_its_base_snapshot() {
    let bench = Bench::new();
    let increment = volume("far/v@two", 2, 1, 100);
    assert_eq!(
        refusal(&bench, "tank/v", &increment),
        "cannot receive incremental stream: destination 'tank/v' does not exist"
    );
    receive(&bench, "tank/v", &volume("far/v@other", 9, 0, 0)).unwrap();
    let before = listing(&bench);
    assert_eq!(
        refusal(&bench, "tank/v", &increment),
        "cannot receive incremental stream: most recent snapshot of tank/v does not\nmatch incremental source"
    );
    assert_eq!(
        refusal(&bench, "tank/v", &volume("far/v@three", 3, 0, 0)),
        "cannot receive new filesystem stream: destination 'tank/v' exists\nmust specify -F to overwrite it"
    );
    assert_eq!(listing(&bench), before);
}

#[test]
fn newer_snapshots_go_only_by_force() {
    let bench = Bench::new();
    receive(&bench, "tank/v", &volume("far/v@one", 1, 0, 0)).unwrap();
    receive(&bench, "tank/v", &volume("far/v@x", 5, 1, 50)).unwrap();
    let increment = volume("far/v@two", 2, 1, 100);
    assert_eq!(
        refusal(&bench, "tank/v", &increment),
        "cannot receive incremental stream: destination tank/v has been modified\nsince most recent snapshot"
    );
    let request = Receive {
        target: "tank/v".to_string(),
        force: true,
        ..Receive::default()
    };
    receive_as(&bench, request, increment.bytes()).unwrap();
    assert_eq!(
        names(&bench),
        ["tank", "tank/v", "tank/v@one", "tank/v@two"]
    );
}

#[test]
fn malformed_records_are_refused_and_nothing_stays() {
    let bench = Bench::new();
    receive(&bench, "tank/v", &volume("far/v@one", 1, 0, 0)).unwrap();
    let before = listing(&bench);
    let new = volume("far/w@one", 7, 0, 0);
    let next = volume("far/v@two", 2, 1, 100);
    let size = usize::try_from(BLOCK).unwrap();
    let large = object(9, VOLUME_DATA, 1 << 20);
    let odd = object(9, VOLUME_DATA, 1000);
    let unknown = object(9, 54, BLOCK);
    let beyond = object(1 << 48, VOLUME_DATA, BLOCK);
    let many_slots = {
        let record = ObjectRecord {
            object: 32,
            object_type: VOLUME_DATA,
            block_size: BLOCK,
            slots: 4,
            ..ObjectRecord::default()
        };
        (Record::Object(record), Vec::new())
    };
    let spill = {
        let record = SpillRecord {
            object: 1,
            length: 700,
            ..SpillRecord::default()
        };
        (Record::Spill(record), vec![0; 700])
    };
    let embedded = {
        let record = WriteEmbedded {
            object: 1,
            offset: BLOCKS * u64::from(BLOCK),
            length: u64::from(BLOCK),
            compression: 15,
            logical_size: BLOCK,
            physical_size: 16,
            ..WriteEmbedded::default()
        };
        (Record::WriteEmbedded(record), vec![0xff; 16])
    };
    let compressed = {
        let record = WriteRecord {
            object: 1,
            object_type: VOLUME_DATA,
            offset: BLOCKS * u64::from(BLOCK),
            logical_size: u64::from(BLOCK),
            compression: 15,
            compressed_size: 512,
            ..WriteRecord::default()
        };
        (Record::Write(record), vec![0x5a; 512])
    };
    for (record, why) in [
        (
            write(1, 0, vec![1; size]),
            "it comes after what it should come before",
        ),
        (write(8, 0, vec![1; size]), "there is no such object"),
        (
            write(1, u64::MAX - 10, vec![1; size]),
            "at 18446744073709551605",
        ),
        (free(8, 0), "there is no such object"),
        (large, "blocks of 1048576 bytes"),
        (odd, "blocks of 1000 bytes"),
        (unknown, "an object type 54, which nobody knows"),
        (beyond, "no object can have this number"),
        (
            object(0, VOLUME_DATA, BLOCK),
            "no object can have this number",
        ),
        (many_slots, "a dnode of 4 slots"),
        (spill, "a spill block of 700 bytes"),
        (
            embedded,
            "an embedded block of a kind that the stream shall not have",
        ),
        (compressed, "contents that cannot be decompressed"),
    ] {
        for (stream, target) in [(&new, "tank/w"), (&next, "tank/v")] {
            let text = refusal(&bench, target, &stream.with(record.clone()));
            assert!(text.contains(why), "{text}");
            assert_eq!(listing(&bench), before, "{why}");
        }
    }
}

#[test]
fn freeing_free_objects_does_no_harm() {
    let bench = Bench::new();
    receive(&bench, "tank/v", &volume("far/v@one", 1, 0, 0)).unwrap();
    let all = FreeObjects {
        first_object: 3,
        count: u64::MAX - 2,
        ..FreeObjects::default()
    };
    let next = volume("far/v@two", 2, 1, 100).with((Record::FreeObjects(all), Vec::new()));
    receive(&bench, "tank/v", &next).unwrap();
}

#[test]
fn a_stream_of_an_unknown_feature_is_refused_by_its_name() {
    let bench = Bench::new();
    let mut stream = volume("far/v@one", 1, 0, 0);
    stream.features = StreamFeatures::SPILL.with(StreamFeatures::REDACTED);
    assert_eq!(
        refusal(&bench, "tank/v", &stream),
        "cannot receive: stream has unsupported feature, feature flags = 200004 (unknown flags = 200000: redacted)"
    );
    stream.features = StreamFeatures(1 << 40);
    assert!(refusal(&bench, "tank/v", &stream).contains("unknown flags = 10000000000"));
}

#[test]
fn a_cut_receive_is_kept_with_the_option_s() {
    let bench = Bench::new();
    let stream = volume("far/v@one", 1, 0, 0).bytes();
    let cut = stream[..stream.len() / 2].to_vec();
    let request = |resumable| Receive {
        target: "tank/v".to_string(),
        resumable,
        ..Receive::default()
    };
    let refused = receive_as(&bench, request(false), cut.clone()).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Corrupt);
    assert_eq!(
        refused.to_string(),
        "cannot receive new filesystem stream: incomplete stream"
    );
    assert_eq!(names(&bench), ["tank"]);
    let refused = receive_as(&bench, request(true), cut).unwrap_err();
    assert!(
        refused
            .reason
            .contains("Partially received snapshot is saved."),
        "{refused}"
    );
    let text = refused.to_string();
    let (_, token) = text.split_once("zfs send -t ").unwrap();
    let list = tarn_stream::token::decode(token).unwrap();
    assert_eq!(list.string("toname"), Ok("far/v@one"));
    assert_eq!(list.u64("object"), Ok(1));
    assert!(list.u64("offset").unwrap() > 0 && list.u64("bytes").unwrap() > 0);
    assert_eq!(names(&bench), ["tank", "tank/v"]);
    let other = refusal(&bench, "tank/v", &volume("far/v@one", 1, 0, 0));
    assert!(
        other.starts_with("cannot receive new filesystem stream: "),
        "{other}"
    );
    let abort = AbortReceive {
        name: "tank/v".to_string(),
    };
    bench
        .administrator
        .dataset_abort_receive(&call("zfs receive -A"), abort.clone())
        .unwrap();
    assert_eq!(names(&bench), ["tank"]);
    let refused = bench
        .administrator
        .dataset_abort_receive(&call("zfs receive -A"), abort);
    assert!(refused.is_err());
}

#[test]
fn a_volume_is_received_below_file_systems_only_and_properties_are_set() {
    let bench = Bench::new();
    receive(&bench, "tank/v", &volume("far/v@one", 1, 0, 0)).unwrap();
    assert_eq!(
        refusal(&bench, "tank/v/w", &volume("far/w@one", 7, 0, 0)),
        "cannot receive new filesystem stream: parent 'tank/v' is not a filesystem"
    );
    let request = Receive {
        target: "tank/p".to_string(),
        properties: owned(&[("compression", "zstd"), ("com.example:by", "hand")]),
        ..Receive::default()
    };
    receive_as(&bench, request, volume("far/w@one", 7, 0, 0).bytes()).unwrap();
    let describe = Describe {
        names: vec!["tank/p".to_string()],
        properties: vec!["compression".to_string()],
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(&call(""), describe)
        .unwrap();
    let text = format!("{:?}", described.datasets[0].properties);
    assert!(text.contains("zstd") && text.contains("Local"), "{text}");
    // The received volume is one like any other.
    let snapshot = Snapshot {
        names: vec!["tank/p@mine".to_string()],
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call("zfs snapshot"), snapshot)
        .unwrap();
}

/// A call whose descriptor gives the first part at once, and the rest when told.
fn giving_in_parts(first: Vec<u8>, rest: Vec<u8>) -> (Call, UnixStream, Sender<()>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (line, kept) = UnixStream::pair().unwrap();
    let pipe = Pipe::new(ours.into(), line.into()).unwrap();
    let (go_on, told) = channel();
    std::thread::spawn(move || {
        theirs.write_all(&first).unwrap();
        let _ = told.recv();
        let _ = theirs.write_all(&rest);
    });
    let call = Call {
        pipe: Some(pipe),
        ..call("zfs receive")
    };
    (call, kept, go_on)
}

/// Calls `then` while a full stream is half received into `tank/new`.
fn meanwhile(bench: &Bench, stream: &Stream, then: impl FnOnce()) -> Result<Received, Refusal> {
    let bytes = stream.bytes();
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let (call, _line, go_on) = giving_in_parts(first.to_vec(), rest.to_vec());
    let request = Receive {
        target: "tank/new".to_string(),
        ..Receive::default()
    };
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| bench.administrator.dataset_receive(&call, request));
        while !names(bench).contains(&"tank/new".to_string()) {
            assert!(!receiving.is_finished(), "{:?}", receiving.join());
            std::thread::yield_now();
        }
        then();
        go_on.send(()).unwrap();
        receiving.join().unwrap()
    })
}

#[test]
fn a_target_renamed_meanwhile_gets_its_snapshot() {
    let bench = Bench::new();
    meanwhile(&bench, &volume("far/v@one", 1, 0, 0), || {
        bench.rename("tank/new", "tank/other").unwrap();
        // Another dataset takes its name.
        bench.create("tank/new", &[]).unwrap();
    })
    .unwrap();
    let there = ["tank", "tank/new", "tank/other", "tank/other@one"];
    assert_eq!(names(&bench), there);
}

#[test]
fn a_partly_received_dataset_gets_no_children_and_no_other_stream() {
    let bench = Bench::new();
    bench.create("tank/x", &[]).unwrap();
    meanwhile(&bench, &volume("far/v@one", 1, 0, 0), || {
        let busy = bench.rename("tank/x", "tank/new/x").unwrap_err();
        assert!(busy.reason.contains("not a filesystem") || busy.kind == RefusalKind::Busy);
        let request = Receive {
            target: "tank/new".to_string(),
            force: true,
            ..Receive::default()
        };
        let other = volume("far/w@two", 7, 0, 0);
        let refused = receive_as(&bench, request, other.bytes()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "cannot receive new filesystem stream: dataset is busy"
        );
        assert!(bench.destroy("tank/new", false).is_err());
    })
    .unwrap();
    assert_eq!(
        names(&bench),
        ["tank", "tank/new", "tank/new@one", "tank/x"]
    );
}

#[test]
fn a_stream_whose_snapshot_is_there_is_passed_over() {
    let bench = Bench::new();
    receive(&bench, "tank/v", &volume("far/v@one", 1, 0, 0)).unwrap();
    let increment = volume("far/v@two", 2, 1, 100);
    receive(&bench, "tank/v", &increment).unwrap();
    let before = listing(&bench);
    let again = receive(&bench, "tank/v", &increment).unwrap();
    assert!(
        matches!(&again.events[..], [_, ReceiveEvent::Exists { snapshot }] if snapshot == "tank/v@two"),
        "{again:?}"
    );
    assert_eq!(listing(&bench), before);
    // Another snapshot of that name is not what the stream has.
    let other = refusal(&bench, "tank/v", &volume("far/v@two", 3, 1, 100));
    assert_eq!(
        other,
        "cannot restore to tank/v@two: destination already exists"
    );
    assert_eq!(listing(&bench), before);
}

#[test]
fn a_snapshot_that_took_the_name_meanwhile_stays() {
    let bench = Bench::new();
    receive(&bench, "tank/v", &volume("far/v@one", 1, 0, 0)).unwrap();
    let stream = volume("far/v@two", 2, 1, 100).bytes();
    let (first, rest) = stream.split_at(stream.len() / 2);
    let request = Receive {
        target: "tank/v".to_string(),
        resumable: true,
        ..Receive::default()
    };
    let abort = || {
        let abort = AbortReceive {
            name: "tank/v".to_string(),
        };
        let done = bench.administrator.dataset_abort_receive(&call(""), abort);
        done.map(drop)
    };
    let (call_of_it, _line, go_on) = giving_in_parts(first.to_vec(), rest.to_vec());
    let refused = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| bench.administrator.dataset_receive(&call_of_it, request));
        while abort().unwrap_err().kind != RefusalKind::Busy {
            assert!(!receiving.is_finished(), "{:?}", receiving.join());
            std::thread::yield_now();
        }
        bench.rename("tank/v@one", "tank/v@two").unwrap();
        go_on.send(()).unwrap();
        receiving.join().unwrap().unwrap_err()
    });
    let text = refused.to_string();
    let why = "cannot restore to tank/v@two: destination already exists";
    assert!(text.starts_with(why), "{text}");
    abort().unwrap();
    assert_eq!(names(&bench), ["tank", "tank/v", "tank/v@two"]);
}

#[test]
fn a_volume_keeps_its_size_while_it_is_sent() {
    let bench = Bench::new();
    receive(&bench, "tank/v", &volume("far/v@one", 1, 0, 0)).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (line, callers) = UnixStream::pair().unwrap();
    let sending = Call {
        pipe: Some(Pipe::new(ours.into(), line.into()).unwrap()),
        ..call("")
    };
    let request = Send {
        name: "tank/v".to_string(),
        ..Send::default()
    };
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| bench.administrator.dataset_send(&sending, request));
        // From here on the receive waits for room.
        theirs.read_exact(&mut [0; RECORD_BYTES]).unwrap();
        let refused = bench.set("tank/v", &[("volsize", "1M")]).unwrap_err();
        let busy = "cannot set property for 'tank/v': dataset is busy";
        assert_eq!(refused.to_string(), busy);
        drop(callers);
        assert!(sender.join().unwrap().is_err());
    });
    bench.set("tank/v", &[("volsize", "1M")]).unwrap();
}

#[test]
fn bad_options_are_refused_before_the_stream_is_read() {
    let bench = Bench::new();
    let refused = |request: Receive| {
        let bytes = volume("far/v@one", 1, 0, 0).bytes();
        receive_as(&bench, request, bytes).unwrap_err().to_string()
    };
    let said = |properties: &[(&str, &str)], excluded: &[&str]| Receive {
        target: "tank/v".to_string(),
        properties: owned(properties),
        excluded: excluded.iter().map(|name| name.to_string()).collect(),
        ..Receive::default()
    };
    for (request, name) in [
        (said(&[("version", "1")], &[]), "version"),
        (said(&[], &["version"]), "version"),
        (said(&[("utf8only", "on")], &[]), "utf8only"),
        (
            said(&[("casesensitivity", "mixed")], &[]),
            "casesensitivity",
        ),
        (said(&[("normalization", "formD")], &[]), "normalization"),
        (said(&[], &["volsize"]), "volsize"),
        (said(&[("volblocksize", "8K")], &[]), "volblocksize"),
        (said(&[("used", "1")], &[]), "used"),
    ] {
        let told = format!("cannot receive: invalid property '{name}'");
        assert_eq!(refused(request), told);
    }
    for (names, told) in [
        (
            ReceiveNames::AllButPool,
            "specified fs (tank/missing) does not exist",
        ),
        (
            ReceiveNames::Last,
            "specified fs (tank/missing) does not exist",
        ),
    ] {
        let request = Receive {
            target: "tank/missing".to_string(),
            names,
            ..Receive::default()
        };
        assert_eq!(refused(request), format!("cannot receive: {told}"));
    }
    let told = "cannot receive: specified origin fs (tank/no@1) does not exist";
    assert_eq!(refused(said(&[("origin", "tank/no@1")], &[])), told);
    assert_eq!(names(&bench), ["tank"]);
}
