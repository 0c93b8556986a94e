//! Compressed blocks of every kind.
//!
//! # Mechanism
//! A block is expanded twice, into memory that held other bytes: what comes out may depend on the
//! input only. What was expanded is compressed and expanded again. The libraries behind lz4, zstd
//! and gzip are not watched by the search; it sees what is ours, which is all of lzjb and zle.

use crate::piece::{Kind, Piece};
use crate::target::{Input, Target};
use tarn_transform::{CompressionAlgorithm, compress};

/// Frames of zstd, as OpenZFS has them: without their magic number, behind a header.
pub const ZSTD: Target = target("zstd", |bytes| frame(16, bytes), |piece| seed(16, piece));
/// Blocks of lz4 behind their length.
pub const LZ4: Target = target("lz4", |bytes| frame(15, bytes), |piece| seed(15, piece));
/// Blocks of lzjb.
pub const LZJB: Target = target("lzjb", |bytes| frame(3, bytes), |piece| seed(3, piece));
/// Blocks of zle.
pub const ZLE: Target = target("zle", |bytes| frame(14, bytes), |piece| seed(14, piece));
/// Blocks of gzip.
pub const GZIP: Target = target("gzip", |bytes| frame(10, bytes), |piece| seed(10, piece));

/// The largest block that is expanded: enough for all that depends on sizes.
const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Up to this size what was expanded is compressed again.
const COMPRESSED_MAX: usize = 16 << 10;

const fn target(name: &'static str, run: fn(&[u8]), seed: fn(&Piece) -> Option<Vec<u8>>) -> Target {
    Target {
        name,
        about: "compressed blocks, as they are stored",
        run,
        seed,
        size_max: 8 << 10,
        memory_per_byte: 16,
        // The block, three times; and tables of compressors.
        memory_extra: 4 << 20,
    }
}

fn frame(code: u8, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let size = usize::from(input.half()) + (usize::from(input.byte()) << 16);
    let size = size % (BLOCK_BYTES_MAX + 1);
    let algorithm = CompressionAlgorithm::from_code(code).expect("the code of an algorithm");
    let (mut first, mut second) = (vec![0x55; size], vec![0xaa; size]);
    let expanded = compress::decompress(algorithm, input.rest, &mut first);
    let again = compress::decompress(algorithm, input.rest, &mut second);
    assert_eq!(expanded, again, "it depends on what was in memory before");
    if let Err(error) = expanded {
        assert!(!error.to_string().is_empty());
        return;
    }
    assert!(first == second, "it depends on what was in memory before");
    if size > COMPRESSED_MAX {
        return;
    }
    if let Some(stored) = compress::compress(algorithm, &first, size + 64) {
        compress::decompress(algorithm, &stored, &mut second)
            .expect("what we compressed is expanded");
        assert!(first == second, "a block changed by being stored");
    }
}

/// Stored blocks of this algorithm; the levels of gzip are one.
fn seed(code: u8, piece: &Piece) -> Option<Vec<u8>> {
    let is_ours = match piece.kind {
        Kind::Stored(other) => {
            other == code || (5..=13).contains(&code) && (5..=13).contains(&other)
        }
        _ => false,
    };
    let [size @ .., _] = piece.bytes.first_chunk::<4>()?;
    is_ours.then(|| [&size[..], &piece.bytes[4..]].concat())
}
