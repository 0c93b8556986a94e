//! Records out of a stream.

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

/// The longest description that is read: a name-value list of all snapshots. A guess: half a million snapshots.
const DESCRIPTION_BYTES_MAX: usize = 256 << 20;

/// Why no record could be taken out of a stream.
#[derive(Debug, Error)]
pub enum StreamError {
    /// There is nothing more to come.
    #[error("incomplete stream")]
    Ended {
        /// Where, in bytes from its start.
        offset: u64,
    },
    /// The bytes cannot be read.
    #[error("the stream cannot be read at byte {offset}: {}", tarn_host::words_of(.cause))]
    Unreadable {
        /// Where, in bytes from its start.
        offset: u64,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The bytes are no stream.
    #[error("invalid stream (bad magic number)")]
    NoStream(Corrupt),
    /// A record cannot be.
    #[error("invalid stream: at byte {offset}, {what}")]
    Corrupt {
        /// Where the record begins, in bytes from the start of the stream.
        offset: u64,
        /// What is wrong.
        what: Corrupt,
    },
    /// What came is not what was sent.
    #[error(
        "invalid stream (checksum mismatch): the record at byte {offset} is damaged, or one before it"
    )]
    Checksum {
        /// Where the record begins, in bytes from the start of the stream.
        offset: u64,
    },
    /// A record stands where it cannot.
    #[error("invalid stream: at byte {offset}, {why}")]
    OutOfPlace {
        /// Where the record begins, in bytes from the start of the stream.
        offset: u64,
        /// Why.
        why: &'static str,
    },
}

/// A record with what followed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The record.
    pub record: Record,
    /// What followed it: so that it can become a block as it is.
    pub payload: Buffer,
    /// Where the record begins, in bytes from the start of the input.
    pub offset: u64,
}

/// The receiver's end. A record is handed out when the checksum of the next one, which covers what follows the record, was found right.
#[derive(Debug)]
pub struct StreamReader<R> {
    input: R,
    order: ByteOrder,
    sum: Fletcher4,
    offset: u64,
    /// Where the first record of the stream ended.
    begun_at: u64,
    /// The next record, checked, whose payload is still to be read.
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

    /// The byte order of the numbers.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// How many bytes were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes of this stream were read, without its first record but with what that describes: what OpenZFS says that
    /// it has received.
    #[doc(alias = "read_bytes")]
    pub fn received_bytes(&self) -> u64 {
        self.offset - self.begun_at
    }

    /// Where the bytes come from.
    pub fn into_inner(self) -> R {
        self.input
    }

    /// The first record and the description that follows it; none where there is nothing more, or a compound ends. Several
    /// streams may follow each other in one input; each is begun like this.
    ///
    /// # Errors
    /// When it is no stream, is damaged, or cannot be read.
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
        // What ends a compound has no magic number: it is zeros but for its type, and perhaps its checksum.
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
    /// When there is none, it is damaged, or it cannot be read.
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

    /// Reads what follows a record, and the record after that, which proves it.
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

    /// Takes a record apart and checks its checksum.
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
        // Very old senders wrote zeros, as does the end of a compound.
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

    /// Reads what follows a record: memory is taken as bytes come, so that a lie about their number costs nothing.
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

    /// Reads as many bytes as there are, up to the buffer's end.
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
