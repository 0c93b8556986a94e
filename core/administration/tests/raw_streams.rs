//! Raw streams of an encrypted volume, made up here: they are stored and sent on unchanged, and no
//! other stream is received into them. Nothing here decrypts them, so any bytes will do.

mod support;

use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::net::UnixStream;
use support::{Bench, call};
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    DatasetKind, Describe, Destroy, Receive, Rename, Send, Snapshot,
};
use tarn_administration::messages::{Refusal, Value};
use tarn_host::Pipe;
use tarn_ondisk::nvlist::{Encoding, NvList, NvValue};
use tarn_ondisk::sealing::Sealing;
use tarn_ondisk::stream::{
    Begin, FreeObjects, FreeRecord, MAGIC, ObjectRange, ObjectRecord, Record, StreamFeatures,
    StreamKind, StreamName, WriteRecord,
};
use tarn_stream::reading::StreamReader;
use tarn_stream::writing::StreamWriter;

/// Stored codes of object types.
const VOLUME_DATA: u32 = 23;
const VOLUME_PROPERTIES: u32 = 24;

const BLOCK: u32 = 8192;
const BLOCKS: u64 = 64;

/// The stored code of no compression.
const UNCOMPRESSED: u8 = 2;

#[derive(Clone)]
struct Stream {
    to: &'static str,
    guid: u64,
    from: u64,
    features: StreamFeatures,
    flags: u32,
    /// The key in the package's list; none where the stream is plain.
    key: Option<NvList>,
    records: Vec<(Record, Vec<u8>)>,
}

fn key(to_ivset: u64, from_ivset: u64) -> NvList {
    let bytes = |count: usize, of: u8| NvValue::Uint8Array(vec![of; count]);
    NvList::new()
        .with("DSL_CRYPTO_SUITE", 8_u64)
        .with("DSL_CRYPTO_GUID", 77_u64)
        .with("DSL_CRYPTO_VERSION", 1_u64)
        .with("DSL_CRYPTO_MASTER_KEY_1", bytes(32, 1))
        .with("DSL_CRYPTO_HMAC_KEY_1", bytes(64, 2))
        .with("DSL_CRYPTO_IV", bytes(12, 3))
        .with("DSL_CRYPTO_MAC", bytes(16, 4))
        .with("portable_mac", bytes(32, 5))
        .with("keyformat", 3_u64)
        .with("pbkdf2iters", 350_000_u64)
        .with("pbkdf2salt", 99_u64)
        .with("mdn_checksum", 0_u64)
        .with("mdn_compress", 0_u64)
        .with("mdn_nlevels", 7_u64)
        .with("mdn_blksz", 16384_u64)
        .with("mdn_indblkshift", 17_u64)
        .with("mdn_nblkptr", 3_u64)
        .with("mdn_maxblkid", 0_u64)
        .with("to_ivset_guid", to_ivset)
        .with("from_ivset_guid", from_ivset)
}

fn sealing(of: u8) -> Sealing {
    let mut sealing = Sealing::of_code([of; 16]);
    sealing.salt.0 = [of.wrapping_add(1); 8];
    sealing.initialization_vector.0 = [of.wrapping_add(2); 12];
    sealing
}

/// An encrypted volume. An increment rewrites a quarter of it.
fn volume(to: &'static str, guid: u64, from: u64, first: u8) -> Stream {
    let range = ObjectRange {
        slots: 32,
        to_guid: guid,
        sealing: sealing(first),
        ..ObjectRange::default()
    };
    let mut records = vec![(Record::ObjectRange(range), Vec::new())];
    records.push(object(guid, 1, VOLUME_DATA, BLOCK));
    records.push(free(guid, 1, BLOCKS * u64::from(BLOCK)));
    let blocks = if from == 0 { BLOCKS } else { BLOCKS / 4 };
    for block in 0..blocks {
        let byte = first.wrapping_add(u8::try_from(block).unwrap());
        let contents = vec![byte; usize::try_from(BLOCK).unwrap()];
        records.push(write(
            guid,
            1,
            block * u64::from(BLOCK),
            contents,
            sealing(byte),
        ));
    }
    records.push(object(guid, 2, VOLUME_PROPERTIES, 512));
    records.push(free(guid, 2, 512));
    if from == 0 {
        let sealing = Sealing::of_code([first; 16]);
        records.push(write(guid, 2, 0, properties(), sealing));
    }
    // Its dnode has room for two more blocks.
    let holes = FreeRecord {
        object: 2,
        offset: 512,
        length: 1024,
        to_guid: guid,
    };
    records.push((Record::Free(holes), Vec::new()));
    let rest = FreeObjects {
        first_object: 3,
        count: 29,
        to_guid: guid,
    };
    records.push((Record::FreeObjects(rest), Vec::new()));
    Stream {
        to,
        guid,
        from,
        features: StreamFeatures::RAW.with(StreamFeatures::COMPRESSED),
        flags: 0xc,
        key: Some(key(1000 + guid, if from == 0 { 0 } else { 1000 + from })),
        records,
    }
}

/// A micro ZAP with the size of the volume. It is not encrypted.
fn properties() -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..8].copy_from_slice(&0x8000_0000_0000_0003_u64.to_le_bytes());
    bytes[8..16].copy_from_slice(&0x1234_5679_u64.to_le_bytes());
    bytes[64..72].copy_from_slice(&(BLOCKS * u64::from(BLOCK)).to_le_bytes());
    bytes[78..82].copy_from_slice(b"size");
    bytes
}

fn object(guid: u64, object: u64, object_type: u32, block_size: u32) -> (Record, Vec<u8>) {
    let is_data = object_type == VOLUME_DATA;
    let record = ObjectRecord {
        object,
        object_type,
        block_size,
        slots: 1,
        to_guid: guid,
        max_block: if is_data { BLOCKS - 1 } else { 0 },
        indirect_shift: 17,
        levels: if is_data { 2 } else { 1 },
        pointer_count: 3,
        ..ObjectRecord::default()
    };
    (Record::Object(record), Vec::new())
}

fn write(
    guid: u64,
    object: u64,
    offset: u64,
    contents: Vec<u8>,
    sealing: Sealing,
) -> (Record, Vec<u8>) {
    let size = u64::try_from(contents.len()).unwrap();
    let record = WriteRecord {
        object,
        object_type: match object {
            1 => VOLUME_DATA,
            _ => VOLUME_PROPERTIES,
        },
        offset,
        logical_size: size,
        compressed_size: size,
        compression: UNCOMPRESSED,
        to_guid: guid,
        sealing,
        ..WriteRecord::default()
    };
    (Record::Write(record), contents)
}

fn free(guid: u64, object: u64, offset: u64) -> (Record, Vec<u8>) {
    let record = FreeRecord {
        object,
        offset,
        length: u64::MAX,
        to_guid: guid,
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
            flags: self.flags,
            to_guid: self.guid,
            from_guid: self.from,
            to_name: StreamName::new(self.to).unwrap(),
        };
        let mut payload = Vec::new();
        if let Some(key) = &self.key {
            let list = NvList::new().with("crypt_keydata", key.clone());
            payload = list.encode(Encoding::Xdr);
            payload.resize(payload.len().next_multiple_of(8), 0);
        }
        let mut writer = StreamWriter::new(Vec::new());
        let begin = Record::Begin {
            begin: Box::new(begin),
            payload_bytes: u32::try_from(payload.len()).unwrap(),
        };
        writer.write(&begin, &payload).unwrap();
        for (record, payload) in &self.records {
            writer.write(record, payload).unwrap();
        }
        writer.finish(self.guid).unwrap()
    }

    /// The same with another value in the key's list.
    fn saying(&self, name: &str, value: impl Into<NvValue>) -> Stream {
        let mut changed = self.clone();
        let key = changed.key.as_mut().expect("it is raw");
        key.remove(name);
        key.set(name, value);
        changed
    }
}

fn receive_as(bench: &Bench, request: Receive, bytes: Vec<u8>) -> Result<(), Refusal> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (line, _kept) = UnixStream::pair().unwrap();
    let pipe = Pipe::new(ours.into(), line.into()).unwrap();
    std::thread::spawn(move || {
        // A refused stream is not read to its end.
        let _ = theirs.write_all(&bytes);
    });
    let call = Call {
        pipe: Some(pipe),
        ..call("zfs receive")
    };
    bench
        .administrator
        .dataset_receive(&call, request)
        .map(drop)
}

fn to(target: &str) -> Receive {
    Receive {
        target: target.to_string(),
        ..Receive::default()
    }
}

fn receive(bench: &Bench, target: &str, stream: &Stream) -> Result<(), Refusal> {
    receive_as(bench, to(target), stream.bytes())
}

fn refusal(bench: &Bench, target: &str, stream: &Stream) -> String {
    receive(bench, target, stream).unwrap_err().to_string()
}

/// The records of a snapshot's stream with their payloads, and the list before them.
fn sent(bench: &Bench, name: &str, from: Option<&str>) -> (NvList, Vec<(Record, Vec<u8>)>) {
    let mut file: File = tempfile::tempfile().unwrap();
    let (line, _callers) = UnixStream::pair().unwrap();
    let call = Call {
        pipe: Some(Pipe::new(file.try_clone().unwrap().into(), line.into()).unwrap()),
        ..call("")
    };
    let request = Send {
        name: name.to_string(),
        from: from.map(str::to_string),
        raw: true,
        ..Send::default()
    };
    bench.administrator.dataset_send(&call, request).unwrap();
    file.rewind().unwrap();
    let mut reader = StreamReader::new(file);
    let (_, payload) = reader.begin().unwrap().unwrap();
    let mut records = Vec::new();
    loop {
        let received = reader.next().unwrap();
        match received.record {
            Record::End(_) => return (NvList::decode(&payload).unwrap(), records),
            // Where blocks are stored differs from pool to pool.
            Record::Write(record) => records.push((
                Record::Write(WriteRecord {
                    checksum_type: 0,
                    key: Default::default(),
                    flags: 0,
                    ..record
                }),
                received.payload.to_vec(),
            )),
            record => records.push((record, received.payload.to_vec())),
        }
    }
}

fn assert_same(found: &[(Record, Vec<u8>)], expected: &[(Record, Vec<u8>)]) {
    for (one, other) in found.iter().zip(expected) {
        assert_eq!(one.0, other.0);
        assert!(one.1 == other.1, "what follows {:?}", one.0);
    }
    assert_eq!(found.len(), expected.len());
}

fn properties_of(bench: &Bench, name: &str, properties: &[&str]) -> Vec<String> {
    let describe = Describe {
        names: vec![name.to_string()],
        kinds: vec![
            DatasetKind::Filesystem,
            DatasetKind::Volume,
            DatasetKind::Snapshot,
        ],
        properties: properties.iter().map(|name| name.to_string()).collect(),
        ..Describe::default()
    };
    let described = bench
        .administrator
        .dataset_describe(&call(""), describe)
        .unwrap();
    let one = &described.datasets[0];
    properties
        .iter()
        .map(|name| {
            let found = one.properties.get(*name);
            found.map_or_else(
                || "-".to_string(),
                |found| match &found.value {
                    Value::Number(number) => number.to_string(),
                    Value::Text(text) => text.clone(),
                    Value::Absent => "-".to_string(),
                },
            )
        })
        .collect()
}

#[test]
fn a_raw_stream_is_sent_on_as_received() {
    let bench = Bench::new();
    let (one, two) = (volume("far/v@one", 1, 0, 0), volume("far/v@two", 2, 1, 100));
    receive(&bench, "tank/v", &one).unwrap();
    receive(&bench, "tank/v", &two).unwrap();
    let (said, records) = sent(&bench, "tank/v@one", None);
    assert_eq!(
        said.list("crypt_keydata").unwrap(),
        one.key.as_ref().unwrap()
    );
    assert_same(&records, &one.records);
    let (said, records) = sent(&bench, "tank/v@two", Some("tank/v@one"));
    assert_eq!(
        said.list("crypt_keydata").unwrap(),
        two.key.as_ref().unwrap()
    );
    assert_same(&records, &two.records);
    receive(&bench, "tank/w", &one).unwrap();
    bench
        .administrator
        .dataset_destroy(
            &call(""),
            Destroy {
                name: "tank/v".to_string(),
                recursive: true,
                ..Destroy::default()
            },
        )
        .unwrap();
    assert_same(&sent(&bench, "tank/w@one", None).1, &one.records);
}

#[test]
fn properties_of_the_key_are_shown() {
    let bench = Bench::new();
    receive(&bench, "tank/v", &volume("far/v@one", 1, 0, 0)).unwrap();
    let shown = [
        "encryption",
        "keyformat",
        "keystatus",
        "keylocation",
        "encryptionroot",
        "pbkdf2iters",
        "volsize",
    ];
    assert_eq!(
        properties_of(&bench, "tank/v", &shown),
        [
            "aes-256-gcm",
            "passphrase",
            "unavailable",
            "prompt",
            "tank/v",
            "350000",
            "524288"
        ]
    );
    bench.create("tank/plain", &[]).unwrap();
    assert_eq!(
        properties_of(&bench, "tank/plain", &["encryption", "keystatus"]),
        ["off", "-"]
    );
}

#[test]
fn a_changed_wrapping_key_is_received() {
    let bench = Bench::new();
    receive(&bench, "tank/v", &volume("far/v@one", 1, 0, 0)).unwrap();
    let rewrapped = NvValue::Uint8Array(vec![9; 32]);
    let two = volume("far/v@two", 2, 1, 100).saying("DSL_CRYPTO_MASTER_KEY_1", rewrapped);
    receive(&bench, "tank/v", &two).unwrap();
    let (said, _) = sent(&bench, "tank/v@two", Some("tank/v@one"));
    let said = said.list("crypt_keydata").unwrap();
    assert_eq!(said.u8s("DSL_CRYPTO_MASTER_KEY_1").unwrap(), [9; 32]);
}

#[test]
fn only_raw_streams_of_the_same_key_are_received() {
    let bench = Bench::new();
    let one = volume("far/v@one", 1, 0, 0);
    receive(&bench, "tank/v", &one).unwrap();
    let two = volume("far/v@two", 2, 1, 100);
    let other_key = two.saying("DSL_CRYPTO_GUID", 78_u64);
    let other_past = two.saying("from_ivset_guid", 5_u64);
    let no_past = two.saying("from_ivset_guid", 0_u64);
    let mut plain = two.clone();
    plain.features = StreamFeatures::NONE;
    plain.key = None;
    for (stream, reason) in [
        (&other_key, "encryption key does not match existing key"),
        (&other_past, "IV set guid mismatch."),
        (&no_past, "IV set guid missing."),
        (&plain, "inherited key must be loaded"),
    ] {
        let refused = refusal(&bench, "tank/v", stream);
        assert!(refused.contains(reason), "{refused}");
    }
    let forced = Receive {
        force: true,
        ..to("tank/v")
    };
    let refused = receive_as(&bench, forced.clone(), two.bytes());
    refused.unwrap();
    let snapshot = Snapshot {
        names: vec!["tank/v@here".to_string()],
        ..Snapshot::default()
    };
    bench
        .administrator
        .dataset_snapshot(&call(""), snapshot)
        .unwrap();
    let three = volume("far/v@three", 3, 2, 200);
    let refused = refusal(&bench, "tank/v", &three);
    assert!(refused.contains("has been modified"), "{refused}");
    receive_as(&bench, forced, three.bytes()).unwrap();
    let (said, records) = sent(&bench, "tank/v@three", Some("tank/v@two"));
    assert_eq!(
        said.list("crypt_keydata").unwrap(),
        three.key.as_ref().unwrap()
    );
    assert_same(&records, &three.records);
}

#[test]
fn a_plain_dataset_receives_no_raw_stream() {
    let bench = Bench::new();
    let volume_of = |from| {
        let mut stream = volume("far/p@one", 1 + from, from, 0);
        stream.features = StreamFeatures::NONE;
        stream.key = None;
        stream
            .records
            .retain(|(record, _)| !matches!(record, Record::ObjectRange(_)));
        for (record, _) in &mut stream.records {
            match record {
                Record::Object(object) => {
                    (object.levels, object.pointer_count, object.indirect_shift) = (0, 0, 0);
                    object.max_block = 0;
                }
                Record::Write(write) => (write.compression, write.compressed_size) = (0, 0),
                _ => {}
            }
        }
        stream
    };
    receive(&bench, "tank/p", &volume_of(0)).unwrap();
    let refused = refusal(&bench, "tank/p", &volume("far/v@two", 2, 1, 100));
    assert!(
        refused.contains("cannot perform raw receive on top of existing unencrypted dataset"),
        "{refused}"
    );
    let forced = Receive {
        force: true,
        ..to("tank/q")
    };
    bench.create("tank/q", &[]).unwrap();
    let refused = receive_as(&bench, forced, volume("far/v@one", 1, 0, 0).bytes());
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("zfs receive -F cannot be used"),
        "{refused}"
    );
}

#[test]
fn a_malformed_package_list_is_refused_and_leaves_nothing() {
    let bench = Bench::new();
    let good = volume("far/v@one", 1, 0, 0);
    let names: Vec<String> = good
        .key
        .as_ref()
        .unwrap()
        .iter()
        .map(|(name, _)| name.to_string())
        .collect();
    for name in names.iter().filter(|name| !name.contains("ivset")) {
        let mut missing = good.clone();
        missing.key.as_mut().unwrap().remove(name);
        let refused = refusal(&bench, "tank/v", &missing);
        assert!(refused.contains(name.as_str()), "{name}: {refused}");
        let short = good.saying(name, NvValue::Uint8Array(vec![1; 3]));
        receive(&bench, "tank/v", &short).unwrap_err();
        let wild = good.saying(name, u64::MAX);
        match name.as_str() {
            // Any number will do.
            "DSL_CRYPTO_GUID" | "pbkdf2iters" | "pbkdf2salt" => {}
            "mdn_maxblkid" => {}
            _ => drop(receive(&bench, "tank/v", &wild).unwrap_err()),
        }
    }
    for (flags, features, reason) in [
        (0x4, good.features, "Spill block flag missing"),
        (
            0xc,
            good.features.with(StreamFeatures::EMBEDDED),
            "incompatible embedded data",
        ),
    ] {
        let stream = Stream {
            flags,
            features,
            ..good.clone()
        };
        let refused = refusal(&bench, "tank/v", &stream);
        assert!(refused.contains(reason), "{refused}");
    }
    let newer = good.saying("DSL_CRYPTO_VERSION", 2_u64);
    let refused = refusal(&bench, "tank/v", &newer);
    assert!(
        refused.contains("crypto parameters not compatible"),
        "{refused}"
    );
    receive(&bench, "tank/v", &good).unwrap();
}

#[test]
fn malformed_records_are_refused_and_leave_nothing() {
    let bench = Bench::new();
    let good = volume("far/v@one", 1, 0, 0);
    let changed = |at: usize, change: &dyn Fn(&mut Record)| {
        let mut stream = good.clone();
        change(&mut stream.records[at].0);
        stream
    };
    let of_range = |change: &'static dyn Fn(&mut ObjectRange)| {
        changed(0, &move |record| match record {
            Record::ObjectRange(range) => change(range),
            _ => panic!("it is the first"),
        })
    };
    let of_object = |change: &'static dyn Fn(&mut ObjectRecord)| {
        changed(1, &move |record| match record {
            Record::Object(object) => change(object),
            _ => panic!("it is the second"),
        })
    };
    let of_write = |change: &'static dyn Fn(&mut WriteRecord)| {
        changed(3, &move |record| match record {
            Record::Write(write) => change(write),
            _ => panic!("it is the fourth"),
        })
    };
    let mut without_range = good.clone();
    without_range.records.remove(0);
    for (what, stream) in [
        ("no range", without_range),
        ("a part of a block", of_range(&|range| range.slots = 16)),
        ("an odd start", of_range(&|range| range.first_object = 7)),
        ("another block", of_range(&|range| range.first_object = 32)),
        ("the other order", of_range(&|range| range.flags = 2)),
        ("no levels", of_object(&|object| object.levels = 0)),
        ("many levels", of_object(&|object| object.levels = 99)),
        ("too few levels", of_object(&|object| object.levels = 1)),
        ("pointers", of_object(&|object| object.pointer_count = 1)),
        ("fanout", of_object(&|object| object.indirect_shift = 40)),
        ("beyond the end", of_object(&|object| object.max_block = 3)),
        ("between blocks", of_write(&|write| write.offset = 100)),
        (
            "a smaller block",
            of_write(&|write| write.logical_size = 512),
        ),
        ("another type", of_write(&|write| write.object_type = 19)),
        ("no compression", of_write(&|write| write.compression = 99)),
        ("zstd", of_write(&|write| write.compression = 16)),
    ] {
        let refused = refusal(&bench, "tank/v", &stream);
        assert!(refused.starts_with("cannot receive"), "{what}: {refused}");
        assert!(
            bench.names().iter().all(|name| name != "tank/v"),
            "{what} leaves something"
        );
    }
    receive(&bench, "tank/v", &good).unwrap();
}

#[test]
fn a_dataset_that_inherits_its_key_stays_below_its_encryption_root() {
    let bench = Bench::new();
    receive(&bench, "tank/v", &volume("far/v@one", 1, 0, 0)).unwrap();
    bench.create("tank/other", &[]).unwrap();
    let rename = |from: &str, to: &str| {
        let request = Rename {
            from: from.to_string(),
            to: to.to_string(),
            ..Rename::default()
        };
        bench.administrator.dataset_rename(&call(""), request)
    };
    rename("tank/v", "tank/other/v").unwrap();
    assert_eq!(
        properties_of(&bench, "tank/other/v", &["encryptionroot"]),
        ["tank/other/v"]
    );
}
