//! ZLE: zero-length encoding, for blocks that are mostly empty and must be fast.
//!
//! # Mechanism
//! A byte below 64 says that so many bytes plus one follow as they are; any other, that so many
//! minus 63 are zero. A decoder stops when the block is full.

use crate::error::DecompressError;

const NAME: &str = "zle";
const PLAIN_MAX: usize = 64;
const ZEROS_MAX: usize = 192;

pub(super) fn compress(block: &[u8], room: &mut [u8]) -> Option<usize> {
    let mut size = 0;
    let mut rest = block;
    while !rest.is_empty() {
        let zeros = rest
            .iter()
            .take(ZEROS_MAX)
            .take_while(|byte| **byte == 0)
            .count();
        if zeros > 0 {
            *room.get_mut(size)? = u8::try_from(zeros + PLAIN_MAX - 1).expect("at most 255");
            size += 1;
            rest = &rest[zeros..];
        } else {
            let (plain, after) = rest.split_at(plain_length(rest));
            *room.get_mut(size)? = u8::try_from(plain.len() - 1).expect("at most 63");
            room.get_mut(size + 1..size + 1 + plain.len())?
                .copy_from_slice(plain);
            size += 1 + plain.len();
            rest = after;
        }
    }
    Some(size)
}

/// How many bytes to take as they are: up to the next two zeros, for one alone costs nothing here
/// and would cost two bytes as a run.
fn plain_length(bytes: &[u8]) -> usize {
    let next_run = bytes
        .windows(2)
        .take(PLAIN_MAX)
        .position(|pair| pair == [0, 0]);
    next_run.unwrap_or(bytes.len()).min(PLAIN_MAX)
}

pub(super) fn decompress(stored: &[u8], block: &mut [u8]) -> Result<(), DecompressError> {
    let mut input = stored;
    let mut output = block;
    while !output.is_empty() {
        let (token, rest) = input
            .split_first()
            .ok_or(DecompressError::Truncated { algorithm: NAME })?;
        let length = usize::from(*token) + 1;
        let is_plain = length <= PLAIN_MAX;
        let length = if is_plain { length } else { length - PLAIN_MAX };
        let (run, after) = output
            .split_at_mut_checked(length)
            .ok_or(DecompressError::Damaged { algorithm: NAME })?;
        if is_plain {
            let (plain, behind) = rest
                .split_at_checked(length)
                .ok_or(DecompressError::Truncated { algorithm: NAME })?;
            run.copy_from_slice(plain);
            input = behind;
        } else {
            run.fill(0);
            input = rest;
        }
        output = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_zeros_and_of_others_take_turns() {
        let mut block = vec![0; 200];
        block.extend_from_slice(&[1, 2, 0, 3, 0, 0]);
        let mut room = [0; 32];
        let size = compress(&block, &mut room).unwrap();
        assert_eq!(&room[..size], &[255, 63 + 8, 3, 1, 2, 0, 3, 63 + 2]);
    }

    #[test]
    fn a_run_past_the_end_is_damage() {
        let damaged = Err(DecompressError::Damaged { algorithm: NAME });
        assert_eq!(decompress(&[255], &mut [0; 100]), damaged);
    }
}
