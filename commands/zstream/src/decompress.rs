//! `zstream decompress`: single records whose metadata say that they are compressed when they are
//! not, or not like this, made plain.

use crate::misused;
use crate::rewrite::{
    Change, Stopped, refuse_duplicates, refuse_terminal, run as rewrite, verbose_and_words,
};
use std::collections::BTreeMap;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::stream::{PAYLOAD_BYTES_MAX, Record};
use tarn_stream::reading::Received;
use tarn_transform::compress::{CompressionAlgorithm, GzipLevel, ZstdLevel, decompress};

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[String]) -> u8 {
    let Some((verbose, words)) = verbose_and_words(arguments) else {
        return misused();
    };
    let mut records = BTreeMap::new();
    for word in words {
        match parse(word) {
            Ok((at, algorithm)) => drop(records.insert(at, algorithm)),
            Err(Misuse::Usage) => return misused(),
            Err(Misuse::Said(why, code)) => {
                eprintln!("{why}");
                return code;
            }
        }
    }
    refuse_terminal().unwrap_or_else(|| {
        let mut change = Decompress { records, verbose };
        rewrite(std::io::stdin().lock(), &mut change)
    })
}

enum Misuse {
    Usage,
    Said(String, u8),
}

/// `OBJECT,OFFSET[,TYPE]`.
fn parse(argument: &str) -> Result<((u64, u64), CompressionAlgorithm), Misuse> {
    let number = |text: &str, what: &str| {
        let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| Misuse::Said(format!("zstream: invalid value for {what}"), 1))
    };
    let (object, rest) = argument.split_once(',').ok_or(Misuse::Usage)?;
    let (offset, word) = match rest.split_once(',') {
        Some((offset, word)) => (offset, word),
        None => (rest, "lz4"),
    };
    let (object, offset) = (number(object, "object")?, number(offset, "offset")?);
    let algorithm = match word {
        "off" => CompressionAlgorithm::Off,
        "lz4" => CompressionAlgorithm::Lz4,
        "lzjb" => CompressionAlgorithm::Lzjb,
        "gzip" => CompressionAlgorithm::Gzip(GzipLevel::DEFAULT),
        "zle" => CompressionAlgorithm::Zle,
        "zstd" => CompressionAlgorithm::Zstd(ZstdLevel::DEFAULT),
        other => {
            let why = format!(
                "Invalid compression type {other}.\n\
                 Supported types are off, lz4, lzjb, gzip, zle, and zstd"
            );
            return Err(Misuse::Said(why, 2));
        }
    };
    Ok(((object, offset), algorithm))
}

struct Decompress {
    /// By object and offset, how the contents are compressed in truth.
    records: BTreeMap<(u64, u64), CompressionAlgorithm>,
    verbose: bool,
}

impl Change for Decompress {
    fn record(&mut self, received: Received) -> Result<(Record, Vec<u8>), Stopped> {
        refuse_duplicates(&received)?;
        let Received {
            record, payload, ..
        } = received;
        let mut payload = payload.to_vec();
        let Record::Write(mut write) = record else {
            return Ok((record, payload));
        };
        let Some(algorithm) = self.records.get(&(write.object, write.offset)) else {
            return Ok((Record::Write(write), payload));
        };
        let at = format!("ino {} offset {}", write.object, write.offset);
        let size = write.logical_size.min(PAYLOAD_BYTES_MAX);
        let plain = match algorithm {
            CompressionAlgorithm::Off => {
                if self.verbose {
                    eprintln!("Resetting compression type to off for {at}");
                }
                // What there is of it; the rest is zeros.
                payload.resize(narrow(size), 0);
                payload
            }
            algorithm => {
                let mut plain = vec![0; narrow(size)];
                if decompress(*algorithm, &payload, &mut plain).is_err() {
                    eprintln!("zstream: decompression failed for {at}");
                    return Ok((Record::Write(write), payload));
                }
                if self.verbose {
                    eprintln!("successfully decompressed {at}");
                }
                plain
            }
        };
        (write.compression, write.compressed_size) = (0, 0);
        Ok((Record::Write(write), plain))
    }
}
