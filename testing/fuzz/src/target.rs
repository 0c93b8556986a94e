//! What a target is, and how it takes its input apart.
//!
//! # Mechanism
//! What a decoder is told beside the bytes (a byte order, a unit, a size) is taken from the first
//! bytes of the input ([`Input`]), so that the search tries all of it.

use crate::piece::Piece;
use tarn_ondisk::declare::ByteOrder;

/// Any decoder may take so much, whatever it is given.
const MEMORY_BYTES_BASE: usize = 128 << 10;

/// One kind of structure, fuzzed.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// What `--target` calls it.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Decodes the bytes and asks everything of what came out.
    pub run: fn(&[u8]),
    /// What the search begins with: the input made of a piece of a pool, where that is of use here.
    pub seed: fn(&Piece) -> Option<Vec<u8>>,
    /// Longer inputs are not tried.
    pub size_max: usize,
    /// How many bytes of memory it may take for a byte of input.
    pub memory_per_byte: usize,
    /// How many bytes more it may take, for what it makes of it.
    pub memory_extra: usize,
}

impl Target {
    /// How much memory the target may have at once, for an input of so many bytes.
    pub fn memory_bytes_max(&self, input_bytes: usize) -> usize {
        MEMORY_BYTES_BASE + self.memory_extra + self.memory_per_byte * input_bytes
    }
}

/// Takes from the front of an input what a decoder is told beside the bytes.
pub(crate) struct Input<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    /// The next byte; zero behind the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let (first, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        *first
    }

    /// The next bytes, as a little-endian number; zeros behind the end.
    pub(crate) fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The next eight bytes, as a little-endian number; zeros behind the end.
    pub(crate) fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// The next bytes, fewer at the end.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// A byte order: of the lowest bit of a byte.
    pub(crate) fn order(&mut self) -> ByteOrder {
        order_of(self.byte())
    }
}

pub(crate) fn order_of(byte: u8) -> ByteOrder {
    match byte & 1 {
        0 => ByteOrder::Little,
        _ => ByteOrder::Big,
    }
}

/// A seed: what is told, then the bytes.
pub(crate) fn told(control: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    Some([control, bytes].concat())
}

/// Bytes of a size, cut or filled up with zeros.
pub(crate) fn sized(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut sized = bytes[..bytes.len().min(size)].to_vec();
    sized.resize(size, 0);
    sized
}
