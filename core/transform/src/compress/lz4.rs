//! LZ4: a plain LZ4 block behind its length, which is four bytes, big-endian.
//!
//! A library in safe Rust does both directions. Its encoder wants room for the worst case before it
//! begins, so the caller gives it that, and throws away what turns out too large.

use crate::error::DecompressError;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use std::cell::RefCell;

const NAME: &str = "lz4";
const LENGTH_BYTES: usize = 4;

/// Inputs from this size on need the table with wide entries; the narrow one clears faster.
const LARGE_INPUT_BYTES: usize = 65_535;

thread_local! {
    static SMALL: RefCell<CompressTable> = RefCell::new(CompressTable::small());
    static LARGE: RefCell<CompressTable> = RefCell::new(CompressTable::large());
}

/// The room [`compress`] needs for a block of this size, however small the outcome.
pub(super) const fn room_bytes(block_bytes: usize) -> usize {
    LENGTH_BYTES + get_maximum_output_size(block_bytes)
}

pub(super) fn compress(block: &[u8], room: &mut [u8]) -> Option<usize> {
    let table = if block.len() < LARGE_INPUT_BYTES {
        &SMALL
    } else {
        &LARGE
    };
    let (length, body) = room.split_first_chunk_mut::<LENGTH_BYTES>()?;
    let size = table
        .with_borrow_mut(|table| compress_into_with_table(block, body, table))
        .ok()?;
    *length = u32::try_from(size).ok()?.to_be_bytes();
    Some(LENGTH_BYTES + size)
}

pub(super) fn decompress(stored: &[u8], block: &mut [u8]) -> Result<(), DecompressError> {
    let (length, body) = stored
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or(DecompressError::Truncated { algorithm: NAME })?;
    let claimed = u32::from_be_bytes(*length);
    let body = usize::try_from(claimed)
        .ok()
        .and_then(|size| body.get(..size))
        .ok_or(DecompressError::LengthOutOfBounds {
            algorithm: NAME,
            claimed: u64::from(claimed),
            available: body.len(),
        })?;
    let expected = block.len();
    let actual = lz4_flex::block::decompress_into(body, block)
        .map_err(|_| DecompressError::Damaged { algorithm: NAME })?;
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
