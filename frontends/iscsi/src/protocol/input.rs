//! Cutting PDUs out of a byte stream.
//!
//! # Mechanism
//! Bytes are read into a buffer of fixed size. The header of the next PDU says how much data it
//! has; that is bounded before a buffer of its length is made, and large data is read into that
//! buffer at once. Nothing of a PDU is believed before its digests are right.

use crate::protocol::pdu::{Digests, HEADER_BYTES, Pdu, padding, sum_of};

/// How many bytes are read at once, unless a data segment needs more.
const BUFFER_BYTES: usize = 64 << 10;

/// Why a stream makes no sense any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A data segment is longer than was declared.
    #[error("a PDU announces {bytes} bytes of data, more than {most}")]
    TooLong {
        /// What it announces.
        bytes: usize,
        /// What it may have.
        most: usize,
    },
    /// Additional header segments are longer than any command needs.
    #[error("a PDU announces {0} bytes of additional headers")]
    AdditionalTooLong(usize),
    /// The header digest is wrong.
    #[error("the digest of a header is wrong")]
    HeaderDigest,
    /// The data digest is wrong.
    #[error("the digest of data is wrong")]
    DataDigest,
    /// The other end has closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// The connection failed.
    #[error("the connection failed")]
    Failed,
}

/// Most bytes of additional header segments: an extended CDB of 260 bytes, and a length.
const ADDITIONAL_BYTES_MAX: usize = 272;

/// What a read from the stream gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes; none at the end.
    Bytes(usize),
    /// None now.
    Nothing,
    /// It failed.
    Failed,
}

/// A PDU of which the header has come.
#[derive(Debug)]
struct Begun {
    pdu: Pdu,
    /// How many bytes of its data have come.
    filled: usize,
    /// What follows the data: padding and digest.
    trailer: usize,
}

/// The bytes of a connection that are not PDUs yet.
#[derive(Debug)]
pub struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    begun: Option<Begun>,
    /// Which digests are expected.
    pub digests: Digests,
    /// Most bytes of a data segment.
    pub data_bytes_max: usize,
}

impl Input {
    /// An empty one.
    pub fn new(data_bytes_max: usize) -> Input {
        Input {
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            begun: None,
            digests: Digests::default(),
            data_bytes_max,
        }
    }

    /// Takes the next PDU, reading as far as needed. None when no more bytes are there now.
    ///
    /// # Errors
    /// See [`InputError`]. The stream cannot be used any more.
    pub fn take(
        &mut self,
        mut read: impl FnMut(&mut [u8]) -> Read,
    ) -> Result<Option<Pdu>, InputError> {
        loop {
            if let Some(pdu) = self.cut()? {
                return Ok(Some(pdu));
            }
            match self.fill(&mut read) {
                Read::Bytes(0) => return Err(InputError::Closed),
                Read::Bytes(_) => {}
                Read::Nothing => return Ok(None),
                Read::Failed => return Err(InputError::Failed),
            }
        }
    }

    /// Whether a whole PDU is in the buffer.
    pub fn has_whole(&self) -> bool {
        let there = self.end - self.start;
        if let Some(begun) = &self.begun {
            return there >= begun.pdu.data.len() - begun.filled + begun.trailer;
        }
        let Some(header) = self.buffer[self.start..self.end].first_chunk::<HEADER_BYTES>() else {
            return false;
        };
        let (additional, data) = (
            Pdu::announced_additional(header),
            Pdu::announced_data(header),
        );
        let head = HEADER_BYTES + additional + if self.digests.header { 4 } else { 0 };
        there >= head + data + self.trailer_of(data)
    }

    fn trailer_of(&self, data: usize) -> usize {
        padding(data) + if self.digests.data && data > 0 { 4 } else { 0 }
    }

    /// Reads into the data of the PDU that has begun, if much is missing, else into the buffer.
    fn fill(&mut self, read: &mut impl FnMut(&mut [u8]) -> Read) -> Read {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if let Some(begun) = &mut self.begun
            && self.end == 0
            && begun.pdu.data.len() - begun.filled >= BUFFER_BYTES / 4
        {
            let got = read(&mut begun.pdu.data[begun.filled..]);
            if let Read::Bytes(count) = got {
                begun.filled += count;
            }
            return got;
        }
        if self.end == self.buffer.len() || self.start > self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let got = read(&mut self.buffer[self.end..]);
        if let Read::Bytes(count) = got {
            self.end += count;
        }
        got
    }

    /// Cuts the next PDU out of what was read.
    fn cut(&mut self) -> Result<Option<Pdu>, InputError> {
        if self.begun.is_none() {
            self.begun = self.cut_header()?;
        }
        let Some(begun) = &mut self.begun else {
            return Ok(None);
        };
        let there = &self.buffer[self.start..self.end];
        let count = there.len().min(begun.pdu.data.len() - begun.filled);
        begun.pdu.data[begun.filled..begun.filled + count].copy_from_slice(&there[..count]);
        begun.filled += count;
        self.start += count;
        let is_whole = begun.filled == begun.pdu.data.len();
        if !is_whole || self.end - self.start < begun.trailer {
            return Ok(None);
        }
        let Some(begun) = self.begun.take() else {
            return Ok(None);
        };
        let trailer = &self.buffer[self.start..self.start + begun.trailer];
        self.start += begun.trailer;
        let data = &begun.pdu.data;
        if self.digests.data && !data.is_empty() {
            let told = trailer.last_chunk().map(|sum| u32::from_le_bytes(*sum));
            let padded = &trailer[..padding(data.len())];
            let sum = crc32c::crc32c_append(sum_of(&[data], 0), padded);
            if told != Some(sum) {
                return Err(InputError::DataDigest);
            }
        }
        Ok(Some(begun.pdu))
    }

    fn cut_header(&mut self) -> Result<Option<Begun>, InputError> {
        let there = &self.buffer[self.start..self.end];
        let Some(header) = there.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let (additional, data) = (
            Pdu::announced_additional(header),
            Pdu::announced_data(header),
        );
        if additional > ADDITIONAL_BYTES_MAX {
            return Err(InputError::AdditionalTooLong(additional));
        }
        if data > self.data_bytes_max {
            return Err(InputError::TooLong {
                bytes: data,
                most: self.data_bytes_max,
            });
        }
        let head = HEADER_BYTES + additional;
        let whole = head + if self.digests.header { 4 } else { 0 };
        if there.len() < whole {
            return Ok(None);
        }
        if self.digests.header {
            let told = there[head..whole].first_chunk();
            let told = told.map(|sum| u32::from_le_bytes(*sum));
            if told != Some(crc32c::crc32c(&there[..head])) {
                return Err(InputError::HeaderDigest);
            }
        }
        let pdu = Pdu {
            header: *header,
            additional: there[HEADER_BYTES..head].to_vec(),
            data: vec![0; data],
        };
        self.start += whole;
        let trailer = self.trailer_of(data);
        Ok(Some(Begun {
            pdu,
            filled: 0,
            trailer,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(length: usize) -> Pdu {
        let data = (0..length).map(|at| (at % 251) as u8).collect();
        let mut pdu = Pdu::new(5).with_u32(16, 77).with_data(data);
        put_lengths(&mut pdu);
        pdu
    }

    fn put_lengths(pdu: &mut Pdu) {
        let encoded = pdu.encode_header(Digests::default(), pdu.data.len());
        pdu.header.copy_from_slice(&encoded[..HEADER_BYTES]);
    }

    fn cut_all(bytes: &[u8], piece: usize, digests: Digests) -> Result<Vec<Pdu>, InputError> {
        let mut input = Input::new(1 << 20);
        input.digests = digests;
        let (mut rest, mut found) = (bytes, Vec::new());
        let read = |into: &mut [u8], rest: &mut &[u8]| {
            let count = piece.min(into.len()).min(rest.len());
            let (these, others) = rest.split_at(count);
            into[..count].copy_from_slice(these);
            *rest = others;
            match count {
                0 => Read::Nothing,
                count => Read::Bytes(count),
            }
        };
        while let Some(pdu) = input.take(|into| read(into, &mut rest))? {
            found.push(pdu);
        }
        Ok(found)
    }

    #[test]
    fn pdus_of_all_lengths_come_out_of_a_stream_in_pieces() {
        let both = Digests {
            header: true,
            data: true,
        };
        let lengths = [0, 1, 2, 3, 4, 511, 512, 9000, 70_000, 200_001, 0, 5];
        for digests in [Digests::default(), both] {
            let pdus: Vec<Pdu> = lengths.iter().map(|length| sample(*length)).collect();
            let bytes: Vec<u8> = pdus.iter().flat_map(|pdu| pdu.encode(digests)).collect();
            for piece in [1, 7, 48, 1000, 1 << 20] {
                assert!(cut_all(&bytes, piece, digests).unwrap() == pdus);
            }
        }
    }

    #[test]
    fn a_damaged_byte_is_found_by_the_digests() {
        let both = Digests {
            header: true,
            data: true,
        };
        let bytes = sample(13).encode(both);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let cut = cut_all(&damaged, 1000, both);
            // A damaged length makes it wait for more.
            assert!(cut.is_err() || cut.is_ok_and(|cut| cut.is_empty()), "{at}");
        }
    }

    #[test]
    fn lengths_are_bounded_before_memory_is_taken() {
        let mut header = [0; HEADER_BYTES];
        header[5..8].fill(0xff);
        assert!(matches!(
            cut_all(&header, 48, Digests::default()),
            Err(InputError::TooLong { .. })
        ));
        header = [0; HEADER_BYTES];
        header[4] = 0xff;
        let error = cut_all(&header, 48, Digests::default());
        assert_eq!(error, Err(InputError::AdditionalTooLong(1020)));
    }
}
