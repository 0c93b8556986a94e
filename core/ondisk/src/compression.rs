//! Which function compressed a block.

use crate::declare::stored_codes;

stored_codes! {
    /// Which function compressed a block.
    #[doc(alias = "zio_compress")]
    pub enum Compression, unknown "UNKNOWN" {
        /// A property value: as the parent dataset has it. Never in a block pointer.
        0 => Inherit "inherit",
        /// A property value: the default function. Never in a block pointer.
        1 => On "on",
        /// Stored as it is.
        2 => Off "uncompressed",
        /// LZJB, the oldest.
        3 => Lzjb "lzjb",
        /// All zeros: no bytes are stored. Never in a block pointer, which is a hole then.
        4 => Empty "empty",
        /// Deflate in zlib's wrapping, fastest.
        5 => Gzip1 "gzip-1",
        /// Deflate in zlib's wrapping.
        6 => Gzip2 "gzip-2",
        /// Deflate in zlib's wrapping.
        7 => Gzip3 "gzip-3",
        /// Deflate in zlib's wrapping.
        8 => Gzip4 "gzip-4",
        /// Deflate in zlib's wrapping.
        9 => Gzip5 "gzip-5",
        /// Deflate in zlib's wrapping: what `compression=gzip` means.
        10 => Gzip6 "gzip-6",
        /// Deflate in zlib's wrapping.
        11 => Gzip7 "gzip-7",
        /// Deflate in zlib's wrapping.
        12 => Gzip8 "gzip-8",
        /// Deflate in zlib's wrapping, smallest.
        13 => Gzip9 "gzip-9",
        /// Runs of zeros only.
        14 => Zle "zle",
        /// LZ4 behind its big-endian size.
        15 => Lz4 "lz4",
        /// Zstandard behind a header with its size, version and level.
        16 => Zstd "zstd",
    }
}

impl Compression {
    /// The gzip function of a level from 1 to 9.
    pub const fn gzip(level: u8) -> Option<Compression> {
        match level {
            1..=9 => Some(Compression::from_code(4 + level)),
            _ => None,
        }
    }

    /// The level, for the gzip functions.
    pub const fn gzip_level(self) -> Option<u8> {
        match self.code() {
            code @ 5..=13 => Some(code - 4),
            _ => None,
        }
    }
}
