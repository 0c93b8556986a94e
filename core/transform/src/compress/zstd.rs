//! Zstandard, behind a header of ZFS.
//!
//! # Mechanism
//! ```text
//!   | compressed length (4) | level (1) | version of the library (3) | frame ... |
//! ```
//!
//! All big-endian. The length hides the padding from the decoder. The level is there so that a
//! block read can be compressed again to the same bytes; it is not zstd's own number but that of a
//! table, because the fast levels are negative there. The frame leaves out zstd's magic number, its
//! checksum and its content size, all of which ZFS knows better.
//!
//! Machines of big-endian byte order used to store level and version the other way round, so the
//! level is found by where the version has the zero byte that it will have until zstd is at
//! 6.55.36.
//!
//! Levels 3 and up are slow enough that it pays to ask first whether the block will shrink at all:
//! a large block is tried with LZ4, and if that fails with level 1, before the real level is let
//! loose.

use super::lz4;
use crate::error::DecompressError;
use std::cell::RefCell;
use std::fmt;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, ResetDirective};

const NAME: &str = "zstd";
const HEADER_BYTES: usize = 8;

/// Blocks below this are compressed without asking first.
const ASK_FIRST_BYTES: usize = 128 << 10;
/// So are all blocks below this level.
const ASK_FIRST_LEVEL: u8 = 3;
/// A state of more than this, which the highest levels need for large blocks, is not kept for the
/// next.
const STATE_KEPT_BYTES: usize = 16 << 20;

const LEVEL_MAX: u8 = 19;
/// The number stored for `zstd-fast-1`; those after it follow in the order of [`FAST_LEVELS`].
const FAST_CODE: u8 = 103;
const FAST_LEVELS: [u16; 21] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 500, 1000,
];

/// How hard zstd tries: 1 to 19, or one of the fast levels that try less than the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ZstdLevel {
    code: u8,
}

impl ZstdLevel {
    /// What plain `zstd` means: level 3.
    pub const DEFAULT: Self = Self { code: 3 };
    /// What plain `zstd-fast` means: fast level 1.
    pub const FAST_DEFAULT: Self = Self { code: FAST_CODE };

    /// Level 1 to 19.
    pub const fn new(number: u8) -> Option<Self> {
        if number >= 1 && number <= LEVEL_MAX {
            Some(Self { code: number })
        } else {
            None
        }
    }

    /// A fast level: 1 to 10, 20 to 100 by tens, 500, or 1000.
    pub fn fast(number: u16) -> Option<Self> {
        let index = FAST_LEVELS.iter().position(|level| *level == number)?;
        Some(Self {
            code: FAST_CODE + u8::try_from(index).ok()?,
        })
    }

    /// The level with this number in block headers and properties.
    pub fn from_code(code: u8) -> Result<Self, DecompressError> {
        let level = Self { code };
        let is_known = Self::new(code).is_some() || level.fast_number().is_some();
        if is_known {
            Ok(level)
        } else {
            Err(DecompressError::UnknownLevel { code })
        }
    }

    /// The number in block headers and properties.
    pub const fn code(self) -> u8 {
        self.code
    }

    fn fast_number(self) -> Option<u16> {
        let index = self.code.checked_sub(FAST_CODE)?;
        FAST_LEVELS.get(usize::from(index)).copied()
    }

    /// The number zstd itself has for it: negative for the fast ones.
    fn library_level(self) -> i32 {
        self.fast_number()
            .map_or(i32::from(self.code), |number| -i32::from(number))
    }
}

/// As the property `compression` has it.
impl fmt::Display for ZstdLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fast_number() {
            Some(number) => write!(formatter, "zstd-fast-{number}"),
            None => write!(formatter, "zstd-{}", self.code),
        }
    }
}

thread_local! {
    static ENCODER: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECODER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Whether a block may well shrink to the limit at this level. Cheap, and right most of the time.
pub(super) fn is_worth_trying(block: &[u8], level: ZstdLevel, limit_bytes: usize) -> bool {
    let is_slow = level.fast_number().is_none() && level.code >= ASK_FIRST_LEVEL;
    if !is_slow || block.len() < ASK_FIRST_BYTES {
        return true;
    }
    let mut room = vec![0; limit_bytes];
    lz4::compress(block, &mut room).is_some_and(|size| size < limit_bytes)
        || compress(block, ZstdLevel { code: 1 }, &mut room).is_some()
}

pub(super) fn compress(block: &[u8], level: ZstdLevel, room: &mut [u8]) -> Option<usize> {
    let (header, frame) = room.split_first_chunk_mut::<HEADER_BYTES>()?;
    let size = ENCODER.with_borrow_mut(|slot| {
        let encoder = match slot {
            Some(encoder) => encoder,
            None => slot.insert(CCtx::try_create()?),
        };
        let size = compress_frame(encoder, block, level, frame);
        if encoder.sizeof() > STATE_KEPT_BYTES {
            *slot = None;
        }
        size
    })?;
    let (length, meta) = header.split_at_mut(4);
    length.copy_from_slice(&u32::try_from(size).ok()?.to_be_bytes());
    let [_, version @ ..] = zstd_safe::version_number().to_be_bytes();
    meta[0] = level.code;
    meta[1..].copy_from_slice(&version);
    Some(HEADER_BYTES + size)
}

/// `None` when it does not fit, and also for want of memory: then the block is stored plain.
fn compress_frame(
    encoder: &mut CCtx<'static>,
    block: &[u8],
    level: ZstdLevel,
    frame: &mut [u8],
) -> Option<usize> {
    encoder.reset(ResetDirective::SessionAndParameters).ok()?;
    for parameter in [
        CParameter::CompressionLevel(level.library_level()),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ChecksumFlag(false),
        CParameter::ContentSizeFlag(false),
    ] {
        encoder.set_parameter(parameter).ok()?;
    }
    encoder.compress2(frame, block).ok()
}

pub(super) fn decompress(stored: &[u8], block: &mut [u8]) -> Result<(), DecompressError> {
    let damaged = DecompressError::Damaged { algorithm: NAME };
    let (header, body) = split_header(stored)?;
    stored_level(stored)?;
    let claimed = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    let frame = usize::try_from(claimed)
        .ok()
        .and_then(|size| body.get(..size))
        .ok_or(DecompressError::LengthOutOfBounds {
            algorithm: NAME,
            claimed: u64::from(claimed),
            available: body.len(),
        })?;
    let expected = block.len();
    let actual = DECODER.with_borrow_mut(|slot| {
        let decoder = match slot {
            Some(decoder) => decoder,
            None => slot.insert(DCtx::try_create().ok_or(damaged)?),
        };
        decoder
            .reset(ResetDirective::SessionAndParameters)
            .map_err(|_| damaged)?;
        decoder
            .set_parameter(DParameter::Format(FrameFormat::Magicless))
            .map_err(|_| damaged)?;
        // The whole frame goes into the whole block at once, so that no window is allocated,
        // whatever size the frame asks for.
        decoder.decompress(block, frame).map_err(|_| damaged)
    })?;
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

/// The level a stored block was compressed at.
pub fn stored_level(stored: &[u8]) -> Result<ZstdLevel, DecompressError> {
    let (header, _) = split_header(stored)?;
    let [_, _, _, _, meta @ ..] = header;
    // From the last byte back, the first zero is the high byte of the version.
    let code = match meta {
        [level, _, _, 0] => level,
        [_, _, 0, level] => level,
        [level, 0, _, _] => level,
        [0, _, _, level] => level,
        _ => &0,
    };
    ZstdLevel::from_code(*code)
}

fn split_header(stored: &[u8]) -> Result<(&[u8; HEADER_BYTES], &[u8]), DecompressError> {
    stored
        .split_first_chunk()
        .ok_or(DecompressError::Truncated { algorithm: NAME })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_the_numbers_and_names_of_the_format() {
        let named = |code| ZstdLevel::from_code(code).map(|level| level.to_string());
        assert_eq!(named(1).unwrap(), "zstd-1");
        assert_eq!(named(19).unwrap(), "zstd-19");
        assert_eq!(named(103).unwrap(), "zstd-fast-1");
        assert_eq!(named(112).unwrap(), "zstd-fast-10");
        assert_eq!(named(113).unwrap(), "zstd-fast-20");
        assert_eq!(named(123).unwrap(), "zstd-fast-1000");
        for code in [0, 20, 101, 102, 124, 255] {
            assert_eq!(named(code), Err(DecompressError::UnknownLevel { code }));
        }
    }

    #[test]
    fn the_header_tells_length_and_level() {
        let block = [42; 4096];
        let mut room = [0; 512];
        for level in [ZstdLevel::DEFAULT, ZstdLevel::FAST_DEFAULT] {
            let size = compress(&block, level, &mut room).unwrap();
            let length = u32::try_from(size - HEADER_BYTES).unwrap();
            assert_eq!(room[..4], length.to_be_bytes());
            assert_eq!(room[5], 0);
            assert_eq!(stored_level(&room), Ok(level));
        }
    }

    /// Level 3 of version 1.4.5, in both layouts.
    #[test]
    fn a_level_is_found_in_either_layout() {
        for meta in [[3, 0, 0x28, 0xa5], [0, 0x28, 0xa5, 3]] {
            let mut stored = [0; 8];
            stored[4..].copy_from_slice(&meta);
            assert_eq!(stored_level(&stored), Ok(ZstdLevel::DEFAULT));
        }
    }
}
