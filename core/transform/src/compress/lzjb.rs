//! LZJB: the first compression of ZFS, and what `on` meant before LZ4.
//!
//! # Mechanism
//! A stream of tokens, eight to a group. Each group begins with a byte that says, from its lowest
//! bit up, which of its tokens are copies (1) and which are bytes to be taken as they are (0):
//!
//! ```text
//!   copy:    | length - 3 (6 bits) | distance (10 bits) |     big-endian
//! ```
//!
//! A copy takes 3 to 66 bytes from 1 to 1023 bytes back; it may run into what it is writing. The
//! end is not marked: a decoder stops when the block is full, in the middle of a group and even of
//! a copy.
//!
//! The encoder remembers for each hash of three bytes where they were seen last, and looks only
//! there.

use crate::error::DecompressError;

const NAME: &str = "lzjb";
const COPY_MIN: usize = 3;
const COPY_MAX: usize = 66;
const DISTANCE_MAX: usize = 1023;
/// A power of two. More entries find little more within a window of a kilobyte.
const TABLE_ENTRIES: usize = 2048;

pub(super) fn compress(block: &[u8], room: &mut [u8]) -> Option<usize> {
    let mut writer = Writer {
        room,
        size: 0,
        group: 0,
        tokens: 8,
    };
    // Places are kept plus one, so that zero is none.
    let mut seen = [0_usize; TABLE_ENTRIES];
    let mut at = 0;
    while at < block.len() {
        let copy = block[at..].first_chunk::<COPY_MIN>().and_then(|bytes| {
            let entry = &mut seen[slot(*bytes)];
            let before = std::mem::replace(entry, at + 1).checked_sub(1)?;
            let distance = at - before;
            (distance <= DISTANCE_MAX && block[before..].starts_with(bytes)).then_some(distance)
        });
        match copy {
            Some(distance) => {
                let length = common_length(block, at, distance);
                writer.copy(length, distance)?;
                at += length;
            }
            None => {
                writer.plain(block[at])?;
                at += 1;
            }
        }
    }
    Some(writer.size)
}

/// How far the bytes at `at` go on as those `distance` before them, as far as a copy can say.
fn common_length(block: &[u8], at: usize, distance: usize) -> usize {
    let limit = COPY_MAX.min(block.len() - at);
    let here = &block[at..at + limit];
    let before = &block[at - distance..at - distance + limit];
    here.iter().zip(before).take_while(|(a, b)| a == b).count()
}

/// Where the table keeps these three bytes: the high bits of a product, which all three reach.
fn slot(bytes: [u8; COPY_MIN]) -> usize {
    let [a, b, c] = bytes;
    let product = u32::from_le_bytes([a, b, c, 0]).wrapping_mul(0x9e37_79b1);
    usize::try_from(product >> 21).expect("eleven bits") % TABLE_ENTRIES
}

struct Writer<'room> {
    room: &'room mut [u8],
    size: usize,
    /// Where the byte of the current group is, and how many tokens the group has.
    group: usize,
    tokens: u32,
}

impl Writer<'_> {
    fn plain(&mut self, byte: u8) -> Option<()> {
        self.begin_token()?;
        self.push(byte)
    }

    fn copy(&mut self, length: usize, distance: usize) -> Option<()> {
        self.begin_token()?;
        self.room[self.group] |= 1 << (self.tokens - 1);
        let token = ((length - COPY_MIN) << 10) | distance;
        let [high, low] = u16::try_from(token)
            .expect("six bits and ten")
            .to_be_bytes();
        self.push(high)?;
        self.push(low)
    }

    fn begin_token(&mut self) -> Option<()> {
        if self.tokens == 8 {
            self.tokens = 0;
            self.group = self.size;
            self.push(0)?;
        }
        self.tokens += 1;
        Some(())
    }

    fn push(&mut self, byte: u8) -> Option<()> {
        *self.room.get_mut(self.size)? = byte;
        self.size += 1;
        Some(())
    }
}

pub(super) fn decompress(stored: &[u8], block: &mut [u8]) -> Result<(), DecompressError> {
    let mut input = stored.iter().copied();
    let mut next = || {
        input
            .next()
            .ok_or(DecompressError::Truncated { algorithm: NAME })
    };
    let mut at = 0;
    while at < block.len() {
        let mut group = next()?;
        for _ in 0..8 {
            if at == block.len() {
                break;
            }
            if group & 1 == 0 {
                block[at] = next()?;
                at += 1;
            } else {
                let token = usize::from(u16::from_be_bytes([next()?, next()?]));
                let distance = token & DISTANCE_MAX;
                if distance == 0 || distance > at {
                    return Err(DecompressError::Damaged { algorithm: NAME });
                }
                let length = ((token >> 10) + COPY_MIN).min(block.len() - at);
                copy_back(block, at, distance, length);
                at += length;
            }
            group >>= 1;
        }
    }
    Ok(())
}

/// Copies bytes from `distance` back. Where they run into themselves, they repeat.
fn copy_back(block: &mut [u8], at: usize, distance: usize, length: usize) {
    let (before, here) = block.split_at_mut(at);
    let pattern = &before[at - distance..];
    if length <= distance {
        here[..length].copy_from_slice(&pattern[..length]);
    } else {
        for chunk in here[..length].chunks_mut(distance) {
            chunk.copy_from_slice(&pattern[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_may_run_into_what_it_writes() {
        // One plain byte, then 9 bytes from one back, then a plain byte.
        let stored = [0b010, b'x', (9 - 3) << 2, 1, b'y'];
        let mut block = [0; 11];
        assert_eq!(decompress(&stored, &mut block), Ok(()));
        assert_eq!(&block, b"xxxxxxxxxxy");
    }

    #[test]
    fn a_copy_from_before_the_beginning_is_damage() {
        let damaged = Err(DecompressError::Damaged { algorithm: NAME });
        assert_eq!(decompress(&[0b010, b'x', 0, 2, 0], &mut [0; 8]), damaged);
        assert_eq!(decompress(&[0b010, b'x', 0, 0, 0], &mut [0; 8]), damaged);
    }
}
