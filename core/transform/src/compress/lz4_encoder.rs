//! The encoder of LZ4 blocks: the one that OpenZFS has, decision for decision.
//!
//! # Problem
//! Many encodings of a block are right, and they differ in size. A data set that was received from
//! OpenZFS must take the space that it takes there, to the sector, so where a match is looked for,
//! which one is taken, and when a block counts as one that does not shrink are facts of the format
//! for us: those of LZ4's revision 85 of 2012 (`lz4_zfs.c`).
//!
//! # Mechanism
//! A table has, for the hash of four bytes, where four bytes of this hash were met last; at first
//! position 0 for all. Positions are tried one after the other, further and further apart the
//! longer nothing is found ([`search`]). A match grows in both directions; behind it the next
//! position is tried at once.
//!
//! Blocks below [`NARROW_BYTES`] have a table of more and narrower entries, of the same size.
//!
//! # Invariants
//! - Positions in the table are before the one that is tried.
//! - What is written fits into the room, or the block does not shrink enough.

/// A match begins at least so many bytes before the end of the block.
const SEARCH_MARGIN_BYTES: usize = 12;
/// So many bytes at the end are literals.
const LAST_LITERALS_BYTES: usize = 5;
/// Smaller blocks have no matches.
const BLOCK_BYTES_MIN: usize = SEARCH_MARGIN_BYTES + 1;
/// Smaller blocks have the table with narrow entries.
const NARROW_BYTES: usize = (1 << 16) + SEARCH_MARGIN_BYTES - 1;
/// How far a match can lie behind.
const DISTANCE_MAX: usize = 65_535;
/// The shortest match.
const MATCH_BYTES_MIN: usize = 4;
/// The largest length in a token; more follows in bytes.
const TOKEN_LENGTH_MAX: usize = 15;
/// After 2 to the power of this many trials in vain, positions lie one byte further apart.
const PATIENCE_BITS: u32 = 6;
/// How many trials count as done in vain when a search begins.
const TRIALS_AT_FIRST: usize = (1 << PATIENCE_BITS) + 3;
/// The room for offset, token and last literals that must be left when literals are written.
const ROOM_BEHIND_LITERALS: usize = 2 + 1 + LAST_LITERALS_BYTES;
/// The room for a token and last literals that must be left when a match is written.
const ROOM_BEHIND_MATCH: usize = 1 + LAST_LITERALS_BYTES;

const NARROW_BITS: u32 = 13;
const WIDE_BITS: u32 = 12;

/// Where to find four bytes again.
trait Table {
    /// Where bytes of the same hash were met last; from now on it was here.
    fn replace(&mut self, word: u32, position: usize) -> usize;
}

/// Multiplicative hashing, by the golden ratio.
fn hash(word: u32, bits: u32) -> usize {
    let mixed = word.wrapping_mul(2_654_435_761) >> (u32::BITS - bits);
    usize::try_from(mixed).expect("some bits")
}

struct Narrow([u16; 1 << NARROW_BITS]);

impl Table for Narrow {
    fn replace(&mut self, word: u32, position: usize) -> usize {
        let position = u16::try_from(position).expect("a block with narrow entries is small");
        usize::from(std::mem::replace(
            &mut self.0[hash(word, NARROW_BITS)],
            position,
        ))
    }
}

struct Wide([u32; 1 << WIDE_BITS]);

impl Table for Wide {
    fn replace(&mut self, word: u32, position: usize) -> usize {
        let position = u32::try_from(position).expect("blocks have at most 16 MiB");
        let before = std::mem::replace(&mut self.0[hash(word, WIDE_BITS)], position);
        usize::try_from(before).expect("it was a position")
    }
}

/// Encodes a block: how much of the room it takes. `None` if it does not fit, by the estimates that
/// OpenZFS makes on the way.
pub(super) fn encode(block: &[u8], room: &mut [u8]) -> Option<usize> {
    match block.len() < NARROW_BYTES {
        true => encode_with(&mut Narrow([0; 1 << NARROW_BITS]), block, room),
        false => encode_with(&mut Wide([0; 1 << WIDE_BITS]), block, room),
    }
}

fn encode_with(table: &mut impl Table, block: &[u8], room: &mut [u8]) -> Option<usize> {
    let mut output = Output { room, filled: 0 };
    let mut literals_start = 0;
    if block.len() >= BLOCK_BYTES_MIN {
        let mut from = 1;
        while let Some((position, match_at)) = search(table, block, from) {
            let back = common_before(&block[literals_start..position], &block[..match_at]);
            let (mut position, mut match_at) = (position - back, match_at - back);
            let mut token = output.put_literals(&block[literals_start..position])?;
            loop {
                let matched = common(block, match_at, position);
                output.put_match(token, position - match_at, matched)?;
                position += matched;
                literals_start = position;
                if position > block.len() - SEARCH_MARGIN_BYTES {
                    return output.finish(&block[literals_start..]);
                }
                table.replace(word(block, position - 2), position - 2);
                let here = word(block, position);
                match_at = table.replace(here, position);
                if !is_match(block, match_at, position, here) {
                    break;
                }
                token = output.put_byte(0)?;
            }
            from = position + 1;
        }
    }
    output.finish(&block[literals_start..])
}

/// The next position with a match, and where that is; `None` when too little of the block is left.
fn search(table: &mut impl Table, block: &[u8], from: usize) -> Option<(usize, usize)> {
    let last = block.len() - SEARCH_MARGIN_BYTES;
    let mut trials = TRIALS_AT_FIRST;
    let (mut next, mut next_word) = (from, word(block, from));
    loop {
        let (position, here) = (next, next_word);
        next += trials >> PATIENCE_BITS;
        trials += 1;
        if next > last {
            return None;
        }
        next_word = word(block, next);
        let match_at = table.replace(here, position);
        if is_match(block, match_at, position, here) {
            return Some((position, match_at));
        }
    }
}

fn word(block: &[u8], position: usize) -> u32 {
    let bytes = block[position..].first_chunk();
    u32::from_le_bytes(*bytes.expect("the last bytes are not looked at"))
}

fn is_match(block: &[u8], match_at: usize, position: usize, here: u32) -> bool {
    position - match_at <= DISTANCE_MAX && word(block, match_at) == here
}

/// How many bytes at the ends of both are the same.
fn common_before(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().rev().zip(other.iter().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

/// How many bytes from both positions on are the same, of which four are known to be, up to the
/// last literals.
fn common(block: &[u8], match_at: usize, position: usize) -> usize {
    const STEP: usize = size_of::<u64>();
    let end = block.len() - LAST_LITERALS_BYTES;
    let ahead = &block[position + MATCH_BYTES_MIN..end];
    let behind = &block[match_at + MATCH_BYTES_MIN..][..ahead.len()];
    let chunks = ahead.chunks_exact(STEP).zip(behind.chunks_exact(STEP));
    let mut count = 0;
    for (ahead, behind) in chunks {
        let [ahead, behind] = [ahead, behind]
            .map(|eight| u64::from_le_bytes(eight.try_into().expect("a chunk of eight bytes")));
        let difference = ahead ^ behind;
        if difference != 0 {
            let same = usize::try_from(difference.trailing_zeros() / u8::BITS);
            return MATCH_BYTES_MIN + count + same.expect("less than eight");
        }
        count += STEP;
    }
    let rest = ahead[count..].iter().zip(&behind[count..]);
    MATCH_BYTES_MIN + count + rest.take_while(|(ahead, behind)| ahead == behind).count()
}

/// What was written.
struct Output<'a> {
    room: &'a mut [u8],
    filled: usize,
}

impl Output<'_> {
    /// Gives where it is.
    fn put_byte(&mut self, byte: u8) -> Option<usize> {
        let at = self.filled;
        *self.room.get_mut(at)? = byte;
        self.filled += 1;
        Some(at)
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.filled + bytes.len();
        self.room.get_mut(self.filled..end)?.copy_from_slice(bytes);
        self.filled = end;
        Some(())
    }

    /// Whether so much room is left.
    fn has_room(&self, bytes: usize) -> Option<()> {
        (self.filled + bytes <= self.room.len()).then_some(())
    }

    /// What of a length does not go into a token.
    fn put_length(&mut self, length: usize) -> Option<()> {
        let Some(mut rest) = length.checked_sub(TOKEN_LENGTH_MAX) else {
            return Some(());
        };
        const FULL: usize = 255;
        while rest >= FULL {
            self.put_byte(u8::MAX)?;
            rest -= FULL;
        }
        self.put_byte(u8::try_from(rest).expect("less than a full byte"))?;
        Some(())
    }

    /// A token, and literals. Gives where the token is.
    fn put_literals(&mut self, literals: &[u8]) -> Option<usize> {
        let length = literals.len();
        let token = self.put_byte(in_token(length) << 4)?;
        self.has_room(length + ROOM_BEHIND_LITERALS + (length >> 8))?;
        self.put_length(length)?;
        self.put(literals)?;
        Some(token)
    }

    /// The match that belongs to a token.
    fn put_match(&mut self, token: usize, distance: usize, length: usize) -> Option<()> {
        let distance = u16::try_from(distance).expect("not further than the largest distance");
        self.put(&distance.to_le_bytes())?;
        let length = length - MATCH_BYTES_MIN;
        self.has_room(ROOM_BEHIND_MATCH + (length >> 8))?;
        self.room[token] |= in_token(length);
        self.put_length(length)
    }

    /// The last literals. Gives how much was written.
    fn finish(mut self, literals: &[u8]) -> Option<usize> {
        let length = literals.len();
        self.put_byte(in_token(length) << 4)?;
        self.put_length(length)?;
        self.put(literals)?;
        Some(self.filled)
    }
}

/// What of a length goes into a token.
fn in_token(length: usize) -> u8 {
    u8::try_from(length.min(TOKEN_LENGTH_MAX)).expect("four bits")
}
