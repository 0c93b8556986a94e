//! Compression: blocks stored in fewer sectors than they have bytes.
//!
//! # Mechanism
//! A block is compressed alone, and its pointer says how, how many bytes it has (logical size) and
//! how many were stored (physical size). The stored size is rounded up to sectors, so what a
//! decoder is given ends in padding that it must not mind: each format either knows its own end, or
//! is full when the logical size is reached, or carries its length in front (LZ4 and zstd).
//!
//! What does not shrink enough is stored plain. How much is enough is the caller's rule, and its
//! limit: [`compress`] gives `None` for what does not fit.
//!
//! # Invariants
//! - [`decompress`] takes any bytes whatever. It fills the whole destination or fails, and
//!   allocates no more than its decoder's fixed state.
//! - Any stream that OpenZFS wrote is read, and any that we write is read by OpenZFS. LZ4, the
//!   default, is encoded as OpenZFS does, byte for byte, so data takes the same space in both;
//!   blocks of the others may differ a little in size.

pub mod gzip;
pub mod lz4;
mod lz4_encoder;
pub mod lzjb;
pub mod zle;
pub mod zstd;

pub use gzip::GzipLevel;
pub use zstd::ZstdLevel;

use crate::error::{DecompressError, UnknownAlgorithm};
use std::cell::RefCell;
use std::fmt;

/// How a block is compressed. The numbers are those of a block pointer's compression field; the
/// property values `inherit` (0) and `on` (1) never reach one.
#[doc(alias = "zio_compress")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompressionAlgorithm {
    /// Stored as it is.
    Off,
    /// The first one ZFS had.
    Lzjb,
    /// Nothing is stored: all bytes are zero. A block pointer of a hole has it.
    Empty,
    /// Deflate in zlib's format.
    Gzip(GzipLevel),
    /// Runs of zeros only.
    Zle,
    /// The default: fast both ways.
    Lz4,
    /// Stronger than LZ4, faster than gzip.
    Zstd(ZstdLevel),
}

impl CompressionAlgorithm {
    /// The algorithm a block pointer names. It does not say the level of zstd, and none is needed
    /// to read; that of the block itself is [`zstd::stored_level`].
    pub fn from_code(code: u8) -> Result<Self, UnknownAlgorithm> {
        Ok(match code {
            2 => Self::Off,
            3 => Self::Lzjb,
            4 => Self::Empty,
            5..=13 => Self::Gzip(GzipLevel::new(code - 4).expect("1 to 9")),
            14 => Self::Zle,
            15 => Self::Lz4,
            16 => Self::Zstd(ZstdLevel::DEFAULT),
            _ => return Err(UnknownAlgorithm::Compression { code }),
        })
    }

    /// The number a block pointer has for it.
    pub const fn code(self) -> u8 {
        match self {
            Self::Off => 2,
            Self::Lzjb => 3,
            Self::Empty => 4,
            Self::Gzip(level) => 4 + level.number(),
            Self::Zle => 14,
            Self::Lz4 => 15,
            Self::Zstd(_) => 16,
        }
    }

    /// The name tools print for a block pointer; it does not have the level of zstd.
    pub const fn name(self) -> &'static str {
        const GZIP: [&str; 10] = [
            "gzip", "gzip-1", "gzip-2", "gzip-3", "gzip-4", "gzip-5", "gzip-6", "gzip-7", "gzip-8",
            "gzip-9",
        ];
        match self {
            Self::Off => "uncompressed",
            Self::Lzjb => "lzjb",
            Self::Empty => "empty",
            Self::Gzip(level) => level.name(&GZIP),
            Self::Zle => "zle",
            Self::Lz4 => "lz4",
            Self::Zstd(_) => "zstd",
        }
    }
}

/// As the property `compression` has it, with the level.
impl fmt::Display for CompressionAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => formatter.write_str("off"),
            Self::Zstd(level) => write!(formatter, "{level}"),
            other => formatter.write_str(other.name()),
        }
    }
}

/// A scratch buffer larger than this is given back after use. The usual record is 128 KiB; blocks
/// of 16 MiB are rare enough to pay for theirs.
const SCRATCH_KEPT_BYTES: usize = 2 << 20;

thread_local! {
    /// Where encoders write, so that what they give back is no larger than it must be.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Compresses a block into at most `limit_bytes`, or gives `None` when it does not get that small.
/// What comes out has no padding; the caller fills it up to sectors with zeros.
pub fn compress(
    algorithm: CompressionAlgorithm,
    block: &[u8],
    limit_bytes: usize,
) -> Option<Vec<u8>> {
    match algorithm {
        CompressionAlgorithm::Off => None,
        CompressionAlgorithm::Empty => is_zero(block).then(Vec::new),
        CompressionAlgorithm::Lzjb => in_scratch(limit_bytes, |room| lzjb::compress(block, room)),
        CompressionAlgorithm::Gzip(level) => {
            in_scratch(limit_bytes, |room| gzip::compress(block, level, room))
        }
        CompressionAlgorithm::Zle => in_scratch(limit_bytes, |room| zle::compress(block, room)),
        CompressionAlgorithm::Lz4 => in_scratch(limit_bytes, |room| lz4::compress(block, room)),
        CompressionAlgorithm::Zstd(level) => {
            if !zstd::is_worth_trying(block, level, limit_bytes) {
                return None;
            }
            in_scratch(limit_bytes, |room| zstd::compress(block, level, room))
        }
    }
}

/// Expands stored bytes, padding included, into the whole of `block`, whose length is the logical
/// size. When it fails, what `block` holds is unspecified.
pub fn decompress(
    algorithm: CompressionAlgorithm,
    stored: &[u8],
    block: &mut [u8],
) -> Result<(), DecompressError> {
    match algorithm {
        CompressionAlgorithm::Off => {
            let expected = block.len();
            let wrong = DecompressError::WrongSize {
                algorithm: "off",
                expected,
                actual: stored.len(),
            };
            block.copy_from_slice(stored.get(..expected).ok_or(wrong)?);
            Ok(())
        }
        CompressionAlgorithm::Empty => {
            block.fill(0);
            Ok(())
        }
        CompressionAlgorithm::Lzjb => lzjb::decompress(stored, block),
        CompressionAlgorithm::Gzip(_) => gzip::decompress(stored, block),
        CompressionAlgorithm::Zle => zle::decompress(stored, block),
        CompressionAlgorithm::Lz4 => lz4::decompress(stored, block),
        CompressionAlgorithm::Zstd(_) => zstd::decompress(stored, block),
    }
}

/// Whether a block holds nothing but zeros, and can be stored as a hole.
pub fn is_zero(block: &[u8]) -> bool {
    // A block that is not zero mostly shows it in its first bytes; the rest is compared in bulk.
    let (head, rest) = block.split_at(block.len().min(64));
    head.iter().all(|byte| *byte == 0)
        && rest
            .chunks(256)
            .all(|chunk| chunk.iter().fold(0, |seen, byte| seen | byte) == 0)
}

/// Runs an encoder on a buffer of `room_bytes` and gives back a copy of what it wrote.
fn in_scratch(
    room_bytes: usize,
    encode: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<Vec<u8>> {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < room_bytes {
            scratch.resize(room_bytes, 0);
        }
        let written = encode(&mut scratch[..room_bytes]).map(|size| scratch[..size].to_vec());
        if scratch.len() > SCRATCH_KEPT_BYTES {
            *scratch = Vec::new();
        }
        written
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn algorithms() -> Vec<CompressionAlgorithm> {
        let mut all = vec![
            CompressionAlgorithm::Lzjb,
            CompressionAlgorithm::Zle,
            CompressionAlgorithm::Lz4,
        ];
        all.extend([1, 6, 9].map(|level| {
            CompressionAlgorithm::Gzip(GzipLevel::new(level).expect("a level of gzip"))
        }));
        all.extend([1, 3, 9].map(|level| {
            CompressionAlgorithm::Zstd(ZstdLevel::new(level).expect("a level of zstd"))
        }));
        all.push(CompressionAlgorithm::Zstd(
            ZstdLevel::fast(10).expect("a fast level"),
        ));
        all
    }

    /// Text of a sort: words over and over, with runs of zeros between.
    fn compressible(size: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut block = Vec::new();
        while block.len() < size {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let word = format!("word-{} ", (state >> 24) % 40);
            block.extend_from_slice(word.as_bytes());
            if state.is_multiple_of(7) {
                block.extend_from_slice(&[0; 40]);
            }
        }
        block.truncate(size);
        block
    }

    fn noise(size: usize) -> Vec<u8> {
        let mut state = 88_172_645_463_325_252_u64;
        (0..size)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[3]
            })
            .collect()
    }

    #[test]
    fn every_number_names_its_algorithm_and_no_other_does() {
        for code in 2..=16 {
            assert_eq!(CompressionAlgorithm::from_code(code).unwrap().code(), code);
        }
        for code in [0, 1, 17, 255] {
            assert_eq!(
                CompressionAlgorithm::from_code(code),
                Err(UnknownAlgorithm::Compression { code })
            );
        }
    }

    #[test]
    fn blocks_of_every_size_come_back() {
        for size in [512, 1024, 4096, 65_535, 65_536, 131_072, 1 << 20] {
            let block = compressible(size);
            for algorithm in algorithms() {
                let mut stored = compress(algorithm, &block, size - size / 8)
                    .unwrap_or_else(|| panic!("{algorithm} of {size} bytes"));
                stored.resize(stored.len().next_multiple_of(4096), 0);
                let mut back = vec![0xaa; size];
                decompress(algorithm, &stored, &mut back)
                    .unwrap_or_else(|error| panic!("{algorithm} of {size} bytes: {error}"));
                assert!(back == block, "{algorithm} of {size} bytes");
            }
        }
    }

    #[test]
    fn what_does_not_shrink_is_not_compressed() {
        for size in [512, 4096, 131_072] {
            let block = noise(size);
            for algorithm in algorithms() {
                assert_eq!(
                    compress(algorithm, &block, size - size / 8),
                    None,
                    "{algorithm}"
                );
            }
        }
    }

    #[test]
    fn the_limit_is_kept_to_the_byte() {
        let block = compressible(16_384);
        for algorithm in algorithms() {
            let size = compress(algorithm, &block, block.len()).unwrap().len();
            for limit in [size, size + 1] {
                if let Some(stored) = compress(algorithm, &block, limit) {
                    assert!(stored.len() <= limit);
                }
            }
            assert_eq!(compress(algorithm, &block, size / 2), None, "{algorithm}");
            assert_eq!(compress(algorithm, &block, 0), None, "{algorithm}");
            assert_eq!(compress(algorithm, &block, 9), None, "{algorithm}");
        }
    }

    #[test]
    fn only_zeros_are_empty() {
        let mut block = vec![0; 1000];
        assert_eq!(
            compress(CompressionAlgorithm::Empty, &block, 0),
            Some(Vec::new())
        );
        block[999] = 1;
        assert_eq!(compress(CompressionAlgorithm::Empty, &block, 1000), None);
    }

    #[test]
    fn stored_bytes_cut_short_are_refused() {
        let block = compressible(8192);
        for algorithm in algorithms() {
            let stored = compress(algorithm, &block, block.len()).unwrap();
            let mut back = vec![0; block.len()];
            for size in [0, 1, 3, 4, 7, 8, 9, stored.len() / 2, stored.len() - 9] {
                let verdict = decompress(algorithm, &stored[..size], &mut back);
                assert!(verdict.is_err(), "{algorithm} cut to {size} bytes");
            }
        }
    }

    #[test]
    fn a_block_of_another_size_is_refused() {
        let block = compressible(8192);
        for algorithm in [
            CompressionAlgorithm::Lz4,
            CompressionAlgorithm::Gzip(GzipLevel::DEFAULT),
            CompressionAlgorithm::Zstd(ZstdLevel::DEFAULT),
        ] {
            let stored = compress(algorithm, &block, block.len()).unwrap();
            for size in [512, 8191, 8193, 16_384] {
                assert!(
                    decompress(algorithm, &stored, &mut vec![0; size]).is_err(),
                    "{algorithm}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn any_block_comes_back(block in block_strategy()) {
            for algorithm in algorithms() {
                if let Some(stored) = compress(algorithm, &block, block.len()) {
                    prop_assert!(stored.len() <= block.len());
                    let mut back = vec![0xaa; block.len()];
                    prop_assert_eq!(decompress(algorithm, &stored, &mut back), Ok(()));
                    prop_assert_eq!(&back, &block);
                }
            }
        }

        #[test]
        fn damage_is_refused_or_gives_other_bytes(
            block in block_strategy(), at in any::<prop::sample::Index>(), flip in 1_u8..=255,
        ) {
            for algorithm in algorithms() {
                if let Some(mut stored) = compress(algorithm, &block, block.len()) {
                    let at = at.index(stored.len());
                    stored[at] ^= flip;
                    let mut back = vec![0; block.len()];
                    let _ = decompress(algorithm, &stored, &mut back);
                }
            }
        }

        #[test]
        fn any_bytes_at_all_may_be_given_to_any_decoder(
            stored in proptest::collection::vec(any::<u8>(), 0..600),
            length in 0_u8..=255,
            size in 0_usize..3000,
        ) {
            for algorithm in algorithms() {
                let mut back = vec![0; size];
                let _ = decompress(algorithm, &stored, &mut back);
                // The same behind a length that may be true, where formats have one.
                let mut framed = vec![0, 0, 0, length, 3, 0, 40, 165];
                framed.extend_from_slice(&stored);
                let _ = decompress(algorithm, &framed, &mut back);
            }
        }
    }

    /// Blocks with runs, repetitions and noise in them.
    fn block_strategy() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            (any::<u8>(), 1_usize..300).prop_map(|(byte, count)| vec![byte; count]),
            (1_usize..400).prop_map(|count| vec![0; count]),
            proptest::collection::vec(any::<u8>(), 1..80),
            (proptest::collection::vec(any::<u8>(), 1..20), 1_usize..30)
                .prop_map(|(word, count)| word.repeat(count)),
        ];
        proptest::collection::vec(piece, 1..20).prop_map(|pieces| pieces.concat())
    }
}
