//! `zstream redup`: a deduplicated stream, of senders of long ago, as one that can be received.
//!
//! # Mechanism
//! Such a stream has contents that come twice only once; the second time it says where they were.
//! So it is read from a file, in which one can go back: where contents are is noted by whose they
//! are, in all streams of a package.

use crate::misused;
use crate::rewrite::{Change, Stopped, run as rewrite, verbose_and_words};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, IsTerminal};
use std::os::unix::fs::FileExt;
use tarn_ondisk::declare::{ByteOrder, widen};
use tarn_ondisk::stream::{Begin, RECORD_BYTES, Record, StreamFeatures, WriteByReference};
use tarn_stream::reading::Received;
use tarn_terminal::number::nice_bytes;

/// What an entry of the table takes in OpenZFS: what it tells of memory is counted so.
const ENTRY_BYTES: u64 = 40;

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[String]) -> u8 {
    let Some((verbose, paths)) = verbose_and_words(arguments) else {
        return misused();
    };
    let [path] = paths.as_slice() else {
        return misused();
    };
    if std::io::stdout().is_terminal() {
        eprintln!(
            "Error: Stream can not be written to a terminal.\n\
             You must redirect standard output."
        );
        return 1;
    }
    let opened = File::open(path).and_then(|file| Ok((file.try_clone()?, file)));
    let (file, again) = match opened {
        Ok(both) => both,
        Err(error) => {
            let text = error.to_string();
            let said = text.split(" (os error").next().unwrap_or_default();
            eprintln!("Error while opening file '{path}': {said}");
            return 1;
        }
    };
    let mut change = Redup {
        file: again,
        places: BTreeMap::new(),
        records: 0,
        duplicates: 0,
    };
    let code = rewrite(BufReader::new(file), &mut change);
    if code == 0 && verbose {
        let memory = nice_bytes(widen(change.places.len()) * ENTRY_BYTES);
        eprintln!(
            "converted stream with {} total records, including {} dedup records, using {} memory.",
            change.records, change.duplicates, memory
        );
    }
    code
}

struct Redup {
    file: File,
    /// Where contents are, by snapshot, object and offset.
    places: BTreeMap<(u64, u64, u64), u64>,
    records: u64,
    duplicates: u64,
}

impl Change for Redup {
    fn begin(&mut self, begin: &mut Begin) {
        // This one, and the last.
        self.records += 2;
        let features = begin.features();
        let features = features.without(StreamFeatures::DEDUP);
        let features = features.without(StreamFeatures::DEDUP_PROPERTIES);
        begin.version = Begin::version_of(begin.kind(), features);
    }

    fn record(&mut self, received: Received) -> Result<(Record, Vec<u8>), Stopped> {
        self.records += 1;
        match received.record {
            Record::WriteByReference(reference) => {
                self.duplicates += 1;
                self.contents_of(&reference)
            }
            record => {
                if let Record::Write(write) = &record {
                    let key = (write.to_guid, write.object, write.offset);
                    self.places.insert(key, received.offset);
                }
                Ok((record, received.payload.to_vec()))
            }
        }
    }
}

impl Redup {
    fn contents_of(&self, reference: &WriteByReference) -> Result<(Record, Vec<u8>), Stopped> {
        let key = (
            reference.reference_guid,
            reference.reference_object,
            reference.reference_offset,
        );
        let missing = || {
            Stopped::new(
                format!(
                    "Error: object {} refers to contents that the stream does not have: object {}, offset {}",
                    reference.object, key.1, key.2
                ),
                1,
            )
        };
        let place = *self.places.get(&key).ok_or_else(missing)?;
        let unreadable = |error: std::io::Error| {
            Stopped::new(
                format!("Error while reading file: {}", tarn_host::words_of(&error)),
                1,
            )
        };
        let mut bytes = [0; RECORD_BYTES];
        self.file
            .read_exact_at(&mut bytes, place)
            .map_err(unreadable)?;
        let record = Record::decode(&bytes, ByteOrder::Little).map_err(|_| missing())?;
        let count = record.record.payload_bytes().map_err(|_| missing())?;
        let Record::Write(mut write) = record.record else {
            return Err(missing());
        };
        let mut payload = vec![0; count];
        self.file
            .read_exact_at(&mut payload, place + widen(RECORD_BYTES))
            .map_err(unreadable)?;
        write.to_guid = reference.to_guid;
        write.object = reference.object;
        write.offset = reference.offset;
        Ok((Record::Write(write), payload))
    }
}
