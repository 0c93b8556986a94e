//! Changing inputs at random.
//!
//! # Mechanism
//! A change is one to a few dozen steps: numbers that hurt in all sizes and orders, bits, runs of
//! bytes that come, go, move or are filled, parts of other inputs, and what the decoder compared
//! something with, in the place of what it compared ([`Pair`]). Structures have fixed sizes, so
//! most steps keep the length.

use crate::coverage::Pair;
use tarn_host::sim::Random;

/// Numbers at the edges of what fields hold.
const EDGES: [u64; 18] = [
    0,
    1,
    2,
    7,
    8,
    63,
    127,
    128,
    255,
    256,
    511,
    512,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    i64::MAX.cast_unsigned(),
    u64::MAX,
];

/// Changes an input; it gets no longer than `size_max`. Other inputs are there to take parts of.
pub fn change(
    input: &mut Vec<u8>,
    random: &mut Random,
    pairs: &[Pair],
    other: &[u8],
    size_max: usize,
) {
    let steps = 1 << random.index(6);
    let steps = if random.one_in(2) { 1 } else { steps };
    for _ in 0..steps {
        step(input, random, pairs, other);
        input.truncate(size_max);
    }
}

fn step(input: &mut Vec<u8>, random: &mut Random, pairs: &[Pair], other: &[u8]) {
    if input.is_empty() {
        input.extend((0..1 + random.index(64)).map(|_| random.byte()));
        return;
    }
    let at = random.index(input.len());
    match random.index(16) {
        0 => input[at] ^= 1 << random.index(8),
        1 => input[at] = random.byte(),
        2 | 3 => put(input, at, EDGES[random.index(EDGES.len())], random),
        4 => {
            let number = (1_u64 << random.index(64)).wrapping_sub(u64::from(random.one_in(2)));
            put(input, at, number, random);
        }
        5 | 6 => add(input, at, random),
        7..=9 if !pairs.is_empty() => {
            let pair = pairs[random.index(pairs.len())];
            put_compared(input, at, pair, random);
        }
        10 => {
            let run = run(input, at, random);
            let byte = if random.one_in(2) { 0 } else { random.byte() };
            input[run].fill(byte);
        }
        11 => {
            let run = run(input, at, random);
            input.drain(run);
        }
        12 => {
            let longest = if random.one_in(4) { 128 } else { 8 };
            let count = 1 + random.index(longest);
            let byte = random.byte();
            input.splice(at..at, std::iter::repeat_n(byte, count));
        }
        13 => {
            // A part of the input, over another or between.
            let part = input[run(input, at, random)].to_vec();
            place(input, &part, random);
        }
        14 if !other.is_empty() => {
            let part = other[run(other, random.index(other.len()), random)].to_vec();
            place(input, &part, random);
        }
        15 => swap(input, at, random),
        _ => input[at] = input[at].wrapping_add(1),
    }
}

/// A run of bytes from a place on; mostly short.
fn run(bytes: &[u8], at: usize, random: &mut Random) -> std::ops::Range<usize> {
    let longest = match random.index(4) {
        0 => bytes.len(),
        1 => 256,
        _ => 16,
    };
    at..(at + 1 + random.index(longest)).min(bytes.len())
}

/// Puts a part somewhere: over what is there, or between.
fn place(input: &mut Vec<u8>, part: &[u8], random: &mut Random) {
    let mut at = random.index(input.len() + 1);
    if random.one_in(2) {
        // Structures lie at whole words.
        at &= !7;
    }
    match random.one_in(3) {
        true => _ = input.splice(at..at, part.iter().copied()),
        false => {
            let count = part.len().min(input.len() - at);
            input[at..at + count].copy_from_slice(&part[..count]);
        }
    }
}

/// The bytes of a number, of a random size and order.
fn bytes_of(number: u64, size: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = number.to_le_bytes()[..size].to_vec();
    if random.one_in(3) {
        bytes.reverse();
    }
    bytes
}

fn a_size(random: &mut Random) -> usize {
    [1, 2, 4, 8, 8][random.index(5)]
}

/// Where a number of this size is likely to be.
fn aligned(at: usize, size: usize, random: &mut Random) -> usize {
    if random.one_in(3) { at } else { at - at % size }
}

fn put(input: &mut [u8], at: usize, number: u64, random: &mut Random) {
    let size = a_size(random);
    let at = aligned(at, size, random);
    let bytes = bytes_of(number, size, random);
    let count = bytes.len().min(input.len() - at);
    input[at..at + count].copy_from_slice(&bytes[..count]);
}

/// Adds a little to a number, or takes it away.
fn add(input: &mut [u8], at: usize, random: &mut Random) {
    let size = a_size(random);
    let at = aligned(at, size, random);
    let Some(place) = input.get_mut(at..at + size) else {
        return;
    };
    let is_big = random.one_in(3);
    let mut word = [0; 8];
    word[..size].copy_from_slice(place);
    if is_big {
        word[..size].reverse();
    }
    let little = u64::from(random.byte() % 35);
    let number = u64::from_le_bytes(word);
    let number = match random.one_in(2) {
        true => number.wrapping_add(little),
        false => number.wrapping_sub(little),
    };
    word = number.to_le_bytes();
    if is_big {
        word[..size].reverse();
    }
    place.copy_from_slice(&word[..size]);
}

/// Finds one side of a comparison in the input, and puts the other there; where it is not found,
/// the other goes anywhere.
fn put_compared(input: &mut [u8], at: usize, pair: Pair, random: &mut Random) {
    let from = random.index(2);
    let [wanted, mut given] = [pair.sides[from], pair.sides[1 - from]];
    match random.index(8) {
        0 => given = given.wrapping_add(1),
        1 => given = given.wrapping_sub(1),
        _ => {}
    }
    // A number that was read in four bytes is often compared in eight.
    let is_narrow = (wanted | given) >> 32 == 0 && pair.size == 8;
    let size = match (is_narrow, random.one_in(2)) {
        (true, true) => [1, 2, 4][random.index(3)],
        _ => pair.size,
    };
    let (mut needle, mut bytes) = (
        wanted.to_le_bytes()[..size].to_vec(),
        given.to_le_bytes()[..size].to_vec(),
    );
    if random.one_in(2) {
        needle.reverse();
        bytes.reverse();
    }
    let is_there = |place: &usize| input[*place..].starts_with(&needle);
    // From any place on, so that not always the first is found.
    let found = (at..input.len()).chain(0..at).find(is_there);
    let place = match found {
        Some(place) => place,
        None if random.one_in(4) => aligned(at, size, random),
        None => return,
    };
    let count = size.min(input.len() - place);
    input[place..place + count].copy_from_slice(&bytes[..count]);
}

/// Two words change places.
fn swap(input: &mut [u8], at: usize, random: &mut Random) {
    let words = input.len() / 8;
    if words < 2 {
        input.reverse();
        return;
    }
    let (first, second) = ((at / 8).min(words - 1), random.index(words));
    for byte in 0..8 {
        input.swap(8 * first + byte, 8 * second + byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_input_is_changed_within_its_size() {
        let mut random = Random::new(1);
        let pairs = [
            Pair {
                size: 8,
                sides: [1, 77],
            },
            Pair {
                size: 1,
                sides: [0, 255],
            },
        ];
        for length in [0, 1, 7, 8, 100] {
            for _ in 0..2000 {
                let mut input = vec![1; length];
                change(&mut input, &mut random, &pairs, b"others have this", 120);
                assert!(input.len() <= 120);
            }
        }
    }

    #[test]
    fn what_was_compared_takes_the_place_of_what_it_was_compared_with() {
        let pair = Pair {
            size: 4,
            sides: [0x0403_0201, 0xdead_beef],
        };
        let mut random = Random::new(3);
        let found = (0..200).any(|_| {
            let mut input = vec![0, 1, 2, 3, 4, 0];
            put_compared(&mut input, 0, pair, &mut random);
            input == [0, 0xef, 0xbe, 0xad, 0xde, 0]
        });
        assert!(found);
    }
}
