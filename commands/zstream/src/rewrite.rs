//! Streams in, streams out: what `decompress`, `recompress` and `redup` have in common.
//!
//! # Mechanism
//! Each record is read, proved by its checksum, perhaps changed, and written with checksums made
//! anew. Streams of several snapshots are gone through one after the other.

use std::io::{BufWriter, IsTerminal, Read, Write};
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::stream::{Begin, Record, StreamKind};
use tarn_stream::reading::{Received, StreamError, StreamReader};
use tarn_stream::send::SendError;
use tarn_stream::send::series::{write_conclusion, write_description};
use tarn_stream::writing::StreamWriter;
use tarn_terminal::output::complain;

/// How much is written at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Why nothing more came out, and the exit code.
#[derive(Debug)]
pub struct Stopped {
    /// For people.
    pub why: String,
    pub code: u8,
}

impl Stopped {
    pub fn new(why: impl Into<String>, code: u8) -> Stopped {
        Stopped {
            why: why.into(),
            code,
        }
    }
}

impl From<StreamError> for Stopped {
    fn from(error: StreamError) -> Stopped {
        Stopped::new(format!("Error while reading file: {error}"), 1)
    }
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Stopped {
        Stopped::new(
            format!("Error while writing: {}", tarn_host::words_of(&error)),
            1,
        )
    }
}

impl From<SendError> for Stopped {
    fn from(error: SendError) -> Stopped {
        Stopped::new(format!("Error while writing: {error}"), 1)
    }
}

/// What is done with records.
pub trait Change {
    /// What a stream says of itself may change.
    fn begin(&mut self, _begin: &mut Begin) {}

    /// Gives a record as it is to be written.
    fn record(&mut self, received: Received) -> Result<(Record, Vec<u8>), Stopped>;
}

/// Takes the option `-v` off the words of a command; none, and told, when there is another.
pub fn verbose_and_words(arguments: &[String]) -> Option<(bool, Vec<&str>)> {
    let (mut verbose, mut words) = (false, Vec::new());
    for argument in arguments {
        match argument.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            None => words.push(argument.as_str()),
            Some(letters) => match letters.chars().find(|letter| *letter != 'v') {
                None => verbose = true,
                Some(other) => {
                    eprintln!("invalid option '{other}'");
                    return None;
                }
            },
        }
    }
    Some((verbose, words))
}

/// Refuses a terminal on standard input, in OpenZFS's words; gives the exit code then.
pub fn refuse_terminal() -> Option<u8> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    eprintln!(
        "Error: The send stream is a binary format and can not be read from a\n\
         terminal.  Standard input must be redirected."
    );
    Some(1)
}

/// Rewrites all there is to standard output; gives the exit code.
pub fn run<R: Read>(input: R, change: &mut impl Change) -> u8 {
    let out = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout().lock());
    match rewrite(input, out, change) {
        Ok(()) => 0,
        Err(stopped) => {
            complain(&stopped.why);
            stopped.code
        }
    }
}

/// Rewrites all there is.
pub fn rewrite<R: Read, W: Write>(
    input: R,
    mut out: W,
    change: &mut impl Change,
) -> Result<(), Stopped> {
    let mut reader = StreamReader::new(input);
    let mut is_package = false;
    while let Some((mut begin, payload)) = reader.begin()? {
        if reader.order() == ByteOrder::Big {
            let why = "Error: streams of machines of the other byte order are not supported";
            return Err(Stopped::new(why, 1));
        }
        change.begin(&mut begin);
        if begin.kind() == StreamKind::Compound {
            is_package = true;
            let name = begin.to_name.as_str().unwrap_or_default();
            write_description(&mut out, name, begin.features(), &payload)?;
            reader.next()?;
            continue;
        }
        let to_guid = begin.to_guid;
        let mut writer = StreamWriter::new(&mut out);
        let payload_bytes = u32::try_from(payload.len()).expect("a list of less than 4 GiB");
        let first = Record::Begin {
            begin,
            payload_bytes,
        };
        writer.write(&first, &payload)?;
        loop {
            let received = reader.next()?;
            if let Record::End(_) = received.record {
                break;
            }
            let (record, payload) = change.record(received)?;
            writer.write(&record, &payload)?;
        }
        writer.finish(to_guid)?;
    }
    if is_package {
        write_conclusion(&mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// Refuses what only `redup` understands.
pub fn refuse_duplicates(received: &Received) -> Result<(), Stopped> {
    match received.record {
        Record::WriteByReference(_) => {
            Err(Stopped::new("Deduplicated streams are not supported", 1))
        }
        _ => Ok(()),
    }
}
