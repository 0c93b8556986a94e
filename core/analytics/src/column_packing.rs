//! Packing of a column: up to 256 numbers in as few bits as most of them need.
//!
//! ```text
//! width u8 | shift u8 | exceptions u8 | least varint | count * width bits | exceptions
//! exception: place u8, number varint
//! ```
//!
//! # Mechanism
//! A number is stored as `(number - least) >> shift`, where `shift` is the number of low bits that
//! are zero in all of them. The width is the one that takes the least room when the few numbers
//! that are wider are stored apart: one slow read among 255 hits costs nine bytes, not fourteen
//! bits for each of them.
//!
//! # Invariants
//! - Unpacking gives the numbers that were packed, whatever they are.
//! - Packed bytes are read with 64 bytes behind them: the segment adds those.

use crate::column_batch::{BATCH_RECORDS, Numbers};

/// A wider number fits no unaligned load of eight bytes; it is stored in 64 bits.
const WIDTH_MAX: u32 = 56;
/// Bits that an exception is taken to cost: its place, and a number of five bytes.
const EXCEPTION_BITS: u64 = 48;
/// More do not fit the count of exceptions.
const EXCEPTIONS_MAX: u64 = 255;
/// Bytes of a load.
const WORD_BYTES: usize = 8;
/// Bytes that follow packed bytes, so that the last group of numbers is read like the others.
pub(crate) const PADDING: [u8; 64] = [0; 64];

/// Appends the numbers to `bytes`.
///
/// # Panics
/// If there are more than [`BATCH_RECORDS`].
pub(crate) fn pack(numbers: &[u64], bytes: &mut Vec<u8>) {
    assert!(numbers.len() <= BATCH_RECORDS, "a column has 256 numbers");
    let least = numbers.iter().copied().min().unwrap_or(0);
    let all_bits = numbers
        .iter()
        .fold(0, |bits, number| bits | (number - least));
    if all_bits == 0 {
        // All are the same.
        bytes.extend([0; 3]);
        return push_varint(bytes, least);
    }
    let shift = all_bits.trailing_zeros();
    let small = |number: &u64| (number - least) >> shift;
    let (width, exceptions) = best_width(numbers, small);
    let is_wide = |number: &u64| 64 - small(number).leading_zeros() > width;
    let byte = |number: u32| u8::try_from(number).expect("at most 64");
    bytes.push(byte(width));
    bytes.push(byte(shift));
    bytes.push(u8::try_from(exceptions).expect("the width leaves at most 255"));
    push_varint(bytes, least);
    push_bits(numbers.iter().map(small), width, bytes);
    if exceptions == 0 {
        return;
    }
    for (place, number) in numbers.iter().enumerate().filter(|(_, n)| is_wide(n)) {
        bytes.push(u8::try_from(place).expect("a place in a batch is a byte"));
        push_varint(bytes, small(number));
    }
}

/// The width with the least bits altogether, and how many numbers are wider.
fn best_width(numbers: &[u64], small: impl Fn(&u64) -> u64) -> (u32, u64) {
    let mut of_width = [0_u64; 65];
    for number in numbers {
        let width = usize::try_from(64 - small(number).leading_zeros());
        of_width[width.expect("at most 64")] += 1;
    }
    let count: u64 = of_width.iter().sum();
    let (mut best, mut best_bits) = ((64, 0), count * 64);
    let mut wider = count;
    for (width, of_width) in (0..=WIDTH_MAX).zip(of_width) {
        wider -= of_width;
        let bits = count * u64::from(width) + wider * EXCEPTION_BITS;
        if wider <= EXCEPTIONS_MAX && bits < best_bits {
            (best, best_bits) = ((width, wider), bits);
        }
    }
    best
}

/// The low `width` bits of each number, one after another.
fn push_bits(numbers: impl Iterator<Item = u64>, width: u32, bytes: &mut Vec<u8>) {
    let (mut waiting, mut bits) = (0_u128, 0_u32);
    let mask = u128::from(u64::MAX.checked_shr(64 - width).unwrap_or(0));
    for number in numbers {
        waiting |= (u128::from(number) & mask) << bits;
        bits += width;
        if bits >= 64 {
            bytes.extend_from_slice(&waiting.to_le_bytes()[..WORD_BYTES]);
            waiting >>= 64;
            bits -= 64;
        }
    }
    let rest = usize::try_from(bits.div_ceil(8)).expect("at most eight");
    bytes.extend_from_slice(&waiting.to_le_bytes()[..rest]);
}

/// Reads `count` numbers from packed bytes, behind which [`PADDING`] or other columns follow.
///
/// # Panics
/// If [`pack`] did not make the bytes: a segment is memory that only the recorder writes.
pub(crate) fn unpack(bytes: &[u8], count: usize, numbers: &mut Numbers) {
    let (width, shift) = (usize::from(bytes[0]), bytes[1]);
    let exceptions = usize::from(bytes[2]);
    let mut at = 3;
    let least = take_varint(bytes, &mut at);
    let packed = &bytes[at..];
    match UNPACK.get(width) {
        Some(unpack_bits) => unpack_bits(packed, count, numbers),
        None => {
            for (place, number) in numbers[..count].iter_mut().enumerate() {
                *number = word_at(packed, place * 8);
            }
        }
    }
    at += (count * width).div_ceil(8);
    for _ in 0..exceptions {
        let place = usize::from(bytes[at]);
        at += 1;
        numbers[place] = take_varint(bytes, &mut at);
    }
    for number in &mut numbers[..count] {
        *number = (*number << shift).wrapping_add(least);
    }
}

/// What reads numbers of a width.
type UnpackBits = fn(&[u8], usize, &mut Numbers);

/// One for each width up to [`WIDTH_MAX`]: the compiler knows where each number of a group lies.
#[rustfmt::skip]
const UNPACK: [UnpackBits; 57] = [
    unpack_bits::<0>, unpack_bits::<1>, unpack_bits::<2>, unpack_bits::<3>, unpack_bits::<4>,
    unpack_bits::<5>, unpack_bits::<6>, unpack_bits::<7>, unpack_bits::<8>, unpack_bits::<9>,
    unpack_bits::<10>, unpack_bits::<11>, unpack_bits::<12>, unpack_bits::<13>, unpack_bits::<14>,
    unpack_bits::<15>, unpack_bits::<16>, unpack_bits::<17>, unpack_bits::<18>, unpack_bits::<19>,
    unpack_bits::<20>, unpack_bits::<21>, unpack_bits::<22>, unpack_bits::<23>, unpack_bits::<24>,
    unpack_bits::<25>, unpack_bits::<26>, unpack_bits::<27>, unpack_bits::<28>, unpack_bits::<29>,
    unpack_bits::<30>, unpack_bits::<31>, unpack_bits::<32>, unpack_bits::<33>, unpack_bits::<34>,
    unpack_bits::<35>, unpack_bits::<36>, unpack_bits::<37>, unpack_bits::<38>, unpack_bits::<39>,
    unpack_bits::<40>, unpack_bits::<41>, unpack_bits::<42>, unpack_bits::<43>, unpack_bits::<44>,
    unpack_bits::<45>, unpack_bits::<46>, unpack_bits::<47>, unpack_bits::<48>, unpack_bits::<49>,
    unpack_bits::<50>, unpack_bits::<51>, unpack_bits::<52>, unpack_bits::<53>, unpack_bits::<54>,
    unpack_bits::<55>, unpack_bits::<56>,
];

/// Numbers of a group: they take whole bytes at each width.
const GROUP: usize = 8;

fn unpack_bits<const WIDTH: usize>(packed: &[u8], count: usize, numbers: &mut Numbers) {
    if WIDTH == 0 {
        numbers[..count].fill(0);
        return;
    }
    let mask = u64::MAX >> (64 - WIDTH);
    let groups = numbers[..count].chunks_mut(GROUP);
    for (group, numbers) in groups.enumerate() {
        // The bytes behind the group are padding, or another column.
        let bytes = &packed[group * WIDTH..][..WIDTH + WORD_BYTES];
        for (place, number) in numbers.iter_mut().enumerate() {
            let bit = place * WIDTH;
            *number = word_at(bytes, bit / 8) >> (bit % 8) & mask;
        }
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..at + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(word)
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

fn take_varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::sim::Random;

    fn packed_size(numbers: &[u64]) -> usize {
        let mut bytes = vec![7; 3];
        pack(numbers, &mut bytes);
        let size = bytes.len() - 3;
        bytes.extend(PADDING);
        let mut back = [u64::MAX; BATCH_RECORDS];
        unpack(&bytes[3..], numbers.len(), &mut back);
        assert_eq!(&back[..numbers.len()], numbers);
        size
    }

    #[test]
    fn any_numbers_come_back() {
        let mut random = Random::new(2);
        packed_size(&[]);
        packed_size(&[u64::MAX]);
        packed_size(&[0, u64::MAX]);
        packed_size(&[u64::MAX; BATCH_RECORDS]);
        for _ in 0..2000 {
            let bits = random.below(65);
            let step = random.below(64);
            let base = random.draw();
            let count = 1 + random.index(BATCH_RECORDS);
            let mut number = || {
                let wide = if random.chance(1, 50) { 64 } else { bits };
                let unused = u32::try_from(64 - wide).unwrap();
                let number = random.draw().checked_shr(unused).unwrap_or(0);
                (number << step).wrapping_add(base)
            };
            let numbers: Vec<u64> = (0..count).map(|_| number()).collect();
            packed_size(&numbers);
        }
    }

    #[test]
    fn equal_numbers_take_no_bits_and_a_few_wide_ones_widen_no_others() {
        assert!(packed_size(&[123_456_789; BATCH_RECORDS]) <= 8);
        let mut mostly_small: Vec<u64> = (0..256).map(|i| i % 16).collect();
        let narrow = packed_size(&mostly_small);
        mostly_small[17] = 8_000_000;
        assert!(packed_size(&mostly_small) <= narrow + 8);
        let pages: Vec<u64> = (0..256).map(|i| (i % 16) * 4096).collect();
        assert_eq!(packed_size(&pages), narrow);
    }
}
