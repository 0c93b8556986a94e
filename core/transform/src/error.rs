//! What can go wrong with bytes that came from outside. Nothing here knows which block was meant:
//! the caller adds that.

use crate::checksum::{Checksum, ChecksumAlgorithm};
use thiserror::Error;

/// A block pointer names an algorithm by a number that no pool we can open uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UnknownAlgorithm {
    /// The checksum field of a block pointer.
    #[error("no checksum algorithm has number {code}")]
    Checksum {
        /// The number found.
        code: u8,
    },
    /// The compression field of a block pointer.
    #[error("no compression algorithm has number {code}")]
    Compression {
        /// The number found.
        code: u8,
    },
}

/// Why a checksum could not be found right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ChecksumError {
    /// The bytes are not those that were written.
    #[error("{algorithm} checksum is {actual}, and should be {expected}")]
    Mismatch {
        /// How it was computed.
        algorithm: ChecksumAlgorithm,
        /// What the block pointer, or the block's own trailer, says.
        expected: Checksum,
        /// What the bytes give.
        actual: Checksum,
    },
    /// The algorithm mixes in the pool's secret salt, and the pool has none.
    #[error("{algorithm} checksums need the pool's salt, which this pool lacks")]
    NoSalt {
        /// How it was to be computed.
        algorithm: ChecksumAlgorithm,
    },
    /// A block that should end in a checksum of itself does not carry the magic number of one.
    #[error("no {algorithm} trailer: its magic number reads {magic:#018x}")]
    NoTrailer {
        /// The kind of trailer looked for.
        algorithm: ChecksumAlgorithm,
        /// What was found in its place, read little-endian.
        magic: u64,
    },
    /// A block that should carry a checksum of itself is too short for one, or says that it uses
    /// more bytes than it has.
    #[error("a block of {size} bytes cannot carry a {algorithm} checksum that covers {needed}")]
    TooShort {
        /// The kind of trailer looked for.
        algorithm: ChecksumAlgorithm,
        /// Bytes at hand.
        size: usize,
        /// Bytes that the trailer, or the block's own header, calls for.
        needed: u64,
    },
    /// The algorithm is of the other sort: its checksum is in the block, not in the pointer, or the
    /// other way round. A pointer that names it there is damaged.
    #[error("{algorithm} checksums are not used in this place")]
    Misplaced {
        /// The algorithm named.
        algorithm: ChecksumAlgorithm,
    },
}

/// Why stored bytes could not be expanded. In each case the block is damaged, or was never written
/// by a ZFS; a copy of it may still be good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecompressError {
    /// The stored length is more than there is.
    #[error("{algorithm}: the block says it holds {claimed} compressed bytes, and has {available}")]
    LengthOutOfBounds {
        /// Name of the compression.
        algorithm: &'static str,
        /// The length found at the head of the block.
        claimed: u64,
        /// What follows that head.
        available: usize,
    },
    /// The bytes end in the middle of a token.
    #[error("{algorithm}: the compressed bytes end early")]
    Truncated {
        /// Name of the compression.
        algorithm: &'static str,
    },
    /// The bytes make no sense to the decoder.
    #[error("{algorithm}: the compressed bytes are damaged")]
    Damaged {
        /// Name of the compression.
        algorithm: &'static str,
    },
    /// The bytes make sense, and expand to something else than the block pointer says.
    #[error("{algorithm}: the block expands to {actual} bytes instead of {expected}")]
    WrongSize {
        /// Name of the compression.
        algorithm: &'static str,
        /// The logical size.
        expected: usize,
        /// What came out.
        actual: usize,
    },
    /// A zstd header names a level that does not exist.
    #[error("zstd: no level has number {code}")]
    UnknownLevel {
        /// The number found.
        code: u8,
    },
}

/// Why a row cannot be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ParityError {
    /// More columns are missing than the row has parities.
    #[error(
        "{missing} columns are missing, and {parity} parities can make up for no more than that many"
    )]
    TooManyMissing {
        /// How many columns were to be rebuilt.
        missing: usize,
        /// How many parity columns the row has.
        parity: usize,
    },
    /// Parity that far to the right repeats, and does not tell columns apart.
    #[error("a row of {columns} data columns is wider than the {max} its parity can tell apart")]
    TooWide {
        /// Data columns given.
        columns: usize,
        /// The most there can be.
        max: usize,
    },
}
