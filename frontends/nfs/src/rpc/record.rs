//! Records in a byte stream (RFC 5531, section 11): fragments, each with its length and a mark of
//! the last one.
//!
//! # Mechanism
//! Bytes are read ahead into a buffer, and cut into records. When a fragment lacks more than the
//! buffer takes, its bytes are read right into the record.
//!
//! # Invariants
//! - A record has at most [`RECORD_BYTES_MAX`] bytes: a larger one ends the stream before its bytes
//!   are taken.

use rustix::io::Errno;
use tarn_tls::Channel;

/// The bit of a fragment's length that marks the last fragment of a record.
pub const LAST_FRAGMENT: u32 = 1 << 31;

/// Most bytes of data in a request or a reply.
pub const DATA_BYTES_MAX: usize = 1 << 20;

/// Most bytes of a record: the largest write, its arguments, and the head of a call.
pub const RECORD_BYTES_MAX: usize = DATA_BYTES_MAX + (4 << 10);

/// Most fragments of a record. Most clients send one; some send 2 KiB in each.
const FRAGMENTS_MAX: u32 = 1024;

/// Bytes that are read ahead at once: some hundred small requests.
const AHEAD_BYTES: usize = 64 << 10;

/// What taking a record came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// A record is there.
    Record,
    /// Its end has not come yet.
    Nothing,
    /// No record will come any more: the stream has ended, or makes no sense.
    Ended,
}

/// A byte stream that is cut into records.
#[derive(Debug, Default)]
pub struct RecordStream {
    /// Bytes that were read and not taken begin at `at`.
    ahead: Vec<u8>,
    at: usize,
    /// The record that is being put together.
    partial: Vec<u8>,
    /// Bytes that its present fragment lacks; none between fragments.
    lacking: Option<usize>,
    is_last: bool,
    fragments: u32,
}

impl RecordStream {
    /// Takes the next record into `record`, reading from `source` without waiting.
    pub fn take(&mut self, source: &Channel, record: &mut Vec<u8>) -> Taken {
        loop {
            match self.advance() {
                Ok(true) => {
                    self.fragments = 0;
                    record.clear();
                    std::mem::swap(&mut self.partial, record);
                    return Taken::Record;
                }
                Ok(false) => {}
                Err(TooLarge) => return Taken::Ended,
            }
            match self.read(source) {
                Ok(0) => return Taken::Ended,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Taken::Nothing,
                Err(_) => return Taken::Ended,
            }
        }
    }

    /// Whether a record is in memory in whole.
    pub fn has_whole(&self) -> bool {
        let mut rest = &self.ahead[self.at..];
        let (mut lacking, mut is_last) = (self.lacking, self.is_last);
        loop {
            if let Some(count) = lacking {
                let Some(after) = rest.get(count..) else {
                    return false;
                };
                if is_last {
                    return true;
                }
                rest = after;
            }
            let Some((mark, after)) = rest.split_first_chunk() else {
                return false;
            };
            let mark = u32::from_be_bytes(*mark);
            is_last = mark & LAST_FRAGMENT != 0;
            lacking = Some(usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX));
            rest = after;
        }
    }

    /// Whether nothing was read that was not taken.
    pub fn is_drained(&self) -> bool {
        self.at == self.ahead.len() && self.partial.is_empty() && self.lacking.is_none()
    }

    /// Bytes that the record being put together has, and those that it lacks by its marks.
    pub fn partial_bytes(&self) -> usize {
        self.partial.len() + self.lacking.unwrap_or(0)
    }

    /// Cuts what was read ahead. True when a record is whole.
    fn advance(&mut self) -> Result<bool, TooLarge> {
        loop {
            let ahead = &self.ahead[self.at..];
            let Some(lacking) = self.lacking else {
                let Some((mark, _)) = ahead.split_first_chunk() else {
                    return Ok(false);
                };
                let mark = u32::from_be_bytes(*mark);
                self.at += 4;
                let length = usize::try_from(mark & !LAST_FRAGMENT).map_err(|_| TooLarge)?;
                self.fragments += 1;
                let is_too_large = length > RECORD_BYTES_MAX - self.partial.len();
                if is_too_large || self.fragments > FRAGMENTS_MAX {
                    return Err(TooLarge);
                }
                self.is_last = mark & LAST_FRAGMENT != 0;
                self.lacking = Some(length);
                continue;
            };
            let count = lacking.min(ahead.len());
            self.partial.extend_from_slice(&ahead[..count]);
            self.at += count;
            if count < lacking {
                self.lacking = Some(lacking - count);
                return Ok(false);
            }
            self.lacking = None;
            if self.is_last {
                return Ok(true);
            }
        }
    }

    /// Reads once: into the record where much of it is lacking, else ahead.
    fn read(&mut self, source: &Channel) -> Result<usize, Errno> {
        let is_drained = self.at == self.ahead.len();
        if let Some(lacking) = self.lacking
            && is_drained
            && lacking >= AHEAD_BYTES
        {
            self.partial.reserve_exact(lacking);
            let filled = self.partial.len();
            // Only as much as the fragment lacks: what follows is the mark of the next.
            let mut limited = Limited::new(&mut self.partial, lacking);
            let count = limited.read(source)?;
            debug_assert_eq!(self.partial.len(), filled + count, "what was read is there");
            self.lacking = Some(lacking - count);
            if lacking == count {
                // An empty rest: the next look finds the end of the fragment.
                debug_assert_eq!(self.lacking, Some(0), "nothing is lacking");
            }
            return Ok(count);
        }
        self.ahead.drain(..self.at);
        self.at = 0;
        self.ahead.reserve(AHEAD_BYTES);
        source.append(&mut self.ahead)
    }
}

/// A record with more bytes or fragments than records may have.
#[derive(Debug, PartialEq, Eq)]
struct TooLarge;

/// Reads at most so many bytes behind those of a vector.
struct Limited<'a> {
    bytes: &'a mut Vec<u8>,
    count_max: usize,
}

impl<'a> Limited<'a> {
    fn new(bytes: &'a mut Vec<u8>, count_max: usize) -> Limited<'a> {
        Limited { bytes, count_max }
    }

    fn read(&mut self, source: &Channel) -> Result<usize, Errno> {
        let filled = self.bytes.len();
        let spare = self.bytes.capacity() - filled;
        if spare <= self.count_max {
            return source.append(self.bytes);
        }
        // A vector that was used before may have more room than the fragment lacks.
        self.bytes.resize(filled + self.count_max, 0);
        let outcome = source.read(&mut self.bytes[filled..]);
        self.bytes.truncate(filled + outcome.unwrap_or(0));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn fragment(bytes: &[u8], is_last: bool) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).unwrap();
        let mark = if is_last {
            length | LAST_FRAGMENT
        } else {
            length
        };
        [&mark.to_be_bytes()[..], bytes].concat()
    }

    fn pair() -> (Channel, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (Channel::new(near.into()), far)
    }

    #[test]
    fn records_are_cut_out_of_pieces_and_fragments() {
        let (near, mut far) = pair();
        let bytes = [
            fragment(b"ab", false),
            fragment(b"", false),
            fragment(b"cd", true),
            fragment(b"e", true),
        ]
        .concat();
        let (mut stream, mut record, mut seen) = (RecordStream::default(), Vec::new(), Vec::new());
        for byte in bytes {
            far.write_all(&[byte]).unwrap();
            if stream.take(&near, &mut record) == Taken::Record {
                seen.push(record.clone());
            }
        }
        assert_eq!(seen, [b"abcd".to_vec(), b"e".to_vec()]);
        drop(far);
        assert_eq!(stream.take(&near, &mut record), Taken::Ended);
    }

    #[test]
    fn records_that_were_read_together_are_in_memory() {
        let (near, mut far) = pair();
        let (mut stream, mut record) = (RecordStream::default(), Vec::new());
        let both = [fragment(b"first", true), fragment(b"second", true)].concat();
        far.write_all(&both).unwrap();
        assert_eq!(stream.take(&near, &mut record), Taken::Record);
        assert!(stream.has_whole());
        assert_eq!(stream.take(&near, &mut record), Taken::Record);
        assert_eq!(record, b"second");
        assert!(!stream.has_whole());
        far.write_all(&fragment(b"third", false)).unwrap();
        assert_eq!(stream.take(&near, &mut record), Taken::Nothing);
        assert!(!stream.has_whole(), "its last fragment has not come");
    }

    #[test]
    fn a_large_record_comes_whole_and_a_larger_one_ends_the_stream() {
        let (near, mut far) = pair();
        let body: Vec<u8> = (0..DATA_BYTES_MAX).map(|at| at.to_le_bytes()[0]).collect();
        let sent = [fragment(&body, true), fragment(b"x", true)].concat();
        let sender = std::thread::spawn(move || {
            far.write_all(&sent).unwrap();
            far
        });
        let (mut stream, mut record) = (RecordStream::default(), Vec::new());
        let mut next = |record: &mut Vec<u8>| loop {
            match stream.take(&near, record) {
                Taken::Nothing => std::thread::yield_now(),
                other => return other,
            }
        };
        assert_eq!(next(&mut record), Taken::Record);
        assert!(record == body);
        assert_eq!(next(&mut record), Taken::Record);
        let mut far = sender.join().unwrap();
        let mark = u32::try_from(RECORD_BYTES_MAX + 1).unwrap() | LAST_FRAGMENT;
        far.write_all(&mark.to_be_bytes()).unwrap();
        assert_eq!(next(&mut record), Taken::Ended);
    }

    #[test]
    fn many_empty_fragments_end_the_stream() {
        let (near, mut far) = pair();
        let empty: Vec<u8> = (0..=FRAGMENTS_MAX)
            .flat_map(|_| fragment(b"", false))
            .collect();
        far.write_all(&empty).unwrap();
        let (mut stream, mut record) = (RecordStream::default(), Vec::new());
        assert_eq!(stream.take(&near, &mut record), Taken::Ended);
    }
}
