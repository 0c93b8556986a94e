//! Streams that OpenZFS sent: each record is understood, proved by its checksum, and written again
//! to the same bytes; `zstream dump` says of them what OpenZFS's said. Without fixtures there is
//! nothing to compare.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use tarn_golden::{Fixture, Fixtures};
use tarn_ondisk::stream::{RECORD_BYTES, Record, StreamKind};
use tarn_stream::reading::StreamReader;
use tarn_stream::send::series::{write_conclusion, write_description};
use tarn_stream::writing::StreamWriter;

/// Tests run side by side, and must not unpack the fixture twice at a time.
static UNPACKING: Mutex<()> = Mutex::new(());

/// The fixture, unless there is none.
fn fixture() -> Option<Fixture> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checkout = checkout.canonicalize().unwrap();
    let unpacked = checkout.join("target/fixtures");
    let _alone = UNPACKING.lock().unwrap_or_else(PoisonError::into_inner);
    let found = Fixtures::find(&checkout, &unpacked).ok()?;
    Some(found.unpack("streams").unwrap())
}

/// The streams, by their paths.
fn streams(fixture: &Fixture) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixture.folder().join("out")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "zsend"))
        .collect()
}

/// Reads a stream, or several in a row, and writes them again.
fn written_again(bytes: &[u8]) -> Vec<u8> {
    let mut again = Vec::new();
    let mut reader = StreamReader::new(bytes);
    let mut is_series = false;
    while let Some((begin, payload)) = reader.begin().unwrap() {
        if begin.kind() == StreamKind::Compound {
            is_series = true;
            let name = begin.to_name.as_str().unwrap();
            write_description(&mut again, name, begin.features(), &payload).unwrap();
            let end = reader.next().unwrap();
            assert!(matches!(end.record, Record::End(_)));
            continue;
        }
        let to_guid = begin.to_guid;
        let mut writer = StreamWriter::new(&mut again);
        let first = Record::Begin {
            begin,
            payload_bytes: u32::try_from(payload.len()).unwrap(),
        };
        writer.write(&first, &payload).unwrap();
        loop {
            let received = reader.next().unwrap();
            if let Record::End(_) = received.record {
                break;
            }
            writer.write(&received.record, &received.payload).unwrap();
        }
        writer.finish(to_guid).unwrap();
    }
    if is_series {
        write_conclusion(&mut again).unwrap();
    }
    again
}

#[test]
fn what_openzfs_sent_is_written_again_to_the_same_bytes() {
    let Some(fixture) = fixture() else {
        return;
    };
    let streams = streams(&fixture);
    assert!(streams.len() >= 8);
    for path in streams {
        let bytes = std::fs::read(&path).unwrap();
        assert!(written_again(&bytes) == bytes, "{}", path.display());
    }
}

/// One bit turned anywhere in the first records is found.
#[test]
fn damage_is_found() {
    let Some(fixture) = fixture() else {
        return;
    };
    let bytes = std::fs::read(fixture.folder().join("out/full.zsend")).unwrap();
    for at in (RECORD_BYTES..20 * RECORD_BYTES).step_by(97) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        let mut reader = StreamReader::new(&bytes[..]);
        let mut read = reader.begin().map(|_| ());
        while read.is_ok() {
            read = match reader.next() {
                Ok(received) if matches!(received.record, Record::End(_)) => {
                    panic!("byte {at} can be anything")
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
        }
    }
}

#[test]
fn a_dump_says_what_openzfs_said() {
    let Some(fixture) = fixture() else {
        return;
    };
    let out = fixture.folder().join("out");
    let expected = std::fs::read_to_string(out.join("replicate.dump")).unwrap();
    let dumped = Command::new(env!("CARGO_BIN_EXE_zstream"))
        .arg("dump")
        .arg(out.join("replicate.zsend"))
        .output()
        .unwrap();
    assert!(dumped.status.success());
    let dumped = String::from_utf8(dumped.stdout).unwrap();
    // What was recorded may be of an older version, which counts fewer kinds.
    let records = |text: &str| text.split("SUMMARY").next().map(str::to_string);
    assert_eq!(records(&dumped), records(&expected));
    assert!(dumped.contains("SUMMARY:\n\tTotal DRR_BEGIN records = "));
}
