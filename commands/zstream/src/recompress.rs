//! `zstream recompress`: the same stream with its contents compressed otherwise.

use crate::misused;
use crate::rewrite::{Change, Stopped, refuse_duplicates, refuse_terminal, run as rewrite};
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::stream::{PAYLOAD_BYTES_MAX, Record, WriteRecord};
use tarn_stream::reading::Received;
use tarn_transform::compress::{
    CompressionAlgorithm, GzipLevel, ZstdLevel, compress, decompress, is_zero,
};

/// What is stored is whole sectors.
const SECTOR_BYTES: usize = 512;

/// Runs the subcommand; gives the exit code.
pub fn run(arguments: &[String]) -> u8 {
    let (mut level, mut words) = (0_i64, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            None => words.push(argument.as_str()),
            Some(option) if option.starts_with('l') => {
                let value = match &option[1..] {
                    "" => rest.next().map_or("", String::as_str),
                    value => value,
                };
                match value.parse() {
                    Ok(number) => level = number,
                    Err(_) => {
                        eprintln!("failed to parse level '{value}'");
                        return misused();
                    }
                }
            }
            Some(option) => {
                eprintln!(
                    "invalid option '{}'",
                    option.chars().next().unwrap_or_default()
                );
                return misused();
            }
        }
    }
    let [word] = words.as_slice() else {
        return misused();
    };
    let Some(algorithm) = algorithm(word, level) else {
        eprintln!("Invalid compression type {word}.");
        return 2;
    };
    refuse_terminal()
        .unwrap_or_else(|| rewrite(std::io::stdin().lock(), &mut Recompress { algorithm }))
}

/// An algorithm by its name; only that of zstd does not have its level in it.
fn algorithm(word: &str, level: i64) -> Option<CompressionAlgorithm> {
    Some(match word {
        "off" => CompressionAlgorithm::Off,
        "lzjb" => CompressionAlgorithm::Lzjb,
        "zle" => CompressionAlgorithm::Zle,
        "lz4" => CompressionAlgorithm::Lz4,
        "zstd" if level == 0 => CompressionAlgorithm::Zstd(ZstdLevel::DEFAULT),
        "zstd" => {
            let number = u8::try_from(level).ok()?;
            CompressionAlgorithm::Zstd(ZstdLevel::new(number)?)
        }
        other => {
            let number = other.strip_prefix("gzip-")?.parse().ok()?;
            CompressionAlgorithm::Gzip(GzipLevel::new(number)?)
        }
    })
}

struct Recompress {
    algorithm: CompressionAlgorithm,
}

impl Change for Recompress {
    fn record(&mut self, received: Received) -> Result<(Record, Vec<u8>), Stopped> {
        refuse_duplicates(&received)?;
        let Received {
            record, payload, ..
        } = received;
        match record {
            // What is encrypted cannot be opened, and so not be compressed.
            Record::Write(write) if write.sealing.salt.0 == [0; 8] => {
                let (write, payload) = self.recompress(write, payload.to_vec())?;
                Ok((Record::Write(write), payload))
            }
            record => Ok((record, payload.to_vec())),
        }
    }
}

impl Recompress {
    fn recompress(
        &self,
        mut write: WriteRecord,
        payload: Vec<u8>,
    ) -> Result<(WriteRecord, Vec<u8>), Stopped> {
        let plain = plain(&write, payload)?;
        let small = match is_zero(&plain) {
            true => None,
            false => compress(self.algorithm, &plain, plain.len().saturating_sub(1)),
        };
        let stored = small.map(|mut small| {
            small.resize(small.len().next_multiple_of(SECTOR_BYTES), 0);
            small
        });
        let stored = stored.filter(|stored| stored.len() < plain.len());
        match stored {
            Some(stored) => {
                write.compression = self.algorithm.code();
                write.compressed_size = widen(stored.len());
                Ok((write, stored))
            }
            None => {
                (write.compression, write.compressed_size) = (0, 0);
                Ok((write, plain))
            }
        }
    }
}

/// The contents of a record.
fn plain(write: &WriteRecord, payload: Vec<u8>) -> Result<Vec<u8>, Stopped> {
    let compression = Compression::from_code(write.compression);
    let algorithm = match write.compression {
        // Records of plain contents have zero, those of raw streams a number that says so.
        0 => CompressionAlgorithm::Off,
        code => CompressionAlgorithm::from_code(code).map_err(|_| {
            let why = format!("Invalid compression type in stream: {code}");
            Stopped::new(why, 3)
        })?,
    };
    if algorithm == CompressionAlgorithm::Off {
        return Ok(payload);
    }
    let size = write.logical_size.min(PAYLOAD_BYTES_MAX);
    let mut plain = vec![0; narrow(size)];
    decompress(algorithm, &payload, &mut plain).map_err(|_| {
        let why = format!(
            "zstream: decompression type {} failed for ino {} offset {}",
            compression.code(),
            write.object,
            write.offset
        );
        Stopped::new(why, 4)
    })?;
    Ok(plain)
}
