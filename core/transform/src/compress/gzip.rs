//! Gzip: deflate in zlib's format (RFC 1950), in spite of its name.
//!
//! libdeflate does whole buffers faster than any other. It is strict, so a stream it refuses is
//! tried once more with zlib, which is what wrote the pools of others: only what both refuse is
//! damaged.

use crate::error::DecompressError;
use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use std::cell::RefCell;

const NAME: &str = "gzip";

/// How hard gzip tries: 1 to 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GzipLevel(u8);

impl GzipLevel {
    /// What plain `gzip` means.
    pub const DEFAULT: Self = Self(6);

    /// The level of this number, if there is one.
    pub const fn new(number: u8) -> Option<Self> {
        if number >= 1 && number <= 9 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The entry of a table by level.
    pub(super) const fn name(self, names: &[&'static str; 10]) -> &'static str {
        let mut index = 0;
        let mut number = 0;
        while number < self.0 {
            number += 1;
            index += 1;
        }
        names[index]
    }
}

thread_local! {
    /// The encoder of the last level used; the state of one is up to a megabyte.
    static ENCODER: RefCell<Option<(GzipLevel, Compressor)>> = const { RefCell::new(None) };
    static DECODER: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

pub(super) fn compress(block: &[u8], level: GzipLevel, room: &mut [u8]) -> Option<usize> {
    ENCODER.with_borrow_mut(|encoder| {
        if encoder
            .as_ref()
            .is_none_or(|(made_for, _)| *made_for != level)
        {
            let number = CompressionLvl::new(i32::from(level.number())).ok()?;
            *encoder = Some((level, Compressor::new(number)));
        }
        let (_, encoder) = encoder.as_mut()?;
        encoder.zlib_compress(block, room).ok()
    })
}

pub(super) fn decompress(stored: &[u8], block: &mut [u8]) -> Result<(), DecompressError> {
    let expected = block.len();
    let actual = match DECODER.with_borrow_mut(|decoder| decoder.zlib_decompress(stored, block)) {
        Ok(actual) => actual,
        Err(_) => decompress_with_zlib(stored, block)?,
    };
    if actual == expected {
        Ok(())
    } else {
        Err(DecompressError::WrongSize {
            algorithm: NAME,
            expected,
            actual,
        })
    }
}

fn decompress_with_zlib(stored: &[u8], block: &mut [u8]) -> Result<usize, DecompressError> {
    let damaged = DecompressError::Damaged { algorithm: NAME };
    let mut decoder = Decompress::new(true);
    match decoder.decompress(stored, block, FlushDecompress::Finish) {
        Ok(Status::StreamEnd) => usize::try_from(decoder.total_out()).map_err(|_| damaged),
        _ => Err(damaged),
    }
}
