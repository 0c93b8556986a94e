//! Reads the records of a stream.

use crate::writing::sum_order;
use std::io::Read;
use tarn_host::buffer::Buffer;
use tarn_ondisk::checksum::Checksum;
use tarn_ondisk::declare::{ByteOrder, Corrupt, Stored};
use tarn_ondisk::stream::{
    Begin, CHECKSUM_OFFSET, Framed, RECORD_BYTES, Record, StreamKind, order_of,
};
use tarn_transform::checksum::Checksum as SumOf;
use tarn_transform::checksum::fletcher::Fletcher4;
use thiserror::Error;

/// Longest package list that is read: a name-value list of all snapshots. A guess: half a million
/// snapshots.
const DESCRIPTION_BYTES_MAX: usize = 256 << 20;

/// Why no record could be read from a stream.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The input has ended.
    #[error("incomplete stream")]
    Ended {
        /// Position in bytes from the start of the stream.
        offset: u64,
    },
    /// The input cannot be read.
    #[error("the stream cannot be read at byte {offset}: {}", tarn_host::words_of(.cause))]
    Unreadable {
        /// Position in bytes from the start of the stream.
        offset: u64,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The input is no stream.
    #[error("invalid stream (bad magic number)")]
    NoStream(Corrupt),
    /// A record is malformed.
    #[error("invalid stream: at byte {offset}, {what}")]
    Corrupt {
        /// Where the record begins, in bytes from the start of the stream.
        offset: u64,
        /// The fault.
        what: Corrupt,
    },
    /// The bytes differ from those that were sent.
    #[error(
        "invalid stream (checksum mismatch): the record at byte {offset} is damaged, or one before it"
    )]
    Checksum {
        /// Where the record begins, in bytes from the start of the stream.
        offset: u64,
    },
    /// A record is not allowed at its place.
    #[error("invalid stream: at byte {offset}, {why}")]
    OutOfPlace {
        /// Where the record begins, in bytes from the start of the stream.
        offset: u64,
        /// The reason.
        why: &'static str,
    },
}

/// A record with its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The record.
    pub record: Record,
    /// The payload, in a buffer that can become a block.
    pub payload: Buffer,
    /// Where the record begins, in bytes from the start of the input.
    pub offset: u64,
}

/// The receiving end of a stream. A record is returned after the checksum of the next one, which
/// covers the record's payload, was verified.
#[derive(Debug)]
pub struct StreamReader<R> {
    input: R,
    order: ByteOrder,
    sum: Fletcher4,
    offset: u64,
    /// Position after the first record of the stream.
    begun_at: u64,
    /// The next record, verified, whose payload is still to be read.
    ahead: Option<(Record, u64)>,
}

impl<R: Read> StreamReader<R> {
    /// Reads from the start of a stream.
    pub fn new(input: R) -> Self {
        StreamReader {
            input,
            order: ByteOrder::Little,
            sum: Fletcher4::new(),
            offset: 0,
            begun_at: 0,
            ahead: None,
        }
    }

    /// The byte order of the stream.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Number of bytes read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes read of this stream, without its first record but with that record's payload: the
    /// count that OpenZFS shows as received.
    #[doc(alias = "read_bytes")]
    pub fn received_bytes(&self) -> u64 {
        self.offset - self.begun_at
    }

    /// The input.
    pub fn into_inner(self) -> R {
        self.input
    }

    /// The first record and its payload; none at the end of the input, or of a package. Several
    /// streams may follow each other in one input; each begins with this call.
    ///
    /// # Errors
    /// The input is no stream, is damaged, or cannot be read.
    #[allow(
        clippy::type_complexity,
        reason = "a record and its payload, or nothing"
    )]
    pub fn begin(&mut self) -> Result<Option<(Box<Begin>, Vec<u8>)>, StreamError> {
        self.sum = Fletcher4::new();
        let at = self.offset;
        let mut bytes = [0; RECORD_BYTES];
        match self.fill(&mut bytes)? {
            0 => return Ok(None),
            RECORD_BYTES => {}
            _ => return Err(self.ended()),
        }
        self.begun_at = self.offset;
        // The end of a package has no magic number: all is zero but its type, and perhaps its
        // checksum.
        let is_closing = bytes[4..CHECKSUM_OFFSET].iter().all(|&byte| byte == 0);
        if !is_closing {
            self.order = order_of(&bytes).map_err(StreamError::NoStream)?;
        }
        match self.check(&bytes, at)? {
            Record::End(_) => Ok(None),
            record @ Record::Begin { .. } => {
                let received = self.complete(record, at)?;
                let Record::Begin { begin, .. } = received.record else {
                    unreachable!("it was one");
                };
                Ok(Some((begin, received.payload.to_vec())))
            }
            _ => Err(StreamError::OutOfPlace {
                offset: at,
                why: "a stream does not begin here",
            }),
        }
    }

    /// The next record after the first.
    ///
    /// # Errors
    /// There is no record, it is damaged, or it cannot be read.
    ///
    /// # Panics
    /// After the last record of a stream, and before the first.
    #[allow(
        clippy::should_implement_trait,
        reason = "a stream has an end of its own"
    )]
    pub fn next(&mut self) -> Result<Received, StreamError> {
        let (record, at) = self
            .ahead
            .take()
            .expect("a stream was begun, and not ended");
        self.complete(record, at)
    }

    /// Reads a record's payload, and the next record, whose checksum covers it.
    fn complete(&mut self, record: Record, offset: u64) -> Result<Received, StreamError> {
        let count = match &record {
            Record::Begin {
                begin,
                payload_bytes,
            } if begin.kind() == StreamKind::Compound => {
                usize::try_from(*payload_bytes).unwrap_or(usize::MAX)
            }
            other => other
                .payload_bytes()
                .map_err(|what| StreamError::Corrupt { offset, what })?,
        };
        if count > DESCRIPTION_BYTES_MAX {
            return Err(StreamError::OutOfPlace {
                offset,
                why: "the description is longer than any",
            });
        }
        let payload = self.payload(count)?;
        self.sum.update(&payload, sum_order(self.order));
        if !matches!(record, Record::End(_)) {
            let at = self.offset;
            let mut bytes = [0; RECORD_BYTES];
            if self.fill(&mut bytes)? < RECORD_BYTES {
                return Err(self.ended());
            }
            self.ahead = Some((self.check(&bytes, at)?, at));
        }
        Ok(Received {
            record,
            payload,
            offset,
        })
    }

    /// Decodes a record and verifies its checksum.
    fn check(&mut self, bytes: &[u8; RECORD_BYTES], offset: u64) -> Result<Record, StreamError> {
        let order = sum_order(self.order);
        let before = self.sum.finish();
        self.sum.update(&bytes[..CHECKSUM_OFFSET], order);
        let expected = self.sum.finish();
        self.sum.update(&bytes[CHECKSUM_OFFSET..], order);
        let framed = Record::decode(bytes, self.order);
        let is_begin = matches!(
            &framed,
            Ok(Framed {
                record: Record::Begin { .. },
                ..
            })
        );
        // Very old senders wrote zeros, as does the end of a package.
        let agrees = |stored: Checksum, sum: SumOf| stored == Checksum::ZERO || stored.0 == sum.0;
        let stored = Checksum::from_bytes(&bytes[CHECKSUM_OFFSET..], self.order)
            .map_err(|what| StreamError::Corrupt { offset, what })?;
        if !is_begin && !agrees(stored, expected) {
            return Err(StreamError::Checksum { offset });
        }
        let record = framed
            .map_err(|what| StreamError::Corrupt { offset, what })?
            .record;
        match &record {
            Record::End(end) if !agrees(end.checksum, before) => {
                Err(StreamError::Checksum { offset })
            }
            _ => Ok(record),
        }
    }

    fn ended(&self) -> StreamError {
        StreamError::Ended {
            offset: self.offset,
        }
    }

    /// Reads a payload. Memory is allocated as bytes come, so that a false length costs nothing.
    fn payload(&mut self, count: usize) -> Result<Buffer, StreamError> {
        const PIECE_BYTES: usize = 1 << 20;
        let mut payload = match count {
            0 => Buffer::default(),
            count => Buffer::for_overwrite(PIECE_BYTES.min(count)),
        };
        let mut done = 0;
        while done < count {
            if done == payload.len() {
                payload.resize(count.min(2 * done));
            }
            let wanted = payload.len() - done;
            if self.fill(&mut payload[done..])? < wanted {
                return Err(self.ended());
            }
            done = payload.len();
        }
        Ok(payload)
    }

    /// Fills the buffer as far as the input goes.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, StreamError> {
        let mut done = 0;
        while done < bytes.len() {
            match self.input.read(&mut bytes[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    return Err(StreamError::Unreadable {
                        offset: self.offset,
                        cause,
                    });
                }
            }
        }
        self.offset += u64::try_from(done).expect("sizes fit 64 bits");
        Ok(done)
    }
}
