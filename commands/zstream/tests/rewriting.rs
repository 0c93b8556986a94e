//! Streams rewritten: compressed otherwise and back again they are the same, what was left out for
//! being there twice comes back, and what cannot be is refused.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tarn_ondisk::stream::{
    Begin, MAGIC, ObjectRecord, Record, StreamFeatures, StreamKind, StreamName, WriteByReference,
    WriteRecord,
};
use tarn_stream::reading::StreamReader;
use tarn_stream::send::series::{write_conclusion, write_description};
use tarn_stream::writing::StreamWriter;

const BLOCK: usize = 8192;
const LZ4: u8 = 15;
const ZSTD: u8 = 16;

fn zstream(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zstream"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A reader that has seen enough reads no further.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn changed(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = zstream(arguments, input);
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn contents(of: u8) -> Vec<u8> {
    (0..BLOCK)
        .map(|at| of.wrapping_add(u8::try_from(at / 64 % 256).unwrap()))
        .collect()
}

fn write(object: u64, offset: u64) -> WriteRecord {
    WriteRecord {
        object,
        object_type: 19,
        offset,
        logical_size: u64::try_from(BLOCK).unwrap(),
        to_guid: 7,
        ..WriteRecord::default()
    }
}

fn begin(features: StreamFeatures) -> Record {
    Record::Begin {
        begin: Box::new(Begin {
            magic: MAGIC,
            version: Begin::version_of(StreamKind::Single, features),
            creation_time_s: 1_700_000_000,
            objset_type: 2,
            flags: 4,
            to_guid: 7,
            from_guid: 0,
            to_name: StreamName::new("tank/a@one").unwrap(),
        }),
        payload_bytes: 0,
    }
}

fn stream(features: StreamFeatures, records: &[(Record, Vec<u8>)]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new());
    writer.write(&begin(features), &[]).unwrap();
    let object = ObjectRecord {
        object: 3,
        object_type: 19,
        block_size: u32::try_from(BLOCK).unwrap(),
        to_guid: 7,
        ..ObjectRecord::default()
    };
    writer.write(&Record::Object(object), &[]).unwrap();
    for (record, payload) in records {
        writer.write(record, payload).unwrap();
    }
    writer.finish(7).unwrap()
}

/// Three blocks, of which one cannot be compressed.
fn plain() -> Vec<u8> {
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    });
    let records = [
        (Record::Write(write(3, 0)), contents(1)),
        (Record::Write(write(3, 8192)), noise.take(BLOCK).collect()),
        (Record::Write(write(3, 16384)), vec![0; BLOCK]),
    ];
    stream(StreamFeatures::NONE, &records)
}

/// How the contents of a stream are compressed, and how long they are.
fn forms(stream: &[u8]) -> Vec<(u8, usize)> {
    let mut reader = StreamReader::new(stream);
    reader.begin().unwrap().unwrap();
    let mut forms = Vec::new();
    loop {
        let received = reader.next().unwrap();
        match received.record {
            Record::Write(write) => forms.push((write.compression, received.payload.len())),
            Record::End(_) => return forms,
            _ => {}
        }
    }
}

#[test]
fn what_is_compressed_otherwise_is_the_same_when_it_is_plain_again() {
    let plain = plain();
    for (word, code) in [("lz4", LZ4), ("zstd", ZSTD), ("gzip-9", 13), ("lzjb", 3)] {
        let small = changed(&["recompress", word], &plain);
        let forms = forms(&small);
        assert_eq!(forms[0].0, code);
        assert!(forms[0].1 < BLOCK && forms[0].1.is_multiple_of(512));
        assert_eq!(forms[1..], [(0, BLOCK), (0, BLOCK)]);
        assert_eq!(changed(&["recompress", "off"], &small), plain, "{word}");
        let smaller = changed(&["recompress", "-l", "19", "zstd"], &small);
        assert_eq!(self::forms(&smaller)[0].0, ZSTD);
        assert_eq!(changed(&["recompress", "off"], &smaller), plain);
    }
}

#[test]
fn single_records_are_made_plain() {
    let plain = plain();
    let small = changed(&["recompress", "lz4"], &plain);
    assert_eq!(changed(&["decompress", "3,0"], &small), plain);
    assert_eq!(changed(&["decompress", "0x3,0x0,lz4"], &small), plain);
    assert_eq!(changed(&["decompress", "4,0"], &small), small);
    let output = zstream(&["decompress", "-v", "3,0", "3,8192,off"], &small);
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "successfully decompressed ino 3 offset 0\n\
         Resetting compression type to off for ino 3 offset 8192\n"
    );
    let output = zstream(&["decompress", "3,0,gzip"], &small);
    assert_eq!(output.stdout, small);
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "zstream: decompression failed for ino 3 offset 0\n"
    );
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn what_was_there_twice_comes_back() {
    let reference = |offset, from| {
        let record = WriteByReference {
            object: 3,
            offset,
            length: u64::try_from(BLOCK).unwrap(),
            to_guid: 7,
            reference_guid: 7,
            reference_object: 3,
            reference_offset: from,
            ..WriteByReference::default()
        };
        (Record::WriteByReference(record), Vec::new())
    };
    let first = (Record::Write(write(3, 0)), contents(1));
    let with_references = [first.clone(), reference(8192, 0), reference(16384, 8192)];
    let path = scratch("redup").join("stream");
    let deduplicated = StreamFeatures::DEDUP.with(StreamFeatures::SPILL);
    fs::write(&path, stream(deduplicated, &with_references[..2])).unwrap();
    let output = zstream(&["redup", "-v", path.to_str().unwrap()], &[]);
    let second = (Record::Write(write(3, 8192)), contents(1));
    let expected = stream(StreamFeatures::SPILL, &[first, second]);
    assert_eq!(output.stdout, expected);
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "converted stream with 5 total records, including 1 dedup records, using 40B memory.\n"
    );
    // Contents are where they were written, not where they were referred to.
    fs::write(&path, stream(deduplicated, &with_references)).unwrap();
    let output = zstream(&["redup", path.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = zstream(&["recompress", "lz4"], &fs::read(&path).unwrap());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, b"Deduplicated streams are not supported\n");
}

#[test]
fn packages_are_gone_through_to_their_end() {
    let mut package = Vec::new();
    write_description(&mut package, "tank/a@one", StreamFeatures::NONE, &[]).unwrap();
    package.extend(plain());
    package.extend(plain());
    write_conclusion(&mut package).unwrap();
    let small = changed(&["recompress", "zstd"], &package);
    assert!(small.len() < package.len());
    assert_eq!(changed(&["recompress", "off"], &small), package);
}

#[test]
fn what_cannot_be_is_refused() {
    let plain = plain();
    for (arguments, code, said) in [
        (
            &["recompress", "gzip"][..],
            2,
            "Invalid compression type gzip.",
        ),
        (&["recompress", "on"], 2, "Invalid compression type on."),
        (
            &["recompress", "-l", "x", "zstd"],
            1,
            "failed to parse level 'x'",
        ),
        (&["recompress"], 1, "usage: zstream"),
        (&["decompress", "3"], 1, "usage: zstream"),
        (
            &["decompress", "a,0"],
            1,
            "zstream: invalid value for object",
        ),
        (
            &["decompress", "3,b"],
            1,
            "zstream: invalid value for offset",
        ),
        (
            &["decompress", "3,0,rle"],
            2,
            "Invalid compression type rle.",
        ),
        (&["decompress", "-x"], 1, "invalid option 'x'"),
        (&["redup"], 1, "usage: zstream"),
        (
            &["redup", "/nowhere"],
            1,
            "Error while opening file '/nowhere': No such file",
        ),
    ] {
        let output = zstream(arguments, &plain);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.starts_with(said), "{arguments:?}: {text}");
    }
    let mut damaged = plain;
    damaged[1000] ^= 1;
    let output = zstream(&["recompress", "lz4"], &damaged);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("checksum mismatch"), "{text}");
}
