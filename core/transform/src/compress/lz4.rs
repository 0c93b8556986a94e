//! LZ4: a plain LZ4 block behind its length, which is four bytes, big-endian.
//!
//! The encoder is ours ([`lz4_encoder`]), so that blocks are as large as OpenZFS's. A library in
//! safe Rust decodes.
//!
//! Its decoder repeats what overlaps byte by byte, which is what nearly empty blocks of metadata
//! consist of: blocks of pointers with a few pointers, of which a pool with many datasets has
//! thousands. Blocks that are much smaller than their contents are expanded here ([`expand_runs`]),
//! in copies that double.

use super::lz4_encoder;
use crate::error::DecompressError;

const NAME: &str = "lz4";
const LENGTH_BYTES: usize = 4;

/// From this ratio on, a block consists of long runs.
const RUNS_RATIO: usize = 32;
/// The shortest match.
const MATCH_BYTES_MIN: usize = 4;
/// The largest length in a token; more follows in bytes.
const TOKEN_LENGTH_MAX: u8 = 15;

pub(super) fn compress(block: &[u8], room: &mut [u8]) -> Option<usize> {
    let (length, body) = room.split_first_chunk_mut::<LENGTH_BYTES>()?;
    let size = lz4_encoder::encode(block, body)?;
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
    let expanded = match body.len() <= expected / RUNS_RATIO {
        true => expand_runs(body, block),
        false => lz4_flex::block::decompress_into(body, block).ok(),
    };
    let actual = expanded.ok_or(DecompressError::Damaged { algorithm: NAME })?;
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

/// Expands sequences of literals and matches. Gives back how much they are; none if they make no
/// sense or are more than the block has room for.
fn expand_runs(body: &[u8], block: &mut [u8]) -> Option<usize> {
    let (mut rest, mut filled) = (body, 0);
    loop {
        let (token, after) = rest.split_first()?;
        rest = after;
        let literal_bytes = length(token >> 4, &mut rest)?;
        let (literals, after) = rest.split_at_checked(literal_bytes)?;
        let end = filled + literal_bytes;
        block.get_mut(filled..end)?.copy_from_slice(literals);
        (rest, filled) = (after, end);
        // The last sequence has no match.
        if rest.is_empty() {
            return Some(filled);
        }
        let (offset, after) = rest.split_first_chunk::<2>()?;
        rest = after;
        let start = filled.checked_sub(usize::from(u16::from_le_bytes(*offset)))?;
        let end = filled
            .checked_add(length(token & TOKEN_LENGTH_MAX, &mut rest)? + MATCH_BYTES_MIN)
            .filter(|end| *end <= block.len() && start < filled)?;
        // What lies from `start` on repeats, so each copy can be as long as all of it.
        while filled < end {
            let count = (end - filled).min(filled - start);
            block.copy_within(start..start + count, filled);
            filled += count;
        }
    }
}

/// A length, of which the token has this much.
fn length(in_token: u8, rest: &mut &[u8]) -> Option<usize> {
    let mut sum = usize::from(in_token);
    let mut is_complete = in_token < TOKEN_LENGTH_MAX;
    while !is_complete {
        let (more, after) = rest.split_first()?;
        *rest = after;
        sum = sum.checked_add(usize::from(*more))?;
        is_complete = *more < u8::MAX;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of zeros with some bytes in it, by a simple generator.
    fn sparse(size: usize, count: usize, seed: u64) -> Vec<u8> {
        let mut block = vec![0; size];
        let mut state = seed;
        for _ in 0..count {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(state >> 33).unwrap() % size;
            let run = usize::try_from(state >> 60).unwrap() + 1;
            let byte = state.to_le_bytes()[3];
            let end = (at + run).min(size);
            block[at..end].fill(byte);
        }
        block
    }

    #[test]
    fn runs_are_expanded_as_the_library_does() {
        for (seed, size) in (1..).zip([512, 4096, 16_384, 131_072, 1 << 20]) {
            for count in [0, 1, 3, 20, 100] {
                let block = sparse(size, count, seed);
                let body = lz4_flex::block::compress(&block);
                let mut expanded = vec![0xff; size];
                assert_eq!(expand_runs(&body, &mut expanded), Some(size));
                assert_eq!(expanded, block);
            }
        }
    }

    #[test]
    fn damaged_runs_are_refused_as_the_library_does() {
        let block = sparse(16_384, 20, 7);
        let body = lz4_flex::block::compress(&block);
        let (mut ours, mut theirs) = (vec![0; 16_384], vec![0; 16_384]);
        for place in 0..body.len() {
            for change in [1, 0x0f, 0xf0, 0xff] {
                let mut damaged = body.clone();
                damaged[place] ^= change;
                let expected = lz4_flex::block::decompress_into(&damaged, &mut theirs).ok();
                let found = expand_runs(&damaged, &mut ours);
                // What is not as long as the block is refused by the caller.
                let whole = |size: Option<usize>| size.filter(|size| *size == ours.len());
                assert_eq!(whole(found), whole(expected), "byte {place} by {change:#x}");
                if whole(found).is_some() {
                    assert_eq!(ours, theirs);
                }
            }
            assert_eq!(
                expand_runs(&body[..place], &mut ours).filter(|size| *size == ours.len()),
                None
            );
        }
    }
}
