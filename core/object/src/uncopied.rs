//! The bytes that front ends read and write: parts of blocks of the cache, uncopied, and bytes or
//! buffers that become blocks.

use std::ops::Range;

use tarn_block::Block;
use tarn_host::buffer::Buffer;
use tarn_ondisk::declare::{Corrupt, narrow, widen};
use tarn_ondisk::units::BlockId;
use tarn_probe::{Operation, Outcome};

use crate::error::ObjectError;
use crate::object::{Caching, Object};
use crate::tx::Tx;

/// The bytes that were read: parts of blocks, in their order.
#[derive(Debug, Clone, Default)]
pub struct ReadData {
    parts: Vec<(Block, Range<usize>)>,
}

impl ReadData {
    /// The parts, in their order.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.parts
            .iter()
            .map(|(block, range)| &block[range.clone()])
    }

    /// The blocks, each with the range that was asked for.
    pub fn into_parts(self) -> Vec<(Block, Range<usize>)> {
        self.parts
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, range)| range.len()).sum()
    }

    /// Some of the bytes, uncopied.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn part(&self, range: Range<usize>) -> ReadData {
        let (mut parts, mut at) = (Vec::new(), 0);
        for (block, own) in &self.parts {
            let (from, to) = (range.start.max(at), range.end.min(at + own.len()));
            if from < to {
                let within = own.start + (from - at)..own.start + (to - at);
                parts.push((block.clone(), within));
            }
            at += own.len();
        }
        assert!(range.end <= at, "a part of what was read lies in it");
        ReadData { parts }
    }

    /// True where nothing was read: at the end of a file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes in a row, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().collect::<Vec<_>>().concat()
    }
}

/// The bytes to write.
#[derive(Debug)]
pub enum NewContents<'a> {
    /// These bytes, which are copied.
    Bytes(&'a [u8]),
    /// The first `length` bytes of these buffers. Those that fill a block become that block.
    Buffers {
        /// All but the last are used whole.
        buffers: Vec<Buffer>,
        /// How many bytes of them are meant.
        length: usize,
    },
}

impl NewContents<'_> {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match self {
            NewContents::Bytes(bytes) => bytes.len(),
            NewContents::Buffers { length, .. } => *length,
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those bytes, copied together.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            NewContents::Bytes(bytes) => bytes.to_vec(),
            NewContents::Buffers { buffers, length } => {
                let bytes = buffers.iter().flat_map(|one| one.iter().copied());
                let bytes: Vec<u8> = bytes.take(length).collect();
                assert_eq!(bytes.len(), length, "the buffers have all bytes");
                bytes
            }
        }
    }
}

/// Whether some block was not in memory.
fn has_waited(operation: &Operation) -> bool {
    let waits = [
        Outcome::CacheInFlight,
        Outcome::SecondLevel,
        Outcome::Special,
        Outcome::Disk,
    ];
    waits.iter().any(|wait| operation.is_marked(*wait))
}

impl Object {
    /// Reads the bytes of a range, uncopied. `caching` applies to the blocks that are read whole.
    /// Holes read as zeros.
    ///
    /// Prefetch is asked for each block from the first one on that is not in memory: it reads the
    /// next ones of the range meanwhile. While all are in memory it is asked once, for the range,
    /// for looking up what might be next would take longer than the blocks themselves.
    ///
    /// # Errors
    /// A block cannot be read, or is smaller than the blocks of the object.
    pub fn read_data(
        &self,
        range: Range<u64>,
        caching: Caching,
        operation: &Operation,
    ) -> Result<ReadData, ObjectError> {
        let block_size = self.block_size().get();
        let blocks = range.start / block_size..range.end.div_ceil(block_size);
        let mut parts = Vec::new();
        let mut at = range.start;
        let mut is_in_memory = true;
        while at < range.end {
            let within = at % block_size;
            let stop = block_size.min(within + (range.end - at));
            let of_block = match within == 0 && stop == block_size {
                true => caching,
                false => Caching::Ours,
            };
            let index = BlockId::from(at / block_size);
            let block = match is_in_memory && index.get() > blocks.start {
                true => self.read_block_alone(index, of_block, operation)?,
                false => self.read_block_caching(index, of_block, operation)?,
            };
            is_in_memory &= !has_waited(operation);
            if stop > widen(block.len()) {
                return Err(self.corrupt(Corrupt::Truncated {
                    what: "a block of the object",
                    offset: within,
                    needed: stop - within,
                    present: widen(block.len()).saturating_sub(within),
                }));
            }
            assert!(within < stop, "each part of a read has bytes");
            parts.push((block, narrow(within)..narrow(stop)));
            at += stop - within;
        }
        if is_in_memory && blocks.end.saturating_sub(blocks.start) > 1 {
            self.read_ahead(blocks, operation);
        }
        Ok(ReadData { parts })
    }

    /// Writes these bytes; buffers that fill blocks become these, uncopied.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_contents(
        &self,
        tx: &Tx,
        offset: u64,
        contents: NewContents<'_>,
        caching: Caching,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        match contents {
            NewContents::Bytes(bytes) => self.write_caching(tx, offset, bytes, caching, operation),
            NewContents::Buffers { buffers, length } => {
                self.write_buffers(tx, offset, (buffers, length), caching, operation)
            }
        }
    }
}
